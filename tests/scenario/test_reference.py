"""``infersim explain scenario``: a reference of every key that is true, complete and readable."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import UsageError
from sim.scenario.reference.json_schema import json_schema, kinds
from sim.scenario.reference.keys import Key, asked, keys

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 6},
        "prompt_tokens": {"kind": "fixed", "value": 512},
        "output_tokens": {"kind": "fixed", "value": 64},
    },
}
KEYS = keys()
PLAIN = [
    key
    for key in KEYS
    if key.default is not None
    and not key.kind
    and not key.path.startswith(("workload", "speculative."))
]


SCALED = BASE | {"fleet": {"gpu": "h100-sxm", "replicas": {"max": 8}}}
UNCHOSEN = BASE | {"engine": "ideal"}  # which chooses nothing where a scenario says nothing
APART = BASE | {
    "fleet": [{"name": role, "role": role, "gpu": "h100-sxm"} for role in ("prefill", "decode")]
}
OUT = BASE | {"failures": [{"at": "5min"}]}
WITH: dict[str, tuple[dict[str, Any], str]] = {
    "fleet.replicas.": (SCALED, "fleet.0.replicas.max=8"),
    **{
        f"autoscaling.{key}.0.{other}": (SCALED | {"autoscaling": {key: [{one: 5}]}}, "seed=42")
        for key in ("scale_up", "scale_down")
        for one, other in (("pods", "percent"), ("percent", "p"))
    },
    "autoscaling.": (SCALED, "autoscaling.target=3"),
    "steering.steps.": (BASE | {"steering": {"steps": [{"at": 5, "do": "drain"}]}}, "seed=42"),
    "steering.cold_start": (BASE | {"steering": {"steps": [{"at": 5, "do": "drain"}]}}, "seed=42"),
    "steering.": (BASE, "steering.cold_start=9s"),
    "admission.": (BASE | {"slo": {"ttft": "1s"}}, "admission.policy=deadline"),
    "lora.": (BASE, "lora.adapters=20"),
    "transfer.": (APART, "transfer.min_prompt=null"),
    "failures.outages.": (OUT, "failures.outages.0.at=5min"),
    "failures.outages": (BASE, "failures.mtbf=720h"),
    "failures.": (OUT, "failures.outages.0.at=5min"),
    **dict.fromkeys(
        ("scheduler.", "kv_cache.", "fleet.scheduler.", "fleet.kv_cache."), (UNCHOSEN, "seed=42")
    ),
}
"""Keys of a section that only some scenarios have: such a scenario, and one key of the section."""


def explain(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["explain", "scenario", *arguments])


def test_every_single_value_of_the_schema_is_described() -> None:
    simple = {name for name, item in json_schema()["$defs"].items() if "properties" not in item}
    assert simple == set(kinds())
    assert all(kind.name == name and kind.words for name, kind in kinds().items())


def test_every_key_of_a_resolved_scenario_is_there() -> None:
    listed = {key.path for key in KEYS}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, list):
            value = value[0]
        if isinstance(value, dict):
            for name, inner in value.items():
                if name != "kind":
                    assert f"{path}{name}" in listed
                    walk(inner, f"{path}{name}.")

    walk(sim.load_scenario(BASE).resolved(), "")


@pytest.mark.parametrize("key", PLAIN, ids=lambda key: key.path)
def test_a_default_is_what_the_key_has_when_it_is_left_out(key: Key) -> None:
    base, also = next((w for place, w in WITH.items() if key.path.startswith(place)), (BASE, None))
    scenario = sim.load_scenario(base)
    left_out = scenario if also is None else scenario.override([also])
    stated = left_out.override([f"{key.path}={key.default}"])
    if key.path.startswith(("fleet.scheduler.", "fleet.kv_cache.")):
        assert stated.pools == left_out.pools  # a pool's own, the same as that of all
    else:
        assert stated == left_out


@pytest.mark.parametrize("key", [key for key in KEYS if key.required], ids=lambda key: key.path)
def test_a_required_key_has_an_example(key: Key) -> None:
    assert key.examples or key.path == "workload.classes.0.name"


PARTS = "workload.lengths.parts"


def laws() -> dict[tuple[str, str], dict[str, Any]]:
    """Each law with its required keys at their examples."""
    found: dict[tuple[str, str], dict[str, Any]] = defaultdict(dict)
    for key in KEYS:
        if key.path == PARTS:  # the laws in it are those of prompt_tokens and output_tokens
            found["workload.lengths", "mixture"]["parts"] = yaml.safe_load(key.examples[0])
        elif key.path.startswith(PARTS):
            continue
        elif key.kind and key.holds:
            found[key.path, key.kind]["kind"] = key.kind
        elif key.kind and key.required:
            path, _, name = key.path.rpartition(".")
            found[path, key.kind][name] = yaml.safe_load(key.examples[0])
    return found


@pytest.mark.parametrize(("place", "law"), laws().items(), ids=str)
def test_a_law_needs_what_is_called_required_and_no_more(
    place: tuple[str, str], law: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lengths.csv").write_text("num_prefill_tokens,num_decode_tokens\n10,20\n")
    path, kind = place
    if kind == "lognormal" and "cv" not in law:
        law = {**law, "p95": 2400}  # or cv: one of the two
    workload = dict(BASE["workload"])
    if path == "workload.lengths":
        workload = {"arrivals": workload["arrivals"]}
    section, name = workload, path.removeprefix("workload.")
    if name.startswith("sessions."):
        section, name = {"turns": {"kind": "fixed", "value": 2}}, name.removeprefix("sessions.")
        workload["sessions"] = section
    document = {**BASE, "workload": workload}
    if not path.startswith("workload."):  # on_timeout, in_flight: what clients do
        *sections, name = path.removeprefix("fleet.").split(".")
        section = {"mtbf": "720h"} if sections == ["failures"] else {"client_timeout": "9s"}
        inner = {sections[0]: section}
        fleet = {"fleet": {**BASE["fleet"], **inner}} if path.startswith("fleet.") else inner
        document |= fleet
    section[name] = law
    assert sim.load_scenario(document).name == "scenario"
    for needed in set(law) - {"kind"}:
        section[name] = {other: value for other, value in law.items() if other != needed}
        with pytest.raises(sim.errors.ScenarioError, match=needed):
            sim.load_scenario(document)


def test_the_whole_reference_fits_88_columns_and_names_every_key() -> None:
    done = explain()
    assert done.exit_code == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 88
    for path in ("scheduler.max_num_batched_tokens", "workload.trace.time_scale", "slo.attainment"):
        assert f"\n{path}  default: " in done.stdout
    assert "\nmodel  required\n" in done.stdout
    assert done.stdout.count("Many short, a few very long") == 1  # not again for the other lengths
    assert "The kinds are those of workload.prompt_tokens." in done.stdout


@pytest.mark.parametrize(
    ("name", "first", "absent"),
    [
        ("workload.arrivals", "workload.arrivals  default: null", "workload.trace"),
        ("batch_timeout", "scheduler.batch_timeout  default: 50ms", "max_num_seqs"),
        ("fleet.0.gpu", "fleet.gpu  required", "replicas"),
        ("output_tokens.p95", "workload.output_tokens.p95  (lognormal)", "workload.prompt_tokens"),
    ],
)
def test_one_part(name: str, first: str, absent: str) -> None:
    done = explain(name)
    assert done.exit_code == 0
    assert done.stdout.strip().startswith(first)
    assert absent not in done.stdout


def test_values_and_units_are_said() -> None:
    rate = explain("workload.arrivals.rate").stdout
    assert "Unit: per second" in rate
    assert "90/min" in rate
    assert "0 (others are not supported yet)" in explain("kv_cache.swap_space").stdout
    assert "recompute, swap, auto" in " ".join(explain("kv_cache.preemption").stdout.split())
    assert "kind: poisson, gamma, constant, burst, closed, ramp, diurnal" in " ".join(
        explain("workload.arrivals").stdout.split()
    )


def test_json_is_one_object_with_one_entry_a_key() -> None:
    done = explain("scheduler", "--json")
    document = json.loads(done.stdout)
    assert document["command"] == "explain scenario"
    by_path = {key["path"]: key for key in document["keys"]}
    assert by_path["scheduler.max_num_seqs"]["default"] == "256"
    assert by_path["scheduler"]["section"] is True
    assert by_path["scheduler.batch_timeout"]["unit"] == "s"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("workload.arivals", "workload.arrivals"),
        ("max_seqs", "scheduler.max_num_seqs"),
        ("alocator", "kv_cache.allocator"),
    ],
)
def test_an_unknown_key_names_the_nearest(name: str, meant: str) -> None:
    done = explain(name)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert name in done.stderr
    with pytest.raises(UsageError, match="no key of a scenario"):
        asked(name)
    assert meant.rpartition(".")[2] in done.stderr
