"""Measures how fast the simulator is: one JSON line, everything in one process, in turns.

    python -m tests.bench [--million] [TRACE.csv]

Replays a trace (the Azure conversation trace where it is at hand, otherwise the project's own) with
llama-3.1-8b on one H100, all default metrics and the summary included, and beside each replay runs
bare SimPy with as many events. CPU seconds; the best of several rounds, since noise only adds.
The same replay with drafted tokens follows, as many for every batch and by its size. Where the
Mooncake conversation trace is at hand, it is replayed with a prefix cache, too.
``--million`` adds the peak memory of one million requests, which takes half a minute more.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import simpy

import sim
from tests.places import ROOT

TRACES = ROOT.parent / "shared" / "data" / "traces"
AZURE = TRACES / "azure_conv_2023.csv"
MOONCAKE = TRACES / "mooncake_conversation_trace.jsonl"
OWN = ROOT / "scenarios" / "traces" / "chat-azure.csv"
ROUNDS = 5


def cpu_seconds(job: Callable[[], object]) -> float:
    """CPU time that ``job`` takes (s)."""
    start = time.process_time()
    job()
    return time.process_time() - start


START = """
import sim
scenario = sim.load_scenario("scenarios/chat.yaml")
sim.simulate
from sim.setup import prepare
prepare(scenario)
"""


def startup_cpu_seconds() -> float:
    """CPU time of a fresh interpreter that gets as far as a run that is about to begin (s)."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    start = spent()
    subprocess.run([sys.executable, "-c", START], check=True, cwd=ROOT)
    return spent() - start


MILLION = """
import json, resource, tempfile
from pathlib import Path
import sim

def peak():
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)

result = sim.simulate(sim.load_scenario("scenarios/chat.yaml", ["run.requests=1000000"]))
simulated = peak()
result.summary
summarised = peak()
with tempfile.TemporaryDirectory() as folder:
    result.save(Path(folder) / "run")
print(json.dumps({"simulated": simulated, "summarised": summarised, "saved": peak()}))
"""


def million_peak_memory() -> dict[str, int]:
    """Most memory (MiB) that a fresh process had taken by the time it had simulated a million
    requests, summed them up, and saved the run directory."""
    done = subprocess.run(
        [sys.executable, "-c", MILLION], check=True, cwd=ROOT, capture_output=True, text=True
    )
    peaks: dict[str, int] = json.loads(done.stdout)
    return peaks


def bare_simpy(events: int) -> None:
    """As many timeouts, one after the other, in one process that does nothing else."""

    def tick(env: simpy.Environment) -> Generator[simpy.Event, None, None]:
        for _ in range(events):
            yield env.timeout(1.0)

    env = simpy.Environment()
    env.process(tick(env))
    env.run()


DRAFTS = {"method": "eagle", "num_tokens": 3, "acceptance_rate": 0.7}
"""What is drafted where anything is."""

BY_BATCH = {**DRAFTS, "num_tokens_per_batch_size": [[1, 4, 3], [5, 16, 2], [17, 256, 0]]}


def measure(
    trace: Path,
    time_scale: float,
    *,
    longest: int = 16384,
    cached: bool = False,
    drafts: dict[str, object] | None = None,
) -> dict[str, float]:
    """Replay ``trace`` with its gaps multiplied by ``time_scale``, for requests of up to
    ``longest`` tokens; with a prefix cache if ``cached``, and with ``drafts`` if given."""
    scenario = sim.load_scenario(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "max_model_len": longest,
            "kv_cache": {"enable_prefix_caching": cached},
            "speculative": drafts,
            "workload": {"trace": {"path": str(trace), "time_scale": time_scale}},
            "slo": {"ttft": "500ms", "tpot": "40ms"},
        }
    )
    result = sim.simulate(scenario)
    requests, events = len(result.record.requests), result.record.events
    iterations = result.summary["infersim"]["batch"]["iterations"]
    runs, bare = [], []
    for _ in range(ROUNDS):
        runs.append(cpu_seconds(lambda: sim.simulate(scenario).summary))
        bare.append(cpu_seconds(lambda: bare_simpy(events)))
    return {
        "requests": requests,
        "requests_per_cpu_s": round(requests / min(runs)),
        "iterations_per_cpu_s": round(iterations / min(runs)),
        "events": events,
        "bare_simpy_events_per_cpu_s": round(events / min(bare)),
        "ratio_to_bare_simpy": round(min(runs) / min(bare), 2),
    }


def main() -> None:
    """Print the line."""
    million, *given = sys.argv[1:] if "--million" in sys.argv[1:2] else ["", *sys.argv[1:]]
    trace = Path(given[0]) if given else AZURE if AZURE.exists() else OWN
    figures: dict[str, object] = {"trace": trace.name, **measure(trace, 1.0)}
    figures["at_four_times_the_rate"] = measure(trace, 0.25)
    figures["with_drafts"] = measure(trace, 1.0, drafts=DRAFTS)
    figures["with_drafts_by_batch"] = measure(trace, 1.0, drafts=BY_BATCH)
    if MOONCAKE.exists():
        figures["with_a_prefix_cache"] = measure(MOONCAKE, 1.0, longest=131072, cached=True)
    figures["startup_cpu_s"] = round(min(startup_cpu_seconds() for _ in range(ROUNDS)), 3)
    figures["peak_memory_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    if million:
        figures["peak_memory_of_one_million_requests_mib"] = million_peak_memory()
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
