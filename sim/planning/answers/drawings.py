"""Defines what the figures of decisions draw, as plain records; ``reports.figures`` draws them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

PARTS: Mapping[str, str] = {
    "front_end": "front end",
    "queue": "queue",
    "prefill": "own prefill",
    "prefill_delay": "others' prefill, before the first token",
    "prefill_preempted": "preempted before the first token",
    "decode": "decode",
    "decode_delay": "others' prefill, after the first token",
    "decode_preempted": "preempted after the first token",
    "transfer": "transfer",
}
"""The parts of a latency, in their order in time."""

BARS: Mapping[str, str] = {
    "ttft": "TTFT",
    "slowest_ttft": "TTFT, slowest 1 %",
    "e2el": "E2EL",
    "slowest_e2el": "E2EL, slowest 1 %",
}
"""The latencies of which the parts are known."""


class ChangeBar(NamedTuple):
    """``change`` is relative: 0.1 is a tenth more. Bars of the same ``row`` share it; ``text`` says
    which change it is, ``end`` does in a word next to the bar; what is not ``judged`` is neither
    better nor worse."""

    row: str
    change: float
    text: str
    end: str = ""
    judged: bool = True


class Changes(NamedTuple):
    """The changes of the figure called ``title``, of which ``more`` is better or not."""

    title: str
    more: bool
    bars: tuple[ChangeBar, ...]


class EndsBar(NamedTuple):
    """An input at one end: the share of requests within the SLO, 0..1, and the SLO's state (met,
    missed, too close to call) where that is another one than that of the run."""

    row: str
    text: str
    share: float
    flips: str


class AttainedAtEnds(NamedTuple):
    """The share within the SLO of the run, the share that is wanted, and that at each end."""

    now: float
    target: float
    bars: tuple[EndsBar, ...]


class LoadPoint(NamedTuple):
    """A latency in milliseconds under a load, whether the load holds, and what else is known."""

    load: float
    outcome: str
    latency: float
    text: str


class LoadCurve(NamedTuple):
    """The latency ``metric`` over the load, up to the load ``right``: its limit, the highest load
    that holds, the scenario's own and the knee; milliseconds, None for what there is not."""

    metric: str
    title: str
    unit: str
    right: float
    limit: float | None
    highest: float
    own: float | None
    knee: float | None
    points: tuple[LoadPoint, ...]


class LoadShare(NamedTuple):
    """The share of requests within a part of the SLO under a load, and its 95 % interval; ``text``
    names the part where there are several."""

    load: float
    outcome: str
    attainment: float
    low: float
    high: float
    text: str


class AttainedByLoad(NamedTuple):
    """The share within the SLO at each load, up to the load ``right``, and the shares wanted."""

    unit: str
    right: float
    targets: tuple[float, ...]
    points: tuple[LoadShare, ...]


class LadderStep(NamedTuple):
    """The value of a metric with one more technique; None where that does not run."""

    title: str
    value: float | None


class Waterfall(NamedTuple):
    """The metric ``key`` without any technique, with each one more, and with all of them."""

    key: str
    unit: str
    more: bool
    baseline: float | None
    steps: tuple[LadderStep, ...]
    full: float | None


class MeanParts(NamedTuple):
    """The mean parts of the ``latency`` (ttft or e2el), of all requests and of the slowest: in
    milliseconds by the name of the part (``PARTS``), below that of the bar (``BARS``)."""

    latency: str
    bars: Mapping[str, Mapping[str, float]]


class FleetCost(NamedTuple):
    """USD per hour of a fleet: now, and with iterations as fast and as slow as the error band has
    them; None where no number of replicas holds."""

    name: str
    usd: float
    fewest: float | None
    most: float | None


class FleetCosts(NamedTuple):
    """The costs of fleets, the cheapest first."""

    fleets: tuple[FleetCost, ...]


