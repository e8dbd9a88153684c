"""Explains refused values in the words of a scenario's author.

The schema library reports errors in terms and paths of its own (its paths name the variant of a
union among the keys). Here each becomes a ``Problem``: the path as written, what was given, what is
allowed, and the nearest match.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError

from sim.errors import LISTED, did_you_mean, nearest, nearest_few
from sim.scenario.sections.support import refusal
from sim.scenario.text.document import Document, KeyPath, Place, Problem, dotted, show
from sim.scenario.values.readers import Together

OTHER_WORDS: Mapping[str, str] = {
    "users": "concurrency",
    "clients": "concurrency",
    "scales": "replicas",
}
"""People's names for a key, by the word."""


def problems_of(
    error: ValidationError, root: type[BaseModel], document: Document
) -> Iterator[Problem]:
    """Every problem of a failed validation of ``document`` against the schema ``root``."""
    details = [
        (detail, *_follow(detail["loc"], root)) for detail in error.errors(include_url=False)
    ]
    misspelt = {
        (*path[:-1], _meant(str(path[-1]), section))
        for detail, path, section, _ in details
        if detail["type"] == "extra_forbidden"
    }
    for detail, path, section, annotation in details:
        context = detail.get("ctx", {})
        match detail["type"]:
            case "value_error":
                yield Problem(path, str(context["error"]))
            case "trouble":
                blamed = [key if isinstance(key, tuple) else (key,) for key in context["at"]]
                chosen = document.most_likely([(*path, *steps) for steps in blamed] or [path])
                at_key = chosen == path and isinstance(detail["input"], dict)
                place = document.place(chosen, at_key=at_key)
                yield Problem(path, context["message"], place=place)
            case "missing" if path in misspelt:
                pass  # said where it is misspelt
            case "missing":
                place = _other_kind(path, document)
                yield Problem(path[:-1], _missing(section, path[-1]), at_key=True, place=place)
            case "extra_forbidden":
                place = _other_kind(path, document)
                yield Problem(path, _unknown(path, section, root), at_key=True, place=place)
            case "literal_error":
                allowed = _choices(annotation, section, path[-1])
                yield Problem(path, _none_of(detail["input"], allowed))
            case "union_tag_invalid":
                kinds = _kinds(annotation, section, path[-1])
                message = _none_of(detail["input"].get("kind"), kinds)
                message += _together(annotation, section)
                yield Problem((*path, "kind"), message)
            case "union_tag_not_found":
                kinds = _kinds(annotation, section, path[-1])
                message = f"`kind` is missing; it is one of {', '.join(kinds)}"
                yield Problem(path, message, at_key=True)
            case "too_short" if detail["input"]:
                pass  # counted without the items that are refused for reasons of their own
            case "too_short":
                yield Problem(path, f"the list is empty; expected {_shape(section, path)}")
            case _:
                expected = _shape(section, path)
                yield Problem(path, f"expected {expected}, got {show(detail['input'])}")


def _other_kind(path: KeyPath, document: Document) -> Place | None:
    """The override that made another kind of the mapping with the key ``path``, if that is why the
    key is missing or unknown; None otherwise."""
    kind, own = document.values.get((*path[:-1], "kind")), document.keys.get(path)
    if kind is None or kind.line is not None or (own is not None and own.line is None):
        return None
    return kind


def _follow(
    location: Sequence[str | int], root: type[BaseModel]
) -> tuple[KeyPath, type[BaseModel], Any]:
    """The path as written, the section of its last key, and the type expected there."""
    path: list[str | int] = []
    section = root
    annotation: Any = root
    for step in location:
        variants = _sections(annotation)
        if isinstance(step, int):
            path.append(step)
            annotation = get_args(_list_in(annotation))[0]
        elif step in (tagged := _tagged(annotation)):
            annotation = tagged[step]
        elif len(variants) > 1:
            annotation = next(model for model in variants if _kind(model) == step)
        elif variants:
            path.append(step)
            section = variants[0]
            known = section.model_fields.get(step)
            annotation = None if known is None else known.annotation
    return tuple(path), section, annotation


def _tagged(annotation: Any) -> dict[str, Any]:
    """The alternatives of a type that are distinguished by a tag, which no scenario writes."""
    return {
        tag.tag: part
        for part in get_args(annotation)
        for tag in get_args(part)
        if isinstance(tag, Tag)
    }


def _list_in(annotation: Any) -> Any:
    """The list among the alternatives of a type."""
    if get_origin(annotation) is tuple:
        return annotation
    return next(part for part in get_args(annotation) if get_origin(part) is tuple)


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The schema classes among the alternatives of a type, unless they are items of a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) in (None, tuple, Literal):
        return []
    return [model for part in get_args(annotation) for model in _sections(part)]


def _kind(model: type[BaseModel]) -> str:
    return str(get_args(model.model_fields["kind"].annotation)[0])


