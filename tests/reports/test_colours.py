"""Colours of one drawing can be told apart, by readers without green receptors too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from reports.figures.series import BATCHING, styles
from reports.frame import theme
from sim.planning.answers.diagnose import PARTS

DEUTERANOPIA = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
)
"""Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB."""

XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])

PARTS_OF_KV = ("shared", "used", "wasted", "cached", "free")

APART = 9.0
"""Distance in CIELAB; neighbours in one bar differ by several times what is just noticeable (2)."""


def lab(colour: str) -> NDArray[np.float64]:
    """The colour in CIELAB, as a reader with deuteranopia sees it."""
    parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    x = XYZ @ np.clip(DEUTERANOPIA @ linear, 0, 1) / WHITE
    f = np.where(x > 0.008856, np.cbrt(x), 7.787 * x + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def _chosen(tones: Mapping[str, theme.Tone], *names: str) -> dict[str, theme.Tone]:
    return {name: tones[name] for name in names}


def _numbered(tones: Sequence[theme.Tone]) -> dict[str, theme.Tone]:
    return {str(place): tone for place, tone in enumerate(tones)}


TOGETHER: Mapping[str, Mapping[str, theme.Tone]] = {
    "what bounds operators": theme.BOUNDS,
    "parts of latency": theme.LATENCY_PARTS,
    "phases in slots": theme.PHASES,
    "batching policies": {**theme.POLICIES, "other": theme.OTHER_POLICY},
    "kinds of iterations": theme.ITERATIONS,
    "operators of a profile": theme.OPERATORS,
    "precisions of a profile": theme.PRECISIONS,
    "regimes of iterations": _numbered(theme.REGIMES),
    "observed and predicted": theme.SIDES,
    "lines without a colour of their own": _numbered(theme.SERIES),
    "GPUs of a plan": _numbered(theme.GPUS),
    "the KV cache": _chosen(theme.MEMORY, *(f"kv_{n}" for n in PARTS_OF_KV)),
    "latencies of a page": _chosen(theme.METRICS, "ttft", "tpot", "itl", "e2el", "queue"),
    "requests over time": _chosen(theme.METRICS, "arrivals", "completions"),
    "requests that run and wait": _chosen(theme.METRICS, "running", "waiting"),
    "KV cache over time": _chosen(theme.METRICS, "kv_used", "kv_reserved"),
    "tokens over time": _chosen(theme.METRICS, "prompt_tokens", "output_tokens"),
    "fleets of a plan": {"first": theme.RAMP[2], "others": theme.PHASES["queue"]},
}
"""Colours that stand in one figure, where nothing else says what is what."""


@pytest.mark.parametrize("side", ["light", "dark"])
@pytest.mark.parametrize("figure", list(TOGETHER))
def test_parts_of_one_drawing_can_be_told_apart(figure: str, side: str) -> None:
    for (one, a), (other, b) in combinations(TOGETHER[figure].items(), 2):
        distance = np.linalg.norm(lab(getattr(a, side)) - lab(getattr(b, side)))
        assert distance > APART, f"{one} and {other} look alike: {distance:.1f}"


def test_lines_of_batching_policies_are_told_apart_without_any_colour() -> None:
    names = [*theme.POLICIES, "mine:Own"]
    dashes = [each.dash for each in styles([{BATCHING: name} for name in names])]
    assert len(set(dashes[:-1])) == len(theme.POLICIES)
    again = styles([{BATCHING: name, "slots": n} for name in names[:2] for n in (1, 2)])
    assert len({(each.color, each.dash) for each in again}) == 4


@pytest.mark.parametrize("side", ["light", "dark"])
def test_a_ramp_only_darkens_or_only_lightens(side: str) -> None:
    levels = [float(lab(getattr(tone, side))[0]) for tone in theme.RAMP]
    steps = np.diff(levels)
    assert (np.abs(steps) > 5).all(), "neighbours differ in lightness alone"
    assert len(set(np.sign(steps))) == 1


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2, 1 to 21."""

    def luminance(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ XYZ[1])

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("side", ["light", "dark"])
def test_words_and_lines_stand_out_from_what_is_behind_them(side: str) -> None:
    page = {name: getattr(tone, side) for name, tone in theme.PAGE.items()}
    for name in ("ink", "muted", "link", "good", "warn", "bad", "neutral"):
        for behind in ("surface", "panel", *([f"{name}-soft"] if f"{name}-soft" in page else [])):
            assert contrast(page[name], page[behind]) >= 4.5, (name, behind)
    lines = [*theme.METRICS.values(), *theme.SERIES, *theme.POLICIES.values()]
    for tone in [*lines, *theme.OPERATORS.values(), *theme.PRECISIONS.values()]:
        assert contrast(getattr(tone, side), page["surface"]) >= 3
    for bar in (theme.RAMP[2], theme.PHASES["queue"]):  # whiskers and prices on the bars of a plan
        assert contrast(page["ink"], getattr(bar, side)) >= 3


def test_what_waits_is_grey_prompts_are_orange_and_output_is_blue_everywhere() -> None:
    assert theme.METRICS["waiting"] == theme.METRICS["queue"] == theme.GREY
    for prompt in (theme.PHASES["prefill"], theme.METRICS["prompt_tokens"]):
        assert prompt == theme.LATENCY_PARTS["prefill"] == theme.ORANGE
    for output in (theme.PHASES["decode"], theme.METRICS["output_tokens"]):
        assert output == theme.LATENCY_PARTS["decode"] == theme.BLUE
    assert set(PARTS) == set(theme.LATENCY_PARTS), "diagnose draws the parts of the run page"
