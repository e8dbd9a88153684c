"""Describes what failures and impatient clients cost: attempts, lost work, time to recover.

Times in seconds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.loop.attempt_rows import CANCELLED, LOST, OUTCOMES, TIMED_OUT, UNAVAILABLE, AttemptRows
from sim.loop.recorder import GAVE_UP
from sim.metrics.fleet.lost_work import pools_of, wasted
from sim.metrics.record.run_record import RunRecord
from sim.metrics.texts import replica_name
from sim.units import show_share, show_time

Floats = NDArray[np.float64]

BLOCK = 50
"""Successive requests whose share within the SLO says how a fleet serves."""

IN_A_ROW = 5
"""Blocks that must be as good as before until a fleet has recovered: right after a replica is back,
empty, a few requests are served well while all others still wait."""

BINS = 60
"""Equal parts of a run for which its course is stated."""


def failures(run: RunRecord) -> dict[str, Any]:
    """The entry ``failures`` of a summary; nothing where clients wait and replicas do not fail.

    ``availability`` is the share of the time for which replicas were held that lies in no outage; a
    replica that is drained, or starts for another reason than a failure, has none. ``unplayed`` has
    the outages given by the scenario that came to nothing.
    """
    rows = run.attempts
    if rows is None:
        return {}
    outcomes = np.bincount(rows.failed["outcome"], minlength=len(OUTCOMES)).tolist()
    attempts, requests = len(run.requests) + len(rows.again), len(run.requests)
    gave_up = int((run.requests["status"] == GAVE_UP).sum())
    outages = _outages(run, rows)
    down = sum(each["seconds"] for each in outages)
    recoveries = [each["recovered_after_s"] for each in outages]
    unplayed, held = _unplayed(run, rows), _replica_seconds(run)
    lost = wasted(run, rows)
    found = {
        "attempts": attempts,
        "attempts_per_request": attempts / requests if requests else None,
        "timed_out": outcomes[TIMED_OUT],
        "lost": outcomes[LOST],
        "no_replica": outcomes[UNAVAILABLE],
        "cancelled": outcomes[CANCELLED],
        **({"set_aside": _set_aside(run)} if outcomes[CANCELLED] else {}),
        "gave_up": gave_up,
        "wasted": lost,
        "down_s": down,
        "availability": max(0.0, 1 - down / held) if held else None,
        "recovery_s": _longest(recoveries),
        "outages": outages,
        **({"unplayed": unplayed} if unplayed else {}),
        "course": _course(run, rows),
    }
    recovery = {"recovery": _recovery(run, found)} if outages else {}
    return {"failures": {**found, **recovery, "text": _text(run, found)}}


def _recovery(run: RunRecord, found: dict[str, Any]) -> str:
    """Whether the fleet serves as before after its outages, in a sentence."""
    outages = found["outages"]
    if open_ := [each for each in outages if each["recovered_after_s"] is None]:
        told = _not_recovered(run, open_, alone=len(outages) == 1).strip()
        return f"Not recovered from {'its outage' if len(outages) == 1 else 'its outages'}: {told}"
    if found["recovery_s"]:
        return f"Recovered {show_time(found['recovery_s'])} after an outage at most."
    return "Requests after each outage were served as before."


def given_up_text(run: RunRecord) -> str:
    """A verdict's text on requests that were given up; empty if none was."""
    gave_up = int((run.requests["status"] == GAVE_UP).sum())
    if not gave_up or run.attempts is None:
        return ""
    share = gave_up / len(run.requests)
    tries = 1 + len(run.attempts.again) / len(run.requests)
    were = "request was" if gave_up == 1 else "requests were"
    sent = f", {tries:.2f} attempts a request" if tries > 1 else ""
    waited = int(run.timed_out.sum())
    many = "all" if waited == gave_up else f"{waited:,}"
    why = f", {many} of them because they timed out" if waited else ""
    if gave_up == waited == 1:
        why = ", because it timed out"
    return f" {gave_up:,} {were} given up ({show_share(share)}{sent}){why}."


