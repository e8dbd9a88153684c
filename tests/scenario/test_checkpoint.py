"""A scenario that states no formats has those in which its model is published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import InfeasibleError, ScenarioError, UsageError
from sim.scenario import Scenario, load_scenario
from sim.setup import prepare
from tests.planning_fixtures import SMALL


def formats(model: str, gpu: str = "h100-sxm", **precision: Any) -> dict[str, Any]:
    found = load({"model": model, "fleet": {"gpu": gpu, "tensor_parallel": 8}}, precision)
    return found.precision.model_dump(exclude={"quantisation", "kv_cache", "expert_inputs"})


def load(changes: dict[str, Any], precision: dict[str, Any]) -> Scenario:
    return load_scenario({**SMALL, **changes, **({"precision": precision} if precision else {})})


def test_a_checkpoint_is_loaded_as_it_is_published() -> None:
    gpt = {"weights": "bf16", "activations": "bf16", "experts": "mxfp4", "state": None}
    assert formats("gpt-oss-120b") == gpt
    fp8 = {"weights": "fp8-block", "activations": "fp8", "experts": None, "state": None}
    assert formats("deepseek-v3") == fp8
    assert formats("llama-3.1-8b")["weights"] == "bf16"


def test_what_is_written_comes_first() -> None:
    wide = {"weights": "bf16", "activations": "bf16", "experts": None, "state": None}
    assert formats("gpt-oss-120b", weights="bf16") == wide
    assert formats("deepseek-v3", weights="bf16") == wide
    assert formats("deepseek-v3", activations="bf16") == {
        "weights": "fp8-block", "activations": "bf16", "experts": None, "state": None,
    }  # fmt: skip
    assert formats("deepseek-v3", experts="nvfp4")["experts"] == "nvfp4"


def test_products_are_of_16_bits_where_a_gpu_has_no_narrower_ones() -> None:
    found = formats("deepseek-v3", gpu="a100-sxm-80gb")
    assert found == {"weights": "fp8-block", "activations": "bf16", "experts": None, "state": None}


def test_another_model_is_stored_in_its_own_formats() -> None:
    given = {**SMALL, "model": "gpt-oss-20b", "fleet": [{"gpu": "h100-sxm"}]}
    scenario = load_scenario(given)
    assert scenario.precision.experts == "mxfp4"
    assert scenario.override({"model": "llama-3.1-8b"}).precision.experts is None
    again = load_scenario(scenario.resolved())
    assert again.precision == scenario.precision


@pytest.mark.parametrize(
    ("given", "experts"),
    [([], "mxfp4"), (["--weights", "bf16"], "bf16"), (["--weights", "fp8"], "fp8")],
)
def test_fit_counts_what_is_published_unless_asked_otherwise(
    given: list[str], experts: str
) -> None:
    shown = CliRunner().invoke(app, ["fit", "gpt-oss-20b", "--gpu", "h100-sxm", *given])
    assert shown.exit_code == 0, shown.output
    line = next(line for line in shown.output.splitlines() if "  experts " in line)
    assert f"in {experts} " in line
    assert ("is published in mxfp4" in " ".join(shown.output.split())) == bool(given)


QWEN = {
    **{"architectures": ["Qwen3ForCausalLM"], "head_dim": 128, "hidden_size": 4096},
    **{"intermediate_size": 12288, "max_position_embeddings": 40960, "vocab_size": 151936},
    **{"num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8},
}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
FIXED = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}


def checkpoint(folder: Path, **quantised: Any) -> str:
    """The path of a config.json whose checkpoint is stored so."""
    document = {**QWEN, "quantization_config": quantised}
    (folder / "config.json").write_text(json.dumps(document))
    return str(folder / "config.json")


def test_a_file_has_the_formats_that_it_states(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, **BLOCKS)
    blocks = {"weights": "fp8-block", "activations": "fp8", "experts": None, "state": None}
    assert formats(path) == formats(str(tmp_path)) == formats("Qwen/Qwen3-8B-FP8") == blocks
    assert formats(path, gpu="a100-sxm-80gb")["activations"] == "bf16"
    assert formats(path, weights="bf16")["weights"] == "bf16"


def test_the_kv_cache_and_fixed_scales_come_with_them(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, **FIXED)
    found = load({"model": path, "fleet": {"gpu": "h100-sxm"}}, {}).precision
    assert (found.kv_cache, found.quantisation) == ("fp8", "static")
    given = {"kv_cache": "bf16", "activations": "bf16"}
    found = load({"model": path, "fleet": {"gpu": "h100-sxm"}}, given).precision
    assert (found.kv_cache, found.quantisation) == ("bf16", "dynamic")
    assert load_scenario(load({"model": path}, {}).resolved()).precision.kv_cache == "fp8"


def test_an_override_with_another_model_has_that_ones_formats(tmp_path: Path) -> None:
    scenario = load({"model": "llama-3.1-8b"}, {})
    assert scenario.override({"model": checkpoint(tmp_path, **FIXED)}).precision.kv_cache == "fp8"


def test_what_cannot_be_represented_is_an_error_until_a_format_is_given(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, quant_method="bitsandbytes", load_in_4bit=True)
    with pytest.raises(ScenarioError) as caught:
        load({"model": path}, {})
    told = str(caught.value)
    for words in (path, "quant_method: 'bitsandbytes'", "give precision.weights"):
        assert words in told
    assert load({"model": path}, {"weights": "int4"}).precision.weights == "int4"
    shown = CliRunner().invoke(app, ["fit", path, "--gpu", "h100-sxm"])
    assert (shown.exit_code, "--weights" in shown.output) == (2, True)
    assert fit(path, "--weights", "int4")["fits"]


def fit(*arguments: str) -> dict[str, Any]:
    shown = CliRunner().invoke(app, ["fit", *arguments, "--gpu", "h100-sxm", "--json"])
    assert shown.exit_code == 0, shown.output
    found: dict[str, Any] = json.loads(shown.stdout)
    return found


def test_fit_says_the_same_of_a_file_a_name_and_a_run(tmp_path: Path) -> None:
    path = checkpoint(tmp_path, **BLOCKS)
    by_file, by_name = fit(path), fit("Qwen/Qwen3-8B-FP8")
    for key in ("weight_bytes", "kv_cache_bytes", "max_concurrency", "precision"):
        assert by_file[key] == by_name[key]
    expected = 36 * (4096 * 80 * 128 + 3 * 4096 * 12288) * (1 + 4 / 128**2)
    assert by_file["weight_bytes"] == pytest.approx(expected + 4 * 151936 * 4096, rel=1e-3)
    assert by_file["notes"] == [f"Formats as published, fp8-block: quantization_config of {path}."]
    assert by_name["notes"][0] == "Qwen/Qwen3-8B-FP8 is read as qwen3-8b of the catalogue."
    scenario = load({"model": path, "fleet": {"gpu": "h100-sxm"}}, {})
    assert prepare(scenario).only.capacity.weights == by_file["weight_bytes"]
    notes = sim.simulate(scenario.override({"model": "Qwen/Qwen3-8B-FP8"})).summary
    assert by_name["notes"][0] in notes["infersim"]["notes"]


def test_fit_takes_the_format_of_the_experts() -> None:
    as_published = fit("gpt-oss-20b")
    asked = fit("gpt-oss-20b", "--weights", "bf16", "--experts", "mxfp4")
    assert asked["weight_bytes"] == as_published["weight_bytes"]
    assert fit("gpt-oss-20b", "--weights", "bf16")["weight_bytes"] > 2 * asked["weight_bytes"]


def test_a_format_wider_than_the_published_one_is_named_where_it_does_not_fit() -> None:
    given = {"model": "gpt-oss-120b", "fleet": {"gpu": "h100-sxm"}}
    with pytest.raises(InfeasibleError) as caught:
        prepare(load(given, {"weights": "bf16"}))
    assert "is published in mxfp4 (experts) and bf16 (the rest); this scenario sets bf16" in str(
        caught.value
    )
    with pytest.raises(InfeasibleError) as caught:
        prepare(load({"model": "llama-3.1-405b", "fleet": {"gpu": "h100-sxm"}}, {}))
    assert "published" not in str(caught.value)


def test_a_context_that_the_file_does_not_state_is_named_as_a_default(tmp_path: Path) -> None:
    document = {**QWEN, "architectures": ["LlamaForCausalLM"]}
    del document["max_position_embeddings"]
    (tmp_path / "config.json").write_text(json.dumps(document))
    asked = ["fit", str(tmp_path), "--gpu", "h100-sxm", "--context", "3500"]
    told = " ".join(CliRunner().invoke(app, asked).output.split())
    assert "more than the 2,048 tokens" in told
    assert "config.json gives no max_position_embeddings (add the key)" in told
    assert "a scenario takes them with allow_long_max_model_len: true" in told
    long = {"model": str(tmp_path), "max_model_len": 3500}
    with pytest.raises(
        UsageError, match="allow_long_max_model_len: true takes them all the same \\(--set"
    ):
        prepare(load(long, {}))
    longer = prepare(load({**long, "allow_long_max_model_len": True}, {}))
    assert longer.pools[0].limits.max_model_len == 3500


def test_a_gpu_file_without_a_peak_is_not_said_to_lack_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("memory: 80GiB\nbandwidth: 2TB/s\npeak_flops: {bf16: 300TFLOP/s}\n")
    asked = ["fit", "qwen3-8b", "--weights", "fp8", "--activations", "fp8", "--json", "--gpu"]
    notes = json.loads(CliRunner().invoke(app, [*asked, str(path)]).stdout)["notes"]
    assert "its file gives no fp8 peak (peak_flops.fp8)" in notes[0]
    path.write_text("extends: a100-sxm-80gb\nmemory: 70GiB\n")
    notes = json.loads(CliRunner().invoke(app, [*asked, str(path)]).stdout)["notes"]
    assert notes[0].startswith("mine has no fp8 units: ")
