"""Generates the JSON Schema with which an editor completes and checks a scenario.

A JSON Schema (draft 2020-12), made from the classes of the contract: keys with their description,
default and examples, and only values that the simulator supports. Rules between keys (``p95``
with ``cv``, a trace with arrivals) and the existence of files are left to ``infersim validate``.
With ``extends`` nothing is required, since a parent may say it.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sim.scenario.schema import Scenario
from sim.scenario.sections.run import Warmup
from sim.scenario.sections.support import refusal
from sim.scenario.text.parsing import parse
from sim.scenario.values import fields
from sim.scenario.values.readers import ConstantLaw, Kind

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_Schema = dict[str, Any]

ALSO: Mapping[tuple[str, str], _Schema] = {
    ("Scenario", "model"): {"$ref": "#/$defs/model"},
    ("Autoscaling", "cold_start"): {"const": "auto"},
    ("Scenario", "failures"): {"type": "array", "items": {"type": "object"}},
    ("Failures", "repair"): {"const": "auto"},
    ("Failures", "in_flight"): {"enum": ["lost", "retry"]},
    ("SchedulerSettings", "on_timeout"): {"enum": ["cancel", "retry"]},
    ("SchedulerSettings", "long_prefill_token_threshold"): {"const": 0},
}
"""Spellings that a section itself reads, in addition to those of the key's type."""
ONE_FOR_ALL = {("Scenario", "fleet"), ("Scenario", "metrics")}
"""Lists for which a single entry may stand."""
FIRST = (
    *("count", "tokens", "seed", "priority", "fromNone", "place", "version", "positive"),
    *("nonnegative", "ratio", "share", "price", "duration", "ttft_limit", "tpot_limit"),
    *("e2el_limit", "wait", "size", "bandwidth", "power", "rate", "switch", "spread", "text"),
    *("line", "file", "metric", "model", "gpu", "engine", "batching", "order", "router"),
    *("schedule", "warmup"),
)
"""The order in which the file has kinds of single values; others follow."""


@dataclass(slots=True)
class _Found:
    """The targets of references in a section's schema, by name."""

    kinds: dict[str, Kind] = field(default_factory=dict)
    sections: dict[str, _Schema] = field(default_factory=dict)


@cache
def kinds() -> Mapping[str, Kind]:
    """The kinds of single values in a scenario, by name."""
    found = _Found()
    _section(Scenario, found)
    return found.kinds


def json_schema() -> _Schema:
    """The schema of a scenario file, as data that JSON can hold."""
    found = _Found()
    root = _section(Scenario, found)
    root["properties"] = {"extends": _extends(), **root["properties"]}
    names = [name for name in FIRST if name in found.kinds]
    values = {name: found.kinds[name].schema() for name in dict.fromkeys([*names, *found.kinds])}
    return {
        "$schema": DRAFT,
        "title": "Scenario of infersim",
        **root,
        "if": {"required": ["extends"]},
        "else": {"$ref": "#/$defs/complete"},
        "$defs": {**values, **found.sections, "complete": _needs(Scenario)},
    }


