"""The GEMM form: limits, monotony, waves, conversion, and the importer of published tables."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.importers.aiconfigurator import gemm as importer
from calibrate.importers.aiconfigurator import locate
from calibrate.importers.aiconfigurator.tables import PACKAGES, KernelTable, Tables
from sim import catalog
from sim.cost.kernels import Ceilings, gemm
from sim.errors import InfersimError, UsageError
from sim.specs.profile import KernelFit, Score

H100 = Ceilings(peak=989e12, bandwidth=3.35e12, sms=132)
GEMM = gemm.form("bf16")
PLAIN = {p.name: p.start for p in gemm.form("fp8").parameters} | {"ragged": 0.0}


def shape(m, n, k):
    return {name: np.asarray(v, dtype=float) for name, v in (("m", m), ("n", n), ("k", k))}


def test_many_rows_cost_their_flops():
    m, n, k = 262144, 8192, 8192
    rate = H100.peak * PLAIN["compute"] * (1 - PLAIN["droop"])
    seconds = GEMM.seconds(PLAIN, shape(m, n, k), H100)
    assert seconds == pytest.approx(2 * m * n * k / rate, rel=0.02)


def test_one_row_costs_the_weights():
    n, k = 65536, 16384
    seconds = GEMM.seconds(PLAIN, shape(1, n, k), H100)
    assert seconds == pytest.approx(2 * n * k / (H100.bandwidth * PLAIN["bandwidth"]), rel=0.05)


def test_a_tiny_product_costs_its_launch_and_one_wave():
    seconds = GEMM.seconds(PLAIN, shape(1, 64, 64), H100)
    assert seconds == pytest.approx(PLAIN["latency"] + PLAIN["wave"], rel=0.05)


@pytest.mark.parametrize("precision", sorted(gemm.WIDTHS))
@pytest.mark.parametrize("name", ["m", "n", "k"])
def test_more_never_takes_less_time(precision, name):
    size = np.unique(np.concatenate([np.arange(1, 600), np.geomspace(600, 70000, 400).round()]))
    sizes = {"m": 700.0, "n": 3072.0, "k": 4096.0} | {name: size}
    seconds = gemm.form(precision).seconds(PLAIN, shape(**sizes), H100)
    assert (np.diff(seconds) >= -1e-15).all()


def test_only_ragged_blocks_may_cost_more_than_full_ones():
    ragged = PLAIN | {"ragged": 1.0}
    seconds = GEMM.seconds(ragged, shape([128, 129, 256, 257, 512], 16384, 8192), H100)
    assert seconds[1] > seconds[2]  # as CUTLASS's fp8 kernels were measured: 129 rows after 256
    assert seconds[3] > seconds[4]
    assert seconds[0] == GEMM.seconds(PLAIN, shape(128, 16384, 8192), H100)


def test_a_wave_more_shows_as_a_step():
    whole = PLAIN | {
        "partial": 1.0,
        "huge": 0.5,
        "small": 0.2,
        "tiny": 0.2,
        "narrow": 0.1,
        "split": 1e-3,
    }
    rows = np.array([128 * 4, 128 * 4 + 1])  # 33 columns of tiles: 132 of them, then 165
    full, spilled = GEMM.seconds(whole, shape(rows, 128 * 33, 16384), H100)
    assert spilled > 1.7 * full


def test_exactly_full_waves_do_not_spill():
    for sms in (108, 132, 142, 148, 188):
        device = Ceilings(peak=1e15, bandwidth=3e12, sms=sms)
        p = PLAIN | {"partial": 1.0, "huge": 0.5, "small": 0.2, "tiny": 0.2, "narrow": 0.1}
        for waves in (1, 2, 3, 7):
            full = GEMM.seconds(p, shape(128, 128 * sms * waves, 65536), device)
            less = GEMM.seconds(p, shape(128, 128 * (sms * waves - 1), 65536), device)
            assert full == pytest.approx(float(less), rel=0.02)


def test_split_k_helps_where_tiles_are_few():
    never = PLAIN | {"split": 1e-3}
    few = shape(16, 512, 16384)
    assert GEMM.seconds(PLAIN, few, H100) < 0.6 * GEMM.seconds(never, few, H100)
    many = shape(2048, 16384, 4096)
    assert GEMM.seconds(PLAIN, many, H100) == GEMM.seconds(never, many, H100)


def test_conversion_costs_per_row_and_per_byte():
    fp8 = gemm.form("fp8")
    free = PLAIN | {"convert": 0.0, "row": 0.0}
    m, k = 4096, 8192
    extra = fp8.seconds(PLAIN, shape(m, 8192, k), H100) - fp8.seconds(free, shape(m, 8192, k), H100)
    expected = m * PLAIN["row"] + PLAIN["convert"] * 3 * m * k / H100.bandwidth
    assert extra == pytest.approx(expected)
    assert {"convert", "row"} <= {p.name for p in fp8.parameters}
    assert not {"convert", "row"} & {p.name for p in GEMM.parameters}


def test_few_rows_in_nvfp4_cost_a_line_in_the_depth():
    """As TensorRT-LLM's timings: as long for few rows and columns as for more of both."""
    nvfp4 = gemm.form("nvfp4")
    p = PLAIN | {"depth": 2e-9, "convert": 0.0, "row": 0.0, "split": 1e-3, "norm": 12.0}
    seconds = [nvfp4.seconds(p, shape(m, n, 16384), H100) for m, n in ((1, 128), (16, 2048))]
    assert seconds[1] == pytest.approx(seconds[0], rel=0.01)
    deeper = nvfp4.seconds(p, shape(1, 128, 32768), H100)
    assert deeper - seconds[0] == pytest.approx(16384 * p["depth"], rel=0.02)
    assert "depth" not in {p.name for p in gemm.form("fp8").parameters}


