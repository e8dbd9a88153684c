"""Describes what a resolved scenario asks: traffic, SLO, and what was changed in its file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from sim.metrics.question.fleet_words import by_kind
from sim.metrics.slo.objectives import slo_objectives
from sim.scenario import Scenario
from sim.scenario.prices import name_of
from sim.scenario.sections.arrivals import Arrivals
from sim.scenario.sections.sessions import Counts
from sim.scenario.text.document import KeyPath, dotted
from sim.scenario.text.parsing import parse
from sim.schedulers import Static
from sim.units import show_number, show_time

NO_QUESTION = ("run", "seed", "name", "description")
"""Sections whose changes leave the scenario's question as it was."""

LENGTHS = ("workload.prompt_tokens", "workload.output_tokens", "workload.lengths")


def asked(scenario: Scenario, varied: Sequence[str] = ()) -> dict[str, Any]:
    """``traffic``, ``lengths`` and ``slo`` in words, empty where there is no such thing.

    What a study itself varies, by the dotted keys ``varied``, is not the scenario's any more.
    """

    def own(text: str, *keys: str) -> str:
        return "" if any(key.startswith(keys) for key in varied) else text

    slo = "; ".join(objective.text for objective in slo_objectives(scenario))
    return {
        "traffic": own(_traffic(scenario), "workload.arrivals", "workload.trace"),
        "lengths": own(_lengths(scenario), *LENGTHS),
        "slo": own(slo, "slo"),
    }


def hardware(scenario: Scenario, varied: Sequence[str] = ()) -> str:
    """The replicas and their GPUs, such as ``2 x (1 x h100-sxm)``; without their number where a
    study varies it, and empty where it varies the GPU itself.

    >>> from sim.scenario import load_scenario
    >>> chat = load_scenario("scenarios/chat.yaml")
    >>> hardware(chat), hardware(chat, ["fleet.0.replicas"]), hardware(chat, ["fleet.0.gpu"])
    ('1 x h100-sxm', 'h100-sxm', '')
    """
    ends = {key.rpartition(".")[2] for key in varied if key.startswith("fleet")}
    if ends & {"fleet", "gpu"}:
        return ""
    counted = not ends & {"replicas", "tensor_parallel"}
    if not counted:
        return " + ".join(name_of(pool.gpu) for pool in scenario.pools)
    return by_kind(
        (
            name_of(pool.gpu),
            pool.layout.gpus,
            pool.replicas if pool.scales is None else pool.scales.min,
            pool.replicas if pool.scales is None else pool.scales.max,
        )
        for pool in scenario.pools
    )


OF_ARRIVALS = {"closed": "closed loop", "burst": "offline"}
"""How requests come, by the kind of arrivals, in the words of ``sim.catalog.whole_runs``; of all
others and of traces ``online``."""


def driven_by(scenario: Scenario) -> str:
    """How the requests of ``scenario`` come, a key of ``sim.catalog.whole_runs.DRIVEN``."""
    if any(pool.scheduler.batching == Static.name for pool in scenario.pools):
        return "static batch"
    arrivals = scenario.workload.arrivals
    return "online" if arrivals is None else OF_ARRIVALS.get(arrivals.kind, "online")


def changed(scenario: Scenario, varied: Sequence[str] = ()) -> dict[str, Any]:
    """The ``changes`` made to the scenario's file, and whether its description ``still_asks`` what
    was run: how a scenario came about, which its results do not depend on. What a study itself
    varies, by the dotted keys ``varied``, is no change."""
    changes = [(path, text) for path, text in _changes(scenario) if dotted(path) not in varied]
    return {
        "changes": [text for _, text in changes],
        "still_asks": not varied and all(path[0] in NO_QUESTION for path, _ in changes),
    }


