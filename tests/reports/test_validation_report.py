"""The page of a validation in a real browser, and what it must never do."""

from __future__ import annotations

import re
from html import unescape

import pandas as pd
import pytest

from calibrate.validation.document import Validation
from calibrate.validation.engine_file import engine_document, write_engine
from calibrate.validation.engine_fit import fit_engine
from calibrate.validation.observed import read_observed
from calibrate.validation.prediction import Variant, question
from calibrate.validation.series import series
from reports.figures.validated import MOST_POINTS, LatencySample, by_regime, latencies
from reports.frame import theme
from reports.frame.run_directory import Frames
from reports.pages.validation.page import SECTIONS, render_validation
from tests.browser import needs_browser
from tests.observed_fixtures import observe, write_scenario
from tests.reports.test_report import Reader, colours

HOSTILE = "<script>alert(1)</script><b>'\"&"


def validated(folder, truth=None, changes=None, *, iterations=True):
    directory = observe(
        write_scenario(folder, changes),
        folder / "observed",
        truth or Variant(per_iteration=3e-3),
        noise=0.02,
    )
    if not iterations:
        (directory / "iterations.csv").unlink()
    run = read_observed(directory)
    return Validation(run, [], question(run, None, [], None))


def page_of(validation, **changes):
    run, result = validation.run, validation.predicted.result
    observed = Frames(run.requests, changes.pop("timeseries", run.timeseries))
    predicted = Frames(result.requests, result.timeseries)
    return render_validation(validation.document | changes, observed, predicted, series(validation))


@needs_browser
def test_every_figure_draws_offline(tmp_path, show):
    opened = show(page_of(validated(tmp_path)))
    assert opened.complaints == []
    assert opened.drawn == [
        *("errors", "cdf-ttft", "cdf-tpot", "cdf-itl", "cdf-e2el", "timelines"),
        *("against", "over-time"),
    ]
    for name in SECTIONS:
        opened.section(name)
    assert "predicted / observed" in opened.section("iterations")
    assert "mixed" in opened.section("iterations")
    assert "TPOT (ms)" in opened.section("latency")
    assert "tokens/s" in opened.section("timeline")
    assert "per_iteration" in opened.section("advice")
    assert "confidence: high" in opened.section("advice")
    assert "All 392 iterations" in opened.section("batches")
    summary = opened.section("summary")
    assert re.search(r"\d+ of 24 metrics are within their predicted bands; worst:", summary)
    assert "no ✗" in opened.section("figures")
    assert "Noise" not in opened.section("figures")
    assert "In sample" not in opened.dom.split('id="definitions"')[0]


@needs_browser
def test_without_iterations_the_page_says_so(tmp_path, show):
    validation = validated(tmp_path, iterations=False)
    empty = validation.run.timeseries.iloc[:0]
    opened = show(page_of(validation, timeseries=empty))
    assert opened.complaints == []
    assert opened.drawn == ["errors", "cdf-ttft", "cdf-tpot", "cdf-e2el"]  # no gaps, no ITL
    assert "Not in this record" in opened.section("provenance")
    assert "timeline, iterations" in opened.section("provenance")
    for name in ("timeline", "iterations"):
        assert f'id="{name}"' not in opened.dom


@needs_browser
def test_hostile_names_are_text_in_the_dark(tmp_path, show):
    validation = validated(tmp_path)
    seen = validation.document["observed"] | {"name": HOSTILE, "engine": HOSTILE, "device": HOSTILE}
    asked = validation.document["predicted"] | {"gpu": HOSTILE, "provenance": HOSTILE}
    html = page_of(
        validation, observed=seen, predicted=asked, notes=[HOSTILE], repeats=[HOSTILE]
    ).replace('<html lang="en">', '<html lang="en" data-theme="dark">')
    assert HOSTILE not in html
    opened = show(html)
    assert opened.complaints == []
    assert len(opened.drawn) == 8
    assert unescape(opened.dom).count(HOSTILE) >= 7
    assert not re.search(r"<script>\s*alert", opened.dom)


def test_a_run_that_was_fitted_to_is_called_so(tmp_path):
    validation = validated(tmp_path)
    run = validation.run
    document = engine_document(fit_engine([(run, validation.asked)]), [run], "x", pd.Timestamp(0))
    write_engine(tmp_path / "e.yaml", document)
    asked = question(run, None, [f"engine={tmp_path / 'e.yaml'}"], None)
    text = Reader(page_of(Validation(run, [], asked))).text
    assert "In sample." in text
    assert "fitted to this very run" in text


def test_one_copy_of_the_library_nothing_fetched_and_only_our_colours(tmp_path):
    html = page_of(validated(tmp_path))
    reader = Reader(html)
    assert html.count('id="plotly-js"') == 1
    assert len(html) < 4e6
    assert not [tag for tag, attributes in reader.tags if "src" in attributes]
    specs = {name: spec for name, spec in reader.json.items() if name.startswith("spec-")}
    assert len(specs) == 8
    known = {*theme.dark_twins(), "rgba(0, 0, 0, 0)"}
    for name, spec in specs.items():
        assert colours(spec) <= known, name


def test_a_long_run_is_thinned():
    count = 40 * MOST_POINTS
    columns = {
        "start": list(range(count)),
        "observed": [0.0, *[1.0] * (count - 1)],
        "predicted": [2.0] * count,
        "regime": ["a", "b"] * (count // 2),
        "regimes": ["a", "b", "c"],
    }
    found = by_regime(columns)
    assert [name for name, _, _ in found] == ["a", "b"]
    assert all(len(own["start"]) <= MOST_POINTS for _, _, own in found)
    assert 0 not in found[0][2]["observed"]


def test_a_weighted_sample_is_drawn_as_often_as_it_was_seen():
    sample = LatencySample(
        pd.Series([1.0, 2.0, 3.0]).to_numpy(), pd.Series([1.0, 8.0, 1.0]).to_numpy()
    )
    assert sample.median() == 2.0
    drawn = latencies("ITL", sample, LatencySample(sample.values[:0]))
    (curve,) = drawn.data
    assert list(curve.y) == pytest.approx([0, 0.1, 0.9, 1.0], abs=1e-6)
    assert drawn.layout.xaxis.title.text == "ITL (ms)"
