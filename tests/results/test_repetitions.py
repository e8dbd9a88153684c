"""Independent repetitions: other seeds, means, and intervals that cover what they should."""

import csv
import json
import math
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sim
from reports import render
from sim.errors import UsageError
from sim.metrics.record.run_record import RunRecord
from sim.metrics.repetitions import combine, headlines, intervals
from sim.metrics.texts import Composed
from sim.result import Result
from sim.rng import LARGEST_SEED, repetition_seed
from sim.setup import prepare
from tests.played import mean_ttfts

SCENARIO: dict[str, Any] = {
    "name": "queue",
    "model": "llama-3.2-1b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": "ideal",
    "max_model_len": 512,
    "scheduler": {"max_num_seqs": 1},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 20},
        "prompt_tokens": {"kind": "fixed", "value": 64},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 9},
    },
    "slo": {"ttft": "20ms", "attainment": 0.9},
    "run": {"requests": 60, "warmup": 0, "repetitions": 4},
}


def load(**changes: Any) -> sim.Scenario:
    return sim.load_scenario(SCENARIO).override(
        {key.replace("__", "."): changes[key] for key in changes}
    )


@pytest.fixture(scope="module")
def result() -> Result:
    return sim.simulate(load())


# -- seeds ---------------------------------------------------------------------------------------


def test_seeds_are_stable_and_allowed() -> None:
    assert repetition_seed(7, 0) == 7
    assert [repetition_seed(42, k) for k in (1, 2)] == [8376769457060201316, 7236828412984607492]
    for seed in (0, 42, LARGEST_SEED):
        assert all(0 <= repetition_seed(seed, k) <= LARGEST_SEED for k in range(50))
        load(seed=repetition_seed(seed, 1))


def test_neighbouring_seeds_share_no_repetition() -> None:
    seeds = [repetition_seed(seed, k) for seed in range(200) for k in range(20)]
    assert len(set(seeds)) == len(seeds)


def test_repetition_0_is_the_single_run(result: Result) -> None:
    single = sim.simulate(load(run__repetitions=1))
    assert single.summary["infersim"]["repetitions"] is None
    assert result.summaries[0] == single.summary
    pd.testing.assert_frame_equal(result.requests, single.requests, check_exact=True)
    pd.testing.assert_frame_equal(result.timeseries, single.timeseries, check_exact=True)


def test_each_repetition_is_the_run_of_its_seed(result: Result) -> None:
    seeds = result.summary["infersim"]["repetitions"]["seeds"]
    assert len(set(seeds)) == 4
    for seed, summary in zip(seeds, result.summaries, strict=True):
        assert summary == sim.simulate(load(run__repetitions=1, seed=seed)).summary


def test_the_random_router_draws_anew() -> None:
    changes = {"workload__arrivals": {"kind": "burst"}, "fleet__0__replicas": 2, "router": "random"}
    fixed = {"workload__output_tokens": {"kind": "fixed", "value": 9}}
    durations = [s["duration"] for s in sim.simulate(load(**changes, **fixed)).summaries]
    assert len(set(durations)) > 1


@pytest.mark.parametrize("arrivals", ["constant", "burst", "closed"])
def test_repeating_what_is_not_random_is_refused(arrivals: str) -> None:
    more = {"constant": {"rate": 20}, "burst": {}, "closed": {"concurrency": 3}}[arrivals]
    changes = {
        "workload__arrivals": {"kind": arrivals, **more},
        "workload__output_tokens": {"kind": "fixed", "value": 9},
    }
    with pytest.raises(UsageError, match="4 repetitions would be the same run"):
        prepare(load(**changes))
    prepare(load(**changes, run__repetitions=1))
    prepare(load(workload__arrivals=changes["workload__arrivals"]))  # lengths are drawn


