"""Sums up transfers between the GPUs of a run and their hosts, and their benefit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.memory.host import KINDS
from sim.metrics.engine.prefix_hits import admitted
from sim.metrics.record.run_record import RunRecord
from sim.pools import PreparedPool


def host_tier(run: RunRecord) -> dict[str, Any]:
    """The entry ``host_tier`` of a summary; nothing where no pool has memory in its host.

    ``hits`` are tokens of prompts that came from the host when a request was first admitted,
    ``hit_rate`` their share of those looked up, None without a prefix cache. Gigabytes are of all
    ranks; ``link_out`` and ``link_in`` the shares of the run in which the links moved blocks to
    the host and back; ``swaps`` preempted requests that went to the host. ``break_even_tokens`` is
    the context from which on swapping is faster than computing again, None where it never is.
    """
    parts = [part for part in run.parts if part.pool.host is not None and part.moves is not None]
    if not parts:
        return {}
    moved = dict.fromkeys(KINDS, 0.0)
    busy = dict.fromkeys(KINDS, 0.0)
    swaps = hits = 0
    for part in parts:
        host, moves = part.pool.host, part.moves
        assert host is not None
        assert moves is not None
        for number, kind in enumerate(KINDS):
            mine = moves[moves["kind"] == number]
            moved[kind] += float(mine["blocks"].sum()) * host.block_bytes
            ends = np.minimum(mine["end"], run.end) - np.minimum(mine["start"], run.end)
            busy[kind] += float(ends.sum())
            if kind == "swap_out":
                swaps += len(mine)
            if kind == "load":
                hits += _loaded_first(run, mine, host.block_size)
    hosts = [part.pool.host for part in parts if part.pool.host is not None]
    queries = int(run.requests["prompt_tokens"][admitted(run)].sum()) if run.cached else 0
    span = run.duration * sum(part.pool.replicas for part in parts)
    (host, *others), longest = hosts, max(part.pool.limits.max_model_len for part in parts)
    return {
        "host_tier": {
            "memory_bytes": sum(part.pool.replicas * _bytes(part.pool) for part in parts),
            "blocks": host.blocks if not others else None,
            "bandwidth": host.bandwidth if not others else None,
            "hits": hits,
            "hit_rate": hits / queries if queries else None,
            "stored_gb": moved["store"] / 1e9,
            "loaded_gb": moved["load"] / 1e9,
            "swapped_out_gb": moved["swap_out"] / 1e9,
            "swapped_in_gb": moved["swap_in"] / 1e9,
            "to_host_gb": (moved["store"] + moved["swap_out"]) / 1e9,
            "from_host_gb": (moved["load"] + moved["swap_in"]) / 1e9,
            "link_out": (busy["store"] + busy["swap_out"]) / span if span else 0.0,
            "link_in": (busy["load"] + busy["swap_in"]) / span if span else 0.0,
            "swaps": swaps,
            "break_even_tokens": host.break_even(longest) if not others else None,
        }
    }


def _bytes(pool: PreparedPool) -> float:
    """Memory of one replica's host that holds blocks."""
    return 0.0 if pool.host is None else pool.host.blocks * pool.host.block_bytes


def _loaded_first(run: RunRecord, loads: NDArray[np.void], block_size: int) -> int:
    """Tokens of ``loads`` that belong to the first admission of their request."""
    places = np.searchsorted(run.requests["id"], loads["request"])
    first = loads["start"] <= run.requests["scheduled"][places]
    tokens = np.minimum(loads["blocks"] * block_size, run.found[places])
    return int(tokens[first].sum())


def break_even_note(run: RunRecord) -> str | None:
    """From which context on swapping is faster than computing again, where requests may swap."""
    entry = host_tier(run).get("host_tier")
    ways = {pool.settings.kv_cache.preemption for pool in run.pools}
    if entry is None or ways == {"recompute"}:
        return None
    tokens = entry["break_even_tokens"]
    if tokens is None:
        return (
            "Computing a preempted request again is faster than moving it to the host and back, "
            "whatever its length."
        )
    return "Moving a preempted request to the host and back is faster than computing it again " + (
        "at any length." if tokens <= 1 else f"from a context of {tokens:,} tokens on."
    )
