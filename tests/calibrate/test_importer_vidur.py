"""Vidur's profiling tables become points and fits; tables of our own making, with its columns."""

import numpy as np
import pandas as pd
import pytest

from calibrate.importers import vidur
from sim import catalog
from sim.cost.kernels import Ceilings, decode_attention, gemm, prefill_attention
from sim.errors import InfersimError, UsageError

A100 = catalog.gpu("a100-sxm-80gb")
CEILINGS = Ceilings(A100.flops("fp16"), A100.bandwidth, A100.sms)
TIMED = ("attn_pre_proj", "attn_post_proj", "mlp_up_proj", "mlp_down_proj")

LLAMA = {"n_head": 32, "n_kv_head": 8, "n_embd": 4096, "n_expanded_embd": 14336,
         "use_gated_mlp": True}  # fmt: skip
SMALL = {"n_head": 32, "n_kv_head": 32, "n_embd": 2560, "n_expanded_embd": 10240,
         "use_gated_mlp": False}  # fmt: skip


def start(form):
    return {parameter.name: parameter.start for parameter in form.parameters}


def column(name):
    return f"time_stats.{name}.median"


def layer_row(model, tokens, workers=1, **times):
    row = {**model, "vocab_size": 128256, "num_tokens": tokens}
    row["num_tensor_parallel_workers"] = workers
    return row | {column(name): times.get(name, 0.1) for name in TIMED}


def attention_row(batch, chunk, cached, *, heads=(32, 8), workers=1, **times):
    return {
        "n_embd": heads[0] * 128,
        "n_q_head": heads[0],
        "n_kv_head": heads[1],
        "block_size": 16,
        "num_tensor_parallel_workers": workers,
        "max_model_len": 16384,
        "batch_size": batch,
        "prefill_chunk_size": chunk,
        "kv_cache_size": cached,
        "is_prefill": chunk > 0,
        "attention_backend": "AttentionBackend.FLASHINFER",
        column("attn_prefill"): times.get("prefill", np.nan),
        column("attn_decode"): times.get("decode", np.nan),
        column("attn_kv_cache_save"): times.get("save", np.nan),
    }


def write(tmp_path, name, rows):
    path = tmp_path / name
    pd.DataFrame(rows).to_csv(path, index=False)
    return path


def points(data):
    columns = [*data.shape.values(), data.seconds]
    return [tuple(row) for row in np.column_stack(columns).round(9).tolist()]


def test_a_row_holds_four_products_of_one_gpu(tmp_path):
    times = dict(zip(TIMED, (0.2, 0.1, 0.8, 0.4), strict=True))
    path = write(tmp_path, "mlp.csv", [layer_row(LLAMA, 64, **times)])
    data = vidur.to_points([path])["gemm"].data
    assert sorted(points(data)) == [
        (64, 4096, 4096, 1e-4),
        (64, 4096, 14336, 4e-4),
        (64, 6144, 4096, 2e-4),
        (64, 28672, 4096, 8e-4),
    ]


def test_shares_of_a_layer_and_mlps_without_a_gate(tmp_path):
    half = write(tmp_path, "half.csv", [layer_row(LLAMA, 8, workers=2)])
    shapes = {row[1:3] for row in points(vidur.to_points([half])["gemm"].data)}
    assert shapes == {(3072, 4096), (4096, 2048), (14336, 4096), (4096, 7168)}
    plain = write(tmp_path, "plain.csv", [layer_row(SMALL, 8)])
    shapes = {row[1:3] for row in points(vidur.to_points([plain])["gemm"].data)}
    assert shapes == {(7680, 2560), (2560, 2560), (10240, 2560), (2560, 10240)}


def test_layers_that_a_cache_holds_and_rows_that_no_iteration_has_are_left_out(tmp_path):
    rows = [layer_row(SMALL, 8, workers=8), layer_row(LLAMA, 16384), layer_row(LLAMA, 32768)]
    data = vidur.to_points([write(tmp_path, "mlp.csv", rows)])["gemm"].data
    assert set(data.shape["m"]) == {16384}
    assert len(data) == 4


def test_points_timed_twice_count_once_by_their_median(tmp_path):
    rows = [layer_row(LLAMA, 8, attn_pre_proj=time) for time in (0.1, 0.2, 0.6)]
    data = vidur.to_points([write(tmp_path, "mlp.csv", rows)])["gemm"].data
    assert data.seconds[data.shape["n"] == 6144].tolist() == [2e-4]


