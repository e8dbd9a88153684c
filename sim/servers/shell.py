"""Finds the commands that start servers in the text of a shell: a line, or a script.

Reads what scripts commonly have: assignments and their use, lines that go on after a backslash,
``docker run`` with an image whose program is a server. Loops, functions and arithmetic are not
followed: an option whose value hangs on them is named by who reads the words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sim.errors import UsageError
from sim.servers.started import Started, engine_of_image, program_in, substituted

ENDS = frozenset({";", ";;", "&", "&&", "|", "||", ")", "(", ">", ">>", "<", "2>&1", "\n"})
"""Words that end a command."""

_ASSIGNED = re.compile(r"^(?:export\s+)?([A-Za-z_]\w*)=(.*)$", re.DOTALL)
_WITH_VALUE = {
    *("-e", "--env", "-v", "--volume", "-p", "--publish", "--name", "--gpus", "--shm-size"),
    *("--network", "--ipc", "--runtime", "--entrypoint", "-u", "--user", "-w", "--workdir"),
    *(
        "--mount",
        "--env-file",
        "--ulimit",
        "--device",
        "--group-add",
        "--security-opt",
        "--cap-add",
    ),
    *("--restart", "--net", "--cpus", "--memory", "-m", "--hostname", "--label", "-l", "--pull"),
}
"""Options of ``docker run`` that take a word of their own."""


def commands(
    text: str, where: str, *, env: Mapping[str, str] | None = None, folder: Path = Path()
) -> list[Started]:
    """The servers that ``text`` starts, in the order of their commands.

    UsageError for quotes that do not close.
    """
    known = dict(env or {})
    found = []
    for words in _commands(text, where, known):
        if not words:
            continue
        started = _started(words, where, dict(known), folder)
        if started is not None:
            found.append(started)
    return found


def _commands(text: str, where: str, known: dict[str, str]) -> Iterator[list[str]]:
    """The words of each command; assignments enter ``known`` as they come."""
    lines = re.sub(r"\\[ \t]*\r?\n", " ", text)
    if re.search(r"\\n", lines) and "\n" not in lines.strip():
        lines = lines.replace("\\n", " ")  # a line out of JSON
    for line in lines.splitlines():
        if line.lstrip().startswith(("#", "#!")):
            continue
        lexer = shlex.shlex(substituted(line, known), posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split = True
        lexer.commenters = ""
        try:
            words = list(lexer)
        except ValueError as error:
            if any(name in line for name in ("vllm", "sglang", "trtllm-serve", "llama-server")):
                raise UsageError(f"{where}: {error}: {line.strip()[:80]}") from None
            continue
        command: list[str] = []
        for word in [*words, ";"]:
            if word in ENDS:
                yield _assigning(command, known)
                command = []
            elif word.startswith("#") and not command:
                break
            else:
                command.append(word)


def _assigning(words: list[str], known: dict[str, str]) -> list[str]:
    """``words`` without the assignments that they begin with, which are ``known`` from here on."""
    at = 1 if words[:1] == ["export"] else 0
    while at < len(words) and (found := _ASSIGNED.match(words[at])):
        known[found[1]] = substituted(found[2], known)
        at += 1
    return words[at:]


def _started(
    words: Sequence[str], where: str, env: Mapping[str, str], folder: Path
) -> Started | None:
    """The server that a command starts; None for any other program."""
    image, inside, own = _container(words)
    found = program_in(inside)
    if found is not None:
        engine, at = found
        rest = inside[at:]
    elif engine := engine_of_image(image):
        rest = inside
    else:
        return None
    return Started(engine, tuple(rest), where, image, {**env, **own}, folder=folder)


def _container(words: Sequence[str]) -> tuple[str, list[str], dict[str, str]]:
    """The image that ``docker run`` starts, the words for the program inside, and its variables;
    an empty image and ``words`` for anything else."""
    env: dict[str, str] = {}
    if "run" not in words or not {"docker", "podman", "nerdctl"} & set(words[: words.index("run")]):
        return "", list(words), env
    at = words.index("run") + 1
    while at < len(words) and words[at].startswith("-"):
        name, given, value = words[at].partition("=")
        if not given and name in _WITH_VALUE:
            at += 1
            value = words[at] if at < len(words) else ""
        if name in ("-e", "--env") and "=" in value:
            key, _, env[key] = value.partition("=")
        at += 1
    image = words[at] if at < len(words) else ""
    return image, list(words[at + 1 :]), env
