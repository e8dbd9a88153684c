"""Colours of one drawing can be told apart, by readers without green receptors too."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from reports.figures.mean_parts import TITLES
from reports.frame import theme

DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)
"""Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB."""

XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])

APART = 9.0
"""Distance in CIELAB; neighbours in one bar differ by several times what is just noticeable (2)."""


def lab(colour: str) -> NDArray[np.float64]:
    """The colour in CIELAB, as a reader with deuteranopia sees it."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x = XYZ @ np.clip(DEUTERANOPIA @ linear, 0, 1) / WHITE
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("side", ["light", "dark"])
@pytest.mark.parametrize("tones", [theme.BOUNDS, theme.LATENCY_PARTS, theme.PHASES])
def test_parts_of_one_drawing_can_be_told_apart(tones: Mapping[str, theme.Tone], side: str) -> None:
    for (one, a), (other, b) in combinations(tones.items(), 2):
        distance = np.linalg.norm(lab(getattr(a, side)) - lab(getattr(b, side)))
        assert distance > APART, f"{one} and {other} look alike"


def test_what_waits_is_grey_prompts_are_orange_and_output_is_blue_everywhere() -> None:
    assert theme.METRICS["waiting"] == theme.METRICS["queue"] == theme.GREY
    for prompt in (theme.PHASES["prefill"], theme.METRICS["prompt_tokens"]):
        assert prompt == theme.LATENCY_PARTS["prefill"] == theme.ORANGE
    for output in (theme.PHASES["decode"], theme.METRICS["output_tokens"]):
        assert output == theme.LATENCY_PARTS["decode"] == theme.BLUE
    assert set(TITLES) == set(theme.LATENCY_PARTS), "diagnose draws the parts of the run page"
