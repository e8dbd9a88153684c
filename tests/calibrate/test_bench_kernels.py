"""The timed calls compute what they claim: tiny shapes, against plain arithmetic in 32 bits."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch

from calibrate.bench import (
    copies,
    decode_attention,
    elementwise,
    files,
    gemm,
    launch,
    layer,
    paged_triton,
    prefill_attention,
)
from calibrate.bench.arena import Arena
from calibrate.bench.base import BenchPoint, BenchWork, Scope, UnsupportedError
from calibrate.bench.heads import Heads, HeadsCandidate, close, dense_attention, first_right
from calibrate.bench.paged import BLOCK, make_cache, spread_lengths
from calibrate.bench.tiny_model import TinyLayer, TinySetting
from calibrate.suite import Bench
from calibrate.timing import CpuTimer, scrubber
from tests.bench_fixtures import CACHE, small_arena
from tests.dense_models import LLAMA_2_7B, changed

TINY = changed(
    LLAMA_2_7B, name="tiny", hidden_size=64, num_layers=2, num_heads=4, num_kv_heads=2, head_dim=16,
    intermediate_size=128, vocab_size=96, max_position_embeddings=512, source="made up",
)  # fmt: skip
LAYOUTS = [Heads(4, 4, 16), Heads(8, 2, 32), Heads(4, 1, 64)]


pytestmark = pytest.mark.usefixtures("device")


@pytest.fixture(scope="module")
def arena() -> Arena:
    return small_arena()


def test_the_pool_turns_over_more_than_the_cache(arena: Arena) -> None:
    size = 64 * 32 * 4
    views = arena.take((64, 32), "fp32", arena.copies(size))
    assert len(views) * size >= 2 * CACHE
    starts = [view.data_ptr() for view in views]
    assert all(b - a >= size for a, b in pairwise(starts))
    assert all(start % 16 == 0 for start in starts)
    assert arena.copies(10 * CACHE) == 1


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16", "fp8", "int8", "uint8", "int32"])
def test_pools_hold_random_numbers_and_no_zeros_to_speak_of(arena: Arena, precision: str) -> None:
    (numbers,) = arena.take((5000,), precision)
    values = numbers.float()
    assert float((values == 0).float().mean()) < 0.02
    assert len(values.unique()) > 80
    assert bool(torch.isfinite(values).all())


def test_a_pool_grows_and_is_given_back(arena: Arena) -> None:
    (big,) = arena.take((2**20,), "fp16")
    assert big.numel() == 2**20
    assert arena.held >= 2**21
    arena.release()
    assert arena.held == 0


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_plain_products(arena: Arena, precision: str) -> None:
    calls, _ = gemm._plain(arena, 5, 48, 32, precision)
    (a,) = arena.take((5, 32), precision)
    weights = arena.take((48, 32), precision, len(calls))
    assert len(calls) > 4
    for turn in (0, 3):
        result = calls[turn]()
        assert close(result, a.float() @ weights[turn].float().t(), 1e-2)  # type: ignore[arg-type]


def test_int8_products_are_exact(arena: Arena) -> None:
    calls, _ = gemm._int8(arena, 24, 48, 128)
    (a,) = arena.take((24, 128), "int8")
    w = arena.take((48, 128), "int8", len(calls))[1]
    result = calls[1]()
    assert torch.equal(result, (a.long() @ w.long().t()).int())  # type: ignore[arg-type]


def test_fp8_products_are_close(arena: Arena) -> None:
    calls, _ = gemm._fp8(arena, 16, 48, 128)
    (a,) = arena.take((16, 128), "fp8")
    w = arena.take((48, 128), "fp8", len(calls))[0]
    assert close(calls[0](), a.float() @ w.float().t(), 1e-2)  # type: ignore[arg-type]


def test_int8_weights_are_scaled_by_column(arena: Arena) -> None:
    calls, _ = gemm._int8_weights(arena, 3, 48, 128)
    (a,) = arena.take((3, 128), "bf16")
    (scales,) = arena.take((48,), "bf16")
    w = arena.take((48, 128), "int8", len(calls))[0]
    expected = a.float() @ w.float().t() * scales.float()
    assert close(calls[0](), expected, 2e-2)  # type: ignore[arg-type]


def test_int4_weights_are_what_the_packing_says(arena: Arena) -> None:
    n, k, m = 64, 128, 3
    numbers = torch.randint(0, 16, (n, k), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(numbers, 2)
    assert packed.shape == (n, k // 2)
    assert packed.dtype == torch.uint8
    calls, _ = gemm._int4_weights(arena, m, n, k)
    (a,) = arena.take((m, k), "bf16")
    (scales,) = arena.take((k // gemm.INT4_GROUP, n, 2), "bf16")
    arena.take((n, k // 2), "uint8", len(calls))[0].copy_(packed)
    weights = (numbers.float() - 8) * scales[0, :, :1].float() + scales[0, :, 1:].float()
    assert close(calls[0](), a.float() @ weights.t(), 2e-2)  # type: ignore[arg-type]


@pytest.mark.parametrize("heads", LAYOUTS)
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 2e-2)])
def test_paged_decode_attention_equals_dense_attention(
    arena: Arena, heads: Heads, precision: str, tolerance: float
) -> None:
    cache = make_cache(arena, (1, 16, 17, 75), heads, precision, copies=3)
    query = decode_attention.make_query(arena, 4, heads, precision).clone()
    used = [table.flatten().tolist() for table in cache.tables]
    assert set(used[0]) - {0} != set(used[1]) - {0}
    for make in (decode_attention.one_by_one, decode_attention.gathered):
        for turn, call in enumerate(make(query, cache)):
            expected = decode_attention.reference(query, cache, turn)
            assert close(call().view_as(expected), expected, tolerance), (make, turn)


def test_block_tables_share_no_block(arena: Arena) -> None:
    cache = make_cache(arena, (BLOCK * 3,) * 5, Heads(2, 1, 16), "fp32", copies=4)
    blocks = [block for table in cache.tables for block in table.flatten().tolist()]
    assert sorted(blocks) == list(range(60))
    assert blocks != sorted(blocks)


@pytest.mark.parametrize(
    ("batch", "context", "skew"), [(8, 1000, 4.0), (64, 128, 4.0), (9, 77, 2.5)]
)
def test_unequal_lengths_keep_their_mean(batch: int, context: int, skew: float) -> None:
    lengths = spread_lengths(batch, context, skew)
    assert len(lengths) == batch
    assert sum(lengths) == batch * context
    assert max(lengths) == int(skew * context)
    with pytest.raises(ValueError, match="cannot have a skew"):
        spread_lengths(2, 100, 4.0)


@pytest.mark.parametrize("heads", LAYOUTS)
def test_chunks_of_a_prompt_equal_the_whole_of_it(arena: Arena, heads: Heads) -> None:
    total, batch = 50, 2
    (operands, *_) = prefill_attention.make_operands(arena, batch, total, 0, heads, "fp32")
    query, keys, values = operands

    def part(source: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        rows = source.view(batch, total, source.shape[1], source.shape[2])[:, start:stop]
        return rows.reshape(-1, source.shape[1], source.shape[2])

    whole = prefill_attention.dense(query, keys, values, batch)()
    for start, stop in ((0, 20), (20, 21), (21, 50)):
        chunk = prefill_attention.dense(
            part(query, start, stop), part(keys, 0, stop), part(values, 0, stop), batch
        )()
        torch.testing.assert_close(chunk, whole[:, :, start:stop], rtol=1e-4, atol=1e-5)
    written = dense_attention(*(each.view(batch, total, -1, heads.size)[1] for each in operands))
    torch.testing.assert_close(whole[1].transpose(0, 1), written, rtol=1e-4, atol=1e-5)
    assert prefill_attention.agrees(prefill_attention.dense, arena, heads, "fp32")


def test_a_kernel_that_is_wrong_or_missing_is_passed_over(arena: Arena) -> None:
    heads = Heads(4, 2, 16)

    def off_by_one(query: torch.Tensor, cache: object) -> list[object]:
        right = decode_attention.gathered(query, cache)  # type: ignore[arg-type]
        return [lambda call=call: call() * 1.5 for call in right]  # type: ignore[misc]

    assert not decode_attention.agrees(off_by_one, arena, heads, "fp32")  # type: ignore[arg-type]
    assert decode_attention.agrees(decode_attention.gathered, arena, heads, "fp32")

    def missing() -> list[object]:
        raise UnsupportedError("not installed")

    ways = [
        HeadsCandidate("missing", missing),  # type: ignore[arg-type]
        HeadsCandidate("wrong", lambda: [lambda: 1], lambda: False),
        HeadsCandidate("right", lambda: [lambda: 2]),
    ]
    assert first_right(ways)[0] == "right"
    with pytest.raises(UnsupportedError, match=r"missing: .* not installed; wrong: wrong result"):
        first_right(ways[:2])

    def full() -> list[object]:
        raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(torch.OutOfMemoryError):
        first_right([HeadsCandidate("full", full), *ways])  # type: ignore[arg-type]


@pytest.mark.parametrize(("programs", "longest"), [(1, 131072), (8, 4096), (4096, 131072), (8, 10)])
def test_splits_fill_the_device_but_are_not_too_short(programs: int, longest: int) -> None:
    splits = paged_triton.splits_for(programs, longest, 132)
    assert splits & (splits - 1) == 0
    assert 1 <= splits <= paged_triton.MOST_SPLITS
    assert splits == 1 or longest / splits >= 2 * paged_triton.TILE
    assert splits == 1 or programs * splits <= paged_triton.WAVES * 132


def test_operators_around_the_products() -> None:
    torch.manual_seed(0)
    x, y, weight = torch.randn(3, 8), torch.randn(3, 8), torch.rand(8)
    normed, total = elementwise.norm(x, y, weight)
    expected = (x + y) / ((x + y).pow(2).mean(-1, keepdim=True) + elementwise.EPSILON).sqrt()
    torch.testing.assert_close(normed, expected * weight)
    torch.testing.assert_close(total, x + y)
    gate, up = x[:, :4], x[:, 4:]
    torch.testing.assert_close(elementwise.gated(x), gate / (1 + (-gate).exp()) * up)
    quantised, scale = elementwise.quantise(x)
    assert close(quantised.float() * scale, x, 0.05)
    torch.testing.assert_close(quantised.float().abs().amax(-1), torch.full((3,), 448.0))
    logits = torch.tensor([[0.0, 0.0, 40.0], [40.0, 0.0, 0.0]])
    assert elementwise.draw(logits).tolist() == [2, 0]
    even = elementwise.draw(torch.zeros(4000, 4)).bincount(minlength=4) / 4000
    assert bool((even - 0.25).abs().max() < 0.05)


def test_rotary_embedding_turns_pairs_and_depends_on_distance_only() -> None:
    size = 8
    rates = 10000.0 ** (-torch.arange(0, size, 2) / size)

    def turned(x: torch.Tensor, place: int) -> torch.Tensor:
        angles = (place * rates)[None, None]
        return elementwise.rotate(x, angles.cos(), angles.sin())

    q, k = torch.randn(2, 1, 1, size)
    torch.testing.assert_close(turned(q, 7).norm(), q.norm())
    torch.testing.assert_close(turned(q, 0), q)
    near = (turned(q, 9) * turned(k, 4)).sum()
    far = (turned(q, 105) * turned(k, 100)).sum()
    torch.testing.assert_close(near, far, rtol=1e-4, atol=1e-5)


def written_out(
    setting: TinySetting,
    one: TinyLayer,
    batch: int,
    tokens: int,
    before: list[tuple[torch.Tensor, ...]],
) -> torch.Tensor:
    """The layer again, sequence by sequence, with nothing shared but weights and inputs."""
    weights, heads = one.weights, Heads(4, 2, 16)
    outputs = []
    for i in range(batch):
        rows = slice(i * tokens, (i + 1) * tokens)
        residual = setting.hidden[rows]
        x = torch.nn.functional.rms_norm(residual, (64,), weights.first_norm, 1e-6)
        mixed = (x @ weights.qkv.t()).view(tokens, 8, heads.size)
        cos, sin = setting.cos[rows], setting.sin[rows]
        q = elementwise.rotate(mixed[:, :4], cos, sin)
        k = torch.cat([before[i][0], elementwise.rotate(mixed[:, 4:6], cos, sin)])
        v = torch.cat([before[i][1], mixed[:, 6:]])
        seen = dense_attention(q, k, v).reshape(tokens, 64)
        residual = residual + seen @ weights.output.t()
        x = torch.nn.functional.rms_norm(residual, (64,), weights.second_norm, 1e-6)
        gate, up = (x @ weights.gate_up.t()).chunk(2, -1)
        outputs.append(torch.nn.functional.silu(gate) * up @ weights.down.t())
    return torch.cat(outputs)


@pytest.mark.parametrize(("batch", "tokens", "context"), [(3, 1, 37), (2, 20, 20), (1, 1, 16)])
def test_a_layer_is_what_a_layer_written_out_gives(
    arena: Arena, batch: int, tokens: int, context: int
) -> None:
    made = layer.point(TINY, "fp32", batch, tokens, context, False, "eager")
    setting = TinySetting(arena, TINY, made)
    one = setting.layers(2)[1]
    before = []
    for i in range(batch):
        none = one.keys[:0]
        if tokens > 1:
            before.append((none, none))
            continue
        cached = one.slots[i].item() // BLOCK * BLOCK  # the last block of the sequence
        full = (context - 1) // BLOCK
        assert one.slots[i].item() - cached == (context - 1) % BLOCK
        blocks = find_table(one)[i, : full + 1].tolist()
        places = [b * BLOCK + s for b in blocks for s in range(BLOCK)][: context - 1]
        before.append((one.keys[places].clone(), one.values[places].clone()))
    result = setting.alone(one)()
    expected = written_out(setting, one, batch, tokens, before)
    torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-3)


def find_table(one: TinyLayer) -> torch.Tensor:
    """The block table that the layer's attention reads, from the closure that holds it."""
    cells = [cell.cell_contents for cell in one.attend.__closure__ or ()]
    own = next(content for content in cells if isinstance(content, list))
    return torch.stack(own)


