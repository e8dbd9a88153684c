"""Data ranks in lock-step, by hand, and with leaps as without."""

from __future__ import annotations

import random

import numpy as np
import pytest

import sim
from sim.errors import UsageError
from sim.iteration import PassConditions
from sim.loop.lockstep import longest
from sim.memory import PagedAllocator
from sim.schedulers import Limits, Scheduler, make_scheduler
from tests.feature_pairs import BASE, FEATURES
from tests.golden_scenarios import changed
from tests.harness import Arriving, LineTimer, Played, play
from tests.places import MODELS

CADENCE = FEATURES["cadence"]


class Meeting(LineTimer):
    """A token of another rank costs an eighth of a second."""

    others = 0

    def under(self, conditions: PassConditions) -> Meeting:
        found = Meeting(self.fixed, self.sequence, self.context, self.token, self.bend)
        found.others = conditions.others or 0
        return found

    def line(self, sequences: int, context: int) -> tuple[float, float, float]:
        limit, intercept, slope = super().line(sequences, context)
        return limit, intercept + self.others / 8, slope


def scheduler(blocks: int = 100, seqs: int = 8, interval: int = 1) -> Scheduler:
    limits = Limits(seqs, 64, 256, prefill_schedule_interval=interval)
    return make_scheduler("continuous", limits, PagedAllocator.of(blocks, 4, 256))


def played(
    traffic: list[Arriving], timer: LineTimer, *, leap: bool = True, ranks: int = 2, **more: int
) -> Played:
    return play(traffic, lambda: scheduler(**more), timer, leap=leap, ranks=ranks)


@pytest.mark.parametrize("leap", [True, False])
def test_every_rank_takes_as_long_as_the_longest(leap: bool) -> None:
    """Prompts of 4 and 8 tokens at 1/4 s each meet on two ranks: 1 + 1 + 8/8 = 3 s and
    1 + 2 + 4/8 = 3.5 s, so both take 3.5 s. Then both decode, 1 + 1/8 s, and the second has its two
    tokens. Its rank runs a dummy token, so that the first one's third still takes 1 + 1/8 s."""
    found = played([(0.0, 4, 3), (0.0, 8, 2)], Meeting(1, 0, 0, 0.25), leap=leap)
    assert found.tokens == {0: [3.5, 4.625, 5.75], 1: [3.5, 4.625]}
    rows = found.recorder.plan_rows()
    assert rows["replica"].tolist() == [0, 1, 0, 1, 0]
    assert rows["others"].tolist() == [8, 4, 1, 1, 1]
    assert found.log == [(4.625, "finish", 1), (5.75, "finish", 0)]


@pytest.mark.parametrize("leap", [True, False])
def test_a_prompt_on_one_rank_stalls_the_others(leap: bool) -> None:
    """The second request arrives while the first decodes, 1 + 1/8 s a token; its prompt of 16 waits
    for the next boundary and takes 1 + 4 + 1/8 s, as does the token decoded beside it."""
    found = played([(0.0, 4, 6), (3.0, 16, 1)], Meeting(1, 0, 0, 0.25), leap=leap)
    first = 1 + 1 + 0.125
    second = first + 1.125  # 3.25, the boundary after the arrival
    assert found.tokens[1] == [second + 5.125]
    assert found.tokens[0] == [first, second] + [second + 5.125 + 1.125 * i for i in range(4)]


@pytest.mark.parametrize("leap", [True, False])
def test_a_prompt_waits_for_the_cadence(leap: bool) -> None:
    """Prompts run in every fourth iteration. The first is the first; the prompt of the second
    request, which comes in the middle of the third on a rank that decodes, waits for the fifth."""
    traffic = [(0.0, 4, 8), (0.0, 4, 8), (3.5, 16, 1)]
    found = played(traffic, LineTimer(1, 0, 0, 0.25), leap=leap, interval=4)
    long = 1 + 4.0
    start = 2 + 3 * 1.0  # an iteration with prompts, three without
    assert found.tokens[2] == [start + long]
    assert found.tokens[0] == [2, 3, 4, 5, start + long, 11, 12, 13]
    now = played(traffic, LineTimer(1, 0, 0, 0.25), leap=leap)
    assert now.tokens[2] == [4 + long]


@pytest.mark.parametrize("leap", [True, False])
def test_ranks_that_do_not_decode_or_cannot_keep_up_do_not_wait(leap: bool) -> None:
    """A rank without requests begins its prompt at once. One that left a request waiting when
    prompts could run, for want of a slot, takes it as soon as a slot is free."""
    idle = [(0.0, 4, 9), (2.5, 4, 2)]
    found = played(idle, LineTimer(1, 0, 0, 0.25), leap=leap, interval=4)
    assert found.tokens[1] == [3 + 2, 3 + 2 + 1]
    full = [(0.0, 4, 9), (0.0, 4, 9), (0.0, 4, 2), (0.0, 4, 2), (0.0, 4, 2)]
    behind = played(full, LineTimer(1, 0, 0, 0.25), leap=leap, interval=4, seqs=2)
    assert behind.tokens[2] == [3.0, 4.0]
    assert behind.tokens[4] == [6.0, 7.0]


