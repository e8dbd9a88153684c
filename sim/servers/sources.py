"""Finds how servers were started in what a user has: a command, a script, a manifest or a log."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from sim.errors import UsageError
from sim.servers.logs import started_in
from sim.servers.manifests import servers_in
from sim.servers.shell import bodies, commands
from sim.servers.started import Started

LARGEST = 20_000_000
"""Bytes of a file that is read at most: logs grow."""

KNOWN = (
    "a command (`vllm serve ...`, `python -m sglang.launch_server ...`, `trtllm-serve ...`, "
    "`llama-server ...`, `docker run ...`), a script with one, Docker Compose, a Kubernetes or "
    "KServe manifest, a task of SkyPilot, Helm values, or the log of a start by vLLM or SGLang"
)


def sources_of(source: str) -> list[Started]:
    """The servers that ``source`` starts: the path of a file, or a command itself.

    UsageError for a file that cannot be read, or a text that starts no server known here.
    """
    path = Path(source) if len(source) < 1000 and "\n" not in source else None
    try:
        is_file = path is not None and path.is_file()
    except OSError:
        is_file = False
    if path is None or not is_file:
        if re.fullmatch(r"\S+", source.strip() or " "):
            raise UsageError(f"{source}: no such file; expected {KNOWN}")
        return _checked(commands(source, "the command"), "the command")
    if path.stat().st_size > LARGEST:
        raise UsageError(f"{path}: is larger than {LARGEST:,} bytes; cut it down to the start")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error})") from None
    return servers_of(text, path)


def _checked(found: list[Started], where: str) -> list[Started]:
    if not found:
        raise UsageError(f"{where}: starts no server that is known here; expected {KNOWN}")
    return _apart([each for each in found if not _follows(each)] or found)


def _follows(server: Started) -> bool:
    """Whether a command starts a further node of a server that another one starts."""
    rank = server.numbers("node-rank") or server.numbers("data-parallel-start-rank")
    return bool(rank) or "--headless" in server.words


def _apart(found: list[Started]) -> list[Started]:
    """``found`` without what stands there twice, with a number where places are alike."""
    servers = list({(each.engine, each.words, each.where): each for each in found}.values())
    places = [each.where for each in servers]
    return [
        replace(each, where=f"{each.where} #{places[: at + 1].count(each.where)}")
        if places.count(each.where) > 1
        else each
        for at, each in enumerate(servers)
    ]


def servers_of(text: str, path: Path) -> list[Started]:
    """The servers that ``text`` starts, which stands in ``path``: a manifest, a log or a script."""
    return _checked(_of_text(text, path), str(path))


def _of_text(text: str, path: Path) -> list[Started]:
    where, folder = str(path), path.parent
    if path.suffix in (".yaml", ".yml", ".json"):
        return servers_in(_documents(text, where), where, folder)
    logged = started_in(text, where)
    if logged is not None:
        return [logged]
    if _is_manifest(text):
        return servers_in(_documents(text, where), where, folder)
    found = commands(text, where, folder=folder)
    return found or [each for body in bodies(text) for each in _of_text(body, path)]


def _is_manifest(text: str) -> bool:
    """Whether a text is YAML whose documents are mappings, as no script is."""
    if not re.search(r"^\s*[\w-]+:(\s|$)", text, re.MULTILINE):
        return False
    try:
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except yaml.YAMLError:
        return False
    return bool(documents) and all(isinstance(each, dict) for each in documents)


def _documents(text: str, where: str) -> list[Any]:
    """The documents of a YAML file; templates of Helm are refused by name."""
    if re.search(r"\{\{-?\s", text):
        raise UsageError(
            f"{where}: is a template of Helm; give what `helm template` makes of it, or the values"
        )
    try:
        return list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        raise UsageError(f"{where}: is not valid YAML ({str(error).splitlines()[0]})") from None
