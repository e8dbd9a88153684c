"""Each profile of the catalogue has a sample of what it was fitted to, which it predicts as well as
its errors say."""

from __future__ import annotations

import gzip

import numpy as np
import pytest

from calibrate.importers.aiconfigurator.samples import COUNT, thinned
from calibrate.inspection.document import document, points
from calibrate.inspection.find import SAMPLES, find
from calibrate.inspection.measured import read
from reports.pages.profile.page import render_profile
from sim import catalog

PROFILES = [
    f"{gpu}.{framework}"
    for gpu in catalog.names("gpus")
    for framework in catalog.frameworks(gpu)
    if framework != "aiter"  # of whose timings none are kept here
]


def test_every_profile_has_a_sample_and_every_sample_a_profile() -> None:
    there = sorted(path.name.removesuffix(".csv.gz") for path in SAMPLES.glob("*.csv.gz"))
    assert there == sorted(PROFILES)
    assert "Apache License 2.0" in (SAMPLES / "NOTICE").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["h100-sxm.vllm", "b200-sxm.trtllm", "l40s.sglang"])
def test_what_is_drawn_is_as_far_off_as_the_profile_says(name: str) -> None:
    found = find(name)
    assert found.measurements is not None
    drawn = points(found, read(found.measurements))
    for operator, fits in found.profile.kernels.items():
        for precision, fit in fits.items():
            mine = [
                abs(predicted / measured - 1)
                for own, kind, predicted, measured in zip(
                    *(drawn[key] for key in ("operator", "precision", "predicted", "measured")),
                    strict=True,
                )
                if (own, kind) == (operator, precision)
            ]
            if mine:
                # of the fit that has seen them; the profile states that of shapes not seen
                assert np.median(mine) < 1.3 * fit.holdout.median + 0.005, (operator, precision)


def test_the_page_says_that_its_points_are_a_sample() -> None:
    found = find("h100-sxm")
    assert found.measurements is not None
    measured = read(found.measurements)
    page = render_profile(document(found, measured), points(found, measured))
    assert 'id="figure-predicted-gemm"' in page
    assert "a sample of" in page
    assert "Final fit" not in page.partition('id="table-errors"')[2].partition("</table>")[0]
    other = document(found._replace(measurements=None), measured)
    assert other["measurements"]["sampled"] is False, "the tables of somebody else"


def test_a_sample_spans_all_times() -> None:
    seconds = np.random.default_rng(1).lognormal(size=10_000)
    kept = thinned(seconds)
    assert len(kept) == COUNT
    assert {int(seconds.argmin()), int(seconds.argmax())} <= set(kept)
    text = gzip.decompress((SAMPLES / "h100-sxm.vllm.csv.gz").read_bytes()).decode()
    assert text.count("gemm,bf16") == COUNT
