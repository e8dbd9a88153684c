"""Provides the decisions of the command line to Python: find, plan, compare, sweep, and reports.

Each function takes a scenario, its path or a mapping, answers without writing or printing anything,
and returns an ``Answer``; what a command calls ``--tensor-parallel`` is ``tensor_parallel`` here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.errors import InfersimError, UsageError
from sim.result import Result, write_page
from sim.scenario import AnyScenario, Scenario, as_scenario

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from sim.planning.load.loads import Kind, Scale
    from sim.planning.points.grid import Axis


Prices = Mapping[str, float | str] | Path | str | None
"""US dollars for a GPU hour by GPU, or the path of a file with them; None: the catalogue's."""


class Answer:
    """The answer to a question: a mapping, as a command's ``result.json``.

    Printed, and shown in a notebook, it is the table that the command prints.
    """

    def __init__(
        self, document: Mapping[str, Any], view: Callable[[Mapping[str, Any]], RenderableType]
    ) -> None:
        self._document = dict(document)
        self._view = view

    def document(self) -> dict[str, Any]:
        """The whole answer as plain data, as in ``result.json``."""
        return self._document

    def table(self) -> pd.DataFrame:
        """The points of a sweep, variants of a comparison, fleets of a plan or loads of a search,
        a row each: the settings, then what is a single value, then of a sweep's points the
        ``state`` and ``slo_met`` of the verdict, then the figures of the run by their keys in
        ``summary.json`` (of several runs their means)."""
        import pandas as pd  # noqa: PLC0415 - slow to import

        return pd.DataFrame(_rows(self._document))

    def __getitem__(self, key: str) -> Any:
        return self._document[key]

    def __repr__(self) -> str:
        return f"<Answer of {self['command']}: {', '.join(self._document)}>"

    def __str__(self) -> str:
        from sim.terminal.console import as_text  # noqa: PLC0415 - rich is slow to import

        return as_text(self._view(self._document))

    def _repr_html_(self) -> str:
        from sim.terminal.console import as_html  # noqa: PLC0415

        return as_html(self._view(self._document))

    def report(self, path: Path | str) -> Path:
        """Write the page of the answer to ``path``, a file or a folder; return where it is."""
        from reports.pages.planning.findings import render  # noqa: PLC0415 - plotly is slow

        return write_page(path, render(self["command"], self._document))


LISTS = ("results", "variants", "fleets", "probes")
"""Where a document has what it compares."""


