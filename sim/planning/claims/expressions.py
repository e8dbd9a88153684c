"""Evaluates the statements of a claim, such as ``long.kv_bytes > 2 * long.weight_bytes``.

A statement compares two numbers, which come from the variants of the claim. ``long`` is a variant,
``long.mean_tpot_ms`` a figure of its summary; what is nested there follows after a dot, or in
brackets where it is no plain name: ``long.operators["decode attention"].bytes``. Numbers are added,
subtracted, multiplied, divided; nothing else is understood.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from sim.errors import UsageError, did_you_mean
from sim.units import number, show_rate

LARGE = 1e7
"""From here on numbers are written with a decimal prefix: 53.1 T for 53.1 times a trillion."""

_ARITHMETIC: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: Mapping[type[ast.cmpop], tuple[str, Callable[[float, float], bool]]] = {
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
}


class Checked(NamedTuple):
    """A statement, the numbers on both sides, and whether it is ``true``."""

    statement: str
    left: float
    right: float
    sign: str
    true: bool
    units: tuple[str, str] = ("", "")

    @property
    def text(self) -> str:
        """The statement with its numbers: ``12.5 > 8.1``, or ``2.36 TB > 1.2 TB``."""
        left, right = (
            _short(value, unit)
            for value, unit in zip((self.left, self.right), self.units, strict=True)
        )
        return f"{left} {self.sign} {right}"


def check(statement: str, variants: Mapping[str, Mapping[str, Any]]) -> Checked:
    """Whether ``statement`` is true of the figures of the ``variants``, by name.

    Raises UsageError for what is no comparison of two numbers, and for figures that no variant has.
    """
    try:
        tree = ast.parse(statement.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        tree = None
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        raise UsageError(f"{statement!r} compares nothing; expected such as 'a.p99_ttft_ms < 500'")
    found = _COMPARISONS.get(type(tree.ops[0]))
    if found is None:
        signs = ", ".join(sign for sign, _ in _COMPARISONS.values())
        raise UsageError(f"{statement!r}: expected one of {signs} between two numbers")
    sign, holds = found
    left = _number(tree.left, statement, variants)
    right = _number(tree.comparators[0], statement, variants)
    units = ("B" if _bytes(tree.left) == 1 else "", "B" if _bytes(tree.comparators[0]) == 1 else "")
    return Checked(statement, left, right, sign, holds(left, right), units)


def _short(value: float, unit: str) -> str:
    if unit or abs(value) >= LARGE:
        return show_rate(value, unit).rstrip()
    return number(value)


def _bytes(node: ast.expr) -> int:
    """The power of bytes in what an expression gives: 1 for bytes, 0 for a ratio of two."""
    match node:
        case ast.BinOp(op=ast.Mult()):
            return _bytes(node.left) + _bytes(node.right)
        case ast.BinOp(op=ast.Div()):
            return _bytes(node.left) - _bytes(node.right)
        case ast.BinOp():
            return _bytes(node.left)
        case ast.Attribute(attr=name) | ast.Subscript(slice=ast.Constant(value=str(name))):
            return int(name == "bytes" or name.endswith("_bytes"))
    return 0


def _number(node: ast.expr, statement: str, variants: Mapping[str, Any]) -> float:
    """The number that an expression is."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left = _number(node.left, statement, variants)
        right = _number(node.right, statement, variants)
        try:
            return _ARITHMETIC[type(node.op)](left, right)
        except ZeroDivisionError:
            raise UsageError(f"{statement!r}: {ast.unparse(node)} divides by zero") from None
    value = _value(node, statement, variants)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{statement!r}: {ast.unparse(node)} is no number")
    return float(value)


def _value(node: ast.expr, statement: str, variants: Mapping[str, Any]) -> Any:
    """The value of a name, a path or a literal."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _entry(variants, name, "the claim", "variant", statement)
        case (
            ast.Attribute(value=of, attr=name)
            | ast.Subscript(value=of, slice=ast.Constant(value=str(name)))
        ):
            return _entry(
                _value(of, statement, variants), name, ast.unparse(of), "figure", statement
            )
    raise UsageError(f"{statement!r}: {ast.unparse(node)} is not understood")


def _entry(found: Any, name: str, of: str, what: str, statement: str) -> Any:
    if not isinstance(found, Mapping):
        raise UsageError(f"{statement!r}: {of} has nothing in it")
    if name in found:
        return found[name]
    below = found.get("infersim")
    if isinstance(below, Mapping) and name in below:
        return below[name]
    known = [*found, *below] if isinstance(below, Mapping) else [*found]
    raise UsageError(
        f"{statement!r}: {of} has no {what} {name!r}{did_you_mean(name, map(str, known))}"
    )
