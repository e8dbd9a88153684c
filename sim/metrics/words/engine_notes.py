"""Names what of an engine is not as in its real runs: an unknown release, kernels that were not
timed, a rule of batching that stands in for another."""

from __future__ import annotations

from sim.catalog.entries import names
from sim.catalog.relatives import ASSUMED
from sim.catalog.releases import beyond
from sim.cost.measured import gemm_of
from sim.cost.plausible import implausible
from sim.iteration import Batch, Part
from sim.pools import PreparedPool
from sim.scenario.prices import name_of
from sim.schedulers import POLICIES
from sim.schedulers.ahead import Ahead
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.offloading import OffloadedPrefill
from sim.schedulers.ranked import RankedPrefill
from sim.schedulers.rules import VllmRule


def implausible_notes(pool: PreparedPool) -> list[str]:
    """Notes on the operators that take too long for what they compute in a full pass of prompts, as
    ``infersim roofline`` has them."""
    tokens = min(pool.limits.max_num_batched_tokens, pool.limits.max_model_len)
    full = Batch(0, 0, [Part(tokens, 0)])
    return list(implausible(pool.deployment, pool.cost.pass_operators(full)))


def release_note(pool: PreparedPool) -> str | None:
    """A note on a release that is newer than all that are known. None for the others."""
    engine = pool.deployment.engine
    if engine.releases is None or not beyond(engine.releases, engine.release):
        return None
    return (
        f"{engine.title} is newer than {engine.releases.newest}, the newest release that is known "
        "here: it is taken for that one, and how far its predictions are off is not known."
    )


def untimed_note(pool: PreparedPool) -> str | None:
    """A note on a GPU none of whose kernels was timed, or no attention, or that takes those of the
    nearest part since its file names none. None for other GPUs with a profile."""
    d = pool.deployment
    gpu = d.gpu
    if gpu.sources.get("relative", "").startswith(ASSUMED):
        timed = gpu.profile and gpu.profile.relative
        lent = f"{timed}, as for {gpu.relative}" if timed != gpu.relative else timed
        return (
            f"No kernels were timed on {gpu.title}: those of {lent}, the part whose data sheet is "
            "nearest, stand in with its own peaks. If another is more like it, name that as "
            "`relative` in its file."
        )
    if gpu.profile is not None and {"decode_attention", "mla_decode"} & set(gpu.profile.kernels):
        return None
    if gemm_of(gpu, d.formats["projections"], d.arithmetic) is not None:
        return f"Attention was not timed on {gpu.title}: its times follow from its data sheet."
    return (
        f"No kernel of this run was timed on {gpu.title}: their times follow from its data sheet. "
        "`infersim calibrate` on such a card takes the place of that."
    )


def named_alike_note(pool: PreparedPool) -> str | None:
    """A note on a GPU's file that is called as a GPU of the catalogue. None for others."""
    file, name = pool.settings.gpu, pool.deployment.gpu.name
    if name_of(file) == file or name not in names("gpus"):
        return None
    return f"The catalogue has {name} too: this run takes {file}, not that."


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


def own_policy_note(pool: PreparedPool) -> str | None:
    """A note on a policy of one's own that plans each iteration after the last, under an engine
    that plans ahead: it is slower than the engine for that alone."""
    engine, knobs = pool.deployment.engine, pool.settings.scheduler
    if knobs.batching in POLICIES or not engine.plans_ahead or issubclass(pool.policy, Ahead):
        return None
    return (
        f"{engine.title} plans an iteration while the one before runs; {knobs.batching} does not. "
        "Compare it with the engine's own by --set scheduler.async_scheduling=false."
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