def _kinds(annotation: Any, section: type[BaseModel], key: str | int) -> list[str]:
    kinds = [_kind(model) for model in _sections(annotation)]
    name = section.__name__
    return [kind for kind in kinds if refusal(name, str(key), {"kind": kind}) is None]


def _together(annotation: Any, section: type[BaseModel]) -> str:
    """The kinds of laws of several values, where those of one value have a key next to them for
    such (``Together``); else nothing."""
    for part in (annotation, *get_args(annotation)):
        for mark in getattr(part, "__metadata__", ()):
            other = section.model_fields.get(mark.key) if isinstance(mark, Together) else None
            if other is not None:
                kinds = " or ".join(map(_kind, _sections(other.annotation)))
                return f"; of {mark.what} together: `{mark.key}: {{kind: {kinds}}}`"
    return ""


def _choices(annotation: Any, section: type[BaseModel], key: str | int) -> list[str]:
    name = section.__name__
    return [choice for choice in _literals(annotation) if refusal(name, str(key), choice) is None]


def _literals(annotation: Any) -> list[str]:
    """The single values among the alternatives of a type, as a scenario writes them."""
    if annotation is NoneType:
        return ["null"]
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in inner]
    return [choice for part in inner for choice in _literals(part)]


def _none_of(value: object, allowed: Sequence[str]) -> str:
    if len(allowed) > LISTED:
        some = [*nearest_few(str(value), allowed), *{"null"}.intersection(allowed)]
        told = f"expected one of {len(allowed)} names, such as {', '.join(some)}"
        return f"{told}, got {show(value)}"
    hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
    if len(allowed) == 1:
        return f"expected {allowed[0]}, got {show(value)}{hint}"
    return f"expected one of {', '.join(allowed)}, got {show(value)}{hint}"


def _missing(section: type[BaseModel], key: str | int) -> str:
    examples = section.model_fields[str(key)].examples or []
    hint = f", for example `{key}: {examples[0]}`" if examples else ""
    return f"`{key}` is missing{hint}"


def _unknown(path: KeyPath, section: type[BaseModel], root: type[BaseModel]) -> str:
    """An unknown key: perhaps misspelt, perhaps at home in another section."""
    key, known = str(path[-1]), list(section.model_fields)
    homes = sorted((home for home in _homes(root, ()) if home[-1] == key), key=len)
    meant = _meant(key, section)
    plural = meant is not None and key.rstrip("s") == meant.rstrip("s")
    elsewhere = homes and path not in homes and not plural  # nor just of another kind of this one
    hint = "" if meant is None else f" (did you mean {show(meant)}?)"
    hint = f" (did you mean {dotted(homes[0])}?)" if elsewhere else hint
    if meant is None and (plain := _plain(path, root)):
        hint = f" (write {plain})"
    return f"unknown key {show(key)}{hint}; known here: {', '.join(known)}"


def _plain(path: KeyPath, root: type[BaseModel]) -> str:
    """The section of ``path``, as a scenario and ``--set`` write it where a single value stands for
    it; empty where none does."""
    known = root.model_fields.get(str(path[0])) if len(path) == 2 else None
    example = str(known.examples[0]) if known is not None and known.examples else ""
    if not example or example[0] in "[{":
        return ""
    return f"`{path[0]}: {example}`, or --set {path[0]}={example}"


def _meant(key: str, section: type[BaseModel]) -> str | None:
    """The key of ``section`` that ``key`` stands for: another word for it, or a slip."""
    other = OTHER_WORDS.get(key)
    return other if other in section.model_fields else nearest(key, section.model_fields)


def _homes(section: type[BaseModel], path: KeyPath) -> Iterator[KeyPath]:
    """The paths of all keys, of every kind of a section and of the first item of lists."""
    for key, known in section.model_fields.items():
        yield (*path, key)
        for inner in _sections(known.annotation):
            yield from _homes(inner, (*path, key))
        for part in (known.annotation, *get_args(known.annotation)):
            for item in _sections(get_args(part)[0]) if get_origin(part) is tuple else ():
                yield from _homes(item, (*path, key, 0))


def _shape(section: type[BaseModel], path: KeyPath) -> str:
    """The mapping, or the list, that belongs at a key, by example or by its keys."""
    key = next(str(step) for step in reversed(path) if isinstance(step, str))
    known = section.model_fields[key]
    example = str(known.examples[0]) if known.examples else ""
    item = isinstance(path[-1], int)
    if example.startswith("[") and not item:
        return f"a list such as `{key}: {example}`"
    if example and not example.startswith("["):
        return f"a mapping such as `{key}: {example}`"
    inner = _sections(get_args(_list_in(known.annotation))[0] if item else known.annotation)
    keys = list(inner[0].model_fields) if inner else []
    return f"a mapping with the keys {', '.join(keys)}"
