"""Random scenarios that cross policies, kinds of memory, and how tight it is with everything else.

    python -m tests.random_scenarios FIRST COUNT

plays ``COUNT`` seeds from ``FIRST`` on and prints how many ran, were refused or failed, with the
seed and the reason of each failure; ``python -m tests.random_scenarios SEED`` prints one scenario.

Of each scenario a run with leaps and one without must agree to the last bit, end within a number of
events, and lose no request, token or block.
"""

from __future__ import annotations

import json
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import sim
from sim.errors import InfeasibleError, InfersimError, UsageError
from sim.loop.clock import Stop
from sim.metrics.record.run_record import RunRecord
from sim.pools import make_allocator
from sim.result import Result
from sim.setup import prepare
from tests.places import MODELS
from tests.test_fuzz import check

EVENTS = 400_000
"""More than the longest of these runs has; one that never ends passes it."""

KINDS = {
    "dense": "llama-3.2-1b",
    "windows": str(MODELS / "tiny-windows"),
    "chunks": str(MODELS / "tiny-chunks"),
    "mamba": str(MODELS / "tiny-mamba"),
    "linear": str(MODELS / "tiny-linear"),
    "hybrid": str(MODELS / "tiny-windows"),
}
"""Models by what their memory keeps; hybrid: windows with a prefix cache."""

POLICIES = (
    *("vllm", "vllm-whole", "vllm-v0", "vllm-async", "vllm-capped"),
    *("sglang", "no-evict", "max-utilization", "static", "request"),
)

OTHERS = {
    "sglang": "sglang",
    "no-evict": "guaranteed-no-evict",
    "max-utilization": "max-utilization",
}

Chance = random.Random
Scenario = dict[str, Any]


class Bounded(Stop):
    """Stops a run that has more than so many ``events``."""

    def __init__(self, events: int) -> None:
        self.left = events
        super().__init__()

    @property
    def requested(self) -> bool:
        """Whether it has had them; asked before each."""
        self.left -= 1
        return self.left < 0

    @requested.setter
    def requested(self, value: bool) -> None:
        assert not value


def drawn(seed: int) -> Scenario:
    """The scenario of that ``seed``: of some that are drawn the first that is not refused, or the
    last one."""
    for attempt in range(8):
        made = _drawn(Chance(f"{seed}-{attempt}"))
        try:
            prepare(sim.load_scenario(made))
        except InfersimError:
            continue
        break
    return made


def _drawn(chance: Chance) -> Scenario:
    kind, policy = chance.choice(sorted(KINDS)), chance.choice(POLICIES)
    prompt, output = chance.choice([20, 60, 150]), chance.choice([1, 8, 40, 100])
    made: Scenario = {
        "model": KINDS[kind],
        "seed": chance.randint(0, 10**6),
        "engine": chance.choice(["ideal", "ideal", "vllm"]),
        "fleet": {"gpu": chance.choice(["a10g", "l40s"])},
        "max_model_len": 256,
        "scheduler": _scheduler(chance, policy),
        "kv_cache": {"block_size": chance.choice([1, 3, 16, 16])},
        "workload": {
            "arrivals": _arrivals(chance),
            "prompt_tokens": _lengths(chance, prompt),
            "output_tokens": _lengths(chance, output),
        },
        "run": {"requests": chance.choice([8, 20, 40]), "warmup": 0},
    }
    if kind == "hybrid":
        made["kv_cache"]["enable_prefix_caching"] = True
    chosen = chance.sample(FEATURES, chance.choice([0, 1, 1, 2, 3]))
    for feature in sorted(chosen, key=FEATURES.index):
        feature(chance, made)
    if chance.random() < 0.6:
        made["kv_cache"]["num_gpu_blocks"] = _tight(chance, made, prompt + output)
    return made


