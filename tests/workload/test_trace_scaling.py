"""More users, or the same ones faster: overlaid copies, gaps multiplied, a rate asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import ScenarioError, UsageError
from sim.metrics.question.question_text import asked
from sim.workload import build
from sim.workload.traces import Trace, TracePlay, read_trace
from sim.workload.traces.scaling import MOST, overlaid
from tests.places import SHARED

PLAIN = "arrival_s,prompt_tokens,output_tokens\n"
REAL = SHARED / "data" / "traces" / "azure_conv_2023.csv"
FOUR = [(0.0, 10, 1), (1.0, 20, 2), (3.0, 30, 3), (6.0, 40, 4)]
"""Four requests in 6 s: a mean gap of 2 s, so a period of 8 s."""


def written(path: Path, rows: list[tuple[float, int, int]] = FOUR) -> Path:
    path.write_text(PLAIN + "".join(f"{t!r},{p},{o}\n" for t, p, o in rows))
    return path


def rows(trace: Trace) -> list[tuple[float, int, int]]:
    columns = (trace.arrivals, trace.prompt_tokens, trace.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def trace_of(times: list[float]) -> Trace:
    count = np.arange(1, len(times) + 1)
    return Trace(np.array(sorted(times)) - min(times), count, count + 100)


def scenario(path: Path, *overrides: str, **trace: Any) -> sim.Scenario:
    return sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "workload": {"trace": {"path": str(path), **trace}},
        }
    ).override(list(overrides))


def sent(asked: sim.Scenario) -> list[tuple[float, int, int]]:
    traffic = build(asked, asked.seed)
    return [row[:3] for chunk in traffic.chunks() for row in chunk.rows()]


# The busiest stretch


def test_the_busiest_stretch_has_most_tokens_of_all_that_begin_with_a_request(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "t.csv", [(0.0, 9, 1), (1.0, 9, 1), (4.0, 30, 3), (5.5, 1, 1)])
    assert sent(scenario(path, busiest="2s")) == [(0.0, 30, 3), (1.5, 1, 1)]
    assert sent(scenario(path, busiest="1.5s")) == [(0.0, 30, 3)], "its end is not in it"
    assert sent(scenario(path, busiest="2s", limit=1)) == [(0.0, 30, 3)]
    assert len(sent(scenario(path, busiest="1h"))) == 4
    assert len(sent(scenario(path, busiest="2s", overlay=3))) == 6
    traffic = asked(scenario(path, busiest="90s"))["traffic"]
    assert traffic == "trace t.csv, its busiest 90 s"


# Copies


def test_two_copies_of_four_requests_by_hand(tmp_path: Path) -> None:
    # The second copy is 4 s later: its requests come at 4, 5 and 7, and at 10, which is 2.
    found = read_trace(written(tmp_path / "t.csv"), played=TracePlay(overlay=2))
    assert rows(found) == [
        (0.0, 10, 1),
        (1.0, 20, 2),
        (2.0, 40, 4),
        (3.0, 30, 3),
        (4.0, 10, 1),
        (5.0, 20, 2),
        (6.0, 40, 4),
        (7.0, 30, 3),
    ]


def test_half_a_copy_is_a_sample_of_the_last_one(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv")
    found = rows(read_trace(path, played=TracePlay(overlay=1.5, seed=7)))
    assert len(found) == 6
    assert [row for row in FOUR if row in found] == FOUR
    whole = rows(read_trace(path, played=TracePlay(overlay=2)))
    assert set(found) < set(whole)
    assert found == rows(read_trace(path, played=TracePlay(overlay=1.5, seed=7)))
    samples = {
        tuple(rows(read_trace(path, played=TracePlay(overlay=1.5, seed=seed))))
        for seed in range(20)
    }
    assert len(samples) > 1


def test_less_than_one_copy_is_fewer_users(tmp_path: Path) -> None:
    found = read_trace(written(tmp_path / "t.csv"), played=TracePlay(overlay=0.5))
    assert len(found) == 2
    assert found.arrivals[0] == 0.0
    assert set(found.prompt_tokens.tolist()) < {10, 20, 30, 40}
    assert len(read_trace(tmp_path / "t.csv", played=TracePlay(overlay=1e-6))) == 1


def test_copies_of_one_instant_come_at_that_instant() -> None:
    found = overlaid(trace_of([5.0, 5.0]), 2.5, 1)
    assert found.arrivals.tolist() == [0.0] * 5
    assert found.prompt_tokens.tolist()[:4] == [1, 2, 1, 2]


@given(
    st.lists(st.floats(0, 1e6, width=32), min_size=1, max_size=40),
    st.floats(0.02, 6.0),
    st.integers(0, 99),
)
def test_requests_and_their_lengths_are_conserved(
    times: list[float], copies: float, seed: int
) -> None:
    recorded = trace_of(times)
    found = overlaid(recorded, copies, seed)
    whole, part = int(copies), copies - int(copies)
    extra = max(1, round(part * len(recorded))) if part else 0
    assert len(found) == whole * len(recorded) + extra
    assert (np.diff(found.arrivals) >= 0).all()
    assert found.arrivals[0] == 0.0
    assert (found.output_tokens - found.prompt_tokens == 100).all()
    counts = np.bincount(found.prompt_tokens, minlength=len(recorded) + 1)[1:]
    assert set(counts.tolist()) <= {whole, whole + 1}


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 60), st.floats(1.05, 1.5), st.floats(0.01, 0.45), st.integers(0, 9))
def test_a_larger_share_of_a_copy_has_what_a_smaller_one_has(
    requests: int, copies: float, more: float, seed: int
) -> None:
    recorded = trace_of([float(i * i) for i in range(requests)])
    less, more_of_it = (rows(overlaid(recorded, n, seed)) for n in (copies, copies + more))
    assert set(less) <= set(more_of_it)


def test_the_rate_grows_with_the_copies_and_bursts_do_not_coincide() -> None:
    # 200 requests, half of them within 1 s at the start
    times = [i / 100 for i in range(100)] + [float(t) for t in range(1, 101)]
    recorded = trace_of(times)
    four = overlaid(recorded, 4, 1)
    assert len(four) / four.arrivals[-1] == pytest.approx(4 * 199 / 100, rel=0.01)
    most = [max(np.histogram(t.arrivals, np.arange(0, 102))[0]) for t in (recorded, four)]
    assert most[1] <= most[0] + 4
    compressed = recorded.arrivals / 4
    assert max(np.histogram(compressed, np.arange(0, 27))[0]) > most[0]


def test_too_many_copies_are_refused_with_a_way_out() -> None:
    with pytest.raises(UsageError, match="more than 10,000,000 requests; overlay fewer, or a part"):
        overlaid(trace_of([0.0, 1.0]), MOST, 1)


# In a scenario


def test_limit_counts_the_recording_and_requests_what_is_sent(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv")
    # the first three: 3 s, mean gap 1.5 s, period 4.5 s; the copy comes 2.25 s later
    both = [(0.0, 10, 1), (0.75, 30, 3), (1.0, 20, 2), (2.25, 10, 1), (3.0, 30, 3), (3.25, 20, 2)]
    assert sent(scenario(path, overlay=2, limit=3)) == both
    assert sent(scenario(path, "run.requests=5", overlay=2, limit=3)) == both[:5]
    halved = [(t / 2, p, o) for t, p, o in both]
    assert sent(scenario(path, overlay=2, limit=3, time_scale=0.5)) == halved
    assert sent(scenario(path, "run.requests=2", limit=3)) == FOUR[:2]


def test_priorities_go_with_their_requests_and_shares_are_drawn_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    lines = [f"{t!r},{p},{o},{i % 2}\n" for i, (t, p, o) in enumerate(FOUR)]
    path.write_text(PLAIN.replace("\n", ",priority\n") + "".join(lines))
    asked = scenario(path, overlay=2)
    traffic = build(asked, 1)
    told = [(row[1], row[3].priority) for chunk in traffic.chunks() for row in chunk.rows()]
    assert sorted(told) == sorted([(10, 0), (20, 1), (30, 0), (40, 1)] * 2)
    drawn = scenario(written(tmp_path / "plain.csv"), overlay=100).override(
        {"workload.classes": [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5}]}
    )
    names = [row[3].name for chunk in build(drawn, 1).chunks() for row in chunk.rows()]
    assert 150 < names.count("a") < 250


def test_leaps_change_nothing_of_an_overlaid_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", [(i * 0.05, 300 + i, 20 + i % 7) for i in range(60)])
    asked = scenario(path, overlay=2.5, time_scale="1/3")
    leaping, stepping = (sim.simulate(asked, leap=leap) for leap in (True, False))
    assert leaping.summary["completed"] == 150
    assert leaping.requests.equals(stepping.requests)


def test_a_rate_is_reached_by_scaling_gaps(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv")
    assert sent(scenario(path, rate=4)) == [(t / 8, p, o) for t, p, o in FOUR]
    times = [row[0] for row in sent(scenario(path, "run.requests=7", rate=12, overlay=3))]
    assert (len(times) - 1) / times[-1] == pytest.approx(12)
    again = sim.load_scenario(scenario(path, rate=5).resolved())
    assert again.workload.trace is not None
    assert again.workload.trace.rate == 5


def test_a_rate_and_a_time_scale_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="rate replaces time_scale; give one or the other"):
        scenario(written(tmp_path / "t.csv"), rate=5, time_scale=0.5)
    at_once = written(tmp_path / "once.csv", [(1.0, 1, 1), (1.0, 2, 2)])
    with pytest.raises(UsageError, match="come at one time: it has no rate"):
        sent(scenario(at_once, rate=5))


@pytest.mark.parametrize("key", ["time_scale", "overlay"])
def test_a_fraction_is_a_number(tmp_path: Path, key: str) -> None:
    path = written(tmp_path / "t.csv")
    asked = scenario(path, f"workload.trace.{key}=1/4")
    assert asked.workload.trace is not None
    assert getattr(asked.workload.trace, key) == 0.25
    for wrong in ("1/0", "1/2/3", "/3", "1/x", "-1/3", "0", "true", "1/1e400"):
        with pytest.raises(ScenarioError, match=r"finite number|or a fraction such as 1/3, got"):
            scenario(path, f"workload.trace.{key}={wrong}")


def test_a_part_of_a_copy_is_drawn_and_may_be_repeated(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", [(i / 10, 50, 5) for i in range(20)])
    twice = ["run.repetitions=2", "run.warmup=0"]
    assert sim.simulate(scenario(path, *twice, overlay=1.5)).summary["completed"] > 0
    with pytest.raises(UsageError, match="nothing in this scenario is drawn at random"):
        sim.simulate(scenario(path, *twice, overlay=2))


# The command


def scale(*arguments: str | Path) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["trace", "scale", *map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done.exit_code, done.stdout, done.stderr


def test_the_command_writes_what_a_scenario_would_replay(tmp_path: Path) -> None:
    path, out = written(tmp_path / "t.csv"), tmp_path / "o.csv"
    assert scale(path, out, "--overlay", "2.5", "--time-scale", "1/3") == (
        0,
        f"{out}: 10 requests\n",
        "",
    )
    assert rows(read_trace(out)) == sent(scenario(path, overlay=2.5, time_scale="1/3"))
    assert scale(path, out, "--rate", "30/min", "--force")[0] == 0
    assert read_trace(out).arrivals[-1] == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "give --overlay N, --time-scale X or --rate R"),
        (["--overlay", "0"], "--overlay: expected a number above 0, or a fraction such as 1/3"),
        (["--time-scale", "5/x"], "got '5/x'"),
        (["--rate", "fast"], "--rate: "),
        (["--rate", "5", "--time-scale", "2"], "--rate replaces --time-scale"),
        (["--overlay", "1e7"], "--overlay: expected a value from 1e-06 to 1e+06"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path: Path, options: list[str], told: str) -> None:
    path = written(tmp_path / "t.csv")
    code, out, err = scale(path, tmp_path / "o.csv", *options)
    assert (code, out) == (2, "")
    assert told in err
    assert not (tmp_path / "o.csv").exists()


@pytest.mark.skipif(not REAL.exists(), reason=f"the trace is not at {REAL}")
def test_three_times_the_users_of_the_real_trace_are_less_bursty() -> None:
    recorded, tripled = read_trace(REAL), read_trace(REAL, played=TracePlay(overlay=3))
    assert len(tripled) == 58_098
    assert tripled.prompt_tokens.sum() == 3 * 22_361_870
    busiest = [np.bincount((t.arrivals // 60).astype(int)).max() for t in (recorded, tripled)]
    assert busiest[1] < 2.5 * busiest[0]
