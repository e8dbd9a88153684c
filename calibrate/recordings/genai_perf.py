"""Reads the summaries of GenAI-Perf: ``profile_export_genai_perf.json`` or ``.csv``.

Metrics as in AIPerf, which followed it: ``{unit, avg, p50, ...}`` under the same names
(genai-perf/genai_perf/export_data in triton-inference-server/perf_analyzer). ``input_config`` of
the JSON has the model and the load, as options or, in later releases, in sections. The CSV has the
same metrics with their units, and neither.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.recordings.aiperf import exported
from calibrate.recordings.clients import mapping
from calibrate.recordings.recording import Recording, RecordingChoice, RecordingFormat, summed
from calibrate.recordings.stated import Stated
from calibrate.recordings.summaries import arrivals
from sim.errors import TraceError
from sim.workload.traces.head import document
from sim.workload.traces.rows import listed, reads_as_number
from sim.workload.traces.text import lines

ENGINES = {"tensorrtllm": "tensorrt-llm", "vllm": "vllm"}
"""Values of ``backend`` that name an engine."""

NAME = re.compile(r"(.*?)(?: \(([^)]*)\))?")
"""A metric in the CSV, with its unit."""


def _read(path: Path, choice: RecordingChoice) -> Recording:
    found = _table(path) if path.suffix == ".csv" else document(path)
    if "request_latency" not in found:
        raise TraceError(f"{path}: not a summary of GenAI-Perf; it has {listed(found)}")
    place = str(path)
    asked = mapping(place, found, "input_config")
    came = _arrivals(place, asked)
    models = asked.get("model_names") or asked.get("model")
    model = models[0] if isinstance(models, list) and models else models
    backend = mapping(place, asked, "endpoint").get("backend") if isinstance(
        asked.get("endpoint"), dict) else asked.get("backend")  # fmt: skip
    stated = Stated(
        model=model if isinstance(model, str) else None,
        gpu=None,
        engine=ENGINES.get(str(backend)),
        unclear={} if came else {"workload.arrivals": "neither concurrency nor rate is stated"},
        conditions={"client": "genai-perf"},
    )
    return summed(path, exported(place, found, came), stated)


def _arrivals(place: str, asked: Mapping[str, object]) -> dict[str, Any] | None:
    """How requests came: a number of clients, or a constant rate."""
    nested = mapping(place, mapping(place, asked, "perf_analyzer"), "stimulus")
    clients, rate = (
        found[0] if isinstance(found := nested.get(name) or asked.get(name), list) else found
        for name in ("concurrency", "request_rate")
    )
    if clients:
        return arrivals("inf", 1.0, clients) if isinstance(clients, int) else None
    return {"kind": "constant", "rate": float(rate)} if arrivals(rate, 1.0, None) else None  # type: ignore[arg-type]


def _table(path: Path) -> dict[str, object]:
    """The CSV's two tables as the JSON has them."""
    found, header = dict[str, object](), list[str]()
    for row in csv.reader(lines(path)):
        if row and row[0] == "Metric":
            header = ["avg" if name == "Value" else name for name in row[1:]]
        elif row and (named := NAME.fullmatch(row[0])):
            cells = (cell.replace(",", "") for cell in row[1:])
            values = {
                name: float(cell)
                for name, cell in zip(header, cells, strict=False)
                if reads_as_number(cell)
            }
            found[named[1].lower().replace(" ", "_")] = {"unit": named[2], **values}
    return found


FORMAT = RecordingFormat(
    name="genai-perf",
    layout="GenAI-Perf's profile_export_genai_perf.json or .csv",
    read=_read,
    marks=("request_latency input_config", "Metric avg"),
)
