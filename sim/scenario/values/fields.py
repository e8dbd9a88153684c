"""Provides the field types that the schema is made of.

Each type reads what people write (``500ms``, ``1e3``, ``on``) and yields what the program
computes with: SI floats, ints, bools, texts. A refusal is always a ValueError whose text states
what is allowed and what was given, in the words of a scenario's author.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from sim import catalog, units
from sim.catalog.ids import named
from sim.catalog.releases import Spelled, spelled
from sim.errors import UsageError, did_you_mean, known_names
from sim.plugins import is_own
from sim.scenario.text.document import show
from sim.scenario.text.parsing import is_unicode, scalar
from sim.scenario.values import spelling
from sim.scenario.values.readers import After, Kind

LARGEST_COUNT = 2**31 - 1
"""Counts end up in 32-bit columns of the results; nothing real comes near."""
LONGEST_TIME = 1e9
"""Seconds: 30 years. Beyond, a float is too coarse for the microseconds that count."""
HIGHEST_RATE = 1e6
"""Requests per second: more than all services of the world get together, so that more is a slip (a
rate in milliseconds, a number of requests) or means a burst."""

SLOWEST_LINK = 1e6
"""Bytes per second: slower than any network of a machine with GPUs."""

_DEAREST = 1e9  # US dollars per hour
_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def trouble(message: str, *at: str | int | tuple[str | int, ...]) -> PydanticCustomError:
    """An error about keys or entries of one section; it points at the first of ``at`` to blame, a
    tuple being a path inside the section."""
    return PydanticCustomError("trouble", "{message}", {"message": message, "at": at})


def _whole(
    name: str, low: int, high: int = LARGEST_COUNT, *, words: str = "", unit: str | None = None
) -> Kind:
    allowed = f"a whole number of at least {low}"
    words = words or f"a whole number, {low} or more"

    def read(value: object) -> int:
        number = scalar(value.strip()) if isinstance(value, str) else value
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if isinstance(number, bool) or not isinstance(number, int) or number < low:
            raise ValueError(f"expected {allowed}, got {show(value)}")
        if number > high:
            raise ValueError(f"{show(value)} is too large; at most {high:,} is possible")
        return number

    return Kind(name, words, lambda: spelling.whole(low, high), unit, read)


def _number(name: str, words: str, *, zero: bool) -> Kind:
    allowed = "a number of 0 or more" if zero else "a number above 0"
    least = {"minimum" if zero else "exclusiveMinimum": 0}

    def read(value: object) -> float:
        result = _plain_number(value, allowed)
        if result < 0 or (result == 0 and not zero):
            raise ValueError(f"expected {allowed}, got {show(value)}")
        return result

    return Kind(name, words, lambda: spelling.number(least), read=read)


def read_ratio(value: object) -> float:
    """A number above 0, or a fraction of two such as 1/3; ValueError for anything else."""
    allowed = "a number above 0, or a fraction such as 1/3"
    parts = value.split("/") if isinstance(value, str) else [value]
    numbers = [scalar(part.strip()) if isinstance(part, str) else part for part in parts]
    plain = [_finite(n) for n in numbers if isinstance(n, int | float) and n is not True]
    if len(plain) < len(parts) or not 1 <= len(parts) <= 2 or not all(n > 0 for n in plain):
        raise ValueError(f"expected {allowed}, got {show(value)}")
    return plain[0] if len(plain) == 1 else _finite(plain[0] / plain[1])


def _share(value: object) -> float:
    allowed = "a share above 0 and up to 1"
    result = _plain_number(value, allowed)
    if not 0 < result <= 1:
        hint = f"; for {result:g} % write {result / 100:g}" if 2 <= result <= 100 else ""
        raise ValueError(f"expected {allowed}, got {show(value)}{hint}")
    return result


def _price(value: object) -> float | Literal["catalogue"] | dict[str, float] | None:
    if value is None or value == "catalogue":
        return value
    if isinstance(value, dict):
        return {_priced_gpu(name): _dollars(price) for name, price in value.items()}
    return _dollars(value)


def _priced_gpu(name: object) -> str:
    """The name of a GPU with a price: one of the catalogue, or a file's, with its ending."""
    known = catalog.names("gpus")
    if isinstance(name, str) and (name in known or Path(name).suffix in (".yaml", ".yml")):
        return name
    raise ValueError(
        f"unknown GPU {show(name)}{did_you_mean(str(name), known)}; expected the file of a GPU or "
        f"its name; {known_names('gpus', known)}"
    )


