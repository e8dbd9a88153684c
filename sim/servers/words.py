"""Reads the words of a server's command, its file of options and its log into a draft."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.errors import UsageError, nearest
from sim.servers.draft import UNSET, Draft
from sim.servers.flags import (
    LLAMA_ARG,
    NO_EFFECT,
    OPTIONS,
    SWITCHES,
    config_file,
    name_model,
    not_simulated,
    of_text,
)
from sim.servers.started import VARIABLE, Started

OFF = ("0", "0.0", "false", "none", "null")
"""Values with which an option asks for nothing."""

NONE = ("none", "null", "auto", "")
"""Values with which an option says that it leaves the choice to the engine."""


def read_words(started: Started) -> Draft:
    """What the command of a server, a file that it names, and its log say.

    UsageError, naming option and value, for one that the engine would refuse.
    """
    draft = Draft()
    draft.notes += started.notes
    options = OPTIONS[started.engine]
    given = [*_of_environment(started), *_options(started)]
    named = [value for name, _, value in given if name == "config" and value]
    for text in named if started.engine == "vllm" else ():
        _read_file(draft, started, text, "--config")  # what the command says goes before it
    for name, spelling, value in given:
        if name:
            _take(draft, started, options, name, spelling, value)
        else:
            draft.left_out[spelling] = UNSET
    held = draft.held.get("config")
    if held is not None and started.engine != "vllm":
        _read_file(draft, started, str(held.value), held.origin)
    for name, value in (started.log or {}).items():
        _take_logged(draft, started, options, name.replace("_", "-"), value)
    return draft


def _of_environment(started: Started) -> Iterator[tuple[str, str, str]]:
    """Options that llama.cpp's variables ``LLAMA_ARG_...`` set; its command goes before them."""
    for variable, value in started.env.items() if started.engine == "llama.cpp" else ():
        if variable.startswith("LLAMA_ARG_"):
            plain = variable.removeprefix("LLAMA_ARG_").lower().replace("_", "-")
            yield LLAMA_ARG.get(plain, plain), variable, value


def _options(started: Started) -> Iterator[tuple[str, str, str]]:
    """Each option as (name without dashes, spelling, value); a positional model is ``model``."""
    words, at = started.words, 0
    known = OPTIONS[started.engine]
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word in ("-", "--"):
            if word not in ("-", "--", "serve") and at == 1 + words[:1].count("serve"):
                yield "model", "the model", word
            elif VARIABLE.fullmatch(word):
                yield "", word, ""
            continue
        spelling, given, value = word.partition("=")
        name = spelling.lstrip("-").replace("_", "-")
        if name not in known and "." in name:  # --compilation-config.cudagraph_mode=...
            name, _, inner = name.partition(".")
            if not given and at < len(words) and not words[at].startswith("-"):
                value, at = words[at], at + 1
            value = json.dumps({inner.replace("-", "_"): value})
            given = "="
        if not given and not _stands_alone(name) and at < len(words):
            following = words[at]
            if name == "lora-modules":
                while at + 1 < len(words) and not words[at + 1].startswith("-"):
                    at += 1
                    following = f"{following} {words[at]}"
            if not following.startswith("-") or following.lstrip("-").replace(".", "").isdecimal():
                value, at = following, at + 1
        elif not given and at < len(words) and words[at].lower() in ("true", "false"):
            value, at = words[at], at + 1
        yield name, spelling, value


def _stands_alone(name: str) -> bool:
    return name in SWITCHES or name.startswith("no-")


def _take(
    draft: Draft,
    started: Started,
    options: Mapping[str, Any],
    name: str,
    spelling: str,
    value: str,
) -> None:
    positive = name.removeprefix("no-") if name.startswith("no-") else name
    meaning = options.get(name, options.get(positive))
    is_alias = name in ("served-model-name", "alias", "a") and VARIABLE.search(value)
    is_off = meaning is None and value.lower() in OFF and not_simulated(name) is not None
    if is_alias or is_off or (meaning is None and not {name, positive}.isdisjoint(NO_EFFECT)):
        draft.without_effect.append(spelling)
        return
    is_here = meaning is config_file and Path(value).name in started.files
    if VARIABLE.search(value) and not is_here:
        if meaning is name_model:
            draft.hold("unset model", value, spelling)
            return
        draft.left_out[f"{spelling} {value}"] = UNSET
        return
    if positive != name and positive in options:
        value = "false"
    if meaning is not None:
        try:
            meaning(draft, spelling, value)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{started.where}: {spelling}: {error}") from None
    elif reason := not_simulated(name) or not_simulated(positive):
        draft.left_out[f"{spelling} {value}".strip()] = reason
    else:
        match = nearest(name, options)
        hint = f" (did you mean --{match}?)" if match else ""
        draft.unknown.append(f"{spelling}{hint}")


def _read_file(draft: Draft, started: Started, text: str, flag: str) -> None:
    """Take the options of the file that ``flag`` names; a file that is not here is left out."""
    path = started.folder / text
    try:
        if path.name in started.files:
            found = of_text(started.files[path.name], path.name)
        elif path.is_file():
            found = of_text(path.read_text(encoding="utf-8"), str(path))
        else:
            draft.left_out[f"{flag} {text}"] = "the file is not here"
            return
    except (OSError, ValueError) as error:
        raise UsageError(f"{started.where}: {flag}: {error}") from None
    options = OPTIONS[started.engine]
    for key, value in found.items():
        name = key.replace("_", "-")
        if value is None:
            continue
        text = json.dumps(value) if isinstance(value, list | dict | bool) else str(value)
        _take(draft, started, options, name, f"{key} in {path.name}", text.strip('"'))


def _take_logged(
    draft: Draft, started: Started, options: Mapping[str, Any], name: str, value: Any
) -> None:
    """Take one of the settings that an engine prints; what has no meaning here is passed over but
    for what vLLM's own command was given."""
    meaning = options.get(name)
    reason = not_simulated(name) if name in started.given else None
    if reason is not None and meaning is None:
        draft.left_out[f"{name.replace('-', '_')} in the log"] = reason
    if name == "compilation-config" and name not in started.given:
        return  # printed whole, with what the engine chose
    if meaning is None or value is None or (isinstance(value, str) and value.lower() in NONE):
        return
    if isinstance(value, bool):
        text = str(value).lower()
    else:
        text = json.dumps(value) if isinstance(value, dict) else str(value)
    try:
        meaning(draft, f"{name.replace('-', '_')} in the log", text)
    except (ValueError, OverflowError):
        draft.left_out[f"{name.replace('-', '_')}={text[:40]} in the log"] = "is not understood"
