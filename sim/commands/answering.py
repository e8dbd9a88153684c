"""Provides the records of options that commands take, and those that every answer has: ``--jobs``,
``-o``, ``--save``, ``--json``, ``--full`` and ``--report``."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from sim.commands.options import AnswerOutput, AsJson, Full, Jobs, Keep, Report, check_kept


class Answering(NamedTuple):
    """How an answer is to be found and given."""

    jobs: Jobs = -1
    output: AnswerOutput = None
    as_json: AsJson = False
    full: Full = False
    report: Report = True
    keep: Keep = True

    def directory(self, name: str) -> Path | None:
        """The directory for the answer, None where it is not kept; UsageError, before anything is
        simulated, if it cannot be used."""
        from sim.results.run_directory import check_free, new_run_directory

        check_kept(self.output, self.keep)
        if not self.keep:
            return None
        directory = self.output or new_run_directory(Path("runs"), name)
        check_free(directory)
        return directory


def with_records(command: Callable[..., None]) -> Callable[..., None]:
    """``command`` with an option of its own for each field of the ``NamedTuple`` records that it
    takes, in their places."""
    hints = get_type_hints(command, include_extras=True)
    taken = signature(command)
    records = {name: hints[name] for name in taken.parameters if hasattr(hints[name], "_fields")}
    options: list[Parameter] = []
    for name, own in taken.parameters.items():
        if name in records:
            options += _fields(records[name])
        else:
            options.append(own.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY))

    def run(**given: Any) -> None:
        made = {
            name: record(**{field: given.pop(field) for field in record._fields})
            for name, record in records.items()
        }
        command(**given, **made)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {each.name: each.annotation for each in options}
    run.__signature__ = taken.replace(parameters=options)  # type: ignore[attr-defined]
    return run


def _fields(record: Any) -> list[Parameter]:
    """The fields of a record of options, as parameters."""
    hints, defaults = get_type_hints(record, include_extras=True), record._field_defaults
    return [
        Parameter(
            name,
            Parameter.KEYWORD_ONLY,
            default=defaults.get(name, Parameter.empty),
            annotation=hints[name],
        )
        for name in record._fields
    ]
