"""Pins the results of small scenarios to the byte, and says readably what moved.

``tests/golden`` has one file a scenario of ``tests.golden_scenarios``. It pins each column of the
tables of requests and of plans, with leaps and without, and each number of the summary:

- a column by a hash of its bytes, and by figures that a person can compare: how many values, how
  many of them missing (if any), their sum, the least, the largest, the first, three between, and
  the last; of floats also the sum weighted with the row number, from 1;
- a number of the summary by its path and value. Texts, versions, prices of the catalogue and what
  says where something comes from are left out, and so is the wording of rejections; of words, only
  decisions are pinned (``WORDS``). Keys and columns may be added; a changed or missing one moved.

Requests are the same with leaps and without, so one pin holds for both. Plans are other rows then,
and sums over them are rounded otherwise: the file has what differs ("without leaps").

Results depend on the machine where they need exponentials, logarithms or powers: NumPy computes
those with the widest vectors that the processor has, and the last bit differs. The scenarios in
``golden_scenarios.ROUNDED`` need them. Their files carry a hash of such values; where the machine
computes the same ones, they are pinned to the byte as all others, and elsewhere their floats are
compared by the figures, at a tolerance of 1e-10 (whole numbers and texts still by the byte). All
other scenarios are pinned to the byte on every machine.

    python -m tests.golden [NAME ...]     write the files anew, and print what moved
    python -m tests.golden --check        print what moved, write nothing; status 1 if anything did

Write them anew only when a change of results is meant, and look at what moved before you commit.
A new release of NumPy may draw other random numbers: then all files move at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import sim
from sim.rng import stream
from tests.golden_scenarios import CHANGES, ROUNDED, scenario

FOLDER = Path(__file__).parent / "golden"
CLOSE = 1e-10
"""Relative tolerance, and absolute one, of what another machine rounds otherwise."""
SHOWN = 40
"""Lines of a table, or of a summary, that a message shows."""

WORDS = (
    "infersim.verdict.state",
    "infersim.verdict.slo_state",
    "infersim.verdict.first_limit",
)
"""Texts of the summary that are decisions, not wording."""
UNPINNED = (
    "infersim.version",
    "infersim.asked",
    "infersim.whole_runs",
    "infersim.error_band",
    "infersim.bands",
    "infersim.provenance",
    "infersim.notes",
    "infersim.cost.provider",
    "infersim.cost.date",
    "infersim.cost.low",
    "infersim.cost.high",
)
"""Parts of the summary that say what was known when it was written, not what the run did."""
DROPPED = object()
WORDED = ("reason",)
"""Columns whose texts are wording: pinned is which rows share one."""

Pins = dict[str, Any]


def pins_of(name: str) -> Pins:
    """What is pinned of the scenario called ``name``; AssertionError if leaps change a request."""
    asked = sim.load_scenario(scenario(name))
    leaps, steps = (sim.simulate(asked, leap=leap) for leap in (True, False))
    requests, stepped = pins_of_table(leaps.requests), pins_of_table(steps.requests)
    assert requests == stepped, "\n".join(
        ["with leaps -> without leaps:", *moved_in_table("requests", requests, stepped, True)]
    )
    summary, other = pruned(leaps.summary), dict(flat(pruned(steps.summary)))
    known = dict(flat(summary))
    assert known.keys() == other.keys()
    return {
        "arithmetic": arithmetic() if name in ROUNDED else None,
        "requests": requests,
        "timeseries": pins_of_table(leaps.timeseries),
        "timeseries without leaps": pins_of_table(steps.timeseries, brief=True),
        "infersim": summary.pop("infersim"),
        "summary": summary,
        "summary without leaps": {
            path: value for path, value in other.items() if repr(value) != repr(known[path])
        },
    }


def pins_of_table(table: pd.DataFrame, brief: bool = False) -> Pins:
    """The pin of each column; ``brief`` has hashes and sums only."""
    return {name: pin(name, table[name].to_numpy(), brief) for name in table}


def pin(name: str, values: Any, brief: bool = False) -> Pins:
    """The hash of a column and the figures that tell a person what is in it."""
    if values.dtype == object:
        return _text_pin(name, [None if pd.isna(value) else str(value) for value in values])
    missing = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(values), bool)
    if missing.any():
        values = np.where(missing, np.nan, values)  # NaN has many bit patterns
    little = values.astype(values.dtype.newbyteorder("<"))
    pins: Pins = {"dtype": str(values.dtype), "hash": _hash(little.tobytes()), "count": len(values)}
    if missing.any():
        pins["missing"] = int(missing.sum())
    known = values[~missing].tolist()
    if known:
        pins |= _figures(known, (np.flatnonzero(~missing) + 1).tolist(), brief)
    return pins


def _figures(known: list[Any], rows: list[int], brief: bool) -> Pins:
    """What a person compares of the ``known`` values, which stand in these ``rows``."""
    if min(known) == max(known):
        return {"all": known[0]}
    if not isinstance(known[0], float):
        figures: Pins = {"sum": int(sum(known))}
    else:
        weighted = math.fsum(row * value for row, value in zip(rows, known, strict=True))
        figures = {"sum": math.fsum(known), "weighted": weighted}
    if brief:
        return figures
    values = [known[len(known) * quarter // 4] for quarter in range(4)]
    return {**figures, "min": min(known), "max": max(known), "values": [*values, known[-1]]}


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _text_pin(name: str, texts: list[str | None]) -> Pins:
    if name in WORDED:
        seen = list(dict.fromkeys(text for text in texts if text is not None))
        texts = [None if text is None else f"text {seen.index(text)}" for text in texts]
    return {
        "dtype": "text",
        "hash": _hash(json.dumps(texts).encode()),
        "count": len(texts),
        "missing": texts.count(None),
        "values": dict(sorted(Counter(text for text in texts if text is not None).items())),
    }


def pruned(value: Any, path: str = "") -> Any:
    """A summary without what is not pinned: its numbers, switches and nulls, and ``WORDS``."""
    if isinstance(value, Mapping | list):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        inner = {str(key): pruned(item, f"{path}.{key}".lstrip(".")) for key, item in items}
        return {key: item for key, item in inner.items() if item is not DROPPED and item != {}}
    unpinned = path.startswith(UNPINNED) or (isinstance(value, str) and path not in WORDS)
    return DROPPED if unpinned else value


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of each number of a nested mapping."""
    if not isinstance(value, Mapping):
        yield path, value
        return
    for key, inner in value.items():
        yield from flat(inner, f"{path}.{key}" if path else key)


