"""Holds the result of a run: metrics, tables, and the run directory they are written to.

In a notebook it shows its headline metrics as a small HTML table.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from sim.metrics.charts import charts
from sim.metrics.enough.doubts import doubts_at_ends, missed_at_ends
from sim.metrics.enough.precision import asking
from sim.metrics.latency.timeline import Timeline, running, waiting
from sim.metrics.own import load_metrics, own_metrics
from sim.metrics.question.question_text import changed
from sim.metrics.record.run_record import RunRecord
from sim.metrics.repetitions import combine, headlines
from sim.metrics.states import SloState
from sim.metrics.summary import summarise
from sim.metrics.words.verdict_words import opened
from sim.results.parquet_file import write_groups, write_parquet
from sim.results.run_directory import RunDirectory, write_json
from sim.results.tables import request_columns, timeseries_columns, timeseries_groups
from sim.results.trail_files import (
    Trail,
    absence_columns,
    chunk_columns,
    write_attempts,
    write_handovers,
    write_trail,
)
from sim.results.whole_file import write_whole
from sim.units import counted

if TYPE_CHECKING:
    import pandas as pd

SUMMARY, REQUESTS, TIMESERIES = "summary.json", "requests.parquet", "timeseries.parquet"
CHARTS = "charts.json"
REPETITIONS = "repetitions.csv"


class RunResult:
    """The result of one run. ``record`` holds the raw rows; everything else is derived from them.

    Of a run with repetitions they are the rows of the first one; ``further`` are the summaries of
    the other ones that finished.
    """

    def __init__(
        self, record: RunRecord, further: Sequence[dict[str, Any]] = (), *, own: bool = True
    ) -> None:
        self.record = record
        self.scenario = record.scenario
        self.further = further
        self._own = own

    @property
    def interrupted(self) -> bool:
        """Whether a signal ended the run before it was done."""
        return self.record.interrupted or 1 + len(self.further) < self.scenario.run.repetitions

    @cached_property
    def summaries(self) -> list[dict[str, Any]]:
        """The figures of each repetition; those of the run, if there is but one."""
        return [self._measured(), *self.further]

    def _measured(self) -> dict[str, Any]:
        """The figures of the first repetition, and metrics of one's own where they are wanted."""
        summary = summarise(self.record)
        if self._own and self.scenario.metrics:
            functions = load_metrics(self.scenario.metrics, self.scenario.folders)
            values, notes = own_metrics(functions, lambda: RunResult(self.record, own=False))
            summary["infersim"]["metrics"] = values
            summary["infersim"]["notes"] += notes
        return summary

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures, as in ``summary.json``: of several repetitions, their means."""
        wanted = self.scenario.run.repetitions
        return combine(self.summaries, wanted) if wanted > 1 else self.summaries[0]

    def add_changes(self) -> None:
        """Put into the summary how the scenario differs from its file."""
        self.summary["infersim"]["asked"] |= changed(self.scenario)

    def add_ends(self, ends: dict[str, Any]) -> None:
        """Put what was found at both ends of the error band (``sim.band_runs``) into the summary.

        An SLO that is met at one end and missed at the other is too close to call; one that both
        ends miss is missed.
        """
        own = self.summary["infersim"]
        own["ends"] = ends
        if not ends["decided"]:
            text = opened(own["verdict"]["text"])
            own["verdict"] |= {"slo_state": SloState.OPEN, "slo_headroom": None, "text": text}
            own["verdict"] |= doubts_at_ends(own["verdict"], ends)
            self._ask_for_one_number()
        elif missed_at_ends(own["verdict"], ends):
            own["verdict"] |= {"slo_state": SloState.MISSED, "slo_doubts": [], "slo_headroom": 0.0}
            own["verdict"]["requests_to_decide"] = None

    def _ask_for_one_number(self) -> None:
        """Let the percentile ask for as many requests as the verdict, and the other way round,
        unless the run has not settled."""
        own = self.summary["infersim"]
        verdict, text = own["verdict"], own["precision"]["text"]
        most, needed = verdict["requests_to_decide"], own["precision"]["requests_needed"]
        if most is None or needed is None:
            return
        if verdict["settled"] is not False:
            most = max(most, needed)
        verdict["requests_to_decide"] = most
        own["precision"]["text"] = asking(text, most, verdict["reach"])
        own["notes"] = [own["precision"]["text"] if n == text else n for n in own["notes"]]

    @cached_property
    def charts(self) -> dict[str, Any]:
        """Data for charts beyond the metrics and the tables, as in ``charts.json``."""
        return charts(self.record)

    @cached_property
    def repetitions(self) -> pd.DataFrame:
        """One row per repetition: its number, seed and headline figures, NaN where undefined."""
        import pandas as pd  # noqa: PLC0415 - takes longer to import than many runs take

        frame = pd.DataFrame(self._repetition_rows())
        figures = frame.columns.drop(["repetition", "seed"])
        return frame.astype({name: "float64" for name in figures if frame[name].dtype == object})

    @cached_property
    def requests(self) -> pd.DataFrame:
        """One row per request, in order of arrival; times in seconds."""
        import pandas as pd  # noqa: PLC0415 - takes longer to import than many runs take

        return pd.DataFrame(self._request_columns())

    @cached_property
    def timeseries(self) -> pd.DataFrame:
        """One row per plan, a run of ``iterations`` iterations over one batch; times in seconds."""
        import pandas as pd  # noqa: PLC0415

        return pd.DataFrame(self._timeseries_columns())

    @cached_property
    def chunks(self) -> pd.DataFrame | None:
        """One row per part of a prompt that an iteration computed; None where not recorded."""
        import pandas as pd  # noqa: PLC0415

        trail = self.record.trail
        return None if trail is None else pd.DataFrame(chunk_columns(trail[0]))

    @cached_property
    def absences(self) -> pd.DataFrame | None:
        """One row per time that a request was preempted, or had caught up; None where not
        recorded."""
        import pandas as pd  # noqa: PLC0415

        trail = self.record.trail
        return None if trail is None else pd.DataFrame(absence_columns(trail[1]))

    def __repr__(self) -> str:
        found = self.summary
        count, state = counted(found["completed"]), found["infersim"]["verdict"]["state"]
        return f"<Result of {self.scenario.name}: {count} requests completed, {state}>"

    def _repr_html_(self) -> str:
        from sim.results.notebook import result_html  # noqa: PLC0415 - of notebooks alone

        return result_html(self.shown)

    def page_contents(self) -> dict[str, Any]:
        """The contents of the page, by the parameters of ``reports.render``."""
        self.add_changes()
        chunks, absences = self.chunks, self.absences
        return {
            "summary": self.shown,
            "requests": self.requests,
            "timeseries": self.timeseries,
            "scenario_yaml": self.scenario.to_yaml(),
            "charts": self.charts,
            "trail": None if chunks is None or absences is None else Trail(chunks, absences),
        }

    def timeline(self) -> Timeline:
        """How many requests ran and waited over time; of several repetitions, in the first one."""
        run, known = self.record, self.summary["infersim"]["batch"]
        rows = run.accepted
        queued = run.reached(rows)
        start = float(run.requests["arrival"].min()) if len(run.requests) else 0.0
        return Timeline(
            start,
            start + run.duration,
            run.replicas,
            None if known["peak_running"] is None else running(self._timeseries_columns()),
            None if known["peak_waiting"] is None else waiting(queued, rows["scheduled"]),
        )

    @property
    def shown(self) -> dict[str, Any]:
        """The figures that people see of the run."""
        return self.summary

    def save(self, directory: Path | str | RunDirectory) -> Path:
        """Write the run directory ``directory``, new or empty or just created; return its path.

        The manifest says ``complete``, or ``interrupted``, last of all: a directory that does not
        is one whose writing was cut short.
        """
        if not isinstance(directory, RunDirectory):
            directory = RunDirectory.create(Path(directory), self.scenario)
        path = directory.path
        self.save_summary(path)
        write_json(path / CHARTS, self.charts)
        if self.scenario.run.repetitions > 1:
            write_whole(path / REPETITIONS, self._write_repetitions)
        write_whole(path / REQUESTS, lambda file: write_parquet(file, self._request_columns()))
        write_whole(path / TIMESERIES, lambda file: write_groups(file, self._timeseries_groups()))
        if self.record.trail is not None:
            write_trail(path, *self.record.trail)
        if self.record.handed is not None and len(self.record.handed):
            write_handovers(path, self.record.handed)
        if self.record.attempts is not None:
            write_attempts(path, self.record.attempts)
        directory.finish(
            "interrupted" if self.interrupted else "complete",
            profile=self.summary["infersim"]["provenance"],
        )
        return path

    def save_summary(self, directory: Path) -> None:
        """Write ``summary.json`` into ``directory``, in place of an earlier one."""
        write_json(directory / SUMMARY, self.summary)

    def _repetition_rows(self) -> list[dict[str, Any]]:
        return [
            {"repetition": number, "seed": summary["infersim"]["seed"], **headlines(summary)}
            for number, summary in enumerate(self.summaries)
        ]

    def _write_repetitions(self, path: Path) -> None:
        rows = self._repetition_rows()
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            table.writeheader()
            table.writerows(rows)

    def _request_columns(self) -> dict[str, NDArray[Any]]:
        return request_columns(self.record)

    def _timeseries_columns(self) -> dict[str, NDArray[Any]]:
        return timeseries_columns(self.record)

    def _timeseries_groups(self) -> Iterator[Mapping[str, NDArray[Any]]]:
        return timeseries_groups(self.record)