def test_a_trace_is_repeated_only_with_a_spread(tmp_path: Path) -> None:
    rows = "\n".join(f"{i / 20},64,{1 + i % 9}" for i in range(40))
    (tmp_path / "t.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    trace = {"path": str(tmp_path / "t.csv"), "format": "csv"}
    scenario = {**SCENARIO, "workload": {"trace": trace}}
    with pytest.raises(UsageError, match="spread"):
        sim.simulate(sim.load_scenario(scenario))
    spread = sim.load_scenario(scenario | {"workload": {"trace": trace | {"spread": "50ms"}}})
    assert len({s["duration"] for s in sim.simulate(spread).summaries}) == 4


# -- intervals -----------------------------------------------------------------------------------


def test_the_interval_is_students() -> None:
    found = intervals([{"a": 1.0}, {"a": 2.0}, {"a": 6.0}])["a"]
    half = 4.302652729911275 * math.sqrt(7.0 / 3)  # t(2) of a table, times s / sqrt(n)
    assert found["mean"] == 3.0
    assert found["half_width"] == pytest.approx(half)
    assert (found["low"], found["high"]) == (0.0, pytest.approx(3 + half))


def test_undefined_figures_have_no_interval() -> None:
    found = intervals([{"a": None, "b": 2.0, "c": 1.0}, {"a": None, "b": None, "c": 1.0}])
    assert found["a"] == {"mean": None, "low": None, "high": None, "half_width": None}
    assert found["b"] == {"mean": 2.0, "low": None, "high": None, "half_width": None}
    assert found["c"] == {"mean": 1.0, "low": 1.0, "high": 1.0, "half_width": 0.0}


def test_a_share_ends_at_1() -> None:
    found = intervals([{"verdict.attainment": 0.99}, {"verdict.attainment": 0.93}])
    assert found["verdict.attainment"]["high"] == 1.0
    assert found["verdict.attainment"]["half_width"] > 0.3


@pytest.mark.slow
def test_19_of_20_intervals_cover_the_truth() -> None:
    groups, size = 100, 5
    seeds = [repetition_seed(42, number) for number in range(groups * size)]
    means = mean_ttfts(load(run__repetitions=1), seeds)  # what repetitions are, as shown above
    truth = float(np.mean(means))  # of 500 runs: 10 times as sure as a group's
    endless = sim.simulate(load(run={"requests": 40_000, "warmup": 0})).summary["mean_ttft_ms"]
    assert truth == pytest.approx(endless, rel=0.02)
    covered = 0
    for start in range(0, groups * size, size):
        values = means[start : start + size]
        found = intervals([{"mean": value} for value in values])["mean"]
        assert found["low"] is not None
        assert found["high"] is not None
        covered += found["low"] <= truth <= found["high"]
    assert 0.9 <= covered / groups <= 0.99


# -- one summary of several ----------------------------------------------------------------------


def test_numbers_are_means_and_the_rest_is_of_the_first(result: Result) -> None:
    summary, parts = result.summary, result.summaries
    own, details = summary["infersim"], [part["infersim"] for part in parts]
    for key in ("mean_ttft_ms", "p99_e2el_ms", "output_throughput", "duration"):
        assert summary[key] == pytest.approx(np.mean([part[key] for part in parts]))
    busy = np.mean([detail["utilisation"]["busy"] for detail in details])
    assert own["utilisation"]["busy"] == pytest.approx(busy)
    assert sum(own["bound_by"].values()) == pytest.approx(1)
    assert sum(own["time_by_operator"].values()) == pytest.approx(1)
    assert summary["total_output_tokens"] == round(
        np.mean([part["total_output_tokens"] for part in parts])
    )
    assert (summary["completed"], own["requests"]["submitted"]) == (60, 60)
    assert isinstance(summary["completed"], int)
    assert isinstance(own["batch"]["iterations"], int)
    assert own["error_band"] == details[0]["error_band"]
    assert (own["seed"], own["interrupted"]) == (42, False)
    assert set(own) == set(details[0])
    assert set(summary) == set(parts[0])


def test_every_headline_figure_has_its_interval(result: Result) -> None:
    repetitions = result.summary["infersim"]["repetitions"]
    assert (repetitions["count"], repetitions["confidence"]) == (4, 0.95)
    found = repetitions["intervals"]
    assert set(found) == set(headlines(result.summary))
    assert {key for key in result.summary if key != "infersim"} < set(found)
    assert {
        *("verdict.attainment", "queue_ms.p99", "utilisation.busy", "utilisation.mfu"),
        *("kv_cache.mean_used", "kv_cache.peak_used", "preemptions", "batch.mean_running"),
        *("cost.usd_per_million_tokens", "energy.joules_per_output_token"),
    } < set(found)
    ttft = found["mean_ttft_ms"]
    assert ttft["mean"] == result.summary["mean_ttft_ms"]
    assert 0 < ttft["low"] < ttft["mean"] < ttft["high"]
    assert found["completed"]["half_width"] == 0


def tiny(seed: int, **changes: Any) -> dict[str, Any]:
    """A summary with a few entries of each kind; ``changes`` go to the verdict."""
    verdict = {
        **{
            "state": "stable",
            "text": Composed({"told": f"Text of {seed}."}),
            "slo_met": True,
            "attainment": 1.0,
        },
        **{"attainment_low": 0.95, "attainment_high": 1.0, "slo_state": "met"},
        **{"requests_to_decide": None, "target": 0.9, "first_limit": "ttft"},
        "limits": {"ttft": {"limit_ms": 100.0, "attainment": 1.0}},
    }
    bound = {"low": 1.0, "high": 1.1, "samples": 1000, "effective_samples": 900}
    stated = {f"p99_{name}_ms": dict(bound) for name in ("ttft", "tpot", "e2el")}
    return {
        "completed": 10 + seed,
        "p99_ttft_ms": 1.0,
        "p99_tpot_ms": 1.0,
        "p99_e2el_ms": 1.0,
        "infersim": {
            "seed": seed,
            "verdict": verdict | changes,
            "requests": {"submitted": 100, "rejected_reasons": {}},
            "queue_ms": dict.fromkeys(("mean", "p50", "p90", "p95", "p99"), float(seed)),
            "utilisation": {"busy": 0.5, "mfu": 0.1, "mbu": 0.2},
            "kv_cache": {"mean_used": 0.1, "peak_used": 0.2},
            "preemptions": 0,
            "batch": {"mean_running": 1.0},
            "cost": None,
            "energy": None,
            "error_band": {"throughput": seed / 10, "text": "So."},
            "precision": stated
            | {
                "percentile": "p99",
                "sufficient": True,
                "requests_needed": None,
                "text": Composed({"found": "Enough."}),
            },
            "repetitions": None,
            "notes": [f"Left out: {seed} requests.", "Always said."],
            "interrupted": False,
        },
    }


def test_a_summary_worked_out_by_hand() -> None:
    parts = [tiny(1), tiny(2), tiny(4)]
    parts[0]["infersim"]["queue_ms"]["mean"] = None
    parts[1]["infersim"]["requests"]["rejected_reasons"] = {"too long": 6}
    drawn = {"joules_per_output_token": 3.0, "mean_watts_per_gpu": 400.0, "note": "A bound."}
    parts[2]["infersim"]["energy"] = drawn
    combined = combine(parts)
    own = combined["infersim"]
    assert combined["completed"] == 12  # 11, 12, 14: 12 1/3
    assert own["queue_ms"]["mean"] == 3.0
    assert own["requests"]["rejected_reasons"] == {"too long": 2}
    assert own["energy"] == drawn
    assert own["cost"] is None
    assert own["error_band"]["throughput"] == 0.1
    assert own["repetitions"]["seeds"] == [1, 2, 4]
    assert own["repetitions"]["intervals"]["cost.usd_per_million_tokens"]["mean"] is None
    assert own["repetitions"]["intervals"]["energy.joules_per_output_token"]["low"] is None
    assert own["notes"] == [
        "Left out: 1 requests. (Other repetitions: other numbers.)",
        "Always said.",
    ]
    assert parts[0] == tiny(1) | {"infersim": parts[0]["infersim"]}, "nothing is changed in place"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (["stable", "stable", "overloaded"], "stable"),
        (["stable", "near saturation"], "near saturation"),
        (["near saturation", "overloaded"], "overloaded"),
        (["stable", "too short to tell", "overloaded", "overloaded"], "overloaded"),
        (["stable", "too short to tell"], "too short to tell"),
    ],
)
def test_the_state_is_the_most_frequent_or_else_the_worse(states: list[str], expected: str) -> None:
    verdict = combine([tiny(i, state=state) for i, state in enumerate(states)])["infersim"][
        "verdict"
    ]
    assert verdict["state"] == expected
    assert f"(So in {states.count(expected)} of {len(states)} repetitions" in verdict["text"]
    assert f"Text of {states.index(expected)}." in verdict["text"]