def _text(run: RunRecord, found: dict[str, Any]) -> str:
    wasted, outages, recovery = found["wasted"], found["outages"], found["recovery_s"]
    parts = [
        f"{found['attempts']:,} attempts of {len(run.requests):,} requests: {found['timed_out']:,} "
        f"timed out, {found['lost']:,} were lost with a replica, {found['no_replica']:,} found "
        f"none, {found['cancelled']:,} were cancelled; {found['gave_up']:,} requests were given up."
    ]
    if aside := found.get("set_aside"):
        parts.append(
            f"{aside:,} of them went away before a limit of the SLO had passed, and are set aside "
            "from its shares."
        )
    if early := _in_warmup(run):
        lie = "lies" if early == 1 else "lie"
        parts.append(
            f"Of the requests that were lost, found no replica or were given up, {early:,} {lie} "
            "in the warm-up, which the SLO leaves aside."
        )
    if wasted["gpu_share"] is not None:
        parts.append(
            f"{show_share(wasted['gpu_share'])} of the GPU time that was computed came to nothing: "
            f"{wasted['prompt_tokens']:,} prompt tokens and {wasted['output_tokens']:,} output "
            "tokens."
        )
    if outages:
        times = "1 outage" if len(outages) == 1 else f"{len(outages):,} outages"
        share, told = found["availability"], f"{times};"
        if share is not None:
            told = f"{times}, {show_share(share)} of all replica time without one;"
        if open_ := [each for each in outages if each["recovered_after_s"] is None]:
            told += _not_recovered(run, open_, alone=len(outages) == 1)
        elif recovery:
            told += f" recovered after {show_time(recovery)} at most."
        else:
            told += " requests that came later were served as before."
        parts.append(told)
    parts += [f"{each['text']}." for each in found.get("unplayed", ())]
    return " ".join(parts)


def _not_recovered(run: RunRecord, outages: list[dict[str, Any]], *, alone: bool) -> str:
    """The text on ``outages`` after which service did not recover in this run; ``alone``: there is
    no other."""
    arrived = run.requests["arrival"]
    told = [
        _enough(arrived, each["since_s"], each["until_s"] or math.inf, run.end) for each in outages
    ]
    still, early = sum(told), len(told) - sum(told)
    parts = []
    if still:
        what = "it" if alone else f"{still:,} of them"
        parts.append(f" when the run ended, requests were still not served as before {what}")
    if early:
        what = "it" if alone else f"{early:,} of them"
        parts.append(f" the run ended too soon after {what} to tell whether the fleet recovered")
    return f"{';'.join(parts)}."


def _in_warmup(run: RunRecord) -> int:
    """Requests of the warm-up that were lost with a replica, found none or were given up, which an
    SLO leaves aside; none without one."""
    assert run.attempts is not None
    if not run.scenario.slo.stated:
        return 0
    failed = run.attempts.failed
    gone = failed["request"][np.isin(failed["outcome"], (LOST, UNAVAILABLE))]
    hit = np.isin(run.requests["id"], gone) | (run.requests["status"] == GAVE_UP)
    return int((hit & run.warmup).sum())


def _longest(recoveries: list[float | None]) -> float | None:
    """The longest of them; None where one is not over, or there is none."""
    known = [each for each in recoveries if each is not None]
    return max(known, default=None) if len(known) == len(recoveries) else None


# -- outages -------------------------------------------------------------------------------------


def _outages(run: RunRecord, rows: AttemptRows) -> list[dict[str, Any]]:
    """Each outage, and after how many seconds requests were served as before (None: not in this
    run)."""
    if not len(rows.outages):
        return []
    first = float(rows.outages["since"].min())
    good, arrived = _not_bad(run), run.requests["arrival"]
    wanted = _wanted(run, good[(arrived < first) & ~run.warmup])
    found = []
    for row, place in zip(rows.outages, pools_of(run, rows).tolist(), strict=True):
        settings = run.pools[place].settings
        since, until = float(row["since"]), float(row["until"])
        ranks = settings.ranks // settings.replicas
        found.append(
            {
                "pool": settings.name,
                "replica": (int(row["replica"]) - settings.first) // ranks,
                "since_s": since,
                "until_s": until if math.isfinite(until) else None,
                "seconds": max(0.0, min(until, run.end) - since),
                "lost": int(row["lost"]),
                "recovered_after_s": _recovered(good, arrived, since, wanted),
            }
        )
    return found


def _unplayed(run: RunRecord, rows: AttemptRows) -> list[dict[str, Any]]:
    """The outages at given times that came after the end of the run, or while their replica was not
    in service, as one that is scaled may be."""
    given = run.scenario.failures
    played = {(int(row["replica"]), float(row["since"])) for row in rows.outages}
    named = {pool.settings.name: pool.settings for pool in run.pools}
    (first, *_) = named.values()
    found = []
    for outage in sorted(given.outages or () if given else (), key=lambda each: each.at):
        settings = named[outage.pool] if outage.pool else first
        if (settings.engines[outage.replica], outage.at) in played:
            continue
        late = outage.at >= run.end or settings.scales is None
        why = f"after all was over, at {show_time(run.end)}" if late else "when it did not serve"
        found.append(
            {
                "pool": settings.name,
                "replica": outage.replica,
                "at_s": outage.at,
                "after_the_end": late,
                "text": (
                    f"The outage of {replica_name(outage.replica)} of {settings.name} at "
                    f"{show_time(outage.at)} came to nothing: it comes {why}"
                ),
            }
        )
    return found


