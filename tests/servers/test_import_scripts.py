"""Scripts and manifests as people write them: arrays, conditions, workers, clouds, old engines."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sim.cli import app
from sim.errors import UsageError
from sim.servers import Imported, imported, servers_of
from sim.servers.draft import gpu_named
from sim.servers.started import Started


def read(text: str, name: str = "start.sh", gpu: str | None = "h100-sxm", **given: Any) -> Imported:
    (started,) = servers_of(text, Path(name))
    return imported(started, Path(), gpu=gpu, **given)


def plain(made: Imported) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(made.text)
    return found


def test_arrays_and_command_strings_are_followed() -> None:
    script = """
    ARGS=(
      --tensor-parallel-size 2   # half of the box
      --max-num-seqs "64"
    )
    ARGS+=(--max-model-len 4k)
    exec vllm serve Qwen/Qwen3-8B "${ARGS[@]}" 2>&1 | tee -a out.log
    """
    found = plain(read(script))
    assert found["fleet"]["tensor_parallel"] == 2
    assert (found["max_model_len"], found["scheduler"]) == (4000, {"max_num_seqs": 64})
    script = """
    CMD="vllm serve Qwen/Qwen3-8B"
    CMD+=" -tp $((2 * 2))"
    echo "starting $CMD"
    eval "$CMD" > server.log 2>&1 &
    """
    assert plain(read(script))["fleet"]["tensor_parallel"] == 4


def test_what_hangs_on_a_condition_is_left_out_and_said() -> None:
    script = """
    EXTRA=""
    if [ "$EAGER" = 1 ]; then
        EXTRA="--enforce-eager"
        export VLLM_USE_DEEP_GEMM=1
    fi
    [ -n "$LONG" ] && EXTRA+=" --max-model-len 99"
    vllm serve Qwen/Qwen3-8B $EXTRA --max-num-seqs 8 $MORE
    """
    made = read(script)
    assert plain(made)["scheduler"] == {"max_num_seqs": 8}
    assert "max_model_len" not in plain(made)
    assert any("$EXTRA hangs on a condition" in note for note in made.draft.notes)
    assert list(made.draft.left_out) == ["$MORE"]


def test_variables_that_nothing_sets_leave_their_options_out() -> None:
    script = """
    LEN=$(jq .len config.json)
    vllm serve $MODEL --port `free-port` -tp $TP --max-model-len $LEN --host $(hostname -I)
    """
    with pytest.raises(UsageError, match=r"nothing sets \$MODEL, its model"):
        read(script)
    made = read(script, model="qwen3-8b")
    left = list(made.draft.left_out)
    assert left == ["-tp $TP", "--max-model-len $LEN"]
    assert "Nothing sets the variable in -tp $TP, --max-model-len $LEN" in made.text
    assert made.draft.without_effect == ["--port", "--host"]


def test_a_script_holds_the_files_that_it_writes() -> None:
    script = """
    TOKENS=4096
    cat > "$DIR/extra.yml" <<EOF
    max_num_tokens: $TOKENS
    kv_cache_config:
      free_gpu_memory_fraction: 0.7
    EOF
    trtllm-serve Qwen/Qwen3-8B --extra_llm_api_options "$DIR/extra.yml"
    """
    found = plain(read(dedent(script)))
    assert found["scheduler"] == {"max_num_batched_tokens": 4096}
    assert found["kv_cache"] == {"gpu_memory_utilization": 0.7}
    inside = (
        "kubectl apply -f - <<EOF\nservices:\n  a:\n    command: vllm serve Qwen/Qwen3-8B\nEOF\n"
    )
    assert plain(read(inside))["model"] == "Qwen/Qwen3-8B"


def test_a_shell_inside_a_container_is_followed() -> None:
    script = (
        'docker run --gpus all -v "$(pwd)":/w vllm/vllm-openai:v0.12.0 bash -c "pip list\n'
        'vllm serve Qwen/Qwen3-8B \\\n  --max-num-seqs 3"\n'
    )
    found = plain(read(script))
    assert (found["engine"], found["scheduler"]) == ("vllm@0.12.0", {"max_num_seqs": 3})
    script = "#SBATCH --gres=gpu:h200:4\npip install vllm==0.11.2\nvllm serve Qwen/Qwen3-8B -tp 4\n"
    found = plain(read(script, gpu=None))
    assert (found["engine"], found["fleet"]["gpu"]) == ("vllm@0.11.2", "h200-sxm")
    made = read("pip install 'vllm[audio]>=0.11.2.post1'\nvllm serve Qwen/Qwen3-8B\n")
    assert plain(made)["engine"] == plain(read("vllm serve Qwen/Qwen3-8B"))["engine"]
    assert any("installs vllm>=0.11.2.post1, which" in note for note in made.draft.notes)


@pytest.mark.parametrize(
    ("image", "engine", "release"),
    [
        ("ubuntu:22.04", "vllm", ""),
        ("rocm/vllm:rocm6.4_ubuntu22.04_vllm_0.9.1", "vllm", "0.9.1"),
        ("ghcr.io/llm-d/llm-d-cuda:v0.8.1", "vllm", ""),
        ("nvcr.io/nvidia/vllm:25.09-py3", "vllm", ""),
        ("nvcr.io/nvidia/tensorrt-llm/release:1.1.0", "tensorrt-llm", "1.1.0"),
        ("lmsysorg/sglang:v0.5.9-cu129", "sglang", "0.5.9"),
        ("registry.local:5000/vllm/vllm-openai", "vllm", ""),
    ],
)
def test_the_tag_of_an_image_is_a_release_of_its_own_engine_alone(
    image: str, engine: str, release: str
) -> None:
    assert Started(engine, (), "here", image).release == release


@pytest.mark.parametrize(
    ("label", "gpu"),
    [
        ("p5.48xlarge", "h100-sxm"),
        ("p5en.48xlarge", "h200-sxm"),
        ("Standard_ND96isr_H100_v5", "h100-sxm"),
        ("Standard_NC24ads_A100_v4", "a100-pcie"),
        ("a2-highgpu-1g", "a100-sxm-40gb"),
        ("nvidia-tesla-a100", "a100-sxm-40gb"),
        ("nvidia-a100-80gb", "a100-sxm-80gb"),
        ("tpu7x", "tpu-v7x"),
        ("tpu-v5-lite-podslice", None),
        ("m8g.large", None),
    ],
)
def test_machines_and_labels_name_their_gpu(label: str, gpu: str | None) -> None:
    assert gpu_named(label) == gpu


def leader(rank: str) -> str:
    return (
        "[python3, -m, sglang.launch_server, --model, Qwen/Qwen3-32B, --tp, '16', "
        f"--nnodes, $(LWS_GROUP_SIZE), --node-rank, {rank}]"
    )


def test_workers_run_what_their_leader_starts() -> None:
    group = f"""
    kind: LeaderWorkerSet
    metadata: {{name: pair}}
    spec:
      replicas: 2
      leaderWorkerTemplate:
        size: 2
        leaderTemplate:
          spec:
            nodeSelector: {{node.kubernetes.io/instance-type: a3-ultragpu-8g}}
            containers:
            - {{image: lmsysorg/sglang:v0.5.9, command: {leader("$(LWS_WORKER_INDEX)")},
               resources: {{limits: {{nvidia.com/gpu: 8}}}}}}
        workerTemplate:
          spec:
            containers:
            - {{image: lmsysorg/sglang:v0.5.9, command: {leader("$(LWS_WORKER_INDEX)")}}}
    """
    made = read(group, "lws.yaml", gpu=None)
    assert plain(made)["fleet"] == {"gpu": "h200-sxm", "tensor_parallel": 16, "replicas": 2}
    assert not [note for note in made.draft.notes if "asks for" in note]
    script = "\n".join(
        f"ssh n{rank} python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 4 "
        f"--nnodes 2 --node-rank {rank}"
        for rank in (0, 1)
    )
    assert plain(read(script))["fleet"]["tensor_parallel"] == 4
    pods = """
    kind: StatefulSet
    spec:
      replicas: 4
      template: {spec: {containers: [{command: [sh, -c,
        "python3 -m sglang.launch_server --model Qwen/Qwen3-32B --tp 16 --nnodes 2"]}]}}
    """
    assert plain(read(pods, "pods.yaml"))["fleet"]["replicas"] == 2


def test_an_inference_service_is_read_with_its_main_container() -> None:
    text = """
    kind: LLMInferenceService
    metadata: {name: coder}
    spec:
      model: {uri: "pvc://disk/x", name: Qwen/Qwen3-30B-A3B}
      parallelism: {data: 4, dataLocal: 4, expert: true, tensor: 2}
      template:
        containers:
        - name: main
          image: vllm/vllm-openai:v0.12.0
          env:
          - {name: VLLM_ADDITIONAL_ARGS, value: --max-num-seqs=32}
          - {name: VLLM_ALL2ALL_BACKEND, value: deepep_low_latency}
      %s
    """
    found = plain(read(text % "worker: {}", "svc.yaml"))
    assert (found["model"], found["engine"]) == ("Qwen/Qwen3-30B-A3B", "vllm@0.12.0")
    assert found["fleet"] == {
        **{"gpu": "h100-sxm", "tensor_parallel": 2, "expert_parallel": True, "data_parallel": 4},
        "all2all_backend": "deepep_low_latency",
    }
    assert found["scheduler"] == {"max_num_seqs": 32}
    pair = servers_of(text % "prefill: {replicas: 2, template: {}}", Path("svc.yaml"))
    assert [each.where.partition(" (")[2] for each in pair] == [
        *("LLMInferenceService coder decode)", "LLMInferenceService coder prefill)"),
    ]


def test_charts_and_tasks_say_image_gpu_and_nodes() -> None:
    chart = """
    modelArtifacts: {uri: "hf://Qwen/Qwen3-32B"}
    decode:
      replicas: 3
      parallelism: {tensor: 2}
      extraConfig: {nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice}}
      containers: [{image: ghcr.io/llm-d/llm-d-rocm:v0.6.0, modelCommand: vllmServe, args: [-dp=1]}]
    prefill: {create: false, containers: [{image: vllm/vllm-openai, args: [--model, x]}]}
    """
    found = plain(read(chart, "values.yaml", gpu=None))
    assert found["fleet"] == {"gpu": "tpu-v6e", "tensor_parallel": 2, "replicas": 3}
    task = """
    envs: {MODEL: moonshotai/Kimi-K2-Instruct}
    resources: {accelerators: {H200:8}, image_id: "docker:vllm/vllm-openai:v0.11.0"}
    num_nodes: 2
    setup: pip list
    run: |
      vllm serve $MODEL -tp $SKYPILOT_NUM_GPUS_PER_NODE -pp $SKYPILOT_NUM_NODES
    """
    made = read(task, "task.yaml", gpu=None)
    assert plain(made)["engine"] == "vllm@0.11.0"
    assert plain(made)["fleet"] == {
        **{"gpu": "h200-sxm", "tensor_parallel": 8, "pipeline_parallel": 2},
    }


def test_workers_of_dynamo_are_the_engines_own_and_read_their_config_map() -> None:
    text = """
    kind: ConfigMap
    data: {"engine.yaml": "tensor_parallel_size: 8\\nenable_attention_dp: true\\n"}
    ---
    kind: DynamoGraphDeployment
    metadata: {name: r1}
    spec:
      services:
        Frontend: {extraPodSpec: {mainContainer: {image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1}}}
        Worker:
          extraPodSpec:
            mainContainer:
              image: nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.1.1
              command: [python3, -m, dynamo.trtllm]
              args: [--model-path, /cache/weights, --served-model-name, deepseek-ai/DeepSeek-R1,
                     --extra-engine-args, /config/engine.yaml]
    """
    made = read(dedent(text), "graph.yaml", gpu="h200-sxm")
    assert plain(made)["model"] == "deepseek-ai/DeepSeek-R1"
    assert plain(made)["fleet"] == {"gpu": "h200-sxm", "data_parallel": 8}
    assert any("which it is served as" in note for note in made.draft.notes)


def test_vllm_before_v1_has_its_own_rule_and_defaults() -> None:
    made = read("docker run vllm/vllm-openai:v0.6.3 --model Qwen/Qwen3-8B --max-model-len 8192")
    assert plain(made)["scheduler"] == {
        **{"policy": "vllm-v0", "max_num_seqs": 256, "max_num_batched_tokens": 8192},
    }
    assert plain(made)["kv_cache"]["enable_prefix_caching"] is False
    modern = read("docker run -e VLLM_USE_V1=1 vllm/vllm-openai:v0.7.3 --model Qwen/Qwen3-8B")
    assert "scheduler" not in plain(modern)


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve Qwen/Qwen3-8B --task embed",
        "vllm serve Qwen/Qwen3-8B --runner pooling",
        "python -m sglang.launch_server --model Qwen/Qwen3-8B --is-embedding",
        "llama-server -m Qwen3-8B-Q4_K_M.gguf --embeddings",
    ],
)
def test_servers_of_embeddings_are_refused(command: str) -> None:
    with pytest.raises(UsageError, match="only models that generate text"):
        read(command)


def test_llama_servers_variables_are_options() -> None:
    text = """
    services:
      chat:
        image: ghcr.io/ggml-org/llama.cpp:server-cuda
        environment: [LLAMA_ARG_HF_REPO=bartowski/Qwen3-8B-GGUF:Q8_0, LLAMA_ARG_CTX_SIZE=8192,
                      LLAMA_ARG_N_PARALLEL=2, LLAMA_ARG_N_GPU_LAYERS=20]
    """
    made = read(text, "compose.yaml", gpu="rtx-4090")
    assert plain(made)["precision"] == {"weights": "q8_0"}
    assert plain(made)["max_model_len"] == 4096
    assert list(made.draft.left_out) == ["LLAMA_ARG_N_GPU_LAYERS 20"]


def test_a_gguf_file_keeps_its_format_where_the_model_is_said() -> None:
    made = read("llama-server -m ~/x/unheard-Q8_0.gguf", gpu="rtx-4090", model="qwen3-8b")
    assert plain(made)["precision"] == {"weights": "q8_0"}


def test_roles_of_a_set_are_named() -> None:
    text = """
    kind: DisaggregatedSet
    metadata: {name: two}
    spec:
      roles:
      - {name: prefill, spec: {containers: [{command: [vllm, serve, Qwen/Qwen3-8B]}]}}
      - {name: decode, spec: {containers: [{command: [vllm, serve, Qwen/Qwen3-8B]}]}}
    """
    found = [each.where for each in servers_of(text, Path("set.yaml"))]
    assert found == [f"set.yaml (DisaggregatedSet two {role})" for role in ("prefill", "decode")]


def test_sglang_limits_of_prefill_below_the_chunk_are_kept() -> None:
    command = "python -m sglang.launch_server --model Qwen/Qwen3-32B --max-prefill-tokens 5500"
    for more, kept in (
        ("", True),
        (" --chunked-prefill-size 8192", True),
        (" --chunked-prefill-size 4096", False),
    ):
        made = plain(read(command + more))
        assert (made.get("scheduler", {}).get("max_prefill_tokens") == 5500) is kept


def test_sglang_has_data_ranks_only_where_dp_says_so() -> None:
    command = "python -m sglang.launch_server --model deepseek-ai/DeepSeek-R1 --tp 8"
    found = plain(read(f"{command} --enable-dp-attention", gpu="h200-sxm"))
    assert found["fleet"] == {"gpu": "h200-sxm", "tensor_parallel": 8}
    found = plain(read(f"{command} --max-total-tokens 20480", gpu="h200-sxm"))
    assert found["kv_cache"] == {"num_gpu_blocks": 20480}


def test_a_log_keeps_what_cannot_be_read_as_python_and_what_was_given() -> None:
    log = (
        "INFO 01-01 [utils.py:1]  █▄█▀  version 0.15.0rc1\n"
        "INFO 01-01 [utils.py:2] non-default args: {'model': 'Qwen/Qwen3-8B', 'max_num_seqs': 7, "
        "'kv_transfer_config': KVTransferConfig(kv_role='kv_both', kv_rank=None)}\n"
    )
    made = read(log, "server.log")
    assert (plain(made)["engine"], plain(made)["scheduler"]) == (
        *("vllm@0.15.0", {"max_num_seqs": 7}),
    )
    assert list(made.draft.left_out) == ["kv_transfer_config in the log"]


def test_models_are_found_in_caches_but_not_by_an_alias_of_another() -> None:
    cached = "/data/hub/models--Qwen--Qwen3-8B/snapshots/abc"
    assert plain(read(f"vllm serve {cached}"))["model"] == "Qwen/Qwen3-8B"
    with pytest.raises(UsageError, match="is not in the catalogue"):
        read("vllm serve unheard/of-1b --served-model-name Qwen/Qwen3-8B")


def test_drafts_of_older_releases_and_of_caches() -> None:
    command = "vllm serve deepseek-ai/DeepSeek-R1 -tp 8 --num-speculative-tokens 2"
    found = plain(read(f"{command} --speculative-model DeepSeekV3MTP", gpu="h200-sxm"))
    assert (found["speculative"]["method"], found["speculative"]["num_tokens"]) == ("mtp", 2)
    config = '{"method": "draft_model", "model": "/hub/models--Qwen--Qwen3-0.6B/snapshots/1"}'
    found = plain(read(f"vllm serve Qwen/Qwen3-8B --speculative-config '{config}'"))
    assert found["speculative"]["draft_model"] == "Qwen/Qwen3-0.6B"
    other = '{"method": "draft_model", "model": "mine"}'
    with pytest.raises(UsageError, match="the draft model 'mine' is not in the catalogue"):
        read(f"vllm serve Qwen/Qwen3-8B --speculative-config '{other}'")


def test_whole_prompts_need_batches_as_long_as_they_are() -> None:
    command = "vllm serve Qwen/Qwen3-8B --no-enable-chunked-prefill --max-model-len 16384"
    found = plain(read(command, gpu="l4"))["scheduler"]
    assert found == {"chunked_prefill": False, "max_num_batched_tokens": 16384}
    found = plain(read(command.replace("16384", "1024"), gpu="l4"))["scheduler"]
    assert found == {"chunked_prefill": False}


def test_ranks_of_a_tpu_are_halves_of_its_chips() -> None:
    text = """
    spec:
      nodeSelector: {cloud.google.com/gke-tpu-accelerator: tpu7x}
      containers: [{command: [vllm, serve, Qwen/Qwen3-32B, -tp=8],
                    resources: {limits: {google.com/tpu: 4}}}]
    """
    made = read(text, "pod.yaml", gpu=None)
    assert plain(made)["fleet"] == {"gpu": "tpu-v7x", "tensor_parallel": 4}
    assert "-tp 8, two ranks a chip" in made.text


def test_model_and_gpu_are_asked_for_at_once() -> None:
    with pytest.raises(UsageError, match=r"not in the catalogue.*; and does not say on which GPU"):
        read("vllm serve unheard/of-1b", gpu=None)


def test_quotes_of_prose_do_not_swallow_commands() -> None:
    text = (
        "It's a server for one GPU.\n\n    vllm serve Qwen/Qwen3-8B --max-num-seqs 4\n\nDon't.\n"
        'cat <<< "vllm"\n'
    )
    assert plain(read(text, "README.md"))["scheduler"] == {"max_num_seqs": 4}


def test_servers_in_one_place_are_told_apart_by_number(tmp_path: Path) -> None:
    script = "vllm serve Qwen/Qwen3-8B --port 1\nvllm serve Qwen/Qwen3-8B --port 2\n"
    out = ["--gpu", "h100-sxm", "-o", str(tmp_path / "one.yaml")]
    asked = CliRunner().invoke(app, ["import", "-", *out], input=script)
    assert (asked.exit_code, "stdin #2" in asked.stderr) == (2, True)
    done = CliRunner().invoke(app, ["import", "-", *out, "--service", "#2"], input=script)
    assert done.exit_code == 0, done.stderr


@pytest.mark.parametrize(("options", "read_as"), [("--quantization awq", "int8"), ("", None)])
def test_inputs_of_marlin_are_in_int8_where_weights_are_in_int4(
    options: str, read_as: str | None
) -> None:
    script = f"export VLLM_MARLIN_INPUT_DTYPE=int8\nvllm serve Qwen/Qwen3-8B {options}"
    found = plain(read(script))
    assert found.get("precision", {}).get("activations") == read_as


@pytest.mark.parametrize(
    ("path", "model"), [("./Qwen3.5-27B-AWQ", "Qwen3.5-27B-AWQ"), ("/models/mine", "qwen3.5-27b")]
)
def test_a_given_model_is_stored_as_the_path_of_its_checkpoint_says(path: str, model: str) -> None:
    found = read(f"vllm serve {path}", gpu="rtx-3090", model="qwen3.5-27b")
    assert plain(found)["model"] == model
