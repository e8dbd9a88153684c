"""The order in which points are measured: any prefix covers everything."""

from __future__ import annotations

from collections import Counter

import pytest

from calibrate.bench import families
from calibrate.bench.base import BenchPoint, Scope, rows_for
from calibrate.plan import LONGEST, CalibrationPlan, DeviceRates, crude_rates, group_of
from calibrate.session import RANKED
from sim import catalog

RATES = DeviceRates(flops=1e9, bandwidth=1e9, setup=0.01, timing=0.01, fill=1e9, pool=1e9)


def gemm(precision: str, m: int, weight: float = 1.0) -> BenchPoint:
    return BenchPoint("gemm", precision, {"m": m, "n": 64, "k": 64}, 1e3 * m, weight=weight)


def scope(kind: str = "cpu", **changes: object) -> Scope:
    given = {
        "kind": kind,
        "memory": 2e10,
        "devices": 1,
        "models": [catalog.model("llama-3.2-1b")],
        "precisions": ["bf16", "fp32"],
    }
    return Scope(**(given | changes))  # type: ignore[arg-type]


def whole_plan(found: Scope, budget: float) -> CalibrationPlan:
    made = families(found)
    return CalibrationPlan(
        [point for family in made for point in family.points(found)],
        {name: share for family in made for name, share in family.shares.items()},
        crude_rates(found.kind, 1),
        budget,
    )


def drain(plan: CalibrationPlan, budget: float) -> list[BenchPoint]:
    """The points taken when each costs what the plan believes."""
    taken, left = [], budget
    while (point := plan.next(left)) is not None:
        cost = plan.cost(point)
        plan.took(point, cost)
        left -= cost
        taken.append(point)
    assert left >= 0
    return taken


def test_every_operator_and_precision_comes_before_any_has_had_much() -> None:
    plan = whole_plan(scope(), 180.0)
    taken = drain(plan, 180.0)
    groups = {group_of(point) for point in taken}
    first = taken[: 2 * len(groups)]
    assert {group_of(point) for point in first} == groups
    assert {point.operator for point in taken} >= {
        *("gemm", "decode_attention", "prefill_attention", "norm", "kv_write", "sampling"),
        *("rotary", "activation", "embedding", "memory", "memory_read", "file_to_device_warm"),
        *("launch", "file_to_device", "layer"),
    }
    assert {p.precision for p in taken if p.operator == "decode_attention"} == {"bf16", "fp32"}


def test_what_is_done_once_is_not_held_against_an_operator() -> None:
    """A compiler takes 300 times as long as the point that it is first needed for."""
    points = [gemm("bf16", m) for m in range(1, 2000)]
    points += [BenchPoint("norm", "bf16", {"bytes": b}, 1e3 * b) for b in range(1, 2000)]
    plan = CalibrationPlan(points, {"gemm": 5.0, "norm": 1.0}, RATES, 4.0)
    met = Counter[str]()
    for _ in range(240):
        point = plan.next(4.0)
        assert point is not None
        met[point.operator] += 1
        compiled = point.operator == "norm" and met["norm"] == 1
        plan.took(point, 6.0 if compiled else 0.02)
    assert met["norm"] >= 30


def test_time_is_shared_as_asked() -> None:
    points = [gemm("bf16", m) for m in range(1, 2000)]
    points += [BenchPoint("other", "bf16", {"bytes": b}, 1e3 * b) for b in range(1, 2000)]
    plan = CalibrationPlan(points, {"gemm": 3.0, "other": 1.0}, RATES, 4.0)
    spent = {"gemm": 0.0, "other": 0.0}
    for _ in range(200):
        point = plan.next(4.0)
        assert point is not None
        plan.took(point, 0.02)
        spent[point.operator] += 0.02
    assert spent["gemm"] == pytest.approx(3 * spent["other"], rel=0.05)


def test_precisions_that_serve_few_models_get_half() -> None:
    points = [gemm(precision, m) for precision in ("fp8", "int8") for m in range(1, 2000)]
    plan = CalibrationPlan(points, {"gemm": 1.0}, RATES, 4.0)
    spent = Counter[str]()
    for _ in range(200):
        point = plan.next(4.0)
        assert point is not None
        plan.took(point, 0.02)
        spent[point.precision] += 1
    assert spent["fp8"] == pytest.approx(2 * spent["int8"], rel=0.05)


