"""Lays out what came of a run for a terminal: the verdict, tables, cost, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sim.findings import Lines, Part, RunCourse, TonedLine
from sim.metrics.bands.worth import worth
from sim.metrics.latency.timeline import Timeline
from sim.metrics.question.fleet_words import fleet_text
from sim.metrics.states import State
from sim.metrics.terms.definitions import bound_name
from sim.metrics.words.slo_text import (
    headroom_text,
    slo_first,
    slo_text,
    usd_per_good_request,
)
from sim.planning.answers.cells import STATES, model_text
from sim.planning.answers.run_tables import (
    Spread,
    classes,
    facts,
    latencies,
    own_metrics,
    pools,
    replicas,
    sessions,
)
from sim.units import (
    PER_OUTPUT_TOKENS,
    PER_TOKENS,
    dollars,
    number,
    show_cost,
    show_share,
    show_time,
)

Own = Mapping[str, Any]


def parts(summary: Mapping[str, Any], timeline: Timeline | None = None) -> Iterator[Part]:
    """The figures of one run, and what went on in it."""
    own, spread = summary["infersim"], Spread(summary)
    observed = own["verdict"]["state"] == State.OBSERVED
    yield setup_line(own)
    yield from verdict_lines(own, spread)
    yield from _capacity(own["kv_cache"])
    if timeline is not None:
        yield RunCourse(timeline, spread.known)
    yield latencies(summary, spread)
    if own["classes"]:
        yield classes(own["classes"])
    if "sessions" in own:
        yield from sessions(own["sessions"])
    yield facts(summary, spread, observed=observed)
    yield from _fleet(own)
    yield from _cost(summary, spread)
    yield from _energy(own["energy"], spread)
    if own.get("metrics"):
        yield own_metrics(own["metrics"], spread)
    yield from _sources(own, spread, observed=observed)


def line(text: str, tone: str = "") -> Lines:
    """A line of its own."""
    return Lines((text,), tone)


def setup_line(own: Own) -> Part:
    """What was run: the scenario's name, model, fleet, engine and batching."""
    setup = f"{model_text(own)} on {fleet_text(own)}, {own['engine']}, {own['batching']}"
    return TonedLine(((own["scenario"], "strong"), (f"  {setup}", "")))


def verdict_lines(own: Own, spread: Spread) -> Iterator[Part]:
    """The answer: what was rejected and how to admit it, the load, the SLO and the headroom."""
    verdict, refused = own["verdict"], own["rejection"]
    if refused is not None:
        remedy = f" To serve them, {refused['remedy']}." if refused["remedy"] else ""
        yield line(f"Rejected: {refused['text']}{remedy}", "bad")
    state = verdict["state"]
    missed = state == State.STABLE and verdict["slo_met"] is False
    answers = [line(verdict["text"], "warn" if missed else STATES.get(state, ""))]
    if verdict["limits"]:
        slo = slo_text(verdict, spread.of_share("verdict.attainment"), own["ends"])
        answers.append(line(slo, STATES.get(verdict["slo_state"], "")))
    yield from reversed(answers) if slo_first(verdict) else answers
    if own.get("later") is not None:
        yield line(own["later"]["text"], "warn")
    if recovery := (own.get("failures") or {}).get("recovery"):
        yield line(recovery)
    headroom = headroom_text(verdict)
    if headroom:
        yield line(f"Headroom: {headroom}")


def _capacity(kv: Mapping[str, Any]) -> Iterator[Part]:
    """The size and use of the KV cache, where known."""
    if kv["tokens"] is not None:
        yield line(f"KV cache size: {kv.get('context_tokens', kv['tokens']):,} tokens")
    if kv["max_concurrency"] is not None:
        yield line(
            f"Maximum concurrency for {kv['max_model_len']:,} tokens per request: "
            f"{kv['max_concurrency']:,.1f}x"
        )


def _fleet(own: Own) -> Iterator[Part]:
    """The pools of a run, how they scaled and failed: nothing for one of fixed size."""
    if "pools" in own:
        yield pools(own["pools"])
    yield from replicas(own)
    yield from (line(scaled["text"]) for scaled in own.get("scaling", ()))
    if "failures" in own:
        yield line(own["failures"]["text"])
    if "handover" in own:
        yield line(handover_text(own["handover"]))


