"""Writes the scenario of a recorded run, so that its requests can be simulated again.

Model, GPU and settings are those that the record states or the user gives; the rest are defaults,
which the scenario does not spell out. Its traffic is a trace in the same folder, with the served
requests. A record names models and GPUs in its own way; they are looked up in the catalogue.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calibrate.published_names import Unrepresentable, gpu_name, model_name
from calibrate.recordings.recording import Recording
from calibrate.recordings.server import RecordedServer, assumed_settings, assumption, server_of
from calibrate.recordings.stated import Requests
from sim import catalog
from sim.errors import InfersimError, UsageError
from sim.scenario import Scenario, load_scenario
from sim.scenario.reading.extends import extended
from sim.scenario.reading.loading import read
from sim.scenario.reading.overrides import applied
from sim.scenario.text.document import Document
from sim.scenario.text.writing import write_yaml
from sim.setup import prepare
from sim.specs.model import ModelSpec
from sim.workload.traces import Trace

_QUANTISED = re.compile(
    r"(?<![a-z0-9])(fp8|fp4|nvfp4|mxfp4|int8|int4|w8a8|w4a16|awq|gptq|quantized)(?![a-z0-9])"
)


def known_model(named: str) -> str | None:
    """The catalogue's name of the model that is published as ``named``, or None.

    >>> known_model("meta-llama/Meta-Llama-3.1-8B-Instruct"), known_model("someone/other-7b")
    ('llama-3.1-8b', None)
    """
    try:
        return model_name(named)
    except Unrepresentable:
        return None


def known_gpu(named: str) -> str | None:
    """The catalogue's name of the GPU that its driver calls ``named``, or None.

    >>> known_gpu("NVIDIA H100 80GB HBM3"), known_gpu("NVIDIA A100 80GB PCIe")
    ('h100-sxm', 'a100-pcie')
    """
    try:
        return gpu_name(named)
    except Unrepresentable:
        return None


def quantised(named: str) -> str | None:
    """The number format of its weights that stands in the name of a model, if one does.

    >>> quantised("RedHatAI/Qwen3-8B-FP8-dynamic"), quantised("Qwen/Qwen3-8B")
    ('fp8', None)
    """
    found = _QUANTISED.search(named.lower())
    return found[1] if found else None


def absolute(name: str, kind: catalog.Kind) -> str:
    """``name``, made absolute if it is the path of a file here and not in the catalogue."""
    if name in catalog.names(kind) or not Path(name).exists():
        return name
    return str(Path(name).absolute())


TRACE = "trace.csv"
"""The file next to the scenario that has the arrivals and lengths."""

LONGEST_NAME = 60


def trace_of(requests: Requests) -> Trace:
    """The served requests as a trace; the times are kept to the last bit."""
    served = requests.served
    return Trace(
        requests.arrivals[served], requests.prompt_tokens[served], requests.output_tokens[served]
    )


def scenario_of(
    recording: Recording,
    base: Path,
    *,
    model: str | None = None,
    gpu: str | None = None,
    overrides: Sequence[str] = (),
    server: Path | None = None,
) -> tuple[Scenario, Recording]:
    """The scenario of a run, to stand in the folder ``base``, which holds its trace; and the record
    with what it was simulated as, and what was assumed.

    ``model`` and ``gpu`` go before what the record says, as do the settings of a ``server`` that a
    scenario file states, whose traffic does not count. UsageError where neither tells which they
    are, or a setting is unclear that no override gives; ScenarioError for values that no scenario
    can have.
    """
    given = {text.partition("=")[0].strip() for text in overrides}
    for key in sorted(given):
        if key.partition(".")[0] == "workload" and recording.summary is None:
            raise UsageError(f"--set {key}: the traffic of a recorded run cannot be changed")
    like = {} if server is None else _like(server)
    if like:
        given = given | set(like) | {"fleet.0.gpu"}
    found = _model(recording, model, given)
    ranked = of_ranks(recording.stated.settings, _known(found, overrides))
    stated = dataclasses.replace(recording.stated, settings=ranked)
    recording = dataclasses.replace(recording, stated=stated)
    named = _given_engine(overrides) or like.get("engine")
    served_by = server_of(stated, named)
    data = _joined(_data(recording, found, _gpu(recording, gpu, given), served_by), like)
    for key, reason in _unclear(recording).items():
        if not any(each == key or each.startswith(f"{key}.") for each in given):
            raise UsageError(
                f"{recording.files[0]}: {reason}, which does not determine {key}; give "
                f"{WAYS.get(key, f'--set {key}=VALUE')}"
            )
    comments = [] if recording.summary is None else _scaled_blocks(data, base, overrides)
    document, refused = applied(Document(data, base), overrides)
    plain = Scenario.from_document(document, refused)
    assumed = {} if like else assumed_settings(recording.stated.settings, given, plain.resolved())
    recording = dataclasses.replace(recording, server=served_by, assumed=assumed)
    comments = [_origin(recording, served_by), served_by.note, *assumption(assumed), *comments]
    told = "".join(f"# {_printable(comment)}\n" for comment in comments)
    text = f"{told}{write_yaml(document.data)}"
    scenario = Scenario.from_document(dataclasses.replace(document, text=text), refused)
    return scenario, recording


TRAFFIC = ("name", "description", "workload", "run", "version")
"""Sections of a scenario that are not of its server."""


def _like(path: Path) -> dict[str, Any]:
    """What a scenario file says of its server; UsageError where it cannot be read."""
    load_scenario(path)  # whose mistakes are its own
    document, _ = extended(read(path)[0])
    found = {key: value for key, value in document.data.items() if key not in TRAFFIC}
    if isinstance(found.get("model"), str):
        found["model"] = absolute(found["model"], "models")
    return found


def _joined(data: dict[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` of a record with what a scenario says of its server, which goes before it, key by
    key; the record's number of replicas stands where the scenario does not say one."""
    joined: dict[str, Any] = data | dict(like)
    for section, said in like.items():
        if isinstance(said, dict) and isinstance(data.get(section), dict):
            joined[section] = data[section] | said
    match data["fleet"], like.get("fleet"):
        case [{"replicas": replicas}], {**pool} | [{**pool}]:
            joined["fleet"] = [{"replicas": replicas, **pool}]
    return joined


