"""Finds the commands that start servers in the text of a shell: a line, or a script.

Reads what scripts commonly have: assignments and their use, arrays, lines that go on after a
backslash, here-documents, ``eval`` and ``bash -c``, ``docker run`` with an image whose program is
a server. Loops, functions and the output of commands are not followed: an option whose value hangs
on them is named by who reads the words. What an ``if`` adds to a variable is left out, with a note.
"""

from __future__ import annotations

import re
import shlex
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sim.errors import UsageError
from sim.servers.started import PROGRAM, Started, engine_of_image, program_in, substituted

ENDS = frozenset(
    {
        *(";", ";;", "&", "&&", "|", "||", ")", "(", ">", ">>", "<", ">&", "&>", "&>>", ">|"),
        *("|&", "<<<", "\n"),
    }
)
"""Words that end a command."""

KEYWORDS = frozenset({"then", "else", "elif", "do", "{", "!", "time", "exec", "nohup", "sudo"})
"""Words that may stand before a command."""

SHELLS = frozenset({"sh", "bash", "zsh", "/bin/sh", "/bin/bash", "/usr/bin/bash"})

COMPUTED = "${COMPUTED}"
"""Stands for the output of a command or a sum: a variable that nothing sets."""

LONGEST = 60
"""Lines over which an open quote is followed at most."""

