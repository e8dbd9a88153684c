"""Describes fleets whose number of replicas follows their load."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from sim.scenario.sections.support import Section
from sim.scenario.values.fields import (
    Bandwidth,
    Count,
    Duration,
    FromNone,
    Positive,
    Wait,
    at_most,
    trouble,
)

TO_NONE = ("keda", "kpa")
"""The policies that stop the last replica: KEDA's own, and AIBrix's and Knative's KPA."""


class Replicas(Section):
    """Between which numbers of replicas a pool is scaled."""

    min: FromNone = Field(
        default=1,
        description="Minimum number of replicas. 0 with `autoscaling: {policy: keda}` or kpa: the "
        "last one is stopped, too, when nothing is left to do; what comes then waits at the "
        "gateway for a cold start.",
    )
    max: Annotated[Count, at_most(10_000)] = Field(
        description="Maximum number of replicas.", examples=[8]
    )
    start: FromNone | None = Field(
        default=None, description="Replicas at the start. null: the minimum."
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


class ScalingStep(Section):
    """By how much the number of replicas changes at most in a period, as a policy of Kubernetes."""

    pods: Count | None = Field(
        default=None, description="Replicas that may be added or removed per period.", examples=[4]
    )
    percent: Positive | None = Field(
        default=None, description="Percent of the replicas at its start.", examples=[100]
    )
    period: Duration = Field(default=15.0, description="Length of the period, s.")

    @model_validator(mode="after")
    def _one_of_both(self) -> ScalingStep:
        if (self.pods is None) == (self.percent is None):
            raise trouble("give pods or percent, one of the two", "pods", "percent")
        return self


HEEDED = {
    "hpa": ("metric", "target", "stabilisation", "scale_up", "scale_down"),
    "keda": (
        *("metric", "target", "stabilisation", "scale_up", "scale_down"),
        *("polling", "cooldown"),
    ),
    "kpa": ("metric", "target", "stabilisation"),
    "apa": ("metric", "target", "stabilisation"),
    "slo": ("target", "stabilisation", "scale_up", "scale_down"),
    "saturation": (),
}
"""The keys that each policy goes by, of those that some do not."""


class Autoscaling(Section):
    """When replicas are started and stopped."""

    policy: Literal["hpa", "keda", "kpa", "apa", "saturation", "slo"] = Field(
        default="hpa",
        description="hpa: as Kubernetes' HorizontalPodAutoscaler scales a metric of replicas to a "
        "target. keda: the same of the sum over replicas, as KEDA's scalers have it. kpa: averages "
        "of minutes, and quickly up in a panic, as AIBrix and Knative. apa: the average of a "
        "minute, at most twice and at least half of the replicas at a time, as AIBrix. saturation: "
        "one more where KV memory or queues have little to spare, one less where they would still "
        "have enough, as llm-d's variant autoscaler. slo: as many as the requests of the last "
        "minute need, each of which holds `target` requests/s within the SLO.",
    )
    metric: Literal["queue", "running", "kv"] = Field(
        default="queue",
        description="What hpa, keda, kpa and apa look at: requests that wait, requests in the "
        "batch, or the share of the KV cache that is taken; each of one replica.",
    )
    target: Positive = Field(
        default=3.0,
        description="hpa, keda, kpa, apa: of the metric, on average over replicas; 3 waiting "
        "requests are what llm-d's benchmarks give to HPA. slo: requests/s of one replica, as "
        "`infersim find` has them.",
    )
    interval: Duration = Field(
        default=15.0, description="From one decision to the next, s; Kubernetes' sync period."
    )
    scrape: Duration | None = Field(
        default=None,
        description="From one reading of the metrics to the next, s; decisions see the last one. "
        "null: read for each decision. Prometheus often reads every 15 to 60 s.",
        examples=["30s"],
    )
    delay: Wait = Field(
        default=0.0,
        description="Delay between a reading and the first decision that can use it, s: the time "
        "to collect and query metrics.",
    )
    stabilisation: Wait = Field(
        default=300.0,
        description="For every policy except saturation: a replica that was wanted within this "
        "time, s, is not stopped. The default of Kubernetes and AIBrix.",
    )
    scale_up: tuple[ScalingStep, ...] | None = Field(
        default=None,
        min_length=1,
        description="hpa, keda and slo: how fast replicas are added, by the step that allows most. "
        "null: all there were, or four, in 15 s, Kubernetes' default.",
        examples=["[{pods: 1, period: 60s}]"],
    )
    scale_down: tuple[ScalingStep, ...] | None = Field(
        default=None,
        min_length=1,
        description="The same for stopping replicas. null: all of them within 15 s.",
        examples=["[{percent: 10, period: 60s}]"],
    )
    polling: Duration = Field(
        default=30.0,
        description="keda, with `min: 0`: from one look at whether there is anything to do to the "
        "next, s; KEDA's pollingInterval. One replica is started where there is none.",
    )
    cooldown: Wait = Field(
        default=300.0,
        description="keda, with `min: 0`: all replicas are stopped after more than so long without "
        "anything to do, s; KEDA's cooldownPeriod.",
    )
    cold_start: Wait | None = Field(
        default=None,
        description="From the decision to the first request, s. auto, or null: boot, and what the "
        "engine and the weights of the model take.",
        examples=["60s"],
    )
    boot: Wait = Field(
        default=0.0,
        description="Boot time of a node, s, in `cold_start: auto`. 0: nodes with the image are "
        "kept ready.",
    )
    read_bandwidth: Bandwidth = Field(
        default=6.5e9,
        description="Rate at which a replica reads its weights, bytes/s, in `cold_start: auto`. "
        "One NVMe disk reads at 6.5 to 6.9 GB/s.",
    )

    @property
    def unheeded(self) -> list[str]:
        """The keys that were given and that the policy does not go by; a default is none that
        anybody asked for.

        >>> Autoscaling(policy="slo", target=8, metric="running").unheeded
        ['metric']
        """
        every = dict.fromkeys(key for keys in HEEDED.values() for key in keys)
        return [
            key
            for key in every
            if key not in HEEDED[self.policy]
            and getattr(self, key) != type(self).model_fields[key].default
        ]

    @property
    def by_rate(self) -> bool:
        """Whether the target is requests/s of a replica, not a metric of it."""
        keys = HEEDED[self.policy]
        return "target" in keys and "metric" not in keys

    @property
    def aim(self) -> str:
        """The policy's target for each replica, in words; empty where it has thresholds of its own.

        >>> Autoscaling(policy="slo", target=8).aim, Autoscaling(metric="kv", target=0.8).aim
        ('8 requests/s a replica', '80 % of the KV cache of a replica taken')
        """
        if "target" not in HEEDED[self.policy]:
            return ""
        if self.by_rate:
            return f"{self.target:g} requests/s a replica"
        if self.metric == "kv":
            return f"{100 * self.target:g} % of the KV cache of a replica taken"
        what = "waiting" if self.metric == "queue" else "running"
        return f"{self.target:g} {what} requests a replica"

    @model_validator(mode="after")
    def _within_the_cache(self) -> Autoscaling:
        if "metric" in HEEDED[self.policy] and self.metric == "kv" and self.target > 1:
            raise trouble(
                f"kv is the share of the KV cache that is taken, so that a target of "
                f"{self.target:g} is never reached: give one of at most 1, as target: 0.8",
                "target",
            )
        return self

    @field_validator("cold_start", mode="before")
    @classmethod
    def _of_its_parts(cls, value: Any) -> Any:
        """auto means null."""
        return None if value == "auto" else value
