"""How far to trust this: the page says how many measurements lay in their bands, and which not."""

from __future__ import annotations

import numpy as np

from reports.figures import score_bands
from reports.figures.score_bands import Held
from reports.pages.trust import held, render_trust
from tests.made_up_verdicts import scores


def test_rows_are_counted_in_their_bands() -> None:
    rows = [row for row in scores()["rows"] if row["band90"] is not None]
    found = held("all", rows)
    inside = [number for number in range(40) if number % 8 != 7]
    near = [number for number in inside if 0.95 <= 0.9 + 0.005 * number <= 1.05]
    assert found == Held("all", 40, len(near), len(inside))


def test_the_page_names_shares_and_what_was_outside() -> None:
    page = render_trust(scores())
    assert "88\u202f% of the measurements lay in their 90\u202f% band" in page
    assert "made_up.csv:9" in page  # number 7
    table = page[page.index('id="table-worst"') :]
    assert table.count("made_up.csv:") == 5


def test_measurements_are_sorted_and_coloured_by_where_they_lay() -> None:
    rows = [row for row in scores()["rows"] if row["band90"] is not None]
    drawn = {trace.name: trace for trace in score_bands.ratios(rows).data}
    assert len(drawn["outside"].x) == 5
    assert set(drawn["outside"].y) == {3.0}
    assert list(drawn["in the band"].y) == sorted(drawn["in the band"].y)


def test_a_share_has_the_interval_that_its_number_allows() -> None:
    trace = score_bands.coverage([Held("few", 10, 5, 9), Held("many", 1000, 500, 900)]).data[1]
    assert list(trace.x) == [0.9, 0.9]
    assert trace.error_x.arrayminus[0] > 5 * trace.error_x.arrayminus[1]


def test_the_shares_of_both_bands_differ_by_shape_too() -> None:
    half, ninety = score_bands.coverage([Held("few", 10, 5, 9)]).data
    assert set(half.marker.symbol).isdisjoint(ninety.marker.symbol)


def test_the_summary_has_the_errors_of_each_quantity() -> None:
    page = render_trust(scores())
    table = page[page.index('id="table-quantities"') : page.index('id="table-advice"')]
    rows = [row for row in scores()["rows"] if row["quantity"] == "ttft"]
    middle = float(np.median([abs(row["error"]) for row in rows]))
    assert f'data-value="{middle!r}"' in table
    assert table.count("<tr>") == 3  # a head, TTFT and TPOT


def test_what_predictions_are_good_for_is_said_by_engine_gpu_and_kind() -> None:
    page = render_trust(scores())
    table = page[page.index('id="table-advice"') :]
    assert table.count("good to plan with") == 1
    assert "vllm, h100-sxm" in table
    assert "TTFT, closed loop" in table
    assert "-3\u202f%" in table.partition("closed loop")[2]
