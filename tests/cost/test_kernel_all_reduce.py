"""The form of all-reduce: bytes by hand, limits on both ends, which kernel when, and its fit."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.data import Data
from calibrate.fit import solve
from calibrate.importers.aiconfigurator import collective
from calibrate.importers.aiconfigurator.tables import Tables
from sim import catalog
from sim.cost.kernels import all_reduce
from sim.cost.kernels.form import Ceilings, Floats
from sim.cost.measured import collective_of
from sim.specs.profile import OLDER

NVLINK = Ceilings(peak=1.0, bandwidth=450e9, sms=1)
TRUTH = {
    "one_floor": 4e-6,
    "one_step": 1.5e-7,
    "one_share": 0.55,
    "one_blend": 1.3,
    "two_floor": 6e-6,
    "two_step": 1.2e-6,
    "two_share": 0.7,
    "limit": 9e6,
    "ring_floor": 8e-6,
    "ring_step": 2.5e-6,
    "ring_share": 0.75,
    "ring4": 1.1,
    "ring8": 1.4,
    "knee": 3e6,
}


def seconds(size: float, gpus: int, link: str = "nvlink") -> float:
    shape = {"bytes": np.array(size), "gpus": np.array(float(gpus))}
    return float(all_reduce.form(link).seconds(TRUTH, shape, NVLINK))


def points() -> dict[str, Floats]:
    """256 B to 1 GiB over 2, 4 and 8 GPUs."""
    rows = list(itertools.product(2.0 ** np.arange(8, 31), (2.0, 4.0, 8.0)))
    size, gpus = np.array(rows).T
    return {"bytes": size, "gpus": gpus}


def test_bytes_by_hand() -> None:
    """1 MB over 4: a GPU sends 3 quarters to be summed and 3 times its summed quarter."""
    shape = {"bytes": np.array(1e6), "gpus": np.array(4.0)}
    assert all_reduce.moved_bytes(shape) == 1.5e6


def test_small_tensors_take_the_barrier_of_one_shot() -> None:
    for gpus in (2, 4, 8):
        assert seconds(256, gpus) == pytest.approx(4e-6 + (gpus - 1) * 1.5e-7, rel=0.01)


def test_two_shots_from_a_few_hundred_kilobytes() -> None:
    """4 MB over 8: 6 + 3 x 1.2 us of barriers, 7 MB at 0.7 of 450 GB/s; one shot would move 28."""
    assert seconds(4e6, 8) == pytest.approx(9.6e-6 + 7e6 / (0.7 * 450e9), rel=1e-3)


def test_large_tensors_take_the_library_at_its_rate() -> None:
    for gpus, ratio in ((2, 1.0), (4, 1.1), (8, 1.4)):
        ideal = 2 * (gpus - 1) / gpus * 8e9 / (0.75 * ratio * 450e9)
        assert seconds(8e9, gpus) == pytest.approx(ideal, rel=0.03)


def test_between_four_and_eight_the_rate_is_in_between() -> None:
    ideal = 2 * 5 / 6 * 8e9 / 450e9 / 0.75
    assert 1.1 < ideal / seconds(8e9, 6) < 1.4


def test_without_nvlink_more_than_two_gpus_take_the_library() -> None:
    assert seconds(256, 2, "pcie") == seconds(256, 2)
    assert seconds(256, 4, "pcie") == pytest.approx(8e-6 + 3 * 2.5e-6, rel=0.01)
    assert seconds(256, 4, "pcie") > 3 * seconds(256, 4)


def test_fit_finds_what_made_the_timings() -> None:
    """Within 2 % from timings with half a percent of noise."""
    shape, form = points(), all_reduce.form("nvlink")
    exact = form.seconds(TRUTH, shape, NVLINK)
    noise = np.random.default_rng(0).normal(0, 0.005, len(exact))
    data = Data(shape, exact * np.exp(noise), np.ones(len(exact)))
    found, _ = solve(form, data, NVLINK)
    for name in ("one_floor", "ring_share", "ring4", "ring8"):
        assert found[name] == pytest.approx(TRUTH[name], rel=0.02), name
    error = form.seconds(found, shape, NVLINK) / exact - 1
    assert np.percentile(np.abs(error), 90) < 0.02


def frame(latency: Floats, kernel: str) -> pd.DataFrame:
    shape = points()
    return pd.DataFrame(
        {
            "kernel_source": kernel,
            "allreduce_dtype": "bfloat16",
            "num_gpus": shape["gpus"],
            "message_size": shape["bytes"] / 2,  # elements
            "latency": latency,
        }
    )


def test_tables_become_a_fit(tmp_path: Path) -> None:
    """Elements are 2 bytes; of launches one by one and in a graph, the graph is taken; the limit
    is found although the search starts far from it."""
    exact = 1e3 * all_reduce.form("nvlink").seconds(TRUTH, points(), NVLINK)
    place = tmp_path / "systems" / "data" / "h100_sxm" / "comm" / "vllm" / "1.0"
    place.mkdir(parents=True)
    both = [frame(exact, "vLLM_custom_graph"), frame(exact + 0.02, "vLLM_custom_eager")]
    pd.concat(both).to_parquet(place / "custom_allreduce_perf.parquet")
    fits = collective.fit_system(Tables(tmp_path / "systems"), "h100_sxm", "vllm")
    fit = fits["all_reduce"]["bf16"]
    assert fit.kernel == "vllm 1.0: vLLM_custom_graph"
    assert fit.ranges == {"bytes": (256, 2**30), "gpus": (2, 8)}
    assert fit.holdout.median < 0.02
    assert fit.parameters["one_floor"] == pytest.approx(4e-6, rel=0.02)
    assert 8.4e6 < fit.parameters["limit"] < 16.8e6


def test_sums_that_are_fused_with_norms_are_those_of_the_kernel_s_owner(tmp_path: Path) -> None:
    """On Blackwell and Hopper; an L40S has none."""
    exact = 1e3 * all_reduce.form("nvlink").seconds(TRUTH, points(), NVLINK)
    for system in ("h100_sxm", "l40s"):
        for framework, factor in (("vllm", 1.0), ("trtllm", 0.5)):
            place = tmp_path / "systems" / "data" / system / "comm" / framework / "1.0"
            place.mkdir(parents=True)
            frame(exact * factor, framework).to_parquet(place / "custom_allreduce_perf.parquet")
    tables = Tables(tmp_path / "systems")
    fits = collective.fit_system(tables, "h100_sxm", "vllm")
    assert list(fits) == ["all_reduce", "all_reduce_fused"]
    assert fits["all_reduce_fused"]["bf16"].kernel == "trtllm 1.0: trtllm"
    own, fused = (fits[name]["bf16"].parameters["one_floor"] for name in fits)
    assert fused == pytest.approx(own / 2, rel=0.05)
    assert list(collective.fit_system(tables, "l40s", "vllm")) == ["all_reduce"]


def test_engines_of_older_releases_have_older_sums() -> None:
    """2,097,152 numbers over two H100 take 27.8 us in 1.0 of TensorRT-LLM, 17.1 in 1.3."""
    gpu = catalog.gpu("h100-sxm", kernels="trtllm")
    for older, published in ((False, 17.1), (True, 27.8)):
        found = collective_of(gpu, "all_reduce", OLDER if older else "")
        assert found is not None
        assert 1e6 * found.timing(4_194_304, 2).seconds == pytest.approx(published, rel=0.12)
    assert gpu.profile is not None
    assert {"all_reduce", "all_reduce_older"} & set(
        gpu.profile.without("all_reduce").kernels
    ) == set()
    plain = catalog.gpu("h100-sxm")
    one, other = (collective_of(plain, "all_reduce", variant) for variant in (OLDER, ""))
    assert one is not None
    assert other is not None
    assert one.timing(1e6, 4) == other.timing(1e6, 4)
