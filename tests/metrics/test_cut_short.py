"""A run that ends before the curve of its rate does says so, and does not speak of the rest."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sim import simulate
from sim.errors import UsageError
from sim.metrics.latency.intervals import rounded_up
from sim.metrics.record.cut_short import cut_short, foreseen_cut
from sim.metrics.words.slo_text import slo_text
from sim.planning.load.find import find
from sim.terminal.findings import run_view
from tests.planning_fixtures import small

DAY = {"kind": "diurnal", "rate": 2, "peak_rate": 30, "period": "20s"}
RAMP = {"kind": "ramp", "rate": 2, "final_rate": 30, "duration": "10s"}


def cut(arrivals: dict[str, Any], **run: Any) -> tuple[dict[str, Any], Any]:
    """The summary's own part, and what was foreseen."""
    scenario = small(workload__arrivals=arrivals, run=run)
    result = simulate(scenario)
    found, foreseen = cut_short(result.record), foreseen_cut(scenario)
    assert (found is None) == (foreseen is None)
    own: dict[str, Any] = result.summary["infersim"]
    return own, found


@pytest.mark.parametrize(
    ("arrivals", "run", "told"),
    [
        (DAY, {"requests": 40}, "of a cycle of 20 s: its peak at 10 s is not in it"),
        (DAY, {"requests": 9000, "horizon": "5s"}, "after 5 s of a cycle of 20 s: its peak at 10"),
        (DAY, {"requests": 240}, "of a cycle of 20 s: not all of its rates are in it"),
        (
            {**DAY, "peak_at": "4s"},
            {"requests": 9000, "horizon": "3s"},
            "its peak at 4 s is not in it",
        ),
        (RAMP, {"requests": 40}, "of a ramp of 10 s: the 30 requests/s at its end are not in it"),
    ],
)
def test_the_verdict_and_the_first_note_say_what_is_missing(
    arrivals: dict[str, Any], run: dict[str, Any], told: str
) -> None:
    own, found = cut(arrivals, **run)
    assert found is not None
    assert told in own["notes"][0]
    assert own["notes"][0].startswith("The run ends after ")
    state, _, rest = own["verdict"]["text"].partition(": ")
    assert state.lower() == own["verdict"]["state"]
    assert rest.startswith(f"the run ends after {found.text.split('after ')[1]}. ")


def test_the_remedy_takes_a_whole_curve() -> None:
    for arrivals, wanted in ((DAY, 320), (RAMP, 160)):
        own, _ = cut(arrivals, requests=40)
        assert f"run.requests={wanted}." in own["notes"][0]
        own, found = cut(arrivals, requests=wanted)
        assert found is None
        assert not any("ends after" in note for note in own["notes"])
        assert "ends after" not in own["verdict"]["text"]
    own, _ = cut(DAY, requests=40, horizon="5s")
    assert "run.requests=320 and run.horizon=20." in own["notes"][0]


def test_a_peak_that_is_not_in_a_run_is_not_claimed() -> None:
    own, _ = cut(DAY, requests=40)
    assert "at the peak, which was not simulated" in own["verdict"]["text"]
    whole, _ = cut(DAY, requests=320)
    assert "at the peak." in whole["verdict"]["text"]
    assert "not simulated" not in whole["verdict"]["text"]
    ramp, _ = cut(RAMP, requests=40)
    assert "of the capacity when the run ends" in ramp["verdict"]["text"]
    assert "at the end of the ramp" not in ramp["verdict"]["text"]


def test_traffic_without_a_curve_is_never_cut() -> None:
    for arrivals in ({"kind": "poisson", "rate": 20}, {"kind": "closed", "concurrency": 4}):
        assert cut(arrivals, requests=40)[1] is None


def test_the_terminal_says_it_before_the_slo() -> None:
    result = simulate(small(workload__arrivals=DAY, run={"requests": 40}))
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(run_view(result.summary))
    shown = " ".join(captured.get().split())
    assert shown.index("its peak at 10 s is not in it") < shown.index("SLO ")