def _dollars(value: object) -> float:
    allowed = (
        f"US dollars per hour (0 to {_DEAREST:.0e}), null (no cost shown) or 'catalogue', or "
        "dollars by GPU, as in {h100-sxm: 2.40}"
    )
    result = _plain_number(value, allowed)
    if not 0 <= result <= _DEAREST:
        raise ValueError(f"expected {allowed}, got {show(value)}")
    return result


def _plain_number(value: object, allowed: str) -> float:
    number = scalar(value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"expected {allowed}, got {show(value)}")
    return _finite(number)


def _quantity(
    name: str, dimension: str, words: str, unit: str, *, zero: bool = False, most: float = math.inf
) -> Kind:
    noun = {"bytes": "size", "bytes per second": "bandwidth"}.get(dimension, dimension)

    def read(value: object) -> float:
        try:
            if isinstance(value, int) and not isinstance(value, bool):
                result = _finite(value)
            else:
                result = units.parse(value, dimension)
        except ValueError as error:
            given = "" if isinstance(value, str | float) else f", got {show(value)}"
            raise ValueError(f"{error}{given}") from None
        if result < 0 or (result == 0 and not zero):
            least = "0 or more" if zero else "more than 0"
            raise ValueError(f"expected a {noun} of {least}, got {show(value)}")
        if result > most:
            limit = f"{most:,.0f}{'/s' if dimension == 'rate' else ' s'}"
            meant = "; for all at once: arrivals {kind: burst}" if dimension == "rate" else ""
            raise ValueError(f"{show(value)} is too large; at most {limit} is possible{meant}")
        return result

    return Kind(name, words, lambda: spelling.quantity(dimension, zero), unit, read)


def at_most(limit: float) -> After:
    """Refuses numbers that are larger."""

    def check(value: float) -> float:
        if value > limit:
            raise ValueError(f"{show(value)} is too large; at most {limit:,.0f} is possible")
        return value

    return After(check)


def between(low: float, high: float) -> After:
    """Refuses numbers outside."""

    def check(value: float) -> float:
        if not low <= value <= high:
            raise ValueError(f"expected a value from {low:g} to {high:g}, got {show(value)}")
        return value

    return After(check)


def _fast(value: float) -> float:
    """Refuses a number that can only have been meant in another unit."""
    if not value >= SLOWEST_LINK:
        raise ValueError(f"{value:g} bytes/s is no link; write the unit, as in 50GB/s")
    return value


def _finite(number: float) -> float:
    try:
        result = float(number)
    except OverflowError:
        result = math.inf
    if not math.isfinite(result):
        raise ValueError(f"expected a finite number, got {show(number)}")
    return result


def read_switch(value: object) -> bool:
    """true or false, as a scenario may spell it; ValueError for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _SWITCH:
        return _SWITCH[value.strip().lower()]
    raise ValueError(f"expected true or false, got {show(value)}")


def _spread(value: object) -> bool | int:
    allowed = "true, false or a number of GPUs"
    if isinstance(value, str) and value.strip().lower() in _SWITCH:
        return _SWITCH[value.strip().lower()]
    if isinstance(value, bool):
        return value
    number = _plain_number(value, allowed)
    if not number.is_integer() or not 1 <= number <= LARGEST_COUNT:
        raise ValueError(f"expected {allowed}, got {show(value)}")
    return int(number)


def _text(value: object) -> str:
    if isinstance(value, int | float):
        raise ValueError(f"expected a text, got {show(value)}; put it in quotes")
    if not isinstance(value, str):
        raise ValueError(f"expected a text, got {show(value)}")
    if not is_unicode(value):
        raise ValueError("the text holds half a character (a lone surrogate)")
    return value


def _line(value: str) -> str:
    if not value.strip() or not value.isprintable():
        raise ValueError(f"expected one line of text, got {show(value)}")
    return value


def _version(value: int) -> int:
    if value != 1:
        raise ValueError(f"this program reads version 1 of the scenario format, not {value}")
    return value


def named_in(name: str, known: Mapping[str, object]) -> Kind:
    """A name of a registry, or ``package.module:Class``; ``name`` is what the kind is called."""
    names = list(known)

    def check(value: str) -> str:
        if value in names or is_own(value):
            return value
        allowed = f"{', '.join(names)}, or a class of your own as package.module:Class"
        raise ValueError(f"{show(value)} is none of {allowed}{did_you_mean(value, names)}")

    words = f"{', '.join(names)}, or a class as package.module:Class"
    return Kind(name, words, lambda: spelling.registered(names), check=check)


def _metric(value: str) -> str:
    if is_own(value):
        return value
    raise ValueError(
        f"expected a function of your own as package.module:function, got {show(value)}"
    )


def _catalogue(kind: catalog.Kind, path_to: str) -> AfterValidator:
    """A catalogue name, or else a path that exists; kept as written."""

    def check(value: str, info: ValidationInfo) -> str:
        known = catalog.names(kind)
        if value in known or _exists(value, info) or (kind == "models" and named(value)):
            return value
        engine = spelled(value) if kind == "engines" else None
        if engine is not None and engine.release:
            if engine.name not in known and not _exists(engine.name, info):
                raise ValueError(_unknown(kind, engine.name, path_to))
            if engine.name in known:
                _released(engine)
            return value
        if re.search(r"[/\\]|\.(ya?ml|json)$", value):
            name = re.split(r"[/\\]", value)[-1].lower()  # as models are named on a hub
            raise ValueError(f"{_missing(value, info)}{did_you_mean(name, known)}")
        raise ValueError(_unknown(kind, value, path_to))

    return AfterValidator(check)


def _unknown(kind: catalog.Kind, name: str, path_to: str) -> str:
    known = catalog.names(kind)
    listed = known_names(kind, known, name)
    hint = did_you_mean(name, known)
    noun = kind.removesuffix("s")
    return f"no {noun} is called {show(name)}{hint}; {listed}; or give {path_to}"


def _released(engine: Spelled) -> None:
    """ValueError where the catalogue's engine does not have the release."""
    try:
        catalog.engine("@".join(engine))
    except UsageError as error:
        raise ValueError(str(error)) from None


