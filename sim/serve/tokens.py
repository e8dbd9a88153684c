"""Counts the tokens of prompts by a simple rule, and makes answers of an exact number of tokens.

The rule stands in for a tokenizer, of which the timing knows only how many tokens there are:

- a word with the space before it is cut into pieces of at most six bytes (UTF-8);
- so is a run of white space, and every other character is a piece of its own;
- a piece is a token.

English prose comes to about 1.4 tokens a word, a little more than with current tokenizers. Nothing
is lost: the number of a token is its bytes, so that the text can be made again from the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from sim.errors import UsageError
from sim.plugins import WRITTEN, is_own, load_function

LONGEST = 6
"""Bytes of a piece: as a whole number they are exact in every JSON reader, below 2**53."""

_RUN = re.compile(r" ?\w+|\s+|[^\w\s]")

Tokenizer = Callable[[str], Sequence[int]]
"""The tokens of a text, as numbers."""

WORDS = (
    "the", "wind", "came", "over", "hill", "and", "took", "leaf", "after", "from", "old", "tree",
    "while", "river", "ran", "on", "past", "mill", "where", "two", "boys", "sat", "with", "bread",
    "some", "milk", "they", "spoke", "of", "far", "towns", "that", "lay", "by", "sea", "whose",
    "ships", "went", "out", "each", "dawn", "but", "none", "knew", "how", "long", "night", "would",
    "be", "until", "light", "broke", "upon", "roof", "again", "so", "all", "was", "still", "then",
    "rain",
)  # fmt: skip
"""The words of answers: each is a token, also with a space before it."""

SPACED = tuple(f" {word}" for word in WORDS)
"""The words of answers with a space before each."""


def encode(text: str) -> list[int]:
    """The tokens of ``text``.

    >>> len(encode("How long is a piece of string?"))
    9
    >>> encode("") == [] and decode(encode("naïve  日本語 🙂 unbelievable"))
    'naïve  日本語 🙂 unbelievable'
    """
    return [int.from_bytes(piece) for run in _RUN.finditer(text) for piece in _pieces(run[0])]


def decode(tokens: Sequence[int]) -> str:
    """The text of ``tokens``; a number that stands for no text is shown as a replacement."""
    found = [token.to_bytes(max(1, -(-token.bit_length() // 8))) for token in tokens]
    return b"".join(found).decode(errors="replace")


def tokenizer_of(text: str, folders: Sequence[Path] = ()) -> Tokenizer:
    """The tokenizer that ``text`` names: a file ``tokenizer.json`` of Hugging Face's, or a function
    as ``sim.plugins`` has it, looked for in ``folders``. UsageError for anything else."""
    if is_own(text):
        found: Tokenizer = load_function(text, "tokenizer", folders)
        return found
    file = Path(text).expanduser()
    if not file.is_file():
        raise UsageError(f"--tokenizer {text}: no such file; give a tokenizer.json, or {WRITTEN}")
    if find_spec("tokenizers") is None:
        raise UsageError(f"--tokenizer {text}: reading it needs `pip install tokenizers`")
    return _of_file(file)


def _of_file(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer as Fast  # type: ignore[import-not-found] # noqa: PLC0415

    try:
        fast = Fast.from_file(str(file))
    except Exception as error:  # whatever the package raises
        raise UsageError(
            f"--tokenizer {file}: this is no tokenizer.json of Hugging Face's ({error})"
        ) from None
    return lambda text: fast.encode(text).ids


def _pieces(run: str) -> Iterator[bytes]:
    data = run.encode()
    if len(data) <= LONGEST:
        yield data
        return
    if len(data) == len(run):
        for start in range(0, len(data), LONGEST):
            yield data[start : start + LONGEST]
        return
    piece = b""
    for char in run:  # no character is cut in two
        more = char.encode()
        if len(piece) + len(more) > LONGEST:
            yield piece
            piece = b""
        piece += more
    yield piece


class Filler:
    """The text of an answer of ``tokens`` tokens, which begins with word number ``start``.

    ``stop`` ends it: the answer then has fewer tokens, and its text ends before the first of those
    texts that the first ``least`` tokens do not complete.

    >>> answer = Filler(5)
    >>> [answer.piece(i) for i in range(answer.tokens)]
    ['the', ' wind', ' came', ' over', ' hill']
    >>> stopped = Filler(5, stop=["ov"])
    >>> stopped.tokens, stopped.stopped, "".join(map(stopped.piece, range(stopped.tokens)))
    (4, 'ov', 'the wind came ')
    """

    __slots__ = ("_start", "_text", "_whole", "stopped", "tokens")

    def __init__(
        self, tokens: int, start: int = 0, stop: Sequence[str] = (), least: int = 0
    ) -> None:
        self.tokens = tokens
        self.stopped: str | None = None
        self._start = start % len(WORDS)
        self._text = -1  # characters of the text, where it ends within a token
        self._whole = tokens  # tokens that stand in it whole
        for text in stop:
            self._end_before(text, least)

    def word(self, index: int) -> str:
        """Token ``index`` as it would stand in an answer without an end."""
        words = SPACED if index else WORDS
        return words[(self._start + index) % len(WORDS)]

    def piece(self, index: int) -> str:
        """The text that token ``index`` adds."""
        if index < self._whole:  # ``word``, without a call: this is done for every token
            return (SPACED if index else WORDS)[(self._start + index) % len(WORDS)]
        if index > self._whole or self._text < 0:
            return ""
        before = sum(len(self.word(i)) for i in range(self._whole))
        return self.word(index)[: self._text - before]

    def text(self) -> str:
        """All of it."""
        return "".join(map(self.piece, range(self.tokens)))

    def _end_before(self, stop: str, least: int) -> None:
        """Let the answer end where ``stop`` would be complete, if it comes to that."""
        ends, text = [], ""
        # the words repeat, so what is not found in one round of them never comes
        for index in range(min(self.tokens, least + 2 * len(WORDS) + len(stop))):
            text += self.word(index)
            ends.append(len(text))
        at = text.find(stop)
        while at >= 0:
            last = next(i for i, end in enumerate(ends) if end >= at + len(stop))
            if last + 1 >= least:
                self.tokens, self.stopped, self._text = last + 1, stop, at
                self._whole = next(i for i, end in enumerate(ends) if end > at)
                return
            at = text.find(stop, at + 1)
