"""How one mapping read from a file is taken apart, with complaints that name the file and the key.

Values come from people or from other programs, so every read states what it expects; whatever
comes back is checked and in SI units. A key that is absent and a key that is null are different:
the ``optional_`` reads return their default for the first and None for the second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from sim import units
from sim.errors import UsageError, did_you_mean


def read_text(path: Path) -> str:
    """The text of a UTF-8 file; UsageError, naming it, when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not a text file in UTF-8") from None
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None


class Fields:
    """The keys and values of one mapping in ``where``; ``prefix`` is the path of keys above it.

    Every method raises UsageError, naming file and key, when the value is not what it returns.
    """

    def __init__(self, where: str, values: object, prefix: str = "") -> None:
        if not isinstance(values, Mapping):
            at = f": {prefix.rstrip('.')}" if prefix else ""
            raise UsageError(f"{where}{at}: expected a mapping of keys to values, {_found(values)}")
        self._where = where
        self._prefix = prefix
        self._values = {str(key): value for key, value in values.items()}

    def error(self, key: str, problem: str) -> UsageError:
        """The complaint about ``key``, ready to raise."""
        return UsageError(f"{self._where}: {self._prefix}{key}: {problem}")

    def only(self, known: Iterable[str]) -> None:
        """Complain about the first key that is not one of ``known``."""
        known = list(known)
        for key in self._values:
            if key not in known:
                hint = did_you_mean(key, known)
                raise self.error(key, f"unknown key{hint}; known: {', '.join(known)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def has(self, key: str) -> bool:
        """Whether ``key`` is there at all, null or not."""
        return key in self._values

    def value(self, key: str) -> object:
        """Whatever ``key`` holds; it must be there."""
        if key not in self._values:
            raise self.error(key, "is missing")
        return self._values[key]

    def inner(self, key: str) -> Fields:
        """The mapping under ``key``."""
        return Fields(self._where, self.value(key), f"{self._prefix}{key}.")

    def text(self, key: str) -> str:
        """A string with something in it."""
        value = self.value(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(key, f"expected some text, {_found(value)}")
        return value.strip()

    def whole(self, key: str) -> int:
        """A whole number of at least 1."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.error(key, f"expected a whole number of at least 1, {_found(value)}")
        return value

    def count(self, key: str) -> int:
        """A whole number of at least 0."""
        value = self.value(key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(key, f"expected a whole number of at least 0, {_found(value)}")
        return value

    def optional_whole(self, key: str, absent: int | None) -> int | None:
        """As ``whole``; ``absent`` when there is no such key, None when it is null."""
        if not self.has(key):
            return absent
        return None if self.value(key) is None else self.whole(key)

    def number(self, key: str) -> float:
        """A finite number without a unit."""
        value = self.value(key)
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
        ):
            raise self.error(key, f"expected a plain number, {_found(value)}")
        return float(value)

    def quantity(self, key: str, dimension: str) -> float:
        """An SI float of ``dimension`` (a key of ``sim.units.UNITS``)."""
        value = self.value(key)
        try:
            return units.parse(value, dimension)
        except ValueError as error:
            raise self.error(key, str(error)) from None

    def flag(self, key: str, absent: bool | None = None) -> bool:
        """True or false; ``absent``, unless None, stands in for a missing or null key."""
        value = self.value(key) if absent is None else self._values.get(key)
        if value is None and absent is not None:
            return absent
        if not isinstance(value, bool):
            raise self.error(key, f"expected true or false, {_found(value)}")
        return value

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


def _found(value: object) -> str:
    if value is None:
        return "found null"
    if isinstance(value, Mapping):
        return "found a mapping"
    if isinstance(value, list):
        return "found a list"
    return f"found {value!r}"
