"""Reads the files of a run directory back and checks them before anything is made of them.

Somebody may have edited a file, or a disk may have damaged it. Whatever is in it, the answer is
data of the kinds that a run writes, or one UsageError that names the file, the entry and what is
allowed there. Unknown entries are let through: later versions may write more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sim.catalog.files import read_json
from sim.errors import UsageError, shorten
from sim.growth.leaps import DECODED, PER_SEQUENCE, TAKEN

if TYPE_CHECKING:
    import pandas as pd

NUMBER, TEXT, FLAG = "a finite number", "a text", "true or false"
"""Kinds of entries; null may stand for each of them: what was not measured."""

LARGEST = 1e60
"""No quantity of a run comes near it, and sums and products of such are finite."""

LONGEST = 10**7
"""Iterations of one plan: a request gets a token in each, and no answer has that many."""

Shape = str | Sequence[Any] | Mapping[str, Any]
"""A kind; or a list of one shape, that of its items; or a mapping of keys to shapes, in which a
pattern such as ``*_ms`` stands for keys that are not named."""


def _each(kind: str, *names: str) -> dict[str, Shape]:
    return dict.fromkeys(names, kind)


_MS: Mapping[str, Shape] = {"*_ms": NUMBER}
_LIMIT: Mapping[str, Shape] = {
    **_MS,
    **_each(NUMBER, "attainment", "low", "high", "target", "percentile"),
}
SUMMARY: Mapping[str, Shape] = {
    **_MS,
    **_each(NUMBER, "duration", "completed", "failed", "total_input_tokens"),
    **_each(NUMBER, "total_output_tokens", "request_throughput", "request_goodput"),
    **_each(NUMBER, "output_throughput", "total_token_throughput"),
    "infersim": {
        **_each(TEXT, "version", "scenario", "description", "model", "gpu", "engine", "batching"),
        **_each(TEXT, "provenance", "kind"),
        **_each(NUMBER, "seed", "gpus", "preemptions", "resumptions"),
        "interrupted": FLAG,
        "notes": [TEXT],
        "verdict": {
            **_each(TEXT, "state", "text", "first_limit", "slo_state"),
            **_each(NUMBER, "utilisation", "utilisation_error", "headroom", "slo_headroom"),
            **_each(NUMBER, "drift_per_s", "drift_error_per_s", "peak_utilisation", "target"),
            **_each(NUMBER, "attainment", "attainment_low", "attainment_high"),
            **_each(NUMBER, "requests_to_decide", "relaxation_requests", "requests_to_settle"),
            "settled": FLAG,
            "slo_doubts": [TEXT],
            "cut": {**_each(TEXT, "part", "note"), "has_peak": FLAG},
            "reach": _each(NUMBER, "trace", "horizon", "requests", "rate", "curve"),
            "slo_met": FLAG,
            "limits": {"*": _LIMIT},
        },
        "requests": {
            **_each(NUMBER, "submitted", "completed", "rejected", "unfinished", "not_arrived"),
            **_each(NUMBER, "one_token", "warmup"),
            "rejected_reasons": {"*": NUMBER},
        },
        "classes": [{**_MS, **_each(NUMBER, "submitted", "completed", "attainment"), "name": TEXT}],
        "while_arriving": {
            **_each(NUMBER, "seconds", "drain_s", "others_s", "request_throughput"),
            **_each(NUMBER, "request_goodput", "output_throughput", "total_token_throughput"),
            "last": TEXT,
        },
        "queue_ms": _each(NUMBER, "mean", "p50", "p90", "p95", "p99"),
        "kv_cache": {
            **_each(NUMBER, "num_gpu_blocks", "block_size", "tokens", "max_model_len"),
            **_each(NUMBER, "max_concurrency", "mean_used", "peak_used", "mean_reserved"),
            **_each(NUMBER, "peak_reserved", "fragmentation"),
            "allocator": TEXT,
        },
        "memory": {"*_bytes": NUMBER, "kv_bytes_per_token": NUMBER},
        "batch": {
            **_each(NUMBER, "iterations", "mean_iteration_ms", "mean_running", "peak_running"),
            **_each(NUMBER, "mean_decode_batch", "peak_decode_batch", "mean_waiting"),
            **_each(NUMBER, "peak_waiting"),
        },
        "padding": _each(NUMBER, "prompt_tokens", "slots"),
        "utilisation": _each(NUMBER, "busy", "mfu", "mbu"),
        "bound_by": {"*": NUMBER},
        "time_by_operator": {"*": NUMBER},
        "operators": {"*": {"*": NUMBER}},
        "cost": {"usd*": NUMBER},
        "energy": {
            **_each(NUMBER, "joules_per_output_token", "joules_per_request", "kwh", "idle_share"),
            **_each(NUMBER, "mean_watts_per_gpu", "peak_watts_per_gpu", "co2e_grams", "usd"),
            **_each(NUMBER, "error", "less", "more"),
            "note": TEXT,
        },
        "error_band": {
            **_each(NUMBER, "throughput", "ttft", "tpot", "half", "measured", "slower"),
            "parts": {"*": NUMBER},
            "text": TEXT,
        },
        "bands": {
            "figures": {
                "*": {
                    **{name: [NUMBER] for name in ("band50", "band90", "ends")},
                    "parts": {"*": NUMBER},
                    "kind": TEXT,
                }
            },
            "place": {
                **_each(TEXT, "engine", "gpu", "model", "family"),
                "kernels": NUMBER,
                "own": FLAG,
            },
            **_each(TEXT, "origin", "text", "trust"),
        },
        "later": {
            **_MS,
            **_each(NUMBER, "requests", "after", "attainment"),
            **_each(TEXT, "state", "slo_state", "text"),
        },
        "precision": {"*_ms": {"*": NUMBER}, **_each(NUMBER, "requests_needed"), "text": TEXT},
        "repetitions": {
            **_each(NUMBER, "count", "confidence"),
            "seeds": [NUMBER],
            "intervals": {"*": {"*": NUMBER}},
        },
    },
}
"""The shape of a summary."""

TOP = (
    *(name for name, shape in SUMMARY.items() if shape == NUMBER and "*" not in name),
    *(
        f"{statistic}_{latency}_ms"
        for statistic in ("mean", "median", "std", "p50", "p90", "p95", "p99")
        for latency in ("ttft", "tpot", "itl", "e2el")
    ),
)
THERE = (("infersim",), ("infersim", "verdict"), ("infersim", "verdict", "limits"))
"""Entries at the top of every summary, and mappings below, which even a version that knows fewer
entries writes."""

CHARTS: Mapping[str, Shape] = {
    "itl": {"ms": [NUMBER], "share": [NUMBER]},
    "roofline": {
        **_each(NUMBER, "peak_flops", "bandwidth"),
        "precision": TEXT,
        "points": [{"*": NUMBER, "kind": TEXT}],
    },
    "power": {"edges": [NUMBER], "watts": [NUMBER]},
    "fleet": {
        "edges": [NUMBER],
        "pools": [{"name": TEXT, "held": [NUMBER], "running": [NUMBER], "waiting": [NUMBER]}],
        "handed": [NUMBER],
    },
}
"""The shape of ``charts.json``."""


class StoredColumn(NamedTuple):
    """The content of a table's column: numbers from ``least`` on, ``whole`` ones or any; ``known``
    where none may be missing. Without a ``least`` it is no column of numbers but of ``kind``."""

    kind: str
    least: float = -LARGEST
    most: float = LARGEST
    whole: bool = False
    known: bool = False

    def allowed(self) -> str:
        """In words."""
        if self.kind != NUMBER:
            return self.kind
        number = "whole numbers" if self.whole else "finite numbers"
        least = f" from {self.least:g} on" if self.least >= -1 else ""
        return f"{number}{least}{'' if self.known else ', or nothing'}"


LATEST = 1e10
"""Seconds after the start of a run beyond which nothing happens: no trace may last longer."""

_TIME, _COUNT = StoredColumn(NUMBER, -LATEST, LATEST), StoredColumn(NUMBER, 0, 2**53, whole=True)
_SURE = _COUNT._replace(known=True)
_REPLICA = _SURE._replace(least=-1)
COLUMNS: Mapping[str, StoredColumn] = {
    "request_id": _SURE,
    "replica": _REPLICA,
    "arrival_s": _TIME._replace(known=True),
    **dict.fromkeys(("prompt_tokens", "output_tokens", "generated_tokens", "adapter"), _SURE),
    **dict.fromkeys(("status", "reason", "class"), StoredColumn(TEXT)),
    **dict.fromkeys(("warmup", "slo_met"), StoredColumn(FLAG)),
    **dict.fromkeys(("start_s", "end_s"), _TIME._replace(known=True)),
    "iterations": StoredColumn(NUMBER, 1, LONGEST, whole=True, known=True),
    **dict.fromkeys(("decode_seqs", "decode_context", "prefill_seqs", "prefill_tokens"), _COUNT),
    **dict.fromkeys((DECODED, TAKEN, PER_SEQUENCE), _COUNT),
    **dict.fromkeys(("running", "waiting", "preemptions"), _COUNT),
    **dict.fromkeys(
        ("kv_used_tokens", "kv_reserved_tokens", "kv_reserved_end_tokens"), StoredColumn(NUMBER)
    ),
    **dict.fromkeys(("kv_shared_tokens", "kv_idle_tokens"), _COUNT),
    **dict.fromkeys(("adapters", "adapter_loads"), _COUNT),
    **dict.fromkeys(("plan", "tokens", "context"), _SURE),
    "time_s": _TIME._replace(known=True),
    "out": StoredColumn(FLAG),
}
"""Columns of all tables of a run; others whose names end in ``_s`` are times."""


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file."""
    found = read_json(path)
    if not isinstance(found, dict):
        raise UsageError(f"{path}: expected a JSON object, found {_told(found)}")
    check_finite(str(path), found)
    return found


