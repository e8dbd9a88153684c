"""Rows of a run belong to its record alone once the run is over."""

from __future__ import annotations

import pytest

import sim
from sim import simulation
from sim.loop.recorder import Recorder
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
