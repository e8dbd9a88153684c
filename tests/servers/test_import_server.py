"""Servers of real engines are read as they were started, and written back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import InfersimError, UsageError
from sim.planning.fleet.launch import launch_commands
from sim.scenario import Scenario
from sim.servers import Imported, imported, sources_of
from sim.servers.shell import commands
from sim.setup import prepare
from tests.places import ROOT

COMPOSE = """
services:
  chat:
    image: vllm/vllm-openai:v0.11.0
    command: --model meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size ${TP:-4}
      --max-model-len 16k --quantization fp8 --port 8000
    deploy:
      replicas: 2
      resources: {reservations: {devices: [{driver: nvidia, count: 4, capabilities: [gpu]}]}}
  web: {image: "ghcr.io/open-webui/open-webui:main"}
"""

DEPLOYMENT = """
apiVersion: v1
kind: Service
metadata: {name: sgl}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: sgl}
spec:
  replicas: 3
  template:
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers:
      - name: server
        image: lmsysorg/sglang:v0.5.9
        env: [{name: MODEL, value: Qwen/Qwen3-235B-A22B-Instruct-2507-FP8}]
        command: ["/bin/bash", "-c"]
        args:
        - |
          set -e  # stop at the first error
          python3 -m sglang.launch_server --model-path $MODEL --tp 8 --dp 8 \\
            --enable-dp-attention --mem-fraction-static 0.85 --chunked-prefill-size 32768 \\
            --max-running-requests 512 --host 0.0.0.0
        resources: {limits: {nvidia.com/gpu: 8}}
"""

KSERVE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llama}
spec:
  predictor:
    minReplicas: 2
    nodeSelector: {cloud.google.com/gke-accelerator: nvidia-l4}
    model:
      modelFormat: {name: huggingface}
      args: ["--model_name=llama", "--max-model-len=8192"]
      storageUri: hf://meta-llama/Llama-3.1-8B-Instruct
      resources: {limits: {nvidia.com/gpu: "1"}}
"""

STACK = """
servingEngineSpec:
  modelSpec:
  - name: mistral
    repository: vllm/vllm-openai
    tag: v0.10.2
    modelURL: mistralai/Mistral-7B-Instruct-v0.2
    replicaCount: 2
    requestGPU: 1
    vllmConfig:
      tensorParallelSize: 1
      maxModelLen: 16384
      enablePrefixCaching: false
      extraArgs: ["--max-num-seqs", "64"]
"""

VLLM_LOG = """
INFO 10-02 07:12:10 [api_server.py:1839] vLLM API server version 0.11.0
INFO 10-02 07:12:10 [utils.py:233] non-default args: {'model_tag': 'Qwen/Qwen3-32B-FP8'}
INFO 10-02 07:12:20 [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: \
model='Qwen/Qwen3-32B-FP8', speculative_config=None, dtype=torch.bfloat16, max_seq_len=16384, \
tensor_parallel_size=2, quantization=fp8, enforce_eager=False, kv_cache_dtype=auto, \
enable_prefix_caching=True, chunked_prefill_enabled=True, compilation_config=None
INFO 10-02 07:14:20 [kv_cache_utils.py:1087] GPU KV cache size: 394,064 tokens
"""

SGLANG_LOG = """
[2026-05-02 10:00:00] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=2, \
mem_fraction_static=0.88, chunked_prefill_size=None, quantization=None, dtype='auto')
[2026-05-02 10:01:00] max_total_num_tokens=449839, chunked_prefill_size=8192, \
max_prefill_tokens=16384, max_running_requests=2048, context_len=40960
"""


def read(source: str, gpu: str | None = "h100-sxm", **given: Any) -> Imported:
    (started,) = sources_of(source)
    return imported(started, Path(), gpu=gpu, **given)


def written(tmp_path: Path, text: str, name: str = "start.yaml") -> str:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def plain(made: Imported) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(made.text)
    return {key: each for key, each in found.items() if key not in ("workload", "run", "version")}


def test_a_command_says_every_key_and_where_it_stands() -> None:
    made = read(
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve Qwen/Qwen3-8B -tp 2 --max_num_seqs=64 --port 8000 "
        "--max-model-len 32k --kv-cache-dtype fp8 --no-enable-prefix-caching --cpu-offload-gb 4 "
        "--tensor-paralel-size 4"
    )
    assert plain(made) == {
        "name": "server",
        "model": "Qwen/Qwen3-8B",
        "fleet": {"gpu": "h100-sxm", "tensor_parallel": 2},
        "engine": made.scenario.engine,
        "scheduler": {"max_num_seqs": 64},
        "max_model_len": 32000,
        "precision": {"kv_cache": "fp8"},
        "kv_cache": {"enable_prefix_caching": False},
    }
    assert "tensor_parallel: 2  # -tp" in made.text
    assert "max_num_seqs: 64  # --max_num_seqs" in made.text
    assert made.draft.without_effect == ["--port"]
    assert list(made.draft.left_out) == ["--cpu-offload-gb 4"]
    assert made.draft.unknown == ["--tensor-paralel-size (did you mean --tensor-parallel-size?)"]
    assert made.chosen["kv_cache.gpu_memory_utilization"] == 0.92


