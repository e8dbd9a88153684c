"""The form's fields as a scenario, and a scenario's errors as words next to a field."""

import re
import shlex
from pathlib import Path
from typing import Any, get_args

import pytest

from sim.catalog import gpu, names
from sim.commands.ui import draw
from sim.errors import UsageError
from sim.planning.fleet.layouts import layouts
from sim.result import simulate
from sim.scenario import load_scenario
from sim.scenario.sections.deployment import PrecisionName
from sim.specs.precision import GGUF
from sim.ui.answer import steps
from sim.ui.job import Job
from sim.ui.question import (
    FIELDS,
    LISTS,
    cheapest_command,
    command,
    helps,
    plan_command,
    read,
    scenario_of,
    shown_yaml,
)

ASKED: list[dict[str, str]] = [
    {},
    {"arrivals": "closed", "concurrency": "8", "prompt_p95": "", "ttft": "", "tpot": ""},
    {"arrivals": "gamma", "cv": "3", "replicas": "2", "weights": "fp8", "kv_cache": "fp8"},
    {"arrivals": "burst", "batching": "static", "max_num_seqs": "16", "requests": "50"},
    {"chunk": "4096", "max_model_len": "4096", "percentile": "95", "engine": "sglang"},
]


@pytest.mark.parametrize("asked", ASKED)
def test_the_command_and_the_file_ask_what_the_form_asks(
    asked: dict[str, str], tmp_path: Path
) -> None:
    given = scenario_of(read(asked))
    loaded = load_scenario(given)
    file = tmp_path / "asked.yaml"
    file.write_text(shown_yaml(given))
    assert load_scenario(file).to_yaml() == loaded.to_yaml()
    words = shlex.split(command(given))
    assert words[:3] == ["infersim", "run", "chat"]
    assert set(words[3::2]) == {"--set"}
    assert load_scenario(words[2], words[4::2]).to_yaml() == loaded.to_yaml()


def test_the_plan_asks_for_as_many_of_the_same_replicas() -> None:
    given = scenario_of(read({"gpu": "l40s", "tensor_parallel": "2"}))
    words = shlex.split(plan_command(given))
    assert words[:7] == ["infersim", "plan", "chat", "--gpus", "l40s", "--tensor-parallel", "2"]
    assert load_scenario(words[2], words[8::2]).to_yaml() == load_scenario(given).to_yaml()
    assert plan_command(scenario_of(read({"ttft": "", "tpot": ""}))) == ""


@pytest.mark.parametrize("name", [*get_args(PrecisionName), "bf16/mxfp4"])
def test_a_format_means_what_it_means_to_plan(name: str) -> None:
    """So the page and ``plan --precision`` predict the same times for the same word."""
    given = {"model": "gpt-oss-20b", "engine": "llama.cpp" if name in GGUF else "vllm"}
    asked = load_scenario(scenario_of(read(given | {"weights": name})))
    (layout,) = layouts(load_scenario(scenario_of(read(given))), ["h100-sxm"], [1], [name])
    planned = load_scenario(scenario_of(read(given))).override(layout.settings(asked))
    assert asked.precision == planned.precision
    assert (asked.precision.activations == "fp8") == (name in ("fp8", "fp8-block"))


def test_the_cheapest_card_is_sought_among_all_that_have_a_price() -> None:
    given = scenario_of(read({"gpu": "l40s", "tensor_parallel": "2"}))
    words = shlex.split(cheapest_command(given))
    assert words[:4] == ["infersim", "plan", "chat", "--gpus"]
    assert set(words[5::2]) == {"--set"}
    priced = {name for name in names("gpus") if gpu(name).price is not None}
    assert set(words[4].split(",")) == priced
    assert 10 < len(priced) < len(names("gpus"))
    assert cheapest_command(scenario_of(read({"ttft": "", "tpot": ""}))) == ""


def test_every_field_is_explained() -> None:
    told = helps()
    assert told.keys() == FIELDS.keys()
    assert "share each layer" in told["tensor_parallel"], "the meaning of the scenario's key"
    assert min(map(len, told.values())) > len("Users")


def test_every_field_becomes_its_key() -> None:
    asked = {
        **{"gpu": "l40s", "replicas": "2", "tensor_parallel": "4", "pipeline_parallel": "2"},
        **{"data_parallel": "3", "weights": "fp8", "kv_cache": "int8", "rate": "7.5"},
        **{"batching": "request", "max_num_seqs": "9", "chunk": "1024", "max_model_len": "2048"},
        **{"ttft": "2s", "tpot": "30", "percentile": "99.9", "requests": "300"},
    }
    made = scenario_of(read(asked))
    parallel = {"tensor_parallel": 4, "pipeline_parallel": 2, "data_parallel": 3}
    assert made["fleet"] == [{"gpu": "l40s", "replicas": 2} | parallel]
    formats = {"weights": "fp8", "activations": "fp8", "kv_cache": "int8"}
    assert made["precision"] == formats
    most = {"max_num_seqs": 9, "max_num_batched_tokens": 1024}
    assert made["scheduler"] == {"batching": "request"} | most
    assert made["workload"]["arrivals"] == {"kind": "poisson", "rate": 7.5}
    assert made["slo"] == {"ttft": "2s", "tpot": "30ms", "attainment": 0.999}
    assert (made["max_model_len"], made["run"]) == (2048, {"requests": 300})


