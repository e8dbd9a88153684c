"""A run says what it assumes of its links, and what the other case would have given."""

from __future__ import annotations

import re
from typing import Any

import pytest

import sim
from sim.band_runs import run_ends
from sim.metrics.bands.confidence import widest
from sim.metrics.bands.end_times import TimeBand
from sim.metrics.bands.figure_bands import figure_bands
from sim.result import Result

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "engine": "ideal",
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 500},
        "output_tokens": {"kind": "fixed", "value": 8},
    },
    "run": {"requests": 8, "warmup": 0},
}
REACH = re.compile(r"If they do, .* take (.*?); if they do not, (.*)\.")


def run(gpu: str, gpus: int = 4, **pool: Any) -> Result:
    fleet = {"gpu": gpu, "tensor_parallel": gpus, **pool}
    return sim.simulate(sim.load_scenario({**BASE, "fleet": fleet}))


def notes(result: Result) -> list[str]:
    return [
        note
        for note in result.summary["infersim"]["notes"]
        if "reach each other" in note or "All-reduces follow" in note or " W " in note
    ]


def change(text: str) -> float:
    """``12% longer`` as 0.12."""
    if text == "as long as here":
        return 0.0
    percent, way = text.split("% ")
    return float(percent) / 100 * {"longer": 1, "less": -1}[way]


@pytest.mark.parametrize("gpu", ["l40s", "a100-pcie", "rtx-pro-6000"])
def test_either_case_takes_what_the_note_says(gpu: str) -> None:
    """Under an engine without host time a burst takes as long as its iterations."""
    told = run(gpu)
    (note,) = notes(told)
    found = REACH.search(note)
    assert found is not None
    for direct, text in zip((True, False), found.groups(), strict=True):
        stated = run(gpu, link={"kind": "pcie", "peer_to_peer": direct})
        assert not any("reach each other" in note for note in notes(stated))
        ratio = stated.summary["duration"] / told.summary["duration"] - 1
        assert change(text) == pytest.approx(ratio, abs=0.01)
    assert any(change(text) > 0.1 or change(text) < -0.1 for text in found.groups())


def test_the_band_is_wide_where_the_link_is_open_and_says_why() -> None:
    words = "Nothing says whether the cards reach each other over PCIe"
    stated = {"kind": "pcie", "peer_to_peer": False}
    bands = [
        result.summary["infersim"]["error_band"]
        for result in (run("l40s"), run("l40s", link=stated), run("l40s", 1), run("h100-sxm"))
    ]
    assert [words in band["text"] for band in bands] == [True, False, False, False]
    assert ["links" in band["parts"] for band in bands] == [True, False, False, False]


def test_a_link_that_was_not_measured_is_told() -> None:
    (note,) = notes(run("h100-sxm", link={"bandwidth": "50GB/s", "latency": "5us"}))
    assert note == (
        "All-reduces follow from the link's bandwidth and latency (50 GB/s, 5 us): none was "
        "measured over this link."
    )


@pytest.mark.parametrize(("gpu", "gpus"), [("h100-sxm", 4), ("l40s", 1)])
def test_nothing_is_told_where_nothing_is_open(gpu: str, gpus: int) -> None:
    assert notes(run(gpu, gpus)) == []


def test_a_power_limit_is_told_and_lowers_the_energy() -> None:
    own, slower = run("a100-sxm-80gb", 1), run("a100-sxm-80gb", 1, power_limit="300W")
    (note,) = notes(slower)
    assert note.startswith("At 300 W a100-sxm-80gb is taken to compute at 75% of its peak")
    assert notes(own) == []
    assert notes(run("a100-sxm-80gb", 1, power_limit="400W")) == []

    def watts(result: Result) -> float:
        return float(result.summary["infersim"]["energy"]["mean_watts_per_gpu"])

    assert watts(slower) < 300 < watts(own) < 400  # memory and links are not always at the limit
    peaks = [each.summary["infersim"]["energy"]["peak_watts_per_gpu"] for each in (own, slower)]
    assert peaks[1] <= 300 < peaks[0] <= 400
    assert own.summary["duration"] < slower.summary["duration"] < own.summary["duration"] / 0.75


@pytest.mark.parametrize("gpu", ["l40s", "a100-pcie", "rtx-pro-6000"])
def test_the_band_reaches_the_other_case_of_open_links(gpu: str) -> None:
    """Also for cards whose all-reduces were measured: on the side of longer times, with what is
    usual on top; on the other side the band is what it was."""
    told = run(gpu, 2)
    band = told.summary["infersim"]["error_band"]
    other = run(gpu, 2, link={"kind": "pcie", "peer_to_peer": False})
    longer = other.summary["duration"] / told.summary["duration"]
    assert longer > 1.05
    assert widest(band) > 1.05 * longer - 1
    bands = figure_bands(told.record, told.summary, None)
    assert bands is not None
    for key in ("mean_tpot_ms", "mean_ttft_ms", "mean_e2el_ms"):
        low, high = bands["figures"][key]["band90"]
        assert low < told.summary[key] < other.summary[key] < high, key
    low, high = bands["figures"]["output_throughput"]["band90"]
    assert low < other.summary["output_throughput"] < told.summary["output_throughput"] < high
    assert "longer, which is in it" in band["text"]


def test_the_band_of_the_capacity_reaches_the_other_case() -> None:
    fleet = {"gpu": "rtx-pro-6000", "tensor_parallel": 2}
    traffic = {**BASE["workload"], "arrivals": {"kind": "poisson", "rate": 20}}
    asked = {**BASE, "fleet": fleet, "workload": traffic, "run": {"requests": 200}}
    found = sim.simulate(sim.load_scenario(asked))
    bands = figure_bands(found.record, found.summary, None)
    assert bands is not None
    low, high = bands["figures"]["capacity"]["band90"]
    value = 1 / found.summary["infersim"]["verdict"]["utilisation"]
    assert value / low > 1.2 * high / value  # less is served where iterations are longer


def test_the_other_case_widens_one_side_alone() -> None:
    told = run("l40s", 2)
    band = told.summary["infersim"]["error_band"]
    assert band["slower"] > band["throughput"]
    faster, slower = TimeBand.of(band).ends
    assert faster.iterations == pytest.approx(1 / (1 + band["throughput"]))
    assert slower.iterations == 1 + band["slower"]
    for stated in (True, False):
        known = run("l40s", 2, link={"kind": "pcie", "peer_to_peer": stated})
        other = known.summary["infersim"]["error_band"]
        assert "slower" not in other
    low, high = figure_bands(told.record, told.summary, None)["figures"]["mean_tpot_ms"]["band90"]  # type: ignore[index]
    value = told.summary["mean_tpot_ms"]
    assert high / value > value / low


def test_the_slower_end_of_a_run_is_the_other_case() -> None:
    fleet = {"gpu": "rtx-pro-6000", "tensor_parallel": 2}
    traffic = {**BASE["workload"], "arrivals": {"kind": "poisson", "rate": 20}}
    asked = {**BASE, "fleet": fleet, "workload": traffic, "slo": {"ttft": "30ms"}}
    scenario = sim.load_scenario({**asked, "run": {"requests": 100}})
    summary = sim.simulate(scenario).summary
    ends = run_ends(scenario, summary)
    assert ends is not None
    slower = summary["infersim"]["error_band"]["slower"]
    assert f"to {1 + slower:.2f} times as long" in ends["text"]
    assert ends["slower"]["mean_tpot_ms"] > 1.2 * summary["mean_tpot_ms"]
