"""Provides one example for the help of every command, as it would be typed."""

from __future__ import annotations

from typing import Any

import typer

CHAT = "scenarios/chat.yaml"

EXAMPLES = {
    "init": "my-chat --like chat",
    "import": "'vllm serve Qwen/Qwen3-8B --max-num-seqs 64' --gpu l40s",
    "validate": CHAT,
    "run": f"{CHAT} --set workload.arrivals.rate=20 --no-save",
    "ui": "--port 8765",
    "find": f"{CHAT} --max rate --tolerance 0.05",
    "plan": f"{CHAT} --gpus h100-sxm,l40s --rate 10x",
    "compare": f"{CHAT} --vary scheduler.batching=static,continuous",
    "sweep": f"{CHAT} --sweep workload.arrivals.rate=2:40:10 --sweep fleet.0.gpu=l40s,h100-sxm",
    "diagnose": CHAT,
    "ablate": f"{CHAT} --saturate",
    "sensitivity": f"{CHAT} --range kernel_time=0.9:1.1",
    "claims": "scenarios/claims",
    "list": "gpus",
    "show": "h100-sxm",
    "fit": "llama-3.1-70b --gpu h100-sxm --tensor-parallel 2 --weights fp8",
    "roofline": "llama-3.1-8b --gpu h100-sxm --batch 1 --batch 64",
    "explain scenario": "max_num_seqs",
    "explain limits": "fleet.replicas",
    "explain batching": "llama-3.2-1b --requests 4",
    "serve": f"{CHAT} --port 8000",
    "observe": f"{CHAT} --device cuda",
    "validate-run": "runs/20260101-120000-chat-observed",
    "score": "measured.csv",
    "export": "runs/20260101-120000-chat --to perfetto",
    "schema": "",
    "selftest": "",
    "calibrate run": "--device cuda --out my-gpu.yaml",
    "calibrate fit": "measurements.csv --out my-gpu.yaml",
    "calibrate report": "h100-sxm",
    "calibrate diff": "h100-sxm h200-sxm",
    "calibrate import aiconfigurator": "--system h100_sxm --framework vllm",
    "calibrate import vidur": "mlp.csv attention.csv --gpu a100-sxm-80gb",
    "calibrate import aiter": "gemm.csv.gz fmoe.csv.gz --gpu mi355x",
    "calibrate import measurements": "measurements.csv --out my-gpu.yaml",
    "trace describe": "azure_conv.csv",
    "trace convert": "azure_conv.csv plain.csv",
    "trace sample": "azure_conv.csv part.csv --requests 1000",
    "trace scale": "azure_conv.csv triple.csv --overlay 3",
}
"""Arguments that follow the name of each command."""


GROUPS = {
    "explain": "scenario workload.arrivals",
    "calibrate": "--device cuda --out my-gpu.yaml",
    "calibrate import": "aiconfigurator --system h100_sxm --framework vllm",
    "trace": "describe azure_conv.csv",
}
"""Examples of groups of commands, each with one of its commands."""


def add_examples(app: typer.Typer, above: str = "") -> None:
    """Give every command below ``app`` its example, as the last line of its help."""
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__.replace("_", "-")
        path = f"{above}{name}"
        if path in EXAMPLES:
            command.epilog = f"Example: infersim {path} {EXAMPLES[path]}".rstrip()
    for group in app.registered_groups:
        assert group.typer_instance is not None
        path = f"{above}{_name(group)}"
        group.typer_instance.info.epilog = f"Example: infersim {path} {GROUPS[path]}"
        add_examples(group.typer_instance, f"{path} ")


def _name(group: Any) -> str:
    """The name of a group: its own, or that of its commands."""
    return group.name if isinstance(group.name, str) else str(group.typer_instance.info.name)
