"""Settings that a prediction leaves open are tried before any kernel is blamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from calibrate.validation.document import Validation
from calibrate.validation.observed import read_observed
from calibrate.validation.prediction import question
from sim.cli import app
from sim.commands.observe_records import bring_in

NO_PEERS = {"kind": "pcie", "peer_to_peer": False}
TRUTH: dict[str, Any] = {
    "model": "qwen3-8b",
    "engine": "vllm@0.18",
    "fleet": [{"gpu": "rtx-pro-6000", "tensor_parallel": 2}],
    "scheduler": {"max_num_batched_tokens": 2048, "max_num_seqs": 64},
    "max_model_len": 4096,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 4.0},
        "prompt_tokens": {"kind": "uniform", "low": 100, "high": 900},
        "output_tokens": {"kind": "uniform", "low": 20, "high": 200},
    },
    "run": {"requests": 80, "warmup": 0},
}


def observed(folder: Path, *unstated: str, gpu: str = "", **truth: Any) -> Path:
    """The directory of a log of a server that is as ``truth`` says, where that differs from
    ``TRUTH``; the log says nothing of links, nor of the settings that are ``unstated``."""
    result = sim.simulate(sim.load_scenario(TRUTH).override(truth))
    front = result.record.front_end
    place = folder / "log"
    place.mkdir()
    rows = [
        {
            "input_toks": int(row.prompt_tokens),
            "output_toks": int(row.output_tokens),
            "queued_ts": row.arrival_s + front,
            "scheduled_ts": row.scheduled_s,
            "first_token_ts": row.first_token_s,
            "last_token_ts": row.finish_s,
        }
        for row in result.requests.itertuples()
    ]
    (place / "requests.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    started = {
        "tensor_parallel_size": 2,
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 64,
        "max_model_len": 4096,
    }
    meta = {
        "model": "Qwen/Qwen3-8B",
        "vllm_version": "0.19.0",
        "engine_kwargs": {name: each for name, each in started.items() if name not in unstated},
        "hardware": {"device_name": gpu or "NVIDIA RTX PRO 6000 Blackwell Server Edition"},
    }
    (place / "meta.json").write_text(json.dumps(meta))
    _, made = bring_in("log", place, folder / "run")
    return made


def validated(folder: Path, *overrides: str) -> Validation:
    run = read_observed(folder)
    return Validation(run, [], question(run, None, list(overrides), None))


def test_an_open_link_is_tried_before_kernels_are_blamed(tmp_path: Path) -> None:
    made = observed(tmp_path, **{"fleet.0.link": NO_PEERS})
    validation = validated(made)
    assert validation.advice.before > 0.1
    (setting,) = [each for each in validation.advice.tried if each.explains]
    assert setting.settings == {"fleet.0.link": NO_PEERS}
    assert setting.left < 0.2 * validation.advice.before
    first, *others = validation.document["advice"]["changes"]
    assert (first["cause"], first["title"]) == (
        "setting",
        "fleet.0.link={kind: pcie, peer_to_peer: false}",
    )
    assert "of 19 metrics are in their bands" in first["text"]
    assert not [each for each in others if each["share"] > 0]
    stated = validated(made, *setting.options)
    assert stated.advice.quiet
    assert not stated.advice.tried


def test_it_is_written_as_a_setting_and_not_as_an_engine(tmp_path: Path) -> None:
    made = observed(tmp_path, **{"fleet.0.link": NO_PEERS})
    page = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["validate-run", str(made), "-o", str(page), "--json"])
    assert done.exit_code == 0, done.output
    correction = json.loads(done.stdout)["correction"]
    assert correction["engine"] is None
    assert correction["settings"] == ["fleet.0.link={kind: pcie, peer_to_peer: false}"]
    assert not list(tmp_path.glob("*engine*"))
    assert "peer_to_peer: false" in page.read_text("utf-8")
    for command in correction["commands"]:
        assert "'fleet.0.link={kind: pcie, peer_to_peer: false}'" in command


def test_a_setting_that_explains_nothing_is_named_and_kernels_are_corrected(tmp_path: Path) -> None:
    made = observed(tmp_path, **{"fleet.0.link": {**NO_PEERS, "peer_to_peer": True},
                                 "assume.kernel_time": 0.6})  # fmt: skip
    validation = validated(made)
    assert validation.advice.setting is None
    assert validation.advice.tried
    assert validation.document["advice"]["changes"][0]["cause"] != "setting"
    told = [note for note in validation.document["notes"] if note.startswith("Left open and tried")]
    assert len(told) == len(validation.advice.tried)
    assert "fleet.0.link={kind: pcie, peer_to_peer: false}" in told[0]


def test_limits_that_are_not_stated_are_those_that_the_engine_chooses(tmp_path: Path) -> None:
    """vLLM takes 2,048 tokens a pass on a card of less than 70 GiB."""
    unstated = ("max_num_batched_tokens", "tensor_parallel_size")
    alone = [{"gpu": "l40s"}]
    made = observed(
        tmp_path, *unstated, gpu="NVIDIA L40S", fleet=alone,
        **{"scheduler.max_num_batched_tokens": 256, "workload.arrivals": {"kind": "burst"}},
    )  # fmt: skip
    assert sim.load_scenario(made / "scenario.yaml").scheduler.max_num_batched_tokens == 2048
    assert not validated(made).advice.tried


@pytest.mark.parametrize("stated", [None, True, False])
def test_a_prefix_cache_of_which_nothing_is_said_is_tried(
    tmp_path: Path, stated: bool | None
) -> None:
    result = {
        "model_id": "Qwen/Qwen3-8B",
        "completed": 100,
        "request_rate": 4.0,
        "duration": 25.0,
        "total_input_tokens": 80_000,
        "total_output_tokens": 10_000,
        "mean_ttft_ms": 20.0,
        "mean_tpot_ms": 30.0,
    }
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    overrides = ["workload.shared_prefix={tokens: 700, groups: 2}"]
    if stated is not None:
        overrides.append(f"kv_cache.enable_prefix_caching={str(stated).lower()}")
    _, made = bring_in("vllm-bench", path, tmp_path / "run", gpu="h100-sxm", overrides=overrides)
    tried = [dict(each.settings) for each in validated(made).advice.tried]
    assert ({"kv_cache.enable_prefix_caching": False} in tried) == (stated is None)
    assert not any(each == {"kv_cache.enable_prefix_caching": True} for each in tried)
    assert any("workload.prompt_tokens" in each for each in tried)  # of which the mean is known
