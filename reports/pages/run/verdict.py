"""Answers in words whether a model fits, keeps up and meets its limits, and what it costs.

Every answer is a short sentence, a detail, and a tone (good, warn, bad, neutral) for its colour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from reports.frame.formats import phrase, show
from reports.frame.run_directory import known, pick
from reports.pages.run import groups
from reports.pages.run.missing import count, is_measured, is_observed, plus_minus
from reports.pages.run.slo import SloLimit, judged, limits, milliseconds, percent
from sim.metrics.states import SloState, State, is_apart
from sim.metrics.words.slo_text import (
    UNSERVED,
    deciding,
    headroom_sentences,
    limit_title,
    open_word,
    slo_first,
    slo_head,
    usd_per_good_request,
    within,
)
from sim.units import between

Tone = Literal["good", "warn", "bad", "neutral"]

_STATES: Mapping[str, tuple[Tone, str, str]] = {
    State.STABLE: ("good", "Stable", "Yes, it is stable."),
    State.NEAR_SATURATION: ("warn", "Near saturation", "Barely: near saturation."),
    State.TOO_SHORT: ("warn", "Too short to tell", "The run is too short to tell."),
    State.OVERLOADED: ("bad", "Overloaded", "No, it is overloaded."),
    State.OFFLINE: ("neutral", "Offline", "Offline: all work was there at the start."),
    State.CLOSED_LOOP: ("neutral", "Closed loop", "By design: clients wait for their answers."),
    State.OBSERVED: ("neutral", "Observed", "This run was observed, not judged."),
    State.NOTHING_SERVED: ("bad", "No traffic served", "No, it served nothing."),
}
UNUSED = 0.05
"""Share of the KV cache from which on what is reserved and holds nothing is part of the answer."""

FEW = 0.1
"""Requests that wait on average, below which almost none does."""

_SEVERITY: Mapping[Tone, int] = {"neutral": 0, "good": 1, "warn": 2, "bad": 3}


class RowAnswer(NamedTuple):
    """A question that a buyer has, or what is stated, and what the run says of it; each line of
    ``detail`` is a paragraph."""

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
    answers: tuple[RowAnswer, ...]


def verdict(summary: Mapping[str, Any]) -> Verdict:
    """The verdict of a run, taken from its summary without judging again."""
    state = str(pick(summary, "infersim.verdict.state"))
    tone, title, _ = _state(state)
    answers = (
        *(_fits(summary), _keeps_up(summary), _limits(summary), *_recovers(summary)),
        *(_headroom(summary), _cost(summary), _sure(summary)),
    )
    found = judged(summary)
    if found["slo_state"] is not None:
        title = (
            f"{slo_head(found)}, {title.lower()}"
            if slo_first(found)
            else f"{title}, {slo_head(found)}"
        )
    tones = [tone, *(answer.tone for answer in answers[:3])]
    worst = max(tones, key=lambda each: _SEVERITY[each])
    text = str(pick(summary, "infersim.verdict.text") or "")
    text = text.removeprefix(f"{state.capitalize()}: ")  # the headline says that already
    text = f"{text[:1].upper()}{text[1:]}"
    return Verdict(worst, title, f"{_rejected(summary)}{text}", answers)


def _rejected(summary: Mapping[str, Any]) -> str:
    """Which requests were rejected, and what would admit them; empty where none were."""
    refused = known(summary, "infersim.rejection")
    if refused is None:
        return ""
    remedy = f"To serve them, {refused['remedy']}. " if refused["remedy"] else ""
    return f"{refused['text']} {remedy}"


def _state(state: str) -> tuple[Tone, str, str]:
    return _STATES[state] if state in _STATES else ("neutral", state.capitalize(), f"{state}.")


def _fits(summary: Mapping[str, Any]) -> RowAnswer:
    title = "What fits"
    completed = pick(summary, "infersim.requests.completed")
    rejected = pick(summary, "infersim.requests.rejected")
    submitted = pick(summary, "infersim.requests.submitted")
    cache = pick(summary, "infersim.kv_cache")
    detail = _rejected(summary)
    if pick(cache, "tokens") is not None:
        size = phrase(pick(cache, "tokens"), "count", "tokens")
        detail += f"The KV cache holds {size}."
    reserved, used = known(cache, "peak_reserved"), pick(cache, "peak_used")
    if reserved is not None and used is not None:
        detail += f" At most {phrase(reserved, 'share')} of it was reserved"
        detail += f", and {phrase(used, 'share')} filled."
    elif used is not None:
        detail += f" At most {phrase(used, 'share')} of it was in use."
    were = "was" if rejected == 1 else "were"
    why = "failed" if is_observed(summary) else f"{were} rejected"
    if submitted and rejected == submitted:
        none = "failed" if is_observed(summary) else "was rejected"
        return RowAnswer("fits", title, "bad", f"Nothing: every request {none}.", detail)
    if rejected:
        share = phrase(rejected / submitted, "share") if submitted else "some"
        counted = "1 request" if rejected == 1 else f"{phrase(rejected, 'count')} requests"
        short = f"Not all: {counted} ({share}) {why}."
        return RowAnswer("fits", title, "warn", short, detail)
    if completed == 0:
        return RowAnswer("fits", title, "neutral", "No request was completed.", detail)
    if is_observed(summary):
        ran = "It ran." if completed is None else "It ran: every request was answered."
        return RowAnswer("fits", title, "neutral", ran, detail)
    return RowAnswer("fits", title, "good", _at_once(summary), detail)


def _at_once(summary: Mapping[str, Any]) -> str:
    """How many requests of the longest length fit into a replica, and how many ran in one."""
    cache = pick(summary, "infersim.kv_cache")
    if pick(cache, "max_concurrency") is None:
        return "The weights and the KV cache."
    count = show(pick(cache, "max_concurrency"), "number").text
    together = f"{count} request{'' if count == '1' else 's'}"
    longest = phrase(pick(cache, "max_model_len"), "count", "tokens")
    several = (known(summary, "infersim.replicas") or 1) > 1
    short = f"{'Each replica has room for' if several else 'Room for'} {together} of {longest}"
    ran = known(summary, "infersim.batch.peak_running")
    at_once = "at once in one" if several else "at once"
    if ran is None:
        return f"{short}."
    reserved, used = known(cache, "peak_reserved"), known(cache, "peak_used")
    held = reserved is not None and used is not None and reserved - used > UNUSED
    full = f", which reserved {phrase(reserved, 'share')} of the KV cache" if held else ""
    return f"{short}; at most {phrase(ran, 'count')} ran {at_once}{full}."


def _keeps_up(summary: Mapping[str, Any]) -> RowAnswer:
    tone, _, short = _state(str(pick(summary, "infersim.verdict.state")))
    running = pick(summary, "infersim.batch.mean_running")
    waiting = pick(summary, "infersim.batch.mean_waiting")
    sentences = []
    if running is not None and waiting is not None:
        runs, waits = phrase(running, "number"), f"{phrase(waiting, 'number')} wait for it"
        waits = waits if waiting >= FEW else "almost none waits"
        sentences.append(f"On average a replica runs {runs} requests, and {waits}.")
    unfinished = pick(summary, "infersim.requests.unfinished")
    if unfinished:
        were = "request was" if unfinished == 1 else "requests were"
        sentences.append(f"{phrase(unfinished, 'count')} {were} not finished.")
    detail = " ".join(sentences)
    if judged(summary)["slo_state"] is None:
        detail += _later(summary)
    return RowAnswer(State.STABLE, "Does it keep up?", tone, short, detail)


def _recovers(summary: Mapping[str, Any]) -> list[RowAnswer]:
    """Whether the fleet serves as before after its outages; nothing where there were none."""
    told = known(summary, "infersim.failures.recovery")
    if told is None:
        return []
    back = known(summary, "infersim.failures.outages") or []
    tone: Tone = "warn" if any(each["recovered_after_s"] is None for each in back) else "good"
    return [RowAnswer("recovers", "Does it recover?", tone, told, "")]


def _limits(summary: Mapping[str, Any]) -> RowAnswer:
    question = "Is the SLO met?"
    found, given = judged(summary), limits(summary)
    state = found["slo_state"]
    if state is None:
        short = "There was nothing to judge." if given else "There is no SLO."
        detail = "Add `slo:` with a limit of TTFT, TPOT or E2EL to the scenario to get a verdict."
        return RowAnswer("slo", question, "neutral", short, "" if given else detail)
    word = {SloState.MET: "Yes", SloState.MISSED: "No"}.get(state) or open_word(found).capitalize()
    tones: Mapping[str, Tone] = {SloState.MET: "good", SloState.MISSED: "bad"}
    parts = [_within(limit) for limit in given.values()]
    detail = "; ".join(parts) + "." if parts else ""
    if state == SloState.OPEN:
        detail = deciding(found).strip() + " " + detail
    first = found["first_limit"]
    if first is not None:
        title = limit_title(first)
        title = title[0].upper() + title[1:]
        breaks = "break" if first not in given else "breaks"
        close = f" {title} is closest to its limit."
        detail += close if found["slo_met"] else f" {title} {breaks} first."
    detail = f"{detail} {groups.sentence(summary)}".rstrip()
    detail += _later(summary)
    cut = known(found, "cut")
    where = "" if cut is None or state == SloState.OPEN else f", in {cut['part']}"
    short = f"{word}{where}: {_share_within(found, given)}"
    return RowAnswer("slo", question, tones.get(state, "warn"), short, detail)


def _later(summary: Mapping[str, Any]) -> str:
    """The fate of the requests that come after those of a run that has not settled."""
    found = known(summary, "infersim.later")
    return "" if found is None else f" {found['text']}"


def _within(limit: SloLimit) -> str:
    if is_apart(limit.name):
        value = "is not reached" if limit.value_ms is None else f"is {milliseconds(limit.value_ms)}"
        return f"{limit.title} {value} (limit {milliseconds(limit.limit_ms)})"
    within = f"{limit.title} within {milliseconds(limit.limit_ms)}"
    return f"{within}: {percent(limit.attainment, limit.target)}"


def _share_within(found: Mapping[str, Any], given: Mapping[str, SloLimit]) -> str:
    """How many requests are within the SLO; else which percentile is not within its limit."""
    together = [name for name in given if not is_apart(name)]
    if not together:
        if found["slo_met"]:
            return "every percentile that is limited is within its limit."
        first = given.get(found["first_limit"])
        unserved = UNSERVED.get(found["first_limit"], "were not served")
        return f"requests {unserved}." if first is None else f"{_within(first)}."
    told = within(
        found["attainment"],
        percent(found["attainment"], found["target"]),
        enough=bool(found["slo_met"]),
    )
    return f"{told} within the SLO ({percent(found['target'])} wanted)."


def _headroom(summary: Mapping[str, Any]) -> RowAnswer:
    question = "How much headroom is there?"
    found = judged(summary)
    sentences, used = headroom_sentences(found), found["utilisation"]
    room = known(summary, "infersim.verdict.headroom")
    if not sentences or room is None:
        return RowAnswer("headroom", question, "neutral", _no_headroom(summary), "")
    short, *rest = sentences
    error = known(summary, "infersim.verdict.utilisation_error")
    detail = f"The traffic takes {phrase(round(used, 3), 'share')} of what full batches would serve"
    if error:
        wide = round(2 * error, 3 if 2 * error < 1 else 2)
        detail += f", ±{phrase(wide, 'share')} by chance in the lengths (95 %)"
    tone: Tone = "bad" if room <= 0 else "neutral"
    told = " ".join([f"{detail}.", *rest])
    return RowAnswer("headroom", question, tone, short, told)


def _no_headroom(summary: Mapping[str, Any]) -> str:
    """Why there is no such figure."""
    told: Mapping[str, str] = {
        State.OFFLINE: "None by design: all work was there at the start.",
        State.CLOSED_LOOP: "No such thing: the load adapts to the fleet.",
        State.OBSERVED: "Not known: the capacity of a real engine was not measured.",
        State.NOTHING_SERVED: "Not known: nothing was served.",
    }
    state = str(pick(summary, "infersim.verdict.state"))
    return told.get(state, "Not known.")


def _cost(summary: Mapping[str, Any]) -> RowAnswer:
    question = "What does a token cost?"
    cost = pick(summary, "infersim.cost")
    if cost is None:
        detail = "Give the fleet a price_per_gpu_hour to see what a token costs."
        return RowAnswer("cost", question, "neutral", "No price was given.", detail)
    total, output = (
        pick(cost, "usd_per_million_tokens"),
        pick(cost, "usd_per_million_output_tokens"),
    )
    gpus = phrase(pick(summary, "infersim.gpus"), "count")
    hour = phrase(pick(cost, "usd_per_gpu_hour"), "usd")
    whose = known(cost, "text")
    price = f"{hour} per hour" + (f" ({whose})" if whose else "")
    if "scaling" in pick(summary, "infersim"):
        gpus = f"Up to {gpus}"
    detail = f"{gpus} GPUs at {price} each." if gpus != "1" else f"1 GPU at {price}."
    if total is None:
        return RowAnswer("cost", question, "neutral", "No token was produced.", detail)
    if output is not None:
        detail = f"{phrase(output, 'usd')} per 1M output tokens. {_cost_of_good(summary)}{detail}"
    good = usd_per_good_request(summary)
    first = "" if good is None else f"{phrase(1000 * good, 'usd')} per 1,000 good requests, "
    short = f"{first}{phrase(total, 'usd')} per 1M tokens (prompt + output)."
    return RowAnswer("cost", question, "neutral", short, detail)


def _cost_of_good(summary: Mapping[str, Any]) -> str:
    """The cost of requests within the SLO, where many are not; nothing where the SLO is met."""
    if pick(summary, "infersim.verdict.slo_met") is not False:
        return ""
    good, rate = pick(summary, "request_goodput"), pick(summary, "request_throughput")
    usd = usd_per_good_request(summary)
    if usd is None:
        return "No request is within the SLO. "
    share = percent(good / rate, known(summary, "infersim.verdict.target"))
    which = "All" if round(good / rate, 9) >= 1 else f"Only {share} of the"
    each = phrase(1000 * usd, "usd")
    return f"{which} completed requests are within the SLO: {each} per 1,000 of these. "


def _sure(summary: Mapping[str, Any]) -> RowAnswer:
    band = pick(summary, "infersim.error_band") or {"throughput": None}
    error, ends = band["throughput"], known(summary, "infersim.ends")
    told = [known(summary, "infersim.bands.text"), None if ends is None else ends["text"]]
    told += [band.get("text"), known(summary, "infersim.whole_runs.text")]
    told = [band.get("text")] if is_measured(summary) else told
    half = plus_minus(summary, "p99_ttft_ms", "ms")
    if half:
        runs = phrase(count(summary), "count", "repetitions")
        told.append(f"Chance in the traffic comes on top: {half} on the p99 of TTFT, by {runs}.")
    else:
        told.append(known(summary, "infersim.precision.text"))
    detail = "\n".join(text for text in told if text)
    short = "No error band is known."
    if error is not None:
        short = _band_of_the_first_limit(summary) or (
            f"Iteration times are within about {phrase(round(error, 2), 'share')}."
        )
    if is_observed(summary):
        simulated = known(summary, "infersim.simulated_by")
        short = "Measured, not predicted." if simulated is None else "Predicted, not measured."
    return RowAnswer("band", "How sure is this?", "neutral", short, detail)


def _band_of_the_first_limit(summary: Mapping[str, Any]) -> str:
    """Between which values the latency lies that the SLO limits most tightly; empty without one."""
    given = [limit for limit in limits(summary).values() if limit.band and limit.value_ms]
    if not given:
        return ""
    tight = max(given, key=lambda limit: (limit.value_ms or 0.0) / limit.limit_ms)
    assert tight.band is not None
    low, high = tight.band
    span = between(milliseconds(low), None if high is None else milliseconds(high))
    title = tight.title if is_apart(tight.name) else f"{tight.title} {tight.rank}"
    return f"{title} is {span}, with a chance of 90%."
