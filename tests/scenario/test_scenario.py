"""Scenarios that are right: defaults, units, overrides, and what survives a round trip."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim import catalog
from sim.errors import ScenarioError
from sim.scenario import Scenario, load_scenario
from sim.scenario.sections.run import Warmup
from sim.scenario.text.parsing import scalar

CHAT = """\
version: 1
name: chat
description: Chat assistant on one GPU. Does it hold our latency targets at 6 requests per second?
seed: 42
model: llama-3.1-8b                 # catalogue name, or a path to a Hugging Face config.json
precision: {weights: bf16, activations: bf16, kv_cache: bf16}
fleet:                              # one mapping is short for a list of one
  - name: main
    role: both
    gpu: h100-sxm
    replicas: 1
    tensor_parallel: 1
    pipeline_parallel: 1
    expert_parallel: 1
    price_per_gpu_hour: 2.50
engine: vllm
scheduler:
  batching: continuous
  order: fcfs
  max_num_seqs: 256
  max_num_batched_tokens: 8192
  chunked_prefill: true
  batch_timeout: 50ms
kv_cache:
  allocator: paged
  block_size: 16
  gpu_memory_utilization: 0.9
  num_gpu_blocks: null
  enable_prefix_caching: false
  preemption: recompute
  swap_space: 0GiB
max_model_len: 8192
speculative: null
router: least-outstanding
workload:
  arrivals: {kind: poisson, rate: 6.0}
  prompt_tokens: {kind: lognormal, mean: 800, p95: 2400, max: 6000}
  output_tokens: {kind: lognormal, mean: 220, p95: 600, max: 1500}
  shared_prefix: null
