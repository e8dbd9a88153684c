"""What a comparison says first of fleets that hold different numbers of replicas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.planning.answers.compare import _means
from sim.planning.contrast.compare_words import lines_of, main_headline
from sim.planning.contrast.contrast import ContrastColumn, contrasts
from sim.planning.contrast.fleet_bills import of_fleets


def fleet(
    label: str, usd: float | None, kwh: float, held: float, slo: str | None, within: float
) -> ContrastColumn:
    values = {
        "mean_ttft_ms": 40.0 + usd if usd else 40.0,
        "p99_ttft_ms": 200.0 - usd if usd else 200.0,
        "verdict.attainment": within,
        "request_goodput": 20.0,
        "replicas_held": held,
        "cost.usd": usd,
        "energy.kwh": kwh,
    }
    return ContrastColumn(
        label, {}, {key: [value] for key, value in values.items()}, None, 0, ("stable",), None,
        (slo,),
    )  # fmt: skip


STATIC = fleet("static", 23.94, 3.09, 3.0, "met", 1.0)
HPA = fleet("hpa", 17.99, 2.42, 2.25, "met", 1.0)
LATE = fleet("late", 12.43, 1.6, 1.4, "missed", 0.56)
UNSURE = fleet("unsure", 15.0, 2.0, 1.8, "too close to call", 0.99)


def document(*columns: ContrastColumn) -> dict[str, Any]:
    return {"axes": [], "paired_by": None, **contrasts(columns)}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            (STATIC, HPA),
            "Of those that meet the SLO hpa costs the least: $17.99 and 2.42 kWh for the whole "
            "run; static $23.94 and 3.09 kWh.",
        ),
        (
            (STATIC, LATE),
            "static alone meets the SLO: $23.94 and 3.09 kWh for the whole run; late $12.43 and "
            "1.6 kWh, missed with 56% of requests.",
        ),
        (
            (UNSURE, LATE),
            "None meets the SLO beyond doubt. Whole runs: unsure $15.00 and 2 kWh, too close to "
            "call with 99% of requests; late $12.43 and 1.6 kWh, missed with 56% of requests.",
        ),
        (
            (LATE, fleet("later", 6.0, 0.8, 0.7, "missed", 0.0)),
            "None meets the SLO. Whole runs: late $12.43 and 1.6 kWh, missed with 56% of "
            "requests; later $6.00 and 0.8 kWh, missed with 0% of requests.",
        ),
        (
            (fleet("a", 2.0, 1.0, 1.0, None, 1.0), fleet("b", 1.5, 0.8, 0.7, None, 1.0)),
            "b costs the least: $1.50 and 0.8 kWh for the whole run; a $2.00 and 1 kWh.",
        ),
        ((STATIC, fleet("free", None, 1.0, 1.0, "met", 1.0)), ""),
        ((STATIC, fleet("dear", 30.0, 3.0, 3.0, "met", 1.0)), ""),  # as many replicas
    ],
)
def test_dollars_and_energy_of_those_that_meet_the_slo(
    columns: tuple[ContrastColumn, ...], told: str
) -> None:
    assert of_fleets(document(*columns)) == told


def hourly(column: ContrastColumn, usd: float, served: float = 20.0) -> ContrastColumn:
    """``column`` with what an hour of it costs."""
    return replace(
        column, facts={"hourly_usd": usd, "while_arriving": {"request_throughput": served}}
    )


def test_fleets_that_cost_the_same_an_hour_are_not_ranked_by_what_their_last_answers_cost() -> None:
    """Whole runs of $23.94 and $17.99 differ in how long they drain alone."""
    same = document(hourly(STATIC, 31.92), hourly(HPA, 31.92))
    assert of_fleets(same) == "Both cost $31.92/h and serve the 20 requests/s."
    assert "goodput" not in " ".join(line.text for line in lines_of(same))
    late = document(hourly(STATIC, 31.92), hourly(LATE, 31.92))
    told = "Both cost $31.92/h and serve the 20 requests/s; static alone meets the SLO."
    assert of_fleets(late) == told
    fewer = document(hourly(STATIC, 31.92), hourly(HPA, 31.92, 15.0))
    assert of_fleets(fewer) == "Both cost $31.92/h."
    assert "hpa costs the least" in of_fleets(document(hourly(STATIC, 31.92), hourly(HPA, 29.0)))
    table = _means(same)
    (at,) = [n for n, each in enumerate(table.columns) if each.title == "Cost (USD)"]
    assert [row[at].text for row in table.rows] == ["23.94", "17.99"]
    assert not table.columns[at].on_terminal


def test_an_overloaded_fleet_is_not_the_cheapest_and_one_that_misses_has_no_star() -> None:
    small = replace(fleet("small", 1.0, 0.5, 0.5, None, 1.0), states=("overloaded",))
    up = [fleet(name, usd, 1.0, usd, None, 1.0) for name, usd in (("a", 2.0), ("b", 3.0))]
    told = of_fleets(document(small, *up))
    assert (
        told == "Of those that keep up a costs the least: $2.00 and 1 kWh for the whole run; b "
        "$3.00 and 1 kWh."
    )
    table = _means(document(STATIC, LATE))
    (at,) = [n for n, each in enumerate(table.columns) if each.title == "Cost (USD)"]
    assert [row[at].text for row in table.rows] == ["23.94", "12.43"]


def test_a_page_begins_with_what_differs() -> None:
    """Dollars, not the latency, although the dearer fleet has a lower one."""
    first, further = main_headline(document(STATIC, HPA))
    assert first.text.startswith(
        "Both keep up with the traffic. Of those that meet the SLO hpa costs"
    )
    assert any("lowest TTFT p99" in line for line in further)
    assert not any("costs the least" in line for line in further)
