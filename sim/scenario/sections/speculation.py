"""Describes speculative decoding in a scenario: what drafts, how much, and what is accepted."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PlainValidator, model_validator

from sim.catalog.acceptance import tables
from sim.errors import did_you_mean
from sim.scenario.sections.support import Section
from sim.scenario.text.document import show
from sim.scenario.values import spelling
from sim.scenario.values.fields import Count, Line, ModelName, Positive, Share, at_most, trouble
from sim.scenario.values.readers import Kind
from sim.specs.speculation import constant_rates, rates_of_length

Ranges = tuple[tuple[int, int, int], ...]
"""Drafts by the number of requests: first, last, tokens."""


def _ranges(value: object) -> Literal["best"] | Ranges | None:
    if value is None or value == "best":
        return value
    wanted = "expected best, or ranges [first, last, tokens] that begin at 1 and rise"
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"{wanted}; got {show(value)}")
    end = 0
    for entry in value:
        numbers = entry if isinstance(entry, list | tuple) else ()
        if len(numbers) != 3 or any(type(number) is not int for number in numbers):
            raise ValueError(f"{wanted}; got {show(entry)}")
        first, last, tokens = numbers
        if not end < first <= last or (not end and first > 1) or tokens < 0:
            raise ValueError(f"{wanted}; got {show(entry)} after {end:,} requests")
        end = last
    return tuple((first, last, tokens) for first, last, tokens in value)


def _schedules() -> spelling.Schema:
    number = {"type": "integer", "minimum": 0}
    entry = {"type": "array", "items": number, "minItems": 3, "maxItems": 3}
    ranges = {"type": "array", "minItems": 1, "items": entry}
    return {"anyOf": [{"const": "best"}, {"type": "null"}, ranges]}


Schedule = Annotated[
    Literal["best"] | Ranges | None,
    PlainValidator(_ranges),
    Kind("schedule", "best, or ranges [first, last, tokens] that begin at 1 and rise", _schedules),
]
"""How many tokens are drafted, by the number of requests."""


def by_batch(ranges: Ranges, most: int) -> tuple[int, ...]:
    """Drafts of batches of 1 to ``most`` requests: between two ranges, and after the last, as in
    the range before (vLLM 0.32, ``build_dynamic_sd_schedule_lookup``).

    >>> by_batch(((1, 2, 5), (4, 4, 0)), 6)
    (5, 5, 5, 0, 0, 0)
    """
    found = {first: tokens for first, _, tokens in ranges}
    known = [0]
    for requests in range(1, most + 1):
        known.append(found.get(requests, known[-1]))
    return tuple(known[1:])


MOST = 64
"""Drafts at once; no acceptance of more is published."""


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
        description="Tokens drafted per sequence and iteration, vLLM's num_speculative_tokens.",
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
        description="Which drafts are accepted, if not at one rate for all positions. null: "
        "acceptance_rate applies.",
        examples=["{rates: [0.85, 0.7, 0.5]}", "{length: 2.5}", "{table: glm-5.2-mtp}"],
    )
    draft_model: ModelName | None = Field(
        default=None,
        description="The model that drafts, in the target's number formats and on its GPUs; only "
        "the method draft_model has one.",
        examples=["llama-3.2-1b"],
    )

    match_rate: Share | None = Field(
        default=None,
        description="Share of a sequence's iterations for which its text has a match, so that "
        "tokens are drafted; else none are, and none are checked. Only the method ngram has one; "
        "what is accepted is then of the drafts that were made, as vLLM's metrics count it. null: "
        "1.",
        examples=["0.3"],
    )
    num_tokens_per_batch_size: Schedule = Field(
        default=None,
        description="How many are drafted after an iteration over so many requests, prompts "
        "included: ranges [first, last, tokens], of at most num_tokens, vLLM's "
        "num_speculative_tokens_per_batch_size; what lies between two ranges, or after the last, "
        "is as in the range before. best: what makes most tokens a second of a batch of that "
        "size, in predicted times at contexts of 8,192 tokens. null: always num_tokens.",
        examples=["[[1, 4, 5], [5, 32, 3], [33, 256, 0]]", "best"],
    )

    @property
    def match(self) -> float:
        """The share of iterations for which anything is drafted."""
        return 1.0 if self.match_rate is None else self.match_rate

    @property
    def rates(self) -> tuple[float, ...]:
        """The chance of each position that all drafts up to it are accepted, over all
        iterations."""
        made = self.rates_of_drafts()
        return made if self.match_rate is None else tuple(self.match * rate for rate in made)

    def rates_of_drafts(self) -> tuple[float, ...]:
        """The acceptance rates by position, where drafts are made."""
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
    def _tokens_by_batch(self) -> Speculative:
        given = self.num_tokens_per_batch_size
        for place, entry in enumerate(given if isinstance(given, tuple) else ()):
            if entry[2] > self.num_tokens:
                raise trouble(
                    f"{entry[2]} drafts are more than num_tokens, {self.num_tokens}",
                    ("num_tokens_per_batch_size", place),
                )
        return self

    @model_validator(mode="after")
    def _searched_text(self) -> Speculative:
        if self.match_rate is not None and self.method != "ngram":
            raise trouble(
                f"only method: ngram has a match_rate; {self.method} drafts for every iteration",
                "match_rate",
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
