"""All-gathers and reduce-scatters: the form by hand, its fit, and when a profile's fit is taken."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from calibrate.importers.aiconfigurator import gather
from calibrate.importers.aiconfigurator.tables import Tables
from calibrate.importers.systems import from_aiconfigurator
from sim import catalog
from sim.cost import CostModel
from sim.cost.communication import all_gather_across, all_gather_time
from sim.cost.kernels import all_gather
from sim.cost.kernels.form import Ceilings, Floats
from sim.cost.operators import Operator
from sim.cost.rooflines import Rooflines
from sim.errors import UsageError
from sim.specs.deployment import Deployment
from sim.specs.gpu import GpuSpec, Link, Node
from sim.specs.layout import Layout
from sim.specs.links import on_link
from sim.specs.profile import COLLECTIVES, GATHERS

NVLINK = Ceilings(peak=1.0, bandwidth=450e9, sms=1)
TRUTH = {
    "ring_floor": 5e-6,
    "ring_step": 8e-7,
    "ring_share": 0.6,
    "ring4": 1.2,
    "ring8": 1.4,
    "knee": 4e6,
    "most": 8.0,
}


def seconds(size: float, gpus: int) -> float:
    shape = {"bytes": np.array(size), "gpus": np.array(float(gpus))}
    return float(all_gather.form("all_gather").seconds(TRUTH, shape, NVLINK))


def gathered(
    gpu: GpuSpec, size: float, gpus: int, stride: int = 1, *, scatters: bool = False
) -> Operator:
    parts = catalog.model("llama-3.1-8b"), gpu, catalog.engine("ideal")
    kernels = Rooflines(Deployment(*parts))
    return kernels.all_gather("x", 1, size, gpus, stride, scatters=scatters)


def by_the_data_sheet(gpu: GpuSpec, size: float, gpus: int) -> bool:
    """Whether both are what the link's figures give, and count as not measured."""
    found = [gathered(gpu, size, gpus, scatters=scatters) for scatters in (False, True)]
    expected = all_gather_time(size, gpus, gpu.link)
    return all(each.seconds == expected and each.measured == 0 for each in found)


def test_bytes_by_hand() -> None:
    """1 MB over 4 GPUs: each has a quarter, and sends it to three others."""
    shape = {"bytes": np.array(1e6), "gpus": np.array(4.0)}
    assert all_gather.moved_bytes(shape) == 0.75e6


def test_a_small_tensor_takes_the_floor() -> None:
    for gpus in (2, 4, 8):
        assert seconds(1, gpus) == pytest.approx(5e-6 + (gpus - 1) * 8e-7, rel=0.01)


def test_at_the_knee_it_goes_at_half_the_rate() -> None:
    """4 MB over 8: 5 + 7 x 0.8 us, and twice the time of 3.5 MB at 0.6 x 1.4 of 450 GB/s."""
    assert seconds(4e6, 8) == pytest.approx(10.6e-6 + 2 * 3.5e6 / (0.84 * 450e9))


def test_a_large_tensor_goes_at_the_rate_of_its_number_of_gpus() -> None:
    for gpus, ratio in ((2, 1.0), (4, 1.2), (8, 1.4)):
        ideal = (gpus - 1) / gpus * 8e9 / (0.6 * ratio * 450e9)
        assert seconds(8e9, gpus) == pytest.approx(ideal, rel=0.03)


def frame(scale: float = 1.0, gpus: tuple[float, ...] = (2.0, 4.0, 8.0)) -> pd.DataFrame:
    """A table of the library: gathers by ``TRUTH``, scatters in twice the time, and others."""
    rows = list(itertools.product(2.0 ** np.arange(9, 30), gpus))
    size, number = np.array(rows).T
    exact: Floats = all_gather.form("all_gather").seconds(
        TRUTH, {"bytes": size, "gpus": number}, NVLINK
    )
    of = {"num_gpus": number, "kernel_source": "NCCL", "latency": scale * 1e3 * exact}
    half = pd.DataFrame({**of, "nccl_dtype": "half", "message_size": size / 2})
    return pd.concat(
        [
            half.assign(op_name="all_gather"),
            half.assign(op_name="reduce_scatter", latency=2 * half["latency"]),
            half.assign(op_name="all_reduce", latency=9.0),
            half.assign(op_name="all_gather", nccl_dtype="int8", latency=9.0),
        ]
    )