slo: {ttft: 500ms, tpot: 40ms, attainment: 0.99}
run: {requests: 5000, warmup: auto, repetitions: 1, horizon: null}
"""

SMALLEST: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 6},
        "prompt_tokens": {"kind": "fixed", "value": 512},
        "output_tokens": {"kind": "fixed", "value": 128},
    },
}


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    path = tmp_path / "chat.yaml"
    path.write_text(CHAT, encoding="utf-8")
    return path


def test_the_example_of_the_design_loads(chat: Path) -> None:
    scenario = load_scenario(chat)
    assert scenario.workload.arrivals is not None
    assert scenario.workload.arrivals.kind == "poisson"
    assert (scenario.slo.ttft, scenario.slo.tpot) == (0.5, 0.04)
    assert scenario.scheduler.batch_timeout == 0.05
    assert scenario.fleet[0].price_per_gpu_hour == 2.5
    assert scenario.max_model_len == 8192
    assert scenario.run.requests == 5000
    assert scenario.run.warmup == Warmup()
    assert scenario.source_text == CHAT
    assert scenario.base == chat.parent


def test_the_defaults_equal_what_the_example_spells_out(chat: Path) -> None:
    assert load_scenario(SMALLEST).engine == load_scenario(chat).engine
    ideal = "ideal"  # which chooses nothing
    example = load_scenario(chat, {"engine": ideal})
    defaults = load_scenario(SMALLEST | {"engine": ideal})
    assert defaults.precision == example.precision
    assert defaults.scheduler == example.scheduler
    assert defaults.kv_cache == example.kv_cache
    for key in ("version", "seed", "speculative", "router"):
        assert getattr(defaults, key) == getattr(example, key)
    assert defaults.scheduler.scheduler_reserve_full_isl is True
    assert defaults.max_model_len is None
    assert defaults.slo.ttft is None
    assert defaults.slo.attainment == 0.99
    assert defaults.run.requests == 1000
    assert defaults.source_text is None
    assert defaults.base == Path.cwd()


def test_every_field_says_what_it_is() -> None:
    sections: list[Any] = [Scenario]
    for section in sections:
        for key, field in section.model_fields.items():
            if key == "kind":
                continue
            assert field.description, f"{section.__name__}.{key}"
            if isinstance(field.default_factory, type) and field.default_factory is not Warmup:
                sections.append(field.default_factory)
    assert len(sections) == 9


@pytest.mark.parametrize("kind", ["models", "gpus", "engines"])
def test_every_catalogue_name_is_accepted(kind: Any) -> None:
    key = {"models": "model", "gpus": "fleet.gpu", "engines": "engine"}[kind]
    for name in catalog.names(kind):
        assert name in str(load_scenario(SMALLEST, {key: name}).resolved())


def test_the_name_is_that_of_the_file_unless_given(tmp_path: Path) -> None:
    path = tmp_path / "night batch.yaml"
    path.write_text(yaml.safe_dump(SMALLEST), encoding="utf-8")
    assert load_scenario(path).name == "night batch"
    assert load_scenario(str(path), ["name=other"]).name == "other"
    assert load_scenario(SMALLEST).name == "scenario"


@pytest.mark.parametrize(
    ("key", "written", "understood"),
    [
        ("workload.arrivals.rate", "90/min", 1.5),
        ("workload.arrivals.rate", "90/h", 0.025),
        ("workload.arrivals.rate", "1e3", 1000.0),
        ("slo.ttft", "2s", 2.0),
        ("slo.ttft", 3, 3.0),
        ("run.horizon", "1h", 3600.0),
        ("scheduler.batch_timeout", "0ms", 0.0),
        ("scheduler.max_num_seqs", "1e2", 100),
        ("scheduler.max_num_seqs", "128", 128),
        ("kv_cache.num_gpu_blocks", "4_096", 4096),
        ("kv_cache.gpu_memory_utilization", 1, 1.0),
        ("scheduler.chunked_prefill", "off", False),
        ("scheduler.chunked_prefill", "Yes", True),
        ("scheduler.batching", "my_policies.greedy:Greedy", "my_policies.greedy:Greedy"),
        ("fleet.0.replicas", 4, 4),
        ("fleet.tensor_parallel", 8, 8),
        ("fleet.price_per_gpu_hour", "2.50", 2.5),
        ("run.warmup", "200", Warmup(requests=200)),
        ("run.warmup", 0, Warmup(requests=0)),
        ("run.warmup", "30s", Warmup(seconds=30.0)),
        ("run.warmup", "2min", Warmup(seconds=120.0)),
        ("seed", np.int64(7), 7),
        ("workload.arrivals.rate", np.float32(1.5), 1.5),
        ("model.path", Path("llama-2-7b"), "llama-2-7b"),
    ],
)
def test_values_are_read_as_people_write_them(key: str, written: Any, understood: Any) -> None:
    value: Any = load_scenario(SMALLEST, {key: written})
    steps = key.replace("fleet.0.", "fleet.").split(".")
    for step in steps:
        value = getattr(value, step)
        value = value[0] if isinstance(value, tuple) else value
    assert value == understood
    assert type(value) is type(understood)


def test_an_absent_price_is_the_catalogues_and_null_hides_it() -> None:
    assert load_scenario(SMALLEST).fleet[0].price_per_gpu_hour == "catalogue"
    hidden = load_scenario(SMALLEST, ["fleet.price_per_gpu_hour=null"])
    assert hidden.fleet[0].price_per_gpu_hour is None
    assert load_scenario(hidden.resolved()).fleet[0].price_per_gpu_hour is None


def test_a_section_without_values_has_its_defaults() -> None:
    empty = dict.fromkeys(["precision", "scheduler", "kv_cache", "slo", "run"])
    assert load_scenario({**SMALLEST, **empty}) == load_scenario(SMALLEST)


def test_null_goes_back_to_the_default_of_a_single_value() -> None:
    written = load_scenario(SMALLEST, ["precision.activations=fp8", "precision.weights=fp8"])
    reset = written.override(["precision.activations=null"])
    assert (written.precision.activations, reset.precision.activations) == ("fp8", "bf16")
    assert not reset.states("precision.activations")
    with pytest.raises(ScenarioError, match="expected a text, got nothing"):
        load_scenario(SMALLEST, ["model=null"])


@pytest.mark.parametrize(
    "arrivals",
    [
        {"kind": "poisson", "rate": 6},
        {"kind": "gamma", "rate": 6, "cv": 3.5},
        {"kind": "constant", "rate": "6/s"},
        {"kind": "burst"},
        {"kind": "closed", "concurrency": 32, "think_time": "2s"},
        {"kind": "closed", "concurrency": 1},
        {"kind": "ramp", "rate": 1, "final_rate": "30/min", "duration": "10min"},
        {"kind": "diurnal", "rate": 1, "peak_rate": 1},
        {"kind": "diurnal", "rate": 1, "peak_rate": 9, "period": "12h", "peak_at": "0s"},
    ],
)
def test_every_kind_of_arrivals_survives_a_round_trip(arrivals: dict[str, Any]) -> None:
    scenario = load_scenario(SMALLEST, {"workload.arrivals": arrivals})
    assert load_scenario(scenario.resolved()) == scenario
    assert scenario.resolved()["workload"]["arrivals"]["kind"] == arrivals["kind"]


@pytest.mark.parametrize(
    "lengths",
    [
        {"kind": "fixed", "value": 1},
        {"kind": "uniform", "low": 5, "high": 5},
        {"kind": "lognormal", "mean": 100, "cv": 2},
        {"kind": "lognormal", "mean": 100, "p95": 386, "min": 4, "max": 100},
        {"kind": "normal", "mean": 100, "std": 200, "min": 4, "max": 900},
        {"kind": "empirical", "path": "lengths.csv", "column": "input"},
    ],
)
def test_every_kind_of_lengths_survives_a_round_trip(
    tmp_path: Path, lengths: dict[str, Any]
) -> None:
    (tmp_path / "lengths.csv").write_text("input\n7\n", encoding="utf-8")
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(SMALLEST), encoding="utf-8")
    scenario = load_scenario(file, {"workload.prompt_tokens": lengths})
    assert load_scenario(scenario.resolved()) == scenario


@pytest.mark.parametrize("names", [{}, {"prompt_column": "input", "output_column": "b c"}])
def test_joint_lengths_stand_for_both_and_survive_a_round_trip(
    tmp_path: Path, names: dict[str, str]
) -> None:
    (tmp_path / "lengths.csv").write_text("input,b c\n7,8\n", encoding="utf-8")
    lengths = {"kind": "joint", "path": "lengths.csv", **names}
    workload = {"arrivals": {"kind": "burst"}, "lengths": lengths}
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({**SMALLEST, "workload": workload}), encoding="utf-8")
    scenario = load_scenario(file)
    assert scenario.run.requests == 1000
    assert scenario.workload.lengths is not None
    assert scenario.workload.lengths.columns == (("input", "b c") if names else None)
    resolved = scenario.resolved()
    assert resolved["workload"]["lengths"]["path"] == str(tmp_path / "lengths.csv")
    assert load_scenario(resolved) == scenario


def traced(folder: Path, text: str = "") -> Path:
    (folder / "conv.csv").write_text("TIMESTAMP\n", encoding="utf-8")
    path = folder / "replay.yaml"
    head = "model: llama-3.1-8b\nfleet: {gpu: h100-sxm}\nworkload: {trace: {path: conv.csv}}\n"
    path.write_text(head + text, encoding="utf-8")
    return path


def test_a_trace_runs_whole_unless_requests_say_otherwise(tmp_path: Path) -> None:
    scenario = load_scenario(traced(tmp_path))
    assert scenario.workload.trace is not None
    assert scenario.workload.trace.format == "auto"
    assert scenario.workload.trace.time_scale == 1.0
    assert scenario.workload.trace.spread is None
    assert scenario.run.requests is None
    assert load_scenario(traced(tmp_path, "run: {requests: 9}\n")).run.requests == 9
    faster = scenario.override(["workload.trace.time_scale=0.25", "workload.trace.limit=10"])
    assert faster.workload.trace is not None
    assert (faster.workload.trace.time_scale, faster.workload.trace.limit) == (0.25, 10)


def test_a_replaced_workload_changes_the_number_of_requests(tmp_path: Path) -> None:
    synthetic = load_scenario(SMALLEST)
    path = traced(tmp_path).parent / "conv.csv"
    replay = synthetic.override({"workload": {"trace": {"path": str(path)}}})
    assert (synthetic.run.requests, replay.run.requests) == (1000, None)


def test_relative_paths_start_at_the_scenario_and_resolve_to_absolute_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "elsewhere").mkdir()
    for name in ("gpu.yaml", "config.json", "engine.yaml"):
        (tmp_path / "a" / name).write_text("{}", encoding="utf-8")
    text = "engine: engine.yaml\n"
    scenario = load_scenario(
        traced(tmp_path / "a", text), ["model=config.json", "fleet.gpu=gpu.yaml"]
    )
    assert scenario.path("x/y.csv") == tmp_path / "a" / "x" / "y.csv"
    assert scenario.path("/x/y.csv") == Path("/x/y.csv")
    monkeypatch.chdir(tmp_path / "elsewhere")
    resolved = scenario.resolved()
    assert resolved["workload"]["trace"]["path"] == str(tmp_path / "a" / "conv.csv")
    assert resolved["fleet"][0]["gpu"] == str(tmp_path / "a" / "gpu.yaml")
    assert load_scenario(resolved) == scenario
    assert scenario.override(["seed=1"]).base == tmp_path / "a"


def test_a_mapping_starts_at_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    traced(tmp_path)
    monkeypatch.chdir(tmp_path)
    scenario = load_scenario({**SMALLEST, "workload": {"trace": {"path": "conv.csv"}}})
    assert scenario.base == tmp_path


def test_resolved_yaml_loads_as_an_equal_scenario(chat: Path) -> None:
    scenario = load_scenario(chat, ["run.warmup=30s", "fleet.price_per_gpu_hour=null"])
    again = chat.with_name("resolved.yaml")
    again.write_text(scenario.to_yaml(), encoding="utf-8")
    assert load_scenario(again) == scenario
    assert hash(load_scenario(again)) == hash(scenario)
    assert load_scenario(again).to_yaml() == scenario.to_yaml()
    assert scenario != load_scenario(chat)


def test_an_override_changes_one_value_and_nothing_else(chat: Path) -> None:
    scenario = load_scenario(chat)
    before = scenario.to_yaml()
    faster = scenario.override({"workload.arrivals.rate": 20})
    assert faster.resolved()["workload"]["arrivals"]["rate"] == 20.0
    assert scenario.to_yaml() == before
    assert faster.override(["workload.arrivals.rate=6"]) == scenario
    assert faster.source_text == CHAT
    assert load_scenario(chat, ["workload.arrivals.rate=20"]) == faster
    assert load_scenario(chat, {"workload.arrivals.rate": 20}) == faster


def test_the_last_override_of_a_key_wins() -> None:
    assert load_scenario(SMALLEST, ["seed=1", "seed=2"]).seed == 2


def test_an_override_may_add_a_section_and_replace_a_whole_one() -> None:
    scenario = load_scenario(SMALLEST, ["slo.ttft=1s", "workload.arrivals={kind: burst}"])
    assert scenario.slo.ttft == 1.0
    assert scenario.resolved()["workload"]["arrivals"] == {"kind": "burst"}
    assert (
        load_scenario(SMALLEST, ["fleet={gpu: l40s}", "fleet.0.replicas=2"]).fleet[0].gpu == "l40s"
    )


def test_the_mapping_that_is_loaded_stays_as_it_was() -> None:
    source = copy.deepcopy(SMALLEST)
    load_scenario(source, ["workload.arrivals.rate=8"]).override({"seed": 3})
    assert source == SMALLEST


def test_a_scenario_is_frozen_and_survives_pickling(chat: Path) -> None:
    scenario = load_scenario(chat)
    with pytest.raises(ValidationError):
        scenario.seed = 1
    copied = pickle.loads(pickle.dumps(scenario))
    assert copied == scenario
    assert copied.base == scenario.base
    assert copied.override(["seed=1"]).seed == 1


def test_a_scenario_built_in_code_can_be_overridden() -> None:
    built = Scenario.model_validate({**SMALLEST, "fleet": [SMALLEST["fleet"]]})
    assert built.override(["seed=1"]).seed == 1
    with pytest.raises(ScenarioError, match=r"slo\.ttft=soon"):
        built.override(["slo.ttft=soon"])


def test_line_endings_and_a_byte_order_mark_do_not_matter(chat: Path) -> None:
    scenario = load_scenario(chat)
    chat.write_bytes(b"\xef\xbb\xbf" + CHAT.replace("\n", "\r\n").encode())
    assert load_scenario(chat) == scenario


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("1e3", 1000.0),
        ("-1.5E+2", -150.0),
        ("010", 10),
        ("1_000", 1000),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("2024-01-01", "2024-01-01"),
        ("no", "no"),
        ("True", True),
        ("~", None),
        (".inf", float("inf")),
        ("1.", 1.0),
        (".", "."),
        ("e5", "e5"),
    ],
)
def test_plain_words_mean_what_they_look_like(word: str, value: object) -> None:
    assert scalar(word) == value
    assert type(scalar(word)) is type(value)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
    lambda text: text.isprintable() and bool(text.strip())
)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=60)


@given(
    name=NAMES | st.sampled_from(["1e3", "0x1f", "on", "null", "1_0", "- a", "a: b", "'", "#"]),
    description=TEXTS,
    number=st.floats(1e-9, 1e6),
)
def test_any_text_and_number_survives_the_resolved_yaml(
    tmp_path_factory: pytest.TempPathFactory, name: str, description: str, number: float
) -> None:
    numbers = {
        "slo.ttft": f"{number!r}s",
        "workload.arrivals.rate": number,
        "run.warmup": f"{number!r}s",
    }
    scenario = load_scenario(SMALLEST, {"name": name, "description": description, **numbers})
    path = tmp_path_factory.getbasetemp() / "resolved.yaml"
    path.write_bytes(scenario.to_yaml().encode())
    assert load_scenario(path) == scenario
