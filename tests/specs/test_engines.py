"""Engine presets: complete, sourced, physical; and what the host adds to an iteration."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml

from sim import catalog
from sim.catalog.fields import keys
from sim.errors import UsageError
from sim.specs.engine import EngineSpec, EngineWish

ENGINES = catalog.names("engines")
QUANTITIES = (
    "per_iteration",
    "per_sequence",
    "per_new_request",
    "per_layer",
    "launch",
    "front_end",
    "memory_reserve",
)


def preset(folder: Path, **changes: object) -> EngineSpec:
    """vLLM's preset, of its first release, with other values; a change to ... drops the key."""
    document = catalog.raw("engines", "vllm")
    del document["changes"]
    for key, value in changes.items():
        if value is ...:
            del document[key]
        else:
            document[key] = {"value": value, "source": "test"}
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(document))
    return catalog.engine(path)


def test_the_first_release_is_complete() -> None:
    known = {"ideal", "vllm", "sglang", "tensorrt-llm", "transformers", "reference"}
    assert known <= set(ENGINES)


@pytest.mark.parametrize("name", ENGINES)
def test_every_value_has_a_source(name: str) -> None:
    spec, entry = catalog.engine(name), catalog.written("engines", name)
    assert spec.name == name
    assert isinstance(entry.pop("title"), str)
    values = {f.name for f in dataclasses.fields(EngineSpec)} - {"name", "title", "sources"}
    optional = {
        f.name
        for f in dataclasses.fields(EngineSpec)
        if (f.default, f.default_factory) != (dataclasses.MISSING, dataclasses.MISSING)
    }
    assert set(entry) == set(spec.sources)
    assert values - optional <= set(entry) <= values
    assert spec.fitted_to == ()
    assert all(len(source) > 8 for source in spec.sources.values())


@pytest.mark.parametrize("name", ENGINES)
def test_values_are_physical(name: str) -> None:
    """Host times of a serving engine are micro- to milliseconds, its reserve some GB at most."""
    spec = catalog.engine(name)
    assert 0 <= spec.per_sequence <= 1e-4
    assert 0 <= spec.per_iteration <= 1e-2
    assert 0 <= spec.per_new_request <= 1e-2
    assert 0 <= spec.front_end <= 0.1
    assert 0 <= spec.memory_reserve <= 8e9
    assert spec.null_blocks in (0, 1)
    if not spec.cuda_graphs:
        assert spec.launch_time(32, prompts=False) > 0
    if spec.eager_prefill:
        assert 0 < spec.launch_time(32, prompts=True) < 0.1


def test_the_ideal_engine_costs_nothing() -> None:
    ideal = catalog.engine("ideal")
    assert ideal.host_time(1000, 1000) == 0
    assert ideal.launch_time(100, prompts=True) == 0
    assert ideal.front_end == ideal.memory_reserve == 0


def test_vllm_in_si_units() -> None:
    """0.3 ms planned ahead, else 1 ms; 20 us, from 0.18 on 5 us; 0.7 ms, 8 ms, 2 us, 1 GB as the
    file has them."""
    vllm = catalog.engine("vllm")
    assert (vllm.per_iteration, vllm.per_iteration_ahead, vllm.per_new_request) == (
        pytest.approx(1e-3),
        pytest.approx(0.3e-3),
        pytest.approx(0.7e-3),
    )
    per_sequence = [catalog.engine(f"vllm@{at}").per_sequence for at in ("0.8", "0.17", "0.18")]
    assert per_sequence == pytest.approx([20e-6, 20e-6, 5e-6])
    assert vllm.per_sequence == pytest.approx(5e-6)
    assert vllm.front_end == pytest.approx(0.008)
    assert vllm.per_prompt_token == pytest.approx(2e-6)
    assert vllm.memory_reserve == 2**28
    assert vllm.null_blocks == 1


def test_host_time_by_hand() -> None:
    """0.3 ms + 100 x 5 us + 3 x 0.7 ms = 2.9 ms; not planned ahead, 1 ms instead of 0.3; up to
    0.17 with 20 us a sequence."""
    vllm, older = catalog.engine("vllm"), catalog.engine("vllm@0.13")

    def time(engine: EngineSpec, ahead: bool | None) -> float:
        return engine.asked(EngineWish(ahead=ahead), special=False).host_time(100, 3)

    assert [time(vllm, None), time(vllm, True)] == pytest.approx([2.9e-3, 2.9e-3])
    assert time(vllm, False) == pytest.approx(3.6e-3)
    assert [time(older, None), time(older, False)] == pytest.approx([5.1e-3, 5.1e-3])
    assert time(older, True) == pytest.approx(4.4e-3)
    assert time(catalog.engine("sglang"), True) == time(catalog.engine("sglang"), False)


def test_kernels_that_a_scenario_asks_for() -> None:
    asked = catalog.engine("vllm").asked(EngineWish(marlin=True, triton=True), special=False)
    assert (asked.marlin, asked.triton_attention) == (True, True)
    usual = catalog.engine("vllm")
    assert (usual.marlin, usual.triton_attention) == (False, False)