def _scaled_blocks(data: dict[str, Any], base: Path, overrides: Sequence[str]) -> list[str]:
    """Say the number of KV blocks in ``data`` as a factor of those that would be predicted, so that
    it holds with other GPUs, layouts and formats, too; the sentence on it, if it can be said so.

    ``overrides`` are those of the scenario, which may state the number themselves.
    """
    blocks = data.get("kv_cache", {}).get("num_gpu_blocks")
    if blocks is None:
        return []
    cache = {key: value for key, value in data["kv_cache"].items() if key != "num_gpu_blocks"}
    document, refused = applied(Document(data | {"kv_cache": cache}, base), overrides)
    try:
        (pool,) = prepare(Scenario.from_document(document, refused)).pools
    except (InfersimError, ValueError):  # it does not fit, or has several pools
        return []
    if pool.capacity.given:
        return []
    predicted = pool.capacity.num_gpu_blocks
    factors = (float(f"{(blocks + 0.5) / predicted:.{digits}g}") for digits in range(3, 17))
    factor = next(each for each in factors if int(predicted * each) == blocks)
    data["kv_cache"] = cache
    data["assume"] = data.get("assume", {}) | {"kv_blocks": factor}
    return [
        f"The server has {blocks:,} KV blocks, {predicted:,} are predicted: assume.kv_blocks is "
        "the first over the second, and holds with other GPUs and formats."
    ]


ENGINE_KEYS = ("engine", "fleet.engine", "fleet.0.engine")
"""The ways to give the engine of the only pool."""


def _given_engine(overrides: Sequence[str]) -> str | None:
    """The preset that overrides name, the last of them."""
    pairs = (text.partition("=")[::2] for text in overrides)
    given = [value.strip() for key, value in pairs if key.strip() in ENGINE_KEYS]
    return given[-1] if given else None


def of_ranks(settings: Mapping[str, Any], model: ModelSpec | None) -> dict[str, Any]:
    """``settings`` of a vLLM server with data ranks, for its ``model``.

    vLLM runs the ranks of a model with experts as one engine, which steps together; those of a
    dense model are engines that know nothing of each other, and experts that are not there are not
    spread (vllm/v1/engine/core.py, run_engine_core: "Non-MoE DP ranks are completely independent,
    so treat like DP=1").
    """
    dense = model is not None and not model.has_experts
    if not dense:
        return dict(settings)
    names = {DATA: REPLICAS}
    return {names.get(key, key): value for key, value in settings.items() if key != EXPERT}


