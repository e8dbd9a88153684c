"""Describes speculative decoding in a scenario: what drafts, how much, and what is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from sim.catalog.acceptance import tables
from sim.errors import did_you_mean
from sim.memory import ALLOCATORS
from sim.scenario.document import show
from sim.scenario.fields import Count, Line, ModelName, Positive, Share, at_most, trouble
from sim.scenario.support import Section
from sim.schedulers import ORDERS, ChunkedPrefill, VllmRule
from sim.specs.speculation import constant_rates, rates_of_length

if TYPE_CHECKING:
    from sim.scenario.pools import PoolSettings

MOST = 64
"""Drafts at once; nobody has published acceptance of more."""


class Acceptance(Section):
    """How many drafts are accepted: by position, on average, or as published."""

    rates: tuple[Share, ...] | None = Field(
        default=None,
        description="The chance of each position that its draft and all before it are accepted, as "
        "vLLM's metrics and its synthetic_acceptance_rates have it; as many as num_tokens or more. "
        "null: by another key.",
        examples=["[0.85, 0.7, 0.5]"],
    )
    length: Positive | None = Field(
        default=None,
        description="Mean tokens of a sequence and iteration, from 1 to num_tokens + 1; each draft "
        "is then as likely to be right, given that those before it were. null: by another key.",
        examples=["2.5"],
    )
    table: Line | None = Field(
        default=None,
        description="A published table of acceptance lengths of the catalogue: "
        f"{', '.join(tables())}. null: by another key.",
        examples=["glm-5.2-mtp"],
    )

    @model_validator(mode="after")
    def _one_way(self) -> Acceptance:
        given = [key for key in ("rates", "length", "table") if getattr(self, key) is not None]
        if len(given) != 1:
            raise trouble(
                "expected one of rates, length and table, got "
                f"{' and '.join(given) if given else 'none'}",
                *given[1:],
            )
        if self.table is not None and self.table not in tables():
            raise trouble(
                f"no table is called {show(self.table)}{did_you_mean(self.table, list(tables()))}; "
                f"the catalogue has {', '.join(tables())}",
                "table",
            )
        rates = self.rates or ()
        for place in range(1, len(rates)):
            if rates[place] > rates[place - 1]:
                raise trouble(
                    f"{rates[place]:g} is more than the {rates[place - 1]:g} of the position "
                    "before, but a draft counts only where all before it were accepted",
                    ("rates", place),
                )
        return self


class Speculative(Section):
    """Several tokens drafted cheaply, then checked in one pass, by the rules of vLLM 0.32."""

    method: Literal["draft_model", "eagle", "mtp", "ngram"] = Field(
        description="What drafts: a model of its own, an EAGLE-3 head (a dense layer as wide as "
        "the target's, 32,000 tokens to choose from), the layer for multi-token prediction that "
        "some models are published with, or the last tokens looked up in the text.",
        examples=["mtp"],
    )
    num_tokens: Annotated[Count, at_most(MOST)] = Field(
        description="Tokens drafted for each sequence and iteration, vLLM's"
        " num_speculative_tokens.",
        examples=[3],
    )
    acceptance_rate: Share | None = Field(
        default=None,
        description="Chance that one draft is right, given that those before it were, the same for "
        "all positions. null: as acceptance says.",
        examples=["0.7"],
    )
    acceptance: Acceptance | None = Field(
        default=None,
        description="What is accepted, where it is not one rate for all positions. null: as "
        "acceptance_rate says.",
        examples=["{rates: [0.85, 0.7, 0.5]}", "{length: 2.5}", "{table: glm-5.2-mtp}"],
    )
    draft_model: ModelName | None = Field(
        default=None,
        description="The model that drafts, in the target's number formats and on its GPUs; only "
        "the method draft_model has one.",
        examples=["llama-3.2-1b"],
    )

    @property
    def rates(self) -> tuple[float, ...]:
        """The chance of each position that all drafts up to it are accepted."""
        given, drafts = self.acceptance, self.num_tokens
        if given is None:
            assert self.acceptance_rate is not None
            return constant_rates(self.acceptance_rate, drafts)
        if given.rates is not None:
            return given.rates[:drafts]
        if given.table is not None:
            return tables()[given.table].rates(drafts)
        assert given.length is not None
        return rates_of_length(given.length, drafts)

    @model_validator(mode="after")
    def _one_acceptance(self) -> Speculative:
        if self.acceptance is None and self.acceptance_rate is None:
            raise trouble(
                "expected acceptance_rate, or acceptance as in {length: 2.5}, {rates: [0.8, 0.6]} "
                "or {table: NAME}: nothing else says how many drafts are accepted",
                "method",
            )
        if self.acceptance is not None and self.acceptance_rate is not None:
            raise trouble("acceptance replaces acceptance_rate; give one", "acceptance_rate")
        given, drafts = self.acceptance, self.num_tokens
        if given is None:
            return self
        if given.rates is not None and len(given.rates) < drafts:
            raise trouble(
                f"{len(given.rates)} rates for {drafts} drafts; give one for each position",
                ("acceptance", "rates"),
            )
        if given.length is not None and not 1 <= given.length <= drafts + 1:
            raise trouble(
                f"an acceptance length with {drafts} drafts is 1 to {drafts + 1}, not "
                f"{given.length:g}",
                ("acceptance", "length"),
            )
        if given.table is not None and drafts > (most := len(tables()[given.table].lengths)):
            raise trouble(
                f"{given.table} has lengths of up to {most} drafts, not of {drafts}", "num_tokens"
            )
        return self

    @model_validator(mode="after")
    def _model_of_its_own(self) -> Speculative:
        if self.method == "draft_model" and self.draft_model is None:
            raise trouble("method draft_model needs a draft_model", "method")
        if self.method != "draft_model" and self.draft_model is not None:
            raise trouble(
                f"only method: draft_model has a draft_model, not {self.method}", "draft_model"
            )
        return self


def unspeculated(pool: PoolSettings) -> tuple[str, str, str] | None:
    """Why tokens are not drafted under the other settings of ``pool``, and the section and key
    to blame; None where they are."""
    knobs, kv, guesses, layout = pool.scheduler, pool.kv_cache, pool.speculative, pool.layout
    assert guesses is not None
    order, slots = ORDERS.get(knobs.order), 1 + guesses.num_tokens
    slots += guesses.method == "draft_model"
    undrafted = "is not modelled with drafts"
    short = (
        f"each of max_num_seqs ({knobs.max_num_seqs:,}) running requests takes {slots} tokens of "
        f"an iteration, its drafts included: more than max_num_batched_tokens "
        f"({knobs.max_num_batched_tokens:,}); raise the one or lower the other"
    )
    rules = (
        (pool.role != "both", f"handing requests over {undrafted}", "fleet", "role"),
        (
            knobs.batching != ChunkedPrefill.name,
            f"{knobs.batching} batching has no rule for drafts",
            *("scheduler", "batching"),
        ),
        (
            knobs.rule != VllmRule.name,
            f"only vLLM's rule is modelled, not policy: {knobs.rule}",
            *("scheduler", "policy"),
        ),
        (
            not knobs.chunked_prefill,
            "whole prompts before any decode have no drafts",
            *("scheduler", "chunked_prefill"),
        ),
        (
            order is None or order.preempts_by_rank,
            f"order: {knobs.order} {undrafted}",
            *("scheduler", "order"),
        ),
        (
            knobs.plans_ahead,
            "a plan made ahead does not know what is accepted, which is not modelled",
            *("scheduler", "async_scheduling"),
        ),
        (
            knobs.long_prefill_token_threshold is not None,
            f"a cap on the tokens of a prompt {undrafted}",
            *("scheduler", "long_prefill_token_threshold"),
        ),
        (
            ALLOCATORS[kv.allocator].reserves_longest,
            f"{kv.allocator} allocation has no blocks for drafts",
            *("kv_cache", "allocator"),
        ),
        (
            kv.host_memory is not None,
            f"memory in the host {undrafted}",
            *("kv_cache", "host_memory"),
        ),
        (
            layout.pipeline > 1,
            "pipelines are not modelled with drafts",
            "fleet",
            "pipeline_parallel",
        ),
        (layout.data > 1, "data ranks are not modelled with drafts", "fleet", "data_parallel"),
        (
            knobs.max_num_batched_tokens < knobs.max_num_seqs * slots,
            short,
            *("scheduler", "max_num_seqs"),
        ),
    )
    for holds, why, section, key in rules:
        if holds:
            return why, section, key
    return None
