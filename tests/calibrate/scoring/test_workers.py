"""Rows in which prefill and decode have workers of their own, whose numbers may be left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from calibrate.published_names import Unrepresentable
from calibrate.scoring.clients import KEPT, plausible
from calibrate.scoring.conditions import Conditions, conditions
from calibrate.scoring.predict import Predicted, case, run
from calibrate.scoring.presets import engine_name
from calibrate.scoring.table import Row
from calibrate.scoring.twins import marked
from sim.scenario import load_scenario
from tests.calibrate.scoring.test_scoring import row

TWO_SIDES = {"tp": "P0x(tp1 dp1 etp1 ep1) D0x(tp2 dp1 etp2 ep1)", "n_gpus": "5"}
UNSTATED = {
    "engine": "trtllm",
    "gpu": "H200-SXM-141GB",
    "n_gpus": "",
    "tp": "P0x(tp8 dp1 etp1 ep8) D0x(tp8 dp1 etp1 ep8)",
    "model": "deepseek-ai/DeepSeek-R1",
    "isl": "1024",
    "osl": "1024",
}


def known(**changes: str) -> Conditions:
    return conditions(row(**changes))


def splits(**changes: str) -> list[str]:
    apart = known(**changes).apart
    assert apart is not None
    return [split.name for split in apart.plausible]


def test_numbers_that_use_all_gpus() -> None:
    """Five GPUs: one and two of two, or three and one of two; the more even split comes first."""
    assert splits(**TWO_SIDES) == ["1P2D", "3P1D"]
    assert splits(**TWO_SIDES | {"tp": "P3x(tp1) D0x(tp2)"}) == ["3P1D"]
    assert splits(**TWO_SIDES | {"tp": "P3x(tp1) D4x(tp2)"}) == ["3P4D"]  # stated: taken as it is


def test_numbers_that_the_concurrency_fits() -> None:
    """The published batch of each decoding worker times their number: 9 x 4, 7 x 512, 6 x 256,
    7 x 1 and two more; those without drafts first. What none is made for may be any of them."""
    assert splits(**UNSTATED, batch_or_concurrency="36") == ["1P9D"]
    assert splits(**UNSTATED, batch_or_concurrency="3584") == ["2P7D"]
    assert splits(**UNSTATED, batch_or_concurrency="1536") == ["1P6D"]
    long = UNSTATED | {"isl": "8192"}
    assert splits(**long, batch_or_concurrency="9") == ["1P7D", "1P7D, 3 tokens drafted"]
    assert splits(**UNSTATED, batch_or_concurrency="44") == ["1P11D, 3 tokens drafted"]
    assert len(splits(**UNSTATED, batch_or_concurrency="257")) == 18
    assert splits(**UNSTATED | {"engine": "sglang"})[0] == "1P9D"
    assert splits(**UNSTATED | {"engine": "vllm"})[0] == "1P1D"  # nothing is published of it


def test_large_batches_split_attention_by_requests() -> None:
    """Whatever the row states: 128 requests of a worker, not 16. Prompts always do, where they
    are short."""
    few, many = (known(**UNSTATED, batch_or_concurrency=size) for size in ("144", "1152"))
    decode = [each.document["fleet"][1] for each in (few, many)]
    assert [pool["data_parallel"] for pool in decode] == [1, 8]
    assert [pool["tensor_parallel"] for pool in decode] == [8, 1]
    assert [each.gpus for each in (few, many)] == [80, 80]
    prefill = [each.document["fleet"][0]["data_parallel"] for each in (few, many)]
    assert prefill == [8, 8]
    assert any("prefill and decode is split by requests" in each for each in many.assumed)
    assert any("attention of prefill is split by requests" in each for each in few.assumed)
    long = known(**UNSTATED | {"isl": "8192"}, batch_or_concurrency="128")
    assert [pool["data_parallel"] for pool in long.document["fleet"]] == [1, 8]


def test_configurations_that_are_published_for_many_numbers_of_clients() -> None:
    """SGLang's: fewer workers for more clients; a row whose experts are spread is of those that
    split attention by requests, as is one that no other configuration is made for."""
    ours = UNSTATED | {"engine": "sglang", "tp": "P0x(tp8 dp1 etp8 ep1) D0x(tp8 dp1 etp8 ep1)"}
    assert splits(**ours, batch_or_concurrency="256")[0] == "1P9D"
    assert splits(**ours, batch_or_concurrency="1024")[0] == "1P6D"
    whole, spread = (
        known(**ours | tp, batch_or_concurrency="512") for tp in ({}, {"tp": UNSTATED["tp"]})
    )
    assert [each.document["fleet"][1]["data_parallel"] for each in (whole, spread)] == [1, 8]
    long = known(**ours | {"isl": "8192"}, batch_or_concurrency="512").document["fleet"]
    assert [(pool["data_parallel"], pool["expert_parallel"]) for pool in long] == [(1, 1), (8, 8)]


def test_passes_of_prefill_are_those_published() -> None:
    """Two prompts of 8,192 tokens at once; of an engine of which nothing is said, as always."""
    long = known(**UNSTATED | {"isl": "8192"}, batch_or_concurrency="28").document
    prefill, decode = (pool.get("scheduler") for pool in long["fleet"])
    assert (prefill["max_num_seqs"], prefill["max_num_batched_tokens"]) == (2, 16640)
    assert decode is None
    load_scenario(long)
    other = known(**UNSTATED | {"engine": "sglang"}).document["fleet"][0]
    assert "scheduler" not in other


def test_a_batch_of_one_is_one_slot() -> None:
    """Eleven clients of nine workers: two wait until an answer has ended, some tenths of a second
    instead of none."""
    found = known(**UNSTATED, batch_or_concurrency="11").document
    assert found["fleet"][1]["scheduler"]["max_num_seqs"] == 1
    drafted = known(**UNSTATED, batch_or_concurrency="13").document
    assert drafted["fleet"][1]["scheduler"]["policy"] == "vllm"  # plans that drafts need
    load_scenario(drafted)
    assert "scheduler" not in known(**UNSTATED, batch_or_concurrency="36").document["fleet"][1]


def test_the_cache_of_these_workers_is_in_fp8() -> None:
    apart = {"arrival": "closed loop, prefill/decode disaggregated"}
    apart |= {"source_path": "silicon_sample.csv"}
    assert known(**UNSTATED | apart).document["precision"]["kv_cache"] == "fp8"
    sglang = known(**UNSTATED | apart | {"engine": "sglang"})
    assert sglang.document["precision"]["kv_cache"] == "bf16"


def test_drafts_are_those_of_the_split() -> None:
    drafted = known(**UNSTATED, batch_or_concurrency="44").document
    table = {"table": "deepseek-r1-mtp"}
    assert drafted["speculative"] == {"method": "mtp", "num_tokens": 3, "acceptance": table}
    assert drafted["scheduler"]["policy"] == "vllm"
    assert load_scenario(drafted).pools[1].speculative is not None
    plain = known(**UNSTATED, batch_or_concurrency="36").document
    assert "speculative" not in plain
    other = UNSTATED | {"model": "meta-llama/Llama-3.1-70B"}
    with pytest.raises(Unrepresentable, match="what is accepted of drafts"):
        known(**other, batch_or_concurrency="44")


def record(line: int, token_time: str, **changes: str) -> list[Row]:
    """The rows of one run, whose first stands in ``line``."""
    cells = UNSTATED | {"isl": "8192", "batch_or_concurrency": "9"} | changes
    first = row(**cells, metric="ttft_mean", value="900")
    second = row(**cells, metric="tpot_mean", value=token_time)
    return [replace(first, line=line), replace(second, line=line + 1)]


def test_the_slowest_of_one_condition_has_no_drafts() -> None:
    """11 ms against 5.6: 11.5 is the 11 of another release. Their first rows go with them."""
    runs = [*record(2, "11.0"), *record(4, "5.6"), *record(6, "11.5")]
    found = [conditions(each, outcomes=True).apart for each in marked(runs)]
    assert [each.split.drafts for each in found if each] == [0, 0, 3, 3, 0, 0]
    assert all(len(each.plausible) == 1 for each in found if each)


def test_of_runs_that_all_draft_the_slowest_has_the_largest_batches() -> None:
    cells = {"isl": "1024", "batch_or_concurrency": "1024"}
    runs = marked([*record(2, "32", **cells), *record(4, "24", **cells)])
    found = [conditions(each, outcomes=True).apart for each in runs]
    assert [each.split.decode for each in found if each] == [2, 2, 4, 4]


def test_runs_of_one_setting_are_left_alone() -> None:
    """As far apart as releases are; of different conditions; of servers that are not apart."""
    alike = [*record(2, "11.0"), *record(4, "10.0"), *record(6, "5.6", batch_or_concurrency="28")]
    assert marked(alike) == alike
    whole = [*record(2, "11.0", tp="8"), *record(4, "5.6", tp="8")]
    assert marked(whole) == whole


def test_the_version_is_that_of_the_framework_around_the_workers() -> None:
    """TensorRT-LLM 0.8 is older than the model and than workers of two roles."""
    apart = known(**UNSTATED, batch_or_concurrency="36", engine_version="0.8.1.post1")
    assert engine_name(apart.engine) == "tensorrt-llm"
    assert engine_name(known(engine="trtllm", engine_version="0.8.1").engine) == "tensorrt-llm-0.9"


def test_one_pool_for_each_phase() -> None:
    prefill, decode = known(**TWO_SIDES).document["fleet"]
    assert [prefill[key] for key in ("role", "replicas", "tensor_parallel")] == ["prefill", 1, 1]
    assert [decode[key] for key in ("role", "replicas", "tensor_parallel")] == ["decode", 2, 2]
    experts = known(**UNSTATED, batch_or_concurrency="36").document["fleet"]
    assert [(pool["replicas"], pool["expert_parallel"]) for pool in experts] == [(1, 8), (9, 8)]


def test_every_plausible_split_is_shown() -> None:
    found = plausible(known(**TWO_SIDES))
    assert list(found) == ["1P2D", "3P1D"]
    assert [each.gpus for each in found.values()] == [5, 5]
    opened = plausible(known(**TWO_SIDES, n_requests="", notes="client not described"))
    assert (next(iter(opened)), list(opened)[-1]) == (KEPT, "3P1D")


def test_what_is_assumed_is_said() -> None:
    assert any("1P2D" in remark for remark in known(**TWO_SIDES).assumed)
    assert any("no token is drafted" in remark for remark in known(**TWO_SIDES).assumed)


def test_more_workers_that_decode_shorten_token_times() -> None:
    small = {"model": "Llama-3.1-8B", "batch_or_concurrency": "16", "n_requests": "32"}
    found = [
        run(known(**small, **TWO_SIDES | {"tp": f"P1x(tp1) D{workers}x(tp1)"}))
        for workers in (1, 4)
    ]
    one, four = (each.figures["mean_tpot_ms"] for each in found if isinstance(each, Predicted))
    assert one is not None
    assert four is not None
    assert four < one


@pytest.mark.parametrize("tp", ["P1x(tp2 pp2) D1x(tp2)", "P1x(tp8 etp2 ep2) D1x(tp8)"])
def test_layouts_that_are_not_simulated(tp: str) -> None:
    assert "are not simulated" in case(row(tp=tp, n_gpus="")).reason
