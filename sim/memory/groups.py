"""Describes how layers share one pool of KV blocks, as in vLLM's hybrid KV manager.

Layers that see a context alike are cut into groups of equally many layers, the last one padded. A
block holds ``block_size`` tokens of one group, so that a block of any group can become one of any
other. As groups have no more layers than the rarest kind, a request takes blocks for each group; a
group whose layers look through a window gives back blocks that lie wholly behind it. (vLLM 0.32,
``v1/core/kv_cache_utils.py`` and ``single_type_kv_cache_manager.py``.) A model whose layers all see
everything is one group, and a block holds ``block_size`` tokens of all its layers.

Layers that keep several things in pages of different sizes (DeepSeek V4) share blocks as vLLM packs
them: see ``_packed``.

What a kind of layer keeps is ``Kept`` (``sim.specs.layers``). Layers that keep a constant state are
groups of their own, which take one block from a request however long it is: blocks hold as many
tokens of attention as it takes to be as large as a state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from sim.specs.deployment import Deployment
from sim.specs.gated_delta import GatedDelta
from sim.specs.layers import Kept
from sim.specs.window import Window

STEP = 16
"""Tokens by which blocks of attention grow to hold a state."""

LATENT_STEP = 128
"""That step of latent attention (vLLM 0.27 to 0.33, ``_align_hybrid_block_size``; 64 in 0.19)."""

EXPORTED = 64
"""That step where kernels of the gated delta rule export states from inside a chunk (vLLM 0.33,
``FLASHINFER_GDN_CHECKPOINT_ALIGNMENT``)."""


class KvGroup(NamedTuple):
    """``number`` groups of layers with that ``window``, and blocks of that many tokens."""

    number: int
    window: Window | None
    block: int

    def blocks(self, computed: int, tokens: int) -> int:
        """Blocks of one group that hold ``tokens`` of a request, when that many of them had been
        ``computed`` before the last iteration began: what these no longer see is given back.

        >>> KvGroup(1, Window(33), 16).blocks(48, 64), KvGroup(1, None, 16).blocks(48, 64)
        (3, 4)
        """
        whole = -(-tokens // self.block)
        if self.window is None:
            return whole
        return whole - (computed - self.window.seen(computed)) // self.block

    def most(self, longest: int, in_flight: int) -> int:
        """Blocks of one group that a request of up to ``longest`` tokens holds at most, with so
        many tokens ``in_flight``: what is seen, what is being computed, and where a window begins
        within a block, one more. As vLLM admits requests, and states its maximum concurrency.

        >>> KvGroup(1, Window(512), 16).most(4096, 8192)
        257
        """
        if self.window is None:
            return -(-longest // self.block)
        if self.window.chunked:
            return -(-min(self.window.size + in_flight, longest) // self.block)
        return -(-min(self.window.size - 1 + in_flight, longest) // self.block) + 1


def places(groups: Sequence[KvGroup]) -> list[tuple[KvGroup, list[int]]]:
    """Each kind of group with the places of its own among all groups."""
    numbers = iter(range(sum(group.number for group in groups)))
    return [(group, [next(numbers) for _ in range(group.number)]) for group in groups]


class KvGroups(NamedTuple):
    """The ``groups`` of a model whose blocks hold tokens, the bytes that a token takes in one of
    them (one GPU), how many groups hold a state: blocks of each request; and the tokens of a
    ``block``, where they are not those that are asked for."""

    groups: tuple[KvGroup, ...]
    token: float
    states: int = 0
    block: int | None = None

    @property
    def number(self) -> int:
        """Groups in all."""
        return sum(group.number for group in self.groups)


def kv_groups(
    d: Deployment, block_size: int, *, windows: bool = True, exported: bool = False
) -> KvGroups:
    """The groups of the layers of ``d``; without ``windows``, of an engine that frees nothing
    behind them and has its states elsewhere, as they also are where layers have windows.

    ``exported`` says that states are kept from inside chunks of prompts.
    Layers that keep less a token than others get blocks of more tokens, as many times as it goes.
    The stages of a pipeline have the groups of the whole model (``stage_groups``).
    """
    in_blocks = not d.engine.fraction_of_static  # SGLang has a pool of states
    if windows and not d.model.windows and d.state_bytes() and in_blocks:
        delta = any(isinstance(g.attention, GatedDelta) for g in d.model.layers)
        step = max(LATENT_STEP if d.model.is_latent else STEP, block_size)
        return _with_states(d, math.lcm(step, EXPORTED) if exported and delta else step)
    if not windows or not d.model.windows:
        return KvGroups((KvGroup(1, None, block_size),), d.kv_bytes_per_token())
    if any(one.pages for _, one in _kept(d)):
        return _packed(_kept(d))
    kept = [each for each in _kept(d) if each[1].token]
    counts: dict[Window | None, int] = {}
    for count, one in kept:
        counts[one.window] = counts.get(one.window, 0) + count
    size = group_size(counts.values())
    tokens = {window: _largest(kept, window) for window in counts}
    widest = max(tokens.values())
    groups = [
        KvGroup(math.ceil(count / size), window, block_size * max(1, int(widest // tokens[window])))
        for window, count in counts.items()
    ]
    return KvGroups(tuple(groups), size * widest)


def stage_groups(
    d: Deployment, stage: Deployment, block_size: int, *, windows: bool = True
) -> KvGroups:
    """The groups of ``d`` as one ``stage`` of its pipeline has them: as many, with the layers that
    are on it, which vLLM deals out in turn (0.32, ``v1/core/kv_cache_utils.py``)."""
    whole = kv_groups(replace(d, layout=stage.layout), block_size, windows=windows)
    if not windows or whole.number + whole.states == 1:
        return whole._replace(token=stage.kv_bytes_per_token())
    if any(one.pages for _, one in _kept(d)):
        return whole._replace(token=_packed(_kept(stage)).token)
    own, largest = _kept(stage), max(one.token for _, one in _kept(d))
    counts = [
        math.ceil(sum(n for n, one in own if one.token and one.window == window) / number)
        for number, window, _ in whole.groups
    ]
    if whole.states:
        counts.append(math.ceil(sum(n for n, one in own if one.state) / whole.states))
    return whole._replace(token=max(counts) * largest)


def _with_states(d: Deployment, step: int) -> KvGroups:
    """Layers with a state and layers that see everything, which are one group.

    A block of attention is at least as large as a state, in steps of that many tokens, those of a
    block that is asked for if more (vLLM 0.27 to 0.33, ``_align_hybrid_block_size``); the state's
    block is padded to that.
    """
    kept = _kept(d)
    full = sum(count for count, one in kept if one.token)
    recurrent = sum(count for count, one in kept if one.state)
    token = max(one.token for _, one in kept)
    state = max(one.state for _, one in kept)
    size = max(full, group_size([full, recurrent]))
    block = step * math.ceil(state / (step * token))
    return KvGroups((KvGroup(1, None, block),), size * token, math.ceil(recurrent / size), block)


def _packed(kept: list[tuple[int, Kept]]) -> KvGroups:
    """Layers with pages of different sizes, which lie one behind the other in a block.

    Pages of as many tokens and the same window are a kind. Pages that see everything are one group,
    and so is a kind with several sizes of page; kinds of a single size are cut into groups of about
    as many layers as these. A block is as large as the largest group, and of any group. (vLLM 0.27,
    ``_get_kv_cache_groups_uniform_groups``, to 0.33, ``_get_packed_kv_cache_groups``, in v1/core.)
    """
    kinds: dict[tuple[Window | None, int], dict[float, int]] = {}
    for count, one in kept:
        for size, block, window in one.pages:
            pages = kinds.setdefault((window, block), {})
            pages[size] = pages.get(size, 0) + count
    even = {kind: max(pages.values()) for kind, pages in kinds.items() if kind[0] is not None}
    several = [layers for kind, layers in even.items() if len(kinds[kind]) > 1]
    layers = _repeats(list(even.values()), max(several, default=1)) if several else None
    numbers = {
        kind: math.ceil(even[kind] / layers) if layers and kind in even else 1 for kind in kinds
    }
    largest = max(
        sum(math.ceil(count / numbers[kind]) * size for size, count in pages.items())
        for kind, pages in kinds.items()
    )
    groups = [KvGroup(numbers[kind], *kind) for kind in kinds]
    groups.sort(key=lambda group: group.window is not None)
    return KvGroups(tuple(groups), largest / groups[0].block, block=groups[0].block)


def _repeats(counts: list[int], least: int) -> int:
    """Layers of a group, at least so many, for which groups of all ``counts`` of layers lack the
    fewest; the most of them, where several do.

    >>> _repeats([61, 30, 31], 30), _repeats([43, 21, 20], 21)
    (31, 22)
    """
    sizes = range(least, max(counts) + 1)
    return min(sizes, key=lambda size: (sum(-count % size for count in counts), -size))


def _kept(d: Deployment) -> list[tuple[int, Kept]]:
    """The memory kept by layers, a drafter's too, with the number of layers."""
    own = [(g.count, g.attention.kept(d.kv_cache, d.layout)) for g in d.model.layers]
    return own if d.drafter is None else own + _kept(d.drafter.deployment)


def group_size(counts: Iterable[int]) -> int:
    """Layers of one group, where that many layers are of each kind: those of the rarest, or of the
    most frequent where that is less than half as many again.

    >>> group_size([10, 52]), group_size([21, 21]), group_size([10, 14])
    (10, 21, 14)
    """
    few, many = min(counts), max(counts)
    return many if many < 1.5 * few else few


def _largest(kept: list[tuple[int, Kept]], window: Window | None) -> float:
    return max(one.token for _, one in kept if one.window == window)