def read_summary(path: Path) -> dict[str, Any]:
    """A ``summary.json``."""
    found = read_object(path)
    check_summary(str(path), found)
    return found


def check_summary(where: str, summary: Mapping[str, Any]) -> None:
    """Raise UsageError, beginning with ``where``, unless ``summary`` is one."""
    for keys in THERE:
        inner: Any = summary
        for key in keys:
            inner = inner.get(key) if isinstance(inner, Mapping) else None
        if not isinstance(inner, Mapping):
            raise UsageError(f"{where}: {'.'.join(keys)}: expected a mapping, found {_told(inner)}")
    for name in TOP:
        if name not in summary:
            raise UsageError(f"{where}: {name} is missing")
    check(where, summary, SUMMARY)


def check_finite(where: str, value: object, entry: str = "") -> None:
    """Raise UsageError if some number in a JSON document is none, or so large that it is infinite:
    it could not be written again."""
    if isinstance(value, float) and not math.isfinite(value):
        raise UsageError(f"{where}: {shorten(entry)}: expected {NUMBER}, found {value}")
    if isinstance(value, Mapping):
        for key, inner in value.items():
            check_finite(where, inner, f"{entry}.{key}" if entry else str(key))
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            check_finite(where, inner, f"{entry}[{number}]")


def check(where: str, value: object, shape: Shape, entry: str = "") -> None:
    """Raise UsageError unless ``value``, the ``entry`` of ``where``, has that shape."""
    if value is None:
        return
    problem = None
    if isinstance(shape, str):
        if not _is(value, shape):
            problem = shape
    elif isinstance(shape, Mapping):
        if isinstance(value, Mapping):
            for key, inner in value.items():
                wanted = _shape_of(str(key), shape)
                if wanted is not None:
                    check(where, inner, wanted, f"{entry}.{key}" if entry else str(key))
        else:
            problem = "a mapping"
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            check(where, inner, shape[0], f"{entry}[{number}]")
    else:
        problem = "a list"
    if problem is not None:
        at = f"{shorten(entry)}: " if entry else ""
        raise UsageError(f"{where}: {at}expected {problem}, found {_told(value)}")


