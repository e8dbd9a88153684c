"""Sums up the conversations of a run: how many there were, how long they lasted, and what their
first and later turns saw.

Times in the summary are milliseconds where the key says so, seconds otherwise.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.loop.session_rows import OUTGROWN, SESSION, WHOLE
from sim.metrics.latency.percentiles import describe
from sim.metrics.load.usual_sessions import EarlyEnd, early_ends, usual
from sim.metrics.record.run_record import RunRecord
from sim.units import show_share, show_time

RANKS = ("mean", "p50", "p90", "p99")

MOST_TURNS, FEWEST = 64, 5
"""Turns that have a median of their own, the first ones, and the requests that one is of."""


def sessions(run: RunRecord) -> dict[str, Any]:
    """The entry ``sessions`` of a summary; nothing where there are none.

    ``started`` sessions, of which ``finished`` had all their turns, ``outgrown`` would have become
    longer than the model takes, ``refused`` were refused a request, and ``under_way`` when the run
    ended; ``given_up``, where clients give up or replicas fail, ended with a request that got no
    answer. ``requests`` is how many a session has on average (None where only those that were sent
    are known), ``duration_s`` from the first arrival to the last answer of those that finished or
    were outgrown: the short ones, unless the run is long. ``expected_duration_s`` is how long a
    session lasts on average, ``unsent`` the share of the tokens of the started ones that were still
    to come when the run ended, ``requests_to_show`` how many requests have the usual traffic
    (``Usual``). ``first_turns`` and ``later_turns`` have the latencies of the requests that begin a
    session and of all others, ``p50_ttft_ms_by_turn`` the median of each turn, the first one first;
    the warm-up is left out, as everywhere.

    Where a trace names the sessions, those whose every request is completed count as finished.
    """
    rows = run.sessions
    if rows is None or not (rows.turns["session"] >= 0).any():
        return {}
    named = rows.turns["session"] >= 0
    first, counted = rows.turns["turn"] == 0, run.completed & ~run.warmup & named
    ended = of_trace(run) if rows.ended is None else rows.ended
    ended = ended[np.argsort(ended["session"], kind="stable")]
    by_themselves = ended[np.isin(ended["ending"], (WHOLE, OUTGROWN))]
    took = by_themselves["end"] - by_themselves["start"]
    started = len(np.unique(rows.turns["session"][named]))
    planned, expected = per_session(run), usual(run)
    early = early_ends(run)
    rejected = sum(why == EarlyEnd.REJECTED for why in early.values())
    return {
        "sessions": {
            "started": started,
            "finished": int((ended["ending"] == WHOLE).sum()),
            "outgrown": int((ended["ending"] == OUTGROWN).sum()),
            "refused": rejected,
            **({} if run.attempts is None else {"given_up": len(early) - rejected}),
            "under_way": started - len(ended),
            "requests": None if planned is None else planned[0],
            "duration_s": _durations(took),
            "expected_duration_s": None if expected is None else expected.duration,
            "unsent": None if expected is None else expected.unsent,
            "requests_to_show": None if expected is None else expected.enough,
            "first_turns": _turns(run, counted & first),
            "later_turns": _turns(run, counted & ~first),
            "p50_ttft_ms_by_turn": _by_turn(run.ttft[counted], rows.turns["turn"][counted]),
        }
    }


def per_session(run: RunRecord) -> tuple[float, float] | None:
    """Requests of a session on average, and the standard error of that: over the sessions that were
    started, with all that each was to have. None where that is not known."""
    rows = run.sessions
    if rows is None or rows.planned is None or not len(rows.planned):
        return None
    planned = rows.planned["requests"]
    return float(planned.mean()), float(planned.std()) / math.sqrt(len(planned))


def session_notes(run: RunRecord) -> list[str]:
    """Notes on sessions that end early, and on a run that they outlast."""
    found = sessions(run).get("sessions")
    if found is None or run.sessions is None or run.sessions.ended is None:
        return []
    notes = []
    if found["outgrown"]:
        notes.append(
            f"{found['outgrown']:,} of {found['started']:,} sessions ended early: their next turn "
            "would have been longer than max_model_len."
        )
    early = Counter(early_ends(run).values())
    notes += [
        f"{early[why]:,} of {found['started']:,} sessions ended early: {why}."
        for why in EarlyEnd
        if early[why]
    ]
    expected = usual(run)
    if expected is not None and expected.outlasts(run.duration):
        notes.append(
            f"A session lasts {show_time(expected.duration)} on average and this run "
            f"{show_time(run.duration)}: {show_share(expected.unsent)} of the tokens of its "
            "sessions were still to come when it ended, those of later and longer turns, so that "
            f"it has less of them than usual. About {expected.enough:,} requests would show the "
            "usual traffic."
        )
    return notes


def of_trace(run: RunRecord) -> NDArray[np.void]:
    """A row (``session_rows.SESSION``) for each session of a trace that was served to the end."""
    assert run.sessions is not None
    found = []
    numbers = run.sessions.turns["session"]
    order = np.argsort(numbers, kind="stable")
    bounds = np.flatnonzero(np.diff(numbers[order])) + 1
    for group in np.split(order, bounds):
        if numbers[group[0]] < 0 or not run.completed[group].all():
            continue
        requests = run.requests[group]
        start, end = float(requests["arrival"].min()), float(requests["finish"].max())
        found.append((int(numbers[group[0]]), start, end, len(group), WHOLE))
    return np.array(found, dtype=SESSION)


def _durations(seconds: NDArray[np.float64]) -> dict[str, float | None]:
    found = describe(seconds, "x")
    values = {rank: found[f"{rank}_x_ms"] for rank in RANKS}
    return {rank: None if value is None else value / 1e3 for rank, value in values.items()}


def _by_turn(ttft: NDArray[np.float64], turns: NDArray[np.int64]) -> list[float]:
    """The median TTFT (ms) of each turn, up to the first one that has too few requests."""
    found: list[float] = []
    for turn in range(MOST_TURNS):
        mine = ttft[turns == turn]
        if len(mine) < FEWEST:
            break
        found.append(1e3 * float(np.median(mine)))
    return found


def _turns(run: RunRecord, mine: NDArray[np.bool_]) -> dict[str, Any]:
    """Latencies and lengths of some requests."""
    ttft = describe(run.ttft[mine], "ttft")
    tpot = describe(run.tpot[mine & (run.requests["output_tokens"] > 1)], "tpot")
    prompts = run.requests["prompt_tokens"][mine]
    return {
        "requests": int(mine.sum()),
        "mean_prompt_tokens": float(prompts.mean()) if len(prompts) else None,
        **{f"{rank}_ttft_ms": ttft[f"{rank}_ttft_ms"] for rank in RANKS},
        **{f"{rank}_tpot_ms": tpot[f"{rank}_tpot_ms"] for rank in RANKS},
    }
