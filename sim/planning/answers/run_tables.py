"""Builds the tables of a run that a terminal is shown, with the half-widths of 95 % intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sim.findings import Cell, Column, Lines, Part, Table
from sim.metrics.engine.prefix_words import shares_nothing
from sim.metrics.own import PREFIX
from sim.metrics.terms.definitions import METRIC, METRICS
from sim.metrics.terms.metric import Metric
from sim.planning.answers.cells import framed, text, toned
from sim.schedulers import RequestLevel, Static
from sim.units import counted, milliseconds, number, show_share, show_time, show_utilisation


class Spread:
    """The half-widths of a run's 95 % intervals as text; empty texts for a run without."""

    def __init__(self, summary: Mapping[str, Any]) -> None:
        repetitions = summary["infersim"]["repetitions"]
        self.known = repetitions is not None
        self._intervals = repetitions["intervals"] if self.known else {}
        self.legend = ""
        if self.known:
            self.legend = (
                f"Means of {repetitions['count']:,} runs under different seeds, ± 95 % confidence: "
                "the chance in the traffic, not the error of predicted times, which all runs share."
                if repetitions["count"] > 1
                else "Of one repetition alone: there is no interval without a second one."
            )

    def half_width(self, key: str) -> float | None:
        """The half width of one headline figure, in its unit."""
        return self._intervals[key]["half_width"] if key in self._intervals else None

    def of(self, key: str) -> str:
        """`` ± 14``, to stand behind a number."""
        half = self.half_width(key)
        return f" ± {two_digits(half)}" if half else ""

    def of_share(self, key: str) -> str:
        """`` ± 1.4%``, to stand behind a share."""
        half = self.half_width(key)
        return f" ± {two_digits(100 * half)}%" if half else ""

    def of_latency(self, key: str, value: float | None) -> str:
        """``14 ms``: the half-width of a latency, in the unit in which its ``value`` is shown."""
        half = self.half_width(key)
        if value is None or half is None:
            return ""
        unit = milliseconds(value).split()[-1]
        factors = {"us": 1e3, "ms": 1.0, "s": 1e-3}
        return (
            f"{two_digits(half * factors[unit])} {unit}" if unit in factors else milliseconds(half)
        )


MOST_REPLICAS = 8
"""Replicas that a terminal is shown."""


def two_digits(value: float) -> str:
    """A half-width: no more digits than mean something, and no exponent.

    >>> two_digits(1234.5), two_digits(13.37), two_digits(0.01234), two_digits(0)
    ('1,234', '13', '0.012', '0')
    """
    decimals = 0 if value == 0 or value >= 10 else 1 - math.floor(math.log10(value))
    return f"{value:,.{decimals}f}"


RANKS = ("mean", "p50", "p90", "p95", "p99")

LATENCIES: Mapping[str, str] = {
    "ttft": "TTFT  time to first token",
    "tpot": "TPOT  time per output token",
    "itl": "ITL   inter-token latency",
    "e2el": "E2EL  end-to-end latency",
}

OF_PARTS = [f"{rank}_{name}_ms" for name in ("ttft", "tpot") for rank in ("p50", "p99")]
"""The latencies of a class, or of the turns of conversations."""

MOST_CLASSES = 12
"""Classes of traffic that a terminal is shown."""

Row = tuple[str, str]


def latencies(summary: Mapping[str, Any], spread: Spread) -> Table:
    """The latencies at each rank, and the time in the queue, with their intervals below."""
    queue = summary["infersim"]["queue_ms"]
    listed = {
        label: {f"{rank}_{name}_ms": summary[f"{rank}_{name}_ms"] for rank in RANKS}
        for name, label in LATENCIES.items()
    }
    listed["      of it in the queue"] = {f"queue_ms.{rank}": queue[rank] for rank in RANKS}
    rows = []
    for label, found in listed.items():
        tone = "none" if label.startswith(" ") else ""
        rows.append(toned((label, *map(milliseconds, found.values())), tone))
        halves = [spread.of_latency(key, value) for key, value in found.items()]
        if any(halves):
            rows.append(toned(("      ±", *halves), "none"))
    return framed("Latency", ("", *RANKS), rows)


