"""Reads reports of inference-perf (kubernetes-sigs): ``stage_N_lifecycle_metrics.json``.

Latencies in seconds, of the requests that succeeded (inference_perf/reportgen/base.py); its
``inter_token_latency`` counts the lines of a stream or the tokens of a piece and is left out. A
folder stands for its stages; ``summary_lifecycle_metrics.json`` joins them and does not say how
requests were sent. The ``config.yaml`` next to a report has the model, the server and the law of
arrivals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from calibrate.recordings.clients import mapping, tokens
from calibrate.recordings.entries import chosen, note
from calibrate.recordings.recording import Recording, RecordingChoice, RecordingFormat, summed
from calibrate.recordings.stated import Stated
from calibrate.recordings.summaries import Summary, arrivals, distribution, length, rates
from sim.errors import TraceError
from sim.workload.traces.head import document
from sim.workload.traces.rows import listed, shown
from sim.workload.traces.text import whole

STAGE = re.compile(r"stage_(\d+)_lifecycle_metrics\.json")

LATENCIES = {
    "ttft": "time_to_first_token",
    "tpot": "time_per_output_token",
    "e2el": "request_latency",
}
RATES = {
    "request_throughput": "requests_per_sec",
    "output_throughput": "output_tokens_per_sec",
    "total_token_throughput": "total_tokens_per_sec",
}
ENGINES = ("vllm", "sglang", "tgi")


def _read(path: Path, choice: RecordingChoice) -> Recording:
    notes = list[str]()
    if path.is_dir():
        numbers = {int(m[1]): each for each in path.iterdir() if (m := STAGE.fullmatch(each.name))}
        if not numbers:
            raise TraceError(f"{path}: is a folder without stage_0_lifecycle_metrics.json")
        stages = [numbers[number] for number in sorted(numbers)]
        taken = chosen(path, [{"path": each} for each in stages], choice.entry, "stage")
        path, notes = stages[taken.number - 1], note(taken, "stage")
    found, place = document(path), str(path)
    if not {"load_summary", "successes"} <= found.keys():
        raise TraceError(
            f"{path}: neither 'load_summary' nor 'successes': this is not a report of "
            f"inference-perf; it has {listed(found)}"
        )
    load, served = mapping(place, found, "load_summary"), mapping(place, found, "successes")
    times, rate = (mapping(place, served, name) for name in ("latency", "throughput"))
    config = path.with_name("config.yaml")
    asked = _config(config)
    came, assumed = _arrivals(place, load, mapping(str(config), asked, "load").get("type"))
    failed = mapping(place, found, "failures").get("count")
    summary = Summary(
        metrics={
            **{key: value for ours, theirs in LATENCIES.items()
               for key, value in distribution(mapping(place, times, theirs), ours, 1e3).items()},
            **rates(rate, RATES),
            **rates(found, {"duration": "benchmark_time_seconds"}),
        },
        completed=tokens(f"{place}: successes", served, "count"),
        failed=failed if type(failed) is int else 0,
        prompt_tokens=_length(place, served, "prompt_tokens", "prompt_len"),
        output_tokens=_length(place, served, "output_tokens", "output_len"),
        arrivals=came,
    )  # fmt: skip
    told = "load_summary has neither concurrency nor requested_rate (the file of a stage has)"
    server = mapping(str(config), asked, "server")
    model, engine = server.get("model_name"), server.get("type")
    stated = Stated(
        model=model if isinstance(model, str) else None,
        gpu=None,
        engine=str(engine) if engine in ENGINES else None,
        unclear={} if came else {"workload.arrivals": told},
        conditions={"client": "inference-perf", "load": dict(load)},
    )
    beside = [config] if asked else []
    return summed(path, summary, stated, notes=[*notes, *assumed], beside=beside)


def _config(path: Path) -> Mapping[str, Any]:
    """The configuration at ``path``; empty where there is none."""
    if not path.is_file():
        return {}
    try:
        found = yaml.safe_load(whole(path))
    except yaml.YAMLError as error:
        raise TraceError(f"{path}: not YAML: {shown(str(error))}") from None
    return found if isinstance(found, dict) else {}


def _arrivals(
    place: str, load: Mapping[str, object], law: object
) -> tuple[dict[str, Any] | None, list[str]]:
    """How requests of a stage came, and a note where its law is assumed."""
    if load.get("concurrency") is not None:
        return arrivals("inf", 1.0, tokens(f"{place}: load_summary", load, "concurrency")), []
    poisson = arrivals(load.get("requested_rate"), 1.0, None)
    if poisson is None or law == "poisson":
        return poisson, []
    assumed = "The report does not say by which law requests were sent: a constant rate is assumed."
    return poisson | {"kind": "constant"}, [] if law == "constant" else [assumed]


def _length(place: str, served: Mapping[str, object], newer: str, older: str) -> float:
    name = newer if newer in served else older
    return length(f"{place}: successes.{name}", mapping(place, served, name), "mean")


FORMAT = RecordingFormat(
    name="inference-perf",
    layout="stage_N_lifecycle_metrics.json of inference-perf, or a folder with stages",
    read=_read,
    marks=("load_summary successes",),
    several=True,
)
