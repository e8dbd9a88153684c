"""Turns the fields of the form into a scenario, and its errors into words next to a field.

A question is a mapping of field names to the texts that a reader typed. An empty text leaves the
scenario's default. Latency limits without a unit are in milliseconds, the percentile in percent.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

import yaml

from sim.catalog import gpu, names
from sim.errors import InfersimError, UsageError
from sim.scenario.reference.keys import keys
from sim.scenario.sections.deployment import PrecisionName
from sim.scenario.text.parsing import scalar
from sim.scenario.text.writing import write_yaml
from sim.schedulers import POLICIES
from sim.specs.precision import formats_of

Question = Mapping[str, str]

MOST_REQUESTS = 2000
"""Requests of a run that the page asks for; `infersim run` takes any number."""

LONGEST = 400
"""Characters of a field."""

BASE = "chat"
"""The shipped scenario that the command starts from; every section of a question replaces its."""

TRACE = re.compile(r"[0-9a-f]{16}")
"""The name of an uploaded trace, as the server gave it."""


class Field(NamedTuple):
    """An input of the form. The ``label`` behind "|" is for screen readers. ``path`` is the key of
    the scenario (of its one pool), ``when`` the field and the values of it with which this one
    counts, ``known`` and ``choices`` the list of names that it suggests, or lets one choose from,
    ``width`` how much of a row it takes, of four, ``help`` what it is, where the form does not take
    it as the scenario's key."""

    name: str
    label: str
    path: str
    default: str = ""
    hint: str = ""
    choices: str = ""
    known: str = ""
    when: str = ""
    width: int = 1
    help: str = ""


GROUPS: Mapping[str, tuple[Field, ...]] = {
    heading: tuple(Field(**each) for each in fields)
    for heading, fields in yaml.safe_load(
        Path(__file__).with_name("form.yaml").read_text("utf-8")
    ).items()
}
"""Heading -> the fields below it, in the order of the form."""

FIELDS: Mapping[str, Field] = {field.name: field for group in GROUPS.values() for field in group}

LISTS: Mapping[str, Sequence[str]] = {
    **{kind: names(kind) for kind in ("models", "gpus", "engines")},
    "formats": get_args(PrecisionName),
    "batchings": list(POLICIES),
    "arrivals": ("poisson", "gamma", "constant", "burst", "closed"),
}
"""List -> the names that its fields suggest, or offer."""


def helps() -> dict[str, str]:
    """Field -> what it is: the meaning of its key in the reference of scenarios."""
    meanings: dict[str, str] = {}
    for key in keys():
        meanings.setdefault(key.path, key.meaning)
    return {name: field.help or meanings[field.path] for name, field in FIELDS.items()}


