"""The help of every command: an example that can be typed, and the keys that can be varied."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from sim.cli import app
from sim.commands.examples import EXAMPLES
from sim.scenario.reference.keys import keys

ROOT: Any = typer.main.get_command(app)


def commands(group: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        path = f"{above}{name}"
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} ")
        else:
            yield path, command


COMMANDS = dict(commands(ROOT))


def test_every_command_has_an_example_and_every_example_a_command() -> None:
    assert set(COMMANDS) == set(EXAMPLES)


@pytest.mark.parametrize("path", COMMANDS)
def test_an_example_is_shown_and_is_understood(path: str) -> None:
    done = CliRunner().invoke(app, [*path.split(), "--help"])
    assert done.exit_code == 0
    shown = " ".join(done.stdout.split())
    assert f"Example: infersim {path} {EXAMPLES[path]}".rstrip() in shown
    words = shlex.split(EXAMPLES[path])
    COMMANDS[path].make_context(path, list(words))  # raises for options that do not exist


@pytest.mark.parametrize("command", ["compare", "sweep"])
def test_some_keys_to_vary_are_named_and_exist(command: str) -> None:
    shown = "".join(CliRunner().invoke(app, [command, "--help"]).stdout.replace("│", "").split())
    named = [key.path for key in keys() if "." in key.path and key.path in shown]
    assert len(named) >= 2
    assert "infersimexplainscenario" in shown
