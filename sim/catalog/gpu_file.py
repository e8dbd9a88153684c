"""Turns one YAML file into a GpuSpec, with assumptions where a user's own file is silent.

The catalogue's own files state everything with its source. A user's file may give bare values, and
needs only ``memory``, ``bandwidth`` and the 16-bit entry of ``peak_flops``. What it leaves out is
the least favourable value among the parts of the catalogue whose kernels were measured, so that a
prediction errs towards slow; the source of each says that it was not measured.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import date

from sim.catalog.entries import shipped
from sim.catalog.extends import CatalogEntry
from sim.catalog.fields import Fields
from sim.catalog.profile_file import from_document
from sim.specs.gpu import FALLBACKS, AttentionEfficiency, Efficiency, GpuSpec, Link, ListPrice, Node
from sim.specs.power import PowerDraw

DEFAULTS: Mapping[str, tuple[object, str]] = {
    "sms": (108, "the fewest of the measured parts"),
    "link": (
        {"kind": "pcie", "bandwidth": "3.7GB/s", "latency": "20us", "peer_to_peer": False},
        "the slowest of the measured parts, cards on PCIe that do not reach each other directly",
    ),
    "host_link": (
        {"kind": "pcie", "bandwidth": "32GB/s", "latency": "10us"},
        "a PCIe Gen4 x16 slot",
    ),
    "node": (
        {"gpus": 8, "bandwidth": "25GB/s", "latency": "10us"},
        "the slowest network of the catalogue's parts",
    ),
    "power": ("1400W", "the highest board limit in the catalogue; an energy figure needs your own"),
    "price_per_hour": (None, "unknown, so no cost is given"),
    "efficiency": (
        {"compute": 0.60, "bandwidth": 0.70, "operator_latency": "5us"},
        "the least favourable value of each measured part",
    ),
    "attention": (
        {"bandwidth": 0.70, "floor": "17us", "unit": "4us"},
        "the least favourable value of each measured part",
    ),
}
"""For each key that a file may leave out, the value assumed and why that one."""

DEFAULT = "default, not measured"
"""How the source of a value opens that is one of ``DEFAULTS``."""

_DATE = re.compile(r"(\d{4})(?:-(\d\d?))?(?:-([ \d]?\d))?")
_PRECISION = {1: "%Y", 2: "%Y-%m", 3: "%Y-%m-%d"}
"""How a date is written, by how many of year, month and day are known."""

NAMES = ("driver", "published", "aiconfigurator")
"""Other sources of names for a part: its driver, publishers (a pattern), tables of kernel
timings."""

_REQUIRED = ("memory", "bandwidth", "peak_flops")
LEAST = {"bytes": 1e9, "bytes per second": 1e9, "FLOP/s": 1e10}
"""Lower limits of every GPU: a smaller number was meant in another unit."""
_MOST = {"bytes": 1e15, "bytes per second": 1e18, "FLOP/s": 1e21}
"""Generous upper limits of every GPU."""
_LEAST_SHARE = 1e-3
_EXAMPLES = {"bytes": "24GiB", "bytes per second": "1008GB/s", "FLOP/s": "165TFLOP/s"}


def assumptions(relative: GpuSpec | None) -> dict[str, tuple[object, str]]:
    """For each key that a file may leave out, the value taken and its source: that of the
    ``relative`` which the file names, or else of ``DEFAULTS``."""
    found = {key: (value, f"{DEFAULT}: {why}") for key, (value, why) in DEFAULTS.items()}
    if relative is None:
        return found
    source = f"Taken from the {relative.title}, the relative; not measured on this part."
    reached, read = relative.efficiency, relative.attention
    return found | {
        "sms": (relative.sms, source),
        "efficiency": (
            {
                "compute": reached.compute,
                "bandwidth": reached.bandwidth,
                "operator_latency": _micro(reached.operator_latency),
            },
            source,
        ),
        "attention": (
            {"bandwidth": read.bandwidth, "floor": _micro(read.floor), "unit": _micro(read.unit)},
            source,
        ),
    }


def _micro(seconds: float) -> str:
    return f"{seconds * 1e6:g}us"


NOT_PHYSICAL = frozenset({"title", "names", "price_per_hour", "profile"})
"""Keys that do not make a GPU another one."""


def _part(file: CatalogEntry) -> str:
    """The entry that a file is, or extends without changing what the GPU can do; "" if it is a
    GPU of the user's own, whatever the name of its file."""
    while file.base is not None and set(file.own) <= NOT_PHYSICAL:
        file = file.base
    return file.path.stem if shipped("gpus", file.path) else ""


