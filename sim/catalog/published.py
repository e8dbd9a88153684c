"""Provides the number formats in which a model is published, as its files or the catalogue say.

They are the default of a scenario's precision: engines load a checkpoint as it is. A checkpoint
that mixes formats is counted in the nearest ones that ``precision`` can say, where these take
nearly as many bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from sim.catalog.fields import Fields
from sim.catalog.huggingface_modules import Module, modules
from sim.catalog.huggingface_quantisation import Quantisation, Scheme
from sim.errors import did_you_mean
from sim.specs.deployment import Deployment
from sim.specs.layers import Role
from sim.specs.model import ModelSpec
from sim.specs.precision import FORMATS, precision_bytes
from sim.specs.published import PublishedFormat

KEY = "published_format"

TOLERANCE = 0.02
"""How far, relatively, the weights as counted may be from the bytes that a checkpoint states."""

EXACT = 0.001
"""Below which share of the bytes a difference is not worth a word: routers, gates and scales."""

WIDE = Scheme("bf16", 2.0, "bf16")

ROLES: tuple[Role, ...] = ("projections", "experts", "vocabulary")


def published_in(values: Fields, sources: Mapping[str, str]) -> PublishedFormat | None:
    """The formats that an entry of the catalogue states; None where it states none, which is mostly
    16 bits."""
    if not values.has(KEY):
        return None
    value = values.inner(KEY)
    value.only(["weights", "experts", "kv_cache"])
    experts, kv_cache = (
        _format(value, key) if value.has(key) else None for key in ("experts", "kv_cache")
    )
    weights = _format(value, "weights")
    return PublishedFormat(weights, experts, sources[KEY], kv_cache=kv_cache)


def _format(value: Fields, key: str) -> str:
    """A number format that is known."""
    found = value.text(key)
    if found not in FORMATS:
        known = ", ".join(FORMATS)
        raise value.error(
            key, f"unknown format {found}{did_you_mean(found, FORMATS)}; known: {known}"
        )
    return found


def published_as(model: ModelSpec, stated: Quantisation) -> PublishedFormat:
    """The formats of ``precision`` nearest to what the files of a checkpoint of ``model`` state,
    with a note where they are not the same, or what the problem is where they differ by more than
    ``TOLERANCE`` of the bytes."""
    stored = [(module, stated.of(module) or WIDE) for module in modules(model)]
    by_role = {role: _amounts(stored, role) for role in ROLES}
    fixed = 2.0 * (model.small_parameters() + model.embedding_parameters())
    total = fixed + sum(
        parameters * scheme.bytes
        for each in by_role.values()
        for scheme, parameters in each.items()
    )
    weights, experts = min(
        _choices(by_role), key=lambda choice: abs(_counted(by_role, fixed, *choice) - total)
    )
    off = _counted(by_role, fixed, weights, experts) / total - 1
    nearest = PublishedFormat(weights, None if experts == weights else experts, stated.source)
    used = by_role["projections"] + by_role["experts"]
    mostly = max(
        (scheme for scheme in used if scheme.format in (weights, experts)),
        key=lambda scheme: used[scheme],
    )
    return nearest._replace(
        activations=mostly.activations,
        kv_cache=stated.kv_cache,
        static=mostly.static,
        note=_note(by_role, weights, experts, off),
        problem=_problem(nearest, by_role, total, off) if abs(off) > TOLERANCE else None,
    )


def _amounts(stored: list[tuple[Module, Scheme]], role: Role) -> Counter[Scheme]:
    """Parameters of a role by how they are stored."""
    found: Counter[Scheme] = Counter()
    for module, scheme in stored:
        if module.role == role:
            found[scheme] += round(module.parameters)
    return found


def _choices(by_role: Mapping[Role, Counter[Scheme]]) -> Iterator[tuple[str, str | None]]:
    """Formats of the weights and of the experts, of those that occur; most parameters first."""
    for weights, _ in by_role["projections"].most_common():
        experts = [scheme.format for scheme, _ in by_role["experts"].most_common()]
        yield from ((weights.format, name) for name in experts)
        if not experts:
            yield weights.format, None


def _counted(
    by_role: Mapping[Role, Counter[Scheme]], fixed: float, weights: str, experts: str | None
) -> float:
    """Bytes of the whole model with these formats; the LM head stays at 16 bits."""
    return (
        fixed
        + by_role["projections"].total() * precision_bytes(weights)
        + by_role["experts"].total() * precision_bytes(experts or weights)
        + by_role["vocabulary"].total() * 2.0
    )


def _note(
    by_role: Mapping[Role, Counter[Scheme]], weights: str, experts: str | None, off: float
) -> str | None:
    """The weights that are not counted as they are stored; None where they all are."""
    counted = {"projections": weights, "experts": experts, "vocabulary": "bf16"}
    other = {
        scheme.format: sum(
            amounts[scheme] for role, amounts in by_role.items() if scheme.format != counted[role]
        )
        for amounts in by_role.values()
        for scheme in amounts
    }
    parts = [f"{number / 1e9:.2f} B in {name}" for name, number in other.items() if number]
    if not parts or abs(off) < EXACT:
        return None
    more = "more" if off > 0 else "fewer"
    return (
        f"Its files mix formats: {' and '.join(parts)} are counted in that of the weights around "
        f"them, so that all weights take {abs(off):.1%} {more} bytes than stated."
    )


def _problem(
    nearest: PublishedFormat, by_role: Mapping[Role, Counter[Scheme]], total: float, off: float
) -> str:
    """Why no formats of ``precision`` come near, and what to do."""
    words = {"projections": "projections", "experts": "experts", "vocabulary": "LM head"}
    parts = [
        f"{words[role]} " + " and ".join(
            f"{number / 1e9:.2f} B in {scheme.format}" for scheme, number in amounts.most_common()
        )
        for role, amounts in by_role.items()
        if amounts
    ]  # fmt: skip
    return (
        f"{nearest.source}: mixes formats in a way that `precision` cannot represent: "
        f"{'; '.join(parts)}. The nearest, {nearest}, is {off:+.1%} off the "
        f"{total / 2**30:,.1f} GiB that it states"
    )


INSTEAD = (
    "give precision.weights (and precision.experts; `--set precision.weights=...`) to count it in "
    "another format"
)
"""Advice where a checkpoint's own formats cannot be represented."""


