"""Rows have the columns of plans and of features, and belong to the record of a run alone."""

from __future__ import annotations

import pytest

import sim
from sim import simulation
from sim.loop.recorder import PLAN, Columns, Recorder
from sim.setup import Setup


def test_nothing_but_the_record_keeps_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Recorder] = []
    make = simulation.make_recorder

    def kept(setup: Setup) -> Recorder:
        made.append(make(setup))
        return made[-1]

    monkeypatch.setattr(simulation, "make_recorder", kept)
    result = sim.simulate(sim.load_scenario("scenarios/chat.yaml", ["run.requests=20"]))
    (recorder,) = made
    assert len(result.record.requests) == 20
    assert not len(recorder.plan_rows())
    assert not len(recorder.request_rows())


def test_a_column_of_a_feature_is_named_and_read_in_one_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = Columns([("both", "i8", (2,))], lambda flight, _: (flight.plan.decode, flight.tokens))
    scenario = sim.load_scenario("scenarios/chat.yaml", ["run.requests=20"])
    plain = sim.simulate(scenario).record.plans
    monkeypatch.setattr(simulation, "make_recorder", lambda setup: Recorder([own]))
    plans = sim.simulate(scenario).record.plans
    assert plans.dtype.names == (*(PLAN.names or ()), "both")
    assert plans["both"].T.tolist() == [plain["decode"].tolist(), plain["prefill_tokens"].tolist()]
    assert all((plans[name] == plain[name]).all() for name in PLAN.names or ())
