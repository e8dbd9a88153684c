"""``infersim plan``: an exhaustive search finds no better winner, and every answer is whole."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import sim
from reports.figures.charts import chart
from sim import simulate
from sim.band_runs import at_end
from sim.catalog import gpu, names
from sim.cli import app
from sim.errors import InfeasibleError, UsageError
from sim.metrics.bands.end_times import TimeBand
from sim.metrics.bands.worth import worth
from sim.metrics.slo.objectives import slo_objectives
from sim.planning.answers.plan import by_card
from sim.planning.answers.plan_drawings import cost_and_latency, growth, replicas_at
from sim.planning.fleet import choose as choosing
from sim.planning.fleet import fleet_ends
from sim.planning.fleet.choose import FleetPlan, choose
from sim.planning.fleet.constraints import read_constraints
from sim.planning.fleet.fleet_ends import (
    FleetEnds,
    SlowerEnd,
    held_within_band,
    if_slower,
)
from sim.planning.fleet.launch import launch_commands
from sim.planning.fleet.layouts import Candidate, FleetQuestion, Rejected, cards, layouts, screen
from sim.planning.fleet.plan_bands import bands, front
from sim.planning.fleet.plan_document import _rate_of_a_replica, document
from sim.planning.fleet.sizing import Confirmed, FleetSearch, Sized
from sim.planning.load.finder import Finder
from sim.planning.load.loads import traffic_of
from sim.planning.load.saturation import acceptable, alone
from sim.planning.load.settled import lasting
from sim.planning.points.wording import LoadOutcome
from sim.scenario import Scenario, load_scenario
from sim.setup import prepare
from sim.terminal.console import as_text
from sim.terminal.findings import command_view
from sim.units import milliseconds
from tests import made_up
from tests.answers import plan_view, render_plan
from tests.places import MODELS
from tests.planning_fixtures import small

pytestmark = pytest.mark.usefixtures("brief_answers")

GPUS = ("h100-sxm", "l40s", "a10g")
SIZES = (1, 2)


def scenario(longest: int = 60, **slo: Any) -> Scenario:
    return small(
        run__requests=100,
        workload__prompt_tokens={"kind": "uniform", "low": 50, "high": 900},
        workload__output_tokens={"kind": "uniform", "low": 5, "high": longest},
        slo={"attainment": 0.9, **slo},
    )


def quick(**slo: Any) -> Scenario:
    """The same with answers so short that a fleet of several replicas needs few requests."""
    return scenario(15, **slo)


def question(asked: Scenario, rate: float, top: int = 1, **more: Any) -> FleetQuestion:
    limits = read_constraints(more.get("constraint"))
    made = layouts(asked, more.get("gpus", GPUS), more.get("sizes", SIZES), more.get("kinds", ()))
    return FleetQuestion(tuple(made), rate, more.get("headroom", 0.1), top, limits)


def exhaustive(asked: Scenario, q: FleetQuestion) -> dict[Candidate, tuple[int, float]]:
    """Candidate -> replicas and cost of its smallest fleet that holds, without any screening."""
    (objective,) = slo_objectives(asked)
    found = {}
    for layout in q.layouts:
        screened = screen(asked, layout, q.target, [objective], q.constraints)
        if isinstance(screened, Rejected) and screened.cost is None:
            continue  # it does not fit at all
        finder = Finder(asked.override(layout.settings(asked)), "rate", [objective])
        price = _price(asked, layout)
        for replicas in range(1, 9):
            if lasting(finder, q.target, replicas).holds:
                found[layout] = (replicas, replicas * price)
                break
    return found


def _price(asked: Scenario, layout: Candidate) -> float:
    gpu = prepare(asked.override(layout.settings(asked))).only.deployment.gpu
    assert gpu.price_per_hour is not None
    return gpu.price_per_hour * layout.tensor_parallel


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slo", "rate"),
    [
        ({"ttft": "300ms", "tpot": "40ms"}, 60.0),
        ({"ttft": "90ms", "tpot": "15ms"}, 25.0),
        ({"ttft": "60ms"}, 30.0),
    ],
)
def test_the_screening_never_loses_the_winner(
    slo: dict[str, str], rate: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choosing, "WAVE", 1)  # leaves out what it can after every layout
    asked = quick(**slo)
    q = question(asked, rate, top=2)
    every = exhaustive(asked, q)
    assert len(every) >= q.top
    found = choose(asked, q)
    costs = sorted(cost for _, cost in every.values())
    assert [each.sized.cost for each in found.best] == pytest.approx(costs[: q.top])
    told = {each.sized.layout for each in found.best} | {each.layout for each in found.rejected}
    assert told == set(q.layouts)
    cheapest = min(cost for _, cost in every.values())
    winner = found.sized[0]
    assert winner.cost == pytest.approx(cheapest)
    assert every[winner.layout] == (winner.replicas, pytest.approx(winner.cost))
    for sized in found.sized:
        assert every[sized.layout][0] == sized.replicas
    for rejected in found.rejected:
        if rejected.layout in every:  # it holds, so it must have been dearer
            assert rejected.reason == "more expensive"
            assert rejected.cost is not None
            assert every[rejected.layout][1] >= rejected.cost > cheapest - 1e-9


@cache
def planned() -> FleetPlan:
    asked = scenario(ttft="600ms", tpot="40ms")
    return choose(asked, question(asked, 60.0, top=2, gpus=GPUS[:2], sizes=(1, 2, 3)))


@pytest.mark.slow
def test_every_layout_is_ranked_or_rejected_with_a_reason() -> None:
    found = planned()
    best = {each.sized.layout for each in found.best}
    rejected = {each.layout: each for each in found.rejected}
    assert best | set(rejected) == set(found.question.layouts)
    assert not best & set(rejected)
    assert all(each.text and each.reason for each in found.rejected)
    three = rejected[Candidate("h100-sxm", 3, None)]
    assert three.reason == "layout impossible"
    assert "32 attention heads" in three.text
    costs = [each.sized.cost for each in found.best]
    assert costs == sorted(costs)


def test_the_winner_is_confirmed_by_a_run_of_its_own() -> None:
    found = planned()
    fleet = document(found)["fleets"][0]
    target = {**fleet["settings"], "workload.arrivals.rate": found.question.target}
    held = simulate(found.scenario.override(target)).summary["infersim"]["verdict"]
    assert held["attainment"] >= held["target"]
    smaller = {**target, "fleet.0.replicas": fleet["replicas"] - 1}
    if fleet["smaller_breaks"] is not None:
        missed = simulate(found.scenario.override(smaller)).summary["infersim"]["verdict"]
        assert missed["attainment"] < held["attainment"]
    words = shlex.split(fleet["run"])
    again = found.scenario.override([word for word in words if word != "--set"])
    decided = found.best[0].sized.at_target
    played = {"run.requests": decided.requests // decided.runs}  # more than in the scenario
    assert again == found.scenario.override(fleet["settings"] | played)


def test_a_fleet_holds_its_headroom() -> None:
    for each in planned().best:
        assert each.best.load >= planned().question.target
        assert each.at_rate.holds
        assert each.sized.at_target.holds


def test_the_bands_follow_from_the_error() -> None:
    found = planned()
    for each, band in zip(found.best, bands(found), strict=True):
        low, high = band.replicas
        assert 1 <= low <= each.sized.replicas <= high
        assert band.cost == (low * each.sized.price, high * each.sized.price)
        assert 0 < band.error < 0.8
    last = bands(found)[-1]
    assert last.survives or len(found.sized) > len(found.best)


def test_the_replicas_at_both_ends_are_those_that_hold_there() -> None:
    """By one run of each length, as the ends are decided."""
    asked = scenario(ttft="600ms", tpot="40ms")
    found = planned()
    for each, band in zip(found.best, bands(found), strict=True):
        low, high = band.replicas
        assert high is not None
        own = asked.override(each.sized.layout.settings(asked))
        ends = each.sized.at_target.band
        assert ends is not None
        for end, replicas in zip(ends.ends, (low, high), strict=True):
            limits = tuple(map(end.counted, found.objectives))
            finder = Finder(at_end(own, end), "rate", limits)
            assert lasting(finder, found.question.target, replicas, most=1).holds
            fewer = replicas - 1
            if fewer >= (1 if replicas == low else each.sized.replicas):
                assert not lasting(finder, found.question.target, fewer, most=1).holds


def fleet_of(name: str, *, replicas: int, price: float) -> Any:
    """A fleet that was confirmed."""
    sized = Sized(Candidate(name, 1, None), price, replicas, 0.0, None, None)  # type: ignore[arg-type]
    held = SimpleNamespace(sure=True)
    return Confirmed(sized, held, None, None)  # type: ignore[arg-type]


def test_a_rank_is_sure_unless_errors_against_each_other_could_turn_it() -> None:
    first = fleet_of("first", replicas=4, price=1.0)
    second = fleet_of("second", replicas=1, price=4.5)
    third = fleet_of("third", replicas=2, price=3.0)
    fourth = fleet_of("fourth", replicas=6, price=1.02)
    near = Rejected(Candidate("near", 1, None), "bound", "", 5.9, unsimulated=True)
    far = Rejected(Candidate("far", 1, None), "bound", "", 6.5, unsimulated=True)
    found = bands(
        SimpleNamespace(
            best=(first, second),
            sized=tuple(each.sized for each in (first, second, third, fourth)),
            ends=(
                FleetEnds(3, 5, SlowerEnd(0.2, holds=False, holds_at_half=False)),
                FleetEnds(1, 1),
                FleetEnds(2, 2, SlowerEnd(0.2)),
                FleetEnds(5, None, SlowerEnd(0.25, holds=False)),
            ),
            rejected=(near, far),
        )  # type: ignore[arg-type]
    )
    # the first costs up to 5.0; the second 4.5; the third 6.0; the fourth at least 5.1; near 4.9
    assert (found[0].replicas, found[0].cost) == ((3, 5), (3.0, 5.0))
    assert found[0].rivals == ("#2 1 x second", "fleets of 1 x near (not simulated)")
    assert not found[0].survives
    assert not found[0].ends.slower.holds
    assert (found[1].replicas, found[1].rivals) == ((1, 1), ())
    assert found[1].survives
    assert found[1].ends.slower.holds
    assert (found[0].trust, found[1].trust) == ("a guess", "sure")
    assert replace(found[0].ends.slower, holds_at_half=True).trust(decided=True) == "likely"
    by_chance = replace(found[1].ends.slower, sure=False)
    assert by_chance.trust(decided=True) == "likely"
    assert replace(by_chance, holds_at_half=False).trust(decided=True) == "a guess"


def test_a_rival_is_named_whole_and_one_that_costs_as_much_is_not_cheaper() -> None:
    first = fleet_of("first", replicas=1, price=0.6)
    others = [fleet_of(name, replicas=6, price=0.1) for name in ("second", "third")]
    ends = [FleetEnds(few, most, SlowerEnd(0.2)) for few, most in ((1, 1), (3, 9), (6, 9))]

    def rivals(first_needs: int) -> tuple[str, ...]:
        plan = SimpleNamespace(
            best=(first, others[0]),
            sized=tuple(each.sized for each in (first, *others)),
            ends=(replace(ends[0], most=first_needs), *ends[1:]),
            rejected=(),
        )
        return bands(plan)[0].rivals  # type: ignore[arg-type]

    second = "#2 6 x (1 x second) (costs as much now)"
    assert rivals(1) == (second,)  # the third, 6 x 0.1, is never below 0.6
    assert rivals(2) == (second, "6 x (1 x third) (costs as much now)")


def test_what_only_chance_lets_hold_at_the_slower_end_is_asked_of_the_nearer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = planned()
    sized = found.best[0].sized

    def at(finder: Finder, *_: Any) -> Any:
        further = finder.axis.scenario.assume.kernel_time > 1 + 0.9 * sized.at_target.error
        return SimpleNamespace(
            holds=True, sure=not further, outcome="open" if further else LoadOutcome.HOLDS
        )

    monkeypatch.setattr(fleet_ends, "lasting", at)
    monkeypatch.setattr(fleet_ends, "smallest_fleet", lambda *_: 1)
    end = if_slower(FleetSearch(found.scenario, found.question, found.objectives), sized).slower
    assert (end.holds, end.sure, end.holds_at_half) == (True, False, True)


def test_what_narrows_the_band_most_is_worth_measuring_first() -> None:
    found = worth({"kernels": 0.1, "links": 0.4, "run": 0.1})
    assert found is not None
    assert found["parts"][0]["part"] == "links"
    assert found["parts"][0]["error"] < 0.16
    assert found["error"] > 0.4
    assert "fleet.0.link" in found["text"]
    assert worth({}) is None


def test_a_token_costs_what_the_fleet_costs_while_it_serves_the_rate() -> None:
    found = planned()
    for fleet, each in zip(document(found)["fleets"], found.best, strict=True):
        figures, traffic = each.at_rate.figures, traffic_of(found.scenario)
        per_hour = found.question.rate * 3600 * traffic.outputs.mean()
        usd = fleet["usd_per_hour"] / per_hour * 1e6
        assert fleet["usd_per_million_output_tokens"] == pytest.approx(usd)
        all_tokens = traffic.outputs.mean() + traffic.prompts.mean()
        of_all = usd * traffic.outputs.mean() / all_tokens
        assert fleet["usd_per_million_tokens"] == pytest.approx(of_all)
        # a run of these lengths costs the same but for the lengths that it drew by chance
        assert figures["usd_per_million_output_tokens"] == pytest.approx(usd, rel=0.05)


@pytest.mark.parametrize(
    ("slower", "predicted", "faster", "word"),
    [
        ("holds", "holds", "holds", "holds"),
        ("fails", "holds", "holds", "holds, unsure"),
        ("too close to call", "holds", "holds", "holds, unsure"),
        ("fails", "too close to call", "holds", "too close to call"),
        ("fails", "fails", "holds", "fails, unsure"),
        ("fails", "fails", "fails", "fails"),
    ],
)
def test_what_is_left_of_a_fleet_is_judged_at_the_end_of_the_band_that_could_differ(
    monkeypatch: pytest.MonkeyPatch, slower: str, predicted: str, faster: str, word: str
) -> None:
    at = {1.25: slower, 1.0: predicted, 0.8: faster}
    seen = lambda end, *_: SimpleNamespace(outcome=LoadOutcome(at[end.iterations]))  # noqa: E731
    monkeypatch.setattr(fleet_ends, "lasting", seen)
    band = TimeBand(0.25, 0.25)
    assert held_within_band(lambda end: end, 60.0, 2, band).text == word  # type: ignore[arg-type, return-value]
    assert held_within_band(lambda end: end, 60.0, 2, None).text == predicted  # type: ignore[arg-type, return-value]


def test_an_engine_of_nvidia_alone_is_not_started_on_amd() -> None:
    engines = set(launch_commands(small(**{"fleet": {"gpu": "mi300x"}})))
    assert engines == {"vllm", "sglang", "notes"}
    assert "tensorrt-llm" in launch_commands(small(**{"fleet": {"gpu": "h100-sxm"}}))


def test_a_month_of_energy_is_that_of_the_tokens_of_the_rate() -> None:
    found = planned()
    for fleet, each in zip(document(found)["fleets"], found.best, strict=True):
        figures = each.at_rate.figures
        outputs = traffic_of(found.scenario).outputs.mean()
        month = found.question.rate * outputs * fleet["usd_per_month"] / fleet["usd_per_hour"]
        joules = fleet["joules_per_output_token"] * month * 3600
        assert fleet["kwh_per_month"] * 3.6e6 == pytest.approx(joules)
        assert figures["joules_per_output_token"] == pytest.approx(
            fleet["joules_per_output_token"], rel=0.05
        )
        # the run goes on until its last answer, with GPUs that have less and less to do
        assert fleet["mean_watts_per_gpu"] > (figures["mean_watts_per_gpu"] or 0)


def test_the_front_has_no_fleet_that_is_dearer_and_slower() -> None:
    sized = planned().sized
    on = front(sized, "slo_ttft_ms")
    assert on[0]  # the cheapest is always on it
    best = min(sized, key=lambda each: each.at_target.figures["slo_ttft_ms"] or 0.0)
    assert on[sized.index(best)]
    for mine, is_on in zip(sized, on, strict=True):
        beaten = any(
            o.cost < mine.cost
            and (o.at_target.figures["slo_ttft_ms"] or 0)
            < (mine.at_target.figures["slo_ttft_ms"] or 0)
            for o in sized
        )
        assert not (is_on and beaten)


@pytest.mark.slow
def test_constraints_rule_out_fleets() -> None:
    asked = quick(ttft="300ms", tpot="40ms")
    few = {"gpus": GPUS[:2], "top": 4, "sizes": (1,)}
    free = choose(asked, question(asked, 30.0, **few))
    dearest = free.sized[-1]
    limit = f"cost<{dearest.cost - 0.01:.2f}/h"
    found = choose(asked, question(asked, 30.0, **few, constraint=limit))
    assert dearest.layout not in {each.layout for each in found.sized}
    out = next(each for each in found.rejected if each.layout == dearest.layout)
    assert out.reason == "constraint"
    assert "more than $" in out.text
    with pytest.raises(InfeasibleError, match="no fleet holds") as caught:
        choose(asked, question(asked, 60.0, constraint="cost<0.01/h"))
    assert caught.value.exit_code == 3
    assert str(caught.value).count("\n") == len(GPUS) * len(SIZES)


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        ("gpus<=1", "constraint"),
        ("replicas<=1", "constraint"),
        ("ttft:p50<1ms", "TTFT missed at any load"),
        ("e2el:p50<100ms", "E2EL missed at any load"),
    ],
)
def test_every_kind_of_constraint_is_kept_to(constraint: str, reason: str) -> None:
    asked = quick(ttft="300ms", tpot="40ms")
    q = question(asked, 150.0, gpus=("a10g",), sizes=(1,), constraint=constraint)
    with pytest.raises(InfeasibleError, match=f"1 x a10g: {reason}"):
        choose(asked, q)


@pytest.mark.slow
def test_a_constraint_in_between_takes_more_replicas() -> None:
    asked = quick(ttft="300ms", tpot="40ms")
    few = {"gpus": ("l40s",), "sizes": (1,)}
    (free,) = choose(asked, question(asked, 10.0, **few)).best
    times = simulate(
        asked.override({**free.sized.layout.settings(asked), "workload.arrivals.rate": 0.1})
    ).record.e2el
    limit = f"e2el:p50<{1.15 * float(np.median(times)):.4f}s"
    found = choose(asked, question(asked, 10.0, **few, constraint=limit))
    assert found.best[0].sized.replicas > free.sized.replicas
    texts = [each.objective.text for each in found.best[0].at_rate.attained]
    assert any(text.startswith("50% of requests within E2EL") for text in texts)


def test_lone_requests_are_priced_as_they_are_simulated() -> None:
    asked = scenario(ttft="300ms").override({"workload.arrivals": {"kind": "poisson", "rate": 0.1}})
    setup = prepare(asked)
    replica = setup.only
    lone = alone(replica, acceptable(replica, traffic_of(asked)))
    run = simulate(asked).record
    assert lone.ttft.mean() == pytest.approx(run.ttft.mean(), rel=0.05)
    assert lone.tpot.mean() == pytest.approx(run.tpot.mean(), rel=0.05)


@pytest.mark.slow
def test_precisions_are_choices() -> None:
    asked = quick(ttft="300ms", tpot="40ms")
    q = question(asked, 10.0, top=4, gpus=("h100-sxm",), sizes=(1,), kinds=("fp8", "bf16", "int4"))
    assert [layout.text for layout in q.layouts] == [
        "1 x h100-sxm, fp8",
        "1 x h100-sxm, bf16",
        "1 x h100-sxm, int4",
    ]
    settings = q.layouts[2].settings(asked)
    assert settings["precision.weights"] == "int4"
    assert settings["precision.activations"] == "bf16"
    found = choose(asked, q)
    commands = {each.sized.layout.precision: each for each in found.best}
    assert set(commands) == {"fp8", "bf16", "int4"}


STORED_ONLY = "a100-pcie has no fp8 units: weights are stored in fp8 and computed in bf16."


@pytest.mark.slow
def test_a_format_that_a_gpu_lacks_is_said() -> None:
    """In the row, below the tables, beside the commands and on the page."""
    from rich.console import Console

    asked = quick(ttft="300ms", tpot="40ms")
    q = question(asked, 10.0, top=2, gpus=("a100-pcie", "h100-sxm"), sizes=(1,), kinds=("fp8",))
    told = document(choose(asked, q))
    notes = {fleet["gpu"]: fleet["format_note"] for fleet in told["fleets"]}
    assert notes == {"a100-pcie": STORED_ONLY, "h100-sxm": None}
    assert told["format_notes"] == [STORED_ONLY]
    for fleet in told["fleets"]:
        said = any(STORED_ONLY in note for note in fleet["launch"]["notes"])
        assert said == (fleet["gpu"] == "a100-pcie")
        assert "--quantization fp8" in fleet["launch"]["vllm"]
    console = Console(width=200, color_system=None)
    with console.capture() as captured:
        console.print(plan_view(told))
    assert captured.get().count(STORED_ONLY) == 1
    assert render_plan(told).count(STORED_ONLY) == 1


def test_what_is_said_of_a_gpu_is_not_said_of_another() -> None:
    """No PCIe card has the NVLink of an H100, nor 500 W to be limited to."""
    asked = small(fleet__link={"kind": "nvlink"}, fleet__power_limit="500W")
    own, other = (asked.override(Candidate(gpu, 2, None).settings(asked)) for gpu in GPUS[:2])
    assert (own.only_pool.link, own.only_pool.power_limit) == (asked.only_pool.link, 500)
    assert (other.only_pool.link, other.only_pool.power_limit) == (None, None)


def test_all_gpus_are_those_of_the_catalogue_that_have_a_price() -> None:
    found = cards(quick(), ["all"])
    assert {"h100-sxm", "mi300x", "l4"} <= set(found)
    assert {name for name in names("gpus") if gpu(name).price is None}.isdisjoint(found)
    assert {each.gpu for each in layouts(quick(), ["all"], [1], [])} == set(found)
    assert cards(quick(), ["l4", "a10"]) == ["l4", "a10"]  # without a price, but named


def test_a_price_of_one_gpu_is_not_that_of_another() -> None:
    asked = scenario(ttft="300ms").override({"fleet.0.price_per_gpu_hour": 1.25})
    own, other = (asked.override(Candidate(gpu, 1, None).settings(asked)) for gpu in GPUS[:2])
    assert own.fleet[0].price_per_gpu_hour == 1.25
    assert other.fleet[0].price_per_gpu_hour == "catalogue"


@pytest.mark.parametrize(
    ("router", "says"),
    [
        ("least-outstanding", "least-outstanding (the one with the fewest unfinished requests)."),
        ("round-robin", "round-robin (the replicas take turns)."),
    ],
)
def test_several_replicas_need_a_router_with_the_policy_simulated(router: str, says: str) -> None:
    told = launch_commands(small(fleet__0__replicas=2, router=router))["notes"]
    assert any(note.endswith(f"behind a router with the policy {says}") for note in told)


def test_the_engine_simulated_comes_first() -> None:
    for engine, title in (("vllm@0.13", "vLLM"), ("tensorrt-llm", "TensorRT-LLM")):
        made = launch_commands(small(engine=engine))
        assert next(iter(made)) == engine.removesuffix("@0.13")
        assert any(title in note and "simulated" in note for note in made["notes"])
        assert set(made) == {"vllm", "sglang", "tensorrt-llm", "notes"}
    assert not any("first" in note for note in launch_commands(small(engine="ideal"))["notes"])


@pytest.mark.parametrize(
    ("word", "weights", "experts", "activations"),
    [
        ("bf16/mxfp4", "bf16", "mxfp4", "bf16"),
        ("bf16/nvfp4", "bf16", "nvfp4", "nvfp4"),
        ("fp8/nvfp4", "fp8", "nvfp4", "fp8"),
        ("fp8", "fp8", None, "fp8"),
    ],
)
def test_a_precision_may_be_of_the_experts_too(
    word: str, weights: str, experts: str | None, activations: str
) -> None:
    asked = small(model="qwen3-30b-a3b")
    (found,) = layouts(asked, ["b200-sxm"], [1], [word])
    assert found.text == f"1 x b200-sxm, {word}"
    precision = asked.override(found.settings(asked)).precision
    assert (precision.weights, precision.experts, precision.activations) == (
        weights, experts, activations,
    )  # fmt: skip


def test_a_precision_of_experts_that_there_are_none_of_is_no_layout() -> None:
    asked = small()
    (found,) = layouts(asked, ["h100-sxm"], [1], ["bf16/mxfp4"])
    rejected = screen(asked, found, 1.0, slo_objectives(asked), read_constraints(None))
    assert isinstance(rejected, Rejected)
    assert "has no experts to store in mxfp4" in rejected.text
    with pytest.raises(UsageError, match="mxfp5"):
        layouts(asked, ["h100-sxm"], [1], ["bf16/mxfp5"])


def test_launch_commands_say_what_was_simulated() -> None:
    asked = load_scenario(
        {
            "model": "llama-3.1-70b",
            "fleet": {"gpu": "h100-sxm", "tensor_parallel": 4, "replicas": 3},
            "precision": {"weights": "fp8", "activations": "fp8", "kv_cache": "fp8"},
            "max_model_len": 16384,
            "scheduler": {"max_num_seqs": 200, "max_num_batched_tokens": 4096},
            "workload": small().resolved()["workload"],
        }
    )
    made = launch_commands(asked)
    vllm, sglang = shlex.split(made["vllm"]), shlex.split(made["sglang"])
    assert vllm[:3] == ["vllm", "serve", "meta-llama/Llama-3.1-70B"]
    for option, value in {
        "--tensor-parallel-size": "4",
        "--quantization": "fp8",
        "--kv-cache-dtype": "fp8",
        "--max-model-len": "16384",
        "--max-num-seqs": "200",
        "--max-num-batched-tokens": "4096",
    }.items():
        assert vllm[vllm.index(option) + 1] == value
    memory = prepare(asked).only.capacity
    kept = float(sglang[sglang.index("--mem-fraction-static") + 1])
    used = memory.weights + memory.num_gpu_blocks * 16 * memory.kv_bytes_per_token
    assert used / memory.memory - 0.001 <= kept <= used / memory.memory
    tensorrt = shlex.split(made["tensorrt-llm"])
    assert tensorrt[0] == "trtllm-serve"
    assert tensorrt[tensorrt.index("--max_seq_len") + 1] == "16384"
    share = float(tensorrt[tensorrt.index("--kv_cache_free_gpu_memory_fraction") + 1])
    cache = memory.num_gpu_blocks * 16 * memory.kv_bytes_per_token
    assert share * (memory.memory - memory.taken) == pytest.approx(cache, rel=0.002)
    assert any("3 replicas" in note for note in made["notes"])


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("gpt-oss-20b", "openai/gpt-oss-20b"),
        ("llama-2-7b", "meta-llama/Llama-2-7b-hf"),
        ("qwen3-8b", "Qwen/Qwen3-8B"),
        ("RedHatAI/Qwen3-8B-FP8-dynamic", "RedHatAI/Qwen3-8B-FP8-dynamic"),
    ],
)
def test_launch_commands_name_the_checkpoint(model: str, named: str) -> None:
    made = launch_commands(small(model=model))
    assert f"vllm serve {named} " in made["vllm"]
    assert f"--model-path {named} " in made["sglang"]
    assert f"trtllm-serve {named} " in made["tensorrt-llm"]
    assert "--quantization" not in made["vllm"]  # the checkpoint is stored so
    assert not any("put its name" in note for note in made["notes"])


def test_launch_commands_name_the_folder_of_a_file(tmp_path: Path) -> None:
    config = {
        **{"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_hidden_layers": 4},
        **{"num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 1000},
        **{"max_position_embeddings": 32768},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "config.json"):
        unnamed = launch_commands(small(model=str(path)))
        assert "vllm serve CHECKPOINT " in unnamed["vllm"]
        assert any(note.startswith("CHECKPOINT stands for ") for note in unnamed["notes"])
    (tmp_path / "model.safetensors").touch()
    for path in (tmp_path, tmp_path / "config.json"):
        named = launch_commands(small(model=str(path)))
        assert f"vllm serve {tmp_path} " in named["vllm"]
        assert not any("CHECKPOINT" in note for note in named["notes"])


def test_launch_commands_say_which_format_their_checkpoint_must_have() -> None:
    """vLLM loads a checkpoint in fp8 as it is, whatever its --dtype."""
    wider = small(model="Qwen/Qwen3-32B-FP8", fleet={"gpu": "h200-sxm"}, precision__weights="bf16")
    (note,) = [n for n in launch_commands(wider)["notes"] if "need a checkpoint in bf16" in n]
    assert "published in fp8-block" in note


def test_launch_commands_have_the_rule_simulated() -> None:
    """Of the engine whose rule it is, and of no other."""
    workload = small().resolved()["workload"]

    def made(**knobs: object) -> dict[str, Any]:
        asked = {"model": "llama-3.1-8b", "fleet": {"gpu": "h100-sxm"}, "scheduler": knobs}
        return launch_commands(load_scenario(asked | {"workload": workload}))

    mixed = made(policy="sglang", enable_mixed_chunk=True, schedule_conservativeness=0.5)
    assert "--page-size 16 --enable-mixed-chunk --schedule-conservativeness 0.5" in mixed["sglang"]
    assert "overlap" not in mixed["sglang"]
    assert "async" not in mixed["vllm"]
    plain = made(policy="sglang", async_scheduling=False, chunked_prefill=False)
    assert plain["sglang"].endswith("--max-prefill-tokens 16384 --disable-overlap-schedule")
    less = made(policy="sglang", max_prefill_tokens=5500, max_num_batched_tokens=8192)
    assert "--max-prefill-tokens 5500" in less["sglang"]
    assert "--no-async-scheduling" in made(async_scheduling=False)["vllm"]
    assert "page-size" not in made()["sglang"]
    whole, older = made(chunked_prefill=False), made(policy="vllm-v0")
    assert "--no-enable-chunked-prefill" in whole["vllm"]
    assert any("`policy: vllm-v0` was simulated" in note for note in older["notes"])
    assert not any("vllm-v0" in note for note in whole["notes"])


@pytest.mark.parametrize(
    ("release", "set_on", "set_off"),
    [
        ("0.11", ["--async-scheduling", "--scheduler-reserve-full-isl"], []),
        ("0.15", ["--scheduler-reserve-full-isl"], ["--no-async-scheduling"]),
        ("0.33", [], ["--no-async-scheduling", "--no-scheduler-reserve-full-isl"]),
    ],
)
def test_launch_commands_leave_out_what_the_release_does_by_itself(
    release: str, set_on: list[str], set_off: list[str]
) -> None:
    def flags(**changes: Any) -> list[str]:
        words = launch_commands(small(engine=f"vllm@{release}", **changes))["vllm"].split()
        named = ("async-scheduling", "scheduler-reserve-full-isl", "block-size")
        return sorted(word for word in words if word.endswith(named))

    def both(on: bool) -> dict[str, bool]:
        return {"async_scheduling": on, "scheduler_reserve_full_isl": on}

    assert flags() == []
    assert flags(kv_cache__block_size=32) == ["--block-size"]
    assert flags(scheduler=both(True)) == set_on
    assert flags(scheduler=both(False)) == set_off


@pytest.mark.parametrize("backend", [None, "triton"])
def test_launch_commands_have_the_attention_simulated(backend: str | None) -> None:
    """A cache in e4m3, which SGLang's usual attention takes, would not bring Triton."""
    asked = {"model": "llama-3.1-8b", "fleet": {"gpu": "h200-sxm"}, "engine": "sglang"}
    asked["attention_backend"] = backend
    asked["precision"] = {"kv_cache": "fp8"}
    made = launch_commands(load_scenario(asked | {"workload": small().resolved()["workload"]}))
    assert "--kv-cache-dtype fp8_e4m3" in made["sglang"]
    assert ("--attention-backend triton" in made["sglang"]) == (backend == "triton")


