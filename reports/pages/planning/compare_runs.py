"""Shows one run of each variant of a comparison: slots, latencies and queues on the same axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from reports.figures import overlaid, slots, variants
from reports.figures.overlaid import DrawnVariant
from reports.figures.series import styles
from reports.figures.slot_view import SlotView, slot_view
from reports.frame.content import Plot, to_json
from reports.frame.run_directory import SavedRun, known
from sim.findings import Cell, Column, Table
from sim.units import show_time

MOST_DRAWN = 4
"""Variants of which a run is drawn."""

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


def chosen(document: Mapping[str, Any]) -> list[int]:
    """The variants to draw: the base, then the best by TTFT or, without it, by throughput; in the
    order of the comparison."""
    served = [i for i, each in enumerate(document["variants"]) if each["error"] is None]
    entries = {entry["key"]: entry for entry in document["figures"]}
    ranked = list(served)
    for key in ("output_throughput", "p99_ttft_ms"):
        if key in entries:
            best = variants.best_first(entries[key], entries[key]["means"])
            ranked = [*best, *(i for i in ranked if i not in best)]
    if document["base"] in ranked:
        ranked.sort(key=lambda index: index != document["base"])
    return sorted([index for index in ranked if index in served][:MOST_DRAWN])


def drawn_variants(document: Mapping[str, Any], runs: Runs) -> list[DrawnVariant]:
    """The variants of ``runs`` as figures need them."""
    labels, found = variants.names(document), document["variants"]
    looks = styles([found[index]["settings"] for index in runs])
    return [
        DrawnVariant(
            labels[index].replace("<br>", " "),
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


def slot_plots(shown: Sequence[DrawnVariant]) -> list[Plot]:
    """The slot chart of each variant, all over the same time: from where the variant that shows the
    shortest stretch begins, as long as the longest one, but no more than ``MOST_SPANS`` times the
    shortest, in which its bars would be too thin."""
    own = [_view(each) for each in shown]
    spans = [(view.end - view.start, view.start) for view in own if view is not None]
    if not spans:
        return []
    shortest, start = min(spans)
    end = start + min(max(spans)[0], MOST_SPANS * shortest)
    plots = []
    for index, each in enumerate(shown):
        view = _view(each, (start, end))
        if view is None:
            continue
        until = min(end, view.duration)
        span = f"{show_time(start)} to {show_time(until)} of {show_time(view.duration)}"
        note = f"{span}. {view.slots.drawn:,} of {view.slots.all:,} slots."
        if view.replicas.all > 1:
            note += f" One of {view.replicas.all:,} replicas."
        name = f"slots-{index + 1}"
        plots.append(Plot(name, each.label, None, note, to_json(slots.draw(view)), kind="slots"))
    return plots


def _view(each: DrawnVariant, window: tuple[float, float] | None = None) -> SlotView | None:
    return slot_view(each.requests, each.timeseries, each.batching, each.trail, window, MOST_SLOTS)


def overlays(shown: Sequence[DrawnVariant], runs: Runs) -> list[Plot]:
    """Latencies as distributions, and the requests that run and wait."""
    plots = []
    for metric, title in (("ttft", "TTFT"), ("tpot", "TPOT")):
        limit = _limit(runs, metric)
        figure = overlaid.distributions(shown, metric, limit)
        if figure is not None:
            note = "" if limit is None else f"Dashed: the limit, {show_time(limit)}."
            plots.append(Plot(f"overlaid-{metric}", title, metric, note, to_json(figure)))
    for name in ("running", "waiting"):
        figure = overlaid.levels(shown, name)
        if figure is not None:
            title = f"Requests {name}"
            plots.append(Plot(f"overlaid-{name}", title, None, "", to_json(figure)))
    figure = overlaid.held(shown)
    if figure is not None:
        note = "Replicas that are paid for, also while they start and while they are drained."
        plots.append(Plot("overlaid-held", "Replicas held", None, note, to_json(figure)))
    return plots


def links(document: Mapping[str, Any], runs: Runs) -> list[tuple[str, str]]:
    """The name and the page of each run that has one."""
    labels = variants.names(document)
    return [(labels[i].replace("<br>", " "), run.page) for i, run in runs.items() if run.page]


def _limit(runs: Runs, metric: str) -> float | None:
    """The limit (s) of ``metric`` if all runs have the same."""
    found = set()
    for run in runs.values():
        limits = known(run.summary, "infersim.verdict.limits") or {}
        found.add(limits[metric]["limit_ms"] if metric in limits else None)
    limit = found.pop() if len(found) == 1 else None
    return None if limit is None else float(limit) / 1e3


def differing(document: Mapping[str, Any], runs: Runs) -> Table | None:
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
    labels = variants.names(document)
    columns = [Column("Setting", False)]
    columns += [Column(labels[index].replace("<br>", " "), False) for index in flat]
    rows = tuple(
        tuple(Cell(text, text) for text in (key, *(each.get(key, "") for each in flat.values())))
        for key in apart[:MOST_KEYS]
    )
    caption = "What differs in the configuration"
    if len(apart) > MOST_KEYS:
        caption += f" (the first {MOST_KEYS} of {len(apart):,} settings)"
    return Table("settings", caption, tuple(columns), rows)


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Dotted key -> value as text."""
    if isinstance(value, Mapping):
        pairs = [(str(key), each) for key, each in value.items()]
    elif isinstance(value, list):
        pairs = [(str(index), each) for index, each in enumerate(value)]
    else:
        return {prefix: "none" if value is None else str(value)}
    found: dict[str, str] = {}
    for key, each in pairs:
        found |= _flat(each, f"{prefix}.{key}" if prefix else key)
    return found
