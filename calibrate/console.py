"""Shows a calibration in a terminal: the device, the progress, the errors."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table as Grid
from rich.text import Text

from calibrate.bench.base import BenchPoint
from calibrate.device import DeviceFacts
from calibrate.measurements import MeasurementTable
from calibrate.stability import DeviceDrift, Noise, Sum
from calibrate.suite import Progress as Step
from sim.specs.profile import Profile
from sim.terminal.console import stderr
from sim.units import show_bytes, show_time

PLAIN_EVERY = 10.0
"""Seconds between lines of progress where there is no terminal."""

SUMS_SHOWN = 12


def facts_view(facts: DeviceFacts) -> Text:
    """The device in two lines."""
    units = "multiprocessors" if facts.kind == "cuda" else "threads"
    first = (
        f"{facts.name}: {show_bytes(facts.memory)}, {facts.units} {units}, "
        f"{show_bytes(facts.cache)} of last-level cache"
    )
    wanted = ("torch", "cuda", "driver_version", "clocks.max.sm", "power.limit", "load")
    told = [f"{name} {facts.details[name]}" for name in wanted if name in facts.details]
    return Text(f"{first}\n{', '.join(told)}")


def describe(point: BenchPoint) -> str:
    """A point in a few words.

    >>> describe(BenchPoint("gemm", "bf16", {"m": 16, "n": 4096, "k": 4096}, 0.0))
    'gemm bf16 m=16 n=4096 k=4096'
    """
    shape = " ".join(f"{name}={value:g}" for name, value in point.shape.items())
    return " ".join(
        part for part in (point.operator, point.precision, point.variant, shape) if part
    )


@contextmanager
def progress() -> Iterator[Callable[[Step], None]]:
    """A function that shows progress: a bar on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _lines()
        return
    columns = (BarColumn(), TextColumn("{task.fields[left]} left, {task.fields[points]} points"))
    shown = (*columns, TextColumn("{task.description}"))
    with Progress(*shown, console=stderr(), transient=True) as bar:
        task = bar.add_task("", total=1.0, left="-", points=0)

        def tell(step: Step) -> None:
            bar.update(
                task,
                completed=min(1.0, step.used / step.budget),
                description=describe(step.point)[:60],
                left=show_time(round(max(0.0, step.budget - step.used))),
                points=step.measured,
            )

        yield tell


def _lines() -> Callable[[Step], None]:
    last = [-PLAIN_EVERY]

    def tell(step: Step) -> None:
        if time.monotonic() - last[0] < PLAIN_EVERY:
            return
        last[0] = time.monotonic()
        left = show_time(round(max(0.0, step.budget - step.used)))
        stderr().print(f"{step.measured} points, {left} left: {describe(step.point)}")

    return tell


def result_view(
    profile: Profile | None,
    table: MeasurementTable,
    noises: list[Noise],
    drifts: list[DeviceDrift],
    layers: list[Sum],
) -> Group:
    """Errors of the fits, and the noise and drift to compare them with."""
    return Group(*_parts(profile, table, noises, drifts, layers))


def _parts(
    profile: Profile | None,
    table: MeasurementTable,
    noises: list[Noise],
    drifts: list[DeviceDrift],
    layers: list[Sum],
) -> Iterator[RenderableType]:
    again = {entry.operator: entry for entry in noises}
    if profile is not None:
        yield _fits(profile, again)
    yield _counts(table)
    if "all" in again:
        own = again["all"]
        yield Text(
            f"Noise: second timings of {own.points} points differed by {own.median:.1%} "
            f"(median), {own.p90:.1%} (90th percentile)"
        )
    if drifts:
        told = ", ".join(f"{entry.operator} {entry.change:+.1%}" for entry in drifts)
        yield Text(f"Drift from start to end: {told}{_carried(profile)}")
    if layers:
        yield _layers(layers)
    for note in table.notes:
        yield Text(f"Note: {note}", style="yellow")


def _carried(profile: Profile | None) -> str:
    """By how much drift widens the errors that predictions carry."""
    fits = [] if profile is None else [f for by in profile.kernels.values() for f in by.values()]
    drift = max((fit.drift for fit in fits), default=0.0)
    if not drift:
        return ""
    return f"; the speed wandered by {drift:.1%}, which is added to the errors of predictions"


def _fits(profile: Profile, again: dict[str, Noise]) -> Grid:
    grid = Grid(title="Error on held-out shapes", title_justify="left", expand=True)
    for name in ("operator", "precision", "points", "median", "p90", "bias", "noise"):
        grid.add_column(name, justify="left" if name in ("operator", "precision") else "right")
    for operator, fits in profile.kernels.items():
        noise = f"{again[operator].median:.1%}" if operator in again else "-"
        for precision, fit in fits.items():
            error = fit.holdout
            cells = (f"{error.median:.1%}", f"{error.p90:.1%}", f"{error.bias:+.1%}", noise)
            grid.add_row(operator, precision, str(error.points), *cells)
    return grid


def _counts(table: MeasurementTable) -> Text:
    """How many points were measured, and how many were not and why."""
    counts: dict[str, int] = {}
    for row in table.rows:
        if not row.purpose:
            counts[row.status] = counts.get(row.status, 0) + 1
    told = ", ".join(f"{count:,} {status}" for status, count in counts.items())
    return Text(f"Points: {told or 'none'}")


def _layers(layers: list[Sum]) -> Grid:
    grid = Grid(title="Layers against the sum of their parts", title_justify="left", expand=True)
    for name in ("", "model", "shape", "measured", "parts", "difference"):
        left = name in ("", "model", "shape")
        grid.add_column(name, justify="left" if left else "right")
    for entry in layers[:SUMS_SHOWN]:
        times = (show_time(entry.measured), show_time(entry.summed))
        cells = (entry.operator, entry.variant, entry.shape, *times, f"{entry.excess:+.0%}")
        grid.add_row(*cells)
    return grid
