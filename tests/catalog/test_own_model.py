"""Model files of one's own: parts, named once, and the layers that are made of them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sim import catalog
from sim.cli import app
from sim.errors import UsageError
from sim.specs.model import ModelSpec
from tests.places import ROOT

HYBRID = """\
architecture:
  hidden_size: 2048
  vocab_size: 248320
  max_position_embeddings: 262144
  tie_word_embeddings: false
  parts:
    linear: {kind: gated_delta, linear_key_heads: 16, linear_value_heads: 32,
             linear_key_dim: 128, linear_value_dim: 128}
    full: {kind: grouped_query, num_heads: 16, num_kv_heads: 2, head_dim: 256,
           output_gate: true, qk_norm: true}
    experts: {kind: experts, num_experts: 256, experts_per_token: 8, moe_intermediate_size: 512,
              shared_intermediate_size: 512, shared_gate: true}
  layers:
    - repeat: 10
      of:
        - {attention: linear, mlp: experts, count: 3}
        - {attention: full, mlp: experts}
"""
LATENT = """\
title: Like GLM 5
architecture:
  hidden_size: 6144
  vocab_size: 154880
  max_position_embeddings: 202752
  tie_word_embeddings: false
  mtp_layers: 1
  parts:
    sparse: {kind: sparse_latent, num_heads: 64, q_lora_rank: 2048, kv_lora_rank: 512,
             qk_nope_head_dim: 192, qk_rope_head_dim: 64, v_head_dim: 256, index_n_heads: 32,
             index_head_dim: 128, index_topk: 2048}
    dense: {kind: dense, intermediate_size: 12288}
    experts: {kind: experts, num_experts: 256, experts_per_token: 8, moe_intermediate_size: 2048,
              shared_intermediate_size: 2048, router_bias: true}
  layers:
    - {attention: sparse, mlp: dense, count: 3}
    - {attention: sparse, mlp: experts, count: 75}
parameters: 744_000_000_000
published_format: {weights: fp8-block}
"""
MAMBA = """\
architecture:
  hidden_size: 4096
  vocab_size: 131072
  max_position_embeddings: 8192
  tie_word_embeddings: true
  parts:
    mamba: {kind: mamba2, mamba_heads: 128, mamba_head_dim: 64, state_size: 128}
    attention: {kind: grouped_query, num_heads: 32, num_kv_heads: 8, head_dim: 128}
    mlp: {kind: dense, intermediate_size: 14336, mlp_matrices: 2}
  layers: [{attention: mamba}, {mlp: mlp}, {attention: attention, mlp: mlp, post_norms: true}]
"""


def own(folder: Path, text: str) -> ModelSpec:
    path = folder / "mine.yaml"
    path.write_text(text)
    return catalog.model(path)


@pytest.mark.parametrize(("name", "text"), [("qwen3.5-35b-a3b", HYBRID), ("glm-5", LATENT)])
def test_a_family_in_this_form_is_that_of_the_catalogue(
    tmp_path: Path, name: str, text: str
) -> None:
    found, known = own(tmp_path, text), catalog.model(name)
    assert replace(found, name=known.name, source=known.source) == known
    assert [g.places for g in found.layers] == [g.places for g in known.layers] or name == "glm-5"
    assert found.source == "given in mine.yaml"


def test_the_format_of_the_checkpoint_may_be_stated(tmp_path: Path) -> None:
    found = own(tmp_path, LATENT)
    assert found.published is not None
    assert found.published.weights == "fp8-block"


def test_a_format_that_does_not_exist_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(HYBRID + "published_format: {weights: fp8-blok}\n")
    said = r"mine\.yaml:\d+:\d+: published_format\.weights: .*fp8-block"
    with pytest.raises(UsageError, match=said):
        catalog.model(path)


def test_a_layer_may_lack_attention_or_mlp(tmp_path: Path) -> None:
    mamba, mlp, both = own(tmp_path, MAMBA).layers
    assert (mamba.norms, mlp.norms, both.norms) == (1, 1, 4)
    assert (mamba.places, mlp.places, both.places) == ((0,), (1,), (2,))


def test_it_serves_in_fit_and_in_a_scenario(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(HYBRID)
    (tmp_path / "one.yaml").write_text(
        "model: ./mine.yaml\nfleet: {gpu: h200-sxm}\nmax_model_len: 1024\nrun: {requests: 40}\n"
        "workload: {arrivals: {kind: poisson, rate: 20}, prompt_tokens: {kind: fixed, value: 300}, "
        "output_tokens: {kind: fixed, value: 20}}\n"
    )
    fit = invoked("fit", str(tmp_path / "mine.yaml"), "--gpu", "h200-sxm", "--json")
    assert json.loads(fit)["model"] == "mine"
    assert "parameters: 34660610688" in invoked("show", str(tmp_path / "mine.yaml"))
    out = tmp_path / "out"
    invoked("run", str(tmp_path / "one.yaml"), "--no-report", "--output", str(out))


def invoked(*arguments: str) -> str:
    """The standard output of a command that succeeds."""
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: gated_delta", "kind: gated_delt",
         ":7:20: architecture.parts.linear.kind: unknown kind gated_delt "
         "(did you mean 'gated_delta'?)"),
        ("num_kv_heads: 2", "num_kv_head: 2",
         "architecture.parts.full.num_kv_head: unknown key (did you mean 'num_kv_heads'?)"),
        ("num_kv_heads: 2", "num_kv_heads: 3",
         ":9:62: architecture.parts.full.num_kv_heads: got 3, expected a divisor of the 16"),
        ("head_dim: 256,", "", "architecture.parts.full.head_dim: is missing"),
        ("attention: full,", "attention: ful,",
         "architecture.layers.0.of.1.attention: no attention of `parts` is called ful (did you "
         "mean 'full'?); there are linear, full"),
        ("attention: full, mlp: experts", "attention: experts, mlp: experts",
         "no attention of `parts` is called experts"),
        ("attention: full, mlp: experts", "count: 2",
         "a layer has an attention, an mlp, or both"),
        ("attention: full,", "attention: linear,", "at least one layer with attention to tokens"),
        ("repeat: 10", "repeat: 10000", "layers.0.repeat: expected at most 10,000 layers"),
        ("repeat: 10", "repeats: 10", "unknown key"),
        ("hidden_size: 2048", "hiden_size: 2048",
         "architecture.hiden_size: unknown key (did you mean 'hidden_size'?)"),
        ("  layers:", "  layer:", "architecture.layer: unknown key (did you mean 'layers'?)"),
    ],
)  # fmt: skip
def test_errors_name_file_key_and_the_nearest(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in HYBRID
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        own(tmp_path, HYBRID.replace(old, new, 1))
    assert str(caught.value).startswith(str(tmp_path / "mine.yaml"))


def test_a_stated_size_has_to_agree(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="parameters: the architecture makes 743,911"):
        own(tmp_path, LATENT.replace("744_000", "600_000"))


def test_the_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    page = (ROOT / "sim/catalog/README.md").read_text("utf-8")
    (example,) = re.findall(r"```yaml\n(architecture:\n.*?)```", page, re.DOTALL)
    assert own(tmp_path, example).num_layers == 40