def classes(found: Sequence[Mapping[str, Any]]) -> Table:
    """How each class was served; of many, the first."""
    rows = [
        (
            entry["name"],
            f"{entry['completed']:,}",
            *(milliseconds(entry[key]) for key in OF_PARTS),
            share(entry["attainment"]),
        )
        for entry in found[:MOST_CLASSES]
    ]
    left = len(found) - MOST_CLASSES
    note = f"{left:,} more in summary.json" if left > 0 else ""
    heads = ("", "served", *(METRIC[key].title for key in OF_PARTS), "in time")
    return framed("Classes", heads, rows, room=1, note=note)


def sessions(found: Mapping[str, Any]) -> Iterator[Part]:
    """What first and later turns of conversations saw, and what became of the conversations."""
    rows = []
    for part, label in (("first_turns", "first turns"), ("later_turns", "later turns")):
        entry = found[part]
        prompt = entry["mean_prompt_tokens"]
        mean = "-" if prompt is None else f"{prompt:,.0f}"
        seen = (milliseconds(entry[key]) for key in OF_PARTS)
        rows.append((label, f"{entry['requests']:,}", mean, *seen))
    heads = ("", "requests", "prompt (mean)", *(METRIC[key].title for key in OF_PARTS))
    yield framed("Sessions", heads, rows, room=1)
    told = (sessions_text(found), turns_text(found))
    yield Lines(tuple(each for each in told if each))


def turns_text(sessions: Mapping[str, Any]) -> str:
    """The median TTFT of the first turn and of those at powers of two; empty where no turn has one.

    >>> turns_text({"p50_ttft_ms_by_turn": [86.4, 120.0, 131.0, 150.2, 163.0]})
    'TTFT p50 of turn 1 86.4 ms, 2 120 ms, 4 150 ms'
    """
    medians = sessions.get("p50_ttft_ms_by_turn", ())
    shown = [(turn, medians[turn - 1]) for turn in POWERS if turn <= len(medians)]
    told = ", ".join(f"{turn} {milliseconds(value)}" for turn, value in shown)
    return f"TTFT p50 of turn {told}" if told else ""


POWERS = (1, 2, 4, 8, 16, 32, 64)
"""Turns whose latencies are shown."""


def sessions_text(sessions: Mapping[str, Any]) -> str:
    """The fate of a run's sessions, and how long they last, in sentences.

    >>> sessions_text({"started": 1200, "finished": 900, "outgrown": 3, "refused": 0,
    ...     "duration_s": {"mean": 40.0, "p90": 95.0}, "expected_duration_s": 62.0,
    ...     "requests": 4.214})  # doctest: +NORMALIZE_WHITESPACE
    '1,200 sessions of 4.21 requests on average: 900 finished, 3 outgrew max_model_len. Those that
     ended took 40 s on average (p90 95 s); with those under way, a session takes 62 s.'
    """
    many, count = sessions["requests"], sessions["started"]
    told = [f"{sessions['finished']:,} finished"]
    for key, words in (
        ("outgrown", "outgrew max_model_len"),
        ("refused", "were refused a request"),
        ("given_up", "were given up"),
    ):
        if sessions.get(key):
            told.append(f"{sessions[key]:,} {words}")
    size = "" if many is None else f" of {many:.3g} requests on average"
    text = f"{count:,} session{'s' * (count != 1)}{size}: {', '.join(told)}."
    lasted, expected = sessions["duration_s"], sessions.get("expected_duration_s")
    if lasted["mean"] is not None:
        text += f" Those that ended took {show_time(lasted['mean'])} on average"
        text += f" (p90 {show_time(lasted['p90'])})"
        if expected is not None:
            text += f"; with those under way, a session takes {show_time(expected)}"
        return f"{text}."
    return text if expected is None else f"{text} A session takes {show_time(expected)} on average."