def test_compose_gives_release_replicas_and_defaults_of_variables(tmp_path: Path) -> None:
    found = plain(read(written(tmp_path, COMPOSE)))
    assert found["engine"] == "vllm@0.11.0"
    assert found["fleet"] == {"gpu": "h100-sxm", "tensor_parallel": 4, "replicas": 2}
    assert found["precision"] == {"weights": "fp8", "activations": "fp8"}
    assert found["max_model_len"] == 16_000


def test_a_deployment_gives_the_gpu_and_sglangs_limits_are_shared_out(tmp_path: Path) -> None:
    found = plain(read(written(tmp_path, DEPLOYMENT), gpu=None))
    assert found["fleet"] == {"gpu": "h100-sxm", "replicas": 3, "data_parallel": 8}
    assert found["engine"] == "sglang@0.5.9"
    assert found["scheduler"] == {"max_num_seqs": 64, "max_num_batched_tokens": 4096}
    assert found["kv_cache"] == {"gpu_memory_utilization": 0.85}


def test_kserve_and_charts_are_read_by_what_they_build_the_command_from(tmp_path: Path) -> None:
    found = plain(read(written(tmp_path, KSERVE), gpu=None))
    assert found["model"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert found["fleet"] == {"gpu": "l4", "replicas": 2}
    assert found["max_model_len"] == 8192
    found = plain(read(written(tmp_path, STACK)))
    assert (found["engine"], found["fleet"]["replicas"]) == ("vllm@0.10.2", 2)
    assert found["scheduler"] == {"max_num_seqs": 64}
    assert found["kv_cache"] == {"enable_prefix_caching": False}


def test_logs_give_what_the_engine_resolved(tmp_path: Path) -> None:
    made = read(written(tmp_path, VLLM_LOG, "vllm.log"))
    found = plain(made)
    assert found["engine"] == "vllm@0.11.0"
    assert found["fleet"]["tensor_parallel"] == 2
    assert found["kv_cache"]["num_gpu_blocks"] == 394_064 // 16
    assert prepare(made.scenario).pools[0].capacity.tokens == 394_064
    found = plain(read(written(tmp_path, SGLANG_LOG, "sglang.log")))
    assert found["scheduler"] == {"max_num_seqs": 2048, "max_num_batched_tokens": 8192}
    assert found["kv_cache"] == {"gpu_memory_utilization": 0.88, "num_gpu_blocks": 449_839}


def test_files_of_options_count_where_the_command_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "vllm.yaml").write_text("max-model-len: 4096\nmax_num_seqs: 32\n", "utf-8")
    script = "exec vllm serve Qwen/Qwen3-8B --config vllm.yaml --max-num-seqs 16\n"
    found = plain(read(written(tmp_path, script, "start.sh")))
    assert (found["max_model_len"], found["scheduler"]) == (4096, {"max_num_seqs": 16})
    (tmp_path / "trt.yaml").write_text(
        "enable_attention_dp: true\nkv_cache_config: {dtype: fp8, enable_block_reuse: false}\n"
        "cuda_graph_config: {enable_padding: true}\n",
        "utf-8",
    )
    script = "trtllm-serve deepseek-ai/DeepSeek-R1 --tp_size 8 --ep_size 8 --config trt.yaml\n"
    made = read(written(tmp_path, script, "start.sh"), gpu="h200-sxm")
    assert plain(made)["fleet"] == {
        "gpu": "h200-sxm",
        "data_parallel": 8,
        "expert_parallel": True,
    }
    assert plain(made)["kv_cache"] == {"enable_prefix_caching": False}
    assert any(key.startswith("cuda_graph_config") for key in made.draft.left_out)


@pytest.mark.parametrize(
    ("command", "fleet"),
    [
        ("vllm serve Qwen/Qwen3-8B -dp 4", {"replicas": 4}),
        ("vllm serve Qwen/Qwen3-30B-A3B -dp 4", {"data_parallel": 4}),
        ("python -m sglang.launch_server --model Qwen/Qwen3-8B --dp 2", {"replicas": 2}),
    ],
)
def test_data_ranks_of_dense_models_are_replicas(command: str, fleet: dict[str, int]) -> None:
    assert plain(read(command))["fleet"] == {"gpu": "h100-sxm", **fleet}


def test_adapters_have_slots_and_a_rank() -> None:
    command = (
        "vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora --max-loras 4 "
        "--lora-modules a=/a b=/b c=/c --max-lora-rank 32"
    )
    assert plain(read(command))["lora"] == {"max_loras": 4, "rank": 32, "adapters": 3}


