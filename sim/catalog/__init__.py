"""Provides the GPUs and models that infersim knows by name, and reads those that it does not.

One YAML file per entry, each value with its source (see the README of this folder). A user's own
GPU or model is the same kind of file, given by path; a GPU's may be shorter (see ``gpu_file``), and
a model may also be a Hugging Face ``config.json``, or a GGUF file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from sim.catalog.copies import is_copy, not_taken_over, taken_over
from sim.catalog.engine_file import read_engine
from sim.catalog.entries import FOLDER, Kind, names, shipped
from sim.catalog.extends import CatalogEntry, kind_of, read_entry
from sim.catalog.fields import Fields, keys
from sim.catalog.files import position, read_json, read_yaml
from sim.catalog.gpu_file import read_gpu
from sim.catalog.huggingface_quantisation import quantisation_file
from sim.catalog.ids import Named, named
from sim.catalog.lookup import find, unknown
from sim.catalog.own_layers import own_layers
from sim.catalog.profile_file import from_document
from sim.catalog.published import KEY as PUBLISHED
from sim.catalog.published import published_in
from sim.catalog.recurrent_layers import recurrent_layers
from sim.catalog.relatives import ASSUMED, inherited, nearest, transferred
from sim.catalog.releases import spelled
from sim.catalog.wrong_files import without_config
from sim.errors import UsageError
from sim.specs.dense_mlp import DenseMlp
from sim.specs.engine import EngineSpec
from sim.specs.experts import MixtureOfExperts
from sim.specs.gpu import GpuSpec
from sim.specs.grouped_query import GroupedQuery
from sim.specs.latent import Latent
from sim.specs.layers import Attention, LayerGroup, Mlp, spread
from sim.specs.model import ModelSpec
from sim.specs.profile import Profile
from sim.specs.sparse import SparseLatent

__all__ = [
    "DEFAULT_KERNELS",
    "Kind",
    "checkpoint",
    "engine",
    "frameworks",
    "gpu",
    "kind_of",
    "model",
    "names",
    "raw",
    "shipped_profile",
    "timed_part",
    "written",
]

_SHAPE = keys(
    *(ModelSpec, "name", "layers", "source", "part"), "assumed_context", "published", "remarks"
)
_ARCHITECTURE_KEYS = (*_SHAPE, "num_layers", "full_layers", "parallel_mlp", "post_norms")
"""The keys of a model, except those of its attention and its MLP."""

DEFAULT_KERNELS = "vllm"
"""The framework whose kernels stand in for those of engines that were not measured."""

AMD_KERNELS = "aiter"
"""The library whose kernels engines run on AMD's parts."""

_PARAMETER_TOLERANCE = 0.01
"""How far, relatively, the count from the shape may be from the published one."""


def frameworks(gpu: str) -> list[str]:
    """Whose kernels the catalogue has a profile of on the GPU of that name, sorted."""
    paths = (FOLDER / "profiles").glob("*.json")
    return sorted(path.stem.partition(".")[2] for path in paths if path.stem.startswith(f"{gpu}."))


def timed_part(gpu: str) -> str | None:
    """The part of the catalogue whose kernel timings predict the one of that name: itself where it
    was timed, else its relative or the part that it extends; None where only its data sheet does.

    >>> timed_part("h100-sxm"), timed_part("h100-nvl"), timed_part("tpu-v6e")
    ('h100-sxm', 'h100-sxm', None)
    """
    if frameworks(gpu):
        return gpu
    entry = raw("gpus", gpu)
    relative = entry.get("relative")
    other = relative["value"] if isinstance(relative, Mapping) else entry.get("extends")
    return timed_part(other) if isinstance(other, str) else None


def raw(kind: Kind, name: str) -> dict[str, object]:
    """The catalogue's YAML of ``name`` as a mapping, sources included; UsageError if unknown."""
    if name not in names(kind):
        raise unknown(kind, name)
    entry = read_yaml(FOLDER / kind / f"{name}.yaml")
    return {key: _stripped(value) for key, value in entry.items()}


def written(kind: Kind, name_or_path: str | Path, base: Path | None = None) -> dict[str, object]:
    """The content of the entry or the file, with what it takes over, as one complete file.

    A GPU file that takes kernels over from the catalogue still extends the part that has them.
    Raises UsageError as ``gpu`` does.
    """
    release = ""
    if kind == "engines" and isinstance(name_or_path, str):
        name_or_path, release = spelled(name_or_path)
    entry = read_entry(kind, find(kind, name_or_path, base), release=release)
    whole = entry.document if entry.base is None else entry.sourced()
    document = {key: _stripped(value) for key, value in whole.items()}
    if kind == "gpus" and entry.base is not None and "profile" not in document:
        root = entry.root.path
        if shipped(kind, root) and frameworks(root.stem):
            return {"extends": root.stem, **document}
    return document


