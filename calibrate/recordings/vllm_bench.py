"""Reads results of ``vllm bench serve --save-result``, and of SGLang's ``bench_serving``.

One JSON document with a list per quantity, in seconds: when each request was sent (by the client's
clock), after how long its first piece came, and the gaps between the pieces. The summaries in it,
``mean_ttft_ms`` and the like, are milliseconds; one of them is compared with the lists. All of it
was seen by the client, so the network and the engine's HTTP front end are inside.

Requests without output tokens failed; releases of 2024 count those that ended at once, without an
error, as completed, and their TTFT of 0 in its mean. ``start_times`` are missing in older releases:
then all were sent at once where ``request_rate`` is infinite ("inf") and ``max_concurrency`` null;
otherwise the times are approximated (``sent_times``). A result that was saved without details has
the summaries alone (``summaries``); older ones of SGLang have medians and few means.
``--append-result`` leaves an object a line. The document names the model, but neither the GPU nor
the engine's settings, unless ``--metadata`` put them there (``METADATA``). Nor does it name the
server where ``backend`` is the client's own default (``BACKENDS``). Results of SGLang have its
``server_info``. Keys are those of vLLM 0.32 and before, and of SGLang 0.4 and 0.5 (python/sglang/
bench_serving.py, now benchmark/serving.py).

The client draws the gaps between requests from a gamma law of mean 1/rate and shape ``burstiness``
(1: Poisson), scaled so that the last of n requests is sent n/rate after the start, and has at most
``concurrency`` requests in flight. Which gaps it drew is unknown, since other draws from the same
generator come before them.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.recordings.clients import TTFT
from calibrate.recordings.entries import RecordingEntry, entry, note
from calibrate.recordings.recording import (
    Recording,
    RecordingChoice,
    RecordingFormat,
    in_order,
    summed,
)
from calibrate.recordings.stated import Floats, Requests, Stated, of_pool
from calibrate.recordings.summaries import DURATION, RATES, Summary, arrivals, count, metrics
from sim.catalog.gpu_names import named_by_publisher
from sim.errors import TraceError
from sim.export.bench import SIMULATED, SIMULATED_BY
from sim.workload.traces.head import document_block
from sim.workload.traces.rows import Block, listed, shown

LISTS = ("input_lens", "output_lens", "ttfts", "itls")
CONDITIONS = (
    *("date", "endpoint_type", "backend", "label", "model_id", "tokenizer_id", "num_prompts"),
    *("request_rate", "burstiness", "max_concurrency", "duration"),
)
"""The entries copied into the manifest, where the document has them."""

TOLERANCE = 0.01
"""How far, relatively, the mean of ``ttfts`` may be from the ``mean_ttft_ms`` of the same file:
both are made of the same numbers, so that more is another unit or another run."""

BACKENDS = {
    "sglang": "sglang",
    "sglang-native": "sglang",
    "sglang-oai": "sglang",
    "sglang-oai-chat": "sglang",
    "tensorrt-llm": "tensorrt-llm",
    "trt": "tensorrt-llm",
    "lmdeploy": "lmdeploy",
    "lmdeploy-chat": "lmdeploy",
    "tgi": "tgi",
    "deepspeed-mii": "deepspeed-mii",
    "scalellm": "scalellm",
    "llama.cpp": "llama.cpp",
}
"""Engines by the value of ``backend`` that is theirs alone. ``vllm``, ``openai`` and their likes
are ways of asking, which any server understands: `vllm bench serve` takes one of them by default
(vllm/benchmarks/serve.py, ``--backend``)."""

OF_SGLANG = {"vllm": "vllm", "vllm-chat": "vllm"}
"""Backends of SGLang's client (python/sglang/bench_serving.py), whose default is its own engine:
there a user has named vLLM."""

METADATA = {
    **dict.fromkeys(("tp", "tp_size", "tensor_parallel", "tensor_parallel_size"),
                    of_pool("tensor_parallel")),
    **dict.fromkeys(("pp", "pp_size", "pipeline_parallel", "pipeline_parallel_size"),
                    of_pool("pipeline_parallel")),
    **dict.fromkeys(("replicas", "num_replicas", "decode_replicas"), of_pool("replicas")),
}  # fmt: skip
"""Settings of the server by what users call them in ``--metadata``, all of them whole numbers."""

OF_SERVER = {
    "pp_size": of_pool("pipeline_parallel"),
    "chunked_prefill_size": "scheduler.max_num_batched_tokens",
    "max_running_requests": "scheduler.max_num_seqs",
}
"""Names in the ``server_info`` of SGLang's results -> ours; its limits are shared out among data
ranks."""

OF_GPU = ("gpu", "gpu_name", "gpu_type", "gpu_model", "accelerator", "hardware")
OF_ENGINE = ("engine", "server", "framework", "inference_engine")
OF_VERSION = ("engine_version", "server_version", "vllm_version", "sglang_version")
"""Users' names for the GPU, the engine and its release there; the first stated counts."""

