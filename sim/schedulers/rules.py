"""Provides the rules by which engines batch continuously, under ``scheduler.policy``.

A rule chooses the scheduler class for what else is asked of it, and says what it cannot have.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import product
from typing import Any, ClassVar

from sim.registry import Registry
from sim.schedulers.abilities import (
    DECODES,
    DRAFTS,
    IN_FLIGHT,
    PREFILLS,
    WITHDRAWS,
    Ability,
)
from sim.schedulers.ahead import AsyncChunkedPrefill
from sim.schedulers.base import Scheduler
from sim.schedulers.continuous import ChunkedPrefill
from sim.schedulers.prefill_first import PrefillFirst
from sim.schedulers.ranked import RankedPrefill
from sim.schedulers.sglang import Sglang
from sim.schedulers.sglang_overlap import SglangOverlap
from sim.schedulers.tensorrt import (
    MaxUtilization,
    MaxUtilizationOverlap,
    NoEvict,
    NoEvictOverlap,
)

__all__ = [
    "RULES",
    "MaxUtilizationRule",
    "NoEvictRule",
    "SglangRule",
    "VllmRule",
    "VllmV0Rule",
]


SHARED = frozenset({"max_num_batched_tokens", "chunked_prefill", "max_tokens"})
"""The keys of ``scheduler`` that are no rule's own: limits of iterations, and what clients ask."""


class EngineRule(ABC):
    """How an engine batches continuously."""

    name: ClassVar[str] = ""
    """The value of ``scheduler.policy`` that selects it."""

    about: ClassVar[str] = ""
    """Its behaviour in a few words."""

    plans_ahead: ClassVar[bool] = False
    """Whether an iteration is planned while another runs, unless the scenario says."""

    in_pages: ClassVar[bool] = False
    """Whether it counts free blocks, so that there must be some."""

    prefix_cache: ClassVar[str] = ""
    """The prefix cache that goes with it, as ``kv_cache.prefix_policy`` calls it; "": none is
    modelled."""

    knobs: ClassVar[frozenset[str]]
    """The keys of ``scheduler`` that its schedulers read and not every rule does."""

    abilities: ClassVar[frozenset[Ability]] = frozenset({WITHDRAWS})
    """The optional abilities that are modelled of it."""

    cuts_prompts: ClassVar[bool] = True
    """Whether it can cut prompts into chunks (``chunked_prefill``)."""

    def __init_subclass__(cls, **given: Any) -> None:
        """Gives the rule the knobs of its schedulers."""
        super().__init_subclass__(**given)
        asked = product((False, True), repeat=2)
        policies = [cls.policy(by_rank, ahead) for by_rank, ahead in asked]
        cls.knobs = frozenset().union(*(each.knobs for each in policies if each)) - SHARED

    @staticmethod
    @abstractmethod
    def policy(by_rank: bool, ahead: bool) -> type[Scheduler] | None:
        """The scheduler, preempting by rank or not, planning ahead or not; None where it has
        none."""


class VllmRule(EngineRule):
    """vLLM V1's."""

    name = "vllm"
    about = "decodes first, and prompts in what is left of the tokens"
    prefix_cache = "blocks"
    abilities = frozenset({WITHDRAWS, DRAFTS, IN_FLIGHT, PREFILLS, DECODES})

    @staticmethod
    def policy(by_rank: bool, ahead: bool) -> type[Scheduler] | None:
        """One of three; ahead only by order of arrival."""
        if ahead:
            return None if by_rank else AsyncChunkedPrefill
        return RankedPrefill if by_rank else ChunkedPrefill


class VllmV0Rule(EngineRule):
    """vLLM V0's, which had prompts in iterations of their own unless it cut them
    (``core/scheduler.py``, ``_schedule_default``); V1 is the default since release 0.8."""

    name = "vllm-v0"
    about = "vLLM V0's: whole prompts before any decode"
    prefix_cache = "blocks"
    cuts_prompts = False

    @staticmethod
    def policy(by_rank: bool, ahead: bool) -> type[Scheduler] | None:
        """One, not planned ahead."""
        return None if ahead else PrefillFirst


class SglangRule(EngineRule):
    """SGLang's rule; orders rank its queue, not the requests that it retracts."""

    name = "sglang"
    about = "prompts first, as many as the memory is expected to hold with their answers"
    plans_ahead = True
    in_pages = True
    prefix_cache = "radix"
    abilities = frozenset()  # its estimates count on requests that run

    @staticmethod
    def policy(by_rank: bool, ahead: bool) -> type[Scheduler] | None:
        """With overlap or without; it cuts prompts or not by its limits."""
        return SglangOverlap if ahead else Sglang


class NoEvictRule(EngineRule):
    """TensorRT-LLM's ``GUARANTEED_NO_EVICT``."""

    name = "guaranteed-no-evict"
    about = "TensorRT-LLM's: a request enters when all that it asks for fits next to the others"
    in_pages = True

    @staticmethod
    def policy(by_rank: bool, ahead: bool) -> type[Scheduler] | None:
        """With overlap or without; nothing is ever preempted."""
        return NoEvictOverlap if ahead else NoEvict


class MaxUtilizationRule(EngineRule):
    """TensorRT-LLM's ``MAX_UTILIZATION``."""

    name = "max-utilization"
    about = "TensorRT-LLM's other one: a request enters when its prompt fits, and may be paused"
    in_pages = True

    @staticmethod
    def policy(by_rank: bool, ahead: bool) -> type[Scheduler] | None:
        """With overlap or without."""
        return MaxUtilizationOverlap if ahead else MaxUtilization


RULES: Registry[EngineRule] = Registry(
    "policy", EngineRule, VllmRule, VllmV0Rule, SglangRule, NoEvictRule, MaxUtilizationRule
)
