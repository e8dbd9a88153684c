"""Provides the colours and typefaces of all pages and figures, in light and in dark.

Colours are the Okabe-Ito set (safe for the common colour-vision deficiencies), shifted a little so
that each has contrast against its background. Figures are always built in the light colours; the
page turns them dark by exchanging each light colour for its twin in ``dark_twins()``, so a figure
must take every colour from here and none from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sim.schedulers import POLICIES as BATCHINGS

FONT_STACK = (
    'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", Arial, sans-serif'
)
"""Fonts that the reader's system already has: nothing is fetched."""

MONO_STACK = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace'
"""Fonts of fixed width that the reader's system already has."""


class Tone(NamedTuple):
    """One colour as ``#rrggbb``, for a light and for a dark background."""

    light: str
    dark: str


BLUE = Tone("#0072b2", "#5ab4ec")
VERMILLION = Tone("#d55e00", "#f58a4b")
GREEN = Tone("#008a64", "#34c79d")
ORANGE = Tone("#c98500", "#efb548")
PURPLE = Tone("#b0558a", "#df9dc5")
SKY = Tone("#3b93cc", "#8fd0fb")
GREY = Tone("#76808c", "#98a2ae")
RUST = Tone("#9c3f00", "#c8501c")
PLUM = Tone("#6f2455", "#c64f9b")
"""Darker than vermillion and purple, which some readers cannot tell from orange and grey."""
NAVY = Tone("#002f52", "#d6eefd")

POLICIES: Mapping[str, Tone] = dict(zip(BATCHINGS, (ORANGE, PURPLE, BLUE), strict=False))
"""Batching policy -> its colour, the same on every page, in the order of the registry; ``policy``
covers all further ones."""

METRICS: Mapping[str, Tone] = {
    "ttft": BLUE,
    "tpot": VERMILLION,
    "itl": SKY,
    "e2el": GREEN,
    "queue": GREY,
    "arrivals": GREY,
    "completions": BLUE,
    "running": BLUE,
    "waiting": GREY,
    "kv_used": GREEN,
    "kv_reserved": ORANGE,
    "output_tokens": BLUE,
    "prompt_tokens": ORANGE,
    "preemptions": RUST,
    "power": VERMILLION,
}
"""Metric -> its colour, the same on every page: what waits is grey, prompts are orange, output
blue, as in the phases of a request."""

BOUNDS: Mapping[str, Tone] = {
    "compute": RUST,
    "memory": BLUE,
    "latency": ORANGE,
    "communication": PLUM,
    "host": GREY,
}
"""Waits of an iteration -> colour."""

PHASES: Mapping[str, Tone] = {
    "queue": Tone("#c9d0d8", "#4b5560"),
    "prefill": ORANGE,
    "decode": BLUE,
    "stalled": Tone("#b9d7ec", "#35597a"),
    "preempted": RUST,
    "unknown": PURPLE,
    "padding": Tone("#8db9da", "#7aa3c4"),
    "held": Tone("#e9ebee", "#2e343b"),
}
"""Phases of a request -> colour."""

DECODE_NEXT = Tone("#2a8ac4", "#83c7f3")
"""Every second request that decodes in a slot."""

LATENCY_PARTS: Mapping[str, Tone] = {
    "front_end": GREY,
    "queue": PHASES["queue"],
    "prefill": ORANGE,
    "prefill_delay": Tone("#f2d9a6", "#8a6c30"),
    "prefill_preempted": RUST,
    "decode": BLUE,
    "decode_delay": PHASES["stalled"],
    "decode_preempted": PLUM,
    "transfer": GREEN,
}
"""Part of a request's latency -> its colour, as far as possible that of the slot chart."""

MEMORY: Mapping[str, Tone] = {
    "weights": BLUE,
    "activations": SKY,
    "reserve": GREY,
    "kv_shared": PLUM,
    "kv_used": GREEN,
    "kv_wasted": ORANGE,
    "kv_cached": SKY,
    "kv_free": Tone("#cdeadf", "#1d4437"),
    "outside": PHASES["queue"],
}
"""Contents of a GPU's memory -> colour."""