def test_weight_only_precisions_read_fewer_bytes():
    one = shape(1, 16384, 16384)
    half = gemm.form("int8-weights").seconds(PLAIN, one, H100)
    quarter = gemm.form("int4-weights").seconds(PLAIN, one, H100)
    assert half == pytest.approx(GEMM.seconds(PLAIN, one, H100) / 2, rel=0.05)
    assert quarter == pytest.approx(GEMM.seconds(PLAIN, one, H100) / 4, rel=0.15)


def test_a_warm_cache_helps_small_weights_only():
    warm = Ceilings(H100.peak, H100.bandwidth, H100.sms, cache=8e6)
    p = PLAIN | {"cached": 4.0}
    small, large = shape(1, 2048, 1024), shape(1, 16384, 8192)
    assert GEMM.seconds(p, small, warm) < GEMM.seconds(p, small, H100)
    assert GEMM.seconds(p, large, warm) == pytest.approx(float(GEMM.seconds(p, large, H100)))


def test_parts_tell_compute_from_memory():
    found = gemm.parts(PLAIN, shape([1, 8192], 8192, 8192), H100, gemm.WIDTHS["bf16"])
    compute, memory = found.compute, found.memory
    assert memory[0] > 3 * compute[0]
    assert compute[1] > 3 * memory[1]
    assert memory[0] == pytest.approx(2 * 8192 * 8192 / (3.35e12 * 0.88), rel=0.01)


def test_only_products_that_are_split_add_up_partial_sums():
    found = gemm.parts(PLAIN, shape([8192], 8192, 128), H100, gemm.WIDTHS["bf16"])
    moved = 2 * (8192 * 128 + 8192 * 128 + 8192 * 8192)
    assert found.memory[0] == pytest.approx(moved / (3.35e12 * PLAIN["bandwidth"]))


def test_sixteen_thousand_row_counts_are_priced_at_once():
    rows = np.arange(1, 16385)
    found = GEMM.seconds(PLAIN, shape(rows, 6144, 4096), H100)
    assert found.shape == rows.shape
    assert found[999] == GEMM.seconds(PLAIN, shape(1000, 6144, 4096), H100)


def test_regimes_cut_where_batches_become_prompts():
    names = gemm.regime(shape([1, 16, 17, 128, 129, 1024, 1025, 4096, 4097], 1, 1)).tolist()
    assert names == [
        "1 to 16 rows", "1 to 16 rows", "17 to 128 rows", "17 to 128 rows", "129 to 1024 rows",
        "129 to 1024 rows", "1025 to 4096 rows", "1025 to 4096 rows", "above",
    ]  # fmt: skip


# The importer, on tables of our own making


ROWS = (1, 8, 16, 32, 64, 128, 192, 256, 512, 1024, 2048, 4096)
SIDES = (1024, 2048, 4096, 8192)
TRUE = PLAIN | {"compute": 0.7, "bandwidth": 0.8, "latency": 4e-6}


