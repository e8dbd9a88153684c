"""Whatever a scenario combines, a run of it ends, loses nobody, counts right and says the same
without leaps: the whole schema, in small."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, get_args

import numpy as np
import pandas as pd
from hypothesis import event, given, settings
from hypothesis import strategies as st

import sim
from sim import catalog
from sim.errors import InfersimError
from sim.result import Result
from sim.routers import ROUTERS
from sim.scenario.sections.arrivals import Arrivals
from sim.scenario.sections.deployment import PrecisionName
from sim.scenario.sections.lengths import Lengths
from sim.scenario.sections.support import refusal
from sim.schedulers import ORDERS
from sim.specs.precision import GGUF
from tests.loop.test_fleet import check_plans, check_requests, check_totals, tables
from tests.places import DATA

TRACES = sorted(path.name for path in DATA.iterdir() if not path.name.startswith("lengths"))

SMALL = [name for name in catalog.names("models") if catalog.model(name).parameters < 10e9]
RATES = st.sampled_from([0.5, 5, 50, 1000, 1e9, "90/min"])
TIMES = st.sampled_from(["0.01s", "300ms", "4s"])
WAITS = st.just(0) | TIMES
TOKENS = st.sampled_from([1, 2, 16, 17, 60, 100])


def one_of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def supported(section: str, key: str, values: Any) -> st.SearchStrategy[Any]:
    """Those of ``values`` that the simulator can do."""
    return st.sampled_from([value for value in values if refusal(section, key, value) is None])


def section(**keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping in which each key is there or left out."""
    return st.fixed_dictionaries({}, optional=keys)


