"""Traffic: the laws of arrival and length, their streams, and what a scenario makes of them."""

from __future__ import annotations

import math
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from sim.errors import ScenarioError, TraceError, UsageError
from sim.rng import stream
from sim.scenario import Scenario, load_scenario
from sim.workload import (
    ClosedTraffic,
    OpenTraffic,
    build,
    generate,
    generate_lengths,
    replay,
    resample_lengths,
)
from sim.workload.arrivals import ArrivalLaw, Burst, Constant, Gamma, Poisson
from sim.workload.lengths import (
    Empirical,
    Fixed,
    Joint,
    LengthLaw,
    Lognormal,
    Mixture,
    Normal,
    Uniform,
    lognormal_sigma,
)
from sim.workload.traces import Trace, TracePlay, read_trace
from sim.workload.traffic import CHUNK, MAX_TOKENS
from sim.workload.varying import Diurnal, Ramp
from tests.counted_work import calls
from tests.places import DATA, ROOT
from tests.planning_fixtures import small

ONE = Fixed(1)
N = 200_000

Columns = tuple[list[float], list[int], list[int]]


def columns(traffic: OpenTraffic) -> Columns:
    arrivals: list[float] = []
    prompts: list[int] = []
    outputs: list[int] = []
    for chunk in traffic.chunks():
        assert 0 < len(chunk.arrivals) <= CHUNK
        assert len(chunk.arrivals) == len(chunk.prompt_tokens) == len(chunk.output_tokens)
        arrivals += chunk.arrivals
        prompts += chunk.prompt_tokens
        outputs += chunk.output_tokens
    assert len(arrivals) == traffic.total
    return arrivals, prompts, outputs


def gaps(law: ArrivalLaw, total: int = N) -> NDArray[np.float64]:
    return np.diff(columns(generate(total, 7, law, ONE, ONE))[0], prepend=0.0)


def draws(law: LengthLaw, total: int = N) -> NDArray[np.int64]:
    return law.draw(stream(7, "lengths/prompt"), total)


# Streams


def test_streams_have_the_values_they_always_had() -> None:
    names = ["arrivals", "lengths/prompt", "lengths/output", "routing", "acceptance"]
    assert [int(stream(42, name).integers(2**63)) for name in names] == [
        365616030260297531,
        384737489583945323,
        5338534629290717823,
        8478557371508080318,
        4622758601964929551,
    ]
    assert int(stream(0, "arrivals").integers(2**63)) == 8972586212306546332
    assert int(stream(2**63 - 1, "arrivals").integers(2**63)) == 4793156247480282169


def test_streams_of_different_names_and_seeds_are_unrelated() -> None:
    drawn = [
        stream(seed, name).standard_normal(10_000)
        for seed in (0, 1)
        for name in ("arrivals", "lengths/prompt", "lengths/output")
    ]
    correlations = np.asarray(np.corrcoef(drawn))[np.triu_indices(len(drawn), 1)]
    assert np.abs(correlations).max() < 4 / math.sqrt(10_000)


def test_a_stream_is_the_same_in_another_process() -> None:
    code = "from sim.rng import stream; print(stream(5, 'routing').random())"
    root = ROOT
    printed = {
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            text=True,
            cwd=root,
            env={"PYTHONHASHSEED": hash_seed},
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert printed == {f"{stream(5, 'routing').random()}\n"}


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        stream(-1, "arrivals")


# Laws of arrival


def test_first_values_of_the_default_laws() -> None:
    lognormal = Lognormal.with_p95(800, 2400, max=6000)
    arrivals, prompts, outputs = columns(generate(4, 42, Poisson(4.0), lognormal, Uniform(10, 20)))
    assert arrivals == pytest.approx(
        [0.029966952354177005, 0.5384185392074675, 0.6564697595658053, 0.9220168358242218],
        rel=1e-12,
    )
    assert prompts == [1046, 314, 2632, 2264]
    assert outputs == [18, 16, 13, 18]


@pytest.mark.parametrize("cv", [0.25, 1.0, 3.0])
def test_gamma_gaps_have_the_mean_and_burstiness_asked_for(cv: float) -> None:
    found = gaps(Gamma(5.0, cv))
    assert found.mean() == pytest.approx(0.2, abs=4 * 0.2 * cv / math.sqrt(N))
    # The standard error of a gamma sample's cv: kurtosis 3 + 6 cv^2, skewness 2 cv.
    error = cv * math.sqrt((0.5 + 0.5 * cv**2) / N)
    assert found.std() / found.mean() == pytest.approx(cv, abs=4 * error)


def test_poisson_gaps_are_exponential_and_counts_vary_as_they_should() -> None:
    found = gaps(Poisson(5.0))
    assert found.mean() == pytest.approx(0.2, rel=4 / math.sqrt(N))
    assert found.std() / found.mean() == pytest.approx(1.0, abs=4 / math.sqrt(N))
    assert (found > 0.4).mean() == pytest.approx(math.exp(-2), rel=0.02)
    counts = np.bincount(np.cumsum(found).astype(int))[:-1]
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=4 * math.sqrt(2 / len(counts)))