def test_launch_commands_have_the_experts_simulated() -> None:
    asked = {"model": "gpt-oss-120b", "fleet": {"gpu": "h100-sxm", "tensor_parallel": 2}}
    asked |= {"workload": small().resolved()["workload"]}
    usual = launch_commands(load_scenario(asked))["vllm"]
    other = launch_commands(load_scenario(asked | {"moe_backend": "marlin"}))["vllm"]
    assert "--moe-backend" not in usual
    assert "--moe-backend marlin" in other


def test_launch_commands_spread_experts_as_simulated() -> None:
    """vLLM knows all GPUs or none, the others a number; what vLLM cannot do is said."""

    def made(experts: object) -> dict[str, Any]:
        fleet = {"gpu": "h200-sxm", "tensor_parallel": 4, "expert_parallel": experts}
        asked = {"model": "qwen3-30b-a3b", "fleet": fleet, "max_model_len": 8192}
        return launch_commands(load_scenario(asked | {"workload": small().resolved()["workload"]}))

    whole, none, groups = made(True), made(False), made(2)
    assert "--enable-expert-parallel" in whole["vllm"]
    assert "--ep-size 4" in whole["sglang"]
    assert "--ep_size 4" in whole["tensorrt-llm"]
    assert not any("ep" in word for word in none["vllm"].split() if word.startswith("--e"))
    assert "ep_size" not in none["tensorrt-llm"]
    assert any("not over groups of 2" in note for note in groups["notes"])
    assert not any("groups" in note for note in whole["notes"])