def _shape_of(key: str, shapes: Mapping[str, Shape]) -> Shape | None:
    """The shape of a key's value, None where it is not known."""
    if key in shapes:
        return shapes[key]
    return next((shapes[name] for name in shapes if "*" in name and fnmatchcase(key, name)), None)


def _is(value: object, kind: str) -> bool:
    if kind == TEXT:
        return isinstance(value, str)
    if kind == FLAG:
        return isinstance(value, bool)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and -LARGEST < value < LARGEST  # type: ignore[operator]  # NaN is not


def read_table(path: Path, needed: Sequence[str], *, one_a_request: bool = True) -> pd.DataFrame:
    """The table in a Parquet file that has the columns ``needed``, and with ids of requests
    ``one_a_request``, or any number of rows."""
    import pandas as pd  # noqa: PLC0415 - takes longer to import than many runs take

    try:
        with path.open("rb") as file:  # whose name may be no Unicode, which Arrow's own must
            frame = pd.read_parquet(file)
    except OSError as error:
        reason = error.strerror or "damaged, or no Parquet"
        raise UsageError(f"{path}: cannot be read as a Parquet table ({reason})") from None
    except Exception:  # the reader raises whatever the damage leads it to
        raise UsageError(f"{path}: cannot be read as a Parquet table (damaged)") from None
    lacking = [name for name in needed if name not in frame.columns]
    if lacking:
        raise UsageError(f"{path}: has no column {', '.join(lacking)}")
    for name in frame.columns:
        known = COLUMNS.get(name) or (_TIME if str(name).endswith("_s") else None)
        if known is not None:
            frame[name] = _checked(path, frame[name], known)
    ids = frame["request_id"] if one_a_request and "request_id" in frame.columns else None
    if ids is not None and not ids.is_unique:
        raise UsageError(f"{path}: request_id: a number is there twice; expected one row a request")
    return frame


