"""Writes down what clients sent, as the trace of a scenario that simulates the session again.

The trace grows with every request, so that it is there whatever ends the process; tables and
figures follow when the server stops.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sim.results.run_directory import RunDirectory
from sim.results.whole_file import write_text
from sim.scenario import Scenario
from sim.scenario.text.document import Document
from sim.scenario.text.writing import write_yaml
from sim.workload.traces.plain import CANCELLED

TRACE, BLOCKS = "trace.csv", "trace.jsonl"
"""The file next to the scenario that has the requests; the second, with the blocks of prompts."""

HEAD = (
    "# What clients sent to `infersim serve`, as they sent it, and what operators did meanwhile.\n"
    "# `infersim run` gives the same run.\n"
)


def replayed(
    scenario: Scenario,
    base: Path,
    file: tuple[str, str] = (TRACE, "csv"),
    horizon: float | None = None,
    head: str = HEAD,
    steps: Sequence[Mapping[str, Any]] = (),
) -> Scenario:
    """``scenario`` with a recorded trace for its traffic: a ``file`` (name, format) in the folder
    ``base``, where it is to stand under this ``head``.

    ``horizon`` is when a session ended that left requests unfinished (s); None if it left none.
    ``steps`` are what was done to replicas, in addition to what the scenario says.
    """
    data = scenario.written()
    trace: dict[str, Any] = {"path": file[0], "format": file[1]}
    workload: dict[str, Any] = {"trace": trace}
    if classes := data["workload"].get("classes"):
        workload["classes"] = [
            {key: value for key, value in item.items() if key != "share"} for item in classes
        ]
    data = {**data, "workload": workload}
    kept = {"leap"} & (data.get("run") or {}).keys()
    data["run"] = {key: data["run"][key] for key in kept}
    if horizon is not None:
        data["run"]["horizon"] = horizon
    if steps:
        steering = data.get("steering") or {}
        data["steering"] = {**steering, "steps": [*steering.get("steps", ()), *steps]}
    text = head + write_yaml(data)
    return Scenario.from_document(Document(data, base.absolute(), text=text))


class Record:
    """The trace of a session of ``scenario``, in the run directory ``path``, which appears now.

    A trace for a fleet that ``caches`` prefixes names the blocks of prompts; one of classes
    (``ranked``) has the priority of each request. When clients went away is added at the end.
    UsageError if it cannot be written.
    """

    def __init__(self, path: Path, scenario: Scenario, *, ranked: bool, caches: bool) -> None:
        self.path = path
        self.requests = 0
        self._scenario = scenario
        self._ranked = ranked
        self._name, self._format = (BLOCKS, "bailian") if caches else (TRACE, "csv")
        self._gone: dict[int, float] = {}
        with TemporaryDirectory() as folder:  # a scenario's trace is there when it is read
            Path(folder, self._name).touch()
            written = self._replayed(Path(folder), None).moved(path.absolute())
        self._place = RunDirectory.create(path, written)
        self._trace = (path / self._name).open("x", encoding="ascii", buffering=1)
        if not caches:
            ranks = ",priority" if ranked else ""
            self._trace.write(f"arrival_s,prompt_tokens,output_tokens{ranks}\n")

    def _replayed(
        self, base: Path, horizon: float | None, steps: Sequence[Mapping[str, Any]] = ()
    ) -> Scenario:
        file = self._name, self._format
        return replayed(self._scenario, base, file, horizon, steps=steps)

    @property
    def gone(self) -> int:
        """Requests that were cancelled."""
        return len(self._gone)

    def add(
        self, arrival: float, prompt: int, output: int, priority: int, blocks: Sequence[int]
    ) -> None:
        """A request came, with that many tokens; the time is kept to the last bit."""
        self.requests += 1
        if self._name == TRACE:
            ranks = f",{priority}" if self._ranked else ""
            self._trace.write(f"{arrival!r},{prompt},{output}{ranks}\n")
            return
        row: dict[str, Any] = {"timestamp": arrival, "input_length": prompt}
        row |= {"output_length": output} | ({"priority": priority} if self._ranked else {})
        self._trace.write(f"{json.dumps(row | {'hash_ids': list(blocks)})}\n")

    def cancelled(self, number: int, waited: float) -> None:
        """The client of that request went away so long (s) after its arrival."""
        self._gone[number] = waited

    def finish(
        self, horizon: float | None, steps: Sequence[Mapping[str, Any]] = ()
    ) -> tuple[RunDirectory, Scenario]:
        """The directory, to be filled, and the scenario of the run that it is about, with the
        ``steps`` that operators took; at least one request has come."""
        self._trace.close()
        if self._gone:
            self._mark_cancelled()
        scenario = self._replayed(self.path, horizon, steps)
        if horizon is not None or steps:
            self._place.restate(scenario)
        return self._place, scenario

    def _mark_cancelled(self) -> None:
        """Say in the trace which requests were cancelled, and when."""
        file, gone = self.path / self._name, self._gone
        rows = file.read_text(encoding="ascii").splitlines()
        if self._name == TRACE:
            head, *rows = rows
            times = [repr(gone[i]) if i in gone else "" for i in range(len(rows))]
            rows = [f"{row},{time}" for row, time in zip(rows, times, strict=True)]
            rows = [f"{head},{CANCELLED}", *rows]
        else:
            rows = [
                f'{row[:-1]}, "{CANCELLED}": {gone[i]!r}}}' if i in gone else row
                for i, row in enumerate(rows)
            ]
        write_text(file, "\n".join(rows) + "\n")

    def discard(self) -> None:
        """No request came: take the directory back."""
        self._trace.close()
        (self.path / self._name).unlink(missing_ok=True)
        self._place.discard()
