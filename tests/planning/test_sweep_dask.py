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
from sim.planning.points.dask_cluster import DaskCluster, dask
from sim.planning.points.executors import InProcess
from sim.planning.points.points import Outcome, numbered
from tests.planning_fixtures import SMALL, small

distributed = pytest.importorskip("distributed", reason="Dask is not installed: infersim[dask]")

# a worker that is killed leaves its sockets to the collector
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@pytest.fixture(scope="module", autouse=True)
def _patient() -> Iterator[None]:
    """A busy machine may take minutes to start processes and to connect them."""
    with (
        import_module("dask").config.set({"distributed.comm.timeouts.connect": "300s"}),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr("sim.planning.points.dask_cluster.TIMEOUT", 300)
        yield


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


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Makes the cluster lose a worker half-way through ``POINTS``; the process that was killed.

    As many points as the cluster is at are left by then, so that it has some of them.
    """
    killed: list[int] = []
    whole = DaskCluster.run

    def run(self: DaskCluster, scenario: Any, points: Any) -> Iterator[Outcome]:
        victim = pids(self.address)[0]
        for count, outcome in enumerate(whole(self, scenario, points), 1):
            yield outcome
            if count == POINTS // 2:
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

    monkeypatch.setattr(DaskCluster, "run", run)
    return killed


POINTS = 40


def test_a_killed_worker_costs_no_point_and_no_byte(
    cluster: Any, killing: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(yaml.safe_dump(SMALL))
    rates = ",".join(str(5 * step) for step in range(1, POINTS + 1))
    swept = ["sweep", "one.yaml", "--set", "run.requests=300", "--no-report"]
    swept += ["--sweep", f"workload.arrivals.rate={rates}"]
    there = [*swept, "--executor", "dask", "--address", cluster.scheduler_address, "-o", "there"]
    done = CliRunner().invoke(app, there)
    assert done.exit_code == 0, done.output
    assert "note: 1 worker was lost on the way; what they were at (" in done.stderr
    (victim,) = killing
    assert victim != os.getpid()
    assert victim not in pids(cluster.scheduler_address)
    assert Path("there/points.jsonl").read_bytes().count(b"\n") == POINTS
    assert CliRunner().invoke(app, [*swept, "--jobs", "1", "-o", "here"]).exit_code == 0
    assert Path("there/result.json").read_bytes() == Path("here/result.json").read_bytes()


def test_nothing_is_told_of_workers_that_stay(cluster: Any) -> None:
    told: list[str] = []
    points = list(numbered([{"seed": seed} for seed in range(6)]))
    found = {
        o.point.index: o for o in dask(cluster.scheduler_address, told.append).run(small(), points)
    }
    assert found == {o.point.index: o for o in InProcess().run(small(), points)}
    assert told == []


def test_a_point_that_kills_every_worker_is_recorded(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadly_for_workers.py").write_text(
        "import os, signal\n"
        "from sim.schedulers.iteration_level import IterationLevel\n"
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


@pytest.mark.parametrize("address", ["here", "tcp://here", "tcp://here:there"])
def test_what_is_no_address(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(yaml.safe_dump(SMALL))
    swept = ["sweep", "one.yaml", "--sweep", "seed=1,2", "--executor", "dask", "--address", address]
    done = CliRunner().invoke(app, swept)
    assert done.exit_code == 2
    assert f"--address {address}: " in done.stderr
    assert [entry.name for entry in Path.cwd().iterdir()] == ["one.yaml"]


def test_no_cluster_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.planning.points.dask_cluster.TIMEOUT", 0.3)
    executor = DaskCluster("tcp://127.0.0.1:9", print)
    with pytest.raises(UsageError, match="no Dask scheduler answers there"):
        executor.check()
