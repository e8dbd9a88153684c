"""The event loop against queueing theory: every check of ``infersim selftest``, on more traffic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sim.selftest import Check
from sim.selftest.exact import POLICIES, burst_check, roofline_check
from sim.selftest.queues import (
    CONSTANT,
    MEMORYLESS,
    SPREAD,
    TOKEN,
    Geometric,
    Size,
    cobham,
    infinite_servers,
    pollaczek_khinchine,
    priorities,
    processor_sharing,
    single_server,
)
from sim.workload.lengths import Uniform

SEEDS = [1, 2, 3]
REQUESTS = 8_000

QUEUES: dict[str, Callable[[int], list[Check]]] = {
    "md1 half": lambda seed: single_server("", 0.5, CONSTANT, seed, requests=REQUESTS),
    "md1 near saturation": lambda seed: single_server("", 0.8, CONSTANT, seed, requests=REQUESTS),
    "mm1 half": lambda seed: single_server("", 0.5, MEMORYLESS, seed, requests=REQUESTS),
    "mm1 near saturation": lambda seed: single_server("", 0.8, MEMORYLESS, seed, requests=REQUESTS),
    "mg1 half": lambda seed: single_server("", 0.5, SPREAD, seed, requests=REQUESTS),
    "priorities half": lambda seed: priorities("", 0.5, MEMORYLESS, seed, requests=REQUESTS),
    "priorities near": lambda seed: priorities("", 0.8, CONSTANT, seed, requests=REQUESTS),
    "infinite, few": lambda seed: infinite_servers("", 10, MEMORYLESS, seed, requests=REQUESTS),
    "infinite, many": lambda seed: infinite_servers("", 40, SPREAD, seed, requests=REQUESTS),
    "sharing, half": lambda seed: processor_sharing("", 0.5, MEMORYLESS, seed, requests=REQUESTS),
    "sharing, near": lambda seed: processor_sharing("", 0.8, SPREAD, seed, requests=REQUESTS),
}


def failed(checks: list[Check]) -> list[Check]:
    return [check for check in checks if not check.ok]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("queue", QUEUES.values(), ids=QUEUES.keys())
def test_queue(queue: Callable[[int], list[Check]], seed: int) -> None:
    checks = queue(seed)
    assert not failed(checks)
    random = [check for check in checks if check.standard_error]
    assert random
    # far from vacuous: even these short runs pin the figure down
    assert all(check.tolerance < 0.5 * check.theory for check in random)


@pytest.mark.parametrize("size", [CONSTANT, MEMORYLESS, SPREAD])
def test_the_moments_are_those_of_the_law(size: Size) -> None:
    drawn = size.law.draw(np.random.Generator(np.random.PCG64(1)), 200_000).astype(float)
    for moment, stated in ((drawn, size.mean), (drawn**2, size.square)):
        error = np.std(moment) / np.sqrt(len(moment))
        assert abs(np.mean(moment) - stated) <= 4 * error
    assert drawn.min() >= 1


def test_closed_forms_by_hand() -> None:
    # rho = 0.8: M/D/1 waits rho S / (2 (1 - rho)) = 2 S, M/M/1 twice as long
    assert pollaczek_khinchine(0.8, 1.0, 1.0) == pytest.approx(2.0)
    assert pollaczek_khinchine(0.8, 1.0, 2.0) == pytest.approx(4.0)
    # two classes: R = rho S = 0.8 (M/M/1), W = R / ((1 - 0.3) 1) and R / ((1 - 0.3)(1 - 0.8))
    assert cobham(0.8, 2.0, [0.3, 0.5]) == pytest.approx([0.8 / 0.7, 0.8 / 0.14])
    # 1 to 3 tokens: mean 2, mean square (1 + 4 + 9) / 3; 1 to n: (n + 1)(2n + 1) / 6
    assert SPREAD.square == pytest.approx(np.mean(np.arange(1, 400) ** 2.0))
    assert MEMORYLESS.square == pytest.approx(2 * 200**2 * (1 - 1 / 400))
    # theory as it enters a check, in seconds
    check = single_server("", 0.8, CONSTANT, 1, requests=400)[0]
    assert check.theory == pytest.approx(0.8 * 8 * TOKEN / (2 * 0.2))


def test_sharing_does_not_depend_on_the_law_of_sizes() -> None:
    """The wait in first-come order does: the same two laws differ there by half again."""
    laws = Size(Uniform(1, 399), 200.0, SPREAD.square), Size(Geometric(200), 200.0, 0.0)
    for law in laws:
        checks = processor_sharing("", 0.5, law, 7, requests=REQUESTS)
        assert checks[1].theory == 200 * TOKEN / 0.5
        assert not failed(checks)
    assert MEMORYLESS.square / SPREAD.square == pytest.approx(1.5, rel=0.01)


def test_priorities_move_waiting_from_one_class_to_the_other() -> None:
    """Weighed by their shares, the waits are those of first come, first served."""
    first, second = (
        check.simulated for check in priorities("", 0.8, CONSTANT, 7, requests=9000)[:2]
    )
    alike = single_server("", 0.8, CONSTANT, 7, requests=9000)[0].simulated
    assert first < 0.5 * alike < alike < second
    assert 0.4 * first + 0.6 * second == pytest.approx(alike, rel=0.02)


@pytest.mark.parametrize(("slots", "prompt", "output"), [(1, 1, 2), (7, 100, 33), (256, 1000, 65)])
def test_decode_reaches_the_ceiling_and_no_more(slots: int, prompt: int, output: int) -> None:
    assert roofline_check(slots=slots, prompt=prompt, output=output).ok


@pytest.mark.parametrize("batching", POLICIES)
@pytest.mark.parametrize("count", [1, 2, 31])
def test_bursts(batching: str, count: int) -> None:
    rng = np.random.Generator(np.random.PCG64(count))
    prompts, outputs = (rng.integers(1, 200, count).tolist() for _ in range(2))
    assert burst_check(batching, [17] * count, [23] * count, name="equal").ok
    assert burst_check(batching, prompts, outputs, name="unequal").ok


def test_a_static_batch_lasts_as_long_as_its_longest() -> None:
    prompts, outputs = [10, 20, 30], [3, 9, 6]
    unequal = burst_check("static", prompts, outputs, name="")
    longest = burst_check("static", [30] * 3, [9] * 3, name="")
    assert unequal.simulated == longest.simulated
    assert burst_check("continuous", prompts, outputs, name="").simulated < unequal.simulated
