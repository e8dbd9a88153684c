"""Provides ``simulate`` and its ``Result`` as the Python API has them.

What ``sim.simulation`` predicts, and what ``infersim run`` adds to it: both ends of the error band,
the requests that come later, a band for each figure, the printed table and the page.
"""

from __future__ import annotations

from copy import copy, deepcopy
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from sim import simulation
from sim.band_runs import matters, run_ends
from sim.errors import InfersimError
from sim.longer_run import run_later
from sim.metrics.bands.figure_bands import figure_bands
from sim.results.run_result import RunResult
from sim.results.whole_file import write_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from sim.loop.clock import Stop
    from sim.loop.fleet import Progress
    from sim.results.run_directory import RunDirectory
    from sim.scenario import AnyScenario


class Result(RunResult):
    """The result of one run, as ``infersim run`` shows it."""

    _confirmed = False

    @classmethod
    def of(cls, found: RunResult) -> Self:
        """The result of the run that ``found`` has measured, or is to measure when it is asked."""
        made = cls(found.record, found.further)
        vars(made).update(vars(found))
        return made

    def add_changes(self) -> None:
        """Put into the summary, and into what is shown, how the scenario differs from its file."""
        super().add_changes()
        if "_confirmed_copy" in vars(self):
            self._confirmed_copy["infersim"]["asked"] |= self.summary["infersim"]["asked"]

    def confirm(self, *, stop: Stop | None = None, jobs: int = 1, ends: bool = True) -> bool:
        """Find out what ``infersim run`` does in addition, and put it into the summary, once: both
        ends of the error band where they matter (``sim.band_runs``), unless no ``ends`` are wanted,
        near saturation the requests that come later (``sim.longer_run``), and a band for each
        figure (``bands``). Nothing after an interrupt. Whether anything was added."""
        if self._confirmed or self.interrupted or self.record.observed:
            return False
        self._confirmed = True
        later = run_later(self.scenario, self.summary, stop=stop)
        found = run_ends(self.scenario, self.summary, stop=stop, jobs=jobs) if ends else None
        self.summary["infersim"]["later"] = later
        if found is not None:
            self.add_ends(found)
        skipped = not ends and matters(self.summary)
        bands = figure_bands(self.record, self.summary, found, skipped=skipped)
        self.summary["infersim"]["bands"] = bands
        return found is not None or later is not None or bands is not None

    @cached_property
    def bands(self) -> dict[str, Any] | None:
        """Between which values each figure lies with a chance of 50 and of 90 %, and what each part
        of that comes to, as ``infersim.bands`` of ``infersim run`` has it."""
        found: dict[str, Any] | None = self.shown["infersim"]["bands"]
        return found

    @property
    def shown(self) -> dict[str, Any]:
        """The figures as ``infersim run`` prints them: ``confirm`` has been at work in them, and
        has left ``summary`` as it is."""
        known = self._confirmed or self.interrupted or self.record.observed
        return self.summary if known else self._confirmed_copy

    @cached_property
    def _confirmed_copy(self) -> dict[str, Any]:
        other = copy(self)
        other.summary = deepcopy(self.summary)
        other.confirm()
        return other.summary

    def __str__(self) -> str:
        """The text that ``infersim run`` prints of it."""
        from sim.terminal.console import as_text  # noqa: PLC0415 - rich is slow to import
        from sim.terminal.findings import run_view  # noqa: PLC0415

        return as_text(run_view(self.shown, self.timeline()))

    def save(self, directory: Path | str | RunDirectory, *, report: bool = False) -> Path:
        """Write the run directory ``directory``, new or empty or just created, with the page if
        ``report``; return its path."""
        path = super().save(directory)
        if report:
            self.report(path)
        return path

    def report(self, path: Path | str) -> Path:
        """Write the page of the run to ``path``, a file or a folder; return where it is.

        Raises InfersimError where it cannot be written.
        """
        from reports import render  # noqa: PLC0415 - plotly is slow to import

        contents = self.page_contents()
        return write_page(path, render(**contents))


def simulate(
    scenario: AnyScenario,
    *,
    leap: bool | None = None,
    progress: Progress | None = None,
    stop: Stop | None = None,
) -> Result:
    """Run the scenario's traffic through its fleet and measure, as often as it wants repetitions.

    ``scenario`` is a scenario, the path of one, or a mapping like the file; for the others see
    ``sim.simulation.simulate``.
    """
    return Result.of(simulation.simulate(scenario, leap=leap, progress=progress, stop=stop))


def keeper(path: Path) -> Callable[[RunResult], None]:
    """Saves a run at ``path``, with its page; other processes can be handed it."""
    return partial(_keep, path)


def _keep(path: Path, found: RunResult) -> None:
    Result.of(found).save(path, report=True)


def write_page(path: Path | str, page: str) -> Path:
    """Write a page to ``path``, of a folder to ``report.html`` in it; return where it is. Raises
    InfersimError where it cannot be written."""
    target = Path(path)
    target = target / "report.html" if target.is_dir() else target
    try:
        write_text(target, page)
    except OSError as error:
        raise InfersimError(f"{target}: cannot be written ({error.strerror})") from None
    return target
