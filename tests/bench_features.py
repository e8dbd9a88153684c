"""Measures what each feature costs next to a plain run: CPU time of a request, and plans of it.

    python -m tests.bench_features [--rounds N] [FEATURE ...]

Each row is a run of a shipped scenario with some keys changed, simulated and summed up. Features
take turns, and with each of them a plain run, so that another program on the machine slows both;
medians of the rounds. Prints rows of a Markdown table: name, microseconds a request, how many times
as many as the plain run next to it, plans a request.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import sim
from tests.places import ROOT

EAGLE = "{method: eagle, num_tokens: 3, acceptance_rate: 0.7}"
NGRAM = "{method: ngram, num_tokens: 3, acceptance_rate: 0.4}"
MTP = "{method: mtp, num_tokens: 1, acceptance_rate: 0.8}"
EIGHT = "fleet.0.tensor_parallel=8"
RANKS = ("model=deepseek-v3", "fleet.0.gpu=h200-sxm", "fleet.0.data_parallel=8")


def replicas(number: int) -> tuple[str, ...]:
    """That many, with the plain run's load each."""
    return f"fleet.0.replicas={number}", f"workload.arrivals.rate={6 * number}"


FEATURES: dict[str, tuple[str, tuple[str, ...]]] = {
    "plain": ("chat", ()),
    "40 requests/s": ("chat", ("workload.arrivals.rate=40",)),
    "256 clients": ("chat", ("workload.arrivals={kind: closed, concurrency: 256}",)),
    "outputs of 1,000 tokens, 0.5/s": (
        "chat",
        ("workload.arrivals.rate=0.5", "workload.output_tokens={kind: fixed, value: 1000}"),
    ),
    "prompts of 32,000 tokens, 0.1/s": (
        "chat",
        (
            "max_model_len=40000",
            "workload.arrivals.rate=0.1",
            "workload.prompt_tokens={kind: fixed, value: 32000}",
        ),
    ),
    "no prefix cache": ("chat", ("kv_cache.enable_prefix_caching=false",)),
    "shared prefixes": ("chat", ("workload.shared_prefix={tokens: 800, groups: 4}",)),
    "EAGLE-3": ("chat", (f"speculative={EAGLE}",)),
    "n-gram drafts": ("chat", (f"speculative={NGRAM}",)),
    "deepseek-v3 with MTP": (
        "chat",
        ("model=deepseek-v3", "fleet.0.gpu=h200-sxm", EIGHT, f"speculative={MTP}"),
    ),
    "windows: gemma-3-12b": ("chat", ("model=gemma-3-12b",)),
    "windows, short of memory: gemma-3-27b": ("chat", ("model=gemma-3-27b",)),
    "windows: gpt-oss-120b": ("chat", ("model=gpt-oss-120b",)),
    "gemma-3-12b with n-gram drafts": ("chat", ("model=gemma-3-12b", f"speculative={NGRAM}")),
    "qwen3-next-80b-a3b, TP 4": ("chat", ("model=qwen3-next-80b-a3b", "fleet.0.tensor_parallel=4")),
    "deepseek-v3, 8 data ranks": ("chat", RANKS),
    "the same at 24/s": ("chat", (*RANKS, "workload.arrivals.rate=24")),
    "pipeline of 2": ("chat", ("fleet.0.pipeline_parallel=2",)),
    "pipeline of 4": ("chat", ("fleet.0.pipeline_parallel=4",)),
    "chunks of 512 tokens, 20/s": (
        "chat",
        ("scheduler.max_num_batched_tokens=512", "workload.arrivals.rate=20"),
    ),
    "sglang": ("chat", ("engine=sglang",)),
    "static batches": ("chat", ("scheduler.batching=static",)),
    "sessions": ("chat-sessions", ()),
    "agents": ("agent", ()),
    "RAG": ("rag", ()),
    "prefill and decode apart": ("disaggregated", ()),
    "autoscaled": ("diurnal-autoscaled", ("run={requests: 10000}",)),
    "retry storm, of an attempt": ("retry-storm", ("run={requests: 20000, horizon: 2min}",)),
    "10 replicas": ("chat", replicas(10)),
    "100 replicas": ("chat", replicas(100)),
    "1,000 replicas": ("chat", ("run.requests=10000", *replicas(1000))),
    "1,000 replicas, prefix-affinity": (
        "chat",
        ("run.requests=10000", "router=prefix-affinity", *replicas(1000)),
    ),
}
"""Of each feature the shipped scenario, and the keys that are changed; 3,000 requests
unless they say otherwise."""

REQUESTS = 3000


def scenario_of(feature: str) -> sim.Scenario:
    """The scenario of a feature."""
    name, keys = FEATURES[feature]
    path = ROOT / "scenarios" / f"{name}.yaml"
    own = any(key.startswith("run") for key in keys)
    return sim.load_scenario(path, [*keys, *([] if own else [f"run={{requests: {REQUESTS}}}"])])


def cost(scenario: sim.Scenario) -> tuple[float, float]:
    """CPU time (s) and plans of a request, or of an attempt where clients try again."""
    start = time.process_time()
    result = sim.simulate(scenario)
    assert result.summary
    spent, record = time.process_time() - start, result.record
    attempts = len(record.requests)
    if record.attempts is not None:
        attempts += len(record.attempts.failed)
    return spent / attempts, len(record.plans) / attempts


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("features", nargs="*", metavar="FEATURE")
    given = parser.parse_args()
    plain = scenario_of("plain")
    cost(plain)
    for feature in given.features or FEATURES:
        scenario = scenario_of(feature)
        rounds = [(*cost(scenario), cost(plain)[0]) for _ in range(given.rounds)]
        seconds, plans = median(each[0] for each in rounds), rounds[0][1]
        ratio = median(each[0] / each[2] for each in rounds)
        print(f"| {feature} | {seconds * 1e6:.0f} | {ratio:.1f} | {plans:.1f} |", flush=True)


if __name__ == "__main__":
    main()
