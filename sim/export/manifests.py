"""Writes a fleet as files that start it: Docker Compose, and objects of Kubernetes.

Images and ports are those of the engines' own documentation; metrics those that they export (vLLM
``v1/metrics/loggers.py``, SGLang ``docs/references/production_metrics.md``, llama.cpp
``tools/server/README.md``); labels those of NVIDIA's GPU feature discovery and AMD's node labeller.
``infersim import`` reads both files back.
"""

from __future__ import annotations

import re
import textwrap
from string import Template
from typing import Any

import yaml

from sim.errors import printable
from sim.export.deployed import ExportedFleet
from sim.planning.fleet.launch import TITLES
from sim.planning.points.wording import counted
from sim.routers import ROUTERS, Random, RoundRobin
from sim.scenario.sections.autoscaling import Autoscaling, Replicas, ScalingStep

IMAGES = {
    "vllm": ("vllm/vllm-openai:v{}", "vllm/vllm-openai-rocm:v{}"),
    "sglang": ("lmsysorg/sglang:v{}", "lmsysorg/sglang:v{}-rocm700-mi30x"),
    "tensorrt-llm": ("nvcr.io/nvidia/tensorrt-llm/release:{}", ""),
    "llama.cpp": (
        "ghcr.io/ggml-org/llama.cpp:server-cuda",
        "ghcr.io/ggml-org/llama.cpp:server-rocm",
    ),
}
"""Images of each engine's release for GPUs of NVIDIA and of AMD."""

PROGRAMS = {
    "vllm": (2, ["vllm", "serve"], []),
    "sglang": (3, ["python3", "-m", "sglang.launch_server"], ["--enable-metrics"]),
    "tensorrt-llm": (1, ["trtllm-serve"], []),
    "llama.cpp": (1, ["/app/llama-server"], ["--metrics"]),
}
"""How many words of a command are its program, the program in the image, and further options."""

HOST = ["--host", "0.0.0.0", "--port", "8000"]

METRICS = {
    ("vllm", "queue"): "vllm:num_requests_waiting",
    ("vllm", "running"): "vllm:num_requests_running",
    ("vllm", "kv"): "vllm:kv_cache_usage_perc",
    ("sglang", "queue"): "sglang:num_queue_reqs",
    ("sglang", "running"): "sglang:num_running_reqs",
    ("sglang", "kv"): "sglang:token_usage",
    ("llama.cpp", "queue"): "llamacpp:requests_deferred",
    ("llama.cpp", "running"): "llamacpp:requests_processing",
}
"""Names under which engines export what ``autoscaling.metric`` says."""

SERVICE = Template("""\
  "$name":
    image: $image
    entrypoint: $program
    command: $words
    environment: {HF_TOKEN: "$${HF_TOKEN:-}"$visible}
    $devices
    ipc: host
    ports: ["$port:8000"]
    volumes: ["huggingface:/root/.cache/huggingface"]
    healthcheck:
      test: [CMD, curl, -fs, "http://localhost:8000/health"]
      interval: 10s
      start_period: 60m  # weights are downloaded and read
    restart: unless-stopped
    stop_grace_period: 5m
""")
NVIDIA = (
    "deploy: {resources: {reservations: {devices: [{driver: nvidia, %s, capabilities: [gpu]}]}}}"
)
AMD = """devices: [/dev/kfd, /dev/dri]
    group_add: [video]
    security_opt: ["seccomp:unconfined"]"""

