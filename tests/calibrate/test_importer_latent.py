"""The importer of latent and sparse attention finds what made-up tables were made with."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.importers.aiconfigurator import latent
from calibrate.importers.aiconfigurator.tables import KernelTable, Tables
from sim.cost.kernels import narrow_latent
from sim.cost.kernels.form import Ceilings
from sim.errors import UsageError

H200 = Ceilings(989.4e12, 4.8e12, 132)
B200 = Ceilings(2.25e15, 8e12, 148)
TRUE = {
    "floor": 3e-5,
    "share": 0.8,
    "compute": 0.6,
    "blend": 4.0,
    "wave": 8e-6,
    "query": 3.0,
}


NARROW = {"reader": 1.2, "combine": 1e-6, "apart": 5e-6, "tile": 200.0, **TRUE}


def blocks(heads: tuple[int, ...] = (8, 32, 128), **changes: object) -> pd.DataFrame:
    """Rows of DeepSeek-V3's decoding, without their latencies."""
    grid = product(heads, (1, 16, 64, 256), (128, 2048, 8192, 65536), ("bfloat16", "fp8_block"))
    rows = pd.DataFrame(grid, columns=["num_heads", "batch_size", "step", "gemm_type"])
    fixed = {
        "isl": 1, "kv_cache_dtype": "bfloat16", "model": "deepseek-ai/DeepSeek-V3",
        "kernel_source": "FLASHMLA", "latency": 1.0,
    }  # fmt: skip
    return rows.assign(**{**fixed, **changes})


def table(rows: pd.DataFrame) -> KernelTable:
    return KernelTable(rows, "h200_sxm", "vllm", "0.24.0")


def timed(rows: pd.DataFrame) -> KernelTable:
    """The rows with the latencies that the products and ``TRUE`` make."""
    rows = rows.sort_values(["gemm_type", *latent.KEYS])  # the order of the points
    shape = latent.to_data(table(rows), "mla_decode", rows, "bf16").shape
    seconds = shape["rest"] + latent.FORMS["mla_decode"]("bf16").seconds(TRUE, shape, H200)
    return table(rows.assign(latency=seconds * 1e3))


def test_a_fit_finds_what_a_block_takes_beyond_its_products() -> None:
    made = timed(blocks((8, 16, 32, 64, 96, 128, 192)))
    fit = latent.fit_rows(made, "mla_decode", made.frame, "bf16")
    shape = latent.to_data(made, "mla_decode", made.frame, "bf16").shape
    form = latent.FORMS["mla_decode"]("bf16")
    found, true = (form.seconds(p, shape, H200) for p in (fit.parameters, TRUE))
    assert np.abs(found / true - 1).max() < 0.01
    assert fit.parameters["floor"] == pytest.approx(TRUE["floor"], rel=0.01)
    assert fit.ranges == {"batch": (1, 256), "context": (128, 65536), "q_heads": (8, 192)}
    assert fit.kernel == "vllm 0.24.0: FLASHMLA"


def test_weights_that_the_benchmark_finds_in_the_cache_are_no_part_of_a_fit() -> None:
    """Blocks on B200 whose rest is 1.5 times as fast where they move less than 70 of 126 MB."""
    rows = blocks((4, 8, 16, 32, 64, 128), kernel_source="FLASHINFER_MLA")
    rows = rows.sort_values(["gemm_type", *latent.KEYS])
    made = KernelTable(rows, "b200_sxm", "vllm", "0.24.0")
    shape = latent.to_data(made, "mla_decode", rows, "bf16").shape
    moved = shape["moved"]
    assert moved.min() > 7168 * 2112  # the projection down in 8 bits
    hits = 1 / (1 + (moved / 70e6) ** 4)
    assert hits.min() < 0.01
    assert hits.max() > 0.9
    attention = narrow_latent.decode("bf16").seconds(NARROW, shape, B200)
    seconds = shape["rest"] / (1 + 0.5 * hits) + attention
    made = KernelTable(rows.assign(latency=seconds * 1e3), "b200_sxm", "vllm", "0.24.0")
    fit = latent.fit_rows(made, "mla_decode", made.frame, "bf16")
    assert fit.form == narrow_latent.NAME
    assert fit.parameters.keys() == NARROW.keys() == fit.intervals.keys()
    assert fit.parameters["floor"] == pytest.approx(NARROW["floor"], rel=0.02)
    assert fit.holdout.p90 < 0.01


