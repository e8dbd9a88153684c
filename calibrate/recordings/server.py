"""Says whose server a record is of: its engine, the preset of its release, and what is assumed.

A benchmark's client is not the server: what it measured may be any engine's. A record that does not
name the engine is taken for vLLM's, and says so; an engine without a preset has vLLM's in its
place. Settings that neither the record nor the user states are what the engine chooses, and are
listed as assumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from calibrate.recordings.stated import Stated
from sim import catalog
from sim.catalog.engine_release import preset_of
from sim.catalog.releases import spelled
from sim.errors import UsageError

ASSUMED = "vllm"
"""The engine of a record that does not name one."""

ANOTHER = "for a different one, give --set engine=NAME"


class RecordedServer(NamedTuple):
    """The engine of a record by its ``name``, the ``preset`` that it is simulated with, whether the
    name is ``assumed``, and a ``note`` on how both are known. ``version`` is that of the record."""

    name: str
    version: str | None
    preset: str
    assumed: bool
    note: str

    @property
    def subject(self) -> str:
        """The engine within a sentence, such as ``vllm 0.19.0``."""
        release = f" {self.version}" if self.version else ""
        told = f"{self.name}{release}"
        return f"a server, taken for {told} (assumed)," if self.assumed else told


def server_of(stated: Stated, given: str | None) -> RecordedServer:
    """Whose server a record is of; ``given`` is the preset that the user names, which goes first.

    >>> server_of(Stated("m", None, "vllm", "0.19.0"), None).preset
    'vllm@0.19.0'
    >>> server_of(Stated("m", None, None), None).assumed
    True
    """
    named = f"the record names {stated.engine}" if stated.engine else "the record does not name it"
    if given is not None:
        family = _family(given)
        version = stated.version if family == stated.engine else None
        return RecordedServer(
            family, version, given, False, f"The engine is {given}, as given; {named}."
        )
    found = preset_of(stated.engine or ASSUMED, stated.version)
    if stated.engine is None:
        assert found is not None
        title = catalog.engine(found.preset).title
        note = f"The record does not name the engine: vLLM is assumed ({title}); {ANOTHER}."
        return RecordedServer(ASSUMED, stated.version, found.preset, True, note)
    if found is None:
        note = (
            f"The record names {stated.engine}, of which there is no preset: that of vLLM stands "
            f"in for it, and how far its predictions are off is not known; {ANOTHER}."
        )
        standing_in = catalog.engine(ASSUMED).label
        return RecordedServer(stated.engine, stated.version, standing_in, False, note)
    return RecordedServer(stated.engine, stated.version, found.preset, False, found.note)


def _family(preset: str) -> str:
    """The engine that a preset is of, the preset's own name where it has no releases."""
    try:
        found = catalog.engine(preset)
    except UsageError:
        return preset
    return preset if found.releases is None else spelled(preset).name


DEFAULTS = (
    *("fleet.0.replicas", "fleet.0.tensor_parallel"),
    *("precision.weights", "precision.activations", "precision.kv_cache"),
    *("scheduler.max_num_seqs", "scheduler.max_num_batched_tokens", "max_model_len"),
    *("kv_cache.gpu_memory_utilization", "kv_cache.enable_prefix_caching"),
)
"""Settings of a server that decide what it can do, and that few records state."""

INSTEAD = {"kv_cache.gpu_memory_utilization": "kv_cache.num_gpu_blocks"}
"""Settings that are not asked for where another one is known."""


def assumed_settings(
    stated: Mapping[str, Any], given: set[str], resolved: Mapping[str, Any]
) -> dict[str, Any]:
    """The settings of ``DEFAULTS`` that neither the record (``stated``) nor the user (``given``,
    dotted keys) has, with their values in the ``resolved`` scenario."""
    known = {*stated, *(_of_the_pool(key) for key in given)}
    return {
        key: value
        for key in DEFAULTS
        if not any(_covers(each, key) or _covers(each, INSTEAD.get(key, key)) for each in known)
        and (value := _at(resolved, key)) is not None
    }


def _of_the_pool(key: str) -> str:
    """``fleet.gpu`` is short for ``fleet.0.gpu``."""
    first, _, rest = key.partition(".")
    return f"fleet.0.{rest}" if first == "fleet" and not rest.startswith("0") else key


def _covers(given: str, key: str) -> bool:
    return given == key or key.startswith(f"{given}.")


def _at(resolved: Mapping[str, Any], key: str) -> Any:
    found: Any = resolved
    for step in key.split("."):
        if isinstance(found, Mapping):
            found = found.get(step)
        elif isinstance(found, list | tuple) and step.isdecimal():
            found = found[int(step)]
    return found


def assumption(assumed: Mapping[str, Any]) -> list[str]:
    """A sentence on what is assumed; none where nothing is."""
    if not assumed:
        return []
    told = ", ".join(f"{key}={_shown(value)}" for key, value in assumed.items())
    return [
        f"Not in the record, hence assumed: {told}. Give what the server had (--set KEY=VALUE)."
    ]


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
