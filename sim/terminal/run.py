"""Renders a run in a terminal of 88 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sim.metrics.engine.prefix_words import shares_nothing
from sim.metrics.latency.timeline import Timeline
from sim.metrics.own import PREFIX
from sim.metrics.question.fleet_words import fleet_text
from sim.metrics.states import SloState, State
from sim.metrics.terms.definitions import METRICS, bound_name
from sim.metrics.terms.metric import Metric
from sim.metrics.words.slo_text import headroom_text, slo_text, usd_per_good_request
from sim.scenario.prices import dollars
from sim.terminal.console import SLO_STYLES, STATE_STYLES
from sim.terminal.pools import pool_lines
from sim.terminal.sessions import sessions_table
from sim.terminal.sparkline import Sparks
from sim.units import PER_OUTPUT_TOKENS, PER_TOKENS, number, show_cost, show_time

RANKS = ("mean", "p50", "p90", "p95", "p99")

MOST_CLASSES = 12
"""Classes of traffic that a terminal is shown."""


def run_view(summary: dict[str, Any], timeline: Timeline | None = None) -> Group:
    """The figures of one run, and what went on in it."""
    return Group(*_run_parts(summary, timeline))


def _run_parts(summary: dict[str, Any], timeline: Timeline | None) -> Iterator[RenderableType]:
    own = summary["infersim"]
    narrow = f" ({own['formats']})" if own.get("formats") else ""
    setup = f"{own['model']}{narrow} on {fleet_text(own)}, {own['engine']}, {own['batching']}"
    yield Text.assemble((own["scenario"], "bold"), f"  {setup}")
    yield from _verdict_lines(own, Spread(summary))
    yield from _capacity_lines(own["kv_cache"])
    spread = Spread(summary)
    if timeline is not None:
        yield Sparks(timeline, of_first=spread.known)
    yield _latency_table(summary, spread)
    if own["classes"]:
        yield _classes_table(own["classes"])
    if "sessions" in own:
        yield sessions_table(own["sessions"])
    yield _facts_table(summary, spread)
    yield from pool_lines(own)
    yield from _cost_lines(summary, spread)
    yield from _energy_lines(own["energy"], spread)
    if own.get("metrics"):
        yield _own_table(own["metrics"], spread)
    if spread.known:
        yield Text(spread.legend, style="dim")
    if _observed(summary):
        yield Text(f"Source: {own['provenance']}", style="dim")
    else:
        bounds = ", ".join(
            f"{bound_name(name)} {share:.0%}"
            for name, share in own["bound_by"].items()
            if share >= 0.005
        )
        if bounds:
            yield Text(f"Bound by: {bounds}")
        yield Text(f"Kernel timings: {own['provenance']}", style="dim")
    yield Text(f"How sure: {own['error_band']['text']}", style="dim")
    if own["ends"] is not None:
        yield Text(own["ends"]["text"], style="" if own["ends"]["decided"] else "yellow")
    if own.get("bands") is not None:
        yield Text(own["bands"]["text"], style="dim")
    if not _observed(summary):
        yield Text(own["whole_runs"]["text"], style="dim")
    for note in own["notes"]:
        yield Text(f"Note: {note}", style="yellow")


def _verdict_lines(own: dict[str, Any], spread: Spread) -> Iterator[Text]:
    """The answer: what was rejected and how to admit it, the load, the SLO and the headroom."""
    verdict, refused = own["verdict"], own["rejection"]
    if refused is not None:
        remedy = f" To serve them, {refused['remedy']}." if refused["remedy"] else ""
        yield Text(f"Rejected: {refused['text']}{remedy}", style="red")
    state = verdict["state"]
    missed = state == State.STABLE and verdict["slo_met"] is False
    answers = [Text(verdict["text"], style="yellow" if missed else STATE_STYLES.get(state, ""))]
    if verdict["limits"]:
        slo = slo_text(verdict, spread.of_share("verdict.attainment"))
        answers.append(Text(slo, style=SLO_STYLES.get(verdict["slo_state"], "")))
    settled = state == State.TOO_SHORT and verdict["slo_state"] == SloState.MISSED
    yield from reversed(answers) if settled else answers
    if own.get("later") is not None:
        yield Text(own["later"]["text"], style="yellow")
    if recovery := (own.get("failures") or {}).get("recovery"):
        yield Text(recovery)
    headroom = headroom_text(verdict)
    if headroom:
        yield Text(f"Headroom: {headroom}")


def _observed(summary: dict[str, Any]) -> bool:
    """Whether the run was a real one, not simulated."""
    return bool(summary["infersim"]["verdict"]["state"] == State.OBSERVED)


def _capacity_lines(kv: dict[str, Any]) -> Iterator[Text]:
    """The size and use of the KV cache, where known."""
    if kv["tokens"] is not None:
        yield Text(f"KV cache size: {kv.get('context_tokens', kv['tokens']):,} tokens")
    if kv["max_concurrency"] is not None:
        yield Text(
            f"Maximum concurrency for {kv['max_model_len']:,} tokens per request: "
            f"{kv['max_concurrency']:,.1f}x"
        )


class Spread:
    """The half-widths of a run's 95 % intervals as text; empty texts for a run without."""

    def __init__(self, summary: dict[str, Any]) -> None:
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
        return f" ± {_two_digits(half)}" if half else ""

    def of_share(self, key: str) -> str:
        """`` ± 1.4%``, to stand behind a share."""
        half = self.half_width(key)
        return f" ± {_two_digits(100 * half)}%" if half else ""


