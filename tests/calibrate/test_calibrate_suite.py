"""A suite keeps its budget and its measurements, whatever happens on the way.

Device, timer and clock are made up: a point takes what the fake says and time passes only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from calibrate import session
from calibrate.bench.base import BenchPoint, BenchWork, Scope, UnsupportedError
from calibrate.device import DeviceFacts
from calibrate.measurement_store import MeasurementStore
from calibrate.measurements import Measurement, MeasurementTable, read
from calibrate.plan import CalibrationPlan, DeviceRates
from calibrate.stability import drift, noise, sums
from calibrate.suite import DeviceLostError, Progress, Suite
from calibrate.timing import CpuTimer, KernelTimer, KernelTiming, sample, summary, uncertainty

FACTS = DeviceFacts("cpu", "Fake", 2**34, 1, 2**20, {})
RATES = DeviceRates(flops=1e9, bandwidth=1e9, setup=0.05, timing=0.05, fill=1e12, pool=1e12)
BUDGET = 20.0


class World:
    """A clock, a device and a timer that agree with one another."""

    def __init__(self, trouble: Mapping[float, Exception] | None = None) -> None:
        self.time = 0.0
        self.trouble = trouble or {}
        self.alive = True
        self.prepared: list[BenchPoint] = []
        self.released: list[float] = []
        self.speed = 1.0
        self.memory = 1e12

    def room(self) -> float:
        return self.memory

    def clock_mhz(self) -> float | None:
        return 1000.0

    def responds(self) -> bool:
        return self.alive

    def release(self) -> None:
        self.released.append(self.time)

    def prepare(self, family: Family, point: BenchPoint) -> BenchWork:
        self.prepared.append(point)
        self.time += 0.03
        size = point.shape["m"] if "m" in point.shape else point.shape["bytes"]
        if size in self.trouble:
            raise self.trouble[size]

        def call() -> None:
            self.time += self.speed * (1e-4 + 1e-6 * size)

        return BenchWork([call], "fake")


class Family:
    """Products of any number of rows."""

    shares: Mapping[str, float] = {"gemm": 1.0, "stream": 0.5}

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        raise NotImplementedError

    def prepare(self, point: BenchPoint, arena: object) -> BenchWork:
        raise NotImplementedError


def points() -> list[BenchPoint]:
    found = [BenchPoint("gemm", "bf16", {"m": m, "n": 64, "k": 64}, 1e3) for m in range(1, 4000)]
    return found + [BenchPoint("stream", "bf16", {"bytes": b}, 1e3) for b in range(1, 4000)]


def run(
    path: Path,
    world: World,
    *,
    resume: bool = False,
    given: list[BenchPoint] | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    timer: KernelTimer | None = None,
) -> None:
    timer = timer or CpuTimer(clock=lambda: int(world.time * 1e9))
    owners = dict.fromkeys(Family.shares, Family())
    with MeasurementStore(path, FACTS, {}, resume=resume) as store:
        done = frozenset(row.key for row in store.table.rows if not row.purpose)
        plan = CalibrationPlan(
            points() if given is None else given, Family.shares, RATES, BUDGET, done
        )
        suite = Suite(plan, owners, world, timer, store, report=report, clock=lambda: world.time)
        suite.run()


def test_the_budget_is_used_and_kept(tmp_path: Path) -> None:
    world = World()
    run(tmp_path / "m.csv", world)
    assert 0.95 * BUDGET < world.time < 1.02 * BUDGET
    table = read(tmp_path / "m.csv")
    assert len(table.usable()) > 100
    keys = [row.key for row in table.usable()]
    assert len(keys) == len(set(keys))
    assert {row.operator for row in table.usable()} == {"gemm", "stream"}
    assert all(row.status == "ok" for row in table.rows)


def test_anchors_open_and_close_and_a_sample_is_seen_twice(tmp_path: Path) -> None:
    world = World()

    def slow_down(step: Progress) -> None:
        world.speed = 1.0 + 0.5 * step.used / step.budget

    run(tmp_path / "m.csv", world, report=slow_down)
    table = read(tmp_path / "m.csv")
    anchors = table.of("anchor")
    assert 12 <= len(anchors) <= 14
    assert {row.key for row in anchors} == {table.rows[0].key}
    (change,) = drift(table)
    assert change.change == pytest.approx(0.5, abs=0.03)
    again = table.of("again")
    assert len(again) > 10
    assert {row.key for row in again} <= {row.key for row in table.usable()}
    found = {entry.operator: entry for entry in noise(table)}
    assert found["all"].points == len(again)
    assert 0.05 < found["all"].median < 0.5


@pytest.mark.parametrize("step", range(1, 12))
def test_interrupted_at_any_point_and_resumed(tmp_path: Path, step: int) -> None:
    path, world = tmp_path / "m.csv", World()

    def interrupt(progress: Progress) -> None:
        if progress.measured == step:
            raise KeyboardInterrupt

    given = points()[:30]
    with pytest.raises(KeyboardInterrupt):
        run(path, world, given=given, report=interrupt)
    first = read(path)
    assert len(first.rows) == step
    run(path, World(), given=given, resume=True)
    table = read(path)
    assert table.rows[:step] == first.rows
    keys = [row.key for row in table.usable()]
    assert sorted(keys) == sorted(point.key for point in given)


def test_trouble_is_recorded_and_the_suite_goes_on(tmp_path: Path) -> None:
    given = points()[:8]
    trouble = {
        2: RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        3: UnsupportedError("no kernel for that"),
        4: ValueError("something odd\nwith a second line"),
        5: MemoryError(),
        6: NotImplementedError("not here"),
    }
    world = World(trouble)
    run(tmp_path / "m.csv", world, given=given)
    rows = {row.shape["m"]: row for row in read(tmp_path / "m.csv").rows if not row.purpose}
    assert {m: row.status for m, row in rows.items()} == {
        **{1: "ok", 7: "ok", 8: "ok", 2: "out-of-memory", 3: "unsupported", 4: "failed"},
        **{5: "out-of-memory", 6: "unsupported"},
    }
    assert rows[3].message == "no kernel for that"
    assert rows[4].message == "something odd"
    assert rows[4].seconds is None
    assert len(world.released) == 2
    again = World(trouble)
    run(tmp_path / "m.csv", again, given=given, resume=True)
    assert not {2, 3, 4, 5, 6} & {int(point.shape["m"]) for point in again.prepared}


def test_a_point_larger_than_memory_is_not_tried(tmp_path: Path) -> None:
    big = BenchPoint("gemm", "bf16", {"m": 1, "n": 1, "k": 1}, 1.0, memory=3e9)
    world = World()
    world.memory = 2e9
    run(tmp_path / "m.csv", world, given=[big])
    (row,) = read(tmp_path / "m.csv").rows
    assert row.status == "out-of-memory"
    assert row.message == "needs 3e+09 bytes, 2e+09 are free"
    assert world.prepared == []


def test_a_device_that_does_not_answer_ends_the_suite(tmp_path: Path) -> None:
    world = World({1: RuntimeError("illegal memory access")})
    world.alive = False
    with pytest.raises(
        DeviceLostError, match=r"illegal memory access; 1 points are saved in .*m\.csv"
    ):
        run(tmp_path / "m.csv", world, given=points()[:1])
    assert read(tmp_path / "m.csv").rows[0].status == "failed"


def test_what_a_point_leaves_behind_is_released_even_if_timing_fails(tmp_path: Path) -> None:
    class Broken:
        def measure(self, work: BenchWork, budget: float) -> KernelTiming:
            raise RuntimeError("stopped")

    class Leaving(World):
        def prepare(self, family: Family, point: BenchPoint) -> BenchWork:
            return BenchWork([lambda: None], "fake", release=lambda: self.released.append(1.0))

    world = Leaving()
    run(tmp_path / "m.csv", world, given=points()[:1], timer=Broken())
    assert world.released == [1.0]
    assert read(tmp_path / "m.csv").rows[0].kernel == "fake"


def test_sampling_stops_when_it_is_sure_or_out_of_time() -> None:
    now = [0.0]

    def once(values: Iterator[float]) -> Callable[[], float]:
        def taken() -> float:
            now[0] += 1.0
            return next(values)

        return taken

    steady = sample(once(iter([2.0] * 100)), 50.0, lambda: now[0])
    assert steady == [2.0] * 5
    wild = [1.0, 3.0, 2.0, 9.0] * 50
    assert len(sample(once(iter(wild)), 20.5, lambda: now[0])) == 21
    assert len(sample(once(iter(wild)), 0.0, lambda: now[0])) == 3
    assert len(sample(once(iter(wild)), 1e9, lambda: now[0])) == 200


def test_outliers_are_kept_and_told_of() -> None:
    calm = summary([1.0] * 19 + [50.0], "host")
    assert (calm.seconds, calm.low, calm.high, calm.noisy) == (1.0, 1.0, 1.0, False)
    wild = summary([1.0, 2.0, 3.0, 4.0, 5.0], "host")
    assert (wild.seconds, wild.low, wild.high, wild.noisy) == (3.0, 2.0, 4.0, True)
    assert uncertainty([1.0, 1.0]) == float("inf")


def test_the_cpu_timer_times_calls_in_turn() -> None:
    time, turns = [0], list[str]()

    def call(name: str, nanoseconds: int) -> Callable[[], None]:
        def run() -> None:
            turns.append(name)
            time[0] += nanoseconds

        return run

    timer = CpuTimer(clock=lambda: time[0])
    quick = timer.measure(BenchWork([call("a", 1000), call("b", 3000)], ""), 1.0)
    assert quick.seconds == pytest.approx(2e-6, rel=0.03)
    assert turns[:4] == ["a", "b", "a", "b"]
    turns.clear()
    slow = timer.measure(BenchWork([call("c", 10**10)], ""), 1.0)
    assert (slow.seconds, slow.repeats, slow.noisy) == (10.0, 2, True)
    told = timer.measure(BenchWork([lambda: 0.25], "", "reported"), 1.0)
    assert (told.seconds, told.mode) == (0.25, "reported")


def test_a_layer_is_compared_with_its_parts_only_if_all_were_measured() -> None:
    from calibrate.bench import layer
    from sim import catalog

    model = catalog.model("llama-3.2-1b")
    whole = layer.point(model, "bf16", 4, 1, 512, True, "graph")
    made = layer.parts_of(whole, [model])
    assert sum(times for part, times in made if part.operator == "gemm") == 16 * 4 + 1

    def timed(point: BenchPoint, seconds: float) -> Measurement:
        kernel = f"{point.variant}: x" if point.variant else "x"
        return Measurement(
            point.operator, point.precision, kernel, point.shape, seconds, None, None, 5, "ok"
        )

    rows = [timed(part, 1e-3) for part, _ in made] + [timed(whole, 0.3)]
    (found,) = sums(MeasurementTable(tuple(rows)), [model])
    assert found.summed == pytest.approx(1e-3 * sum(times for _, times in made))
    assert found.excess == pytest.approx(0.3 / found.summed - 1)
    assert found.shape == "4 decodes at 512"
    assert sums(MeasurementTable(tuple(rows[1:])), [model]) == []
    assert sums(MeasurementTable(tuple(rows)), []) == []


def test_a_cpu_that_is_measured_keeps_some_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    device = SimpleNamespace(facts=SimpleNamespace(kind="cpu"), free_memory=lambda: 2**33)
    with session._limited_memory(device):  # type: ignore[arg-type]
        inside = resource.getrlimit(resource.RLIMIT_AS)[0]
        with pytest.raises(MemoryError):
            bytearray(2**33)
    assert 0 < inside < 2**50
    assert resource.getrlimit(resource.RLIMIT_AS) == before
