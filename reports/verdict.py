"""What is the answer, in words: does it fit, keep up, meet its limits, what does it cost?

Every answer is a short sentence, a detail, and a tone (good, warn, bad, neutral) for its colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from reports.definitions import DEFINITIONS
from reports.formats import phrase, show
from reports.repetitions import count, plus_minus
from reports.run_directory import known, pick
from reports.sections.missing import is_observed
from reports.tables import limits

Tone = Literal["good", "warn", "bad", "neutral"]

_STATES: Mapping[str, tuple[Tone, str, str]] = {
    "stable": ("good", "Stable", "Yes, it is stable."),
    "near saturation": ("warn", "Near saturation", "Barely: near saturation."),
    "too short to tell": ("warn", "Too short to tell", "The run is too short to tell."),
    "overloaded": ("bad", "Overloaded", "No, it is overloaded."),
    "offline": ("neutral", "Offline", "Offline: all work was there at the start."),
    "closed loop": ("neutral", "Closed loop", "By design: clients wait for their answers."),
    "observed": ("neutral", "Observed", "This run was observed, not judged."),
    "no traffic served": ("bad", "No traffic served", "No, it served nothing."),
}
_SEVERITY: Mapping[Tone, int] = {"neutral": 0, "good": 1, "warn": 2, "bad": 3}


class Answer(NamedTuple):
    """A question that a buyer has, and what the run says to it."""

    key: str
    question: str
    tone: Tone
    short: str
    detail: str


class Verdict(NamedTuple):
    """The head of the report: one line, one sentence, and the answers in order."""

    tone: Tone
    headline: str
    text: str
    answers: tuple[Answer, ...]


def verdict(summary: Mapping[str, Any]) -> Verdict:
    """The verdict of a run, taken from its summary; nothing is judged anew here."""
    state = str(pick(summary, "infersim.verdict.state"))
    tone, title, _ = _state(state)
    answers = (
        *(_fits(summary), _keeps_up(summary), _limits(summary)),
        *(_headroom(summary), _cost(summary), _sure(summary)),
    )
    slo_met = pick(summary, "infersim.verdict.slo_met")
    if slo_met is not None:
        title += ", latency limits met" if slo_met else ", latency limits missed"
    tones = [tone, *(answer.tone for answer in answers[:3])]
    worst = max(tones, key=lambda each: _SEVERITY[each])
    text = _without_state(str(pick(summary, "infersim.verdict.text") or ""), state)
    return Verdict(worst, title, text, answers)


def _state(state: str) -> tuple[Tone, str, str]:
    return _STATES[state] if state in _STATES else ("neutral", state.capitalize(), f"{state}.")


def _without_state(text: str, state: str) -> str:
    """``text`` without a leading "State:", which the headline says already."""
    head, colon, rest = text.partition(":")
    if not colon or head.strip().lower() != state.lower() or not rest.strip():
        return text
    rest = rest.strip()
    return rest[0].upper() + rest[1:]


def _fits(summary: Mapping[str, Any]) -> Answer:
    question = "Does it fit?"
    completed = pick(summary, "infersim.requests.completed")
    rejected = pick(summary, "infersim.requests.rejected")
    submitted = pick(summary, "infersim.requests.submitted")
    cache = pick(summary, "infersim.kv_cache")
    detail = _cache_size(cache)
    if pick(cache, "peak_used") is not None:
        detail += f" At most {phrase(pick(cache, 'peak_used'), 'share')} of it was in use."
    were = "was" if rejected == 1 else "were"
    why = "failed" if is_observed(summary) else f"{were} rejected"
    if submitted and rejected == submitted:
        none = "failed" if is_observed(summary) else "was rejected"
        return Answer("fits", question, "bad", f"No, every request {none}.", detail)
    if rejected:
        share = phrase(rejected / submitted, "share") if submitted else "some"
        counted = "1 request" if rejected == 1 else f"{phrase(rejected, 'count')} requests"
        short = f"Not for all: {counted} ({share}) {why}."
        return Answer("fits", question, "warn", short, detail)
    if not completed:
        return Answer("fits", question, "neutral", "No request was completed.", detail)
    return Answer("fits", question, "good", "Yes, weights and KV cache fit.", detail)


def _cache_size(cache: Mapping[str, Any]) -> str:
    """What the KV cache holds; nothing where that is not known."""
    if pick(cache, "tokens") is None:
        return ""
    size = phrase(pick(cache, "tokens"), "count", "tokens")
    if pick(cache, "max_concurrency") is None:
        return f"The KV cache holds {size}."
    longest = phrase(pick(cache, "max_model_len"), "count", "tokens")
    together = show(pick(cache, "max_concurrency"), "number").text
    return f"The KV cache holds {size}: {together} requests of {longest} at once."


def _keeps_up(summary: Mapping[str, Any]) -> Answer:
    tone, _, short = _state(str(pick(summary, "infersim.verdict.state")))
    busy = pick(summary, "infersim.utilisation.busy")
    running = pick(summary, "infersim.batch.mean_running")
    waiting = pick(summary, "infersim.batch.mean_waiting")
    sentences = []
    if busy is not None:
        sentences.append(f"Busy {phrase(round(busy, 2), 'share')} of the time.")
    if running is not None and waiting is not None:
        runs, waits = phrase(running, "number"), phrase(waiting, "number")
        sentences.append(f"On average a replica runs {runs} requests, and {waits} wait for it.")
    unfinished = pick(summary, "infersim.requests.unfinished")
    if unfinished:
        sentences.append(f"{phrase(unfinished, 'count')} requests were not finished.")
    return Answer("stable", "Does it keep up?", tone, short, " ".join(sentences))


def _limits(summary: Mapping[str, Any]) -> Answer:
    question = "Are the latency limits met?"
    slo_met = pick(summary, "infersim.verdict.slo_met")
    given = limits(summary)
    if slo_met is None:
        short = "There was nothing to judge." if given else "No limits were set."
        detail = "Give the scenario an slo (ttft, tpot, attainment) to have it judged."
        return Answer("slo", question, "neutral", short, "" if given else detail)
    attained = phrase(pick(summary, "infersim.verdict.attainment"), "share")
    target = phrase(pick(summary, "infersim.verdict.target"), "share")
    word = "Yes" if slo_met else "No"
    short = f"{word}, for {attained} of requests (target {target})."
    parts = [
        f"{DEFINITIONS[name].title} within {phrase(limit.limit_ms, 'number', 'ms')}: "
        f"{phrase(limit.attainment, 'share')}"
        for name, limit in given.items()
    ]
    first = pick(summary, "infersim.verdict.first_limit")
    detail = "; ".join(parts) + "." if parts else ""
    if first is not None:
        title = DEFINITIONS[first].title
        detail += f" {title} is closest to its limit." if slo_met else f" {title} breaks first."
    return Answer("slo", question, "good" if slo_met else "bad", short, detail)


def _headroom(summary: Mapping[str, Any]) -> Answer:
    question = "How much headroom is there?"
    headroom = known(summary, "infersim.verdict.headroom")
    used = known(summary, "infersim.verdict.utilisation")
    if headroom is None or used is None:
        return Answer("headroom", question, "neutral", _no_headroom(summary), "")
    error = known(summary, "infersim.verdict.utilisation_error")
    detail = f"The traffic takes {phrase(round(used, 3), 'share')} of what full batches would serve"
    if error:
        detail += f", ±{phrase(round(2 * error, 3), 'share')} by chance in the lengths (95 %)"
    if headroom < 0:
        short = f"None: the traffic would have to shrink by {phrase(1 - 1 / used, 'share')}."
        return Answer("headroom", question, "bad", short, f"{detail}.")
    growth = f"by {phrase(round(headroom, 3), 'share')}"
    if headroom > 1:
        growth = f"to {show(1 + headroom, 'number').text} times what it is"
    short = f"The traffic could grow {growth} before the fleet is full."
    if pick(summary, "infersim.verdict.slo_met") is not None:
        detail += "; limits of latency may be missed at less: infersim find looks for that load"
    return Answer("headroom", question, "neutral", short, f"{detail}.")


def _no_headroom(summary: Mapping[str, Any]) -> str:
    """Why there is no such figure."""
    told = {
        "offline": "None by design: all work was there at the start.",
        "closed loop": "No such thing: the load adapts to the fleet.",
        "observed": "Not known: the capacity of a real engine was not measured.",
        "no traffic served": "Not known: nothing was served.",
    }
    state = str(pick(summary, "infersim.verdict.state"))
    return told.get(state, "Not known.")


def _cost(summary: Mapping[str, Any]) -> Answer:
    question = "What does a token cost?"
    cost = pick(summary, "infersim.cost")
    if cost is None:
        detail = "Give the fleet a price_per_gpu_hour to see what a token costs."
        return Answer("cost", question, "neutral", "No price was given.", detail)
    total, output = (
        pick(cost, "usd_per_million_tokens"),
        pick(cost, "usd_per_million_output_tokens"),
    )
    gpus = phrase(pick(summary, "infersim.gpus"), "count")
    hour = phrase(pick(cost, "usd_per_gpu_hour"), "usd")
    whose = known(cost, "text")
    price = f"{hour} per hour" + (f" ({whose})" if whose else "")
    detail = f"{gpus} GPUs at {price}." if gpus != "1" else f"1 GPU at {price}."
    if total is None:
        return Answer("cost", question, "neutral", "No token was produced.", detail)
    if output is not None:
        detail = f"{phrase(output, 'usd')} per 1M output tokens. {_cost_of_good(summary)}{detail}"
    short = f"{phrase(total, 'usd')} per 1M tokens (prompt + output)."
    return Answer("cost", question, "neutral", short, detail)


def _cost_of_good(summary: Mapping[str, Any]) -> str:
    """What requests within the limits cost, where many are not; nothing where the SLO is met."""
    if pick(summary, "infersim.verdict.slo_met") is not False:
        return ""
    good, rate = pick(summary, "request_goodput"), pick(summary, "request_throughput")
    if not good or not rate:
        return "No request kept its limits. "
    usd, completed = pick(summary, "infersim.cost.usd"), pick(summary, "completed")
    each = phrase(1000 * usd * rate / (good * completed), "usd")
    share = phrase(good / rate, "share")
    return f"Only {share} of the completed requests kept their limits: {each} per 1,000 of these. "


def _sure(summary: Mapping[str, Any]) -> Answer:
    band = pick(summary, "infersim.error_band") or {"throughput": None}
    error, ends = band["throughput"], known(summary, "infersim.ends")
    detail = str(band["text"]) if band.get("text") else ""
    if ends is not None:
        detail = f"{ends['text']} {detail}"
    if known(summary, "infersim.whole_runs.text"):
        detail += f" {pick(summary, 'infersim.whole_runs.text')}"
    half = plus_minus(summary, "p99_ttft_ms")
    if half:
        runs = phrase(count(summary), "count", "repetitions")
        detail += f" Chance in the traffic comes on top: {half} ms on the p99 of TTFT, by {runs}."
    chance = known(summary, "infersim.precision.text")
    if not half and chance:
        detail += f" {chance}"
    short = "No error band is known."
    if error is not None:
        short = f"Iteration times are within about {phrase(round(error, 2), 'share')}."
    if is_observed(summary):
        simulated = known(summary, "infersim.simulated_by")
        short = "Measured, not predicted." if simulated is None else "Predicted, not measured."
    return Answer("band", "How sure is this?", "neutral", short, detail)