def _file(value: str, info: ValidationInfo) -> str:
    if not _exists(value, info):
        raise ValueError(_missing(value, info))
    if located(value, info).is_dir():
        raise ValueError(f"{show(value)} is a directory; name the file in it")
    return value


def located(value: str, info: ValidationInfo) -> Path:
    """Where a path of the scenario leads: relative ones start at its folder."""
    base = info.context["base"] if info.context else Path.cwd()
    return Path(base, Path(value).expanduser())


def _exists(value: str, info: ValidationInfo) -> bool:
    try:
        return located(value, info).exists()
    except (OSError, ValueError, RuntimeError):  # too long, a null byte, an unknown ~user
        return False


def _missing(value: str, info: ValidationInfo) -> str:
    try:
        path = located(value, info)
        elsewhere = Path(value).absolute()
        hint = f" (it exists in the working directory: write {elsewhere})"
        return f"no such file: {path}{hint if elsewhere.exists() else ''}"
    except (OSError, ValueError, RuntimeError):
        return f"{show(value)} is not the path of a file"


def _prices() -> spelling.Schema:
    described = {"description": "US dollars for an hour of one such GPU."}
    dollars = {
        **described,
        "type": ["number", "string"],
        "minimum": 0,
        "pattern": spelling.all_of(spelling.NUMBER),
    }
    one = {
        "type": ["number", "string", "null"],
        "minimum": 0,
        "pattern": spelling.all_of(f"{spelling.NUMBER}|catalogue"),
    }
    by_gpu = {"type": "object", "properties": dict.fromkeys(catalog.names("gpus"), dollars)}
    return {"anyOf": [one, by_gpu]}


def _spreads() -> spelling.Schema:
    return {
        "type": ["boolean", "integer", "string"],
        "minimum": 1,
        "maximum": LARGEST_COUNT,
        "pattern": spelling.all_of(f"{spelling.SWITCH}|{spelling.WHOLE}"),
    }


TIME = "a time such as 500ms, 2s or 1h"