def pools(found: Sequence[Mapping[str, Any]]) -> Table:
    """A row for each pool: its replicas, the share of requests that ended there, output tokens,
    load of its own capacity, busy time, KV memory, median TPOT, and dollars an hour."""
    rows = []
    for pool in found:
        load, price = pool["utilisation"], pool["usd_per_gpu_hour"]
        role = "" if pool["role"] == "both" else f", {pool['role']}"
        rows.append(
            (
                f"{pool['name']}: {pool['replicas']} x {pool['gpu']}{role}",
                show_share(pool["share"]),
                number(pool["output_throughput"]),
                "-" if load is None else show_utilisation(load),
                show_share(pool["busy"]),
                f"{show_share(pool['kv_mean_used'])} ({show_share(pool['kv_peak_used'])})",
                milliseconds(pool["p50_tpot_ms"]),
                "-" if price is None else f"{price * pool['gpus']:,.2f}",
            )
        )
    heads = ("", "served", "tok/s", "load", "busy", "KV (peak)", "TPOT", "USD/h")
    return framed("Pools", heads, rows, room=1, whole=True)


def replicas(own: Mapping[str, Any]) -> Iterator[Table]:
    """The requests and tokens that each replica was sent, and the share of its own capacity that
    they take, the fullest first; nothing where the router deals evenly."""
    one, dealt = own["verdict"].get("busiest_replica"), own.get("routing")
    if one is None or dealt is None or "replicas" not in one:  # which older runs lack
        return
    sent = {entry["replica"]: entry for entry in dealt["replicas"]}
    found = sorted(one["replicas"], key=lambda each: -each["utilisation"])
    rows = [
        (
            str(each["replica"]),
            f"{sent[each['replica']]['requests']:,}",
            f"{sent[each['replica']]['tokens']:,}",
            show_utilisation(each["utilisation"]),
        )
        for each in found[:MOST_REPLICAS]
    ]
    left = len(found) - len(rows)
    note = f"{left:,} more in summary.json" if left else ""
    heads = ("replica", "requests", "tokens", "of its capacity")
    yield framed("Replicas, counted from 0", heads, rows, note=note)


def own_metrics(metrics: Mapping[str, float | None], spread: Spread) -> Table:
    """The user's own metrics."""
    columns = Column("", False, prose=True, fold=3), Column("", prose=True, fold=2)
    rows = [
        (text(name), text(number(value) + spread.of(PREFIX + name)))
        for name, value in metrics.items()
    ]
    return Table("own", "Metrics of your own", columns, tuple(rows), look="framed")


def facts(summary: Mapping[str, Any], spread: Spread, *, observed: bool) -> Table:
    """Everything else that is counted, in two columns of names and values."""
    rows = [*_served(summary, spread, observed=observed), *_engine(summary["infersim"], spread)]
    cells: list[Cell] = [text(each) for row in rows for each in row]
    cells += [text("")] * (len(cells) % 4)
    pair = (
        Column("", False, prose=True, fold=0 if spread.known else 3),
        Column("", prose=True, fold=2),
    )
    lines = tuple(tuple(cells[at : at + 4]) for at in range(0, len(cells), 4))
    return Table("facts", "", (*pair, *pair), lines, look="framed")


def _served(summary: Mapping[str, Any], spread: Spread, *, observed: bool) -> Iterator[Row]:
    """The requests and the throughput."""
    requests, half = summary["infersim"]["requests"], spread.half_width("duration")
    yield "completed", f"{counted(requests['completed'])}{spread.of('completed')}"
    yield "of requests", counted(requests["submitted"])
    yield "failed" if observed else "rejected", f"{requests['rejected']:,}"
    yield "unfinished", f"{requests['unfinished']:,}"
    for metric in METRICS:
        if metric.table == "throughput" and metric.kind == "number":
            yield _rate(metric), number(summary[metric.key]) + spread.of(metric.key)
    duration = summary["duration"]
    took = "-" if duration is None else show_time(duration)
    took += f" ± {show_time(half)}" if half else ""
    yield f"{'observed' if observed else 'simulated'} time", took