def test_a_prefix_spans_the_range_of_the_shape() -> None:
    plan = CalibrationPlan([gemm("bf16", m) for m in range(1, 4097)], {"gemm": 1.0}, RATES, 100.0)
    rows = [int(point.shape["m"]) for point in drain(plan, 100.0)[:9]]
    assert min(rows) == 1
    assert max(rows) == 4096
    octaves = {row.bit_length() // 2 for row in rows}
    assert len(octaves) >= 6


def test_every_number_of_rows_is_met_about_as_often_on_a_cpu() -> None:
    """The library of a CPU has other kernels for 3 rows than for 4: no number is left out for the
    sake of widths, as it is where rows are counted by their logarithm."""
    found = scope(precisions=["fp32"])
    (family,) = [family for family in families(found) if "gemm" in family.shares]
    points = list(family.points(found))
    met: dict[bool, Counter[float]] = {}
    for ranked in (True, False):
        plan = CalibrationPlan(
            points,
            family.shares,
            crude_rates("cpu", 1),
            60.0,
            ranked=RANKED["cpu"] if ranked else frozenset(),
        )
        taken = [plan.next(1e9) for _ in range(120)]
        met[ranked] = Counter(point.shape["m"] for point in taken if point is not None)
    assert min(met[True][rows] for rows in range(1, 33) if rows in rows_for("cpu")) >= 2
    assert min(met[False][rows] for rows in range(1, 17)) == 0


def test_an_important_point_is_taken_first_and_one_of_two_equal_points_only() -> None:
    points = [gemm("bf16", m) for m in (1, 8, 64)] + [gemm("bf16", 8, weight=5.0)]
    taken = drain(CalibrationPlan(points, {"gemm": 1.0}, RATES, 10.0), 10.0)
    assert taken[0] == gemm("bf16", 8, weight=5.0)
    assert len(taken) == 3


def test_what_was_done_earlier_is_not_offered_and_repels_what_is_near() -> None:
    points = [gemm("bf16", m) for m in (1, 2, 4, 512, 1024)]
    done = frozenset(point.key for point in points[:2])
    plan = CalibrationPlan(points, {"gemm": 1.0}, RATES, 10.0, done)
    assert plan.remaining() == 3
    assert [int(point.shape["m"]) for point in drain(plan, 10.0)] == [1024, 512, 4]


def test_no_point_takes_more_than_its_part_or_than_what_is_left() -> None:
    long = BenchPoint("gemm", "bf16", {"m": 1, "n": 1, "k": 1}, 1.0, flops=LONGEST * 10.0 * 1e9)
    plan = CalibrationPlan([long, gemm("bf16", 2)], {"gemm": 1.0}, RATES, 10.0)
    assert [point.shape["m"] for point in drain(plan, 10.0)] == [2]
    assert CalibrationPlan([gemm("bf16", 2)], {"gemm": 1.0}, RATES, 10.0).next(0.001) is None


def test_the_least_of_each_group_comes_first_and_whatever_it_takes() -> None:
    products = [gemm("bf16", 2**i) for i in range(12)]
    others = [BenchPoint("norm", "bf16", {"m": 2.0**i, "n": 64}, 1e3) for i in range(12)]
    few = CalibrationPlan(
        [*products, *others], {"gemm": 0.999, "norm": 0.001}, RATES, 0.01, least=4
    )
    taken = []
    while (point := few.next(-1.0)) is not None:
        few.took(point, 5.0)  # far longer than the whole budget
        taken.append(point.operator)
        assert few.lacking() == 8 - len(taken)
    assert (taken.count("gemm"), taken.count("norm")) == (4, 4)


def test_costs_are_learned() -> None:
    points = [gemm("bf16", m) for m in range(1, 200)]
    plan = CalibrationPlan(points, {"gemm": 1.0}, RATES, 100.0)
    before = plan.cost(points[0])
    for _ in range(20):
        point = plan.next(100.0)
        assert point is not None
        plan.took(point, 10 * RATES.cost(point))
    assert plan.cost(points[0]) == pytest.approx(10 * before, rel=0.1)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_points_are_sane(kind: str) -> None:
    precisions = ["bf16", "fp16", "fp32", "fp8", "int8", "int8-weights", "int4-weights"]
    found = scope(kind, precisions=precisions, devices=4 if kind == "cuda" else 1, memory=1e11)
    made = families(found)
    owned = {name for family in made for name in family.shares}
    keys = set()
    for family in made:
        for point in family.points(found):
            assert point.operator in owned
            assert point.bytes > 0
            assert point.flops >= 0
            assert point.memory > 0
            assert all(value >= 0 for value in point.shape.values())
            keys.add((point.key[0], point.precision))
    assert ("gemm", "fp8") in keys
    assert (("all_reduce", "bf16") in keys) == (kind == "cuda")
    assert (("decode_attention", "fp8") in keys) == (kind == "cuda")


def test_the_same_order_every_time() -> None:
    first, second = (drain(whole_plan(scope(), 60.0), 60.0) for _ in range(2))
    assert first == second
