"""``infersim plan`` names rejected requests and a small KV cache before anything about speed."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from rich.console import Console

from reports.figures.charts import chart
from sim import simulate
from sim.errors import InfeasibleError
from sim.planning.answers.plan import _cards_that_do_not
from sim.planning.answers.plan_drawings import cost_and_latency
from sim.planning.fleet.choose import FleetPlan, choose
from sim.planning.fleet.constraints import read_constraints
from sim.planning.fleet.layouts import FleetQuestion, layouts
from sim.planning.fleet.plan_document import document
from sim.scenario import Scenario
from sim.setup import prepare
from tests.answers import plan_view, render_plan
from tests.places import MODELS
from tests.planning_fixtures import small

pytestmark = pytest.mark.usefixtures("brief_answers")


def asked(**changes: Any) -> Scenario:
    """Prompts of up to 900 tokens; some of them are longer than a small ``max_model_len``."""
    slo = {"ttft": "300ms", "tpot": "40ms", "attainment": 0.9}
    prompts = {"kind": "uniform", "low": 50, "high": 900}
    changed = {"run__requests": 150, "workload__prompt_tokens": prompts, "slo": slo, **changes}
    return small(**changed)


def chosen(scenario: Scenario, gpus: list[str], **more: Any) -> FleetPlan:
    made = tuple(layouts(scenario, gpus, [1], []))
    limits = read_constraints(more.get("constraint"))
    return choose(scenario, FleetQuestion(made, 20.0, 0.1, 1, limits))


def shown(plan: FleetPlan) -> str:
    console = Console(width=88, color_system=None)
    with console.capture() as captured:
        console.print(plan_view(document(plan)))
    return captured.get()


def test_layouts_that_reject_too_much_are_not_called_slow() -> None:
    with pytest.raises(InfeasibleError) as caught:
        chosen(asked(max_model_len=700), ["h100-sxm", "l40s"])
    told = str(caught.value)
    assert "1 x h100-sxm, 1 x l40s: requests rejected: " in told
    assert "are longer than max_model_len (700 tokens" in told
    assert "; set max_model_len to 9" in told
    assert "missed" not in told


def test_even_a_fast_layout_that_rejects_is_not_called_slow() -> None:
    # 99 % are asked for and about 3 % are rejected: too few for one replica's trickle to be sure of
    slo = {"ttft": "300ms", "tpot": "40ms", "attainment": 0.99}
    with pytest.raises(InfeasibleError, match="requests rejected: ") as caught:
        chosen(asked(max_model_len=900, slo=slo), ["h100-sxm"])
    assert "missed" not in str(caught.value)


def test_a_small_kv_cache_is_named_before_speed() -> None:
    # 8 billion parameters in 16 bits leave a 24 GB card a cache of fewer than 65,536 tokens
    limits = {"ttft": "300ms", "tpot": "5ms", "attainment": 0.9}
    with pytest.raises(InfeasibleError) as caught:
        chosen(asked(max_model_len=65536, slo=limits), ["l4", "l40s"])
    lines = str(caught.value).splitlines()
    slow = next(line for line in lines if "1 x l40s" in line)
    little = next(line for line in lines if "1 x l4:" in line)
    assert "TPOT missed at any load" in slow
    assert little.startswith("  1 x l4: KV cache too small: the KV cache holds ")
    room = prepare(asked(max_model_len=65536, fleet__0__gpu="l4")).only.capacity
    assert room.usable_blocks < room.num_gpu_blocks  # what the engine prints is one block more
    assert f"holds {room.usable_blocks * room.block_size:,} tokens for requests" in little
    assert "less than max_model_len (65,536), so vLLM would refuse to start" in little


@cache
def with_a_small_cache() -> FleetPlan:
    slo = {"ttft": "2s", "tpot": "200ms", "attainment": 0.9}
    return chosen(asked(max_model_len=65536, slo=slo), ["l4"])


def test_a_fleet_that_is_ranked_says_that_its_cache_is_small() -> None:
    plan = with_a_small_cache()
    (fleet,) = document(plan)["fleets"]
    (note,) = [note for note in fleet["notes"] if "KV cache" in note]
    assert "vLLM would refuse to start" in note
    text = " ".join(shown(plan).split())
    assert f"#1: {note}" in text
    assert note.replace("'", "&#39;") in render_plan(document(plan))


def test_a_fleet_that_rejects_a_few_requests_says_so() -> None:
    plan = chosen(asked(max_model_len=890), ["h100-sxm"])
    told = document(plan)
    (fleet,) = told["fleets"]
    assert 0 < fleet["at_target"]["rejected"] < 0.1
    assert any("are longer than max_model_len (890 tokens" in note for note in fleet["notes"])


def test_tables_and_figures_show_one_load_and_the_share_of_the_slo() -> None:
    plan = with_a_small_cache()
    told = document(plan)
    (fleet,) = told["fleets"]
    settings = {**fleet["settings"], "workload.arrivals.rate": told["target"]}
    seen = fleet["at_target"]
    assert plan.best[0].sized.at_target.runs == 1  # so that the run is the very one
    settings["run.requests"] = plan.best[0].sized.at_target.requests
    summary = simulate(plan.scenario.override(settings)).summary
    assert seen["slo_ttft_ms"] == pytest.approx(summary["p90_ttft_ms"])
    assert seen["slo_tpot_ms"] == pytest.approx(summary["p90_tpot_ms"])
    drawn = chart(cost_and_latency(told, "ttft"))
    assert seen["slo_ttft_ms"] in drawn.data[0].y
    assert drawn.layout.yaxis.title.text == "TTFT p90 (ms)"
    text = shown(plan)
    assert "under 22 requests/s" in text
    table, _, _ = text.partition("Cost, and energy")
    assert "p90" in table
    assert "p99" not in table
    assert max(map(len, text.splitlines())) <= 88


def test_a_card_without_a_fleet_has_the_reason_of_the_layout_that_comes_nearest() -> None:
    reasons = ("does not fit", "does not fit", "TTFT missed at any load")
    card = {"gpu": "l40s", "precision": None, "usd_per_hour": None}
    rejected = [{**card, "reason": reason} for reason in reasons]
    costly = {**card, "reason": "more expensive", "usd_per_hour": 2.0}
    told = {"sized": [], "rejected": rejected, "hours": {"month": 730.0}}
    (row,) = _cards_that_do_not(told)
    assert row[1].text == "none: TTFT missed at any load"
    (row,) = _cards_that_do_not({**told, "rejected": [costly, *rejected]})
    assert (row[1].text, row[2].text) == ("none: more expensive", "from 1,460")


def test_a_replica_larger_than_a_node_says_so_where_it_is_asked_for() -> None:
    own = asked(fleet__0__node={"gpus": 2})
    made = tuple(layouts(own, ["h100-sxm"], [1, 4], []))
    told = document(choose(own, FleetQuestion(made, 20.0, 0.1, 2, read_constraints(None))))
    notes = {each["layout"]: " ".join(each["notes"]) for each in told["fleets"]}
    assert "4 GPUs of a replica stand on 2 nodes of 2" in notes["4 x h100-sxm"]
    assert "nodes" not in notes["1 x h100-sxm"]


def test_no_replica_larger_than_a_node_is_searched_by_itself() -> None:
    own = asked(model=str(MODELS / "tiny-experts"))
    made = layouts(own, ["h100-sxm"], [], [], [1, 4], [False])
    assert {(each.tensor_parallel, each.data_parallel) for each in made} == {
        *((tensor, 1) for tensor in (1, 2, 4, 8)),
        *((tensor, 4) for tensor in (1, 2)),
    }
    assert [each.gpus for each in layouts(own, ["h100-sxm"], [], [], [16], [False])] == [16]