def written(root: Path, version: str, table: pd.DataFrame, framework: str = "nccl") -> None:
    place = root / "systems" / "data" / "h100_sxm" / "comm" / framework / version
    place.mkdir(parents=True)
    name = "nccl_perf" if framework == "nccl" else "custom_allreduce_perf"
    table.to_parquet(place / f"{name}.parquet")


def test_tables_become_fits(tmp_path: Path) -> None:
    """Elements are 2 bytes, milliseconds; of two versions the newest is taken, whatever version of
    the framework is asked for."""
    written(tmp_path, "2.9", frame(3.0))
    written(tmp_path, "2.29.2", frame())
    fits = gather.fit_system(Tables(tmp_path / "systems"), "h100_sxm", "vllm", "0.24.0")
    assert tuple(fits) == GATHERS
    one, other = (fits[name]["bf16"] for name in GATHERS)
    assert one.kernel == other.kernel == "nccl 2.29.2: NCCL"
    assert one.ranges == {"bytes": (512, 2**29), "gpus": (2, 8)}
    assert one.holdout.median < 0.01
    for name in ("ring_share", "ring4", "ring8"):
        assert one.parameters[name] == pytest.approx(TRUTH[name], rel=0.02), name
    assert other.parameters["ring_floor"] == pytest.approx(2 * TRUTH["ring_floor"], rel=0.02)


def test_the_fit_says_how_many_gpus_were_timed(tmp_path: Path) -> None:
    written(tmp_path, "2.29.2", frame(gpus=(2.0, 4.0)))
    fits = gather.fit_system(Tables(tmp_path / "systems"), "h100_sxm", "trtllm")
    assert [fits[name]["bf16"].parameters["most"] for name in GATHERS] == [4, 4]


def test_every_framework_of_the_tables_gets_them(tmp_path: Path) -> None:
    """And no other: they are not the framework's own, and no profile alone."""
    written(tmp_path, "2.29.2", frame())
    tables = Tables(tmp_path / "systems")
    with pytest.raises(UsageError, match="unknown framework 'sglang'"):
        from_aiconfigurator(tables, "h100_sxm", "sglang")
    sums = frame().query("op_name == 'all_gather' and nccl_dtype == 'half'")
    sums = sums.assign(allreduce_dtype="bfloat16", kernel_source="made up")
    written(tmp_path, "1.0", sums, "sglang")
    assert tuple(from_aiconfigurator(tables, "h100_sxm", "sglang").kernels) == COLLECTIVES


@pytest.mark.parametrize(
    ("gpu", "megabytes", "gpus", "gather_us", "scatter_us"),
    [
        ("h100-sxm", 8.388608, 8, 44.9, 43.8),
        ("h100-sxm", 2.097152, 8, 22.2, 17.9),
        ("h100-sxm", 0.016384, 8, 11.2, 10.9),
        ("b200-sxm", 8.388608, 4, 50.9, 48.0),
        ("a100-sxm-80gb", 33.554432, 8, 217.6, 210.0),
    ],
)
def test_shipped_profiles_are_near_what_was_timed(
    gpu: str, megabytes: float, gpus: int, gather_us: float, scatter_us: float
) -> None:
    """Microseconds of the published table: 10 % for gathers, 20 % for scatters."""
    for framework in catalog.frameworks(gpu):
        known = catalog.gpu(gpu, kernels=framework)
        together = gathered(known, megabytes * 1e6, gpus)
        apart = gathered(known, megabytes * 1e6, gpus, scatters=True)
        assert 1e6 * together.seconds == pytest.approx(gather_us, rel=0.1)
        assert 1e6 * apart.seconds == pytest.approx(scatter_us, rel=0.2)
        assert together.measured == apart.measured == 1
        assert (together.compute, together.memory, together.latency) == (0, 0, 0)


def test_without_the_fit_it_follows_the_link() -> None:
    """A profile without it, more GPUs than were timed, and another link."""
    gpu = catalog.gpu("h100-sxm")
    assert gpu.profile is not None
    assert not by_the_data_sheet(gpu, 8e6, 8)
    assert by_the_data_sheet(replace(gpu, profile=gpu.profile.without(*GATHERS)), 8e6, 8)
    assert by_the_data_sheet(on_link(gpu, Link("pcie", 28e9, 13e-6)), 8e6, 8)


