"""Writes runs as the files that ``vllm bench sweep plot`` reads.

A folder per combination of settings (here: per run) with ``run=0.json``, one result of ``vllm bench
serve`` with its settings next to the metrics, and ``summary.json``, the list of those results; over
all of them ``summary.csv``. The plots read every ``summary.json`` below the folder. Keys are those
of vLLM 0.32, of a result saved without ``--save-detailed`` and summed up by ``--percentile-metrics
ttft,tpot,itl,e2el``, which is how its sweeps are run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.export.bench import SIMULATED_BY, document, seen
from sim.export.source import Source

METRICS = ("ttft", "tpot", "itl", "e2el")
DETAILS = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")
"""What vLLM leaves out of a result that is not detailed; the other lists it keeps."""

NOT_IN_A_ROW = (*DETAILS, SIMULATED_BY)
"""A mapping has no place in a table; ``backend`` and ``label`` say what made a row."""


def record(source: Source) -> dict[str, Any]:
    """The result of one run with its settings, a row of a sweep."""
    result = document(source, seen(source), METRICS)
    kept = {key: value for key, value in result.items() if key not in NOT_IN_A_ROW}
    return kept | {"run_number": 0} | _settings(source)


def names(sources: Sequence[Source]) -> list[str]:
    """A folder for each run: its own name, with a number where two have the same.

    They are made of the settings' name, as in vLLM, where ``SERVE--`` begins what is set on the
    server.
    """
    found: list[str] = []
    for source in sources:
        name, number = source.name, 2
        while f"SERVE--{name}" in found:
            name, number = f"{source.name}-{number}", number + 1
        found.append(f"SERVE--{name}")
    return found


def _settings(source: Source) -> dict[str, Any]:
    """The server's settings by vLLM's names; of a fleet with several pools, those of the first.

    ``data_parallel_size`` counts the copies of the model, so that the three sizes multiply to the
    number of GPUs.
    """
    scenario, own = source.scenario, source.summary["infersim"]
    pool: Mapping[str, Any] = scenario["fleet"][0]
    tensor, pipeline = int(pool["tensor_parallel"]), int(pool["pipeline_parallel"])
    return {
        "_benchmark_name": source.name,
        "gpu": str(own["gpu"]),
        "batching": str(own["batching"]),
        "tensor_parallel_size": tensor,
        "pipeline_parallel_size": pipeline,
        "data_parallel_size": int(own["gpus"]) // (tensor * pipeline),
        "max_num_seqs": scenario["scheduler"]["max_num_seqs"],
        "max_num_batched_tokens": scenario["scheduler"]["max_num_batched_tokens"],
        "block_size": scenario["kv_cache"]["block_size"],
        "gpu_memory_utilization": scenario["kv_cache"]["gpu_memory_utilization"],
    }