def test_launch_commands_have_the_data_ranks_simulated() -> None:
    """SGLang counts all GPUs as tensor ranks, and shares the limits of a batch out among ranks."""
    fleet = {"gpu": "h200-sxm", "tensor_parallel": 2, "data_parallel": 4, "expert_parallel": True}
    asked = {"model": "qwen3-30b-a3b", "fleet": fleet, "max_model_len": 8192}
    asked["scheduler"] = {"max_num_seqs": 256}
    made = launch_commands(load_scenario(asked | {"workload": small().resolved()["workload"]}))
    assert (
        "--tensor-parallel-size 2 --data-parallel-size 4 --enable-expert-parallel" in made["vllm"]
    )
    assert "--tp-size 8 --dp-size 4 --enable-dp-attention --ep-size 8" in made["sglang"]
    assert "--max-running-requests 1024" in made["sglang"]
    assert "--tp_size 8 --ep_size 8" in made["tensorrt-llm"]
    assert any("enable_attention_dp" in note for note in made["notes"])


def command(tmp_path: Path, *arguments: str, asked: Scenario | None = None) -> Any:
    path = tmp_path / "small.yaml"
    written = asked or quick(ttft="300ms", tpot="40ms")
    path.write_text(written.to_yaml(), encoding="utf-8")
    out = tmp_path / f"out-{len(list(tmp_path.iterdir()))}"
    return CliRunner().invoke(app, ["plan", str(path), "--jobs", "1", "-o", str(out), *arguments])