def test_the_cache_is_told_apart_where_products_are_those_of_the_blocks() -> None:
    sizes = {}
    for system, framework in (("b200_sxm", "trtllm"), ("h200_sxm", "vllm"), ("b200_sxm", "sglang")):
        one = KernelTable(blocks(), system, framework, "1")
        sizes[system, framework] = latent._cache(one, "mla_decode")
        assert latent._cache(one, "mla_prefill") == 0
    assert list(sizes.values()) == [126e6, 0, 0]


def test_the_rest_of_a_block_is_its_products_and_moves() -> None:
    """Twice the heads have twice the products but for the projection down; fp8 ones are others."""
    rest = {}
    for heads, products in ((64, "bfloat16"), (128, "bfloat16"), (128, "fp8_block")):
        rows = blocks((heads,), gemm_type=products).drop_duplicates()
        found = latent.to_data(table(rows), "mla_decode", rows, "bf16").shape["rest"]
        rest[heads, products] = found
    assert (rest[128, "bfloat16"] > 1.2 * rest[64, "bfloat16"]).all()
    assert (rest[128, "bfloat16"] < 2 * rest[64, "bfloat16"]).all()
    assert not np.allclose(rest[128, "bfloat16"], rest[128, "fp8_block"])


def test_what_is_left_out() -> None:
    rows = pd.concat([
        blocks(),
        blocks((2,)),
        blocks(kv_cache_dtype="fp8"),
        blocks(gemm_type="nvfp4"),
        blocks(model="deepseek-ai/DeepSeek-V4-Pro"),
        blocks(latency=0.0),
    ])  # fmt: skip
    kept = latent.usable(table(rows), "mla_decode", "bfloat16")
    assert len(kept) == len(blocks())
    assert set(kept["num_heads"]) == {8, 32, 128}
    prompts = pd.concat([blocks(isl=100, step=0), blocks(isl=1, step=0), blocks(isl=100, step=128)])
    prompts["kernel_source"] = "FLASH_ATTN"
    assert len(latent.usable(table(prompts), "mla_prefill", "bfloat16")) == len(blocks())
    assert len(latent.usable(table(prompts), "dsa_prefill", "bfloat16")) == 2 * len(blocks())
    both = pd.concat([prompts.assign(mla_dtype=dtype) for dtype in ("bfloat16", "fp8")])
    assert len(latent.usable(table(both), "mla_prefill", "bfloat16")) == len(blocks())


def test_calls_in_which_attention_did_not_run_or_went_another_way() -> None:
    """4 prompts of 16,384 tokens are 65,536; with FlashMLA's own kernel they count."""
    most = pd.concat([blocks(isl=16384, step=0, batch_size=batch) for batch in (2, 4)])
    for kernel, share in (("FLASHINFER_MLA_SPARSE", 1), ("FLASHMLA_SPARSE", 2)):
        rows = table(most.assign(kernel_source=kernel))
        assert len(latent.usable(rows, "dsa_prefill", "bfloat16")) == share * len(blocks())
    short = blocks(isl=100, step=0, kv_cache_dtype="fp8")
    both = [short.assign(kernel_source=name) for name in ("FLASHMLA", "FLASH_ATTN")]
    kept = latent.usable(table(pd.concat(both)), "mla_prefill", "fp8")
    assert set(kept["kernel_source"]) == {"FLASH_ATTN"}
    assert len(latent.usable(table(both[0]), "mla_decode", "fp8")) == len(blocks())