def test_the_count_begins_anew_when_all_ranks_were_idle() -> None:
    """Two iterations, a pause, and then the first of a new count."""
    lone = [(0.0, 4, 2), (100.0, 4, 3), (100.0, 4, 3), (102.5, 8, 1)]
    found = played(lone, LineTimer(1, 0, 0, 0.25), interval=3)
    assert found.tokens[1] == [102.0, 103.0, 104.0]
    assert found.tokens[3] == [104.0 + 3]


def test_many_iterations_of_all_ranks_are_one_leap() -> None:
    alike = [(0.0, 4, 40), (0.0, 4, 40), (0.0, 4, 20)]
    leaps, steps = (played(alike, Meeting(1, 0, 2**-9, 0.25), leap=leap) for leap in (True, False))
    assert leaps.tokens == steps.tokens
    rows = leaps.recorder.plan_rows()
    assert rows["iterations"].max() > 10
    assert steps.recorder.plan_rows()["iterations"].max() == 1
    assert leaps.events < steps.events / 4


@pytest.mark.parametrize("seed", range(40))
def test_leaps_change_nothing(seed: int) -> None:
    """Ranks that overtake each other as contexts grow, lines that bend, memory that is short."""
    draw = random.Random(seed)
    exact = seed % 2
    traffic: list[Arriving] = []
    now = 0.0
    for _ in range(24):
        now += draw.choice([0.0, 0.5, 1.0, 4.0]) if exact else draw.expovariate(0.5)
        traffic.append((now, draw.randint(1, 60), draw.randint(1, 50)))
    slope = 2**-8 if exact else 0.003
    timer = Meeting(0.5, 0.25, slope, 0.125, bend=draw.choice([None, 40, 90]))
    knobs = {"ranks": draw.choice([2, 3, 5]), "blocks": draw.choice([30, 100]), "seqs": 3}
    knobs["interval"] = draw.choice([1, 2, 5])
    leaps, steps = (played(traffic, timer, leap=leap, **knobs) for leap in (True, False))
    assert leaps.tokens == steps.tokens
    assert leaps.log == steps.log
    assert leaps.recorder.request_rows().tobytes() == steps.recorder.request_rows().tobytes()
    assert sum(map(len, leaps.tokens.values())) == sum(row[2] for row in traffic)
    check_lengths(steps, timer)
    for rank in leaps.replicas:
        assert rank.outstanding == rank.scheduler.kv.reserved == 0


def check_lengths(steps: Played, timer: Meeting) -> None:
    """Iterations in which all ranks decode last as long as the slowest of them would alone."""
    rows = steps.recorder.plan_rows()
    overtaken = set()
    for start in np.unique(rows["start"]):
        together = rows[rows["start"] == start]
        if together["prefill_seqs"].any():
            continue
        alone = []
        for row in together:
            sequences, context = int(row["computed"]), int(row["context"])
            _, intercept, slope = timer.under(PassConditions(int(row["others"]))).line(
                sequences, context
            )
            alone.append(intercept + slope * context)
        assert together["end"][0] - start == pytest.approx(max(alone))
        overtaken.add(int(together["replica"][np.argmax(alone)]))
    assert len(overtaken) > 1


def test_ranks_that_are_alike_take_turns() -> None:
    """Each of nine lone requests is done before the next arrives."""
    lone: list[Arriving] = [(100.0 * i, 4, 2) for i in range(9)]
    found = played(lone, Meeting(1, 0, 0, 0.25), ranks=3)
    assert found.recorder.request_rows()["replica"].tolist() == [0, 1, 2] * 3


def test_the_longest_line_ends_where_another_overtakes_it() -> None:
    assert longest([(50, 4.0, 0.5), (20, 4.0, 0.25)]) == (20, 4.0, 0.5)
    assert longest([(50, 4.0, 0.0), (50, 3.0, 0.25)]) == (5, 4.0, 0.0)  # alike in the fifth
    assert longest([(50, 3.0, 0.25), (50, 4.0, 0.0), (50, 3.9, 0.1)]) == (2, 4.0, 0.0)


SCENARIO = {
    "model": str(MODELS / "tiny-experts"),
    "fleet": {"gpu": "h100-sxm", "data_parallel": 4, "expert_parallel": True},
    "engine": "ideal",
    "max_model_len": 512,
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 20},
    },
    "run": {"requests": 32, "warmup": 0},
}


def test_a_burst_is_shared_out_evenly_and_fully_accounted_for() -> None:
    """32 equal requests, 8 on each rank: all ranks are busy all the time, with equal batches, so
    that the operators explain every second, and nothing is left to the host or to waiting."""
    run = sim.simulate(SCENARIO)
    own = run.summary["infersim"]
    assert run.record.requests["replica"].tolist() == [0, 1, 2, 3] * 8
    assert (own["gpus"], own["replicas"]) == (4, 1)
    assert own["utilisation"]["busy"] == pytest.approx(1.0)
    busy = run.record.attribution.seconds
    assert busy == pytest.approx(4 * run.record.duration)
    assert run.record.attribution.by_operator["host"] == pytest.approx(0, abs=1e-6 * busy)
    assert own["batch"]["peak_decode_batch"] == 8


