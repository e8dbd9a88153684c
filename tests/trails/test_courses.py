"""With the chunks and absences of a run, what its requests went through is exact."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.results.trail_files import absence_columns, chunk_columns
from sim.trails.courses import Courses
from sim.trails.iterations import Columns, Iterations
from sim.trails.slots import Placement, SlotPart, overlapping, placement
from sim.trails.tokens import token_times
from tests.harness import LineTimer, Played, play
from tests.loop.test_leaps import open_traffic, prices, schedulers
from tests.trails.test_trails import tables

PHASES = {"queue", "prefill", "decode", "stalled", "preempted"}
Tables = tuple[Columns, Columns, Courses]


def recorded(played: Played) -> Tables:
    """Requests, plans and courses, as the files of a run have them."""
    requests, plans = tables(played)
    chunks, absences = played.recorder.trail_rows()
    return requests, plans, Courses(chunk_columns(chunks), absence_columns(absences), plans)


def placement_of(found: Tables, until: float, replica: int = 0) -> Placement:
    requests, plans, courses = found
    rows = overlapping(requests, replica, 0.0, math.inf).tolist()
    return placement(requests, Iterations(plans, replica), rows, until, courses=courses)


@given(schedulers(), open_traffic, prices, st.booleans(), st.integers(1, 3))
def test_every_token_time_is_that_of_the_event_loop(
    make: Any, traffic: Any, price: LineTimer, leap: bool, replicas: int
) -> None:
    played = play(traffic, make, price, leap=leap, replicas=replicas)
    requests, plans, courses = recorded(played)
    served = {name: column[requests["finish_s"] >= 0] for name, column in requests.items()}
    for row, (times, how) in enumerate(token_times(served, plans, courses)):
        assert how == "exact"
        true = played.tokens[int(served["request_id"][row])]
        assert times.tolist() == pytest.approx(true, rel=1e-12)


@given(schedulers(), open_traffic, prices, st.booleans())
def test_slots_are_those_of_the_batch(
    make: Any, traffic: Any, price: LineTimer, leap: bool
) -> None:
    played = play(traffic, make, price, leap=leap)
    found = recorded(played)
    requests, plans, _ = found
    slots = placement_of(found, math.inf)
    assert slots.vague == 0
    parts = [(requests["request_id"][s.row], part) for s in slots.stays for part in s.parts]
    assert {part.phase for _, part in parts} <= PHASES
    if not type(make()).shape.whole:  # of a whole batch, slots stay taken when requests are done
        in_slot = [stay for stay in slots.stays if stay.in_slot]
        for start, running in zip(plans["start_s"], plans["running"], strict=True):
            assert sum(stay.start <= start < stay.end for stay in in_slot) == running
    chunks, absences = played.recorder.trail_rows()
    rows = played.recorder.plan_rows()[chunks["plan"]]
    columns = (chunks["request"], rows["start"], rows["end"], chunks["tokens"])
    computed = Counter(zip(*(column.tolist() for column in columns), strict=True))
    drawn = Counter((i, p.start, p.end, p.tokens) for i, p in parts if p.phase == "prefill")
    assert not drawn - computed
    assert all(tokens == 1 for *_, tokens in computed - drawn)  # passed over, and catches up
    outs = Counter((int(row["request"]), float(row["time"])) for row in absences if row["out"])
    assert outs == Counter((i, p.start) for i, p in parts if p.phase == "preempted")


def test_by_hand() -> None:
    """Two requests; the second is preempted twice, once while it is prefilled again."""
    plans = {
        "replica": np.zeros(8, int),
        "start_s": np.arange(8.0),
        "end_s": np.arange(8.0) + 1,
        "iterations": np.ones(8, int),
        "iteration_growth_s": np.zeros(8),
        "decode_seqs": np.array([0, 2, 1, 1, 1, 1, 1, 1]),
        "prefill_seqs": np.array([2, 0, 0, 1, 0, 1, 1, 0]),
        "prefill_tokens": np.array([14, 0, 0, 4, 0, 4, 2, 0]),
        "preemptions": np.array([0, 0, 1, 0, 1, 0, 0, 0]),
    }
    requests = {
        "request_id": np.array([7]),
        "replica": np.array([0]),
        "arrival_s": np.array([-1.0]),
        "scheduled_s": np.array([0.0]),
        "first_token_s": np.array([1.0]),
        "finish_s": np.array([8.0]),
        "prompt_tokens": np.array([4]),
        "output_tokens": np.array([4]),
        "generated_tokens": np.array([4]),
        "preemptions": np.array([2]),
    }
    chunks = {
        "plan": np.array([0, 3, 5, 6]),
        "request_id": np.full(4, 7),
        "tokens": np.array([4, 4, 4, 2]),
        "context": np.array([0, 0, 0, 4]),
    }
    absences = {
        "request_id": np.full(3, 7),
        "time_s": np.array([2.0, 4.0, 7.0]),
        "out": np.array([True, True, False]),
    }
    courses = Courses(chunks, absences, plans)
    assert [(t.tolist(), how) for t, how in token_times(requests, plans, courses)] == [
        ([1.0, 2.0, 7.0, 8.0], "exact")
    ]
    found = placement(requests, Iterations(plans, 0), [0], 8.0, courses=courses)
    assert [part for stay in found.stays for part in stay.parts] == [
        SlotPart("queue", -1.0, 0.0),
        SlotPart("prefill", 0.0, 1.0, 4),
        SlotPart("decode", 1.0, 2.0),
        SlotPart("preempted", 2.0, 3.0),
        SlotPart("prefill", 3.0, 4.0, 4),
        SlotPart("preempted", 4.0, 5.0),
        SlotPart("prefill", 5.0, 6.0, 4),
        SlotPart("prefill", 6.0, 7.0, 2),
        SlotPart("decode", 7.0, 8.0),
    ]
    assert [how for _, how in token_times(requests, plans)] == ["preempted"]


def test_a_course_that_contradicts_the_iterations_is_not_used() -> None:
    """An engine that delivers several tokens at once: what is known is what the tables say."""
    plans = {
        name: np.array(values)
        for name, values in {
            **{"replica": [0, 0], "start_s": [0.0, 1.0], "end_s": [1.0, 2.0]},
            **{"iterations": [1, 1], "iteration_growth_s": [0.0, 0.0], "decode_seqs": [0, 1]},
            **{"prefill_seqs": [1, 0], "prefill_tokens": [4, 0], "preemptions": [0, 0]},
        }.items()
    }
    requests = {
        name: np.array([value])
        for name, value in {
            **{"request_id": 0, "replica": 0, "arrival_s": 0.0, "scheduled_s": 0.0},
            **{"first_token_s": 1.0, "finish_s": 2.0, "prompt_tokens": 4, "output_tokens": 4},
            **{"generated_tokens": 4, "preemptions": 0},
        }.items()
    }
    chunks = {"plan": [0], "request_id": [0], "tokens": [4], "context": [0]}
    none = {"request_id": np.empty(0, int), "time_s": np.empty(0), "out": np.empty(0, bool)}
    courses = Courses({name: np.array(v) for name, v in chunks.items()}, none, plans)
    ((times, how),) = token_times(requests, plans, courses)
    assert how == "even"
    assert len(times) == 4
    with_it = placement(requests, Iterations(plans, 0), [0], 2.0, courses=courses)
    assert with_it == placement(requests, Iterations(plans, 0), [0], 2.0)
