"""Who imports what: heavy packages stay where they belong, and ``import sim`` costs nothing."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

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
        "simpy": {"sim.clock", "sim.replica", "sim.fleet", "sim.simulation", "sim.selftest.loop"},
        "torch": set(),
        "joblib": {"sim.scoring.predict", "sim.planning.executors", "sim.planning.workers"},
        "scipy": {
            "sim.metrics.repetitions",
            "sim.planning.paired",
            "sim.scoring.errors",
            "sim.validation.robust",
        },
        "plotly": set(),
        "jinja2": set(),
        "typer": {
            *("sim.cli", "sim.run_command", "sim.trace_commands", "sim.calibrate_commands"),
            *("sim.analysis_commands", "sim.catalog_commands", "sim.validate_command"),
            *("sim.options", "sim.examples", "sim.run_output"),
            "sim.score_command",
            "sim.export_command",
            "sim.exits",
            "sim.planning_commands.sweep",
            *(f"sim.planning_commands.{name}" for name in ("ablate", "diagnose", "sensitivity")),
            "sim.planning_commands.compare",
            *(f"sim.planning_commands.{name}" for name in ("answer", "find", "plan")),
        },
        "rich": {
            "sim.run_output",
            "sim.run_command",
            "sim.questions",
            *("sim.console", "sim.run_view", "sim.sparkline", "sim.reference_view"),
            "sim.analysis",
            "sim.calibration.console",
            "sim.scoring.document",
            "sim.validation.console",
            "sim.planning.sweep_view",
            *(f"sim.planning.{name}_view" for name in ("ablate", "diagnose", "sensitivity")),
            "sim.planning.compare_view",
            *("sim.planning.find_view", "sim.planning.plan_view", "sim.planning_commands.answer"),
        },
        "pandas": {
            *("sim.results", "sim.validation.observed", "sim.planning.runs"),
            *("sim.export.source", "sim.export.files", "sim.stored"),
        },
        "pyarrow": {"sim.parquet_file"},
        "calibrate": {"sim.calibrate_commands"},
        "reports": {
            *("sim.run_output", "sim.calibrate_commands", "sim.validate_command"),
            "sim.questions",
            *("sim.planning_commands.sweep", "sim.planning_commands.compare"),
            *(f"sim.planning_commands.{name}" for name in ("ablate", "diagnose", "sensitivity")),
            *("sim.planning_commands.find", "sim.planning_commands.plan"),
        },
    }.items(),
)
def test_what_the_simulator_imports_and_where(package: str, allowed: set[str]) -> None:
    assert importers(["sim"], package) <= allowed


def test_what_the_other_packages_leave_alone() -> None:
    assert importers(["reports"], "torch") == set()
    assert importers(["reports"], "simpy") == set()
    assert importers(["reports"], "calibrate") == set()
    assert importers(["calibrate"], "reports") == set()
    assert importers(["calibrate"], "plotly") == set()


def test_reports_know_runs_but_not_how_they_are_made() -> None:
    allowed = {
        "sim.results",
        "sim.errors",
        "sim.units",
        "sim.trails.iterations",
        "sim.trails.seats",
        "sim.stored",
    }
    # words that the page shares with the terminal
    words = re.compile(r"sim\.(metrics|planning)\.\w*(words|wording|text)")
    for _, path in modules("reports"):
        ours = {name for name in imports(path) if name == "sim" or name.startswith("sim.")}
        assert {name for name in ours - allowed if not words.fullmatch(name)} == set(), path


def test_import_sim_is_light() -> None:
    assert loaded_after("import sim") == set()
    assert loaded_after("import sim.errors, sim.units, sim.hardware, sim.model") == set()


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


def test_every_module_can_be_imported_first() -> None:
    names = [name for name, _ in modules("sim")]
    code = (
        "import importlib, sys\n"
        f"for name in {names}:\n"
        "    for old in [m for m in sys.modules if m == 'sim' or m.startswith('sim.')]:\n"
        "        del sys.modules[old]\n"
        "    importlib.import_module(name)"
    )
    assert "numpy" in loaded_after(code)