def test_the_command_writes_before_it_prints(tmp_path: Path) -> None:
    arguments = ("--gpus", "h100-sxm,l40s", "--tensor-parallel", "1", "--rate", "2x", "--json")
    done = command(tmp_path, *arguments)
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    saved = json.loads((Path(printed["directory"]) / "result.json").read_text("utf-8"))
    assert printed["rate"] == saved["rate"] == 40.0
    page = Path(printed["page"]).read_text("utf-8")
    assert saved["fleets"][0]["layout"] in page
    assert "vllm serve" in page
    assert "infersim export PLAN --to kubernetes" in page
    assert f"infersim run {shlex.quote(saved['file'])} --set" in page
    assert "SCENARIO" not in page


def test_the_command_of_a_fleet_repeats_the_overrides(tmp_path: Path) -> None:
    arguments = ("--gpus", "h100-sxm", "--tensor-parallel", "1", "--rate", "35.5", "--no-report")
    given = "slo={ttft: 280ms, attainment: 0.9}"
    done = command(tmp_path, *arguments, "--set", given)
    assert done.exit_code == 0, done.output
    assert "1 replica of 1 x h100-sxm (1 GPU)" in done.stdout
    begin = done.stdout.index("infersim run")
    words = shlex.split(done.stdout[begin : done.stdout.index("\nRun:")].replace("\\\n", " "))
    assert words[:2] == ["infersim", "run"]
    again = load_scenario(words[2], [word for word in words[3:] if word != "--set"])
    expected = load_scenario(words[2], [given, "workload.arrivals.rate=35.5"])
    assert again.slo == expected.slo
    assert again.workload == expected.workload
    assert again.fleet[0].gpu == "h100-sxm"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--gpus", ""], 2, "--gpus"),
        (["--gpus", "h100-sxm,,l40s"], 2, "--gpus"),
        (["--gpus", "h100sxm"], 2, "h100-sxm"),
        (["--gpus", "l40s", "--tensor-parallel", "0"], 2, "--tensor-parallel"),
        (["--gpus", "l40s", "--tensor-parallel", "two"], 2, "--tensor-parallel"),
        (["--gpus", "l40s", "--rate", "0"], 2, "--rate"),
        (["--gpus", "l40s", "--headroom", "-0.5"], 2, "--headroom"),
        (["--gpus", "l40s", "--top", "0"], 2, "--top"),
        (["--gpus", "l40s", "--jobs", "0"], 2, "--jobs"),
        (["--gpus", "l40s", "--precision", "fp7"], 2, "fp7"),
        (["--gpus", "l40s", "--constraint", "cost<1;cost<2"], 2, "twice"),
        (["--gpus", "l40s", "--set", "workload.arrivals={kind: burst}"], 2, "no rate"),
        (["--gpus", "a10g", "--tensor-parallel", "1", "--set", "model=llama-3.1-70b"], 3, "fit"),
        (["--gpus", "l40s", "--set", "slo.tpot=1us"], 3, "TPOT missed at any load"),
    ],
)
def test_questions_without_an_answer_get_one_clear_sentence(
    arguments: list[str], code: int, told: str, tmp_path: Path
) -> None:
    done = command(tmp_path, *arguments)
    assert done.exit_code == code, done.output
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    written = [path.name for path in tmp_path.glob("out-*/*")]
    assert written == (["why-not.html"] if code == 3 else [])


