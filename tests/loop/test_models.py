"""Fleets that serve several models: each request goes to a replica of the one it asks for, and is
served there as if the others did not exist."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sim
from sim.errors import InfersimError
from sim.scenario import load_scenario

LARGE, SMALL = "llama-3.1-8b", "llama-3.2-1b"
SCENARIO: dict[str, Any] = {
    "model": LARGE,
    "fleet": [
        {"name": "large", "gpu": "h100-sxm"},
        {"name": "small", "gpu": "l4", "model": SMALL, "replicas": 2},
    ],
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 20},
        "prompt_tokens": {"kind": "uniform", "low": 50, "high": 900},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 200},
        "classes": [
            {"name": "hard", "share": 0.3},
            {"name": "easy", "share": 0.5, "model": SMALL},
            {"name": "quick", "share": 0.2, "model": SMALL, "deadline": "200ms"},
        ],
    },
    "slo": {"ttft": "500ms"},
    "run": {"requests": 500, "warmup": 0},
}
TIMES = ("scheduled", "first_token", "finish")


@pytest.mark.parametrize("router", ["least-outstanding", "round-robin", "prefix-affinity"])
def test_each_model_is_served_as_if_it_were_alone(tmp_path: Path, router: str) -> None:
    """The requests of either model, sent to its pool alone as a trace, have the same times to the
    last bit."""
    rows = sim.simulate({**SCENARIO, "router": router}).record.requests
    mine = {"large": rows["class"] == 0, "small": rows["class"] > 0}
    assert {place: set(rows["replica"][its]) for place, its in mine.items()} == {
        "large": {0},
        "small": {1, 2},
    }
    for pool, model in zip(SCENARIO["fleet"], (LARGE, SMALL), strict=True):
        own = np.sort(rows[mine[pool["name"]]], order="id")
        path = tmp_path / f"{pool['name']}.csv"
        lines = [
            f"{float(row['arrival'])!r},{row['prompt_tokens']},{row['output_tokens']}"
            for row in own
        ]
        path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
        alone = {"model": model, "fleet": {**pool, "model": None}, "router": router,
                 "workload": {"trace": {"path": str(path)}}, "run": {"warmup": 0}}  # fmt: skip
        found = np.sort(sim.simulate(alone).record.requests, order="id")
        for time in TIMES:
            shift = own["arrival"] - found["arrival"]  # a trace begins at its first arrival
            assert found[time] + shift == pytest.approx(own[time], abs=1e-9), (pool, time)


def test_results_say_which_model_a_pool_has() -> None:
    own = sim.simulate({**SCENARIO, "run": {"requests": 60}}).summary["infersim"]
    assert own["model"] == f"{LARGE}, {SMALL}"
    assert [pool["model"] for pool in own["pools"]] == [LARGE, SMALL]
    assert [each["submitted"] > 0 for each in own["classes"]] == [True, True, True]


def test_a_model_that_gets_too_much_is_overloaded_whatever_the_others_have_left() -> None:
    """Nothing of the large one's capacity is of use to the small one's requests."""
    rate = {"workload.arrivals.rate": 400, "run.requests": 4000}
    own = sim.simulate(load_scenario(SCENARIO, rate | {"fleet.1.replicas": 1})).summary["infersim"]
    loads = [pool["utilisation"] for pool in own["pools"]]
    assert loads[1] > 1
    assert own["verdict"]["state"] == "overloaded"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"workload.classes": None}, "no class of workload.classes asks for 'llama-3.1-8b'"),
        ({"workload.classes.0.model": SMALL}, "asks for 'llama-3.1-8b'"),
        ({"workload.classes.1.model": "qwen3-8b"}, "no pool serves 'qwen3-8b'; there are"),
        ({"fleet.1.model": "llama-3.2-2b"}, "no model is called 'llama-3.2-2b'"),
        ({"fleet.1.replicas": {"max": 3}}, "not modelled with pools that are scaled"),
        ({"failures": {"mtbf": "1h"}}, "not modelled with failures"),
        ({"steering": {"steps": []}}, "not modelled with steering"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(InfersimError, match=why):
        load_scenario(SCENARIO, changes)


def test_a_model_of_ones_own_is_found_beside_its_scenario(tmp_path: Path) -> None:
    """By pool and class alike, also when the scenario is read elsewhere."""
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1024,
              "num_attention_heads": 8, "num_hidden_layers": 4, "vocab_size": 32000,
              "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}  # fmt: skip
    (tmp_path / "own.json").write_text(json.dumps(config))
    own = {"fleet.1.model": "own.json", "workload.classes.1.model": "own.json",
           "workload.classes.2.model": "own.json"}  # fmt: skip
    (tmp_path / "a.yaml").write_text(load_scenario(SCENARIO).to_yaml())
    scenario = load_scenario(tmp_path / "a.yaml", own)
    again = load_scenario(scenario.resolved())
    assert again.pools[1].model.path == str(tmp_path / "own.json")
    assert again.workload.classes is not None
    assert again.workload.classes[1].model == again.pools[1].model.path