def test_the_first_poisson_arrival_waits_for_its_gap() -> None:
    first = [next(generate(1, s, Poisson(2.0), ONE, ONE).chunks()).arrivals[0] for s in range(400)]
    assert np.mean(first) == pytest.approx(0.5, rel=4 / math.sqrt(400))


def test_gamma_with_cv_one_is_poisson() -> None:
    assert gaps(Gamma(3.0, 1.0), 999).tolist() == gaps(Poisson(3.0), 999).tolist()


def test_constant_arrivals_are_products_not_sums() -> None:
    arrivals, _, _ = columns(generate(N, 1, Constant(10.0), ONE, ONE))
    assert arrivals == [i / 10.0 for i in range(N)]


def test_a_burst_arrives_at_once() -> None:
    assert columns(generate(5000, 1, Burst(), ONE, ONE))[0] == [0.0] * 5000


def test_the_rate_scales_time_and_nothing_else() -> None:
    slow = columns(generate(9999, 3, Gamma(2.0, 2.0), Uniform(1, 9), ONE))
    fast = columns(generate(9999, 3, Gamma(8.0, 2.0), Uniform(1, 9), ONE))
    assert slow[0] == [4 * arrival for arrival in fast[0]]
    assert slow[1:] == fast[1:]


@pytest.mark.parametrize("cv", [1e-9, 1e9])
def test_burstiness_without_meaning_is_refused(cv: float) -> None:
    with pytest.raises(UsageError, match=r"cv from 0\.0001 to 1000, got 1e"):
        Gamma(1.0, cv)


@pytest.mark.parametrize(
    "law",
    [
        *(Poisson(1e-9), Poisson(5e-324), Gamma(1e-308, 3.0), Constant(1e-9)),
        *(Ramp(1e-9, 1e-9, 1.0), Ramp(1e-300, 5e-324, 1e-300), Ramp(1e308, 1e-308, 1e-308)),
        *(Diurnal(1e-9, 1e-9, 10.0, 0.0), Diurnal(1e-300, 1e-290, 1e9, 1e300)),
    ],
)
def test_times_beyond_all_use_are_refused(law: ArrivalLaw) -> None:
    with pytest.raises(UsageError, match=r"would arrive .* s after the start, but times end at"):
        columns(generate(100, 1, law, ONE, ONE))


# Rates that change

VARYING = [
    Ramp(1.0, 20.0, 600.0),
    Ramp(20.0, 1.0, 600.0),
    Ramp(3.0, 3.0, 50.0),
    Ramp(1e-9, 5.0, 1e4),
    Diurnal(1.0, 10.0, 3600.0, 1800.0),
    Diurnal(1e-9, 10.0, 3600.0, 0.0),
    Diurnal(2.0, 2.0, 60.0, 10.0),
    Diurnal(0.5, 8.0, 100.0, 1e6 + 25.0),
]


def times(law: ArrivalLaw, total: int = 20_000) -> NDArray[np.float64]:
    return np.array(columns(generate(total, 7, law, ONE, ONE))[0])


@pytest.mark.parametrize("law", VARYING, ids=str)
def test_a_changing_rate_is_poisson_in_the_time_of_its_own_expectation(law: Ramp | Diurnal) -> None:
    found = times(law)
    assert (np.diff(found) >= 0).all()
    steady = np.cumsum(stream(7, "arrivals").standard_exponential(len(found)))
    assert law.expected(found) == pytest.approx(steady, rel=1e-12, abs=1e-8)