def test_decode_steps_and_prompts_are_told_apart(tmp_path):
    rows = [
        attention_row(8, 0, 1024, decode=0.05, save=0.01),
        attention_row(1, 256, 512, prefill=0.3),
        attention_row(1, 256, 0, prefill=0.2, save=0.05, workers=4),
        attention_row(1, 1, 0, prefill=0.2),
    ]
    found = vidur.to_points([write(tmp_path, "attention.csv", rows)])
    decode, prefill = found["decode_attention"], found["prefill_attention"]
    assert list(decode.data.shape) == [
        *("batch", "context", "skew", "q_heads", "kv_heads", "head_dim")
    ]
    assert points(decode.data) == [(8, 1025, 1, 32, 8, 128, 6e-5)]
    assert list(prefill.data.shape) == [
        *("batch", "tokens", "context", "q_heads", "kv_heads", "head_dim")
    ]
    assert points(prefill.data) == [
        (1, 256, 0, 8, 2, 128, 2.5e-4),
        (1, 256, 512, 32, 8, 128, 3e-4),
    ]
    assert decode.kernel == "Sarathi-Serve: flashinfer"


def test_only_the_kernel_and_block_size_with_most_rows_count(tmp_path):
    rows = [attention_row(batch, 0, 64, decode=0.05) for batch in (1, 2, 3)]
    rows.append(attention_row(4, 0, 64, decode=0.9) | {"block_size": 32})
    other = {"attention_backend": "AttentionBackend.FLASH_ATTENTION"}
    rows.append(attention_row(5, 0, 64, decode=0.9) | other)
    data = vidur.to_points([write(tmp_path, "attention.csv", rows)])["decode_attention"].data
    assert data.shape["batch"].tolist() == [1, 2, 3]


def shape(**values):
    return {name: np.asarray(value, dtype=float) for name, value in values.items()}


def synthetic_layers():
    """Rows whose times are those of the form at its start; with them a fit has no error."""
    form = gemm.form("fp16")
    rows = []
    for model in (LLAMA, LLAMA | {"n_expanded_embd": 20480}):
        up, down = 2 * model["n_expanded_embd"], model["n_expanded_embd"]
        sides = ((6144, 4096), (4096, 4096), (up, 4096), (4096, down))
        for tokens in (1, 8, 32, 64, 128, 256, 1024, 4096):
            times = {
                name: 1e3 * float(form.seconds(start(form), shape(m=tokens, n=n, k=k), CEILINGS))
                for name, (n, k) in zip(TIMED, sides, strict=True)
            }
            rows.append(layer_row(model, tokens, **times))
    return rows


def synthetic_attention():
    decode, prefill = decode_attention.form("fp16"), prefill_attention.form("fp16")
    rows = []
    for heads in ((32, 8), (32, 32), (64, 8), (16, 4)):
        fixed = {"q_heads": heads[0], "kv_heads": heads[1], "head_dim": 128}
        for cached in (256, 1024, 4096, 16384):
            for batch in (1, 4, 16, 64):
                at = shape(batch=batch, context=cached + 1, skew=1, **fixed)
                seconds = float(decode.seconds(start(decode), at, CEILINGS))
                rows.append(attention_row(batch, 0, cached, heads=heads, decode=1e3 * seconds))
            for tokens in (64, 256, 1024, 4096):
                at = shape(batch=1, tokens=tokens, context=cached, **fixed)
                seconds = float(prefill.seconds(start(prefill), at, CEILINGS))
                rows.append(attention_row(1, tokens, cached, heads=heads, prefill=1e3 * seconds))
    return rows


@pytest.mark.slow
def test_fits_find_back_what_the_tables_were_made_of(tmp_path):
    layers = write(tmp_path, "mlp.csv", synthetic_layers())
    attention = write(tmp_path, "attention.csv", synthetic_attention())
    fits = vidur.fit_files([layers, attention], A100)
    assert list(fits) == ["gemm", "decode_attention", "prefill_attention"]
    assert all(list(own) == ["fp16"] for own in fits.values())
    product, decode = fits["gemm"]["fp16"], fits["decode_attention"]["fp16"]
    assert product.holdout.median < 0.03
    assert product.holdout.points == 48  # two of each layer's four products are the same
    assert product.parameters["bandwidth"] == pytest.approx(0.88, rel=0.05)
    assert decode.ranges["context"] == (257, 16385)
    assert decode.holdout.points == 64
    assert fits["prefill_attention"]["fp16"].ranges["context"] == (256, 16384)


def test_too_few_shapes_are_not_fitted(tmp_path):
    rows = [attention_row(batch, 0, 64, decode=0.05) for batch in (1, 2, 3)]
    with pytest.raises(InfersimError, match="no operator has 3 shapes"):
        vidur.fit_files([write(tmp_path, "attention.csv", rows)], A100)


def test_files_of_neither_kind_are_named(tmp_path):
    strange = write(tmp_path, "strange.csv", [{"a": 1}])
    with pytest.raises(UsageError, match=r"strange\.csv: neither an mlp"):
        vidur.to_points([strange])
    with pytest.raises(UsageError, match=r"gone\.csv: cannot be read"):
        vidur.to_points([tmp_path / "gone.csv"])
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(UsageError, match=r"empty\.csv: not a table"):
        vidur.to_points([empty])
