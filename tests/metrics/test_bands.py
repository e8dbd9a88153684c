"""Which causes apply to a figure, and how their spreads make a band."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate.scoring.presets import engine_file
from sim.catalog.spreads import Spreads, learnt, source_name
from sim.metrics.bands.bands import (
    CAUSES,
    Situation,
    band,
    of_side,
    setting,
    situation,
    spread_of,
    weights,
)
from sim.metrics.bands.dependence import PARTS
from sim.metrics.bands.figure_bands import figure_bands
from sim.result import simulate
from sim.scenario import load_scenario

KNOWN = Situation(measured=True, links=False, fitted=True, driven="closed loop")
DEPENDS = dict.fromkeys(PARTS, 0.1)


def test_every_cause_has_a_spread_and_says_what_it_is() -> None:
    found = learnt()
    assert set(found.everything.of) == set(CAUSES) == set(found.sources)
    assert all(cause.part and cause.title for cause in CAUSES.values())
    assert 0 < found.everything.half < found.everything.ninety
    assert len(found.without) > 40


def test_a_source_is_judged_by_what_was_learnt_without_it() -> None:
    found = learnt()
    name = source_name("sglang", "h100-sxm", "qwen3-32b")
    assert found.for_source(name) == found.without[name] != found.everything
    assert found.for_source("vllm, h100-sxm, a model of tomorrow") == found.everything


def test_what_is_not_known_gives_other_causes() -> None:
    known = weights("mean_ttft_ms", DEPENDS, KNOWN)
    assert {"links", "host", "unmeasured", "admission"} <= set(known)
    vague = KNOWN._replace(measured=False, links=True, fitted=False, client=True, lengths=True)
    found = weights("mean_ttft_ms", DEPENDS, vague)
    assert {"open links", "host estimate", "data sheet", "open admission"} <= set(found)
    assert "lengths, closed" in found
    assert "lengths" in weights("mean_ttft_ms", DEPENDS, vague._replace(driven="online"))
    assert not {"links", "host", "unmeasured", "admission"} & set(found)
    spreads = learnt().everything
    assert spread_of(found, spreads) > 1.5 * spread_of(known, spreads)


def test_an_engine_older_than_its_kernels_has_an_error_of_its_own() -> None:
    older = KNOWN._replace(older=True)
    assert weights("mean_tpot_ms", DEPENDS, older)["older release"] == 1
    slower = {name: -each for name, each in DEPENDS.items()}  # rates fall where times grow
    assert weights("output_throughput", slower, older)["older release"] == -1
    assert "older release" not in weights("mean_ttft_ms", DEPENDS, older)
    assert "older release" not in weights("mean_tpot_ms", DEPENDS, KNOWN)
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 5})
    old = simulate(chat.override({"engine": engine_file("tensorrt-llm-0.14")}))
    assert situation(old.record).older


def test_what_is_left_out_has_one_side() -> None:
    first = weights("mean_ttft_ms", DEPENDS, KNOWN)
    assert first["left out, first token"] == 1
    assert of_side(first, larger=True) == first
    assert set(first) - set(of_side(first, larger=False)) == {"left out, first token"}
    slower = {name: -each for name, each in DEPENDS.items()}
    rate = weights("output_throughput", slower, KNOWN)
    assert set(rate) - set(of_side(rate, larger=True)) == {"left out, rates"}
    arrivals = weights("output_throughput", dict.fromkeys(PARTS, 0.0), KNOWN)
    assert "left out, rates" not in arrivals  # where arrivals set the rate times do not


def test_a_setting_of_which_nothing_was_learnt_is_taken_for_the_wider_one() -> None:
    spreads = Spreads({}, 0.7, 2.0, scales={"ttft, dense": 0.5, "ttft, dense, open client": 0.3})
    assert spreads.scale("ttft, dense, open client") == 0.3
    assert spreads.scale("ttft, dense, of another kind") == 0.5
    assert spreads.scale("tpot, dense") == 1


def test_rates_of_models_with_many_experts_have_errors_of_their_own() -> None:
    few = KNOWN._replace(experts=True)
    many = few._replace(many=True)
    assert setting("output_throughput", few) == "rate, experts"
    assert setting("output_throughput", many) == "rate, experts, many"
    assert setting("mean_tpot_ms", many) == setting("mean_tpot_ms", few)
    quick = load_scenario("scenarios/chat.yaml").override({"run.requests": 3})
    for model, expected in (("mixtral-8x7b", False), ("gpt-oss-20b", True)):
        run = simulate(quick.override({"model": model, "fleet.0.tensor_parallel": 2}))
        assert situation(run.record).many is expected


def test_the_longest_gaps_depend_on_lengths_that_are_not_published() -> None:
    vague = KNOWN._replace(lengths=True)
    assert weights("p99_itl_ms", DEPENDS, vague)["lengths, long gaps"] == 1
    assert "lengths, long gaps" not in weights("mean_itl_ms", DEPENDS, vague)
    assert "lengths, long gaps" not in weights("p99_itl_ms", DEPENDS, KNOWN)
    assert "lengths, long gaps" not in weights("p99_tpot_ms", DEPENDS, vague)


def test_a_static_batch_has_no_schedule() -> None:
    found = weights("mean_tpot_ms", DEPENDS, KNOWN._replace(driven="static batch"))
    assert all(CAUSES[name].part != "schedule" for name in found)


def test_squares_of_independent_causes_add_up() -> None:
    spreads = Spreads({"prompts": 0.3, "links": 0.4}, 0.7, 2.0)
    assert spread_of({"prompts": 1.0, "links": 1.0}, spreads) == pytest.approx(0.5)
    assert spread_of({"prompts": 0.5}, spreads) == pytest.approx(0.15)


def test_no_reach_is_too_far_for_a_float() -> None:
    low, high = band(1.0, 1e9)
    assert 0 < low < high < float("inf")


def test_the_situation_of_a_run_is_read_from_its_deployment() -> None:
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 5})
    assert situation(simulate(chat).record) == Situation(True, False, True, "online")
    cards = {"fleet": {"gpu": "l4", "tensor_parallel": 2}, "engine": "sglang"}
    found = situation(simulate(chat.override(cards)).record, client=True)
    assert found == Situation(False, True, False, "online", client=True, compared=False)


@pytest.mark.parametrize(
    ("changes", "known"),
    [
        ({}, True),
        ({"engine": "vllm@0.18"}, True),  # spoken of with vllm
        ({"engine": "sglang"}, True),
        ({"fleet.0.gpu": "l4"}, False),
        ({"fleet.0.gpu": "mi300x"}, False),
        ({"engine": "sglang", "fleet.0.gpu": "l40s"}, False),
        ({"engine": "ideal"}, False),
    ],
)
def test_an_error_that_was_never_compared_is_said_not_to_be_known(
    changes: dict[str, str], known: bool
) -> None:
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 20, **changes})
    result = simulate(chat)
    own = result.summary["infersim"]
    bands = figure_bands(result.record, result.summary, None)
    assert bands is not None
    texts = own["error_band"]["text"], bands["text"]
    assert [("is not known" in text) for text in texts] == [not known] * 2
    assert ("in nine of ten published runs like this" in texts[0]) == known
    assert ("than those that were compared" in texts[1]) == (not known)


def test_a_gpu_without_attention_has_a_note() -> None:
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 5})
    changes = {"fleet.0.gpu": "mi300x", "precision.weights": "fp8-block"}
    changes |= {"precision.activations": "fp8"}
    told = simulate(chat.override(changes)).summary["infersim"]
    assert any(note.startswith("Attention was not timed on AMD") for note in told["notes"])
    assert "GEMM 3.3%" in told["provenance"]


def test_a_gpu_with_the_kernels_of_the_nearest_has_a_note(tmp_path: Path) -> None:
    text = "memory: 40GB\nbandwidth: 700GB/s\npeak_flops: {bf16: 120TFLOP/s, fp8: 240TFLOP/s}\n"
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8")
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 5})
    run = simulate(chat.override({"fleet.0.gpu": str(tmp_path / "mine.yaml")}))
    notes = run.summary["infersim"]["notes"]
    assert any("those of l40s, the timed part whose data sheet is nearest" in n for n in notes)


def test_a_gpu_without_kernel_timings_has_a_note() -> None:
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 5})
    for gpu, noted in (("h100-sxm", False), ("mi300x", True)):
        notes = simulate(chat.override({"fleet.0.gpu": gpu})).summary["infersim"]["notes"]
        assert any(note.startswith("No kernels were timed on AMD") for note in notes) == noted
