"""Forms of attention: bytes and FLOP by hand, shape in the context, limits, and what a fit finds.

A layer of Llama-2-7B has 32 query and 32 KV heads of 128; Llama-3.1-8B shares each of 8 KV heads
among 4 query heads. The GPU is an H100: 989.4 TFLOP/s, 3.35 TB/s, 132 SMs.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calibrate.data import Data
from calibrate.fit import fit, solve
from calibrate.importers.aiconfigurator import attention as importer
from calibrate.importers.aiconfigurator.tables import KernelTable, Tables, locate
from sim import catalog
from sim.cost.kernels import decode_attention as decode
from sim.cost.kernels import prefill_attention as prefill
from sim.cost.kernels.form import Ceilings, Floats, Form, Parameter
from sim.cost.kernels.prompts import Prompts
from sim.cost.measured import decode_of
from sim.errors import UsageError
from sim.specs.profile import OLDER, KernelFit, Residual, Score

H100 = Ceilings(peak=989.4e12, bandwidth=3.35e12, sms=132)
LLAMA_2_7B = {"q_heads": 32, "kv_heads": 32, "head_dim": 128}
LLAMA_3_8B = {"q_heads": 32, "kv_heads": 8, "head_dim": 128}
HEADS = [(32, 32, 128), (8, 8, 128), (32, 8, 128), (16, 4, 128), (8, 1, 128)]
HEADS += [(32, 8, 64), (8, 8, 64), (16, 2, 256), (16, 16, 256)]

DECODE = {
    "floor": 9e-6,
    "share": 0.93,
    "compute": 0.7,
    "unit": 3.5e-6,
    "tile": 110.0,
    "combine": 7e-7,
    "regroup": 2e-6,
    "blend": 1.6,
    "quantised": 0.9,
    "floor_width": 0.12,
    "unit_width": 0.4,
    "alone_floor": 1.1,
    "alone_compute": 0.8,
    "alone_unit": 0.9,
    "alone_combine": 3.0,
    "cache_share": 0.7,
    "cache_speed": 2.5,
}
PREFILL = {
    "floor": 1.1e-5,
    "unit": 2.5e-6,
    "unit_width": 0.2,
    "alone_unit": 0.8,
    "compute": 0.7,
    "softmax": 30.0,
    "packing": 0.8,
    "tail": 0.3,
    "split": 0.4,
    "droop": 0.1,
    "share": 0.8,
    "write": 1.2,
    "copy": 3e-9,
    "blend": 1.5,
    "cache_share": 0.7,
    "cache_speed": 2.5,
}


def shape(**values: float) -> dict[str, Floats]:
    return {name: np.array(float(value)) for name, value in values.items()}


def grid(**values: Sequence[float]) -> dict[str, Floats]:
    """Every combination of these values, for each of ``HEADS``."""
    rows = [(*row, *heads) for heads in HEADS for row in itertools.product(*values.values())]
    columns = np.array(rows, dtype=np.float64).T
    return dict(zip([*values, "q_heads", "kv_heads", "head_dim"], columns, strict=True))


def decode_seconds(p: Mapping[str, float] = DECODE, precision: str = "bf16", **v: float) -> float:
    return float(decode.form(precision).seconds(p, shape(**{"skew": 1.0, **v}), H100))


def prefill_seconds(p: Mapping[str, float] = PREFILL, precision: str = "bf16", **v: float) -> float:
    return float(prefill.form(precision).seconds(p, shape(**{"context": 0.0, **v}), H100))


def parameters(specs: tuple[Parameter, ...]) -> st.SearchStrategy[dict[str, float]]:
    """Any parameters within their bounds."""
    return st.fixed_dictionaries({s.name: st.floats(s.low, s.high) for s in specs})


# -- bytes and FLOP ------------------------------------------------------------------------------


def test_decode_by_hand() -> None:
    """513 tokens: 2 x 513 x 32 x 128 x 2 B = 8,404,992 of KV; query and result 2 x 32 x 128 x 2 B =
    16,384. Scores and values, 2 FLOP each: 4 x 513 x 32 x 128 = 8,404,992. A quarter of the KV
    heads has a quarter of the KV, 2,101,248, and the same FLOP; fp8 halves KV only."""
    mha = shape(batch=1, context=513, **LLAMA_2_7B)
    gqa = shape(batch=1, context=513, **LLAMA_3_8B)
    assert decode.read_bytes(mha, 2.0) == 8_404_992 + 16_384
    assert decode.read_bytes(mha, 1.0) == 4_202_496 + 16_384
    assert decode.read_bytes(gqa, 2.0) == 2_101_248 + 16_384
    assert decode.flops(mha) == decode.flops(gqa) == 8_404_992


def test_prefill_by_hand() -> None:
    """Two prompts of 3 tokens on 5 cached: each 3 x 5 + (1 + 2 + 3) = 21 pairs. FLOP: 4 x 42 x 32 x
    128 = 688,128. Queries and results: 2 x 6 x 32 x 128 x 2 B = 98,304; keys and values of 16
    tokens and 8 heads: 2 x 16 x 8 x 128 x 2 B = 65,536; copied for 6 tokens: 2 x 6 x 8 x 128 x 4 B
    = 49,152."""
    prompts = shape(batch=2, tokens=3, context=5, **LLAMA_3_8B)
    assert prefill.pairs(prompts) == 42
    assert prefill.flops(prompts) == 688_128
    assert prefill.read_bytes(prompts, 2.0) == 98_304 + 65_536
    assert prefill.written_bytes(prompts, 2.0) == 49_152
    assert prefill.written_bytes(prompts, 1.0) == 36_864


@pytest.mark.parametrize("packing", [0.0, 1.0])
@pytest.mark.parametrize(("tokens", "context"), [(300, 0), (16, 0), (128, 77), (1000, 5000)])
def test_tiles_are_counted_as_one_by_one(packing: float, tokens: int, context: int) -> None:
    """Tiles of 128 query rows, four rows a token when packed; each sees the keys up to its last."""
    per_token = 4 if packing else 1
    last = range(128, tokens * per_token + 128, 128)
    seen = [context + min(row / per_token, tokens) for row in last]
    once = 1 if packing else 4
    p = {**PREFILL, "packing": packing, "tail": 0.0, "split": 1.0, "droop": 0.0}
    one = shape(batch=1, tokens=tokens, context=context, **LLAMA_3_8B)
    arithmetic, _, _ = prefill.parts(p, one, H100, 2.0)
    per_key = 4 * 128 * (128 + 30) / (989.4e12 / 132 * 0.7)
    expected = 8 * once * (len(seen) * 2.5e-6 + sum(seen) * per_key) / 132
    assert float(arithmetic) == pytest.approx(expected, rel=1e-12)


# -- decode: shape in the context ----------------------------------------------------------------


@given(
    p=parameters(decode.PARAMETERS),
    context=st.floats(1, 200_000),
    longer=st.floats(0, 200_000),
    batch=st.integers(1, 600),
    heads=st.sampled_from(HEADS),
)
def test_decode_rises_with_the_context_and_the_batch(
    p: dict[str, float], context: float, longer: float, batch: int, heads: tuple[int, int, int]
) -> None:
    of = dict(zip(("q_heads", "kv_heads", "head_dim"), heads, strict=True))
    here = decode_seconds(p, batch=batch, context=context, **of)
    assert decode_seconds(p, batch=batch, context=context + longer, **of) >= here * (1 - 1e-12)
    assert decode_seconds(p, batch=batch + 1, context=context, **of) >= here * (1 - 1e-12)


@given(
    p=parameters(decode.PARAMETERS),
    context=st.floats(1, 200_000),
    batch=st.integers(1, 600),
    heads=st.sampled_from(HEADS),
)
def test_decode_has_no_jumps_in_the_context(
    p: dict[str, float], context: float, batch: int, heads: tuple[int, int, int]
) -> None:
    of = dict(zip(("q_heads", "kv_heads", "head_dim"), heads, strict=True))
    here = decode_seconds(p, batch=batch, context=context, **of)
    beside = decode_seconds(p, batch=batch, context=context * (1 + 1e-7), **of)
    assert beside == pytest.approx(here, rel=1e-5)


def test_decode_of_long_contexts_is_bandwidth() -> None:
    p = {**DECODE, "compute": 4.0, "blend": 8.0}
    for precision, kept in (("bf16", 2), ("fp8", 1)):
        seconds = decode_seconds(p, precision, batch=64, context=131_072, **LLAMA_3_8B)
        ideal = 64 * 131_072 * 2 * 8 * 128 * kept / 3.35e12
        assert seconds * 0.93 / ideal == pytest.approx(1, abs=0.01)


def test_an_older_release_decodes_many_heads_sooner() -> None:
    """64 sequences of 4,096 tokens, 32 heads without groups, an fp8 cache on an H100: 741 us in 1.0
    of TensorRT-LLM, 842 in 1.2. Groups, and heads of 256, are not known of it."""
    gpu = catalog.gpu("h100-sxm", kernels="trtllm")

    def seconds(heads: tuple[int, int, int], older: bool) -> float:
        found = decode_of(gpu, "fp8", heads, variant=OLDER if older else "")
        assert found is not None
        return float(found.timing(64.0, 4096.0).seconds)

    assert 1e6 * seconds((32, 32, 128), older=True) == pytest.approx(741, rel=0.03)
    assert 1e6 * seconds((32, 32, 128), older=False) == pytest.approx(842, rel=0.04)
    for heads in ((32, 8, 128), (16, 16, 256)):
        assert seconds(heads, older=True) == seconds(heads, older=False)


def test_decode_of_nothing_is_its_floor() -> None:
    """Two sequences of one key: no wave beyond the first, 4 kB of keys, the copy of the queries."""
    assert decode_seconds(batch=2, context=1, **LLAMA_3_8B) == pytest.approx(9e-6 + 2e-6, rel=0.01)
    assert decode_seconds(batch=1, context=1, **LLAMA_3_8B) == pytest.approx(9e-6, rel=0.01)
    assert decode_seconds(batch=2, context=1, **LLAMA_2_7B) == pytest.approx(1.1 * 9e-6, rel=0.01)


def test_one_long_sequence_cannot_be_shared_out_for_ever() -> None:
    """16 sequences of 8 KV heads fill 128 of 132 SMs once. Unsplit, the one that is ten times the
    mean is walked for ten times as long; where contexts are split, other SMs help."""
    of = {"batch": 16, "context": 4096, **LLAMA_3_8B}
    unsplit = {**DECODE, "combine": 1e-2, "blend": 8.0, "compute": 0.1}
    even, skewed = (decode_seconds(unsplit, skew=skew, **of) - 11e-6 for skew in (1.0, 10.0))
    assert skewed / even == pytest.approx(10, rel=0.02)
    split = {**unsplit, "combine": 1e-8}
    even, skewed = (decode_seconds(split, skew=skew, **of) - 11e-6 for skew in (1.0, 10.0))
    assert 1 <= skewed / even < 2


def test_a_kernel_that_does_not_split_leaves_sms_idle() -> None:
    """One sequence of 8 KV heads on 132 SMs: 8 of them walk all of it."""
    of = {"batch": 1, "context": 32_768, "q_heads": 8, "kv_heads": 8, "head_dim": 128}
    alone = {**DECODE, "alone_combine": 1e5, "blend": 8.0}
    per_key = 4 * 64 * 128 / (989.4e12 / 132 * 0.7 * 0.8)
    walk = (32_768 - 110) * per_key
    assert decode_seconds(alone, **of) == pytest.approx(1.1 * 9e-6 + walk, rel=0.01)
    assert decode_seconds(DECODE, **of) < 0.5 * decode_seconds(alone, **of)


# -- prefill -------------------------------------------------------------------------------------


def test_prefill_of_long_prompts_is_arithmetic() -> None:
    """65,536 tokens: FLOP at 0.7 of the peak, and exponentials as 30 elements more than 128."""
    seconds = prefill_seconds({**PREFILL, "droop": 0.0}, batch=1, tokens=65_536, **LLAMA_3_8B)
    pairs = 65_536 * 65_537 / 2
    ideal = 4 * pairs * 32 * (128 + 30) / (989.4e12 * 0.7)
    assert seconds == pytest.approx(ideal, rel=0.02)


def test_a_tile_may_have_twice_the_rows() -> None:
    """200 tokens on top of 1,000: two tiles that see 1,128 and 1,200 keys, or one of 256 rows that
    sees 1,200 and takes twice as long for each."""
    p = {**PREFILL, "floor": 0.0, "unit": 0.0, "tail": 0.0, "split": 1.0, "droop": 0.0}
    p |= {"share": 1e9, "write": 0.0, "copy": 0.0, "packing": 0.0, "blend": 1.0}
    of = {"batch": 1, "tokens": 200, "context": 1000.0, **LLAMA_2_7B}
    usual = prefill_seconds(p, **of)
    assert prefill_seconds({**p, "rows": 128.0}, **of) == usual
    assert prefill_seconds({**p, "rows": 256.0}, **of) / usual == pytest.approx(2400 / 2328)


def test_a_chunk_on_a_cached_prefix_costs_what_it_sees() -> None:
    """The last 2,048 of 16,384 tokens see 1 - (7/8)^2 = 15/64 of all pairs."""
    p = {**PREFILL, "floor": 1e-7, "unit": 1e-8, "tail": 0.0, "droop": 0.0, "blend": 8.0}
    p |= {"write": 0.0, "copy": 1e-12}
    whole = prefill_seconds(p, batch=4, tokens=16_384, **LLAMA_2_7B)
    chunk = prefill_seconds(p, batch=4, tokens=2_048, context=14_336.0, **LLAMA_2_7B)
    share = (2_048 * 14_336 + 2_048 * 2_049 / 2) / (16_384 * 16_385 / 2)
    assert chunk / whole == pytest.approx(share, rel=0.03)


CHUNKS = st.lists(
    st.tuples(st.integers(1, 20_000), st.integers(0, 100_000)), min_size=1, max_size=5
)
TABLE = Residual(
    {
        "rows": (8.0, 13.0, 17.0, 23.0),
        "tokens": (4.0, 8.0, 14.0),
        "group": (0.0, 2.0, 4.0),
        "head_dim": (6.0, 8.0),
    },
    tuple(np.sin(np.arange(72)).round(4).tolist()),
)


def fitted(p: Mapping[str, float], residual: Residual | None = None) -> KernelFit:
    return KernelFit(p, {}, Score(0.0, 0.0, 0.0, 0), residual=residual)


@given(
    p=parameters(prefill.PARAMETERS),
    tokens=st.integers(1, 20_000),
    context=st.integers(0, 100_000),
    batch=st.integers(1, 50),
    heads=st.sampled_from(HEADS),
    precision=st.sampled_from(["bf16", "fp8"]),
    residual=st.sampled_from([None, TABLE]),
    rows=st.sampled_from([{}, {"rows": 128.0}, {"rows": 256.0}]),
)
def test_scalar_twin_agrees(
    p: dict[str, float],
    tokens: int,
    context: int,
    batch: int,
    heads: tuple[int, int, int],
    precision: str,
    residual: Residual | None,
    rows: dict[str, float],
) -> None:
    p = p | rows
    q_heads, kv_heads, head_dim = heads
    prompts = Prompts(fitted(p, residual), H100, precision, q_heads, kv_heads, head_dim)
    work, longest, reading, writing = prompts.work(tokens, context)
    scalar = prompts.seconds(batch * work, longest, batch * reading, batch * writing)
    scalar *= prompts.correction(batch * tokens, batch)
    of = shape(batch=batch, tokens=tokens, context=context, q_heads=q_heads, kv_heads=kv_heads,
               head_dim=head_dim)  # fmt: skip
    vector = prefill.form(precision).predict(fitted(p, residual), of, H100)
    assert scalar == pytest.approx(float(vector), rel=1e-9)


def test_prompts_of_different_lengths_together_beat_one_after_the_other() -> None:
    prompts = Prompts(fitted(PREFILL), H100, "bf16", 32, 8, 128)
    shares = [prompts.work(tokens, 0) for tokens in (64, 700, 90)]
    work, reading, writing = (sum(share[i] for share in shares) for i in (0, 2, 3))
    together = prompts.seconds(work, max(share[1] for share in shares), reading, writing)
    apart = [prompts.seconds(*share) for share in shares]
    assert max(apart) < together < sum(apart)


# -- fits ----------------------------------------------------------------------------------------


def found_again(
    form: Form, truth: Mapping[str, float], points: dict[str, Floats], names: Sequence[str]
) -> None:
    """Within 2 %, from timings with 1 % of noise."""
    ceilings = replace(H100, cache=50e6)
    seconds = form.seconds(truth, points, ceilings)
    noise = np.random.default_rng(1).normal(0, 0.01, len(seconds))
    data = Data(points, seconds * np.exp(noise), np.ones(len(seconds)))
    parameters, _ = solve(form, data, ceilings)
    for name in names:
        assert parameters[name] == pytest.approx(truth[name], rel=0.02), name
    error = form.seconds(parameters, points, ceilings) / seconds - 1
    assert np.percentile(np.abs(error), 90) < 0.01


def test_decode_fit_finds_what_made_the_timings() -> None:
    contexts = [2, 64, 128, 200, 300, 500, 1024, 3000, 4096, 10_000, 16_384, 65_536]
    points = grid(batch=[1, 2, 4, 16, 48, 128, 200, 512], context=contexts, skew=[1])
    keep = points["batch"] * points["context"] * points["kv_heads"] < 8e6
    points = {name: column[keep] for name, column in points.items()}
    found_again(decode.form("bf16"), DECODE, points, ["floor", "share", "unit"])


def test_prefill_fit_finds_what_made_the_timings() -> None:
    tokens = [16, 50, 128, 300, 700, 1000, 2048, 4096, 16_384]
    points = grid(batch=[1, 2, 4, 16, 64], tokens=tokens, context=[0])
    found_again(prefill.form("bf16"), PREFILL, points, ["floor", "compute"])


def test_a_fit_is_scored_on_heads_that_it_has_not_seen() -> None:
    """Half of the head counts take half as long again: no law of heads knows which."""
    points = grid(batch=[1, 16, 128], context=[128, 1024, 8192], skew=[1])
    form = decode.form("bf16")
    seconds = form.seconds(DECODE, points, H100)
    odd = np.isin(points["q_heads"] * 1000 + points["head_dim"], [32128, 16256, 8064])
    data = Data(points, seconds * np.where(odd, 1.5, 1.0), np.ones(len(seconds)))
    assert fit(form, data, H100, judged=np.ones(len(data), dtype=bool)).holdout.p90 > 0.2


# -- published tables ----------------------------------------------------------------------------


def rows(**columns: object) -> pd.DataFrame:
    usual = {
        "batch_size": 4,
        "isl": 1,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "beam_width": 1,
        "attn_dtype": "bfloat16",
        "kv_cache_dtype": "bfloat16",
        "step": 0,
        "window_size": 0,
        "kernel_source": "usual",
        "latency": 0.02,
    }
    return pd.DataFrame({**usual, **columns})


def table(frame: pd.DataFrame) -> KernelTable:
    return KernelTable(frame, "h100_sxm", "vllm", "1.0")


def test_generation_rows_count_the_new_token() -> None:
    frame = rows(step=[1, 511, 511, 511], latency=[0.02, 0.03, 0.05, 0.04])
    data = importer.decode_data(importer.decode_rows(table(frame), "bf16"))
    assert data.shape["context"].tolist() == [2, 512]
    assert data.seconds.tolist() == pytest.approx([20e-6, 40e-6])  # the median of three
    assert data.shape["skew"].tolist() == [1, 1]


def test_what_is_left_out_of_generation() -> None:
    frame = rows(
        step=[1, 3, 7, 15, 31, 63, 127],
        window_size=[0, 128, 0, 0, 0, 0, 0],
        head_dim=[128, 128, 192, 128, 128, 64, 128],
        num_heads=[32, 32, 32, 256, 32, 32, 32],
        kernel_source=["usual", "usual", "usual", "usual", "other", "usual", "usual"],
        kv_cache_dtype=["bfloat16"] * 6 + ["fp8"],
    )
    chosen = importer.decode_rows(table(frame), "bf16")
    assert sorted(chosen["step"]) == [1, 63]
    assert importer.decode_rows(table(frame), "fp8")["step"].tolist() == [127]


def test_context_rows_prefer_16_bit_arithmetic() -> None:
    frame = rows(isl=[1, 16, 16], kv_cache_dtype="fp8", attn_dtype=["bfloat16", "bfloat16", "fp8"])
    assert importer.prefill_rows(table(frame), "fp8")["attn_dtype"].tolist() == ["bfloat16"]
    more = pd.concat([frame, rows(isl=[32], kv_cache_dtype="fp8", attn_dtype="fp8")])
    chosen = importer.prefill_rows(table(more), "fp8")
    assert chosen["attn_dtype"].tolist() == ["fp8", "fp8"]
    assert importer.prefill_data(chosen).shape["tokens"].tolist() == [16, 32]


def test_heads_of_real_models() -> None:
    assert {(32, 8, 128), (4, 1, 128), (8, 1, 128), (4, 4, 128)} <= importer.layer_heads()
    assert (1, 1, 128) not in importer.layer_heads()


def written(folder: Path) -> Tables:
    """Tables whose timings the forms have made, in milliseconds."""
    ceilings = importer.ceilings("h100_sxm")
    place = folder / "systems" / "data" / "h100_sxm" / "attention" / "vllm" / "1.0"
    place.mkdir(parents=True)
    points = grid(batch=[1, 8, 64, 256], context=[2, 128, 1024, 8192], skew=[1])
    seconds = decode.form("bf16").seconds(DECODE, points, ceilings)
    heads = {"num_heads": points["q_heads"], "num_key_value_heads": points["kv_heads"]}
    rows(
        **heads, head_dim=points["head_dim"], batch_size=points["batch"],
        step=points["context"] - 1, latency=1e3 * seconds,
    ).to_parquet(place / "generation_attention_perf.parquet")  # fmt: skip
    points = grid(batch=[1, 8, 64], tokens=[16, 128, 1024, 4096], context=[0])
    seconds = prefill.form("bf16").seconds(PREFILL, points, ceilings)
    heads = {"num_heads": points["q_heads"], "num_key_value_heads": points["kv_heads"]}
    rows(
        **heads, head_dim=points["head_dim"], batch_size=points["batch"],
        isl=points["tokens"], latency=1e3 * seconds,
    ).to_parquet(place / "context_attention_perf.parquet")  # fmt: skip
    return Tables(folder / "systems")


def test_tables_become_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without residual tables, which tables this small do not call for."""
    monkeypatch.setattr(importer, "DECODE_AXES", {"units": (0.0, 12.0)})
    monkeypatch.setattr(importer, "PREFILL_AXES", {"rows": (8.0, 20.0)})
    fits = importer.fit_system(written(tmp_path), "h100_sxm", "vllm")
    assert set(fits) == {"decode_attention", "prefill_attention"}
    for found in fits.values():
        assert set(found) == {"bf16"}
        assert found["bf16"].holdout.median < 0.01
        assert found["bf16"].kernel == "vllm 1.0: usual"
    heads = {"q_heads", "kv_heads", "head_dim"}
    ranges = fits["decode_attention"]["bf16"].ranges
    assert ranges["context"] == (2, 8192)
    assert set(ranges) == {"batch", "context", *heads}  # not skew
    assert set(fits["prefill_attention"]["bf16"].ranges) == {"batch", "tokens", *heads}