def read_gpu(file: CatalogEntry, relative: GpuSpec | None = None) -> GpuSpec:
    """The GPU that a file describes, with what it takes over, also from the ``relative`` that it
    names; named after the file.

    Raises UsageError, naming file and key, for an unknown key or unit, a required key that is
    missing, and a value that no GPU can have.
    """
    entry, path = Fields(file.where, file.document), file.path
    entry.only(["title", "names", *_REQUIRED, *DEFAULTS, "draw", "relative", "profile"])
    profile = from_document(entry.inner("profile")) if entry.has("profile") else None
    if entry.has("names"):
        entry.inner("names").only(NAMES)
    entry = entry.without("names").without("profile")
    values, sources = entry.sourced(unsourced=file.unsourced)
    missing = {key: each for key, each in assumptions(relative).items() if not values.has(key)}
    assumed = {key: value for key, (value, _) in missing.items()}
    sources |= {key: source for key, (_, source) in missing.items()}
    values = Fields(file.where, {key: values.value(key) for key in values} | assumed)
    peaks = _peaks(values)
    try:
        return GpuSpec(
            name=path.stem,
            title=entry.text("title") if entry.has("title") else path.stem,
            memory=_plausible(values, "memory", "bytes"),
            bandwidth=_plausible(values, "bandwidth", "bytes per second"),
            peak_flops=peaks,
            sms=values.whole("sms"),
            link=_link(values.inner("link")),
            host_link=_link(values.inner("host_link")),
            node=_node(values.inner("node")),
            power=values.quantity("power", "power"),
            price=_price(values),
            efficiency=_efficiency(values.inner("efficiency"), sources["efficiency"]),
            attention=_attention(values.inner("attention"), sources["attention"]),
            sources=sources,
            profile=profile,
            relative=values.text("relative") if values.has("relative") else None,
            draw=_draw(values, sources) if values.has("draw") else None,
            own=not shipped("gpus", file.root.path),
            part=_part(file),
        )
    except ValueError as error:
        key, _, problem = str(error).partition(": ")
        raise entry.error(key, problem) from None


def _price(values: Fields) -> ListPrice | None:
    """USD per hour: a plain number, or a mapping that says whose price it is, and of when."""
    found = values.value("price_per_hour")
    if not isinstance(found, Mapping):
        return None if found is None else ListPrice(values.number("price_per_hour"))
    price = values.inner("price_per_hour")
    price.only(["usd", "provider", "date", "low", "high"])
    return ListPrice(
        usd=price.number("usd"),
        provider=None if _empty(price, "provider") else price.text("provider"),
        date=None if _empty(price, "date") else _date(price),
        low=None if _empty(price, "low") else price.number("low"),
        high=None if _empty(price, "high") else price.number("high"),
    )


def _empty(fields: Fields, key: str) -> bool:
    return not fields.has(key) or fields.value(key) is None


def _date(price: Fields) -> str:
    """The day, month or year of a price; YAML itself reads some of these as days or numbers."""
    text = str(price.value("date"))
    written = _DATE.fullmatch(text)
    if written is not None:
        parts = [int(part) for part in written.groups() if part]
        with suppress(ValueError):
            year, month, day = (*parts, 1, 1)[:3]
            return f"{date(year, month, day):{_PRECISION[len(parts)]}}"
    raise price.error("date", f"expected a day, month or year, such as 2026-11, found {text!r}")


