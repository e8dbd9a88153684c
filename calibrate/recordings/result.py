"""Writes the run directory of a recorded run, and with it the trace to simulate the run.

Same files, same columns, same keys as of a simulated run. What the record does not state is null in
the summary, and NaN in the tables. Where it has the engine's state tick by tick, a row of
``timeseries.parquet`` is one tick, counted as one iteration: ``decode_seqs`` are the tokens
generated in it other than first tokens, and the KV tokens are those of the blocks in use.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.recordings.recording import Recording
from calibrate.recordings.server import assumption
from calibrate.recordings.stated import Floats
from calibrate.recordings.summaries import DURATION, METRICS, PER_SECOND, Summary
from calibrate.validation.front_end import FRONT_END
from calibrate.validation.observed import OBSERVED_ON, RECORDED
from sim.export.bench import SIMULATED_BY
from sim.loop.recorder import COMPLETED, GAP, PLAN, REJECTED, REQUEST
from sim.metrics.question.question_text import asked
from sim.metrics.record.run_record import RunRecord
from sim.metrics.states import State
from sim.results.parquet_file import groups_of
from sim.results.run_result import RunResult
from sim.scenario.pools import only
from sim.setup import Setup

FAILED = "failed"
"""The status of a request that the engine did not serve; the record does not say whether it refused
it."""

LOAD = (
    *("utilisation", "utilisation_error", "peak_utilisation"),
    *("headroom", "slo_headroom", "drift_per_s", "drift_error_per_s"),
)
"""Metrics of the verdict that rest on a cost model."""

PREDICTED = ("rejection", "ends")
"""Parts of the summary that only a simulation has: why requests do not fit, and how far a faster or
slower device would move the metrics."""


class RecordedResult(RunResult):
    """Figures and tables of a run that another program recorded."""

    def __init__(self, recording: Recording, setup: Setup) -> None:
        super().__init__(_record(recording, setup))
        self.recording = recording

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The summary of a simulated run; what the record does not state is null or empty."""
        figures = dict(self.summaries[0])
        own = _own(figures["infersim"], self.recording, self.record)
        figures["infersim"] = own | {"asked": asked(self.scenario)}
        if self.recording.summary is not None:
            return summed_up(figures, self.recording.summary, self.recording.simulated)
        return with_totals(figures, self.recording.totals)

    @cached_property
    def charts(self) -> dict[str, Any]:
        """The charts of a simulated run, without what a real device moves and computes, which is
        not counted."""
        return super().charts | {"roofline": None}

    def _request_columns(self) -> dict[str, NDArray[Any]]:
        columns = super()._request_columns()
        unknown = np.full(len(self.record.requests), np.nan)
        status = columns["status"].copy()
        status[status == "rejected"] = FAILED
        return columns | {"preemptions": unknown, "status": status}

    def _timeseries_columns(self) -> dict[str, NDArray[Any]]:
        columns = super()._timeseries_columns()
        samples = self.recording.samples
        if samples is None:
            return columns
        ticks = len(samples.end)
        nothing, unknown = np.zeros(ticks, dtype=np.int32), np.full(ticks, np.nan)
        first = np.histogram(
            self.record.requests["first_token"][self.record.completed],
            bins=np.append(samples.start, samples.end[-1]),
        )[0]
        used = np.rint(samples.used * only(self.record.pools).capacity.tokens).astype(np.int64)
        return {
            "replica": nothing,
            "start_s": samples.start,
            "end_s": samples.end,
            "iterations": nothing + np.int32(1),
            "iteration_growth_s": np.zeros(ticks),
            "decode_seqs": _counts(np.maximum(samples.outputs - first, 0.0)),
            "decode_context": unknown,
            "prefill_seqs": unknown,
            "prefill_tokens": _counts(samples.prompts),
            "running": _counts(samples.running),
            "waiting": _counts(samples.waiting),
            "kv_used_tokens": used,
            "kv_reserved_tokens": used,
            "kv_reserved_end_tokens": used,
            "preemptions": unknown,
        }

    def _timeseries_groups(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        return groups_of(self._timeseries_columns())


def manifest(recording: Recording, name: str) -> dict[str, Any]:
    """The additions to the manifest of a simulated run; ``name`` is that of the format."""
    file, *others = recording.files
    stated = recording.stated
    described = {
        "kind": "observed",
        FRONT_END: recording.front_end,
        "source": {
            "format": name,
            "file": str(file),
            "sha256": _digest(file),
            "beside": {other.name: _digest(other) for other in others},
        },
        "model": stated.model,
        "device": {"name": stated.gpu},
        "engine": _engine(recording),
        "assumed": dict(recording.assumed),
        "hardware": stated.hardware,
        "conditions": stated.conditions,
        "ttft": recording.ttft,
        RECORDED: "requests" if recording.summary is None else "summary",
        OBSERVED_ON: recording.date,
        SIMULATED_BY: recording.simulated,
    }
    return {key: _finite(value) for key, value in described.items()}


def _engine(recording: Recording) -> dict[str, Any]:
    """The engine as the record names it, or as it is assumed, and its preset."""
    server = recording.server
    if server is None:
        return {"name": recording.stated.engine, "version": recording.stated.version}
    return {"name": server.name, "version": server.version, "preset": server.preset,
            "assumed": server.assumed}  # fmt: skip


def _whose(recording: Recording) -> list[str]:
    """Notes on whose server it was."""
    server = recording.server
    return [*([] if server is None else [server.note]), *assumption(recording.assumed)]


def _record(recording: Recording, setup: Setup) -> RunRecord:
    """The requests as the metrics want them; of iterations nothing is known.

    The record's own arrivals include any front end, so none is added.
    """
    bare = setup.each(lambda pool: pool.with_engine(pool.deployment.engine.without_front_end()))
    seen, reasons = recording.requests, _reasons(recording)
    rows = np.zeros(len(seen.failures), dtype=REQUEST)
    rows["id"] = np.arange(len(rows))
    for name in ("scheduled", "first_token", "finish", "prompt_tokens", "output_tokens"):
        rows[name] = getattr(seen, name)
    rows["arrival"] = seen.arrivals
    rows["generated"] = seen.output_tokens
    rows["replica"] = 0 if setup.scenario.replicas == 1 else -1
    rows["status"] = np.where(seen.served, COMPLETED, REJECTED)
    rows["reason"] = [-1 if why is None else reasons.index(why) for why in seen.failures]
    rows["class"] = -1
    gaps = np.zeros(0 if recording.gaps is None else len(recording.gaps), dtype=GAP)
    if recording.gaps is not None:
        gaps["gap"], gaps["count"] = recording.gaps, 1
    return RunRecord(
        scenario=setup.scenario,
        pools=bare.pools,
        plans=np.zeros(0, dtype=PLAN),
        requests=rows,
        gaps=gaps,
        reasons=reasons,
        end=float(np.nanmax(seen.finish)) if len(rows) else 0.0,
        offered=len(rows),
        events=0,
        interrupted=False,
        traffic_notes=(*_whose(recording), recording.ttft, *recording.notes, *_skipped(recording)),
    )


def with_totals(figures: dict[str, Any], totals: Mapping[str, float]) -> dict[str, Any]:
    """``figures`` with the ``totals`` of the file; where these have the duration, the rates and
    costs that they lack are over that, too."""
    if not figures[DURATION] or DURATION not in totals:
        return {**figures, **totals}
    longer, own = totals[DURATION] / figures[DURATION], figures["infersim"]
    rates = {key: figures[key] / longer for key in PER_SECOND}
    cost = None if own["cost"] is None else {**own["cost"]}
    for key in ("usd", "usd_per_million_output_tokens", "usd_per_million_tokens"):
        if cost is not None and cost[key] is not None:
            cost[key] *= longer
    return {**figures, **rates, **totals, "infersim": own | {"cost": cost}}


def summed_up(
    figures: dict[str, Any], stated: Summary, maker: Mapping[str, Any] | None
) -> dict[str, Any]:
    """``figures`` of a run of which only a summary is known, written by ``maker`` if it simulated
    the run: what the summary states, null otherwise."""
    own, completed, submitted = figures["infersim"], stated.completed, None
    text = f"{_how(maker)}: how many requests were completed is not stated."
    if completed is not None:
        submitted = completed + stated.failed
        text = f"{_how(maker)}: {completed:,} of {submitted:,} requests were completed."
    requests = dict.fromkeys(own["requests"]) | {
        **{"submitted": submitted, "completed": completed, "rejected": stated.failed},
        **{"unfinished": 0, "warmup": 0, "rejected_reasons": {}},
    }
    verdict = own["verdict"] | {
        **{"text": text, "limits": {}, "slo_met": None},
        **{name: None for name in ("slo_state", "first_limit") if name in own["verdict"]},
    }
    return {
        **figures,
        **dict.fromkeys(METRICS),
        **stated.metrics,
        "completed": completed,
        "failed": stated.failed,
        "total_input_tokens": completed and round(completed * stated.prompt_tokens),
        "total_output_tokens": completed and round(completed * stated.output_tokens),
        "infersim": {
            **_stated(own, stated),
            "requests": requests,
            "verdict": verdict,
            "cost": None,
        },
    }


def _stated(own: Mapping[str, Any], stated: Summary) -> dict[str, Any]:
    """What infersim says of its own, with the state of the servers where the summary has it."""
    state, found = stated.state, dict(own)
    if "mean_running" in state:
        found["batch"] = own["batch"] | {
            key: state[key] for key in ("mean_running", "mean_waiting") if key in state
        }
    if "mean_kv_used" in state:
        found["kv_cache"] = own["kv_cache"] | {"mean_used": state["mean_kv_used"]}
    if "preemptions" in state:
        found["preemptions"] = round(state["preemptions"])
    if "prefix_cache" in own:
        found["prefix_cache"] = own["prefix_cache"] | {"hit_rate": state.get("hit_rate")}
        if "hit_rate" not in state:
            del found["prefix_cache"]
    return found


def _reasons(recording: Recording) -> list[str]:
    return list(dict.fromkeys(why for why in recording.requests.failures if why is not None))


def _skipped(recording: Recording) -> list[str]:
    failed = sum(why is not None for why in recording.requests.failures)
    if not failed:
        return []
    told = "1 request failed and is" if failed == 1 else f"{failed:,} requests failed and are"
    return [f"{told} left out of the trace."]


def _name(maker: Mapping[str, Any]) -> str:
    return f"{maker['name']} {maker['version']}, scenario {maker['scenario']}"


def _how(maker: Mapping[str, Any] | None) -> str:
    """Where the figures come from."""
    return "Observed" if maker is None else f"Simulated by {_name(maker)}, not measured"


def _own(own: dict[str, Any], recording: Recording, run: RunRecord) -> dict[str, Any]:
    """The part of the summary that is infersim's own."""
    requests, stated = own["requests"], recording.stated
    served = f"{requests['completed']:,} of {requests['submitted']:,} requests were completed"
    maker = recording.simulated
    verdict = {"state": State.OBSERVED, "text": f"{_how(maker)}: {served}."}
    sure = "Measured, not predicted; what a second run would differ by is not in it."
    if maker is not None:
        sure = f"Predicted, not measured: the file was simulated by {_name(maker)}."
    no_band = dict.fromkeys(("throughput", "ttft", "tpot", "half", "measured"))
    server = stated.engine if recording.server is None else recording.server.subject.rstrip(",")
    place = f" on {stated.gpu}" if stated.gpu else ""
    return own | {
        "kind": "observed",
        **{name: None for name in PREDICTED if name in own},
        "verdict": own["verdict"]
        | {name: None for name in LOAD if name in own["verdict"]}
        | verdict,
        "queue_ms": own["queue_ms"]
        if _known(run.requests["scheduled"])
        else dict.fromkeys(own["queue_ms"]),
        "kv_cache": _kv_cache(own["kv_cache"], recording, run),
        "batch": _batch(own["batch"], recording, run),
        "preemptions": None,
        "utilisation": dict.fromkeys(own["utilisation"]),
        "bound_by": {},
        "time_by_operator": {},
        "operators": {},
        "memory": None,
        "energy": None,
        "error_band": {**no_band, "parts": {}, "text": sure},
        SIMULATED_BY: None if maker is None else dict(maker),
        OBSERVED_ON: recording.date,
        "provenance": f"{server}{place}, recorded in {recording.files[0].name}",
    }


def _kv_cache(kv: dict[str, Any], recording: Recording, run: RunRecord) -> dict[str, Any]:
    """The size of the KV cache where the record states its blocks; how much of it was taken, from
    the samples."""
    usage = ("mean_used", "peak_used", "mean_reserved", "peak_reserved", "fragmentation")
    unknown = [*usage]
    if not all(pool.capacity.given for pool in run.pools):
        unknown += ["num_gpu_blocks", "block_size", "tokens", "max_concurrency"]
    if any(pool.settings.max_model_len is None for pool in run.pools):
        unknown += ["max_model_len", "max_concurrency"]
    known = kv | dict.fromkeys(unknown)
    samples = recording.samples
    if samples is None or not samples.used.any():  # requests ran: a 0 was written for unknown
        return known
    taken = {
        "mean_reserved": _over_time(samples.used, recording),
        "peak_reserved": float(samples.used.max()),
    }
    return known | taken


def _batch(batch: dict[str, Any], recording: Recording, run: RunRecord) -> dict[str, Any]:
    samples = recording.samples
    known: dict[str, Any] = {}
    if samples is not None:
        known["mean_running"] = _over_time(samples.running, recording)
        known["peak_running"] = int(samples.running.max())
    if _known(run.requests["scheduled"]) and run.replicas == 1:
        known |= {name: batch[name] for name in ("mean_waiting", "peak_waiting")}
    return dict.fromkeys(batch) | known


def _over_time(values: NDArray[Any], recording: Recording) -> float:
    """Mean over the ticks of the log, weighted by their lengths."""
    assert recording.samples is not None
    lengths: Floats = recording.samples.end - recording.samples.start
    return float((values * lengths).sum() / lengths.sum())


def _known(times: Floats) -> bool:
    return bool(np.isfinite(times).any())


def _counts(values: NDArray[Any]) -> NDArray[np.int32]:
    return np.asarray(np.rint(values), dtype=np.int32)


def _digest(path: Path) -> str | None:
    """The digest of a file; None for the address of a server."""
    return None if not path.is_file() else sha256(path.read_bytes()).hexdigest()


def _finite(value: Any) -> Any:
    """``value`` as JSON can hold it: numbers that are none become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value
