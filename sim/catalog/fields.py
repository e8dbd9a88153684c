"""Reads the fields of one mapping from a file, with complaints that name the file and the key.

Values come from people or from other programs, so every read states what it expects; whatever
comes back is checked and in SI units. A key that is absent and a key that is null are different:
the ``optional_`` reads return their default for the first and None for the second.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from sim import units
from sim.errors import UsageError, did_you_mean, printable, shorten

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Record = TypeVar("Record", bound=DataclassInstance)

LARGEST = 10**15
"""No count of parameters, layers or cores comes near it."""

_LONGEST = 3600.0  # seconds: no overhead or latency is nearly as long
_HUGE = 1e60  # no quantity is larger; products of several such are still finite


class Fields:
    """The keys and values of one mapping in ``where``, a file, or a function that says where in a
    file a dotted key stands; ``prefix`` is the path of keys above it.

    Every method raises UsageError, naming file and key, when the value is not what it returns.
    """

    def __init__(self, where: str | Callable[[str], str], values: object, prefix: str = "") -> None:
        self._where = where
        self._prefix = prefix
        if not isinstance(values, Mapping):
            at = f": {prefix.rstrip('.')}" if prefix else ""
            raise UsageError(
                f"{self._place(prefix.rstrip('.'))}{at}: expected a mapping of keys to values, "
                f"{_found(values)}"
            )
        self._values = {str(key): value for key, value in values.items()}

    def error(self, key: str, problem: str) -> UsageError:
        """The complaint about ``key``, ready to raise."""
        return UsageError(f"{self._place(self._prefix + key)}: {self._prefix}{key}: {problem}")

    def _place(self, key: str) -> str:
        return self._where if isinstance(self._where, str) else self._where(key)

    def only(self, known: Iterable[str]) -> None:
        """Complain about the first key that is not one of ``known``."""
        known = list(known)
        for key in self._values:
            if key not in known:
                hint = did_you_mean(key, known)
                raise self.error(shorten(key), f"unknown key{hint}; known: {', '.join(known)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def without(self, key: str) -> Fields:
        """The mapping without ``key``."""
        rest = {name: value for name, value in self._values.items() if name != key}
        return Fields(self._where, rest, self._prefix)

    def with_values(self, more: Mapping[str, object]) -> Fields:
        """The mapping with the keys and values of ``more``."""
        return Fields(self._where, {**self._values, **more}, self._prefix)

    def has(self, key: str) -> bool:
        """Whether ``key`` is there at all, null or not."""
        return key in self._values

    def value(self, key: str) -> object:
        """The value of ``key``; it must be there."""
        if key not in self._values:
            raise self.error(key, "is missing")
        return self._values[key]

    def inner(self, key: str) -> Fields:
        """The mapping under ``key``."""
        return Fields(self._where, self.value(key), f"{self._prefix}{key}.")

    def mappings(self, key: str) -> list[Fields]:
        """The mappings in the list under ``key``."""
        value = self.value(key)
        if not isinstance(value, list):
            raise self.error(key, f"expected a list, {_found(value)}")
        return [
            Fields(self._where, item, f"{self._prefix}{key}.{index}.")
            for index, item in enumerate(value)
        ]

    def text(self, key: str) -> str:
        """A string with something in it."""
        value = self.value(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"expected some text, {_found(value)}")
        if value != printable(value):
            raise self.error(key, f"expected text without control characters, {_found(value)}")
        return value.strip()

    def whole(self, key: str) -> int:
        """A whole number of at least 1."""
        return self._whole(key, 1)

    def count(self, key: str) -> int:
        """A whole number of at least 0."""
        return self._whole(key, 0)

    def _whole(self, key: str, least: int) -> int:
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.error(key, f"expected a whole number of at least {least}, {_found(value)}")
        if value > LARGEST:
            raise self.error(key, f"expected at most {LARGEST:,}, {_found(value)}")
        return value

    def optional_whole(self, key: str, absent: int | None) -> int | None:
        """The whole number at ``key``; ``absent`` when there is no such key, None when it is
        null."""
        if not self.has(key):
            return absent
        return None if self.value(key) is None else self.whole(key)

    def number(self, key: str) -> float:
        """A finite number without a unit."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, f"expected a plain number, {_found(value)}")
        if not -_HUGE < value < _HUGE:  # which no NaN is
            raise self.error(key, f"expected a plain number, {_found(value)}")
        return float(value)

    def quantity(self, key: str, dimension: str) -> float:
        """An SI float of ``dimension`` (a key of ``sim.units.UNITS``)."""
        value = self.value(key)
        try:
            found = units.parse(value, dimension)
        except ValueError as error:
            raise self.error(key, str(error)) from None
        if abs(found) > (_LONGEST if dimension == "time" else _HUGE):
            raise self.error(key, f"{shorten(repr(value))} is too large")
        return found

    def flag(self, key: str, absent: bool | None = None) -> bool:
        """True or false; ``absent``, unless None, stands in for a missing or null key."""
        value = self.value(key) if absent is None else self._values.get(key)
        if value is None and absent is not None:
            return absent
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, {_found(value)}")
        return value

    def not_negative(self, key: str, dimension: str) -> float:
        """An SI float of ``dimension``, at least 0."""
        value = self.quantity(key, dimension)
        if value < 0:
            raise self.error(key, f"expected 0 or more, found {value:g}")
        return value

    def share(self, key: str) -> float:
        """A number from 0 to 1."""
        value = self.number(key)
        if not 0 <= value <= 1:
            raise self.error(key, f"expected a share from 0 to 1, found {value:g}")
        return value

    def record(self, kind: type[Record], **given: object) -> Record:
        """The record with the values under the names of its fields, except for those ``given``.

        The annotation of a field says what it holds (``_BY_TYPE``). Only a field with a default may
        be left out; a ValueError of the record itself is passed on.
        """
        read = {f.name: self._of_type(f) for f in dataclasses.fields(kind) if f.name not in given}
        return kind(**read, **given)

    def _of_type(self, field: dataclasses.Field[Any]) -> object:
        key, default = field.name, field.default
        if field.type == "bool":
            given = key in self._values or not isinstance(default, bool)
            return self.flag(key) if given else default
        if default is not dataclasses.MISSING and not self.has(key):
            return default
        return _BY_TYPE[str(field.type)](self, key)

    def sourced(self, unsourced: str | None = None) -> tuple[Fields, dict[str, str]]:
        """The values of a catalogue entry and, key by key, where each comes from.

        Every key but ``title`` must hold exactly a ``value`` and a ``source``; or, where
        ``unsourced`` says what to call the source of such a value, the bare value.
        """
        values: dict[str, object] = {}
        sources: dict[str, str] = {}
        for key in self:
            if key == "title":
                continue
            value = self.value(key)
            if unsourced is not None and not (isinstance(value, Mapping) and "value" in value):
                values[key], sources[key] = value, unsourced
                continue
            item = self.inner(key)
            item.only(["value", "source"])
            values[key] = item.value("value")
            sources[key] = " ".join(item.text("source").split())
        return Fields(self._where, values), sources


_BY_TYPE: dict[str, Callable[[Fields, str], object]] = {
    "int": Fields.whole,
    "int | None": lambda fields, key: fields.optional_whole(key, None),
    "Count": Fields.count,
    "Seconds | None": lambda fields, key: fields.not_negative(key, "time"),
    "Seconds": lambda fields, key: fields.not_negative(key, "time"),
    "Bytes": lambda fields, key: fields.not_negative(key, "bytes"),
    "Share": Fields.share,
    "str": Fields.text,
}
"""How a field of a record is read, by its annotation (``sim.units`` has names for numbers)."""


def keys(kind: type[DataclassInstance], *given: str) -> list[str]:
    """The keys that a file has for a record: its fields, except for those ``given``."""
    return [field.name for field in dataclasses.fields(kind) if field.name not in given]


def _found(value: object) -> str:
    if value is None:
        return "found null"
    if isinstance(value, Mapping):
        return "found a mapping"
    if isinstance(value, list):
        return "found a list"
    return f"found {shorten(repr(value))}"
