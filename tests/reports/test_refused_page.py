"""The page of a question without an answer says why, and keeps no later run out."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import sim
from reports.pages.planning.findings import render
from sim.commands.refused import explained
from sim.errors import InfeasibleError
from sim.results.run_directory import REFUSAL, RunDirectory, check_free

ASKED = {"traffic": "6 requests/s", "lengths": "", "slo": "", "changes": [], "still_asks": True}


def test_what_does_not_fit_is_a_page_in_the_folder_of_the_run(tmp_path: Path) -> None:
    scenario = sim.load_scenario("scenarios/chat.yaml", ["model=llama-3.1-70b"])
    folder = tmp_path / "run"
    with pytest.raises(InfeasibleError, match="does not fit"), explained(scenario, folder):
        sim.simulate(scenario)
    html = (folder / REFUSAL).read_text(encoding="utf-8")
    assert "llama-3.1-70b does not fit on 1 h100-sxm GPU" in html
    for text in ("weights", "what the engine may use", "6 requests/s, Poisson"):
        assert text in html
    check_free(folder)
    RunDirectory.create(folder, scenario)
    assert not (folder / REFUSAL).exists()


def test_without_a_folder_no_page_is_written(tmp_path: Path) -> None:
    scenario = sim.load_scenario("scenarios/chat.yaml")
    with pytest.raises(InfeasibleError), explained(scenario, None):
        raise InfeasibleError("no")
    assert not list(tmp_path.iterdir())


def test_each_layout_has_its_reason() -> None:
    layouts = [("1 x l40s", "does not fit: <b>"), ("2 x l40s: fp8", "too slow")]
    document = {"infersim": "1", "scenario": "made up", "asked": ASKED, "parts": {}}
    reason = {"title": "no fleet holds 6 requests/s: none", "detail": "", "layouts": layouts}
    html = render("refused", document | reason)
    assert "No fleet holds 6 requests/s: none" in html
    assert "does not fit: &lt;b&gt;" in html
    assert html.index(">1 x l40s<") < html.index(">2 x l40s: fp8<")
    assert "#definitions" not in html


def test_an_error_lists_the_first_layouts_and_counts_the_others() -> None:
    layouts = [(f"{count} x l4", f"{count} are too slow") for count in range(1, 16)]
    error = InfeasibleError("no fleet holds 6 requests/s", layouts=layouts)
    assert str(error).splitlines()[0] == "no fleet holds 6 requests/s:"
    assert str(error).splitlines()[-2:] == ["  12 x l4: 12 are too slow", "  and 3 more"]
    assert len(error.layouts) == 15
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.layouts) == (str(error), error.layouts)
    alike = InfeasibleError("no fleet", layouts=[(layout, "too slow") for layout, _ in layouts])
    assert str(alike).endswith(", 11 x l4, 12 x l4 and 3 more: too slow")


def test_a_load_that_was_not_asked_about_is_not_on_the_page(tmp_path: Path) -> None:
    scenario = sim.load_scenario("scenarios/chat.yaml")
    with pytest.raises(InfeasibleError), explained(scenario, tmp_path, own_load=False):
        raise InfeasibleError("no fleet holds 60 requests/s")
    html = (tmp_path / REFUSAL).read_text(encoding="utf-8")
    assert "6 requests/s, Poisson" not in html
    assert "prompts 800" in html
