"""Measures whole decoder layers and whole model steps, to compare with the sum of their operators.

A layer here is written with the operators that the other families time one by one, over the same
paged KV cache. Comparing its time with the sum of theirs shows what lies between them: launches
when it runs eagerly, little in a CUDA graph. ``tokens`` is 1 for a decode step of ``batch``
sequences, more for one prefill of ``batch`` prompts; ``n`` is the width of the MLP, ``k`` that of
the model. ``variant`` names the model and how it was run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from calibrate.bench import decode_attention, elementwise, gemm, prefill_attention
from calibrate.bench.arena import Arena
from calibrate.bench.base import WORKSPACE, BenchPoint, BenchWork, Mode, Scope, element
from calibrate.bench.heads import Heads
from calibrate.bench.tiny_model import TinySetting
from calibrate.dense import dense_layer, is_dense
from sim.specs.model import ModelSpec

DECODES = ((1, 512), (8, 512), (32, 512), (32, 2048), (128, 1024))
PREFILLS = ((1, 128), (1, 512), (1, 2048), (4, 512))
PART_WEIGHT = 3.0
"""Parts are worth measuring first: without them a layer has nothing to be compared with."""


def point(
    model: ModelSpec, precision: str, batch: int, tokens: int, context: int, step: bool, how: str
) -> BenchPoint:
    """One layer, or one step of the whole model; ``context`` includes the new tokens."""
    attention, mlp, _ = dense_layer(model)
    shape = {
        "batch": batch,
        "tokens": tokens,
        "context": context,
        "n": mlp.intermediate_size,
        "k": model.hidden_size,
        "q_heads": attention.num_heads,
        "kv_heads": attention.num_kv_heads,
        "head_dim": attention.head_dim,
    }
    made = parts(model, precision, batch, tokens, context, step)
    traffic = sum(times * part.bytes for part, times in made)
    flops = sum(times * part.flops for part, times in made)
    memory = max(part.memory for part, _ in made) * 2 + WORKSPACE
    size = element(precision)
    layers = model.num_layers if step else 1
    memory += layers * model.layers[0].linear_parameters(model.hidden_size) * size
    memory += 2 * model.embedding_parameters() * size if step else 0
    operator = "step" if step else "layer"
    return BenchPoint(
        operator, precision, shape, traffic, flops, memory, 1.0, f"{model.name} {how}"
    )


def parts(
    model: ModelSpec, precision: str, batch: int, tokens: int, context: int, step: bool
) -> list[tuple[BenchPoint, int]]:
    """The operators of a layer or step as points of their own, each with how often it runs."""
    rows, layers = batch * tokens, model.num_layers if step else 1
    heads, inner = Heads.of(model), dense_layer(model).mlp.intermediate_size
    shapes = gemm.layer_shapes(model, 1)
    found = [
        (gemm.point(precision, rows, *shapes[name]), layers)
        for name in ("qkv", "output", "gate_up", "down")
    ]
    if tokens == 1:
        attention = decode_attention.point(precision, batch, context, heads)
    else:
        attention = prefill_attention.point(precision, batch, tokens, 0, heads)
    stream = elementwise.stream_point
    found += [
        (attention, layers),
        (stream("norm", precision, rows, model.hidden_size), 2 * layers),
        (
            stream("rotary", precision, rows, (heads.q + heads.kv) * heads.size),
            layers,
        ),
        (stream("kv_write", precision, rows, 2 * heads.kv * heads.size), layers),
        (stream("activation", precision, rows, inner), layers),
    ]
    if step:
        found += [
            (gemm.point(precision, batch, *shapes["head"]), 1),
            (stream("embedding", precision, rows, model.hidden_size), 1),
            (elementwise.sampling_point(batch, model.vocab_size), 1),
        ]
    return [(replace(part, weight=PART_WEIGHT), times) for part, times in found]


def parts_of(point: BenchPoint, models: Sequence[ModelSpec]) -> list[tuple[BenchPoint, int]]:
    """The parts of a point of this family, if its model is among ``models``."""
    model = _model(point, models)
    batch, tokens, context = (point.size(name) for name in ("batch", "tokens", "context"))
    return parts(model, point.precision, batch, tokens, context, point.operator == "step")


def _model(point: BenchPoint, models: Sequence[ModelSpec]) -> ModelSpec:
    name = point.variant.rsplit(" ", 1)[0]
    return next(model for model in models if model.name == name)


class Layers:
    """Layers and steps of the chosen models."""

    shares: Mapping[str, float] = {"layer": 0.8, "step": 0.8}

    def __init__(self, models: Sequence[ModelSpec]) -> None:
        self._models = models

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Layers of every model that the small layer here can express, steps of those that fit."""
        ways = ("eager", "graph") if scope.kind == "cuda" else ("eager",)
        precision = scope.activations()
        sizes = [(batch, 1, context) for batch, context in DECODES]
        sizes += [(batch, tokens, tokens) for batch, tokens in PREFILLS]
        for model in (model for model in self._models if plain(model)):
            for step in (False, True):
                for batch, tokens, context in sizes:
                    made = [
                        point(model, precision, batch, tokens, context, step, how) for how in ways
                    ]
                    if made[0].memory <= scope.memory:
                        yield from made
                        for part, _ in parts(model, precision, batch, tokens, context, step):
                            yield part

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Layers with weights of their own; a single layer in as many copies as outgrow the
        cache."""
        model = _model(point, self._models)
        step = point.operator == "step"
        size = model.layers[0].linear_parameters(model.hidden_size) * element(point.precision)
        layers = model.num_layers if step else min(8, arena.copies(size))
        mode: Mode = "eager" if point.variant.endswith(" eager") else "device"
        setting = TinySetting(arena, model, point)
        built = setting.layers(layers)
        if step:
            return BenchWork([setting.step(built)], setting.kernel, mode)
        return BenchWork([setting.alone(layer) for layer in built], setting.kernel, mode)


def plain(model: ModelSpec) -> bool:
    """Whether the layer here can express the model: gated MLP after attention, no extra norms."""
    if not is_dense(model):
        return False
    attention, mlp, parallel = dense_layer(model)
    return mlp.mlp_matrices == 3 and not parallel and not attention.qk_norm