def test_blocks_that_no_graph_was_captured_for() -> None:
    """SGLang launches blocks of more than 256 sequences one by one on H200, of more than 512 on
    B200."""
    rows = pd.concat([blocks(batch_size=batch) for batch in (256, 512, 1024)])
    for system, framework, share in (
        ("h200_sxm", "sglang", 1),
        ("b200_sxm", "sglang", 2),
        ("b200_sxm", "vllm", 3),
    ):
        one = KernelTable(rows, system, framework, "0.5.14")
        assert len(latent.usable(one, "dsa_decode", "bfloat16")) == share * len(blocks())
        assert len(latent.usable(one, "mla_decode", "bfloat16")) == 3 * len(blocks())


def test_attention_alone_has_no_rest() -> None:
    """Timed alone, the new token is one of the context: 128 cached ones and it."""
    rows = blocks().drop(columns=["model", "gemm_type"])
    shape = latent.to_data(table(rows), "mla_decode", rows, "bf16").shape
    assert (shape["rest"] == 0).all()
    assert set(shape["context"]) == {129, 2049, 8193, 65537}
    assert set(shape["latent"]) == {512}


def test_tiles_of_prompts_are_those_of_the_kernel() -> None:
    """256 rows in the kernels of Blackwell that are known to have them, 128 elsewhere."""
    rows = blocks((8, 16, 32, 64, 128), isl=1000, step=0, kernel_source="FLASH_ATTN")
    rows = rows.assign(latency=rows["num_heads"] * rows["batch_size"] / 100)
    for system, kernel, tile in (
        ("b200_sxm", "FLASH_ATTN", 256),
        ("b200_sxm", "default", 128),
        ("h200_sxm", "FLASH_ATTN", 128),
    ):
        named = rows.assign(kernel_source=kernel)
        one = KernelTable(named, system, "vllm", "0.24.0")
        assert latent.fit_rows(one, "mla_prefill", named, "bf16").parameters["rows"] == tile


def test_narrow_tiles_are_fitted_where_all_kernels_have_them() -> None:
    rows = blocks((8, 16, 32, 64, 128), model="deepseek-ai/DeepSeek-V3.2").drop_duplicates()
    rows = rows.assign(latency=1 + rows["batch_size"] / 100)
    for system, kernels, some in (
        ("b200_sxm", ["FLASHINFER_MLA_SPARSE"] * 2, True),
        ("b200_sxm", ["FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"], False),
        ("h200_sxm", ["FLASHMLA_SPARSE"] * 2, False),
    ):
        named = rows.assign(kernel_source=np.resize(kernels, len(rows)))
        one = KernelTable(named, system, "vllm", "0.24.0")
        parameters = latent.fit_rows(one, "dsa_decode", named, "bf16").parameters
        assert (parameters["narrow"] > 0) == some
    for kernels, given in ((["FLASHMLA_SPARSE"], {}), (["A", "B"], {"flat": 0.0})):
        named = rows.assign(kernel_source=np.resize(kernels, len(rows)))
        assert latent._given(table(named), "dsa_prefill", named) == given


def test_tables_without_latent_attention(tmp_path: Path) -> None:
    (tmp_path / "data" / "h200_sxm" / "gemm" / "vllm").mkdir(parents=True)
    with pytest.raises(UsageError, match="vllm"):
        latent.fit_system(Tables(tmp_path), "h200_sxm", "vllm")


def test_two_methods_at_once_are_not_fitted(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "h200_sxm" / "sparse_attention" / "sglang" / "0.5.14"
    folder.mkdir(parents=True)
    rows = blocks((8, 16, 32, 64, 128), isl=100, step=0)
    pd.concat([rows] * 3).to_parquet(folder / "dsa_context_module_perf.parquet")
    with pytest.raises(UsageError):
        latent.fit_system(Tables(tmp_path), "h200_sxm", "sglang")
