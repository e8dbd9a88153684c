"""A run that ends before the curve of its rate does says so, and does not speak of the rest."""

from typing import Any

import pytest
from rich.console import Console

from sim import simulate
from sim.metrics.cut_short import cut_short, foreseen_cut
from sim.terminal.run import run_view
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