def test_the_slo_is_judged_by_the_mean() -> None:
    shares = (0.86, 0.97)
    parts = [tiny(i, attainment=share, slo_met=share >= 0.9) for i, share in enumerate(shares)]
    verdict = combine(parts)["infersim"]["verdict"]
    assert verdict["attainment"] == pytest.approx(0.915)
    assert verdict["slo_met"] is True
    parts = [tiny(i, attainment=share, slo_met=share >= 0.9) for i, share in enumerate((0.86, 0.9))]
    assert combine(parts)["infersim"]["verdict"]["slo_met"] is False


def test_repetitions_without_anything_to_judge() -> None:
    nothing = {
        "attainment": None,
        "slo_met": None,
        "target": None,
        "first_limit": None,
        "limits": {},
    }
    verdict = combine([tiny(0, **nothing), tiny(1)])["infersim"]["verdict"]
    assert (verdict["attainment"], verdict["target"]) == (1.0, 0.9)
    assert verdict["limits"] == {"ttft": {"limit_ms": 100.0, "attainment": 1.0}}
    verdict = combine([tiny(0, **nothing), tiny(1, **nothing)])["infersim"]["verdict"]
    assert (verdict["slo_met"], verdict["limits"]) == (None, {})


def test_a_wide_interval_of_the_p99_is_said_once() -> None:
    parts = [tiny(i) for i in range(3)]
    assert combine(parts)["infersim"]["precision"]["sufficient"] is True
    for part, p99 in zip(parts, (1.0, 2.0, 3.0), strict=True):
        part["p99_ttft_ms"] = p99
        part["infersim"]["precision"]["text"] = Composed({"found": f"Too short: {p99}."})
        part["infersim"]["notes"].append(f"Too short: {p99}.")
    own = combine(parts)["infersim"]
    assert own["precision"]["sufficient"] is False
    assert own["precision"]["p99_ttft_ms"]["samples"] == 3000
    assert "TTFT" in own["precision"]["text"]
    assert "repetitions would do" in own["precision"]["text"]
    assert [note for note in own["notes"] if "oo short" in note or "oo few" in note] == [
        own["precision"]["text"]
    ]


