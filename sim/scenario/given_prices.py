"""Reads the prices of GPU hours from ``--price h100-sxm=2.40``, or ``--prices FILE`` with many."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from sim import catalog
from sim.catalog.files import position, read_yaml
from sim.errors import UsageError, did_you_mean
from sim.scenario import Scenario
from sim.scenario.prices import name_of, named

COLUMNS = ("gpu", "usd")


def with_prices(
    scenario: Scenario,
    given: Sequence[str],
    file: Path | None,
    used: Sequence[str] | None = None,
) -> Scenario:
    """The scenario with these prices in place of the catalogue's; ``given`` goes before ``file``.

    ``used`` are the GPUs that the command looks at, as the user spells them (None: not known yet):
    a price given for another is a mistake, in a file it is not. Raises UsageError, with the
    nearest match, for an unknown GPU, and for what is no price.
    """
    if not given and file is None:
        return scenario
    own = scenario.only_pool
    before = own.price_per_gpu_hour
    prices = dict(before) if isinstance(before, dict) else {}
    if isinstance(before, float):
        prices[own.gpu] = before
    spelled = {name_of(gpu): gpu for gpu in [*(used or ()), own.gpu]}
    found = {} if file is None else dict(_of_file(file, spelled))
    options = dict(_of_options(given, spelled))
    for gpu in options:
        if used is not None and gpu not in map(name_of, used):
            raise UsageError(
                f"--price {gpu}: not looked at here, where the GPUs are {', '.join(used)}"
            )
    prices = named(prices) | found | options
    return scenario.override(
        {own.key("price_per_gpu_hour"): {_spelling(gpu): usd for gpu, usd in prices.items()}}
    )


def _spelling(gpu: str) -> str:
    """A GPU as the scenario wants it: a name of the catalogue, or a file's with its ending."""
    return gpu if gpu in catalog.names("gpus") else f"{gpu}.yaml"


def _of_options(given: Sequence[str], spelled: dict[str, str]) -> Iterator[tuple[str, float]]:
    seen: set[str] = set()
    for text in given:
        gpu, equals, usd = text.rpartition("=")
        if not equals:
            raise UsageError(f"--price {text!r}: expected GPU=USD, such as h100-sxm=2.40")
        name, price = _pair(f"--price {text!r}", gpu.strip(), usd, spelled)
        if name in seen:
            raise UsageError(f"--price {text!r}: {name} is given twice")
        seen.add(name)
        yield name, price


def _of_file(path: Path, spelled: dict[str, str]) -> Iterator[tuple[str, float]]:
    """The prices in a YAML or CSV file, by the names of GPUs."""
    if path.suffix.lower() == ".csv":
        yield from _of_csv(path, spelled)
        return
    for gpu, usd in read_yaml(path).items():
        yield _pair(position(path, str(gpu)), str(gpu), usd, spelled)


def _of_csv(path: Path, spelled: dict[str, str]) -> Iterator[tuple[str, float]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path}: cannot be read ({reason})") from None
    head = [cell.strip().lower() for cell in rows[0]] if rows else []
    for name in COLUMNS:
        if name not in head:
            raise UsageError(f"{path}:1: expected the columns gpu and usd, found {', '.join(head)}")
    seen: set[str] = set()
    for line, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        cells = dict(zip(head, row, strict=False))
        gpu, usd = (cells.get(name, "").strip() for name in COLUMNS)
        name, price = _pair(f"{path}:{line}", gpu, usd, spelled)
        if name in seen:
            raise UsageError(f"{path}:{line}: {name} is given twice")
        seen.add(name)
        yield name, price


def _pair(where: str, gpu: str, usd: object, spelled: dict[str, str]) -> tuple[str, float]:
    """The name of a GPU and its price; UsageError if it is neither known nor a file in use."""
    known = catalog.names("gpus")
    name = name_of(gpu)
    if name not in known and name not in spelled:
        names = sorted({*known, *spelled})
        raise UsageError(
            f"{where}: unknown GPU {gpu!r}{did_you_mean(gpu, names)}; expected one of "
            f"{', '.join(names)}"
        )
    text = str(usd).strip().removeprefix("$")
    try:
        price = math.nan if isinstance(usd, bool) else float(text)
    except ValueError:
        price = math.nan
    if not 0 <= price < math.inf:
        raise UsageError(f"{where}: expected US dollars for a GPU hour, such as 2.40, got {usd!r}")
    return name, price
