"""Describes the memory for keys and values in a scenario, and the consequences of a full one.

Defaults hold for engines that choose nothing by themselves (``own_settings``). Numbers are SI once
validated (seconds, bytes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field, model_validator

from sim.memory import ALLOCATORS, PagedAllocator
from sim.scenario.sections.support import LimitedSection
from sim.scenario.values.fields import (
    Bandwidth,
    Count,
    Positive,
    Share,
    Size,
    Switch,
    at_most,
    trouble,
)

if TYPE_CHECKING:
    AllocatorName = str
else:
    AllocatorName = Literal[tuple(ALLOCATORS)]


class KvCache(LimitedSection):
    """Memory for keys and values, and what happens when it is full."""

    allocator: AllocatorName = Field(
        default=PagedAllocator.name,
        description=f"{ALLOCATORS.described()}.",
    )
    block_size: Annotated[Count, at_most(65_536)] = Field(
        default=16,
        description="Tokens per block. Left out: the engine's (vLLM 16, SGLang 1, TensorRT-LLM "
        "32).",
    )
    gpu_memory_utilization: Share = Field(
        default=0.9,
        description="Share of GPU memory that the engine may fill. Left out: what the engine's "
        "release chooses (vLLM 0.9, and 0.92 since 0.21; SGLang by the memory and the chunks).",
    )
    memory: Size | None = Field(
        default=None,
        description="Memory of each GPU for the KV cache, bytes, in place of a share of all "
        "(vLLM's --kv-cache-memory-bytes). null: what gpu_memory_utilization leaves.",
        examples=["16GiB"],
    )
    state_ratio: Positive | None = Field(
        default=None,
        description="SGLang, models with a state: memory of states relative to that of the KV "
        "cache (--mamba-full-memory-ratio). null: the engine's, 0.9.",
        examples=[0.5],
    )
    num_gpu_blocks: Count | None = Field(
        default=None,
        description="Blocks of one replica, to match an engine's own log exactly. null: worked "
        "out from the memory, as engines do at start.",
    )
    enable_prefix_caching: Switch = Field(
        default=False,
        description="Reuse the blocks of equal prefixes, by the rules of `scheduler.policy`: "
        "vLLM's blocks, or SGLang's radix tree. What prompts share is said by "
        "workload.shared_prefix, workload.sessions or the hash_ids of a trace. Left out: on where "
        "the engine has it on and it is modelled.",
    )
    prefix_policy: Literal["blocks", "radix"] | None = Field(
        default=None,
        description="Which prefix cache enable_prefix_caching means. blocks: vLLM's chain of "
        "hashed blocks, evicted by LRU. radix: SGLang's tree. null: the one of `scheduler.policy`, "
        "the only one that is modelled with it.",
    )
    preemption: Literal["recompute", "swap", "auto"] = Field(
        default="recompute",
        description="How room is made when blocks run out. recompute: the newest request loses "
        "its blocks and is computed again, all that vLLM V1 does. swap: they go to host_memory and "
        "come back, as in vLLM V0. auto: the faster of the two for each request.",
    )
    swap_space: Size = Field(
        default=0.0,
        description="vLLM V0's key, bytes of one GPU; 0: swapped blocks share host_memory.",
    )
    host_memory: Size | None = Field(
        default=None,
        description="Memory of the host for KV blocks of one replica, bytes, all its ranks "
        "together (vLLM: --kv-offloading-size). With enable_prefix_caching it continues the "
        "prefix cache by the rules of vLLM's native offloading: full blocks of prompts are "
        "stored as soon as they are computed. null: none.",
        examples=["100GiB"],
    )
    host_bandwidth: Bandwidth | None = Field(
        default=None,
        description="Bytes/s of the link of one GPU to its host, each way. null: what its data "
        "sheet says, for PCIe less what packets add (`infersim show GPU`, host_link).",
        examples=["50GB/s"],
    )
    host_overlap: Switch = Field(
        default=True,
        description="Whether iterations go on while blocks are loaded from the host, and only the "
        "request waits for them (vLLM). false: the next iteration waits, as engines do that load "
        "in the forward pass.",
    )

    @model_validator(mode="after")
    def _one_size(self) -> KvCache:
        """The cache is given in bytes or in blocks."""
        if self.memory is not None and self.num_gpu_blocks is not None:
            raise trouble("num_gpu_blocks says it in blocks; give one of the two", "memory")
        return self

    @model_validator(mode="after")
    def _host_has_a_use(self) -> KvCache:
        """Memory in the host that nothing would use, or a use without memory, is an error."""
        if self.host_memory is None:
            if self.preemption != "recompute":
                raise trouble(
                    f"preemption {self.preemption} moves blocks to the host; give host_memory, "
                    "such as 100GiB",
                    "preemption",
                )
            for key in ("host_bandwidth", "host_overlap"):
                if key in self.model_fields_set and getattr(self, key) not in (None, True):
                    raise trouble(f"{key} is of the link to host_memory, which is null", key)
        elif self.host_memory == 0:
            raise trouble("expected a size above 0, or null for none", "host_memory")
        elif self.preemption == "recompute" and not self.enable_prefix_caching:
            raise trouble(
                "nothing uses it: turn on enable_prefix_caching, or let preemption swap",
                "host_memory",
            )
        return self
