"""What is expected of an error: by how far a run is from those that were compared."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from calibrate.scoring.presets import engine_file
from sim.catalog.relatives import ASSUMED
from sim.catalog.shown import shown
from sim.catalog.spreads import PARTS, UNSTATED, Deployed, learnt, place
from sim.metrics.bands.bands import (
    KERNELS,
    LEAN,
    WITHIN,
    Question,
    band,
    half_of,
    kind,
    question,
    reach,
    shares,
    without,
)
from sim.metrics.bands.figure_bands import figure_bands
from sim.metrics.question.question_text import hardware
from sim.result import simulate
from sim.scenario import load_scenario

CHAT = load_scenario("scenarios/chat.yaml").override({"run.requests": 20})
KNOWN = place("vllm", "h100-sxm", "llama-3.1-70b", "dense", UNSTATED)
TPOT = "tpot, dense"


def wide(where: Deployed, *, own: bool = False) -> float:
    """The spread of token times at a place."""
    return learnt().expected(where, TPOT, own=own).spread


def test_a_deployment_that_was_compared_is_known_best() -> None:
    """Each part of the place that is new makes the error less sure."""
    release = KNOWN._replace(release="99.0")
    model = KNOWN._replace(model="llama-4-tiny")
    gpu = model._replace(gpu="a card of tomorrow")
    engine = gpu._replace(engine="an engine of tomorrow")
    family = engine._replace(family="a family of tomorrow")
    found = [learnt().expected(each, TPOT) for each in (KNOWN, release, model, gpu, engine, family)]
    common = [sum(part**2 for part in each.common.values()) for each in found]
    assert common == sorted(common)
    assert set(found[0].common) == set(PARTS)
    of_release = [each.common["release"] for each in found[:2]]
    assert of_release[1] > 1.5 * of_release[0]


def test_what_was_never_compared_is_never_surer_than_another_release_of_what_was() -> None:
    for row in learnt().rows:
        release = row.place._replace(release="99.0")
        other, new = (
            learnt().expected(each, row.kind)
            for each in (release, release._replace(gpu="a card of tomorrow"))
        )
        assert other.multiples == new.multiples
        assert other.spread <= new.spread * (1 + 1e-9), row


def test_a_place_is_judged_by_what_is_known_without_it() -> None:
    known, alone = (learnt().expected(KNOWN, TPOT, without=each) for each in (None, KNOWN))
    assert alone.common["this deployment"] > known.common["this deployment"]
    assert learnt().expected(KNOWN, TPOT, without=KNOWN._replace(gpu="l4")) == known


def test_runs_of_ones_own_are_the_nearest_of_all() -> None:
    """They settle what runs have in common, and say that predictions are right."""
    new = Deployed("sglang", "l4", "qwen3-8b", "qwen, dense")
    alone, own = (learnt().expected(new, TPOT, own=each) for each in (False, True))
    assert own.spread < alone.spread
    assert abs(own.centre) < abs(alone.centre)


def test_a_model_whose_figures_lie_far_apart_does_so_on_a_new_gpu() -> None:
    """The figures of gpt-oss-120b lie further apart than those of other mixtures, wherever it was
    compared; on a GPU of which nothing was they are expected to, and less is known than there."""
    experts = "tpot, experts"
    usual = learnt().kinds[experts].within
    apart, other = (
        learnt().expected(place("vllm", "a card of tomorrow", model, experts), experts)
        for model in ("gpt-oss-120b", "a-model-of-tomorrow")
    )
    assert apart.within > 1.1 * usual
    assert other.within == usual


def test_all_that_was_never_compared_is_known_alike() -> None:
    far = Deployed("a", "b", "c", "d")
    found = learnt().expected(far, TPOT)
    sizes = [learnt().common[part] * learnt().kinds[TPOT].within for part in PARTS[1:]]
    assert [found.common[part] for part in PARTS[1:]] == pytest.approx(sizes)
    assert learnt().expected(far, "tpot, of another kind").within > 0


def test_kernels_that_were_not_measured_make_bands_wider() -> None:
    sheet = Question(Deployed("vllm", "l4", "qwen3-8b", "qwen, dense"), "online", False, 0.25)
    timed = sheet._replace(kernels=0.0)
    assert reach("mean_tpot_ms", sheet).parts[KERNELS] == 0.25
    assert reach("mean_tpot_ms", sheet).ninety > reach("mean_tpot_ms", timed).ninety
    assert KERNELS not in reach("mean_tpot_ms", timed).parts
    sure, unsure = (
        question(simulate(CHAT.override({"precision": formats})).record).kernels
        for formats in ({}, {"weights": "int8", "activations": "bf16"})
    )
    assert unsure > 3 * sure > 0


def test_a_band_is_around_where_measurements_are_expected() -> None:
    found = reach("mean_ttft_ms", Question(KNOWN, "closed loop", False))
    down, up = found.ends("band90")
    assert up - down == pytest.approx(2 * found.centre)
    assert max(found.ends("band50")) < up
    parts = shares(found.parts, found.ninety, found.centre)
    assert set(parts) <= {*PARTS, WITHIN, LEAN}
    assert math.log1p(without(parts, ())) == pytest.approx(max(down, up))
    assert LEAN not in shares(found.parts, found.ninety)


def test_no_reach_is_too_far_for_a_float() -> None:
    low, high = band(1.0, 1e9, 1e9)
    assert 0 < low < high < float("inf")
    assert without({"a": 0.3, "b": 0.4}, ["a"]) == pytest.approx(0.4)
    assert half_of(0.5) < 0.5


def test_the_question_of_a_run_is_read_from_its_deployment(tmp_path: Path) -> None:
    found = question(simulate(CHAT).record)
    assert found.place == Deployed("vllm", "h100-sxm", "llama-3.1-8b", "llama, dense", "0.33")
    assert (found.driven, found.experts, found.own) == ("online", False, False)
    assert 0 < found.kernels < 0.08
    old = simulate(CHAT.override({"engine": engine_file("tensorrt-llm-0.14")}))
    assert question(old.record).place.engine == "tensorrt-llm"
    (tmp_path / "mine.yaml").write_text("extends: sglang\ntitle: ours\n")
    mine = CHAT.override({"engine": str(tmp_path / "mine.yaml"), "fleet.0.gpu": "mi300x"})
    found = question(simulate(mine).record)
    assert (found.place.engine, found.kernels > 0.25) == ("sglang", True)


def test_throughput_that_arrivals_do_not_set_is_that_of_full_batches() -> None:
    at = Question(KNOWN, "online", False)
    assert kind("output_throughput", at) == "rate, online, dense"
    assert kind("output_throughput", at._replace(full=True)) == "rate, offline, dense"
    assert kind("capacity", at) == "rate, offline, dense"
    assert kind("p99_tpot_ms", at._replace(driven="apart")) == "tpot, apart, dense"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "llama-3.1-70b", "fleet.0.tensor_parallel": 4}, "of llama-3.1-70b on h100-sxm"),
        ({}, "in release 0.11.1, not in 0.33"),
        (
            {"engine": "vllm@0.11.1"},
            "under vllm were compared (no TTFT, none at a rate): expect real times",
        ),
        ({"model": "llama-3.1-70b", "fleet.0.tensor_parallel": 2}, "and a release not stated"),
        (
            {"engine": "vllm@0.18", "model": "qwen3-8b"},
            "were compared (none at a rate), of other models",
        ),
        ({"engine": "sglang"}, "(none at a rate), of other models"),
        ({"fleet.0.gpu": "l4"}, "ever compared with a measurement (no run on l4)"),
        ({"fleet.0.gpu": "mi300x"}, "(no run on mi300x)"),
        ({"engine": "sglang", "fleet.0.gpu": "l40s"}, "on l40s, where runs of tensorrt-llm were)"),
        ({"engine": "ideal"}, "(no run of ideal)"),
    ],
)
def test_a_band_says_which_runs_it_rests_on(changes: dict[str, str], words: str) -> None:
    """What was never compared is no band of nine in ten, but a factor."""
    result = simulate(CHAT.override(changes))
    own = result.summary["infersim"]["error_band"]
    bands = figure_bands(result.record, result.summary, None)
    assert bands is not None
    assert words in own["text"]
    new = own["text"].startswith("Nothing like this was ever compared")
    assert ("(no run" in words or ", where" in words) == new
    assert ("times the predicted times between tokens" in own["text"]) == new
    assert bands["text"].startswith("As runs of other engines and GPUs were off") == new


def test_usual_bias_is_explained_and_a_relative_named() -> None:
    """The bias by ends that lie unevenly about the prediction."""
    result = simulate(CHAT.override({"fleet.0.gpu": "rtx-3090"}))
    band = result.summary["infersim"]["error_band"]
    assert band["basis"].endswith(" Kernels are timed as on the rtx-pro-6000.")
    down, up = reach("mean_tpot_ms", question(result.record)).ends("band90")
    assert down != up
    assert f"expect {math.exp(-down):.1f} to {math.exp(up):.1f} times" in band["text"]
    assert "usual bias" in band["parts"]
    own = simulate(CHAT).summary["infersim"]["error_band"]
    assert "timed as on" not in own["basis"] + own["text"]


def test_a_gpu_without_attention_has_a_note() -> None:
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 5})
    changes = {"fleet.0.gpu": "mi300x", "precision.weights": "fp8-block"}
    changes |= {"precision.activations": "fp8"}
    told = simulate(chat.override(changes)).summary["infersim"]
    assert any(note.startswith("Attention was not timed on AMD") for note in told["notes"])
    assert "GEMM 3.3%" in told["provenance"]


def test_a_gpu_with_the_kernels_of_the_nearest_has_a_note(tmp_path: Path) -> None:
    text = "memory: 40GB\nbandwidth: 700GB/s\npeak_flops: {bf16: 120TFLOP/s, fp8: 240TFLOP/s}\n"
    (tmp_path / "l4.yaml").write_text(text, encoding="utf-8")
    chat = load_scenario("scenarios/chat.yaml").override({"run.requests": 5})
    run = simulate(chat.override({"fleet.0.gpu": str(tmp_path / "l4.yaml")}))
    notes = run.summary["infersim"]["notes"]
    assert any("of l40s, as for l20, the part whose data sheet is nearest" in n for n in notes)
    assert any(n.startswith("The catalogue has l4 too: this run takes /") for n in notes)
    assert hardware(run.scenario) == "1 x l4"
    assert shown("gpus", str(tmp_path / "l4.yaml"))["relative"] == {
        "value": "l20",
        "source": ASSUMED,
    }


def test_a_gpu_without_kernel_timings_has_a_note() -> None:
    for gpu, noted in (("h100-sxm", False), ("mi300x", True)):
        notes = simulate(CHAT.override({"fleet.0.gpu": gpu})).summary["infersim"]["notes"]
        assert (
            any(note.startswith("No kernel of this run was timed on AMD") for note in notes)
            == noted
        )


def test_a_card_with_another_price_is_the_same_card(tmp_path: Path) -> None:
    offer = "{usd: 2, provider: ours, date: 2026-11, low: null, high: null}"
    (tmp_path / "cheap.yaml").write_text(f"extends: h100-sxm\nprice_per_hour: {offer}\n")
    (tmp_path / "slow.yaml").write_text("extends: h100-sxm\nbandwidth: 2TB/s\n")
    cheap, slow = (
        question(simulate(CHAT.override({"fleet.0.gpu": str(tmp_path / name)})).record)
        for name in ("cheap.yaml", "slow.yaml")
    )
    assert cheap == question(simulate(CHAT).record)
    assert slow.place.gpu == "your slow"
    assert not slow.compared


def test_throughput_that_arrivals_set_does_not_depend_on_kernels() -> None:
    at = Question(Deployed("vllm", "l4", "qwen3-8b", "qwen, dense"), "online", False, 0.25)
    assert KERNELS not in reach("output_throughput", at).parts
    assert KERNELS in reach("output_throughput", at._replace(full=True)).parts


def test_kernels_of_a_relative_are_between_own_ones_and_none() -> None:
    """A GH200 takes the kernels of an H100, which were measured; a TPU has none."""
    doubts = {
        gpu: question(simulate(CHAT.override({"fleet.0.gpu": gpu})).record)
        for gpu in ("h100-sxm", "gh200", "tpu-v6e")
    }
    assert doubts["h100-sxm"].kernels < doubts["gh200"].kernels < doubts["tpu-v6e"].kernels
    assert [each.relative for each in doubts.values()] == ["", "h100-sxm", ""]
    summary = simulate(CHAT.override({"fleet.0.gpu": "gh200"})).summary
    band = summary["infersim"]["error_band"]
    assert band["measured"] == 0
    assert "in shapes that were measured on the h100-sxm" in band["text"]


def test_a_file_that_is_called_like_a_card_is_not_that_card(tmp_path: Path) -> None:
    """What makes a card one that was compared is what it can do, not the name of its file."""
    sheet = "memory: 40GiB\nbandwidth: 900GB/s\npeak_flops: {bf16: 200TFLOP/s}\n"
    texts = ("price_per_hour: 2\nextends: h100-sxm\n", "extends: h100-sxm\nsms: 60\n", sheet)
    found = []
    for text in texts:
        path = tmp_path / "h100-sxm.yaml"
        path.write_text(text, encoding="utf-8")
        run = simulate(CHAT.override({"fleet.0.gpu": str(path)})).record
        found.append(question(run).place.gpu)
    assert found == ["h100-sxm", "your h100-sxm", "your h100-sxm"]