class CostLine(NamedTuple):
    """Dollars per hour of the fleets of one layout, with so many ``spare`` replicas, up to each of
    ``loads`` from the one before it."""

    name: str
    spare: int
    loads: tuple[float, ...]
    usd: tuple[float, ...]


class CostOverLoad(NamedTuple):
    """The costs of layouts over the load, in requests per second."""

    lines: tuple[CostLine, ...]


class SplitPoint(NamedTuple):
    """Numbers of replicas that were simulated: USD per hour, whether they hold the load, and the
    share of requests within the SLO, if there is one."""

    prefill: int
    decode: int
    usd: float
    outcome: str
    share: float | None


class SplitRatios(NamedTuple):
    """The numbers of replicas of two layouts that were simulated."""

    tried: tuple[SplitPoint, ...]


class LatencyPoint(NamedTuple):
    """A latency in milliseconds under a load, the state of the SLO, and the states in words."""

    load: float
    latency: float
    overloaded: bool
    slo: str | None
    text: str


class LatencyLine(NamedTuple):
    """The points of a sweep that share the ``settings`` of ``label``, by their load."""

    label: str
    settings: Mapping[str, Any]
    points: tuple[LatencyPoint, ...]


class LatencyLines(NamedTuple):
    """The latency called ``title`` over the load, which ``load`` names, and the limits of it."""

    title: str
    load: str
    limits: tuple[float, ...]
    lines: tuple[LatencyLine, ...]


class Grid(NamedTuple):
    """A metric, ``title``, over two values: a row of ``values`` for each of ``rows``, None where a
    point failed or has no value; ``met`` where the SLO is met."""

    title: str
    across: str
    up: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    met: tuple[tuple[bool, ...], ...]
    logarithmic: bool


class TradePoint(NamedTuple):
    """A point of a sweep, a variant or a fleet by two of its metrics; ``short`` stands next to
    it."""

    x: float
    y: float
    label: str
    short: str = ""


class TradeGroup(NamedTuple):
    """Points of one colour: they share the ``settings`` of ``label``."""

    label: str
    settings: Mapping[str, Any]
    points: tuple[TradePoint, ...]


class Trade(NamedTuple):
    """Points by two metrics. ``speed``: output tokens/s of a GPU against those of a user, more of
    both is better; ``cost``: a latency in milliseconds, ``title``, against dollars, less is.
    No point is better in both than one of the ``front``."""

    kind: str
    title: str
    groups: tuple[TradeGroup, ...]
    front: tuple[TradePoint, ...]


class CostAndLatency(NamedTuple):
    """Fleets that hold by USD per hour and by the latency called ``title`` (ms), a group for each
    GPU and number format; the limit, if any, and the fleets of which no other has less of both."""

    title: str
    limit: float | None
    groups: tuple[TradeGroup, ...]
    front: tuple[TradePoint, ...]


class VariantName(NamedTuple):
    """A variant of a comparison in a figure: its name there and all that is known of it, the
    batching policy if that is varied, and whether it is overloaded."""

    name: str
    hover: tuple[str, ...]
    policy: str | None
    overloaded: bool


class VariantBar(NamedTuple):
    """A mean, or a relative difference to the base (0.1: a tenth more) with half its interval, and
    that as text; ``better`` is None where it is not certain, or neither way is better."""

    variant: VariantName
    value: float
    text: str
    half: float = 0.0
    better: bool | None = None


class Means(NamedTuple):
    """The means of the metric ``title`` (``head`` with its unit), the best first; ``timed``: they
    are milliseconds."""

    title: str
    head: str
    timed: bool
    bars: tuple[VariantBar, ...]


class Differences(NamedTuple):
    """The differences to the base in the metric ``title``, the best first."""

    title: str
    bars: tuple[VariantBar, ...]


class CostAttained(NamedTuple):
    """Variants by what a million output tokens cost (USD) and by the share within the SLO."""

    points: tuple[TradePoint, ...]
