"""A calibration of some operators: which ones, in how much time, and with what anchors."""

from __future__ import annotations

from pathlib import Path

import pytest

from calibrate import only, session
from calibrate.bench import families
from calibrate.bench.base import BenchPoint, Scope
from calibrate.bench.of_model import products, widths
from calibrate.device import DeviceFacts
from calibrate.lazy_torch import installed
from calibrate.measurement_store import MeasurementStore
from calibrate.measurements import Measurement
from calibrate.plan import CalibrationPlan
from calibrate.suite import Suite, SuitePace
from calibrate.timing import CpuTimer
from sim import catalog
from sim.errors import UsageError
from tests.calibrate.test_calibrate_suite import BUDGET, RATES, World, points
from tests.calibrate.test_calibrate_suite import Family as Products

SHARES = {"gemm": 5.0, "memory": 1.0, "moe": 1.0, "mla_decode": 2.0, "mla_prefill": 1.0}
CPU = DeviceFacts("cpu", "Some CPU", 2**34, 1, 2**25, {})
H200 = DeviceFacts("cuda", "NVIDIA H200", 150 * 10**9, 132, 5 * 10**7, {})


def test_names_are_operators_or_stand_for_some() -> None:
    assert only.chosen([], SHARES) == SHARES.keys()
    assert only.chosen(["experts", "gemm"], SHARES) == {"moe", "gemm"}
    with pytest.raises(UsageError, match="--only windows: not known"):
        only.chosen(["windows"], SHARES)


def test_the_time_is_their_share_of_the_whole() -> None:
    assert only.budget(200.0, frozenset(["gemm"]), SHARES) == 100.0
    assert only.budget(200.0, frozenset(["moe"]), SHARES) == only.LEAST
    assert only.budget(200.0, frozenset(SHARES), SHARES) == 200.0
    assert only.budget(10.0, frozenset(["moe"]), SHARES) == 10.0


def test_an_unknown_device_needs_products_and_copies() -> None:
    moving = session.MOVING
    for short in (["moe"], ["gemm", "moe"], ["memory"]):
        with pytest.raises(UsageError, match="the ceilings of Some CPU are taken from gemm and"):
            only.check_ceilings(frozenset(short), CPU, moving)
    only.check_ceilings(frozenset(["gemm", "memory_read"]), CPU, moving)
    only.check_ceilings(frozenset(["moe"]), H200, moving)


@pytest.mark.skipif(not installed(), reason="PyTorch is not installed")
def test_the_plan_has_the_operators_that_were_asked_for(tmp_path: Path) -> None:
    request = session.CalibrationRequest(
        "cpu", tmp_path / "m.csv", ["llama-3.2-1b"], ["bf16"], only=["windows"], fitted=False
    )
    made = session.prepare(request)
    made.store.close()
    assert made.plan.budget == only.LEAST
    assert made.anchored == {"window_decode", "window_prefill"}
    met = set()
    for _ in range(4):
        point = made.plan.next(30.0)
        assert point is not None
        made.plan.took(point, 1.0)
        met.add(point.operator)
    assert met == {"window_decode", "window_prefill"}


def test_where_products_are_not_measured_something_else_is_the_anchor(tmp_path: Path) -> None:
    world, own = World(), [point for point in points() if point.operator == "stream"]
    owners = dict.fromkeys(Products.shares, Products())
    with MeasurementStore(tmp_path / "m.csv", CPU, {}) as store:
        plan = CalibrationPlan(own, Products.shares, RATES, BUDGET)
        timer = CpuTimer(clock=lambda: int(world.time * 1e9))
        suite = Suite(
            plan,
            owners,
            world,
            timer,
            store,
            pace=SuitePace(anchored=["stream"]),
            clock=lambda: world.time,
        )
        suite.run()
        anchors: list[Measurement] = store.table.of("anchor")
    assert len(anchors) >= 12
    assert {row.operator for row in anchors} == {"stream"}


@pytest.mark.parametrize(
    ("name", "operator"),
    [("mixtral-8x7b", "moe"), ("deepseek-v3", "mla_decode"), ("gpt-oss-20b", "window_decode")],
)
def test_models_of_other_layers_are_measured_at_their_shapes(name: str, operator: str) -> None:
    model = catalog.model(name)
    scope = Scope("cuda", 1e11, 1, [model], ["bf16"], tensor_parallel=(1, 8))
    found: dict[str, list[BenchPoint]] = {}
    for family in families(scope):
        for point in family.points(scope):
            found.setdefault(point.operator, []).append(point)
    matrices = {(point.shape["n"], point.shape["k"]) for point in found["gemm"]}
    assert set(products(model)) <= matrices
    assert {width for name, width in widths(model) if name == "norm"} == {model.hidden_size}
    assert "layer" not in found
    assert found[operator]


def test_experts_are_no_matrices_of_their_own() -> None:
    """Of Mixtral: queries, keys and values; output; the router."""
    assert products(catalog.model("mixtral-8x7b")) == [(6144, 4096), (4096, 4096), (8, 4096)]
