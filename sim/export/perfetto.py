"""Writes a run as a trace for a viewer (ui.perfetto.dev, chrome://tracing).

Chrome's trace event format: a JSON object whose ``traceEvents`` have times in microseconds (here
with three decimals, so that they are whole nanoseconds). A replica is a process; its threads are
its iterations, the slots of its batch and, below them, the waiting requests. A request is a slice
("request 17") with what it does inside: queue, prefill (one slice per chunk), decode, stalled,
preempted. Arrows (flows) lead from where a request waits to its slot. Counters stand next to them.
Where pools prefill and decode apart, the arrows lead from the replica that prefills to the one that
decodes, where a request waits from when its prompt is complete, with the transfer of its KV inside.
Names come first, then everything by time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from sim.export.phases import PREFILLS, phases, pool_names
from sim.export.source import ExportSource, ExportWindow, columns
from sim.growth.leaps import Leaps
from sim.trails.courses import Courses
from sim.trails.iterations import Iterations
from sim.trails.slots import Placement, Stay, overlapping, placement

Event = dict[str, Any]

MOST_ROWS = 40_000
"""Requests and plans in a window that the user did not choose; each makes about seven events of 110
bytes."""

SHORTEST = 1e-3
"""Share of a run below which a window is not cut further, however many requests wait in it."""

ENGINE, SLOT, LANE = 1, 2, 1_000_000
"""Threads of a process: its iterations, its first slot, and its first lane of waiting requests."""


class ShownTrack(NamedTuple):
    """The content of a trace: ``window`` of a run that lasts until ``end``, ``requests`` and
    ``plans`` that touch it, and of how many requests it is not known when they were preempted."""

    window: ExportWindow
    end: float
    requests: int
    plans: int
    vague: int


def document(
    source: ExportSource, window: ExportWindow | None = None
) -> tuple[dict[str, Any], ShownTrack]:
    """The trace of whatever touches ``window``, and what it shows.

    Without a window it is the whole run, or as much around the middle of it as a viewer can take.
    """
    chosen = window or _fitting(source)
    events: list[Event] = []
    requests = plans = vague = 0
    stays: dict[int, list[tuple[Stay, int, int]]] = {}
    for drawn in _drawn(source, chosen):
        events += drawn.events()
        requests += len({stay.row for stay in drawn.stays})
        plans += len(drawn.rows)
        vague += drawn.placement.vague
        for stay in drawn.stays:
            number = int(drawn.requests["request_id"][stay.row])
            stays.setdefault(number, []).append((stay, drawn.pid, drawn.thread(stay)))
    events += _flows(stays)
    trace = {
        "traceEvents": sorted(events, key=_order),
        "displayTimeUnit": "ms",
        "otherData": {
            "run": source.name,
            "source": "observed" if source.observed else "simulated",
            "infersim": str(source.summary["infersim"]["version"]),
            "window_start_s": chosen.start,
            "window_end_s": chosen.end,
        },
    }
    return trace, ShownTrack(chosen, source.end, requests, plans, vague)


def _drawn(source: ExportSource, window: ExportWindow) -> Iterator[_Replica]:
    """Every replica, each with the requests that it served, or a phase of them."""
    names, apart = pool_names(source), phases(source)
    if apart is None:
        courses = source.courses
        for replica in _replicas(source):
            yield _Replica(source, replica, window, courses, names)
        return
    handed = columns(apart.handed)
    begun = np.maximum(handed["sent_s"], handed["prefilled_s"]).tolist()
    spans = zip(begun, handed["arrived_s"].tolist(), strict=True)
    sent = dict(zip(handed["request_id"].tolist(), spans, strict=True))
    first, second = apart.prefill.courses, apart.decode.courses
    for replica in _replicas(source):
        if names.get(replica, "").endswith(PREFILLS):
            yield _Replica(apart.prefill, replica, window, first, names)
        else:
            yield _Replica(apart.decode, replica, window, second, names, sent)


def _flows(stays: Mapping[int, list[tuple[Stay, int, int]]]) -> Iterator[Event]:
    """From stay to stay of each request that moved (with process and thread): start, steps,
    finish."""
    for number, found in stays.items():
        found.sort(key=lambda item: item[0].start)
        last = len(found) - 1
        for step, (stay, pid, thread) in enumerate(found if last else ()):
            event = {
                "ph": "s" if step == 0 else "f" if step == last else "t",
                "name": "moves",
                "cat": "request",
                "id": number,
                "ts": _nanoseconds(stay.start) / 1e3,
                "pid": pid,
                "tid": thread,
            }
            yield event | ({"bp": "e"} if step == last else {})


def _replicas(source: ExportSource) -> list[int]:
    """Every replica that did something; -1 stands for one that is not known, or none."""
    frames = (source.timeseries["replica"], source.requests["replica"])
    return sorted({int(replica) for frame in frames for replica in frame.unique()})


def _fitting(source: ExportSource) -> ExportWindow:
    """The whole run, halved around its middle until a viewer can take it."""
    middle, half = source.end / 2, source.end / 2
    requests, plans = source.requests, source.timeseries
    window = ExportWindow(0.0, source.end)
    while half > SHORTEST * source.end:
        alive = (requests["arrival_s"] <= window.end) & ~(requests["finish_s"] < window.start)
        run = (plans["start_s"] <= window.end) & (plans["end_s"] >= window.start)
        if int(alive.sum()) + int(run.sum()) <= MOST_ROWS:
            break
        half /= 2
        window = ExportWindow(middle - half, middle + half)
    return window


class _Replica:
    """The part of a trace that is one replica."""

    def __init__(
        self,
        source: ExportSource,
        replica: int,
        window: ExportWindow,
        courses: Courses | None,
        names: Mapping[int, str],
        sent: Mapping[int, tuple[float, float]] | None = None,
    ) -> None:
        """``names`` are the pools of replicas; ``sent`` says when the KV of a request began to come
        here, and when it had arrived."""
        self.pid = replica + 1
        self.name = f"replica {replica}" if replica >= 0 else "replica not known"
        if replica in names:
            self.name += f" ({names[replica]})"
        self.sent = sent or {}
        self.window = window
        self.requests, plans = columns(source.requests), columns(source.timeseries)
        iterations = Iterations(plans, replica)
        rows = overlapping(self.requests, replica, *window)
        self.placement: Placement = placement(
            self.requests, iterations, rows.tolist(), source.end, courses=courses
        )
        self.stays = [
            stay
            for stay in self.placement.stays
            if stay.end >= window.start and stay.start <= window.end
        ]
        touching = (plans["start_s"] <= window.end) & (plans["end_s"] >= window.start)
        rows = np.flatnonzero((plans["replica"] == replica) & touching)
        self.rows = rows[np.argsort(plans["start_s"][rows], kind="stable")]
        self.plans = {name: column[self.rows].tolist() for name, column in plans.items()}
        self.decoded = Leaps.saved(plans).chosen(self.rows).tokens().tolist()

    def events(self) -> Iterator[Event]:
        """Names first, then slices and counters."""
        yield from self._names()
        yield from self._iterations()
        for stay in self.stays:
            yield from self._stay(stay)
        yield from self._counters()
        yield from self._waiting()

    def _names(self) -> Iterator[Event]:
        yield self._meta("process_name", {"name": self.name})
        yield self._meta("process_sort_index", {"sort_index": self.pid})
        threads = [(ENGINE, "iterations")] if self.rows.size else []
        threads += [(SLOT + slot, f"slot {slot + 1}") for slot in range(self.placement.slots)]
        threads += [(LANE + lane, f"waiting {lane + 1}") for lane in range(self.placement.lanes)]
        for thread, name in threads:
            yield self._meta("thread_name", {"name": name}, thread)
            yield self._meta("thread_sort_index", {"sort_index": thread}, thread)

    def _meta(self, name: str, args: dict[str, Any], thread: int = 0) -> Event:
        return {"ph": "M", "name": name, "pid": self.pid, "tid": thread, "args": args}

    def _slice(
        self, name: str, kind: str, span: tuple[float, float], thread: int, args: dict[str, Any]
    ) -> Event:
        start, end = _nanoseconds(span[0]), _nanoseconds(span[1])
        return {
            "ph": "X",
            "name": name,
            "cat": kind,
            "ts": start / 1e3,
            "dur": (end - start) / 1e3,
            "pid": self.pid,
            "tid": thread,
            "args": args,
        }

    def _iterations(self) -> Iterator[Event]:
        names = ("start_s", "end_s", "iterations", "decode_seqs", "prefill_seqs", "prefill_tokens")
        for start, end, times, decode, chunks, tokens in zip(
            *(self.plans[name] for name in names), strict=True
        ):
            prefills, decodes = _count(tokens), _count(decode)
            told = [f"prefill {prefills:,}"] if prefills else []
            told += [f"decode x{decodes:,}"] if decodes else []
            facts = {"iterations": times, "decode_seqs": decodes, "prefill_tokens": prefills}
            facts["prefill_seqs"] = _count(chunks)
            yield self._slice(
                " + ".join(told) or "iteration", "iteration", (start, end), ENGINE, facts
            )

    def _stay(self, stay: Stay) -> Iterator[Event]:
        thread = self.thread(stay)
        number = int(self.requests["request_id"][stay.row])
        names = ("prompt_tokens", "output_tokens", "preemptions")
        facts = {name: _count(self.requests[name][stay.row]) for name in names}
        span = (stay.start, stay.end)
        yield self._slice(f"request {number}", "request", span, thread, {"request": number} | facts)
        for part in stay.parts:
            args = {"request": number} | ({"tokens": part.tokens} if part.tokens else {})
            yield self._slice(part.phase, part.phase, (part.start, part.end), thread, args)
        start, end = self.sent.get(number, (math.nan, math.nan))
        if stay.parts[0].phase == "queue" and stay.start <= start and end <= stay.end:
            yield self._slice("transfer", "transfer", (start, end), thread, {"request": number})

    def thread(self, stay: Stay) -> int:
        return (SLOT if stay.in_slot else LANE) + stay.lane

    def _counters(self) -> Iterator[Event]:
        """The state of the replica in each plan, and zero where it idles until the next."""
        own = self.requests["replica"] == self.pid - 1
        plans, first = self.plans, np.sort(self.requests["first_token_s"][own])
        starts, ends = np.array(plans["start_s"]), np.array(plans["end_s"])
        firsts = np.searchsorted(first, ends, "right") - np.searchsorted(first, starts, "right")
        for row, (start, end) in enumerate(zip(plans["start_s"], plans["end_s"], strict=True)):
            seconds = end - start
            output = _count(self.decoded[row]) + int(firsts[row])
            prompt = _count(plans["prefill_tokens"][row])
            kv = {
                "used": plans["kv_used_tokens"][row],
                "reserved": plans["kv_reserved_tokens"][row],
            }
            yield self._counter("running", start, {"requests": _count(plans["running"][row])})
            yield self._counter("KV cache tokens", start, {k: _count(v) for k, v in kv.items()})
            if seconds > 0:
                speed = {"prompt": prompt / seconds, "output": output / seconds}
                yield self._counter("tokens per second", start, speed)
            if row + 1 == len(starts) or starts[row + 1] > end:
                yield self._counter("running", end, {"requests": 0})
                yield self._counter("tokens per second", end, {"prompt": 0, "output": 0})

    def _waiting(self) -> Iterator[Event]:
        """How many wait: at the start of the window, and whenever that changes in it."""
        start, end = self.window
        stays = [stay for stay in self.stays if not stay.in_slot]
        changes = [(max(stay.start, start), 1) for stay in stays]
        changes += [(stay.end, -1) for stay in stays if stay.end <= end]
        level = 0
        for time, change in sorted(changes):
            level += change
            yield self._counter("waiting", time, {"requests": level})

    def _counter(self, name: str, time: float, values: dict[str, float]) -> Event:
        at = _nanoseconds(time) / 1e3
        return {"ph": "C", "name": name, "ts": at, "pid": self.pid, "tid": 0, "args": values}


def _order(event: Event) -> float:
    """Names before everything else, which goes by time; what is at the same time stays in order."""
    return float(event.get("ts", -1.0))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _count(value: float) -> int:
    """A count as an integer, 0 where it is not known."""
    return 0 if value != value else int(value)  # noqa: PLR0124 - NaN
