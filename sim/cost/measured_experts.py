"""Predicts the experts of a layer in a deployment from the kernels of a profile. Seconds.

Where the profile has none for the precision, the part falls back to the data sheet. As with other
kernels, a time outside the measured ranges is given, marked as not measured, and trusted no more
than one from a data sheet.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.cost.kernels import aligned_experts, expert_tiles, moe, serial, serial_experts
from sim.cost.kernels.choice import choose
from sim.cost.kernels.form import Shape, inside, interpolate
from sim.cost.kernels.lookup import RANKS, names_of
from sim.cost.measured import Amount, Timing
from sim.cost.trust import EXPERTS_ERROR
from sim.errors import UsageError
from sim.specs.deployment import Deployment
from sim.specs.experts import PADDED, MixtureOfExperts
from sim.specs.gpu import GpuSpec
from sim.specs.layout import DEFAULT_BACKEND, ONE_GPU, Layout
from sim.specs.popularity import Chances, chances
from sim.specs.precision import INT4
from sim.specs.profile import OLDER, KernelFit

EVERY = 512
STEP = 64
"""Passes of up to ``EVERY`` tokens are timed one by one, larger ones every ``STEP``, with lines
between."""


KERNELS: Mapping[tuple[str, str], str] = {
    **{(wide, wide): wide for wide in ("fp32", "bf16", "fp16")},
    ("fp16", "bf16"): "bf16",
    ("fp8", "fp8"): "fp8",
    ("fp8-block", "fp8"): "fp8",
    ("nvfp4", "nvfp4"): "nvfp4",
    ("mxfp4", "fp8"): "mxfp4",
    ("mxfp4", "mxfp4"): "mxfp4-inputs",
    ("mxfp4", "bf16"): "mxfp4-weights",
    **{(name, inputs): "int4-weights" for name in INT4 for inputs in ("bf16", "int8")},
    ("nvfp4", "bf16"): "nvfp4-weights",
}
"""The name that the kernel of weights in a format has in profiles, by that of the arithmetic."""

MARLINS = {"mxfp4-weights": PADDED, "int4-weights": (1, 1), "nvfp4-weights": (1, 1)}
"""Formats of experts that Marlin computes, with the multiples to which it pads the hidden size and
the width of an expert on a GPU."""

UNTIMED = "nvfp4-weights"
"""The format for which Marlin's kernel is in no table: that for other formats stands in, with the
bytes of this one, and does not count as measured. vLLM takes it where the inputs of experts in
nvfp4 stay at 16 bits, and on GPUs without units for nvfp4 (0.28, fused_moe/oracle/nvfp4.py)."""


class ExpertsFit(NamedTuple):
    """A fit, the operator and precision under which the profile has it, the multiples that hidden
    sizes, and widths of an expert on a GPU, are padded to, whether the rows of each expert are
    padded to whole blocks, which is another kernel than the one that was timed, whether it was
    timed in these formats, and the format that weights are stored in, where not that precision."""

    operator: str
    precision: str
    fit: KernelFit
    padded: tuple[int, int] = (1, 1)
    aligned: bool = False
    timed: bool = True
    stored: str = ""


def fit_of(
    gpu: GpuSpec,
    weights: str,
    arithmetic: str,
    ranks: int,
    *,
    marlin: bool = False,
    older: bool = False,
) -> ExpertsFit | None:
    """The profile's fit of experts whose ``weights`` are multiplied in ``arithmetic``, if it has
    one; with several ``ranks`` that of GPUs with whole experts before the general one. ``marlin``
    asks for the library of that name, which also stands in where it is the only one; ``older`` for
    the kernels of an older release, if the profile has them."""
    precision = KERNELS.get((weights, arithmetic))
    if gpu.profile is None or precision is None:
        return None
    names = [precision]
    if precision in MARLINS:
        names.insert(0 if marlin else 1, moe.MARLIN)
    variant = OLDER * older + RANKS * (ranks > 1)
    for name in names:
        for operator in names_of("moe", variant):
            found = gpu.profile.find(operator, name)
            if found is not None:
                padded = MARLINS[precision] if name == moe.MARLIN else (1, 1)
                stored = precision if precision == UNTIMED else ""
                timed = not stored and arithmetic != "int8"
                return ExpertsFit(operator, name, found, padded, timed=timed, stored=stored)
    return None


def fit_for(d: Deployment) -> ExpertsFit | None:
    """The fit for the experts of a deployment."""
    formats = d.formats["experts"], d.arithmetic_of("experts")
    aligned = d.engine.aligns_experts(d.gpu.title, formats[0], d.layout.tensor)
    if aligned and d.all2all == DEFAULT_BACKEND:
        found = fit_of(d.gpu, *formats, ranks=1)
        return None if found is None else found._replace(aligned=True)
    engine = d.engine
    return fit_of(
        d.gpu, *formats, d.layout.expert, marlin=engine.marlin, older=engine.older_kernels
    )


def experts_note(d: Deployment) -> str | None:
    """A sentence on experts that no kernel was timed for; None for models without experts."""
    experts = any(isinstance(group.mlp, MixtureOfExperts) for group in d.model.layers)
    if not experts or fit_for(d) is not None:
        return None
    return (
        "Experts are timed from the GPU's data sheet, since its profile has no kernel timings of "
        f"them in {d.formats['experts']}."
        if d.gpu.profile is not None
        else "Experts are timed from the GPU's data sheet, since it has no profile."
    )


class MeasuredExperts:
    """The experts of one layer on the GPU of a ``layout`` that has most to do.

    The kernels of the tables go through the tokens of all GPUs and leave those of others out. Where
    tokens are ``exchanged`` before, a GPU has its own alone: no more of them than make its rows.
    The tables have no such calls, so that their times count as not measured; nor have they any
    whose rows are padded to whole blocks (``aligned_experts``), or int4 by inputs in int8, which
    are timed as by 16 bits.
    """

    def __init__(
        self,
        found: ExpertsFit,
        gpu: GpuSpec,
        hidden: int,
        mlp: MixtureOfExperts,
        layout: Layout = ONE_GPU,
        *,
        exchanged: bool = False,
    ) -> None:
        fit, self._fit = found.fit, found.fit
        chosen = choose(found.operator, found.precision, gpu, fit.form)
        if chosen is None or not chosen.suits(fit):
            raise UsageError(
                f"{gpu.name}: the profile's {found.operator} in {found.precision} does not have "
                "the parameters of its form; make the profile anew"
            )
        self._ceilings = chosen.ceilings
        gpus, ranks = layout.expert_width, layout.expert
        self._form, self._kind = chosen.form, moe.FORMATS[found.stored or found.precision]
        self._serial, self._precision = fit.form == serial.NAME, found.precision
        self._suits = self._serial or self._kind.suits(mlp.moe_intermediate_size / gpus)
        self._mlp, self._layout = mlp, layout
        shape = (hidden, mlp.moe_intermediate_size, mlp.experts_per_token, mlp.num_experts)
        sizes = (*shape, gpus, ranks, mlp.mlp_matrices)
        self._shape = {
            name: np.asarray(value, dtype=np.float64)
            for name, value in zip(moe.VARIABLES, sizes, strict=False)
        }
        into, across = found.padded
        self._computed = self._shape | {
            "hidden": np.asarray(math.ceil(hidden / into) * float(into)),
            "width": np.asarray(math.ceil(shape[1] / gpus / across) * float(across) * gpus),
        }
        self._exchanged, self._aligned, self._timed = exchanged, found.aligned, found.timed
        self._residual = None
        if fit.known is not None and not exchanged and not found.aligned:
            self._residual = fit.known.find({n: float(v) for n, v in self._computed.items()})
        self._table: tuple[NDArray[np.float64], Timing] | None = None

    def timing(self, m: Amount) -> Timing:
        """A pass of ``m`` tokens on all GPUs together; one of no tokens counts as one."""
        most = float(np.max(m, initial=1.0))
        if self._table is None or self._table[0][-1] < most:
            self._table = self._tabulated(int(most))
        tokens, columns = self._table
        return Timing(*(np.interp(m, tokens, column) for column in columns))

    def work(self, m: Amount) -> tuple[Amount, Amount]:
        """FLOP, and bytes that have to move, of a pass of ``m`` tokens; of none, none."""
        shape = self._shape | self._mlp.busiest(m, self._layout)._asdict()
        return moe.flops(shape), moe.moved_bytes(shape, self._kind)

    def _tabulated(self, most: int) -> tuple[NDArray[np.float64], Timing]:
        last = max(1024, 1 << most.bit_length())
        tokens = np.append(np.arange(1.0, EVERY), np.arange(EVERY, last + 1.0, STEP))
        shape = self._computed | self._counts(tokens)
        parts = self._parts(shape)
        seconds = parts.total * self._form.correction(self._fit, shape)
        error = self._fit.error
        if self._residual is not None and self._fit.known is not None:
            seconds = seconds * np.exp(interpolate(self._residual, moe.coordinates(shape)))
            error = math.hypot(self._fit.known.holdout.median, self._fit.drift)
        seconds = np.maximum(seconds, self._form.least(shape))
        as_timed = self._suits and self._timed and not (self._exchanged or self._aligned)
        within = inside(self._fit, shape) & as_timed
        trusted = np.where(within, error, max(EXPERTS_ERROR, error))
        timing = Timing(seconds, parts.compute, parts.memory, trusted, within.astype(np.float64))
        return tokens, timing

    def _parts(self, shape: Shape) -> moe.ExpertParts:
        p = self._fit.parameters
        if self._serial:
            return serial_experts.parts(p, shape, self._ceilings, self._precision)
        if self._aligned:
            held = self._mlp.held(self._layout)
            return aligned_experts.parts(p, shape, self._ceilings, self._kind, held)
        return moe.parts(p, shape, self._ceilings, self._kind)

    def _counts(self, tokens: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Tokens, rows, experts touched, those with a single row, and tiles of each height: the
        experts of the GPU are as unlike each other as all of them, and have its rows together."""
        rows, touched = self._mlp.busiest(tokens, self._layout)
        held, mlp = self._mlp.held(self._layout), self._mlp
        if mlp.skew:
            every = chances(mlp.num_experts, mlp.experts_per_token, mlp.skew)
            share = (rows / (mlp.experts_per_token * tokens))[:, None]
            number = every.number * (held / mlp.num_experts)
            chance = np.minimum(every.chance * (share * mlp.num_experts / held), 1.0)
        else:
            number = np.array([float(held)])
            chance = np.minimum(rows / (held * tokens), 1.0)[:, None]
        tiles = expert_tiles.expected(tokens, Chances(number, chance), moe.HEIGHTS)
        once = tokens[:, None] * chance * (1 - chance) ** (tokens[:, None] - 1)
        single = (once * number).sum(axis=1)
        counts = dict(zip(moe.TILES, tiles, strict=True))
        if self._exchanged:
            tokens = np.maximum(rows / mlp.experts_per_token, 1.0)
        found = {"tokens": tokens, "rows": rows, "touched": touched, "single": single}
        return found | counts
