"""No line of a result is wider than 88 columns, whatever its names and numbers, on any terminal; in
a pipe that asks for more columns none is wider than those."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from sim.cli import app
from sim.planning.load import find
from sim.scenario import Scenario
from sim.terminal.console import WIDTH, axis_columns, stdout
from tests.answers import compare_view, sweep_view
from tests.planning_fixtures import SMALL

NAME = "a scenario whose name says what it is about, and then says some more of it, to the very end"
CLASSES = [
    {"name": f"{'long-' * 12}{number}", "share": 0.05, "priority": number} for number in range(20)
]
BUSY = {"arrivals": {"kind": "poisson", "rate": 90_000.0}, "classes": CLASSES}
WIDE: dict[str, Any] = {
    "name": NAME,
    "fleet": {"gpu": "h100-sxm", "replicas": 32, "price_per_gpu_hour": 987_654.32},
    "scheduler": {"order": "priority"},
    "workload": SMALL["workload"] | BUSY,
}
LONG_KEYS = (
    "scheduler.long_prefill_token_threshold=0,256",
    "kv_cache.gpu_memory_utilization=0.85,0.95",
    "scheduler.max_num_batched_tokens=1024,123456",
)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "wide.yaml").write_text(yaml.safe_dump(SMALL | WIDE))
    (tmp_path / "named.yaml").write_text(yaml.safe_dump(SMALL | {"name": NAME}))


@pytest.fixture(scope="module", autouse=True)
def _searched_once() -> Iterator[None]:
    """The same search is printed on several terminals."""
    search, found = find.find, dict[Scenario, Any]()

    def once(asked: Scenario, *arguments: Any, **options: Any) -> Any:
        if asked not in found:
            found[asked] = search(asked, *arguments, **options)
        return found[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find, "find", once)
        yield


def lines(*arguments: str) -> list[str]:
    """What a command prints, but for the paths, which stay whole to be copied."""
    done = CliRunner().invoke(app, [*arguments])
    assert done.exit_code == 0, done.output
    assert "\x1b" not in done.output
    return [line for line in done.stdout.splitlines() if not line.startswith(("Run: ", "Report: "))]


COMMANDS = {
    "run": "run wide.yaml --no-report",
    "repetitions": "run wide.yaml --no-report --set run.repetitions=2",
    "find": "find named.yaml --jobs 1 --tolerance 0.3 --no-report",
    "show": "show h100-sxm",
    "list": "list",
    "fit": "fit llama-3.1-405b --gpu h100-sxm --tensor-parallel 16",
    "roofline": "roofline llama-3.1-405b --gpu b200-sxm --batch 65536 --context 131072",
}


@pytest.mark.usefixtures("brief_answers")
@pytest.mark.parametrize("columns", [None, "88", "200"])
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_every_line_fits(
    command: str, columns: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    printed = lines(*command.split())
    assert max(map(len, printed)) <= int(columns or WIDTH)
    assert len(printed) > 5


def test_classes_with_long_names_are_told_apart() -> None:
    rows = [line.split("│") for line in lines("run", "wide.yaml", "--no-report")]
    cells = [row[1].strip() for row in rows if len(row) == 9]
    told = "".join(cells).replace("long-", "")
    assert told == "".join(map(str, range(12)))


@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_varied_values_are_whole_under_long_keys(command: str) -> None:
    option = {"compare": "--vary", "sweep": "--sweep"}[command]
    more = ["--repetitions", "2"] if command == "compare" else []
    varied = [word for key in LONG_KEYS for word in (option, key)]
    printed = lines(command, "named.yaml", *varied, *more, "--jobs", "1", "--no-report")
    assert max(map(len, printed)) <= WIDTH
    rows = [line.split()[:3] for line in printed if line.split()[1:2] in (["0.85"], ["0.95"])]
    shares, tokens = ("0.85", "0.95"), ("1024", "123456")
    wanted = [[c, s, t] for c in ("0", "256") for s in shares for t in tokens]
    assert rows == [*wanted, *(wanted[1:] if command == "compare" else [])]


def test_values_too_long_for_any_table_fold() -> None:
    values = [["x" * 70], ["y" * 70]]
    blank, columns = axis_columns(["first", "second"], values, [10, 10], WIDTH)
    assert blank == 0
    assert sum(width for width, _ in columns) == WIDTH - 20 - 4 - 1
    crowded = axis_columns(["first", "second"], values, [40, 40], WIDTH)[1]
    assert [width for width, _ in crowded] == [4, 4]


def test_empty_answers_are_shown() -> None:
    axes = [{"key": "workload.arrivals.rate", "name": "rate", "values": []}]
    said: dict[str, Any] = {"name": NAME, "infersim": "1.0", "notes": [], "run_notes": []}
    nothing = {"points": 0, "failed": 0, "answers": [], "results": [], "axes": axes, "load": None}
    none = {"variants": [], "figures": [], "base": None, "pairing": "", "same_traffic": True}
    console = Console(file=io.StringIO(), width=WIDTH)
    console.print(sweep_view({**said, **nothing}))
    console.print(compare_view({**said, **none}))
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "Points: 0" in printed
    assert max(map(len, printed.splitlines())) <= WIDTH


def test_a_pipe_has_88_columns_or_more_if_it_asks_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stdout().width == WIDTH
    for columns, width in (("60", WIDTH), ("200", 200), ("wide", WIDTH)):
        monkeypatch.setenv("COLUMNS", columns)
        assert stdout().width == width
