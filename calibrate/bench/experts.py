"""Measures the experts of a layer: one call from the router's scores to the sum of the results.

``tokens`` choose ``chosen`` of ``experts`` of ``width`` columns over a hidden state of ``hidden``;
``gpus`` share each expert's width, of which one device computes its part. ``matrices`` is 3 for
gated experts, 2 for others. ``variant`` is the law by which tokens choose (``routing``). On CUDA
PyTorch's grouped product is timed where it is there and right, otherwise one expert after the
other, as on a CPU; ``kernel`` says which. From one call to the next the same rows fall to other
experts, so that weights are read from memory.

On a CPU experts that are far enough apart share their memory: with twice the last-level cache
between two uses none is found there again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from calibrate.bench import by_expert, grouped_experts
from calibrate.bench.arena import Arena
from calibrate.bench.base import (
    WORKSPACE,
    BenchPoint,
    BenchWork,
    Scope,
    UnsupportedError,
    element,
)
from calibrate.bench.by_expert import ExpertWeights
from calibrate.bench.elementwise import gated
from calibrate.bench.heads import HeadsCandidate, close, first_right
from calibrate.bench.routing import LAWS, ExpertDraw, Law, counts, scores
from calibrate.lazy_torch import Tensor, torch
from sim.specs import routing
from sim.specs.experts import MixtureOfExperts
from sim.specs.model import ModelSpec


class ExpertShape(NamedTuple):
    """One layer's experts: hidden size, width of one, how many a token takes, how many there are,
    and matrices of each."""

    hidden: int
    width: int
    chosen: int
    experts: int
    matrices: int = 3


SHAPES: Mapping[str, tuple[ExpertShape, ...]] = {
    "cpu": (
        ExpertShape(256, 512, 2, 4, 2),
        ExpertShape(512, 256, 2, 8),
        ExpertShape(768, 512, 4, 16),
        ExpertShape(1024, 512, 8, 32),
        ExpertShape(2048, 1024, 8, 64),
        ExpertShape(2048, 768, 8, 128),
        ExpertShape(2048, 1408, 4, 60),
        ExpertShape(1024, 1856, 6, 64, 2),
        ExpertShape(2048, 2048, 1, 16),
    ),
    "cuda": (
        ExpertShape(4096, 14336, 2, 8),
        ExpertShape(2048, 768, 8, 128),
        ExpertShape(4096, 1536, 8, 128),
        ExpertShape(2880, 2880, 4, 32),
        ExpertShape(2048, 1408, 4, 60),
        ExpertShape(7168, 2048, 8, 256),
        ExpertShape(5120, 8192, 1, 16),
        ExpertShape(2688, 1856, 6, 128, 2),
    ),
}
"""Small layers for a CPU, two of which lean on published ones (Qwen3 30B-A3B, OLMoE); on a GPU
those of Mixtral 8x7B, Qwen3 30B-A3B and 235B-A22B, gpt-oss-20b, Qwen1.5-MoE, DeepSeek-V3, Llama 4
Scout and Nemotron 3 Nano."""

TOKENS: Mapping[str, tuple[int, ...]] = {
    "cpu": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    "cuda": (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384),
}
LAW_WEIGHTS: Mapping[Law, float] = {"balanced": 0.6, "even": 1.0, "skewed": 0.8}
TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 3e-2}
TURNS = 64
"""Calls that differ in which experts they meet, at most."""


def point(
    precision: str,
    shape: ExpertShape,
    tokens: int,
    law: Law = "even",
    gpus: int = 1,
    *,
    shared: bool = False,
) -> BenchPoint:
    """One call: the weights of as many experts as are probably touched, and activations moved once.

    ``shared`` says that not every expert has memory of its own.
    """
    touched = float(routing.touched(shape.experts, shape.chosen, tokens))
    rows, inner, size = tokens * shape.chosen, shape.width // gpus, element(precision)
    one = shape.matrices * shape.hidden * inner
    moved = rows * (2 * shape.hidden + shape.matrices * inner) * size
    held = touched if shared else shape.experts
    memory = held * one * size + 4 * moved + WORKSPACE
    sizes = {**shape._asdict(), "tokens": tokens, "gpus": gpus}
    traffic, flops = touched * one * size + moved, 2.0 * rows * one
    weight = LAW_WEIGHTS[law]
    return BenchPoint("moe", precision, sizes, traffic, flops, memory, weight, variant=law)


def shapes_of(scope: Scope) -> list[ExpertShape]:
    """The layers to measure: those of the models that have experts, and the usual ones."""
    found = [shape for model in scope.models for shape in _of_model(model)]
    return list(dict.fromkeys([*found, *SHAPES[scope.kind]]))


def _of_model(model: ModelSpec) -> Iterator[ExpertShape]:
    for group in model.layers:
        mlp = group.mlp
        if isinstance(mlp, MixtureOfExperts):
            sizes = mlp.moe_intermediate_size, mlp.experts_per_token, mlp.num_experts
            yield ExpertShape(model.hidden_size, *sizes, mlp.mlp_matrices)


class Experts:
    """The experts of a layer."""

    shares: Mapping[str, float] = {"moe": 1.3}

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Layers by numbers of tokens, whole and, on GPUs, cut along their width. The laws take
        turns, so that no two of them spend time on the same numbers."""
        parts = scope.tensor_parallel if scope.kind == "cuda" else (1,)
        for precision in scope.sixteen_bit():
            for number, shape in enumerate(shapes_of(scope)):
                for gpus in (n for n in parts if shape.width % (16 * n) == 0):
                    for turn, tokens in enumerate(TOKENS[scope.kind], start=number + gpus):
                        law = LAWS[turn % len(LAWS)]
                        shared = scope.kind == "cpu"
                        made = point(precision, shape, tokens, law, gpus, shared=shared)
                        if scope.quick(made):
                            yield made

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """Inputs, scores that turn from call to call, and the weights of all experts."""
        work = make_work(point, arena)
        name, calls = first_right(candidates(work, arena, point.precision))
        return BenchWork(calls, name)