def flat_summary(pins: Pins) -> Pins:
    """Path and value of each number of the summary in ``pins``, with leaps."""
    return dict(flat(pins["summary"])) | dict(flat(pins["infersim"], "infersim"))


def arithmetic() -> str:
    """A hash of many exponentials, logarithms, powers, sines and cosines, as this machine has
    them: equal where the results of ``ROUNDED`` are equal to the byte."""
    x = np.linspace(0.01, 20.0, 4001)
    waves = [np.sin(7 * x), np.cos(7 * x)]
    arrays = [np.exp(-x), np.exp(x), np.log(x), np.log2(x), np.log1p(x), x**0.37, *waves]
    arrays.append(stream(1, "arithmetic").standard_gamma(0.25, 1000))
    scalars = [f(v) for f in (math.exp, math.log, math.log2) for v in x.tolist()]
    whole = b"".join(array.tobytes() for array in [*arrays, np.array(scalars)])
    return _hash(whole)


def moved(old: Pins, new: Pins) -> list[str]:
    """What differs, a line each: ``old -> new``; none if nothing moved."""
    exact = old["arithmetic"] == new["arithmetic"]
    lines = []
    for part in ("requests", "timeseries", "timeseries without leaps"):
        lines += moved_in_table(part, old[part], new[part], exact)
    leaps = [flat_summary(pins) for pins in (old, new)]
    steps = [flat_summary(pins) | pins["summary without leaps"] for pins in (old, new)]
    lines += moved_in_summary("summary", *leaps, exact)
    lines += moved_in_summary("summary without leaps", *steps, exact)
    fresh = added(old, new)
    return [*lines, f"(new, and no failure: {', '.join(fresh)})"] if lines and fresh else lines