def _latency_table(summary: dict[str, Any], spread: Spread) -> Table:
    table = Table(title="Latency", title_justify="left", expand=True)
    table.add_column("")
    for name in RANKS:
        table.add_column(name, justify="right")
    labels = {
        "ttft": "TTFT  time to first token",
        "tpot": "TPOT  time per output token",
        "itl": "ITL   inter-token latency",
        "e2el": "E2EL  end-to-end latency",
    }
    for key, label in labels.items():
        cells = [_ms(summary[f"{rank}_{key}_ms"]) for rank in RANKS]
        table.add_row(label, *cells)
        _add_spread(
            table, spread, {f"{rank}_{key}_ms": summary[f"{rank}_{key}_ms"] for rank in RANKS}
        )
    queue = summary["infersim"]["queue_ms"]
    table.add_row("      of it in the queue", *(_ms(queue[rank]) for rank in RANKS), style="dim")
    _add_spread(table, spread, {f"queue_ms.{rank}": queue[rank] for rank in RANKS})
    return table


def _classes_table(classes: list[dict[str, Any]]) -> Table:
    """How each class was served; of many, the first."""
    table = Table(title="Classes", title_justify="left", expand=True)
    table.add_column("", ratio=1, overflow="fold")
    for name in ("served", "TTFT p50", "TTFT p99", "TPOT p50", "TPOT p99", "in time"):
        table.add_column(name, justify="right")
    for entry in classes[:MOST_CLASSES]:
        latencies = (f"{rank}_{key}_ms" for key in ("ttft", "tpot") for rank in ("p50", "p99"))
        table.add_row(
            entry["name"],
            f"{entry['completed']:,}",
            *(_ms(entry[key]) for key in latencies),
            _share(entry["attainment"]),
        )
    if len(classes) > MOST_CLASSES:
        table.caption = f"{len(classes) - MOST_CLASSES:,} more in summary.json"
    return table


def _add_spread(table: Table, spread: Spread, latencies: dict[str, float | None]) -> None:
    """A row below one of latencies (ms), if any of them has an interval."""
    halves = [_beside(value, spread.half_width(key)) for key, value in latencies.items()]
    if any(halves):
        table.add_row("      ±", *halves, style="dim")