def _traffic(scenario: Scenario) -> str:
    trace, arrivals = scenario.workload.trace, scenario.workload.arrivals
    if arrivals is not None:
        return _law(scenario, arrivals)
    assert trace is not None
    text = f"trace {scenario.path(trace.path).name}"
    if trace.busiest is not None:
        text += f", its busiest {show_time(trace.busiest)}"
    if trace.limit is not None:
        text += f", its first {trace.limit:,} requests"
    if trace.overlay != 1:
        text += f", {trace.overlay:g} copies overlaid"
    if trace.rate is not None:
        text += f", scaled to {trace.rate:g} requests/s"
    elif trace.time_scale != 1:
        text += f", gaps multiplied by {trace.time_scale:.4g}"
    return text


def _law(scenario: Scenario, law: Arrivals) -> str:
    """When requests come, or sessions where there are any."""
    sessions = scenario.workload.sessions
    if sessions is None:
        return _arrivals(scenario, law, "requests/s")
    text = _arrivals(scenario, law, "sessions/s")
    if law.kind == "burst":
        text = f"{text}, in sessions that start together"
    elif law.kind == "closed":
        text = f"{law.concurrency:,} users with one session after the other"
    text += f", {_number(sessions.turns)} turns each"
    if sessions.branches is not None:
        text += f" of {_number(sessions.branches)} requests"
    return text


def _number(counts: Counts) -> str:
    """How many there are, on average."""
    match counts.kind:
        case "fixed":
            return f"{counts.value:,}"
        case "uniform":
            return f"{counts.low:,} to {counts.high:,}"
        case "geometric":
            return f"{counts.mean:g} (mean)"


def _arrivals(scenario: Scenario, law: Arrivals, unit: str) -> str:
    match law.kind:
        case "burst":
            text = f"{scenario.run.requests:,} requests at once"
        case "closed":
            text = f"{law.concurrency:,} users in a closed loop"
            text += f", thinking {show_time(law.think_time)}" if law.think_time else ""
        case "ramp":
            text = f"{law.rate:g} to {law.final_rate:g} {unit} over {show_time(law.duration)}"
        case "diurnal":
            text = f"{law.rate:g} to {law.peak_rate:g} {unit} each {show_time(law.period)}"
        case "gamma":
            text = f"{law.rate:g} {unit}, bursty (CV {law.cv:g})"
        case "constant":
            text = f"{law.rate:g} {unit}, evenly spaced"
        case "poisson":
            text = f"{law.rate:g} {unit}, Poisson"
    return text


def _lengths(scenario: Scenario) -> str:
    work = scenario.workload
    prompt, output = _mean(work.prompt_tokens), _mean(work.output_tokens)
    if work.trace is not None:
        return ""
    if prompt is None or output is None:
        return "lengths from a file"
    same = {law.kind for law in (work.prompt_tokens, work.output_tokens) if law} == {"fixed"}
    what = "prompts" if work.sessions is None else "new in each prompt"
    text = f"{what} {show_number(prompt)}, answers {show_number(output)} tokens"
    return text if same else f"{text} (mean)"


def _mean(law: Any) -> float | None:
    """The mean length, tokens; None where a file has it."""
    if law is None or law.kind == "empirical":
        return None
    if law.kind == "fixed":
        return float(law.value)
    return (law.low + law.high) / 2 if law.kind == "uniform" else float(law.mean)


def _changes(scenario: Scenario) -> Iterator[tuple[KeyPath, str]]:
    """Each value that an override gave, with what stood in the scenario's file instead."""
    document = scenario.document
    if document is None or document.text is None:
        return
    places = [path for path, place in document.values.items() if path and place.line is None]
    written = parse(document.text, "").data if places else {}
    for path in places:
        new, old = _at(document.data, path), _at(written, path)
        if new != old:
            before = "" if old is None else f"{_short(old)} -> "
            yield path, f"{dotted(path)}: {before}{_short(new)}"


def _at(data: Any, path: KeyPath) -> Any:
    """The value at ``path``, None where there is none; a single pool may stand without a list."""
    for step in path:
        if isinstance(data, dict) and step == 0:
            continue
        try:
            data = data[step]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _short(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=1000).strip()
    text = text.removesuffix("...").strip()
    return text if len(text) <= 60 else f"{text[:57]}..."