def test_first_arrivals_of_changing_rates_agree_with_a_root_finder() -> None:
    assert times(Ramp(1.0, 20.0, 600.0), 4) == pytest.approx(
        [0.7317139818154483, 2.7907541100408397, 3.0301597789292187, 3.6317608074371477], rel=1e-12
    )
    assert times(Diurnal(1.0, 10.0, 3600.0, 900.0), 4) == pytest.approx(
        [0.1345672948833555, 0.5296304437831201, 0.5771329724435641, 0.6979426509680056], rel=1e-9
    )


def test_a_ramp_solved_by_hand() -> None:
    # From 2 to 10 per second in 4 s: 24 requests; 2 t + t^2 until t, and later 10 a second.
    law = Ramp(2.0, 10.0, 4.0)
    at = np.array([0.0, 1.0, 2.0, 4.0, 5.5])
    assert law.expected(at).tolist() == [0.0, 3.0, 8.0, 24.0, 39.0]
    assert law.when(np.array([0.0, 3.0, 8.0, 24.0, 39.0])).tolist() == at.tolist()


def test_a_ramp_ends_at_its_final_rate() -> None:
    found = times(Ramp(1.0, 40.0, 300.0), 60_000)
    for start, rate in ((0.0, 1.0 + 0.13 * 15), (150.0, 20.5 + 0.13 * 15), (400.0, 40.0)):
        count = ((found >= start) & (found < start + 30)).sum()
        assert count == pytest.approx(30 * rate, abs=4 * math.sqrt(30 * rate))


def test_a_ramp_that_stays_is_poisson() -> None:
    assert times(Ramp(3.0, 3.0, 100.0)) == pytest.approx(times(Poisson(3.0)), rel=1e-12)


def test_diurnal_arrivals_follow_the_cosine() -> None:
    # The middle thirds of a swing around the mean 6 with amplitude 4, peak at 30 of 120 s.
    found = times(Diurnal(2.0, 10.0, 120.0, 30.0), 72_000) % 120
    counts = np.histogram(found, 12, (0, 120))[0] / (72_000 / (6 * 120)) / 10
    middle = np.arange(5, 120, 10)
    mean_in_bin = np.sinc(10 / 120)  # of a cosine over a bin of 30 degrees
    expected = 6 + 4 * mean_in_bin * np.cos(2 * np.pi * (middle - 30) / 120)
    assert np.abs(counts - expected).max() < 4 * math.sqrt(10 / 10 / 100)
    assert counts.argmax() in (2, 3)
    assert counts.argmin() in (8, 9)


def test_a_period_later_the_same_day_begins() -> None:
    law = Diurnal(1.0, 9.0, 86_400.0, 50_000.0)
    at = np.linspace(0, 86_400, 50)
    assert law.expected(at + 3 * 86_400) - law.expected(at) == pytest.approx(
        np.full(50, 3 * 5.0 * 86_400)
    )


@pytest.mark.parametrize("period", [1e-9, 1e12])
def test_a_period_without_meaning_is_refused(period: float) -> None:
    with pytest.raises(UsageError, match=r"a period from 0\.001 s to 1e\+09 s, got 1e"):
        Diurnal(1.0, 2.0, period, 0.0)


# Laws of length


def test_fixed_lengths() -> None:
    assert draws(Fixed(17), 5).tolist() == [17] * 5


def test_uniform_lengths_reach_both_ends_equally_often() -> None:
    values, counts = np.unique(draws(Uniform(5, 9)), return_counts=True)
    assert values.tolist() == [5, 6, 7, 8, 9]
    assert np.abs(counts - N / 5).max() < 4 * math.sqrt(N * 0.2 * 0.8)
    assert set(draws(Uniform(4, 4), 10).tolist()) == {4}


@pytest.mark.parametrize(("mean", "p95"), [(800, 2400), (220, 600), (2000, 2500), (100, 380)])
def test_lognormal_has_the_mean_and_p95_asked_for(mean: float, p95: float) -> None:
    found = draws(Lognormal.with_p95(mean, p95))
    sigma = lognormal_sigma(mean, p95)
    spread = math.sqrt(math.expm1(sigma**2))
    assert found.mean() == pytest.approx(mean, rel=4 * spread / math.sqrt(N))
    # A quantile's standard error is sqrt(p (1-p) / N) over the density, 0.1031 / sigma / p95 here.
    error = math.sqrt(0.05 * 0.95 / N) * sigma / 0.10314
    assert np.percentile(found, 95) == pytest.approx(p95, rel=4 * error, abs=0.5)


