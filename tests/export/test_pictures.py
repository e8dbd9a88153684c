"""Pictures of figures: one for each, sharp, and clear words where there can be none."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sim.cli import app
from sim.errors import InfersimError
from sim.export import browser, pictures
from sim.export.pictures import MARGIN, SCALE, file_names
from tests.page_kinds import DECISIONS
from tests.report_fixtures import make_run
from tests.reports.test_report import render

needs_browser = pytest.mark.skipif(
    browser.find_browser() is None, reason="no Chromium or Chrome is installed"
)


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments), "--to", "png"])


def size(path: Path) -> tuple[int, int]:
    """Width and height of a PNG in dots."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@pytest.mark.slow
@needs_browser
def test_a_run_has_a_picture_of_each_figure(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render(make_run(200)), encoding="utf-8")
    done = export(tmp_path)
    assert done.exit_code == 0, done.stderr
    made = [Path(line) for line in done.stdout.splitlines()]
    assert {path.parent for path in made} == {tmp_path / "png"}
    assert {path.name for path in made} >= {"cdf-ttft.png", "timeline.png", "slots.png"}
    for path in made:
        width, height = size(path)
        assert width > 300 * SCALE
        assert height > 150 * SCALE
        assert len(path.read_bytes()) > 10_000, "something is drawn"
    wide, _ = size(tmp_path / "png" / "timeline.png")
    assert wide == pytest.approx(SCALE * (1152 + 2 * MARGIN), abs=4), "as wide as the page"


@pytest.mark.slow
@needs_browser
def test_a_page_of_a_decision_and_a_page_alone(tmp_path: Path) -> None:
    decision = DECISIONS["sweep over policies"]
    page = tmp_path / "sweep.html"
    page.write_text(decision.render(decision.document()), encoding="utf-8")
    done = CliRunner().invoke(app, ["export", str(page), "--to", "png", "--json"])
    assert done.exit_code == 0, done.stderr
    files = [str(tmp_path / "png" / f"pareto-{kind}.png") for kind in ("speed", "cost")]
    assert json.loads(done.stdout) == {"format": "png", "files": files}
    again = export(page)
    assert again.exit_code == 2
    assert "is not empty" in again.stderr


@needs_browser
def test_a_page_without_figures_says_so(tmp_path: Path) -> None:
    document = DECISIONS["compare"].document()
    document["figures"] = []
    (tmp_path / "report.html").write_text(DECISIONS["compare"].render(document), encoding="utf-8")
    done = export(tmp_path)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "has no figure" in done.stderr


def test_without_a_browser_there_is_one_clear_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.html").write_text(render(make_run(5)), encoding="utf-8")
    monkeypatch.setattr(pictures, "find_browser", lambda: None)
    done = export(tmp_path)
    assert done.exit_code == 1
    assert done.stderr.startswith("error: no browser to draw with: none of chromium, ")
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "png").exists()


@pytest.mark.parametrize("program", ["true", "cat", "/does/not/exist"])
def test_a_browser_that_is_none_is_told(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = f"/bin/{program}" if "/" not in program else program
    told = r"the browser|cannot be started"
    with pytest.raises(InfersimError, match=told), browser.Browser(path, patience=1.0) as opened:
        opened.ask("Browser.getVersion", {})
    assert not list(tmp_path.iterdir())


def test_what_is_no_page_is_told(tmp_path: Path) -> None:
    (tmp_path / "foreign.html").write_text("<!DOCTYPE html><script>1</script>")
    (tmp_path / "binary.html").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "empty").mkdir()
    for arguments, told in (
        ((tmp_path / "none",), "does not exist; expected a directory with a page, or a page"),
        ((tmp_path / "empty",), "has no report.html to draw from"),
        ((tmp_path / "foreign.html",), "is no page that infersim has written"),
        ((tmp_path / "binary.html",), "cannot be read"),
        ((tmp_path, tmp_path), "takes one run, not 2"),
        ((tmp_path / "foreign.html", "--window", "1:2"), "a picture shows what its page shows"),
    ):
        done = export(*arguments)
        assert done.exit_code == 2, arguments
        assert told in done.stderr
        assert "Traceback" not in done.output


def test_names_of_files_are_plain_and_apart() -> None:
    made = file_names(["../../etc/passwd", "a b", "a/b", "", "漢字", "x" * 500])
    assert made == ["etc-passwd.png", "a-b.png", "a-b-2.png", "figure.png", "figure-2.png",
                    f"{'x' * 80}.png"]  # fmt: skip