ITERATIONS: Mapping[str, Tone] = {"decode": BLUE, "mixed": PURPLE, "prefill": ORANGE}
"""Kind of iteration -> its colour."""

OPERATORS: Mapping[str, Tone] = {
    "gemm": BLUE,
    "decode_attention": RUST,
    "prefill_attention": GREEN,
    "all_reduce": PLUM,
    "stream": ORANGE,
    "memory": GREY,
    "quantise": SKY,
    "sampling": NAVY,
}
"""Operator of a profile -> its colour; ``operator`` covers the others."""

PRECISIONS: Mapping[str, Tone] = {
    "bf16": BLUE,
    "fp16": SKY,
    "fp32": GREEN,
    "fp8": RUST,
    "int8": ORANGE,
    "int8-weights": PURPLE,
}
"""Precision -> its colour; ``precision`` covers the others."""

SIDES: Mapping[str, Tone] = {"observed": BLUE, "predicted": VERMILLION}
"""Observed and predicted -> colour; ``side`` is the whole line."""

SERIES = (BLUE, VERMILLION, GREEN, PLUM)
"""Colours of lines that have no colour of their own."""

GPUS = (BLUE, RUST, GREEN, PLUM, ORANGE, NAVY)
"""Colours of GPUs that are compared."""

RAMP = (
    Tone("#9ccdec", "#2f5674"),
    Tone("#6fb3db", "#3b7196"),
    Tone("#4399cb", "#488cb9"),
    Tone("#167fba", "#54a7db"),
    Tone("#0068a4", "#6cbcee"),
    Tone("#005589", "#8fcdf3"),
    Tone("#00426d", "#b3ddf8"),
    NAVY,
)
"""Colours of lines whose values have an order, from the least to the most."""

REGIMES = (*(RAMP[place] for place in (0, 1, 2, 4, 6, 7)), ORANGE, PURPLE)
"""Colours of kinds of iterations: decodes from small batches to large ones, prompts, both."""

PAGE: Mapping[str, Tone] = {
    "surface": Tone("#ffffff", "#14171b"),
    "panel": Tone("#f6f7f9", "#1c2026"),
    "ink": Tone("#1b2026", "#e8ebef"),
    "muted": Tone("#5a6470", "#a3adb8"),
    "rule": Tone("#e0e4e9", "#313841"),
    "grid": Tone("#e8ebef", "#2a3038"),
    "link": Tone("#005f96", "#7cc4f2"),
    "good": Tone("#00704f", "#4fd1a9"),
    "good-soft": Tone("#e3f3ee", "#16302a"),
    "warn": Tone("#8a5a00", "#f2bf5e"),
    "warn-soft": Tone("#fbf1dc", "#362a13"),
    "bad": Tone("#b03a00", "#ff9a66"),
    "bad-soft": Tone("#fbe9e1", "#3b2116"),
    "neutral": Tone("#4a5561", "#b4bdc7"),
    "neutral-soft": Tone("#eef1f4", "#242a31"),
    "bar": Tone("#7fb2d6", "#3f7fac"),
}
"""Colours of the page itself, each a CSS variable of the same name."""

OTHER_POLICY = GREEN
"""Colour of a batching policy that has none of its own, such as a user's."""

_FAINT = {"light": 0.13, "dark": 0.20}


def policy(batching: str) -> Tone:
    """The colour of a batching policy; policies unknown here share one colour.

    >>> policy("static") == POLICIES["static"], policy("mine.module:Mine") == OTHER_POLICY
    (True, True)
    """
    return POLICIES.get(batching, OTHER_POLICY)


def operator(name: str) -> Tone:
    """The colour of an operator; operators unknown here share one colour."""
    return OPERATORS.get(name, GREY)


def precision(name: str) -> Tone:
    """The colour of a precision; precisions unknown here share one colour."""
    return PRECISIONS.get(name, GREY)


