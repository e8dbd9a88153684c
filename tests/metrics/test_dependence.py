"""What figures depend on, beside runs in which the part really takes longer."""

from __future__ import annotations

import numpy as np
import pytest

from sim.metrics.bands.dependence import MEMORY, PARTS, TIMES, Dependences, seconds_by_part
from sim.result import Result
from sim.scenario import load_scenario
from sim.simulation import simulate

CHAT = load_scenario("scenarios/chat.yaml").override(
    {
        "run.requests": 150,
        "run.warmup": 0,
        "workload.prompt_tokens": {"kind": "fixed", "value": 400},
        "workload.output_tokens": {"kind": "fixed", "value": 60},
    }
)
CLOSED = {"workload.arrivals": {"kind": "closed", "concurrency": 16}}


def played(**changes: object) -> Result:
    return simulate(CHAT.override({key.replace("__", "."): each for key, each in changes.items()}))


def closed(**changes: object) -> Result:
    keys = {key.replace("__", "."): each for key, each in changes.items()}
    return simulate(CHAT.override(CLOSED | keys))


def test_the_parts_of_each_plan_add_up_to_its_duration() -> None:
    run = closed().record
    parts = seconds_by_part(run.parts[0])
    assert parts.min() >= 0
    assert parts.sum(axis=0) == pytest.approx(run.durations, rel=1e-9, abs=1e-12)
    prompts = run.plans["prefill_seqs"] > 0
    assert not parts[TIMES.index("prompts")][~prompts].any()
    assert not parts[TIMES.index("decodes")][prompts].any()


@pytest.mark.parametrize("key", ["mean_tpot_ms", "mean_e2el_ms", "output_throughput"])
def test_host_time_moves_a_closed_loop_as_a_longer_one_does(key: str) -> None:
    base, longer = closed(), closed(assume__host_time=1.2)
    depends = Dependences(base.record).figures()[key]
    told = (depends["host"] + depends["front end"]) * 0.2
    assert abs(told) > 0.01
    assert longer.summary[key] / base.summary[key] - 1 == pytest.approx(told, rel=0.15)


def test_kernel_time_moves_what_host_time_does_not() -> None:
    base, longer = closed(), closed(assume__kernel_time=1.1)
    depends = Dependences(base.record).figures()["mean_tpot_ms"]
    kernels = sum(depends[name] for name in TIMES if name != "host")
    found = longer.summary["mean_tpot_ms"] / base.summary["mean_tpot_ms"] - 1
    assert found == pytest.approx(0.1 * kernels, rel=0.1)


def test_arrivals_set_the_throughput_below_saturation_and_times_beyond() -> None:
    slow = Dependences(played(workload__arrivals__rate=0.5).record).throughput()
    fast = Dependences(played(workload__arrivals__rate=500).record).throughput()
    assert abs(sum(slow.values())) < 0.05
    assert sum(fast[name] for name in TIMES) == pytest.approx(-1, abs=0.1)


def test_a_queue_carries_the_lengthening_of_all_passes_since_it_was_empty() -> None:
    seats = {"scheduler__max_num_seqs": 4, "workload__arrivals": {"kind": "poisson", "rate": 10.0}}
    base = played(**seats)
    depends = Dependences(base.record).figures()["mean_ttft_ms"]
    told = sum(depends[name] for name in TIMES)
    assert told > 2  # waiting grows by more than the passes do
    longer = played(**seats, assume__kernel_time=1.01, assume__host_time=1.01)
    found = longer.summary["mean_ttft_ms"] / base.summary["mean_ttft_ms"] - 1
    assert found == pytest.approx(0.01 * told, rel=0.1)


@pytest.mark.parametrize(("rate", "least"), [(4.0, 1.1), (16.0, 1.5)])
def test_arrivals_fill_the_batch_as_passes_grow_longer(rate: float, least: float) -> None:
    """Beside a run in which all passes take 2 % longer: at the higher rate more of a pass grows
    with the batch."""
    traffic: dict[str, object] = {
        "workload__arrivals": {"kind": "poisson", "rate": rate},
        "workload__prompt_tokens": {"kind": "fixed", "value": 800},
        "workload__output_tokens": {"kind": "fixed", "value": 200},
        "run__requests": 1500,
    }
    base = played(**traffic)
    longer = played(**traffic, assume__kernel_time=1.02, assume__host_time=1.02)
    for key in ("mean_tpot_ms", "mean_itl_ms", "mean_e2el_ms"):
        depends = Dependences(base.record).figures()[key]
        told = sum(depends[name] for name in TIMES)
        assert told > least
        found = longer.summary[key] / base.summary[key] - 1
        assert found == pytest.approx(0.02 * told, rel=0.2)


def test_clients_that_wait_fill_no_batch() -> None:
    found = Dependences(closed().record)
    assert found.feedback == 1
    assert sum(found.figures()["mean_tpot_ms"][name] for name in TIMES) == pytest.approx(
        1, abs=0.01
    )


def test_in_an_overload_requests_in_flight_are_those_that_came() -> None:
    """All come before the first has finished: passes that are longer change no batch."""
    flood = Dependences(played(workload__arrivals__rate=5000).record)
    assert flood.feedback == pytest.approx(1)


def test_blocks_matter_where_requests_wait_for_memory() -> None:
    burst: dict[str, object] = {"workload__arrivals": {"kind": "burst"}}
    roomy = Dependences(played(**burst).record).figures()["output_throughput"]
    tight = Dependences(played(**burst, kv_cache__num_gpu_blocks=200).record).figures()
    assert roomy[MEMORY] == 0
    assert tight["output_throughput"][MEMORY] > 0.1
    assert tight["mean_tpot_ms"][MEMORY] > 0


def test_links_and_experts_are_parts_of_their_own() -> None:
    run = simulate(
        CHAT.override(
            {**CLOSED, "model": "gpt-oss-20b", "fleet.0.tensor_parallel": 2, "run.requests": 30}
        )
    )
    found = Dependences(run.record).figures()["mean_tpot_ms"]
    assert set(found) == set(PARTS)
    assert found["links"] > 0.02
    assert found["experts"] > 0.1
    assert sum(found[name] for name in TIMES) == pytest.approx(1, abs=0.01)


def test_every_percentile_has_its_own_dependence() -> None:
    found = Dependences(played(workload__arrivals__rate=20).record).figures()
    assert {"mean_ttft_ms", "p99_ttft_ms", "p50_e2el_ms", "mean_itl_ms", "capacity"} <= set(found)
    assert np.isfinite([list(each.values()) for each in found.values()]).all()
