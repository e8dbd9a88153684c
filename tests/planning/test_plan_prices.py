"""What a plan says of prices: whose they are, and at which another fleet is the cheapest."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from sim.cli import app
from sim.planning.answers.plan_headline import headline
from sim.planning.fleet import plan_prices
from sim.planning.fleet.choose import FleetPlan, choose
from sim.planning.fleet.constraints import read_constraints
from sim.planning.fleet.layouts import Candidate, FleetQuestion, Rejected, layouts
from sim.planning.fleet.plan_document import cheapest_sure, document
from sim.planning.fleet.plan_prices import money
from sim.planning.fleet.sizing import Sized
from sim.scenario import load_scenario
from sim.scenario.prices import GpuPrice
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS, show_load
from tests import made_up
from tests.answers import plan_view, render_plan
from tests.planning_fixtures import small

pytestmark = pytest.mark.usefixtures("brief_answers")

SLO = {"ttft": "300ms", "tpot": "40ms", "attainment": 0.9}


def listed(usd: float, low: float | None = None, high: float | None = None) -> GpuPrice:
    return GpuPrice(usd, "list", "Acme", "2026-11", low, high)


def asked(
    monkeypatch: pytest.MonkeyPatch,
    prices: dict[str, GpuPrice],
    sized: dict[str, int],
    least: dict[str, int] | None = None,
    constraint: str | None = None,
    reason: str = "more expensive",
) -> dict[str, Any]:
    """What is said of fleets of so many GPUs, and of others that need so many at least."""
    monkeypatch.setattr(plan_prices, "gpu_prices", lambda plan: prices)
    fleets = [
        Sized(Candidate(gpu, 1, None), prices[gpu].usd, count, 0.0, None, None)  # type: ignore[arg-type]
        for gpu, count in sized.items()
    ]
    fleets.sort(key=lambda each: each.cost)
    out = tuple(
        Rejected(
            Candidate(gpu, 1, None), reason, "", count * prices[gpu].usd, reason != "constraint"
        )
        for gpu, count in (least or {}).items()
    )
    question = SimpleNamespace(constraints=read_constraints(constraint))
    best = (SimpleNamespace(sized=fleets[0]),)
    plan = SimpleNamespace(sized=tuple(fleets), rejected=out, best=best, question=question)
    return money(plan)  # type: ignore[arg-type]


def test_the_break_even_is_where_the_next_costs_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    prices = {"a": listed(4.0), "b": listed(2.0), "c": listed(1.0)}
    found = asked(monkeypatch, prices, {"a": 3, "b": 7, "c": 20})
    assert found["break_even"]["usd_per_gpu_hour"] == pytest.approx(14 / 3)
    assert found["break_even"]["next"] == "1 x b"
    below = {each["gpu"]: each["wins_below"] for each in found["prices"]}
    assert below == {"a": None, "b": pytest.approx(12 / 7), "c": pytest.approx(12 / 20)}
    assert "a stays the cheapest up to $4.67 per GPU hour ($4 now)" in found["text"]


def test_of_each_gpu_the_fewest_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its price moves all of its fleets, also those that were never simulated."""
    prices = {"a": listed(4.0), "b": listed(2.0)}
    found = asked(monkeypatch, prices, {"a": 3}, least={"b": 7})
    assert "up to at least $4.67" in found["text"]
    assert found["prices"][1]["gpus_proven"] is False
    assert found["prices"][1]["wins_below"] == pytest.approx(12 / 7)


