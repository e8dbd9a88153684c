"""Describes the SLO: limits of latency, judged together or each by a percentile. Times in seconds.

A limit needs a unit where a number alone could be read in two ways: engines and benchmarks count in
milliseconds, this format in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from pydantic import Field, PlainSerializer, SerializerFunctionWrapHandler, model_serializer

from sim.scenario.sections.support import Section
from sim.scenario.text.parsing import scalar
from sim.scenario.values import spelling
from sim.scenario.values.fields import LONGEST_TIME, TIME, Duration, Share
from sim.scenario.values.readers import Kind

METRICS = ("ttft", "tpot", "e2el")
"""Metrics that a limit can be set for: one value for each request."""

PERCENTILES = (50, 90, 95, 99)
"""Percentiles that can each have a limit, as ``ttft_p95``."""

BARE = {"ttft": 10.0, "tpot": 1.0, "e2el": 10.0}
"""Up to here a number without a unit is in seconds: in milliseconds it would ask for a first token
within 10 ms, or a token each millisecond, which no deployment aims at. A larger one is as likely
meant in milliseconds, and refused."""


def read_limit(metric: str, value: object) -> object:
    """``value`` as it came, to be read as a duration; ValueError for a number without a unit that
    may be meant in milliseconds.

    >>> read_limit("ttft", 0.5), read_limit("ttft", "500ms")
    (0.5, '500ms')
    >>> read_limit("tpot", 40)
    Traceback (most recent call last):
    ValueError: 40 has no unit: 40ms or 40s?
    """
    number = scalar(value.strip()) if isinstance(value, str) else value
    if isinstance(number, bool) or not isinstance(number, int | float):
        return value
    if BARE[metric] < number <= LONGEST_TIME:
        text = f"{number:.12g}"
        raise ValueError(f"{text} has no unit: {text}ms or {text}s?")
    return value


def _limit(metric: str) -> Kind:
    """A time with its unit, or a number that can only be in seconds."""

    def schema() -> spelling.Schema:
        bounds = {"exclusiveMinimum": 0, "maximum": BARE[metric]}
        text = spelling.all_of(spelling.with_unit("time"))
        return {"type": ["number", "string"], **bounds, "pattern": text}

    return Kind(
        f"{metric}_limit",
        f"{TIME}, more than 0; a bare number above 10 (tpot: 1) is refused",
        schema,
        "s",
        read=lambda value: read_limit(metric, value),
    )


def _writer(metric: str) -> PlainSerializer:
    """A number where it reads back as the same, else a text with its unit."""

    def write(seconds: float) -> float | str:
        return seconds if seconds <= BARE[metric] else f"{seconds!r}s"

    return PlainSerializer(write, when_used="json-unless-none")


TtftLimit = Annotated[Duration, _limit("ttft"), _writer("ttft")]
"""Seconds, above 0; a number above 10 needs a unit."""
TpotLimit = Annotated[Duration, _limit("tpot"), _writer("tpot")]
"""Seconds, above 0; a number above 1 needs a unit."""
E2elLimit = Annotated[Duration, _limit("e2el"), _writer("e2el")]
"""Seconds, above 0; a number above 10 needs a unit."""


ATTAINED = 0.99
"""The share of requests where none is asked for."""

Attainment = Annotated[
    Share,
    Kind(
        "attainment",
        "a number above 0 and up to 1; null: the default",
        lambda: (
            spelling.number({"exclusiveMinimum": 0, "maximum": 1})
            | {"type": ["number", "string", "null"]}
        ),
        read=lambda value: ATTAINED if value is None else value,
    ),
]
"""A share in (0, 1]; None, which a scenario puts over its parent's, reads as the default."""


class Apart(NamedTuple):
    """One percentile of a metric that must be at most ``limit`` seconds; ``name`` is its key."""

    name: str
    metric: str
    percentile: int
    limit: float


def _percentile(metric: str, percentile: int) -> Any:
    return Field(
        default=None,
        description=f"Largest p{percentile} of {metric.upper()}, judged apart from the other "
        "limits, with its unit (500ms). null: no limit.",
    )


