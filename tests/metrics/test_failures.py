"""What a run says of failures and of clients that gave up."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sim
from reports.frame.page import typeset
from reports.pages.run.failures import facts
from reports.pages.run.slo import sentence
from sim.export.source import read
from sim.loop.recorder import GAVE_UP
from sim.metrics.record.run_record import warmup_length
from sim.metrics.words.slo_text import headroom_text, slo_text
from sim.result import Result
from sim.scenario import load_scenario
from sim.units import show_share
from tests.places import ROOT, VLLM
from tests.planning_fixtures import small

ALONE: dict[str, Any] = {
    "model": "llama-3.2-1b",
    "fleet": {"gpu": "a10g", "tensor_parallel": 2},
    "engine": "ideal",
    "slo": {"e2el": "10s"},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 50},
    },
    "run": {"requests": 1, "warmup": 0},
}


def failures(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = result.summary["infersim"]["failures"]
    return found


def test_all_work_for_a_single_request_that_times_out_is_lost() -> None:
    calm = sim.simulate(ALONE)
    assert "failures" not in calm.summary["infersim"]
    end = calm.record.end
    result = sim.simulate({**ALONE, "scheduler": {"client_timeout": end / 2}})
    found, generated = failures(result), int(result.record.requests["generated"][0])
    assert 20 < generated < 30
    assert found["timed_out"] == found["gave_up"] == 1
    wasted = found["wasted"]
    assert (wasted["prompt_tokens"], wasted["output_tokens"]) == (100, generated)
    assert wasted["gpu_share"] == pytest.approx(1.0)
    assert wasted["gpu_seconds"] == pytest.approx(2 * result.record.durations.sum(), rel=1e-5)
    assert result.record.requests["status"].tolist() == [GAVE_UP]
    assert result.requests["status"].tolist() == ["gave up"]
    assert result.requests["reason"].tolist() == ["timed out"]
    assert "1 request was given up (100%)" in result.summary["infersim"]["verdict"]["text"]


def test_half_of_an_answer_is_lost_with_its_replica() -> None:
    """Two alike on two replicas: one of them fails when both are half done."""
    two = {
        **ALONE,
        "fleet": {"gpu": "a10g", "replicas": 2},
        "run": {"requests": 2, "warmup": 0},
    }
    end = sim.simulate(two).record.end
    patient = sim.simulate({**two, "scheduler": {"client_timeout": 2 * end}})
    wasted = failures(patient)["wasted"]
    assert (wasted["gpu_seconds"], wasted["output_tokens"]) == (0.0, 0)
    outage = {"at": end / 2, "replica": 1}
    found = failures(sim.simulate({**two, "failures": {"outages": [outage], "in_flight": "lost"}}))
    assert found["lost"] == 1
    assert found["wasted"]["gpu_share"] == pytest.approx(1 / 3, rel=1e-4)
    assert found["availability"] == pytest.approx(0.75, rel=1e-4)


@pytest.fixture(scope="module")
def storm() -> dict[str, Result]:
    asked = ["run.horizon=3min", f"engine={VLLM}"]
    scenario = load_scenario(ROOT / "scenarios" / "retry-storm.yaml").override(asked)
    changes = {"storm": [], "calm": ["failures=null"], "patient": ["scheduler.on_timeout=cancel"]}
    return {name: sim.simulate(scenario.override(change)) for name, change in changes.items()}


def test_load_that_was_fine_stays_broken_after_a_short_outage(storm: dict[str, Result]) -> None:
    """The retry storm is metastable: the outage starts it, and the retries alone keep it going."""
    calm, broken, patient = (failures(storm[name]) for name in ("calm", "storm", "patient"))
    assert calm["timed_out"] == 0
    assert calm["attempts_per_request"] == 1.0

    late = [t >= 150 for t in broken["course"]["time_s"]]  # half a minute after the replica is back
    good, sent, arrived = (
        np.mean(np.array(broken["course"][name])[late]) for name in ("good", "sent", "arrived")
    )
    assert good < 0.02 * arrived
    assert sent > 2.5 * arrived
    assert broken["recovery_s"] is None
    assert broken["wasted"]["gpu_share"] > 0.5
    assert "requests were still not served as before it" in broken["text"]
    assert broken["recovery"].startswith("Not recovered from its outage: when the run ended, ")
    assert patient["recovery"].startswith("Recovered 67.1 s after an outage")

    assert 60 < patient["recovery_s"] < 90  # the outage lasts a minute
    assert patient["wasted"]["gpu_share"] < 0.2
    assert patient["outages"][0]["lost"] == broken["outages"][0]["lost"] > 0


def test_an_slo_is_judged_with_those_that_timed_out(storm: dict[str, Result]) -> None:
    """The outage of the second minute looks like a start that is still filling up; the SLO is
    missed with it, and because of timeouts."""
    for name in ("patient", "storm"):
        record, verdict = storm[name].record, storm[name].summary["infersim"]["verdict"]
        assert not record.warmup[record.requests["arrival"] >= 60].any()
        assert not (record.warmup & (record.requests["status"] == GAVE_UP)).any()
        assert (verdict["slo_met"], verdict["slo_state"]) == (False, "missed")
        assert verdict["first_limit"] == "timed_out"
        assert "missed, first by timed-out requests" in slo_text(verdict)
        gone = int(record.timed_out.sum())
        told = "all" if gone == (record.requests["status"] == GAVE_UP).sum() else f"{gone:,}"
        assert f"), {told} of them because they timed out." in verdict["text"]
        assert sentence(storm[name].summary, storm[name].requests) == (
            "The SLO is missed first by requests that timed out: their clients did not wait any "
            "longer."
        )
    record = storm["patient"].record
    gave_up = record.requests["status"] == GAVE_UP
    assert record.timed_out.tolist() == gave_up.tolist()
    assert "did not wait any longer" in storm["patient"].summary["infersim"]["verdict"]["text"]
    calm = storm["calm"].summary["infersim"]["verdict"]
    assert (calm["slo_met"], calm["first_limit"] in calm["limits"]) == (True, True)


def test_a_capacity_that_lost_work_has_lowered_says_so(storm: dict[str, Result]) -> None:
    """Nothing else differs: the same traffic takes 72 % of what the fleet serves undisturbed."""
    calm, broken = (storm[name].summary["infersim"] for name in ("calm", "storm"))
    assert "lost_work" not in calm["verdict"]
    assert broken["verdict"]["lost_work"] == broken["failures"]["wasted"]["gpu_share"] > 0.5
    assert broken["verdict"]["utilisation"] > calm["verdict"]["utilisation"] + 0.1
    share = show_share(broken["verdict"]["lost_work"])
    told = f"leaves out part of the lost work: {share} of the GPU time went to failed attempts"
    assert told in broken["verdict"]["text"]
    room = {**calm["verdict"], "lost_work": 0.25}
    assert headroom_text(room) == (
        headroom_text(calm["verdict"])
        + " The capacity is without the 25% of the GPU time that was lost."
    )


def test_a_start_that_is_cut_ends_before_the_first_failure() -> None:
    """Two replicas serve 18 requests/s with ease, and one cannot, from 5 to 15 s. To the search
    alone this is a start that differs from the rest; the cut ends with the 91st request, at 5 s."""
    record = sim.simulate(
        {
            **ALONE,
            "fleet": {"gpu": "a10g", "replicas": 2},
            "slo": {"e2el": "3s"},
            "scheduler": {"max_num_seqs": 4, "client_timeout": "3s"},
            "workload": {**ALONE["workload"], "arrivals": {"kind": "constant", "rate": 18}},
            "run": {"requests": 2000},
            "failures": [{"at": "5s", "for": "10s", "replica": 0}],
        }
    ).record
    served = np.flatnonzero(record.completed)
    assert record.requests["arrival"][served[warmup_length(record.e2el[served])]] > 14
    assert record.warmup.sum() <= 90
    assert not (record.warmup & ~record.within_slo).any()
    assert (~record.within_slo).any()


def test_a_page_and_a_terminal_say_what_failures_cost(tmp_path: Path) -> None:
    busy = {
        **ALONE,
        "fleet": {"gpu": "a10g", "replicas": 2},
        "workload": {**ALONE["workload"], "arrivals": {"kind": "poisson", "rate": 20}},
        "run": {"requests": 40, "warmup": 0},
        "failures": [{"at": "1s", "replica": 1}],
        "scheduler": {"client_timeout": "600ms"},
    }
    result = sim.simulate(busy)
    found = failures(result)
    assert found["lost"] > 0
    assert " ".join(found["text"].split()[:4]) in " ".join(str(result).split())
    saved = result.save(tmp_path / "run", report=True)
    page = (saved / "report.html").read_text(encoding="utf-8")
    for words in (
        'id="failures"',
        "Lost work",
        "Outages",
        "not in this run",
        typeset(found["text"]),
    ):
        assert (words if "=" in words else escape(words)) in page
    attempts = pd.read_parquet(saved / "attempts.parquet")
    told = attempts["outcome"].value_counts()
    assert told["lost with its replica"] == found["lost"]
    assert told.get("timed out", 0) == found["timed_out"]
    assert pd.read_parquet(saved / "outages.parquet")["until_s"].tolist() == [np.inf]
    assert read(saved).trail is not None


def test_a_run_that_ends_soon_after_an_outage_does_not_tell_whether_it_recovered() -> None:
    short = {
        **ALONE,
        "fleet": {"gpu": "a10g", "replicas": 2},
        "workload": {**ALONE["workload"], "arrivals": {"kind": "constant", "rate": 10}},
        "run": {"requests": 100, "warmup": 20},
        "failures": {"outages": [{"at": "1.05s", "for": "1s", "replica": 1}], "in_flight": "lost"},
    }
    result = sim.simulate(short)
    found = failures(result)
    assert found["recovery_s"] is None
    assert "the run ended too soon after it to tell whether the fleet recovered" in found["text"]
    assert "still not served" not in found["text"]

    status, warmup = result.record.requests["status"], result.record.warmup
    early = int((status[warmup] == GAVE_UP).sum())
    assert early == found["lost"] > 0
    assert f"given up, {early} lie" in found["text"]
    calm = sim.simulate({**short, "run": {"requests": 100, "warmup": 0}})
    assert "warm-up" not in failures(calm)["text"]


def test_a_page_gives_lost_work_in_percent() -> None:
    result = sim.simulate({**ALONE, "scheduler": {"client_timeout": "50ms"}})
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in facts(result.summary).rows}
    assert rows["Lost work, of the GPU time"] == ["100", "%"]


def test_patience_that_never_ends_and_a_late_horizon_change_no_figure() -> None:
    """The run is over with the last token, not at the horizon."""
    plain, patient = (
        sim.simulate(small(run__requests=50, run__horizon="10min", scheduler__client_timeout=each))
        for each in (None, "1h")
    )
    assert patient.record.attempts is not None
    assert patient.record.duration == plain.record.duration < 60
    for key in ("output_throughput", "request_throughput"):
        assert patient.summary[key] == plain.summary[key]


def test_an_outage_of_a_fleet_that_refuses_everything_has_no_share_of_its_time() -> None:
    """The run lasts no time then, of which an outage could be a share."""
    refusing = {
        "fleet": {"gpu": "a10g", "replicas": 2},
        "kv_cache": {"num_gpu_blocks": 3},
        "workload": {**ALONE["workload"], "arrivals": {"kind": "constant", "rate": 100}},
        "failures": [{"at": "35ms", "replica": 1, "for": "11ms"}],
        "run": {"requests": 10, "warmup": 0},
    }
    result = sim.simulate(load_scenario({**ALONE, **refusing}))
    found = result.summary["infersim"]["failures"]
    assert result.summary["infersim"]["requests"]["rejected"] == 10
    assert (found["availability"], len(found["outages"])) == (None, 1)
    assert "1 outage; " in found["text"]
