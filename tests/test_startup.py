"""Starting does no work that a run does not need; counted, since clocks differ."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import ROOT


def printed_by(code: str) -> str:
    """What a fresh interpreter prints, started without settings for threads."""
    env = {key: value for key, value in os.environ.items() if not key.endswith("_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT, env=env
    )
    return done.stdout


def test_the_schema_is_built_when_a_scenario_is_read_and_only_once() -> None:
    complete = (
        "print(*(name for name, each in (vars(contract) | vars(schema)).items()"
        " if isinstance(each, type) and issubclass(each, Section) and each.__pydantic_complete__))"
    )
    code = (
        "from sim.scenario import load_scenario, schema\n"
        "from sim.scenario.sections import contract\n"
        "from sim.scenario.sections.support import Section\n"
        f"{complete}\n"
        "load_scenario('scenarios/chat.yaml')\n"
        f"{complete}\n"
    )
    before, after = printed_by(code).splitlines()
    assert before == ""
    assert "Scenario" in after.split()


def test_a_run_begins_without_what_only_results_need() -> None:
    code = (
        "import sys, sim\n"
        "from sim.setup import prepare\n"
        "prepare(sim.load_scenario('scenarios/chat.yaml'))\n"
        "print(*sys.modules)"
    )
    loaded = set(printed_by(code).split())
    slow = {"difflib", "matplotlib", "pandas", "plotly", "pyarrow", "rich", "scipy", "statistics"}
    late = {"sim.metrics.record.run_record", "sim.metrics.summary", "sim.results.run_result"}
    assert not loaded & (slow | late)


def test_a_short_run_imports_nothing_that_its_lines_do_not_need() -> None:
    code = (
        "import sys\n"
        "from sim.cli import app\n"
        "short = ['--set', 'run.requests=2', '--set', 'slo={}']\n"
        "app(['run', 'scenarios/chat.yaml', '--no-save', *short], standalone_mode=False)\n"
        "print(*sys.modules)"
    )
    loaded = set(printed_by(code).splitlines()[-1].split())
    slow = {"html", "multiprocessing", "pandas", "plotly", "pyarrow", "scipy"}
    assert not loaded & {*slow, "_strptime"}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted on Linux")
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core has no threads to spare")
def test_a_run_starts_no_threads() -> None:
    code = (
        "import os\n"
        "from sim.cli import app\n"
        "arguments = ['run', 'scenarios/chat.yaml', '--no-save', '--set', 'run.requests=20']\n"
        "app(arguments, standalone_mode=False)\n"
        "print(len(os.listdir('/proc/self/task')))"
    )
    assert printed_by(code).splitlines()[-1] == "1"


def test_importing_looks_for_no_garbage_and_collects_again_afterwards() -> None:
    code = (
        "import gc, sim\n"
        "before = sum(each['collections'] for each in gc.get_stats())\n"
        "sim.simulate\n"
        "after = sum(each['collections'] for each in gc.get_stats())\n"
        "print(after - before, gc.get_freeze_count() > 50_000, gc.isenabled())"
    )
    collections, frozen, enabled = printed_by(code).split()
    assert int(collections) <= 1
    assert (frozen, enabled) == ("True", "True")
