"""The timed calls of experts, latent attention and windows compute what they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

from calibrate.bench import (
    by_sequence,
    experts,
    families,
    grouped_experts,
    heads,
    latent_decode,
    latent_prompts,
    window_attention,
)
from calibrate.bench import latent_attention as latent
from calibrate.bench.arena import Arena
from calibrate.bench.base import BenchPoint, Scope, UnsupportedError
from calibrate.bench.heads import Heads, HeadsCandidate, close, dense_attention, quickest_right
from calibrate.bench.paged import make_cache
from calibrate.bench.routing import LAWS, ExpertDraw, counts, rows_by_expert, scores, whole_shape
from calibrate.timing import CpuTimer
from sim import catalog
from sim.cost.kernels.expert_tiles import expected
from sim.specs.popularity import chances
from tests.bench_fixtures import small_arena

SMALL = experts.ExpertShape(64, 32, 2, 8)
UNGATED = SMALL._replace(matrices=2)
LATENT = latent.LatentShape(4, 32, 8, 16)
GROUPED = Heads(4, 2, 16)


pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def arena() -> Arena:
    return small_arena()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("shape", [SMALL, UNGATED])
def test_experts_one_by_one(arena: Arena, shape: experts.ExpertShape, law: str) -> None:
    work = experts.make_work(experts.point("fp32", shape, 21, law), arena)  # type: ignore[arg-type]
    for turn, call in enumerate(experts.one_by_one(work)):
        assert close(call(), experts.reference(work, turn), 1e-4)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_grouped_products_are_those_of_the_experts(arena: Arena, precision: str) -> None:
    """The way of a GPU, which this PyTorch computes on a CPU, too."""
    assert experts.agrees(arena, precision)


def test_a_grouped_product_of_other_experts_would_be_noticed(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, name = grouped_experts.grouped_product()
    wrong = lambda a, b, offs: right(a, b.flip(0), offs=offs)  # noqa: E731
    monkeypatch.setattr(grouped_experts, "grouped_product", lambda: (wrong, name))
    assert not experts.agrees(arena, "fp32")


def test_from_call_to_call_the_same_rows_fall_to_other_experts() -> None:
    small = experts.ExpertShape(64, 32, 2, 16)
    arena = small_arena()
    work = experts.make_work(experts.point("fp32", small, 1), arena, whole=True)
    chosen = [set(torch.topk(each, 2).indices.flatten().tolist()) for each in work.scores]
    assert len(chosen) > 2
    assert not chosen[0] & chosen[2]
    bytes_met = len(chosen) * 2 * 3 * 64 * 32 * 4
    assert bytes_met >= arena.turnover or len(chosen) == 16


def test_on_a_cpu_experts_far_apart_share_memory(arena: Arena) -> None:
    wide = experts.ExpertShape(64, 64, 2, 64)
    work = experts.make_work(experts.point("fp32", wide, 8), arena)
    places = [expert.data_ptr() for expert in work.weights.down]
    one = 3 * 64 * 64 * 4
    held = len(set(places))
    assert len(places) == 64
    assert held < 64
    assert held * one > arena.turnover
    assert places[0] == places[held]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("tokens", "count", "chosen"), [(1, 8, 2), (40, 16, 3), (300, 8, 1)])
def test_counts_are_those_of_the_router(law: str, tokens: int, count: int, chosen: int) -> None:
    draw = ExpertDraw(tokens, count, chosen, law)  # type: ignore[arg-type]
    ids, shares = experts.choose(torch.from_numpy(scores(draw)), chosen, torch.zeros(1))
    assert torch.bincount(ids.flatten(), minlength=count).tolist() == list(rows_by_expert(draw))
    torch.testing.assert_close(shares.sum(-1), torch.ones(tokens))
    found = counts(draw)
    assert found["rows"] == tokens * chosen
    assert found["tiles16"] == sum(math.ceil(rows / 16) for rows in rows_by_expert(draw))
    assert found["single"] == rows_by_expert(draw).count(1)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_laws_take_turns(kind: str) -> None:
    """No two laws at the same numbers, and every law at every layer."""
    scope = Scope(kind, 1e12, 1, [], ["bf16"])  # type: ignore[arg-type]
    found = list(experts.Experts().points(scope))
    assert len({tuple(point.shape.items()) for point in found}) == len(found)
    for layer in {(point.shape["hidden"], point.shape["width"]) for point in found}:
        own = {p.variant for p in found if (p.shape["hidden"], p.shape["width"]) == layer}
        assert own == set(LAWS)


def test_laws_touch_what_they_should() -> None:
    """A draw of even chances touches what the simulator expects, a skewed one less, the balanced
    one as much as there can be."""
    by_law = {law: counts(ExpertDraw(32, 128, 8, law))["touched"] for law in LAWS}
    (even,) = expected(np.array([32.0]), chances(128, 8), [math.inf])
    assert by_law["even"] == pytest.approx(float(even[0]), rel=0.05)
    assert by_law["skewed"] < 0.92 * by_law["even"]
    assert by_law["balanced"] == 128
    with pytest.raises(ValueError, match="expected one of balanced, even, skewed"):
        scores(ExpertDraw(1, 2, 1, "odd"))  # type: ignore[arg-type]


def test_a_measurement_needs_no_counts_of_its_own() -> None:
    point = experts.point("bf16", SMALL, 40, "skewed")
    whole = whole_shape("moe", point.shape, "skewed")
    assert whole["tiles16"] == counts(ExpertDraw(40, 8, 2, "skewed"))["tiles16"]
    assert whole_shape("moe", point.shape, "unknown") == point.shape
    assert whole_shape("moe", {**point.shape, "experts": 1e12}, "even").get("rows") is None


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "way", [latent_decode.one_by_one, latent_decode.in_batches, latent_decode.fused]
)
def test_latent_decoding(arena: Arena, way: latent_decode.Way, precision: str) -> None:
    assert latent_decode.agrees(way, arena, latent.decode_point(precision, 3, 40, LATENT))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_latent_prompts(arena: Arena, precision: str) -> None:
    point = latent.prefill_point(precision, 2, 20, 30, LATENT)
    assert latent_prompts.agrees(latent_prompts.prompt_calls, arena, point)
    (one, *_) = latent_prompts.make_prompts(arena, point)
    assert (one.query.shape[-1], one.wide.shape[-1], one.nope) == (24, 32, 16)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("way", [window_attention.one_by_one, window_attention.gathered])
def test_decoding_through_a_window(
    arena: Arena, way: window_attention.DecodeWay, precision: str
) -> None:
    assert window_attention.decode_agrees(way, arena, GROUPED, precision)


def test_prompts_through_a_window_with_one_mask(arena: Arena) -> None:
    assert window_attention.prefill_agrees(window_attention.masked, arena, GROUPED, "fp32")


@pytest.mark.parametrize(
    ("tokens", "context", "window"),
    [(300, 0, 100), (70, 200, 100), (200, 30, 100), (5, 400, 64), (130, 0, 1000), (1, 99, 10)],
)
def test_prompts_through_a_window_in_pieces(
    arena: Arena, tokens: int, context: int, window: int
) -> None:
    cache = make_cache(arena, (tokens + context,) * 2, GROUPED, "fp32", copies=2)
    query = arena.take((2 * tokens, GROUPED.q, GROUPED.size), "fp32")[0].clone()
    for turn, call in enumerate(window_attention.one_by_one(query, cache, window)):
        result = call()
        for i, rows in enumerate((slice(0, tokens), slice(tokens, 2 * tokens))):
            blocks = cache.tables[turn][i].long()
            keys, values = (
                part[blocks].flatten(0, 1)[: tokens + context]
                for part in (cache.keys, cache.values)
            )
            right = dense_attention(query[rows], keys, values, window)
            assert close(result[rows], right, 1e-4)


def test_pieces_meet_no_more_keys_than_they_see(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a prompt of 300 tokens through a window of 100: the first piece its own 64, the second
    128, then 99 before each piece, the last of which has 44 queries."""
    met = []
    true = by_sequence.prefill
    monkeypatch.setattr(
        by_sequence,
        "prefill",
        lambda q, k, v, mask: met.append((len(q), k.shape[2])) or true(q, k, v, mask),
    )
    arena = small_arena()
    cache = make_cache(arena, (300,), GROUPED, "fp32", copies=1)
    query = arena.take((300, GROUPED.q, GROUPED.size), "fp32")[0]
    window_attention.one_by_one(query, cache, 100)[0]()
    assert met == [(64, 64), (64, 128), (64, 163), (64, 163), (44, 143)]