def frame(precision, name, noise=0.02):
    grid = np.array([(m, n, k) for m in ROWS for n in SIDES for k in SIDES], dtype=float)
    seconds = gemm.form(precision).seconds(TRUE, shape(*grid.T), H100)
    drawn = np.random.default_rng(1).normal(0, noise, len(grid))
    rows = pd.DataFrame(grid.astype(int), columns=["m", "n", "k"])
    return rows.assign(gemm_dtype=name, kernel_source="made", latency=1e3 * seconds * np.exp(drawn))


def write(root: Path, version: str, rows: pd.DataFrame) -> None:
    folder = root / "systems" / "data" / "h100_sxm" / "gemm" / "vllm" / version
    folder.mkdir(parents=True)
    rows.to_parquet(folder / "gemm_perf.parquet")


@pytest.fixture(scope="module")
def tables(tmp_path_factory) -> Tables:
    root = tmp_path_factory.mktemp("tables")
    write(root, "0.9.1", frame("bf16", "bfloat16").assign(latency=1.0))
    unknown = frame("bf16", "fp8_block").assign(latency=1.0)
    write(root, "0.24.0", pd.concat([frame("bf16", "bfloat16"), unknown]))
    write(root, "0.24.0rc2", frame("bf16", "bfloat16").assign(latency=1.0))
    (root / "systems" / "data" / "h100_sxm" / "gemm" / "vllm" / "0.25.0").mkdir()
    return locate(root)


def test_the_newest_version_with_the_table_is_read(tables):
    assert tables.versions("h100_sxm", "gemm", "vllm", "gemm_perf") == [
        "0.9.1", "0.24.0rc2", "0.24.0",
    ]  # fmt: skip
    assert tables.read("h100_sxm", "gemm", "vllm", "gemm_perf").version == "0.24.0"
    assert tables.read("h100_sxm", "gemm", "vllm", "gemm_perf", "0.9.1").version == "0.9.1"


def test_fit_system_recovers_what_the_table_was_made_of(tables, monkeypatch):
    knots = {"m": (1, 64, 512, 4096), "n": (1024, 8192), "k": (1024, 8192)}
    monkeypatch.setattr(importer, "AXES", knots)
    fits = importer.fit_system(tables, "h100_sxm", "vllm")
    assert list(fits) == ["bf16"]  # fp8_block is no precision of the simulator
    fit = fits["bf16"]
    assert fit.parameters["compute"] == pytest.approx(TRUE["compute"], rel=0.05)
    assert fit.parameters["bandwidth"] == pytest.approx(TRUE["bandwidth"], rel=0.05)
    assert fit.holdout.median < 0.03
    assert fit.holdout.points < len(ROWS) * len(SIDES) ** 2  # judged at shapes of layers only
    assert fit.residual is None  # nothing but noise is left over
    assert fit.kernel == "vllm 0.24.0: made"
    assert fit.ranges["m"] == (1.0, 4096.0)


def test_products_by_blocks_are_seen_where_the_host_does_not_hide_them():
    """Launching takes 50 us, which is all that few rows show: their parameters are those of fp8."""
    true = TRUE | {"compute": 0.5, "convert": 2.0, "row": 0.0}
    grid = [(m, n, k) for m in (64, 1024, 2048, 4096, 8192) for n in SIDES for k in SIDES]
    rows = pd.DataFrame(grid, columns=["m", "n", "k"])
    sizes = shape(*rows.to_numpy(dtype=float).T)
    gpu = Ceilings(peak=catalog.gpu("h100-sxm").flops("fp8"), bandwidth=3.35e12, sms=132)
    seconds = np.maximum(gemm.form("fp8-block").seconds(true, sizes, gpu), 5e-5)
    rows = rows.assign(kernel_source="DeepGEMM", latency=1e3 * seconds)
    alike = KernelFit(TRUE | {"convert": 5.0, "row": 1e-9}, {"m": (1, 4096)}, Score(0, 0, 0, 1))
    fit = importer.fit_blocks(KernelTable(rows, "h100_sxm", "vllm", "0.24.0"), rows, alike)
    assert fit.parameters["latency"] == TRUE["latency"]
    predicted = gemm.form("fp8-block").seconds(fit.parameters, sizes, gpu)
    assert np.abs(np.maximum(predicted, 5e-5) / seconds - 1).max() < 0.05
    assert fit.ranges["m"] == (1, 8192)
    assert fit.holdout.median < 0.02


