"""Provides the orders of the queue, one file each, found by name or as ``package.module:Class``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sim.errors import UsageError, did_you_mean
from sim.own import load_class
from sim.schedulers.orders.base import Order
from sim.schedulers.orders.edf import EarliestDeadline
from sim.schedulers.orders.fcfs import FirstCome
from sim.schedulers.orders.priority import Priority
from sim.schedulers.orders.sjf import ShortestJob

__all__ = ["EarliestDeadline", "FirstCome", "Order", "Priority", "ShortestJob", "make_order"]

ORDERS: dict[str, type[Order]] = {
    "fcfs": FirstCome,
    "sjf": ShortestJob,
    "priority": Priority,
    "edf": EarliestDeadline,
}


def make_order(name: str, folders: Sequence[Path] = ()) -> Order:
    """The order that ``scheduler.order`` names; one with a colon is imported, ``folders`` first.

    Raises UsageError for a name that leads nowhere.
    """
    if ":" in name:
        own: type[Order] = load_class(name, Order, "order", folders)
        try:
            return own()
        except TypeError as error:
            raise UsageError(f"order {name!r} cannot be made without arguments ({error})") from None
    if name not in ORDERS:
        raise UsageError(
            f"unknown order {name!r}{did_you_mean(name, ORDERS)}; "
            f"known: {', '.join(ORDERS)}, or package.module:Class"
        )
    return ORDERS[name]()
