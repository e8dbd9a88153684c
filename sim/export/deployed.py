"""Reads the fleet that Docker or Kubernetes is to start, out of a plan, a run or a scenario."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from sim import catalog
from sim.errors import UsageError
from sim.planning.fleet.launch import EACH, SIMULATED, TITLES, launch_commands
from sim.planning.points.wording import counted, held_text
from sim.results.run_directory import RESOLVED
from sim.results.run_result import SUMMARY
from sim.results.stored import read_object, read_summary
from sim.scenario import load_scenario
from sim.scenario.sections.autoscaling import Autoscaling, Replicas
from sim.setup import prepare
from sim.specs.gpu import GpuSpec
from sim.units import show_load, show_time

RESULT = "result.json"
APART = "has several pools, or pools that prefill and decode apart; one pool is written to a file"


class Start(NamedTuple):
    """How one replica starts: an ``engine`` of ``TITLES``, its ``release`` (empty: unknown), the
    ``words`` of the command, and ``notes`` on what they leave open."""

    engine: str
    release: str
    words: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ExportedFleet:
    """Identical replicas of ``gpus`` GPUs each, and what was ``predicted`` of them, in paragraphs.

    ``driver`` is the name that the driver of a GPU gives it; empty where it is not known.
    ``between`` has the numbers of replicas that ``scaling`` chooses from; None: there is no rule.
    """

    name: str
    start: Start
    gpu: GpuSpec
    driver: str
    gpus: int
    replicas: int
    router: str
    predicted: tuple[str, ...]
    scaling: Autoscaling | None = None
    between: Replicas | None = None


def read_fleet(target: Path, rank: int | None = None) -> ExportedFleet:
    """The fleet of a plan's directory with that ``rank`` (None: the cheapest that is sure to hold
    its load), or that of a run's directory or a scenario; UsageError for any other."""
    if (target / RESULT).is_file():
        return _of_plan(target / RESULT, rank)
    if rank is not None:
        raise UsageError(f"--fleet {rank}: {target} is no directory of a plan, which ranks fleets")
    if not target.is_dir():
        said = f"Not simulated yet: `infersim run {shlex.quote(str(target))}` predicts its latency."
        return _of_scenario(target, (said,))
    for name in (RESOLVED, SUMMARY):
        if not (target / name).is_file():
            raise UsageError(f"{target}: is no directory of a run or a plan: it has no {name}")
    summary = read_summary(target / SUMMARY)
    own = summary["infersim"]
    load = f"Predicted at {(own.get('asked') or {}).get('traffic', 'its load')}"
    verdict, sure = own["verdict"].get("text", ""), (own.get("bands") or {}).get("text", "")
    return _of_scenario(target / RESOLVED, (f"{load}: {_latencies(summary)}. {verdict}", sure))


def _of_plan(path: Path, rank: int | None) -> ExportedFleet:
    document = read_object(path)
    if document.get("command") != "plan":
        raise UsageError(f"{path}: is no answer of `infersim plan`")
    if document.get("kind") == "apart":
        raise UsageError(f"{path}: {APART}")
    try:
        fleet, replicas, said = _chosen(document, path, rank)
        gpus = fleet["gpus"] // fleet["replicas"]
        load = f"Predicted at {show_load(document['rate'])} requests/s"
        return ExportedFleet(
            document["scenario"],
            _start(fleet["launch"], document["engine"]),
            *_card(fleet["gpu"], gpus),
            gpus,
            replicas,
            document["router"],
            (f"{load}: {_latencies(fleet)}. {said}",),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path}: is not a whole plan ({error!r})") from None


