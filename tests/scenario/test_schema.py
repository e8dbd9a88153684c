"""The JSON Schema for editors: fresh, and of one mind with the loader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim import catalog
from sim.cli import app
from sim.errors import ScenarioError
from sim.scenario import load_scenario, starter
from sim.scenario.reading.paths import PATHS
from sim.scenario.reference.json_schema import DRAFT, json_schema, kinds, to_text
from sim.scenario.sections.support import LIMITS
from sim.scenario.text.parsing import parse
from tests.places import ROOT

SCENARIOS = ROOT / "scenarios"
FILES = sorted(SCENARIOS.glob("*.yaml"))
SCHEMA = json_schema()

CHAT: dict[str, Any] = parse((SCENARIOS / "chat.yaml").read_text(encoding="utf-8"), "").data

TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
}
ANNOTATIONS = {"$schema", "title", "description", "default", "examples", "$defs"}
ANNOTATIONS |= {"if", "else", "additionalProperties"}  # which concern several keywords at once


def is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, TYPES[kind])


def is_number(value: Any) -> bool:
    return is_of(value, "number")


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """Whether ``value`` is valid, by the part of draft 2020-12 that the schema uses."""
    if "else" in schema and not accepts(schema["if"], value) and not accepts(schema["else"], value):
        return False
    known = set(schema.get("properties", {}))
    if "additionalProperties" in schema and isinstance(value, dict) and not set(value) <= known:
        return False
    rules = {key: rule for key, rule in schema.items() if key not in ANNOTATIONS}
    return all(KEYWORDS[key](rule, value) for key, rule in rules.items())


KEYWORDS: dict[str, Callable[[Any, Any], bool]] = {
    "$ref": lambda rule, value: accepts(SCHEMA["$defs"][rule.removeprefix("#/$defs/")], value),
    "type": lambda rule, value: any(
        is_of(value, k) for k in ([rule] if type(rule) is str else rule)
    ),
    "const": lambda rule, value: type(value) is type(rule) and value == rule,
    "enum": lambda rule, value: value in rule,
    "anyOf": lambda rule, value: any(accepts(option, value) for option in rule),
    "properties": lambda rule, value: (
        not isinstance(value, dict)
        or all(accepts(rule[key], item) for key, item in value.items() if key in rule)
    ),
    "required": lambda rule, value: not isinstance(value, dict) or set(rule) <= set(value),
    "items": lambda rule, value: (
        not isinstance(value, list) or all(accepts(rule, item) for item in value)
    ),
    "minItems": lambda rule, value: not isinstance(value, list) or len(value) >= rule,
    "maxItems": lambda rule, value: not isinstance(value, list) or len(value) <= rule,
    "minLength": lambda rule, value: not isinstance(value, str) or len(value) >= rule,
    "pattern": lambda rule, value: not isinstance(value, str) or bool(re.search(rule, value)),
    "minimum": lambda rule, value: not is_number(value) or value >= rule,
    "exclusiveMinimum": lambda rule, value: not is_number(value) or value > rule,
    "maximum": lambda rule, value: not is_number(value) or value <= rule,
}


def parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and every mapping in it."""
    if isinstance(schema, dict):
        yield schema
        for item in schema.values():
            yield from parts(item)
    elif isinstance(schema, list):
        for item in schema:
            yield from parts(item)


def changed(key: str, value: Any) -> dict[str, Any]:
    """The chat scenario with another value at a dotted key."""
    data: dict[str, Any] = json.loads(json.dumps(CHAT))
    *steps, last = key.split(".")
    inside = data
    for step in steps:
        inside = inside.setdefault(step, {})
    inside[last] = value
    return data


def test_the_committed_one_is_fresh() -> None:
    committed = (SCENARIOS / "schema.json").read_text(encoding="utf-8")
    assert committed == to_text(), "run: infersim schema > scenarios/schema.json"
    shown = CliRunner().invoke(app, ["schema"])
    assert (shown.exit_code, shown.stdout) == (0, committed)
    assert json.loads(committed)["$schema"] == DRAFT


def test_every_reference_leads_somewhere_and_everything_is_used() -> None:
    used = {part["$ref"].removeprefix("#/$defs/") for part in parts(SCHEMA) if "$ref" in part}
    assert used == set(SCHEMA["$defs"])


def test_a_value_is_of_the_kind_that_its_type_narrows_last() -> None:
    arrivals = SCHEMA["$defs"]["GammaArrivals"]["properties"]
    assert arrivals["cv"]["$ref"] == "#/$defs/positive"
    assert SCHEMA["properties"]["metrics"]["anyOf"][0]["$ref"] == "#/$defs/metric"  # a line, too
    assert kinds()["count"].schema() == SCHEMA["$defs"]["count"]


