"""Fits what a GPU draws to the published power of whole runs, and says how well.

    python -m calibrate.power energy.csv

prints the ``draw`` of each GPU's file (``sim.specs.power``) for a table of measurements as
``infersim score`` reads them, with the errors that each model has when it is left out of the fit
(calibrate/KERNELS.md). Each run is simulated once; iterations with about as many prompt tokens are
then added up, so that a fit takes seconds. Watts of one GPU, joules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from calibrate.scoring.conditions import Conditions, conditions
from calibrate.scoring.table import Row, read_table
from sim import catalog
from sim.cost import Batches
from sim.results.run_result import RunResult
from sim.scenario import load_scenario
from sim.simulation import simulate
from sim.specs.power import PowerDraw

Floats = NDArray[np.float64]

POWER = "power_all_gpus"
"""The metric that is fitted, as published."""

FITTED = ("working", "waiting", "kv_byte", "flop")
"""Fields of a draw that are fitted; the others are given."""

SCALES = {"working": 400.0, "waiting": 150.0, "kv_byte": 1.5e-10, "flop": 5e-13}
"""Where a fit starts, and in what units it moves."""

HBM_BYTE = 31e-12
"""Joules to read a byte of HBM2: 3.9 pJ a bit (O'Connor et al., Fine-Grained DRAM, MICRO 2017). Not
fitted: ``working`` has it already in runs that always read."""

STEPS = 4
"""Groups of iterations for a doubling of their prompt tokens."""


@dataclass(frozen=True)
class PowerSample:
    """A published power (``watts`` of one GPU) and what the simulated run did while all clients
    were busy. ``work`` has (operator, what, group of iterations): the seconds that operators other
    than decode attention waited and worked, their bytes and FLOP; ``reads`` (bytes, FLOP) of decode
    attention, ``seconds`` of the iterations."""

    model: str
    gpu: str
    watts: float
    work: Floats
    reads: Floats
    seconds: Floats


def samples(rows: Sequence[Row]) -> list[PowerSample]:
    """The samples of the rows that state a power."""
    found = []
    for row in rows:
        if row["metric"] == POWER:
            known = conditions(row)
            result = simulate(load_scenario(known.document))
            found.append(_sample(known, row.value / known.gpus, result))
    return found


def _sample(known: Conditions, watts: float, result: RunResult) -> PowerSample:
    (part,) = result.record.parts
    last = result.record.requests["arrival"].max()
    plans = part.plans[part.plans["start"] < last]
    batches = Batches.of(plans)
    prompts = plans["prefill_tokens"]
    level = 1 + np.floor(np.log2(np.maximum(prompts, 1)) * STEPS)
    group = np.where(prompts == 0, 0, level).astype(np.int64)

    def grouped(amount: Floats) -> Floats:
        return np.bincount(group, weights=amount).astype(np.float64)

    work, reads = [], None
    for ran in part.pool.cost.operators(batches, each=True):
        o, often = ran.operator, 1.0 if ran.by == "prompts" else batches.times
        amounts = (o.latency + o.communication, o.roof, o.bytes, o.flops)
        rows = np.array([grouped(ran.each(amount) * often) for amount in amounts])
        if ran.by == "decodes" and reads is None:
            reads = rows[2:]
        else:
            work.append(rows)
    assert reads is not None
    seconds = grouped(plans["end"] - plans["start"])
    return PowerSample(known.model, known.gpu, watts, np.array(work), reads, seconds)


def watts(sample: PowerSample, draw: PowerDraw, limit: float) -> float:
    """The mean power of a sample's run by ``draw``, as ``sim.metrics.fleet.energy`` has it."""
    waits, works, moved, flops = sample.work.transpose(1, 0, 2)
    drawn = draw.waiting * waits + draw.working * works + draw.byte * moved + draw.flop * flops
    joules = np.minimum(drawn, limit * (waits + works)).sum(axis=0)
    rest = np.maximum(sample.seconds - (waits + works).sum(axis=0), 0.0)
    read, computed = sample.reads
    asked = draw.working * rest + draw.kv_byte * read + draw.flop * computed
    total = float((joules + np.minimum(asked, limit * rest)).sum())
    return min(total / float(sample.seconds.sum()), limit)


def fit_draw(found: Sequence[PowerSample], limit: float, idle: float) -> PowerDraw:
    """The draw with the least squares of relative errors; large ones count less. A GPU that waits
    draws no less than an ``idle`` one."""
    from scipy.optimize import least_squares  # noqa: PLC0415 - slow to import

    base = PowerDraw(0.0, 0.0, 0.0, HBM_BYTE, 0.0, 0.0, 0.0, "fitted")
    scales = np.array([SCALES[name] for name in FITTED])

    def made(values: Floats) -> PowerDraw:
        named = dict(zip(FITTED, (values * scales).tolist(), strict=True))
        return replace(base, **named)

    def errors(values: Floats) -> list[float]:
        draw = made(values)
        return [watts(each, draw, limit) / each.watts - 1 for each in found]

    least = np.array([idle if name in ("working", "waiting") else 0.0 for name in FITTED]) / scales
    solved = least_squares(
        errors, np.maximum(1.0, least), bounds=(least, np.inf), loss="soft_l1", f_scale=0.05,
        diff_step=1e-3,
    )  # fmt: skip
    return made(solved.x)


def left_out(found: Sequence[PowerSample], limit: float, idle: float) -> dict[str, Floats]:
    """The relative errors of each model's power by a fit to the other models."""
    errors = {}
    for model in sorted({each.model for each in found}):
        draw = fit_draw([each for each in found if each.model != model], limit, idle)
        own = [each for each in found if each.model == model]
        errors[model] = np.array([watts(each, draw, limit) / each.watts - 1 for each in own])
    return errors


def _told(errors: Floats) -> str:
    size = np.abs(errors)
    return (
        f"median {np.median(size):.1%}, nine of ten within {np.percentile(size, 90):.1%}, "
        f"bias {np.median(errors):+.1%} ({len(errors)} runs)"
    )


def main(tables: Sequence[str]) -> None:
    """Print the fit to each GPU of ``tables``."""
    found = samples([row for table in tables for row in read_table(Path(table))])
    for gpu in sorted({each.gpu for each in found}):
        own = [each for each in found if each.gpu == gpu]
        spec = catalog.gpu(gpu)
        limit, idle = spec.power, spec.power_draw.idle
        draw = fit_draw(own, limit, idle)
        fitted = np.array([watts(each, draw, limit) / each.watts - 1 for each in own])
        print(
            f"{gpu}: working {draw.working:.0f} W, waiting {draw.waiting:.0f} W, "
            f"byte {draw.byte * 1e12:.0f} pJ, kv_byte {draw.kv_byte * 1e12:.0f} pJ, "
            f"flop {draw.flop * 1e12:.2f} pJ"
        )
        print(f"  fitted to all: {_told(fitted)}")
        errors = left_out(own, limit, idle)
        print(f"  model left out: {_told(np.concatenate(list(errors.values())))}")
        for model, each in errors.items():
            print(f"    {model}: {_told(each)}")


if __name__ == "__main__":
    main(sys.argv[1:])