def test_the_quickest_way_that_is_right_is_timed(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = [0.0]
    monkeypatch.setattr(heads.time, "perf_counter", lambda: time[0])

    def takes(seconds: float) -> object:
        def call() -> None:
            time[0] += seconds

        return lambda: [call]

    ways = [
        HeadsCandidate("wrong", takes(1.0), lambda: False),  # type: ignore[arg-type]
        HeadsCandidate("slow", takes(3.0)),  # type: ignore[arg-type]
        HeadsCandidate("quick", takes(2.0)),  # type: ignore[arg-type]
    ]
    assert quickest_right(ways, arena.device)[0] == "quick"
    with pytest.raises(UnsupportedError, match="wrong: wrong result"):
        quickest_right(ways[:1], arena.device)


def test_a_point_of_every_kind_can_be_prepared_and_timed(arena: Arena) -> None:
    timer = CpuTimer(arena.device)
    chosen = {
        experts.Experts(): [experts.point("bf16", UNGATED, 5, "balanced")],
        latent.LatentAttention(): [
            latent.decode_point("bf16", 2, 20, LATENT),
            latent.prefill_point("bf16", 1, 8, 30, LATENT),
        ],
        window_attention.WindowAttention(): [
            window_attention.decode_point("bf16", 2, 300, 128, GROUPED),
            window_attention.prefill_point("bf16", 1, 150, 20, 128, GROUPED),
        ],
    }
    for family, points in chosen.items():
        for point in points:
            work = family.prepare(point, arena)
            assert 1e-8 < timer.measure(work, 0.002).seconds < 1.0, point
            assert work.kernel


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_there_are_enough_shapes_to_hold_some_out(kind: str) -> None:
    scope = Scope(kind, 5e10, 1, [catalog.model("llama-3.2-1b")], ["bf16"])  # type: ignore[arg-type]
    found: dict[str, list[BenchPoint]] = {}
    for family in families(scope):
        if family.__class__.__name__ in ("Experts", "LatentAttention", "WindowAttention"):
            for point in family.points(scope):
                found.setdefault(point.operator, []).append(point)
    assert set(found) == {"moe", "mla_decode", "mla_prefill", "window_decode", "window_prefill"}
    names = {
        "moe": ("hidden", "width", "chosen", "experts"),
        "mla_decode": ("q_heads", "latent", "rope"),
        "mla_prefill": ("q_heads", "head_dim"),
        "window_decode": ("q_heads", "kv_heads", "head_dim", "window"),
        "window_prefill": ("q_heads", "kv_heads", "head_dim", "window"),
    }
    for operator, points in found.items():
        shapes = {tuple(point.shape[name] for name in names[operator]) for point in points}
        assert len(shapes) >= 5, operator
        assert len({point.key for point in points}) == len(points)
        assert all(point.bytes > 0 and point.flops > 0 for point in points)
    cut = {point.shape["tokens"] + point.shape["context"] for point in found["window_prefill"]}
    assert min(cut) > 128  # what a window does not cut is measured without it