def _peaks(values: Fields) -> dict[str, float]:
    """Dense FLOP/s by precision."""
    if not isinstance(values.value("peak_flops"), Mapping):
        raise values.error(
            "peak_flops", "expected a mapping by precision, such as {bf16: 165TFLOP/s}"
        )
    peaks = values.inner("peak_flops")
    peaks.only(FALLBACKS)
    return {key: _plausible(peaks, key, "FLOP/s") for key in peaks}


def _plausible(fields: Fields, key: str, dimension: str) -> float:
    """The quantity, which a bare number in giga or tera would make absurdly small."""
    value = fields.quantity(key, dimension)
    if 0 < value < LEAST[dimension]:
        raise fields.error(
            key,
            f"{fields.value(key)!r} is too small for a GPU; write the unit, as in "
            f"{_EXAMPLES[dimension]}",
        )
    if value > _MOST[dimension]:
        raise fields.error(key, f"{fields.value(key)!r} is too large for a GPU")
    return value


def _link(fields: Fields) -> Link:
    fields.only(["kind", "bandwidth", "latency", "peer_to_peer", "mesh"])
    kind = fields.text("kind")
    bandwidth = _plausible(fields, "bandwidth", "bytes per second")
    direct = fields.flag("peer_to_peer") if fields.has("peer_to_peer") else None
    if direct is not None and kind != "pcie":
        raise fields.error("peer_to_peer", f"applies to pcie only, not to {kind}")
    mesh = fields.whole("mesh") if fields.has("mesh") else None
    return Link(kind, bandwidth, fields.quantity("latency", "time"), direct, mesh)


def _node(fields: Fields) -> Node:
    fields.only(["gpus", "bandwidth", "latency"])
    bandwidth = _plausible(fields, "bandwidth", "bytes per second")
    network = Link("network", bandwidth, fields.quantity("latency", "time"))
    return Node(fields.whole("gpus"), network)


def _efficiency(fields: Fields, source: str) -> Efficiency:
    fields.only(["compute", "bandwidth", "operator_latency"])
    compute, bandwidth = _share(fields, "compute"), _share(fields, "bandwidth")
    return Efficiency(compute, bandwidth, fields.quantity("operator_latency", "time"), source)


def _attention(fields: Fields, source: str) -> AttentionEfficiency:
    fields.only(["bandwidth", "floor", "unit"])
    floor, unit = fields.quantity("floor", "time"), fields.quantity("unit", "time")
    return AttentionEfficiency(_share(fields, "bandwidth"), floor, unit, source)


def _draw(values: Fields, sources: Mapping[str, str]) -> PowerDraw | None:
    """The power draw; None, as where none is stated, takes that of the extended part away."""
    if values.value("draw") is None:
        return None
    fields = values.inner("draw")
    fields.only(["idle", "waiting", "working", "byte", "kv_byte", "flop", "error"])
    return PowerDraw(
        idle=fields.quantity("idle", "power"),
        waiting=fields.quantity("waiting", "power"),
        working=fields.quantity("working", "power"),
        byte=fields.quantity("byte", "energy"),
        kv_byte=fields.quantity("kv_byte", "energy"),
        flop=fields.quantity("flop", "energy"),
        error=fields.number("error"),
        source=sources["draw"],
    )


def _share(fields: Fields, key: str) -> float:
    """A share of a peak, which is never a tiny one."""
    value = fields.number(key)
    if not 0 < value <= 1:
        raise fields.error(key, f"got {value}, expected above 0 and at most 1")
    if value < _LEAST_SHARE:
        raise fields.error(key, f"{value:g} is too small; give a share of the peak, such as 0.7")
    return value