def test_more_repetitions_do_not_make_up_for_short_ones() -> None:
    parts = [tiny(i) for i in range(3)]
    parts[1]["infersim"]["precision"] |= {
        "sufficient": False,
        "text": Composed({"found": "Too short."}),
    }
    parts[1]["infersim"]["precision"]["p99_tpot_ms"]["high"] = None
    own = combine(parts)["infersim"]
    assert own["precision"]["sufficient"] is False
    assert own["precision"]["text"].startswith("Too short. (Of one repetition")


# -- what is written and shown -------------------------------------------------------------------


def test_one_row_per_repetition_is_saved(result: Result, tmp_path: Path) -> None:
    directory = result.save(tmp_path / "run")
    text = (directory / "summary.json").read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads(text) == result.summary
    with (directory / "repetitions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["repetition"]) for row in rows] == [0, 1, 2, 3]
    for row, summary in zip(rows, result.summaries, strict=True):
        assert int(row["seed"]) == summary["infersim"]["seed"]
        assert float(row["p99_ttft_ms"]) == summary["p99_ttft_ms"]
        assert float(row["queue_ms.p99"]) == summary["infersim"]["queue_ms"]["p99"]
    frame = result.repetitions
    pd.testing.assert_frame_equal(pd.read_csv(directory / "repetitions.csv"), frame)
    assert frame["seed"].dtype == "int64"
    resolved = sim.load_scenario(directory / "resolved.yaml")
    assert sim.simulate(resolved).summary == result.summary


def test_a_single_run_has_one_row_and_no_table(tmp_path: Path) -> None:
    single = sim.simulate(load(run__repetitions=1))
    assert single.repetitions["seed"].tolist() == [42]
    assert not (single.save(tmp_path / "run") / "repetitions.csv").exists()


def test_what_is_undefined_in_all_is_null() -> None:
    nothing = sim.simulate(load(max_model_len=8))
    json.dumps(nothing.summary, allow_nan=False)
    own = nothing.summary["infersim"]
    assert nothing.summary["p99_ttft_ms"] is None
    assert own["requests"]["rejected_reasons"] == {"longer than max_model_len": 60}
    assert own["repetitions"]["intervals"]["p99_ttft_ms"]["mean"] is None
    assert own["verdict"]["state"] == "no traffic served"
    assert nothing.repetitions["p99_ttft_ms"].isna().all()


def test_progress_runs_once_over_all_of_them() -> None:
    told: list[tuple[int, int]] = []
    sim.simulate(load(), progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 240), (60, 240), (120, 240), (180, 240)]


