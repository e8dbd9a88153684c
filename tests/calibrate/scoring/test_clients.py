"""Rows whose publishers leave open how they were measured, and what is known of whole sources."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from calibrate.scoring import score_all
from calibrate.scoring.clients import (
    BURST,
    KEPT,
    SETTLED,
    SPREAD,
    TOGETHER,
    compared,
    plausible,
)
from calibrate.scoring.conditions import Conditions, conditions
from calibrate.scoring.document import to_document
from calibrate.scoring.errors import left_open
from calibrate.scoring.evidence import summary
from calibrate.scoring.figures import figure
from calibrate.scoring.lengths import Lengths
from calibrate.scoring.predict import Predicted, run
from sim import catalog
from sim.cli import app
from sim.scenario import load_scenario
from tests.calibrate.scoring.test_scoring import row, write

OPEN = {"n_requests": "", "notes": "client not described"}
STEADY = {"arrival": "all at once, max_num_seqs running, steady state", "n_requests": "64"}


def known(**changes: str) -> Conditions:
    return conditions(row(**changes))


class TestPlausible:
    def test_a_described_client_leaves_nothing_open(self) -> None:
        assert plausible(known()) == {}
        assert plausible(known(**OPEN | {"notes": "num_prompts=10*conc"})) == {}
        assert plausible(known(**STEADY)) == {}

    def test_the_ways_of_a_client_that_is_not(self) -> None:
        found = plausible(known(**OPEN))
        assert list(found) == [KEPT, SETTLED, SPREAD, BURST]
        runs = [each.document for each in found.values()]
        assert [each["workload"]["arrivals"]["kind"] for each in runs] == [
            "closed",
            "closed",
            "closed",
            "burst",
        ]
        assert [(each["run"]["requests"], each["run"]["warmup"]) for each in runs] == [
            (40, 0),
            (40, 4),
            (40, 0),
            (4, 0),
        ]
        assert found[KEPT] == known(**OPEN)
        assert (found[SPREAD].prompt, found[SPREAD].output) == (Lengths(80, 100), Lengths(16, 20))

    def test_a_protocol_that_is_assumed_is_open(self) -> None:
        usual = "num_prompts=10*conc (the usual protocol; not stated row by row)"
        assert list(plausible(known(n_requests="", notes=usual)))[::3] == [KEPT, BURST]
        usual += "; lengths uniform in [0.8,1.0]*nominal"
        assert list(plausible(known(n_requests="", notes=usual))) == [KEPT, SETTLED, BURST]

    def test_both_ends_of_prompts_that_are_not_published(self) -> None:
        found = plausible(known(**STEADY, isl="gpqa prompts (lengths not published)"))
        assert {name: each.prompt.mean for name, each in found.items()} == {
            "prompts of 125 tokens": 125,
            "prompts of 500 tokens": 500,
        }

    def test_slots_that_clients_outnumber(self) -> None:
        """16 run at once, which only results show: as the script states, all 512 do."""
        many = {"model": "openai/gpt-oss-120b", "batch_or_concurrency": "512"}
        cells = row(**many, notes="InferenceMAX protocol")
        stated, inferred = (conditions(cells, outcomes=each) for each in (False, True))
        found = [
            (each.document["scheduler"].get("max_num_seqs"), each.document["run"]["requests"])
            for each in (stated, inferred)
        ]
        assert found == [(512, 5120), (16, 160)]
        clients = {"kind": "closed", "concurrency": 512}
        assert inferred.document["workload"]["arrivals"] == clients
        assert conditions(row(**many), outcomes=True).document == conditions(row(**many)).document


class TestSources:
    def test_clients_that_are_published_with_the_tool_of_a_source(self) -> None:
        """They leave nothing open, in the publications that the tool measured, and only there."""
        named = {"engine": "sglang", "model": "Qwen/Qwen3-32B", "notes": "aic-auto-gap analysis"}
        stated = OPEN | named | {"source_path": "silicon_sample.csv"}
        found = known(**stated)
        assert (found.driver, found.described) == ("closed", True)
        assert found.document["run"]["requests"] == 40
        assert found.document["workload"]["arrivals"]["kind"] == "closed"
        assert plausible(found) == {}
        assert not known(**stated | {"source_path": "other.csv"}).described

    def test_such_clients_send_prompts_of_one_length(self) -> None:
        """Whatever protocol a table supposes, which others of its rows do follow."""
        supposed = {"n_requests": "", "source_path": "silicon_sample.csv"}
        supposed["notes"] = "lengths uniform in [0.8,1.0]*nominal (not stated row by row)"
        own = known(**supposed, model="Qwen/Qwen3-235B-A22B-FP8", weight_dtype="fp8")
        whole = {"n_gpus": "4", "tp": "4"}
        other = known(**supposed, **whole, model="MiniMaxAI/MiniMax-M2.5", weight_dtype="fp8")
        assert own.described
        assert other.described
        assert (own.prompt, other.prompt) == (Lengths(100, 100), Lengths(80, 100))

    def test_first_tokens_that_may_come_alone(self) -> None:
        """What a described client leaves open, where tokens are streamed ten at a time."""
        served = {"engine": "trtllm", "model": "deepseek-ai/DeepSeek-V3", "gpu": "H200-SXM-141GB"}
        served |= {"n_gpus": "8", "tp": "8"}
        found = known(**OPEN | served | {"source_path": "silicon_sample.csv"}, weight_dtype="fp8")
        ways = plausible(found)
        assert found.described
        assert [each.streamed for each in ways.values()] == [10, 1]
        assert ways[TOGETHER] == found

    def test_cards_that_reach_each_other(self) -> None:
        cards = {"engine": "TensorRT-LLM", "gpu": "L40S", "n_gpus": "4", "tp": "4"}
        link = {"kind": "pcie", "peer_to_peer": True}
        own, alone = (
            conditions(row(**cards | tp), outcomes=True).document["fleet"][0]
            for tp in ({}, {"tp": "1"})
        )
        assert own["link"] == link
        assert "link" not in alone
        assert "link" not in known(**cards).document["fleet"][0]

    def test_releases_of_vllm_that_schedule_between_iterations(self) -> None:
        cells = (
            ({"engine_version": "0.12.0"}, False),
            ({"engine_version": "0.12.0", "notes": "flags: async-scheduling"}, True),
            ({"engine_version": "0.11.1", "source_repo": "ml-energy/leaderboard"}, True),
            ({"engine_version": "0.14.0"}, True),
        )
        for stated, ahead in cells:
            served = load_scenario(known(**stated).document)
            assert served.engine == f"vllm@{stated['engine_version']}"
            assert served.scheduler.plans_ahead == ahead
        unknown = [known(engine_version=each).engine for each in ("", "1.0")]
        assert unknown == [catalog.engine("vllm").label] * 2

    def test_pipelines(self) -> None:
        (fleet,) = known(pp="2", n_gpus="8").document["fleet"]
        shape = ("tensor_parallel", "pipeline_parallel", "replicas")
        assert [fleet[key] for key in shape] == [2, 2, 2]

    def test_several_nodes(self) -> None:
        """An H100 stands with seven others; that the network is assumed is said."""
        told = "what joins nodes of 8 GPUs is not stated: the catalogue's network"
        assert told in known(n_gpus="16", tp="16").assumed
        assert told not in known(n_gpus="16", tp="8").assumed

    def test_requests_of_an_offline_run(self) -> None:
        found = known(arrival="all at t=0", n_requests="not stated")
        assert found.document["run"]["requests"] == 3000
        assert any("3,000 requests" in remark for remark in found.assumed)


class TestSteady:
    def test_figures_while_all_clients_are_busy(self) -> None:
        """Four clients with requests alike: each gets a token per iteration but for the prompts."""
        found = run(known(**STEADY))
        assert isinstance(found, Predicted)
        figures = found.figures
        running, rate = figures["steady_running"], figures["steady_rate"]
        assert running == pytest.approx(4, rel=0.02)
        assert rate is not None
        assert figures["decode_rate"] is not None
        assert 0.8 * 4 * figures["decode_rate"] < rate < 4 * figures["decode_rate"]
        # the mean over the whole run counts its start and its end, too
        assert figures["output_throughput"] == pytest.approx(rate, rel=0.1)

    def test_published_rates_are_those(self) -> None:
        cells = row(**STEADY, metric="output_throughput", unit="out_tok/s")
        assert figure(cells, conditions(cells)).key == "steady_rate"
        cells = row(**STEADY, metric="running_mean", unit="requests")
        assert figure(cells, conditions(cells))[:2] == ("running", "steady_running")

    def test_bandwidth_of_the_weights(self) -> None:
        """Llama 2 7B: 6.476e9 weights of layers on two GPUs, a head of 0.131e9 on each, 2 bytes."""
        cells = row(
            engine="gpt-fast", model="Llama-2-7B", weight_dtype="bf16", gpu="A100-SXM4-80GB",
            arrival="single stream", batch_or_concurrency="1",
            metric="achieved_bandwidth", unit="GB/s",
        )  # fmt: skip
        found = figure(cells, conditions(cells))
        assert found.quantity == "bandwidth"
        assert found.factor == pytest.approx(2 * (6.476e9 / 2 + 0.131e9), rel=0.001)


def test_errors_under_each_way() -> None:
    """Of two rows one is between both predictions."""
    found = compared([(2.0, {"a": 1.0, "b": 3.0}), (4.0, {"a": 1.0, "b": 3.0})])
    assert (found.rows, found.between) == (2, 50)
    assert [(way.name, way.bias, way.median) for way in found.ways] == [
        ("a", -62.5, 62.5),
        ("b", 12.5, 37.5),
    ]


def test_ways_are_shown(tmp_path: Path) -> None:
    """In JSON, in the evidence and in the terminal; the first of them is the prediction."""
    table = write(tmp_path / "t.csv", {"n_requests": "not stated", "metric": "ttft_mean"}, {})
    rows = score_all([table], jobs=1)
    opened, told = to_document(rows)["rows"]
    assert list(opened["ways"]) == [KEPT, SETTLED, SPREAD, BURST]
    assert opened["ways"][KEPT] == opened["predicted"]
    assert all(value > 0 for value in opened["ways"].values())
    assert told["ways"] == {}
    [(name, quantity, found)] = left_open(rows)
    assert (quantity, found.rows) == ("ttft", 1)
    [entry] = summary(rows)["left_open"]
    assert (entry["source"], entry["of"], entry["rows"]) == (name, "ttft", 1)
    assert [way["name"] for way in entry["ways"]] == [KEPT, SETTLED, SPREAD, BURST]
    shown = CliRunner().invoke(app, ["score", str(table), "--jobs", "1"]).stdout
    assert "not published how requests were sent" in shown
    assert BURST[:9] in shown
