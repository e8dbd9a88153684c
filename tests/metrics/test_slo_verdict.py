"""What a run says of its SLO: its state, what breaks first, headroom, the peak and bursts."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rich.console import Console

import sim
from sim.metrics.latency.intervals import percentile_interval
from sim.metrics.repetitions import combine
from sim.metrics.slo.attainment import slo_state
from sim.metrics.slo.objectives import slo_objectives
from sim.metrics.states import SloState
from sim.metrics.words.slo_text import headroom_text, slo_text
from sim.planning.load.finder import Finder
from sim.result import Result
from sim.scenario import load_scenario
from sim.terminal.findings import run_view
from sim.units import show_share
from tests.places import CHAT, ROOT
from tests.planning_fixtures import SMALL, small

SCENARIOS = ROOT / "scenarios"


def judged(result: Result) -> dict[str, Any]:
    verdict: dict[str, Any] = result.summary["infersim"]["verdict"]
    return verdict


def with_slo(slo: dict[str, Any], **changes: object) -> Result:
    scenario = load_scenario({**SMALL, "slo": slo})
    return sim.simulate(scenario.override({"run.warmup": 0, **changes}))


def shown(result: Result) -> list[str]:
    console = Console(width=88, color_system=None)
    with console.capture() as capture:
        console.print(run_view(result.summary))
    return capture.get().splitlines()


# -- limits ----------------------------------------------------------------------------------------


@given(share=st.floats(0, 1), target=st.floats(0.01, 1).map(lambda x: round(x, 3)))
def test_a_share_never_looks_like_a_target_that_it_misses(share: float, target: float) -> None:
    text = show_share(share, target)
    if abs(share - target) > 1e-9:
        assert text != show_share(target, target)
        assert (float(text.rstrip("%")) > 100 * target) == (share > target)


@pytest.mark.parametrize(("metric", "rank"), [("ttft", 50), ("tpot", 95), ("e2el", 99)])
def test_a_percentile_is_judged_by_itself(metric: str, rank: int) -> None:
    record = with_slo({"attainment": 0.5}, **{"workload.output_tokens.low": 2}).record
    values = np.sort(record.latency(metric))
    at = float(values[math.ceil(rank / 100 * len(values)) - 1])
    name = f"{metric}_p{rank}"
    for limit, met in ((at, True), (math.nextafter(at, 0), False)):
        result = with_slo({name: f"{limit!r}s"}, **{"workload.output_tokens.low": 2})
        verdict = judged(result)
        assert verdict["slo_met"] is met
        assert set(verdict["limits"]) == {name}
        entry = verdict["limits"][name]
        assert entry["value_ms"] == result.summary[f"p{rank}_{metric}_ms"]
        assert (entry["percentile"], entry["target"]) == (rank, rank / 100)
        assert entry["attainment"] == verdict["attainment"]
        assert verdict["target"] == rank / 100
        assert any(f"{metric.upper()} p{rank}" in line for line in shown(result))


@pytest.mark.parametrize(
    ("low", "high", "state"),
    [
        (0.95, 0.97, SloState.MET),
        (0.94, 0.95, SloState.OPEN),
        (0.93, 0.94, SloState.MISSED),
    ],
)
def test_a_share_that_reaches_the_target_meets_it(low: float, high: float, state: SloState) -> None:
    assert slo_state([(0.94, low, high, 0.95)]) == state


def test_limits_together_and_apart_are_all_needed() -> None:
    easy = {"ttft": "10s", "e2el": "1min", "attainment": 0.5}
    assert judged(with_slo(easy))["slo_met"]
    verdict = judged(with_slo({**easy, "tpot_p50": "1us"}))
    assert verdict["slo_met"] is False
    assert verdict["first_limit"] == "tpot_p50"
    assert verdict["attainment"] == 1  # of the limits that hold together
    assert judged(with_slo({**easy, "e2el": "1us"}))["first_limit"] == "e2el"


def test_the_limit_that_breaks_first_is_the_one_that_find_names() -> None:
    scenario = load_scenario(CHAT, ["workload.arrivals.rate=26"])
    result = sim.simulate(scenario)
    verdict, record = judged(result), result.record
    counted = ~record.warmup
    late = [
        float(np.nanquantile(record.latency(name)[counted], 0.99)) / limit
        for name, limit in scenario.slo.together.items()
    ]
    assert late[0] > late[1]  # the tail of TTFT is further off, but only of a few requests
    assert verdict["first_limit"] == "tpot"
    probe = Finder(scenario, "rate", slo_objectives(scenario)).probe(26.0, 1, most=1)
    assert probe.breaks == "tpot"


# -- states ----------------------------------------------------------------------------------------


def test_few_requests_leave_open_whether_the_slo_is_met() -> None:
    verdict = judged(with_slo({"ttft": "1s"}))
    assert (verdict["slo_met"], verdict["slo_state"]) == (True, "too close to call")
    assert verdict["slo_headroom"] is None
    needed = verdict["requests_to_decide"]
    assert needed > 60
    verdict = judged(with_slo({"ttft": "1s"}, **{"run.requests": needed}))
    assert verdict["slo_state"] == "met"
    assert verdict["requests_to_decide"] is None
    assert judged(with_slo({"ttft": "1us"}))["slo_state"] == "missed"


def test_the_text_of_an_open_slo_says_how_open_and_what_would_tell() -> None:
    verdict = judged(with_slo({"ttft": "1s"}))
    text = slo_text(verdict)
    assert text.startswith("SLO too close to call: met, 100% of requests, 99% wanted (TTFT <= 1 s")
    assert f"About {verdict['requests_to_decide']:,} requests would decide." in text


def test_repetitions_decide_by_their_own_interval() -> None:
    result = with_slo({"ttft": "1s"})
    one = result.summary
    several = [{**one, "infersim": dict(one["infersim"])} for _ in range(3)]
    for part, share in zip(several, (0.97, 0.99, 1.0), strict=True):
        verdict = {**judged(result), "attainment": share}
        part["infersim"]["verdict"] = verdict
    verdict = combine(several)["infersim"]["verdict"]
    assert verdict["slo_state"] == "too close to call"
    assert verdict["requests_to_decide"] > 180
    for part in several:
        part["infersim"]["verdict"] = part["infersim"]["verdict"] | {"attainment": 0.5}
        part["infersim"]["verdict"] |= {"attainment_low": 0.4, "attainment_high": 0.6}
    verdict = combine(several)["infersim"]["verdict"]
    assert (verdict["slo_state"], verdict["slo_headroom"]) == ("missed", 0.0)


# -- rejected requests -----------------------------------------------------------------------------


def test_rejected_requests_are_named_first_with_what_admits_them() -> None:
    result = with_slo({"ttft": "1s", "attainment": 0.9}, max_model_len=200)
    own = result.summary["infersim"]
    refused, verdict = own["rejection"], own["verdict"]
    assert refused["count"] == own["requests"]["rejected"] > 6
    assert refused["share"] == refused["count"] / 60
    assert refused["by_reason"] == {"longer than max_model_len": refused["count"]}
    assert (verdict["slo_met"], verdict["first_limit"]) == (False, "rejected")
    lines = " ".join(shown(result)[1:8])
    assert lines.startswith(f"Rejected: {refused['count']} of 60 requests")
    assert "To serve them, set max_model_len to" in lines
    assert "first by rejected requests" in lines
    assert "The SLO is missed because of the rejected requests." in verdict["text"]
    assert with_slo({}).summary["infersim"]["rejection"] is None


def test_a_closed_loop_that_misses_by_its_opening_says_so() -> None:
    closed = {"workload.arrivals": {"kind": "closed", "concurrency": 40}, "run.requests": 400}
    free = sim.simulate(load_scenario({**SMALL, "slo": None}).override(closed)).requests
    limit = float(free["ttft_s"].iloc[80:].max())  # what all but the opening keep
    assert (free["ttft_s"] > limit).mean() > 0.02
    data = load_scenario({**SMALL, "slo": {"ttft": f"{limit!r}s"}})
    missed = judged(sim.simulate(data.override(closed)))
    assert missed["slo_state"] != "met"
    assert (
        "All 40 users begin at once: without the first two requests of each, 100% of "
        in (missed["text"])
    )
    assert missed["text"].endswith("counts only those, in longer runs; run.warmup=80 does so here.")
    own = {**closed, "run.warmup": 80}  # then the scenario itself says what does not count
    assert "begin at once" not in judged(sim.simulate(data.override(own)))["text"]
    easy = load_scenario({**SMALL, "slo": {"ttft": "100s"}})
    assert "begin at once" not in judged(sim.simulate(easy.override(closed)))["text"]


# -- the peak --------------------------------------------------------------------------------------


def replayed(arrivals: NDArray[np.float64], folder: Path, slo: dict[str, Any]) -> Result:
    """Requests of 100 and 20 tokens at these times, served one by one."""
    rows = "".join(f"{time:.6f},100,20\n" for time in arrivals)
    path = folder / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + rows, encoding="utf-8")
    data = {**SMALL, "engine": "ideal", "slo": slo, "workload": {"trace": {"path": str(path)}}}
    data["scheduler"] = {"max_num_seqs": 1}
    del data["run"]
    return sim.simulate(load_scenario(data))


def test_the_busiest_minute_of_a_trace_is_named_and_leaves_the_headroom(tmp_path: Path) -> None:
    """Twice a second for 15 minutes, and six times a second in the eighth."""
    steps = np.where(np.arange(900) // 60 == 7, 1 / 6, 1 / 2)
    counts = np.round(1 / steps).astype(int)
    times = np.concatenate([second + np.arange(n) / n for second, n in enumerate(counts)])
    result = replayed(times, tmp_path, {"ttft": "1s", "attainment": 0.95})
    verdict = judged(result)
    ratio = verdict["peak_utilisation"] / verdict["utilisation"]
    assert ratio == pytest.approx(6 * 900 / len(times), rel=0.01)
    assert "on average, " in verdict["text"]
    assert " in the busiest minute." in verdict["text"]
    assert verdict["slo_headroom"] == pytest.approx(1 / verdict["peak_utilisation"] - 1, rel=1e-3)
    assert verdict["headroom"] > 2 * verdict["slo_headroom"]
    told = headroom_text(verdict)
    assert "by its peak, which then takes the whole capacity for a while: an estimate" in told
    assert "bound" not in told  # queues carry a peak, so that `infersim find` may find more


def test_a_burst_shorter_than_the_busiest_minute_is_named_too(tmp_path: Path) -> None:
    """A request every four seconds for 15 minutes, and four a second for ten seconds."""
    calm, burst = np.arange(225) * 4.0, 450.05 + np.arange(40) / 4
    result = replayed(np.sort(np.concatenate([calm, burst])), tmp_path, {"ttft": "1s"})
    said = r", (\d+)% in the busiest minute and (\d+)% in the busiest 10 s"
    ((minute, brief),) = re.findall(said, judged(result)["text"])
    assert int(brief) / int(minute) == pytest.approx(43 / 55 * 6, rel=0.1)


def test_bursts_are_said_to_be_why_where_they_are(tmp_path: Path) -> None:
    """A request every three seconds is in time; twenty at once each minute wait for each other."""
    calm = np.arange(200) * 3.0
    crowds = np.repeat(np.arange(10) * 60.0 + 1, 20) + np.tile(np.arange(20) * 1e-3, 10)
    slo = {"ttft": "300ms", "attainment": 0.95}
    verdict = judged(replayed(calm, tmp_path, slo))
    assert verdict["slo_state"] == "met"
    ratio = verdict["peak_utilisation"] / verdict["utilisation"]
    assert ratio == pytest.approx(4 * 3 / 10, rel=0.01)  # at most four come in ten seconds
    result = replayed(np.sort(np.concatenate([calm, crowds])), tmp_path, slo)
    verdict = judged(result)
    assert (verdict["state"], verdict["slo_state"]) == ("stable", "missed")
    late = ~result.record.within_slo
    assert late.sum() > 100
    assert "The SLO is missed all the same, and bursts are why: in 2% of the" in verdict["text"]
    assert "94% of the requests beyond the SLO come then or right after." in verdict["text"]


def test_bursts_and_the_peak_are_measured_alike(tmp_path: Path) -> None:
    """A crowd in two neighbouring stretches of ten seconds is one crowd."""
    calm = np.arange(166) * 3.0
    crowds = np.repeat(np.arange(1, 9) * 60.0 - 4.8, 120) + np.tile(np.arange(120) * 0.05, 8)
    slo = {"ttft": "300ms", "attainment": 0.95}
    text = judged(replayed(np.sort(np.concatenate([calm, crowds])), tmp_path, slo))["text"]
    (peak,) = re.findall(r"on average, (\d+%) in the busiest 10 s", text)
    said = re.findall(r"more than the capacity arrives \((\d+%) of it in the busiest 10 s\)", text)
    assert said == [peak], text


def test_a_limit_that_no_request_keeps_is_not_put_down_to_bursts(tmp_path: Path) -> None:
    verdict = judged(replayed(np.arange(200) * 3.0, tmp_path, {"ttft": "1ms"}))
    assert verdict["text"].endswith("The SLO is missed all the same.")


def test_headroom_is_none_where_the_slo_is_missed() -> None:
    verdict = judged(with_slo({"ttft": "1us"}))
    assert verdict["headroom"] > 0
    assert verdict["slo_headroom"] == 0
    wanted = "None: the SLO is missed already. `infersim find` gives the load that meets the SLO."
    assert headroom_text(verdict) == wanted
    open_one = verdict | {"slo_state": "too close to call", "slo_headroom": None}
    by_chance = headroom_text(open_one | {"slo_doubts": ["chance"]})
    assert by_chance == "None that is sure: the SLO is too close to call."
    by_band = headroom_text(open_one | {"slo_doubts": ["band"]})
    assert by_band == "None that is sure: the SLO is missed at the predicted times."
    full = {"utilisation": 1.25, "peak_utilisation": None, "slo_headroom": None}
    text = headroom_text({**full, "slo_state": None, "slo_met": None})
    assert text == "None: the traffic would have to shrink by 20%."
    over = {"utilisation": 0.5, "peak_utilisation": 1.1, "slo_headroom": None}
    text = headroom_text({**over, "slo_state": "met", "slo_met": True})
    assert text.startswith("Not known: its peak takes 110% of the capacity already.")


def test_without_an_slo_the_headroom_is_that_of_the_capacity() -> None:
    verdict = judged(sim.simulate(small(slo=None)))
    assert verdict["slo_state"] is verdict["slo_met"] is None
    assert verdict["slo_headroom"] == verdict["headroom"]
    assert "infersim find" not in headroom_text(verdict)


# -- the terminal ----------------------------------------------------------------------------------


def test_figures_of_one_replica_are_labelled_so() -> None:
    one, two = (sim.simulate(small(fleet__replicas=count)) for count in (1, 2))
    assert any("running (peak)" in line for line in shown(one))
    assert any("running/replica (peak)" in line for line in shown(two))
    assert any("waiting/replica (peak)" in line for line in shown(two))
    assert max(map(len, shown(two))) <= 88


def test_too_few_requests_speak_of_the_percentile_that_the_slo_asks_for() -> None:
    own = with_slo({"ttft": "1s", "attainment": 0.95}).summary["infersim"]["precision"]
    assert own["percentile"] == "p95"
    assert own["text"].startswith("Too few requests for a p95; with 95 % confidence it is TTFT ")
    assert own["p95_ttft_ms"]["samples"] == own["p99_ttft_ms"]["samples"] == 60
    assert own["p95_ttft_ms"]["low"] <= own["p99_ttft_ms"]["low"]
    enough = with_slo({"ttft": "1s", "attainment": 0.95}, **{"run.requests": 3000})
    assert enough.summary["infersim"]["precision"]["sufficient"]
    assert with_slo({}).summary["infersim"]["precision"]["percentile"] == "p99"


def test_an_interval_of_any_percentile_covers_the_truth_at_its_rate() -> None:
    random = np.random.default_rng(5)
    for share in (0.5, 0.9, 0.95):
        truth, covered = -math.log(1 - share), 0
        for _ in range(400):
            found = percentile_interval(random.exponential(size=300), share)
            assert found.low is not None
            covered += found.low <= truth <= (math.inf if found.high is None else found.high)
        assert covered >= 0.93 * 400


# -- sentences ---------------------------------------------------------------------------------


def test_limits_of_percentiles_are_told_apart() -> None:
    alone = with_slo({"ttft_p95": "1s", "tpot_p99": "1ms"})
    first, second = slo_text(judged(alone)).split("; ")
    assert first.startswith("SLO missed, first by TPOT p99: TTFT p95 is ")
    assert first.endswith(", the limit 1 s")
    assert second.startswith("TPOT p99 is ")
    assert second.endswith(", the limit 1 ms")


def test_a_run_in_which_all_is_rejected_states_no_cost_of_nothing() -> None:
    lines = shown(with_slo({"ttft": "1s"}, max_model_len=2))
    assert any("No request was completed." in line for line in lines)
    assert not any(line.startswith(("Cost:", "Bound by:")) for line in lines)
    assert any(line.startswith("Cost:") for line in shown(with_slo({"ttft": "1s"})))


def test_a_fleet_that_scales_itself_has_no_most() -> None:
    verdict = {"utilisation": 0.4, "peak_utilisation": 0.4, "slo_headroom": 1.5, "slo_met": True}
    verdict |= {"slo_state": "met"}
    assert headroom_text(verdict).startswith("About 2.5 times")
    scaled = headroom_text(verdict | {"scales": True})
    assert scaled.startswith("2.5 times the traffic would take all of as many replicas as were")
    assert "infersim sweep" in scaled


def test_a_fleet_whose_replicas_fail_is_swept() -> None:
    """`find` takes pools that stay as they are."""
    missed = {"utilisation": 0.4, "peak_utilisation": 0.4, "slo_headroom": None}
    verdict = missed | {"slo_state": "missed"}
    assert "`infersim find`" in headroom_text(verdict)
    assert "`infersim find`" in headroom_text(verdict | {"by_pool": [0.5, 0.2]})
    disturbed = headroom_text(verdict | {"disturbed": True})
    assert "`infersim sweep" in disturbed
    assert "find" not in disturbed
