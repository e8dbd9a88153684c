"""Batches in flight in the stages of a pipeline, by hand."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from sim.growth.leaps import COMPUTING, WAITED
from sim.iteration import Batch, Ints, Part, Passage, Timer
from sim.memory import PagedAllocator
from sim.schedulers import Limits, ReplicaTraits, Scheduler, make_scheduler
from tests.harness import Arriving, LoggedPipeline, play


class Stages(Timer):
    """Each stage takes a fixed time, and more for each token of a prompt; so does a message."""

    def __init__(
        self,
        stages: Sequence[float],
        *,
        token: float = 0.0,
        message: float = 0.0,
        host: float = 0.0,
        pace: float = 0.0,
    ) -> None:
        self.stages, self.token = stages, token
        self.message, self.host, self.pace = message, host, pace

    def line(self, sequences: int, context: int) -> tuple[float, float, float]:
        raise NotImplementedError

    def iteration(
        self, sequences: int, context: int, parts: Sequence[Part], admitted: int, seen: Ints = ()
    ) -> tuple[float, float, float]:
        raise NotImplementedError

    def passage(self, batch: Batch) -> Passage:
        more = self.token * sum(part.tokens for part in batch.parts)
        times = tuple(seconds + more for seconds in self.stages)
        return Passage(self.host, times, (self.message,) * (len(times) - 1), self.pace)


class Run:
    """What happened: token times by request, the rows, and the sizes of the decoding batches that
    were in flight at once."""

    def __init__(
        self,
        traffic: list[Arriving],
        timer: Stages,
        *,
        budget: int = 64,
        blocks: int = 1000,
        seqs: int = 64,
    ) -> None:
        limits = Limits(max_num_seqs=seqs, max_num_batched_tokens=budget, max_model_len=4096)
        seen = self.flying = list[tuple[int, ...]]()

        def scheduler() -> Scheduler:
            kv = PagedAllocator.of(blocks, 4, 4096)
            return make_scheduler(
                "continuous", limits, kv, traits=ReplicaTraits(batches=len(timer.stages))
            )

        class Watched(LoggedPipeline):
            def _fill(self, now: float, returned: int | None) -> None:
                super()._fill(now, returned)
                own = self.scheduler
                numbers = [n for n, f in enumerate(own.flights) if f is not None and f.plan.decode]
                decoding = [[r.id for r in own.members() if own.place(r) == n] for n in numbers]
                together = [each for batch in decoding for each in batch]
                assert len(together) == len(set(together)), decoding
                seen.append(tuple(len(batch) for batch in decoding))

        played = play(traffic, scheduler, timer, leap=True, staged=Watched)
        self.tokens, self.recorder = dict(played.tokens), played.recorder
        self.rows = played.recorder.plan_rows()
        self.reserved = played.replicas[0].scheduler.kv.reserved


def test_one_request_takes_the_sum_of_the_stages_and_a_message() -> None:
    """Stages of 1 and 2 s, a message of 1/4 s between them, a host of 1/2 s before."""
    found = Run([(0.0, 8, 4)], Stages((1.0, 2.0), message=0.25, host=0.5))
    assert found.tokens == {0: [3.75, 7.5, 11.25, 15.0]}
    assert found.rows["replica"].tolist() == [0, 0, 0, 0]
    assert found.rows[WAITED].tolist() == [0.0] * 4
    assert found.rows[COMPUTING].tolist() == [3.0] * 4


def test_two_requests_in_two_stages() -> None:
    """Prompts of 8 tokens, one a batch. Each stage takes 1 s and 1/8 s for each token of a prompt.

    Stage 1: A 0 to 2, B 2 to 4, A's second token 4 (A is back) to 5, B's 6 to 7.
    Stage 2: A 2 to 4, B 4 to 6, A's second token 6 (behind B) to 7, B's 7 to 8.
    """
    found = Run([(0.0, 8, 3), (0.0, 8, 3)], Stages((1.0, 1.0), token=0.125), budget=8)
    assert found.tokens == {0: [4.0, 7.0, 9.0], 1: [6.0, 8.0, 10.0]}
    assert found.rows["replica"].tolist() == [0, 1, 0, 1, 0, 1]
    assert found.rows["start"].tolist() == [0.0, 0.0, 4.0, 6.0, 7.0, 8.0]
    assert found.rows["end"].tolist() == [4.0, 6.0, 7.0, 8.0, 9.0, 10.0]
    # B waits for A's prompt on both stages, A's token for B's prompt on the second
    assert found.rows[WAITED].tolist() == [0.0, 2.0, 1.0, 0.0, 0.0, 0.0]
    assert found.rows["gap"][2:].tolist() == [3.0, 2.0, 2.0, 2.0]
    assert not len(found.recorder.gap_rows())


def test_chunks_of_one_prompt_follow_each_other() -> None:
    """Three chunks of 8 tokens: the second one enters while the first is on the second stage."""
    found = Run([(0.0, 24, 2)], Stages((1.0, 1.0)), budget=8)
    assert found.rows["start"].tolist() == [0.0, 0.0, 2.0, 4.0]
    assert found.rows["end"].tolist() == [2.0, 3.0, 4.0, 6.0]
    assert found.rows["replica"].tolist() == [0, 1, 0, 0]
    assert found.tokens == {0: [4.0, 6.0]}


def test_an_arrival_is_a_batch_of_its_own_where_a_place_is_free() -> None:
    """It is seen when the batch in flight is back, at 2 s, and goes behind it."""
    found = Run([(0.0, 8, 4), (0.5, 8, 3)], Stages((1.0, 1.0)))
    assert found.tokens == {0: [2.0, 4.0, 6.0, 8.0], 1: [5.0, 7.0, 9.0]}
    assert found.rows["replica"].tolist() == [0, 0, 1, 0, 1, 0, 1]


def test_an_arrival_joins_the_next_batch_where_all_places_are_taken() -> None:
    traffic: list[Arriving] = [(0.0, 8, 6), (0.5, 8, 6), (4.5, 8, 2)]
    found = Run(traffic, Stages((1.0, 1.0)))
    # at 5 s the second batch is back and takes the third request along
    assert found.tokens[1][:3] == [5.0, 7.0, 9.0]
    assert found.tokens[2] == [7.0, 9.0]


def test_a_host_sets_the_pace_where_it_works_ahead() -> None:
    """Stages of 1/4 s under a host that needs 1 s for each batch: two batches, a token each in
    2 s; alone, a token in 1 s."""
    timer = Stages((0.25, 0.25), pace=1.0)
    assert Run([(0.0, 8, 3)], timer).tokens == {0: [1.0, 2.0, 3.0]}
    both = Run([(0.0, 8, 4), (0.0, 8, 4)], timer, budget=8)
    assert np.diff(both.tokens[0]).tolist() == [2.0, 2.0, 2.0]


def test_a_slow_stage_serves_a_batch_at_a_time() -> None:
    """Four batches in four stages, one of which takes 3 s: a batch leaves every 3 s."""
    traffic: list[Arriving] = [(0.0, 8, 5)] * 4
    found = Run(traffic, Stages((1.0, 3.0, 1.0, 1.0)), budget=8)
    for number in range(4):
        assert np.diff(found.tokens[number]).tolist() == [12.0] * 4
    assert np.diff(found.rows["end"]).tolist() == [3.0] * 19


@pytest.mark.parametrize("stages", [2, 3, 4])
def test_many_sequences_get_as_many_times_a_batch(stages: int) -> None:
    """Alike and with a batch in flight for each, the stages are always busy."""
    traffic: list[Arriving] = [(0.0, 8, 40)] * (4 * stages)
    found = Run(traffic, Stages((1.0,) * stages), budget=32)
    assert max(found.flying) == (4,) * stages
    busy = found.rows[COMPUTING].sum() / (stages * found.rows["end"].max())
    assert busy > 0.9


def test_requests_that_came_together_stay_together() -> None:
    """Nothing divides them: one batch of both, and a stage is idle at any time."""
    found = Run([(0.0, 8, 4), (0.0, 8, 4)], Stages((1.0, 1.0)))
    assert set(found.flying) <= {(2,), (), (0,)}
    assert found.tokens[0] == found.tokens[1] == [2.0, 4.0, 6.0, 8.0]


def test_a_token_on_its_way_is_delivered_to_a_request_that_is_preempted() -> None:
    """Two requests of 8 + 5 tokens over 4 blocks of 4: each holds two, so the first token that A
    decodes needs a third and preempts B, whose prompt is in flight on the second stage. B gets its
    token at 3 s all the same, and waits for memory until A is done."""
    found = Run([(0.0, 8, 3), (0.0, 8, 3)], Stages((1.0, 1.0)), budget=8, blocks=4)
    assert found.tokens[0] == [2.0, 4.0, 6.0]
    assert found.tokens[1][0] == 3.0
    assert len(found.tokens[1]) == 3
    absences = found.recorder.trail_rows()[1]
    assert absences["time"].tolist() == [3.0, found.tokens[1][1]]
    assert found.rows["preemptions"].tolist().count(1) == 1


def test_the_last_token_on_its_way_finishes_a_request_that_is_preempted() -> None:
    found = Run([(0.0, 8, 3), (0.0, 8, 1)], Stages((1.0, 1.0)), budget=8, blocks=4)
    assert found.tokens == {0: [2.0, 4.0, 6.0], 1: [3.0]}


@pytest.mark.parametrize("seed", range(12))
def test_every_token_is_delivered_and_every_block_returned(seed: int) -> None:
    """Random traffic over scarce memory; blocks are counted whenever something is scheduled."""
    draw = random.Random(seed)
    time, traffic = 0.0, list[Arriving]()
    for _ in range(40):
        time += draw.choice([0.0, 0.25, 0.5, 3.0])
        traffic.append((time, draw.randint(1, 60), draw.randint(1, 30)))
    stages = draw.randint(2, 4)
    timer = Stages(
        [draw.choice([0.5, 0.75, 1.0]) for _ in range(stages)],
        token=draw.choice([0.0, 0.125]),
        message=draw.choice([0.0, 0.25]),
        host=draw.choice([0.0, 0.25]),
    )
    found = Run(traffic, timer, budget=draw.choice([16, 32]), blocks=40, seqs=12)
    for number, request in enumerate(traffic):
        assert len(found.tokens[number]) == request[2]
        assert found.tokens[number] == sorted(found.tokens[number])
    assert found.reserved == 0
    rows = found.rows
    assert (rows["end"] - rows["start"] >= rows[WAITED] + rows[COMPUTING] - 1e-9).all()
    for place in range(stages):  # a place in flight holds one batch at a time
        own = rows[rows["replica"] == place]
        assert (own["start"][1:] >= own["end"][:-1]).all()
    gaps = sum(len(times) - 1 for times in found.tokens.values())
    long = found.recorder.gap_rows()["count"].sum()
    assert rows["decode"].sum() - rows["stalled"].sum() + long == gaps