def test_without_promises_the_fleet_is_stable() -> None:
    asked = small(slo={}, run__requests=300)
    found = choose(asked, question(asked, 60.0, gpus=("h100-sxm", "a10g"), sizes=(1,)))
    assert all(each.sized.at_target.state == "stable" for each in found.best)
    assert document(found)["criterion"] == "stable"


def test_the_table_fits_the_terminal() -> None:
    from rich.console import Console

    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(plan_view(document(planned())))
    text = captured.get()
    assert "Cheapest" in text
    assert "could be" in text
    assert max(map(len, text.splitlines())) <= 88
    begin = text.index("vllm serve")
    shown = text[begin : text.index("SGLang:")].replace("\\\n", " ")
    assert shlex.split(shown) == shlex.split(document(planned())["fleets"][0]["launch"]["vllm"])


def test_the_figure_shows_every_fleet_that_holds() -> None:
    made = made_up.fleet_plan()
    drawn = chart(cost_and_latency(made, "ttft"))
    dots = [trace for trace in drawn.data if "markers" in trace.mode]
    assert sum(len(trace.x) for trace in dots) == len(made["sized"])
    assert list(drawn.data[0].y) == [470.0, 380.0, 300.0]


def test_a_page_shows_names_as_text() -> None:
    written = document(planned())
    page = render_plan({**written, "scenario": "<script>alert(1)</script>"})
    assert "<script>alert(1)" not in page


