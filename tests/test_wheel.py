"""What is in the wheel is what a user gets; ``tests.installed`` installs it and asks questions."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from typer.testing import CliRunner

import infersim
import sim
from hatch_build import CORE
from sim.cli import app
from sim.scenario import shipped
from tests.installed import CHECKOUT, floors
from tests.places import ROOT
from tests.readme import quoted, sentences

EVIDENCE = (
    "calibrate/scoring/",
    "calibrate/importers/",
    "calibrate/power.py",
    "calibrate/evidence.json",
)
"""What makes the evidence of predictions and the catalogue's profiles, and what comes of it."""


def test_the_wheel_has_the_product_and_nothing_else(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    files = zipfile.ZipFile(wheel).namelist()
    names = {name for name in files if ".dist-info/" not in name}
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in ("sim", "calibrate", "reports")
        for path in (ROOT / package).rglob("*")
        if path.is_file() and not {"__pycache__", "measured"} & {*path.parts}
        if path.suffix != ".md" and path.name != "LICENSE"
        if not path.relative_to(ROOT).as_posix().startswith(EVIDENCE)
    }
    scenarios = {
        f"sim/scenario/shipped/{path.relative_to(shipped.folder()).as_posix()}"
        for path in shipped.folder().rglob("*")
        if path.suffix in (".yaml", ".csv", ".json")
    }
    assert names == expected | scenarios | {"infersim.py"}
    assert "sim/catalog/gpus/h100-sxm.yaml" in names
    assert "reports/frame/templates/page.js" in names
    licences = {name.split("/licenses/")[1] for name in files if "/licenses/" in name}
    assert licences == {"LICENSE", "reports/frame/library/LICENSE"}
    assert {f"{package}/py.typed" for package in ("sim", "calibrate", "reports")} <= names


def test_each_module_of_the_compiled_core_is_there_and_none_is_compiled_unasked() -> None:
    modules = [f"sim/{folder}/{each}.py" for folder in CORE for each in CORE[folder].split()]
    assert [each for each in modules if not (ROOT / each).is_file()] == []
    assert len(set(modules)) == len(modules)
    assert WheelBuilder(str(ROOT)).get_build_hooks("dist") == {}


def test_the_page_of_the_package_needs_no_other_file(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
    text = archive.read(metadata).decode()
    assert "## Five questions" in text
    assert re.findall(r"\]\((?!https?://)", text) == []


def test_every_dependency_has_a_floor() -> None:
    named = {each.partition("==")[0] for each in floors()}
    assert {"numpy", "pandas", "simpy", "typer", "plotly", "pyyaml"} <= named
    assert "typer==0.19" in floors()  # older ones know no Literal of options


def test_five_questions_of_the_readme_have_answers_to_be_asked_for() -> None:
    assert [each.words[0] for each in quoted()] == ["run", "find", "plan", "compare", "diagnose"]
    assert all(sentences(each.answer) for each in quoted())


def test_a_shipped_scenario_is_found_where_no_file_of_its_name_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is there comes first; a path elsewhere names no shipped scenario."""
    monkeypatch.chdir(tmp_path)
    there = shipped.folder() / "chat.yaml"
    assert {shipped.found(name) for name in ("chat", "chat.yaml", "scenarios/chat.yaml")} == {there}
    for other in ("nothing", "other/chat.yaml", "../chat.yaml", "scenarios", "traces"):
        assert shipped.found(other) in (Path(other), shipped.folder() / "traces")
    Path("chat.yaml").touch()
    assert shipped.found("chat.yaml") == Path("chat.yaml")
    assert sim.load_scenario("chat").name == "chat"
    assert infersim.simulate is sim.simulate


@pytest.mark.parametrize("words", CHECKOUT, ids=lambda words: " ".join(words[:3]))
def test_a_command_whose_code_is_not_installed_says_so(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.commands.exits.find_spec", lambda _: None)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert "needs a checkout of the repository" in done.stderr