def _chosen(
    document: Mapping[str, Any], path: Path, rank: int | None
) -> tuple[Mapping[str, Any], int, str]:
    """The fleet of a plan with that ``rank`` (None: the cheapest that is sure, else the first), its
    replicas, which are more than it was ranked with where only those are sure, and how sure it
    is."""
    fleets, sure = document["fleets"], document["ranking"]["sure"]
    known = {each["rank"]: each for each in fleets}
    if rank is not None and rank not in known:
        raise UsageError(f"--fleet {rank}: {path} ranks {counted(len(fleets), 'fleet')}")
    if rank is None and sure is not None:
        fleet = next(each for each in fleets if each["layout"] == sure["layout"])
        if (more := sure["replicas"]) != fleet["replicas"]:
            ranked = f"{counted(fleet['replicas'], 'replica')}, rank {fleet['rank']} of the plan"
            return fleet, more, f"That is of {ranked}; {more:,} are sure to hold the rate."
    else:
        fleet = known[rank or 1]
    alone = "No fleet of the plan is sure to. " if rank is None and sure is None else ""
    held = held_text(fleet["error_band"]["trust"])[1]
    return fleet, fleet["replicas"], f"{held} {alone}Rank {fleet['rank']} of the plan."


def _latencies(figures: Mapping[str, Any]) -> str:
    """The mean and the 99th percentile of TTFT and TPOT.

    >>> _latencies({"mean_ttft_ms": 48.2, "p99_ttft_ms": 170.1, "mean_tpot_ms": 8.18})
    'TTFT mean 48.2 ms, TTFT p99 170 ms, TPOT mean 8.18 ms'
    """
    keys = [(name, rank) for name in ("ttft", "tpot") for rank in ("mean", "p99")]
    values = {f"{name.upper()} {rank}": figures.get(f"{rank}_{name}_ms") for name, rank in keys}
    return ", ".join(f"{k} {show_time(ms / 1e3)}" for k, ms in values.items() if ms is not None)


def _of_scenario(path: Path, predicted: tuple[str, ...]) -> ExportedFleet:
    scenario = load_scenario(path)
    if len(scenario.pools) != 1:
        raise UsageError(f"{path}: {APART}")
    (pool,) = prepare(scenario).pools
    between, gpus = pool.settings.scales, pool.deployment.layout.gpus
    return ExportedFleet(
        scenario.name,
        _start(launch_commands(scenario), pool.settings.engine),
        *_card(pool.settings.gpu, gpus, scenario.base),
        gpus,
        pool.replicas if between is None else between.first,
        scenario.router,
        predicted,
        None if between is None else scenario.autoscaling or Autoscaling(),
        between,
    )


def _start(launch: Mapping[str, Any], label: str) -> Start:
    """The first command of ``launch``, where an engine of that ``label`` was simulated."""
    engine = next(each for each in launch if each in TITLES)
    notes = [each for each in launch["notes"] if not each.startswith((SIMULATED, EACH))]
    if not label.startswith(engine):
        notes.append(f"Simulated was {label}, which has no command here; {TITLES[engine]} starts.")
    release = label.partition("@")[2] if label.startswith(engine) else ""
    words = tuple(shlex.split(launch[engine]))
    notes += [f"Mount {word} into each container." for word in words if word.startswith("/")]
    return Start(engine, release, words, tuple(notes))


def _card(gpu: str, gpus: int, base: Path | None = None) -> tuple[GpuSpec, str]:
    """A GPU of NVIDIA or AMD, whose nodes have as many as one replica takes, and its driver's name
    for it."""
    spec = catalog.gpu(gpu, base)
    part = next((each for each in (gpu, spec.part) if each in catalog.names("gpus")), None)
    names: Any = {} if part is None else catalog.raw("gpus", part)["names"]
    driver = str(names.get("driver", ""))
    if driver and not driver.startswith(("NVIDIA", "Tesla", "AMD")):
        raise UsageError(f"{gpu}: files for containers are written for GPUs of NVIDIA and AMD")
    if spec.node.split(gpus)[1] > 1:
        raise UsageError(
            f"One replica takes {gpus} GPUs, more than the {spec.node.gpus} of a node of "
            f"{spec.title}: it wants a LeaderWorkerSet, which is not written"
        )
    return spec, driver
