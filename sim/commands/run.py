"""Runs ``infersim run`` from the check of the scenario to the printed results.

The scenario is checked, the run directory appears, the simulation fills it, and only then is
anything printed. Ctrl-C and SIGTERM end the simulation and keep its results; while these are
summed up, saved and drawn, a first signal is only remembered.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.commands.exits import INFEASIBLE, SIGNALLED, SLO_MISSED, plain_errors
from sim.commands.options import (
    AsJson,
    Full,
    Keep,
    Overrides,
    PriceFile,
    Prices,
    Report,
    RunOutput,
    Seed,
    check_kept,
)
from sim.commands.output import made, note_size, progress, save, show, write_page
from sim.commands.refused import explained
from sim.errors import InfersimError, UsageError

if TYPE_CHECKING:
    from sim.loop.clock import Stop
    from sim.result import Result
    from sim.scenario import Scenario

CHECKS = (
    "Exit with 99 unless the SLO is met at the predicted times, however closely; also where the "
    "run is overloaded, too short to tell, or ends before the peak of its traffic."
)

ScenarioFile = Annotated[Path, typer.Argument(help="A scenario, as in scenarios/chat.yaml.")]


def run(
    scenario: ScenarioFile,
    overrides: Overrides = [],
    price: Prices = [],
    prices: PriceFile = None,
    seed: Seed = None,
    output: RunOutput = None,
    as_json: AsJson = False,
    full: Full = False,
    check: Annotated[bool, typer.Option("--check", help=CHECKS)] = False,
    report: Report = True,
    ends: Annotated[
        bool,
        typer.Option(
            help="Where it matters, simulate both ends of the error band too, at the same time in "
            "processes of their own."
        ),
    ] = True,
    keep: Keep = True,
) -> None:
    """Simulate a scenario, write a run directory and print what came of it."""
    # numpy starts a thread for every core when it is imported; a run multiplies no matrices
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with plain_errors():
        from sim.loop.clock import Stop
        from sim.results.run_directory import new_run_directory
        from sim.scenario import load_scenario
        from sim.scenario.given_prices import with_prices

        loaded = load_scenario(scenario, overrides)
        loaded = with_prices(loaded, price, prices, [pool.gpu for pool in loaded.pools])
        if seed is not None:
            loaded = loaded.override({"seed": seed})
        if check and not loaded.slo.stated:
            raise UsageError(
                "--check needs a limit to check: the scenario has none in slo (ttft, tpot, e2el or "
                "a percentile such as ttft_p95)"
            )
        check_kept(output, keep)
        _tell_front_end(scenario, loaded)
        directory = (output or new_run_directory(Path("runs"), loaded.name)) if keep else None
        with Stop(signal.SIGINT, signal.SIGTERM) as stop:
            with explained(loaded, directory if report else None):
                result = _simulate_and_save(loaded, directory, stop)
            verdict = dict(result.summary["infersim"]["verdict"])  # at the predicted times
            _add_ends(result, directory, stop, ends=ends)
            page = write_page(result, directory) if report and directory is not None else None
        show(result, directory, page, as_json, full=full)
        if directory is not None:
            note_size(directory)
    checked = verdict if check else None
    raise typer.Exit(_exit_code(result, checked, stop.signal, saved=directory is not None))


def _tell_front_end(path: Path, scenario: Scenario) -> None:
    """Say where the scenario of an observed run has a front end that the run had not."""
    from sim.results.run_directory import MANIFEST

    if not path.with_name(MANIFEST).is_file():
        return
    from calibrate.validation.front_end import scenario_note
    from sim.setup import prepare

    if (note := scenario_note(path, prepare(scenario))) is not None:
        typer.echo(note, err=True)


def _simulate_and_save(scenario: Scenario, directory: Path | None, stop: Stop) -> Result:
    """The result, which is in ``directory``, if there is one, by then. A run that cannot start
    leaves nothing there, one that is killed a directory marked ``incomplete``."""
    from sim.results.run_directory import RunDirectory
    from sim.setup import prepare

    prepare(scenario)
    if directory is None:
        result = _simulate(scenario, stop)
        stop.renew()
        result.add_changes()
        return result
    place = RunDirectory.create(directory, scenario, made()["command"])
    try:
        result = _simulate(scenario, stop)
    except (InfersimError, KeyboardInterrupt):
        place.discard()
        raise
    save(result, place, stop)
    return result


def _simulate(scenario: Scenario, stop: Stop) -> Result:
    from sim.result import simulate

    with progress() as tell:
        return simulate(scenario, progress=tell, stop=stop)


def _add_ends(result: Result, directory: Path | None, stop: Stop, *, ends: bool) -> None:
    """Simulate both ends of the error band, and later requests, where they matter, unless a signal
    came; the run is on disk by then, and whatever goes wrong costs these alone."""
    if stop.requested or result.interrupted:
        return
    try:
        if result.confirm(stop=stop, jobs=os.cpu_count() or 1, ends=ends) and directory is not None:
            result.save_summary(directory)
    except (InfersimError, OSError) as error:
        typer.echo(f"warning: the ends of the error band are missing ({error})", err=True)


def _exit_code(
    result: Result, checked: Mapping[str, Any] | None, signalled: int | None, *, saved: bool
) -> int:
    """The exit code of the command; ``checked`` is the verdict that ``--check`` is about."""
    if signalled is not None:
        kept = "what had finished by then is" if result.interrupted else "the whole run is"
        word = "terminated" if signalled == signal.SIGTERM else "interrupted"
        typer.echo(f"{word}: {kept} {'kept' if saved else 'shown'}", err=True)
        return SIGNALLED + signalled
    summary = result.summary
    if not summary["completed"]:
        reasons = summary["infersim"]["requests"]["rejected_reasons"]
        told = "; ".join(f"{count:,} {reason}" for reason, count in reasons.items())
        typer.echo(f"nothing could be served{': ' + told if told else ''}", err=True)
        return INFEASIBLE
    return 0 if checked is None else _checked(checked)


def _checked(verdict: Mapping[str, Any]) -> int:
    """The exit code of ``--check``: what holds so far, but perhaps not in a longer run, does not
    pass."""
    from sim.metrics.states import SloState, State, too_short_for
    from sim.metrics.words.slo_text import slo_doubts

    if verdict["slo_met"] is None:
        typer.echo("the SLO could not be judged: every request belongs to the warm-up", err=True)
        return 1
    if not verdict["slo_met"]:
        return SLO_MISSED
    short = verdict["slo_state"] == SloState.OPEN and too_short_for(slo_doubts(verdict))
    if not short and verdict["state"] not in (State.OVERLOADED, State.TOO_SHORT):
        return 0
    typer.echo(
        "--check: the SLO is met so far, and this run does not show that it will be", err=True
    )
    return SLO_MISSED
