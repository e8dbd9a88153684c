"""Describes a trace, and makes a smaller or plainer one of it.

Times in seconds, lengths in tokens. Traces are written in the plain format: a CSV file with
columns arrival_s, prompt_tokens, output_tokens, and priority, session and cancelled_after_s where
it has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.errors import UsageError, did_you_mean
from sim.rng import stream
from sim.units import show_time
from sim.workload.traces import Trace, TraceColumns, find_format, read_trace
from sim.workload.traces.named import PER_SECOND
from sim.workload.traces.plain import CANCELLED
from sim.workload.traces.prefixes import reuse_share
from sim.workload.traces.texts import hit_shares

MINUTE = 60.0
WIDTH = 88

_RANKS = (50, 90, 99)
_SHORTEST = 1e-9  # seconds; no rate comes of requests that are closer together
_ROWS = 8192


def describe(
    path: Path, trace_format: str = "auto", columns: TraceColumns | None = None
) -> dict[str, Any]:
    """The figures of a trace, ready for JSON; None where one is undefined.

    ``rate_per_s`` is one over the mean gap, ``gap_cv`` the standard deviation of the gaps over
    their mean, ``burst_factor`` the rate of the busiest 60 s (wherever they begin) over the mean
    rate, for traces that last as long, ``length_correlation`` Pearson's, of prompt and output.
    ``tick_s`` is the median time between distinct arrivals, where most requests share theirs with
    another: the clock that recorded them was coarse. ``prefix_reuse`` is the share of prompt tokens
    that repeat the beginning of an earlier prompt, None where the file names no blocks;
    ``prefix_hits`` the share of all blocks that a cache of that many blocks ("all": one that never
    fills) would have at hand, blocks of ``prefix_block_tokens``; ``sessions`` the column that names
    conversations, ``session_count`` how many it names, ``requests_per_session`` how long they are.
    ``skipped`` counts rows by the reason.
    TraceError and UsageError as for ``read_trace``.
    """
    name = find_format(path, trace_format, columns).name
    trace = read_trace(path, name, columns=columns)
    arrivals = trace.arrivals
    gaps, duration = np.diff(arrivals), float(arrivals[-1])
    rate = (len(trace) - 1) / duration if duration > _SHORTEST else None
    busiest = _busiest_minute(arrivals) if rate is not None and duration >= MINUTE else None
    talks = _talks(trace)
    return {
        "file": str(path),
        "format": name,
        "requests": len(trace),
        "duration_s": duration,
        "rate_per_s": rate,
        "gap_cv": float(gaps.std() / gaps.mean()) if rate is not None else None,
        "busiest_minute_rate_per_s": busiest,
        "burst_factor": busiest / rate if busiest is not None and rate is not None else None,
        "tick_s": _tick(arrivals),
        "prompt_tokens": _statistics(trace.prompt_tokens),
        "output_tokens": _statistics(trace.output_tokens),
        "length_correlation": _correlation(trace),
        "prefix_reuse": reuse_share(trace),
        "prefix_block_tokens": None if trace.blocks is None else trace.blocks.tokens,
        "prefix_hits": _hits(trace),
        "sessions": trace.sessions,
        "session_count": None if talks is None else len(talks),
        "requests_per_session": None if talks is None else _statistics(talks),
        "skipped": trace.skipped,
    }


def columns_of(text: str | None) -> TraceColumns | None:
    """The columns that a text such as ``arrival=ts,arrival_unit=ms,...`` names; None for no text.
    UsageError for one that it may not name, or lacks.

    >>> columns_of("arrival=ts,prompt_tokens=in,output_tokens=out").arrival
    'ts'
    """
    if text is None:
        return None
    given = dict(part.partition("=")[::2] for part in text.split(",") if part)
    known, needed = TraceColumns._fields, TraceColumns._fields[:3]
    for key, value in given.items():
        if key not in known or not value:
            raise UsageError(
                f"--columns {text}: {key!r} is none{did_you_mean(key, known)}; allowed: NAME=COLUMN"
                f" of {', '.join(known)}"
            )
    if lacking := [key for key in needed if key not in given]:
        raise UsageError(f"--columns {text}: lacks {', '.join(lacking)}")
    found = TraceColumns(**given)
    if found.arrival_unit not in PER_SECOND:
        raise UsageError(
            f"--columns {text}: arrival_unit is {found.arrival_unit!r}; allowed: "
            f"{', '.join(PER_SECOND)}"
        )
    return found


def to_text(figures: dict[str, Any]) -> str:
    """The result of ``describe``, for a terminal of ``WIDTH`` columns."""
    return "\n".join(_lines(figures))


def sample_window(trace: Trace, requests: int, seed: int) -> Trace:
    """``requests`` consecutive requests of a trace, the first of them at 0.

    Every window is equally likely; UsageError if the trace is shorter.
    """
    if requests > len(trace):
        raise UsageError(
            f"--requests {requests:,} is more than the {len(trace):,} that the trace has"
        )
    start = int(stream(seed, "sample").integers(len(trace) - requests, endpoint=True))
    return _from_zero(trace.taken(np.arange(start, start + requests)))


def sample_thinned(trace: Trace, share: float, seed: int) -> Trace:
    """Each request of a trace with probability ``share``, the first of them at 0.

    So the rate falls to that share while daily and hourly patterns stay; a larger share keeps what
    a smaller one keeps. UsageError for a share outside (0, 1], or if no request is kept.
    """
    if not 0 < share <= 1:
        raise UsageError(f"--thin is a share above 0 and up to 1, got {share:g}")
    kept = stream(seed, "sample").random(len(trace)) < share
    if not kept.any():
        raise UsageError(
            f"--thin {share:g} keeps none of {len(trace):,} requests; raise it, or change --seed"
        )
    return _from_zero(trace.taken(kept))


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace as plain CSV; read again it has the same times to the last bit.

    A file of that name is replaced, once the new one is complete; ``check_free`` says whether it
    may be. UsageError if ``path`` cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        file = part.open("x", encoding="ascii", newline="")
    except OSError as error:
        raise UsageError(f"{part}: cannot be written: {error.strerror or error}") from None
    try:
        with file:
            priority = "" if trace.priorities is None else ",priority"
            session = "" if trace.session_ids is None else ",session"
            patience = "" if trace.patience is None else f",{CANCELLED}"
            file.write(f"arrival_s,prompt_tokens,output_tokens{priority}{session}{patience}\n")
            file.writelines(_csv_lines(trace))
        part.replace(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def check_free(path: Path, source: Path, *, force: bool) -> None:
    """Whether a trace made of ``source`` may be written to ``path``; UsageError if not.

    Only with ``force`` may a file be there already, and never the source.
    """
    try:
        _check_free(path, source, force=force)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None


def _check_free(path: Path, source: Path, *, force: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: a directory; name the file to write")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: no such folder: {path.absolute().parent}")
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(f"{path}: not a regular file")
    if source.exists() and path.samefile(source):
        raise UsageError(f"{path}: the trace that is read; write to another file")
    if not force:
        raise UsageError(f"{path}: exists already; --force overwrites it")


def skipped_text(skipped: dict[str, int]) -> str | None:
    """One line about rows that are no requests to replay; None if there are none.

    >>> skipped_text({"failed requests (no output tokens)": 12})
    'skipped 12 rows: failed requests (no output tokens)'
    """
    told = [
        f"{count:,} {'row' if count == 1 else 'rows'}: {reason}"
        for reason, count in skipped.items()
    ]
    return f"skipped {'; '.join(told)}" if told else None


def _csv_lines(trace: Trace) -> Iterator[str]:
    for start in range(0, len(trace), _ROWS):
        part = slice(start, start + _ROWS)
        columns: list[NDArray[Any]] = [trace.arrivals, trace.prompt_tokens, trace.output_tokens]
        if trace.priorities is not None:
            columns.append(trace.priorities)
        if trace.session_ids is not None:
            columns.append(trace.session_ids)
        shown = [map(repr, column[part].tolist()) for column in columns]
        if trace.patience is not None:
            shown.append(map(_patience, trace.patience[part].tolist()))
        yield from (f"{','.join(row)}\n" for row in zip(*shown, strict=True))


def _patience(seconds: float) -> str:
    """A client's patience in the plain format: empty where a client waited."""
    return "" if seconds == math.inf else repr(seconds)


