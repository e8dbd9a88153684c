"""Finds the model and the GPU of a server by what its command and its surroundings call them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from sim import catalog
from sim.catalog.ids import named
from sim.errors import InfersimError, UsageError, did_you_mean
from sim.servers.draft import Draft, Known, gpu_named, plain
from sim.servers.started import Started
from sim.specs.model import ModelSpec
from sim.specs.precision import GGUF


def model_and_gpu(
    started: Started, draft: Draft, model: str | None, gpu: str | None, overrides: Sequence[str]
) -> tuple[Known, Known]:
    """The model and the GPU; one error for both where neither is known."""
    try:
        found = _model(started, draft, model, overrides)
    except UsageError as error:
        try:
            _gpu(started, gpu, overrides)
        except UsageError as other:
            rest = str(other).removeprefix(f"{started.where}: ")
            raise UsageError(f"{error}; and {rest}") from None
        raise
    return found, _gpu(started, gpu, overrides)


def overridden(overrides: Sequence[str], *keys: str) -> bool:
    """Whether ``--set`` gives one of ``keys`` of the scenario."""
    given = {plain(text.partition("=")[0].strip()) for text in overrides}
    return bool(given & set(keys))


def _model(started: Started, draft: Draft, given: str | None, overrides: Sequence[str]) -> Known:
    """The model as a scenario names it; the format in the name of a GGUF file goes to ``draft``."""
    held = draft.held.get("model")
    written = "" if held is None else str(held.value)
    if held is not None and started.engine == "llama.cpp":
        written = _gguf(draft, held, written)
    if given is not None:
        of_name = named(_last(written))
        if of_name is not None and of_name.entry == given and of_name.words:
            return Known(of_name.text, f"--model of this import, stored as {written} says")
        return Known(_absolute(given, "models"), "--model of this import")
    if held is None:
        if overridden(overrides, "model", "model.path"):
            return Known("", "--set")
        unset = draft.held.get("unset model")
        says = f"nothing sets {unset.value}, its model" if unset else "names no model"
        raise UsageError(
            f"{started.where}: {says}; add --model NAME (`infersim list models`), the id of one "
            "on Hugging Face, or the path of a config.json"
        )
    text = written
    local = started.folder / str(held.value)
    if local.exists():
        return Known(str(local.absolute()), held.origin)
    served = str(draft.held.get("served", Known("", "")).value)
    found = in_catalogue(text, held.origin)
    if found is not None:
        return found
    local_only = re.match(r"[./]|\w+://", text) and "models--" not in text
    for spelling in (served, _last(served)) if local_only else ():
        if spelling in catalog.names("models") or named(spelling) is not None:
            draft.notes.append(
                f"{text} is read as {spelling}, which it is served as; --model NAME says another."
            )
            return Known(spelling, f"{held.origin} {text}, served as {served}")
    raise UsageError(
        f"{started.where}: the model {text!r} is not in the catalogue"
        f"{did_you_mean(_last(text).lower(), catalog.names('models'))}; add --model NAME, or the "
        "path of its config.json"
    )


def in_catalogue(text: str, origin: str) -> Known | None:
    """The model that an id or a path names; None where the catalogue does not have it."""
    for spelling, where in _spellings(text, origin):
        if spelling in catalog.names("models") or named(spelling) is not None:
            return Known(spelling, where)
    return None


def _spellings(text: str, origin: str) -> Iterator[tuple[str, str]]:
    """The names that a model may go by, as written and those in its path, and where each stands."""
    yield text, origin
    cached = re.search(r"models--([^/]+?)--([^/]+)", text)
    if cached is not None:
        yield f"{cached[1]}/{cached[2]}", f"{origin} {text}, of the cache of Hugging Face"
    yield _last(text), f"{origin} {text}, by its name"


def _last(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


_GGUF = re.compile(
    r"[-.:_](?:UD-)?(" + "|".join(sorted(GGUF, key=len, reverse=True)) + r"|f16|bf16)$"
)


def _gguf(draft: Draft, held: Known, text: str) -> str:
    """The model's name in that of a GGUF file or repository; the format in it goes to ``draft``."""
    plain = text.removesuffix(".gguf")
    found = _GGUF.search(plain.lower())
    if found is not None:
        weights = {"f16": "fp16"}.get(found[1], found[1])
        draft.put("precision.weights", weights, f"{held.origin} {held.value}")
        plain = plain[: found.start()]
    return re.sub(r"[-_]gguf$", "", plain, flags=re.IGNORECASE)


def _absolute(name: str, kind: catalog.Kind) -> str:
    """``name``, made absolute if it is the path of a file here and not in the catalogue."""
    if name in catalog.names(kind) or not Path(name).exists():
        return name
    return os.path.abspath(name)  # noqa: PTH100 - links stay


def spec_of(name: str, base: Path, overrides: Sequence[str]) -> ModelSpec | None:
    """The model, to read options by; None for one that the scenario will complain of."""
    given = [text.partition("=")[2].strip() for text in overrides if text.startswith("model=")]
    try:
        return catalog.model(given[-1] if given else name, base)
    except InfersimError:
        return None


def _gpu(started: Started, given: str | None, overrides: Sequence[str]) -> Known:
    if given is not None:
        return Known(_absolute(given, "gpus"), "--gpu of this import")
    found = gpu_named(started.gpu_label) if started.gpu_label else None
    if found is not None:
        return Known(found, f"label {started.gpu_label}")
    if overridden(overrides, "fleet.gpu"):
        return Known("", "--set")
    says = (
        f"the GPU {started.gpu_label!r} is not in the catalogue"
        if started.gpu_label
        else "does not say on which GPU"
    )
    raise UsageError(
        f"{started.where}: {says}; add --gpu NAME (`infersim list gpus`) or the path of a GPU file"
    )
