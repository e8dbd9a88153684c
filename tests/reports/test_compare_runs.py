"""One run of each variant of a comparison, on the same axes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from reports.figures import overlaid
from reports.pages.planning.compare_runs import (
    MOST_SPANS,
    Runs,
    differing,
    drawn_variants,
    longer_tpots,
    section,
    slot_plots,
    slot_shares_of,
    slot_views,
)
from reports.pages.planning.compare_runs import overlays as overlays_of
from reports.pages.planning.findings import render
from sim.planning.answers.compare import MOST_DRAWN, chosen
from tests import made_up
from tests.page_kinds import compared_runs


def rendered(runs: Runs) -> str:
    made = made_up.comparison()
    return render("compare", made, section(made, runs))


def _document(means: list[float | None]) -> dict[str, Any]:
    made = made_up.comparison()
    (entry,) = (each for each in made["figures"] if each["key"] == "p99_ttft_ms")
    variant = made["variants"][0]
    return {
        **made,
        "variants": [{**variant, "error": "no" if m is None else None} for m in means],
        "figures": [{**entry, "means": means}],
    }


@pytest.mark.parametrize(
    ("means", "base", "wanted"),
    [
        ([9.0, 8.0, 7.0], 0, [0, 1, 2]),
        ([9.0, 1.0, 2.0, 8.0, 3.0, 7.0], 3, [1, 2, 3, 4]),
        ([None, 1.0, None, 8.0], None, [1, 3]),
        ([None], None, []),
    ],
)
def test_the_base_and_the_best_are_drawn(
    means: list[float | None], base: int | None, wanted: list[int]
) -> None:
    found = chosen({**_document(means), "base": base})
    assert found == wanted
    assert len(found) <= MOST_DRAWN


def test_slots_of_all_variants_have_one_time_axis() -> None:
    shown = drawn_variants(made_up.comparison(), compared_runs())
    alone = [slot_plots(slot_views([each])) for each in shown]
    spans = [_range(plots[0]) for plots in alone]
    ranges = {_range(plot) for plot in slot_plots(slot_views(shown))}
    assert len(slot_plots(slot_views(shown))) == 3
    ((start, end),) = ranges
    lengths = [until - since for since, until in spans]
    assert end - start == pytest.approx(min(max(lengths), MOST_SPANS * min(lengths)))


def _range(drawing: Any) -> tuple[float, float]:
    start, end = drawing.data.layout.xaxis.range
    return start, end


def test_lines_end_where_the_requests_do() -> None:
    runs = compared_runs()
    shown = drawn_variants(made_up.comparison(), runs)
    figure = overlaid.distributions(shown, "ttft", 0.5)
    assert figure is not None
    for trace, run in zip(figure.data, runs.values(), strict=True):
        counted = run.requests[(run.requests["status"] == "completed") & ~run.requests["warmup"]]
        assert trace.x[-1] == counted["ttft_s"].max()
        assert trace.y[-1] == 1
    running = overlaid.levels(shown, "running")
    assert running is not None
    assert all(trace.y[-1] == 0 for trace in running.data)
    assert len({trace.line.color for trace in figure.data}) == 3


def test_runs_that_served_nothing_are_left_out() -> None:
    empty = {i: dataclasses.replace(run, requests=run.requests.iloc[:0],
             timeseries=run.timeseries.iloc[:0]) for i, run in compared_runs().items()}  # fmt: skip
    shown = drawn_variants(made_up.comparison(), empty)
    assert slot_plots(slot_views(shown)) == []
    assert overlays_of(shown, empty) == []
    assert "No run has served a request" in rendered(empty)


def test_what_differs_is_listed_and_nothing_else() -> None:
    texts = (
        "name: a\nfleet:\n- {gpu: x, replicas: 1}\nslo: null\n",
        "name: b\nfleet:\n- {gpu: y, replicas: 1}\nslo: null\n",
    )
    run = compared_runs()[0]
    runs = {i: dataclasses.replace(run, scenario_yaml=text) for i, text in enumerate(texts)}
    table = differing(made_up.comparison(), runs)
    assert table is not None
    assert [[cell.text for cell in row] for row in table.rows] == [["fleet.0.gpu", "x", "y"]]
    assert differing(made_up.comparison(), {0: run, 1: run}) is None


def test_without_runs_there_is_no_section_of_them() -> None:
    assert 'id="runs"' not in rendered({})
    assert 'id="runs"' in rendered(compared_runs())


def _paced(label: str, tpot: float, batch: int, plans: list[tuple[int, float, int]]) -> Any:
    """A variant that decodes in plans of (iterations, seconds of each, prompt tokens)."""
    ends = np.cumsum([count * each for count, each, _ in plans])
    timeseries = pd.DataFrame(
        {
            "start_s": [0.0, *ends[:-1]],
            "end_s": ends,
            "iterations": [count for count, _, _ in plans],
            "decode_seqs": batch,
            "prefill_tokens": [tokens for _, _, tokens in plans],
        }
    )
    first = drawn_variants(made_up.comparison(), compared_runs())[0]
    requests = pd.DataFrame({"tpot_s": [tpot, np.nan]})
    return first._replace(label=label, batching=label, requests=requests, timeseries=timeseries)


def test_a_longer_tpot_has_fuller_batches_and_prefills_between_steps_for_reasons() -> None:
    mine = _paced("continuous", 0.025, 50, [(60, 0.019, 0), (40, 0.034, 256)])
    other = _paced("request", 0.016, 10, [(100, 0.0125, 0)])
    (told,) = longer_tpots([other, mine])
    assert told == (
        "TPOT of continuous is 25 ms instead of 16 ms (request): its batches are fuller: 50 "
        "requests decode at once instead of 10, and one of their steps takes 19 ms instead of 12.5 "
        "ms; prefills join between decode steps: 40% of its iterations prefill too, and take 34 ms."
    )
    as_full = _paced("request", 0.016, 60, [(100, 0.020, 0)])
    (told,) = longer_tpots([as_full, mine])
    assert "fuller" not in told
    assert not list(longer_tpots([_paced("static", 0.0249, 10, [(100, 0.0125, 0)]), mine]))


def test_the_shares_of_slots_are_those_that_are_drawn() -> None:
    shown = drawn_variants(made_up.comparison(), compared_runs())
    views = slot_views(shown)
    (drawn,) = slot_shares_of(views)
    figure: Any = drawn.data
    assert np.sum([trace.x for trace in figure.data], axis=0) == pytest.approx([100.0] * 3)
    assert slot_shares_of(views[:1]) == []