def test_launch_time_by_hand() -> None:
    """Transformers, eager: 25 calls a layer, 10 us each, 32 layers: 8 ms. Graphs: nothing."""
    assert catalog.engine("transformers").launch_time(32, prompts=False) == pytest.approx(8e-3)
    assert catalog.engine("vllm").launch_time(32, prompts=True) == 0


def test_eager_prefill_by_hand() -> None:
    """TensorRT-LLM launches prompts call by call, 20 a layer and 30 us each; decodes are graphs."""
    served = catalog.engine("tensorrt-llm")
    assert served.launch_time(32, prompts=True) == pytest.approx(19.2e-3)
    assert served.launch_time(32, prompts=False) == 0


def test_layers_with_experts_have_more_kernels() -> None:
    """SGLang with 3 dense layers of 20 kernels and 58 with experts of 33: 1,974 of 41 us each."""
    sglang = catalog.engine("sglang@0.5.9")  # later prompts replay graphs
    assert sglang.launch_time(61, 58, prompts=True) == pytest.approx(1974 * 41e-6)
    assert sglang.launch_time(61, prompts=True) == pytest.approx(61 * 20 * 41e-6)
    alike = dataclasses.replace(sglang, kernels_per_expert_layer=0)
    assert alike.launches(61, 58) == 61 * 20


def test_tokens_are_handed_on_when_all_but_a_thousand_launches_have_run() -> None:
    """Of 1,974 launches 974 have to run before the host is through; of 640 none; and an engine that
    hands on first, or replays graphs for prompts, has nothing to wait for."""
    sglang = catalog.engine("sglang@0.5.9")  # later prompts replay graphs
    assert sglang.late_share(61, 58) == pytest.approx(974 / 1974)
    assert sglang.late_share(32) == 0
    for other in ({"launches_first": False}, {"eager_prefill": False}):
        assert dataclasses.replace(sglang, **other).late_share(61, 58) == 0
    assert catalog.engine("tensorrt-llm").late_share(61, 58) == 0


def test_a_preset_of_ones_own(tmp_path: Path) -> None:
    spec = preset(tmp_path, per_iteration="2ms", overlapped=True)
    assert spec.name == "mine"
    assert spec.per_iteration == pytest.approx(2e-3)
    assert spec.overlapped
    assert spec.sources["per_iteration"] == "test"


@pytest.mark.parametrize("key", QUANTITIES)
def test_negative_quantities_are_refused(tmp_path: Path, key: str) -> None:
    value = "-1B" if key == "memory_reserve" else "-1us"
    with pytest.raises(UsageError, match=rf"mine\.yaml:\d+:\d+: .*{key}"):
        preset(tmp_path, **{key: value})


@pytest.mark.parametrize("key", ["null_blocks", "kernels_per_layer"])
@pytest.mark.parametrize("value", [-1, 1.5, True, "two"])
def test_counts_are_whole_and_not_negative(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(UsageError, match=key):
        preset(tmp_path, **{key: value})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"per_iteration": ...}, "per_iteration: is missing"),
        ({"per_iteraton": "1ms"}, "unknown key.*per_iteration"),
        ({"overlapped": "yes"}, "overlapped: expected true or false"),
        ({"launch": "3GB"}, "launch"),
        ({"front_end": "soon"}, "front_end"),
        ({"releases": {"first": "0.8"}}, "releases.newest: is missing"),
        ({"releases": {"first": "0.8", "newest": "new"}}, "a release such as '0.14', found 'new'"),
        ({"defaults": {}}, "defaults: "),
        ({"defaults": [{"memory": "70GiB"}]}, "set: is missing"),
        ({"defaults": [{"set": {}, "cards": ["H100"]}]}, "unknown key.*other_than"),
        ({"defaults": [{"set": {}, "below": "-1GiB"}]}, "below: "),
        ({"defaults": [{"set": {}, "memory": "-1GiB"}]}, "memory: "),
        ({"defaults": [{"set": {}, "other_than": "A100"}]}, "expected a list of texts"),
        ({"defaults": [{"set": {"run.requests": 5}}]}, "run.requests: unknown key"),
        ({"defaults": [{"set": {"kv_cache": 5}}]}, "kv_cache: unknown key"),
        ({"defaults": [{"set": {"scheduler.max_num_seq": 5}}]}, "max_num_seq: unknown key"),
    ],
)
def test_bad_files_are_one_clear_complaint(
    tmp_path: Path, changes: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        preset(tmp_path, **changes)


def test_a_value_without_a_source_is_refused(tmp_path: Path) -> None:
    document = catalog.raw("engines", "vllm")
    document["launch"] = {"value": "5us"}
    path = tmp_path / "bare.yaml"
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(UsageError, match="launch"):
        catalog.engine(path)


def test_unknown_names_are_met_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"'vlm'.*vllm.*transformers"):
        catalog.engine("vlm")


@pytest.mark.parametrize("key", keys(EngineSpec, "name", "sources", "factors", "releases"))
def test_every_field_is_read_from_a_file_and_refused_when_it_makes_no_sense(
    key: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"extends: vllm\n{key}: {{}}\n", encoding="utf-8")
    with pytest.raises(UsageError, match=rf"odd\.yaml:2:\d+: {key}: "):
        catalog.engine(path)
