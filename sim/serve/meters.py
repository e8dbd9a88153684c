"""Counts what a server of vLLM counts, under vLLM's names, for Prometheus to fetch.

Names and buckets are those of vLLM 0.32 (``v1/metrics``); times are simulated seconds. The label
``engine`` is the number of the replica, or of the data rank, ``pool`` the name of its pool. A
replica that prefills for others counts prompts as a server of vLLM does that is asked for a token.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from sim.loop.live import LiveFleet, Telling
from sim.request import Request
from sim.setup import Setup

FIRST_TOKEN = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
PER_TOKEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0),
    *(20.0, 40.0, 80.0),
)
REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0),
    *(240.0, 480.0, 960.0, 1920.0, 7680.0),
)
ITERATION = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


LABELS = ["model_name", "engine", "pool"]

COUNTERS = (
    ("num_preemptions", "Preemptions.", "preemptions"),
    ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", "queries"),
    ("prefix_cache_hits", "Those of them that were there.", "hits"),
    ("spec_decode_num_drafts", "Sequences' drafts that were checked.", "checks"),
    ("spec_decode_num_draft_tokens", "Drafted tokens.", "drafted"),
)
"""Name, meaning, and what a live replica calls it; the last two where tokens are drafted."""


def up_to(most: int) -> tuple[int, ...]:
    """vLLM's buckets of lengths.

    >>> up_to(100)
    (1, 2, 5, 10, 20, 50, 100)
    """
    steps = (digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5))
    return tuple(step for step in steps if step <= most)


class Histogram:
    """Values in ``buckets``, the last of which has no bound."""

    def __init__(self, buckets: Sequence[float]) -> None:
        self.buckets = buckets
        self.counts = [0] * (len(buckets) + 1)
        self.total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """``value`` was seen that many ``times``."""
        self.counts[bisect_left(self.buckets, value)] += times
        self.total += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it) of each bucket."""
        seen, found = 0, []
        bounds = [repr(float(bound)) for bound in self.buckets]
        for bound, count in zip([*bounds, "+Inf"], self.counts, strict=True):
            seen += count
            found.append((bound, float(seen)))
        return found


class EngineMeters:
    """The meters of one engine so far."""

    HISTOGRAMS = (
        ("time_to_first_token_seconds", "Time to first token, s.", FIRST_TOKEN),
        ("inter_token_latency_seconds", "Time between two tokens, s.", PER_TOKEN),
        (
            "request_time_per_output_token_seconds",
            "Time per output token after the first, of a request, s.",
            PER_TOKEN,
        ),
        ("e2e_request_latency_seconds", "From arrival to last token, s.", REQUEST),
        ("request_queue_time_seconds", "In the queue, s.", REQUEST),
        ("request_prefill_time_seconds", "From the queue to the first token, s.", REQUEST),
        ("request_decode_time_seconds", "From the first to the last token, s.", REQUEST),
        ("request_inference_time_seconds", "From the queue to the last token, s.", REQUEST),
        ("request_prompt_tokens", "Prompt tokens of a request.", None),
        ("request_generation_tokens", "Output tokens of a request.", None),
    )
    """Name, meaning and buckets; None: those of lengths."""

    def __init__(self, longest: int) -> None:
        lengths = up_to(longest)
        self.histograms = {
            name: Histogram(lengths if buckets is None else buckets)
            for name, _, buckets in self.HISTOGRAMS
        }
        self.prompt_tokens = self.generation_tokens = 0
        self.finished = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self._first = self.histograms["time_to_first_token_seconds"].add
        self._gap = self.histograms["inter_token_latency_seconds"].add

    def first_token(self, request: Request, now: float) -> None:
        """``request`` has its first token."""
        self.prompt_tokens += request.prompt_tokens
        self.generation_tokens += 1
        self._first(now - request.arrival)

    def tokens(self, count: int, gap: float) -> None:
        """A request has ``count`` tokens more, ``gap`` seconds after its last one."""
        self.generation_tokens += count
        self._gap(gap / count, count)

    def done(self, request: Request, reason: str, now: float) -> None:
        """``request`` has its last token."""
        self.finished[reason] += 1
        first, output = request.first_token, request.output_tokens
        values = {
            "e2e_request_latency_seconds": now - request.arrival,
            "request_queue_time_seconds": request.scheduled - request.queued,
            "request_prefill_time_seconds": first - request.scheduled,
            "request_decode_time_seconds": now - first,
            "request_inference_time_seconds": now - request.scheduled,
            "request_prompt_tokens": float(request.prompt_tokens),
            "request_generation_tokens": float(output),
        }
        if output > 1:
            values["request_time_per_output_token_seconds"] = (now - first) / (output - 1)
        for name, value in values.items():
            self.histograms[name].add(value)