def test_the_form_begins_with_the_scenario_of_its_command() -> None:
    """Whoever starts from the form gets the answer of ``infersim run chat``, of fewer requests."""
    alike = {"name": "asked", "description": "A question of infersim ui", "run.requests": 2000}
    assert load_scenario(scenario_of(read({}))).to_yaml() == load_scenario("chat", alike).to_yaml()


def test_a_length_may_have_no_limit() -> None:
    made = scenario_of(read({"prompt_max": "", "output_max": "900", "max_model_len": ""}))
    assert "max" not in made["workload"]["prompt_tokens"]
    assert made["workload"]["output_tokens"]["max"] == 900
    assert "max_model_len" not in made


def test_fields_that_do_not_count_are_left_out() -> None:
    closed = scenario_of(read({"arrivals": "closed"}))["workload"]["arrivals"]
    assert closed == {"kind": "closed", "concurrency": 32}
    traced = scenario_of(read({"trace": "0" * 16, "rate": "oops"}), Path("/kept/x.csv"))
    assert traced["workload"] == {"trace": {"path": "/kept/x.csv"}}
    assert "path: mine.csv" in shown_yaml(traced, "mine.csv")
    assert "/kept" not in command(traced, "mine.csv")


@pytest.mark.parametrize(
    ("asked", "field", "word"),
    [
        ({"model": "llama-9"}, "model", "did you mean"),
        ({"gpu": "h100x"}, "gpu", "did you mean 'h100-sxm'"),
        ({"replicas": "none"}, "replicas", "whole number"),
        ({"tensor_parallel": "3"}, "tensor_parallel", "attention heads"),
        ({"data_parallel": "2", "pipeline_parallel": "2"}, "gpu", "ranks"),
        ({"engine": "vlm"}, "engine", "did you mean 'vllm'"),
        ({"weights": "fp3"}, "weights", "such as fp32, fp8, fp16"),
        ({"max_num_seqs": "0"}, "max_num_seqs", "at least 1"),
        ({"chunk": "-1"}, "chunk", "at least 1"),
        ({"rate": "fast"}, "rate", "fast"),
        ({"prompt": "x", "prompt_p95": ""}, "prompt", "'x'"),
        ({"output_p95": "100"}, "output_p95", "not more than mean"),
        ({"prompt_max": "none"}, "prompt_max", "whole number"),
        ({"model": "llama-2-7b"}, "max_model_len", "4,096"),
        ({"ttft": "soon"}, "ttft", "not a time"),
        ({"percentile": "101"}, "percentile", "at most 100"),
        ({"requests": "2001"}, "requests", "at most 2,000"),
        ({"trace": "0" * 16}, "trace", "choose the file again"),
        ({"model": "llama-3.1-70b"}, "", "does not fit"),
    ],
)
def test_an_error_stands_next_to_its_field(asked: dict[str, str], field: str, word: str) -> None:
    asked = {"requests": "20"} | asked
    *_, last = steps(Job(read(asked)), lambda *_: {})
    assert list(last) == ["errors"]
    assert list(last["errors"]) == [field]
    assert word in last["errors"][field]


def test_an_error_of_a_trace_has_the_readers_name(tmp_path: Path) -> None:
    kept = tmp_path / "0.csv"
    kept.write_text("a,b\n1,2\n")
    *_, last = steps(Job(read({"trace": "0" * 16}), kept, "mine.csv"), lambda *_: {})
    assert list(last["errors"]) == ["trace"]
    assert last["errors"]["trace"].startswith("mine.csv")


@pytest.mark.parametrize("field", ["batching", "model", "gpu", "engine", "weights", "arrivals"])
def test_no_code_of_ones_own_is_run(field: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    mark = tmp_path / "ran"
    (tmp_path / "mine.py").write_text(f"open({str(mark)!r}, 'w')\nclass Mine: pass\n")
    for text in ("mine:Mine", "mine.py:Mine"):
        *_, last = steps(Job(read({field: text})), lambda *_: {})
        assert list(last) == ["errors"]
    assert not mark.exists()


@pytest.mark.parametrize("given", [None, [], {"metrics": "x:y"}, {"model": 3}, {"gpu": "x" * 401}])
def test_what_the_form_never_sends_is_refused(given: Any) -> None:
    with pytest.raises(UsageError):
        read(given)


def test_the_form_suggests_what_the_catalogue_has() -> None:
    assert list(LISTS["gpus"]) == names("gpus")
    assert {field.known or field.choices for field in FIELDS.values()} - {""} == LISTS.keys()


@pytest.mark.parametrize(
    "asked",
    [
        {"requests": "300"},
        {"rate": "30", "requests": "300"},
        {"rate": "40"},
        {"gpu": "l4", "rate": "2", "requests": "300"},
        {"model": "llama-3.3-70b", "gpu": "b200-sxm", "weights": "fp8", "percentile": "95"},
    ],
)
def test_the_headline_has_the_words_of_run(asked: dict[str, str]) -> None:
    """Without its advice to simulate more than the page can, and grey until it is known how sure
    they are."""
    first, last = steps(Job(read(asked)), draw)
    run = str(simulate(scenario_of(read(asked))))
    words, _, sure = last["said"].removesuffix(")").partition(" (")
    assert sure in ("sure", "likely", "a guess")
    slo = re.search(r"SLO [a-z ]+", words)
    assert slo is not None
    assert re.search(rf"^{slo[0]}[,:]", run, re.MULTILINE)
    assert "Simulate" not in last["html"]
    assert "tone-good" in last["html"]
    assert re.findall("tone-(?:good|warn|bad)", first["html"].partition('class="answers"')[0]) == []
