"""Builds the page that asks one run by hand, and what an answer puts into it.

``sim.ui`` serves the page; no answer is in it yet. An answer comes twice: as soon as the run is
simulated, and in full with the slots of the batch and how sure the verdict is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from reports.figures import latency_cdf, slots, timeline
from reports.figures.slot_view import caption, slot_view
from reports.figures.steps import replica_count
from reports.frame.content import to_json
from reports.frame.formats import Kind, show
from reports.frame.page import TEMPLATES, fill, fragment
from reports.frame.run_directory import known, pick
from reports.pages.run import head, slo
from reports.pages.run.verdict import Verdict, verdict
from sim.findings import Card
from sim.metrics.question.fleet_words import fleet_text
from sim.metrics.states import DoubtKind, SloState
from sim.metrics.terms.definitions import DEFINITIONS, METRICS
from sim.metrics.words.slo_text import without_advice
from sim.units import PER_OUTPUT_TOKENS

SECTIONS = {
    "question": "Question",
    "answer": "Answer",
    "take": "Copy and share",
    "definitions": "Definitions",
}

FIGURES: Mapping[str, str] = {
    "states": "Requests that run and wait, and the KV cache",
    "ttft": "TTFT of the requests",
    "tpot": "TPOT of the requests",
    "slots": "Requests in the batch",
}
"""Name -> title, in the order of the page."""


def page(
    groups: Mapping[str, Sequence[Any]],
    lists: Mapping[str, Sequence[str]],
    helps: Mapping[str, str],
    most: int,
    version: str,
) -> str:
    """The page with a form of these ``groups`` of fields, which suggests the names in ``lists``,
    explains each field by ``helps`` and asks for at most so many requests."""
    return fill(
        "asked.html.j2",
        SECTIONS,
        DEFINITIONS,
        live=(TEMPLATES / "asked.js").read_text("utf-8"),
        groups=groups,
        lists=lists,
        helps=helps,
        most=most,
        figures=FIGURES,
        provenance={"version": version},
    )


Window = tuple[float, float]


def answer(contents: Mapping[str, Any], window: Window | None) -> dict[str, Any]:
    """What the page shows of a run (the arguments of ``reports.render``): ``html`` of its verdict,
    ``figures`` as Plotly JSON with captions, ``compared`` metrics, and a ``said`` verdict. Where
    there is a trail, it is in full, with the ``slots``: of the ``window`` if anything ran in it."""
    summary, in_full = contents["summary"], "trail" in contents
    trust = (known(summary, "infersim.bands") or {}).get("trust")
    found = _shown_verdict(summary, trust, in_full=in_full)
    html = fragment(
        "asked_answer.html.j2",
        DEFINITIONS,
        verdict=found,
        trust=trust,
        in_full=in_full,
        cards=[card if in_full else card._replace(tone="neutral") for card in _cards(summary)],
        bounds=head.bounds(summary),
        answers=[a for a in found.answers if a.key not in ("band", "cost", "stable")],
        how_sure=next(a.short for a in found.answers if a.key == "band"),
        notes=[without_advice(note) for note in pick(summary, "infersim.notes") or ()],
    )
    own = pick(summary, "infersim")
    sure = f" ({trust})" if trust else ""
    said = {
        "html": html,
        "said": f"{found.headline}{sure}",
        "title": f"{own['model']} on {fleet_text(own).replace(' x ', ' × ')}, {own['batching']}",
        "compared": _compared(summary),
    }
    return {**said, **({"slots": _slots(contents, window)} if in_full else _figures(contents))}


SURE = ("sure", "likely")
"""How sure a verdict is that deserves its green."""


def _shown_verdict(summary: Mapping[str, Any], trust: str | None, *, in_full: bool) -> Verdict:
    """The verdict in the words of ``infersim run``, without the advice to simulate more than the
    page does. Green is what is better than a guess; nothing has a colour before the run is there
    ``in_full``: until then an SLO is met or missed at the predicted times."""
    found = verdict(summary)
    found = found._replace(text=without_advice(found.text))
    if in_full:
        guess = found.tone == "good" and trust not in SURE
        return found._replace(tone="warn") if guess else found
    plain = [
        each if each.key == "fits" else each._replace(tone="neutral") for each in found.answers
    ]
    found = found._replace(tone="neutral", answers=tuple(plain))
    own = pick(summary, "infersim")
    if own["verdict"]["slo_state"] not in (SloState.MET, SloState.MISSED):
        return found
    by_band = {"slo_state": SloState.OPEN, "slo_doubts": [DoubtKind.BAND]}
    judged = {**summary, "infersim": {**own, "verdict": {**own["verdict"], **by_band}}}
    return found._replace(headline=verdict(judged).headline)


AROUND = 60
"""Requests that begin before the middle of the stretch whose slots are drawn, and after it."""


def _slots(contents: Mapping[str, Any], window: Window | None) -> dict[str, Any]:
    """The slots of the batch, and the ``window`` that is drawn."""
    batching = str(pick(contents["summary"], "infersim.batching"))
    given = contents["requests"], contents["timeseries"], batching, contents["trail"]
    stretches = [each for each in (window, _middle(contents["requests"])) if each is not None]
    for stretch in (*stretches, None):
        view = slot_view(*given, stretch)
        if view is not None and view.stays:
            drawn = to_json(slots.chart(view))
            return {"spec": drawn, "caption": caption(view), "window": [view.start, view.end]}
    return {"spec": None, "caption": "No request was served: there is nothing to draw."}


def _middle(requests: pd.DataFrame) -> Window | None:
    """A stretch around the middle of the run, found at once; None for a run that is short, or whose
    requests begin together."""
    begun = np.sort(requests.loc[requests["replica"] == 0, "scheduled_s"].dropna().to_numpy(float))
    middle = begun.size // 2
    if middle < AROUND:
        return None
    start, end = float(begun[middle - AROUND]), float(begun[middle + AROUND - 1])
    return (start, end) if end > start else None


def _figures(contents: Mapping[str, Any]) -> dict[str, Any]:
    """The specs of the other figures."""
    summary, requests, rows = (contents[name] for name in ("summary", "requests", "timeseries"))
    states = timeline.states(
        rows,
        requests,
        kv_tokens=pick(summary, "infersim.kv_cache.tokens"),
        replicas=replica_count(rows, requests) if len(rows) else 1,
    )
    made = {"states": to_json(states)}
    for name in ("ttft", "tpot"):
        limit = slo.shown_limit(summary, name)
        most, target = (limit.limit_ms / 1e3, limit.target) if limit else (None, None)
        cdf = latency_cdf.figure(requests, name, limit_s=most, target=target)
        made[name] = to_json(cdf)
    return {"figures": made}


def _cards(summary: Mapping[str, Any]) -> list[Card]:
    """The cards of a run's page without its queue time, and what a reader turns the knobs for."""
    *found, _queue, cost = head.cards(summary)
    own = pick(summary, "infersim")
    used, batch, kv = own["verdict"]["utilisation"], own["batch"], own["kv_cache"]
    counts = [_text(batch[f"mean_{name}"], "number") for name in ("running", "waiting")]
    peaks = [_text(batch[f"peak_{name}"], "count") for name in ("running", "waiting")]
    return [
        *found,
        Card(
            *("utilisation", "Utilisation"),
            *(_text(used, "share"), "% of the capacity"),
            (f"busy {_text(own['utilisation']['busy'], 'share')} % of the time",),
        ),
        cost,
        Card(
            *("running", "Running / waiting", " / ".join(counts), "requests, mean"),
            (f"at most {' / '.join(peaks)}",),
        ),
        Card(
            *("kv_cache", "KV cache in use", _text(kv["mean_used"], "share"), "% on average"),
            (
                f"at most {_text(kv['peak_used'], 'share')} %",
                f"{_text(kv['tokens'], 'count')} tokens in a replica",
            ),
        ),
    ]


def _text(value: float | None, kind: Kind) -> str:
    return show(value, kind).text


def _compared(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The metrics in which two answers are compared: as people read them, and as numbers."""
    rows: list[tuple[str, str, Kind]] = []
    for name in ("ttft", "tpot"):
        limit = slo.shown_limit(summary, name)
        rank = "p99" if limit is None else limit.rank
        rows.append((f"{name.upper()} {rank}", f"{rank}_{name}_ms", "ms"))
    served = "output_throughput"
    titles = {metric.key: metric.title for metric in METRICS}
    rows += [
        (titles[served], served, "number"),
        ("Requests/s", "request_throughput", "number"),
        ("Utilisation, %", "infersim.verdict.utilisation", "share"),
        ("Running, mean", "infersim.batch.mean_running", "number"),
        ("Waiting, mean", "infersim.batch.mean_waiting", "number"),
        ("KV cache in use, %", "infersim.kv_cache.mean_used", "share"),
        (PER_OUTPUT_TOKENS, "infersim.cost.usd_per_million_output_tokens", "usd"),
    ]
    values = [known(summary, path) for _, path, _ in rows]
    return [
        {"name": name, "text": _text(value, kind), "value": value}
        for (name, _, kind), value in zip(rows, values, strict=True)
    ]
