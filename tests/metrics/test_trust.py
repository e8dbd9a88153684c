"""How sure a verdict is: by chance, and at both bands of the predicted times."""

from __future__ import annotations

from typing import Any

import pytest

from sim.metrics.bands.trust import reasoned, verdict_trust
from sim.result import simulate
from sim.scenario import load_scenario

CHAT = load_scenario("scenarios/chat.yaml").override({"run.requests": 1500})
LIMIT = {"tpot": {"percentile": 99.0, "limit_ms": 40.0}}


def judged(
    band50: tuple[float, float],
    doubts: list[str],
    *,
    met: bool,
    band90_end: float | None = 39.0,
) -> str:
    verdict = {"limits": LIMIT, "slo_met": met, "slo_doubts": doubts}
    bands = {"band50": band50, "band90": (0.9 * band50[0], band90_end)}
    found = verdict_trust(verdict, {"p99_tpot_ms": bands}, None)
    assert found is not None
    assert found["text"] == f"That the SLO is {'met' if met else 'missed'} is {found['word']}."
    return found["word"]


@pytest.mark.parametrize(
    ("band50", "doubts", "met", "word"),
    [
        ((30.0, 38.0), [], True, "sure"),
        ((30.0, 38.0), ["band"], True, "likely"),
        ((30.0, 41.0), ["band"], True, "a guess"),
        ((30.0, 38.0), ["chance"], True, "a guess"),
        ((41.0, 60.0), ["band"], False, "likely"),
        ((39.0, 60.0), ["band"], False, "a guess"),
        ((41.0, 60.0), ["band", "length"], False, "a guess"),
    ],
)
def test_of_a_verdict_about_limits(
    band50: tuple[float, float], doubts: list[str], met: bool, word: str
) -> None:
    assert judged(band50, doubts, met=met) == word


@pytest.mark.parametrize("end", [41.0, None])
def test_what_the_stated_band_leaves_open_is_not_sure(end: float | None) -> None:
    """Even where iterations alone, at the ends of theirs, leave the limits as they are."""
    assert judged((30.0, 38.0), [], met=True, band90_end=end) == "likely"


@pytest.mark.parametrize(
    ("state", "slower", "capacity", "word"),
    [
        ("stable", None, (1.2, 1.9), "sure"),
        ("stable", "overloaded", (1.05, 1.2), "likely"),
        ("stable", "overloaded", (0.95, 1.2), "a guess"),
        ("near saturation", "overloaded", (1.05, 1.2), "a guess"),
        ("overloaded", "overloaded", (0.5, 0.7), "sure"),
    ],
)
def test_without_limits_it_is_whether_the_traffic_is_held(
    state: str, slower: str | None, capacity: tuple[float, float], word: str
) -> None:
    verdict = {"limits": {}, "state": state}
    ends: dict[str, Any] | None = None
    if slower is not None:
        faster = "overloaded" if state == "overloaded" else "stable"
        ends = {k: {"verdict": {"state": s}} for k, s in (("slower", slower), ("faster", faster))}
    found = verdict_trust(verdict, {"capacity": {"band50": capacity}}, ends)
    assert found is not None
    assert found["word"] == word


def test_what_did_not_settle_is_not_judged() -> None:
    assert verdict_trust({"limits": {}, "state": "no traffic served"}, {}, None) is None


def test_a_run_says_how_sure_its_verdict_is() -> None:
    calm = simulate(CHAT.override({"workload.arrivals.rate": 2})).bands
    assert calm is not None
    assert calm["trust"] == "sure"
    assert calm["text"].endswith("That the SLO is met is sure.")
    met = simulate(CHAT.override({"workload.arrivals.rate": 2}))
    limit = {"slo.tpot": f"{1.03 * met.summary['p99_tpot_ms']}ms", "workload.arrivals.rate": 2}
    close = simulate(CHAT.override(limit))
    assert close.summary["infersim"]["verdict"]["slo_met"]
    assert close.bands is not None
    assert close.bands["trust"] in ("likely", "a guess")  # the slower end misses it


def test_a_run_whose_ends_were_skipped_is_never_sure() -> None:
    """Where the ends of the error band matter and were not simulated, they leave it open."""
    near = simulate(CHAT.override({"workload.arrivals.rate": 16}))
    near.confirm(ends=False)
    calm = simulate(CHAT.override({"workload.arrivals.rate": 2}))
    calm.confirm(ends=False)
    bands = [run.summary["infersim"]["bands"]["trust"] for run in (near, calm)]
    assert bands[0] in ("likely", "a guess")
    assert bands[1] == "sure"


@pytest.mark.parametrize(
    ("met", "doubts", "word", "why"),
    [
        (True, [], "sure", "met is sure, even if the engine is 38% slower than predicted"),
        (False, [], "sure", "missed is sure, even if the engine is 20% faster than predicted"),
        (
            True,
            ["band"],
            "likely",
            "met is likely: so it is if the engine is 10% slower than predicted, perhaps not if "
            "38% slower",
        ),
        (True, ["band"], "a guess", "met is a guess: it may turn if the engine is 10% slower"),
        (True, ["band", "chance"], "a guess", "met is a guess: at the predicted times already"),
    ],
)
def test_the_reason_is_the_end_of_the_band_at_which_it_could_turn(
    met: bool, doubts: list[str], word: str, why: str
) -> None:
    verdict = {"limits": {"ttft": {}}, "slo_met": met, "slo_doubts": doubts}
    band = {"throughput": 0.2, "slower": 0.38, "half": 0.1}
    assert f"that the SLO is {why}" in reasoned(verdict, word, band)