def _stripped(value: object) -> object:
    """``value`` without the line end that a folded YAML text carries."""
    if isinstance(value, dict):
        return {key: _stripped(inner) for key, inner in value.items()}
    return value.strip() if isinstance(value, str) else value


def gpu(
    name_or_path: str | Path, base: Path | None = None, kernels: str = DEFAULT_KERNELS
) -> GpuSpec:
    """The GPU of that catalogue name, or the one described by the YAML file at that path.

    A file needs memory, bandwidth and the peak of 16-bit arithmetic; the rest has stated defaults.
    A relative path starts at ``base``, or at the working directory without one. A part of the
    catalogue comes with the profile of ``kernels``, the framework they belong to; where those were
    not measured with the default ones' (an AMD part with that of ``AMD_KERNELS``), and where
    nothing was measured with that of its relative, if it names one.
    Raises UsageError for an unknown name (with the known ones and the nearest) and for a file that
    is not a GPU.
    """
    return _gpu_at(find("gpus", name_or_path, base), kernels)


def _gpu_at(path: Path, kernels: str, chain: tuple[Path, ...] = ()) -> GpuSpec:
    """The GPU of the file at ``path``; ``chain`` are the files that led to it."""
    if path.is_dir():
        raise UsageError(f"{path}: is a folder; give the YAML file of a GPU")
    if shipped("gpus", path):
        return _shipped_gpu(path, kernels)
    return _gpu(read_entry("gpus", path), kernels, chain)


@cache
def _shipped_gpu(path: Path, kernels: str) -> GpuSpec:
    """The GPU of a file of the catalogue, read once: these are never changed."""
    return _gpu(read_entry("gpus", path), kernels)


def _gpu(entry: CatalogEntry, kernels: str, chain: tuple[Path, ...] = ()) -> GpuSpec:
    """The GPU of a file, with a profile where one can be had for it; ``chain`` are the files that
    led to it."""
    chain = (*chain, entry.path)
    base = None if entry.base is None else _gpu(entry.base, kernels, chain)
    relative = _relative_of(entry, kernels, chain)
    spec = read_gpu(entry, relative)
    if "profile" in entry.own:
        return spec
    own = shipped("gpus", entry.path)
    found = _shipped(spec.name, kernels) if own else None
    if found is not None:
        return replace(spec, profile=found)
    if base is not None and base.profile is not None and "relative" not in entry.own:
        return replace(spec, profile=inherited(base.profile, base, spec))
    if base is None and relative is None and not own:
        copied = _as_copied(spec, kernels)
        silent = "profile" not in copied.sources and not {"efficiency", "attention"} & {*entry.own}
        relative = nearest(spec, _timed_parts()) if silent and copied.profile is None else None
        if relative is None:
            return copied
        relative = gpu(relative.name, kernels=kernels)
        spec = read_gpu(entry, relative)
        sources = {**spec.sources, "relative": ASSUMED}
        spec = replace(spec, relative=relative.name, sources=sources)
    if relative is not None and relative.profile is not None:
        return replace(spec, profile=transferred(relative.profile, relative, spec))
    return spec


def _relative_of(entry: CatalogEntry, kernels: str, chain: tuple[Path, ...]) -> GpuSpec | None:
    """The part that a file names as its relative, or one that it extends does.

    Raises UsageError, with file and line, for files of the ``chain`` that lead back to one of them.
    """
    value = entry.document.get("relative")
    name = value.get("value") if isinstance(value, Mapping) else value
    if not isinstance(name, str):
        return None
    try:
        path = find("gpus", name, entry.path.parent)
    except UsageError as error:
        where = position(entry.path, "relative")
        raise UsageError(f"{where}: relative: {error}") from None
    if path.resolve() in [each.resolve() for each in chain]:
        circle = " -> ".join(each.name for each in (*chain, path))
        where = position(entry.path, "relative")
        raise UsageError(f"{where}: relative: files name each other in a circle ({circle})")
    return _gpu_at(path, kernels, chain)


