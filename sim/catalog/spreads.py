"""Provides how far each part of a prediction is usually off: relative spreads, and their origin.

``spreads.yaml`` holds them. It is made by ``infersim score TABLES --learn-bands FILE`` from
published measurements, never by hand. A spread is the scale of the logarithm of measured over
predicted; the ``multiples`` turn the spread of a figure into half of a 50 % and of a 90 % band;
``scales`` say by how many times figures of one kind are off more than others. ``without`` has what
differs if one source (engine, GPU and model) is left out, so that a source is judged by bands that
know nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from sim.catalog.fields import Fields
from sim.catalog.files import read_yaml
from sim.catalog.releases import spelled

FILE = Path(__file__).with_name("spreads.yaml")


class Spreads(NamedTuple):
    """The spread ``of`` each cause (``sim.metrics.bands.bands.CAUSES``), and by how many times the
    spread of a figure its ``half`` (50 %) and its ``ninety`` (90 %) band reach to either side.
    ``shared`` is how far the errors of a cause are correlated in two runs where they have one
    origin; ``scales`` multiply the spread of figures by their setting
    (``sim.metrics.bands.bands.setting``): 1 where there is none."""

    of: Mapping[str, float]
    half: float
    ninety: float
    shared: float = 0.0
    scales: Mapping[str, float] = MappingProxyType({})

    def scale(self, setting: str) -> float:
        """The factor of a figure's spread in a ``setting``; that of a wider setting, the first
        words of its name, where nothing was learnt of it alone."""
        while setting not in self.scales and ", " in setting:
            setting = setting.rpartition(", ")[0]
        return self.scales.get(setting, 1.0)


class Learnt(NamedTuple):
    """The content of ``spreads.yaml``: its ``origin``, of how many ``sources`` each cause was
    learnt, and the spreads, of all sources and ``without`` each."""

    origin: str
    sources: Mapping[str, int]
    everything: Spreads
    without: Mapping[str, Spreads]

    def for_source(self, name: str) -> Spreads:
        """The spreads by which rows of the source called ``name`` are judged."""
        return self.without.get(name, self.everything)


@cache
def learnt(path: Path = FILE) -> Learnt:
    """The content of ``path``."""
    file = Fields(str(path), read_yaml(path))
    causes = file.inner("causes")
    names = list(causes)
    counts = {name: causes.inner(name).count("sources") for name in names}
    spreads = {name: causes.inner(name).number("spread") for name in names}
    for name, other in TOLD_APART_LATER.items():
        spreads.setdefault(name, spreads.get(other, 0.0))
        counts.setdefault(name, counts.get(other, 0))
    scales = _scales(file)
    everything = Spreads(spreads, *_multiples(file), scales)
    without = {
        entry.text("source"): Spreads(
            spreads
            | {name: entry.inner("spreads").number(name) for name in entry.inner("spreads")},
            *_multiples(entry),
            _scales(entry) or scales,
        )
        for entry in file.mappings("without")
    }
    return Learnt(file.text("origin"), counts, everything, without)


TOLD_APART_LATER = {
    "open client, tokens": "open client",
    "older release": "",
    "left out, first token": "",
    "left out, rates": "",
    "left out, tokens": "",
    "estimate, first token": "",
    "estimate, tokens": "",
    "crowding": "",
    "hand-over": "",
}
"""Causes that files made before did not tell apart from another one, or from any."""

SHARED = 0.7
"""How far errors of one origin are correlated in two runs where a file does not say it: 89 % of
3,540 pairs of published figures (same engine, GPU and model, other conditions) lay in 90 % bands of
their ratio."""


def _scales(entry: Fields) -> Mapping[str, float]:
    if not entry.has("scales"):
        return {}
    found = entry.inner("scales")
    return {name: found.number(name) for name in found}


def _multiples(entry: Fields) -> tuple[float, float, float]:
    multiples = entry.inner("multiples")
    shared = multiples.number("shared") if multiples.has("shared") else SHARED
    return multiples.number("half"), multiples.number("ninety"), shared


def related(engine: str) -> str:
    """The preset under whose name runs of ``engine`` are spoken of, whatever its release.

    >>> related("vllm@0.18"), related("vllm")
    ('vllm', 'vllm')
    """
    return spelled(engine).name


def source_name(engine: str, gpu: str, model: str) -> str:
    """The name of a source: all releases of TensorRT-LLM are one, and presets that are ``related``.

    >>> source_name("tensorrt-llm-0.14", "h100-sxm", "llama-3.1-70b")
    'tensorrt-llm, h100-sxm, llama-3.1-70b'
    """
    return f"{_family(engine)}, {gpu}, {model}"


def compared(engine: str, gpu: str) -> bool:
    """Whether runs of this engine preset on this GPU, of any model, are among the published ones
    that bands were learnt from.

    >>> compared("vllm@0.18", "h100-sxm"), compared("sglang", "l40s")
    (True, False)
    """
    return any(name.startswith(f"{_family(engine)}, {gpu}, ") for name in learnt().without)


def _family(engine: str) -> str:
    return "tensorrt-llm" if engine.startswith("tensorrt-llm") else related(engine)