def added(old: Pins, new: Pins) -> list[str]:
    """Columns and keys that the pins of before do not have."""
    tables = ("requests", "timeseries")
    columns = [f"{part}: {key}" for part in tables for key in new[part] if key not in old[part]]
    known = flat_summary(old)
    return columns + [f"summary: {path}" for path in flat_summary(new) if path not in known]


def moved_in_table(table: str, old: Pins, new: Pins, exact: bool) -> list[str]:
    """The columns of ``table`` that moved, each with the figures that did."""
    lines: list[str] = []
    names = []
    for name, before in old.items():
        after = new.get(name)
        if after is None:
            lines.append(f"{table}: {name} is gone")
            continue
        by_figures = not exact and before["dtype"].startswith("float")
        keys = [key for key in {**before, **after} if not (by_figures and key == "hash")]
        differ = [key for key in keys if not _same(before.get(key), after.get(key), exact)]
        if differ:
            told = [key for key in differ if key != "hash"]
            names.append(name)
            lines.append(f"{table}: {name} ({before['dtype']}, {before['count']} values)")
            lines += [
                f"    {key} {_show(before.get(key))} -> {_show(after.get(key))}" for key in told
            ]
            lines += [] if told else ["    other bytes; none of the figures differs"]
    if len(lines) > SHOWN:
        lines = [f"{table}: moved are {', '.join(names)}", *lines]
    return _shortened(table, lines)


def moved_in_summary(part: str, old: Pins, new: Pins, exact: bool) -> list[str]:
    """The numbers of a summary that moved."""
    lines = []
    for path, before in old.items():
        if path not in new:
            lines.append(f"{part}: {path} is gone, it was {_show(before)}")
        elif not _same(before, new[path], exact):
            lines.append(f"{part}: {path} {_show(before)} -> {_show(new[path])}")
    return _shortened(part, lines)


def _same(before: Any, after: Any, exact: bool) -> bool:
    """Equal in type and value; floats that are not ``exact`` within the tolerance."""
    if not exact and isinstance(before, list) and isinstance(after, list):
        pairs = zip(before, after, strict=False)
        return len(before) == len(after) and all(_same(*pair, exact) for pair in pairs)
    if not exact and isinstance(before, float) and isinstance(after, float):
        return math.isclose(before, after, rel_tol=CLOSE, abs_tol=CLOSE)
    return repr(before) == repr(after)


def _show(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shortened(part: str, lines: list[str]) -> list[str]:
    rest = len(lines) - SHOWN
    return lines if rest <= 0 else [*lines[:SHOWN], f"{part}: and {rest} more lines"]


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def read(name: str) -> Pins:
    """The pins in the file of a scenario."""
    pins: Pins = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return pins


def write(name: str, pins: Pins) -> None:
    """Write the file of a scenario: one line for each column, number and section."""
    parts = []
    for part, value in pins.items():
        text = _compact(value)
        if isinstance(value, dict) and value:
            rows = [f"{_compact(key)}:{_compact(row)}" for key, row in value.items()]
            text = "{\n" + ",\n".join(rows) + "\n}"
        parts.append(f"{_compact(part)}:{text}")
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    (FOLDER / f"{name}.json").write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Write the files anew, or with ``--check`` only say what moved."""
    check = "--check" in arguments
    names = [name for name in arguments if name != "--check"] or list(CHANGES)
    unknown = [name for name in names if name not in CHANGES]
    if unknown:
        print(f"no scenario is called {', '.join(unknown)}; there are {', '.join(CHANGES)}")
        return 2
    any_moved = False
    for name in names:
        new = pins_of(name)
        known = (FOLDER / f"{name}.json").exists()
        old = read(name) if known else new
        lines = moved(old, new) if known else ["new"]
        any_moved |= bool(lines)
        print(name, *(lines or ["the same"]), sep="\n  ")
        if not check and (lines or added(old, new)):
            write(name, new)
    for path in sorted(FOLDER.glob("*.json")):
        if path.stem not in CHANGES:
            print(f"{path.stem}\n  no such scenario" + ("" if check else ": file removed"))
            any_moved = True
            if not check:
                path.unlink()
    return int(check and any_moved)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