DEPLOYMENT = Template("""\
apiVersion: apps/v1
kind: Deployment
metadata: $metadata
spec:
  replicas: $replicas
  selector: {matchLabels: $labels}
  strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}  # GPUs for one more are rare
  template:
    metadata: {labels: $labels}
    spec:
      enableServiceLinks: false  # they would set VLLM_PORT for a Service called vllm
      terminationGracePeriodSeconds: 300
      nodeSelector: $selector
      tolerations: [{key: $resource, operator: Exists, effect: NoSchedule}]
      containers:
      - name: server
        image: $image
        command: $program
        args: $words
        env:
        - name: HF_TOKEN
          valueFrom: {secretKeyRef: {name: huggingface, key: token, optional: true}}
        ports: [{name: http, containerPort: 8000}]
        resources: {limits: {$resource: $gpus}}
        startupProbe:  # for an hour, in which weights are downloaded and read
          httpGet: {path: /health, port: http}
          periodSeconds: 10
          failureThreshold: 360
        readinessProbe: {httpGet: {path: /health, port: http}, timeoutSeconds: 5}
        livenessProbe:
          httpGet: {path: /health, port: http}
          timeoutSeconds: 30
          failureThreshold: 6
        volumeMounts:
        - {name: shm, mountPath: /dev/shm}
        - {name: huggingface, mountPath: /root/.cache/huggingface}
      volumes:
      - {name: shm, emptyDir: {medium: Memory, sizeLimit: 16Gi}}
      - {name: huggingface, emptyDir: {}}  # a claim would keep the weights for the next pod
---
apiVersion: v1
kind: Service
metadata: $metadata
spec:
  selector: $labels
  ports: [{name: http, port: 8000, targetPort: http}]
""")


def compose(fleet: ExportedFleet) -> str:
    """The fleet for one host: a service for each replica, which has its own GPUs and port."""
    gpus, host, wanted = fleet.gpus, fleet.gpu.node.gpus, max(1, fleet.replicas)
    fit = wanted if host is None else min(wanted, host // gpus)
    notes = [f"These are {fit} of {wanted:,} replicas, those of one host."] if fit < wanted else []
    if fleet.scaling is not None:
        notes.append("Docker does not scale: replicas are those at first.")
    amd, name, services = fleet.gpu.is_amd, _name(fleet), ""
    for number in range(fit):
        ids = [str(number * gpus + each) for each in range(gpus)]
        which = f"count: {gpus}" if fit == 1 else f"device_ids: {_line(ids)}"  # counts begin at 0
        services += SERVICE.substitute(
            _command(fleet),
            name=name if fit == 1 else f"{name}-{number + 1}",
            visible=f', HIP_VISIBLE_DEVICES: "{",".join(ids)}"' if amd else "",
            devices=AMD if amd else NVIDIA % which,
            port=8000 + number,
        )
    head = _head(fleet, [*notes, *_routed(fleet, "Each replica has a port.")])
    return f"{head}services:\n{services}volumes: {{huggingface: {{}}}}\n"


def kubernetes(fleet: ExportedFleet) -> str:
    """A Deployment and its Service, and what scales it where the simulated fleet was scaled."""
    gpu, driver = fleet.gpu, fleet.driver
    notes = _routed(fleet, "A Service chooses a replica at random for each connection.")
    notes.append("HF_TOKEN is the key `token` of the Secret `huggingface`, if there is one.")
    selector = {"nvidia.com/gpu.product": re.sub(r"\s+", "-", driver)}
    if gpu.is_amd:
        selector = {"amd.com/gpu.product-name": f"{driver.replace(' ', '_')}_OAM"}
        notes.append("Labels of AMD's nodes and tags of images vary: check both.")
    if not driver:
        notes.append(f"No label of a node is known for {gpu.title}: add a nodeSelector.")
    text = DEPLOYMENT.substitute(
        _command(fleet),
        **{"metadata": _line(_metadata(fleet)), "labels": _line(_metadata(fleet)["labels"])},
        **{"replicas": fleet.replicas, "gpus": fleet.gpus},
        resource="amd.com/gpu" if gpu.is_amd else "nvidia.com/gpu",
        selector=_line(selector if driver else {}),
    )
    if fleet.scaling is not None and fleet.between is not None:
        scaler, said = _scaler(fleet, fleet.scaling, fleet.between)
        notes.append(said)
        text += "" if scaler is None else f"---\n{yaml.safe_dump(scaler, sort_keys=False)}"
    return _head(fleet, notes) + text


def _scaler(
    fleet: ExportedFleet, rule: Autoscaling, between: Replicas
) -> tuple[dict[str, Any] | None, str]:
    """The simulated autoscaler and what to know of it; None where Kubernetes and KEDA have no such
    rule or metric."""
    metric = METRICS.get((fleet.start.engine, rule.metric))
    if rule.policy not in ("hpa", "keda") or metric is None:
        return None, (
            f"From {between.min} to {between.max} replicas were simulated by the policy "
            f"{rule.policy} ({rule.aim or 'its own thresholds'}), for which nothing is written."
        )
    down = {"stabilizationWindowSeconds": round(rule.stabilisation), **_policies(rule.scale_down)}
    up = {"scaleUp": _policies(rule.scale_up)} if rule.scale_up else {}
    behaviour, target, name = {"scaleDown": down, **up}, f"{rule.target:g}", _name(fleet)
    scaled = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}}
    if rule.policy == "hpa":
        average = {"type": "AverageValue", "averageValue": target}
        spec = {
            **{**scaled, "minReplicas": between.min, "maxReplicas": between.max},
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": metric}, "target": average}}],
            "behavior": behaviour,
        }
        head = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
        said = f"The Prometheus adapter has to serve {metric} for each pod."
        return {**head, "metadata": _metadata(fleet), "spec": spec}, said
    trigger = {
        "serverAddress": "http://prometheus.monitoring.svc:9090",
        "query": f'sum({metric}{{pod=~"{name}-.*"}})',
        "threshold": target,
    }
    spec = {
        **{**scaled, "minReplicaCount": between.min, "maxReplicaCount": between.max},
        **{"pollingInterval": round(rule.polling), "cooldownPeriod": round(rule.cooldown)},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behaviour}},
        "triggers": [{"type": "prometheus", "metadata": trigger}],
    }
    said = "The serverAddress of the ScaledObject is to be that of your Prometheus."
    if not between.min:
        said += f" No replica, no {metric}: add a trigger on the queue of the gateway."
    head = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject"}
    return {**head, "metadata": _metadata(fleet), "spec": spec}, said