def _lengths(chance: Chance, most: int) -> Scenario:
    if chance.random() < 0.3:
        return {"kind": "fixed", "value": most}
    return {"kind": "uniform", "low": max(1, most // chance.choice([2, 8])), "high": most}


def _arrivals(chance: Chance) -> Scenario:
    kind = chance.choice(["burst", "poisson", "gamma", "closed", "constant"])
    if kind == "burst":
        return {"kind": kind}
    if kind == "closed":
        thinking = {"think_time": "3ms"} if chance.random() < 0.5 else {}
        return {"kind": kind, "concurrency": chance.choice([3, 9]), **thinking}
    rate = {"kind": kind, "rate": chance.choice([40, 150, 700])}
    return {**rate, "cv": 2} if kind == "gamma" else rate


def _scheduler(chance: Chance, policy: str) -> Scenario:
    seats = chance.choice([1, 3, 6, 16])
    cut = chance.random() < 0.6
    budget = chance.choice([32, 64, 96, 256] if cut else [256, 512])
    made: Scenario = {"max_num_seqs": seats, "max_num_batched_tokens": max(budget, seats)}
    if policy in ("static", "request"):
        return {**made, "batching": policy, "batch_timeout": "4ms"}
    if policy in OTHERS:
        return made | _other_rule(chance, policy, cut)
    of_vllm: Mapping[str, Scenario] = {
        "vllm": {"scheduler_reserve_full_isl": chance.random() < 0.5},
        "vllm-whole": {"chunked_prefill": False, "max_num_batched_tokens": 256},
        "vllm-v0": {"policy": "vllm-v0", "max_num_batched_tokens": 256},
        "vllm-async": {"async_scheduling": True},
        "vllm-capped": {"long_prefill_token_threshold": chance.choice([5, 20])},
    }
    return made | of_vllm[policy]


def _other_rule(chance: Chance, policy: str, cut: bool) -> Scenario:
    """The keys of a rule of another engine, which cuts prompts or not."""
    made: Scenario = {"policy": OTHERS[policy], "async_scheduling": chance.random() < 0.5}
    if policy != "sglang" and chance.random() < 0.5:
        ratio = chance.choice([0.3, 0.9])
        made |= {"batch_wait_timeout_iters": 4, "batch_wait_max_tokens_ratio": ratio}
    if policy == "sglang" and chance.random() < 0.5:
        made |= {"enable_mixed_chunk": True}
    if policy != "max-utilization" and chance.random() < 0.5:
        made |= {"max_tokens": chance.choice([1, 30])}
    return made if cut else {**made, "chunked_prefill": False, "max_num_batched_tokens": 512}


def _tight(chance: Chance, made: Scenario, longest: int) -> int | None:
    """Blocks of one to two, or to four, requests of the ``longest`` kind."""
    asked = {**made, "kv_cache": {**made["kv_cache"], "num_gpu_blocks": 10**5}}
    try:
        pool = prepare(sim.load_scenario(asked)).pools[0]
    except InfersimError:
        return None
    if not hasattr(kv := make_allocator(pool), "blocks_for"):
        return None
    needed = kv.blocks_for(min(longest, 256)) + pool.capacity.null_blocks
    return needed + chance.randint(0, chance.choice([1, 3]) * needed)


# -- features --------------------------------------------------------------------------------------


def _ordered(chance: Chance, made: Scenario) -> None:
    made["scheduler"]["order"] = chance.choice(["sjf", "priority", "edf", "fair"])
    _classes(chance, made)


def _classes(chance: Chance, made: Scenario) -> None:
    made["workload"]["classes"] = [
        {"name": "chat", "share": 0.5, "deadline": "90ms"},
        {"name": "batch", "share": 0.5, "priority": 2, "deadline": "5s"},
    ]


def _sessions(chance: Chance, made: Scenario) -> None:
    made["workload"]["sessions"] = {
        "turns": {"kind": "uniform", "low": 1, "high": 4},
        "think_time": {"kind": "fixed", "value": chance.choice([0, "10ms", "1s"])},
        **({"branches": {"kind": "uniform", "low": 1, "high": 2}} if chance.random() < 0.3 else {}),
    }


def _prefixes(chance: Chance, made: Scenario) -> None:
    made["kv_cache"]["enable_prefix_caching"] = True
    made["workload"]["shared_prefix"] = {"tokens": chance.choice([16, 50]), "groups": 2}


def _host(chance: Chance, made: Scenario) -> None:
    made["kv_cache"] |= {"host_memory": "8MiB", "host_bandwidth": "1GB/s"}
    if chance.random() < 0.5:
        made["kv_cache"]["preemption"] = chance.choice(["swap", "auto"])
    else:
        _prefixes(chance, made)


def _scaled(chance: Chance, made: Scenario) -> None:
    made["fleet"]["replicas"] = {"min": chance.choice([0, 1, 1]), "max": 3}
    keda = made["fleet"]["replicas"]["min"] == 0
    made["autoscaling"] = {
        "metric": chance.choice(["running", "queue"]),
        "target": 2,
        "interval": "20ms",
        "cold_start": "10ms",
        "stabilisation": "50ms",
        **({"policy": "keda", "polling": "32ms", "cooldown": "40ms"} if keda else {}),
    }


def _failing(chance: Chance, made: Scenario) -> None:
    made["fleet"].setdefault("replicas", chance.choice([1, 2, 3]))
    lost = chance.random() < 0.5
    made["failures"] = {
        "mtbf": "100ms",
        "repair": "20ms",
        "in_flight": "lost" if lost else {"kind": "retry", "attempts": 3, "backoff": "5ms"},
    }


def _outages(chance: Chance, made: Scenario) -> None:
    made["fleet"]["replicas"] = 2
    late = chance.choice(["5ms", "48ms", "900ms"])
    made["failures"] = [{"at": late, "replica": 1, "for": "11ms"}, {"at": "30ms", "replica": 0}]


def _impatient(chance: Chance, made: Scenario) -> None:
    made["scheduler"]["client_timeout"] = chance.choice(["20ms", "100ms"])
    if chance.random() < 0.5:
        made["scheduler"]["on_timeout"] = {"attempts": 3, "backoff": "5ms"}


def _shedding(chance: Chance, made: Scenario) -> None:
    made["admission"] = {"policy": "deadline"}
    made["slo"] = {"ttft": chance.choice(["2ms", "40ms"])}


def _drafts(chance: Chance, made: Scenario) -> None:
    speculative: Scenario = {"method": "eagle", "num_tokens": 3, "acceptance": {"length": 2.4}}
    if chance.random() < 0.4:
        speculative = {"method": "ngram", "num_tokens": 2, "acceptance_rate": 0.5}
    elif chance.random() < 0.4:
        speculative["num_tokens_per_batch_size"] = [[1, 1, 3], [2, 3, 1], [4, 64, 0]]
    made["speculative"] = speculative
    made["scheduler"]["max_num_batched_tokens"] = 256


def _routed(chance: Chance, made: Scenario) -> None:
    made["fleet"].setdefault("replicas", chance.choice([2, 3]))
    names = ["round-robin", "random", "power-of-two", "least-kv", "session-affinity"]
    made["router"] = chance.choice(names)


def _piped(chance: Chance, made: Scenario) -> None:
    made["fleet"]["pipeline_parallel"] = 2


def _ranked(chance: Chance, made: Scenario) -> None:
    made["model"] = str(MODELS / "tiny-experts")
    made["fleet"] |= {"data_parallel": 2, "expert_parallel": True}


def _apart(chance: Chance, made: Scenario) -> None:
    gpu = made["fleet"]["gpu"]
    made["fleet"] = [
        {"name": "prompts", "role": "prefill", "gpu": gpu},
        {"name": "answers", "role": "decode", "gpu": gpu, "replicas": 2},
    ]


def _slabs(chance: Chance, made: Scenario) -> None:
    made["kv_cache"]["allocator"] = "contiguous"


def _ended(chance: Chance, made: Scenario) -> None:
    made["run"]["horizon"] = chance.choice(["15ms", "200ms"])


def _steered(chance: Chance, made: Scenario) -> None:
    made["fleet"]["replicas"] = 2
    made["steering"] = {
        "steps": [
            {"at": "20ms", "do": chance.choice(["drain", "fail"]), "replica": 0},
            {"at": "50ms", "do": "start", "replica": 0},
        ],
        "cold_start": "10ms",
    }


Feature = Callable[[Chance, Scenario], None]
FEATURES: tuple[Feature, ...] = (
    *(_ordered, _classes, _sessions, _prefixes, _host, _scaled, _failing, _outages, _impatient),
    *(_shedding, _drafts, _routed, _piped, _ranked, _slabs, _ended, _steered),
    _apart,  # the last: the fleet is another then
)


# -- checks ----------------------------------------------------------------------------------------


def check_seed(seed: int) -> Counter[str]:
    """Play the scenario of ``seed`` with leaps and without, and check; what happened."""
    return check_scenario(drawn(seed))


def check_scenario(data: Scenario) -> Counter[str]:
    """The same of a scenario."""
    try:
        leaps = sim.simulate(sim.load_scenario(data), leap=True, stop=Bounded(EVENTS))
    except (UsageError, InfeasibleError) as error:
        return Counter(refused=1, infeasible=isinstance(error, InfeasibleError))
    assert not leaps.record.interrupted, "the run with leaps does not end"
    steps = sim.simulate(leaps.scenario, leap=False, stop=Bounded(20 * EVENTS))
    assert not steps.record.interrupted, "the run without leaps does not end"
    check_same(leaps.record, steps.record)
    check(leaps)
    check_summary(leaps, steps)
    own = leaps.summary["infersim"]
    evicts = leaps.scenario.pools[0].scheduler.rule != "guaranteed-no-evict"
    assert evicts or not own["preemptions"], "a request was preempted that never is"
    return Counter(
        run=1,
        preempted=own["preemptions"] > 0,
        leapt=bool((leaps.record.plans["iterations"] > 1).any()),
        gave_up=own["requests"].get("gave_up", 0) > 0,
        rejected=own["requests"]["rejected"] > 0,
        unfinished=own["requests"]["unfinished"] > 0,
    )


def check_same(leaps: RunRecord, steps: RunRecord) -> None:
    """Leaps change nothing: neither requests nor when the run ends, nor sums over iterations."""
    assert leaps.requests.tobytes() == steps.requests.tobytes(), "requests"
    assert leaps.end == steps.end, "end"
    for column in ("iterations", "preemptions", "prefill_tokens", "admitted", "finished"):
        assert leaps.plans[column].sum() == steps.plans[column].sum(), column
    decoded = [
        (plans["decode"] * plans["iterations"]).sum() for plans in (leaps.plans, steps.plans)
    ]
    assert decoded[0] == decoded[1], "decoded"
    assert leaps.plans["running"].max(initial=0) == steps.plans["running"].max(initial=0)


def check_summary(leaps: Result, steps: Result) -> None:
    """The cache is no fuller than it is, and as full on average with leaps as without."""
    means = [result.summary["infersim"]["kv_cache"] for result in (leaps, steps)]
    for kv in means:
        assert 0 <= kv["fragmentation"] <= 1, kv
        assert kv["mean_used"] <= kv["mean_reserved"] * (1 + 1e-9) + 1e-12 or shares(leaps), kv
        assert kv["mean_used"] <= 1 + 1e-9, kv
    mine, theirs = (kv["mean_used"] for kv in means)
    assert bent(leaps) or abs(mine - theirs) <= 1e-9, (mine, theirs)
    peaks = [
        [pool["peak_waiting"] for pool in result.summary["infersim"].get("pools") or ()]
        for result in (leaps, steps)
    ]
    assert peaks[0] == peaks[1], peaks


def bent(result: Result) -> bool:
    """Whether what is used is not on a line in a leap: with drafts, and behind windows where it is
    no more than what a whole batch, or a prefix that is shared, takes."""
    drafts = result.scenario.speculative is not None
    windows = any(pool.deployment.model.windows for pool in result.record.pools)
    whole = result.scenario.scheduler.batching != "continuous"
    return drafts or (windows and (whole or shares(result)))


def shares(result: Result) -> bool:
    """Whether several requests may hold one block, so that more is used than is taken."""
    return any(pool.kv_cache.enable_prefix_caching for pool in result.scenario.pools)


def main(arguments: list[str]) -> None:
    """Play the seeds that the command line names."""
    first, *count = map(int, arguments)
    if not count:
        print(json.dumps(drawn(first)))
        return
    seen: Counter[str] = Counter()
    signal.signal(signal.SIGALRM, _too_long)
    for seed in range(first, first + count[0]):
        signal.alarm(120)
        try:
            seen += check_seed(seed)
        except Exception as error:  # whatever it is, the next seed is played
            seen["failed"] += 1
            print(seed, type(error).__name__, str(error).splitlines()[:1], flush=True)
        signal.alarm(0)
    print(dict(seen), flush=True)


def _too_long(*_: object) -> None:
    raise TimeoutError("it takes longer than two minutes")


if __name__ == "__main__":
    main(sys.argv[1:])
