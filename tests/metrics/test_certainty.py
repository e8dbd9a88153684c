"""Every sentence on certainty says what the band next to it does, in all shipped scenarios."""

from __future__ import annotations

import re

import pytest

import sim
from sim.catalog.spreads import learnt
from sim.metrics.bands.bands import question
from sim.metrics.bands.confidence import widest
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
    assert ("were compared: predicted times" in text) == (at.place.release in releases)
    assert text.startswith(f"Published runs of {at.place.model} on {at.place.gpu}") == bool(
        releases
    )
    assert at.place.release in releases or all(release in text for release in releases)
    if at.compared:
        assert f"within {widest_side:.0%}" in text.replace("about ", "")
        assert f"within {own['error_band']['half']:.0%} in five of ten" in text
    else:
        assert text.startswith("Nothing like this was ever compared")
        assert f"within a factor of {1 + widest_side:.1f}" in text
    bands = figure_bands(result.record, result.summary, None)
    assert bands is not None
    assert bands["text"].startswith("With a chance of 90 %") == at.compared
    low, high = bands["figures"]["mean_ttft_ms"]["band90"]
    assert f"TTFT mean {show_time(low / 1e3)} to {show_time(high / 1e3)}" in bands["text"]
    words = re.findall(rf"is ({'|'.join(Trust)})[,.]", bands["text"])
    assert words == ([bands["trust"]] if bands["trust"] else [])
