"""Writes a run of the engine into a directory of the same form as a simulated one.

Same files, same columns, same keys; the manifest says ``kind: observed`` and names the device.
Metrics that only a cost model has (bounds, shares of peaks, energy, an error band) are left empty,
and the time by operator is the measured time by phase. ``iterations.csv`` has the requests of each
iteration. Times in seconds.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

from calibrate.engine.log import Iteration
from calibrate.engine.observed import Observed
from calibrate.validation.front_end import FRONT_END
from sim.results.run_directory import RunDirectory
from sim.results.run_result import RunResult
from sim.results.whole_file import write_whole

ITERATIONS = "iterations.csv"

COLUMNS: dict[str, Callable[[Iteration], object]] = {
    "start_s": lambda i: f"{i.start:.7f}",
    "duration_s": lambda i: f"{i.end - i.start:.7f}",
    "schedule_s": lambda i: f"{i.phases.schedule:.7f}",
    "prepare_s": lambda i: f"{i.phases.prepare:.7f}",
    "forward_s": lambda i: f"{i.phases.forward:.7f}",
    "finish_s": lambda i: f"{i.phases.finish:.7f}",
    "decode_seqs": lambda i: len(i.decodes),
    "padded_seqs": lambda i: i.padded,
    "prefill_seqs": lambda i: len(i.prefills),
    "prefill_tokens": lambda i: sum(tokens for _, _, tokens in i.prefills),
    "decodes": lambda i: " ".join(map(str, i.decodes)),
    "prefills": lambda i: " ".join(f"{request}:{at}+{n}" for request, at, n in i.prefills),
    "preempted": lambda i: " ".join(map(str, i.preempted)),
    "seen_tokens": lambda i: " ".join(map(str, i.seen)),
    "accepted": lambda i: " ".join(map(str, i.accepted)),
    "drafts": lambda i: " ".join(map(str, i.drafts)),
}
"""Of one iteration: ``decodes`` are request ids, ``prefills`` have id:tokens before+tokens,
``seen_tokens`` are how much of their context the decodes see through each window of the model,
``accepted`` how many drafts of each of them were right, of the ``drafts`` that were checked."""


class ObservedDirectory(RunDirectory):
    """A run directory whose manifest also names the device of the run."""

    def describe(self, entries: dict[str, Any]) -> None:
        """Further entries of the manifest; they appear when it is written last of all."""
        self._manifest |= entries


class ObservedResult(RunResult):
    """Figures and tables of an observed run."""

    def __init__(self, observed: Observed) -> None:
        super().__init__(observed.record)
        self.observed = observed

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The summary of a simulated run; what was not measured is null or empty."""
        figures = dict(self.summaries[0])
        figures["infersim"] = _own(figures["infersim"], self.observed)
        return figures

    @cached_property
    def charts(self) -> dict[str, Any]:
        """The charts of a simulated run, without what a real device moves and computes, which is
        not counted."""
        return super().charts | {"roofline": None}

    def save(self, directory: Path | str | RunDirectory) -> Path:
        """Write the run directory ``directory``, new or empty or made by ``ObservedDirectory``."""
        if not isinstance(directory, RunDirectory):
            directory = ObservedDirectory.create(Path(directory), self.scenario)
        if isinstance(directory, ObservedDirectory):
            directory.describe(manifest(self.observed))
        write_whole(directory.path / ITERATIONS, self._write_iterations)
        return super().save(directory)

    def _write_iterations(self, path: Path) -> None:
        contexts = self.record.plans["context"].tolist()
        with path.open("w", encoding="utf-8", newline="") as file:
            table = csv.writer(file)
            table.writerow(["iteration", *COLUMNS, "context_tokens"])
            for number, iteration in enumerate(self.observed.iterations):
                cells = [column(iteration) for column in COLUMNS.values()]
                table.writerow([number, *cells, contexts[number]])


def manifest(observed: Observed) -> dict[str, Any]:
    """The additions to the manifest for an observed run, over that of a simulated one."""
    return {
        "kind": "observed",
        FRONT_END: "none",  # whichever engine it was, it was driven in this process
        "device": observed.facts.document(),
        "engine": {
            "name": observed.engine.name,
            "version": observed.engine.version,
            "settings": dict(observed.engine.settings),
            "precision": observed.precision,
            "attention": observed.attention,
            "sampling": observed.sampling,
        },
    }


def _own(own: dict[str, Any], observed: Observed) -> dict[str, Any]:
    """The part of the summary that is infersim's own."""
    facts = observed.facts
    torch_version = facts.details["torch"]
    engine = f"{observed.engine.name} {observed.engine.version}"
    place = f"{facts.name}, PyTorch {torch_version}, {observed.precision}"
    requests = own["requests"]
    served = f"{requests['completed']:,} of {requests['submitted']:,} requests were completed"
    unknown = {"utilisation": None, "utilisation_error": None, "headroom": None}
    drift = {"drift_per_s": None, "drift_error_per_s": None}
    verdict = {"state": "observed", "text": f"Observed: {served}."}
    no_band: dict[str, Any] = {
        "throughput": None,
        "ttft": None,
        "tpot": None,
        "half": None,
        "parts": {},
    }
    return own | {
        "kind": "observed",
        "gpu": facts.name,
        "verdict": own["verdict"] | unknown | drift | verdict,
        "utilisation": own["utilisation"] | {"mfu": None, "mbu": None},
        "bound_by": {},
        "time_by_operator": _phases(observed),
        "operators": {},
        "memory": None,
        "cost": None,
        "energy": None,
        "error_band": own["error_band"]
        | no_band
        | {"text": "Measured, not predicted; what a second run would differ by is not in it."},
        "provenance": f"Observed on {place}; {engine}, attention: {observed.attention}",
    }


def _phases(observed: Observed) -> dict[str, float]:
    """Shares of the busy time. What an iteration leaves to do is part of the next one's."""
    spent = {"forward": 0.0, "schedule": 0.0, "prepare": 0.0}
    for iteration in observed.iterations:
        spent["forward"] += iteration.phases.forward
        spent["schedule"] += iteration.phases.schedule
        spent["prepare"] += iteration.phases.prepare
    total = sum(spent.values())
    return {name: seconds / total if total else 0.0 for name, seconds in spent.items()}