@pytest.mark.parametrize("cv", [0.1, 1.0, 2.0])
def test_lognormal_has_the_cv_asked_for(cv: float) -> None:
    law = Lognormal.with_cv(1000, cv)
    found = draws(law)
    assert law.sigma**2 == pytest.approx(math.log(1 + cv**2), rel=1e-12)
    assert found.mean() == pytest.approx(1000, rel=4 * cv / math.sqrt(N))
    logarithms = np.log(found)
    assert logarithms.std() == pytest.approx(law.sigma, rel=5 / math.sqrt(2 * N), abs=1e-3)


def test_lognormal_solved_by_hand() -> None:
    # sigma 0.5: mean = exp(mu + 1/8) and p95 = exp(mu + 1.6449 / 2), so the ratio is exp(0.69743).
    assert lognormal_sigma(1.0, math.exp(1.6448536 / 2 - 0.125)) == pytest.approx(0.5, rel=1e-6)
    assert lognormal_sigma(300, 300) == 0.0
    assert set(draws(Lognormal.with_p95(300, 300), 9).tolist()) == {300}


def test_of_both_lognormals_the_one_with_less_spread_is_meant() -> None:
    # z s - s^2/2 = ln 2 also holds for s = 2.79, where the median is 1 % of the p95.
    assert lognormal_sigma(100, 200) == pytest.approx(0.49627, abs=1e-5)


@pytest.mark.parametrize("p95", [99, 387, 10_000])
def test_an_impossible_lognormal_is_refused_with_its_bounds(p95: float) -> None:
    with pytest.raises(UsageError, match=r"between the mean and 3\.87 times the mean, here 100 to"):
        Lognormal.with_p95(100, p95)


def test_lengths_are_clipped_to_both_bounds() -> None:
    found = draws(Lognormal.with_p95(800, 2400, min=100, max=2400))
    free = draws(Lognormal.with_p95(800, 2400))
    assert found.min() == 100
    assert found.max() == 2400
    assert (found == 2400).mean() == pytest.approx(0.05, rel=0.05)
    assert found.tolist() == np.clip(free, 100, 2400).tolist()


@pytest.mark.parametrize(("top", "mean"), [(6000, 790), (2400, 730)])
def test_the_bias_of_clipping_is_the_one_documented(top: int, mean: float) -> None:
    assert draws(Lognormal.with_p95(800, 2400, max=top)).mean() == pytest.approx(mean, rel=0.01)


def test_lengths_are_at_least_one_and_always_fit() -> None:
    assert draws(Lognormal.with_cv(2, 3.0)).min() == 1
    assert draws(Lognormal.with_cv(1e300, 1e300), 99).max() == MAX_TOKENS


def test_normal_lengths_have_the_mean_and_std_asked_for() -> None:
    found = draws(Normal(500, 50))
    assert found.mean() == pytest.approx(500, abs=4 * 50 / math.sqrt(N))
    # Rounding to whole tokens adds a variance of 1/12.
    assert found.var() == pytest.approx(50**2 + 1 / 12, rel=4 * math.sqrt(2 / N))
    assert (found > 600).mean() == pytest.approx(0.0222, abs=4 * math.sqrt(0.0222 / N))


def test_normal_lengths_are_clipped_and_rounded() -> None:
    found = draws(Normal(100, 60, min=40, max=180))
    assert (found.min(), found.max()) == (40, 180)
    z = stream(7, "lengths/prompt").standard_normal(N)
    assert found.tolist() == np.rint(np.clip(100 + 60 * z, 40, 180)).tolist()
    assert draws(Normal(100, 100)).mean() == pytest.approx(108.4, rel=0.01)  # as documented
    assert draws(Normal(1, 1e300), 99).max() == MAX_TOKENS


def test_joint_lengths_keep_prompt_and_answer_together() -> None:
    recorded = [(10, 1), (10, 5), (700, 9), (700, 9), (30, 2)]
    pairs = Joint(np.array([p for p, _ in recorded]), np.array([o for _, o in recorded]))
    chunks = list(resample_lengths(50_000, 3, pairs))
    assert [len(chunk.prompt_tokens) for chunk in chunks] == [CHUNK] * 12 + [50_000 - 12 * CHUNK]
    drawn = Counter(pair for chunk in chunks for pair in zip(*chunk[:2], strict=True))
    assert set(drawn) == set(recorded)
    assert drawn[700, 9] / 50_000 == pytest.approx(0.4, abs=0.01)
    assert drawn[10, 5] / 50_000 == pytest.approx(0.2, abs=0.01)
    assert {type(x) for chunk in chunks[:1] for column in chunk[:2] for x in column} == {int}


