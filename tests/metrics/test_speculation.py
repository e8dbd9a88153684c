"""What drafts bring, against published speed-ups, and what a run says of them."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

import sim
from calibrate.engine.asked import no_drafts, refuse
from sim.cli import app
from sim.errors import UsageError
from sim.iteration import Batch, PassConditions
from sim.metrics.engine.speculation import borrowed_note
from sim.planning.fleet.launch import launch_commands
from sim.pools import PreparedPool
from sim.scenario.sections.speculation import Speculative
from sim.setup import prepare
from tests.engine_fixtures import llama

R1 = {
    "model": "deepseek-r1",
    "fleet": {"gpu": "b200-sxm", "tensor_parallel": 8},
    "precision": {"weights": "nvfp4", "activations": "nvfp4", "kv_cache": "fp8"},
    "engine": "tensorrt-llm",
    "scheduler": {"policy": "vllm", "max_num_seqs": 64},
}
"""The deployment of TensorRT-LLM's tech blog 1 (docs/source/blogs/tech_blog at 476ae55)."""


def scenario(**keys: Any) -> sim.Scenario:
    traffic = {
        "arrivals": {"kind": "closed", "concurrency": 4},
        "prompt_tokens": {"kind": "fixed", "value": 500},
        "output_tokens": {"kind": "uniform", "low": 40, "high": 200},
    }
    base = {"model": "llama-3.1-8b", "fleet": {"gpu": "h100-sxm"}, "max_model_len": 8192}
    run = {"requests": 40, "warmup": 0}
    return sim.load_scenario({**base, "workload": traffic, "run": run, **keys})


def pool(**keys: Any) -> PreparedPool:
    return prepare(scenario(**keys)).only


def speed(batch: int, context: int, drafts: dict[str, Any] | None, **keys: Any) -> float:
    """Output tokens a second of a batch."""
    found = pool(**keys, speculative=drafts)
    given = found.deployment.speculation
    length = 1.0 if given is None else given.length
    return batch * length / found.cost.seconds(Batch(batch, batch * context))


def test_deepseek_r1_gains_what_was_measured_with_one_to_five_drafts() -> None:
    """Batch 1, 1,000 tokens in and 2,000 out: 111 tokens/s, x1.78, 2.25, 2.28, 2.21, 2.15. The
    engine is of March 2025, and the kernels of a release a year younger."""
    alone = speed(1, 2000, None, **R1)
    assert alone == pytest.approx(111, rel=0.18)
    for drafts, published in enumerate((1.78, 2.25, 2.28, 2.21, 2.15), 1):
        given = {
            "method": "mtp",
            "num_tokens": drafts,
            "acceptance": {"table": "deepseek-r1-mtp"},
        }
        assert speed(1, 2000, given, **R1) / alone == pytest.approx(published, rel=0.06), drafts


def test_a_mixture_of_experts_gains_less_of_the_same_acceptance() -> None:
    """AngelSlim, EAGLE-3, batch 1: Qwen3-8B 152 -> 258 tokens/s at a length of 1.99, Qwen3-32B
    43 -> 74 at 1.91, Qwen3-30B-A3B 321 -> 438 at 2.04, taken to be of 2 drafts: drafts of a mixture
    touch more experts."""
    gains = {}
    published = {
        "qwen3-8b": (1.99, 258 / 152),
        "qwen3-32b": (1.91, 74 / 43),
        "qwen3-30b-a3b": (2.04, 438 / 321),
    }
    for model, (length, gain) in published.items():
        drafts = {"method": "eagle", "num_tokens": 2, "acceptance": {"length": length}}
        gains[model] = speed(1, 1000, drafts, model=model) / speed(1, 1000, None, model=model)
        assert gains[model] == pytest.approx(gain, rel=0.05), model
    assert gains["qwen3-30b-a3b"] < 0.85 * gains["qwen3-32b"]


