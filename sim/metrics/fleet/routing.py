"""Says how evenly a router dealt the requests out, and what each replica found of prompts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.metrics.record.pools import PoolRun
from sim.metrics.record.run_record import RunRecord
from sim.routers import AFFINE, PrefixAffinity, SessionAffinity


def routing(run: RunRecord) -> dict[str, Any]:
    """The entry ``routing`` of a summary; nothing where there is one replica, or where it is not
    known which one served a request.

    ``requests_over_mean`` is what the replica with the most requests had, as a multiple of the mean
    of its pool, ``tokens_over_mean`` the same of tokens of prompts and answers; the largest of the
    pools, None before any request. ``replicas`` has both of each replica, and where it has a prefix
    cache the ``hit_rate`` of that (``prefix_cache``). Rejected requests went nowhere.
    """
    if run.replicas == 1 or run.observed:
        return {}
    parts = [(part, *_dealt(part)) for part in run.parts]
    found = [
        {"replica": number, **entry}
        for number, entry in enumerate(entry for part in parts for entry in _entries(*part))
    ]
    several = [part for part in parts if part[0].pool.replicas > 1]
    return {
        "routing": {
            "requests_over_mean": _largest(requests for _, requests, _ in several),
            "tokens_over_mean": _largest(tokens for _, _, tokens in several),
            "replicas": found,
        }
    }


def routing_note(run: RunRecord) -> str | None:
    """A note on what a router looks for and this run lacks; None if it lacks nothing."""
    router = run.scenario.router
    if run.replicas == 1 or run.observed or router not in AFFINE:
        return None
    if not any(part.pool.settings.kv_cache.enable_prefix_caching for part in run.parts):
        return (
            f"Router {router} keeps together what begins alike, but no replica keeps what it "
            "computed of it: `--set kv_cache.enable_prefix_caching=true`."
        )
    if router == SessionAffinity.name and run.sessions is None:
        return (
            f"No request belongs to a conversation, so {router} sent all of them to the replica "
            f"with the fewest unfinished ones; {PrefixAffinity.name} goes by the prompts."
        )
    return None


def _dealt(part: PoolRun) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Requests and tokens of each replica."""
    served, at = _served(part)
    tokens = part.requests["prompt_tokens"][served] + part.requests["generated"][served]
    return _sums(part, at, np.ones(len(at), np.int64)), _sums(part, at, tokens)


def _served(part: PoolRun) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """The requests that went to a replica of the pool, and the place of it there, from 0."""
    served = part.serves(part.requests) & (part.requests["replica"] >= 0)
    settings = part.pool.settings
    numbers = part.requests["replica"][served].astype(np.int64) - settings.numbers.start
    return served, numbers // settings.engines.step


def _sums(part: PoolRun, at: NDArray[np.int64], of: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.bincount(at, of, part.pool.replicas).astype(np.int64)


def _largest(pools: Iterable[NDArray[np.int64]]) -> float | None:
    """The largest of what the replicas of a pool were dealt, over the mean there.

    >>> _largest([np.array([3, 1]), np.array([5, 4, 0])]), _largest([np.array([0, 0])])
    (1.6666666666666667, None)
    """
    return max((float(dealt.max() / dealt.mean()) for dealt in pools if dealt.any()), default=None)


def _entries(
    part: PoolRun, requests: NDArray[np.int64], tokens: NDArray[np.int64]
) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = [
        {"requests": count, "tokens": amount}
        for count, amount in zip(requests.tolist(), tokens.tolist(), strict=True)
    ]
    if part.pool.settings.kv_cache.enable_prefix_caching:
        served, at = _served(part)
        admitted = ~np.isnan(part.requests["scheduled"][served])
        prompts = part.requests["prompt_tokens"][served] * admitted
        asked, hits = _sums(part, at, prompts), _sums(part, at, part.found[served])
        for entry, queries, found in zip(entries, asked.tolist(), hits.tolist(), strict=True):
            entry["hit_rate"] = found / queries if queries else None
    return entries