class FieldError(InfersimError):
    """A text that no scenario could take, and the field that has it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def read(given: Any) -> dict[str, str]:
    """The question in a JSON value, with its defaults; UsageError for what the form never sends."""
    if not isinstance(given, dict) or not given.keys() <= FIELDS.keys():
        raise UsageError("a question is a mapping of the form's fields")
    if not all(isinstance(text, str) and len(text) <= LONGEST for text in given.values()):
        raise UsageError(f"every field is a text of at most {LONGEST} characters")
    return {name: given.get(name, field.default).strip() for name, field in FIELDS.items()}


def scenario_of(asked: Question, trace: Path | None = None) -> dict[str, Any]:
    """The scenario that ``asked`` is short for, with the ``trace`` it names; FieldError for what
    only the page refuses.

    >>> made = scenario_of(read({"tensor_parallel": "2", "prompt_p95": "", "ttft": "2s"}))
    >>> made["fleet"], made["workload"]["prompt_tokens"], made["slo"]["ttft"]
    ([{'gpu': 'h100-sxm', 'tensor_parallel': 2}], {'kind': 'fixed', 'value': 800}, '2s')
    """
    made: dict[str, Any] = {"name": "asked", "description": "A question of infersim ui"}
    made["model"] = asked["model"]
    fleet = {
        name: scalar(asked[name])
        for name in ("gpu", "replicas", "tensor_parallel", "pipeline_parallel", "data_parallel")
        if asked[name] not in ("", "1")
    }
    made["fleet"] = [fleet]
    made["engine"] = asked["engine"] or "vllm"
    formats = formats_of(asked["weights"]) if asked["weights"] else {}
    formats |= _section("precision", asked, "kv_cache").get("precision", {})
    made |= {"precision": formats} if formats else {}
    made |= _section("scheduler", asked, "batching", "max_num_seqs", "chunk")
    if asked["max_model_len"]:
        made["max_model_len"] = scalar(asked["max_model_len"])
    if asked["trace"]:
        if trace is None:
            raise FieldError("trace", "this trace is not here any more: choose the file again")
        made["workload"] = {"trace": {"path": str(trace)}}
    else:
        made["workload"] = _drawn(asked)
    limits = {name: _in_ms(asked[name]) for name in ("ttft", "tpot") if asked[name]}
    if limits:
        made["slo"] = limits | {"attainment": _share(asked["percentile"])}
    made["run"] = {"requests": _requests(asked["requests"])}
    return made


def _section(name: str, asked: Question, *fields: str) -> dict[str, Any]:
    """A section of the scenario with those of its ``fields`` that are filled."""
    keys = {FIELDS[field].path.rpartition(".")[2]: asked[field] for field in fields}
    given = {key: scalar(text) for key, text in keys.items() if text}
    return {name: given} if given else {}


def _drawn(asked: Question) -> dict[str, Any]:
    kind = asked["arrivals"]
    wanted = [name for name in ("rate", "cv", "concurrency") if applies(FIELDS[name], asked)]
    arrivals = {"kind": kind} | {name: scalar(asked[name]) for name in wanted if asked[name]}
    lengths = {f"{name}_tokens": _lengths(name, asked) for name in ("prompt", "output")}
    return {"arrivals": arrivals, **lengths}


def _lengths(name: str, asked: Question) -> dict[str, Any]:
    """The law of the lengths of prompts or outputs: all alike without a 95th percentile."""
    if not asked[f"{name}_p95"]:
        return {"kind": "fixed", "value": scalar(asked[name])}
    law = {"kind": "lognormal", "mean": scalar(asked[name]), "p95": scalar(asked[f"{name}_p95"])}
    longest = asked[f"{name}_max"]
    return law | ({"max": scalar(longest)} if longest else {})


def applies(field: Field, asked: Question) -> bool:
    """Whether ``field`` is part of the question."""
    other, _, values = field.when.partition("=")
    return not other or (asked[other] in values.split(",") and applies(FIELDS[other], asked))


def _number(text: str) -> int | float | None:
    found = scalar(text)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def _in_ms(text: str) -> str:
    return text if _number(text) is None else f"{text}ms"


def _share(text: str) -> Any:
    rank = _number(text)
    if rank is None or not 0 < rank <= 100:
        raise FieldError("percentile", f"a percentile is above 0 and at most 100, got {text!r}")
    return float(f"{rank / 100:.9g}")


def _requests(text: str) -> Any:
    count = _number(text)
    if count is not None and count > MOST_REQUESTS:
        raise FieldError(
            "requests",
            f"the page simulates at most {MOST_REQUESTS:,} requests; `infersim run` takes more",
        )
    return scalar(text) if text else MOST_REQUESTS


# -- what a reader takes along ---------------------------------------------------------------------


def shown_yaml(scenario: Mapping[str, Any], trace: str = "") -> str:
    """The scenario as a file, with the reader's own name of an uploaded trace."""
    return write_yaml(_named(scenario, trace))


def command(scenario: Mapping[str, Any], trace: str = "") -> str:
    """The command that asks the same question, without a file.

    >>> print(command(scenario_of(read({})))[:45])
    infersim run chat --set name=asked --set 'des
    """
    return _asking(scenario, trace, "run", BASE)