def _policies(steps: tuple[ScalingStep, ...] | None) -> dict[str, Any]:
    """Steps of Kubernetes; its own defaults where the scenario has none."""
    found = [
        {
            "type": "Percent" if step.pods is None else "Pods",
            "value": step.pods or max(1, round(step.percent or 0)),
            "periodSeconds": max(1, round(step.period)),
        }
        for step in steps or ()
    ]
    return {"policies": found} if found else {}


def _routed(fleet: ExportedFleet, plain: str) -> list[str]:
    """The simulated router, where several replicas have another in these files."""
    most = fleet.replicas if fleet.between is None else fleet.between.max
    if most == 1 or fleet.router in (Random.name, RoundRobin.name):
        return []
    known = ROUTERS[fleet.router].real if fleet.router in ROUTERS else ""
    real = f" ({known})" if known else ""
    return [f"{plain} The simulated router was {fleet.router}{real}: put such a one in front."]


def _command(fleet: ExportedFleet) -> dict[str, str]:
    """The image of one replica, the program in it, and the words after that."""
    engine, release, (size, program, more) = *fleet.start[:2], PROGRAMS[fleet.start.engine]
    image = IMAGES[engine][fleet.gpu.is_amd]
    if release:
        image = image.format(f"{release}.0" if release.count(".") == 1 else release)
    words = yaml.safe_dump([*fleet.start.words[size:], *HOST, *more], default_flow_style=True)
    return {
        "image": re.sub(r":v?\{\}.*", ":latest", image),
        "program": _line(program),
        "words": words.strip().replace("\n", f"\n{' ' * 10}"),
    }


def _name(fleet: ExportedFleet) -> str:
    """A label of DNS."""
    plain = re.sub(r"[^a-z0-9]+", "-", fleet.name.lower()).strip("-")[:40].strip("-")
    return plain if plain[:1].isalpha() else f"llm-{plain}".strip("-")


def _metadata(fleet: ExportedFleet) -> dict[str, Any]:
    return {"name": _name(fleet), "labels": {"app.kubernetes.io/name": _name(fleet)}}


def _line(value: Any) -> str:
    """YAML in one line."""
    return yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000).strip()


def _head(fleet: ExportedFleet, notes: list[str]) -> str:
    """What is started, and what was predicted of it, as comments."""
    start = fleet.start
    engine = f"{TITLES[start.engine]} {start.release}".strip()
    gpus = f"{counted(fleet.gpus, 'GPU')} ({fleet.gpu.title})"
    what = f"{fleet.name}: {engine} on {gpus} a replica, as simulated by infersim."
    lines = [
        line
        for each in (what, *fleet.predicted, *start.notes, *notes)
        for line in textwrap.wrap(printable(each), 96, break_on_hyphens=False)
    ]
    return "".join(f"# {line}\n" for line in lines)