def _from_zero(trace: Trace) -> Trace:
    return trace.moved(trace.arrivals - trace.arrivals[0])


def _busiest_minute(arrivals: NDArray[np.float64]) -> float:
    """The most requests of any 60 s, per second; such a minute begins at an arrival."""
    ends = np.searchsorted(arrivals, arrivals + MINUTE, side="left")
    return int((ends - np.arange(len(arrivals))).max()) / MINUTE


def _tick(arrivals: NDArray[np.float64]) -> float | None:
    distinct = np.unique(arrivals)
    if len(distinct) < 2 or 2 * len(distinct) > len(arrivals):
        return None
    return float(np.median(np.diff(distinct)))


def _hits(trace: Trace) -> dict[str, float] | None:
    if trace.blocks is None:
        return None
    shares = hit_shares(trace.blocks)
    return {"all" if blocks is None else str(blocks): share for blocks, share in shares.items()}


def _talks(trace: Trace) -> NDArray[np.int64] | None:
    """Requests of each conversation; None where the trace names none."""
    if trace.session_ids is None or not (trace.session_ids >= 0).any():
        return None
    return np.unique(trace.session_ids[trace.session_ids >= 0], return_counts=True)[1]


def _statistics(tokens: NDArray[np.int64]) -> dict[str, float]:
    ranks = np.percentile(tokens, _RANKS).tolist()
    named = {f"p{rank}": value for rank, value in zip(_RANKS, ranks, strict=True)}
    return {"mean": float(tokens.mean()), **named, "max": int(tokens.max())}