def _engine(own: Mapping[str, Any], spread: Spread) -> Iterator[Row]:
    """What the engine did, and how full it was."""
    batch, kv, use = own["batch"], own["kv_cache"], own["utilisation"]

    def shown(value: float | None, key: str) -> str:
        return share(value) + spread.of_share(key)

    mfu, mbu = (shown(use[key], f"utilisation.{key}") for key in ("mfu", "mbu"))
    each = "/rank" if "data_ranks" in own else "/replica" if own["replicas"] > 1 else ""
    running = _mean(batch["mean_running"]) + spread.of("batch.mean_running")
    used = shown(kv["mean_used"], "kv_cache.mean_used")
    yield "preemptions", _count(own["preemptions"]) + spread.of("preemptions")
    yield "iterations", _count(batch["iterations"])
    yield "mean iteration", milliseconds(batch["mean_iteration_ms"])
    yield f"running{each} (peak)", f"{running} ({_count(batch['peak_running'])})"
    waiting = f"{_mean(batch['mean_waiting'])} ({_count(batch['peak_waiting'])})"
    yield f"waiting{each} (peak)", waiting
    yield "KV used (peak)", f"{used} ({share(kv['peak_used'])})"
    yield "KV reserved, unused", share(kv["fragmentation"])
    yield "busy, any batch size", shown(use["busy"], "utilisation.busy")
    yield "MFU / MBU", f"{mfu} /\n{mbu}" if spread.known else f"{mfu} / {mbu}"
    decoding = batch["mean_decode_batch"]
    whole = any(name in own["batching"] for name in (Static.name, RequestLevel.name))
    if whole and decoding and decoding < (batch["mean_running"] or 0.0):
        yield "of running, decoding", _mean(decoding)
    if "padding" in own:
        found = own["padding"]
        yield (
            "padding, prompts / slots",
            f"{share(found['prompt_tokens'])} / {share(found['slots'])}",
        )
    if "prefix_cache" in own and not shares_nothing(own["prefix_cache"]):
        hits = own["prefix_cache"]["hit_rate"] or 0.0
        yield "prefix hits", shown(hits, "prefix_cache.hit_rate")
    if "routing" in own and own["routing"]["tokens_over_mean"] is not None:
        most = number(own["routing"]["tokens_over_mean"])
        yield "tokens, busiest/mean", most + spread.of("routing.tokens_over_mean")
    tier = own.get("host_tier")
    if tier is not None:
        if tier["hit_rate"] is not None:
            yield "of them from the host", shown(tier["hit_rate"], "host_tier.hit_rate")
        moved = f"{number(tier['to_host_gb'])} / {number(tier['from_host_gb'])} GB"
        yield "to / from the host", moved
        yield "host link out / in", f"{share(tier['link_out'])} / {share(tier['link_in'])}"
        yield "swaps", _count(tier["swaps"]) + spread.of("host_tier.swaps")
    if "speculation" in own:
        yield from _drafts(own["speculation"], spread)


def _drafts(drafts: Mapping[str, Any], spread: Spread) -> Iterator[Row]:
    length = number(drafts["acceptance_length"] or 0.0)
    yield "acceptance length", length + spread.of("speculation.acceptance_length")
    yield "drafts right", share(drafts["acceptance_rate"] or 0.0)
    by_drafts = drafts.get("by_drafts", ())
    whole = max(1, sum(each["iterations"] for each in by_drafts))
    for each in by_drafts:
        yield f"iterations of {each['drafts']} drafts", share(each["iterations"] / whole)


def _rate(metric: Metric) -> str:
    """The name of a throughput with its unit."""
    return metric.called if metric.called.endswith("/s") else f"{metric.called}, {metric.unit}"


def share(value: float | None) -> str:
    """A share as a percentage that neither rounds up to all nor down to nothing."""
    if value is None:
        return "-"
    if 0.99 < value < 1 or 0 < value < 0.01:
        return f"{math.floor(value * 1e4) / 1e4:.2%}"
    return f"{value:.0%}"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
