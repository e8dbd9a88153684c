"""Lists what does not go with tokens that are drafted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from sim.scenario.checks.subjects import (
    BY_RANK,
    HOST_MEMORY,
    PIPELINES,
    WITHOUT_BLOCKS,
    OnePool,
    WholeFleet,
    batching_without,
    rule_without,
)
from sim.scenario.clash import Chapter, Clash, Subject, itself
from sim.scenario.pools import BOTH
from sim.scenario.sections.speculation import Speculative, by_batch
from sim.schedulers.abilities import DRAFTS
from sim.specs.deployment import Deployment
from sim.specs.model import ModelSpec


class Demand(NamedTuple):
    """Tokens of an iteration that drafts may need: of all running requests, and of each."""

    tokens: int
    running: int
    slots: int


@dataclass(frozen=True)
class DraftingPool(OnePool):
    """One pool for which tokens are drafted, as ``guesses`` say."""

    guesses: Speculative

    @property
    def table(self) -> object:
        """How many are drafted by the number of requests; None: always as many."""
        return self.guesses.num_tokens_per_batch_size

    @property
    def demand(self) -> Demand:
        """The largest demand of any batch."""
        one = 1 + (self.guesses.method == "draft_model")
        running, drafts = self.knobs.max_num_seqs, self.guesses.num_tokens
        table = self.guesses.num_tokens_per_batch_size
        if isinstance(table, tuple):
            counts = enumerate(by_batch(table, running), 1)
            return max(Demand(n * (one + k), n, one + k) for n, k in counts)
        return Demand(running * (one + drafts), running, one + drafts)


def _drafting(fleet: WholeFleet) -> Iterator[DraftingPool]:
    for each in fleet.each():
        guesses = each.pool.speculative
        if guesses is not None:
            yield DraftingPool(each.scenario, each.pools, each.pool, guesses)


def _undrafted(
    other: str, when: Callable[[DraftingPool], bool], key: str, says: str, hint: str = ""
) -> Clash[DraftingPool]:
    """A row of drafts, with a ``key`` of the pool or of a section that rules it."""
    where = f"*.{key}" if "." in key else f"fleet.*.{key}"
    return Clash(other, when, f"speculative: {says}", hint, (where, "speculative"))


UNDRAFTED = "is not modelled with drafts"

POOLS: Chapter[WholeFleet, DraftingPool] = Chapter(
    "drafts (speculative)",
    _drafting,
    _undrafted(
        "pools of one phase and num_tokens_per_batch_size",
        lambda p: p.pool.role != BOTH and p.table is not None,
        "role",
        "in pools of one phase the number of drafts does not follow the batch",
    ),
    _undrafted(
        *batching_without(DRAFTS),
        "scheduler.batching",
        "{knobs.batching} batching has no rule for drafts",
    ),
    _undrafted(
        *rule_without(DRAFTS),
        "scheduler.policy",
        "only vLLM's rule is modelled, not policy: {knobs.rule}, which gives drafts tokens "
        "and blocks by another",
        "use policy: vllm with this engine's overheads",
    ),
    _undrafted(
        *BY_RANK,
        "scheduler.order",
        f"order: {{knobs.order}} {UNDRAFTED}: who is preempted for a rank, or passed over, "
        "gives back tokens that were drafted and not checked yet",
    ),
    _undrafted(
        "plans made ahead and method: ngram",
        lambda p: p.knobs.plans_ahead and p.guesses.method == "ngram",
        "scheduler.async_scheduling",
        "vLLM searches the text on the host, where the last tokens are not known yet when an "
        "iteration is planned ahead, and refuses it for n-gram drafts",
    ),
    _undrafted(
        "plans made ahead and num_tokens_per_batch_size",
        lambda p: p.knobs.plans_ahead and p.table is not None,
        "scheduler.async_scheduling",
        "a number of drafts by batch is not modelled with plans made ahead: the batch that "
        "says how many is still in flight when the next one is planned",
    ),
    _undrafted(
        "plans made ahead on data ranks",
        lambda p: p.knobs.plans_ahead and p.layout.data > 1,
        "scheduler.async_scheduling",
        "drafts on data ranks are not modelled with plans made ahead: a rank whose request has "
        "ended by drafts computes it once more, and all others wait for it",
    ),
    _undrafted(
        "a cap on the tokens of a prompt",
        lambda p: p.knobs.long_prefill_token_threshold is not None,
        "scheduler.long_prefill_token_threshold",
        f"a cap on the tokens of a prompt {UNDRAFTED}, which take their share of the budget "
        "before it",
    ),
    _undrafted(
        *WITHOUT_BLOCKS, "kv_cache.allocator", "{kv.allocator} allocation has no blocks for drafts"
    ),
    _undrafted(
        *HOST_MEMORY,
        "kv_cache.host_memory",
        f"memory in the host {UNDRAFTED}: a block goes there once its tokens are checked, an "
        "iteration later, and one that a drafter computed has no content to be found by",
    ),
    _undrafted(
        *PIPELINES,
        "pipeline_parallel",
        "pipelines are not modelled with drafts: the drafter runs after the last stage, which "
        "alone takes longer, so that all batches in flight wait for it",
    ),
    _undrafted(
        "data ranks and match_rate",
        lambda p: p.layout.data > 1 and p.guesses.match_rate not in (None, 1.0),
        "data_parallel",
        "match_rate is of one scheduler's batch: all data ranks wait for the one whose texts "
        "match most, which a mean does not say",
    ),
    _undrafted(
        "data ranks and num_tokens_per_batch_size",
        lambda p: p.layout.data > 1 and p.table is not None,
        "data_parallel",
        "vLLM switches num_tokens_per_batch_size off on data ranks, since each has to make as "
        "many passes of the drafter",
    ),
    _undrafted(
        "iterations of too few tokens",
        lambda p: p.knobs.max_num_batched_tokens < p.demand.tokens,
        "scheduler.max_num_seqs",
        "each of {demand.running:,} running requests (max_num_seqs) takes {demand.slots} "
        "tokens of an iteration, its drafts included: more than max_num_batched_tokens "
        "({knobs.max_num_batched_tokens:,})",
        "raise the one or lower the other",
    ),
)


@dataclass(frozen=True)
class DraftsFor(Subject):
    """A deployment for which ``method`` drafts, or the model ``drafter``."""

    deployment: Deployment
    method: str
    drafter: ModelSpec | None

    @property
    def model(self) -> ModelSpec:
        """The model that drafts are for."""
        return self.deployment.model


MODELS: Chapter[DraftsFor, DraftsFor] = Chapter(
    "drafts (speculative)",
    itself,
    Clash(
        "models with a state",
        lambda d: bool(d.deployment.state_bytes()),
        "not modelled for models with a state, such as {model.name}: a draft that is rejected "
        "leaves the state that was before it, so that each draft has one of its own, in memory "
        "and in every layer's reads",
        where=("speculative",),
    ),
    Clash(
        "method: mtp and a model without such a layer",
        lambda d: d.method == "mtp" and not d.model.mtp_layers,
        "{model.name} is not known to have been published with a layer for multi-token "
        "prediction, so that nothing could draft by mtp",
        "choose eagle, ngram or draft_model (a config.json names such layers by "
        "num_nextn_predict_layers, mtp_num_hidden_layers or num_mtp_modules)",
        ("speculative.method",),
    ),
    Clash(
        "method: mtp and a model whose last layer has a window",
        lambda d: d.method == "mtp" and d.model.layers[-1].attention.window is not None,
        "whether the layer that drafts for {model.name} looks through a window, as its last "
        "layer does, is not known",
        "choose eagle or ngram",
        ("speculative.method",),
    ),
    Clash(
        "a draft_model with windows or a state",
        lambda d: d.drafter is not None and bool(d.drafter.windows or d.drafter.state_bytes()),
        "{drafter.name} has windows or a state",
        where=("speculative.draft_model",),
    ),
    Clash(
        "a draft_model of other tokens",
        lambda d: d.drafter is not None and d.drafter.vocab_size != d.model.vocab_size,
        "{drafter.name} has {drafter.vocab_size:,} tokens, not the {model.vocab_size:,} of "
        "{model.name}, so that its drafts mean others",
        where=("speculative.draft_model",),
    ),
)