def test_a_dense_model_loses_in_large_batches() -> None:
    """vLLM, Llama-3-70B on 4 H100: faster at 1 request/s, slower at many (blog of 2024-10-17)."""
    dense = {"model": "llama-3.1-70b", "fleet": {"gpu": "h100-sxm", "tensor_parallel": 4}}
    drafts = {
        "method": "draft_model",
        "draft_model": "llama-3.2-1b",
        "num_tokens": 4,
        "acceptance_rate": 0.6,
    }
    told = sim.simulate(scenario(**dense, speculative=drafts)).summary["infersim"]
    own = told["speculation"]
    by_running = {each["running"]: each["speedup"] for each in own["speedups"]}
    assert by_running[1] > 1.3
    assert by_running[256] < 0.9
    gains = [each["speedup"] for each in own["speedups"]]
    assert 1 < own["pays_up_to"] < 256
    assert gains[0] == max(gains)
    (note,) = [note for note in told["notes"] if note.startswith("Drafts pay with up to")]
    assert f"up to {own['pays_up_to']:,} running requests" in note


@pytest.mark.parametrize("method", ["eagle", "ngram", "mtp", "draft_model"])
def test_operators_add_up_to_the_pass(method: str) -> None:
    draft = {"draft_model": "llama-3.2-1b"} if method == "draft_model" else {}
    drafts = {"method": method, "num_tokens": 3, "acceptance_rate": 0.5, **draft}
    target = "glm-4.5-air" if method == "mtp" else "llama-3.1-8b"
    alone = {"gpu": "h200-sxm", "tensor_parallel": 4} if method == "mtp" else {"gpu": "h100-sxm"}
    for batch in (1, 16, 128):
        cost = pool(speculative=drafts, model=target, fleet=alone).cost
        asked = Batch(batch, batch * 1000)
        kernels = sum(float(operator.seconds) for operator in cost.pass_operators(asked))
        whole = cost.seconds(asked)
        assert 0.7 * whole < kernels <= whole * 1.02, (batch, kernels, whole)


def test_a_summary_counts_drafts_as_the_engine_does() -> None:
    drafts = {"method": "eagle", "num_tokens": 3, "acceptance": {"rates": [0.8, 0.6, 0.4]}}
    result = sim.simulate(scenario(speculative=drafts))
    own = result.summary["infersim"]["speculation"]
    assert own["draft_tokens"] == 3 * own["drafts"]
    assert own["acceptance_length"] == pytest.approx(2.8, rel=0.05)
    assert own["acceptance_length"] == 1 + own["accepted_tokens"] / own["drafts"]
    rows, series = result.requests, result.timeseries
    decoded = int(rows["generated_tokens"].sum()) - len(rows)
    assert series["decode_tokens"].sum() == decoded
    cut = own["accepted_tokens"] + own["drafts"] - decoded
    assert 0 <= cut <= 3 * len(rows)
    tpot = (rows["e2el_s"] - rows["ttft_s"]) / (rows["output_tokens"] - 1)
    assert rows["tpot_s"].to_numpy() == pytest.approx(tpot.to_numpy())
    assert result.summary["mean_itl_ms"] > 2 * result.summary["mean_tpot_ms"]
    assert "speculation" not in sim.simulate(scenario()).summary["infersim"]


def test_a_drafter_takes_memory() -> None:
    plain = pool().capacity
    for method, weights, token in (
        ("ngram", 0, 0),
        # a layer of 218,112,000 parameters, a product of 4,096 x 12,288, a head of 32,000 x 4,096
        # and a second input of 4,096 x 6,144; a final norm
        ("eagle", 2 * (218_112_000 + 3 * 4096**2 + 32_000 * 4096 + 4096 * 6144 + 4096), 4096),
    ):
        given = {"method": method, "num_tokens": 3, "acceptance_rate": 0.5}
        found = pool(speculative=given).capacity
        assert found.weights - plain.weights == pytest.approx(weights, rel=1e-3)
        assert found.kv_bytes_per_token - plain.kv_bytes_per_token == token


def test_another_fleet_meets_the_same_draws() -> None:
    """One after the other, every answer takes the same iterations wherever it is computed."""
    drafts = {"method": "ngram", "num_tokens": 3, "acceptance_rate": 0.6}
    alone = {"arrivals": {"kind": "closed", "concurrency": 1}}
    ratios = []
    for gpu in ("h100-sxm", "l40s"):
        asked = scenario(fleet={"gpu": gpu}, speculative=drafts).override(
            {"workload.arrivals": alone["arrivals"]}
        )
        series = sim.simulate(asked).timeseries
        decoding = series[series["decode_seqs"] > 0]
        ratios.append((decoding["iterations"].sum(), decoding["accepted_tokens"].sum()))
    assert ratios[0] == ratios[1]