Count = Annotated[int, _whole("count", 1)]
"""A whole number from 1: sequences, blocks, GPUs."""
FromNone = Annotated[int, _whole("fromNone", 0, words="a whole number from 0")]
"""A whole number from 0."""
Tokens = Annotated[int, _whole("tokens", 1, unit="tokens")]
"""A length in tokens, from 1."""
Seed = Annotated[int, _whole("seed", 0, 2**63 - 1)]
"""A whole number from 0 that selects the random draws."""
Priority = Annotated[int, _whole("priority", 0)]
"""A whole number from 0; lower is served first."""
Place = Annotated[int, _whole("place", 0)]
"""The place of one among several, from 0."""
Version = Annotated[Count, Kind("version", "1", lambda: {"const": 1}, check=_version)]
"""The version of the scenario format."""
Positive = Annotated[float, _number("positive", "a number above 0", zero=False)]
"""A finite number above 0, without a unit."""
Nonnegative = Annotated[float, _number("nonnegative", "a number, 0 or more", zero=True)]
"""A finite number of 0 or more, without a unit."""
Mean = Annotated[Positive, at_most(LARGEST_COUNT)]
"""A number of tokens that need not be whole, such as a mean or a standard deviation."""
Factor = Annotated[Positive, between(1e-6, 1e6)]
"""A factor for times; not so small that requests could no longer be distinguished."""
Ratio = Annotated[
    float,
    Kind(
        "ratio",
        "a number above 0, or a fraction such as 1/3",
        lambda: spelling.number(
            {"exclusiveMinimum": 0}, rf"{spelling.NUMBER}(\s*/\s*{spelling.NUMBER})?"
        ),
        read=read_ratio,
    ),
    between(1e-6, 1e6),
]
"""A factor for traffic: like ``Factor``, or a fraction."""
Share = Annotated[
    float,
    Kind(
        "share",
        "a number above 0 and up to 1",
        lambda: spelling.number({"exclusiveMinimum": 0, "maximum": 1}),
        read=_share,
    ),
]
"""A share in (0, 1]."""
Price = Annotated[
    float | Literal["catalogue"] | dict[str, float] | None,
    PlainValidator(_price),
    Kind(
        "price",
        "a number, 0 or more; such numbers by GPU; catalogue; null",
        _prices,
        "US dollars per GPU hour",
    ),
]
"""US dollars, 0 or more, also by GPU; ``catalogue`` takes the catalogue's price, as do GPUs
not listed; None shows no cost."""
Duration = Annotated[
    float, _quantity("duration", "time", f"{TIME}, more than 0", "s", most=LONGEST_TIME)
]
"""Seconds, above 0."""
Wait = Annotated[
    float, _quantity("wait", "time", f"{TIME}, or 0", "s", zero=True, most=LONGEST_TIME)
]
"""Seconds, 0 or more."""
Size = Annotated[
    float, _quantity("size", "bytes", "a size such as 80GiB or 16GB", "bytes", zero=True)
]
"""Bytes, 0 or more."""
Bandwidth = Annotated[
    float,
    _quantity("bandwidth", "bytes per second", "a bandwidth such as 50GB/s", "bytes/s"),
    After(_fast),
]
"""Bytes per second, at least 1 MB/s."""
Power = Annotated[float, _quantity("power", "power", "a power such as 300W", "W")]
"""Watts, above 0."""
Rate = Annotated[
    float,
    _quantity(
        "rate",
        "rate",
        f"a number or a rate such as 6, 90/min or 300/h, up to {HIGHEST_RATE:,.0f}",
        "per second",
        most=HIGHEST_RATE,
    ),
]
"""Events per second, above 0."""
Switch = Annotated[
    bool,
    Kind(
        "switch",
        "true or false (also yes, no, on, off)",
        lambda: {"type": ["boolean", "string"], "pattern": spelling.all_of(spelling.SWITCH)},
        read=read_switch,
    ),
]
"""true or false; yes, no, on and off are understood."""
Spread = Annotated[
    bool | int,
    PlainValidator(_spread),
    Kind("spread", "true, false or a whole number, 1 or more", _spreads),
]
"""Over how many GPUs something is spread: all there are (true), none (false), or that many."""
Text = Annotated[str, Kind("text", "a text", lambda: {"type": "string"}, read=_text)]
"""Any text, several lines included."""
Line = Annotated[Text, Kind("line", "a text in one line", lambda: spelling.LINE, check=_line)]
"""One line of text that is not empty."""
Metric = Annotated[
    Line,
    Kind(
        "metric",
        "a function of the result, as package.module:function",
        lambda: spelling.OWN,
        check=_metric,
    ),
]
"""A function of one's own, as ``package.module:function``."""
ModelName = Annotated[
    Line,
    _catalogue("models", "the path of a config.json"),
    Kind(
        "model",
        "a name from `infersim list models`, or the path of a config.json",
        lambda: spelling.named("models"),
    ),
]
"""A model of the catalogue, its id on Hugging Face, or the path of a config.json or its folder."""
GpuName = Annotated[
    Line,
    _catalogue("gpus", "the path of a profile"),
    Kind(
        "gpu",
        "a name from `infersim list gpus`, or the path of a GPU file",
        lambda: spelling.named("gpus"),
    ),
]
"""A GPU of the catalogue, or the path of a profile that `infersim calibrate` wrote."""
EngineName = Annotated[
    Line,
    _catalogue("engines", "the path of a YAML file"),
    Kind(
        "engine",
        "a name from `infersim list engines`, or the path of an engine file",
        lambda: spelling.named("engines"),
    ),
]
"""An engine preset of the catalogue, or the path of one."""
File = Annotated[Line, AfterValidator(_file), Kind("file", "a path", lambda: spelling.LINE)]
"""The path of a file that exists."""
