"""Defines the whole of the YAML contract of a scenario, version 1: its sections and their defaults.

All numbers are SI once validated. What goes together is asked of a ``Scenario``, which is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from sim.routers import ROUTERS, LeastOutstanding
from sim.scenario.sections.admission import Admission
from sim.scenario.sections.assume import Assume
from sim.scenario.sections.autoscaling import Autoscaling
from sim.scenario.sections.checkpoint import as_published
from sim.scenario.sections.deployment import Precision, Router, SchedulerSettings
from sim.scenario.sections.energy import Energy
from sim.scenario.sections.failures import Failures
from sim.scenario.sections.host import Host
from sim.scenario.sections.kv_cache import KvCache
from sim.scenario.sections.lora import LoraSettings
from sim.scenario.sections.model import ModelChoice
from sim.scenario.sections.own_settings import completed
from sim.scenario.sections.pool import Pool
from sim.scenario.sections.run import DEFAULT_REQUESTS, RunSettings
from sim.scenario.sections.slo import Slo
from sim.scenario.sections.speculation import Speculative
from sim.scenario.sections.steering import Steering
from sim.scenario.sections.support import LimitedSection
from sim.scenario.sections.traffic import Workload
from sim.scenario.sections.transfer import Transfer
from sim.scenario.text.document import Document
from sim.scenario.values.fields import (
    EngineName,
    Line,
    Metric,
    Seed,
    Switch,
    Text,
    Tokens,
    Version,
    trouble,
)


class Contract(LimitedSection):
    """All that a scenario says, each key in a section of its own."""

    version: Version = Field(default=1, description="Version of the scenario format.")
    name: Line = Field(
        default="scenario",
        description="Name in run folders and reports. Default: the name of the file.",
    )
    description: Text = Field(
        default="", description="The question that the scenario answers, in a sentence or two."
    )
    seed: Seed = Field(default=42, description="Seed of the random draws; any whole number.")
    model: ModelChoice = Field(
        description="Catalogue name, id on Hugging Face, or the path of a config.json; or a "
        "mapping of it and of what a config does not say.",
        examples=["llama-3.1-8b", "Qwen/Qwen3-32B-FP8", "{path: qwen3-30b-a3b, expert_skew: 1.0}"],
    )
    precision: Precision = Field(default_factory=Precision, description="Number formats.")
    fleet: tuple[Pool, ...] = Field(
        min_length=1,
        description="Pools of identical replicas; a single mapping stands for a list of one.",
        examples=["{gpu: h100-sxm}"],
    )
    engine: EngineName = Field(
        default="vllm",
        description="Overhead preset (`infersim list engines`), at a release if it has some: "
        "vllm@0.18. Its name alone is the newest release that is known.",
        examples=["vllm@0.18"],
    )
    host: Host = Field(
        default_factory=Host, description="CPU of the machines that the engines run on."
    )
    attention_backend: Literal["triton"] | None = Field(
        default=None,
        description="Kernels of attention, where the engine is made to take others than its own "
        "choice (`--attention-backend`, of vLLM and SGLang). Timed for SGLang on Hopper. null: its "
        "own choice.",
    )
    moe_backend: Literal["marlin"] | None = Field(
        default=None,
        description="Kernels of experts, where the engine is made to take others than its own "
        "choice (vLLM's `--moe-backend`, and VLLM_MXFP4_USE_MARLIN=1 of older releases). null: its "
        "own choice.",
    )
    scheduler: SchedulerSettings = Field(
        default_factory=SchedulerSettings, description="Which requests run in the next iteration."
    )
    kv_cache: KvCache = Field(default_factory=KvCache, description="Memory for keys and values.")
    transfer: Transfer | None = Field(
        default=None,
        description="How KV moves from prefill pools to decode pools. null: the defaults of these "
        "keys, if pools have such roles.",
        examples=["{bandwidth: 100GB/s, latency: 2ms}"],
    )
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="When pools with `replicas: {min, max, start}` start and stop replicas. null: "
        "the defaults of these keys.",
        examples=["{policy: hpa, metric: queue, target: 3}"],
    )
    failures: Failures | None = Field(
        default=None,
        description="Failures of replicas, by a law or as a list of outages at given times. null: "
        "none.",
        examples=["{mtbf: 720h, repair: 5min}", "[{at: 5min, replica: 0, for: 1min}]"],
    )
    steering: Steering | None = Field(
        default=None,
        description="Replicas that operators drain, start or fail at given times, as recorded by "
        "`infersim serve --control`. null: none.",
        examples=["{steps: [{at: 5min, do: drain, replica: 0}]}"],
    )
    admission: Admission | None = Field(
        default=None,
        description="Which arriving requests are refused because they would be late. null: none.",
        examples=["{policy: deadline}"],
    )
    max_model_len: Tokens | None = Field(
        default=None,
        description="Longest prompt plus answer, tokens. null: the model's "
        "max_position_embeddings, as in vLLM.",
    )
    allow_long_max_model_len: Switch = Field(
        default=False,
        description="Allow max_model_len to exceed the model's own limit, as benchmarks with "
        "random weights do. Off, like vLLM's VLLM_ALLOW_LONG_MAX_MODEL_LEN.",
    )
    speculative: Speculative | None = Field(
        default=None,
        description="Tokens drafted ahead and checked in one pass, by vLLM's rules. null: off.",
        examples=["{method: mtp, num_tokens: 3, acceptance: {rates: [0.85, 0.7, 0.5]}}"],
    )
    lora: LoraSettings | None = Field(
        default=None,
        description="LoRA adapters that requests ask for, by the engine's rules. null: none.",
        examples=["{adapters: 20, rank: 16, max_loras: 4, distribution: {kind: zipf}}"],
    )
    sampling: Literal["greedy", "sorted"] = Field(
        default="greedy",
        description="How a token is chosen. greedy: the likeliest one, or by fused kernels. "
        "sorted: top-k or top-p by a sort of all logits in PyTorch, as in vLLM until early 2026 "
        "unless it is set to use FlashInfer's sampler.",
    )
    router: Router = Field(
        default=LeastOutstanding.name,
        description=f"Which replica takes a request. {ROUTERS.described()}. Lengths differ so "
        "much that taking turns overloads some replicas.",
    )
    workload: Workload = Field(
        description="Traffic.",
        examples=["{trace: {path: azure_conv.csv}}"],
    )
    metrics: tuple[Metric, ...] | None = Field(
        default=None,
        description="Metrics of your own: functions of the result, as package.module:function; a "
        "single one stands for a list of one. null: none.",
        examples=["[mine:fairness]"],
    )
    slo: Slo = Field(default_factory=Slo, description="Latency limits that requests must meet.")
    energy: Energy = Field(
        default_factory=Energy,
        description="Cost of electricity, in money and in CO2.",
    )
    run: RunSettings = Field(default_factory=RunSettings, description="How much to simulate.")
    assume: Assume = Field(
        default_factory=Assume, description="Factors for what-if runs; 1 changes nothing."
    )

    _document: Document | None = PrivateAttr(None)

    @field_validator("metrics", mode="before")
    @classmethod
    def _one_metric(cls, value: Any) -> Any:
        """A single metric as a list of it; an empty list as none."""
        return [value] if isinstance(value, str) else value or None

    @field_validator(
        "precision",
        "host",
        "scheduler",
        "kv_cache",
        "slo",
        "energy",
        "run",
        "assume",
        mode="before",
    )
    @classmethod
    def _empty_section(cls, value: Any) -> Any:
        """A section whose keys are all commented out is read as its defaults."""
        return {} if value is None else value

    @model_validator(mode="before")
    @classmethod
    def _number_of_requests(cls, data: Any) -> Any:
        """Made-up traffic never ends, so it gets a default number of requests."""
        workload = data.get("workload")
        run = data["run"] if data.get("run") is not None else {}
        has_end = isinstance(workload, Mapping) and workload.get("trace") is not None
        if has_end or not isinstance(run, Mapping) or run.get("requests") is not None:
            return data
        return {**data, "run": {**run, "requests": DEFAULT_REQUESTS}}

    @model_validator(mode="before")
    @classmethod
    def _rule_of_the_engine(cls, data: Any, info: ValidationInfo) -> Any:
        """Fills in the checkpoint's traits, and the defaults of engine and pools, as if written."""
        base = info.context["base"] if info.context else None
        return completed(as_published(data, base), base)

    @model_validator(mode="after")
    def _names_of_pools(self) -> Contract:
        for at, pool in enumerate(self.fleet):
            if pool.name in [before.name for before in self.fleet[:at]]:
                raise trouble(
                    f"two pools are called {pool.name!r}; give each a name of its own",
                    ("fleet", at, "name"),
                )
        return self

    @property
    def document(self) -> Document | None:
        """The scenario as it was written, with the places of its values; None for plain data."""
        return self._document

    @property
    def base(self) -> Path:
        """The folder at which relative paths of the scenario start."""
        return Path.cwd() if self._document is None else self._document.base

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where parts of one's own are looked for: in ``base``, then in the working directory."""
        document = self._document
        return Document({}, self.base).folders if document is None else document.folders