def test_reads_faster_than_the_memory_are_no_timings_of_it() -> None:
    """64 sequences of 65,536 tokens on 8 KV heads are 17.2 GB: 5.1 ms at the data sheet's speed."""
    frame = rows(batch_size=64, step=65_535, latency=[5.2, 6.0, 5.0, 2.6])
    small = rows(batch_size=[1], step=127, latency=1e-4)
    assert importer.impossible(table(small), importer.decode_rows(table(small), "bf16")) == 0
    both = table(pd.concat([frame, small]))
    assert importer.impossible(both, importer.decode_rows(both, "bf16")) == 0.5


@pytest.mark.parametrize(("share", "used"), [(0.4, "vllm"), (1.0, "trtllm")])
def test_another_framework_stands_in_for_impossible_timings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, used: str
) -> None:
    place = tmp_path / "systems" / "data" / "h100_sxm" / "attention"
    for framework, speed in (("vllm", 1.0), ("trtllm", share)):
        (place / framework / "1.0").mkdir(parents=True)
        timed = rows(batch_size=[64, 128], step=65_535, latency=[6.0 * speed, 12.0 * speed])
        timed.to_parquet(place / framework / "1.0" / "generation_attention_perf.parquet")
        prompts = rows(isl=[128, 256])
        prompts.to_parquet(place / framework / "1.0" / "context_attention_perf.parquet")
    monkeypatch.setattr(importer, "_fitted", lambda *given: given[2].framework)
    fits = importer.fit_system(Tables(tmp_path / "systems"), "h100_sxm", "trtllm")
    assert fits["decode_attention"]["bf16"] == used
    assert fits["prefill_attention"]["bf16"] == "trtllm"