def plan_command(scenario: Mapping[str, Any], trace: str = "") -> str:
    """The command that finds how many replicas of its GPU the question takes; empty without an
    SLO, or without a load that a fleet could be sized for.

    >>> print(plan_command(scenario_of(read({})))[:50])
    infersim plan chat --gpus h100-sxm --tensor-parall
    >>> plan_command(scenario_of(read({"arrivals": "burst"})))
    ''
    """
    (pool,) = scenario["fleet"]
    layout = "--tensor-parallel", str(pool.get("tensor_parallel", 1))
    return _planning(scenario, trace, str(pool["gpu"]), *layout)


def cheapest_command(scenario: Mapping[str, Any], trace: str = "") -> str:
    """The command that finds the cheapest fleet for the question of all GPUs that have a price in
    the catalogue, in every usual tensor parallel size; empty where ``plan_command`` is.

    >>> "a100-sxm-80gb," in cheapest_command(scenario_of(read({})))
    True
    """
    priced = [name for name in names("gpus") if gpu(name).price is not None]
    return _planning(scenario, trace, ",".join(priced))


def _planning(scenario: Mapping[str, Any], trace: str, gpus: str, *layout: str) -> str:
    arrivals = scenario["workload"].get("arrivals", {"rate": None})
    if "slo" not in scenario or "rate" not in arrivals:
        return ""
    return _asking(scenario, trace, "plan", BASE, "--gpus", gpus, *layout)


def _asking(scenario: Mapping[str, Any], trace: str, *words: str) -> str:
    """The command of these ``words`` about a question."""
    cleared = dict.fromkeys(("max_model_len", "slo"))
    sections = _named(scenario, trace)
    texts = [f"{key}={_flow(value)}" for key, value in (sections | cleared | sections).items()]
    return shlex.join(["infersim", *words, *(x for text in texts for x in ("--set", text))])


def _flow(value: object) -> str:
    text = yaml.safe_dump(
        value, default_flow_style=True, allow_unicode=True, width=10**6, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...")


def _named(scenario: Mapping[str, Any], trace: str) -> dict[str, Any]:
    workload = scenario["workload"]
    if "trace" not in workload:
        return dict(scenario)
    return {**scenario, "workload": {"trace": {"path": trace or "trace.csv"}}}


# -- errors ----------------------------------------------------------------------------------------


def errors_of(error: InfersimError) -> dict[str, str]:
    """Each message of ``error`` by the field that it is about; under an empty name what is about
    none.

    >>> errors_of(UsageError("fleet.1.replicas: expected a whole number\\nnothing fits"))
    {'replicas': 'expected a whole number', '': 'nothing fits'}
    """
    if isinstance(error, FieldError):
        return {error.field: str(error)}
    found: dict[str, str] = {}
    for line in str(error).splitlines():
        path, colon, message = line.partition(": ")
        field = _field_of(path) if colon and re.fullmatch(r"[\w.]+", path) else ""
        told = message if field else line
        found[field] = f"{found[field]}\n{told}" if field in found else told
    return found


ALSO = {
    "fleet": "gpu",
    "precision.activations": "weights",
    "precision.experts": "weights",
    "workload.arrivals": "arrivals",
    "workload.prompt_tokens": "prompt_p95",
    "workload.prompt_tokens.value": "prompt",
    "workload.output_tokens": "output_p95",
    "workload.output_tokens.value": "output",
}
"""Further keys of the scenario, and the field that shows their errors."""


def _field_of(path: str) -> str:
    """The field of a key, or of what encloses it."""
    keys = {field.path: field.name for field in FIELDS.values()} | ALSO
    if path in FIELDS:  # an error of the deployment, which knows no pools
        return path
    path = re.sub(r"^fleet\.\d+", "fleet", path)
    while path and path not in keys:
        path = path.rpartition(".")[0]
    return keys.get(path, "")
