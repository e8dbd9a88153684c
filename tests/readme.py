"""Reads from README.md the commands of its questions, each with the answer that is quoted of it."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from tests.places import ROOT


class Quoted(NamedTuple):
    """A command of the README, as words without ``infersim``, and what it says in answer."""

    words: list[str]
    answer: str


def quoted() -> list[Quoted]:
    """The commands that a quotation follows, in their order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pairs = re.findall(r"^```\n(infersim [^\n]*)\n```\n((?:> [^\n]*\n)+)", text, re.MULTILINE)
    return [
        Quoted(
            shlex.split(command.partition("#")[0])[1:],
            one_line(" ".join(line.removeprefix("> ") for line in answer.splitlines())),
        )
        for command, answer in pairs
    ]


def one_line(text: str) -> str:
    """A text without its line breaks.

    >>> one_line("the traffic takes \\n23% of it")
    'the traffic takes 23% of it'
    """
    return " ".join(text.split())


def sentences(answer: str) -> list[str]:
    """What a quotation says, sentence by sentence: between them the command may say more.

    >>> sentences("Stable: 23% of it. SLO met: 100% of requests.")
    ['Stable: 23% of it', 'SLO met: 100% of requests']
    """
    return [each for each in re.split(r"\.(?: |$)", answer) if each]