def _beside(milliseconds: float | None, half: float | None) -> str:
    """A half-width in the unit in which ``_ms`` shows the value."""
    if milliseconds is None or half is None:
        return ""
    unit = _ms(milliseconds).split()[-1]
    factors = {"us": 1e3, "ms": 1.0, "s": 1e-3}
    return f"{_two_digits(half * factors[unit])} {unit}" if unit in factors else _ms(half)


def _facts_table(summary: dict[str, Any], spread: Spread) -> Table:
    own = summary["infersim"]
    requests, batch, kv, use = own["requests"], own["batch"], own["kv_cache"], own["utilisation"]
    table = Table(show_header=False, expand=True)
    for _ in range(2):
        table.add_column(ratio=None if spread.known else 3)
        table.add_column(justify="right", ratio=2)
    time = "observed time" if _observed(summary) else "simulated time"
    running = _mean(batch["mean_running"]) + spread.of("batch.mean_running")
    used = _share(kv["mean_used"]) + spread.of_share("kv_cache.mean_used")
    between = " /\n" if spread.known else " / "
    mfu, mbu = (_share(use[key]) + spread.of_share(f"utilisation.{key}") for key in ("mfu", "mbu"))
    a_replica = "/rank" if "data_ranks" in own else "/replica" if own["replicas"] > 1 else ""
    waiting = f"{_mean(batch['mean_waiting'])} ({_count(batch['peak_waiting'])})"
    rows = [
        ("completed", f"{requests['completed']:,}{spread.of('completed')}"),
        ("of requests", f"{requests['submitted']:,}"),
        ("failed" if _observed(summary) else "rejected", f"{requests['rejected']:,}"),
        ("unfinished", f"{requests['unfinished']:,}"),
        *(
            (_rate(metric), number(summary[metric.key]) + spread.of(metric.key))
            for metric in METRICS
            if metric.table == "throughput" and metric.kind == "number"
        ),
        (time, show_time(summary["duration"]) + _longer(spread.half_width("duration"))),
        ("preemptions", _count(own["preemptions"]) + spread.of("preemptions")),
        ("iterations", _count(batch["iterations"])),
        ("mean iteration", _ms(batch["mean_iteration_ms"])),
        (f"running{a_replica} (peak)", f"{running} ({_count(batch['peak_running'])})"),
        (f"waiting{a_replica} (peak)", waiting),
        ("KV used (peak)", f"{used} ({_share(kv['peak_used'])})"),
        ("KV reserved, unused", _share(kv["fragmentation"])),
        ("busy, any batch size", _share(use["busy"]) + spread.of_share("utilisation.busy")),
        ("MFU / MBU", f"{mfu}{between}{mbu}"),
    ]
    if "prefix_cache" in own and not shares_nothing(own["prefix_cache"]):
        hits = _share(own["prefix_cache"]["hit_rate"] or 0.0)
        rows.append(("prefix hits", hits + spread.of_share("prefix_cache.hit_rate")))
    if "routing" in own and own["routing"]["tokens_over_mean"] is not None:
        most = number(own["routing"]["tokens_over_mean"])
        rows.append(("tokens, busiest/mean", most + spread.of("routing.tokens_over_mean")))
    rows += _host_rows(own, spread)
    if "speculation" in own:
        drafts = own["speculation"]
        length = number(drafts["acceptance_length"] or 0.0)
        rows += [
            ("acceptance length", length + spread.of("speculation.acceptance_length")),
            ("drafts right", _share(drafts["acceptance_rate"] or 0.0)),
        ]
        for each in drafts.get("by_drafts", ()):
            share = each["iterations"] / max(1, sum(r["iterations"] for r in drafts["by_drafts"]))
            rows.append((f"iterations of {each['drafts']} drafts", _share(share)))
    if len(rows) % 2:
        rows.append(("", ""))
    for left, right in zip(rows[::2], rows[1::2], strict=True):
        table.add_row(*left, *right)
    return table