def _rows(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries that a document compares, each as one flat mapping."""
    from sim.metrics.repetitions import headlines  # noqa: PLC0415

    listed = next((document[name] for name in LISTS if name in document), None)
    if listed is None:
        raise UsageError(f"an answer of {document['command']} is no table: see document()")
    rows = []
    for place, entry in enumerate(listed):
        single = {k: v for k, v in entry.items() if not isinstance(v, dict | list)}
        single.pop("summary", None)  # of a point that failed
        found: dict[str, Any] = {}
        if summary := entry.get("summary"):
            verdict = summary["infersim"]["verdict"]
            found = {"state": verdict["state"], "slo_met": verdict["slo_met"], **headlines(summary)}
        found |= {f["key"]: f["means"][place] for f in document.get("figures", ())}
        rows.append({**entry.get("settings", {}), **single, **found})
    return rows


def find(
    scenario: AnyScenario,
    load: Kind = "rate",
    *,
    tolerance: float = 0.02,
    scale: Scale = "compress",
    prices: Prices = None,
    jobs: int = -1,
) -> Answer:
    """The highest load that meets the SLO, as ``infersim find``.

    ``load`` is "rate" (requests/s) or "concurrency" (users of a closed loop), ``tolerance`` how
    far, relatively, the loads that hold and fail may lie apart. ``scale`` is how a trace gets
    another load: "compress" its time, or "overlay" copies of it (more users). ``prices`` are US
    dollars for a GPU hour in place of the catalogue's: a mapping such as ``{"h100-sxm": 2.40}``, or
    the path of a YAML or CSV file. ``jobs`` are the processes that simulate, -1 for one a core.
    Raises InfeasibleError where no load meets it.
    """
    from sim.planning.load.find import find as search  # noqa: PLC0415 - slow to import
    from sim.planning.load.find_document import document  # noqa: PLC0415
    from sim.terminal.findings import command_view  # noqa: PLC0415

    with _parameters():
        if not 0.001 <= tolerance <= 0.5:
            raise UsageError(f"tolerance {tolerance:g}: expected 0.001 to 0.5")
        loaded = as_scenario(scenario)
        loaded = _priced(loaded, prices, [pool.gpu for pool in loaded.pools])
        found = search(loaded, load, tolerance=tolerance, scale=scale, jobs=jobs)
        return Answer(document(found), partial(command_view, "find"))


def plan(
    scenario: AnyScenario,
    gpus: Sequence[str],
    *,
    tensor_parallel: Sequence[int] = (),
    pipeline_parallel: Sequence[int] = (),
    data_parallel: Sequence[int] = (),
    expert_parallel: Sequence[bool] = (),
    rate: float | str = "1x",
    scale: Scale = "compress",
    headroom: float = 0.2,
    precision: Sequence[str] = (),
    top: int = 5,
    constraint: str | None = None,
    survive: int = 0,
    disaggregate: bool = False,
    prices: Prices = None,
    jobs: int = -1,
) -> Answer:
    """The cheapest fleets of ``gpus`` (``["all"]``: all of the catalogue that have a price) that
    hold a load within the SLO, as ``infersim plan``.

    ``tensor_parallel`` are the GPUs that share each layer: left out, those of 1, 2, 4 and 8 with
    which a replica is no larger than a node. ``pipeline_parallel`` are the stages to choose from,
    ``data_parallel`` and ``expert_parallel`` the choices of ranks that share experts, and of whole
    experts on each GPU: left out, the scenario's stages and ranks, and for experts both.
    ``rate`` is requests per second, or text such as "3x" for a multiple of the scenario's own;
    ``scale`` is how a trace gets it: "compress" its time, or "overlay" copies of it (more users);
    ``survive`` replicas may fail, and those left hold the rate within the SLO; ``disaggregate``
    asks for fleets that prefill and decode apart, of these ``gpus`` and ``tensor_parallel`` alone;
    ``prices`` are US dollars for a GPU hour, as in ``find``; ``jobs`` the processes that simulate,
    -1 for one a core. Raises InfeasibleError, with the reasons, where no fleet does.
    """
    from sim.planning.fleet.layouts import cards  # noqa: PLC0415
    from sim.planning.fleet.wish import FleetWish  # noqa: PLC0415
    from sim.terminal.findings import command_view  # noqa: PLC0415

    with _parameters():
        loaded = as_scenario(scenario)
        loaded = _priced(loaded, prices, chosen := cards(loaded, _names("gpus", gpus)))
        if disaggregate and (precision or constraint is not None or survive):
            raise UsageError("disaggregate: leave out precision, constraint and survive")
        wish = FleetWish(
            gpus=chosen,
            tensor_parallel=tensor_parallel,
            pipeline_parallel=pipeline_parallel,
            data_parallel=data_parallel,
            expert_parallel=expert_parallel,
            precision=_names("precision", precision),
            rate=str(rate),
            scale=scale,
            headroom=headroom,
            top=top,
            constraint=constraint,
            survive=survive,
            disaggregate=disaggregate,
        )
        file = str(scenario) if isinstance(scenario, str | Path) else "SCENARIO"
        found = wish.answer(loaded, wish.question(loaded), jobs=jobs, file=file)
        return Answer(found, partial(command_view, "plan"))


def compare(
    what: AnyScenario | Sequence[str | Path],
    vary: Mapping[str, Sequence[object]] | None = None,
    *,
    repetitions: int | None = None,
    prices: Prices = None,
    jobs: int = -1,
) -> Answer:
    """Variants on the same traffic with paired differences, as ``infersim compare``.

    ``what`` is a scenario of which ``vary`` gives dotted keys several values, each variant
    simulated ``repetitions`` times (5 unless the scenario says more), with ``prices`` as in
    ``find``; or a list of run directories.
    """
    from sim.planning.contrast.compare import REPETITIONS, Comparison  # noqa: PLC0415
    from sim.planning.contrast.runs import compare_runs  # noqa: PLC0415
    from sim.planning.points.executors import local  # noqa: PLC0415
    from sim.terminal.findings import command_view  # noqa: PLC0415

    view = partial(command_view, "compare")
    with _parameters():
        if isinstance(what, list | tuple):
            if vary or prices or repetitions is not None:
                raise UsageError("run directories are compared as they are; vary a scenario")
            return Answer(compare_runs([Path(path) for path in what]), view)
        loaded = _priced(as_scenario(what), prices, None)  # type: ignore[arg-type]
        usual = loaded.run.repetitions if loaded.run.repetitions > 1 else REPETITIONS
        wanted = usual if repetitions is None else repetitions
        asked = Comparison(loaded, _axes("vary", vary), wanted)
        return Answer(asked.run(local(jobs)), view)


def sweep(
    scenario: AnyScenario,
    over: Mapping[str, Sequence[object]],
    *,
    prices: Prices = None,
    jobs: int = -1,
) -> Answer:
    """Every point of a grid, as ``infersim sweep``: ``over`` gives dotted keys their values, and
    ``prices`` are those of GPU hours, as in ``find``."""
    from sim.planning.points.executors import local  # noqa: PLC0415
    from sim.planning.points.grid import check_values  # noqa: PLC0415
    from sim.planning.sweep.sweep import Sweep, document  # noqa: PLC0415
    from sim.terminal.findings import command_view  # noqa: PLC0415

    with _parameters():
        asked = Sweep(_priced(as_scenario(scenario), prices, None), _axes("over", over))
        check_values(asked.scenario, asked.axes)
        outcomes = list(local(jobs).run(asked.scenario, asked.grid))
        return Answer(document(asked, outcomes), partial(command_view, "sweep"))


def report(result: Result | Answer, path: Path | str) -> Path:
    """Write the page of a run or of an answer to ``path`` and return where it is.

    A folder gets a ``report.html``. Raises InfersimError where it cannot be written.
    """
    return result.report(path)


@contextmanager
def _parameters() -> Iterator[None]:
    """Errors that name an option of the command line name the parameter of the function."""
    try:
        yield
    except InfersimError as error:
        text = re.sub(r"--([a-z][a-z-]+)", lambda match: match[1].replace("-", "_"), str(error))
        error.args = (text,)
        raise


def _priced(scenario: Scenario, prices: Prices, gpus: Sequence[str] | None) -> Scenario:
    """The scenario with these prices of GPU hours, for ``gpus`` as the caller spells them (None:
    not known yet)."""
    from sim.scenario.given_prices import with_prices  # noqa: PLC0415

    if isinstance(prices, str | Path):
        return with_prices(scenario, [], Path(prices), gpus)
    if not isinstance(prices, Mapping | None):
        raise UsageError(
            "prices: expected US dollars for a GPU hour by GPU, such as {'h100-sxm': 2.40}, or the "
            "path of a file with them"
        )
    return with_prices(
        scenario, [f"{gpu}={usd}" for gpu, usd in (prices or {}).items()], None, gpus
    )


def _names(parameter: str, names: Sequence[str]) -> list[str]:
    """Several names; UsageError for a single text, whose letters would be taken one by one."""
    if isinstance(names, str):
        raise UsageError(f"{parameter}: expected a list of names, such as [{names!r}]")
    return list(names)


def _axes(parameter: str, axes: Mapping[str, Sequence[object]] | None) -> tuple[Axis, ...]:
    """The axes that a mapping of keys to values spans; UsageError where there is none."""
    from sim.planning.points.grid import Axis  # noqa: PLC0415

    example = f"{parameter}={{'scheduler.max_num_seqs': [64, 128, 256]}}"
    if not isinstance(axes, Mapping) or not axes:
        raise UsageError(f"{parameter}: expected keys with their values, such as {example}")
    for key, values in axes.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise UsageError(f"{parameter}: {key} needs a list of values, such as {example}")
    return tuple(Axis(key, tuple(values)) for key, values in axes.items())
