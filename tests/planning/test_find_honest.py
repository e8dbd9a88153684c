"""What ``find`` says of a load is so: of which limit a share is, and what can be served at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.errors import UsageError
from sim.metrics.slo.objectives import slo_objectives
from sim.planning.answers.find import probes
from sim.planning.fleet.choose import to_plan
from sim.planning.load.find import find
from sim.planning.load.find_document import document
from sim.planning.load.finder import LOWEST, Finder, Guess
from sim.planning.points.wording import nearest_promise, promise_name
from sim.terminal.console import as_text
from tests.answers import find_view
from tests.made_up import highest_load
from tests.planning_fixtures import small

pytestmark = pytest.mark.usefixtures("brief_answers")

SLOW = """
from sim.schedulers import Scheduler


class Alone(Scheduler):
    def schedule(self, now):
        return None

    def members(self):
        return []

    def _retire(self, request):
        pass
"""


def test_a_share_is_that_of_the_limit_that_is_named() -> None:
    strict = {"ttft_p95": "10s", "tpot_p50": "8ms"}
    told = document(find(small(run__requests=300, slo=strict), "rate", tolerance=0.2))
    near = [nearest_promise(probe) for probe in told["probes"]]
    assert {promise_name(each) for each in near if each is not None} == {"TPOT p50"}
    assert any(each is not None and each["attainment"] < 1 for each in near)
    text = as_text(find_view(told))
    assert "TPOT p50" in text
    assert "SLO\n" not in text


def test_no_load_beyond_full_batches_is_called_held() -> None:
    patient = small(run__requests=300, slo={"ttft": "1h", "tpot": "1h"})
    finder = Finder(patient, "rate", slo_objectives(patient))
    full = finder.saturation.rate
    assert finder.probe(0.5 * full, 1).holds
    assert finder.probe(1.5 * full, 3).holds
    for load in (1.01 * full, 1.03 * full):
        beyond = finder.probe(load, 1)
        assert not beyond.holds
        assert beyond.breaks == "capacity"
        assert beyond.strain > 0
    assert finder.probe(1.03 * full, 1).outcome == "fails"


def test_without_an_slo_the_verdict_is_named() -> None:
    found = find(small(run__requests=300, slo=None), "rate", tolerance=0.2)
    told = document(found)
    assert found.fails is not None
    assert found.fails.state == "near saturation"
    text = as_text(find_view(told))
    assert "fails: near saturation" in text
    assert "fails: capacity" not in text
    assert "the verdict is near saturation, not stable" in " ".join(told["sentences"])


def test_where_the_capacity_is_an_estimate_lower_loads_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "alone_honest.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = small(scheduler__batching="alone_honest:Alone", slo={"ttft": "1ms"})
    finder = Finder(own, "rate", slo_objectives(own))
    tried: list[float] = []

    def stop(load: float, *_: object, **__: object) -> None:
        tried.append(load)
        raise InterruptedError

    monkeypatch.setattr(finder, "probe", stop)
    with pytest.raises(InterruptedError):
        finder.find(1, 0.1, guess=Guess(0.0))
    assert 0 < tried[0] < LOWEST * finder.saturation.rate


def test_a_scaled_fleet_is_refused_before_layouts_are_tried() -> None:
    scaled = small(fleet={"gpu": "h100-sxm", "replicas": {"min": 1, "max": 3}})
    with pytest.raises(UsageError, match="give a number here"):
        to_plan(scaled)


def test_the_table_of_loads_says_of_how_many_requests_their_shares_are() -> None:
    found = {**highest_load(), "opening_left_out": False}
    assert probes(found).caption == "Loads that were simulated, with 3,000 requests"
    first, *others = found["probes"]
    found |= {"probes": [{**first, "requests": 48_000}, *others], "opening_left_out": True}
    told = "Loads that were simulated, with 3,000 to 48,000 requests, without each user's first two"
    assert probes(found).caption == told
    assert len(told) <= 88