def test_more_gpus_than_were_timed_take_no_less() -> None:
    """Four of a GB200 were timed: 8 small parts come together no sooner than theirs, and large ones
    as the link's figures say."""
    rack = catalog.gpu("gb200")
    assert not by_the_data_sheet(rack, 8e6, 4)
    few, more = (gathered(rack, 64e3, gpus) for gpus in (4, 8))
    assert few.measured == 1
    assert more.measured == 0
    assert more.seconds == few.seconds > all_gather_time(64e3, 8, rack.link)
    assert by_the_data_sheet(rack, 8e9, 64)


def test_cards_apart_and_cards_of_which_nothing_is_stated() -> None:
    """An open link keeps the timings, as for all-reduces; one stated as indirect does not."""
    gpu = catalog.gpu("l40s")
    assert gathered(gpu, 1e6, 2).measured == 1
    assert by_the_data_sheet(on_link(gpu, gpu.link, frameworks=False), 1e6, 2)


def test_a_relative_lends_them_over_the_same_link() -> None:
    """GH200 has the NVLink of an H100; nothing was measured on it."""
    lent, own = (gathered(catalog.gpu(name), 8e6, 8) for name in ("gh200", "h100-sxm"))
    assert lent.seconds == own.seconds
    assert lent.measured == own.measured == 1
    assert by_the_data_sheet(catalog.gpu("h100-pcie"), 8e6, 8)


def test_over_two_nodes_the_part_of_each_is_as_timed() -> None:
    """16 ranks, or every eighth of 16 GPUs, on nodes of eight."""
    network = Link("network", 50e9, 10e-6)
    gpu = replace(catalog.gpu("h100-sxm"), node=Node(8, network))
    inside, across = gathered(gpu, 8e6, 8), gathered(gpu, 8e6, 16)
    beyond = float(all_gather_across(8e6, 8, 2, network))
    assert float(across.seconds - inside.seconds) == pytest.approx(beyond)
    assert across.measured == 0
    alone = gathered(gpu, 8e6, 2, 8)
    assert alone.seconds == all_gather_across(8e6, 1, 2, network)


def test_data_ranks_gather_by_the_one_fit_and_scatter_by_the_other() -> None:
    """Qwen3-30B-A3B over 8 ranks of 32 tokens: 256 x 2,048 numbers of 16 bits and, on the way to
    the experts of each of 48 layers, 128 scores."""
    gpu, layout = catalog.gpu("h100-sxm"), Layout(data=8, expert=8)
    parts = catalog.model("qwen3-30b-a3b"), gpu, catalog.engine("ideal")
    cost = CostModel(Deployment(*parts, layout=layout))
    found = {o.name: o.communication for o in cost.by_size.per_token(32.0)}
    there = gathered(gpu, 256 * (2048 + 128) * 2, 8).seconds
    back = gathered(gpu, 256 * 2048 * 2, 8, scatters=True).seconds
    assert found["experts: all-gather"] == pytest.approx(48 * there)
    assert found["experts: reduce-scatter"] == pytest.approx(48 * back)
    assert back != gathered(gpu, 256 * 2048 * 2, 8).seconds


def test_tokens_are_quantised_before_they_are_gathered_where_the_engine_does_so() -> None:
    """TensorRT-LLM gathers a byte a number in fp8 by tensor, 0.5625 in nvfp4, and 8 bytes for each
    of the 8 experts of a token; by blocks, or under vLLM, two bytes and 128 scores. Sums go back in
    16 bits each way."""

    def moved(engine: str, weights: str, gpu: str = "b200-sxm") -> tuple[float, float]:
        parts = catalog.model("qwen3-30b-a3b"), catalog.gpu(gpu), catalog.engine(engine)
        arithmetic = {"fp8-block": "fp8"}.get(weights, weights)
        layout = Layout(data=8, expert=8)
        deployment = Deployment(*parts, weights, arithmetic, "fp8", layout=layout)
        found = {o.name: o for o in CostModel(deployment).by_size.per_token(32.0)}
        names = ("experts: all-gather", "experts: reduce-scatter")
        there, back = (float(found[name].bytes) / 48 / 256 for name in names)
        return there, back

    for engine in ("tensorrt-llm", "tensorrt-llm-pytorch"):
        assert moved(engine, "fp8") == (2048 + 8 * 8, 4096)
        assert moved(engine, "nvfp4") == (2048 * 0.5625 + 8 * 8, 4096)
        assert moved(engine, "fp8-block") == (4096 + 8 * 8, 4096)
        assert moved(engine, "bf16") == (4096 + 8 * 8, 4096)
    assert moved("vllm", "fp8") == moved("vllm", "bf16") == (4096 + 128 * 2, 4096)
