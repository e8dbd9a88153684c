"""Writes the scenario of a server: every key with where it comes from, and what was assumed.

What neither the command nor its surroundings state is what the engine's release chooses, and stays
out of the file; traffic is never stated by a server, and an assumption to be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sim.catalog.engine_release import preset_of
from sim.scenario import Scenario
from sim.scenario.reading.overrides import applied
from sim.scenario.text.document import Document, Problem
from sim.servers.draft import Draft, Known
from sim.servers.joined import (
    compare_gpus,
    is_v0,
    join_options,
    put_v0,
    read_adapters,
    read_drafting,
    read_environment,
    read_formats,
    read_kv_tokens,
)
from sim.servers.named import model_and_gpu, spec_of
from sim.servers.started import Started
from sim.servers.words import read_words
from sim.servers.written import assumed_traffic, scenario_text
from sim.specs.model import ModelSpec

CHOSEN = (
    *("scheduler.max_num_seqs", "scheduler.max_num_batched_tokens", "max_model_len"),
    *("kv_cache.gpu_memory_utilization", "kv_cache.enable_prefix_caching", "kv_cache.block_size"),
)
"""Choices of an engine that decide what a server can do."""


@dataclass(frozen=True)
class Imported:
    """The scenario of a server: its ``text`` with comments, as read, and what it could not say."""

    started: Started
    text: str
    scenario: Scenario
    draft: Draft
    chosen: Mapping[str, Any]
    """What the engine chooses for the keys of ``CHOSEN`` that nothing states."""

    def document(self) -> dict[str, Any]:
        """The answer for programs."""
        return {
            "command": "import",
            "where": self.started.where,
            "engine": self.started.engine,
            "release": self.started.release or None,
            "stated": {key: each._asdict() for key, each in self.draft.values.items()},
            "chosen": dict(self.chosen),
            "left_out": dict(self.draft.left_out),
            "unknown": list(self.draft.unknown),
            "without_effect": list(self.draft.without_effect),
            "notes": list(self.draft.notes),
            "scenario": self.text,
        }


def imported(
    started: Started,
    base: Path,
    *,
    model: str | None = None,
    gpu: str | None = None,
    overrides: Sequence[str] = (),
) -> Imported:
    """The scenario of ``started``, to stand in the folder ``base``.

    ``model`` and ``gpu`` go before what the server says. UsageError where neither says which they
    are, and for an option that the engine would refuse; ScenarioError for what no scenario has.
    """
    draft = read_words(started)
    for key, (value, origin) in started.settings.items():
        if key == "kv_tokens":
            draft.hold(key, value, origin)
        elif key != "fleet.replicas" or value > 1:
            draft.put(key, value, origin)
    named_model, card = model_and_gpu(started, draft, model, gpu, overrides)
    spec = spec_of(named_model.value, base, overrides)
    engine = _engine(started, draft)
    join_options(started, draft, spec)
    read_formats(draft, spec)
    read_environment(started, draft, spec)
    if is_v0(started):
        put_v0(started, draft, spec)
    read_drafting(draft, overrides)
    read_adapters(started, draft)
    read_kv_tokens(started, draft, spec)
    compare_gpus(started, draft, card)
    stem = Path(re.split(r" [(#]", started.where)[0]).stem
    name = "server" if stem in ("the command", "stdin") else stem
    lead = {
        "version": Known(1, ""),
        "name": Known(name, ""),
        "model": named_model,
        "fleet.gpu": card,
        "engine": engine,
    }
    document, refused = _document({**lead, **draft.values}, base, overrides)
    resolved = Scenario.from_document(document, refused).resolved()
    if _whole_prompts(started, draft, resolved, spec):
        document, refused = _document({**lead, **draft.values}, base, overrides)
        resolved = Scenario.from_document(document, refused).resolved()
    values = {**lead, **draft.values}
    values = {key: each for key, each in values.items() if each.value is not None}
    found = {key: _at(resolved, key) for key in CHOSEN if key not in draft.values}
    chosen = {key: value for key, value in found.items() if value is not None}
    origins = {key: each.origin for key, each in values.items()}
    text = scenario_text(started, document.data, origins, draft, chosen, overrides)
    scenario = Scenario.from_document(Document(document.data, base, text=text), refused)
    draft.values = values
    return Imported(started, text, scenario, draft, chosen)


def _document(
    values: Mapping[str, Known], base: Path, overrides: Sequence[str]
) -> tuple[Document, list[Problem]]:
    """The scenario of ``values`` with assumed traffic, and what ``overrides`` have wrong."""
    data = _nested({key: each.value for key, each in values.items() if each.value is not None})
    data |= assumed_traffic(data.get("max_model_len"))
    return applied(Document(data, base), overrides)


def _whole_prompts(
    started: Started, draft: Draft, resolved: Mapping[str, Any], spec: ModelSpec | None
) -> bool:
    """Whether vLLM, without chunks, raises the tokens of a batch that nothing states to those of
    the longest prompt (vllm/engine/arg_utils.py), which ``draft`` then says."""
    key = "scheduler.max_num_batched_tokens"
    chunked = draft.values.get("scheduler.chunked_prefill", Known(True, ""))
    longest = _at(resolved, "max_model_len") or (spec and spec.max_position_embeddings) or 0
    chosen = _at(resolved, key)
    if started.engine != "vllm" or chunked.value or key in draft.values or longest <= chosen:
        return False
    draft.put(key, longest, f"{chunked.origin}: as long as prompts")
    return True


def _engine(started: Started, draft: Draft) -> Known:
    """The preset of the engine's release."""
    if is_v0(started):
        return Known("vllm", "V0, whose rule is `policy: vllm-v0`")
    found = preset_of(started.engine, started.release or None)
    if found is None:
        return Known(started.engine, "its program")
    if not found.covers:
        draft.notes.append(found.note)
    if started.version:
        return Known(found.preset, f"release {started.version} in the log")
    if started.release:
        return Known(found.preset, f"image {started.image}")
    draft.notes.append(f"{found.note} Say another by --set engine={started.engine}@RELEASE.")
    return Known(found.preset, "release not stated: the newest known")


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys as nested mappings; the first pool of the fleet stands for all of it."""
    data: dict[str, Any] = {}
    for key, value in values.items():
        *steps, last = key.split(".")
        inside = data
        for step in steps:
            inside = inside.setdefault(step, {})
        inside[last] = value
    return data


def _at(resolved: Mapping[str, Any], key: str) -> Any:
    """The value of a key in a resolved scenario, the pool's own before that of all."""
    fleet = resolved.get("fleet")
    pools = fleet if isinstance(fleet, list) else []
    for place in (*pools, resolved):
        found: Any = place
        for step in key.split("."):
            found = found.get(step) if isinstance(found, Mapping) else None
        if found is not None:
            return found
    return None
