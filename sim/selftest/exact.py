"""Checks what must hold to the last digits: conservation laws of any run, bursts in closed form.

Times in seconds, contexts in KV tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.iteration import Batch, Timer
from sim.schedulers import POLICIES, Scheduler
from sim.selftest.check import EXACT, Check, equal
from sim.selftest.loop import LineTimer, Played, play, scheduler
from sim.workload import OpenTraffic
from sim.workload.traffic import TrafficChunk

TIMES = {"fixed": 2.0**-8, "sequence": 2.0**-14, "context": 2.0**-22, "prompt": 2.0**-16}
"""An iteration time in which everything counts (s)."""


def littles_law(name: str, played: Played) -> Check:
    """L = lambda W over a run that starts and ends empty: the replica's own count, integrated over
    time, against the times in the records."""
    rows = played.requests
    span = float(rows["finish"].max())
    rate, sojourn = len(rows) / span, float(np.mean(rows["finish"] - rows["arrival"]))
    return equal(f"{name}: L = lambda W", rate * sojourn, played.in_system / span)


def idle_only_when_empty(name: str, played: Played) -> Check:
    """Under continuous batching iterations run exactly while requests are present: busy seconds
    against those covered by the stays of the requests."""
    rows = played.requests
    order = np.argsort(rows["arrival"], kind="stable")
    arrivals, finishes = rows["arrival"][order], np.maximum.accumulate(rows["finish"][order])
    covered = finishes[-1] - arrivals[0]
    covered -= float(np.sum(np.maximum(arrivals[1:] - finishes[:-1], 0.0)))
    return equal(f"{name}: idle only when empty, s", float(covered), played.busy)


def conservation(name: str, played: Played, token: float) -> Check:
    """Busy time is the work brought in: ``token`` seconds for each output token, no more, no
    less."""
    work = float(played.requests["output_tokens"].sum()) * token
    return equal(f"{name}: busy = work brought, s", work, played.busy)


def departures(name: str, played: Played, token: float) -> Check:
    """First come, first served, one at a time: each leaves its service after the later of its own
    arrival and the departure before it (Lindley). The largest error over all requests, in s."""
    rows = played.requests
    left = worst = 0.0
    for arrival, tokens, finish in zip(
        rows["arrival"].tolist(),
        rows["output_tokens"].tolist(),
        rows["finish"].tolist(),
        strict=True,
    ):
        left = max(left, arrival) + tokens * token
        worst = max(worst, abs(finish - left))
    return Check(f"{name}: worst departure, s", 0.0, worst, EXACT * left)


def roofline_check(
    *, slots: int = 64, prompt: int = 512, output: int = 257, timer: Timer | None = None
) -> Check:
    """Tokens per second of ``slots`` requests that decode together: the ceiling of the
    roofline.

    Llama 3.1 8B on an H100 under an engine without overhead. Theory adds up the operators of every
    pass, each the longer of its arithmetic and its memory traffic; the run times whole leaps by a
    line in the context.
    """
    deployment = Deployment(
        catalog.model("llama-3.1-8b"), catalog.gpu("h100-sxm"), catalog.engine("ideal")
    )
    cost = CostModel(deployment)
    traffic = burst([prompt] * slots, [output] * slots)
    rows = play(traffic, scheduler(slots=slots), timer or cost).requests
    passes = [
        sum(float(o.seconds) for o in cost.pass_operators(Batch(slots, slots * (prompt + step))))
        for step in range(output - 1)
    ]
    tokens = slots * (output - 1)
    decoding = float(rows["finish"].max() - rows["first_token"].min())
    return equal("roofline: decode, 64 slots, tokens/s", tokens / sum(passes), tokens / decoding)


def burst(prompts: list[int], outputs: list[int]) -> OpenTraffic:
    """Requests of these lengths (tokens), all at 0."""
    return OpenTraffic(len(prompts), iter([TrafficChunk([0.0] * len(prompts), prompts, outputs)]))


def burst_checks() -> Iterator[Check]:
    """Every batching policy on equal requests and on unequal ones, all there at 0."""
    for batching in POLICIES:
        yield burst_check(batching, [100] * 8, [50] * 8, name=f"{batching}, 8 equal: makespan, s")
    for batching in POLICIES:
        name = f"{batching}, 8 unequal: makespan, s"
        yield burst_check(batching, list(range(30, 110, 10)), list(range(5, 85, 10)), name=name)


def burst_check(
    batching: str,
    prompts: list[int],
    outputs: list[int],
    *,
    name: str,
    timer: Timer | None = None,
    policy: Scheduler | None = None,
) -> Check:
    """How long a burst takes that fills the slots: one prefill, and a decode for each further token
    of the longest output.

    Static pads: every slot has the longest prompt and decodes to the longest output, used or not.
    The others pay for those that still want a token, and so take the same time on a burst.
    """
    played = play(
        burst(prompts, outputs),
        policy or scheduler(batching, slots=len(prompts)),
        timer or LineTimer(**TIMES),
    )
    if POLICIES[batching].shape.padded:
        prompts = [max(prompts)] * len(prompts)
        outputs = [max(outputs)] * len(outputs)
    seconds = TIMES["fixed"] + len(prompts) * TIMES["sequence"] + sum(prompts) * TIMES["prompt"]
    for step in range(max(outputs) - 1):
        held = [p + step for p, o in zip(prompts, outputs, strict=True) if o > step + 1]
        seconds += TIMES["fixed"] + len(held) * TIMES["sequence"] + sum(held) * TIMES["context"]
    return equal(name, seconds, float(played.requests["finish"].max()))
