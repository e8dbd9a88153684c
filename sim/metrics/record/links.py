"""Says what a run assumes of the links between its GPUs and of their power, and what that decides.

Over PCIe an all-reduce takes several times as long on a host whose cards do not reach each other
directly. Where a scenario does not say which case it is, the iterations of the run are timed once
more with each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sim.cost import CostModel, Deployment
from sim.metrics.record.attribution import attribute
from sim.metrics.record.pools import PoolRun, total
from sim.metrics.texts import OpenNote
from sim.pools import PreparedPool
from sim.specs.gpu import GpuSpec
from sim.specs.links import on_link, pcie
from sim.units import show_rate, show_time

NEGLIGIBLE = 0.005
"""A share of the busy time that rounds to no percent."""


class OpenLinks(NamedTuple):
    """The effect of unknown PCIe links on a run: by which share its iterations are longer
    (``slower``) if cards reach each other otherwise than assumed; and by which share what is spent
    on the links is more then, in passes with ``prompts`` and in those of ``decodes`` alone."""

    slower: float
    prompts: float
    decodes: float


_EITHER: WeakKeyDictionary[CostModel, dict[float, dict[bool, CostModel]]] = WeakKeyDictionary()


def hardware_notes(parts: Sequence[PoolRun], scale: float) -> list[str]:
    """The sentences on the links and the power limits of the pools of a simulated run, whose links
    are assumed to have ``scale`` times their bandwidth."""
    return list(dict.fromkeys(note for part in parts for note in _notes(part, scale)))


def _notes(part: PoolRun, scale: float) -> Iterator[str]:
    """The notes on one pool, whose links are assumed to have ``scale`` times their bandwidth."""
    pool = part.pool
    if pool.deployment.layout.linked:
        if _stated(pool):
            yield from _over_another(pool)
        elif _open(pool):
            yield from _either_way(part, scale)
    gpu = pool.deployment.gpu
    if gpu.clocks < 1:
        yield (
            f"At {gpu.power:g} W {gpu.name} is taken to compute at {gpu.clocks:.0%} of its peak, "
            "and to read its memory as fast as ever; no kernel was measured at that limit."
        )
    if pool.deployment.engine.kernels == "trtllm" and gpu.is_amd:
        yield f"TensorRT-LLM does not run on {gpu.title}: no such server exists."


def _stated(pool: PreparedPool) -> bool:
    """Whether the scenario says what joins the GPUs."""
    link = pool.settings.link
    return link is not None and not (link.kind == "pcie" and link.peer_to_peer is None)


def _open(pool: PreparedPool) -> bool:
    """Whether its GPUs are joined over PCIe and nothing says if they reach each other."""
    gpu = pool.deployment.gpu
    between = pool.deployment.layout.linked and gpu.link.kind == "pcie"
    return between and gpu.host_link.kind == "pcie" and not _stated(pool)


def links_open(pools: Sequence[PreparedPool]) -> bool:
    """Whether the GPUs of some pool are joined over PCIe and nothing says if they reach each
    other."""
    return any(_open(pool) for pool in pools)


def open_links(parts: Sequence[PoolRun], scale: float) -> OpenLinks | None:
    """The effect of the other case of a simulated run's open links; None where none are open, or
    the iterations would not be longer."""
    if not links_open([part.pool for part in parts]):
        return None
    more, ours = dict.fromkeys(PASSES, 0.0), dict.fromkeys(PASSES, 0.0)
    for part in parts:
        changes = _changes(part, scale)
        slower = max(changes, key=lambda direct: changes[direct], default=False)
        if not _open(part.pool) or changes.get(slower, 0.0) <= 0:
            continue
        for name, plans in _by_kind(part).items():
            assumed, other = (
                attribute(cost, plans).by_bound["communication"]
                for cost in (part.pool.cost, _either(part.pool.cost, scale)[slower])
            )
            ours[name] += assumed
            more[name] += other - assumed
    busy = total([part.attribution for part in parts]).seconds
    if not busy or sum(more.values()) < NEGLIGIBLE * busy:
        return None
    shares = {name: more[name] / ours[name] if ours[name] else 0.0 for name in PASSES}
    return OpenLinks(sum(more.values()) / busy, **shares)


PASSES = ("prompts", "decodes")
"""Kinds of passes: those with prompts, and those of decodes alone."""


def _by_kind(part: PoolRun) -> dict[str, NDArray[np.void]]:
    with_prompts = part.plans["prefill_seqs"] > 0
    return dict(zip(PASSES, (part.plans[with_prompts], part.plans[~with_prompts]), strict=True))


def _changes(part: PoolRun, scale: float) -> dict[bool, float]:
    """By which share the iterations of a pool are longer if cards reach each other, or do not."""
    found = part.attribution
    ours = found.by_bound["communication"]
    if not found.seconds:
        return {}
    return {
        direct: (attribute(cost, part.plans).by_bound["communication"] - ours) / found.seconds
        for direct, cost in _either(part.pool.cost, scale).items()
    }


def _over_another(pool: PreparedPool) -> Iterator[str]:
    gpu = pool.deployment.gpu
    if gpu.profile is None or gpu.profile.find("all_reduce", "bf16") is not None:
        return
    yield (
        f"All-reduces follow from the link's bandwidth and latency ({_figures(gpu)}): none was "
        "measured over this link."
    )


def _figures(gpu: GpuSpec) -> str:
    return f"{show_rate(gpu.link.bandwidth, 'B/s')}, {show_time(gpu.link.latency)}"


def _either_way(part: PoolRun, scale: float) -> Iterator[str]:
    """Notes on either case, if it differs from what is assumed."""
    d, found = part.pool.deployment, part.attribution
    if not found.seconds:
        return
    changes = _changes(part, scale)
    if all(abs(change) < NEGLIGIBLE for change in changes.values()):
        return
    measured = d.gpu.profile is not None and d.gpu.profile.find("all_reduce", "bf16") is not None
    source = "as its all-reduces were measured" if measured else f"at {_figures(d.gpu)}"
    key = f"fleet.{part.pool.settings.index}.link"
    yield OpenNote(
        f"Whether {d.gpu.name} cards reach each other directly over PCIe depends on the host and "
        f"is not stated ({key}.peer_to_peer); they are taken "
        f"{source}. If they do, the iterations of this run take {_changed(changes[True])}; if they "
        f"do not, {_changed(changes[False])}.",
        *(
            {key: {"kind": "pcie", "peer_to_peer": direct}}
            for direct, change in changes.items()
            if abs(change) >= NEGLIGIBLE
        ),
    )


def _changed(change: float) -> str:
    if abs(change) < NEGLIGIBLE:
        return "as long as here"
    return f"{abs(change):.0%} {'longer' if change > 0 else 'less'}"


def _joined(d: Deployment, scale: float, *, direct: bool) -> Deployment:
    """``d`` with cards that reach each other, or do not, in slots of ``scale`` times the rate."""
    slot = replace(d.gpu.host_link, bandwidth=d.gpu.host_link.bandwidth * scale)
    link = pcie(replace(d.gpu, host_link=slot), direct)
    return replace(d, gpu=on_link(d.gpu, link, frameworks=direct))


def _either(cost: CostModel, scale: float) -> dict[bool, CostModel]:
    """Cost models of the same replicas whose cards reach each other, or do not; made once for all
    runs of them."""
    made = _EITHER.setdefault(cost, {})
    if scale not in made:
        made[scale] = {
            direct: CostModel(_joined(cost.deployment, scale, direct=direct))
            for direct in (True, False)
        }
    return made[scale]