def _as_copied(spec: GpuSpec, kernels: str) -> GpuSpec:
    """The GPU of a user's file; with the profile of the catalogue's part that it is a copy of, or
    else, if it has the title of one, with a word on what it lacks."""
    for part in _profiled_parts():
        if is_copy(spec, part):
            profile = _shipped(part.name, kernels)
            assert profile is not None
            copied = taken_over(inherited(profile, part, spec), spec, part)
            return replace(spec, profile=copied, part=part.name)
        if spec.title == part.title:
            return replace(spec, sources={**spec.sources, "profile": not_taken_over(spec, part)})
    return spec


@cache
def _profiled_parts() -> tuple[GpuSpec, ...]:
    """The catalogue's GPUs that have profiles, without these."""
    paths = (FOLDER / "gpus" / f"{name}.yaml" for name in names("gpus") if frameworks(name))
    return tuple(read_gpu(read_entry("gpus", path)) for path in paths)


@cache
def _timed_parts() -> tuple[GpuSpec, ...]:
    """The catalogue's GPUs that have timings, or a relative with some."""
    return tuple(gpu(name) for name in names("gpus") if timed_part(name) is not None)


def _shipped(name: str, kernels: str) -> Profile | None:
    """The catalogue's profile of a GPU for ``kernels``, else for the default ones, else AMD's."""
    for framework in (kernels, DEFAULT_KERNELS, AMD_KERNELS):
        profile = _profile(FOLDER / "profiles" / f"{name}.{framework}.json")
        if profile is not None:
            return profile
    return None


def model(name_or_path: str | Path, base: Path | None = None) -> ModelSpec:
    """The model of that catalogue name, or the one described by the file at that path.

    The path is a Hugging Face ``config.json``, a folder that holds one, or a YAML file like the
    catalogue's own; a relative one starts at ``base``, or at the working directory without one.
    Raises UsageError for an unknown name (with the known ones and the nearest) and for a file that
    does not describe a supported model.
    """
    path = find("models", name_or_path, base)
    if shipped("models", path):
        spec = _shipped_model(path)
        written = str(name_or_path)
        meant = None if written == path.stem else named(written)
        return spec if meant is None else _variant(spec, meant)
    if path.is_dir():
        folder, path = path, path / "config.json"
        if not path.exists():
            raise UsageError(f"{folder}: {without_config(folder)}")
    if path.suffix in (".yaml", ".yml"):
        return _model_entry(path)
    return _read_config(path, path.resolve(), _stamp(path), _stamp(quantisation_file(path)))


@lru_cache(maxsize=64)
def _read_config(path: Path, _place: Path, *_stamps: tuple[int, int]) -> ModelSpec:
    """The model of a config.json, read once as long as it and what stands next to it stay."""
    from sim.catalog.huggingface import read_config  # noqa: PLC0415 - only where there is a config

    return read_config(path)


def _stamp(path: Path) -> tuple[int, int]:
    """When a file was last changed and its size; zeros where there is none."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def checkpoint(name: str, base: Path | None = None) -> str | None:
    """The repository on Hugging Face, as owner/name, of a model that is named as ``model`` takes
    it: an id stands for itself. None for a file."""
    path = find("models", name, base)
    if not shipped("models", path):
        return None
    return name if "/" in name else str(read_yaml(path)["checkpoint"])


def _variant(spec: ModelSpec, meant: Named) -> ModelSpec:
    """The model of a checkpoint of the same shape as ``spec``."""
    return replace(
        spec,
        max_position_embeddings=meant.context or spec.max_position_embeddings,
        published=meant.published(spec.published),
        remarks=(meant.remark,),
    )


@cache
def _shipped_model(path: Path) -> ModelSpec:
    """The model of a file of the catalogue, read once."""
    return _model_entry(path)


def shipped_profile(gpu: str, framework: str) -> Profile:
    """A profile of the catalogue, one of ``frameworks(gpu)``."""
    found = _profile(FOLDER / "profiles" / f"{gpu}.{framework}.json")
    assert found is not None
    return found


@cache
def _profile(path: Path) -> Profile | None:
    """The catalogue's profile at ``path``, read once: it is thousands of numbers."""
    if not path.exists():
        return None
    document = read_json(path)
    assert isinstance(document, dict)
    return from_document(Fields(str(path), document))


