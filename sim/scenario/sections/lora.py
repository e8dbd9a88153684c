"""Describes the LoRA adapters of a scenario: their size, their slots, and who asks for which."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import Count, Nonnegative, between


class AdapterDistribution(Section):
    """The adapters that requests ask for, each drawn on its own; all turns of a session have the
    adapter of the session."""

    kind: Literal["uniform", "zipf"] = Field(
        default="uniform",
        description="uniform: all adapters are equally likely. zipf: the k-th is drawn in "
        "proportion to 1/k to the power of the exponent.",
    )
    exponent: Annotated[Nonnegative, between(0, 10)] = Field(
        default=1.0, description="Exponent of zipf; uniform leaves it out.", examples=[1]
    )


class LoraSettings(Section):
    """All adapters have one rank and change the same modules of the model."""

    adapters: Count = Field(
        description="Different adapters that requests ask for. Those that are on no GPU wait in "
        "the memory of the host, which holds all of them (--max-cpu-loras).",
        examples=[20],
    )
    rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = Field(
        default=16,
        description="Rank of every adapter, and of the slots on the GPU (--max-lora-rank, whose "
        "values in vLLM these are).",
    )
    max_loras: Count = Field(
        default=1,
        description="Slots on the GPU, and so different adapters in one batch: a request that "
        "would be one more waits, and later requests may pass it. 1 in vLLM; SGLang calls it "
        "--max-loras-per-batch, 8 there.",
        examples=[4],
    )
    targets: Literal["all", "attention"] = Field(
        default="all",
        description="Linear modules that adapters change: all of each layer, or those of attention "
        "alone (--lora-target-modules). Embedding and LM head are left out.",
    )
    distribution: AdapterDistribution = Field(
        default_factory=AdapterDistribution,
        description="How popular the adapters are.",
        examples=["{kind: zipf, exponent: 1.0}"],
    )
