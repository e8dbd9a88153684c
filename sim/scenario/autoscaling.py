"""Describes fleets whose number of replicas follows their load."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from sim.scenario.fields import Bandwidth, Count, Duration, Positive, Wait, at_most, trouble
from sim.scenario.support import Section


class Replicas(Section):
    """Between which numbers of replicas a pool is scaled."""

    min: Count = Field(default=1, description="Fewest replicas; one is always there.")
    max: Annotated[Count, at_most(10_000)] = Field(description="Most replicas.", examples=[8])
    start: Count | None = Field(
        default=None, description="Replicas that are there at the start. null: the fewest."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Replicas:
        first = self.min if self.start is None else self.start
        if not self.min <= first <= self.max:
            raise trouble(
                f"expected min <= start <= max, got {self.min:,}, {first:,} and {self.max:,}", "max"
            )
        return self

    @property
    def first(self) -> int:
        """Replicas at the start."""
        return self.min if self.start is None else self.start


class Autoscaling(Section):
    """When replicas are started and stopped."""

    policy: Literal["hpa", "saturation", "slo"] = Field(
        default="hpa",
        description="hpa: as Kubernetes' HorizontalPodAutoscaler scales a metric of replicas to a "
        "target. saturation: one more where KV memory or queues have little to spare, one less "
        "where they would still have enough, as llm-d's variant autoscaler. slo: as many as the "
        "requests of the last minute need, each of which holds `target` requests/s within the SLO.",
    )
    metric: Literal["queue", "running", "kv"] = Field(
        default="queue",
        description="What hpa looks at: requests that wait, requests in the batch, or the share of "
        "the KV cache that is taken; each of one replica.",
    )
    target: Positive = Field(
        default=3.0,
        description="hpa: of the metric, on average over replicas; 3 waiting requests are what "
        "llm-d's benchmarks give to HPA. slo: requests/s of one replica, as `infersim find` has "
        "them.",
    )
    interval: Duration = Field(
        default=15.0, description="From one decision to the next, s; Kubernetes' sync period."
    )
    stabilisation: Wait = Field(
        default=300.0,
        description="hpa and slo: nothing is stopped that was wanted within so long, s. "
        "Kubernetes' default.",
    )
    cold_start: Wait | None = Field(
        default=None,
        description="From the decision to the first request, s. auto, or null: boot, and what the "
        "engine and the weights of the model take.",
        examples=["60s"],
    )
    boot: Wait = Field(
        default=0.0,
        description="Of a node, s, in `cold_start: auto`. 0: nodes with the image are kept.",
    )
    read_bandwidth: Bandwidth = Field(
        default=6.5e9,
        description="At which the weights of a replica are read, bytes/s, in `cold_start: auto`. "
        "One NVMe disk reads at 6.5 to 6.9 GB/s.",
    )

    @field_validator("cold_start", mode="before")
    @classmethod
    def _of_its_parts(cls, value: Any) -> Any:
        """auto means null."""
        return None if value == "auto" else value
