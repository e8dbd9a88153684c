"""Provides a reference of every key of a scenario: meaning, unit, default, values, example.

The entries come from the JSON Schema, and with it from the classes of the contract; a key that is
added there is in the reference too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from sim import units
from sim.errors import UsageError, did_you_mean
from sim.scenario.reference.json_schema import json_schema, kinds

LATER = "(others are not supported yet)"
_Schema = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Key:
    """One key. ``path`` is written as for ``--set``; ``kind`` names the law that has the key, ""
    where all have it; ``holds`` names the section below it, "" for a single value."""

    path: str
    kind: str
    meaning: str
    required: bool
    default: str | None
    values: str
    unit: str | None
    examples: tuple[str, ...]
    holds: str

    def document(self) -> dict[str, Any]:
        """The key as plain data."""
        data = asdict(self)
        del data["holds"]
        return {**data, "examples": list(self.examples), "section": bool(self.holds)}


def keys() -> list[Key]:
    """Every key, in the order of the contract; each law of a section before its own keys."""
    schema = json_schema()
    sections = {name: item for name, item in schema["$defs"].items() if name not in kinds()}
    return list(_inside("", "", schema, sections))


def asked(name: str | None) -> list[Key]:
    """The keys that ``name`` means: one and all below it, by its path or the last part of it.

    By its last part it is the key of all pools, not that of one. None means all of them. Raises
    UsageError where there is none, with the keys of which it is a value, or the nearest key.

    >>> [key.path for key in asked("max_num_seqs")]
    ['scheduler.max_num_seqs']
    """
    known = keys()
    if name is None:
        return known
    wanted = _plain(name)
    found = [key for key in known if (_plain(key.path) + ".").startswith(f"{wanted}.")]
    if not found:
        named = [key.path for key in known if _plain(key.path).endswith(f".{wanted}")]
        ends = tuple(
            f"{path}."
            for path in named
            if path.removeprefix("fleet.") not in named or not path.startswith("fleet.")
        )
        found = [key for key in known if f"{key.path}.".startswith(ends)]
    if not found:
        raise UsageError(
            f"{name}: no key of a scenario{_taken(name, known) or _nearest(wanted, known)}"
        )
    return found


def _taken(value: str, known: Sequence[Key]) -> str:
    """The keys that allow a ``value`` by its name."""
    found = dict.fromkeys(
        key.path for key in known if value in key.values.replace(";", ",").split(", ")
    )
    return f", but a value of {', '.join(found)}" if found else ""


def _nearest(wanted: str, known: Sequence[Key]) -> str:
    """The key that was probably meant, by its path or by its last part."""
    paths = list(dict.fromkeys(_plain(key.path) for key in known))
    if hint := did_you_mean(wanted, paths):
        return hint
    lasts = {path.rpartition(".")[2]: path for path in reversed(paths)}
    return did_you_mean(wanted.rpartition(".")[2], list(lasts))


def _plain(path: str) -> str:
    """A path without the numbers of list entries: ``fleet.0.gpu`` is ``fleet.gpu``."""
    return ".".join(step for step in path.strip().split(".") if not step.isdecimal())


def _inside(path: str, kind: str, section: _Schema, known: _Schema) -> Iterator[Key]:
    """The keys of one section, each with what is below it."""
    for name, schema in section["properties"].items():
        if kind and name == "kind":
            continue
        yield from _key(f"{path}.{name}".lstrip("."), kind, schema, known)


def _key(path: str, kind: str, schema: _Schema, known: _Schema) -> Iterator[Key]:
    parts = schema.get("anyOf", [schema])
    refs = [ref for part in parts for ref in _refs(part)]
    sections = list(dict.fromkeys(ref for ref in refs if ref in known))
    laws = [law for name in sections if (law := _law(known[name]))]
    values = [ref for ref in refs if ref in kinds()]
    null = any(part.get("type") == "null" for part in parts)
    yield Key(
        path=path,
        kind=kind,
        meaning=_meaning(schema, [] if laws else [known[name] for name in sections]),
        required="default" not in schema and not null and path != "extends",
        default=_default(schema, values) if "default" in schema else None,
        values=_allowed(schema, parts, laws),
        unit=next((kinds()[name].unit for name in values), None),
        examples=tuple(_written(example) for example in schema.get("examples", ())),
        holds="laws" if laws else "".join(sections),
    )
    several = any(part.get("type") == "array" for part in parts)
    several = several and path not in ("fleet", "failures")  # for which one mapping may stand
    inner = f"{path}.0" if several else path
    for name in sections:
        law = _law(known[name])
        if law:
            told = known[name]["description"]
            yield Key(path, law, told, False, None, f"kind: {law}", None, (), name)
        yield from _inside(inner, law or kind, known[name], known)


def _refs(part: _Schema) -> list[str]:
    """The names of the definitions that an alternative, or a list of it, points at."""
    if part.get("type") == "array":
        return _refs(part["items"])
    return [part["$ref"].rpartition("/")[2]] if "$ref" in part else []


def _law(section: _Schema) -> str:
    """The ``kind`` by which a section is chosen; "" for one that stands alone."""
    kind = section["properties"].get("kind", {})
    return str(kind.get("const", ""))


def _meaning(schema: _Schema, sections: Sequence[_Schema]) -> str:
    """The text about a value; for a section its own text, and that of this key where it may be left
    out or repeated."""
    own = str(schema.get("description", ""))
    said = [str(section["description"]) for section in sections]
    listed = any(part.get("type") == "array" for part in schema.get("anyOf", ()))
    return " ".join([*said, own] if not said or listed or "default" in schema else said).strip()


def _allowed(schema: _Schema, parts: Sequence[_Schema], laws: Sequence[str]) -> str:
    """The values allowed at a key, in words."""
    if schema.get("maximum") in (0, 1) and "$ref" in schema:
        return f"{schema['maximum']} {LATER}"
    if "const" in schema or schema.get("type") == "null":
        return f"{_written(schema.get('const'))} {LATER}"
    words = [f"a mapping with kind: {', '.join(laws)}"] if laws else []
    for part in [part for part in parts if not laws or set(_refs(part)) <= set(kinds())]:
        words.extend(word for word in _words(part) if word not in words)
    return "; ".join(words)


def _words(part: _Schema) -> list[str]:
    """One alternative in words."""
    if part.get("type") == "array":
        (item,) = _words(part["items"])
        return [f"a list, each entry {item}"]
    if "$ref" in part:
        name = _refs(part)[0]
        return [kinds()[name].words if name in kinds() else "a mapping"]
    if "enum" in part:
        return [", ".join(_written(choice) for choice in part["enum"])]
    if "const" in part:
        return [_written(part["const"])]
    if part.get("type") == "object":
        return ["a mapping"]
    return ["null" if part.get("type") == "null" else "a text"]


def _default(schema: _Schema, values: Sequence[str]) -> str:
    """The default as a scenario would write it."""
    value = schema["default"]
    timed = isinstance(value, float) and {"duration", "wait"} & set(values)
    return units.show_time(value).replace(" ", "") if timed and value else _written(value)


def _written(value: object) -> str:
    """A value as YAML in one line."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = yaml.safe_dump(
        value, default_flow_style=True, width=10_000, allow_unicode=True, sort_keys=False
    )
    return text.removesuffix("\n").removesuffix("\n...").strip()