def test_an_slo_that_a_part_without_the_peak_meets_is_open() -> None:
    easy = {"slo": {"ttft": "60s", "attainment": 0.5}}
    for arrivals, whole in ((DAY, 320), (RAMP, 160)):
        short = simulate(small(workload__arrivals=arrivals, run={"requests": 40}, **easy))
        verdict = short.summary["infersim"]["verdict"]
        assert (verdict["slo_met"], verdict["slo_state"]) == (True, "too close to call")
        assert verdict["slo_doubts"][0] == "length"
        assert verdict["slo_headroom"] is None
        assert short.summary["infersim"]["notes"][0] in slo_text(verdict)
        long = simulate(small(workload__arrivals=arrivals, run={"requests": whole}, **easy))
        verdict = long.summary["infersim"]["verdict"]
        assert (verdict["slo_state"], verdict["cut"]) == ("met", None)


def test_a_part_with_the_peak_is_named_where_the_slo_is_met() -> None:
    scenario = small(
        workload__arrivals=DAY, run={"requests": 240}, slo={"ttft": "60s", "attainment": 0.5}
    )
    verdict = simulate(scenario).summary["infersim"]["verdict"]
    assert verdict["slo_state"] == "met"
    assert slo_text(verdict).startswith(f"SLO met in {verdict['cut']['part']}: 100% of requests")


def trace(tmp_path: Path, times: list[float]) -> dict[str, Any]:
    rows = "".join(f"{time},100,20\n" for time in times)
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows, encoding="utf-8")
    return {"trace": {"path": str(path)}}


def test_a_trace_that_a_horizon_cuts_lacks_its_busiest_stretch_or_does_not(tmp_path: Path) -> None:
    calm = [0.5 * number for number in range(240)]
    busy = sorted([*calm, *(100 + 0.05 * number for number in range(100))])
    for times, peak, told in (
        (busy, False, "of a trace of 1.99 min: its busiest 10 s, at 95 s, is not in it"),
        (calm, True, "of a trace of 1.99 min: 119 of its 240 requests are not in it"),
    ):
        scenario = small(workload=trace(tmp_path, times), run={"horizon": "60s"})
        result = simulate(scenario)
        found = cut_short(result.record)
        assert found is not None
        assert (found, found.has_peak) == (foreseen_cut(scenario), peak)
        assert told in found.text
        json.dumps(result.summary, allow_nan=False)
        own = result.summary["infersim"]
        assert (
            own["notes"][0]
            == f"{found.text[0].upper()}{found.text[1:]}. For a whole trace: run.horizon=null."
        )
        assert found.text in own["verdict"]["text"]
        assert " of this part." in own["verdict"]["text"]
        assert (own["verdict"]["slo_doubts"][:1] == ["length"]) == (not peak)
        assert "has no more than these" not in " ".join(own["notes"])
        whole = simulate(scenario.override({"run.horizon": None}))
        assert cut_short(whole.record) is None
        with pytest.raises(UsageError, match=r"for a whole trace set run\.horizon=null"):
            find(scenario, "rate")


def test_the_first_requests_of_a_trace_are_called_so(tmp_path: Path) -> None:
    scenario = small(workload=trace(tmp_path, [0.5 * n for n in range(40)]), run={"requests": 30})
    notes = simulate(scenario).summary["infersim"]["notes"]
    assert any("The first 30 requests of the trace were sent (run.requests)" in n for n in notes)


def test_requests_that_would_decide_are_named_with_the_horizon_that_lets_them_come() -> None:
    few = small(run={"requests": 9000, "horizon": "10s"})
    verdict = simulate(few).summary["infersim"]["verdict"]
    wanted = verdict["requests_to_decide"]
    assert wanted > 10 * 20
    horizon = rounded_up(wanted / 20)
    named = (
        f"run.requests={wanted} and run.horizon={horizon}"
        if wanted > 9000
        else f"run.horizon={horizon}"
    )
    assert f"About {wanted:,} requests would decide ({named})" in slo_text(verdict)
    free = simulate(few.override({"run.horizon": None, "run.requests": 100}))
    assert "run.horizon" not in slo_text(free.summary["infersim"]["verdict"])
    assert "run.horizon" in " ".join(simulate(few).summary["infersim"]["notes"])
