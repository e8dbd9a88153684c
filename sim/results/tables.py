"""Lays out the tables of a run, its requests and its plans, as columns by name.

What each column means stands in ``sim/metrics/README.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sim.growth.leaps import (
    ACCEPTED,
    ADAPTERS,
    CHECKED,
    COMPUTING,
    DECODED,
    DELIVERED,
    FILLED_GROWTH,
    FILLING,
    IDLE,
    LOADS,
    PER_SEQUENCE,
    SEEN,
    SEEN_GROWING,
    SHARED,
    TAKEN,
    WAITED,
)
from sim.loop.recorder import COMPLETED, GAVE_UP, REJECTED
from sim.metrics.engine.token_accounts import TokenAccounts, token_accounts
from sim.metrics.latency.latency_parts import latency_parts
from sim.results.parquet_file import ROWS
from sim.specs.window import Window
from sim.workload.adapters import adapter_draw

if TYPE_CHECKING:
    from sim.metrics.record.run_record import RunRecord

STATUSES = {COMPLETED: "completed", REJECTED: "rejected", GAVE_UP: "gave up"}
TIMESERIES_COLUMNS = {
    "replica": "replica",
    "start_s": "start",
    "end_s": "end",
    "iterations": "iterations",
    "iteration_growth_s": "slope",
    "decode_seqs": "decode",
    "decode_context": "context",
    "prefill_seqs": "prefill_seqs",
    "prefill_tokens": "prefill_tokens",
    "running": "running",
    "waiting": "waiting",
    "kv_used_tokens": "held",
    "kv_reserved_tokens": "reserved",
    "kv_reserved_end_tokens": "reserved_end",
    "preemptions": "preemptions",
}


def request_columns(run: RunRecord) -> dict[str, NDArray[Any]]:
    """One value a request of ``run`` in each column, by its name, in order of arrival."""
    rows = run.requests
    parts = latency_parts(run)  # first, since it takes the most memory on its way
    names = [STATUSES.get(code, "unfinished") for code in range(4)]
    reasons = np.array([*run.reasons, None], dtype=object)
    return {
        "request_id": rows["id"],
        "arrival_s": rows["arrival"],
        "prompt_tokens": rows["prompt_tokens"],
        "output_tokens": rows["output_tokens"],
        "generated_tokens": rows["generated"],
        "status": np.array(names, dtype=object)[rows["status"]],
        "reason": reasons[rows["reason"]],
        "replica": rows["replica"],
        "scheduled_s": rows["scheduled"],
        "first_token_s": rows["first_token"],
        "finish_s": rows["finish"],
        "queue_s": run.queue,
        "ttft_s": run.ttft,
        "tpot_s": run.tpot,
        "e2el_s": run.e2el,
        "preemptions": rows["preemptions"],
        "warmup": run.warmup,
        "slo_met": run.within_slo,
        "class": np.array([*(c.name for c in run.classes), None], dtype=object)[rows["class"]],
        **{f"{name}_s": part for name, part in parts.items() if name != "queue"},
        **_session_columns(run),
        **_adapter_column(run),
    }


def _session_columns(run: RunRecord) -> dict[str, NDArray[Any]]:
    """To which session, and to which turn of it, from 1, each request belongs."""
    found = run.sessions
    if found is None:
        return {}
    return {"session": found.turns["session"], "turn": found.turns["turn"] + 1}


def _adapter_column(run: RunRecord) -> dict[str, NDArray[Any]]:
    """The adapter that each request asks for, from 0, where there are any."""
    draw = adapter_draw(run.scenario)
    if draw is None or run.observed:
        return {}
    ids = run.requests["id"].tolist()
    sessions = [-1] * len(ids) if run.sessions is None else run.sessions.turns["session"].tolist()
    return {"adapter": np.array(list(map(draw.of, ids, sessions)), dtype=np.int64)}


def _windows(run: RunRecord) -> dict[str, Window]:
    """The windows through which decoding sequences were seen, by the column that says it."""
    if SEEN not in (run.plans.dtype.names or ()):
        return {}
    windows = max((pool.deployment.model.windows for pool in run.pools), key=len)
    return {
        f"decode_seen_{'chunk' if window.chunked else 'window'}_{window.size}": window
        for window in windows
    }


def timeseries_columns(run: RunRecord) -> dict[str, NDArray[Any]]:
    """One value a plan of ``run`` in each column, by its name."""
    return _plan_columns(run, slice(0, len(run.plans)), token_accounts(run))


def timeseries_groups(run: RunRecord) -> Iterator[dict[str, NDArray[Any]]]:
    """The same columns, group of rows by group of rows, at least one: all of a million requests
    would take more memory than their run."""
    accounts, rows = token_accounts(run), len(run.plans)
    for start in range(0, max(rows, 1), ROWS):
        yield _plan_columns(run, slice(start, min(start + ROWS, rows)), accounts)


def _plan_columns(
    run: RunRecord, rows: slice, accounts: TokenAccounts | None
) -> dict[str, NDArray[Any]]:
    """The columns of some of the plans."""
    plans = run.plans[rows]
    columns = {name: plans[column] for name, column in TIMESERIES_COLUMNS.items()}
    windows = _windows(run)
    for place, name in enumerate(windows):
        columns[name] = plans[SEEN][:, place]
        columns[f"{name}_growth"] = plans[SEEN_GROWING][:, place]
        columns[FILLED_GROWTH] = plans[FILLING]
    if WAITED in (plans.dtype.names or ()):
        columns |= {"waited_s": plans[WAITED], "computing_s": plans[COMPUTING]}
    if DELIVERED in (plans.dtype.names or ()):
        columns |= {DECODED: plans[DELIVERED], TAKEN: plans[ACCEPTED]}
        columns |= {PER_SEQUENCE: plans[CHECKED]}
    if SHARED in (plans.dtype.names or ()):
        columns |= {"kv_shared_tokens": plans[SHARED], "kv_idle_tokens": plans[IDLE]}
    if ADAPTERS in (plans.dtype.names or ()):
        columns |= {"adapters": plans[ADAPTERS], "adapter_loads": plans[LOADS]}
    if accounts is None or not len(accounts.late_plans):
        return columns
    late = (accounts.late_plans >= rows.start) & (accounts.late_plans < rows.stop)
    at, contexts = accounts.late_plans[late] - rows.start, accounts.contexts[late]
    one = np.ones_like(contexts)
    changes = {"decode_seqs": one, "prefill_seqs": -one, "prefill_tokens": -one}
    for name, window in windows.items():
        changes[name] = np.array([window.seen(held) for held in contexts.tolist()])
    for name, change in {**changes, "decode_context": contexts}.items():
        columns[name] = columns[name].copy()
        np.add.at(columns[name], at, change)
    return columns