def _model_entry(path: Path) -> ModelSpec:
    """The model of one file: of the catalogue, or of one's own, which may leave out sources, title
    and published sizes. A size that it states must agree with its shape."""
    own = not shipped("models", path)
    where = (lambda key: position(path, key)) if own else str(path)
    entry = Fields(where, read_yaml(path))
    known = ["title", "checkpoint", "architecture", PUBLISHED, "parameters", "active_parameters"]
    entry.only(known)
    for key in ("title", "checkpoint"):
        if entry.has(key) or (key == "title" and not own):
            entry.text(key)
    unsourced = f"given in {path.name}" if own else None
    values, sources = entry.without("checkpoint").sourced(unsourced)
    shape = values.inner("architecture")
    try:
        layers = _layers(shape)
        spec = shape.record(
            ModelSpec,
            name=path.stem,
            layers=layers,
            source=sources["architecture"],
            part=(0, 1),
            assumed_context=False,
            published=published_in(values, sources),
            remarks=(),
        )
    except ValueError as error:
        raise UsageError(f"{path}: architecture.{error}") from None
    counted = {"parameters": spec.parameters, "active_parameters": spec.active_parameters}
    for key, found in counted.items():
        if values.has(key) or (key == "parameters" and not own):
            _agrees(values, key, values.whole(key), found)
    return spec


def _layers(shape: Fields) -> tuple[LayerGroup, ...]:
    """The layers of an architecture: all alike, or ``dense_layers`` of them without the experts
    that the others have, and of the others ``full_layers`` without the window."""
    if shape.has("parts"):
        shape.only([*_SHAPE, "parts", "layers"])
        return own_layers(shape)
    if shape.has("linear_key_heads") or shape.has("mamba_heads"):
        return recurrent_layers(shape, _ARCHITECTURE_KEYS)
    attention: type[GroupedQuery | Latent] = GroupedQuery
    if shape.has("kv_lora_rank"):
        attention = SparseLatent if shape.has("index_topk") else Latent
    mlp: type[MixtureOfExperts | DenseMlp] = MixtureOfExperts
    known = [*_ARCHITECTURE_KEYS, *keys(attention)]
    dense, count = 0, shape.whole("num_layers")
    if shape.has("num_experts"):
        known += [*keys(MixtureOfExperts), "dense_layers"]
        dense = shape.count("dense_layers") if shape.has("dense_layers") else 0
        known += ["intermediate_size"] if dense else []
    else:
        mlp = DenseMlp
        known += keys(DenseMlp)
    shape.only(known)
    if dense >= count:
        raise shape.error("dense_layers", f"expected fewer than the {count} layers, found {dense}")
    full = shape.count("full_layers") if shape.has("full_layers") else 0
    if full > count - dense:
        raise shape.error("full_layers", f"expected at most {count - dense}, found {full}")
    kinds: list[tuple[int, Attention, Mlp]] = []
    of_all = shape.record(attention)
    if dense:
        kinds.append((dense, of_all, DenseMlp(shape.whole("intermediate_size"))))
    whole = of_all
    if full and isinstance(of_all, GroupedQuery):
        whole = replace(of_all, sliding_window=None, attention_chunk=None)
    usual = shape.record(mlp)
    kinds += [(n, kind, usual) for n, kind in ((count - dense - full, of_all), (full, whole)) if n]
    parallel, post = (shape.flag(key, absent=False) for key in ("parallel_mlp", "post_norms"))
    groups = [LayerGroup(*kind, parallel_mlp=parallel, post_norms=post) for kind in kinds]
    if full and full < count - dense:
        groups[-2:] = spread(groups[-2], groups[-1], dense)
    return tuple(groups)


def _agrees(values: Fields, key: str, published: int, found: int) -> None:
    """UsageError if the published count is not the one that the architecture makes."""
    if abs(found - published) > _PARAMETER_TOLERANCE * published:
        raise values.error(
            key,
            f"the architecture makes {found:,} parameters, which is not within "
            f"{_PARAMETER_TOLERANCE:.0%} of the {published:,} stated",
        )


def engine(name_or_path: str | Path, base: Path | None = None) -> EngineSpec:
    """The engine preset of that catalogue name, or the one in the YAML file at that path; at the
    release that follows an @, or at the newest that is known.

    A relative path starts at ``base``, or at the working directory without one. Raises UsageError
    for an unknown name and for a file that is not an engine preset.
    """
    name, release = name_or_path, ""
    if isinstance(name_or_path, str):
        name, release = spelled(name_or_path)
    path = find("engines", name, base)
    return (_shipped_engine if shipped("engines", path) else _engine)(path, release)


def _engine(path: Path, release: str) -> EngineSpec:
    return read_engine(read_entry("engines", path, release=release))


@cache
def _shipped_engine(path: Path, release: str) -> EngineSpec:
    """The engine of a file of the catalogue at a release, read once."""
    return _engine(path, release)