class ExpertWork(NamedTuple):
    """A layer's weights and inputs; ``scores`` differ from turn to turn."""

    hidden: Tensor
    scores: Sequence[Tensor]
    chosen: int
    weights: ExpertWeights
    gated: bool


def make_work(point: BenchPoint, arena: Arena, *, whole: bool | None = None) -> ExpertWork:
    """The operands of a point; ``whole`` gives each expert memory of its own, as on a GPU."""
    names = ("hidden", "width", "chosen", "experts", "matrices")
    shape = ExpertShape(*(point.size(name) for name in names))
    tokens, inner = point.size("tokens"), shape.width // point.size("gpus")
    gated, precision = shape.matrices == 3, point.precision
    one = shape.matrices * shape.hidden * inner * element(precision)
    held = shape.experts
    if arena.device.facts.kind == "cpu" if whole is None else not whole:
        held = min(shape.experts, 1 + math.ceil(arena.turnover / one))
    into = arena.take((held, (shape.matrices - 1) * inner, shape.hidden), precision)[0]
    out = arena.take((held, shape.hidden, inner), precision, pool="experts")[0]
    (hidden,) = arena.take((tokens, shape.hidden), precision)
    law: Law = next(name for name in LAWS if name == point.variant)
    draw = ExpertDraw(tokens, shape.experts, shape.chosen, law)
    touched = counts(draw)["touched"]
    turns = max(1, min(TURNS, shape.experts, math.ceil(arena.turnover / (touched * one))))
    first = torch.from_numpy(scores(draw)).to(hidden.device)
    step = max(1, shape.experts // turns)
    rolled = [torch.roll(first, turn * step, dims=1) for turn in range(turns)]
    if held < shape.experts:
        into, out = ([part[e % held] for e in range(shape.experts)] for part in (into, out))
    return ExpertWork(hidden, rolled, shape.chosen, ExpertWeights(into, out), gated)


def candidates(work: ExpertWork, arena: Arena, precision: str) -> Iterator[HeadsCandidate]:
    """The ways to compute it on this device, best first."""
    if arena.device.facts.kind == "cuda":
        yield HeadsCandidate(
            grouped_experts.name(),
            lambda: by_groups(work),
            lambda: arena.once(("experts", precision), lambda: agrees(arena, precision)),
        )
    yield HeadsCandidate(by_expert.NAME, lambda: one_by_one(work))


Routed = Callable[..., Tensor]


def one_by_one(work: ExpertWork) -> list[Callable[[], Tensor]]:
    """A call for each turn, expert by expert."""
    return [_bound(by_expert.routed, work, scores) for scores in work.scores]


def by_groups(work: ExpertWork) -> list[Callable[[], Tensor]]:
    """A call for each turn, in two grouped products; UnsupportedError without them."""
    grouped_experts.grouped_product()
    if not isinstance(work.weights.down, torch.Tensor):
        raise UnsupportedError("the experts of this point share their memory")
    return [_bound(grouped_experts.routed, work, scores) for scores in work.scores]


def _bound(way: Routed, work: ExpertWork, scores: Tensor) -> Callable[[], Tensor]:
    activation = gated if work.gated else squared

    def run() -> Tensor:
        chosen, shares = choose(scores, work.chosen, work.hidden)
        return way(work.hidden, chosen, shares, work.weights, activation)

    return run


def choose(scores: Tensor, choices: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The best experts of each token by the router's scores, and their shares, which sum to 1, in
    the type of ``like``."""
    best, chosen = scores.softmax(-1).topk(choices, dim=-1)
    return chosen, (best / best.sum(-1, keepdim=True)).to(like.dtype)


def squared(inner: Tensor) -> Tensor:
    """The activation of experts without a gate: the square of what is above zero."""
    return torch.nn.functional.relu(inner).square()


def agrees(arena: Arena, precision: str) -> bool:
    """Whether the grouped product gives the result of plain arithmetic, gated and not."""
    return all(
        close(call(), reference(work, turn), TOLERANCE[precision])
        for matrices in (3, 2)
        for small in [point(precision, ExpertShape(64, 32, 2, 8, matrices), 21)]
        for work in [make_work(small, arena, whole=True)]
        for turn, call in enumerate(by_groups(work))
    )


def reference(work: ExpertWork, turn: int) -> Tensor:
    """Every token by itself, in 32 bits."""
    rows = []
    weights = work.scores[turn].softmax(dim=-1)
    for token, chances in zip(work.hidden.float(), weights, strict=True):
        best, experts = torch.topk(chances, work.chosen)
        total = torch.zeros_like(token)
        for weight, expert in zip(best / best.sum(), experts.tolist(), strict=True):
            inner = (work.weights.gate_up[expert].float() @ token)[None]
            inner = gated(inner) if work.gated else squared(inner)
            total = total + weight * (work.weights.down[expert].float() @ inner[0])
        rows.append(total)
    return torch.stack(rows)