def mixture(chat: float) -> Mixture:
    laws = (Lognormal.with_cv(300, 1.0), Fixed(200)), (Uniform(8000, 20_000), Uniform(1, 50))
    return Mixture((chat, 1 - chat), laws)


def test_a_mixture_keeps_prompts_with_the_answers_of_their_kind() -> None:
    """One request in five is long, and long ones alone have the short answers; with another share
    the requests that stay of their kind keep their lengths."""
    ((prompts, outputs),) = mixture(0.8).chunks(3, [20_000])
    long = prompts >= 8000
    assert long.mean() == pytest.approx(0.2, abs=0.01)
    assert prompts[long].mean() == pytest.approx(14_000, rel=0.01)
    assert prompts[~long].mean() == pytest.approx(300, rel=0.05)
    assert set(outputs[~long]) == {200}
    assert (outputs[long].min(), outputs[long].max()) == (1, 50)
    ((others, answers),) = mixture(0.6).chunks(3, [20_000])
    same = long == (others >= 8000)
    assert same.mean() == pytest.approx(0.8, abs=0.01)
    assert np.array_equal(others[same], prompts[same])
    assert np.array_equal(answers[same], outputs[same])


def test_an_unknown_law_of_one_length_names_those_of_both() -> None:
    with pytest.raises(ScenarioError) as refused:
        small(workload__prompt_tokens={"kind": "bimodal"})
    assert "together: `lengths: {kind: joint or mixture}`" in str(refused.value)
    with pytest.raises(ScenarioError) as refused:
        small(workload__arrivals={"kind": "bimodal"})
    assert "together" not in str(refused.value)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_a_mixture_does_not_depend_on_the_size_of_chunks(chunk: int) -> None:
    def drawn(size: int) -> list[tuple[int, int]]:
        sizes = [min(size, 3001 - start) for start in range(0, 3001, size)]
        rows = mixture(0.8).chunks(5, sizes)
        return [pair for part in rows for pair in zip(*map(np.ndarray.tolist, part), strict=True)]

    assert drawn(chunk) == drawn(3001)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_joint_lengths_do_not_depend_on_the_size_of_chunks(chunk: int) -> None:
    pairs = Joint(np.arange(1, 400), np.arange(2, 401))

    def drawn(size: int) -> list[int]:
        chunks = resample_lengths(3001, 5, pairs, chunk=size)
        return [prompt for chunk in chunks for prompt in chunk.prompt_tokens]

    assert drawn(chunk) == drawn(3001)


def test_empirical_lengths_are_drawn_with_replacement() -> None:
    values, counts = np.unique(draws(Empirical(np.array([3, 3, 8, 1000]))), return_counts=True)
    assert values.tolist() == [3, 8, 1000]
    assert np.abs(counts / N - [0.5, 0.25, 0.25]).max() < 0.005


# Independence


LAWS: list[Callable[[], tuple[ArrivalLaw, LengthLaw, LengthLaw]]] = [
    lambda: (Poisson(3.0), Uniform(1, 1000), Lognormal.with_p95(200, 600)),
    lambda: (Gamma(3.0, 2.5), Uniform(1, 2**31 - 1), Uniform(7, 8)),
    lambda: (Gamma(3.0, 0.3), Empirical(np.arange(1, 100)), Fixed(4)),
    lambda: (Constant(3.0), Lognormal.with_cv(50, 1.0), Uniform(1, 3)),
    lambda: (Burst(), Fixed(9), Empirical(np.array([5, 6]))),
    lambda: (Ramp(0.5, 30.0, 100.0), Normal(50, 20), Fixed(4)),
    lambda: (Ramp(30.0, 0.5, 50.0), Fixed(4), Normal(5, 20, max=9)),
    lambda: (Diurnal(0.1, 30.0, 60.0, 7.0), Fixed(4), Fixed(4)),
]


@pytest.mark.parametrize("laws", LAWS)
@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_values_do_not_depend_on_the_size_of_chunks(
    laws: Callable[[], tuple[ArrivalLaw, LengthLaw, LengthLaw]], chunk: int
) -> None:
    whole = columns(generate(3001, 11, *laws(), chunk=3001))
    assert columns(generate(3001, 11, *laws(), chunk=chunk)) == whole