def handover_text(found: Mapping[str, Any]) -> str:
    """The cost of a hand-over, in a sentence."""
    parts = {"memory": "admission", "link": "the link", "transfer": "the transfer"}
    parts["first_token"] = "the first token"
    spent = [
        f"{title} {show_time(found[f'{name}_ms']['mean'] / 1e3)}"
        for name, title in parts.items()
        if found[f"{name}_ms"]["mean"] is not None
    ]
    total = found["total_ms"]
    if total["mean"] is None:
        return "Hand-over: no request was handed over."
    return (
        f"Hand-over, prompt to first token: {show_time(total['mean'] / 1e3)} (p99 "
        f"{show_time(total['p99'] / 1e3)}), of it waiting for {', '.join(spent)}; the busiest link "
        f"is held {show_share(found['link_busy'])} of the time."
    )


def _cost(summary: Mapping[str, Any], spread: Spread) -> Iterator[Part]:
    """The cost of tokens, and whose price that is, after the cost of a request within an SLO that
    is missed; nothing where no price or no token is known."""
    cost = summary["infersim"]["cost"]
    if cost is None or cost["usd_per_million_tokens"] is None:
        return
    output, tokens = (
        f"{_usd(cost[key])}{spread.of(f'cost.{key}')}"
        for key in ("usd_per_million_output_tokens", "usd_per_million_tokens")
    )
    good = usd_per_good_request(summary)
    first = "" if good is None else f"{_usd(1000 * good)} USD per 1,000 requests within the SLO; "
    yield line(f"Cost: {first}{output} {PER_OUTPUT_TOKENS}, {tokens} {PER_TOKENS}")
    whose = f": {cost['text']}" if "text" in cost else ""  # which runs of before lack
    yield line(f"At {dollars(cost['usd_per_gpu_hour'])} USD per GPU hour{whose}", "none")


def _energy(energy: Mapping[str, Any] | None, spread: Spread) -> Iterator[Part]:
    """The power of the GPUs; nothing where it is not known, as in older runs."""
    if energy is None or "mean_watts_per_gpu" not in energy:
        return
    per_token = number(energy["joules_per_output_token"])
    told = [
        f"{per_token}{spread.of('energy.joules_per_output_token')} J per output token",
        f"{energy['mean_watts_per_gpu']:,.0f} W per GPU on average",
        f"{number(energy['kwh'])} kWh",
    ]
    if energy["co2e_grams"] is not None:
        told.append(f"{number(energy['co2e_grams'])} g CO2e")
    if energy["usd"] is not None:
        told.append(f"{_usd(energy['usd'])} USD")
    sure = f"± {energy['error']:.0%}"
    if "more" in energy:  # no GPU was measured under a power limit
        sure = f"{energy['less']:.0%} less to {energy['more']:.0%} more under the power limit"
    yield line(f"Energy: {', '.join(told)} ({sure})")


def _usd(value: float | None) -> str:
    return "-" if value is None else show_cost(value)


def _sources(own: Own, spread: Spread, *, observed: bool) -> Iterator[Part]:
    """What bound the run, where its figures come from, how sure they are, and its notes."""
    if spread.known:
        yield line(spread.legend, "none")
    bounds = ", ".join(
        f"{bound_name(name)} {share:.0%}"
        for name, share in own["bound_by"].items()
        if share >= 0.005
    )
    if bounds and not observed:
        yield line(f"Bound by: {bounds}")
    yield line(f"{'Source' if observed else 'Kernel timings'}: {own['provenance']}", "none")
    yield line(f"How sure: {own['error_band']['text']}", "none")
    if not observed and (surer := worth(own["error_band"]["parts"])):
        yield line(surer["text"], "none")
    if own["ends"] is not None:
        yield line(own["ends"]["text"], "" if own["ends"]["decided"] else "warn")
    if own.get("bands") is not None:
        yield line(own["bands"]["text"], "none")
    if not observed and own["whole_runs"]["text"]:
        yield line(own["whole_runs"]["text"], "none")
    yield from (line(f"Note: {note}", "warn") for note in own["notes"])
