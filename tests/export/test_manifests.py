"""Fleets as files for Docker Compose and Kubernetes: valid, and read back as the same fleet."""

from __future__ import annotations

import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

import sim
from sim import catalog
from sim.cli import app
from sim.errors import InfersimError
from sim.export.deployed import read_fleet
from sim.export.manifests import METRICS, compose, kubernetes
from sim.planning.fleet.launch import launch_commands
from sim.planning.fleet.plan_document import cheapest_sure
from sim.serve import meters
from sim.servers import imported, sources_of
from sim.servers.draft import gpu_named
from tests.places import ROOT
from tests.servers.test_import_server import _deployed, _own_rule

SCENARIO = """
version: 1
name: 'My "chat" # 2'
model: llama-3.1-8b
fleet: {gpu: h100-sxm, tensor_parallel: 2, replicas: 3}
engine: vllm@0.11.0
workload:
  arrivals: {kind: poisson, rate: 4}
  prompt_tokens: {kind: fixed, value: 100}
  output_tokens: {kind: fixed, value: 20}
slo: {ttft: 500ms, tpot: 40ms}
run: {requests: 60}
"""
SHIPPED = sorted((ROOT / "scenarios").glob("*.yaml"))


def written(folder: Path, **changes: object) -> Path:
    data = yaml.safe_load(SCENARIO) | changes
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(data), "utf-8")
    return path


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(text))


def unwrapped(text: str) -> str:
    return text.replace("\n# ", " ")