def test_more_requests_begin_with_the_same_ones() -> None:
    few = columns(generate(100, 5, *LAWS[0]()))
    many = columns(generate(10_000, 5, *LAWS[0]()))
    assert few == tuple(column[:100] for column in many)


def test_changing_one_law_leaves_the_others_alone() -> None:
    arrivals, prompts, outputs = columns(
        generate(5000, 5, Poisson(3.0), Uniform(1, 50), Uniform(1, 60))
    )
    other = columns(generate(5000, 5, Poisson(3.0), Lognormal.with_cv(9, 1), Uniform(1, 60)))
    assert (other[0], other[2]) == (arrivals, outputs)
    assert other[1] != prompts
    other = columns(generate(5000, 5, Gamma(9.0, 3.0), Uniform(1, 50), Uniform(1, 60)))
    assert other[1:] == (prompts, outputs)
    assert other[0] != arrivals
    other = columns(generate(5000, 5, Poisson(3.0), Uniform(1, 50), Fixed(3)))
    assert other[:2] == (arrivals, prompts)


def test_prompt_and_output_of_one_request_are_unrelated() -> None:
    _, prompts, outputs = columns(generate(20_000, 5, Burst(), Uniform(1, 99), Uniform(1, 99)))
    assert abs(np.corrcoef(prompts, outputs)[0, 1]) < 4 / math.sqrt(20_000)


def test_another_seed_is_other_traffic() -> None:
    one, two = (columns(generate(100, seed, *LAWS[0]())) for seed in (1, 2))
    assert all(a != b for a, b in zip(one, two, strict=True))


# Traffic


def test_chunks_are_full_but_for_the_last() -> None:
    sizes = [len(c.arrivals) for c in generate(2 * CHUNK + 5, 1, Burst(), ONE, ONE).chunks()]
    assert sizes == [CHUNK, CHUNK, 5]


def test_arrivals_never_decrease_and_rows_are_plain_numbers() -> None:
    traffic = generate(20_000, 1, Gamma(1.0, 5.0), Uniform(1, 9), Uniform(1, 9))
    arrivals, prompts, outputs = columns(traffic)
    assert arrivals == sorted(arrivals)
    assert arrivals[0] >= 0
    assert {type(x) for x in arrivals} == {float}
    assert {type(x) for x in prompts + outputs} == {int}


def test_traffic_is_read_once() -> None:
    traffic = generate(10, 1, Burst(), ONE, ONE)
    list(traffic.chunks())
    with pytest.raises(RuntimeError, match="already read"):
        traffic.chunks()
    closed = ClosedTraffic(10, 2, 0.0, generate_lengths(10, 1, ONE, ONE))
    list(closed.lengths())
    with pytest.raises(RuntimeError, match="already read"):
        closed.lengths()


def test_closed_loop_has_the_lengths_of_open_traffic() -> None:
    laws = Uniform(1, 99), Lognormal.with_p95(50, 150)
    _, prompts, outputs = columns(generate(6000, 8, Poisson(1.0), *laws))
    chunks = list(generate_lengths(6000, 8, *laws))
    assert [p for chunk in chunks for p in chunk.prompt_tokens] == prompts
    assert [o for chunk in chunks for o in chunk.output_tokens] == outputs


def test_replay_hands_on_the_trace_in_chunks() -> None:
    total = CHUNK + 3
    trace = Trace(np.arange(total) / 4, np.arange(1, total + 1), np.full(total, 2))
    arrivals, prompts, outputs = columns(replay(trace))
    assert arrivals == [i / 4 for i in range(total)]
    assert prompts == list(range(1, total + 1))
    assert outputs == [2] * total


def test_a_million_requests_take_little_work_and_the_memory_of_a_chunk() -> None:
    lognormal = Lognormal.with_p95(800, 2400, max=6000)
    chunks = generate(1_000_000, 1, Gamma(5.0, 1.2), lognormal, lognormal).chunks()
    lengths: list[int] = []
    worked = calls(lambda: lengths.extend(len(chunk.arrivals) for chunk in chunks))
    assert sum(lengths) == 1_000_000
    assert worked < 100_000  # drawn by the chunk, not one by one
    tracemalloc.start()
    try:
        for law in (Gamma(5.0, 1.2), Diurnal(5.0, 9.0, 3600.0, 0.0)):
            for _ in generate(50_000, 1, law, lognormal, lognormal).chunks():
                pass
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


