"""Notes on an engine: a release that is not known, and rules that stand in for its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

import sim
from calibrate.validation.engine_file import inherited
from sim import catalog
from sim.cli import app
from sim.errors import UsageError
from sim.simulation import simulate
from tests.planning_fixtures import small

SCENARIO: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "l40s"},
    "max_model_len": 1024,
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": {"kind": "fixed", "value": 64},
        "output_tokens": {"kind": "fixed", "value": 8},
    },
    "run": {"requests": 20},
}
NEWER = "vLLM 0.99 is newer than 0.33, the newest release that is known here: it is taken for that"


def notes(**changes: Any) -> list[str]:
    overrides = {key.replace("__", "."): value for key, value in changes.items()}
    own = sim.simulate(sim.load_scenario(SCENARIO, overrides)).summary["infersim"]
    return [note for note in own["notes"] if "is newer than" in note]


@pytest.mark.parametrize(
    ("gpu", "tokens", "seqs"),
    [
        ("h100-sxm", 8192, 1024),
        ("h200-sxm", 8192, 1024),
        ("b200-sxm", 16384, 1024),
        ("rtx-pro-6000", 8192, 1024),
        ("a100-sxm-80gb", 2048, 256),
        ("a100-pcie", 2048, 256),
        ("l40s", 2048, 256),
        ("rtx-4090", 2048, 256),
    ],
)
def test_the_catalogue_has_the_choice_of_vllm_for_each_gpu(
    gpu: str, tokens: int, seqs: int
) -> None:
    spec = catalog.gpu(gpu)
    own = catalog.engine("vllm").defaults_on(spec.title, spec.memory)
    assert own["scheduler.max_num_batched_tokens"] == tokens
    assert own["scheduler.max_num_seqs"] == seqs


def test_the_choice_of_the_engine_is_what_is_simulated() -> None:
    def requests(*changes: str) -> pd.DataFrame:
        asked = ["run.requests=60", *changes]  # 3,840 tokens at once
        return sim.simulate(sim.load_scenario(SCENARIO, asked)).requests

    assert requests().equals(requests("scheduler.max_num_batched_tokens=2048"))
    assert not requests().equals(requests("scheduler.max_num_batched_tokens=8192"))


def test_a_release_that_is_newer_than_all_known_is_noted() -> None:
    (note,) = notes(engine="vllm@0.99")
    assert note.startswith(NEWER)
    for engine in ("vllm", "vllm@0.33", "vllm@0.33.2", "vllm@0.8", "sglang", "ideal"):
        assert notes(engine=engine) == []


def test_plan_notes_it_of_the_fleets_that_it_ranks() -> None:
    chat = {
        **SCENARIO,
        "engine": "vllm@0.99",
        "workload": {**SCENARIO["workload"], "arrivals": {"kind": "poisson", "rate": 5}},
        "slo": {"ttft": "1s", "tpot": "60ms", "attainment": 0.9},
    }
    answer = sim.plan(chat, ["l40s"], tensor_parallel=[1], top=1, jobs=1)
    assert any(note.startswith(NEWER) for note in answer["fleets"][0]["notes"])
    assert NEWER in " ".join(str(answer).split())


def test_a_preset_of_ones_own_may_have_choices_and_is_checked(tmp_path: Path) -> None:
    text = (Path(catalog.__file__).parent / "engines" / "vllm.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text)
    assert catalog.engine(tmp_path / "mine.yaml").defaults == catalog.engine("vllm").defaults
    (tmp_path / "bad.yaml").write_text(text.replace("max_num_seqs: 1024", "max_seqs: 1024"))
    with pytest.raises(UsageError, match=r"defaults\.1\.set\.scheduler\.max_seqs: unknown key"):
        catalog.engine(tmp_path / "bad.yaml")


def test_a_recorded_run_of_a_newer_release_has_the_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = sim.simulate(SCENARIO).save(tmp_path / "run")
    commands = [
        f"export {made} --to vllm-bench --output bench.json",
        "observe bench.json --from vllm-bench --gpu l40s --set model=llama-3.1-8b "
        "--set engine=vllm@0.99 --no-report --json -o observed",
    ]
    for command in commands:
        done = CliRunner().invoke(app, command.split())
        assert done.exit_code == 0, done.stderr
    found = json.loads((tmp_path / "observed" / "summary.json").read_text())["infersim"]
    assert found["kind"] == "observed"
    assert any(note.startswith(NEWER) for note in found["notes"])


def test_a_preset_that_takes_over_another_one_keeps_its_choices(tmp_path: Path) -> None:
    vllm = catalog.engine("vllm")
    document = inherited({"title": "Mine"}, vllm)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(document))
    assert catalog.engine(tmp_path / "mine.yaml").defaults == vllm.defaults


@pytest.mark.parametrize(
    ("longest", "said"),
    [
        (4096, "max_model_len, 4,096, and"),
        (None, "max_model_len, taken as the model's own 131,072,"),
    ],
)
def test_a_length_that_is_not_given_is_said_to_be_the_models_own(
    longest: int | None, said: str
) -> None:
    whole = {"scheduler__chunked_prefill": False, "scheduler__max_num_batched_tokens": 2048}
    result = simulate(small(max_model_len=longest, run__requests=5, **whole))
    notes = result.summary["infersim"]["notes"]
    assert any(f"of at least {said}" in note for note in notes)


@pytest.mark.parametrize(
    ("engine", "cache", "stands_in"),
    [
        ("sglang", {}, False),
        ("sglang", {"enable_prefix_caching": True, "host_memory": "20GiB"}, True),
        ("tensorrt-llm", {}, False),
        ("tensorrt-llm", {"enable_prefix_caching": True}, True),
        ("vllm", {"enable_prefix_caching": True}, False),
    ],
)
def test_a_run_says_when_vllms_rule_stands_in_for_an_engines_own(
    engine: str, cache: dict[str, Any], stands_in: bool
) -> None:
    result = simulate(small(engine=engine, kv_cache=cache, run__requests=20))
    notes = result.summary["infersim"]["notes"]
    assert any("this run follows vLLM's rule" in note for note in notes) == stands_in
