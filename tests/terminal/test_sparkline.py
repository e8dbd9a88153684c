"""A run in two lines of blocks: what is drawn for which series, and how a terminal shows it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import sim
from sim.metrics.latency.timeline import Level, Timeline, running, waiting
from sim.terminal.sparkline import BLOCKS, DIGITS, Sparks, sparkline


def level(*steps: tuple[float, float]) -> Level:
    times, values = zip(*steps, strict=True)
    return Level(np.array(times, dtype=float), np.array(values, dtype=float))


NOBODY = Level(np.empty(0), np.empty(0))


def drawn(timeline: Timeline, width: int = 40, encoding: str = "utf-8", **options: Any) -> str:
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    console = Console(file=file, width=width, color_system=None)
    console.print(Sparks(timeline, **options))
    file.flush()
    return file.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]


# -- levels ----------------------------------------------------------------------------------------


def test_the_most_of_each_stretch_is_kept_however_short_it_was() -> None:
    spike = level((0.0, 1.0), (3.1, 9.0), (3.2, 2.0), (6.0, 0.0))
    assert spike.most(0.0, 8.0, 4) == [1.0, 9.0, 2.0, 0.0]
    assert spike.most(0.0, 8.0, 1) == [9.0]
    assert spike.most(-2.0, 0.0, 2) == [0.0, 0.0]


def test_a_level_that_lasts_counts_in_stretches_without_a_change() -> None:
    assert level((0.0, 4.0)).most(0.0, 10.0, 5) == [4.0] * 5
    assert NOBODY.most(0.0, 10.0, 3) == [0.0] * 3


def test_of_changes_at_one_time_the_outcome_counts() -> None:
    times, changes = np.array([1.0, 0.0, 1.0, 1.0]), np.array([-1.0, 1.0, 5.0, -5.0])
    found = Level.of_changes(times, changes)
    assert found.times.tolist() == [0.0, 1.0]
    assert found.values.tolist() == [1.0, 0.0]


def test_replicas_add_up_and_nobody_runs_between_plans() -> None:
    columns = {
        "start_s": np.array([0.0, 2.0, 1.0]),
        "end_s": np.array([1.0, 3.0, 4.0]),
        "running": np.array([3, 5, 2]),
    }
    assert running(columns).most(0.0, 5.0, 5) == [3.0, 2.0, 7.0, 2.0, 0.0]


def test_who_is_never_scheduled_waits_to_the_end() -> None:
    queue = waiting(np.array([0.0, 1.0, 2.0]), np.array([0.5, np.nan, 2.0]))
    assert queue.most(0.0, 4.0, 4) == [1.0, 1.0, 1.0, 1.0]


@given(
    st.lists(st.tuples(st.floats(0, 10), st.integers(0, 99)), min_size=1, max_size=30),
    st.integers(1, 40),
)
def test_stretches_keep_the_most_of_the_whole(
    steps: list[tuple[float, int]], stretches: int
) -> None:
    times = np.unique([time for time, _ in steps])
    values = np.array([value for _, value in steps[: len(times)]], dtype=float)
    found = Level(times, values).most(0.0, 10.0, stretches)
    assert len(found) == stretches
    inside = values[times < 10.0]
    assert max(found) == max(inside, default=0.0)


# -- marks -----------------------------------------------------------------------------------------


@given(st.lists(st.integers(0, 10**9), max_size=50))
def test_zero_and_the_most_are_told_apart_from_all_else(values: list[int]) -> None:
    most = max(values, default=0)
    for marks, blocks in ((BLOCKS, True), (DIGITS, False)):
        line = sparkline(values, most, blocks=blocks)
        assert len(line) == len(values)
        for value, mark in zip(values, line, strict=True):
            assert (mark == marks[0]) == (value == 0)
            assert value < most or most == 0 or mark == marks[-1]


# -- lines -----------------------------------------------------------------------------------------


def test_a_known_run() -> None:
    seen = Timeline(
        0.0, 20.0, 1, level((0, 1), (4, 4), (8, 8), (16, 2)), level((10, 40), (14, 5), (15, 0))
    )
    assert drawn(seen, 38) == (
        "Over 20 s, the most in each 1 s:\n"
        "running  ▁▁▁▁▄▄▄▄████████▂▂▂▂  peak 8\n"
        "waiting  ··········████▁·····  peak 40\n"
    )


def test_a_queue_shorter_than_the_batch_is_drawn_in_its_scale() -> None:
    seen = Timeline(0.0, 16.0, 1, level((0, 8)), level((0, 0), (8, 1), (12, 0)))
    assert drawn(seen, 33) == (
        "Over 16 s, the most in each 1 s, \n"
        "both in one scale:\n"
        "running  ████████████████  peak 8\n"
        "waiting  ········▁▁▁▁····  peak 1\n"
    )


def test_digits_where_there_are_no_blocks() -> None:
    seen = Timeline(0.0, 16.0, 1, level((0, 1), (8, 8)), level((4, 100), (12, 50), (14, 0)))
    assert drawn(seen, 35, "ascii") == (
        "Over 16 s, the most in each 1 s, in\n"
        "eighths of the peak:\n"
        "running  1111111188888888  peak 8\n"
        "waiting  ....8888888844..  peak 100\n"
    )
    calm = Timeline(0.0, 16.0, 1, level((0, 8)), level((4, 1), (12, 0)))
    assert drawn(calm, 33, "ascii").endswith(
        "in eighths of the peak of \nrunning:\n"
        "running  8888888888888888  peak 8\n"
        "waiting  ....11111111....  peak 1\n"
    )


def test_a_constant_run_is_full_and_a_queue_of_nobody_is_flat() -> None:
    seen = Timeline(0.0, 16.0, 1, level((0, 3)), NOBODY)
    assert drawn(seen, 33).splitlines()[-2:] == [
        "running  ████████████████  peak 3",
        "waiting  ················  peak 0",
    ]


def test_replicas_and_repetitions_are_said() -> None:
    seen = Timeline(0.0, 16.0, 4, level((0, 3)), None)
    assert drawn(seen, 88, of_first=True) == (
        "Over 16 s, the most in each 225 ms on all 4 replicas, first repetition:\n"
        f"running  {'█' * 71}  peak 3\n"
    )


@pytest.mark.parametrize(
    "seen",
    [
        Timeline(0.0, 0.0, 1, level((0, 3)), NOBODY),
        Timeline(0.0, 5.0, 1, None, None),
        Timeline(0.0, 5.0, 1, NOBODY, NOBODY),
    ],
    ids=["no time", "nothing known", "nobody came"],
)
def test_nothing_is_drawn_of_nothing(seen: Timeline) -> None:
    assert drawn(seen) == ""


@pytest.mark.parametrize("width", [41, 60, 88])
def test_wide_numbers_take_their_room_from_the_blocks(width: int) -> None:
    seen = Timeline(0.0, 16.0, 1, level((0, 1_234_567)), level((0, 1)))
    lines = drawn(seen, width).splitlines()
    assert lines[-1].count("▁") == max(16, width - len("running  ") - len("  peak 1,234,567"))


# -- runs ------------------------------------------------------------------------------------------


def scenario(**workload: Any) -> sim.Scenario:
    lengths = {"kind": "fixed", "value": 20}
    return sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": "ideal",
            "scheduler": {"max_num_seqs": 2},
            "workload": {"prompt_tokens": lengths, "output_tokens": lengths, **workload},
            "run": {"requests": 6},
        }
    )


def test_a_burst_runs_two_by_two_while_the_others_wait() -> None:
    result = sim.simulate(scenario(arrivals={"kind": "burst"}))
    seen = result.timeline()
    batch = result.summary["infersim"]["batch"]
    assert seen.running is not None
    assert seen.waiting is not None
    assert seen.end == pytest.approx(result.summary["duration"])
    assert seen.running.most(seen.start, seen.end, 3) == [2.0] * 3
    assert seen.waiting.most(seen.start, seen.end, 3) == [4.0, 2.0, 0.0]
    assert seen.waiting.most(seen.start, seen.end, 1) == [batch["peak_waiting"]]


def test_the_peaks_are_those_of_the_table() -> None:
    changes = {"scheduler.max_num_seqs": 8, "run.requests": 200}
    busy = scenario(arrivals={"kind": "poisson", "rate": 60.0}).override(changes)
    result = sim.simulate(busy)
    seen, batch = result.timeline(), result.summary["infersim"]["batch"]
    assert seen.running is not None
    assert seen.running.most(seen.start, seen.end, 50) != [batch["peak_running"]] * 50
    assert max(seen.running.most(seen.start, seen.end, 50)) == batch["peak_running"]


def test_one_request_of_one_token_is_one_iteration() -> None:
    once = scenario(arrivals={"kind": "burst"}).override(
        {"run.requests": 1, "workload.output_tokens.value": 1}
    )
    text = drawn(sim.simulate(once).timeline(), 33)
    assert text.splitlines()[-2:] == [
        "running  ████████████████  peak 1",
        "waiting  ················  peak 0",
    ]


def test_nobody_could_be_served() -> None:
    refused = scenario(arrivals={"kind": "burst"}).override(
        {"max_model_len": 64, "workload.prompt_tokens.value": 500}
    )
    assert drawn(sim.simulate(refused).timeline()) == ""
