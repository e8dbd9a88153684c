"""Requests whose clients go away: beyond a limit that has passed, else set aside."""

from pathlib import Path
from typing import Any

import pytest

from sim.loop.recorder import COMPLETED, GAVE_UP
from sim.metrics.slo.objectives import look, slo_objectives
from sim.metrics.words.slo_text import slo_text
from sim.result import Result
from sim.simulation import simulate

ROWS = [
    (0.0, 100, 1500, ""),  # runs alone, for about 9 s
    (1.0, 100, 20, "2.0"),  # leaves the queue after the limit of its first token
    (1.5, 100, 20, "0.2"),  # leaves it before
    (20.0, 100, 20, ""),
    (21.0, 100, 1500, "0.3"),  # leaves after its first tokens, in time so far
    (22.0, 100, 1500, "4.0"),  # leaves after the limit of the whole
    (40.0, 100, 20, ""),
]


def played(path: Path, slo: dict[str, Any], **more: Any) -> Result:
    """The requests of ``ROWS``, one at a time, judged by ``slo``."""
    lines = [",".join(map(str, row)) for row in ROWS]
    head = "arrival_s,prompt_tokens,output_tokens,cancelled_after_s"
    (path / "trace.csv").write_text("\n".join([head, *lines]) + "\n")
    return simulate(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "scheduler": {"max_num_seqs": 1},
            "workload": {"trace": {"path": str(path / "trace.csv")}, **more},
            "slo": slo,
            "run": {"warmup": 0},
        }
    )


def test_who_leaves_in_time_is_neither_within_the_slo_nor_beyond(tmp_path: Path) -> None:
    result = played(tmp_path, {"ttft": "500ms", "e2el": "3s", "attainment": 0.9})
    run = result.record
    assert run.requests["status"].tolist() == [
        *(COMPLETED, GAVE_UP, GAVE_UP),
        *(COMPLETED, GAVE_UP, GAVE_UP, COMPLETED),
    ]
    limits = run.scenario.slo.together
    assert run.set_aside(limits).tolist() == [False, False, True, False, True, False, False]
    verdict = result.summary["infersim"]["verdict"]
    # of five that are judged, the first takes longer than 3 s, and two left too late
    assert verdict["attainment"] == pytest.approx(2 / 5)
    assert verdict["limits"]["ttft"]["attainment"] == pytest.approx(3 / 4)  # without 3, 5 and 6
    assert verdict["limits"]["e2el"]["attainment"] == pytest.approx(2 / 4)  # without 2, 3 and 5
    found = result.summary["infersim"]["failures"]
    assert (found["cancelled"], found["set_aside"]) == (4, 2)
    assert "2 of them went away before a limit" in found["text"]


def test_those_alone_do_not_miss_an_slo(tmp_path: Path) -> None:
    result = played(tmp_path, {"ttft": "5s"})
    verdict = result.summary["infersim"]["verdict"]
    assert (verdict["attainment"], verdict["slo_met"]) == (1.0, True)
    (objective,) = slo_objectives(result.record.scenario)
    seen = look(result.record, objective)
    assert seen.kept.tolist() == [True] * 3
    assert seen.strain < 1


def test_what_cannot_be_fast_enough_any_more_is_beyond(tmp_path: Path) -> None:
    """Of a request that is to have 1500 tokens: 4 s after its first they are 2.7 ms each if all the
    others come at once."""
    for limit, aside in (("2ms", False), ("3ms", True)):
        run = played(tmp_path, {"tpot": limit}).record
        assert bool(run.set_aside(run.scenario.slo.together)[5]) == aside


def test_every_percentile_has_its_own_requests(tmp_path: Path) -> None:
    result = played(tmp_path, {"ttft_p95": "500ms", "e2el_p50": "3s"})
    limits = result.summary["infersim"]["verdict"]["limits"]
    assert limits["ttft_p95"]["attainment"] == pytest.approx(3 / 4)
    assert limits["e2el_p50"]["attainment"] == pytest.approx(2 / 4)


def test_a_run_of_nobody_who_waited_has_no_verdict(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens,cancelled_after_s\n0,100,100,0.05\n1,100,100,0.05\n"
    )
    result = simulate(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "workload": {"trace": {"path": str(tmp_path / "trace.csv")}},
            "slo": {"e2el": "10s"},
        }
    )
    verdict = result.summary["infersim"]["verdict"]
    assert (verdict["slo_met"], verdict["attainment"]) == (None, None)


def test_a_class_has_its_own_limits(tmp_path: Path) -> None:
    result = played(
        tmp_path,
        {"e2el": "60s"},
        classes=[{"name": "chat", "share": 1, "deadline": "500ms"}],
    )
    (entry,) = result.summary["infersim"]["classes"]
    assert entry["attainment"] == pytest.approx(3 / 4)


def test_requests_that_find_no_replica_and_no_limit_make_a_missed_slo() -> None:
    """Of 30 requests a second apart three find no replica, and one of 200 is allowed to."""
    result = simulate(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "workload": {
                "arrivals": {"kind": "constant", "rate": 1},
                "prompt_tokens": {"kind": "fixed", "value": 100},
                "output_tokens": {"kind": "fixed", "value": 10},
            },
            "steering": {
                "steps": [{"at": "9.5s", "do": "drain"}, {"at": "12.5s", "do": "start"}],
                "cold_start": "0s",
            },
            "slo": {"ttft": "500ms", "tpot": "50ms"},
            "run": {"requests": 30, "warmup": 0},
        }
    )
    verdict = result.summary["infersim"]["verdict"]
    assert result.record.lost.sum() == 3
    assert (verdict["slo_met"], verdict["first_limit"]) == (False, "lost")
    assert "missed, first by lost requests" in slo_text(verdict)
    assert "found none" in verdict["text"]