@pytest.mark.parametrize(("impossible", "used"), [(1, "trtllm"), (2, "trtllm"), (3, "vllm")])
def test_a_table_is_used_with_up_to_a_tenth_of_impossible_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, impossible: int, used: str
) -> None:
    """Of 20 reads so many are faster than the memory."""
    place = tmp_path / "systems" / "data" / "h100_sxm" / "attention"
    batches = list(range(64, 84))
    for framework, wrong in (("vllm", 0), ("trtllm", impossible)):
        (place / framework / "1.0").mkdir(parents=True)
        fair = [6.0 * batch / 64 for batch in batches]
        latency = [each * (0.4 if n < wrong else 1.0) for n, each in enumerate(fair)]
        timed = rows(batch_size=batches, step=65_535, latency=latency)
        timed.to_parquet(place / framework / "1.0" / "generation_attention_perf.parquet")
        prompts = rows(isl=[128, 256])
        prompts.to_parquet(place / framework / "1.0" / "context_attention_perf.parquet")
    monkeypatch.setattr(importer, "_fitted", lambda *given: given[2].framework)
    fits = importer.fit_system(Tables(tmp_path / "systems"), "h100_sxm", "trtllm")
    assert fits["decode_attention"]["bf16"] == used


def test_published_tables_are_described() -> None:
    try:
        tables = locate()
    except UsageError:
        pytest.skip("the package with the tables is not installed")
    fits = importer.fit_system(tables, "a100_sxm", "vllm")
    assert fits["decode_attention"]["bf16"].holdout.median < 0.04
    assert fits["prefill_attention"]["bf16"].holdout.median < 0.04


def test_one_head_size_says_nothing_of_others() -> None:
    """What the data do not touch stays where the fit starts, so that it means something."""
    points = grid(batch=[1, 16, 128], context=[128, 1024, 8192], skew=[1])
    keep = points["head_dim"] == 128
    points = {name: column[keep] for name, column in points.items()}
    form = decode.form("bf16")
    data = Data(points, form.seconds(DECODE, points, H100), np.ones(int(keep.sum())))
    found, intervals = solve(form, data, H100)
    starts = {parameter.name: parameter.start for parameter in decode.PARAMETERS}
    assert found["floor_width"] == pytest.approx(starts["floor_width"], abs=1e-6)
    assert intervals["floor_width"] == (-1.0, 2.0)
    assert found["floor"] == pytest.approx(DECODE["floor"], rel=0.02)