def _correlation(trace: Trace) -> float | None:
    prompts, outputs = trace.prompt_tokens, trace.output_tokens
    if np.ptp(prompts) == 0 or np.ptp(outputs) == 0:
        return None
    return float(np.corrcoef(prompts, outputs)[0, 1])


def _lines(figures: dict[str, Any]) -> Iterator[str]:
    name = Path(figures["file"]).name
    room = WIDTH - len(f"  ({figures['format']})")
    yield f"{name if len(name) <= room else f'{name[: room - 3]}...'}  ({figures['format']})"
    factor, busiest = figures["burst_factor"], figures["busiest_minute_rate_per_s"]
    facts = [
        ("requests", f"{figures['requests']:,}", ""),
        ("duration", show_time(figures["duration_s"]), "from the first arrival to the last"),
        ("rate", _figure(figures["rate_per_s"], "/s"), "one over the mean gap"),
        ("gap CV", _figure(figures["gap_cv"]), "1: as if independent; more: bursts"),
        ("burst factor", _figure(factor), f"busiest minute: {_figure(busiest, '/s')}"),
        ("correlation", _figure(figures["length_correlation"]), "of prompt and output tokens"),
    ]
    for label, value, meaning in facts:
        yield f"  {label:<16}{value:>12}   {meaning}".rstrip()
    columns = ("mean", *(f"p{rank}" for rank in _RANKS), "max")
    yield f"  {'tokens':<16}" + "".join(f"{column:>12}" for column in columns)
    for key, label in (("prompt_tokens", "prompt"), ("output_tokens", "output")):
        cells = (f"{figures[key][column]:,.0f}" for column in columns)
        yield f"  {label:<16}" + "".join(f"{cell:>12}" for cell in cells)
    if figures["tick_s"] is not None:
        yield f"  arrivals come in ticks of about {show_time(figures['tick_s'])}; trace.spread"
        yield "  moves each by a random share of one"
    yield from _prefix_lines(figures)
    skipped = skipped_text(figures["skipped"])
    if skipped is not None:
        yield f"  {skipped}"


def _prefix_lines(figures: dict[str, Any]) -> Iterator[str]:
    """The share of the prompts that a prefix cache would save."""
    share, sessions = figures["prefix_reuse"], figures["sessions"]
    if share is not None:
        meaning = "of prompt tokens repeat an earlier prompt's start"
        yield f"  {'prefix reuse':<16}{share:>12.1%}   {meaning}"
    elif sessions is not None:
        yield f"  conversations ({sessions}): which tokens their prompts share is not recorded"
    talks = figures["requests_per_session"]
    if talks is not None:
        told = f"of {talks['mean']:.3g} requests each, p90 {talks['p90']:.0f}, at most"
        yield f"  {'conversations':<16}{figures['session_count']:>12,}   {told} {talks['max']:,}"
    hits = figures["prefix_hits"]
    if share and hits:
        tokens = figures["prefix_block_tokens"]
        yield f"  what an LRU cache of so many blocks of {tokens} tokens would have at hand:"
        yield "  " + "".join(f"{_blocks(name):>9}" for name in hits)
        yield "  " + "".join(f"{each:>9.1%}" for each in hits.values())


def _blocks(name: str) -> str:
    return name if name == "all" else f"{int(name) // 1000}k"


def _figure(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}{unit}" if abs(value) >= 1000 else f"{value:.3g}{unit}"
