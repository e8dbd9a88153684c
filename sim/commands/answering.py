"""Provides the options that every command with an answer has: ``--jobs``, ``-o``, ``--json`` and
``--report``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from sim.commands.options import AnswerOutput, AsJson, Jobs, Report


class Answering(NamedTuple):
    """How an answer is to be found and given."""

    jobs: Jobs = -1
    output: AnswerOutput = None
    as_json: AsJson = False
    report: Report = True

    def directory(self, name: str) -> Path:
        """The directory for the answer; UsageError, before anything is simulated, if it cannot be
        used."""
        from sim.results.run_directory import check_free, new_run_directory

        directory = self.output or new_run_directory(Path("runs"), name)
        check_free(directory)
        return directory


def answering(command: Callable[..., None]) -> Callable[..., None]:
    """``command``, which takes an ``Answering`` last, with its fields as options of their own."""
    taken = signature(command, eval_str=True)
    *own, _ = taken.parameters.values()
    kind, hints = Parameter.POSITIONAL_OR_KEYWORD, get_type_hints(Answering, include_extras=True)
    added = [
        Parameter(name, kind, default=default, annotation=hints[name])
        for name, default in Answering._field_defaults.items()
    ]

    def run(**given: Any) -> None:
        how = Answering(**{each.name: given.pop(each.name) for each in added})
        command(**given, how=how)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
    run.__signature__ = taken.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
    return run