def test_every_key_is_described() -> None:
    sections = [SCHEMA, *(part for part in SCHEMA["$defs"].values() if "properties" in part)]
    for section in sections:
        if section is SCHEMA["$defs"]["complete"]:
            continue
        for key, known in section["properties"].items():
            assert key == "kind" or known["description"]


def test_names_of_the_catalogue_can_be_completed() -> None:
    for name, kind in (("model", "models"), ("gpu", "gpus"), ("engine", "engines")):
        assert SCHEMA["$defs"][name]["anyOf"][0]["enum"] == catalog.names(kind)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_shipped_scenarios_are_valid(path: Path) -> None:
    assert accepts(SCHEMA, parse(path.read_text(encoding="utf-8"), "").data)
    assert accepts(SCHEMA, load_scenario(path).resolved())


@pytest.mark.parametrize("name", starter.names())
def test_the_templates_are_valid(name: str) -> None:
    assert accepts(SCHEMA, parse(starter.text(name), "").data)


GOOD = [
    ("slo.ttft", "500 ms"),
    ("slo.ttft", 1),
    ("slo.e2el", "20s"),
    ("slo.attainment", None),
    ("slo.tpot_p95", "50 ms"),
    ("slo", None),
    ("workload.arrivals.rate", "90/min"),
    ("workload.arrivals", {"kind": "burst"}),
    ("workload.arrivals", {"kind": "closed", "concurrency": 3, "think_time": "2s"}),
    ("workload.prompt_tokens", 4000),
    ("workload.prompt_tokens", "4000"),
    ("workload.output_tokens", 1),
    ("kv_cache.swap_space", "0GiB"),
    ("kv_cache.num_gpu_blocks", "4_096"),
    ("scheduler.max_num_seqs", "128"),
    ("scheduler.batching", "my.module:Policy"),
    ("scheduler.order", "priority"),
    ("scheduler.chunked_prefill", "off"),
    ("workload.classes", [{"name": "all", "share": "1", "deadline": "1s", "priority": "3"}]),
    ("workload.classes", None),
    ("fleet", [{"gpu": "l40s"}]),
    ("fleet.price_per_gpu_hour", None),
    ("fleet.price_per_gpu_hour", {"h100-sxm": 2.4, "./mine.yaml": 1}),
    ("run.warmup", "30s"),
    ("run.warmup", "auto"),
    ("run.warmup", 200),
]
BAD = [
    ("slo.ttft", "soon"),
    ("slo.ttft", 0),
    ("slo.ttft", 500),
    ("slo.ttft", "500"),
    ("slo.tpot", 40),
    ("slo.e2el_p99", 20),
    ("slo.ttft_p98", "1s"),
    ("slo.ttft", "-1s"),
    ("slo.attainment", 99),
    ("slo.tttf", "1s"),
    ("slo", []),
    ("workload.arrivals.rate", "6 per s"),
    ("workload.arrivals", {"kind": "poisson"}),
    ("workload.arrivals", {"rate": 6}),
    ("workload.arrivals", {"kind": "poison", "rate": 6}),
    ("workload.arrivals.cv", 2),
    ("workload.prompt_tokens", 0),
    ("workload.prompt_tokens", 4000.5),
    ("workload.prompt_tokens", "many"),
    ("workload.output_tokens", True),
    ("workload.sessions", {"turns": 0}),
    ("workload.sessions", {"turns": 4, "think_time": "soon"}),
    ("kv_cache.swap_space", "4XB"),
    ("scheduler.max_num_seqs", 0),
    ("scheduler.max_num_seqs", 1.5),
    ("scheduler.batching", "continous"),
    ("scheduler.chunked_prefill", 1),
    ("workload.classes", []),
    ("workload.classes", {"name": "all", "share": 1}),
    ("workload.classes", [{"share": 1}]),
    ("workload.classes", [{"name": "all", "share": 1, "priority": -1}]),
    ("precision.weights", "fp7"),
    ("fleet", []),
    ("fleet", {"replicas": 2}),
    ("fleet", None),
    ("fleet.price_per_gpu_hour", "free"),
    ("fleet.price_per_gpu_hour", {"h100-sxm": "free"}),
    ("run.warmup", "some"),
    ("version", 2),
    ("model", 8),
]


@pytest.mark.parametrize(("key", "value"), GOOD)
def test_what_the_loader_reads_is_valid(key: str, value: Any) -> None:
    load_scenario(changed(key, value))
    assert accepts(SCHEMA, changed(key, value))


