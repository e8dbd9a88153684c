"""Drafts by searching a text that does not always repeat: without a match nothing is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sim
from sim.cost import CostModel
from sim.errors import UsageError
from sim.iteration import Batch, Part
from sim.setup import prepare
from sim.specs.speculation import Speculation
from tests.metrics.test_speculation import pool, scenario
from tests.places import VLLM

SEARCH = {"method": "ngram", "num_tokens": 4, "acceptance_rate": 0.7}


def rare(match: float, **keys: Any) -> dict[str, Any]:
    return {**SEARCH, "match_rate": match, **keys}


def cost_of(**keys: Any) -> CostModel:
    return pool(**keys).cost


def test_rows_are_those_of_the_sequences_that_match() -> None:
    given = Speculation("ngram", 4, (0.25, 0.2, 0.1, 0.0), match=0.25)
    assert [given.rows(n, 4) for n in (1, 2, 4, 100)] == [2, 4, 8, 200]
    assert replace(given, match=1.0).rows(7, 4) == 35
    with pytest.raises(ValueError, match="match"):
        replace(given, match=0.2)  # the first draft cannot be right more often than there is one


def test_acceptance_is_of_the_drafts_that_are_made() -> None:
    given = pool(speculative=rare(0.5)).deployment.speculation
    assert given is not None
    assert given.rates == pytest.approx([0.5 * 0.7**n for n in range(1, 5)])
    assert given.length == pytest.approx(1 + 0.5 * (0.7 + 0.49 + 0.343 + 0.2401))


@pytest.mark.parametrize("sequences", [1, 8, 64, 200])
def test_a_text_that_hardly_repeats_costs_its_search_alone(sequences: int) -> None:
    """And one that always does costs what it did before there was a rate of matches."""
    batch = Batch(sequences, sequences * 900)
    plain, never, half, always, usual = (
        cost_of(speculative=given, engine=VLLM).seconds(batch)
        for given in (None, rare(0.001), rare(0.5), rare(1.0), SEARCH)
    )
    assert always == usual
    assert plain < never < always
    searched, _ = cost_of(speculative=SEARCH)._drafting.host_line(sequences, 4)  # type: ignore[union-attr]
    assert never - plain < 2 * searched + 1e-3
    assert never <= half <= always


@pytest.mark.parametrize("parts", [[], [Part(300, 0)]])
def test_operators_sum_up_to_the_time_of_the_pass(parts: list[Part]) -> None:
    cost = cost_of(speculative=rare(0.3), engine="ideal")
    batch = Batch(50, 50 * 800, parts, len(parts))
    ran = cost.operators(cost.columns([batch]))
    whole = sum(float(np.sum(one.operator.seconds * one.times)) for one in ran)
    alone = sum(float(np.sum(one.seconds)) for one in cost.pass_operators(batch))
    assert whole == pytest.approx(alone, rel=1e-9)
    tokens = 50 + round(0.3 * 50 * 4) + sum(part.tokens for part in parts)
    plain = cost_of(engine="ideal")
    wide = plain.by_size.per_token(tokens)
    assert sum(float(np.sum(one.seconds)) for one in wide) < whole


def test_a_run_gains_less_and_counts_rounds_that_drafted() -> None:
    often, seldom = (
        sim.simulate(scenario(speculative=rare(match))).summary["infersim"]["speculation"]
        for match in (1.0, 0.25)
    )
    assert "match_rate" not in often
    assert seldom["match_rate"] == 0.25
    assert often["expected_length"] == pytest.approx(seldom["expected_length"])
    assert seldom["acceptance_length"] == pytest.approx(seldom["expected_length"], rel=0.1)
    assert seldom["draft_tokens"] == pytest.approx(4 * seldom["drafts"], abs=4)
    gains = [found["speedups"][0]["speedup"] for found in (often, seldom)]
    assert 1.0 < gains[1] < gains[0]
    assert seldom["tokens_per_iteration"] < often["tokens_per_iteration"]


def test_a_rate_of_one_changes_no_byte() -> None:
    with_rate, without = (
        sim.simulate(scenario(speculative=given)).record for given in (rare(1.0), SEARCH)
    )
    assert with_rate.requests.tobytes() == without.requests.tobytes()
    assert with_rate.plans.tobytes() == without.plans.tobytes()


@pytest.mark.parametrize("match", [0.01, 0.35])
def test_leaps_are_steps(match: float) -> None:
    chosen = scenario(speculative=rare(match), kv_cache={"num_gpu_blocks": 160})
    leaps, steps = (sim.simulate(chosen, leap=leap).record for leap in (True, False))
    assert leaps.requests.tobytes() == steps.requests.tobytes()
    assert len(leaps.plans) < len(steps.plans)


def test_what_always_drafts_has_no_rate() -> None:
    with pytest.raises(UsageError, match="only method: ngram has a match_rate"):
        scenario(speculative={"method": "eagle", "num_tokens": 2, "acceptance_rate": 0.5,
                              "match_rate": 0.5})  # fmt: skip
    fleet = {"gpu": "h100-sxm", "data_parallel": 2}
    with pytest.raises(UsageError, match="all data ranks wait"):
        prepare(scenario(fleet=fleet, speculative=rare(0.5)))


def test_the_token_budget_is_asked_for_drafts_that_are_made() -> None:
    """8 sequences with 4 drafts of a quarter each: 16 of 40 tokens; a full batch has room for more
    prompts then, and serves them sooner."""
    always = Speculation("ngram", 4, (0.2,) * 4)
    assert (always.asked(8, 4), replace(always, match=0.25).asked(8, 4)) == (40, 16)
    small = {"max_num_batched_tokens": 48, "max_num_seqs": 8}
    chunks = {}
    for match in (1.0, 0.25):
        found = sim.simulate(
            scenario(
                speculative=rare(match, acceptance_rate=0.01),
                scheduler=small,
                workload={
                    "arrivals": {"kind": "closed", "concurrency": 8},
                    "prompt_tokens": {"kind": "fixed", "value": 400},
                    "output_tokens": {"kind": "fixed", "value": 200},
                },
                run={"requests": 24},
            ),
            leap=False,
        ).record.plans
        crowded = found[(found["decode"] == 7) & (found["prefill_tokens"] > 0)]
        chunks[match] = int(crowded["prefill_tokens"].max())
    assert chunks == {1.0: 48 - 7 * 5, 0.25: 48 - 7 * 2}