def side(name: str) -> dict[str, Any]:
    """The line of a side in Plotly's words: solid for what was observed, dashed for predictions."""
    dash = "solid" if name == "observed" else "dash"
    return {"color": SIDES[name].light, "width": 2, "dash": dash}


def faint(tone: Tone) -> Tone:
    """``tone`` as a transparent wash, for the area under a line.

    >>> faint(Tone("#000000", "#ffffff")).light
    'rgba(0, 0, 0, 0.13)'
    """
    return Tone(_rgba(tone.light, _FAINT["light"]), _rgba(tone.dark, _FAINT["dark"]))


def dark_twins() -> dict[str, str]:
    """Light colour -> dark colour, for every colour a figure may use."""
    tones = [
        *POLICIES.values(),
        *METRICS.values(),
        *BOUNDS.values(),
        *PAGE.values(),
        SKY,
        DECODE_NEXT,
        *RAMP,
    ]
    tones += [*PHASES.values(), *LATENCY_PARTS.values(), *MEMORY.values(), *ITERATIONS.values()]
    tones += [faint(tone) for tone in tones]
    return {tone.light: tone.dark for tone in tones}


def css_variables(side: str) -> str:
    """The page's colours as CSS declarations; ``side`` is ``light`` or ``dark``."""
    named = {**PAGE, **{f"bound-{name}": tone for name, tone in BOUNDS.items()}}
    named |= {f"policy-{name}": tone for name, tone in {**POLICIES, "other": OTHER_POLICY}.items()}
    return "".join(f"--{name}:{getattr(tone, side)};" for name, tone in named.items())


def layout() -> dict[str, Any]:
    """The part of a Plotly layout that all figures share; a new dict each time."""
    return {"template": {"layout": _TEMPLATE}}


def axis(title: str | None, **more: Any) -> dict[str, Any]:
    """A quiet axis, its title with the unit, with ``more`` of its own; a new dict each time."""
    return more if title is None else {"title": {"text": title}, **more}


def text(tone: str, size: int) -> dict[str, Any]:
    """A typeface in a colour of the page."""
    return {"color": PAGE[tone].light, "size": size}


AXIS: Mapping[str, Any] = {
    "automargin": True,
    "showgrid": True,
    "gridcolor": PAGE["grid"].light,
    "gridwidth": 1,
    "zeroline": False,
    "showline": True,
    "linecolor": PAGE["rule"].light,
    "ticks": "",
    "ticklabelstandoff": 4,
    "tickfont": text("muted", 11),
    "exponentformat": "none",
    "separatethousands": True,
    "title": {"font": text("muted", 12), "standoff": 8},
}
"""A light grid, no frame, labels like 15,000 rather than 15k."""

RIGHT = 16
"""Pixels between a figure and its right edge."""

LEGEND: Mapping[str, Any] = {
    "orientation": "h",
    "x": 0,
    "xanchor": "left",
    "y": 1.0,
    "yanchor": "bottom",
    "bgcolor": "rgba(0, 0, 0, 0)",
    "font": text("ink", 12),
}
"""A legend above the figure."""

_TEMPLATE: Mapping[str, Any] = {
    "paper_bgcolor": "rgba(0, 0, 0, 0)",
    "plot_bgcolor": "rgba(0, 0, 0, 0)",
    "font": {"family": FONT_STACK, **text("ink", 12)},
    "margin": {"l": 8, "r": RIGHT, "t": 16, "b": 8, "pad": 0},
    "showlegend": False,
    "legend": LEGEND,
    "uirevision": "keep",
    "hovermode": "closest",
    "hoverlabel": {
        "bgcolor": PAGE["panel"].light,
        "bordercolor": PAGE["rule"].light,
        "font": {"family": FONT_STACK, **text("ink", 12)},
    },
    "xaxis": AXIS,
    "yaxis": AXIS,
}


def _rgba(colour: str, alpha: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red}, {green}, {blue}, {alpha})"
