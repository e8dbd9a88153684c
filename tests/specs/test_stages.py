"""The stages of a pipeline, against values worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.cost import Deployment
from sim.specs.experts import MixtureOfExperts
from sim.specs.layers import counted
from sim.specs.layout import Layout
from sim.specs.stages import layers_of_stages, stages_of

IDEAL = catalog.engine("ideal")


def deployed(name: str, layout: Layout) -> Deployment:
    return Deployment(catalog.model(name), catalog.gpu("h200-sxm"), IDEAL, layout=layout)


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (32, 1, (32,)),
        (80, 4, (20, 20, 20, 20)),
        (61, 2, (31, 30)),
        (62, 4, (15, 16, 16, 15)),
        (61, 4, (15, 15, 16, 15)),
        (63, 4, (16, 16, 16, 15)),
    ],
)
def test_layers_are_dealt_out_as_vllm_does(
    layers: int, stages: int, expected: tuple[int, ...]
) -> None:
    """``partitions[-i] += 1`` for i from 2 on, for each layer that is left over."""
    assert layers_of_stages(layers, stages) == expected


def test_the_first_stage_embeds_and_the_last_one_predicts() -> None:
    """Llama-3.1-8B: 218,103,808 linear weights and two norms of 4,096 in each of 32 layers, an
    embedding and a head of 128,256 x 4,096 each, a final norm."""
    layer, vocabulary = 218_103_808 + 2 * 4096, 128_256 * 4096
    held = [
        sum(each.parameters for each in stage.weights())
        for stage in stages_of(catalog.model("llama-3.1-8b"), 4)
    ]
    inner = 8 * layer
    assert held == [inner + vocabulary, inner, inner, inner + vocabulary + 4096]


@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3", "gpt-oss-20b"])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_the_stages_together_are_the_model(name: str, stages: int) -> None:
    model = catalog.model(name)
    parts = stages_of(model, stages)
    assert sum(part.num_layers for part in parts) == model.num_layers
    roles = ("projections", "experts", "vocabulary", "kept")
    whole = sum(counted(part.weights(), *roles) for part in parts)
    assert whole == model.parameters


def test_a_tied_head_is_a_copy_on_the_last_stage() -> None:
    model = catalog.model("llama-3.2-1b")
    first, last = (sum(w.parameters for w in part.weights()) for part in stages_of(model, 2))
    assert last == first + model.hidden_size  # the final norm
    assert first + last == model.parameters + model.embedding_parameters()


def test_dense_first_layers_are_on_the_first_stage() -> None:
    """DeepSeek-V3 has three before 58 with experts; of 61 layers, the first stage has 15."""
    counts = [
        [(group.count, isinstance(group.mlp, MixtureOfExperts)) for group in part.layers]
        for part in stages_of(catalog.model("deepseek-v3"), 4)
    ]
    assert counts == [[(3, False), (12, True)], [(15, True)], [(16, True)], [(15, True)]]


def test_windows_alternate_on_every_stage() -> None:
    """gpt-oss-20b: every other of 24 layers has a window."""
    for part in stages_of(catalog.model("gpt-oss-20b"), 3):
        assert sorted(group.count for group in part.layers) == [4, 4]


def test_the_heaviest_stage_decides_what_a_gpu_holds() -> None:
    layout = Layout(tensor=2, pipeline=4)
    stages = deployed("deepseek-v3", layout).stages()
    held = [stage.weight_bytes() for stage in stages]
    assert held[2] == max(held)  # it has a layer more than the others
    assert deployed("deepseek-v3", layout).weight_bytes() == held[2]
    kept = [stage.kv_bytes_per_token() for stage in stages]
    assert deployed("deepseek-v3", layout).kv_bytes_per_token() == max(kept) == kept[2]


def test_more_stages_than_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="pipeline_parallel: 40 stages cannot share the 32 layers"):
        deployed("llama-3.1-8b", Layout(pipeline=40))


@pytest.mark.parametrize(
    ("layout", "kinds"),
    [
        (Layout(tensor=4, pipeline=2), ["nvlink"]),
        (Layout(tensor=4, pipeline=4), ["nvlink", "network", "nvlink"]),
        (Layout(tensor=8, pipeline=3), ["network", "network"]),
        (Layout(pipeline=9), [*["nvlink"] * 7, "network"]),
    ],
)
def test_a_node_has_as_many_stages_as_it_has_room_for(layout: Layout, kinds: list[str]) -> None:
    """Eight GPUs."""
    assert [link.kind for link in deployed("llama-3.1-8b", layout).borders] == kinds


def test_a_stated_link_joins_all_stages() -> None:
    d = deployed("llama-3.1-8b", Layout(tensor=8, pipeline=2))
    gpu = replace(d.gpu, node=replace(d.gpu.node, gpus=None))
    assert replace(d, gpu=gpu).borders == (d.gpu.link,)
