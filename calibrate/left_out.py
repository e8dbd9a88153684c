"""Judges how a card without kernel timings is described best, on the cards that have timings.

Each timed card is left out in turn, described without its own profile, and compared with it. Ways
to describe it:

- ``relative``: the profile of a relative, with the card's own peaks, bandwidth and SMs
- ``relative, prompts by sheet``: the same, attention of prompts by the data sheet
- ``data sheet``: no profile, the efficiencies of the relative
- ``defaults``: no profile, the efficiencies assumed of a user's file that says nothing

Relatives are the nearest timed card of the same chip (``SAME_CHIP``), the nearest of another
(``OTHER_CHIP``): of the generation before or after with the same kind of memory, and the one of
another chip that ``relatives.nearest`` takes for a file that names none.
``python -m calibrate.left_out`` prints median errors in %, of families of operators and of all
kernels of a pass.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim import catalog
from sim.catalog.extends import CatalogEntry
from sim.catalog.gpu_file import read_gpu
from sim.catalog.relatives import nearest, transferred
from sim.cost import CostModel, Deployment
from sim.iteration import Batch, Part
from sim.specs.gpu import GpuSpec

SAME_CHIP = {
    "h100-sxm": "h200-sxm",
    "h200-sxm": "h100-sxm",
    "b200-sxm": "gb200",
    "gb200": "b200-sxm",
    "b300-sxm": "gb300",
    "gb300": "b300-sxm",
}
OTHER_CHIP = {
    "a100-sxm-80gb": "h100-sxm",
    "h100-sxm": "a100-sxm-80gb",
    "h200-sxm": "b200-sxm",
    "b200-sxm": "h200-sxm",
    "gb200": "h200-sxm",
    "b300-sxm": "h200-sxm",
    "gb300": "h200-sxm",
    "l40s": "rtx-pro-6000",
    "rtx-pro-6000": "l40s",
}

_HOPPER, _BLACKWELL = {"h100-sxm", "h200-sxm"}, {"b200-sxm", "gb200", "b300-sxm", "gb300"}
CHIPS = {name: chip for chip in (_HOPPER, _BLACKWELL) for name in chip}
"""The cards of one chip, or nearly: B300 differs from B200 in its rate of FP4 and exponentials."""

RUNS = (
    ("llama-3.1-8b", "bf16"),
    ("llama-3.1-8b", "fp8"),
    ("llama-3.3-70b", "bf16"),
    ("qwen3-30b-a3b", "bf16"),
    ("qwen3-30b-a3b", "fp8"),
    ("qwen3-235b-a22b", "fp8"),
)
"""Models and formats whose kernels are compared, on one GPU whether they fit there or not."""

FEW = (1, 4, 16)
MANY = (64, 256)
CONTEXTS = (512, 2048, 8192)
PROMPTS = (512, 2048, 8192)

FAMILIES = (
    *("GEMM, few", "GEMM, many", "GEMM, prompts", "decode, few", "decode, many", "prefill"),
    *("experts, few", "experts, many", "experts, prompts"),
    *("pass, few", "pass, many", "pass, prompts"),
)
"""Operators by the rows of a pass: ``FEW`` or ``MANY`` sequences that decode, or a prompt."""


class Way(NamedTuple):
    """A way to describe a card by a relative: its ``name``, and the card so described."""

    name: str
    described: Callable[[GpuSpec, GpuSpec], GpuSpec]


def _by_relative(card: GpuSpec, relative: GpuSpec) -> GpuSpec:
    assert relative.profile is not None
    return replace(_by_sheet(card, relative), profile=transferred(relative.profile, relative, card))


def _without_prompts(card: GpuSpec, relative: GpuSpec) -> GpuSpec:
    found = _by_relative(card, relative)
    assert found.profile is not None
    return replace(found, profile=found.profile.without("prefill_attention"))


def _by_sheet(card: GpuSpec, relative: GpuSpec) -> GpuSpec:
    efficiency, attention = relative.efficiency, relative.attention
    return replace(card, profile=None, efficiency=efficiency, attention=attention)


def _by_defaults(card: GpuSpec, _relative: GpuSpec) -> GpuSpec:
    """``card`` as a file with nothing but its memory, bandwidth and peaks has it."""
    own = {"memory": "80GB", "bandwidth": "1TB/s", "peak_flops": {"bf16": "100TFLOP/s"}}
    return _by_sheet(card, read_gpu(CatalogEntry(Path("bare.yaml"), own, own)))


WAYS = (
    Way("relative", _by_relative),
    Way("relative, prompts by sheet", _without_prompts),
    Way("data sheet", _by_sheet),
    Way("defaults", _by_defaults),
)


def errors(relatives: Mapping[str, str], kernels: str) -> dict[str, dict[str, float]]:
    """Median error by way and family, over all cards and their ``relatives``, under a framework's
    ``kernels``."""
    found: dict[str, dict[str, list[float]]] = {way.name: defaultdict(list) for way in WAYS}
    for name, other in relatives.items():
        card, relative = (catalog.gpu(each, kernels=kernels) for each in (name, other))
        own = dict(times(card))
        for way in WAYS:
            for point, seconds in times(way.described(card, relative)):
                found[way.name][point[0]].append(abs(seconds / own[point] - 1))
    return {
        way: {family: float(np.median(each)) for family, each in by_family.items()}
        for way, by_family in found.items()
    }


def nearest_of_another_chip() -> dict[str, str]:
    """For each timed card the one that ``nearest`` chooses of those of other chips."""
    found = {}
    for name in OTHER_CHIP:
        alike = CHIPS.get(name, {name})
        others = (catalog.gpu(other) for other in OTHER_CHIP if other not in alike)
        chosen = nearest(catalog.gpu(name), others)
        assert chosen is not None
        found[name] = chosen.name
    return found


Point = tuple[str, int, int]


def times(gpu: GpuSpec) -> Iterator[tuple[Point, float]]:
    """Seconds of each family in each pass of ``RUNS``: a point is its family, run and pass."""
    engine = catalog.engine("vllm")
    for run, (model, precision) in enumerate(RUNS):
        spec = catalog.model(model)
        cost = CostModel(Deployment(spec, gpu, engine, precision, precision))
        for number, (rows, batch) in enumerate(passes()):
            sums: dict[str, float] = defaultdict(float)
            for operator in cost.pass_operators(batch):
                seconds = float(operator.seconds)
                sums[f"pass, {rows}"] += seconds
                family = family_of(operator.name, rows, experts=spec.has_experts)
                if family is not None:
                    sums[family] += seconds
            yield from (((family, run, number), each) for family, each in sums.items())


def passes() -> Iterator[tuple[str, Batch]]:
    """The passes that are compared, by their rows in words."""
    for batch in (*FEW, *MANY):
        for context in CONTEXTS:
            yield "few" if batch in FEW else "many", Batch(batch, batch * context)
    for prompt in PROMPTS:
        yield "prompts", Batch(0, 0, [Part(prompt, 0)])


def family_of(name: str, rows: str, *, experts: bool) -> str | None:
    """The family of the operator ``name`` in a pass of so many ``rows``, of a model with
    ``experts`` or without; None for those that no profile has.

    >>> family_of("down projection", "few", experts=False), family_of("norms", "few", experts=True)
    ('GEMM, few', None)
    """
    if "attention" in name:
        return f"decode, {rows}" if name.startswith("decode") else "prefill"
    if experts:
        return f"experts, {rows}" if name.startswith(("experts", "quantise")) else None
    return f"GEMM, {rows}" if "projection" in name or name.startswith("quantise") else None


def table(found: Mapping[str, Mapping[str, float]]) -> str:
    """The errors as lines of text, in %."""
    width = max(map(len, FAMILIES))
    lines = [" " * width + "".join(f"{way:>28}" for way in found)]
    for family in FAMILIES:
        cells = (f"{100 * by_family[family]:>28.0f}" for by_family in found.values())
        lines.append(f"{family:<{width}}" + "".join(cells))
    return "\n".join(lines)


def main() -> None:
    """Print a table for each kind of relative."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--kernels", default=catalog.DEFAULT_KERNELS, help="vllm, sglang, trtllm")
    kernels = parser.parse_args().kernels
    kinds = {
        "same chip": SAME_CHIP,
        "another chip": OTHER_CHIP,
        "nearest data sheet of another chip": nearest_of_another_chip(),
    }
    for title, relatives in kinds.items():
        pairs = ", ".join(f"{card} by {other}" for card, other in relatives.items())
        print(f"{title}: {pairs}\n{table(errors(relatives, kernels))}\n")


if __name__ == "__main__":
    main()
