"""What was measured on a GPU: the shipped profile, which has not seen it, and the profile fitted to
it."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.inspection import measured
from calibrate.inspection.find import find
from calibrate.inspection.kernels import Kernel, kernels
from tests.places import ROOT

FOLDER = ROOT / "calibrate" / "measured"


@pytest.fixture(scope="module")
def timings() -> measured.Measured:
    return measured.read(FOLDER / "h200-sxm.csv.gz")


def errors(profile: str, timings: measured.Measured) -> dict[tuple[str, str], Kernel]:
    return {(found.operator, found.precision): found for found in kernels(find(profile), timings)}


def off(kernel: Kernel) -> float:
    """Median of the error's size."""
    assert kernel.points is not None
    assert kernel.predicted is not None
    return float(np.median(np.abs(kernel.predicted / kernel.points.seconds - 1)))


def test_published_timings_predict_products_that_were_measured_elsewhere(
    timings: measured.Measured,
) -> None:
    """2,175 products of 16 bits; the README beside them says 4.5 %."""
    found = errors("h200-sxm", timings)["gemm", "bf16"]
    assert found.points is not None
    assert len(found.points) == 2175
    assert off(found) == pytest.approx(0.045, abs=0.001)


def test_the_profile_beside_the_timings_is_fitted_to_them(timings: measured.Measured) -> None:
    found = errors(str(FOLDER / "h200-sxm.yaml"), timings)
    assert off(found["gemm", "bf16"]) < 0.035
    assert off(found["gemm", "fp8"]) < 0.035
    assert off(found["moe", "bf16"]) < 0.06


def test_the_report_of_the_profile_finds_its_measurements() -> None:
    assert find(str(FOLDER / "h200-sxm.yaml")).measurements == FOLDER / "h200-sxm.csv.gz"
