"""Who imports what: heavy packages stay where they belong, and ``import sim`` costs nothing."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.places import ROOT

HEAVY = [
    *("numpy", "pandas", "pyarrow", "simpy", "pydantic", "yaml", "plotly", "jinja2", "torch"),
    *("rich", "typer", "scipy"),
]


def modules(package: str) -> Iterator[tuple[str, Path]]:
    """(dotted name, file) of every module of a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def imports(path: Path) -> frozenset[str]:
    """Every module that a file imports, inside functions and for type checking too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found.add(node.module or "")
    return frozenset(found)


def importers(packages: list[str], wanted: str) -> set[str]:
    """The modules of ``packages`` that import ``wanted`` or something inside it."""
    return {
        name
        for package in packages
        for name, path in modules(package)
        if any(found == wanted or found.startswith(f"{wanted}.") for found in imports(path))
    }


def room_of(module: str) -> str:
    """The package that ``module`` is in."""
    return module.rpartition(".")[0]


def loaded_after(code: str) -> set[str]:
    """The heavy packages that a fresh interpreter holds after running ``code``."""
    script = f"{code}\nimport sys; print(*(name for name in {HEAVY} if name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("package", "allowed"),
    {
        "simpy": {
            "sim.loop.admission",
            "sim.loop.autoscaler",
            "sim.loop.clients",
            "sim.loop.clock",
            "sim.loop.lockstep",
            "sim.loop.pipeline",
            "sim.loop.engine",
            "sim.loop.replica",
            "sim.loop.fleet",
            "sim.loop.handover",
            "sim.loop.live",
            "sim.loop.sessions",
            "sim.loop.steering",
            "sim.assembly",
            "sim.simulation",
            "sim.selftest.loop",
        },
        "torch": set(),
        "joblib": {
            "sim.planning.points.executors",
        },
        "scipy": {
            "sim.metrics.repetitions",
            "sim.planning.contrast.paired",
        },
        "plotly": set(),
        "jinja2": set(),
        "typer": {"sim.cli", "sim.commands"},
        "rich": {"sim.commands", "sim.questions", "sim.terminal"},
        "pandas": {
            *("sim.results.run_result", "sim.planning.contrast.runs"),
            *("sim.export.source", "sim.export.files", "sim.results.stored"),
            *("sim.results.trail_files", "sim.export.phases", "sim.questions"),
        },
        "pyarrow": {"sim.results.parquet_file", "sim.workload.traces.packed"},
        "aiohttp": {"sim.serve", "sim.ui"},
        "prometheus_client": {"sim.serve"},
        "calibrate": {"sim.commands"},
        "reports": {"sim.commands", "sim.questions", "sim.result"},
    }.items(),
)
def test_what_the_simulator_imports_and_where(package: str, allowed: set[str]) -> None:
    """``allowed`` names modules, and packages of which each module may."""
    found = importers(["sim"], package)
    assert {name for name in found if not {name, room_of(name)} & allowed} == set()


def test_what_the_other_packages_leave_alone() -> None:
    assert importers(["reports"], "torch") == set()
    assert importers(["reports"], "simpy") == set()
    assert importers(["reports"], "calibrate") == set()
    assert importers(["calibrate"], "reports") == set()
    assert importers(["calibrate"], "plotly") == set()


def test_reports_know_runs_but_not_how_they_are_made() -> None:
    allowed = {
        "sim.metrics.terms.definitions",
        "sim.metrics.terms.metric",
        "sim.results.run_result",
        "sim.errors",
        "sim.findings",
        "sim.units",
        "sim.growth.leaps",
        "sim.metrics.states",
        "sim.trails.courses",
        "sim.trails.iterations",
        "sim.trails.slots",
        "sim.results.stored",
        "sim.results.trail_files",
        "sim.results.whole_file",
        # what policies and allocators say of themselves
        *("sim.schedulers", "sim.memory"),
    }
    # words and findings that the page shares with the terminal
    shared = (
        r"sim\.(metrics|planning)\.(\w+\.)\w*(words|wording|text)|sim\.planning\.answers(\.\w+)?"
    )
    words = re.compile(shared)
    for _, path in modules("reports"):
        ours = {name for name in imports(path) if name == "sim" or name.startswith("sim.")}
        assert {name for name in ours - allowed if not words.fullmatch(name)} == set(), path


def test_import_sim_is_light() -> None:
    assert loaded_after("import sim") == set()
    assert loaded_after("import sim.errors, sim.units, sim.specs.gpu, sim.specs.model") == set()


@pytest.mark.parametrize("module", ["sim.catalog", "sim.scenario", "sim.workload"])
def test_reading_a_scenario_needs_no_simulator(module: str) -> None:
    assert loaded_after(f"import {module}") <= {"numpy", "pydantic", "yaml"}


def test_a_simulation_needs_no_tables_and_no_terminal() -> None:
    code = (
        "import sim\n"
        "lengths = {'kind': 'fixed', 'value': 20}\n"
        "scenario = sim.load_scenario({'model': 'llama-3.1-8b', 'fleet': {'gpu': 'h100-sxm'},\n"
        "    'workload': {'arrivals': {'kind': 'burst'}, 'prompt_tokens': lengths,\n"
        "    'output_tokens': lengths}, 'run': {'requests': 3}})\n"
        "assert sim.simulate(scenario).summary['completed'] == 3"
    )
    assert loaded_after(code) == {"numpy", "simpy", "pydantic", "yaml"}


def at_import(path: Path) -> Iterator[str]:
    """The modules that a file imports when it is imported itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    waiting: list[ast.stmt] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [
                child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)
            ]


def lineage(name: str) -> list[str]:
    """A module and the packages that it is in."""
    parts = name.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def test_every_module_can_be_imported_first() -> None:
    """No module needs, by whatever way, one that is still being imported: none is in a circle."""
    ours = {name: path for package in ("sim", "calibrate", "reports")
            for name, path in modules(package)}  # fmt: skip
    needed: dict[str, set[str]] = {}
    for name, path in ours.items():
        imported = [*at_import(path)]
        found = {part for wanted in imported for part in lineage(wanted) if part in ours}
        # the packages that a module is in are there, unless it takes a name out of them
        taken = {wanted.rpartition(".")[0] for wanted in imported if wanted not in ours}
        needed[name] = found - (set(lineage(name)) - taken) - {name}
    TopologicalSorter(needed).prepare()  # raises CycleError with the circle


def test_no_imports_form_a_circle() -> None:
    """Those inside functions and for type checking count, too. (A package is only a way to its
    modules here: that it can be imported is asked above.)"""
    ours = {name: path for package in ("sim", "calibrate", "reports")
            for name, path in modules(package) if path.name != "__init__.py"}  # fmt: skip
    needed: dict[str, set[str]] = {}
    for name, path in ours.items():
        found = set(imports(path))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
        needed[name] = (found & ours.keys()) - {name}
    TopologicalSorter(needed).prepare()  # raises CycleError with the circle


@pytest.mark.parametrize("package", ["sim.cost", "sim.scenario", "sim.planning.load.find"])
def test_a_part_can_be_imported_alone(package: str) -> None:
    loaded_after(f"import {package}")