def test_the_words_of_a_fleet_of_one_replica() -> None:
    asked = small(run__requests=150)
    told = document(choose(asked, question(asked, 2.0, gpus=["h100-sxm"], sizes=[1])))
    assert told["fleets"][0]["replicas"] == 1
    assert "1 replica holds, be iterations" in told["ranking"]["text"]
    assert told["asked"]["changes"] == []  # of the scenario; one run a fleet is plan's own choice


def test_no_note_on_the_page_of_a_plan_ends_twice() -> None:
    asked = small(engine="vllm@0.99", run__requests=100, slo__tpot="100ms")
    made = document(choose(asked, question(asked, 2.0, gpus=["l40s"], sizes=[1])))
    assert any(note.endswith(".") for note in made["fleets"][0]["notes"])
    page = render_plan(made)
    assert "its predictions are off is not known.<" in page
    assert "your server has.." not in page


def experts(**changes: object) -> Scenario:
    """The small question of a model with experts."""
    return small(model=str(MODELS / "tiny-experts"), **changes)


def test_layouts_of_experts_are_cut_and_whole_wherever_gpus_share_them() -> None:
    made = layouts(experts(), ["h100-sxm"], [1, 2], [], [1, 4])
    assert [each.text for each in made] == [
        "1 x h100-sxm",
        "4 x h100-sxm (DP 4)",
        "4 x h100-sxm (DP 4, EP)",
        "2 x h100-sxm",
        "2 x h100-sxm (EP)",
        "8 x h100-sxm (TP 2 x DP 4)",
        "8 x h100-sxm (TP 2 x DP 4, EP)",
    ]
    assert [each.gpus for each in made] == [1, 4, 4, 2, 2, 8, 8]
    only = layouts(experts(), ["h100-sxm"], [2], [], whole_experts=[True])
    assert [each.text for each in only] == ["2 x h100-sxm (EP)"]
    dense = layouts(small(), ["h100-sxm"], [1, 2], [])
    assert [each.text for each in dense] == ["1 x h100-sxm", "2 x h100-sxm"]