def test_the_command_drafts_too() -> None:
    drafts = {"method": "eagle", "num_tokens": 3, "acceptance_rate": 0.6}
    words = launch_commands(scenario(speculative=drafts))["vllm"]
    told = json.loads(words.split("--speculative-config ")[1].strip("'"))
    assert told == {"method": "eagle3", "num_speculative_tokens": 3, "model": "EAGLE3_HEAD"}


def test_real_engines_refuse_drafts_that_are_drawn() -> None:
    drafts = {"method": "ngram", "num_tokens": 2, "acceptance_rate": 0.5}
    setup = prepare(scenario(speculative=drafts))
    with pytest.raises(UsageError, match="only the reference engine drafts tokens"):
        refuse([no_drafts(setup)])
    refuse([no_drafts(prepare(scenario()))])


def test_mtp_needs_a_model_that_was_published_with_such_a_layer(tmp_path: Path) -> None:
    drafts = {"method": "mtp", "num_tokens": 1, "acceptance_rate": 0.5}
    with pytest.raises(UsageError, match=r"llama-3\.1-8b is not known to have been published with"):
        pool(speculative=drafts)
    config = llama()
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(config | {"num_nextn_predict_layers": 0}))
    with pytest.raises(UsageError, match="tiny is not known to have been published"):
        pool(speculative=drafts, model=str(path), max_model_len=512)
    path.write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
    found = pool(speculative=drafts, model=str(path), max_model_len=512)
    assert found.deployment.model.mtp_layers == 1


def fit(*words: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["fit", *words, "--json"])
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_what_drafts_is_in_memory_in_every_layout() -> None:
    words = ("llama-3.1-70b", "--gpu", "h100-sxm", "--tensor-parallel", "4")
    alone, drafted = fit(*words), fit(*words, "--drafter", "llama-3.2-1b")
    own = drafted["drafter"]
    assert own["kv_bytes_per_token"] == 2 * 16 * 2 * 64 * 2  # K and V, 16 layers, 2 of 8 heads
    assert drafted["weight_bytes"] == alone["weight_bytes"] + own["weight_bytes"]
    assert drafted["kv_bytes_per_token"] == alone["kv_bytes_per_token"] + 8192
    assert own["weight_bytes"] == pytest.approx(1_235_814_400 * 2 / 4, rel=0.001)
    for row, plain in zip(drafted["layouts"], alone["layouts"], strict=True):
        more = row["weight_bytes"] - plain["weight_bytes"]
        assert more == pytest.approx(1_235_814_400 * 2 / row["tensor_parallel"], rel=0.001)
    assert "drafter" not in alone


BY_BATCH = {
    "method": "eagle",
    "num_tokens": 4,
    "acceptance_rate": 0.7,
    "num_tokens_per_batch_size": [[1, 1, 4], [3, 4, 2], [5, 8, 0]],
}