class Meters(Collector):
    """All engines of ``fleet``; ``model`` is what clients call the model."""

    def __init__(self, setup: Setup, fleet: LiveFleet, model: str) -> None:
        longest = max(pool.limits.max_model_len for pool in setup.pools)
        numbers = [engine.index for engine in fleet.replicas]
        numbers += [part.index for part in fleet.parts]
        self.of = {number: EngineMeters(longest) for number in sorted(set(numbers))}
        self._setup, self._fleet, self._model = setup, fleet, model
        self._pools = {n: pool.settings for pool in setup.pools for n in pool.settings.numbers}
        # vLLM counts the block among them that no request has
        self._null = {n: p.capacity.null_blocks for p in setup.pools for n in p.settings.numbers}
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """Everything, as it is now."""
        yield from self._now()
        for name, meaning, value in (
            ("prompt_tokens", "Prompt tokens computed or found.", "prompt_tokens"),
            ("generation_tokens", "Tokens generated.", "generation_tokens"),
        ):
            yield self._counter(name, meaning, ((n, getattr(m, value)) for n, m in self.of.items()))
        parts = self._fleet.parts
        for name, meaning, value in COUNTERS if self._setup.scenario.speculative else COUNTERS[:3]:
            yield self._counter(name, meaning, ((p.index, getattr(p, value)) for p in parts))
        if (speculative := self._setup.scenario.speculative) is not None:
            yield from self._accepted(range(speculative.num_tokens))
        success = CounterMetricFamily(
            "vllm:request_success",
            "Requests that are finished.",
            labels=[*LABELS, "finished_reason"],
        )
        for number, meters in self.of.items():
            for reason, count in meters.finished.items():
                success.add_metric([*self._labels(number), reason], count)
        yield success
        for name, meaning, _ in EngineMeters.HISTOGRAMS:
            yield self._histogram(
                name, meaning, ((n, m.histograms[name]) for n, m in self.of.items())
            )
        yield self._histogram(
            "iteration_tokens_total", "Tokens of an iteration.", map(_sizes, parts)
        )

    def _accepted(self, places: Iterable[int]) -> Iterator[Metric]:
        """Drafts that were accepted, in all and at each of their ``places``, from 0."""
        name, parts = "spec_decode_num_accepted_tokens", self._fleet.parts
        counted = ((part.index, part.accepted.total()) for part in parts)
        yield self._counter(name, "Drafted tokens that were accepted.", counted)
        by_place = CounterMetricFamily(
            f"vllm:{name}_per_pos",
            "Drafted tokens that were accepted, by their place among the drafts of a sequence.",
            labels=[*LABELS, "position"],
        )
        for part in parts:
            for place in places:
                by_place.add_metric([*self._labels(part.index), str(place)], part.accepted[place])
        yield by_place

    def _now(self) -> Iterator[Metric]:
        """The metrics of this moment."""
        fleet = self._fleet
        engines = fleet.parts or fleet.replicas
        for name, meaning, values in (
            (
                "num_requests_running",
                "Requests in the batch.",
                [(e.index, len(e.scheduler.members())) for e in engines],
            ),
            (
                "num_requests_waiting",
                "Requests in the queue.",
                [(e.index, e.queued) for e in engines],
            ),
            (
                "kv_cache_usage_perc",
                "Share of the KV cache that is taken, 0 to 1.",
                [(e.index, e.kv_used) for e in engines],
            ),
        ):
            family = GaugeMetricFamily(f"vllm:{name}", meaning, labels=LABELS)
            for number, value in values:
                family.add_metric(self._labels(number), value)
            yield family
        up = GaugeMetricFamily(
            "infersim:replica_up", "1: it takes new requests, 0: it does not.", labels=LABELS
        )
        for engine in fleet.replicas:
            up.add_metric(self._labels(engine.index), fleet.takes(engine))
        yield up
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "The KV cache.",
            labels=[
                *("block_size", "num_gpu_blocks", "gpu_memory_utilization"),
                *("enable_prefix_caching", "engine", "pool"),
            ],
        )
        for engine in engines:
            pool = self._pools[engine.index]
            info.add_metric(
                [
                    str(engine.scheduler.kv.block_size),
                    str(engine.scheduler.kv.num_blocks + self._null[engine.index]),
                    str(pool.kv_cache.gpu_memory_utilization),
                    str(pool.kv_cache.enable_prefix_caching),
                    str(engine.index),
                    pool.name,
                ],
                1,
            )
        yield info

    def _labels(self, number: int) -> list[str]:
        """The labels of the engine with that number."""
        return [self._model, str(number), self._pools[number].name]

    def _counter(self, name: str, meaning: str, values: Iterable[tuple[int, int]]) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", meaning, labels=LABELS)
        for number, value in values:
            family.add_metric(self._labels(number), value)
        return family

    def _histogram(
        self, name: str, meaning: str, values: Iterable[tuple[int, Histogram]]
    ) -> Metric:
        family = HistogramMetricFamily(f"vllm:{name}", meaning, labels=LABELS)
        for number, histogram in values:
            family.add_metric(self._labels(number), histogram.cumulative(), histogram.total)
        return family


def _sizes(part: Telling) -> tuple[int, Histogram]:
    """The number of an engine, and its iterations by their tokens."""
    found = Histogram(ITERATION)
    for tokens, iterations in part.sizes.items():
        found.add(tokens, iterations)
    return part.index, found