def kind(name: str, **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping of a kind, with all of its keys."""
    return st.fixed_dictionaries({"kind": st.just(name), **keys})


ARRIVALS = {
    "poisson": kind("poisson", rate=RATES),
    "gamma": kind("gamma", rate=RATES, cv=one_of(1e-4, 0.5, 3, 1e3)),
    "constant": kind("constant", rate=RATES),
    "burst": kind("burst"),
    "closed": kind("closed", concurrency=st.integers(1, 20), think_time=WAITS),
    "ramp": kind("ramp", rate=RATES, final_rate=RATES, duration=TIMES),
    "diurnal": kind("diurnal", rate=one_of(0.5, 5), peak_rate=one_of(5, 80), period=TIMES)
    | kind("diurnal", rate=one_of(1), peak_rate=one_of(9), peak_at=WAITS),
}
LENGTHS = {
    "fixed": kind("fixed", value=TOKENS),
    "uniform": kind("uniform", low=one_of(1, 5), high=one_of(5, 40, 200)),
    "lognormal": kind("lognormal", mean=one_of(30, 40.5), p95=one_of(90, 150), max=one_of(99, 300))
    | kind("lognormal", mean=one_of(30), cv=one_of(1e-9, 1, 1e9), max=one_of(100, None)),
    "normal": kind("normal", mean=one_of(20, 50), std=one_of(1e-9, 30, 1e9), max=one_of(120)),
    "empirical": kind(
        "empirical",
        path=st.just(str(DATA / "lengths-small.csv")),
        column=one_of("num_prefill_tokens", "num_decode_tokens"),
    ),
}
JOINT = kind("joint", path=one_of(str(DATA / "lengths-small.csv"), str(DATA / "plain-small.csv")))
TRACE = st.fixed_dictionaries(
    {"path": st.sampled_from([str(DATA / name) for name in TRACES])},
    optional={
        "time_scale": one_of(1e-6, 0.01, 3),
        "overlay": one_of(0.3, 2, 2.5),
        "limit": st.integers(1, 5),
        "spread": TIMES,
    },
)
CLASSES = one_of(
    None,
    [{"name": "all", "share": 1, "deadline": "1s"}],
    [{"name": "a", "share": 0.3}, {"name": "b", "share": 0.7, "priority": 4, "deadline": "9ms"}],
)


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, Any]:
    """A trace, or arrivals with lengths of any kinds."""
    source = draw(one_of("trace", "joint", "laws", "laws", "laws", "laws"))
    if source == "trace":
        return {"trace": draw(TRACE), "classes": draw(CLASSES)}
    workload = {"arrivals": draw(st.one_of(*ARRIVALS.values())), "classes": draw(CLASSES)}
    if source == "joint":
        return {**workload, "lengths": draw(JOINT)}
    laws = st.one_of(*LENGTHS.values())
    return {**workload, "prompt_tokens": draw(laws), "output_tokens": draw(laws)}


@st.composite
def precisions(draw: st.DrawFn) -> dict[str, str]:
    """Weights in anything; activations in 16 bits, or in 8 or 32 that multiply the weights."""
    names = tuple(name for name in get_args(PrecisionName) if name not in GGUF)
    weights = draw(supported("Precision", "weights", names))
    narrow = {"fp8": "fp8", "int8": "int8", "int4": "int8"}.get(weights, "bf16")
    activations = draw(one_of("bf16", "fp16", narrow))
    if weights == "fp32":
        activations = weights
    cache = draw(supported("Precision", "kv_cache", names))
    return {"weights": weights, "activations": activations, "kv_cache": cache}


@st.composite
def schedulers(draw: st.DrawFn) -> dict[str, Any]:
    seats = draw(one_of(1, 3, 8, 64))
    optional = section(
        batching=one_of("continuous", "continuous", "static", "request"),
        order=supported(
            "Scheduler", "order", [order for order in ORDERS if order != "lpm"]
        ),  # SGLang's alone
        chunked_prefill=st.booleans(),
        long_prefill_token_threshold=one_of(None, 0, 1, 20),
        scheduler_reserve_full_isl=st.booleans(),
        batch_timeout=WAITS,
    )
    tokens = one_of(seats, seats + 7, 100, 8192).filter(lambda tokens: tokens >= seats)
    return {"max_num_seqs": seats, "max_num_batched_tokens": draw(tokens), **draw(optional)}


@st.composite
def caches(draw: st.DrawFn) -> dict[str, Any]:
    """Memory that is all there is, or so little that requests have to give way."""
    size = draw(one_of(1, 4, 16, 100))
    tokens = draw(one_of(None, 300, 450, 1000, 2000))
    blocks = None if tokens is None else max(2, tokens // size + 1)
    allocator = draw(one_of("paged", "paged", "contiguous"))
    return {"block_size": size, "num_gpu_blocks": blocks, "allocator": allocator}


@st.composite
def scenarios(draw: st.DrawFn) -> dict[str, Any]:
    """A scenario of at most 40 requests; a part of them cannot be served, some not even tried."""
    model = draw(st.sampled_from(SMALL) | st.sampled_from(catalog.names("models")))
    gpu = draw(st.sampled_from(catalog.names("gpus")))
    fleet = section(
        replicas=st.integers(1, 3),
        tensor_parallel=one_of(1, 1, 2, 4, 8),
        price_per_gpu_hour=one_of(None, 0, 2.5, "catalogue"),
    )
    total = draw(one_of(1, 2, 12, 25, 40))
    requests = {"requests": total, "warmup": draw(one_of("auto", 0, total - 1, "200ms"))}
    run = section(horizon=one_of("1ms", "5ms", "20ms", "50ms", "100ms", "300ms", "1e9s", None))
    slo = draw(section(ttft=TIMES, tpot=TIMES, attainment=one_of(0.5, 1)))
    data = {
        "seed": draw(st.integers(0, 2**63 - 1)),
        "model": model,
        "fleet": {"gpu": gpu, **draw(fleet)},
        "precision": draw(precisions()),
        "engine": draw(st.sampled_from(catalog.names("engines"))),
        "scheduler": draw(schedulers()),
        "kv_cache": draw(caches()),
        "max_model_len": draw(one_of(100, 400, 1024, None)),
        "router": draw(supported("Scenario", "router", tuple(ROUTERS))),
        "workload": draw(workloads()),
        "slo": slo,
        "run": {**requests, **draw(run)},
    }
    if data["scheduler"].get("order") == "edf":
        data["slo"] = {"ttft": "1s", **slo}
    return data if draw(st.integers(0, 3)) else tight(data)


def tight(data: dict[str, Any]) -> dict[str, Any]:
    """The same with more requests at a time than memory holds to their end."""
    blocks = 300 // data["kv_cache"]["block_size"] + 1
    arrivals = data["workload"].get("arrivals", {"kind": "constant", "rate": 1000})
    seats = {"batching": "continuous", "max_num_seqs": 64, "max_num_batched_tokens": 100}
    return data | {
        "max_model_len": 200,
        "scheduler": data["scheduler"] | seats,
        "kv_cache": data["kv_cache"] | {"allocator": "paged", "num_gpu_blocks": blocks},
        "workload": {
            "arrivals": arrivals,
            "prompt_tokens": {"kind": "uniform", "low": 1, "high": 40},
            "output_tokens": {"kind": "uniform", "low": 30, "high": 70},
        },
        "run": data["run"] | {"requests": 30, "warmup": 0},
    }


def check(result: Result) -> None:
    """What holds of every run."""
    check_requests(result)
    check_plans(result)
    check_totals(result)
    counts, wanted = result.summary["infersim"]["requests"], result.record.offered
    assert counts["submitted"] + counts["not_arrived"] == wanted
    if result.scenario.run.horizon is None:
        assert counts["unfinished"] == 0
        # a session that ends early leaves its further turns out
        assert counts["not_arrived"] == 0 or result.scenario.workload.sessions is not None
    end = result.record.end
    assert math.isfinite(end)
    rows, plans = tables(result)
    times = np.stack([rows.scheduled_s, rows.first_token_s, rows.finish_s])
    assert not (times > end + result.record.front_end).any()
    # drafts planned ahead may be computed for requests that have ended
    served = plans.decode_seqs + plans.prefill_seqs > 0
    assert (plans.end_s[served] <= end).all()
    assert (plans.start_s <= end).all()


def test_any_scenario_runs_or_says_why_not() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=200)  # what is rare comes up
    @given(scenarios())
    def play(data: dict[str, Any]) -> None:
        seen["tried"] += 1
        try:
            result = sim.simulate(sim.load_scenario(data))
        except InfersimError as error:
            seen[f"refused, {error.exit_code}"] += 1
            event(f"refused: {' '.join(str(error).split()[:4])}")
            return
        check(result)
        own = result.summary["infersim"]
        seen["run"] += 1
        seen["preempted"] += own["preemptions"] > 0
        for fate in ("completed", "rejected", "unfinished"):
            seen[fate] += own["requests"][fate] > 0
        if seen["run"] % 4 == 0:
            seen["stepped"] += 1
            stepping = sim.simulate(result.scenario, leap=False).requests
            pd.testing.assert_frame_equal(result.requests, stepping, check_exact=True)

    play()
    assert seen["run"] >= 0.6 * seen["tried"], seen
    assert seen["completed"] >= 0.4 * seen["run"], seen
    assert seen["stepped"] >= 0.2 * seen["run"], seen
    for rare in ("preempted", "rejected", "unfinished"):
        assert seen[rare] >= 3, seen


def test_every_kind_is_drawn() -> None:
    for union, strategies in ((Arrivals, ARRIVALS), (Lengths, LENGTHS)):
        variants = get_args(get_args(union)[0])
        kinds = {get_args(variant.model_fields["kind"].annotation)[0] for variant in variants}
        assert kinds == set(strategies)
