"""Names what an engine chooses otherwise than the defaults of a scenario.

It may choose the limits of a batch by GPU; a scenario of version 1 has the same ones for every GPU.
"""

from __future__ import annotations

from sim.metrics.texts import OpenNote
from sim.pools import PreparedPool
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.offloading import OffloadedPrefill
from sim.schedulers.ranked import RankedPrefill
from sim.schedulers.rules import VllmRule


def engine_defaults_note(pool: PreparedPool, peak_running: int | None) -> str | None:
    """A note on the limits that ``pool`` leaves to defaults and its engine would choose otherwise.

    ``max_num_seqs`` is named only where ``peak_running`` requests reached it: below it makes no
    difference. None where nothing differs, or the engine's choice is unknown.
    """
    knobs, deployment = pool.settings.scheduler, pool.deployment
    own = deployment.engine.defaults_on(deployment.gpu.title, deployment.gpu.memory)
    if own is None or "max_num_batched_tokens" not in pool.policy.knobs:
        return None
    differing = []
    left_out = {"max_num_batched_tokens", "max_num_seqs"} - knobs.model_fields_set
    if "max_num_batched_tokens" in left_out and (
        own.max_num_batched_tokens != knobs.max_num_batched_tokens
    ):
        differing.append(
            ("max_num_batched_tokens", own.max_num_batched_tokens, knobs.max_num_batched_tokens)
        )
    reached = peak_running is not None and peak_running >= min(knobs.max_num_seqs, own.max_num_seqs)
    if "max_num_seqs" in left_out and own.max_num_seqs != knobs.max_num_seqs and reached:
        differing.append(("max_num_seqs", own.max_num_seqs, knobs.max_num_seqs))
    if not differing:
        return None
    theirs = " and ".join(f"{name} {value:,}" for name, value, _ in differing)
    ours = " and ".join(f"{value:,}" for _, _, value in differing)
    keys = " and ".join(f"scheduler.{name}" for name, _, _ in differing)
    return OpenNote(
        f"{deployment.engine.title} on this GPU would choose {theirs}; infersim simulates {ours}. "
        f"Set {keys} to what your server has.",
        {f"scheduler.{name}": value for name, value, _ in differing},
    )


def untimed_note(pool: PreparedPool) -> str | None:
    """A note on a GPU none of whose kernels was timed. None where a profile has some."""
    gpu = pool.deployment.gpu
    if gpu.profile is not None:
        return None
    return (
        f"No kernels were timed on {gpu.title}: their times follow from its data sheet. "
        "`infersim calibrate` on such a card takes the place of that."
    )


def whole_prompts_note(pool: PreparedPool) -> str | None:
    """A note on a budget with which vLLM V1 does not start: prompts that are not cut must fit it
    (0.32, ``SchedulerConfig.verify_max_model_len``). None where they do."""
    limits = pool.limits
    cut = limits.chunked_prefill or pool.settings.scheduler.rule != VllmRule.name
    if cut or limits.max_num_batched_tokens >= limits.max_model_len:
        return None
    if not issubclass(pool.policy, ChunkedPrefill):
        return None
    own = "taken as the model's own " if pool.settings.max_model_len is None else ""
    return (
        "Without chunked_prefill vLLM starts only with a scheduler.max_num_batched_tokens of at "
        f"least max_model_len, {own}{limits.max_model_len:,}, and takes that where none is given; "
        f"infersim simulates {limits.max_num_batched_tokens:,}. Set it to what your server has."
    )


def other_rule_note(pool: PreparedPool) -> str | None:
    """A note on an engine whose own rule of batching is not modelled with what is asked for, so
    that vLLM's stands in for it. None where a rule is given, or the engine's own is simulated."""
    engine, knobs = pool.deployment.engine, pool.settings.scheduler
    if knobs.policy is not None or engine.policy in ("", knobs.rule):
        return None
    if pool.policy not in (ChunkedPrefill, RankedPrefill, OffloadedPrefill):
        return None
    return (
        f"{engine.title} batches by `policy: {engine.policy}`, which is not modelled with these "
        "settings; this run follows vLLM's rule."
    )