DATA, EXPERT, REPLICAS = (
    f"fleet.0.{name}" for name in ("data_parallel", "expert_parallel", "replicas")
)


WAYS = {
    "workload.arrivals": "--set workload.arrivals.kind=poisson --set workload.arrivals.rate=R, or, "
    "of clients that wait for their answers, --set workload.arrivals.kind=closed --set "
    "workload.arrivals.concurrency=N",
    "fleet": "--server SCENARIO, a file that has them",
}
"""The options for a key that takes more than one value."""


def _known(model: str, overrides: Sequence[str]) -> ModelSpec | None:
    """The model that the run is simulated with; None for one that cannot be read, of which the
    scenario complains."""
    pairs = (text.partition("=")[::2] for text in overrides)
    given = [value.strip() for key, value in pairs if key.strip() in ("model", "model.path")]
    try:
        return catalog.model(given[-1] if given else model)
    except InfersimError:
        return None


def _unclear(recording: Recording) -> dict[str, str]:
    """Keys that must be given by hand, and what the record says instead of their value."""
    stated, weights = recording.stated, "precision.weights"
    told = None if stated.model is None else quantised(stated.model)
    if told is None or weights in stated.settings or weights in stated.unclear:
        return dict(stated.unclear)
    return {**stated.unclear, weights: f"the model is called {stated.model}"}


def _data(recording: Recording, model: str, gpu: str, server: RecordedServer) -> dict[str, Any]:
    data: dict[str, Any] = {
        "version": 1,
        "name": _name(recording),
        "description": f"{_origin(recording, server)} Simulate it to compare.",
        "model": model,
        "fleet": [{"gpu": gpu}],
        "engine": server.preset,
    }
    for key, value in recording.stated.settings.items():
        inside: Any = data
        *steps, last = key.split(".")
        for step in steps:
            inside = inside[int(step)] if step.isdecimal() else inside.setdefault(step, {})
        inside[last] = value
    if recording.summary is not None:
        run = {"requests": recording.summary.simulated, "warmup": 0}
        return data | {"workload": recording.summary.workload(), "run": run}
    return data | {"workload": {"trace": {"path": TRACE, "format": "csv"}}}


def _name(recording: Recording) -> str:
    """The name of the file, or of its folder where several make up the record."""
    path = recording.files[0].absolute()
    stem = path.stem if len(recording.files) == 1 else path.parent.name
    if not path.exists():  # the address of a server
        stem = (recording.stated.model or "served").rpartition("/")[2].lower()
    printable = "".join(char for char in stem if char.isprintable()).strip()
    return printable[:LONGEST_NAME] or "recorded"


def _origin(recording: Recording, server: RecordedServer) -> str:
    summary = recording.summary
    served = int(recording.requests.served.sum()) if summary is None else summary.completed
    told = f"The {'' if served is None else f'{served:,} '}requests that {server.subject} served, "
    told += "as they came." if summary is None else "drawn anew from a summary of them."
    return _printable(told)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def _model(recording: Recording, given: str | None, overridden: set[str]) -> str:
    if given is not None:
        return absolute(given, "models")
    stated = recording.stated.model
    found = None if stated is None else known_model(stated)
    if found is None and "model" not in overridden:
        raise UsageError(_unknown(recording, "model", stated))
    return found or ""


def _gpu(recording: Recording, given: str | None, overridden: set[str]) -> str:
    if given is not None:
        return absolute(given, "gpus")
    stated = recording.stated.gpu
    found = None if stated is None else known_gpu(stated)
    if found is None and not overridden & {"fleet.gpu", "fleet.0.gpu"}:
        raise UsageError(_unknown(recording, "gpu", stated))
    return found or ""


def _unknown(recording: Recording, kind: str, stated: str | None) -> str:
    """The message for a model or GPU that the record does not name as the catalogue does."""
    says = f"says {stated!r}, which is not in the catalogue" if stated else "does not say"
    what = {"model": "the model", "gpu": "the GPU"}[kind]
    return (
        f"{recording.files[0]}: the record {says}: {what} must be given; add --{kind} NAME "
        "(`infersim list` has the names) or the path of a file"
    )