def _checked(path: Path, column: pd.Series[Any], known: StoredColumn) -> pd.Series[Any]:
    """The column itself, or as numbers where it holds nothing at all."""
    from pandas.api import types  # noqa: PLC0415

    empty = bool(column.isna().all())
    wrong: Any = None
    if known.kind == NUMBER:
        if empty and not types.is_numeric_dtype(column):
            column = column.astype(float)
        if types.is_bool_dtype(column) or not types.is_numeric_dtype(column):
            wrong = np.ones(len(column), dtype=bool)
        elif not types.is_complex_dtype(column):
            values = column.to_numpy(dtype=float, na_value=math.nan)
            wrong = _wrong_numbers(values, known)
    elif known.kind == FLAG:
        wrong = np.full(len(column), not types.is_bool_dtype(column))
    else:
        missing = column.isna().to_numpy(dtype=bool)
        wrong = ~missing & np.array([not isinstance(cell, str) for cell in column], dtype=bool)
    if wrong.any():
        row = int(np.argmax(wrong))
        found = _told(column.iloc[row])
        raise UsageError(
            f"{path}: {column.name}: expected {known.allowed()}, found {found} in row {row + 1}"
        )
    return column


def _wrong_numbers(values: np.ndarray[Any, np.dtype[np.float64]], known: StoredColumn) -> Any:
    missing = np.isnan(values)
    with np.errstate(invalid="ignore"):
        wrong = ~missing & ~((values >= known.least) & (values <= known.most))
        if known.whole:
            wrong |= ~missing & (values != np.trunc(values))
    return wrong | missing if known.known else wrong


def _told(value: object) -> str:
    """The value found, in a few words."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple | np.ndarray):
        return "a list"
    if isinstance(value, bool):
        return str(value).lower()
    return shorten(repr(value.item() if isinstance(value, np.generic) else value))
