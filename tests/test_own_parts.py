"""Parts of one's own: where they are found, and that they disturb nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import UsageError
from sim.planning.points.executors import InProcess, local
from sim.planning.points.grid import read_axes
from sim.planning.sweep.sweep import Sweep, document
from sim.plugins import absolute, is_own, load_class, load_function
from sim.scenario import Scenario, load_scenario
from sim.schedulers import Order
from sim.setup import prepare
from tests.planning_fixtures import SMALL

ORDER = """
from sim.schedulers import Order

class Mine(Order):
    name = "{name}"

    def key(self, request):
        return {key}
"""


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; scenarios lie in another one, `elsewhere`."""
    (tmp_path / "work").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def part(file: Path, name: str = "mine", key: str = "request.prompt_tokens") -> Path:
    """A file with an order in it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(ORDER.format(name=name, key=key))
    return file


def scenario_in(folder: Path, order: str, **more: Any) -> Path:
    """The file of a scenario with that order."""
    file = folder / "own.yaml"
    file.write_text(yaml.safe_dump({**SMALL, "scheduler": {"order": order}, **more}))
    return file


def order_of(scenario: Scenario) -> Any:
    """The class that the scenario's order comes to."""
    return load_class(scenario.scheduler.order, Order, "order", scenario.folders)


def test_the_console_script_finds_a_policy_in_the_working_directory(work: Path) -> None:
    part(work / "mypol.py")
    scenario = scenario_in(work.parent / "elsewhere", "fcfs")
    script = Path(sys.executable).with_name("infersim")
    arguments = ["run", str(scenario), "--set", "scheduler.order=mypol:Mine", "--no-report"]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [script, *arguments], capture_output=True, text=True, env=clean, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_scenarios_folder_goes_before_the_working_directory(work: Path) -> None:
    elsewhere = work.parent / "elsewhere"
    part(work / "mypol.py", "of the working directory")
    scenario = load_scenario(scenario_in(elsewhere, "mypol:Mine"))
    assert order_of(scenario).name == "of the working directory"
    part(elsewhere / "mypol.py", "of the scenario")
    assert order_of(scenario).name == "of the scenario"


def test_two_scenarios_have_their_own_modules_of_one_name(work: Path) -> None:
    found = []
    for name in ("one", "two"):
        folder = work / name
        part(folder / "mypol.py", "").write_text(
            "from helpers import NAME\n" + ORDER.replace('"{name}"', "NAME").format(key=1)
        )
        (folder / "helpers.py").write_text(f"NAME = {name!r}\n")
        found.append(order_of(load_scenario(scenario_in(folder, "mypol:Mine"))).name)
    assert found == ["one", "two"]
    assert "helpers" not in sys.modules
    assert "mypol" not in sys.modules


def test_a_stray_file_hides_no_module_from_anybody(work: Path) -> None:
    for name in ("json", "numpy", "colorsys"):  # the last one has not been imported yet
        (work / f"{name}.py").write_text("raise RuntimeError('the stray one')\n")
    sys.modules.pop("colorsys", None)
    before = list(sys.path)
    file = part(work / "mypol.py")
    file.write_text("import colorsys, json, numpy\nNUMPY = numpy\n" + file.read_text())
    mine = order_of(load_scenario(scenario_in(work, "mypol:Mine")))
    assert sys.modules[mine.__module__].NUMPY is sys.modules["numpy"]
    assert "stray" not in (sys.modules["colorsys"].__doc__ or "")
    assert sys.modules["colorsys"].__file__ != str(work / "colorsys.py")
    assert sys.path == before


def test_a_part_may_have_the_name_of_a_module_of_python(work: Path) -> None:
    part(work / "json.py", "a policy")
    assert order_of(load_scenario(scenario_in(work, "json:Mine"))).name == "a policy"
    assert sys.modules["json"].dumps({}) == "{}"


