"""The documentation site has every page, opens from the disk, and finds words there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from notebooks import site
from sim.export.browser import Browser
from tests.browser import PROGRAM, in_page, needs_browser
from tests.places import ROOT

CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
needs_mkdocs = pytest.mark.skipif(find_spec("material") is None, reason="needs the extra `docs`")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The gathered pages."""
    folder = tmp_path_factory.mktemp("docs") / "pages"
    site.write(folder)
    return folder


def listed(nav: object) -> list[str]:
    """The files that a menu names."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [name for part in parts for name in listed(part)]


def test_the_menu_names_every_page(pages: Path) -> None:
    found = {path.relative_to(pages).as_posix() for path in pages.rglob("*.md")}
    assert sorted(listed(CONFIG["nav"])) == sorted(found)


def test_every_link_leads_to_a_page(pages: Path) -> None:
    lost = [
        (page.name, target)
        for page in pages.rglob("*.md")
        for target in re.findall(r"\]\((?!https?://)([^)#\s]+)[^)]*\)", page.read_text("utf-8"))
        if not (page.parent / target).is_file()
    ]
    assert lost == []


def test_links_to_other_files_are_words() -> None:
    text = "[a](b/README.md#c), [code](c.py), [book](d.ipynb), ![figure](e.png), [x](#y)"
    known = {Path("sim/b/README.md"), Path("sim/d.md")}
    expected = "[a](b/README.md#c), code, [book](d.md), ![figure](e.png), [x](#y)"
    assert site.relinked(text, Path("sim/README.md"), known) == expected


def test_the_reference_has_commands_keys_and_the_python_api(pages: Path) -> None:
    texts = {path.stem: path.read_text("utf-8") for path in (pages / "reference").iterdir()}
    assert "## infersim calibrate fit\n" in texts["commands"]
    assert "| `--price` |" in texts["commands"]
    assert "| `workload.arrivals.rate` (poisson) |" in texts["scenario"]
    assert "## sim.simulate\n" in texts["python"]
    assert "| h100-sxm | vllm | `gemm` | bf16 |" in texts["kernels"]


@needs_mkdocs
@needs_browser
def test_the_site_opens_from_the_disk_and_finds_words(pages: Path, tmp_path: Path) -> None:
    built = tmp_path / "site"
    config = tmp_path / "mkdocs.yml"
    places = {"INHERIT": str(ROOT / "mkdocs.yml"), "docs_dir": str(pages), "site_dir": str(built)}
    config.write_text(yaml.safe_dump(places), "utf-8")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(config)],
        check=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    with Browser(str(PROGRAM)) as browser:
        for page in ("index", "notebooks/01_batching_by_hand", "reference/commands"):
            tab = browser.open(built / f"{page}.html")
            links = tab.evaluate("[...document.links].map((link) => link.href)")
            files = {link.partition("#")[0] for link in links if link.startswith("file://")}
            assert len(files) > 30
            assert [file for file in files if not Path(file.removeprefix("file://")).exists()] == []
            assert tab.evaluate("[...document.images].every((one) => one.naturalWidth > 0)")
            assert tab.complaints == []
        tab = browser.open(built / "index.html")
        found = tab.evaluate(
            in_page("""
            const query = document.querySelector(".md-search__input");
            query.focus();
            query.value = "preemption";
            await until(() => {
              query.dispatchEvent(new Event("keyup"));
              return document.querySelector(".md-search-result__link");
            });
            return document.querySelector(".md-search-result__link")?.href;
            """)
        )
        page, _, query = found.removeprefix("file://").partition("?")
        assert Path(page).is_relative_to(built)
        assert Path(page).is_file()
        assert query.startswith("h=preempt")
        assert tab.complaints == []