# From a scenario


def scenario(workload: dict[str, Any], **run: Any) -> Scenario:
    return load_scenario(
        {"model": "llama-3.1-8b", "fleet": {"gpu": "h100-sxm"}, "workload": workload, "run": run}
    )


def asked(arrivals: dict[str, Any], prompts: dict[str, Any], total: int = 50) -> Columns:
    outputs = {"kind": "fixed", "value": 3}
    workload = {"arrivals": arrivals, "prompt_tokens": prompts, "output_tokens": outputs}
    traffic = build(scenario(workload, requests=total), seed=9)
    assert isinstance(traffic, OpenTraffic)
    return columns(traffic)


@pytest.mark.parametrize(
    ("arrivals", "law"),
    [
        ({"kind": "poisson", "rate": "90/min"}, Poisson(1.5)),
        ({"kind": "gamma", "rate": 2, "cv": 3}, Gamma(2.0, 3.0)),
        ({"kind": "constant", "rate": 2}, Constant(2.0)),
        ({"kind": "burst"}, Burst()),
        (
            {"kind": "ramp", "rate": 1, "final_rate": "120/min", "duration": "1min"},
            Ramp(1.0, 2.0, 60.0),
        ),
        (
            {"kind": "diurnal", "rate": 1, "peak_rate": 3},
            Diurnal(1.0, 3.0, 86_400.0, 43_200.0),
        ),
        (
            {"kind": "diurnal", "rate": 1, "peak_rate": 3, "period": "1h", "peak_at": "5min"},
            Diurnal(1.0, 3.0, 3600.0, 300.0),
        ),
    ],
)
def test_build_knows_every_kind_of_arrivals(arrivals: dict[str, Any], law: ArrivalLaw) -> None:
    found = asked(arrivals, {"kind": "fixed", "value": 7})
    assert found == columns(generate(50, 9, law, Fixed(7), Fixed(3)))


@pytest.mark.parametrize(
    ("prompts", "law"),
    [
        ({"kind": "uniform", "low": 3, "high": 30}, Uniform(3, 30)),
        ({"kind": "lognormal", "mean": 80, "p95": 240}, Lognormal.with_p95(80, 240)),
        (
            {"kind": "lognormal", "mean": 80, "cv": 2, "min": 20, "max": 90},
            Lognormal.with_cv(80, 2.0, 20, 90),
        ),
        ({"kind": "normal", "mean": 80, "std": 9}, Normal(80, 9)),
        ({"kind": "normal", "mean": 80, "std": 90, "min": 9, "max": 99}, Normal(80, 90, 9, 99)),
        (
            {"kind": "empirical", "path": str(DATA / "plain-small.csv"), "column": "output_tokens"},
            Empirical(np.array([11, 12, 13])),
        ),
    ],
)
def test_build_knows_every_kind_of_lengths(prompts: dict[str, Any], law: LengthLaw) -> None:
    found = asked({"kind": "burst"}, prompts)
    assert found == columns(generate(50, 9, Burst(), law, Fixed(3)))
    assert len(set(found[1])) > 1


def joint(arrivals: dict[str, Any], **more: str) -> OpenTraffic | ClosedTraffic:
    path = str(DATA / "lengths-small.csv")
    workload = {"arrivals": arrivals, "lengths": {"kind": "joint", "path": path, **more}}
    return build(scenario(workload, requests=90), seed=9)


def test_build_draws_joint_lengths() -> None:
    traffic = joint({"kind": "poisson", "rate": 2})
    assert isinstance(traffic, OpenTraffic)
    arrivals, prompts, outputs = columns(traffic)
    assert arrivals == asked({"kind": "poisson", "rate": 2}, {"kind": "fixed", "value": 1}, 90)[0]
    assert prompts == [100 * output for output in outputs]
    assert set(outputs) == {1, 2, 3, 4}
    closed = joint({"kind": "closed", "concurrency": 4})
    assert isinstance(closed, ClosedTraffic)
    assert list(closed.lengths()) == [(prompts, outputs, None, None)]