_ASSIGNED = re.compile(r"^([A-Za-z_]\w*)(\+?)=(.*)$", re.DOTALL)
_DECLARED = frozenset({"export", "local", "readonly", "declare", "-a", "-r", "-x"})
_ARRAY = re.compile(r"(?m)^([ \t]*(?:[\w-]+[ \t]+)*\w+\+?=)\(")
_HERE = re.compile(r"(?<!<)<<(?!<)-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_PINNED = re.compile(r"\b(vllm|sglang|tensorrt-llm)(?:\[\w+\])?(==|>=)(\d+\.\d+[\w.]*)(?![\w.]|,<)")
_GPUS_OF_JOB = re.compile(
    r"^#SBATCH\s+--(?:gres|gpus|gpus-per-node)[= ](?:gpu:)?([A-Za-z][\w-]*):\d"
)
_MAY_GO_ON = re.compile(rf"\b(docker|podman|ba?sh|srun|ssh|eval)\b|\w\+?=|{PROGRAM.pattern}")
"""What a line has whose quote may close on a later one, unlike one of prose."""

_WITH_VALUE = {
    *("-e", "--env", "-v", "--volume", "-p", "--publish", "--name", "--gpus", "--shm-size"),
    *("--network", "--ipc", "--runtime", "--entrypoint", "-u", "--user", "-w", "--workdir"),
    *("--mount", "--env-file", "--ulimit", "--device", "--group-add", "--security-opt"),
    *("--cap-add", "--restart", "--net", "--cpus", "--memory", "-m", "--hostname", "--label"),
    *("-l", "--pull", "--platform", "--add-host", "--pid", "--cpuset-cpus", "--log-opt"),
}
"""Options of ``docker run`` that take a word of their own."""


def commands(
    text: str, where: str, *, env: Mapping[str, str] | None = None, folder: Path = Path()
) -> list[Started]:
    """The servers that ``text`` starts, in the order of their commands.

    UsageError for quotes that do not close.
    """
    script = _Script(where, dict(env or {}), folder)
    script.read(text)
    return script.found


def bodies(text: str) -> list[str]:
    """The here-documents of a script, which may be manifests or scripts themselves."""
    script = _Script("", {}, Path())
    script.read(text)
    return list(script.files.values())


class _Script:
    """A script as far as it is read: its variables, the files that it writes, and its servers."""

    def __init__(self, where: str, known: dict[str, str], folder: Path) -> None:
        self.where = where
        self.known = known
        self.folder = folder
        self.files: dict[str, str] = {}
        self.found: list[Started] = []
        self.gpu = ""
        self.pins: dict[str, str] = {}
        self.floors: dict[str, str] = {}
        self.depth = 0
        self.hanging: dict[str, bool] = {}

    def read(self, text: str) -> None:
        """Follow ``text`` line by line."""
        lines = re.sub(r"\\[ \t]*\r?\n", " ", text)
        if re.search(r"\\n", lines) and "\n" not in lines.strip():
            lines = lines.replace("\\n", " ")  # a line out of JSON
        rest = deque(_arrays(lines).splitlines())
        while rest:
            line = rest.popleft()
            if line.lstrip().startswith("#"):
                if job := _GPUS_OF_JOB.match(line.strip()):
                    self.gpu = job[1]
                continue
            if here := _HERE.search(line):
                self._write(line, here, rest)
                line = line[: here.start()] + line[here.end() :]
            self._line(line, rest)

    def _write(self, line: str, here: re.Match[str], rest: deque[str]) -> None:
        """Keep the here-document that follows, under the name of the file that it goes to."""
        body: list[str] = []
        while rest and (each := rest.popleft()).strip() != here[2]:
            body.append(each)
        text = "\n".join(body) + "\n"
        target = re.search(r"(>{1,2})\s*[\"']?([^\s\"'<>|&;]+)", line)
        name = "" if target is None else Path(substituted(target[2], self.known)).name
        text = text if here[1] else substituted(text, self.known)
        if target is not None and target[1] == ">>" and name in self.files:
            text = self.files[name] + ("" if self.depth else text)
        self.files[name] = text

    def _line(self, line: str, rest: deque[str]) -> None:
        used = set(re.findall(r"\$\{?([A-Za-z_]\w*)", line))
        guarded = False
        for command, end in self._split(line, rest):
            words = list(command)
            before = words[:1]
            while words and words[0] in KEYWORDS:
                words = words[1:]
            if words[:1] in (["if"], ["case"]):
                self.depth += 1
            elif before in (["fi"], ["esac"]):
                self.depth = max(0, self.depth - 1)
            words = self._assigning(words, sure=not self.depth and not guarded)
            guarded = words[:1] in (["["], ["[["], ["test"]) and end in ("&&", "||")
            for engine, how, release in _PINNED.findall(" ".join(words)):
                (self.pins if how == "==" else self.floors).setdefault(engine, release)
            if words and words[0] not in ("echo", "printf"):
                self._take(words, used)

    def _split(self, line: str, rest: deque[str]) -> Iterator[tuple[list[str], str]]:
        """The words of each command of a line, and the word that ends it."""
        command: list[str] = []
        for word in [*self._words(line, rest), ";"]:
            if word in ENDS:
                yield command, word
                command = []
            elif word.startswith("#"):
                yield command, ";"
                return
            else:
                command.append(word)

    def _words(self, line: str, rest: deque[str]) -> list[str]:
        """The words of a line; one whose quotes stay open goes on over the next ones."""
        joined, taken = line, list[str]()
        while not _is_closed(joined):
            if not rest or len(taken) == LONGEST or not _MAY_GO_ON.search(line):
                rest.extendleft(reversed(taken))
                joined = line
                break
            taken.append(rest.popleft())
            joined = "\n".join([line, *taken])
        try:
            return self._lexed(joined)
        except ValueError as error:
            try:
                return self._lexed(re.sub(r"(^|\s)#.*", "", joined))
            except ValueError:
                if PROGRAM.search(joined):
                    raise UsageError(f"{self.where}: {error}: {line.strip()[:80]}") from None
                return []

    def _lexed(self, line: str) -> list[str]:
        for name in re.findall(r"\$\{(\w+)\[[@*]\]\}", line):
            if name in self.known:
                for spelling in (f'"${{{name}[@]}}"', f"${{{name}[@]}}", f"${{{name}[*]}}"):
                    line = line.replace(spelling, self.known[name])
        line = _computed(re.sub(r"\$\(\((.*?)\)\)", self._sum, line))
        line = re.sub(r"(?<=\s)[012](?=>)", "", substituted(line, self.known))
        lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|()<>")
        lexer.whitespace_split = True
        lexer.commenters = ""
        return list(lexer)

    def _sum(self, found: re.Match[str]) -> str:
        """What ``$((...))`` gives for one product or sum of two known numbers."""
        names = {name: value for name, value in self.known.items() if value.isdecimal()}
        plain = re.sub(r"[A-Za-z_]\w*", lambda m: names.get(m[0], m[0]), found[1].replace("$", ""))
        parts = re.fullmatch(r"\s*(\d+)\s*([*+-])\s*(\d+)\s*", plain)
        if parts is None:
            return COMPUTED
        one, two = int(parts[1]), int(parts[3])
        return str({"*": one * two, "+": one + two, "-": one - two}[parts[2]])

    def _assigning(self, words: list[str], *, sure: bool) -> list[str]:
        """``words`` without the assignments that they begin with, which are ``known`` from here on.
        What hangs on a condition counts where nothing else sets the variable."""
        while words and words[0] in _DECLARED:
            words = words[1:]
        at = 0
        while at < len(words) and (found := _ASSIGNED.match(words[at])):
            name, more, value = found.groups()
            at += 1
            if not sure:
                taken = self.hanging.setdefault(name, not more and name not in self.known)
                if more or name in self.known or not taken:
                    continue
            if COMPUTED in value and not more:
                self.known.pop(name, None)
            else:
                self.known[name] = f"{self.known.get(name, '')} {value}" if more else value
        return words[at:]

    def _take(self, words: list[str], used: set[str]) -> None:
        """Keep the server that a command starts."""
        image, inside, own = _container(words)
        sure = {name: value for name, value in self.known.items() if name not in self.hanging}
        env = {**sure, **own}
        at = next((i for i, word in enumerate(inside[:-2]) if word in SHELLS), None)
        if words[0] == "eval":
            found = commands(" ".join(words[1:]), self.where, env=env, folder=self.folder)
        elif at is not None and re.fullmatch(r"-\w*c\w*", inside[at + 1]):
            found = commands(inside[at + 2], self.where, env=env, folder=self.folder)
        elif (program := program_in(inside)) is not None:
            engine, start = program
            found = [Started(engine, tuple(inside[start:]), self.where, image, env)]
        elif engine := engine_of_image(image):
            found = [Started(engine, tuple(inside), self.where, image, env)]
        else:
            return
        notes = tuple(
            f"${name} hangs on a condition of the script: "
            + ("its first value is taken." if self.hanging[name] else "what is set there is not.")
            for name in sorted(used & self.hanging.keys())
        )
        notes += tuple(
            f"The script installs {engine}>={release}, which is the newest release when it runs."
            for engine, release in self.floors.items()
        )
        self.found += [
            replace(
                each,
                image=each.image or image,
                folder=self.folder,
                files=self.files,
                gpu_label=each.gpu_label or self.gpu,
                version=each.version or self.pins.get(each.engine, ""),
                notes=(*each.notes, *notes),
            )
            for each in found
        ]


def _is_closed(line: str) -> bool:
    """Whether the quotes of a line close."""
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return False
    return True


def _arrays(text: str) -> str:
    """``text`` with each ``NAME=(...)`` on one line and quoted, so that it is one assignment."""
    at = 0
    while found := _ARRAY.search(text, at):
        end, quote = found.end(), ""
        while end < len(text) and (quote or text[end] != ")"):
            char = text[end]
            quote = "" if char == quote else quote or (char if char in "'\"" else "")
            end += 1
        inside = re.sub(r"(^|\s)#.*", "", text[found.end() : end])
        plain = f"{found[1]}{shlex.quote(' '.join(inside.split()))}"
        text = f"{text[: found.start()]}{plain}{text[end + 1 :]}"
        at = found.start() + len(plain)
    return text


def _computed(line: str) -> str:
    """``line`` with ``COMPUTED`` for what a command gives there."""
    line = re.sub(r"`[^`]*`", COMPUTED, line)
    while (plain := re.sub(r"\$\((?![A-Z_][A-Z0-9_]*\))[^()]*\)", COMPUTED, line)) != line:
        line = plain
    return line


def _container(words: Sequence[str]) -> tuple[str, list[str], dict[str, str]]:
    """The image that ``docker run`` starts, the words for the program inside, and its variables;
    an empty image and ``words`` for anything else."""
    env: dict[str, str] = {}
    if "run" not in words or not {"docker", "podman", "nerdctl"} & set(words[: words.index("run")]):
        return "", list(words), env
    at = words.index("run") + 1
    entry: list[str] = []
    while at < len(words) and words[at].startswith("-"):
        name, given, value = words[at].partition("=")
        if not given and name in _WITH_VALUE:
            at += 1
            value = words[at] if at < len(words) else ""
        if name in ("-e", "--env") and "=" in value:
            key, _, env[key] = value.partition("=")
        if name == "--entrypoint":
            entry = value.split()
        at += 1
    image = words[at] if at < len(words) else ""
    return image, [*entry, *words[at + 1 :]], env
