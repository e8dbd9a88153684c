"""Computes what a replica serves with full batches: the capacity that traffic is compared with.

Found by timing iterations with the run's own cost model, not by simulating: the iterations that a
full batch of requests of these lengths would need, over and over. Times in seconds, lengths in
tokens, contexts in KV tokens.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from hashlib import sha256
from itertools import islice
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from sim.cost import CostModel
from sim.iteration import Batch, Part
from sim.memory import ALLOCATORS
from sim.pools import PreparedPool
from sim.rng import stream
from sim.schedulers import BatchShape

Lengths = NDArray[np.int64]
Seconds = NDArray[np.float64]

ITERATIONS = 64
"""Iterations with prompts that are timed: their mean is within 1 % of that of thousands."""

SLOTS = 16_384
"""Slots of whole batches that are timed, in a sixth of the time that simulating them takes. Their
longest members make batches very different: the mean of 2,048 of them is good to 1 %."""

REMEMBERED = 32
"""Full batches that are remembered of a cost model: a load is decided by eight runs, which have
requests of their own."""

LARGEST = 1_000_000
"""Requests of all of them together, each of which has a number."""

PREEMPTION = 0.05
"""Share of a batch that is lost where memory fills up with growing sequences, so that some of them
are preempted and prefilled again: 0 to 13 % of the speed of bursts, the more the larger the batch.
What a run shows of it is accounted for separately (``stability``)."""


class FullBatch(NamedTuple):
    """A full batch of one replica, as requests of given lengths make it.

    ``slots`` requests are in it; of a pipeline, in one of the batches in flight, while the others
    are alike. Its time is divided among them: ``costs`` are the seconds
    of it that each takes, ``error`` is the relative standard error of their mean where they are a
    sample. ``token`` and ``prompt`` are what a token costs on average, decoded or prefilled; both 0
    for batches that are served as a whole. ``estimated`` if the policy does not say how its full
    batches look.
    """

    slots: float
    costs: Seconds
    error: float
    token: float
    prompt: float
    estimated: bool


_KNOWN: WeakKeyDictionary[CostModel, dict[Hashable, FullBatch]] = WeakKeyDictionary()
"""The full batches that are known, of each cost model and by the rest that they depend on."""


def full_batch(
    pool: PreparedPool,
    prompts: Lengths,
    outputs: Lengths,
    found: Lengths | None = None,
    shares: Seconds | None = None,
) -> FullBatch:
    """The full batch of one replica of ``pool``, for requests of these lengths. ``found`` are the
    tokens of each prompt that a prefix cache has, which are not computed; None: none. ``shares``
    are those of each request in the traffic, 1 in sum; None: all are alike. What requests
    share in memory is not taken off what they hold. Asked twice, worked out once: a search asks for
    the same requests at every load."""
    shape, known = pool.policy.shape, _KNOWN.setdefault(pool.cost, {})
    found = np.zeros_like(prompts) if found is None else found
    columns = (prompts, outputs, found) if shares is None else (prompts, outputs, found, shares)
    lengths = tuple(sha256(a.tobytes()).digest() for a in columns)
    least = _at_the_front_end(pool, outputs, shares)
    key = (pool.capacity, pool.limits, pool.settings.kv_cache.allocator, shape, lengths, least)
    if key not in known:
        requests = sum(len(each.costs) for each in known.values())
        if len(known) >= REMEMBERED or requests + len(prompts) > LARGEST:
            known.clear()
        if shape.whole:
            full = _whole(pool, shape, prompts, outputs, shares)
        else:
            full = _continuous(pool, shape, prompts, outputs, found, shares)
        known[key] = _no_faster(full, least, shares)
    return known[key]


def _at_the_front_end(pool: PreparedPool, outputs: Lengths, shares: Seconds | None) -> float:
    """Seconds that a request keeps the one thread of its replica's front end busy, which takes it
    in and hands out its tokens, as one of as many ranks sees it. 0 for workers apart, whose front
    end stands before both."""
    engine = pool.deployment.engine
    if pool.settings.role in ("prefill", "decode"):
        return 0.0
    each = engine.per_handled_request + engine.per_streamed_token * _mean(outputs, shares)
    return each * pool.deployment.layout.data


def _no_faster(full: FullBatch, least: float, shares: Seconds | None) -> FullBatch:
    """The full batch where a request takes so many seconds on average at ``least``."""
    mean = _mean(full.costs, shares)
    if mean >= least:
        return full
    # each of them takes as much of a front end, so that they differ by as much as before
    return full._replace(costs=full.costs + (least - mean), error=full.error * mean / least)


# -- batches that are made anew for every iteration ------------------------------------------------


def _continuous(
    pool: PreparedPool,
    shape: BatchShape,
    prompts: Lengths,
    outputs: Lengths,
    found: Lengths,
    shares_of: Seconds | None,
) -> FullBatch:
    """All slots taken: a request that finishes is replaced at once, so that requests enter and
    leave at the rate of one per ``outputs`` iterations and slot, or as the token budget admits
    them.
    """
    cost, stages, drafts = pool.cost, pool.deployment.layout.pipeline, pool.deployment.speculation
    output, budget = _mean(outputs, shares_of), pool.limits.max_num_batched_tokens
    steps, each, more = outputs.astype(np.float64) - 1.0, 1.0, 0.0
    slots, shares = _slots(pool, prompts, outputs, shares_of)
    slots /= stages
    if drafts is not None:
        drafts = drafts.at(round(slots))
        steps, each = drafts.steps(steps), drafts.length
        output = 1.0 + _mean(steps, shares_of)
        beyond = drafts.match * drafts.num_tokens + drafts.slots - drafts.width
        more = (output - 1) * beyond
    computed = prompts - found
    members = min(slots, output * budget / (_mean(computed, shares_of) + output - 1 + more))
    members = members if shape.mixed else slots
    contexts = prompts + outputs / 2
    decoded = max(1.0, _sum(steps, shares_of))
    context = _sum(steps * contexts, shares_of) / decoded
    sequences = max(1, round(members))
    _, intercept, slope = cost.line(sequences, int(sequences * context))
    if stages > 1:
        alike = Batch(sequences, int(sequences * context))
        longer = cost.cycle(alike) / cost.seconds(alike)
        intercept, slope = intercept * longer, slope * longer
    token = intercept / sequences + slope * context
    added = tokens = 0.0
    for parts in _entering(computed, found, members / output, budget, shares_of):
        decoding = max(0, round(members - len(parts))) if shape.mixed else 0
        seconds = cost.cycle(Batch(decoding, int(decoding * context), parts, len(parts)))
        added += seconds - decoding * token
        tokens += sum(part.tokens for part in parts)
    prompt = max(0.0, added / tokens)
    costs = steps * (intercept / sequences * shares + slope * contexts) + prompt * computed
    spread = float(costs.std() / costs.mean()) if np.ptp(costs) else 0.0  # not of rounding
    # shares that differ say as much as fewer equal ones (Kish, 1965)
    error = spread / math.sqrt(len(costs) if shares_of is None else 1 / (shares_of @ shares_of))
    return FullBatch(slots, costs, error, token / each, prompt, shape.estimated)


def _mean(values: Lengths | Seconds, shares: Seconds | None) -> float:
    """The mean over the requests of some traffic, each with its share in it."""
    return float(values.mean() if shares is None else values @ shares)


def _sum(values: Lengths | Seconds, shares: Seconds | None) -> float:
    """The sum over as many requests of some traffic as there are ``values``."""
    return float(values.sum() if shares is None else values @ shares * len(values))


def _slots(
    pool: PreparedPool, prompts: Lengths, outputs: Lengths, shares: Seconds | None
) -> tuple[float, Seconds]:
    """Requests that run at once when only slots and memory limit them, and the share in
    the batch that each has while it is there: 1, or in proportion to the memory that it holds.

    The requests found in a batch are mostly the long ones: the mean of what is held is over
    iterations.
    """
    memory, most = pool.capacity, float(pool.limits.max_num_seqs)
    tokens = pool.kv_tokens
    if ALLOCATORS[pool.settings.kv_cache.allocator].reserves_longest:
        return min(most, float(tokens // pool.limits.max_model_len)), np.ones(len(prompts))
    held = prompts + (outputs + memory.block_size) / 2 - 1  # half of the last block is empty
    if memory.hybrid:
        held = memory.group_tokens(held)
    mean = _sum(outputs * held, shares) / _sum(outputs, shares)
    # half of what the head of the queue needs is free, on average, and of no use to it
    fitting = max(1.0, (tokens / mean - 0.5) * (1 - PREEMPTION))
    return (most, np.ones(len(prompts))) if most <= fitting else (fitting, held / mean)


def _entering(
    computed: Lengths, found: Lengths, rate: float, budget: int, shares: Seconds | None
) -> Iterator[list[Part]]:
    """The prompts of ``ITERATIONS`` iterations that have any, drawn from those there are: what is
    ``computed`` of each, on top of what is ``found``.

    Requests finish independently of each other, so the number that enters is Poisson, ``rate`` on
    average. What exceeds the ``budget`` of tokens makes an iteration of its own.
    """
    random = stream(0, "full batch")
    count = min(ITERATIONS, max(4, int(8 * ITERATIONS / rate)))  # less where many enter at once
    # Poisson, but not 0: when the first one enters within the iteration, and how many after it
    first = -np.log1p(random.random(count) * math.expm1(-rate)) / rate
    counts = (1 + random.poisson(rate * (1 - first))).tolist()
    if shares is None:
        drawn = random.integers(0, len(computed), sum(counts))
    else:
        drawn = random.choice(len(computed), sum(counts), p=shares)
    coming = zip(computed[drawn].tolist(), found[drawn].tolist(), strict=True)
    for entering in counts:
        parts: list[Part] = []
        tokens = 0
        for length, cached in islice(coming, entering):
            if parts and tokens + length > budget:
                yield parts
                parts, tokens = [], 0
            parts.append(Part(length, cached))
            tokens += length
        yield parts


# -- batches that start and end as a whole ---------------------------------------------------------


def _whole(
    pool: PreparedPool,
    shape: BatchShape,
    prompts: Lengths,
    outputs: Lengths,
    shares: Seconds | None,
) -> FullBatch:
    """Requests in the order in which they came, a batch of them at a time; of those without a share
    none."""
    count = len(prompts)
    if shares is not None:
        prompts, outputs = prompts[shares > 0], outputs[shares > 0]
    size = min(pool.limits.max_num_seqs, len(prompts))
    many = min(max(4, SLOTS // size), len(prompts) // size)
    costs, sizes = [], []
    for start in np.linspace(0, len(prompts) - size, many).astype(int).tolist():
        part = slice(start, start + size)
        seconds, members = _batch(pool, shape, prompts[part], outputs[part])
        costs.append(seconds / members)
        sizes.append(members)
    slots = float(np.mean(sizes))
    request = float(np.average(costs, weights=sizes))
    error = float(np.std(costs)) / request / math.sqrt(len(costs))
    return FullBatch(slots, np.full(count, request), error, 0.0, 0.0, shape.estimated)


def _batch(
    pool: PreparedPool, shape: BatchShape, prompts: Lengths, outputs: Lengths
) -> tuple[float, int]:
    """Seconds that one batch takes, and how many of these requests memory lets into it."""
    cost = pool.cost
    tokens = pool.kv_tokens
    memory, lengths = pool.capacity, (prompts + outputs).astype(np.float64)
    if shape.padded:
        lengths = np.maximum.accumulate(prompts) + np.maximum.accumulate(outputs) * 1.0
    lengths = memory.group_tokens(lengths)
    if ALLOCATORS[pool.settings.kv_cache.allocator].reserves_longest:
        taken = pool.limits.max_model_len * np.arange(1.0, len(prompts) + 1)
    elif shape.padded:
        taken = lengths * np.arange(1, len(lengths) + 1)
    else:
        taken = np.cumsum(lengths)
    members = max(1, int((taken <= tokens).sum()))
    prompts, outputs = prompts[:members], outputs[:members]
    if shape.padded:
        prompts, outputs = np.full(members, prompts.max()), np.full(members, outputs.max())
    seconds = cost.seconds(Batch(0, 0, [Part(length, 0) for length in prompts.tolist()], members))
    order = np.argsort(outputs)
    held = np.cumsum(prompts[order][::-1])[::-1].tolist()  # prompts of those still there
    done = 1
    for index, output in enumerate(outputs[order].tolist()):
        steps, left = output - done, members - index
        if steps:
            context = held[index] + left * (done + steps / 2)
            _, intercept, slope = cost.line(left, int(context))
            seconds += steps * (intercept + slope * context)
            done = output
    return seconds, members
