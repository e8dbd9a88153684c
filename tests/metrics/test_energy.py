"""The energy of a run is the sum over its iterations, however few rows stand for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sim
from sim import catalog
from sim.cost import CostModel, Operator
from sim.cost.power import PowerModel
from sim.errors import UsageError
from sim.iteration import Batch
from sim.metrics.fleet.energy import pool_energy
from sim.metrics.record.draws import _Even
from sim.result import Result
from sim.specs.deployment import Deployment
from sim.specs.power import SHARES, draw_by_shares
from tests.planning_fixtures import small

BASE: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "max_model_len": 8192,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 4.0},
        "prompt_tokens": {"kind": "uniform", "low": 20, "high": 900},
        "output_tokens": {"kind": "uniform", "low": 2, "high": 160},
    },
    "run": {"requests": 60},
}
LONG = {
    "workload.prompt_tokens": {"kind": "fixed", "value": 6000},
    "workload.output_tokens": {"kind": "fixed", "value": 300},
    "workload.arrivals": {"kind": "burst"},
    "run.requests": 40,
}
RUNS: dict[str, dict[str, Any]] = {
    "chat": {},
    "at the limit": LONG,
    "power limit": {"fleet.0.power_limit": "430W"},
    "two GPUs": {"fleet.0.tensor_parallel": 2},
    "replicas": {"fleet.0.replicas": 3},
    "data sheet": {"fleet.0.gpu": "mi300x"},
    "windows": {"model": "gpt-oss-20b", "precision.experts": "mxfp4", **LONG},
    "recurrent": {"model": "qwen3-next-80b-a3b", "fleet.0.tensor_parallel": 4},
    "data ranks": {"model": "qwen3-30b-a3b", "fleet.0.data_parallel": 2},
    "static": {"scheduler.batching": "static", "engine": "transformers"},
}


def made(name: str) -> sim.Scenario:
    return sim.load_scenario(BASE).override(RUNS[name])


def energy(result: Result) -> dict[str, Any]:
    found = result.summary["infersim"]["energy"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", RUNS)
def test_leaps_change_nothing(name: str) -> None:
    leaps, steps = (sim.simulate(made(name), leap=leap) for leap in (True, False))
    for key, value in energy(leaps).items():
        if isinstance(value, float):
            assert value == pytest.approx(energy(steps)[key], rel=1e-9), key
        else:
            assert value == energy(steps)[key], key


@pytest.mark.parametrize("name", ["chat", "at the limit", "power limit", "data sheet"])
def test_it_is_the_sum_over_iterations(name: str) -> None:
    """Each pass on its own, by the operators of the cost model, without arrays and leaps."""
    result = sim.simulate(made(name), leap=False)
    (part,) = result.record.parts
    cost = part.pool.cost
    power, draw = PowerModel(cost.deployment), cost.deployment.gpu.power_draw
    limit = cost.deployment.gpu.power
    joules, busy, most = 0.0, 0.0, 0.0
    decodes = [row for row in part.plans if not row["prefill_seqs"]]
    mixed = part.draws.joules[part.plans["prefill_seqs"] > 0].sum()
    for row in decodes:
        took = float(row["end"] - row["start"])
        one = rest = 0.0
        for each in cost.pass_operators(Batch(int(row["computed"]), int(row["context"]))):
            if each.name == "decode attention":
                read = float(draw.kv_byte * each.bytes + draw.flop * each.flops)
                continue
            one += float(power.joules(each))
            rest += float(each.seconds)
        rest = took - rest
        one += min(draw.working * rest + read, limit * rest)
        joules += one
        most = max(most, one / took)
    busy = float(part.durations.sum())
    found = energy(result)
    duration = result.record.duration
    idle = draw.idle * (duration - busy)
    assert found["mean_watts_per_gpu"] * duration == pytest.approx(joules + mixed + idle, rel=1e-9)
    assert found["idle_share"] * (joules + mixed + idle) == pytest.approx(idle, rel=1e-6)
    assert most <= found["peak_watts_per_gpu"] * (1 + 1e-12) <= limit * (1 + 1e-12)


def test_an_operator_by_hand() -> None:
    """1 ms of reading 2 GB at 31 pJ a byte and 10 GFLOP at 0.58 pJ, 10 us of it waiting."""
    gpu = catalog.gpu("h100-sxm")
    power = PowerModel(deployment(gpu.name))
    reads = Operator("x", 10e9, 2e9, 0.5e-3, 0.99e-3, 10e-6, 0.0, True)
    by_hand = 120 * 10e-6 + 410 * 0.99e-3 + 31e-12 * 2e9 + 0.58e-12 * 10e9
    assert power.joules(reads) == pytest.approx(by_hand)
    product = Operator("x", 800e9, 1e8, 1e-3, 0.1e-3, 0.0, 0.0, True)
    assert power.joules(product) == pytest.approx(0.7)  # 878 W would be more than the 700 W
    link = Operator("x", 0.0, 0.0, 0.0, 0.0, 0.0, 1e-3, False)
    assert power.joules(link) == pytest.approx(0.12)


def deployment(gpu: str, **settings: Any) -> Deployment:
    scenario = sim.load_scenario({**BASE, "fleet": {"gpu": gpu}, **settings})
    found = sim.simulate(scenario.override({"run.requests": 2})).record.pools[0].deployment
    assert isinstance(found, Deployment)
    return found


def test_eight_bits_take_half_the_energy_of_sixteen() -> None:
    wide = PowerModel(deployment("h100-sxm"))
    narrow = PowerModel(deployment("h100-sxm", precision={"weights": "fp8", "activations": "fp8"}))
    assert narrow.flop == pytest.approx(wide.flop / 2, rel=1e-3)
    a100 = PowerModel(deployment("a100-sxm-80gb", precision={"weights": "fp8"}))  # has no fp8
    assert a100.flop == PowerModel(deployment("a100-sxm-80gb")).flop


def test_others_draw_the_shares_of_the_h100() -> None:
    gpu = catalog.gpu("h100-sxm")
    assert gpu.draw is not None
    by_shares = draw_by_shares(gpu.power, gpu.bandwidth, gpu.flops("bf16"))
    for key in SHARES._fields:
        assert getattr(by_shares, key) == pytest.approx(getattr(gpu.draw, key), rel=0.02), key
    assert by_shares.error > gpu.draw.error


def test_idle_gpus_draw_what_they_draw_idle() -> None:
    """One request of a tenth of a second an hour: the mean is that of an idle GPU."""
    rare = made("chat").override(
        {"workload.arrivals": {"kind": "constant", "rate": 1 / 3600}, "run.requests": 3}
    )
    found = energy(sim.simulate(rare))
    assert found["mean_watts_per_gpu"] == pytest.approx(120, abs=0.5)
    assert found["idle_share"] > 0.99
    assert found["peak_watts_per_gpu"] > 400


def test_carbon_and_cost_follow_from_the_kilowatt_hours() -> None:
    asked = made("chat").override({"energy.price_per_kwh": 0.2, "energy.grid_intensity": 50})
    found = energy(sim.simulate(asked))
    assert found["usd"] == pytest.approx(0.2 * found["kwh"])
    assert found["co2e_grams"] == pytest.approx(50 * found["kwh"])
    none = energy(sim.simulate(made("chat").override({"energy.grid_intensity": None})))
    assert none["usd"] is none["co2e_grams"] is None
    assert none["kwh"] == found["kwh"]


def test_a_lower_limit_takes_less_energy_for_a_token() -> None:
    """Decoding reads memory, whose speed the limit leaves alone."""
    per_token = [
        energy(sim.simulate(made("chat").override({"fleet.0.power_limit": limit})))
        for limit in (None, "400W", "300W")
    ]
    joules = [each["joules_per_output_token"] for each in per_token]
    assert joules[0] > joules[1] > joules[2]
    assert per_token[2]["peak_watts_per_gpu"] <= 300 * (1 + 1e-12)


@pytest.mark.parametrize("name", ["chat", "replicas", "two GPUs"])
def test_the_power_over_time_is_the_energy(name: str) -> None:
    result = sim.simulate(made(name))
    record, chart = result.record, result.charts["power"]
    edges = np.array(chart["edges"])
    drawn = float((np.diff(edges) * chart["watts"]).sum()) * record.gpus
    power = PowerModel(record.pools[0].deployment)
    before = float(record.requests["arrival"].min()) * power.idle * record.gpus
    found = energy(result)["kwh"] * 3.6e6
    assert drawn == pytest.approx(found + before, rel=1e-4)  # the chart has six digits
    assert max(chart["watts"]) <= energy(result)["peak_watts_per_gpu"]
    assert min(chart["watts"]) >= power.idle - 1e-3


@pytest.mark.parametrize("first", [-3.5, -2.0, 0.0, 1.25, 4.0])
@pytest.mark.parametrize("growth", [-0.75, -0.5, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("times", [1, 2, 7])
def test_sums_of_what_grows_evenly(first: float, growth: float, times: int) -> None:
    amount = _Even(np.array([first]), np.array([growth]))
    values = [first + growth * at for at in range(times)]
    n = np.array([float(times)])
    assert amount.total(n)[0] == pytest.approx(sum(values))
    assert amount.above(n)[0] == pytest.approx(sum(value for value in values if value > 0))


def test_under_a_power_limit_the_energy_is_less_sure() -> None:
    """No GPU was measured under one. At half of its limit what is bound by arithmetic takes between
    its predicted time and half of it, so that half of that share of the energy may be saved. What
    the limit cuts off may be spent all the same: more, where most operators would draw more."""
    found, own = (
        sim.simulate(small(fleet__0__power_limit=limit)).summary["infersim"]
        for limit in ("350W", None)
    )
    compute = found["bound_by"]["compute"]
    assert compute > 0
    assert own["energy"]["error"] == 0.15
    (part,) = sim.simulate(small(fleet__0__power_limit="350W")).record.parts
    busy = float(part.draws.joules.sum())
    assert part.draws.freed > busy
    drawn = pool_energy(part)
    more = (part.draws.freed - busy) / (drawn.busy + drawn.idle)
    assert found["energy"]["error"] == pytest.approx(0.15 + max(0.5 * compute, more))
    assert found["energy"]["less"] == pytest.approx(0.15 + 0.5 * compute)
    assert found["energy"]["more"] == pytest.approx(0.15 + more)
    assert not {"less", "more"} & own["energy"].keys()
    assert f"another {0.5 * compute:.0%} less" in found["energy"]["note"]
    assert f"or {more:.0%} more" in found["energy"]["note"]
    loose = sim.simulate(small(fleet__0__power_limit="690W")).record.parts[0].draws
    assert loose.freed < 1.02 * loose.joules.sum()
    assert "power_limit" not in own["energy"]["note"]


def test_a_gpu_file_may_say_what_its_gpu_draws(tmp_path: Any) -> None:
    path = tmp_path / "mine.yaml"
    draw = "{idle: 50W, waiting: 60W, working: 200W, byte: 30pJ, kv_byte: 90pJ, flop: 0.5pJ}"
    path.write_text(f"extends: h100-sxm\ndraw: {draw[:-1]}, error: 0.1}}\n", encoding="utf-8")
    gpu = catalog.gpu(str(path))
    assert gpu.power_draw == replace(gpu.power_draw, idle=50, waiting=60, working=200, error=0.1)
    assert gpu.power_draw.kv_byte == pytest.approx(9e-11)
    path.write_text("extends: h100-sxm\ndraw: {idle: -5W}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="draw"):
        catalog.gpu(str(path))


def test_the_cost_model_need_not_know_who_asks() -> None:
    """Energy changes no time."""
    d = deployment("h100-sxm")
    other = replace(d, gpu=replace(d.gpu, draw=draw_by_shares(300, 3e12, 1e15)))
    batch = Batch(8, 9000)
    assert CostModel(d).seconds(batch) == CostModel(other).seconds(batch)


def test_the_mean_power_of_a_scaled_fleet_is_that_of_the_gpus_held() -> None:
    scaled = small(
        fleet__0__replicas={"min": 1, "max": 3, "start": 1},
        workload__arrivals__rate=20,
        run__requests=400,
    )
    result = sim.simulate(scaled)
    found = result.summary["infersim"]["energy"]
    (part,) = result.record.parts
    assert part.held is not None
    assert part.held < 3 * result.record.duration
    assert found["mean_watts_per_gpu"] == pytest.approx(found["kwh"] * 3.6e6 / part.held)


def test_a_limit_below_what_an_idle_gpu_draws_is_refused() -> None:
    with pytest.raises(UsageError, match="draws 120 W with nothing to do; give more than that"):
        sim.simulate(small(fleet__0__power_limit="120W"))
