"""Every sentence on certainty says what the band next to it does, in all shipped scenarios."""

from __future__ import annotations

import math
import re

import pytest

import sim
from sim.catalog.spreads import learnt
from sim.metrics.bands.bands import question, reach
from sim.metrics.bands.confidence import off_by, widest
from sim.metrics.bands.figure_bands import figure_bands
from sim.metrics.bands.trust import Trust
from sim.units import show_time
from tests.places import ROOT

SCENARIOS = sorted(
    path for path in (ROOT / "scenarios").glob("*.yaml") if "workload:" in path.read_text()
)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_sentences_on_certainty_are_those_of_the_band(path: object) -> None:
    scenario = sim.load_scenario(str(path))
    limit = {"workload.trace.limit": 60} if scenario.workload.trace else {"run.requests": 60}
    result = sim.simulate(scenario.override(limit))
    own, at = result.summary["infersim"], question(result.record)
    text, widest_side = own["error_band"]["text"], widest(own["error_band"])
    assert widest_side is not None
    releases = learnt().releases(at.place, "tpot")
    assert text.startswith(f"Published runs of {at.place.model} on {at.place.gpu}") == bool(
        releases
    )
    assert at.place.release in releases or all(release in text for release in releases)
    usual = reach("mean_tpot_ms", at)
    if at.compared:
        told = r"to lie ([-+]?\d+)% to ([-+]?\d+)% from those predicted nine times in ten"
        ends = [int(end) for end in re.findall(told, text)[0]]
        shorter = 100 * math.expm1(-usual.ends("band90")[0])
        assert ends == [round(shorter), round(100 * widest_side)]
        assert f"and {off_by(*usual.ends('band50'))} five times in ten" in text
    else:
        assert text.startswith("Nothing like this was ever compared")
        low, high = math.exp(-usual.ends("band90")[0]), 1 + widest_side
        assert f"expect {low:.1f} to {high:.1f} times the predicted times" in text
    bands = figure_bands(result.record, result.summary, None)
    assert bands is not None
    assert bands["text"].startswith("With a chance of 90 %") == at.compared
    low, high = bands["figures"]["mean_ttft_ms"]["band90"]
    assert f"TTFT mean {show_time(low / 1e3)} to {show_time(high / 1e3)}" in bands["text"]
    parts = {at: bands["figures"][f"mean_{at}_ms"]["parts"] for at in ("ttft", "tpot")}
    less = max(parts["ttft"].values()) > max(parts["tpot"].values())
    told = re.findall(r"less sure than TPOT: its largest parts are (.+?) (\d+)% and", bands["text"])
    assert bool(told) == less
    assert all(round(100 * parts["ttft"][name]) == int(share) for name, share in told)
    words = re.findall(rf"is ({'|'.join(Trust)})[,.]", bands["text"])
    assert words == ([bands["trust"]] if bands["trust"] else [])
