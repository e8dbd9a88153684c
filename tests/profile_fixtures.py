"""A small made-up profile with measurements: forms at their start, and times near them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.inspection.measured import NEEDED
from sim import catalog
from sim.catalog.profile_file import to_document, to_yaml
from sim.cost.kernels.choice import choose
from sim.specs.profile import KernelFit, Profile, Score

GPU = catalog.gpu("h100-sxm")
HARDWARE = {
    "title": "Made-up GPU",
    "memory": "80GB",
    "bandwidth": f"{GPU.bandwidth}B/s",
    "peak_flops": {"bf16": f"{GPU.flops('bf16')}FLOP/s", "fp8": f"{GPU.flops('fp8')}FLOP/s"},
    "sms": GPU.sms,
    "link": {"kind": "nvlink", "bandwidth": "450GB/s", "latency": "5us"},
}
HEADS = (
    {"q_heads": 32, "kv_heads": 8, "head_dim": 128},
    {"q_heads": 8, "kv_heads": 8, "head_dim": 64},
)

RANGES: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "gemm": {"m": (1, 4096), "n": (1024, 28672), "k": (1024, 14336)},
    "decode_attention": {
        **{"batch": (1, 64), "context": (64, 32768), "skew": (1, 1)},
        **{"q_heads": (8, 32), "kv_heads": (8, 8), "head_dim": (64, 128)},
    },
    "prefill_attention": {
        **{"batch": (1, 4), "tokens": (32, 4096), "context": (0, 4096)},
        **{"q_heads": (8, 32), "kv_heads": (8, 8), "head_dim": (64, 128)},
    },
    "all_reduce": {"bytes": (1024, 2**26), "gpus": (2, 8)},
    "stream": {"bytes": (4096, 2**28)},
}  # fmt: skip


def fit_of(operator: str, precision: str = "bf16", **changed: float) -> KernelFit:
    """A fit with every parameter at the start of its search, but for those ``changed``."""
    choice = choose(operator, precision, GPU)
    assert choice is not None
    parameters = {spec.name: spec.start for spec in choice.form.parameters} | changed
    intervals = {name: (0.9 * value, 1.1 * value) for name, value in parameters.items()}
    first, second = choice.form.parameters[:2]
    intervals[first.name] = (first.low, first.high)
    intervals[second.name] = (second.start, second.start)
    names = {"gemm": ("17 to 128 rows", "1 to 16 rows"), "stream": ("from 32 MB", "below 1 MB")}
    return KernelFit(
        parameters=parameters,
        ranges=RANGES[operator],
        holdout=Score(0.034, 0.12, -0.011, 96),
        intervals=intervals,
        regimes={name: Score(0.05, 0.1, 0.02, 20) for name in names.get(operator, ())},
        kernel=f"{operator}_kernel",
    )


def profile_of(**kernels: Mapping[str, KernelFit]) -> Profile:
    """A profile of these kernels, or else of all operators in bf16 and of products in fp8."""
    found: dict[str, Mapping[str, KernelFit]] = {name: {"bf16": fit_of(name)} for name in RANGES}
    found["gemm"] = {"bf16": fit_of("gemm"), "fp8": fit_of("gemm", "fp8")}
    facts = {"device": "Made-up GPU", "driver": "570.1"}
    return Profile("Made up for a test", "2026-01-02", facts, kernels or found)


def write_gpu(path: Path, profile: Profile, **hardware: object) -> Path:
    """A GPU file with that profile."""
    path.write_text(to_yaml({**HARDWARE, **hardware, "profile": to_document(profile)}))
    return path


def rows_of(profile: Profile) -> list[dict[str, Any]]:
    """Measurements within a few percent of what the profile predicts, and some that failed."""
    shapes: dict[str, list[dict[str, float]]] = {
        "gemm": [
            {"m": m, "n": n, "k": 4096} for m, n in product((1, 16, 256, 4096), (4096, 28672))
        ],
        "decode_attention": [
            {"batch": batch, "context": context, "skew": 1, **heads}
            for batch, context, heads in product((1, 32), (64, 1024, 16384), HEADS)
        ],
        "prefill_attention": [
            {"batch": 1, "tokens": tokens, "context": past, **HEADS[0]}
            for tokens, past in product((32, 512, 4096), (0, 4096))
        ],
        "all_reduce": [{"bytes": 4.0**e, "gpus": 4} for e in range(5, 13)],
        "stream": [{"bytes": 4.0**e} for e in range(6, 14)],
    }
    noise = np.random.default_rng(7)
    rows = []
    for operator, fits in profile.kernels.items():
        for precision, fit in fits.items():
            choice = choose(operator, precision, GPU, fit.form)
            assert choice is not None
            for shape in shapes[operator]:
                columns = {name: np.array(float(value)) for name, value in shape.items()}
                predicted = float(choice.form.predict(fit, columns, choice.ceilings))
                seconds = predicted * float(np.exp(noise.normal(0, 0.04)))
                rows.append(row(operator, precision, seconds, **shape))
    rows[1] |= {"status": "noisy"}
    rows.append(row("gemm", "bf16", None, m=1, n=2, k=3) | {"status": "out-of-memory"})
    rows.append(row("launch", "bf16", 4e-6, bytes=2048))
    rows.append(row("gemm", "bf16", 9.0, m=1, n=4096, k=4096) | {"purpose": "again"})
    return rows


def row(
    operator: str, precision: str, seconds: float | str | None, **shape: float | str
) -> dict[str, Any]:
    """One line of a table of measurements."""
    line: dict[str, Any] = dict.fromkeys((*NEEDED, "purpose"), "")
    line |= {"operator": operator, "precision": precision, "kernel": f"{operator}_kernel"}
    line |= {"status": "ok", **shape}
    if seconds is not None:
        line |= {"seconds": seconds, "low": seconds, "high": seconds}
    return line


def write_table(path: Path, rows: list[dict[str, Any]], **meta: Any) -> Path:
    """A table of measurements, and what is said of it in the file beside it."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, (*NEEDED, "purpose"))
        writer.writeheader()
        writer.writerows(rows)
    path.with_name(path.name + ".meta.json").write_text(json.dumps(meta))
    return path


def made_up_profile(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What ``infersim calibrate report`` gathers of a profile and its measurements, which are
    written into ``folder``: the document and the points."""
    from calibrate.inspection.document import document, points
    from calibrate.inspection.find import find
    from calibrate.inspection.measured import read

    found = find(str(write_gpu(folder / "gpu.yaml", profile_of())))
    measured = read(write_table(folder / "gpu.csv", rows_of(profile_of())))
    return document(found, measured), points(found, measured)
