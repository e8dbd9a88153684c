"""Reads results of InferenceX, once InferenceMAX: ``agg_*.json``.

Latencies in seconds; rates are a GPU's (utils/process_result.py in SemiAnalysisAI/InferenceX). A
fixed number of clients keeps one request in flight each, ten in all by each client (its scripts:
``--num-prompts CONC * 10``). Lengths are those asked for, of which the client draws up to a part
less. The rows of its dashboard have ``metrics`` apart.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calibrate.recordings.clients import mapping
from calibrate.recordings.entries import RecordingEntry, chosen, entry, note
from calibrate.recordings.recording import Recording, RecordingChoice, RecordingFormat, summed
from calibrate.recordings.scenario import known_model
from calibrate.recordings.stated import Stated, of_pool
from calibrate.recordings.summaries import Summary, arrivals, count, distribution, length, rates
from sim import catalog
from sim.errors import TraceError
from sim.workload.traces.rows import listed, shown
from sim.workload.traces.text import whole

LATENCIES = ("ttft", "tpot", "itl", "e2el")
RATES = {"total_token_throughput": "tput_per_gpu", "output_throughput": "output_tput_per_gpu"}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trt": "tensorrt-llm", "trtllm": "tensorrt-llm"}
"""Engines by ``framework``; ``dynamo-`` and the like before them are routers."""

WEIGHTS = {
    "fp16": {"weights": "fp16", "activations": "fp16"},
    "bf16": {"weights": "bf16", "activations": "bf16"},
    "fp8": {"weights": "fp8", "activations": "fp8"},
    "fp4": {"weights": "nvfp4", "activations": "nvfp4"},
    "int4": {"weights": "int4-group", "activations": "bf16"},
    "int8": {"weights": "int8", "activations": "int8"},
}
"""Formats by ``precision``, where the catalogue's checkpoint is of another kind."""

KINDS = {"fp8": r"fp8", "fp4": r"(mx|nv)fp4", "int4": r"int4", "int8": r"int8", "bf16": r"bf16"}
RELEASE = re.compile(r"^(?:vllm|lmsysorg|nvcr\.io/nvidia)/.*:v?(\d+\.\d+[\w.]*)")


def _read(path: Path, choice: RecordingChoice) -> Recording:
    taken = _entry(path, choice.entry)
    found = {**taken.found, **mapping(str(path), taken.found, "metrics")}
    if not {"conc", "tput_per_gpu"} <= found.keys():
        raise TraceError(
            f"{path}: neither 'conc' nor 'tput_per_gpu': this is not a result of InferenceX; it "
            f"has {listed(found)}"
        )
    clients = count(path, found, "conc", least=1)
    settings, unclear, gpus = _layout(path, found)
    known = dict[str, float]()
    for name in LATENCIES:
        stated = {key.removesuffix(f"_{name}"): value for key, value in found.items()
                  if key.endswith(f"_{name}")}  # fmt: skip
        known |= distribution(stated, name, 1e3)
    if gpus:
        known |= {name: value * gpus for name, value in rates(found, RATES).items()}
    summary = Summary(
        metrics=known,
        completed=None,
        failed=0,
        prompt_tokens=length(str(path), found, "isl"),
        output_tokens=length(str(path), found, "osl"),
        arrivals=arrivals("inf", 1.0, clients),
    )
    model, gpu = (
        next((str(found[name]) for name in names if found.get(name)), None)
        for names in (("model",), ("hw", "hardware", "device"))
    )
    framework = str(found.get("framework") or "").lower()
    image = RELEASE.match(str(found.get("image") or ""))
    drafts = found.get("spec_decoding") or found.get("spec_method") or found.get("mtp")
    notes = note(taken, "result")
    if drafts and str(drafts).lower() not in ("none", "false", "off"):
        notes.append(
            f"The record also states speculative decoding ({shown(drafts)}), which the scenario "
            "lacks: give --set speculative..."
        )
    return summed(
        path,
        summary,
        Stated(
            model=model,
            gpu=gpu,
            engine=ENGINES.get(framework.rsplit("-", 1)[-1], framework or None),
            version=image[1] if image else None,
            settings=settings | _formats(model, found.get("precision")),
            unclear=unclear,
            conditions={"client": "InferenceX", **{k: v for k, v in taken.found.items()
                                                   if isinstance(v, str | int | float)}},
        ),
        notes=notes,
    )  # fmt: skip


def _entry(path: Path, number: int | None) -> RecordingEntry:
    """One object, of a file that has one, several or a list of them."""
    text = whole(path)
    if not text.lstrip().startswith("["):
        return entry(path, number)
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: not JSON: {shown(str(error))}") from None
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise TraceError(f"{path}: not a list of results")
    return chosen(path, rows, number, "result")


def _layout(
    path: Path, found: Mapping[str, object]
) -> tuple[dict[str, Any], dict[str, str], int | None]:
    """Settings of the GPUs, what must be given instead, and how many there are; None for pools
    apart, whose rates are by the GPU of a pool."""
    if _true(found.get("disagg")) or _true(found.get("is_multinode")):
        pools = ", ".join(f"{name} {shown(found[name])}" for name in found if "_num_workers" in name
                          or name.startswith("num_"))  # fmt: skip
        return {}, {"fleet": f"prefill and decode are apart ({pools})"}, None
    names = {each: each if each in found else f"decode_{each}" for each in ("tp", "ep", "pp")}
    names["dp_attention"] = "dp_attention" if "dp_attention" in found else "decode_dp_attention"
    ranks = count(path, found, names["tp"], least=1)
    stages = count(path, found, names["pp"], least=1) if names["pp"] in found else 1
    apart = _true(found.get(names["dp_attention"]))
    settings: dict[str, Any] = {of_pool("tensor_parallel"): 1 if apart else ranks}
    if apart:
        settings[of_pool("data_parallel")] = ranks
    if stages > 1:
        settings[of_pool("pipeline_parallel")] = stages
    spread = found.get(names["ep"])
    if isinstance(spread, int) and spread > 1:
        settings[of_pool("expert_parallel")] = True
    return settings, {}, ranks * stages


def _formats(model: str | None, precision: object) -> dict[str, str]:
    """The formats that ``precision`` means: those of the catalogue's checkpoint, if they are of
    that kind."""
    word, known = str(precision).lower(), None if model is None else known_model(model)
    published = None if known is None else catalog.model(known).published
    if published is not None and re.match(KINDS.get(word, word), published.stored):
        formats = {"weights": published.weights, "experts": published.experts,
                   "activations": published.activations}  # fmt: skip
    else:
        formats = {**WEIGHTS.get(word, {})}
    return {f"precision.{part}": name for part, name in formats.items() if name}


def _true(value: object) -> bool:
    return str(value).lower() == "true"


FORMAT = RecordingFormat(
    name="inferencex",
    layout="agg_*.json of InferenceX (InferenceMAX), or rows of its dashboard",
    read=_read,
    marks=("conc tput_per_gpu", "conc metrics"),
    several=True,
)
