"""Provides the rows of the table of what does not go together: when one applies, and what it says.

Texts of a row are templates whose fields are attributes of what it is asked about, as in
``{knobs.order}``: a refusal fills them in, and a list of all rows shows ``ORDER`` there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from string import Formatter
from typing import Any, Generic, TypeVar

from sim.scenario.text.document import KeyPath
from sim.scenario.values.fields import trouble


class Subject:
    """Something that a row can be asked about."""

    def numbers(self, name: str) -> Sequence[int]:
        """The entries of the list ``name`` that are meant: what ``*`` stands for after it."""
        raise NotImplementedError(name)

    def home(self, section: str) -> KeyPath:
        """Where the ``section`` that rules the subject stands."""
        return (section,)


T = TypeVar("T")
S = TypeVar("S", bound=Subject)
Whole = TypeVar("Whole")


def itself(whole: T) -> tuple[T]:
    """The whole, as the one subject to ask about."""
    return (whole,)


@dataclass(frozen=True, slots=True)
class Clash(Generic[T]):
    """One refusal: what its chapter is about does not go with ``other`` where ``when`` holds.

    ``says`` is why, and ``hint`` what works instead; ``{other}`` in them is ``other``. All three
    are templates. ``where`` are the keys to blame, the likeliest first: ``*`` stands for the
    numbers of entries of a list, and at the beginning for the pool that has a section of its own,
    or else for the scenario.
    """

    other: str
    when: Callable[[T], bool]
    says: str
    hint: str = ""
    where: tuple[str, ...] = ()

    def message(self, subject: T) -> str:
        """The text of the error, with the figures of ``subject``."""
        text = f"{self.says}; {self.hint}" if self.hint else self.says
        other = _Filled("").vformat(self.other, (subject,), {})
        return _Filled(other).vformat(text, (subject,), {})

    def places(self, subject: Subject) -> Iterator[KeyPath]:
        """The paths of the keys to blame."""
        for key in self.where:
            first, *steps = key.split(".")
            path: list[Sequence[str | int]] = [(first,)]
            if first == "*":
                path = [(step,) for step in subject.home(steps.pop(0))]
            for step in steps:
                path.append(subject.numbers(str(path[-1][0])) if step == "*" else (step,))
            yield from product(*path)

    @property
    def keys(self) -> list[str]:
        """The keys to blame, without the numbers of entries."""
        return [key.replace("*.", "").removesuffix(".*") for key in self.where]

    def document(self, about: str) -> dict[str, Any]:
        """The row, of a chapter ``about`` something, as plain data."""
        other = _Named("").vformat(self.other, (), {})
        why, hint = (_Named(other).vformat(text, (), {}) for text in (self.says, self.hint))
        return {"what": about, "with": other, "why": why, "hint": hint, "keys": self.keys}


@dataclass(frozen=True, slots=True)
class ClashFound:
    """A clash, and the paths of the keys to blame; ``key`` names the likeliest in words."""

    message: str
    places: tuple[KeyPath, ...]
    key: str


def refuse(section: T, *rows: Clash[T]) -> None:
    """Raise the error of the first of ``rows`` that holds of a ``section``, which has the keys."""
    for row in rows:
        if row.when(section):
            keys = [tuple(key.split(".")) for key in row.where]
            raise trouble(row.message(section), *keys)


class Chapter(Generic[Whole, S]):
    """The ``rows`` ``about`` one thing, asked of ``each`` subject of the whole."""

    def __init__(
        self,
        about: str,
        each: Callable[[Whole], Iterable[S]],
        *rows: Clash[S],
    ) -> None:
        self.about, self.each, self.rows = about, each, rows

    def refusal(self, whole: Whole) -> ClashFound | None:
        """The refusal by the first row that holds; None where everything goes together."""
        for subject in self.each(whole):
            row = next((row for row in self.rows if row.when(subject)), None)
            if row is not None:
                message = row.message(subject)
                return ClashFound(message, tuple(row.places(subject)), row.where[0])
        return None


class _Filled(Formatter):
    """Fills a field with the attribute of a subject."""

    def __init__(self, other: str) -> None:
        self.other = other

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, str]:
        """The value of a field."""
        if field_name == "other":
            return self.other, field_name
        found = args[0]
        for name in field_name.split("."):
            found = getattr(found, name)
        return found, field_name


class _Named(_Filled):
    """Shows the name of a field, in capitals."""

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, str]:
        """The last part of a field's name."""
        if field_name == "other":
            return self.other, field_name
        return field_name.rpartition(".")[2].upper(), field_name

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """The name itself, without quotes."""
        return value

    def format_field(self, value: Any, format_spec: str) -> str:
        """The name itself, which is no number."""
        return str(value)
