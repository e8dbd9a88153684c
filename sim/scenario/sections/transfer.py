"""Describes how KV gets from the replicas that prefill to those that decode."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import Bandwidth, Tokens, Wait


class Transfer(Section):
    """The hand-over of a request from a prefill pool to a decode pool."""

    bandwidth: Bandwidth = Field(
        default=100e9,
        description="Of the link of a replica, bytes/s, all its GPUs together. Mooncake's engine "
        "reached 87 GB/s over four cards of 200 Gbit/s, 190 over eight of 400.",
    )
    latency: Wait = Field(
        default=0.002,
        description="Time from the last byte to its use, s; the link is free meanwhile.",
    )
    per_block: Wait = Field(
        default=240 * 1e-6,  # as `240us` is read
        description="Time of the link for each KV block, s, which descriptors take. vLLM's "
        "connector took 105 ms, 29 of them copying, for about 5,000 tokens in blocks of 16 (vLLM "
        "RFC 50913): 240 us a block.",
    )
    mode: Literal["pull", "push-layerwise"] = Field(
        default="pull",
        description="pull: the decode side reads all KV when the prompt is complete, as vLLM's "
        "NIXL connector. push-layerwise: the prefill side writes each layer as it is computed, so "
        "that only the last one is waited for, as MoRIIO's.",
    )
    min_prompt: Tokens | None = Field(
        default=None,
        description="Prompts shorter than this, in tokens, are prefilled on the decode replica. "
        "null: all are handed over.",
    )
