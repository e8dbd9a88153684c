"""Answers a question in two steps: what the run says; its slots, and how sure all of that is."""

from __future__ import annotations

from collections.abc import Iterator

from sim.errors import InfersimError, UsageError
from sim.result import simulate
from sim.scenario import load_scenario
from sim.setup import own_code
from sim.ui.job import Draw, Job, Step
from sim.ui.question import (
    cheapest_command,
    command,
    errors_of,
    plan_command,
    read,
    scenario_of,
    shown_yaml,
)


def steps(job: Job, draw: Draw) -> Iterator[Step]:
    """The steps of the answer; those of a question that has none are its ``errors``, by field."""
    try:
        yield from _steps(job, draw)
    except InfersimError as error:
        kept = str(job.trace)
        if kept in str(error):
            yield {"errors": {"trace": str(error).replace(kept, job.trace_name)}}
        else:
            yield {"errors": errors_of(error)}


def _steps(job: Job, draw: Draw) -> Iterator[Step]:
    given = scenario_of(job.question, job.trace)
    scenario = load_scenario(given)
    if own := own_code(scenario):
        raise UsageError(
            f"the page runs no code of your own ({', '.join(own)}); `infersim run` does"
        )
    result = simulate(scenario)
    taken = {
        "yaml": shown_yaml(given, job.trace_name),
        "command": command(given, job.trace_name),
        "plan": plan_command(given, job.trace_name),
        "cheapest": cheapest_command(given, job.trace_name),
    }
    tables = {"requests": result.requests, "timeseries": result.timeseries}
    yield {**taken, **draw({"summary": result.summary, **tables}, None)}
    result.confirm()
    yield draw(result.page_contents(), job.window)


def warm_up(draw: Draw) -> None:
    """Import and prepare all that the first question would wait for."""
    for _ in steps(Job(read({"requests": "20"})), draw):
        pass