def scope(tmp_path: Path) -> Scope:
    return Scope("cpu", 2**28, 1, [TINY], ["fp32", "bf16"], str(tmp_path), (1, 2))


def test_a_point_of_every_kind_can_be_prepared_and_timed(tmp_path: Path) -> None:
    arena = small_arena()
    found = scope(tmp_path)
    timer = CpuTimer(arena.device)
    chosen = {
        gemm.Gemm(): gemm.point("bf16", 4, 64, 32),
        decode_attention.DecodeAttention(): decode_attention.point(
            "bf16", 8, 40, Heads(4, 2, 16), 2.0
        ),
        prefill_attention.PrefillAttention(): prefill_attention.point(
            "bf16", 1, 8, 30, Heads(4, 2, 16)
        ),
        copies.Copies(): copies.memory_point("memory_read", "fp32", 4096),
        launch.Launch(): next(launch.Launch().points(found)),
        files.Files(str(tmp_path)): files.file_point(2**20, files.WARM),
        layer.Layers([TINY]): layer.point(TINY, "bf16", 2, 1, 20, True, "eager"),
    }
    for family, point in chosen.items():
        work = family.prepare(point, arena)
        timing = timer.measure(work, 0.005)
        assert 1e-8 < timing.seconds < 1.0, point
        assert work.kernel
        if work.release is not None:
            work.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("operator", elementwise.PASSES)
