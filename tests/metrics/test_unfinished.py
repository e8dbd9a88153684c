"""An SLO that only requests miss which the end of a run cut off is not called missed."""

from functools import cache
from typing import Any

from reports.pages.run.slo import limits
from sim import simulate
from sim.metrics.words.slo_text import slo_text
from sim.planning.points.footnote_words import footnotes
from sim.result import Result
from tests.planning_fixtures import small

SLO = {"ttft": "500ms", "tpot": "100ms", "attainment": 0.99}


@cache
def cut_off(**changes: Any) -> Result:
    """Light traffic that ends with some requests running."""
    return simulate(small(slo=SLO, run={"requests": 9000, "horizon": "5s"}, **changes))


def verdict_of(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = result.summary["infersim"]["verdict"]
    return found


def test_what_the_end_cuts_off_leaves_the_slo_open() -> None:
    result = cut_off()
    verdict = verdict_of(result)
    assert result.summary["infersim"]["requests"]["unfinished"] > 0
    assert verdict["attainment_high"] < 0.99
    assert (verdict["slo_met"], verdict["slo_state"]) == (False, "too close to call")
    assert verdict["slo_doubts"] == ["unfinished"]
    assert verdict["first_limit"] is None
    assert "missed all the same" not in verdict["text"]
    text = slo_text(verdict)
    assert text.startswith("SLO too close to call: so far missed, only ")
    assert "Only requests that were not finished when the run ended make it so" in text
    assert "not finished" in footnotes([verdict])[0]
    assert {limit.tone for limit in limits(result.summary).values()} == {"warn"}
    whole = simulate(small(slo=SLO, run={"requests": 1000}))
    assert verdict_of(whole)["slo_state"] == "met"


def test_requests_that_are_late_already_are_missed_whether_finished_or_not() -> None:
    first = 1e3 * float(cut_off().record.ttft[0])
    slow = simulate(
        small(slo={**SLO, "ttft": f"{first / 2}ms"}, run={"requests": 9000, "horizon": "2s"})
    )
    assert verdict_of(slow)["slo_state"] == "missed"
    assert verdict_of(slow)["first_limit"] == "ttft"


def test_a_longer_run_of_an_overload_is_no_better() -> None:
    over = cut_off(workload__arrivals__rate=2000.0)
    assert verdict_of(over)["state"] == "overloaded"
    assert verdict_of(over)["slo_state"] == "missed"


def test_repetitions_that_all_end_too_soon_leave_it_open_together() -> None:
    run = {"requests": 9000, "horizon": "1.95s", "repetitions": 3}
    verdict = verdict_of(simulate(small(slo=SLO, run=run)))
    assert (verdict["slo_state"], verdict["slo_doubts"]) == ("too close to call", ["unfinished"])
