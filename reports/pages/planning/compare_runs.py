"""Shows one run of each variant of a comparison: slots, latencies and queues on the same axes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from reports.figures import overlaid, slots
from reports.figures.overlaid import DrawnVariant
from reports.figures.series import styles
from reports.figures.slot_view import SlotView, slot_view, stretch, time_spent
from reports.frame.run_directory import SavedRun, known
from sim.findings import Cell, Column, Drawing, Drawings, Heading, Lines, Links, Part, Table
from sim.planning.answers.cells import Document
from sim.planning.answers.compare import names
from sim.planning.contrast.pace_words import PacedRun, longer_tpot
from sim.units import show_time

MOST_SLOTS = 16
"""Slots of each variant that are drawn: all charts should fit on one screen."""

MOST_SPANS = 4
"""How many times longer than its own stretch a slot chart may be made."""

MOST_KEYS = 40
"""Settings that the table of what differs lists."""

OTHER_KEYS = ("name", "description", "seed")
"""Entries of a scenario that change no setting."""

Runs = Mapping[int, SavedRun]
"""One run of some variants, by their places in the comparison."""


def section(document: Document, runs: Runs) -> Heading:
    """The section of a comparison's page that draws one run of each variant, or of the best; it has
    no parts without a run."""
    if not runs:
        return Heading("runs", "One run of each")
    shown, count = drawn_variants(document, runs), len(document["variants"])
    views = slot_views(shown)
    note = f"One run of each variant{', on the same traffic' if document['same_traffic'] else ''}."
    if len(runs) < count:
        note += f" The base and the best, {len(runs)} of {count:,} variants."
    labels = names(document)
    links = tuple((labels[index], run.page) for index, run in runs.items() if run.page)
    settings = differing(document, runs) if len(runs) > 1 else None
    parts: list[Part] = [
        Links(f"{note} Their pages:" if links else note, links),
        Lines(() if document.get("tpot") else tuple(longer_tpots(shown))),
        Drawings(
            (*slot_plots(views), *slot_shares_of(views), *overlays(shown, runs)),
            "No run has served a request: there is nothing to draw.",
        ),
    ]
    return Heading("runs", "One run of each", (*parts, *([settings] if settings else [])))


def drawn_variants(document: Document, runs: Runs) -> list[DrawnVariant]:
    """The variants of ``runs`` as figures need them."""
    labels, found = names(document), document["variants"]
    looks = styles([found[index]["settings"] for index in runs])
    return [
        DrawnVariant(
            labels[index],
            look,
            str(known(run.summary, "infersim.batching")),
            run.requests,
            run.timeseries,
            run.trail,
            run.charts.get("fleet"),
            float(known(run.summary, "infersim.replicas") or 0),
        )
        for (index, run), look in zip(runs.items(), looks, strict=True)
    ]


Views = Sequence[tuple[DrawnVariant, SlotView]]
"""What is drawn of the slots of each variant."""


def slot_views(shown: Sequence[DrawnVariant]) -> Views:
    """The slots of each variant, all over the same time: from where the variant that shows the
    shortest stretch begins, as long as the longest one, but no more than ``MOST_SPANS`` times the
    shortest, in which its bars would be too thin."""
    own = [_view(each) for each in shown]
    spans = [(view.end - view.start, view.start) for view in own if view is not None]
    if not spans:
        return []
    shortest, start = min(spans)
    end = start + min(max(spans)[0], MOST_SPANS * shortest)
    found = [(each, _view(each, (start, end))) for each in shown]
    return [(each, view) for each, view in found if view is not None]


def slot_plots(views: Views) -> list[Drawing]:
    """The slot chart of each variant."""
    plots = []
    for index, (each, view) in enumerate(views):
        span = stretch(replace(view, end=min(view.end, view.duration)))
        note = f"{span}. {view.slots.drawn:,} of {view.slots.all:,} slots."
        if view.replicas.all > 1:
            note += f" One of {view.replicas.all:,} replicas."
        name = f"slots-{index + 1}"
        figure = slots.chart(view)
        plots.append(Drawing(name, each.label, None, note, figure, wide=True, kind="slots"))
    return plots


def slot_shares_of(views: Views) -> list[Drawing]:
    """What the drawn slots did with their time, of two variants or more."""
    spent = {e.label: time_spent(view.stays, view.start, view.end) for e, view in views}
    spent = {label: phases for label, phases in spent.items() if any(phases.values())}
    if len(spent) < 2:
        return []
    note = (
        "Of the slots and the time above, as long as a slot is taken. Only decoding yields tokens."
    )
    title, drawn = "What slots spend their time on", slots.shares(spent)
    return [Drawing("slot-shares", title, None, note, drawn, wide=True)]


def longer_tpots(shown: Sequence[DrawnVariant]) -> Iterator[str]:
    """Why continuous batching has a longer TPOT than another policy (``longer_tpot``)."""
    runs = [
        PacedRun.of_plans(
            each.label, each.batching, float(each.requests["tpot_s"].mean()), each.timeseries
        )
        for each in shown
    ]
    return (reason.text for reason in longer_tpot(runs))


def _view(each: DrawnVariant, window: tuple[float, float] | None = None) -> SlotView | None:
    return slot_view(each.requests, each.timeseries, each.batching, each.trail, window, MOST_SLOTS)


def overlays(shown: Sequence[DrawnVariant], runs: Runs) -> list[Drawing]:
    """Latencies as distributions, the requests that run and wait, and the replicas held."""
    limits = {metric: _limit(runs, metric) for metric in ("ttft", "tpot")}
    dashed = {m: f"Dashed: the limit, {show_time(limit)}." for m, limit in limits.items() if limit}
    paid = "Replicas that are paid for, also while they start and while they are drained."
    found = [
        *(
            (m, m.upper(), m, dashed.get(m, ""), overlaid.distributions(shown, m, limit))
            for m, limit in limits.items()
        ),
        *(
            (n, f"Requests {n}", None, "", overlaid.levels(shown, n))
            for n in ("running", "waiting")
        ),
        ("held", "Replicas held", None, paid, overlaid.held(shown)),
    ]
    return [
        Drawing(f"overlaid-{name}", title, definition, note, drawn, kind="")
        for name, title, definition, note, drawn in found
        if drawn is not None
    ]


def _limit(runs: Runs, metric: str) -> float | None:
    """The limit (s) of ``metric`` if all runs have the same."""
    found = set()
    for run in runs.values():
        limits = known(run.summary, "infersim.verdict.limits") or {}
        found.add(limits[metric]["limit_ms"] if metric in limits else None)
    limit = found.pop() if len(found) == 1 else None
    return None if limit is None else float(limit) / 1e3


def differing(document: Document, runs: Runs) -> Table | None:
    """The settings in which saved runs differ; None where they are the same, or not saved."""
    flat = {i: _flat(yaml.safe_load(run.scenario_yaml) or {}) for i, run in runs.items()}
    keys = list(dict.fromkeys(key for each in flat.values() for key in each))
    apart = [
        key
        for key in keys
        if key not in OTHER_KEYS and len({each.get(key) for each in flat.values()}) > 1
    ]
    if not apart:
        return None
    labels = names(document)
    columns = [Column("Setting", False)]
    columns += [Column(labels[index], False) for index in flat]
    rows = tuple(
        tuple(Cell(text, text) for text in (key, *(each.get(key, "") for each in flat.values())))
        for key in apart[:MOST_KEYS]
    )
    caption = "What differs in the configuration"
    if len(apart) > MOST_KEYS:
        caption += f" (the first {MOST_KEYS} of {len(apart):,} settings)"
    return Table("settings", caption, tuple(columns), rows)


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Dotted key -> value as a scenario has it."""
    if isinstance(value, Mapping):
        pairs = [(str(key), each) for key, each in value.items()]
    elif isinstance(value, list):
        pairs = [(str(index), each) for index, each in enumerate(value)]
    else:
        written = str(value).lower() if isinstance(value, bool) else str(value)
        return {prefix: "none" if value is None else written}
    found: dict[str, str] = {}
    for key, each in pairs:
        found |= _flat(each, f"{prefix}.{key}" if prefix else key)
    return found
