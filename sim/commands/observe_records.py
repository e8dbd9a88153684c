"""Does what ``infersim observe --from FORMAT FILE`` asks for.

The file is read and checked, a scenario is made of what it states, and only then does the run
directory appear: with the trace, then the figures and tables, as of any other observed run.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import typer
import yaml

from calibrate.engine.record import ObservedDirectory
from calibrate.recordings import find_format, read_recording
from calibrate.recordings.recording import Recording, RecordingChoice
from calibrate.recordings.result import RecordedResult, manifest
from calibrate.recordings.scenario import TRACE, scenario_of, trace_of
from calibrate.recordings.summaries import DRAWN
from sim.commands.import_server import one_of, remarks
from sim.commands.output import save
from sim.errors import InfeasibleError, UsageError, printable
from sim.loop.clock import Stop
from sim.results.run_directory import new_run_directory
from sim.servers import imported, sources_of
from sim.setup import Setup, prepare
from sim.workload.traces.tools import write_trace


def check_options(given: Mapping[str, object]) -> None:
    """Raise UsageError for an option of a run on this device: nothing runs here."""
    for option, value in given.items():
        if value is not None:
            raise UsageError(f"{option} is for a run on this device; --from reads a recorded one")


def bring_in(
    name: str,
    path: Path,
    directory: Path | None,
    *,
    model: str | None = None,
    gpu: str | None = None,
    overrides: Sequence[str] = (),
    choice: RecordingChoice | None = None,
    server: Path | None = None,
) -> tuple[RecordedResult, Path]:
    """The run that ``path`` records in the format ``name``, and the directory it is in by then.

    UsageError for an unknown format, a model or GPU that is not stated, or a directory that is not
    empty; TraceError for a file that breaks its format. Then nothing is left behind.
    """
    known = find_format(name)
    choice = choice or RecordingChoice()
    if choice.entry is not None and not known.several:
        raise UsageError(f"--entry: a file of the format {known.name} holds one run")
    recording = read_recording(known, path, choice)
    setup, recording = _setup(recording, model, gpu, overrides, server)
    target = directory or new_run_directory(Path("runs"), f"{setup.scenario.name}-observed")
    setup = replace(setup, scenario=setup.scenario.moved(target.absolute()))
    place = ObservedDirectory.create(target, setup.scenario)
    trace = target / TRACE
    with Stop(signal.SIGINT, signal.SIGTERM) as stop:
        try:
            if recording.summary is None:
                write_trace(trace_of(recording.requests), trace)
            elif recording.summary.drawn is not None:
                trace = target / DRAWN
                recording.summary.drawn.write(trace)
            result = RecordedResult(recording, setup)
            place.describe(manifest(recording, known.name))
        except BaseException:
            trace.unlink(missing_ok=True)
            place.discard()
            raise
        save(result, place, stop)
    return result, target


def _setup(
    recording: Recording,
    model: str | None,
    gpu: str | None,
    overrides: Sequence[str],
    server: Path | None,
) -> tuple[Setup, Recording]:
    """The setup of the recording's scenario, and the recording with the assumptions for it; the
    scenario needs its trace to be checked."""
    with TemporaryDirectory() as folder:
        if recording.summary is None:
            write_trace(trace_of(recording.requests), Path(folder, TRACE))
        elif recording.summary.drawn is not None:
            recording.summary.drawn.write(Path(folder, DRAWN))
        if server is not None and not _is_scenario(server):
            server = _imported(server, Path(folder), model, gpu)
        scenario, known = scenario_of(
            recording, Path(folder), model=model, gpu=gpu, overrides=overrides, server=server
        )
        try:
            return prepare(scenario), known
        except InfeasibleError as error:
            raise InfeasibleError(
                f"{error}. It did run: give the blocks that the engine printed at its start, "
                "--set kv_cache.num_gpu_blocks=N, or the precision or tensor_parallel it ran with"
            ) from None


def _is_scenario(path: Path) -> bool:
    """Whether a file is a scenario, be it a faulty one, and not a way to start a server."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return path.suffix in (".yaml", ".yml") or not path.is_file()
    return isinstance(document, dict) and bool({"fleet", "workload", "extends"} & document.keys())


def _imported(path: Path, folder: Path, model: str | None, gpu: str | None) -> Path:
    """The scenario, in a file in ``folder``, of the server that the file at ``path`` starts."""
    started = one_of(sources_of(str(path)), str(path), None)
    made = imported(started, folder, model=model, gpu=gpu)
    for line in remarks(made):
        typer.echo(printable(line), err=True)
    found = folder / "server.yaml"
    found.write_text(made.text, encoding="utf-8")
    return found