def test_stream_operators_run_on_what_they_count(arena: Arena, operator: str) -> None:
    point = elementwise.stream_point(operator, "bf16", 6, 128)
    work = elementwise.Elementwise().prepare(point, arena)
    assert point.bytes == elementwise.PASSES[operator] * 6 * 128 * 2
    for call in list(work.calls)[:3]:
        call()


@pytest.mark.parametrize(
    "point", [elementwise.quantise_point(4, 64), elementwise.sampling_point(4, 96)]
)
def test_quantisation_and_sampling_run(arena: Arena, point: BenchPoint) -> None:
    work = elementwise.Elementwise().prepare(point, arena)
    assert len(work.calls) > 1
    work.calls[1]()


def test_points_of_the_families_name_shapes_that_the_families_accept(tmp_path: Path) -> None:
    arena, found = small_arena(), scope(tmp_path)
    for family in (gemm.Gemm(), elementwise.Elementwise(), layer.Layers([TINY])):
        points = [p for p in family.points(found) if p.bytes < 1e5 and p.operator in family.shares]
        for point in points[:: max(1, len(points) // 5)]:
            family.prepare(point, arena).calls[0]()


def test_a_file_is_cold_only_where_it_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "file_system", lambda directory: "tmpfs")
    assert not files.can_drop(tmp_path)
    with pytest.raises(UnsupportedError, match="cannot leave the page cache"):
        files.Files(str(tmp_path)).prepare(files.file_point(2**20, files.COLD), small_arena())
    monkeypatch.setattr(files, "free_disk", lambda directory: 1)
    with pytest.raises(UnsupportedError, match="no room"):
        files.Files(str(tmp_path)).prepare(files.file_point(2**20, files.WARM), small_arena())


def test_a_file_arrives_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 300
    (tmp_path / "weights").write_bytes(content)
    piece, target = (torch.zeros(n, dtype=torch.uint8) for n in (1000, len(content)))
    files._read(tmp_path / "weights", piece, target)
    assert target.numpy().tobytes() == content


def test_costs_of_points_by_hand() -> None:
    product = gemm.point("int4-weights", 2, 4096, 1024)
    assert product.flops == 2 * 2 * 4096 * 1024
    assert product.bytes == 4096 * 1024 / 2 + 2 * 1024 * 2 + 2 * 4096 * 2
    decode = decode_attention.point("bf16", 4, 1000, Heads(32, 8, 128))
    assert decode.bytes == 2 * 4000 * 8 * 128 * 2 + 2 * 4 * 32 * 128 * 2
    assert decode.flops == 4 * 4000 * 32 * 128
    chunk = prefill_attention.point("bf16", 1, 10, 90, Heads(2, 1, 64))
    assert chunk.flops == 4 * 2 * 64 * (10 * 90 + 55)
    assert chunk.bytes == 2 * 100 * 64 * 2 + 2 * 10 * 2 * 64 * 2
    whole = layer.point(TINY, "bf16", 2, 1, 30, True, "graph")
    assert whole.flops > 2 * 2 * TINY.linear_parameters()
    assert math.isclose(whole.bytes, sum(p.bytes * t for p, t in layer.parts_of(whole, [TINY])))


@pytest.mark.parametrize("backend_bytes", [4096])
def test_all_reduce_between_two_processes(backend_bytes: int) -> None:
    from calibrate.bench.collectives import Collectives, point

    family = Collectives()
    try:
        work = family.prepare(point(backend_bytes, 2), small_arena())
        seconds = work.calls[0]()
        assert work.mode == "reported"
        assert isinstance(seconds, float)
        assert 1e-6 < seconds < 1.0
    finally:
        family.close()


def test_points_one_after_the_other_meet_other_parts_of_the_pool() -> None:
    device = small_arena().device
    arena = Arena(device, least=2**18, turnover=2**18)
    pools = [arena.take((1024,), "fp32", 64) for _ in range(4)]
    firsts = [pool[0].data_ptr() for pool in pools]
    assert len(set(firsts)) == 4
    assert len({tuple(sorted(part.data_ptr() for part in pool)) for pool in pools}) == 1
    gaps = [abs(a - b) / 2**18 for a, b in pairwise(firsts)]
    assert min(gaps) > 0.3


def test_the_cpu_timer_scrubs_before_each_call_and_not_in_its_time() -> None:
    time, order = [0], list[str]()

    def does(name: str, nanoseconds: int) -> Callable[[], None]:
        def run() -> None:
            order.append(name)
            time[0] += nanoseconds

        return run

    scrub, rows = does("scrub", 10**6), set[int]()

    def product(count: int) -> None:
        rows.add(count)
        scrub()

    timer = CpuTimer(clock=lambda: time[0], scrub=product)
    calls = [does("a", 1000), does("b", 3000)]
    work = BenchWork(calls, "", before=does("before", 500), rows=3)
    timing = timer.measure(work, 0.05)
    assert 1e-6 < timing.seconds < 3e-6
    assert timing.mode.endswith("cold")
    assert order[:8] == ["a", "scrub", "before", "b", "scrub", "before", "a", "scrub"]
    assert rows == {3}
    order.clear()
    timer.measure(BenchWork([does("layer", 1000)], "", "eager"), 0.001)
    assert set(order) == {"layer"}


def test_caches_are_scrubbed_by_a_product_of_the_rows_of_the_pass() -> None:
    """Of no more than 16, by another matrix each time; 8 MiB are enough of any."""
    small = scrubber(2048.0 * 6)
    assert [tuple(small(rows).shape) for rows in (1, 3, 500)] == [(1, 6), (3, 6), (16, 6)]
    assert tuple(scrubber(math.inf)(1).shape) == (1, 4096)


def test_rows_of_a_point_are_the_tokens_of_its_pass() -> None:
    heads = Heads(4, 2, 16)
    points = [
        gemm.point("fp32", 7, 64, 32),
        elementwise.stream_point("norm", "fp32", 5, 64),
        decode_attention.point("fp32", 6, 100, heads),
        prefill_attention.point("fp32", 2, 9, 64, heads),
        copies.memory_point("memory", "fp32", 2**20),
    ]
    assert [point.rows for point in points] == [7, 5, 6, 18, 1]
    bench = Bench(small_arena().device, small_arena())
    assert bench.prepare(elementwise.Elementwise(), points[1]).rows == 5
