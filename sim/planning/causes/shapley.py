"""Divides a whole into the contributions of its parts, whatever the order they came in.

A coalition is a set of players, with a value. A player's contribution in one order is what the
value grows by when it joins; its Shapley value is the mean of that over orders. Every order ends at
the same whole, so the contributions add up to it exactly, order by order and in the mean.

Where some coalitions have no value (a model that does not fit), only the orders count that pass
through none of them. Weights are fractions, so that nothing is lost to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

Coalition = frozenset[str]
Edge = tuple[Coalition, str]
"""A player who joins a coalition."""


def subsets(players: Sequence[str]) -> list[Coalition]:
    """Every coalition, smaller ones first."""
    sizes = range(len(players) + 1)
    return [frozenset(some) for size in sizes for some in combinations(players, size)]


def all_orders(players: Collection[str], feasible: Callable[[Coalition], bool]) -> dict[Edge, int]:
    """In how many orders, out of those that pass through feasible coalitions only, each player
    joins each coalition; empty if there is no such order.

    Counted along the lattice of coalitions, so that 6 players take 64 steps and not 720.
    """
    names = sorted(players)
    lattice = [coalition for coalition in subsets(names) if feasible(coalition)]
    whole = frozenset(names)
    before = dict.fromkeys(lattice, 0)
    after = dict.fromkeys(lattice, 0)
    if frozenset() not in before or whole not in after:
        return {}
    before[frozenset()] = after[whole] = 1
    for coalition in lattice:
        for player in coalition:
            before[coalition] += before.get(coalition - {player}, 0)
    for coalition in reversed(lattice):
        for player in whole - coalition:
            after[coalition] += after.get(coalition | {player}, 0)
    counts = {
        (coalition, player): before[coalition] * after.get(coalition | {player}, 0)
        for coalition in lattice
        for player in sorted(whole - coalition)
    }
    return {edge: count for edge, count in counts.items() if count}


def these_orders(orders: Iterable[Sequence[str]]) -> dict[Edge, int]:
    """Contributions over a sample of orders."""
    counts: dict[Edge, int] = {}
    for order in orders:
        for place, player in enumerate(order):
            edge = frozenset(order[:place]), player
            counts[edge] = counts.get(edge, 0) + 1
    return counts


def contributions(
    edges: Mapping[Edge, int], value: Mapping[Coalition, float]
) -> dict[str, Fraction]:
    """The mean contribution of each player; they add up to the whole exactly.

    >>> value = {frozenset(): 1.0, frozenset("a"): 2.0, frozenset("b"): 1.0, frozenset("ab"): 5.0}
    >>> parts = contributions(all_orders("ab", lambda coalition: True), value)
    >>> parts["a"], parts["b"]
    (Fraction(5, 2), Fraction(3, 2))
    """
    orders = sum(count for (coalition, _), count in edges.items() if not coalition)
    found: dict[str, Fraction] = {}
    for (coalition, player), count in edges.items():
        grown = Fraction(value[coalition | {player}]) - Fraction(value[coalition])
        found[player] = found.get(player, Fraction(0)) + Fraction(count, orders) * grown
    return found