class Slo(Section):
    """The latency that most requests must see, each limit with its unit (500ms, 2s).

    ``ttft``, ``tpot`` and ``e2el`` must hold together, for the share ``attainment`` of the
    requests. Limits of a percentile, such as ``ttft_p95``, are judged one by one: that percentile
    must not exceed them. Requests that were rejected or not finished count as beyond every limit.
    """

    ttft: TtftLimit | None = Field(
        default=None,
        description="Largest time to first token, queueing included, with its unit (500ms). "
        "A bare number up to 10 is in seconds. null: no limit.",
    )
    tpot: TpotLimit | None = Field(
        default=None,
        description="Largest time per output token after the first, with its unit (50ms). "
        "A bare number up to 1 is in seconds. null: no limit.",
    )
    e2el: E2elLimit | None = Field(
        default=None,
        description="Largest time from arrival to the last token, with its unit (20s). "
        "A bare number up to 10 is in seconds. null: no limit.",
    )
    attainment: Attainment = Field(
        default=ATTAINED,
        description="Share of requests for which ttft, tpot and e2el must hold together. A p99, "
        "as is usual.",
    )
    ttft_p50: TtftLimit | None = _percentile("ttft", 50)
    ttft_p90: TtftLimit | None = _percentile("ttft", 90)
    ttft_p95: TtftLimit | None = _percentile("ttft", 95)
    ttft_p99: TtftLimit | None = _percentile("ttft", 99)
    tpot_p50: TpotLimit | None = _percentile("tpot", 50)
    tpot_p90: TpotLimit | None = _percentile("tpot", 90)
    tpot_p95: TpotLimit | None = _percentile("tpot", 95)
    tpot_p99: TpotLimit | None = _percentile("tpot", 99)
    e2el_p50: E2elLimit | None = _percentile("e2el", 50)
    e2el_p90: E2elLimit | None = _percentile("e2el", 90)
    e2el_p95: E2elLimit | None = _percentile("e2el", 95)
    e2el_p99: E2elLimit | None = _percentile("e2el", 99)

    @property
    def together(self) -> dict[str, float]:
        """The limits (s) that the share ``attainment`` of the requests must keep together."""
        given = {"ttft": self.ttft, "tpot": self.tpot, "e2el": self.e2el}
        return {name: limit for name, limit in given.items() if limit is not None}

    @property
    def apart(self) -> tuple[Apart, ...]:
        """The limits of single percentiles."""
        keys = [(f"{metric}_p{rank}", metric, rank) for metric in METRICS for rank in PERCENTILES]
        values = [(*key, getattr(self, key[0])) for key in keys]
        return tuple(Apart(*value) for value in values if value[-1] is not None)

    @property
    def stated(self) -> bool:
        """Whether there is anything to judge a run by."""
        return bool(self.together or self.apart)

    @property
    def of_request(self) -> dict[str, float]:
        """The limits (s) by which a single request is good: those that hold together, and for
        other metrics the limit of their highest percentile."""
        highest = {apart.metric: apart.limit for apart in self.apart}  # the last is the highest
        return {**highest, **self.together}

    @model_serializer(mode="wrap")
    def _without_unused_percentiles(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = handler(self)
        return {key: value for key, value in written.items() if "_p" not in key or value}


_OLDER = {"ttft", "tpot", "attainment"}
_RESOLVED = {
    *("version", "name", "description", "seed", "model", "precision", "fleet", "engine"),
    *("scheduler", "kv_cache", "max_model_len", "speculative", "router", "workload", "slo", "run"),
}
"""The keys of a scenario with all its defaults, as every program version writes it."""


def with_units(data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` with units in its SLO and its deadlines, if an older version of this program wrote
    it.

    Those wrote seconds as bare numbers (limits before there was ``e2el``, deadlines for longer),
    together with every other key of a scenario, which a person does not; so that the directories
    of older runs can still be read.
    """
    if not data.keys() >= _RESOLVED:
        return dict(data)
    slo, workload = data["slo"], data["workload"]
    if isinstance(slo, dict) and slo.keys() == _OLDER:
        slo = {key: _in_seconds(value) if key in METRICS else value for key, value in slo.items()}
    if isinstance(workload, dict) and isinstance(workload.get("classes"), list):
        workload = {**workload, "classes": [_dated(item) for item in workload["classes"]]}
    return {**data, "slo": slo, "workload": workload}


def _dated(item: object) -> object:
    """A class of requests whose deadline has its unit."""
    if not isinstance(item, dict) or "deadline" not in item:
        return item
    return {**item, "deadline": _in_seconds(item["deadline"])}


def _in_seconds(value: object) -> object:
    """A float, which is how seconds were written, with its unit; all else unchanged."""
    return f"{value!r}s" if type(value) is float else value