def test_the_number_of_drafts_follows_the_batch_one_iteration_later() -> None:
    """Two requests come at once, all drafts right, one draft for two requests and four for one.
    When the shorter answer is complete, the next iteration still checks the one draft of the other
    that was made before."""
    given = BY_BATCH | {"acceptance_rate": 1, "num_tokens_per_batch_size": [[1, 1, 4], [2, 9, 1]]}
    lengths = {"prompt_tokens": {"kind": "fixed", "value": 100}}
    asked = scenario(
        speculative=given,
        workload=lengths
        | {
            "arrivals": {"kind": "burst"},
            "output_tokens": {"kind": "uniform", "low": 9, "high": 90},
        },
        run={"requests": 2, "warmup": 0},
        seed=4,
    )
    result = sim.simulate(asked)
    series, short = result.timeseries, int(result.requests["output_tokens"].min())
    assert short + 20 < int(result.requests["output_tokens"].max())
    assert series["decode_seqs"].tolist()[0] == 0
    decoding = series[series["decode_seqs"] > 0]
    # two tokens an iteration for both; the first alone still has one draft
    together = -(-(short - 1) // 2)
    assert int(decoding["iterations"][decoding["decode_seqs"] == 2].sum()) == together
    alone = decoding[decoding["decode_seqs"] == 1]
    assert alone["drafts_per_sequence"].tolist()[0] == 1
    assert int(alone["iterations"].iloc[0]) == 1
    assert set(alone["drafts_per_sequence"].tolist()[1:]) == {4}
    longest = int(result.requests["output_tokens"].max())
    left = longest - 1 - 2 * together - 2
    assert int(alone["iterations"].sum()) == 1 + -(-left // 5)


def test_a_table_is_told_and_its_times_are_those_of_its_drafts() -> None:
    asked = scenario(speculative=BY_BATCH, scheduler={"max_num_seqs": 8})
    result = sim.simulate(asked.override({"workload.arrivals.concurrency": 6}))
    own = result.summary["infersim"]["speculation"]
    series = result.timeseries[result.timeseries["decode_seqs"] > 0]
    for each in own["by_drafts"]:
        mine = series[series["drafts_per_sequence"] == each["drafts"]]
        assert each["iterations"] == mine["iterations"].sum()
    assert {each["drafts"] for each in own["by_drafts"]} == {4, 2, 0}
    checked = series["iterations"] * series["decode_seqs"] * series["drafts_per_sequence"]
    assert own["draft_tokens"] == checked.sum()
    (note,) = [note for note in result.summary["infersim"]["notes"] if "by iterations: 4" in note]
    assert "0 in " in note
    table = pool(speculative=BY_BATCH, scheduler={"max_num_seqs": 8}).cost
    for running, drafts in ((1, 4), (2, 4), (3, 2), (8, 0)):
        fixed = dict(BY_BATCH, num_tokens=drafts)
        del fixed["num_tokens_per_batch_size"]
        batch = Batch(running, running * 700)
        assert table.seconds(batch) == table.under(PassConditions(drafts=(drafts, drafts))).seconds(
            batch
        )
        if drafts:
            assert table.seconds(batch) == pool(speculative=fixed).cost.seconds(batch)
    # nothing is checked, but the drafter keeps up with the target
    alone = pool().cost.seconds(Batch(8, 5600))
    assert alone < table.seconds(Batch(8, 5600)) < 1.2 * alone


def test_the_best_table_makes_no_batch_slower_than_any_fixed_number() -> None:
    given = {"method": "eagle", "num_tokens": 4, "acceptance_rate": 0.6}
    best = pool(speculative=given | {"num_tokens_per_batch_size": "best"}).deployment.speculation
    assert best is not None
    assert best.by_batch[0] == max(best.by_batch)
    assert best.by_batch[-1] < best.by_batch[0]
    cost = pool(speculative=given).cost
    for running in (1, 16, 256):
        batch = Batch(running, running * 8192)
        rates = [
            best.length_of(k) / cost.under(PassConditions(drafts=(k, k))).seconds(batch)
            for k in range(5)
        ]
        assert best.drafts(running) == rates.index(max(rates))


def test_the_command_has_the_table() -> None:
    words = launch_commands(scenario(speculative=BY_BATCH, scheduler={"max_num_seqs": 8}))["vllm"]
    told = json.loads(words.split("--speculative-config ")[1].strip("'"))
    assert told["num_speculative_tokens_per_batch_size"] == [[1, 2, 4], [3, 4, 2], [5, 8, 0]]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ([[2, 4, 1]], "begin at 1"),
        ([[1, 4, 1], [4, 8, 0]], "after 4 requests"),
        ([[1, 4, 5]], "more than num_tokens"),
        ("fast", "expected best, or ranges"),
    ],
)
def test_a_table_that_is_none_is_refused(table: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        scenario(speculative=BY_BATCH | {"num_tokens_per_batch_size": table})


@pytest.mark.parametrize(
    ("model", "method", "table", "words"),
    [
        ("deepseek-r1", "mtp", "deepseek-r1-mtp", ""),
        ("deepseek-v3", "mtp", "deepseek-r1-mtp", "was published for deepseek-r1"),
        ("kimi-k2.5", "mtp", "kimi-k2.5-eagle3", "with drafts by eagle"),
        ("kimi-k2.5", "eagle", "kimi-k2.5-eagle3", ""),
    ],
)
def test_acceptance_of_another_model_or_of_other_drafts_is_named(
    model: str, method: str, table: str, words: str
) -> None:
    drafts = {"method": method, "num_tokens": 2, "acceptance": {"table": table}}
    settings = SimpleNamespace(speculative=Speculative.model_validate(drafts))
    deployment = SimpleNamespace(model=SimpleNamespace(name=model))
    note = borrowed_note(
        cast(PreparedPool, SimpleNamespace(settings=settings, deployment=deployment))
    )
    assert (note is None) == (not words)
    assert words in (note or "")
