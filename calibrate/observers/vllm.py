"""How does vLLM serve a scenario? Its V1 engine, in this process, a step at a time."""

from __future__ import annotations

from typing import Literal

from calibrate.device import Device
from calibrate.engine.loop import Progress
from calibrate.engine.observed import Observed
from calibrate.observers import lazy_vllm
from sim.clock import Stop
from sim.errors import UsageError
from sim.scenario import Scenario


def observe(
    scenario: Scenario,
    device: Device,
    *,
    precision: str | None = None,
    sampling: Literal["greedy", "random"] = "greedy",
    stop: Stop | None = None,
    progress: Progress | None = None,
) -> Observed:
    """Serve the scenario's traffic with vLLM on ``device``, request by request as it arrives."""
    lazy_vllm.module("vllm")
    raise UsageError("--engine vllm: this build only records its scheduler")
