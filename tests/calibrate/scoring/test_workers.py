"""Rows in which prefill and decode have workers of their own, whose numbers may be left out."""

from __future__ import annotations

import pytest

from calibrate.scoring.clients import KEPT, plausible
from calibrate.scoring.conditions import Conditions, conditions
from calibrate.scoring.drivers import document, preset
from calibrate.scoring.predict import Predicted, case, run
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
    """A batch of a power of two for each worker of the published layouts, those without drafts."""
    assert splits(**UNSTATED, batch_or_concurrency="36") == ["1P9D"]
    assert splits(**UNSTATED, batch_or_concurrency="3584") == ["2P7D"]
    assert splits(**UNSTATED, batch_or_concurrency="256")[0] == "1P6D"  # listed for it
    assert splits(**UNSTATED | {"engine": "sglang"})[0] == "1P9D"
    drafted = case(row(**UNSTATED, batch_or_concurrency="44"))
    assert "drafts are not simulated" in drafted.reason
    assert "1P11D" in drafted.reason
    assert splits(**UNSTATED | {"engine": "vllm"})[0] == "1P1D"  # nothing is published of it


def test_the_version_is_that_of_the_framework_around_the_workers() -> None:
    """TensorRT-LLM 0.8 is older than the model and than workers of two roles."""
    apart = known(**UNSTATED, batch_or_concurrency="36", engine_version="0.8.1.post1")
    assert preset(apart) == "tensorrt-llm"
    assert preset(known(engine="trtllm", engine_version="0.8.1")) == "tensorrt-llm-0.9"


def test_one_pool_for_each_phase() -> None:
    prefill, decode = document(known(**TWO_SIDES))["fleet"]
    assert [prefill[key] for key in ("role", "replicas", "tensor_parallel")] == ["prefill", 1, 1]
    assert [decode[key] for key in ("role", "replicas", "tensor_parallel")] == ["decode", 2, 2]
    experts = document(known(**UNSTATED, batch_or_concurrency="36"))["fleet"]
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
