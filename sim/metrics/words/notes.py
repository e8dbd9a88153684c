"""Collects what a summary says in sentences: what was assumed, left out, or may be misread."""

from __future__ import annotations

import re

from sim.catalog.published import reading_notes
from sim.cost.measured_experts import experts_note
from sim.metrics.engine.adapters import adapters_note
from sim.metrics.engine.host_tier import break_even_note
from sim.metrics.engine.prefix_words import cold_note, states_note
from sim.metrics.engine.speculation import borrowed_note
from sim.metrics.fleet.routing import routing_note
from sim.metrics.latency.classes import order_notes
from sim.metrics.load.sessions import session_notes
from sim.metrics.question.question_text import OF_ARRIVALS, driven_by
from sim.metrics.record.links import hardware_notes
from sim.metrics.record.pipelines import pipeline
from sim.metrics.record.pools import PoolRun
from sim.metrics.record.run_record import RunRecord
from sim.metrics.words.engine_notes import (
    implausible_notes,
    named_alike_note,
    other_rule_note,
    own_policy_note,
    release_note,
    untimed_note,
    whole_prompts_note,
)
from sim.metrics.words.format_words import UNCOMPARED, wide_note
from sim.metrics.words.front_end_words import front_end_notes
from sim.pools import PreparedPool
from sim.scenario.sections.lengths import FixedLengths
from sim.schedulers.tensorrt import MaxUtilization
from sim.units import show_share

WARM_UP = "Latency statistics leave out"
"""How the note on the warm-up begins."""


def without_numbers(note: str) -> str:
    """The common text of notes that differ in numbers only, such as those of repetitions.

    >>> without_numbers("12 of 3,000 sessions ended early.")
    '0 of 0 sessions ended early.'
    """
    return re.sub(r"\d[\d,.]*", "0", note)


def notes(run: RunRecord) -> list[str]:
    """The notes of a run, in the order in which they are printed."""
    assumed = run.scenario.assume.told()
    skipped = int((run.warmup & run.completed).sum())
    groups = [group for pool in run.pools for group in pool.deployment.model.layers]
    cut = run.cut
    found = [
        None if cut is None else cut.note,
        _first_of_trace(run),
        assumed,
        *run.traffic_notes,
        *session_notes(run),
        *order_notes(run),
        routing_note(run),
        *dict.fromkeys(part.pool.deployment.format_note for part in run.parts),
        wide_note(run.scenario, (part.pool.deployment.gpu for part in run.parts)),
        *dict.fromkeys(
            note
            for d in (pool.deployment for pool in run.pools)
            for note in reading_notes(d.model, d.weights, d.experts)
        ),
        *dict.fromkeys(untimed_note(part.pool) for part in run.parts),
        *dict.fromkeys(named_alike_note(part.pool) for part in run.parts),
        *([] if run.observed else hardware_notes(run.parts, run.scenario.assume.link)),
        *front_end_notes(run),
        _two_engines(run),
        cold_note(run),
        states_note(run),
        break_even_note(run),
        adapters_note(run),
        *dict.fromkeys(_small_cache(part.pool) for part in run.parts),
        *dict.fromkeys(release_note(part.pool) for part in run.parts),
        *dict.fromkeys(own_policy_note(part.pool) for part in run.parts),
        *dict.fromkeys(other_rule_note(part.pool) for part in run.parts),
        *dict.fromkeys(whole_prompts_note(part.pool) for part in run.parts),
        *dict.fromkeys(_whole_prompts(part) for part in run.parts),
        *dict.fromkeys(borrowed_note(part.pool) for part in run.parts),
        *dict.fromkeys(note for pool in run.pools for note in implausible_notes(pool)),
        UNCOMPARED if any(_piped(pool) for pool in run.pools) and not run.observed else None,
        *dict.fromkeys(_in_step(part) for part in run.parts),
        _clients_in_step(run),
        *dict.fromkeys(_padded(part.pool) for part in run.parts),
        f"{WARM_UP} the first {skipped:,} request{'s' * (skipped > 1)} (warm-up)."
        if skipped
        else None,
        "Interrupted: the figures cover what had happened until then." if run.interrupted else None,
        *dict.fromkeys(pool.deployment.node_note for pool in run.pools),
        *dict.fromkeys(experts_note(pool.deployment) for pool in run.pools),
        *dict.fromkeys(part.left_out for group in groups for part in (group.attention, group.mlp)),
    ]
    return [note for note in found if note]


