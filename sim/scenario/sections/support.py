"""Lists what the format describes and the simulator cannot do yet.

Each row of ``LIMITS`` is one refusal. Lifting it is deleting the row: the schema already knows
the key, and the messages that list what is allowed leave out what a row refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sim.scenario.text.document import show
from sim.scenario.values.fields import trouble
from sim.specs.precision import GGUF, GGUF_KV, INT4


@dataclass(frozen=True, slots=True)
class Unsupported:
    """One refusal: values of ``section.key`` for which ``refuses`` holds; ``instead`` works."""

    section: str
    key: str
    refuses: Callable[[object], bool]
    instead: str


def among(*values: str) -> Callable[[object], bool]:
    """Refuses these values."""
    return lambda value: isinstance(value, str) and value in values


def above(limit: float) -> Callable[[object], bool]:
    """Refuses larger numbers."""
    return lambda value: isinstance(value, int | float) and value > limit


def any_of(names: Iterable[str]) -> str:
    """The names as a choice in words."""
    *others, last = names
    return f"{', '.join(others)} or {last}"


WIDE = "bf16, fp16, fp32, fp8, int8, q8_0 or q4_0"
NARROW = (*INT4, "fp8-block", "mxfp4", "nvfp4", *(f for f in GGUF if f not in GGUF_KV))

LIMITS = (
    Unsupported(
        "Precision",
        "activations",
        among(*INT4, "fp8-block", *GGUF),
        "bf16, fp16, fp32, fp8, int8, mxfp4 or nvfp4",
    ),
    Unsupported("Precision", "kv_cache", among(*NARROW), WIDE),
    Unsupported("KvCache", "swap_space", above(0), "0GiB, and host_memory instead"),
)


def refusal(section: str, key: str, value: object) -> Unsupported | None:
    """The row that refuses ``value`` at ``section.key``, if one does."""
    for limit in LIMITS:
        if limit.section == section and limit.key == key and limit.refuses(value):
            return limit
    return None


class Section(BaseModel):
    """A mapping of the scenario: its keys are known, its values never change."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _null_is_default(cls, data: Any) -> Any:
        """Leave out keys whose value is null, which then have their default, unless null is a value
        of theirs."""
        if not isinstance(data, Mapping):
            return data
        return {key: v for key, v in data.items() if v is not None or not _resettable(cls, key)}


def _resettable(section: type[BaseModel], key: object) -> bool:
    """Whether a key has a default, and no null among its values."""
    field = section.model_fields.get(str(key))
    if field is None or field.is_required() or field.default is None:
        return False
    return type(None) not in get_args(field.annotation)


class LimitedSection(Section):
    """A section to which rows of ``LIMITS`` apply."""

    @field_validator(*{limit.key for limit in LIMITS}, mode="wrap", check_fields=False)
    @classmethod
    def _supported(
        cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        """Refuse what ``LIMITS`` lists, as written and as understood."""
        key = str(info.field_name)
        limit = refusal(cls.__name__, key, value)
        if limit is None:
            understood = handler(value)
            limit = refusal(cls.__name__, key, understood)
        if limit is not None:
            raise _refused(key, value, limit)
        return understood


def _refused(key: str, value: object, limit: Unsupported) -> PydanticCustomError:
    """The error of a row, at the value, its ``kind`` or the second entry of a list."""
    message = f"is not supported yet; supported: {limit.instead}"
    if isinstance(value, Mapping):
        if "kind" in value:
            return trouble(f"{show(value['kind'])} {message}", "kind")
        return trouble(f"{key} {message}")
    if isinstance(value, list | tuple):
        return trouble(f"a {key} of {len(value)} {message}", 1)
    return trouble(f"{show(value)} {message}")
