"""Says which figures of the variants the answer on a claim shows, and what each is called.

What the statements of a claim compare comes first, in their order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from sim.metrics.terms.definitions import DEFINITIONS, METRIC, bound_name


class ShownFigure(NamedTuple):
    """A figure of a variant: its ``key`` in a statement, title, and how its value is written."""

    key: str
    title: str
    kind: str = "number"
    unit: str = ""
    definition: str | None = None


OWN = {
    each.key: each
    for each in (
        ShownFigure("weight_bytes", "Weights read", "bytes", "B"),
        ShownFigure("kv_bytes", "KV read", "bytes", "B"),
    )
}
"""Figures that statements have beyond those of a summary."""


def keys_of(statements: Iterable[str]) -> list[str]:
    """The keys of the figures that ``statements`` compare, each once, in their order.

    >>> keys_of(["a.x < 2 * b.x", "a.batch.mean_running / b.y > 1"])
    ['x', 'batch.mean_running', 'y']
    """
    trees = (ast.parse(statement.strip(), mode="eval").body for statement in statements)
    return list(dict.fromkeys(key for tree in trees for key in _paths(tree)))


def _paths(node: ast.AST) -> Iterator[str]:
    """The paths below variants in an expression, from left to right."""
    match node:
        case ast.Attribute() | ast.Subscript():
            _, *steps = _steps(node)
            yield ".".join(steps)
        case _:
            for part in ast.iter_child_nodes(node):
                yield from _paths(part)


def _steps(node: ast.AST) -> list[str]:
    match node:
        case ast.Attribute(value=of, attr=name):
            return [*_steps(of), name]
        case ast.Subscript(value=of, slice=ast.Constant(value=str(name))):
            return [*_steps(of), name]
    return [ast.unparse(node)]


def shown_figure(key: str) -> ShownFigure:
    """The figure with that ``key``; one that has no definition is called by its key."""
    if key in OWN:
        return OWN[key]
    if key in METRIC:
        metric = METRIC[key]
        title = metric.head or DEFINITIONS[metric.definition].title
        return ShownFigure(key, title, metric.kind, metric.unit, metric.definition)
    section, _, name = key.rpartition(".")
    if section == "bound_by":
        return ShownFigure(key, f"Bound by {bound_name(name)}", "share", "%", "bound_by")
    return ShownFigure(key, key, unit="B" if name.endswith("bytes") else "")
