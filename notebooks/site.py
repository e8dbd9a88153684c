"""Gathers the pages of the documentation site, from which ``mkdocs build`` makes it.

``python -m notebooks.site`` writes Markdown to ``.docs/pages``: the pages of the repository where
they lie in it, the notebooks with their outputs, and a reference of the commands, the keys of a
scenario, the Python API and the errors of kernel timings, made from the program itself.
"""

from __future__ import annotations

import base64
import inspect
import json
import re
import shutil
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import typer

import sim
from sim import catalog
from sim.cli import app
from sim.scenario.reference.keys import keys

ROOT = Path(__file__).parent.parent
PAGES = ROOT / ".docs" / "pages"
FILES = {
    "scenarios/report.png": "scenarios/report.png",
    "notebooks/site_worker.js": "assets/iframe-worker.js",
}
"""What pages need of other files, and where the site has them."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")


def sources() -> list[Path]:
    """The Markdown files of the repository, by their paths in it."""
    tops = ("sim", "calibrate", "reports", "notebooks", "tests/conformance")
    found = [
        ROOT / name for name in ("README.md", "GLOSSARY.md", "CONTRIBUTING.md", "CHANGELOG.md")
    ]
    found += [path for top in tops for path in sorted((ROOT / top).rglob("*.md"))]
    return [path.relative_to(ROOT) for path in found]


def relinked(text: str, page: Path, pages: set[Path]) -> str:
    """``text`` with links between pages; a link to any other file is only its words."""

    def link(found: re.Match[str]) -> str:
        picture, words, target = found.groups()
        path, _, anchor = target.partition("#")
        if not path or target.startswith(("http://", "https://")):
            return found[0]
        place = (ROOT / page.parent / path).resolve().relative_to(ROOT)
        place = place.with_suffix(".md") if place.suffix == ".ipynb" else place
        if not picture and place not in pages:
            return words
        near = Path(path).with_suffix(place.suffix).as_posix()
        return f"{picture}[{words}]({near}{'#' * bool(anchor)}{anchor})"

    return LINK.sub(link, text)


def notebook(path: Path, pictures: Path) -> str:
    """A notebook as Markdown; its figures are written as PNG files next to it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell, path.stem, pictures))


def _cell(cell: dict[str, Any], name: str, pictures: Path) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell.get("outputs", ()):
        data = {kind: "".join(text) for kind, text in output.get("data", {}).items() if text}
        if "image/png" in data:
            file = pictures / f"{name}_{len(list(pictures.glob(f'{name}_*.png')))}.png"
            file.write_bytes(base64.b64decode(data["image/png"]))
            yield f"![figure]({file.name})"
        elif "text/markdown" in data:
            yield data["text/markdown"]
        elif "text/html" in data:
            table = re.sub(r"<style.*?</style>\n?", "", data["text/html"], flags=re.DOTALL)
            yield table.replace(' border="1" class="dataframe"', "")  # or it has no style here
        elif text := data.get("text/plain") or "".join(output.get("text", ())):
            yield f"```text\n{text}\n```"


def command_pages() -> str:
    """Every command with its arguments and options."""
    lines = ["# Commands", "", "`infersim COMMAND --help` prints the same.", ""]
    for name, command in _commands(typer.main.get_command(app), "infersim"):
        lines += [f"## {name}", "", inspect.cleandoc(command.help or ""), ""]
        rows = [
            f"| `{'`, `'.join(each.opts)}` | {_cell_text(getattr(each, 'help', '') or '')} |"
            for each in command.params
            if each.name != "help"
        ]
        lines += ["| | |", "|---|---|", *rows, ""] if rows else []
        if command.epilog:
            lines += [re.sub(r"(infersim .*)", r"`\1`", command.epilog), ""]
    return "\n".join(lines)


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        yield f"{name} {word}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {word}")


def scenario_page() -> str:
    """Every key of a scenario."""
    lines = ["# Keys of a scenario", "", "`infersim explain scenario KEY` prints the same.", ""]
    for section, inside in groupby(keys(), lambda key: key.path.partition(".")[0]):
        lines += ["", f"## {section}", "", "| key | meaning | default |", "|---|---|---|"]
        for key in inside:
            name = f"`{key.path}`" + (f" ({key.kind})" if key.kind else "")
            meaning = f"{key.meaning} Values: {key.values}" + (
                f" ({key.unit})." if key.unit else "."
            )
            default = "required" if key.required else f"`{key.default}`" if key.default else ""
            lines.append(f"| {' | '.join(map(_cell_text, (name, meaning, default)))} |")
    return "\n".join(lines)


def python_page() -> str:
    """The public names of ``sim``, with their docstrings."""
    lines = ["# Python", "", "```python", "import sim  # or: import infersim", "```", ""]
    for name in sorted(sim.__all__):
        part = getattr(sim, name)
        lines += _documented(f"## sim.{name}", name, part)
        if inspect.isclass(part):
            for inner, member in sorted(vars(part).items()):
                if not inner.startswith("_") and inspect.isfunction(member) and member.__doc__:
                    lines += _documented(f"### {name}.{inner}", inner, member)
    return "\n".join(lines)


def _documented(head: str, name: str, part: Any) -> list[str]:
    lines = [head, ""]
    if inspect.isfunction(part):
        lines += ["```python", f"{name}{inspect.signature(part)}", "```", ""]
    text = re.sub(r"``([^`]*)``", r"`\1`", inspect.getdoc(part) or "")
    return [
        *lines,
        re.sub(r"((?:^(?:>>>|\.\.\.).*\n?)(?:^\S.*\n?)*)", _example, text, flags=re.M),
        "",
    ]


def _example(found: re.Match[str]) -> str:
    return f"```pycon\n{found[0].rstrip()}\n```\n"


def kernel_page() -> str:
    """The error of every fit of the catalogue's profiles."""
    lines = ["# Errors of kernel timings", "", "Relative errors on shapes held out of each fit."]
    lines += [
        "",
        "| GPU | kernels of | operator | format | median | p90 |",
        "|---|---|---|---|---:|---:|",
    ]
    for gpu in catalog.names("gpus"):
        for framework in catalog.frameworks(gpu):
            for operator, fits in catalog.shipped_profile(gpu, framework).kernels.items():
                for precision, fit in fits.items():
                    held = f"{100 * fit.holdout.median:.1f} % | {100 * fit.holdout.p90:.0f} %"
                    lines.append(f"| {gpu} | {framework} | `{operator}` | {precision} | {held} |")
    return "\n".join(lines)


def _cell_text(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def write(target: Path = PAGES) -> list[Path]:
    """Write all pages anew; their paths below ``target``."""
    shutil.rmtree(target, ignore_errors=True)
    books = sorted((ROOT / "notebooks").glob("*.ipynb"))
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in sources()}
    (target / "notebooks").mkdir(parents=True)
    for book in books:
        texts[Path("notebooks", f"{book.stem}.md")] = notebook(book, target / "notebooks")
    pages = set(texts)
    texts = {page: relinked(text, page, pages) for page, text in texts.items()}
    makers = {"commands": command_pages, "scenario": scenario_page, "python": python_page}
    for name, made in (makers | {"kernels": kernel_page}).items():
        texts[Path("reference", f"{name}.md")] = made()
    for page, text in texts.items():
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        (target / page).write_text(text + "\n", encoding="utf-8")
    for name, place in FILES.items():
        (target / place).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, target / place)
    return sorted(texts)


if __name__ == "__main__":
    print(f"{len(write())} pages in {PAGES.relative_to(ROOT)}", file=sys.stderr)
