"""Computes what a replica serves with full batches: the capacity that traffic is compared with.

Found by timing iterations with the run's own cost model, not by simulating: the iterations that a
full batch of requests of these lengths would need, over and over. Times in seconds, lengths in
tokens, contexts in KV tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sim.plans import Chunk
from sim.request import Request
from sim.rng import stream

if TYPE_CHECKING:
    from sim.capacity import Capacity
    from sim.cost import CostModel
    from sim.scenario import Scenario
    from sim.schedulers import Limits

Lengths = NDArray[np.int64]
Seconds = NDArray[np.float64]

ITERATIONS = 64
"""Iterations with prompts that are timed: their mean is within 1 % of that of thousands."""

SLOTS = 16_384
"""Slots of whole batches that are timed, in a sixth of the time that simulating them takes. Their
longest members make batches very different: the mean of 2,048 of them is good to 1 %."""

PREEMPTION = 0.05
"""Share of a batch that is lost where memory fills up with growing sequences, so that some of them
are preempted and prefilled again: 0 to 13 % of the speed of bursts, the more the larger the batch.
What a run shows of it is accounted for separately (``stability``)."""


class Replica(Protocol):
    """What must be known of a replica to fill its batch; a run and a prepared scenario have it."""

    @property
    def scenario(self) -> Scenario:
        """Its scheduler and its allocator."""

    @property
    def cost(self) -> CostModel:
        """The cost model of its iterations."""

    @property
    def capacity(self) -> Capacity:
        """Its KV memory."""

    @property
    def limits(self) -> Limits:
        """Its slots and its tokens per iteration."""


class FullBatch(NamedTuple):
    """A full batch of one replica, as requests of given lengths make it.

    ``seats`` of them (slots) are in it. Its time is divided among them: ``costs`` are the seconds
    of it that each takes, ``error`` is the relative standard error of their mean where they are a
    sample. ``token`` and ``prompt`` are what a token costs on average, decoded or prefilled; both 0
    for batches that are served as a whole.
    """

    seats: float
    costs: Seconds
    error: float
    token: float
    prompt: float


def full_batch(run: Replica, prompts: Lengths, outputs: Lengths) -> FullBatch:
    """The full batch of a replica, of ``run`` say, for requests of these lengths."""
    if run.scenario.scheduler.batching in ("static", "request"):
        return _whole(run, prompts, outputs)
    return _continuous(run, prompts, outputs)


# -- batches that are made anew for every iteration ------------------------------------------------


def _continuous(run: Replica, prompts: Lengths, outputs: Lengths) -> FullBatch:
    """All slots taken: a request that finishes is replaced at once, so that requests enter and
    leave at the rate of one per ``outputs`` iterations and slot, or as the token budget admits
    them.
    """
    chunked, cost = run.scenario.scheduler.chunked_prefill, run.cost
    output, budget = float(outputs.mean()), run.limits.max_num_batched_tokens
    seats, shares = _seats(run, prompts, outputs)
    members = min(seats, output * budget / (float(prompts.mean()) + output - 1))
    members = members if chunked else seats
    steps, contexts = outputs - 1.0, prompts + outputs / 2
    decoded = max(1.0, float(steps.sum()))
    context = float((steps * contexts).sum()) / decoded
    sequences = max(1, round(members))
    _, intercept, slope = cost.decode_line(sequences, int(sequences * context))
    token = intercept / sequences + slope * context
    added = tokens = 0.0
    for chunks in _entering(prompts, members / output, budget):
        decoding = max(0, round(members - len(chunks))) if chunked else 0
        seconds = cost.iteration(decoding, int(decoding * context), chunks, len(chunks))[0]
        added += seconds - decoding * token
        tokens += sum(chunk.tokens for chunk in chunks)
    prompt = max(0.0, added / tokens)
    costs = steps * (intercept / sequences * shares + slope * contexts) + prompt * prompts
    spread = float(costs.std() / costs.mean()) if np.ptp(costs) else 0.0  # not of rounding
    return FullBatch(seats, costs, spread / math.sqrt(len(costs)), token, prompt)


def _seats(run: Replica, prompts: Lengths, outputs: Lengths) -> tuple[float, Seconds]:
    """Requests that run at once when only slots and memory limit them, and the share in
    the batch that each has while it is there: 1, or in proportion to the memory that it holds.

    The requests found in a batch are mostly the long ones: the mean of what is held is over
    iterations.
    """
    memory, most = run.capacity, float(run.limits.max_num_seqs)
    tokens = memory.usable_blocks * memory.block_size
    if run.scenario.kv_cache.allocator == "contiguous":
        return min(most, float(tokens // run.limits.max_model_len)), np.ones(len(prompts))
    held = prompts + (outputs + memory.block_size) / 2 - 1  # half of the last block is empty
    mean = float((outputs * held).sum()) / float(outputs.sum())
    # half of what the head of the queue needs is free, on average, and of no use to it
    fitting = max(1.0, (tokens / mean - 0.5) * (1 - PREEMPTION))
    return (most, np.ones(len(prompts))) if most <= fitting else (fitting, held / mean)


def _entering(prompts: Lengths, rate: float, budget: int) -> Iterator[list[Chunk]]:
    """The prompts of ``ITERATIONS`` iterations that have any, drawn from those there are.

    Requests finish independently of each other, so the number that enters is Poisson, ``rate`` on
    average. What exceeds the ``budget`` of tokens makes an iteration of its own.
    """
    random = stream(0, "full batch")
    count = min(ITERATIONS, max(4, int(8 * ITERATIONS / rate)))  # less where many enter at once
    # Poisson, but not 0: when the first one enters within the iteration, and how many after it
    first = -np.log1p(random.random(count) * math.expm1(-rate)) / rate
    for entering in (1 + random.poisson(rate * (1 - first))).tolist():
        chunks: list[Chunk] = []
        tokens = 0
        for length in random.choice(prompts, entering).tolist():
            if chunks and tokens + length > budget:
                yield chunks
                chunks, tokens = [], 0
            chunks.append(_prompt(length))
            tokens += length
        yield chunks


def _prompt(length: int) -> Chunk:
    """The whole prompt of a made-up request."""
    return Chunk(Request(0, 0.0, length, 1), length, 0)


# -- batches that start and end as a whole ---------------------------------------------------------


def _whole(run: Replica, prompts: Lengths, outputs: Lengths) -> FullBatch:
    """Requests in the order in which they came, a batch of them at a time."""
    size = min(run.limits.max_num_seqs, len(prompts))
    many = min(max(4, SLOTS // size), len(prompts) // size)
    costs, sizes = [], []
    for start in np.linspace(0, len(prompts) - size, many).astype(int).tolist():
        part = slice(start, start + size)
        seconds, members = _batch(run, prompts[part], outputs[part])
        costs.append(seconds / members)
        sizes.append(members)
    seats = float(np.mean(sizes))
    request = float(np.average(costs, weights=sizes))
    error = float(np.std(costs)) / request / math.sqrt(len(costs))
    return FullBatch(seats, np.full(len(prompts), request), error, 0.0, 0.0)


def _batch(run: Replica, prompts: Lengths, outputs: Lengths) -> tuple[float, int]:
    """Seconds that one batch takes, and how many of these requests memory lets into it."""
    static, cost = run.scenario.scheduler.batching == "static", run.cost
    tokens = run.capacity.usable_blocks * run.capacity.block_size
    if run.scenario.kv_cache.allocator == "contiguous":
        taken = run.limits.max_model_len * np.arange(1, len(prompts) + 1)
    elif static:
        slot = np.maximum.accumulate(prompts) + np.maximum.accumulate(outputs)
        taken = slot * np.arange(1, len(slot) + 1)
    else:
        taken = np.cumsum(prompts + outputs)
    members = max(1, int((taken <= tokens).sum()))
    prompts, outputs = prompts[:members], outputs[:members]
    if static:
        prompts, outputs = np.full(members, prompts.max()), np.full(members, outputs.max())
    chunks = [_prompt(length) for length in prompts.tolist()]
    seconds = cost.iteration(0, 0, chunks, members)[0]
    order = np.argsort(outputs)
    held = np.cumsum(prompts[order][::-1])[::-1].tolist()  # prompts of those still there
    done = 1
    for index, output in enumerate(outputs[order].tolist()):
        steps, left = output - done, members - index
        if steps:
            context = held[index] + left * (done + steps / 2)
            _, intercept, slope = cost.decode_line(left, int(context))
            seconds += steps * (intercept + slope * context)
            done = output
    return seconds, members
