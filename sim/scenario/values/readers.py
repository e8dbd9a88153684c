"""Provides the marks of a field's type that read or check its value by a function.

They do what pydantic's own ``BeforeValidator`` and ``AfterValidator`` do for a function of the
value alone. pydantic looks at the signature of such a function again at every field that has it,
which a schema with hundreds of fields feels in each start of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, ValidationError
from pydantic_core import core_schema


class Before:
    """Turns what a person wrote into what the type takes; ValueError where it can be neither."""

    def __init__(self, read: Callable[[object], object]) -> None:
        self.read = read

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The type's schema behind the function."""
        return core_schema.no_info_before_validator_function(self.read, handler(source))


class ConstantLaw(Before):
    """Takes a value alone as the law ``fixed`` of it: the mark of the laws of which that is one.

    A number always is one, a text such as ``20s`` where the law reads it.
    """

    def __init__(self, fixed: type[BaseModel]) -> None:
        super().__init__(self._law)
        self.fixed = fixed

    def _law(self, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            return value
        law = {"kind": "fixed", "value": value}
        if isinstance(value, str):
            try:
                self.fixed.model_validate(law)
            except ValidationError:
                return value
        return law


class Together:
    """Marks laws of one value, next to which ``key`` has those of several, named by ``what``."""

    def __init__(self, key: str, what: str) -> None:
        self.key, self.what = key, what


class After:
    """Checks a value of the type, and returns it; ValueError for one that is refused."""

    def __init__(self, check: Callable[[Any], object]) -> None:
        self.check = check

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The type's schema before the function."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of single value, the last mark of its type: how ``infersim explain`` and the JSON
    Schema call it, its spellings there, what it is in words, and the ``unit`` of a bare number.

    ``read`` and ``check`` do what ``Before`` and ``After`` do.
    """

    name: str
    words: str
    schema: Callable[[], dict[str, Any]]
    unit: str | None = None
    read: Callable[[object], object] | None = None
    check: Callable[[Any], object] | None = None

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """The type's schema between the two functions."""
        found = handler(source)
        if self.read is not None:
            found = core_schema.no_info_before_validator_function(self.read, found)
        if self.check is not None:
            found = core_schema.no_info_after_validator_function(self.check, found)
        return found
