"""Variants that are called by numbers: in the drawn charts each has its own name next to it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests import made_up
from tests.answers import render_compare
from tests.browser import Drive, needs_browser, with_figures

MEANS: Mapping[str, tuple[float, ...]] = {
    "p99_tpot_ms": (19.1, 11.6, 9.3),
    "output_throughput": (905.0, 1310.0, 900.0),
}

ROWS = """
const middle = (node) => {
  const box = node.getBoundingClientRect();
  return box.top + box.height / 2;
};
const plot = [...document.querySelectorAll('.plot')].find((each) => each.dataset.drawn === 'yes');
const ticks = [...plot.querySelectorAll('.ytick text')];
const named = (at) => ticks.map((tick) => [Math.abs(middle(tick) - at), tick.textContent.trim()])
  .sort((one, other) => one[0] - other[0])[0];
const bars = [...plot.querySelectorAll('.bars .point')];
return {
  rows: bars.map((bar) => [...named(middle(bar.querySelector('path'))), bar.textContent.trim()]),
  ticks: ticks.map((tick) => tick.textContent.trim()),
};
"""
"""The pixels from each bar to the closest label, that label, and the value at the bar."""


def _called(names: tuple[float, ...], key: str) -> dict[str, Any]:
    document = made_up.comparison()
    document["axes"] = [{"key": "run.share", "name": "share", "values": list(names)}]
    for variant, value in zip(document["variants"], names, strict=True):
        variant |= {"label": f"{value:g}", "settings": {"run.share": value}}
    for entry in document["figures"]:
        if entry["key"] == key:
            entry["means"] = list(MEANS[key])
    return document


@needs_browser
@pytest.mark.parametrize("names", [(1, 2, 4), (0.05, 0.3, 1), (0, 1, 2), (2, 1, 0)], ids=str)
@pytest.mark.parametrize("key", MEANS)
def test_each_bar_has_its_own_name(names: tuple[float, ...], key: str, drive: Drive) -> None:
    html = render_compare(_called(names, key))
    found = drive(with_figures(html, f"mean-{key}"), ROWS)
    assert sorted(found["ticks"]) == sorted(f"{name:g}" for name in names)
    shown = {name: text for away, name, text in found["rows"] if away < 3}
    assert shown.keys() == {f"{name:g}" for name in names}
    for name, mean in zip(names, MEANS[key], strict=True):
        assert shown[f"{name:g}"].startswith(f"{mean:,.4g}"), shown