OTHERS = re.compile(
    r"(^|_)(gpus?|nodes?|tp|pp|dp|ep|replicas?|parallel|precision|quanti[sz]ation|dtype|engine|"
    r"server|framework|hardware|accelerator|version|prefill|decode|accept)(_|$)"
)
"""Keys that sound like a setting of the server."""


def _read(path: Path, choice: RecordingChoice) -> Recording:
    taken = entry(path, choice.entry)
    found = taken.found
    if "input_lens" not in found:
        return _summary(path, taken)
    sent = "start_times" in found
    names = [*LISTS, *(["start_times"] if sent else []), *(["errors"] if "errors" in found else [])]
    block = document_block(path, found, names)
    failed = block.zeros("output_lens")
    if all(failed):
        raise TraceError(f"{path}: none of the {len(failed):,} requests was served")
    empty, unanswered = _empty_answers(found, block, failed)
    rate, burstiness, limit = _client(path, found)
    requests, gaps = _requests(block, failed, sent)
    notes, totals = note(taken, "result"), dict[str, float]()
    if not sent and not (limit is None and math.isinf(rate)):
        requests = _drawn(requests, rate, burstiness, limit, choice.seed)
        notes.append(assumption(rate, burstiness, limit, choice.seed))
        totals = {key: value for key, value in metrics(found).items() if key in RATES}
    if unanswered:
        notes.append(unanswered)
        requests = requests.taken(~np.array(empty))
        totals = {key: value for key, value in totals.items() if key == DURATION}
    else:
        _check_unit(path, found, requests)
    ranked, _ = in_order(requests)
    capped = (
        f"The client had at most {limit} requests in flight; the replay sends them at the "
        "recorded times, however long earlier answers take."
    )
    if limit is not None:
        notes.append(capped)
    stated, unused = _stated(path, found, {})
    return Recording(
        files=(path,),
        requests=ranked,
        gaps=gaps,
        samples=None,
        stated=stated,
        ttft=TTFT,
        front_end="server",
        notes=(*notes, *unused),
        date=_day(found.get("date")),
        simulated=_simulated(found),
        totals=totals,
    )


def _stated(
    path: Path, found: Mapping[str, object], unclear: Mapping[str, str]
) -> tuple[Stated, list[str]]:
    """The document's facts on the server, and a note on what sounds like one and is not used."""
    texts = [_first(found, names) for names in (OF_GPU, OF_ENGINE, OF_VERSION)]
    gpu, engine, version = texts
    server = _of_sglang(found)
    settings, used = _sglang_settings(server), {*OF_GPU, *OF_ENGINE, *OF_VERSION}
    for name, key in METADATA.items():
        if found.get(name) is not None and key not in settings:
            value = found[name]
            whole = int(value) if isinstance(value, str) and value.isdecimal() else value
            settings[key] = count(path, {name: whole}, name, least=1)
            used.add(name)
    known = {*CONDITIONS, *METADATA, *used}
    others = {
        name: value
        for name, value in found.items()
        if name not in known and OTHERS.search(name) and _plain(value)
    }
    told = ", ".join(f"{name} {shown(value)}" for name, value in others.items())
    notes = [f"The record also states {told}, of which nothing is used."] if others else []
    metadata = {name: found[name] for name in found if name in used and _plain(found[name])}
    stated = Stated(
        model=_text(found, "model_id") or _text(server, "model_path"),
        gpu=gpu if gpu is not None and named_by_publisher(gpu) is not None else None,
        engine=(engine or "").lower() or _backend(found),
        version=version or _text(server, "version"),
        settings=settings,
        unclear=unclear,
        conditions={name: found[name] for name in CONDITIONS if _plain(found.get(name))}
        | metadata
        | others,
    )
    if gpu is not None and stated.gpu is None:
        notes.append(f"The record says that it ran on {shown(gpu)}, which the catalogue lacks.")
    return stated, notes