def test_llama_server_gives_the_format_and_a_part_of_the_context_to_each_slot() -> None:
    command = "llama-server -hf bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M -c 32768 -np 4"
    found = plain(read(command, gpu="rtx-4090"))
    assert found["precision"] == {"weights": "q4_k_m"}
    assert (found["max_model_len"], found["kv_cache"]) == (8192, {"allocator": "contiguous"})
    found = plain(read(f"{command} --kv-unified", gpu="rtx-4090"))
    assert (found["max_model_len"], "kv_cache" in found) == (32768, False)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("vllm serve Qwen/Qwen3-8B", "does not say on which GPU"),
        ("vllm serve nobody/unheard-of-9b", "'nobody/unheard-of-9b' is not in the catalogue"),
        ("vllm serve --max-num-seqs 3", "names no model"),
        ("vllm serve Qwen/Qwen3-8B --max-num-seqs many", "--max-num-seqs: expected a whole number"),
        ("nginx -g daemon", "starts no server that is known here"),
        ("missing.yaml", "no such file"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(source: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(source, gpu=None if "GPU" in message else "h100-sxm")


def test_a_file_of_several_servers_asks_for_one(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    text = (
        "services:\n"
        "  small: {image: 'vllm/vllm-openai:v0.11.0', command: [--model, Qwen/Qwen3-8B]}\n"
        "  large: {image: 'vllm/vllm-openai:v0.11.0', command: [--model, Qwen/Qwen3-32B]}\n"
    )
    written(tmp_path, text, "two.yaml")
    asked = ["import", "two.yaml", "--gpu", "h100-sxm"]
    refused = CliRunner().invoke(app, asked)
    assert (refused.exit_code, "starts 2 servers" in refused.stderr) == (2, True)
    done = CliRunner().invoke(app, [*asked, "--service", "large", "--json"])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["stated"]["model"]["value"] == "Qwen/Qwen3-32B"
    assert sim.load_scenario(tmp_path / "two-large-scenario.yaml").model.path == "Qwen/Qwen3-32B"
    again = CliRunner().invoke(app, [*asked, "--service", "large"])
    assert "exists" in again.stderr


def launched() -> list[Any]:
    """Every shipped scenario that has a launch command, under each engine that it goes with."""
    found = []
    for path in sorted((ROOT / "scenarios").glob("*.yaml")):
        for engine in ("", "sglang", "tensorrt-llm"):
            found.append(pytest.param(path, engine, id=f"{path.stem}-{engine or 'own'}"))
    return found


@pytest.mark.parametrize(("path", "engine"), launched())
def test_a_launch_command_reads_back_as_the_same_deployment(path: Path, engine: str) -> None:
    try:
        scenario = sim.load_scenario(path, [f"engine={engine}"] if engine else [])
        made = launch_commands(scenario)
    except InfersimError as error:
        pytest.skip(str(error))
    if engine == "tensorrt-llm" and not _own_rule(scenario):
        pytest.skip("trtllm-serve cannot say the rule or the format of this deployment")
    family = engine or str(scenario.pools[0].engine).partition("@")[0]
    if family == "llama.cpp":
        pytest.skip("the command leaves the GGUF file open, which the reader would know it by")
    (started,) = commands(made[family], "the command")
    overrides = [] if "engine=" in family else [f"engine={scenario.pools[0].engine}"]
    back = imported(started, path.parent, gpu=scenario.pools[0].gpu, overrides=overrides)
    assert not back.draft.unknown
    assert not back.draft.left_out
    assert _deployed(back.scenario) == _deployed(scenario)


def _own_rule(scenario: Scenario) -> bool:
    """Whether a deployment follows TensorRT-LLM's own rule, with a checkpoint in 16 bits."""
    pool = prepare(scenario).pools[0]
    return pool.settings.scheduler.rule != "vllm" and pool.deployment.weights == "bf16"


def _deployed(scenario: Scenario) -> dict[str, Any]:
    pool = prepare(scenario).pools[0]
    speculation = pool.deployment.speculation
    return {
        "limits": pool.limits,
        "layout": pool.deployment.layout,
        "formats": pool.deployment.formats,
        "kv": pool.deployment.kv_cache,
        "blocks": pool.capacity.num_gpu_blocks,
        "rule": (pool.settings.scheduler.rule, pool.settings.scheduler.plans_ahead),
        "drafts": None if speculation is None else speculation.method,
        "eager": pool.settings.scheduler.enforce_eager,
    }


def test_services_that_start_the_same_server_are_replicas(tmp_path: Path) -> None:
    one = "{image: 'vllm/vllm-openai:v0.11.0', command: [--model, Qwen/Qwen3-8B]}"
    text = f"services:\n  chat-1: {one}\n  chat-2: {one}\n"
    assert plain(read(written(tmp_path, text)))["fleet"] == {"gpu": "h100-sxm", "replicas": 2}