def test_operators_of_uneven_ranks_are_those_of_their_own_tokens() -> None:
    """Requests of unlike lengths: what operators take never exceeds what iterations took."""
    uneven = changed(
        SCENARIO, {"workload.prompt_tokens": {"kind": "uniform", "low": 1, "high": 300}}
    )
    record = sim.simulate(uneven).record
    seconds = sum(record.attribution.by_operator.values())
    assert seconds == pytest.approx(float(record.durations.sum()), rel=1e-9)
    assert record.attribution.by_operator["host"] > 0  # ranks waited for each other


@pytest.mark.parametrize("model", ["tiny-windows", "tiny-chunks"])
@pytest.mark.parametrize("fleet", [{}, {"tensor_parallel": 2, "expert_parallel": True}])
def test_windows_on_ranks(model: str, fleet: dict[str, object]) -> None:
    changes = {
        "model": str(MODELS / model),
        "fleet": {"gpu": "h100-sxm", "data_parallel": 2, **fleet},
        "workload.arrivals": {"kind": "poisson", "rate": 400},
        "workload.output_tokens": {"kind": "uniform", "low": 1, "high": 90},
        "kv_cache.num_gpu_blocks": 60,
    }
    scenario = changed(SCENARIO, changes)
    leaps, steps = (sim.simulate(scenario, leap=leap) for leap in (True, False))
    assert leaps.record.requests.tobytes() == steps.record.requests.tobytes()
    assert leaps.record.plans["iterations"].max() > 1
    host = leaps.record.attribution.by_operator["host"]
    assert 0 <= host < leaps.record.attribution.seconds / 2


def test_a_dense_model_has_no_ranks() -> None:
    with pytest.raises(UsageError, match=r"llama-3.2-1b has no experts that 4 ranks could share"):
        sim.simulate(changed(SCENARIO, {"model": "llama-3.2-1b", "fleet.expert_parallel": False}))


@pytest.mark.parametrize(("gpus", "measured"), [(2, 16_818 / 2), (8, 31_880 / 8)])
def test_experts_over_pcie_cost_what_was_published(gpus: int, measured: float) -> None:
    """Qwen3-30B-A3B in FP4 on RTX PRO 6000, prompts and answers of 1,000 tokens, all at once: 9,938
    output tokens/s on one GPU, and so many a GPU where data ranks share the experts over PCIe
    (TensorRT-LLM's performance overview, 03e27c7). With NCCL's timings and tokens that are gathered
    in FP4, what is lost on two and on eight is predicted, all but a tenth of the rest."""

    def speed(count: int) -> float:
        spread = {"data_parallel": count, "expert_parallel": True} if count > 1 else {}
        precision = {"weights": "nvfp4", "activations": "nvfp4", "kv_cache": "fp8"}
        changes = {
            "model": "qwen3-30b-a3b",
            "engine": "tensorrt-llm",
            "fleet": {"gpu": "rtx-pro-6000", **spread},
            "precision": precision,
            "max_model_len": 2048,
            "scheduler.max_num_seqs": 1024,
            "workload.prompt_tokens.value": 1000,
            "workload.output_tokens.value": 1000,
            "run.requests": 400 * count,
        }
        return float(sim.simulate(changed(SCENARIO, changes)).summary["output_throughput"]) / count

    assert 1 < speed(gpus) / speed(1) * 9938 / measured < 1.12


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fleet.data_parallel": 1}, "only data ranks keep a cadence, and data_parallel is 1"),
        ({"scheduler.batching": "static"}, "static batching with the order fcfs"),
        ({"scheduler.order": "edf", "slo.ttft": "1s"}, "does not preempt by rank"),
    ],
)
def test_a_cadence_that_nothing_keeps_is_refused(changes: dict[str, object], words: str) -> None:
    scenario = sim.load_scenario(changed(BASE, CADENCE | changes))
    with pytest.raises(UsageError, match=words):
        sim.simulate(scenario)


@pytest.mark.parametrize("changes", [{}, {"scheduler.async_scheduling": False}])
def test_an_engine_without_data_ranks_keeps_an_interval_since_0_33(
    changes: dict[str, object],
) -> None:
    own = {"engine": "vllm@0.33", "fleet.gpu": "h100-sxm", **changes}
    kept = own | {"scheduler.prefill_schedule_interval": 4}
    leaping = sim.simulate(changed(BASE, kept))
    single = sim.simulate(changed(BASE, kept | {"run.leap": False}))
    assert leaping.requests.equals(single.requests)
    assert not leaping.requests.equals(sim.simulate(changed(BASE, own)).requests)
    with pytest.raises(UsageError, match=r"since release 0\.33, and this is vllm@0\.32"):
        sim.simulate(changed(BASE, kept | {"engine": "vllm@0.32"}))
