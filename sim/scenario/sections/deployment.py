"""Describes what serves the requests: number formats, scheduler.

Defaults hold for engines that choose nothing by themselves (``own_settings``).
Numbers are SI once validated (seconds, bytes).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from sim.routers import ROUTERS
from sim.scenario.sections.failures import OnTimeout
from sim.scenario.sections.support import LimitedSection
from sim.scenario.values.fields import (
    Count,
    Duration,
    Factor,
    Line,
    Share,
    Switch,
    Wait,
    at_most,
    named_in,
    trouble,
)
from sim.schedulers import (
    ORDERS,
    POLICIES,
    RULES,
    ChunkedPrefill,
    VllmRule,
    follows_rule,
    scheduler_class,
)
from sim.schedulers import Scheduler as Policy
from sim.schedulers.continuous import CADENCE
from sim.schedulers.orders import FirstCome

_WHOLE = " and ".join(name for name, policy in POLICIES.items() if policy.shape.whole)

Batching = Annotated[Line, named_in("batching", POLICIES)]
"""A batching policy, or ``package.module:Class``."""
Order = Annotated[Line, named_in("order", ORDERS)]
"""An order of the queue, or ``package.module:Class``."""
Router = Annotated[Line, named_in("router", ROUTERS)]
"""How requests are shared out over replicas, or ``package.module:Class``."""
if TYPE_CHECKING:
    PolicyName = str
else:
    PolicyName = Literal[tuple(RULES)]
PrecisionName = Literal[
    "bf16", "fp16", "fp32", "fp8", "fp8-block", "int8", "int4", "int4-group", "int4-group64",
    "int4-group32", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q6_k", "q2_k", "q3_k_s", "q3_k_l",
    "iq4_xs", "iq4_nl", "q4_k_s", "q4_k_m", "q5_k_s", "q5_k_m", "mxfp4", "nvfp4",
]  # fmt: skip


STAND_UNREAD = frozenset({"long_prefill_token_threshold", "scheduler_reserve_full_isl", CADENCE})
"""Keys of a rule that may stand where the policy does not read them: version 1 has ignored two, and
the cadence has a refusal of its own (``checks.replicas``)."""


class Precision(LimitedSection):
    """Number formats, by what is stored or computed in them."""

    weights: PrecisionName = Field(
        default="bf16",
        description="Linear layers. bf16 is what most checkpoints are published in; where the "
        "catalogue (`infersim show MODEL`, published_format), the checkpoint's own config.json "
        "(quantization_config) or its id says another, that one, as engines load it. fp8-block: "
        "blocks of 128 x 128, as of Qwen's and DeepSeek's FP8; int4-group: groups of 128, as of "
        "GPTQ and AWQ; q4_0 to q5_k_m: those of GGUF files, for engine: llama.cpp. Products stay "
        "in bf16 unless precision.activations says otherwise: fp8 for vllm --quantization fp8.",
    )
    activations: PrecisionName = Field(
        default="bf16",
        description="Inputs of the matrix products. bf16: nothing is quantised unasked, but by a "
        "checkpoint that is published in fp8, on GPUs that compute it. int8 goes with weights in "
        "int8 or int4 (vLLM's VLLM_MARLIN_INPUT_DTYPE=int8). fp32 goes with fp32 weights, and what "
        "lies between products is of 32 bits then too.",
    )
    kv_cache: PrecisionName = Field(
        default="bf16",
        description="Format of stored keys and values. vLLM's `auto` is the model's own format, "
        "so bf16, or the one that a checkpoint states (kv_cache_scheme). fp8 is e4m3; for e5m2 "
        "SGLang takes attention by Triton on Hopper: attention_backend: triton.",
    )
    experts: PrecisionName | None = Field(
        default=None,
        description="The experts of a mixture of experts, where they are stored otherwise, such as "
        "mxfp4 for gpt-oss, whose default it is. null: as the other weights.",
    )
    expert_inputs: PrecisionName | None = Field(
        default=None,
        description="Inputs of the experts. null: as the engine quantises them on that GPU, else "
        "as activations. For mxfp4 experts on Blackwell, TensorRT-LLM and SGLang take mxfp8 "
        "(written fp8 here); vLLM leaves 16 bits unless it is asked.",
    )
    state: Literal["fp32", "bf16", "fp16"] | None = Field(
        default=None,
        description="States of recurrent layers (Mamba, gated delta nets): vLLM's "
        "--mamba-ssm-cache-dtype, SGLang's --mamba-ssm-dtype. null: as the checkpoint states it.",
    )
    quantisation: Literal["dynamic", "static"] = Field(
        default="dynamic",
        description="How activations below 16 bits get their scales. dynamic: extra kernels "
        "compute them as the model runs. static: the checkpoint holds them, and the "
        "preceding kernels apply them.",
    )


class SchedulerSettings(LimitedSection):
    """Which requests run in the next iteration, and with how many tokens."""

    batching: Batching = Field(
        default=ChunkedPrefill.name,
        description=f"How batches are made. {POLICIES.described()}.",
    )
    order: Order = Field(
        default=FirstCome.name,
        description=f"Which request leaves the queue first. {ORDERS.described()}.",
    )
    max_num_seqs: Count = Field(
        default=256,
        description=f"Requests that run at once; for {_WHOLE} batching, the batch size. Left out: "
        "what the engine's release chooses on the GPU (vLLM 0.33: 1,024 from 70 GiB on, A100 "
        "apart), 256 for engines that choose nothing.",
    )
    max_num_batched_tokens: Count = Field(
        default=8192,
        description="Tokens of one iteration, prompts and decodes together. Left out: what the "
        "engine's release chooses on the GPU (vLLM 0.33: 16,384 from 160 GiB on, 8,192 from 70, "
        "else 2,048), 8,192 for engines that choose nothing.",
    )
    chunked_prefill: Switch = Field(
        default=True,
        description="Split long prompts over iterations. Left out: on, off by TensorRT-LLM. Off "
        "under vLLM's rule, whole prompts still share iterations "
        "with decodes, and one that is longer than what is left of max_num_batched_tokens waits; "
        "vLLM then starts with a max_num_batched_tokens of max_model_len or more. `policy: "
        "vllm-v0` is always off.",
    )
    long_prefill_token_threshold: Count | None = Field(
        default=None,
        description="Chunked prefill only: most tokens of one prompt in one iteration, so that "
        "several prompts advance together; a request that is alone is not held back. null, or 0 as "
        "vLLM writes its default: no such cap.",
    )
    prefill_schedule_interval: Annotated[Count, at_most(1000)] = Field(
        default=1,
        description="Data ranks: prompts run in every so many iterations, on all ranks alike, "
        "so that decodes wait for them less often. Without data ranks, in vLLM since 0.33: prompts "
        "run so many iterations after the last ones. Who leaves requests waiting then is not held "
        "back. vLLM's name and default.",
    )
    scheduler_reserve_full_isl: Switch = Field(
        default=True,
        description="Admit a request only when the blocks of its whole input fit, not merely "
        "those of its first chunk. vLLM's name, and its default since 0.19: fewer preemptions.",
    )
    watermark: Share | None = Field(
        default=None,
        description="Share of the KV blocks that an admission must leave free while others run: "
        "fewer preemptions where memory is short. vLLM's name, since 0.27. null, or 0 as vLLM "
        "writes its default: none.",
        examples=[0.02],
    )
    batch_timeout: Wait = Field(
        default=0.05,
        description="Request batching only: how long an incomplete batch may wait, s. 50 ms is "
        "short compared with the time of a batch.",
    )
    policy: PolicyName | None = Field(
        default=None,
        description=f"Continuous batching by the rule of an engine. {RULES.described()}. "
        "null: the engine's own, unless a key is set, or stages or slabs are asked for, that only "
        "vllm's knows; so sglang with `engine: sglang`, guaranteed-no-evict with tensorrt-llm.",
    )
    async_scheduling: Switch | None = Field(
        default=None,
        description="Plan an iteration while the one before it runs: finished requests make "
        "room, and newcomers enter, an iteration later. vLLM's name; SGLang's overlap scheduler. "
        "null: as the engine's release does, wherever that is modelled: vLLM since 0.14, SGLang "
        "and TensorRT-LLM.",
    )
    enforce_eager: Switch = Field(
        default=False,
        description="No CUDA graphs: the host launches every kernel of every iteration (vLLM's "
        "name; SGLang's --disable-cuda-graph).",
    )
    prompt_graphs: Switch | None = Field(
        default=None,
        description="Iterations with prompts replay CUDA graphs, too; else the host launches their "
        "kernels one by one (vLLM's cudagraph_mode FULL_DECODE_ONLY). null: as the engine's "
        "release does.",
    )
    max_tokens: Count | None = Field(
        default=None,
        description="Output tokens that clients allow, of which SGLang reserves a share and "
        "TensorRT-LLM all. null: exactly those that they get, as benchmarks ask for with "
        "ignore_eos.",
    )
    enable_mixed_chunk: Switch = Field(
        default=False,
        description="`policy: sglang` only: decodes and chunks of prompts share iterations. Off, "
        "as in SGLang.",
    )
    schedule_conservativeness: Factor = Field(
        default=1.0,
        description="`policy: sglang` with max_tokens only: multiplies the share of them that is "
        "reserved. SGLang's default.",
    )
    max_prefill_tokens: Count = Field(
        default=16384,
        description="`policy: sglang` only: tokens of an iteration of prompts where they are not "
        "cut; in releases up to 0.5.12 where they are, too. SGLang's default.",
    )

    scheduler_recv_interval: Annotated[Count, at_most(1000)] = Field(
        default=1,
        description="`policy: sglang` only: while nothing but decodes runs, new requests are "
        "looked for every so many iterations; they wait until then. SGLang's name and default.",
        examples=[10],
    )
    batch_wait_timeout_iters: Count | None = Field(
        default=None,
        description="TensorRT-LLM's policies only: prompts wait for company until they and the "
        "decodes are batch_wait_max_tokens_ratio of an iteration's tokens, for this many "
        "iterations at most and not where nothing decodes. null, or 0 as TensorRT-LLM writes its "
        "default: none waits.",
        examples=[20],
    )
    batch_wait_max_tokens_ratio: Share | None = Field(
        default=None,
        description="TensorRT-LLM's policies only: the share of max_num_batched_tokens that ends "
        "the wait of batch_wait_timeout_iters.",
        examples=[0.9],
    )

    attention_dp_timeout_iters: Count | None = Field(
        default=None,
        description="TensorRT-LLM's policies and data ranks only: prompts wait until every rank "
        "has one that could run, so that decodes wait for prompts less often; they run in this "
        "iteration at the latest (1: none waits), and at once where a rank decodes nothing. Its "
        "attention_dp_config with enable_balance: true and this timeout_iters, 50 unless given. "
        "null, as where it balances nothing, or 0: none waits.",
        examples=[60],
    )
    attention_dp_batching_wait_iters: Count | None = Field(
        default=None,
        description="For how many iterations more prompts wait once every rank has one. Its "
        "attention_dp_config's batching_wait_iters, which is 10 there unless given. null, or 0 as "
        "TensorRT-LLM writes it: none.",
        examples=[10],
    )

    client_timeout: Duration | None = Field(
        default=None,
        description="How long a client waits for the complete answer to an attempt, s, before the "
        "engine drops it. null: forever.",
        examples=["60s"],
    )
    on_timeout: OnTimeout = Field(
        default="cancel",
        validate_default=True,
        description="What a client does after the timeout. cancel: it gives up. retry: it sends "
        "the request again.",
        examples=["retry", "{kind: retry, attempts: 3, backoff: 500ms}"],
    )

    @property
    def rule(self) -> str:
        """The rule of continuous batching."""
        return self.policy or VllmRule.name

    @property
    def plans_ahead(self) -> bool:
        """Whether iterations are planned while others run."""
        if self.async_scheduling is not None:
            return self.async_scheduling
        return RULES[self.rule].plans_ahead

    def policy_class(self, folders: Sequence[Path] = ()) -> type[Policy]:
        """The class that serves by these settings; UsageError if it cannot be loaded."""
        order = ORDERS.find(self.order, folders)
        return scheduler_class(
            self.batching,
            order.preempts_by_rank,
            rule=self.rule,
            ahead=self.plans_ahead,
            folders=folders,
        )

    @field_validator(
        *("long_prefill_token_threshold", "batch_wait_timeout_iters", "watermark"),
        "batch_wait_max_tokens_ratio",
        *("attention_dp_timeout_iters", "attention_dp_batching_wait_iters"),
        mode="before",
    )
    @classmethod
    def _zero_is_off(cls, value: Any) -> Any:
        """The engines' 0 means null."""
        return None if value in (0, "0") and not isinstance(value, bool | float) else value

    @model_validator(mode="after")
    def _patience_has_an_end(self) -> SchedulerSettings:
        if self.client_timeout is None and self.on_timeout.kind != "cancel":
            raise trouble("no client gives up: give client_timeout, such as 60s", "on_timeout")
        return self

    @model_validator(mode="after")
    def _waits_by_both(self) -> SchedulerSettings:
        given = self.batch_wait_timeout_iters, self.batch_wait_max_tokens_ratio
        if (given[0] is None) != (given[1] is None):
            names = ("batch_wait_timeout_iters", "batch_wait_max_tokens_ratio")
            mine, other = names if given[0] is not None else names[::-1]
            raise trouble(f"no prompt waits without {other}: give both, or neither", mine, other)
        if self.attention_dp_batching_wait_iters and not self.attention_dp_timeout_iters:
            raise trouble(
                "no prompt waits for other ranks without attention_dp_timeout_iters: give it, "
                "TensorRT-LLM's default being 50",
                "attention_dp_batching_wait_iters",
                "attention_dp_timeout_iters",
            )
        return self

    @model_validator(mode="after")
    def _said_of_another_rule(self) -> SchedulerSettings:
        """Refuses keys that only another rule would read."""
        if not follows_rule(self.batching):
            own = ":" in self.batching  # plans as its class does: to say so changes nothing
            for key in ("policy", "async_scheduling"):
                value = getattr(self, key)
                if value is not None and not (own and value is False):
                    raise trouble(f"{key} is a key of continuous batching", key, "batching")
        mine = self.rule
        for rule in RULES.values():
            for key in sorted(rule.knobs - RULES[mine].knobs):
                if self._states(key):
                    having = [
                        f"`policy: {each.name}`" for each in RULES.values() if key in each.knobs
                    ]
                    raise trouble(f"{key} is a key of {' and '.join(having)}", key, "policy")
        if follows_rule(self.batching) and self.order in ORDERS:
            by_rank = ORDERS[self.order].preempts_by_rank
            if RULES[mine].policy(by_rank, self.plans_ahead) is None:
                ever = RULES[mine].policy(False, self.plans_ahead) is not None
                raise trouble(
                    f"async_scheduling with `policy: {mine}` goes without an order that preempts "
                    "by rank"
                    if ever
                    else f"`policy: {mine}` has no async_scheduling",
                    "async_scheduling",
                )
            if self.chunked_prefill and not RULES[mine].cuts_prompts:
                raise trouble(
                    f"`policy: {mine}` has whole prompts; with chunks it batched as vLLM V1 does: "
                    f"`policy: {VllmRule.name}`, or leave chunked_prefill out",
                    "chunked_prefill",
                    "policy",
                )
        return self

    @model_validator(mode="after")
    def _said_of_another_policy(self) -> SchedulerSettings:
        """A key of the rule that the policy itself would not read is an error, not ignored."""
        if self.batching not in POLICIES or self.order not in ORDERS:
            return self  # one of the user's own
        unread = RULES[self.rule].knobs - self.policy_class().knobs - STAND_UNREAD
        for key in filter(self._states, sorted(unread)):
            if not follows_rule(self.batching):
                raise trouble(f"{key} is a key of continuous batching", key, "batching")
            ahead = " and async_scheduling" if self.plans_ahead else ""
            raise trouble(f"{key} is not read with `order: {self.order}`{ahead}", key, "order")
        return self

    def _states(self, key: str) -> bool:
        """Whether ``key`` has another value than its default."""
        return bool(getattr(self, key) != type(self).model_fields[key].default)

    @model_validator(mode="after")
    def _tokens_for_everyone(self) -> SchedulerSettings:
        known = POLICIES.get(self.batching)
        shares_tokens = known is not None and "max_num_batched_tokens" in known.knobs
        mixes = "enable_mixed_chunk" in RULES[self.rule].knobs
        if mixes and not self.enable_mixed_chunk:
            return self  # decodes have iterations of their own
        if shares_tokens and self.max_num_batched_tokens < self.max_num_seqs:
            raise trouble(
                f"max_num_batched_tokens ({self.max_num_batched_tokens:,}) is less than "
                f"max_num_seqs ({self.max_num_seqs:,}), but each running request takes at least "
                "one token of an iteration; raise the one or lower the other",
                "max_num_batched_tokens",
                "max_num_seqs",
            )
        return self
