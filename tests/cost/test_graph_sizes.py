"""Decodes by graphs that were captured for some numbers of sequences, and padded in between."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sim import catalog
from sim.cost import CostModel, Deployment
from sim.cost.batches import Batches
from sim.errors import UsageError
from sim.iteration import Batch, Part, PassConditions
from sim.pools import prepare_pool
from sim.scenario import load_scenario
from sim.simulation import simulate
from sim.specs.layout import Layout
from tests.gpus import data_sheet
from tests.harness import Arriving, LineTimer, play
from tests.loop.test_lockstep import scheduler

IDEAL = catalog.engine("ideal")
CAPTURED = replace(IDEAL, graph_sizes=(1, 2, 4, 64, 256))


def cost_of(engine=IDEAL, model="qwen3-30b-a3b", **layout: int) -> CostModel:
    return CostModel(
        Deployment(catalog.model(model), data_sheet("h100-sxm"), engine, layout=Layout(**layout))
    )


PLAIN, PADDED = cost_of(), cost_of(CAPTURED)
SPREAD = {"tensor": 1, "data": 4, "expert": 4}


class TestEngine:
    def test_the_next_size_is_replayed(self) -> None:
        assert [CAPTURED.graph(n) for n in (1, 3, 4, 5, 64, 256)] == [1, 4, 4, 64, 64, 256]
        assert CAPTURED.graph(257) == 0  # kernel by kernel, as it is
        assert IDEAL.graph(3) == 0

    def test_none_is_larger_than_a_batch_can_be(self) -> None:
        assert CAPTURED.with_graphs_up_to(100).graph_sizes == (1, 2, 4, 64, 100)
        assert CAPTURED.with_graphs_up_to(64).graph_sizes == (1, 2, 4, 64)
        assert CAPTURED.with_graphs_up_to(256) is CAPTURED
        assert CAPTURED.with_graphs_up_to(300) is CAPTURED
        assert IDEAL.with_graphs_up_to(3) is IDEAL

    def test_sizes_are_read_from_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "own.yaml"
        path.write_text("title: Own\nextends: vllm\ngraph_sizes: [8, 1]\n", encoding="utf-8")
        assert catalog.engine(str(path)).graph_sizes == (1, 8)
        path.write_text("title: Own\nextends: vllm\ngraph_sizes: [8, 0]\n", encoding="utf-8")
        with pytest.raises(UsageError, match="graph_sizes: expected a list of whole numbers"):
            catalog.engine(str(path))


class TestPasses:
    def test_decodes_take_the_kernels_of_the_graph_and_their_own_attention(self) -> None:
        """Five of 64: everything that goes by tokens is that of 64, attention that of five."""
        wanted = {o.name: o for o in PLAIN.pass_operators(Batch(64, 64 * 1000))}
        wanted["decode attention"] = PLAIN.attention.decode(5, 5 * 1000)
        found = {o.name: o for o in PADDED.pass_operators(Batch(5, 5 * 1000))}
        assert found.keys() == wanted.keys()
        for name, operator in found.items():
            assert float(operator.seconds) == pytest.approx(float(wanted[name].seconds), rel=1e-12)

    @pytest.mark.parametrize("sequences", [1, 3, 5, 64, 200, 300])
    def test_operators_are_what_it_takes(self, sequences: int) -> None:
        batch = Batch(sequences, sequences * 700)
        summed = sum(float(o.seconds) for o in PADDED.pass_operators(batch))
        assert PADDED.seconds(batch) == pytest.approx(summed, rel=1e-9)
        columns = Batches.made([batch], [(0.0, 0.0)])
        ran = PADDED.operators(columns)
        assert sum(r.total(r.operator.seconds) for r in ran) == pytest.approx(summed, rel=1e-9)

    def test_beyond_the_largest_nothing_is_padded_and_kernels_are_launched_one_by_one(self) -> None:
        batch = Batch(300, 300 * 700)
        assert PADDED.seconds(batch) == PLAIN.seconds(batch)
        slow = cost_of(replace(CAPTURED, launch=1e-3, kernels_per_layer=10))
        layers = slow.deployment.model.num_layers
        assert slow.seconds(batch) == pytest.approx(1e-3 * 10 * layers)
        assert slow.seconds(Batch(200, 1000)) == PADDED.seconds(Batch(200, 1000))

    def test_without_graphs_there_are_none_to_pad_to(self) -> None:
        eager = replace(IDEAL, cuda_graphs=False)
        batch = Batch(5, 5 * 700)
        mine = cost_of(replace(eager, graph_sizes=CAPTURED.graph_sizes))
        assert mine.seconds(batch) == cost_of(eager).seconds(batch)

    @pytest.mark.parametrize("layout", [{}, SPREAD], ids=["one rank", "four"])
    def test_dummies_are_no_work_that_the_model_needs(self, layout: dict[str, int]) -> None:
        """They take time, and their FLOP count neither in a pass nor in a run. Those of the busiest
        of several ranks are more than its share, the less so the more tokens there are."""
        near = 1e-9 if not layout else 0.07
        mine, plain = cost_of(CAPTURED, **layout), cost_of(**layout)
        batches = [Batch(5, 5 * 700), Batch(64, 64 * 700), Batch(7, 7 * 900, (Part(30, 0),), 1)]
        for batch in batches:
            of_pass = (
                sum(float(np.sum(o.flops)) for o in each.pass_operators(batch))
                for each in (mine, plain)
            )
            assert next(of_pass) == pytest.approx(next(of_pass), rel=near)
        columns = mine.columns(batches)
        padded, alone = (
            sum(ran.total(ran.operator.flops) for ran in each.operators(columns))
            for each in (mine, plain)
        )
        assert padded == pytest.approx(alone, rel=near)

    def test_with_prompts_kernels_are_as_many_as_the_tokens(self) -> None:
        batch = Batch(5, 5 * 700, (Part(100, 0),), 1)
        assert PADDED.seconds(batch) == PLAIN.seconds(batch)
        columns = Batches.made([batch], [PADDED.attention.prefill_seconds(batch.parts, 5)])
        mine, theirs = (
            sum(r.total(r.operator.seconds) for r in cost.operators(columns))
            for cost in (PADDED, PLAIN)
        )
        assert mine == pytest.approx(theirs, rel=1e-12)


class TestDataRanks:
    def test_the_rank_with_most_decides_for_all(self) -> None:
        """Beside five sequences, three ranks that replay 64 have 192 tokens, and it has 64."""
        mine, plain = cost_of(CAPTURED, **SPREAD), cost_of(**SPREAD)
        assert mine.line(5, 5000)[1] == mine.under(PassConditions(3 * 64)).line(5, 5000)[1]
        own = plain.attention.decode_lines(5)[0][1]
        whole = (
            plain.under(PassConditions(3 * 64)).line(64, 64)[1]
            - plain.attention.decode_lines(64)[0][1]
        )
        assert mine.under(PassConditions(3 * 64)).line(5, 5)[1] == pytest.approx(
            whole + own, rel=1e-9
        )
        larger = mine.under(PassConditions(3 * 256))
        assert larger.line(5, 5000)[1] > mine.under(PassConditions(3 * 64)).line(5, 5000)[1]

    def test_others_with_prompts_have_no_graph(self) -> None:
        """The iteration lasts as long as without any size, though this rank only decodes."""
        mine, plain = (
            cost_of(CAPTURED, **SPREAD).under(PassConditions(900)),
            cost_of(**SPREAD).under(PassConditions(900)),
        )
        assert mine.iteration(5, 5000, (), 0)[0] == pytest.approx(
            sum(plain.line(5, 5000)[at] * (1, 5000)[at - 1] for at in (1, 2)), rel=1e-9
        )

    @pytest.mark.parametrize("leap", [True, False])
    def test_what_others_have_is_padded(self, leap: bool) -> None:
        """Two ranks of two and one sequences replay a graph of four each, so that each has four
        tokens of the other; with a prompt on either, the tokens themselves."""

        class Captured(LineTimer):
            def graph(self, sequences: int) -> int:
                return 4 if sequences <= 4 else 0

        traffic: list[Arriving] = [(0.0, 4, 6), (0.0, 4, 6), (0.0, 4, 6)]
        found = play(traffic, scheduler, Captured(1, 0, 0, 0.25), leap=leap, ranks=2)
        rows = found.recorder.plan_rows()
        decodes = rows["prefill_seqs"] == 0
        assert rows["others"][~decodes].tolist() == [4, 8]
        assert set(rows["others"][decodes].tolist()) == {4}

    def test_recorded_passes_add_up(self) -> None:
        """Of a run, the operators of decodes on all ranks take as long as the passes did."""
        rows = np.array([5, 64, 3])
        mine = cost_of(CAPTURED, **SPREAD)
        for own, graph in zip(rows.tolist(), (64, 64, 64), strict=True):
            columns = replace(
                Batches.made([Batch(own, own * 500)], [(0.0, 0.0)]),
                others=np.array([3 * graph]),
            )
            ran = mine.operators(columns)
            line = mine.under(PassConditions(3 * graph)).line(own, own * 500)
            took = line[1] + line[2] * own * 500
            assert sum(r.total(r.operator.seconds) for r in ran) == pytest.approx(took, rel=1e-9)


def scenario(**scheduler: int):
    return load_scenario(
        {
            "version": 1,
            "name": "captured",
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "engine": "tensorrt-llm-pytorch",
            "scheduler": scheduler,
            "workload": {
                "arrivals": {"kind": "burst"},
                "prompt_tokens": {"kind": "fixed", "value": 100},
                "output_tokens": {"kind": "fixed", "value": 50},
            },
            "run": {"requests": 40, "warmup": 0},
        }
    )


def test_a_run_says_that_decodes_are_padded() -> None:
    told = simulate(scenario(max_num_seqs=48, max_num_batched_tokens=8192)).summary
    notes = [note for note in told["infersim"]["notes"] if "graphs were captured" in note]
    assert len(notes) == 1
    assert "for 1, 2, 4, 8, 16, 32, 48 sequences, up to the largest batch" in notes[0]


def test_a_run_captures_as_many_as_its_batch_allows() -> None:
    """40 sequences of a graph of 48 take less time than of the listed 64."""
    asked = scenario(max_num_seqs=48, max_num_batched_tokens=8192)
    engine = prepare_pool(asked, asked.only_pool).deployment.engine
    assert engine.graph_sizes == (1, 2, 4, 8, 16, 32, 48)
    fewer, more = (
        simulate(scenario(max_num_seqs=n, max_num_batched_tokens=8192)).summary["mean_tpot_ms"]
        for n in (48, 64)
    )
    assert fewer < more
