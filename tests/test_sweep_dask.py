"""A sweep on a real Dask cluster of separate processes: the same bytes, even if workers die."""

import os
import signal
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sim.cli import app
from sim.errors import UsageError
from sim.planning.dask_cluster import DaskCluster, dask
from sim.planning.executors import InProcess
from sim.planning.points import Outcome, numbered
from tests.planning_fixtures import SMALL, small

distributed = pytest.importorskip("distributed", reason="Dask is not installed: infersim[dask]")

# a worker that is killed leaves its sockets to the collector
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        dashboard_address=":0",
        worker_dashboard_address=None,
        silence_logs=50,
    ) as found:
        yield found


def pids(address: str) -> list[int]:
    """The processes of the cluster's workers."""
    with distributed.Client(address, set_as_default=False) as client:
        return list(client.run(os.getpid).values())


class Killing:
    """The cluster, of which one worker is killed once ``after`` points have come."""

    def __init__(self, inner: DaskCluster, after: int) -> None:
        self.inner, self.after, self.victim = inner, after, 0

    def run(self, scenario: Any, points: Any) -> Iterator[Outcome]:
        for count, outcome in enumerate(self.inner.run(scenario, points), 1):
            yield outcome
            if count == self.after:
                self.victim = pids(self.inner.address)[0]
                os.kill(self.victim, signal.SIGKILL)


def test_a_killed_worker_costs_no_point(cluster: Any) -> None:
    scenario = small(run__requests=600)
    rates = [5, 10, -1, *range(15, 100, 5)]
    points = list(numbered([{"workload.arrivals.rate": rate} for rate in rates]))
    told: list[str] = []
    executor = Killing(dask(cluster.scheduler_address, told.append), after=len(points) // 2)
    found = list(executor.run(scenario, points))
    assert sorted(outcome.point.index for outcome in found) == list(range(len(points)))
    expected = {o.point.index: o for o in InProcess().run(scenario, points)}
    assert {outcome.point.index: outcome for outcome in found} == expected
    assert executor.victim > 0
    assert len(told) == 1
    assert told[0].startswith("1 worker was lost on the way")


def test_the_command_writes_the_same_bytes(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(yaml.safe_dump(SMALL))
    swept = ["sweep", "one.yaml", "--sweep", "seed=1:6:6", "--no-report"]
    there = [*swept, "--executor", "dask", "--address", cluster.scheduler_address, "-o", "there"]
    done = CliRunner().invoke(app, there)
    assert done.exit_code == 0, done.output
    assert "lost" not in done.stderr
    assert CliRunner().invoke(app, [*swept, "--jobs", "1", "-o", "here"]).exit_code == 0
    assert Path("there/result.json").read_bytes() == Path("here/result.json").read_bytes()


def test_a_point_that_kills_every_worker_is_recorded(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly_for_workers.py").write_text(
        "import os, signal\n"
        "from sim.schedulers.continuous import IterationLevel\n"
        "class Deadly(IterationLevel):\n"
        "    def schedule(self, now):\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    limit = import_module("dask").config.set({"distributed.scheduler.allowed-failures": 0})
    with (
        limit,
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            dashboard_address=":0",
            worker_dashboard_address=None,
            silence_logs=50,
        ) as own,
    ):
        settings = [{"scheduler.batching": "deadly_for_workers:Deadly"}, {}]
        told: list[str] = []
        executor = dask(own.scheduler_address, told.append)
        found = {o.point.index: o for o in executor.run(small(), numbered(settings))}
    assert found[0].exit_code == 1
    assert found[0].error is not None
    assert "every worker that ran it died" in found[0].error
    assert found[1].summary is not None
    assert "workers were lost" in told[0]


def test_no_cluster_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.planning.dask_cluster.TIMEOUT", 0.3)
    executor = DaskCluster("tcp://127.0.0.1:9", print)
    with pytest.raises(UsageError, match="no Dask scheduler answers there"):
        list(executor.run(small(), numbered([{}])))
