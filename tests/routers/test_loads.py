"""The kept order of many replicas says what a look at all of them says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

import sim
from sim.routers import load, loads
from sim.routers.load import least_outstanding, most_outstanding
from sim.routers.loads import MANY, Counted, Loads
from tests.counted_work import calls


class Target(Counted):
    """A replica that only counts."""

    queued = 0
    queued_prompt_tokens = 0
    kv_used = 0.0
    weight = 1.0


def check(targets: Sequence[Target]) -> None:
    """The routers' answers are those of a look at all."""
    counts = [target.outstanding for target in targets]
    assert least_outstanding(targets) == counts.index(min(counts))
    assert most_outstanding(targets) == max(counts)


@pytest.mark.parametrize("seed", range(5))
def test_the_order_is_that_of_the_counts(seed: int) -> None:
    """Whatever changes, and in whichever lists the targets are asked for in turn."""
    rng = random.Random(seed)
    every = [Target() for _ in range(2 * MANY)]
    lists = [every, every[: MANY + 5], every[MANY - 5 :], every[::-1]]
    for _ in range(2000):
        target = rng.choice(every)
        target.count(max(-target.outstanding, rng.choice([1, 1, 2, -1, -3, 40, -40])))
        check(lists[0 if rng.random() < 0.9 else rng.randrange(4)])


def test_a_list_that_grows_is_ordered_anew() -> None:
    targets = [Target() for _ in range(MANY)]
    for target in targets:
        target.count(1)
    check(targets)
    targets.append(Target())
    check(targets)


def test_a_choice_among_many_takes_as_long_as_one_among_few() -> None:
    def choices(targets: list[Target]) -> None:
        for _ in range(50):
            targets[least_outstanding(targets)].count(1)

    few, many = ([Target() for _ in range(size)] for size in (MANY, 20 * MANY))
    for targets in (few, many):
        assert Loads.of(targets) is not None
    assert calls(lambda: choices(many)) == calls(lambda: choices(few))


CHAT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 4},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 120.0},
        "prompt_tokens": {"kind": "fixed", "value": 600},
        "output_tokens": {"kind": "lognormal", "mean": 60, "p95": 200, "max": 400},
    },
    "run": {"requests": 400},
}

ROLES = [
    {"name": role, "role": role, "gpu": "h100-sxm", "replicas": 3} for role in ("prefill", "decode")
]

FEATURES: dict[str, dict[str, Any]] = {
    "prefix-affinity": {"router": "prefix-affinity"},
    "data ranks": {
        "model": "mixtral-8x7b",
        "fleet": {"gpu": "h100-sxm", "replicas": 3, "data_parallel": 2},
    },
    "pipelines": {"fleet": {"gpu": "h100-sxm", "replicas": 3, "pipeline_parallel": 2}},
    "roles": {"fleet": ROLES},
    "impatient clients": {"scheduler": {"client_timeout": "400ms", "on_timeout": "retry"}},
    "failures": {"failures": {"mtbf": "1s", "repair": "100ms"}},
}


def calls_of(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> list[object]:
    """What each call of that method returns from now on."""
    method, returned = getattr(kind, name), list[object]()

    def noted(self: object) -> object:
        returned.append(method(self))
        return returned[-1]

    monkeypatch.setattr(kind, name, noted)
    return returned


@pytest.mark.parametrize("feature", FEATURES)
def test_runs_are_the_same_with_the_order_and_without(
    feature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = sim.load_scenario(CHAT | FEATURES[feature])
    plain = sim.simulate(scenario).record.requests
    monkeypatch.setattr(loads, "MANY", 2)
    kept = calls_of(monkeypatch, Loads, "idlest")
    assert sim.simulate(scenario).record.requests.tobytes() == plain.tobytes()
    assert len(kept) >= 400


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"model": "gemma-3-12b"},
        *(FEATURES[name] for name in ("pipelines", "roles")),
    ],
)
def test_the_emptiest_cache_is_found_among_few(
    changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caches that are passed over are not emptier than the one that is chosen."""
    scenario = sim.load_scenario(CHAT | changed | {"router": "least-kv"})
    found = sim.simulate(scenario).record.requests
    monkeypatch.setattr(load, "_perhaps_emptiest", lambda targets: range(len(targets)))
    assert sim.simulate(scenario).record.requests.tobytes() == found.tobytes()