def _piped(pool: PreparedPool) -> bool:
    return pool.deployment.layout.pipeline > 1


def _in_step(part: PoolRun) -> str | None:
    """The meaning of figures of data ranks or pipelines; None where there are none."""
    ranks, found = part.pool.deployment.layout.data, pipeline(part)
    if found is not None:
        return (
            f"The {found['stages']} stages of a pipeline compute nothing in "
            f"{show_share(found['idle'])} of the time, and its batches wait for each other in "
            f"{show_share(found['waiting'])} of theirs. Batch and running requests are those of "
            f"one of the {found['stages']} batches in flight; queue and KV cache are common."
        )
    if ranks == 1:
        return None
    return (
        f"KV cache and batch are those of one of {ranks} data ranks; waiting for the rank that "
        "takes longest counts as time of the host."
    )


def _clients_in_step(run: RunRecord) -> str | None:
    """The note that data ranks wait for each other less where all requests are equally long."""
    workload = run.scenario.workload
    closed = driven_by(run.scenario) == OF_ARRIVALS["closed"]
    lengths = (workload.prompt_tokens, workload.output_tokens)
    alike = all(isinstance(each, FixedLengths) for each in lengths)
    if not (closed and alike and any(p.deployment.layout.data > 1 for p in run.pools)):
        return None
    return (
        "All requests are equally long, so that clients stay in step and the prompts of data ranks "
        "share passes. Lengths that differ set them apart, and each prompt makes all ranks wait: "
        "in simulations of DeepSeek-V3 on eight ranks 1 % cost 3 to 21 % of the throughput, 10 % "
        "up to half."
    )


def _padded(pool: PreparedPool) -> str | None:
    """The note that iterations without prompts are as long as those of the next graph."""
    engine = pool.deployment.engine
    if not (engine.graph_sizes and engine.cuda_graphs):
        return None
    sizes = ", ".join(f"{size:,}" for size in engine.graph_sizes)
    return (
        f"{engine.name}: graphs were captured for {sizes} sequences, up to the largest batch; "
        "decodes of fewer are padded to the next, and take as long."
    )


def _two_engines(run: RunRecord) -> str | None:
    """The note that workers of two engines have no KV cache in common."""
    by_role = {
        pool.settings.role: pool.deployment.engine
        for pool in run.pools
        if pool.settings.role != "both"
    }
    if len({engine.kernels for engine in by_role.values()}) < 2:
        return None
    names = " and ".join(f"{role} is by {engine.name}" for role, engine in by_role.items())
    return f"Engines do not read each other's KV caches: {names}, so that no such fleet exists."


def _first_of_trace(run: RunRecord) -> str | None:
    """The note that ``run.requests`` chose a part of the trace."""
    sent = len(run.requests)
    if run.scenario.workload.trace is None or run.observed or sent != run.scenario.run.requests:
        return None
    return (
        f"The first {sent:,} requests of the trace were sent (run.requests): what comes after "
        "them, if anything does, may be more."
    )


def _whole_prompts(part: PoolRun) -> str | None:
    """The note that uncut prompts fill an iteration alone, in rules that put decodes first."""
    limits = part.pool.limits
    if limits.chunked_prefill or not issubclass(part.pool.policy, MaxUtilization):
        return None
    prompts = part.requests["prompt_tokens"]
    most = limits.max_num_batched_tokens
    alone = int((prompts == most).sum())
    if not alone:
        return None
    return (
        f"{show_share(alone / len(prompts))} of the prompts have {most:,} tokens, which is "
        "max_num_batched_tokens: without chunked_prefill they run only where nothing decodes, and "
        "first tokens wait for all answers before them. Allow max_num_seqs tokens more."
    )


def _small_cache(pool: PreparedPool) -> str | None:
    memory, longest = pool.capacity, pool.limits.max_model_len
    if memory.holds(longest):
        return None
    held = memory.longest if memory.hybrid else memory.tokens
    return (
        f"The KV cache holds {held:,} tokens, less than max_model_len "
        f"({longest:,}): vLLM would refuse to start; longer requests are rejected."
    )