def _of_sglang(found: Mapping[str, object]) -> Mapping[str, Any]:
    """SGLang's ``server_info``, that of the decoding side where there are two; else empty."""
    info = found.get("server_info")
    while isinstance(info, dict) and isinstance(info.get("decode"), list) and info["decode"]:
        info = info["decode"][0]
    return info if isinstance(info, dict) else {}


def _sglang_settings(server: Mapping[str, Any]) -> dict[str, Any]:
    """The settings in SGLang's ``server_info`` whose meaning is that of ours."""
    ranks, data = (
        value if type(value := server.get(name)) is int and value > 0 else 1
        for name in ("tp_size", "dp_size")
    )
    spread = data if server.get("enable_dp_attention") else 1
    settings = {of_pool("tensor_parallel"): ranks // spread} if server else {}
    if data > 1:
        settings[of_pool("data_parallel") if spread > 1 else of_pool("replicas")] = data
    for name, key in OF_SERVER.items():
        value = server.get(name)
        if type(value) is int and value > 0:
            settings[key] = value if name == "pp_size" else max(1, value // spread)
    return settings


def _first(found: Mapping[str, object], names: Sequence[str]) -> str | None:
    return next((text for name in names if (text := _text(found, name)) is not None), None)


def _backend(found: Mapping[str, object]) -> str | None:
    """The engine that ``backend`` names; None where it is a way of asking."""
    backend = str(found.get("backend"))
    of_sglang = any(
        name in found for name in ("total_output_tokens_retokenized", "sharegpt_output_len")
    )
    return BACKENDS.get(backend) or (OF_SGLANG.get(backend) if of_sglang else None)


def _summary(path: Path, taken: RecordingEntry) -> Recording:
    """A result without the single requests."""
    found = taken.found
    if "completed" not in found or not any(key.endswith("_ms") for key in metrics(found)):
        raise TraceError(
            f"{path}: neither 'input_lens' nor 'mean_ttft_ms': this is not a result of `vllm bench "
            f"serve --save-result`; it has {listed(found)}"
        )
    completed = count(path, found, "completed", least=1)
    asked = found.get("num_prompts")
    failed = max(0, asked - completed) if type(asked) is int else 0
    came = arrivals(
        *(found.get(name) for name in ("request_rate", "burstiness", "max_concurrency"))
    )
    summary = Summary(
        metrics=metrics(found),
        completed=completed,
        failed=failed,
        prompt_tokens=count(path, found, "total_input_tokens", least=1) / completed,
        output_tokens=count(path, found, "total_output_tokens", least=1) / completed,
        arrivals=came,
    )
    rate = f"request_rate is {shown(found.get('request_rate'))}"
    stated, unused = _stated(path, found, {} if came is not None else {"workload.arrivals": rate})
    return summed(
        path,
        summary,
        stated,
        notes=(*note(taken, "result"), *unused),
        date=_day(found.get("date")),
        simulated=_simulated(found),
    )


def _client(path: Path, found: Mapping[str, object]) -> tuple[float, float, int | None]:
    """Rate, burstiness and limit of requests in flight; TraceError for what cannot be, where
    ``start_times`` do not say when requests were sent."""
    rate, limit = found.get("request_rate"), found.get("max_concurrency")
    shape = found.get("burstiness", 1.0)
    known = limit if type(limit) is int and limit > 0 else None
    if "start_times" in found:
        return math.inf, 1.0, known
    rate = math.inf if rate == "inf" else rate
    if type(rate) not in (int, float) or not rate > 0 or type(shape) not in (int, float):  # type: ignore[operator]
        raise TraceError(
            f"{path}: no 'start_times', and request_rate {shown(found.get('request_rate'))} with "
            f"burstiness {shown(shape)} does not say when requests were sent; put the right "
            "request_rate into the file, or measure with a release that saves start_times"
        )
    if not shape > 0:  # type: ignore[operator]
        raise TraceError(f"{path}: burstiness is {shown(shape)}; allowed: more than 0")
    return float(rate), float(shape), known  # type: ignore[arg-type]


def _drawn(
    requests: Requests, rate: float, burstiness: float, limit: int | None, seed: int
) -> Requests:
    """The requests, sent at approximated times; their latencies stay."""
    latency = np.where(requests.served, requests.finish - requests.arrivals, 0.0)
    times = sent_times(latency, rate, burstiness, limit, seed)
    later = times - requests.arrivals
    return replace(
        requests,
        arrivals=times,
        first_token=requests.first_token + later,
        finish=requests.finish + later,
    )


def _day(date: object) -> str | None:
    """The day of ``20260102-030405``, as vLLM writes dates; None for anything else."""
    try:
        return datetime.strptime(str(date), "%Y%m%d-%H%M%S").date().isoformat()
    except ValueError:
        return None


def _simulated(found: Mapping[str, object]) -> Mapping[str, str] | None:
    """The tool behind a result that no engine produced; None for a measured one."""
    maker = found.get(SIMULATED_BY)
    if not isinstance(maker, Mapping) and found.get("backend") != SIMULATED:
        return None
    known = maker if isinstance(maker, Mapping) else {}
    parts = {"name": "infersim", "version": "of an unknown version", "scenario": "unknown"}
    return {key: str(known.get(key) or default) for key, default in parts.items()}


def _requests(block: Block, failed: list[bool], sent: bool) -> tuple[Requests, Floats]:
    """The requests by the client's clock, and all gaps of those that were served."""
    served = block.without(failed)
    ttft = served.seconds("ttfts")
    if not ttft.all():
        served.fail(int(np.argmin(ttft)), "ttfts", "more than 0 where there are output tokens")
    gaps = _gaps(served)
    kept = ~np.array(failed)
    arrivals = block.seconds("start_times") if sent else np.zeros(len(failed))
    first, finish, outputs = _empty(failed), _empty(failed), np.zeros(len(failed), dtype=np.int64)
    first[kept] = arrivals[kept] + ttft
    finish[kept] = first[kept] + np.array([sum(each) for each in gaps])
    outputs[kept] = served.tokens("output_lens")
    requests = Requests(
        arrivals=arrivals,
        scheduled=_empty(failed),
        first_token=first,
        finish=finish,
        prompt_tokens=block.tokens("input_lens"),
        output_tokens=outputs,
        failures=_failures(block, failed),
    )
    return requests, np.array([gap for each in gaps for gap in each], dtype=np.float64)


def _gaps(served: Block) -> list[list[float]]:
    """The gaps (s) of each request; the list of a request that has none is empty."""
    found = []
    for row, each in enumerate(served.columns["itls"]):
        usable = isinstance(each, list) and all(
            type(gap) in (int, float) and 0 <= gap < math.inf for gap in each
        )
        if not isinstance(each, list) or not usable:
            served.fail(row, "itls", "a list of finite numbers that are not negative")
        found.append([float(gap) for gap in each])
    return found


def _failures(block: Block, failed: list[bool]) -> tuple[str | None, ...]:
    """The reason of each failed request, as far as the document says."""
    if "errors" not in block.columns:
        return tuple("failed" if each else None for each in failed)
    told = [_last_line(error) for error in block.columns["errors"]]
    reasons = (f"failed: {text}" if text else "failed" for text in told)
    return tuple(reason if each else None for reason, each in zip(reasons, failed, strict=True))


def _last_line(error: object) -> str:
    """The gist of an error: the last line of a traceback, or its only one."""
    lines = [line.strip() for line in str(error or "").splitlines() if line.strip()]
    return shown(lines[-1])[1:-1] if lines else ""


def _empty_answers(
    found: Mapping[str, object], block: Block, failed: list[bool]
) -> tuple[list[bool], str | None]:
    """Which requests completed without a token, and the note on them, where ``mean_ttft_ms`` counts
    their TTFT of 0 (releases of 2024); no note where none did, or the mean is that of the
    others."""
    errors = block.columns.get("errors", [""] * len(failed))
    empty = [each and not error for each, error in zip(failed, errors, strict=True)]
    mean = found.get("mean_ttft_ms")
    if not any(empty) or not isinstance(mean, int | float) or not 0 < mean < math.inf:
        return empty, None
    counted = block.without([bad and not none for bad, none in zip(failed, empty, strict=True)])
    seconds = float(np.mean(counted.seconds("ttfts")))
    served = float(np.mean(block.without(failed).seconds("ttfts")))
    if not _agree(seconds, mean) or _agree(served, mean):
        return empty, None
    one = sum(empty) == 1
    requests = f"{sum(empty):,} request{'s' * (not one)}"
    them, they = ("it", "it is") if one else ("them", "they are")
    return empty, (
        f"{requests} completed without a token. The file counts {them} as completed, with a TTFT "
        f"of 0 in its mean of {mean:,.1f} ms; here {they} left out of every count, rate and time: "
        f"the mean of the other {len(failed) - sum(failed):,} is {served * 1e3:,.1f} ms."
    )


def _agree(seconds: float, milliseconds: float) -> bool:
    return abs(seconds * 1e3 / milliseconds - 1) <= TOLERANCE


def _check_unit(path: Path, found: dict[str, object], requests: Requests) -> None:
    """Raise TraceError if the lists do not come to the mean (ms) in the same file."""
    mean = found.get("mean_ttft_ms")
    if not isinstance(mean, int | float) or not mean > 0 or math.isinf(mean):
        return
    served = requests.served
    seconds = float((requests.first_token - requests.arrivals)[served].mean())
    if not _agree(seconds, mean):
        raise TraceError(
            f"{path}: the mean of ttfts, {seconds:.6g} s, is not the mean_ttft_ms of {mean:.6g}; "
            "expected lists in seconds, of the run that the mean sums up"
        )


def _empty(failed: list[bool]) -> Floats:
    return np.full(len(failed), np.nan)


def _text(found: Mapping[str, object], name: str) -> str | None:
    value = found.get(name)
    return value if isinstance(value, str) and value else None


def _plain(value: Any) -> bool:
    """Whether a value can stand in a manifest: a text or a finite number."""
    return isinstance(value, str) or (isinstance(value, int | float) and math.isfinite(value))


FORMAT = RecordingFormat(
    name="vllm-bench",
    layout="the JSON of `vllm bench serve --save-result`, best with --save-detailed; older and "
    "appended results, and SGLang's bench_serving, too",
    read=_read,
    marks=("completed duration total_input_tokens", "completed median_ttft_ms"),
    several=True,
)


def sent_times(
    latencies: Floats, rate: float, burstiness: float, concurrency: int | None, seed: int
) -> Floats:
    """When requests were sent that took ``latencies`` (0: failed), in the order of sending.

    ``rate`` is in requests per second, infinite for as soon as possible. With a limit on
    concurrency and an infinite rate the times follow from the latencies alone.

    >>> sent_times(np.array([3.0, 1.0, 1.0, 5.0]), math.inf, 1.0, 2, 0).tolist()
    [0.0, 0.0, 1.0, 2.0]
    """
    due = np.zeros(len(latencies))
    if not math.isinf(rate):
        random = np.random.default_rng(seed)
        gaps = random.gamma(burstiness, 1.0 / (rate * burstiness), len(latencies))
        due = np.cumsum(gaps) * (len(latencies) / rate / gaps.sum())
    if concurrency is None:
        return due
    out: list[float] = []
    times = np.empty(len(latencies))
    for number, (at, latency) in enumerate(zip(due.tolist(), latencies.tolist(), strict=True)):
        start = max(at, heapq.heappop(out)) if len(out) >= concurrency else at
        heapq.heappush(out, start + latency)
        times[number] = start
    return times


def assumption(rate: float, burstiness: float, concurrency: int | None, seed: int) -> str:
    """How the times were approximated, in a sentence or two."""
    none = "The result has no start_times (an older release of the client): "
    if math.isinf(rate):
        return (
            f"{none}the requests are assumed sent as soon as one of {concurrency:,} slots was "
            "free, which follows from how long each took."
        )
    law = "a Poisson process" if burstiness == 1 else f"gamma gaps of burstiness {burstiness:g}"
    limit = "" if concurrency is None else f", at most {concurrency:,} in flight"
    return (
        f"{none}arrivals are drawn as {law} at {rate:g} requests/s{limit}, with seed {seed}. They "
        "are as dense as the real ones on average, but not the same: TTFT and E2EL of single "
        "requests cannot be compared, and their percentiles include that randomness."
    )