@pytest.mark.parametrize(
    ("a", "b", "survives", "said"),
    [
        (listed(4, 3, 4.2), listed(2, 1.9, 9), True, "At the predicted times a is the cheapest"),
        (listed(4, 3, 5), listed(2, 1.9, 9), False, ": if a costs more than $4.67 (others list"),
        (listed(4, 3, 4.5), listed(2, 1.5), False, ": if b costs less than $1.71 (others"),
        (listed(4, 3, 4.6), listed(2, 1.75), False, ": if a costs $4.60 and b $1.75 at once"),
        (listed(4, 3, 4.5), listed(2), None, "listed (there is no lower price of b)."),
        (listed(4), listed(2, 1.9), None, "listed (there is no higher price of a)."),
        (GpuPrice(4, "given"), listed(2, 1.9), True, "is the cheapest at any listed price of b."),
        (GpuPrice(4, "file"), listed(2, 1.9), True, "is the cheapest at any listed price of b."),
        (GpuPrice(4, "given"), GpuPrice(2, "given"), True, "($4 now), other prices as they are."),
    ],
)  # fmt: skip
def test_the_first_place_survives_listed_prices_or_says_why_not(
    a: GpuPrice, b: GpuPrice, survives: bool | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = asked(monkeypatch, {"a": a, "b": b}, {"a": 3, "b": 7})
    assert found["survives"] is survives
    assert said in found["text"]
    assert ("listed" in found["text"]) == ("list" in (a.origin, b.origin))


def test_what_a_limit_of_cost_keeps_out_may_win_at_a_lower_price(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prices = {"a": listed(4.0, 3, 4.1), "b": listed(2.0, 1.0, 2.5)}
    out = {"least": {"b": 7}, "reason": "constraint"}
    found = asked(monkeypatch, prices, {"a": 3}, constraint="cost<13/h", **out)
    assert found["survives"] is False
    kept = asked(monkeypatch, prices, {"a": 3}, constraint="gpus<=5;cost<13/h", **out)
    assert kept["survives"] is True  # too many GPUs at any price


def test_alone_there_is_nothing_to_win(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(monkeypatch, {"a": listed(4, 1, 90)}, {"a": 3})
    assert found["break_even"]["usd_per_gpu_hour"] is None
    assert "Only a holds the load" in found["text"]


@cache
def planned_once() -> FleetPlan:
    given: dict[str, object] = {"fleet__0__price_per_gpu_hour": {"l40s": 0.8}}
    scenario = small(run__requests=150, slo=SLO, **given)
    made = layouts(scenario, ["h100-sxm", "l40s"], [1], [])
    return choose(scenario, FleetQuestion(tuple(made), 40.0, 0.1, 2, read_constraints(None)))


@pytest.fixture
def planned(brief_answers: None) -> FleetPlan:
    return planned_once()


def test_prices_given_reach_every_layout(planned: FleetPlan) -> None:
    found = document(planned)
    by_gpu = {each["gpu"]: each for each in found["prices"]}
    assert (by_gpu["l40s"]["usd_per_gpu_hour"], by_gpu["l40s"]["origin"]) == (0.8, "given")
    assert (by_gpu["h100-sxm"]["usd_per_gpu_hour"], by_gpu["h100-sxm"]["origin"]) == (3.99, "list")
    assert by_gpu["h100-sxm"]["provider"] == "RunPod Secure Cloud"
    for fleet in found["fleets"]:
        price = by_gpu[fleet["gpu"]]["usd_per_gpu_hour"]
        assert fleet["usd_per_hour"] == pytest.approx(price * fleet["gpus"])
        assert fleet["usd_per_month"] == pytest.approx(730 * fleet["usd_per_hour"])
        assert fleet["usd_per_year"] == pytest.approx(8760 * fleet["usd_per_hour"])
        assert fleet["usd_per_million_output_tokens"] > fleet["usd_per_million_tokens"]
        again = planned.scenario.override(fleet["settings"]).fleet[0].price_per_gpu_hour
        assert again == (0.8 if fleet["gpu"] == "l40s" else "catalogue")
    assert found["hours"] == {"month": 730, "year": 8760}


@pytest.mark.slow
def test_below_its_price_another_fleet_is_the_cheapest(planned: FleetPlan) -> None:
    """The break-even, checked by planning again on either side of it."""
    found = document(planned)
    edge, first = found["break_even"]["usd_per_gpu_hour"], found["break_even"]["gpu"]
    assert found["break_even"]["proven"]
    for factor, wins in ((0.99, True), (1.01, False)):
        prices = {each["gpu"]: each["usd_per_gpu_hour"] for each in found["prices"]}
        prices[first] = factor * edge
        scenario = planned.scenario.override({"fleet.0.price_per_gpu_hour": prices})
        best = choose(scenario, planned.question).best[0].sized
        assert (best.layout.gpu == first) is wins


def test_terminal_and_page_say_it_all(planned: FleetPlan) -> None:
    found = document(planned)
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(plan_view(found))
    text = captured.get()
    assert max(map(len, text.splitlines())) <= 88
    flat = re.sub(r"\s+", " ", text)
    assert "stays the cheapest up to" in flat
    assert "A month has 730 hours." in flat
    assert "your price" in flat
    assert "list price, RunPod Secure Cloud, Nov 2026" in flat
    page = render_plan(found)
    for said in (PER_OUTPUT_TOKENS, PER_TOKENS, "USD a month", "your price", "Wins below"):
        assert said in page
    stays, others = found["ranking"]["prices"]["text"].split(" per GPU hour", 1)
    assert f"{stays} per GPU hour." in headline(found).text
    assert others in flat
    assert others not in headline(found).text


def test_the_page_does_not_approve_what_prices_may_turn(planned: FleetPlan) -> None:
    found = document(planned)
    found["fleets"][0]["error_band"]["trust"] = "sure"
    sure = {**found["ranking"], "survives": True}
    for survives, tone in ((True, "good"), (None, "good"), (False, "warn")):
        paid = {**found["ranking"]["prices"], "survives": survives}
        assert headline({**found, "ranking": {**sure, "prices": paid}}).tone == tone


def test_the_first_lines_name_the_cheapest_sure_fleet(planned: FleetPlan) -> None:
    found = document(planned)
    first, second = found["fleets"][:2]
    first["error_band"] |= {"trust": "likely", "sure_replicas": 99}
    second["error_band"]["trust"] = "sure"
    found["ranking"]["sure"] = cheapest_sure(found["fleets"])
    rate = f"{show_load(found['rate'])} requests/s"
    told = headline(found)
    named = f"{second['replicas']} replica"
    assert told.title.startswith(f"Cheapest that is sure: {named}")
    assert f"{second['layout']} (" in told.title
    assert told.text.startswith(f"It is sure to hold {rate}. At twice the load about $")
    assert f"but only likely: {first['replicas']} replica" in told.text
    assert told.text == " ".join(told.text.split())
    second["error_band"] |= {"trust": "likely", "sure_replicas": None}
    larger = cheapest_sure([first, second])
    assert larger["text"].startswith("The cheapest that is sure to: #1, 99 replicas of ")
    found["ranking"]["sure"] = larger
    assert headline(found).title.startswith("Cheapest that is sure: 99 replicas of ")
    spare = f"With a replica to spare ${730 * first['usd_per_hour'] / first['replicas'] * 100:,.0f}"
    assert f"{spare} a month (100 replicas)." in headline(found).text
    assert larger["usd_per_hour"] == pytest.approx(first["usd_per_hour"] / first["replicas"] * 99)
    first["error_band"]["sure_replicas"] = None
    found["ranking"]["sure"] = cheapest_sure([first, second])
    assert f"to hold {rate}. No fleet that was tried is sure to." in headline(found).text


def test_the_command_takes_prices_and_its_commands_repeat_them(tmp_path: Path) -> None:
    path, out = tmp_path / "small.yaml", tmp_path / "out"
    path.write_text(small(run__requests=100, slo=SLO).to_yaml(), encoding="utf-8")
    words = ["plan", str(path), "--gpus", "h100-sxm,l40s", "--tensor-parallel", "1", "--json"]
    more = ["--price", "l40s=0.75", "--jobs", "1", "--no-report", "-o", str(out)]
    done = CliRunner().invoke(app, [*words, *more])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    mine = next(each for each in found["fleets"] if each["gpu"] == "l40s")
    assert "--set fleet.0.price_per_gpu_hour=0.75" in mine["run"]
    arguments = [word for word in mine["run"].split() if word != "--set"]
    assert load_scenario(path, arguments).fleet[0].price_per_gpu_hour == 0.75
    wrong = CliRunner().invoke(app, [*words, "--price", "a10g=1", "-o", str(out) + "2"])
    assert wrong.exit_code == 2
    assert "--price a10g: not looked at here, where the GPUs are h100-sxm, l40s" in wrong.stderr


def test_the_first_lines_say_what_more_load_and_a_failure_cost() -> None:
    """The cheapest holds 48 requests/s with headroom, each replica 4: twice as many take 24."""
    made = made_up.fleet_plan()
    best, sized = made["fleets"][0], made["sized"][0]
    mine = best["replicas"]
    sized |= {"layout": best["layout"], "replicas": mine, "one_down": "fails"}
    month = 730 * best["usd_per_hour"] / mine
    assert f"about ${24 * month:,.0f} a month (24 replicas)." in headline(made).text
    spare = f"With a replica to spare ${(mine + 1) * month:,.0f} a month ({mine + 1} replicas)."
    assert spare in (headline(made).brief or "")
    sized["one_down"] = "holds"
    assert "One replica may fail at no extra cost" in headline(made).text
    survived = headline({**made, "survive": {"replicas": 2, "text": []}})
    assert "The price includes 2 replicas to spare." in survived.text