def test_products_by_blocks_that_ran_in_graphs_are_fitted_as_others(tmp_path, monkeypatch):
    """TensorRT-LLM's on Blackwell: rows of decoding tell what a product takes at least. Elsewhere
    the fp8 of the profile stands in."""
    monkeypatch.setattr(importer, "AXES", dict.fromkeys(("m", "n", "k"), (1, 8192)))
    conversion = {"convert": 2.0, "row": 0.0}
    rows = []
    for name, latency in (("fp8", 13e-6), ("fp8_block", 4e-6)):
        grid = [(m, n, k) for m in ROWS for n in SIDES for k in SIDES]
        sizes = pd.DataFrame(grid, columns=["m", "n", "k"])
        gpu = catalog.gpu("b200-sxm")
        limits = Ceilings(gpu.flops("fp8"), gpu.bandwidth, gpu.sms)
        true = TRUE | conversion | {"latency": latency}
        seconds = gemm.form("fp8").seconds(true, shape(*sizes.to_numpy(dtype=float).T), limits)
        rows.append(sizes.assign(gemm_dtype=name, kernel_source="made", latency=1e3 * seconds))
    for system, found in (("b200_sxm", ["fp8", "fp8-block"]), ("h200_sxm", ["fp8"])):
        folder = tmp_path / "systems" / "data" / system / "gemm" / "trtllm" / "1.3.0"
        folder.mkdir(parents=True)
        pd.concat(rows).to_parquet(folder / "gemm_perf.parquet")
        fits = importer.fit_system(locate(tmp_path), system, "trtllm")
        assert list(fits) == found
        if len(found) > 1:
            floors = [fits[name].parameters["latency"] for name in found]
            assert floors == pytest.approx([13e-6, 4e-6], rel=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("h100", "gemm", "vllm", "gemm_perf"), "unknown system 'h100' (did you mean 'h100_sxm'?)"),
        (("h100_sxm", "gemm", "vlm", "gemm_perf"), "did you mean 'vllm'?"),
        (("h100_sxm", "gemm", "vllm", "gemm_perf", "0.24"), "unknown version '0.24'"),
        (("h100_sxm", "gemm", "vllm", "moe_perf"), "no moe_perf in any version"),
    ],
)
def test_names_that_the_tables_lack(tables, arguments, message):
    with pytest.raises(UsageError) as error:
        tables.read(*arguments)
    assert message in str(error.value)


def test_a_folder_without_tables(tmp_path):
    with pytest.raises(UsageError, match="no folder systems/data"):
        locate(tmp_path)


def test_a_table_with_other_columns(tmp_path):
    write(tmp_path, "1.0", pd.DataFrame({"m": [1]}))
    with pytest.raises(InfersimError, match="lacks gemm_dtype, k, kernel_source, latency, n"):
        importer.fit_system(locate(tmp_path), "h100_sxm", "vllm")


def test_what_no_layer_has_is_left_out():
    rows = pd.DataFrame({"m": [1, 32768, 4, 8], "n": [4096, 4096, 64, 4096], "k": 4096})
    data = importer.to_data(rows.assign(latency=[0.02, 3.0, 0.01, 0.0]))
    assert data.shape["m"].tolist() == [1.0]
    assert data.seconds.tolist() == pytest.approx([2e-5])


def test_layer_shapes_come_from_the_catalogue():
    shapes = importer.layer_shapes()
    assert (6144, 4096) in shapes  # Llama 3.1 8B: 32 + 2 x 8 heads of 128
    assert (28672, 4096) in shapes  # its gate and up projection
    assert (8192, 3584) in shapes  # Llama 3.1 70B on 8 GPUs: down
    assert (128256, 4096) not in shapes  # an LM head is no layer


@pytest.mark.skipif(not any(find_spec(name) for name in PACKAGES), reason="tables not installed")
def test_the_installed_tables_can_be_read():
    tables = locate()
    table = tables.read("h100_sxm", "gemm", "vllm", "gemm_perf")
    rows = table.frame[table.frame["gemm_dtype"] == "bfloat16"]
    data = importer.to_data(rows)
    assert importer.at_layers(data).sum() > 1000
    assert 1e-6 < data.seconds.min() < data.seconds.max() < 10