def _host_rows(own: dict[str, Any], spread: Spread) -> list[tuple[str, str]]:
    """The effect of memory in the host, if there is any."""
    tier = own.get("host_tier")
    if tier is None:
        return []
    moved = f"{number(tier['to_host_gb'])} / {number(tier['from_host_gb'])} GB"
    rows = [
        ("to / from the host", moved),
        ("host link out / in", f"{_share(tier['link_out'])} / {_share(tier['link_in'])}"),
        ("swaps", _count(tier["swaps"]) + spread.of("host_tier.swaps")),
    ]
    if tier["hit_rate"] is None:
        return rows
    hits = _share(tier["hit_rate"]) + spread.of_share("host_tier.hit_rate")
    return [("of them from the host", hits), *rows]


def _own_table(metrics: dict[str, float | None], spread: Spread) -> Table:
    """The user's own metrics."""
    table = Table(title="Metrics of your own", title_justify="left", expand=True, show_header=False)
    table.add_column(ratio=3, overflow="fold")
    table.add_column(ratio=2, justify="right")
    for name, value in metrics.items():
        table.add_row(Text(name), number(value) + spread.of(PREFIX + name))
    return table


def _cost_lines(summary: dict[str, Any], spread: Spread) -> Iterator[Text]:
    """The cost of tokens, and whose price that is, after the cost of a request within an SLO that
    is missed; nothing where no price or no token is known."""
    cost = summary["infersim"]["cost"]
    if cost is None or cost["usd_per_million_tokens"] is None:
        return
    output = _usd(cost["usd_per_million_output_tokens"])
    tokens = _usd(cost["usd_per_million_tokens"])
    good = usd_per_good_request(summary)
    first = "" if good is None else f"{_usd(1000 * good)} USD per 1,000 requests within the SLO; "
    yield Text(
        f"Cost: {first}"
        f"{output}{spread.of('cost.usd_per_million_output_tokens')} {PER_OUTPUT_TOKENS}, "
        f"{tokens}{spread.of('cost.usd_per_million_tokens')} {PER_TOKENS}"
    )
    whose = f": {cost['text']}" if "text" in cost else ""  # which runs of before lack
    yield Text(f"At {dollars(cost['usd_per_gpu_hour'])} USD per GPU hour{whose}", style="dim")


def _energy_lines(energy: dict[str, Any] | None, spread: Spread) -> Iterator[Text]:
    """The power of the GPUs; nothing where it is not known, as in older runs."""
    if energy is None or "mean_watts_per_gpu" not in energy:
        return
    per_token = number(energy["joules_per_output_token"])
    parts = [
        f"{per_token}{spread.of('energy.joules_per_output_token')} J per output token",
        f"{energy['mean_watts_per_gpu']:,.0f} W per GPU on average",
        f"{number(energy['kwh'])} kWh",
    ]
    if energy["co2e_grams"] is not None:
        parts.append(f"{number(energy['co2e_grams'])} g CO2e")
    if energy["usd"] is not None:
        parts.append(f"{_usd(energy['usd'])} USD")
    sure = f"± {energy['error']:.0%}"
    if "more" in energy:  # no GPU was measured under a power limit
        sure = f"{energy['less']:.0%} less to {energy['more']:.0%} more under the power limit"
    yield Text(f"Energy: {', '.join(parts)} ({sure})")


def _longer(half: float | None) -> str:
    return f" ± {show_time(half)}" if half else ""


def _ms(value: float | None) -> str:
    return "-" if value is None else show_time(value / 1e3)


def _rate(metric: Metric) -> str:
    """The name of a throughput with its unit."""
    return metric.called if metric.called.endswith("/s") else f"{metric.called}, {metric.unit}"


def _share(value: float | None) -> str:
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


def _usd(value: float | None) -> str:
    return "-" if value is None else show_cost(value)


def _two_digits(value: float) -> str:
    """A half-width: no more digits than mean something, and no exponent.

    >>> _two_digits(1234.5), _two_digits(13.37), _two_digits(0.01234), _two_digits(0)
    ('1,234', '13', '0.012', '0')
    """
    decimals = 0 if value == 0 or value >= 10 else 1 - math.floor(math.log10(value))
    return f"{value:,.{decimals}f}"
