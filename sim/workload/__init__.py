"""Builds the requests of a run from a scenario's workload, as columns.

``build`` is the door for the simulator. The functions it calls know nothing of scenarios: laws of
arrival and length (``arrivals``, ``varying``, ``lengths``) or a recorded trace (``traces``) become
traffic. Times are in seconds since the start of the run, lengths in tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from sim.errors import UsageError
from sim.rng import stream
from sim.workload.arrivals import ArrivalLaw, Burst, Constant, Gamma, Poisson, check_latest
from sim.workload.classes import Labels, Mix, classified, labels_of, mix_of
from sim.workload.lengths import (
    Empirical,
    Fixed,
    Joint,
    LengthLaw,
    Lognormal,
    Mixture,
    Normal,
    Uniform,
)
from sim.workload.longer import Longer, lengthened
from sim.workload.sessions import (
    Between,
    CountLaw,
    Delay,
    GeometricLaw,
    SessionLaw,
    SessionTraffic,
)
from sim.workload.shared import Groups, beginning_alike
from sim.workload.traffic import (
    CHUNK,
    MAX_TOKENS,
    ClosedTraffic,
    LengthChunk,
    OpenTraffic,
    TrafficChunk,
    chunk_sizes,
)
from sim.workload.varying import Diurnal, Ramp

if TYPE_CHECKING:
    from sim.scenario import Scenario
    from sim.scenario.sections.arrivals import Arrivals
    from sim.scenario.sections.lengths import Lengths, MixtureLengths
    from sim.scenario.sections.sessions import Counts, Delays
    from sim.workload.traces import Trace

__all__ = [
    "AnyTraffic",
    "ClosedTraffic",
    "LengthChunk",
    "Mix",
    "OpenTraffic",
    "SessionTraffic",
    "TrafficChunk",
    "build",
    "generate",
    "generate_lengths",
    "replay",
    "resample_lengths",
]

AnyTraffic = OpenTraffic | ClosedTraffic | SessionTraffic

ENDLESS = 2**62
"""A number of lengths that no run takes."""


def build(scenario: Scenario, seed: int) -> AnyTraffic:
    """The traffic that ``scenario`` asks for, drawn under ``seed``.

    In a trace the seed has a say only in its ``spread`` and in a fraction of a copy that is
    overlaid. Its ``limit`` counts recorded requests, ``run.requests`` those that are sent.
    TraceError for a file that cannot be read, UsageError for a law that does not exist.
    """
    assume = scenario.assume
    by = Longer(assume.prompt_tokens, assume.output_tokens, scenario.max_model_len)
    if scenario.workload.sessions is not None:
        return _sessions(scenario, seed, by)
    return lengthened(_asked(scenario, seed), by)


def _asked(scenario: Scenario, seed: int) -> OpenTraffic | ClosedTraffic:
    """The traffic of the scenario, with the lengths that it states."""
    workload, total = scenario.workload, scenario.run.requests
    if workload.trace is not None:
        from sim.workload.traces import (  # noqa: PLC0415 - only where there is a trace
            TraceColumns,
            TracePlay,
            read_trace,
        )

        recorded = workload.trace
        trace = read_trace(
            scenario.path(recorded.path),
            recorded.format,
            columns=None
            if recorded.columns is None
            else TraceColumns(**recorded.columns.model_dump()),
            played=TracePlay(
                spread=recorded.spread,
                busiest=recorded.busiest,
                limit=recorded.limit,
                overlay=recorded.overlay,
                requests=total,
                time_scale=recorded.time_scale,
                rate=recorded.rate,
                seed=seed,
            ),
        )
        caches = any(pool.kv_cache.enable_prefix_caching for pool in scenario.pools)
        return replay(trace, labels_of(scenario, trace, seed), caches=caches)
    # A scenario without a trace has both.
    assert workload.arrivals is not None
    assert total is not None
    arrivals, lengths = workload.arrivals, _sharing(_lengths(scenario, total, seed), scenario, seed)
    mix = mix_of(scenario)
    if arrivals.kind != "closed":
        return _timed(total, seed, _arrival_law(arrivals), lengths, CHUNK, mix)
    users, think_time = arrivals.concurrency, arrivals.think_time
    if mix is None:
        return ClosedTraffic(total, users, think_time, lengths)
    return ClosedTraffic(
        total, users, think_time, classified(lengths, mix, seed), classes=mix.classes
    )


def replay(trace: Trace, labels: Labels | None = None, *, caches: bool = False) -> OpenTraffic:
    """The requests of a trace, as ``read_trace`` returns it, and the class of each where there are
    any; for a fleet that ``caches`` prefixes, also what each prompt has in common with others; and
    the conversations that the trace names. UsageError if they end too late.

    What the reader skipped, and which repeated prompt tokens no cache saves, is in the notes of the
    traffic.
    """
    from sim.workload.traces.prefixes import reuse_note  # noqa: PLC0415 - a trace was read
    from sim.workload.traces.texts import prefixes_of  # noqa: PLC0415

    labels = labels or Labels()
    column = labels.column
    check_latest(trace.arrivals[-1])
    named = trace.session_ids
    prefixes = prefixes_of(trace) if caches and trace.blocks is not None else None

    def chunks() -> Iterator[TrafficChunk]:
        for start in range(0, len(trace), CHUNK):
            part = slice(start, start + CHUNK)
            yield TrafficChunk(
                trace.arrivals[part].tolist(),
                trace.prompt_tokens[part].tolist(),
                trace.output_tokens[part].tolist(),
                None if column is None else column[part],
                None if prefixes is None else prefixes[part],
                None if named is None else named[part].tolist(),
            )

    skipped = [f"Not replayed: {n:,} {reason}." for reason, n in trace.skipped.items() if n]
    reuse = reuse_note(trace, caches=caches)
    notes = [*skipped, *([] if reuse is None else [reuse])]
    waited = {} if trace.patience is None else dict(enumerate(trace.patience.tolist()))
    patience = {number: seconds for number, seconds in waited.items() if seconds < math.inf}
    return OpenTraffic(len(trace), chunks(), notes, labels.classes, patience)


def generate(
    total: int,
    seed: int,
    arrivals: ArrivalLaw,
    prompts: LengthLaw,
    outputs: LengthLaw,
    *,
    mix: Mix | None = None,
    chunk: int = CHUNK,
) -> OpenTraffic:
    """``total`` requests from laws; their values do not depend on ``chunk``, the rows at a time.

    Arrivals, prompts, outputs and classes have a random stream each: changing one law leaves the
    values of the others as they are.
    """
    lengths = generate_lengths(total, seed, prompts, outputs, chunk=chunk)
    return _timed(total, seed, arrivals, lengths, chunk, mix)


def generate_lengths(
    total: int, seed: int, prompts: LengthLaw, outputs: LengthLaw, *, chunk: int = CHUNK
) -> Iterator[LengthChunk]:
    """The lengths of ``total`` requests: the same ones for arrivals of any kind."""
    prompt_stream, output_stream = stream(seed, "lengths/prompt"), stream(seed, "lengths/output")
    for size in chunk_sizes(total, chunk):
        yield LengthChunk(
            prompts.draw(prompt_stream, size).tolist(), outputs.draw(output_stream, size).tolist()
        )


def resample_lengths(
    total: int, seed: int, pairs: Joint, *, chunk: int = CHUNK
) -> Iterator[LengthChunk]:
    """The lengths of ``total`` requests, each a recorded prompt with the answer to it."""
    rng = stream(seed, "lengths/joint")
    for size in chunk_sizes(total, chunk):
        prompts, outputs = pairs.draw(rng, size)
        yield LengthChunk(prompts.tolist(), outputs.tolist())


def _timed(
    total: int,
    seed: int,
    arrivals: ArrivalLaw,
    lengths: Iterator[LengthChunk],
    chunk: int,
    mix: Mix | None = None,
) -> OpenTraffic:
    """Requests of these lengths, which come in chunks of ``chunk``, at the times of a law."""
    if mix is not None:
        lengths = classified(lengths, mix, seed)

    def chunks() -> Iterator[TrafficChunk]:
        times = arrivals.times(stream(seed, "arrivals"), chunk_sizes(total, chunk))
        for columns in lengths:
            with np.errstate(over="ignore"):  # an infinite time is refused in the next line
                clock = next(times)
            check_latest(clock[-1])
            yield TrafficChunk(clock.tolist(), *columns)

    return OpenTraffic(total, chunks(), classes=() if mix is None else mix.classes)


def _lengths(scenario: Scenario, total: int, seed: int) -> Iterator[LengthChunk]:
    """The lengths that a scenario without a trace asks for; files are read at once."""
    workload = scenario.workload
    both = workload.lengths
    if both is not None and both.kind == "mixture":
        return _mixed(scenario, both, total, seed)
    if both is not None:
        pairs = Joint.from_file(scenario.path(both.path), both.columns)
        return resample_lengths(total, seed, pairs)
    assert workload.prompt_tokens is not None
    assert workload.output_tokens is not None
    prompts = _length_law(scenario, workload.prompt_tokens)
    outputs = _length_law(scenario, workload.output_tokens)
    return generate_lengths(total, seed, prompts, outputs)


def _mixed(
    scenario: Scenario, asked: MixtureLengths, total: int, seed: int
) -> Iterator[LengthChunk]:
    """The lengths of requests of several kinds."""
    laws = [
        (_length_law(scenario, part.prompt_tokens), _length_law(scenario, part.output_tokens))
        for part in asked.parts
    ]
    mixture = Mixture(tuple(part.share for part in asked.parts), tuple(laws))
    for prompts, outputs in mixture.chunks(seed, chunk_sizes(total, CHUNK)):
        yield LengthChunk(prompts.tolist(), outputs.tolist())


def _sharing(
    lengths: Iterator[LengthChunk], scenario: Scenario, seed: int
) -> Iterator[LengthChunk]:
    """``lengths`` with what the prompts have in common, if the scenario says so."""
    shared = scenario.workload.shared_prefix
    if shared is None:
        return lengths
    return beginning_alike(lengths, Groups(shared.tokens, shared.groups, shared.zipf), seed)


def _sessions(scenario: Scenario, seed: int, by: Longer) -> SessionTraffic:
    """The conversations of the scenario."""
    workload, total = scenario.workload, scenario.run.requests
    arrivals, asked, shared = workload.arrivals, workload.sessions, workload.shared_prefix
    assert arrivals is not None
    assert asked is not None
    assert total is not None
    share = 1.0 if asked.think_time is None else 0.0
    law = SessionLaw(
        turns=_count_law(asked.turns),
        think=_delay(asked.think_time),
        tool=_delay(asked.tool_delay),
        tool_share=share if asked.tool_share is None else asked.tool_share,
        branches=Between(1, 1) if asked.branches is None else _count_law(asked.branches),
        keep_answer=asked.keep_answer,
        longest=longest_sequence(scenario),
        system=None if shared is None else Groups(shared.tokens, shared.groups, shared.zipf),
        by=by,
    )
    return SessionTraffic(
        total,
        law,
        _lengths(scenario, ENDLESS, seed),
        seed,
        arrivals=None if arrivals.kind == "closed" else _arrival_law(arrivals),
        clients=arrivals.concurrency if arrivals.kind == "closed" else 0,
        pause=arrivals.think_time if arrivals.kind == "closed" else 0.0,
        mix=mix_of(scenario),
    )


def longest_sequence(scenario: Scenario) -> int:
    """Tokens of prompt and answer together that every pool takes."""
    return min(
        pool.max_model_len or pool.model.spec(scenario.base).max_position_embeddings
        for pool in scenario.pools
    )


def _count_law(counts: Counts) -> CountLaw:
    match counts.kind:
        case "fixed":
            return Between(counts.value, counts.value)
        case "uniform":
            return Between(counts.low, counts.high)
        case "geometric":
            return GeometricLaw(counts.mean)


def _delay(delay: Delays | None) -> Delay:
    if delay is None:
        return Delay(0.0)
    match delay.kind:
        case "fixed":
            return Delay(delay.value)
        case "exponential":
            return Delay(delay.mean, "exponential")
        case "lognormal":
            return Delay(delay.mean, "lognormal", delay.cv)


def _arrival_law(arrivals: Arrivals) -> ArrivalLaw:
    match arrivals.kind:
        case "poisson":
            return Poisson(arrivals.rate)
        case "gamma":
            return Gamma(arrivals.rate, arrivals.cv)
        case "constant":
            return Constant(arrivals.rate)
        case "burst":
            return Burst()
        case "ramp":
            return Ramp(arrivals.rate, arrivals.final_rate, arrivals.duration)
        case "diurnal":
            peak_at = arrivals.period / 2 if arrivals.peak_at is None else arrivals.peak_at
            return Diurnal(arrivals.rate, arrivals.peak_rate, arrivals.period, peak_at)
        case other:
            raise UsageError(f"no open arrivals of kind {other!r}")


def _length_law(scenario: Scenario, lengths: Lengths) -> LengthLaw:
    match lengths.kind:
        case "fixed":
            return Fixed(lengths.value)
        case "uniform":
            return Uniform(lengths.low, lengths.high)
        case "lognormal":
            top = MAX_TOKENS if lengths.max is None else lengths.max
            if lengths.p95 is not None:
                return Lognormal.with_p95(lengths.mean, lengths.p95, lengths.min, top)
            assert lengths.cv is not None  # one of the two is given
            return Lognormal.with_cv(lengths.mean, lengths.cv, lengths.min, top)
        case "normal":
            top = MAX_TOKENS if lengths.max is None else lengths.max
            return Normal(lengths.mean, lengths.std, lengths.min, top)
        case "empirical":
            return Empirical.from_file(scenario.path(lengths.path), lengths.column)
        case other:
            raise UsageError(f"no lengths of kind {other!r}")
