"""Generates the JSON Schema with which an editor completes and checks a scenario.

A JSON Schema (draft 2020-12), made from the classes of the contract: keys with their description,
default and examples, and only values that the simulator supports. Rules between keys (``p95``
with ``cv``, a trace with arrivals) and the existence of files are left to ``infersim validate``.
With ``extends`` nothing is required, since a parent may say it.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Tag
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from sim import catalog, units
from sim.own import PATTERN
from sim.routers import ROUTERS
from sim.scenario import fields, slo, speculation
from sim.scenario.deployment import Batching, Order, Router
from sim.scenario.parsing import parse
from sim.scenario.run import RunSettings, Warmup
from sim.scenario.schema import Scenario
from sim.scenario.support import refusal
from sim.schedulers import ORDERS, POLICIES

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
_NUMBER = r"\+?([0-9][0-9_]*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
_WHOLE = r"\+?[0-9]+(_[0-9]+)*"


def json_schema() -> _Schema:
    """The schema of a scenario file, as data that JSON can hold."""
    sections: dict[str, _Schema] = {}
    root = _section(Scenario, sections)
    root["properties"] = {"extends": _extends(), **root["properties"]}
    values = {name: schema for name, _, schema in _values()}
    return {
        "$schema": DRAFT,
        "title": "Scenario of infersim",
        **root,
        "if": {"required": ["extends"]},
        "else": {"$ref": "#/$defs/complete"},
        "$defs": {**values, **sections, "complete": _needs(Scenario)},
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


def _values() -> Sequence[tuple[str, Any, _Schema]]:
    """The single values: the name of each, its type in the contract, and its schema."""
    whole = {"type": ["integer", "string"], "minimum": 1, "maximum": fields.LARGEST_COUNT}
    count = {**whole, "pattern": _whole_text(_WHOLE)}
    number = {"type": ["number", "string"], "pattern": _whole_text(_NUMBER)}
    ratio = _whole_text(rf"{_NUMBER}(\s*/\s*{_NUMBER})?")
    line = {"type": "string", "pattern": r"\S"}
    time = f"{_NUMBER}\\s*({_units('time')})"
    dollars = {
        "description": "US dollars for an hour of one such GPU.",
        "type": ["number", "string"],
        "minimum": 0,
        "pattern": _whole_text(_NUMBER),
    }
    price = {
        "anyOf": [
            {
                "type": ["number", "string", "null"],
                "minimum": 0,
                "pattern": _whole_text(f"{_NUMBER}|catalogue"),
            },
            {"type": "object", "properties": dict.fromkeys(catalog.names("gpus"), dollars)},
        ]
    }
    warmup = {"type": ["integer", "string"], "minimum": 0, "maximum": fields.LARGEST_COUNT}
    switch = "|".join(_any_case(word) for word in ("true", "yes", "on", "false", "no", "off"))
    own_class = {"type": "string", "pattern": f"^({PATTERN})$"}
    return (
        ("count", fields.Count, count),
        ("tokens", fields.Tokens, count),
        ("seed", fields.Seed, {**count, "minimum": 0, "maximum": 2**63 - 1}),
        ("priority", fields.Priority, {**count, "minimum": 0}),
        ("fromNone", fields.FromNone, {**count, "minimum": 0}),
        ("place", fields.Place, {**count, "minimum": 0}),
        ("version", fields.Version, {"const": 1}),
        ("positive", fields.Positive, {**number, "exclusiveMinimum": 0}),
        ("nonnegative", fields.Nonnegative, {**number, "minimum": 0}),
        ("ratio", fields.Ratio, {**number, "exclusiveMinimum": 0, "pattern": ratio}),
        ("share", fields.Share, {**number, "exclusiveMinimum": 0, "maximum": 1}),
        ("price", fields.Price, price),
        ("duration", fields.Duration, _quantity("time", zero=False)),
        ("ttft_limit", slo.TtftLimit, _limit("ttft")),
        ("tpot_limit", slo.TpotLimit, _limit("tpot")),
        ("e2el_limit", slo.E2elLimit, _limit("e2el")),
        ("wait", fields.Wait, _quantity("time", zero=True)),
        ("size", fields.Size, _quantity("bytes", zero=True)),
        ("bandwidth", fields.Bandwidth, _quantity("bytes per second", zero=False)),
        ("power", fields.Power, _quantity("power", zero=False)),
        ("rate", fields.Rate, _quantity("rate", zero=False)),
        ("switch", fields.Switch, {"type": ["boolean", "string"], "pattern": _whole_text(switch)}),
        (
            "spread",
            fields.Spread,
            {
                "type": ["boolean", "integer", "string"],
                "minimum": 1,
                "maximum": fields.LARGEST_COUNT,
                "pattern": _whole_text(f"{switch}|{_WHOLE}"),
            },
        ),
        ("text", fields.Text, {"type": "string"}),
        ("line", fields.Line, line),
        ("file", fields.File, line),
        ("metric", fields.Metric, own_class),
        ("model", fields.ModelName, _named("models")),
        ("gpu", fields.GpuName, _named("gpus")),
        ("engine", fields.EngineName, _named("engines")),
        ("batching", Batching, {"anyOf": [{"enum": list(POLICIES)}, own_class]}),
        ("order", Order, {"anyOf": [{"enum": list(ORDERS)}, own_class]}),
        ("router", Router, {"anyOf": [{"enum": list(ROUTERS)}, own_class]}),
        (
            "schedule",
            speculation.Schedule,
            {
                "anyOf": [
                    {"const": "best"},
                    {"type": "null"},
                    {
                        "type": "array",
                        "minItems": 1,
                        "items": {
                            "type": "array",
                            "items": {"type": "integer", "minimum": 0},
                            "minItems": 3,
                            "maxItems": 3,
                        },
                    },
                ]
            },
        ),
        (
            "warmup",
            get_type_hints(RunSettings, include_extras=True)["warmup"],
            {**warmup, "pattern": _whole_text(f"auto|{_WHOLE}|{time}")},
        ),
    )


def _quantity(dimension: str, *, zero: bool) -> _Schema:
    """A number in SI units, or a text with a unit."""
    least = "minimum" if zero else "exclusiveMinimum"
    text = _whole_text(f"{_NUMBER}\\s*({_units(dimension)})?")
    return {"type": ["number", "string"], least: 0, "pattern": text}


@cache
def _types() -> Sequence[tuple[str, Any]]:
    """The single values without their schemas, which name what a catalogue has at the time."""
    return tuple((name, known) for name, known, _ in _values())


def _limit(metric: str) -> _Schema:
    """A time with its unit, or a number that can only be in seconds."""
    text = _whole_text(f"{_NUMBER}\\s*({_units('time')})")
    number = {"exclusiveMinimum": 0, "maximum": slo.BARE[metric]}
    return {"type": ["number", "string"], **number, "pattern": text}


def _units(dimension: str) -> str:
    return "|".join(re.escape(unit) for unit in units.UNITS[dimension] if unit)


def _whole_text(pattern: str) -> str:
    """The pattern of a text that is nothing but this, with space around it."""
    return rf"^\s*({pattern})\s*$"


def _any_case(word: str) -> str:
    return "".join(f"[{char.upper()}{char}]" for char in word)


def _named(kind: catalog.Kind) -> _Schema:
    """A name of the catalogue, which editors can list, or any path."""
    return {"anyOf": [{"enum": catalog.names(kind)}, {"type": "string", "pattern": r"\S"}]}


def _section(section: type[BaseModel], sections: dict[str, _Schema]) -> _Schema:
    """A mapping and its keys; adds the mappings inside it to ``sections``."""
    properties = {key: _key(section, key, hint, sections) for key, hint in _hints(section).items()}
    described = {"description": " ".join((section.__doc__ or "").split())}
    return {**described, "type": "object", "properties": properties, "additionalProperties": False}


def _hints(section: type[BaseModel]) -> dict[str, Any]:
    """The type of each key as the class writes it."""
    hints = get_type_hints(section, include_extras=True)
    return {key: hints[key] for key in section.model_fields}


def _key(section: type[BaseModel], key: str, hint: Any, sections: dict[str, _Schema]) -> _Schema:
    """What may stand at one key, less what is refused there, with all that is said about it."""
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
    schema |= _supported(_type(hint, name, key, sections), name, key)
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


def _type(hint: Any, section: str, key: str, sections: dict[str, _Schema]) -> _Schema:
    """The schema of a type; for choices, of those that are not refused at ``section.key``."""
    value = _value_name(hint)
    if value:
        return {"$ref": f"#/$defs/{value}"}
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        if hint.__name__ not in sections:
            sections[hint.__name__] = {}  # its place among the others, also while it is made
            sections[hint.__name__] = _section(hint, sections)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return _composed(hint, section, key, sections)


def _value_name(hint: Any) -> str:
    """The single value that a type is, or that it narrows by checks of its own; else nothing."""
    best, longest = "", 0
    for name, known in _types():
        parts = get_args(known)
        if get_origin(hint) is Annotated and get_args(hint)[: len(parts)] == parts:
            best, longest = (name, len(parts)) if len(parts) > longest else (best, longest)
    return best


def _composed(hint: Any, section: str, key: str, sections: dict[str, _Schema]) -> _Schema:
    """The same for choices, lists and alternatives."""
    if hint is types.NoneType:
        return {"type": "null"}
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        choices = [choice for choice in inner if refusal(section, key, choice) is None]
        return {"const": choices[0]} if len(choices) == 1 else {"enum": choices}
    if origin is tuple:
        item = _type(inner[0], section, key, sections)
        items = {"type": "array", "items": item, "minItems": 1}
        return {"anyOf": [item, items]} if (section, key) in ONE_FOR_ALL else items
    if origin is Annotated and isinstance(inner[1], FieldInfo | Tag):
        return _type(inner[0], section, key, sections)
    if origin in (Union, types.UnionType):
        parts = [part for part in inner if not _refused_kind(part, section, key)]
        alternatives = [_type(part, section, key, sections) for part in parts]
        flat = [item for part in alternatives for item in (part.get("anyOf", [part]))]
        return {"anyOf": flat}
    raise TypeError(f"{section}.{key}: no JSON Schema for {hint!r}; name it in _values")


def _refused_kind(part: Any, section: str, key: str) -> bool:
    """Whether a variant is one that the simulator cannot do yet."""
    if not isinstance(part, type) or "kind" not in getattr(part, "model_fields", {}):
        return False
    kinds = get_args(_hints(part)["kind"])
    return len(kinds) == 1 and refusal(section, key, {"kind": kinds[0]}) is not None


def _needs(hint: Any, section: str = "", key: str = "") -> _Schema:
    """What a scenario without parents must have: the required keys of a type, and inside it."""
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
        return _needs(inner_hints[0], section, key)
    if origin in (Union, types.UnionType):
        supported = [part for part in inner_hints if not _refused_kind(part, section, key)]
        parts = [_needs(part, section, key) for part in supported if part is not types.NoneType]
        if any(parts):
            null = [{"type": "null"}] if types.NoneType in inner_hints else []
            also = [ALSO[section, key]] if (section, key) in ALSO else []
            return {"anyOf": [*({"type": "object", **part} for part in parts), *null, *also]}
    return {}
