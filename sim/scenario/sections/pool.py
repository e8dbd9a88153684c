"""Describes a pool of the fleet: its GPUs and layout, its price, and settings of its own.

Numbers are SI once validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from sim.scenario.clash import Clash, refuse
from sim.scenario.sections.autoscaling import Replicas
from sim.scenario.sections.deployment import SchedulerSettings
from sim.scenario.sections.kv_cache import KvCache
from sim.scenario.sections.link import GpuLink, GpuNode
from sim.scenario.sections.support import LimitedSection
from sim.scenario.values.fields import (
    Count,
    EngineName,
    GpuName,
    Line,
    ModelName,
    Positive,
    Power,
    Price,
    Spread,
    Tokens,
    at_most,
    trouble,
)
from sim.specs.layout import BACKENDS, DEFAULT_BACKEND, Layout

if TYPE_CHECKING:
    Backend = str
else:
    Backend = Literal[BACKENDS]


def _spelling(written: Any) -> str:
    """How replicas are given: between which numbers to scale, or how many."""
    return "mapping" if isinstance(written, Mapping | Replicas) else "number"


class Pool(LimitedSection):
    """Identical replicas; one replica is one engine on its own group of GPUs."""

    name: Line = Field(default="main", description="Name of the pool in reports.")
    role: Literal["both", "prefill", "decode"] = Field(
        default="both",
        description="Phases that it serves. both: one engine does all, as vLLM by itself. prefill, "
        "decode: prompts are computed in pools of the one role, and their KV is handed over to "
        "pools of the other (transfer).",
    )
    model: ModelName | None = Field(
        default=None,
        description="Catalogue name, or the path of a config.json, of a fleet that serves several "
        "models; workload.classes say which requests ask for it. null: the scenario's.",
        examples=["llama-3.2-1b"],
    )
    gpu: GpuName = Field(
        description="Catalogue name, or the path of a profile.", examples=["h100-sxm"]
    )
    replicas: (
        Annotated[Count, at_most(10_000), Tag("number")] | Annotated[Replicas, Tag("mapping")]
    ) = Field(
        default=1,
        discriminator=Discriminator(_spelling),
        description="Engines that serve side by side. One by default; {min: 1, max: 8, start: 2} "
        "lets autoscaling start and stop them.",
    )
    weight: Positive = Field(
        default=1.0,
        description="Share of the traffic that each replica is to get, relative to those of other "
        "pools. Routers by turns or by chance send twice the requests to twice the weight; those "
        "that go by unfinished requests let it have twice as many of them.",
    )
    tensor_parallel: Count = Field(
        default=1, description="GPUs that share each layer; vLLM's default."
    )
    pipeline_parallel: Count = Field(
        default=1,
        description="Stages of consecutive layers, each on tensor_parallel GPUs of its own, with a "
        "batch in flight for each. vLLM's default.",
    )
    layer_split: Count = Field(
        default=1,
        description="GPUs that have consecutive layers each and work in turn: llama.cpp's "
        "--split-mode layer. They give their memory to all; only micro-batches of a prompt are on "
        "several at a time. The hand-over of hidden states between them is left out.",
    )
    data_parallel: Annotated[Count, at_most(1024)] = Field(
        default=1,
        description="Ranks of attention data parallelism inside one engine, each with a scheduler, "
        "a KV cache and tensor_parallel GPUs of its own; they share the experts, and start each "
        "iteration together. vLLM's default.",
    )
    expert_parallel: Spread = Field(
        default=False,
        description="Whole experts on each GPU, not a part of each. True: spread over all GPUs of "
        "the replica; a number: over so many groups of them. False is vLLM's default.",
    )
    all2all_backend: Backend = Field(
        default=DEFAULT_BACKEND,
        description="How the tokens of data ranks get to whole experts on other GPUs and back: all "
        "of them to everyone, by DeepEP's kernels for throughput or for latency, or, within one "
        "NVLink domain, by FlashInfer's (TensorRT-LLM's) kernels. vLLM's names and default.",
    )
    link: GpuLink | None = Field(
        default=None,
        description="Link between the GPUs of a replica, if it is not the GPU's own: {kind: pcie, "
        "peer_to_peer: true}, or a bandwidth and a latency. null: the link in the GPU's file.",
    )
    node: GpuNode | None = Field(
        default=None,
        description="GPUs per machine, and the link between machines: {gpus: 8, bandwidth: 50GB/s, "
        "latency: 10us}. null: as in the GPU's file.",
    )
    power_limit: Power | None = Field(
        default=None,
        description="Power limit of each GPU, W. Arithmetic slows down in proportion to how far "
        "this is below the GPU's own limit; memory does not. null: the GPU's own.",
        examples=["300W"],
    )
    price_per_gpu_hour: Price = Field(
        default="catalogue",
        description="US dollars, or dollars by GPU such as {h100-sxm: 2.40}. Left out, the "
        "catalogue's price; null, no cost is shown.",
    )
    engine: EngineName | None = Field(
        default=None, description="Overhead preset of this pool. null: the scenario's."
    )
    scheduler: SchedulerSettings | None = Field(
        default=None,
        description="Scheduler settings of this pool; keys that are not given are the scenario's. "
        "null: all of them are.",
        examples=["{max_num_batched_tokens: 16384}"],
    )
    kv_cache: KvCache | None = Field(
        default=None,
        description="KV cache settings of this pool; keys that are not given are the scenario's. "
        "null: all of them are.",
        examples=["{block_size: 64}"],
    )
    max_model_len: Tokens | None = Field(
        default=None,
        description="Longest prompt plus answer on this pool, tokens. null: the scenario's.",
    )

    @property
    def layout(self) -> Layout:
        """How each replica spreads the model over its GPUs; ValueError if it cannot be."""
        tensor, data, expert = self.tensor_parallel, self.data_parallel, self.expert_parallel
        if expert is True:
            expert = tensor * data
        return Layout(tensor, self.pipeline_parallel, data, expert or 1, self.layer_split)

    @property
    def scales(self) -> Replicas | None:
        """Between which numbers it is scaled; None where the number is fixed."""
        return self.replicas if isinstance(self.replicas, Replicas) else None

    @property
    def most_replicas(self) -> int:
        """Replicas that there may be at one time."""
        return self.replicas.max if isinstance(self.replicas, Replicas) else self.replicas

    @field_validator("link", "node")
    @classmethod
    def _nothing_said(cls, said: GpuLink | GpuNode | None) -> GpuLink | GpuNode | None:
        """A link or node without settings is the GPU's own."""
        return said or None

    @model_validator(mode="after")
    def _check_pipeline(self) -> Pool:
        refuse(self, IN_STAGES)
        return self

    @model_validator(mode="after")
    def _check_layout(self) -> Pool:
        try:
            _ = self.layout
        except ValueError as error:
            raise trouble(str(error), "expert_parallel") from None
        return self


IN_STAGES: Clash[Pool] = Clash(
    "pipelines",
    lambda pool: pool.pipeline_parallel > 1 and pool.data_parallel > 1,
    "the {data_parallel} data ranks of one engine cannot be pipelines of {pipeline_parallel} "
    "stages here: ranks start each iteration together, and batches in flight do not",
    "give one of the two",
    ("data_parallel",),
)
"""The clash of data ranks with pipelines."""
