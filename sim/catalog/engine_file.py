"""Reads the YAML file of an engine preset: keys as in ``EngineSpec``, each with its source.

Every overhead has to be given, or taken over from a file that it extends; what only some engines
have, and ``EngineSpec`` has a default for, may be left out.
"""

from __future__ import annotations

from math import inf

from sim.catalog.extends import CatalogEntry
from sim.catalog.fields import Fields, keys
from sim.catalog.releases import RELEASES, releases_of
from sim.specs.engine import (
    CHOICES,
    FUSING,
    EngineDefaults,
    EngineSpec,
    ExpertInputs,
    Factors,
    FittedTo,
    FusedSums,
    GgufKernels,
    Mxfp4Padding,
)
from sim.specs.precision import INT4, MULTIPLIES, PLAIN

FACTORS = {
    "tokens_factor": "tokens",
    "decode_attention_factor": "decode_attention",
    "prefill_attention_factor": "prefill_attention",
    "kernels_factor": "kernels",
}
"""Fields of ``Factors`` by their keys; only engines that were fitted to runs have them."""

MOST_FACTOR = 100.0

_DEFAULTS = "defaults"
"""The key of an engine that lists what it chooses by GPU."""

_FITTED_TO = "fitted_to"
"""The key of an engine that lists the runs it was fitted to; only a fitted one has it."""

_PADDING = "pads_mxfp4"
"""The key of an engine that lists how it pads experts in mxfp4, by GPU."""

_EXPERT_INPUTS = "expert_inputs"
"""The key of an engine that lists the formats of experts' inputs, by GPU."""

_WEIGHT_ONLY = "weight_only"
"""The key of an engine whose kernels for weights alone in few bits are not Marlin: the share of the
peak bandwidth that each reaches, by format."""

WEIGHT_ONLY = ("int8", *INT4)
"""Formats of weights alone."""

_GGUF = "gguf"
"""The key of an engine that computes formats of GGUF: what its products reach."""

_FUSED_SUMS = "fused_sums"
"""The key of an engine that lists the all-reduces that are one kernel with a norm, by GPU."""

_LISTS = (
    "graph_sizes",
    "aligns_experts_on",
    "checkpoints_delta_on",
    _PADDING,
    _EXPERT_INPUTS,
    RELEASES,
    _DEFAULTS,
    _FUSED_SUMS,
    _WEIGHT_ONLY,
    _GGUF,
    _FITTED_TO,
)
_GIVEN = ("name", "origin", "title", "sources", "factors", "marlin", "triton_attention", *_LISTS)
"""Fields of ``EngineSpec`` whose value is not a single one under their own name."""


def read_engine(file: CatalogEntry) -> EngineSpec:
    """The preset that a file describes, with what it takes over; named after the file.

    A file that extends another may give bare values. Raises UsageError if it is no preset.
    """
    if file.base is not None:
        read_engine(file.base)  # whose mistakes are its own
    entry = Fields(file.where, file.document)
    entry.only(("title", *keys(EngineSpec, *_GIVEN), *FACTORS, *_LISTS))
    unsourced = None if file.base is None else file.unsourced
    values, sources = entry.without(_FITTED_TO).sourced(unsourced)
    return values.record(
        EngineSpec,
        name=file.path.stem,
        origin=file.root.path.stem,
        title=entry.text("title"),
        sources=sources,
        factors=_factors(values),
        graph_sizes=tuple(sorted(_numbers(values, "graph_sizes"))),
        aligns_experts_on=_words(values, "aligns_experts_on"),
        checkpoints_delta_on=_words(values, "checkpoints_delta_on"),
        pads_mxfp4=_padding(values) if values.has(_PADDING) else (),
        expert_inputs=_expert_inputs(values) if values.has(_EXPERT_INPUTS) else (),
        releases=releases_of(values) if values.has(RELEASES) else None,
        fused_sums=_fused_sums(values) if values.has(_FUSED_SUMS) else (),
        weight_only=_weight_only(values) if values.has(_WEIGHT_ONLY) else {},
        gguf=_gguf(values) if values.has(_GGUF) else None,
        fitted_to=_fitted_to(entry) if entry.has(_FITTED_TO) else (),
        defaults=_defaults(values) if values.has(_DEFAULTS) else (),
    )


def _factors(values: Fields) -> Factors:
    """The factors on predicted kernel times; 1 where a file says nothing."""
    return Factors(**{name: _factor(values, key) for key, name in FACTORS.items()})


