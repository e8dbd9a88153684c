"""Prefix caches that an engine has on by default are spoken of where texts are shared."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

import sim
from sim import catalog
from sim.cli import app
from sim.metrics.engine.prefix_words import shares_nothing

RUN = ["run", "scenarios/chat.yaml", "--no-save", "--set", "run.requests=60"]
SHARED = ["--set", "workload.shared_prefix={tokens: 400, groups: 2}"]


@pytest.mark.parametrize(("given", "spoken_of"), [([], False), (SHARED, True)])
def test_hits_are_shown_where_something_is_shared(given: list[str], spoken_of: bool) -> None:
    shown = CliRunner().invoke(app, [*RUN, *given]).stdout
    assert ("prefix hits" in shown) == spoken_of
    assert ("Prefix caches start empty" in shown) == spoken_of
    assert catalog.engine("vllm").label in shown  # the release that the bare name stands for


def test_what_was_not_recorded_may_have_been_shared() -> None:
    chat = sim.load_scenario("scenarios/chat.yaml", ["run.requests=60"])
    entry = sim.simulate(chat).summary["infersim"]["prefix_cache"]
    assert shares_nothing(entry)
    assert not shares_nothing({**entry, "first_seen": None})
    assert not shares_nothing({**entry, "hits": 5})