def published_note(d: Deployment) -> str | None:
    """Names the format in which the model of ``d`` is published, where it is not stored so."""
    found = d.model.published
    if found is None or found.problem is not None:
        return None
    if d.formats["experts"] == found.stored:
        return None
    return (
        f"{d.model.name} is published in {found} ({found.source.strip().rstrip('.')}), and counted "
        f"here in {d.formats['experts']}: `--weights {found.weights}`"
        f"{f' `--experts {found.experts}`' if found.experts else ''}, in a scenario "
        f"`precision.{'experts' if found.experts else 'weights'}: {found.stored}`."
    )


def wider_than_published(d: Deployment) -> str | None:
    """Says that the model of ``d`` is published in a narrower format than it is counted in; None
    where it is not."""
    found, counted = d.model.published, d.formats["experts"]
    if found is None or found.problem is not None:
        return None
    if precision_bytes(counted) <= precision_bytes(found.stored):
        return None
    key = "experts" if found.experts else "weights"
    return (
        f"{d.model.name} is published in {found}; this scenario sets {counted} (leave "
        f"precision.weights and precision.experts out, or set precision.{key}: {found.stored})"
    )


def origin_notes(d: Deployment) -> list[str]:
    """How the model of ``d`` was read, and where its formats come from if they are the published
    ones."""
    found = d.model.published
    if found is None or not counted_as_published(d):
        return list(d.model.remarks)
    kept = f", KV cache in {found.kv_cache}" if found.kv_cache == d.kv_cache else ""
    told = f"Formats as published, {found}{kept}: {found.source.strip().rstrip('.')}."
    return [*reading_notes(d.model, d.weights, d.experts), told]


def reading_notes(model: ModelSpec, weights: str, experts: str | None) -> list[str]:
    """Which model of the catalogue stands for ``model``, and where the formats of its checkpoint
    are only nearly those that it is counted in; nothing for names of the catalogue."""
    found = model.published
    near = found is not None and _same(found, weights, experts) and found.note
    return [*model.remarks, *([near] if near else [])]


def counted_as_published(d: Deployment) -> bool:
    """Whether the weights of ``d`` are those of the checkpoint itself."""
    return d.model.published is not None and _same(d.model.published, d.weights, d.experts)


def _same(found: PublishedFormat, weights: str, experts: str | None) -> bool:
    same = (weights, experts or weights) == (found.weights, found.stored)
    return same and found.problem is None