def _replica_seconds(run: RunRecord) -> float:
    """Seconds for which replicas were held while the run lasted."""
    return sum(
        run.duration * part.pool.replicas if part.held is None else part.held for part in run.parts
    )


def _good(run: RunRecord) -> NDArray[np.bool_]:
    """The requests that were within the SLO; where there is none, those that were answered."""
    return run.within_slo if run.scenario.slo.stated else run.completed


def _not_bad(run: RunRecord) -> NDArray[np.bool_]:
    """The requests within the SLO, and those whose clients left before a limit had passed."""
    return _good(run) | run.set_aside(run.scenario.slo.of_request)


def _set_aside(run: RunRecord) -> int:
    """Requests that are neither within the SLO nor beyond it."""
    return int(run.set_aside(run.scenario.slo.of_request).sum()) if run.scenario.slo.stated else 0


def _wanted(run: RunRecord, before: NDArray[np.bool_]) -> float:
    """The share of good ones among ``BLOCK`` requests that a fleet has which serves as it did
    ``before`` its first outage, or as the SLO wants if that is less: three standard errors below
    it, so that chance is no outage."""
    share = run.scenario.slo.attainment
    if len(before) >= BLOCK:
        share = min(share, float(before.mean()))
    return share - 3 * math.sqrt(share * (1 - share) / BLOCK)


def _recovered(
    good: NDArray[np.bool_], arrived: Floats, since: float, wanted: float
) -> float | None:
    """Seconds from ``since`` to the first of ``IN_A_ROW`` blocks of requests with the ``wanted``
    share of ``good`` ones; None if there are none. 0: those that came afterwards noticed nothing.

    >>> good, arrived = np.arange(900) >= 120, np.arange(900.0)
    >>> _recovered(good, arrived, 10.0, 0.95), _recovered(good, arrived, 290.0, 0.95)
    (150.0, 0.0)
    >>> print(_recovered(~good, arrived, 110.0, 0.95))
    None
    """
    start = int(np.searchsorted(arrived, since))
    blocks = (len(good) - start) // BLOCK
    if blocks < IN_A_ROW:
        return None
    shares = good[start : start + blocks * BLOCK].reshape(blocks, BLOCK).mean(axis=1)
    row = np.convolve(shares >= wanted, np.ones(IN_A_ROW), mode="valid")
    whole = np.flatnonzero(row == IN_A_ROW)
    if not len(whole):
        return None
    at = int(whole[0])
    return float(arrived[start + at * BLOCK] - since) if at else 0.0


def _enough(arrived: Floats, since: float, until: float, end: float) -> bool:
    """Whether as many requests arrived after an outage as it takes to see a recovery: those of
    ``IN_A_ROW`` blocks, which are counted from ``since``. One that lasts beyond the ``end`` of the
    run is judged from its beginning.

    >>> arrived = np.arange(400.0)
    >>> [_enough(arrived, 100.0, until, 400.0) for until in (150.0, 151.0, 500.0)]
    [True, False, True]
    """
    start = int(np.searchsorted(arrived, since))
    back = int(np.searchsorted(arrived, until)) if until <= end else start
    return (len(arrived) - start) // BLOCK - math.ceil((back - start) / BLOCK) >= IN_A_ROW


def _course(run: RunRecord, rows: AttemptRows) -> dict[str, list[float]]:
    """Per second, in ``BINS`` equal parts of the run: requests that arrived, attempts that were
    sent, and answers within the SLO (without one, all answers)."""
    if not run.duration:
        return {"time_s": [], "arrived": [], "sent": [], "good": []}
    start = float(run.requests["arrival"].min())
    edges = start + np.arange(BINS + 1) * (run.duration / BINS)
    arrived, again = run.requests["arrival"], rows.again["time"]
    counted = {
        "arrived": arrived,
        "sent": np.concatenate([arrived, again]),
        "good": run.requests["finish"][_good(run)],
    }
    width = run.duration / BINS
    rates = {name: np.histogram(times, edges)[0] / width for name, times in counted.items()}
    return {
        "time_s": [float(f"{edge:.6g}") for edge in edges[:-1]],
        **{name: [float(f"{rate:.6g}") for rate in rate_] for name, rate_ in rates.items()},
    }