@pytest.mark.parametrize("engine", ["", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_files_read_back_as_the_same_fleet(path: Path, engine: str, tmp_path: Path) -> None:
    try:
        scenario = sim.load_scenario(path, [f"engine={engine}"] if engine else [])
        source = tmp_path / "resolved.yaml"
        source.write_text(scenario.to_yaml(), "utf-8")
        fleet = read_fleet(source)
    except InfersimError as error:
        pytest.skip(str(error))
    if engine == "tensorrt-llm" and not _own_rule(scenario):
        pytest.skip("trtllm-serve cannot say the rule or the format of this deployment")
    if "llama.cpp" in scenario.to_yaml():
        pytest.skip("the manifest leaves the GGUF file open, which the reader would know it by")
    for write, gpu in ((compose, scenario.pools[0].gpu), (kubernetes, None)):
        file = tmp_path / f"{write.__name__}.yaml"
        file.write_text(write(fleet), "utf-8")
        (started,) = sources_of(str(file))
        back = imported(started, tmp_path, gpu=gpu)
        assert (back.draft.unknown, back.draft.left_out) == ([], {})
        assert _deployed(back.scenario) == _deployed(scenario)
        (pool,) = back.scenario.pools
        assert (pool.gpu, pool.replicas) == (scenario.pools[0].gpu, fleet.replicas)


def valid(text: str) -> list[dict[str, Any]]:
    """The objects of Kubernetes in a file, checked by its schemas; KEDA's has none there."""
    validate = pytest.importorskip("kubernetes_validate").validate
    for each in documents(text):
        if each["kind"] != "ScaledObject":
            validate(each, "1.30", strict=True)
    return documents(text)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_files_follow_the_published_schemas(path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    shipped = files(pytest.importorskip("check_jsonschema")).joinpath("builtin_schemas/vendor")
    try:
        fleet = read_fleet(path)
    except InfersimError as error:
        pytest.skip(str(error))
    valid(kubernetes(fleet))
    schema = json.loads(shipped.joinpath("compose-spec.json").read_text("utf-8"))
    jsonschema.validate(yaml.safe_load(compose(fleet)), schema)


def test_replicas_on_one_host_have_their_own_gpus_and_ports(tmp_path: Path) -> None:
    services = yaml.safe_load(compose(read_fleet(written(tmp_path))))["services"]
    assert list(services) == ["my-chat-2-1", "my-chat-2-2", "my-chat-2-3"]
    last = services["my-chat-2-3"]
    assert (last["image"], last["ports"]) == ("vllm/vllm-openai:v0.11.0", ["8002:8000"])
    (device,) = last["deploy"]["resources"]["reservations"]["devices"]
    assert device["device_ids"] == ["4", "5"]
    fleet = {"gpu": "h100-sxm", "tensor_parallel": 2, "replicas": 6}
    text = compose(read_fleet(written(tmp_path, fleet=fleet)))
    assert len(yaml.safe_load(text)["services"]) == 4
    assert "These are 4 of 6 replicas" in unwrapped(text)


def test_a_router_that_a_service_is_not_is_said(tmp_path: Path) -> None:
    said = "The simulated router was"
    assert f"{said} least-outstanding" in unwrapped(kubernetes(read_fleet(written(tmp_path))))
    assert said not in kubernetes(read_fleet(written(tmp_path, router="round-robin")))


@pytest.mark.parametrize("gpu", catalog.names("gpus"))
def test_nodes_are_chosen_by_a_label_that_names_the_gpu(gpu: str, tmp_path: Path) -> None:
    try:
        fleet = read_fleet(written(tmp_path, model="qwen3-0.6b", fleet={"gpu": gpu}))
    except InfersimError as error:
        assert "NVIDIA and AMD" in str(error)  # noqa: PT017
        return
    pod = documents(kubernetes(fleet))[0]["spec"]["template"]["spec"]
    (label,) = pod["nodeSelector"].values()
    assert (gpu_named(label), len(label) <= 63) == (gpu, True)
    resource = "amd.com/gpu" if fleet.gpu.is_amd else "nvidia.com/gpu"
    assert pod["containers"][0]["resources"] == {"limits": {resource: 1}}
    assert yaml.safe_load(compose(fleet))


def scaled(folder: Path, fewest: int, **rule: object) -> tuple[list[dict[str, Any]], str]:
    fleet = {"gpu": "h100-sxm", "replicas": {"min": fewest, "max": 4}}
    text = kubernetes(read_fleet(written(folder, fleet=fleet, autoscaling=rule)))
    found = valid(text) if find_spec("kubernetes_validate") else documents(text)
    return [each["spec"] for each in found[2:]], unwrapped(text)


def test_hpa_has_the_simulated_target_and_behaviour(tmp_path: Path) -> None:
    rule = {"metric": "kv", "target": 0.7, "scale_up": [{"pods": 2, "period": "60s"}]}
    (spec,), _ = scaled(tmp_path, 1, **rule, stabilisation="2min")
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 4)
    assert spec["metrics"][0]["pods"] == {
        "metric": {"name": "vllm:kv_cache_usage_perc"},
        "target": {"type": "AverageValue", "averageValue": "0.7"},
    }
    assert spec["behavior"] == {
        "scaleDown": {"stabilizationWindowSeconds": 120},
        "scaleUp": {"policies": [{"type": "Pods", "value": 2, "periodSeconds": 60}]},
    }


def test_keda_has_the_sum_of_the_metric_and_its_own_periods(tmp_path: Path) -> None:
    (spec,), text = scaled(tmp_path, 0, policy="keda", target=5, polling="20s", cooldown="90s")
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 4)
    assert (spec["pollingInterval"], spec["cooldownPeriod"]) == (20, 90)
    trigger = spec["triggers"][0]["metadata"]
    assert trigger["query"] == 'sum(vllm:num_requests_waiting{pod=~"my-chat-2-.*"})'
    assert trigger["threshold"] == "5"
    assert "No replica, no vllm:num_requests_waiting" in text


def test_a_rule_that_is_not_of_kubernetes_is_said(tmp_path: Path) -> None:
    found, text = scaled(tmp_path, 1, policy="slo", target=8)
    assert (found, "by the policy slo (8 requests/s a replica)" in text) == ([], True)


def test_metrics_of_vllm_are_those_that_serve_exports_too() -> None:
    source = Path(meters.__file__).read_text("utf-8")
    names = [name.partition(":")[2] for (engine, _), name in METRICS.items() if engine == "vllm"]
    assert all(f'"{name}"' in source for name in names)


def test_a_run_says_what_was_predicted(tmp_path: Path) -> None:
    run = tmp_path / "run"
    CliRunner().invoke(app, ["run", str(written(tmp_path)), "-o", str(run), "--no-report"])
    done = export(run, "--to", "kubernetes")
    assert done.exit_code == 0, done.stderr
    text = (run / "kubernetes.yaml").read_text("utf-8")
    assert "# Predicted at 4 requests/s, Poisson: TTFT mean" in text
    assert "exists already" in export(run, "--to", "kubernetes").stderr
    assert "no directory of a plan" in export(run, "--to", "compose", "--fleet", 1).stderr


def plan(folder: Path, *trusts: str, most: int | None = None) -> Path:
    """A plan's directory with a fleet for each of the ``trusts``; ``most`` replicas of any layout
    are sure to hold the rate."""
    launch = launch_commands(sim.load_scenario(written(folder)))
    same = {"gpu": "h100-sxm", "mean_ttft_ms": 50.0, "launch": launch}
    fleets = [
        same
        | {
            "rank": n,
            "layout": f"layout {n}",
            "replicas": n,
            "gpus": 2 * n,
            "usd_per_hour": 4.0 * n,
        }
        | {"error_band": {"trust": trust, "sure_replicas": most}}
        for n, trust in enumerate(trusts, 1)
    ]
    head = {"command": "plan", "scenario": "mine", "engine": "vllm@0.11.0", "rate": 6.0}
    answer = head | {"router": "least-outstanding", "fleets": fleets}
    answer["ranking"] = {"sure": cheapest_sure(fleets)}
    (folder / "result.json").write_text(json.dumps(answer), "utf-8")
    return folder


def test_of_a_plan_the_cheapest_fleet_that_is_sure_is_written(tmp_path: Path) -> None:
    folder = plan(tmp_path, "likely", "sure", "sure")
    assert [read_fleet(folder, rank).replicas for rank in (None, 3)] == [2, 3]
    assert "ranks 3 fleets" in export(folder, "--to", "compose", "--fleet", 9).stderr
    done = export(folder, "--to", "compose", "--json")
    assert json.loads(done.stdout)["files"] == [str(folder / "compose.yaml")]
    unsure = read_fleet(plan(tmp_path, "likely", "a guess"))
    assert unsure.replicas == 1
    assert "likely to hold the rate. No fleet of the plan is sure to." in unsure.predicted[0]


def test_of_a_plan_more_replicas_are_written_where_only_those_are_sure(tmp_path: Path) -> None:
    folder = plan(tmp_path, "likely", "a guess", most=3)
    fleet = read_fleet(folder)
    assert fleet.replicas == 3
    assert "That is of 1 replica, rank 1 of the plan; 3 are sure" in fleet.predicted[0]
    first = read_fleet(folder, 1)
    assert (first.replicas, "sure" in first.predicted[0]) == (1, False)
    assert read_fleet(plan(tmp_path, "likely", "sure", most=3)).replicas == 2  # which cost less


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    large = written(tmp_path, fleet={"gpu": "h100-sxm", "tensor_parallel": 16})
    for target, message in (
        (ROOT / "scenarios" / "disaggregated.yaml", "prefill and decode apart"),
        (large, "LeaderWorkerSet"),
        (tmp_path, "no directory of a run or a plan"),
    ):
        done = export(target, "--to", "kubernetes", "-o", tmp_path / "out.yaml")
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