def test_a_module_that_python_finds_there_is_the_same_one(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part(work / "own_part_on_the_path.py")
    monkeypatch.syspath_prepend(work)
    mine = order_of(load_scenario(scenario_in(work, "own_part_on_the_path:Mine")))
    import own_part_on_the_path  # type: ignore[import-not-found]

    assert mine is own_part_on_the_path.Mine


def test_packages_and_files(work: Path) -> None:
    (work / "parts" / "orders").mkdir(parents=True)
    for folder in (work / "parts", work / "parts" / "orders"):
        (folder / "__init__.py").touch()
    file = part(work / "parts" / "orders" / "deep.py")
    file.write_text("from ..names import NAME\n" + file.read_text().replace('"mine"', "NAME"))
    (work / "parts" / "names.py").write_text("NAME = 'deep'\n")
    for text in ("parts.orders.deep:Mine", "parts/orders/deep.py:Mine", f"{file}:Mine"):
        assert is_own(text)
        assert order_of(load_scenario(scenario_in(work, text))).name == "deep"


def test_what_is_not_found_says_where_was_looked(work: Path) -> None:
    scenario = load_scenario(scenario_in(work.parent / "elsewhere", "pack.mypol:Mine"))
    with pytest.raises(UsageError) as caught:
        prepare(scenario)
    message = str(caught.value)
    refused = "own.yaml:10:10: scheduler.order: order 'pack.mypol:Mine' cannot be imported"
    assert f"{refused} (ModuleNotFoundError" in message
    for folder in (work.parent / "elsewhere", work):
        assert str(folder / "pack" / "mypol.py") in message
    assert "PYTHONPATH" in message


def test_what_a_part_itself_lacks_is_named_and_not_looked_for(work: Path) -> None:
    (work / "mypol.py").write_text("import no_such_module_of_mine\n")
    with pytest.raises(UsageError, match="No module named 'no_such_module_of_mine'") as caught:
        prepare(load_scenario(scenario_in(work, "mypol:Mine")))
    assert "looked for" not in str(caught.value)


def test_a_misspelt_class_is_answered_with_the_nearest(work: Path) -> None:
    part(work / "mypol.py")
    with pytest.raises(UsageError, match=r"has no 'Mime' \(did you mean 'Mine'\?\)") as caught:
        prepare(load_scenario(scenario_in(work, "mypol:Mime")))
    assert str(work / "mypol.py") in str(caught.value)
    assert "_infersim_own" not in str(caught.value)  # the private name of the module


def test_a_function_must_be_callable(work: Path) -> None:
    (work / "numbers_of_mine.py").write_text("ANSWER = 42\n")
    with pytest.raises(UsageError, match=r"'numbers_of_mine:ANSWER' is no function, but int"):
        load_function("numbers_of_mine:ANSWER", "metric", [work])


def test_what_is_resolved_is_found_from_anywhere(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run directory has it, and as a scenario in another folder extends it."""
    file = part(work / "mypol.py")
    scenario = load_scenario(scenario_in(work, "mypol:Mine"))
    assert scenario.scheduler.order == "mypol:Mine"
    assert scenario.resolved()["scheduler"]["order"] == f"{file}:Mine"
    (tmp_path / "again.yaml").write_text(scenario.to_yaml())
    (tmp_path / "child.yaml").write_text("extends: work/own.yaml\n")
    monkeypatch.chdir(tmp_path.parent)
    for name in ("again.yaml", "child.yaml"):
        prepare(load_scenario(tmp_path / name))
    assert absolute("fcfs", [work]) == "fcfs"
    assert absolute("no.such:Thing", [work]) == "no.such:Thing"


def test_processes_look_where_the_question_was_asked(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers that were started in another directory before."""
    swept = read_axes(["scheduler.order=fcfs,mypol:Mine"])
    plain = Sweep(load_scenario(scenario_in(work.parent / "elsewhere", "fcfs")), tuple(swept[:1]))
    executor = local(2)
    list(executor.run(plain.scenario, plain.grid[:1]))
    there = work / "deeper"
    part(there / "mypol.py", key="-request.prompt_tokens")
    monkeypatch.chdir(there)
    asked = Sweep(load_scenario(scenario_in(work.parent / "elsewhere", "fcfs")), tuple(swept))
    here, apart = (
        {outcome.point.index: outcome for outcome in each.run(asked.scenario, asked.grid)}
        for each in (InProcess(), executor)
    )
    assert [here[index].error for index in (0, 1)] == [None, None]
    assert here == apart


def test_a_sweep_is_not_resumed_with_another_policy(work: Path) -> None:
    file = part(work / "mypol.py")
    asked = Sweep(
        load_scenario(scenario_in(work.parent / "elsewhere", "fcfs")),
        tuple(read_axes(["scheduler.order=fcfs,mypol:Mine"])),
    )
    with asked.create(work / "out") as store:
        asked.run(store, InProcess())
        store.finish(document(asked, store.known))
    with asked.resume(work / "out"):
        pass
    part(file, key="-request.prompt_tokens")
    with pytest.raises(UsageError, match="another content of the files that it reads"):
        asked.resume(work / "out")


def test_a_run_directory_is_run_again_with_its_policy(work: Path, tmp_path: Path) -> None:
    part(work / "mypol.py")
    first = sim.simulate(load_scenario(scenario_in(work, "mypol:Mine")))
    first.save(tmp_path / "first")
    os.chdir(tmp_path)
    again = sim.simulate(load_scenario(tmp_path / "first" / "resolved.yaml"))
    assert again.summary == first.summary


@pytest.mark.parametrize(
    ("key", "reason", "line"),
    [
        ("1 / request.id", "ZeroDivisionError: division by zero", "    return 1 / request.id"),
        ("request.tokens", "AttributeError: ", "    return request.tokens"),
    ],
)
def test_a_mistake_in_a_part_names_its_file_and_line(
    work: Path, key: str, reason: str, line: str
) -> None:
    file = part(work / "mypol.py", key=key)
    with pytest.raises(UsageError) as caught:
        sim.simulate(load_scenario(scenario_in(work, "mypol:Mine")))
    first, place, source, hint = str(caught.value).splitlines()
    assert first.startswith(f"order 'mypol:Mine' failed: {reason}")
    assert place == f"  {file}:8, in key"
    assert source == line
    assert hint == "  (the whole traceback: INFERSIM_TRACEBACK=1)"
    assert isinstance(caught.value.__cause__, ZeroDivisionError | AttributeError)


def test_what_a_part_gives_and_nobody_can_use_names_the_part(work: Path) -> None:
    part(work / "mypol.py", key="None if request.id else 1")
    asked = load_scenario(scenario_in(work, "mypol:Mine"))
    asked = asked.override({"workload.arrivals": {"kind": "burst"}})
    with pytest.raises(UsageError, match=r"order 'mypol:Mine' gave something .* TypeError: "):
        sim.simulate(asked)


def test_the_whole_traceback_is_shown_when_asked_for(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part(work / "mypol.py", key="1 / 0")
    arguments = ["run", str(scenario_in(work, "mypol:Mine")), "--no-report"]
    short = CliRunner().invoke(app, arguments)
    monkeypatch.setenv("INFERSIM_TRACEBACK", "1")
    whole = CliRunner().invoke(app, arguments)
    assert (short.exit_code, whole.exit_code) == (2, 2)
    assert "Traceback" not in short.output
    assert "Traceback" in whole.output
    assert whole.output.endswith(short.output)


def test_a_file_that_fails_as_it_is_imported_says_where(work: Path) -> None:
    file = part(work / "mypol.py")
    file.write_text("import json\n1 / 0\n")
    with pytest.raises(UsageError, match="division by zero") as caught:
        prepare(load_scenario(scenario_in(work, "mypol:Mine")))
    assert f" at {file}:2\n" in str(caught.value)


def test_a_class_of_another_kind_is_named_with_its_place_and_that_of_the_scenario(
    work: Path,
) -> None:
    file = work / "mypol.py"
    file.write_text("KIND = 1\n\nclass Mine:\n    pass\n")
    other = {"name": "other", "gpu": "h100-sxm", "scheduler": {"order": "mypol:Mine"}}
    pools = [{"name": "usual", "gpu": "h100-sxm"}, other]
    more: dict[str, Any]
    for order, more, place in (
        ("mypol:Mine", {}, f"{work}/own.yaml:10:10: scheduler.order"),
        ("fcfs", {"fleet": pools}, "own.yaml:8:12: fleet.1.scheduler.order"),
        ("fcfs", {"router": "mypol:Mine"}, "router"),
    ):
        with pytest.raises(UsageError) as caught:
            prepare(load_scenario(scenario_in(work, order, **more)))
        first, line, carets = str(caught.value).split("\n")
        assert f"{place}: " in first
        assert "is not a subclass of sim." in first
        assert first.endswith(f" (defined at {file}:3)")
        assert line.endswith("mypol:Mine")
        assert carets.endswith("^" * len("mypol:Mine"))
    with pytest.raises(UsageError, match=r"^--set scheduler.order=mypol:Mine: order .* \(defined"):
        prepare(load_scenario(scenario_in(work, "fcfs"), ["scheduler.order=mypol:Mine"]))


ROUTER = """
from sim.routers import Router

class Mine(Router):
    {own}

    def choose(self, request, targets):
        return max(range(len(targets)), key=lambda at: targets[at].weight)
"""


def test_weights_are_refused_behind_a_router_that_does_not_say_it_heeds_them(work: Path) -> None:
    pools = [{"name": n, "gpu": "h100-sxm", "weight": w} for n, w in (("a", 1.0), ("b", 2.0))]
    (work / "mine.py").write_text(ROUTER.format(own="pass"))
    asked = load_scenario({**SMALL, "fleet": pools, "router": "mine:Mine"})
    with pytest.raises(UsageError, match=r"fleet.weight: router 'mine:Mine' .* `weighs = True`"):
        prepare(asked)
    (work / "heeds.py").write_text(ROUTER.format(own="weighs = True"))
    summary = sim.simulate(asked.override({"router": "heeds:Mine"})).summary["infersim"]
    assert [pool["completed"] for pool in summary["pools"]] == [0, SMALL["run"]["requests"]]
