"""Builds the page that asks one run by hand, and what its answers put into it.

The page is served by ``sim.ui``, which hands over the form. An answer comes twice: as soon as the
run is simulated, and in full with the slots of the batch and how sure the verdict is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from reports.figures import latency_cdf, timeline
from reports.figures.steps import replica_count
from reports.frame.content import to_json
from reports.frame.formats import MISSING, Kind, show
from reports.frame.page import TEMPLATES, fill, fragment
from reports.frame.run_directory import known, pick
from reports.pages.run import head, moments, slo
from reports.pages.run.verdict import verdict
from sim.findings import Card
from sim.metrics.question.fleet_words import fleet_text
from sim.metrics.terms.definitions import DEFINITIONS
from sim.units import PER_OUTPUT_TOKENS
from sim.version import version

SECTIONS = {
    "question": "Question",
    "answer": "Answer",
    "take": "Take along",
    "definitions": "Definitions",
}

FIGURES: Mapping[str, str] = {
    "states": "Requests that run and wait, and the KV cache",
    "ttft": "TTFT of the requests",
    "tpot": "TPOT of the requests",
    "slots": "Requests in the batch",
}
"""Name -> title, in the order of the page."""


def page(groups: Mapping[str, Sequence[Any]], lists: Mapping[str, Sequence[str]], most: int) -> str:
    """The page with a form of these ``groups`` of fields, which suggests the names in ``lists`` and
    asks for at most so many requests."""
    live = (TEMPLATES / "asked.js").read_text("utf-8")
    return fill(
        "asked.html.j2",
        SECTIONS,
        DEFINITIONS,
        live=live,
        groups=groups,
        lists=lists,
        most=most,
        figures=FIGURES,
        provenance={"version": version()},
    )


class Compared(NamedTuple):
    """A metric that two answers have in common: as people read it, and as a number."""

    name: str
    text: str
    value: float | None


def answer(contents: Mapping[str, Any], in_full: bool) -> dict[str, Any]:
    """What the page shows of a run (the arguments of ``reports.render``): ``html`` of its verdict,
    ``figures`` as Plotly JSON with captions, ``compared`` metrics, and a ``said`` verdict."""
    summary = contents["summary"]
    found = verdict(summary)
    trust = (known(summary, "infersim.bands") or {}).get("trust")
    cards = _cards(summary)
    how_sure = next(each for each in found.answers if each.key == "band")
    html = fragment(
        "asked_answer.html.j2",
        DEFINITIONS,
        verdict=found,
        trust=trust,
        in_full=in_full,
        cards=cards,
        bounds=head.bounds(summary),
        answers=[a for a in found.answers if a.key not in ("band", "cost", "stable")],
        how_sure=how_sure,
        notes=list(pick(summary, "infersim.notes") or ()),
    )
    own = pick(summary, "infersim")
    sure = f" ({trust})" if trust else ""
    said = {
        "html": html,
        "said": f"{found.headline}{sure}",
        "title": f"{own['model']} on {fleet_text(own).replace(' x ', ' × ')}, {own['batching']}",
        "compared": [each._asdict() for each in _compared(summary)],
    }
    return {**said, "slots" if in_full else "figures": _figures(contents, in_full)}


def _figures(contents: Mapping[str, Any], in_full: bool) -> dict[str, Any]:
    """The figures of the first step, or the slots: name -> ``spec`` (None: nothing to draw) and
    ``caption``."""
    summary, requests, rows = (contents[name] for name in ("summary", "requests", "timeseries"))
    if in_full:
        drawn = moments.batch_slots(summary, requests, rows, contents["trail"])
        return {"slots": {"spec": drawn.spec, "caption": drawn.caption}}
    states = timeline.states(
        rows,
        requests,
        kv_tokens=pick(summary, "infersim.kv_cache.tokens"),
        replicas=replica_count(rows, requests) if len(rows) else 1,
    )
    made = {"states": {"spec": to_json(states), "caption": ""}}
    for name in ("ttft", "tpot"):
        limit = slo.shown_limit(summary, name)
        cdf = latency_cdf.figure(
            requests,
            name,
            limit_s=limit.limit_ms / 1e3 if limit else None,
            target=limit.target if limit else None,
        )
        made[name] = {"spec": to_json(cdf), "caption": ""}
    return made


def _cards(summary: Mapping[str, Any]) -> list[Card]:
    """The cards of a run's page without its queue time, and what a reader turns the knobs for."""
    found = [card for card in head.cards(summary) if card.definition not in ("queue", "cost")]
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
        _cost(summary),
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


def _cost(summary: Mapping[str, Any]) -> Card:
    """Dollars of an hour and of tokens."""
    cost, own = pick(summary, "infersim.cost"), pick(summary, "infersim")
    if cost is None:
        return Card("cost", "Cost", MISSING, "USD per hour", ("no price given",))
    output = _text(cost["usd_per_million_output_tokens"], "usd")
    band = head.band(summary, "usd_per_million_output_tokens", "usd")
    told = (f"{output} {PER_OUTPUT_TOKENS}", *([band] if band else ()))
    hour = cost["usd_per_gpu_hour"]
    hour = hour * own["gpus"] if isinstance(hour, float | int) else None
    return Card("cost", "Cost", _text(hour, "usd"), "USD per hour", told)


def _text(value: float | None, kind: Kind) -> str:
    return show(value, kind).text


def _compared(summary: Mapping[str, Any]) -> list[Compared]:
    """The metrics in which two answers are compared."""
    rows: list[tuple[str, str, Kind, str]] = []
    for name in ("ttft", "tpot"):
        limit = slo.shown_limit(summary, name)
        rank = "p99" if limit is None else limit.rank
        key = f"{rank}_{name}_ms"
        rows.append((f"{name.upper()} {rank}", key if key in summary else "", "ms", ""))
    rows += [
        ("Output throughput", "output_throughput", "number", "tokens/s"),
        ("Requests", "request_throughput", "number", "/s"),
        ("Utilisation", "infersim.verdict.utilisation", "share", "%"),
        ("Running", "infersim.batch.mean_running", "number", "on average"),
        ("Waiting", "infersim.batch.mean_waiting", "number", "on average"),
        ("KV cache in use", "infersim.kv_cache.mean_used", "share", "% on average"),
        ("Cost", "infersim.cost.usd_per_million_output_tokens", "usd", PER_OUTPUT_TOKENS),
    ]
    found = []
    for title, path, kind, unit in rows:
        value = known(summary, path) if path else None
        found.append(Compared(title, f"{_text(value, kind)} {unit}".strip(), value))
    return found