def test_a_layout_of_experts_is_simulated_as_it_says() -> None:
    own = experts(fleet__0__data_parallel=2, fleet__0__expert_parallel=2)
    for made in layouts(own, ["h100-sxm"], [1, 2, 4], [], [1, 2]):
        layout = own.override(made.settings(own)).only_pool.layout
        assert (layout.tensor, layout.data) == (made.tensor_parallel, made.data_parallel)
        assert layout.expert == (made.gpus if made.whole_experts else 1)
    same = layouts(own, ["h100-sxm"], [1], [])
    assert {each.data_parallel for each in same} == {2}


@pytest.mark.slow
def test_plan_ranks_layouts_of_experts(tmp_path: Path) -> None:
    """Data ranks of a dense model are told off; those of experts are sized, paid by the GPU."""
    options = "--gpus h100-sxm --tensor-parallel 1 --data-parallel 1,2 --rate 3 --top 1 --json"
    asked = experts(run__requests=60, workload__output_tokens={"kind": "fixed", "value": 4})
    done = command(tmp_path, *options.split(), "--jobs", "1", "--no-report", asked=asked)
    found = json.loads(done.stdout)
    seen = {each["layout"]: each for each in found["fleets"] + found["rejected"]}
    assert seen.keys() == {each.text for each in layouts(asked, ["h100-sxm"], [1], [], [1, 2])}
    for fleet in found["fleets"]:
        gpus = fleet["tensor_parallel"] * fleet["data_parallel"]
        assert fleet["gpus"] == gpus * fleet["replicas"]
        assert ("--enable-expert-parallel" in fleet["launch"]["vllm"]) == bool(
            fleet["expert_parallel"]
        )
    dense = screen(small(), Candidate("h100-sxm", 1, None, 2), 3.0, (), read_constraints(None))
    assert isinstance(dense, Rejected)
    assert "no experts that 2 ranks could share" in dense.text


def test_a_fleet_that_survives_a_failure_holds_its_rate_with_one_replica_less() -> None:
    asked = quick(ttft="2s", tpot="60ms")
    plain = question(asked, 40.0, gpus=GPUS[:2], sizes=(1,))
    spare = replace(plain, constraints=replace(plain.constraints, survive=1))
    usual, sure = (choose(asked, each) for each in (plain, spare))
    best = sure.best[0].sized
    assert best.survivors is not None
    assert best.survivors.holds
    assert best.survivors.load == 40.0
    assert usual.best[0].sized.survivors is None
    fewest = min(each.replicas for each in usual.sized if each.layout == best.layout)
    assert fewest <= best.replicas <= fewest + 1
    (fleet,) = document(sure)["fleets"]
    assert fleet["survivors"]["replicas"] == best.replicas - 1
    told = " ".join(as_text(plan_view(document(sure))).split())
    left = f"with 1 replica gone, {best.replicas - 1}"
    one_down = sure.ends[0].one_down
    assert one_down is not None
    judged = "are too close to call at" if one_down.predicted == LoadOutcome.OPEN else "hold"
    assert f"{left} {judged} 40 requests/s" in told


@pytest.mark.parametrize("survive", [0, 1])
def test_a_fleet_without_a_replica_is_judged_as_a_run_of_what_is_left_is(survive: int) -> None:
    """At the rate asked for, by both ends of the error band, in the table and in the text."""
    asked = question(quick(ttft="2s", tpot="60ms"), 200.0, gpus=GPUS[:1], sizes=(1,))
    limits = replace(asked.constraints, survive=survive)
    found = choose(quick(ttft="2s", tpot="60ms"), replace(asked, constraints=limits))
    (best,) = found.best
    made = document(found)
    table = by_card(made)
    assert table.columns[-2].title == "1 replica down"
    assert "; how sure it is to hold 200 requests/s" in table.caption
    left = {**made["fleets"][0]["settings"], "fleet.replicas": best.sized.replicas - 1}
    run = simulate(found.scenario.override({**left, "run.requests": 8000})).shown
    verdict = run["infersim"]["verdict"]
    word = "holds" if verdict["slo_met"] else "fails"
    if verdict["slo_state"] == "too close to call":
        word = f"{word}, unsure" if verdict["slo_doubts"] == ["band"] else "too close to call"
    assert table.rows[0][-2].text == word
    one = best.sized.replicas == 2
    holds, fails = ("holds", "does not hold") if one else ("hold", "do not hold")
    said = {"h": f"{holds} 200", "f": f"{fails} 200", "t": "too close to call at 200"}
    assert said[word[0]] in made["survive"]["text"][0]