SESSIONS = {"turns": {"kind": "geometric", "mean": 4}, "think_time": None}
IN_SESSIONS = ("turns", "think_time", "tool_delay", "branches")


@pytest.mark.parametrize(
    "key",
    [
        *("workload.prompt_tokens", "workload.output_tokens"),
        *(f"workload.sessions.{each}" for each in IN_SESSIONS),
    ],
)
def test_a_number_alone_is_a_constant_wherever_a_law_may_stand(key: str) -> None:
    data = changed("workload.sessions", SESSIONS)
    scenario = load_scenario(data).override({key: 7})
    law = {"kind": "fixed", "value": 7}
    assert scenario.resolved() == load_scenario(data).override({key: law}).resolved()


def test_every_law_with_a_constant_takes_it_alone() -> None:
    """Every key of the schema that offers ``kind: fixed`` offers its value too: those of the test
    above, and no other key."""
    laws = {
        name: each["properties"]["value"]["$ref"]
        for name, each in SCHEMA["$defs"].items()
        if each.get("properties", {}).get("kind") == {"const": "fixed"}
    }
    found = set()
    for section in SCHEMA["$defs"].values():
        for key, schema in section.get("properties", {}).items():
            refs = [each.get("$ref", "") for each in schema.get("anyOf", ())]
            for ref in refs:
                if (name := ref.rpartition("/")[2]) in laws:
                    assert laws[name] in refs, key
                    found.add(key)
    assert found == {"prompt_tokens", "output_tokens", *IN_SESSIONS}


@pytest.mark.parametrize(("key", "value"), BAD)
def test_what_the_loader_refuses_is_marked(key: str, value: Any) -> None:
    with pytest.raises(ScenarioError):
        load_scenario(changed(key, value))
    assert not accepts(SCHEMA, changed(key, value))


@pytest.mark.parametrize("key", ["model", "fleet", "workload"])
def test_what_is_required_is_so_only_without_a_parent(key: str) -> None:
    data = {name: value for name, value in CHAT.items() if name != key}
    assert not accepts(SCHEMA, data)
    assert accepts(SCHEMA, {**data, "extends": "base.yaml"})


def test_a_child_may_change_a_single_key() -> None:
    assert accepts(SCHEMA, {"extends": ["a.yaml"], "workload": {"arrivals": {"rate": 8}}})
    assert not accepts(SCHEMA, {"extends": "a.yaml", "workload": {"arrivals": {"rte": 8}}})
    assert not accepts(SCHEMA, {"extends": 7})


def test_nothing_is_offered_that_is_not_supported() -> None:
    """Every choice and kind that a limit refuses is absent at its key."""
    choices = "mxfp4 nvfp4 int4 prefill decode sjf priority edf swap auto random power-of-two"
    probes: list[Any] = [*choices.split(), "prefix-affinity", True, 2, [{"gpu": "l40s"}] * 2]
    probes += [{"kind": "ramp", "rate": 1, "final_rate": 2, "duration": 3}]
    probes += [{"kind": "normal", "mean": 8, "std": 1}, {"tokens": 1, "groups": 1}]
    probes += [{"method": "ngram", "num_tokens": 4, "acceptance_rate": 0.7}]
    checked = 0
    for limit in LIMITS:
        section = SCHEMA if limit.section == "Scenario" else SCHEMA["$defs"][limit.section]
        for probe in probes:
            if limit.refuses(probe):
                checked += 1
                assert not accepts(section["properties"][limit.key], probe), (limit, probe)
    assert checked >= len(LIMITS)


def test_every_key_that_holds_a_path_is_known_to_be_one() -> None:
    """Else a relative path of a parent would start at the folder of its child."""
    found = {key for key, known in PATHS.items() if known}
    found |= {key for key, known in PATHS.items() if not known}

    def paths(schema: dict[str, Any], at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        name = schema.get("$ref", "").removeprefix("#/$defs/")
        if name in ("model", "gpu", "engine", "file"):
            yield at
        elif name:
            yield from paths(SCHEMA["$defs"][name], at)
        for inner in [*schema.get("anyOf", []), *([schema["items"]] if "items" in schema else [])]:
            yield from paths(inner, at)
        for key, inner in schema.get("properties", {}).items():
            if (*at, key) != ("extends",):
                yield from paths(inner, (*at, key))

    assert set(paths(SCHEMA, ())) <= found
    assert {("model",), ("fleet", "gpu"), ("workload", "trace", "path")} <= set(paths(SCHEMA, ()))