def test_build_takes_the_columns_that_are_named() -> None:
    names = {"prompt_column": "num_decode_tokens", "output_column": "num_prefill_tokens"}
    traffic = joint({"kind": "burst"}, **names)
    assert isinstance(traffic, OpenTraffic)
    _, prompts, outputs = columns(traffic)
    assert outputs == [100 * prompt for prompt in prompts]


def test_build_makes_a_closed_loop() -> None:
    workload = {
        "arrivals": {"kind": "closed", "concurrency": 4, "think_time": "250ms"},
        "prompt_tokens": {"kind": "uniform", "low": 1, "high": 99},
        "output_tokens": {"kind": "fixed", "value": 3},
    }
    traffic = build(scenario(workload, requests=20), seed=9)
    assert isinstance(traffic, ClosedTraffic)
    assert (traffic.total, traffic.concurrency, traffic.think_time) == (20, 4, 0.25)
    [(prompts, outputs, _, _)] = traffic.lengths()
    assert prompts == asked({"kind": "burst"}, workload["prompt_tokens"], 20)[1]
    assert outputs == [3] * 20


def replayed(trace: dict[str, Any], **run: Any) -> Columns:
    traffic = build(scenario({"trace": trace}, **run), seed=9)
    assert isinstance(traffic, OpenTraffic)
    return columns(traffic)


def test_build_replays_a_trace() -> None:
    path = str(DATA / "plain-small.csv")
    assert replayed({"path": path}) == ([0.0, 0.25, 0.25], [102, 101, 103], [12, 11, 13])
    assert replayed({"path": path, "format": "csv", "time_scale": 4})[0] == [0.0, 1.0, 1.0]


def test_only_the_spread_of_a_trace_depends_on_the_seed() -> None:
    def arrivals(seed: int, **trace: Any) -> list[float]:
        path = str(DATA / "mooncake-small.jsonl")
        traffic = build(scenario({"trace": {"path": path, **trace}}), seed)
        assert isinstance(traffic, OpenTraffic)
        return columns(traffic)[0]

    assert arrivals(1) == arrivals(2) == [0.0, 0.0, 3.003]
    one, two = (arrivals(seed, spread="3s") for seed in (1, 2))
    assert one == arrivals(1, spread=3)
    assert one != two
    assert len(set(one + two)) == 5  # both begin at 0


def test_traffic_says_what_was_left_out_of_a_trace() -> None:
    def notes(name: str) -> tuple[str, ...]:
        traffic = build(scenario({"trace": {"path": str(DATA / name)}}), seed=1)
        assert isinstance(traffic, OpenTraffic)
        return traffic.notes

    assert notes("plain-small.csv") == ()
    assert notes("burstgpt-small.csv") == ("Not replayed: 2 failed requests (no output tokens).",)


@pytest.mark.parametrize(
    ("limit", "requests", "total"), [(None, None, 3), (2, None, 2), (None, 1, 1), (2, 1, 1)]
)
def test_of_both_limits_of_a_trace_the_smaller_holds(
    limit: int | None, requests: int | None, total: int
) -> None:
    trace = {"path": str(DATA / "azure-small.csv"), "limit": limit}
    assert replayed(trace, requests=requests)[1] == [100, 200, 300][:total]


def test_paths_start_at_the_folder_of_the_scenario(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("arrival_s,prompt_tokens,output_tokens\n5,6,7\n")
    file = tmp_path / "day.yaml"
    file.write_text("model: llama-3.1-8b\nfleet: {gpu: l40s}\nworkload: {trace: {path: day.csv}}\n")
    traffic = build(load_scenario(file), seed=0)
    assert isinstance(traffic, OpenTraffic)
    assert columns(traffic) == ([0.0], [6], [7])


def test_a_bad_trace_is_found_before_anything_runs(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("nothing known\n1\n")
    with pytest.raises(TraceError, match="fit no known trace format"):
        build(scenario({"trace": {"path": str(path)}}), seed=0)


@pytest.mark.parametrize("scale", [1e10, 1.7e308])
def test_a_trace_stretched_beyond_all_use_is_refused(scale: float) -> None:
    with pytest.raises(UsageError, match="times end at"):
        replay(read_trace(DATA / "azure-small.csv", played=TracePlay(time_scale=scale)))


def test_workload_does_not_load_pandas_or_pyarrow() -> None:
    code = "import sys, sim.workload; print({'pandas', 'pyarrow', 'simpy'} & set(sys.modules))"
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=root)
    assert done.stdout.strip() == b"set()"