def test_the_page_shows_the_intervals_and_what_the_charts_are(result: Result) -> None:
    page = render(
        summary=result.summary,
        requests=result.requests,
        timeseries=result.timeseries,
        scenario_yaml="",
    )
    assert "show the first of 4 repetitions" in page
    assert "means of 4 repetitions with different seeds" in page
    assert len(re.findall(r"by chance \(95\s%\)", page)) >= 4
    assert "Chance in the traffic comes on top: ±" in page


# -- interrupts ----------------------------------------------------------------------------------


def interrupted_in(repetition: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Result:
    """The result of a run in which Ctrl-C is pressed during this repetition."""
    calls = 0
    build = sim.simulation.build  # type: ignore[attr-defined]

    def pressed(*arguments: Any) -> Any:
        nonlocal calls
        if calls == repetition:
            signal.raise_signal(signal.SIGINT)
        calls += 1
        return build(*arguments)

    monkeypatch.setattr("sim.simulation.build", pressed)
    return sim.simulate(load())


def test_an_interrupt_keeps_the_repetitions_that_had_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, result: Result
) -> None:
    cut = interrupted_in(2, monkeypatch, tmp_path)
    assert cut.interrupted
    assert cut.summaries == result.summaries[:2]
    own = cut.summary["infersim"]
    assert own["interrupted"] is True
    assert own["repetitions"]["count"] == 2
    assert "Interrupted: 2 of 4 repetitions had finished; the figures are of those." in own["notes"]
    manifest = json.loads((cut.save(tmp_path / "run") / "manifest.json").read_text())
    assert manifest["status"] == "interrupted"


def test_an_interrupt_in_the_first_keeps_its_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cut = interrupted_in(0, monkeypatch, tmp_path)
    assert cut.interrupted
    assert isinstance(cut.record, RunRecord)
    assert len(cut.summaries) == 1
    own = cut.summary["infersim"]
    assert own["repetitions"]["intervals"]["completed"]["half_width"] is None
    assert any("0 of 4 repetitions had finished" in note for note in own["notes"])
    json.dumps(cut.summary, allow_nan=False)