def _factor(values: Fields, key: str) -> float:
    if not values.has(key):
        return 1.0
    value = values.number(key)
    if not 0 < value <= MOST_FACTOR:
        raise values.error(key, f"expected more than 0, at most {MOST_FACTOR:g}, found {value:g}")
    return value


def _fitted_to(entry: Fields) -> tuple[FittedTo, ...]:
    """The runs that an engine names as those it was fitted to."""
    runs = entry.mappings(_FITTED_TO)
    for run in runs:
        run.only(FittedTo._fields)
    return tuple(FittedTo(*map(run.text, FittedTo._fields)) for run in runs)


def _weight_only(values: Fields) -> dict[str, float]:
    """The share of the peak bandwidth that kernels for weights alone reach, by format."""
    shares = values.inner(_WEIGHT_ONLY)
    shares.only(WEIGHT_ONLY)
    if not list(shares):
        raise values.error(_WEIGHT_ONLY, f"expected a share for one of {', '.join(WEIGHT_ONLY)}")
    return {name: shares.share(name) for name in shares}


def _gguf(values: Fields) -> GgufKernels:
    """The shares of bandwidth and rate that products with GGUF weights reach."""
    shares = values.inner(_GGUF)
    shares.only(GgufKernels._fields)
    if not all(map(shares.has, GgufKernels._fields)):
        raise values.error(_GGUF, f"expected the shares {' and '.join(GgufKernels._fields)}")
    return GgufKernels(*map(shares.share, GgufKernels._fields))


def _defaults(values: Fields) -> tuple[EngineDefaults, ...]:
    """An engine's defaults where a scenario says nothing, by GPU."""
    found = []
    for each in values.mappings(_DEFAULTS):
        each.only(("memory", "below", "gpus", "other_than", "set"))
        memory = each.not_negative("memory", "bytes") if each.has("memory") else 0.0
        below = each.not_negative("below", "bytes") if each.has("below") else inf
        gpus, others = _words(each, "gpus"), _words(each, "other_than")
        chosen = each.inner("set")
        chosen.only(CHOICES)
        settings = {key: chosen.value(key) for key in chosen}
        found.append(EngineDefaults(memory, below, gpus, others, settings))
    return tuple(found)


def _padding(values: Fields) -> tuple[Mxfp4Padding, ...]:
    """The sizes that experts in mxfp4 are padded to, by GPU."""
    found = []
    for each in values.mappings(_PADDING):
        each.only(Mxfp4Padding._fields)
        found.append(Mxfp4Padding(_words(each, "gpus"), each.whole("hidden"), each.whole("width")))
    return tuple(found)


def _expert_inputs(values: Fields) -> tuple[ExpertInputs, ...]:
    """The formats to which inputs of experts are quantised, by GPU."""
    found = []
    for each in values.mappings(_EXPERT_INPUTS):
        each.only(ExpertInputs._fields)
        weights, inputs = each.text("weights"), each.text("inputs")
        if inputs not in PLAIN and weights not in MULTIPLIES.get(inputs, ()):
            raise each.error("inputs", f"{inputs} is not multiplied by {weights}")
        found.append(ExpertInputs(weights, _words(each, "gpus"), inputs))
    return tuple(found)


def _fused_sums(values: Fields) -> tuple[FusedSums, ...]:
    """The all-reduces that are one kernel with a norm, by GPU, ranks and kind of model."""
    found = []
    for each in values.mappings(_FUSED_SUMS):
        each.only(FusedSums._fields)
        models = each.text("models") if each.has("models") else FUSING[0]
        if models not in FUSING:
            raise each.error("models", f"expected one of {', '.join(FUSING)}, found {models}")
        found.append(
            FusedSums(
                gpus=_words(each, "gpus"),
                ranks=_numbers(each, "ranks"),
                largest=each.not_negative("largest", "bytes") if each.has("largest") else inf,
                tokens=each.whole("tokens") if each.has("tokens") else inf,
                models=models,
            )
        )
    return tuple(found)


def _numbers(values: Fields, key: str) -> tuple[int, ...]:
    """The numbers listed under ``key``, none if it is absent."""
    if not values.has(key):
        return ()
    found = values.value(key)
    if not isinstance(found, list) or any(type(g) is not int or g < 1 for g in found):
        raise values.error(key, "expected a list of whole numbers of at least 1")
    return tuple(found)


def _words(values: Fields, key: str) -> tuple[str, ...]:
    """The texts listed under ``key``, none if it is absent."""
    if not values.has(key):
        return ()
    found = values.value(key)
    if not isinstance(found, list) or any(type(word) is not str or not word for word in found):
        raise values.error(key, "expected a list of texts")
    return tuple(found)