@pytest.mark.parametrize("disaggregate", [False, True])
def test_replicas_that_are_steered_are_refused(disaggregate: bool) -> None:
    steered = small(steering={"steps": [{"at": "5s", "do": "drain"}]})
    with pytest.raises(UsageError, match="simulated by `run`, `compare` and `sweep`"):
        sim.plan(steered, ["h100-sxm"], tensor_parallel=[1], rate=2, disaggregate=disaggregate)


def test_each_card_and_format_has_its_best_fleet_or_the_reason_against_it() -> None:
    """Two fleets of H100s hold, the dearer in another format; nothing of an L4 does."""
    made = made_up.fleet_plan()
    one = {
        **made["sized"][0],
        "gpu": "h100-sxm",
        "layout": "2 x h100-sxm",
        "gpus": 8,
        "replicas": 4,
    }
    cheap = {
        **one,
        "usd_per_hour": 10.0,
        "usd_per_month": 7300.0,
        "trust": "sure",
        "one_down": "holds",
        "rate_of_a_replica": 20.0,
    }
    dear = {**one, "usd_per_hour": 12.0, "usd_per_month": 8760.0}
    other = {**dear, "precision": "fp8"}
    alone = {
        **other,
        "precision": "int4",
        "one_down": None,
        "replicas": 1,
        "gpus": 2,
        "usd_per_hour": 13.0,
    }
    lost = {"layout": "1 x l4", "gpu": "l4", "precision": "fp8", "reason": "TTFT missed"}
    dearer = {**lost, "gpu": "l40s", "reason": "more expensive"}
    rejected = [
        {**lost, "usd_per_hour": 2.0},
        {**dearer, "usd_per_hour": 9.0},
        {**dearer, "usd_per_hour": 3.0},
    ]
    table = by_card({**made, "sized": [dear, cheap, other, alone], "rejected": rejected})
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["h100-sxm", "4 x 2 GPUs", "7,300", *_latencies(cheap), "sure", "holds", "~5 x 2"],
        ["h100-sxm", "4 x 2 GPUs, fp8", "8,760", *_latencies(other), "likely", "fails", "~24 x 2"],
        [
            "h100-sxm",
            "1 x 2 GPUs, int4",
            "8,760",
            *_latencies(other),
            "likely",
            "none left",
            "~24 x 2",
        ],
        ["l4", "none in fp8: TTFT missed", "-", "-", "-", "-", "-", "-"],
        ["l40s", "none in fp8: more expensive", "from 2,190", "-", "-", "-", "-", "-"],
    ]


@pytest.mark.parametrize(("survive", "replicas"), [(0, 2), (1, 3), (2, 4)])
def test_twice_the_load_is_held_without_the_replicas_that_may_fail(
    survive: int, replicas: int
) -> None:
    """A replica holds 9.18 requests/s: twice 5, 12 with headroom, take two, and 10 take two that
    are left."""
    fleet = {"rate_of_a_replica": 9.18}
    asked = {"rate": 5.0, "target": 6.0, "survive": {"replicas": survive}}
    assert replicas_at(asked, fleet, 2) == replicas


@pytest.mark.parametrize(("cards", "left"), [(7, ""), (8, "(10 of 11)")])
def test_first_lines_have_each_card_asked_for_or_say_how_many_they_leave_out(
    cards: int, left: str
) -> None:
    made = made_up.fleet_plan()
    names = [f"other-{number}" for number in range(cards)]
    lost = {"precision": None, "reason": "TTFT missed", "usd_per_hour": None}
    rejected = [{**lost, "gpu": name, "layout": f"1 x {name}", "text": ""} for name in names]
    told = as_text(command_view("plan", {**made, "rejected": rejected}, full=False))
    assert len({fleet["gpu"] for fleet in made["sized"]}) == 3
    assert all((f"{name} " in told) == (place < 7) for place, name in enumerate(names))
    assert (" of 11)" in told) == bool(left)
    assert left in told


def _latencies(fleet: Mapping[str, Any]) -> list[str]:
    return [milliseconds(fleet[f"slo_{name}_ms"]) for name in ("ttft", "tpot")]


def test_cost_over_load_is_in_whole_replicas_and_one_more_to_spare() -> None:
    """A replica holds 4 requests/s: 48, which is 40 with headroom, take 12, four times as many 48.
    A step is where so many replicas hold no more."""
    made = made_up.fleet_plan()
    one = {**made["sized"][0], "replicas": 12, "rate_of_a_replica": 4.0, "usd_per_replica": 2.0}
    asked = {**made, "rate": 40.0, "target": 48.0, "sized": [one]}
    plain, spare = (line.points for line in growth(asked).series)
    assert plain[0][:2] == (40.0, 24.0)
    assert plain[-1][:2] == (pytest.approx(160.0), 96.0)
    assert plain[2][:2] == (pytest.approx(13 * 4 / 1.2), 26.0)
    assert {more.y - usd.y for usd, more in zip(plain, spare, strict=True)} == {2.0}
    drawn = chart(growth(asked)).data
    assert len(drawn) == 2
    assert drawn[0].line.shape == "vh"  # a cost is of the loads up to its own
    five = {**asked, "sized": [{**one, "rate_of_a_replica": 5.0}]}
    survives = growth({**five, "survive": {"replicas": 4, "text": []}}).series[0]
    assert [at.x for at in survives.points[1:4]] == [40.0, 45.0, 50.0]  # those left hold them


def test_a_replica_of_a_ranked_fleet_holds_its_share_of_what_that_was_found_to_hold() -> None:
    """Whatever one holds alone; of other fleets it is between what they hold and what one with a
    replica less does not."""
    found = planned()
    best = found.best[0]
    sized = replace(best.sized, replicas=3, alone=1.0)
    ranked = replace(found, best=(replace(best, sized=sized, best=replace(best.best, load=150.0)),))
    assert _rate_of_a_replica(sized, ranked) == 50.0
    other, target = replace(ranked, best=()), found.question.target
    assert _rate_of_a_replica(sized, other) == pytest.approx(target / 3)
    assert _rate_of_a_replica(replace(sized, alone=1e6), other) == pytest.approx(target / 2)
    assert _rate_of_a_replica(replace(sized, replicas=1, alone=1e6), other) == 1e6
    written = document(found)
    page = render_plan(written).replace("\u202f", "")
    assert f"holds the load with {found.question.headroom:.0%} headroom;" in page
    held = {each["layout"]: each["rate_of_a_replica"] for each in written["sized"]}
    for each in written["fleets"]:
        assert held[each["layout"]] == each["rate_at_slo"] / each["replicas"]