def to_text() -> str:
    """``json_schema()`` as the text of a file."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def _extends() -> _Schema:
    file = {"type": "string", "minLength": 1}
    return {
        "description": "A scenario file, relative to this one, whose values hold unless this one "
        "says otherwise; or a list of such files, of which a later one wins.",
        "examples": ["base.yaml"],
        "anyOf": [file, {"type": "array", "items": file}],
    }


def _section(section: type[BaseModel], found: _Found) -> _Schema:
    """A mapping and its keys; adds the mappings and single values inside it to ``found``."""
    properties = {key: _key(section, key, hint, found) for key, hint in _hints(section).items()}
    described = {"description": " ".join((section.__doc__ or "").split())}
    return {**described, "type": "object", "properties": properties, "additionalProperties": False}


def _hints(section: type[BaseModel]) -> dict[str, Any]:
    """The type of each key as the class writes it."""
    hints = get_type_hints(section, include_extras=True)
    return {key: hints[key] for key in section.model_fields}


def _key(section: type[BaseModel], key: str, hint: Any, found: _Found) -> _Schema:
    """The values allowed at one key, less those refused there, with all text about it."""
    known = section.model_fields[key]
    schema: _Schema = {}
    if known.description:
        schema["description"] = known.description
    schema |= _default(known)
    examples = [
        parse(item, "").data if isinstance(item, str) else item for item in _examples(known)
    ]
    if examples:
        schema["examples"] = examples
    name = section.__name__
    if refusal(name, key, {}) is not None:
        return schema | {"type": "null"}
    schema |= _supported(_type(hint, name, key, found), name, key)
    if (name, key) in ALSO:
        known_types = schema.pop("anyOf", None) or [{"$ref": schema.pop("$ref")}]
        schema["anyOf"] = [*known_types, ALSO[name, key]]
    empty = isinstance(known.default_factory, type) and issubclass(known.default_factory, BaseModel)
    return schema | {"anyOf": [{"$ref": schema.pop("$ref")}, {"type": "null"}]} if empty else schema


def _examples(known: FieldInfo) -> list[Any]:
    return known.examples or []


def _default(known: FieldInfo) -> _Schema:
    """The default as it would be written; none for what is required and for whole sections."""
    if known.default_factory is Warmup:
        return {"default": str(Warmup())}
    if known.default is PydanticUndefined or known.default_factory is not None:
        return {}
    return {"default": known.default}


def _supported(schema: _Schema, section: str, key: str) -> _Schema:
    """``schema`` without the numbers, switches and lists that are refused at this key."""

    def refused(value: object) -> bool:
        return refusal(section, key, value) is not None

    if refused(fields.LARGEST_COUNT):
        return {**schema, "maximum": next(number for number in (1, 0) if not refused(number))}
    if refused(True):
        return {"const": False}
    if refused([{}, {}]):
        one, several = schema["anyOf"]
        return {"anyOf": [one, {**several, "maxItems": 1}]}
    return schema


def _type(hint: Any, section: str, key: str, found: _Found) -> _Schema:
    """The schema of a type; for choices, of those that are not refused at ``section.key``."""
    if (kind := _kind(hint)) is not None:
        found.kinds[kind.name] = kind
        return {"$ref": f"#/$defs/{kind.name}"}
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        if hint.__name__ not in found.sections:
            found.sections[hint.__name__] = {}  # its place among the others, also while it is made
            found.sections[hint.__name__] = _section(hint, found)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return _composed(hint, section, key, found)


def _kind(hint: Any) -> Kind | None:
    """The kind of single value that a type is, or that it narrows by checks of its own."""
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return next((mark for mark in reversed(marks) if isinstance(mark, Kind)), None)


def _composed(hint: Any, section: str, key: str, found: _Found) -> _Schema:
    """The schema of choices, lists and alternatives."""
    if hint is types.NoneType:
        return {"type": "null"}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        choices = [choice for choice in inner if refusal(section, key, choice) is None]
        return {"const": choices[0]} if len(choices) == 1 else {"enum": choices}
    if origin is tuple:
        item = _type(inner[0], section, key, found)
        items = {"type": "array", "items": item, "minItems": 1}
        return {"anyOf": [item, items]} if (section, key) in ONE_FOR_ALL else items
    if origin is Annotated and isinstance(inner[1], FieldInfo | Tag):
        schema = _type(inner[0], section, key, found)
        if (law := _constant(hint)) is None:
            return schema
        return {"anyOf": [*schema["anyOf"], _type(_hints(law)["value"], section, key, found)]}
    if origin in (Union, types.UnionType):
        parts = [part for part in inner if not _refused_kind(part, section, key)]
        alternatives = [_type(part, section, key, found) for part in parts]
        flat = [item for part in alternatives for item in (part.get("anyOf", [part]))]
        return {"anyOf": flat}
    raise TypeError(f"{section}.{key}: no JSON Schema for {hint!r}; give it a Kind")


def _constant(hint: Any) -> type[BaseModel] | None:
    """The law ``fixed`` that a value alone stands for; None where it stands for none."""
    marks = get_args(hint)[1:]
    return next((mark.fixed for mark in marks if isinstance(mark, ConstantLaw)), None)


def _refused_kind(part: Any, section: str, key: str) -> bool:
    """Whether a variant is one that the simulator cannot do yet."""
    if not isinstance(part, type) or "kind" not in getattr(part, "model_fields", {}):
        return False
    kinds = get_args(_hints(part)["kind"])
    return len(kinds) == 1 and refusal(section, key, {"kind": kinds[0]}) is not None


def _needs(hint: Any, section: str = "", key: str = "") -> _Schema:
    """The needs of a scenario without parents: the required keys of a type, and inside it."""
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        inner = {name: _needs(part, hint.__name__, name) for name, part in _hints(hint).items()}
        properties = {name: schema for name, schema in inner.items() if schema}
        required = [name for name, known in hint.model_fields.items() if known.is_required()]
        if "kind" in required:
            properties["kind"] = {"const": get_args(_hints(hint)["kind"])[0]}
        found: Mapping[str, Any] = {"required": required, "properties": properties}
        return {name: value for name, value in found.items() if value}
    origin, inner_hints = get_origin(hint), get_args(hint)
    if origin is tuple:
        item = _needs(inner_hints[0])
        if not item:
            return {}
        items = {"type": "array", "items": item}
        one = {"type": "object", **item}
        return {"anyOf": [one, items]} if (section, key) in ONE_FOR_ALL else items
    if origin is Annotated and isinstance(inner_hints[1], FieldInfo):
        law = _needs(inner_hints[0], section, key)
        alone = {"anyOf": [*law.get("anyOf", ()), {"type": ["number", "string"]}]}
        return law if _constant(hint) is None else alone
    if origin in (Union, types.UnionType):
        supported = [part for part in inner_hints if not _refused_kind(part, section, key)]
        parts = [_needs(part, section, key) for part in supported if part is not types.NoneType]
        if any(parts):
            null = [{"type": "null"}] if types.NoneType in inner_hints else []
            also = [ALSO[section, key]] if (section, key) in ALSO else []
            laws = [part if "anyOf" in part else {"type": "object", **part} for part in parts]
            return {"anyOf": [*laws, *null, *also]}
    return {}
