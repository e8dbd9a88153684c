"""Finds the servers in YAML: Docker Compose, Kubernetes, KServe, and values of Helm charts.

A container is a mapping with a ``command``, ``entrypoint`` or ``args``; what is around it says how
often it runs, on how many GPUs and on which. Charts that build the command themselves (vLLM's
production stack, llm-d) are read by the keys that they build it from.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sim.errors import UsageError
from sim.servers.shell import SHELLS, commands
from sim.servers.started import PROGRAM, Started, engine_of_image, program_in, substituted

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "google.com/tpu", "habana.ai/gaudi", "gpu")
GPU_LABELS = (
    *("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name"),
    *("gpu.nvidia.com/model", "gpu.nvidia.com/class", "eks.amazonaws.com/instance-gpu-name"),
    *("k8s.amazonaws.com/accelerator", "cloud.google.com/gke-tpu-accelerator"),
    *("karpenter.k8s.aws/instance-gpu-name", "node.kubernetes.io/instance-type"),
    *("beta.kubernetes.io/instance-type", "kubernetes.azure.com/accelerator-name"),
)
"""Labels of nodes that name their GPU, or the type of machine that has it."""

CHART = {
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxModelLen": "--max-model-len",
    "maxNumSeqs": "--max-num-seqs",
    "maxNumBatchedTokens": "--max-num-batched-tokens",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "dtype": "--dtype",
    "enablePrefixCaching": "--enable-prefix-caching",
    "enableChunkedPrefill": "--enable-chunked-prefill",
    "enforceEager": "--enforce-eager",
}
"""Options of vLLM by the keys of ``vllmConfig`` in the values of its production stack."""

PARALLELISM = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
    "expert": "--enable-expert-parallel",
}
"""Options of vLLM by the keys of ``parallelism`` in values of llm-d and resources of KServe."""


@dataclass(frozen=True)
class _Around:
    """What the surroundings of a container say of it."""

    place: str = ""
    replicas: tuple[Any, str] | None = None
    gpu_label: str = ""
    model: str = ""
    parallelism: tuple[str, ...] = ()
    nodes: int = 1
    env: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    gpus: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)


def servers_in(documents: Sequence[Any], where: str, folder: Path) -> list[Started]:
    """The servers that YAML ``documents`` start, in their order; parts of a file that start the
    same server under names that differ by a number are replicas of it."""
    files = {
        name: text
        for document in documents
        if isinstance(document, Mapping) and document.get("kind") == "ConfigMap"
        for name, text in (document.get("data") or {}).items()
        if isinstance(text, str)
    }
    alike: dict[tuple[Any, ...], dict[str, Started]] = {}
    for document in documents:
        if isinstance(document, Mapping) and document.get("kind") == "ConfigMap":
            continue
        for each in _walk(document, where, folder, _Around(_named(document), files=files)):
            env = {k: v for k, v in each.env.items() if not k.endswith("VISIBLE_DEVICES")}
            name = re.sub(r"\d+", "", each.where)
            alike_in = each.engine, each.words, each.image, each.gpus, each.gpu_label
            what = (name, *alike_in, *env.items())
            alike.setdefault(what, {})[each.where] = each
    return [_together(list(parts.values())) for parts in alike.values()]


def _together(parts: Sequence[Started]) -> Started:
    """The server that all of ``parts`` start, with the sum of their replicas."""
    first, one = parts[0], (1, "")
    if len(parts) == 1:
        return first
    total = sum(each.settings.get("fleet.replicas", one)[0] for each in parts)
    replicas = {"fleet.replicas": (total, f"{len(parts)} parts of the file that are alike")}
    places = ", ".join(each.where for each in parts)
    return replace(first, where=places, settings={**first.settings, **replicas})


def _named(node: Any) -> str:
    """The kind and name that a Kubernetes document gives itself; empty for others."""
    if not isinstance(node, Mapping) or not isinstance(node.get("metadata"), Mapping):
        return ""
    return f"{node.get('kind', '')} {node['metadata'].get('name', '')}".strip()


def _walk(node: Any, where: str, folder: Path, around: _Around) -> Iterator[Started]:
    if isinstance(node, list):
        for each in node:
            inner = around
            if isinstance(each, Mapping) and {"spec", "podTemplate"} & each.keys():
                inner = replace(around, place=f"{around.place} {each.get('name', '')}".strip())
            yield from _walk(each, where, folder, inner)
        return
    if isinstance(node, str):
        if PROGRAM.search(node):
            for each in commands(node, _place(where, around), env=around.env, folder=folder):
                yield _with(replace(each, image=each.image or around.image), around, {})
        return
    if not isinstance(node, Mapping) or False in (node.get("create"), node.get("enabled")):
        return
    around = _informed(node, around)
    if isinstance(node.get("run"), str) and isinstance(node.get("setup"), str):
        node = {"run": f"{node['setup']}\n{node['run']}"}
    if isinstance(node.get("modelURL"), str):
        yield _of_chart(node, where, folder, around)
        return
    found = _container(node, where, folder, around)
    if found is not None:
        yield from found
        return
    if node.get("kind") == "LLMInferenceService":
        yield from _of_service(node, where, folder, around)
        return
    for key, each in node.items():
        if key == "workerTemplate" and "leaderTemplate" in node:
            continue  # workers run what their leader starts
        inner = around
        if _is_part(key, each):
            inner = replace(around, place=f"{around.place} {key}".strip())
        yield from _walk(each, where, folder, inner)


def _is_part(key: str, node: Any) -> bool:
    """Whether a mapping is a service of Compose or a role of a chart, whose key names it."""
    return (
        isinstance(node, Mapping)
        and key not in ("spec", "mainContainer", "main", "image")
        and any(name in node for name in ("image", "command", "args", "containers", "extraPodSpec"))
    )


def _place(where: str, around: _Around) -> str:
    return f"{where} ({around.place})" if around.place else where


def _informed(node: Mapping[str, Any], around: _Around) -> _Around:
    """``around`` with what a mapping says of all that is inside."""
    for key in ("replicas", "replicaCount", "minReplicas"):
        if isinstance(node.get(key), int) and not isinstance(node[key], bool):
            around = replace(around, replicas=(node[key], key))
            break
    if isinstance(deploy := node.get("deploy"), Mapping) and isinstance(
        deploy.get("replicas"), int
    ):
        around = replace(around, replicas=(deploy["replicas"], "deploy.replicas"))
    for label in _labels(node):
        around = replace(around, gpu_label=label)
    if isinstance(node.get("leaderWorkerTemplate"), Mapping):
        size = node["leaderWorkerTemplate"].get("size", 1)
        if isinstance(size, int):
            around = replace(around, nodes=size, env={"LWS_GROUP_SIZE": str(size)})
    if isinstance(node.get("resources"), Mapping) and isinstance(node.get("run"), str):
        around = _of_sky(node, around)
    if (gpus := _gpus(node)) is not None:
        around = replace(around, gpus=gpus)
    artifacts = node.get("modelArtifacts", node.get("model"))
    if isinstance(artifacts, Mapping) and isinstance(artifacts.get("uri"), str):
        around = replace(around, model=re.sub(r"^(hf|pvc)://", "", artifacts["uri"]))
    if isinstance(node.get("storageUri"), str) and node["storageUri"].startswith("hf://"):
        around = replace(around, model=node["storageUri"].removeprefix("hf://"))
    if isinstance(parallel := node.get("parallelism"), Mapping):
        words = [
            word
            for key, option in PARALLELISM.items()
            if isinstance(parallel.get(key), int)
            for word in ((option,) if parallel[key] is True else (option, str(parallel[key])))
        ]
        around = replace(around, parallelism=tuple(words))
    return around


def _of_sky(node: Mapping[str, Any], around: _Around) -> _Around:
    """``around`` with what a task of SkyPilot says: variables, image, nodes and GPUs.

    Several kinds of GPU to choose from name none.
    """
    asked = node.get("resources")
    resources = asked if isinstance(asked, Mapping) else {}
    nodes = node.get("num_nodes", 1)
    given = resources.get("accelerators", "")
    kinds = [str(given)]
    if isinstance(given, Mapping):
        kinds = [kind if number is None else f"{kind}:{number}" for kind, number in given.items()]
    kind, _, number = kinds[0].partition(":") if len(kinds) == 1 else ("", "", "")
    own = {"SKYPILOT_NUM_NODES": str(nodes), "SKYPILOT_NODE_RANK": "0"}
    if number.isdecimal():
        own["SKYPILOT_NUM_GPUS_PER_NODE"] = number
    return replace(
        around,
        env={**_environment(node.get("envs")), **own},
        image=str(resources.get("image_id", "")).removeprefix("docker:"),
        nodes=nodes if isinstance(nodes, int) else 1,
        gpus=int(number) if number.isdecimal() else None,
        gpu_label=kind,
    )


def _labels(node: Mapping[str, Any]) -> Iterator[str]:
    """The GPUs that a mapping asks its node for by label."""
    if isinstance(node.get("extraConfig"), Mapping):
        yield from _labels(node["extraConfig"])
    if isinstance(node.get("nodeSelectorTerms"), list):
        yield from _expressions(node["nodeSelectorTerms"])
    selector = node.get("nodeSelector")
    if isinstance(selector, Mapping):
        yield from (str(selector[label]) for label in GPU_LABELS if label in selector)
    affinity = node.get("affinity")
    if isinstance(affinity, Mapping):
        yield from _expressions(affinity)


def _expressions(node: Any) -> Iterator[str]:
    if isinstance(node, list):
        for each in node:
            yield from _expressions(each)
    elif isinstance(node, Mapping):
        values = node.get("values")
        if node.get("key") in GPU_LABELS and isinstance(values, list) and len(values) == 1:
            yield str(values[0])
        for each in node.values():
            yield from _expressions(each)


def _container(
    node: Mapping[str, Any], where: str, folder: Path, around: _Around
) -> list[Started] | None:
    """The servers of a container; None where a mapping is none, or starts no server."""
    if not any(key in node for key in ("command", "entrypoint", "args", "image", "modelFormat")):
        return None
    env = {**around.env, **_environment(node.get("env", node.get("environment")))}
    words = [*_words(node, "entrypoint"), *_words(node, "command"), *_words(node, "args")]
    words = [substituted(word, env) for word in words]
    image = node["image"] if isinstance(node.get("image"), str) else _joined(node.get("image"))
    image = substituted(image, env)
    place = _place(where, around)
    if words and words[0] in SHELLS and len(words) > 2 and words[1].startswith("-"):
        found = commands("\n".join(words[2:]), place, env=env, folder=folder)
        found = [replace(each, image=each.image or image) for each in found]
    elif (program := program_in(words)) is not None:
        engine, at = program
        found = [Started(engine, tuple(words[at:]), place, image, env, folder=folder)]
    elif (engine := engine_of_image(image) or _format(node)) and _does_serve(words, env, around):
        found = [Started(engine, tuple(words), place, image, env, folder=folder)]
    else:
        return None
    return [_with(each, around, node) for each in found]


def _does_serve(words: list[str], env: Mapping[str, str], around: _Around) -> bool:
    """Whether a container of an engine's image is given a model; others only use its tools."""
    given = any(name.startswith("LLAMA_ARG_") for name in env)
    options = not words or words[0].startswith("-") or "/" in words[0]
    return bool(given or around.model or words) and options


def _joined(image: Any) -> str:
    """An image that a chart states in parts."""
    if not isinstance(image, Mapping):
        return ""
    name, tag = image.get("repository", image.get("name", "")), image.get("tag", "")
    return f"{name}:{tag}" if tag else str(name)


def _format(node: Mapping[str, Any]) -> str:
    """The engine behind a model format of KServe: vLLM for Hugging Face's; empty for others.
    A container of llm-d's charts states its command by name."""
    if node.get("modelCommand") == "vllmServe":
        return "vllm"
    stated = node.get("modelFormat")
    name = stated.get("name", "") if isinstance(stated, Mapping) else ""
    return "vllm" if str(name).lower() in ("huggingface", "vllm") else ""


def _with(found: Started, around: _Around, node: Mapping[str, Any]) -> Started:
    """``found`` with what its container and its surroundings say."""
    settings = dict(found.settings)
    together = found.numbers("nnodes") or 0
    nodes = together if together > 1 else around.nodes
    if around.replicas is not None:
        number, key = around.replicas
        if together > 1 and number * around.nodes % together == 0:
            number = number * around.nodes // together
        settings["fleet.replicas"] = (number, f"{key}: {around.replicas[0]}")
    words = list(found.words)
    if found.engine == "vllm":
        extra = found.env.get("VLLM_ADDITIONAL_ARGS", "")
        words = [*words, *around.parallelism, *shlex.split(extra)]
    if around.model and not any(w in ("--model", "--model-path") for w in words):
        option = "--model-path" if found.engine == "sglang" else "--model"
        if not (words and not words[0].startswith("-")):
            words = [option, around.model, *words]
    asked = _gpus(node) or found.gpus or around.gpus
    return replace(
        found,
        words=tuple(words),
        settings=settings,
        gpus=asked * nodes if asked else None,
        gpu_label=around.gpu_label or found.gpu_label,
        files={**around.files, **found.files},
    )


def _words(node: Mapping[str, Any], key: str) -> list[str]:
    given = node.get(key)
    if isinstance(given, str):
        try:
            return shlex.split(given, comments=True)
        except ValueError as error:
            raise UsageError(f"{key}: {error}: {given.strip()[:80]}") from None
    return [str(each) for each in given] if isinstance(given, list) else []


def _environment(given: Any) -> dict[str, str]:
    """Variables that a list or mapping sets to plain values."""
    if isinstance(given, Mapping):
        return {str(key): str(value) for key, value in given.items() if value is not None}
    found = {}
    for each in given if isinstance(given, list) else ():
        if isinstance(each, str) and "=" in each:
            name, _, found[name] = each.partition("=")
        elif isinstance(each, Mapping) and "name" in each and "value" in each:
            found[str(each["name"])] = str(each["value"])
    return found


def _gpus(node: Mapping[str, Any]) -> int | None:
    """GPUs that a container asks for; None where it does not say."""
    resources = node.get("resources")
    for part in ("limits", "requests"):
        asked = resources.get(part) if isinstance(resources, Mapping) else None
        if isinstance(asked, Mapping):
            for name in GPU_RESOURCES:
                if str(asked.get(name, "")).isdecimal():
                    return int(asked[name])
    deploy: Any = node.get("deploy")
    for key in ("resources", "reservations", "devices"):
        deploy = deploy.get(key) if isinstance(deploy, Mapping) else None
    for device in deploy if isinstance(deploy, list) else ():
        if isinstance(device, Mapping):
            if isinstance(device.get("device_ids"), list):
                return len(",".join(map(str, device["device_ids"])).split(","))
            if str(device.get("count", "")).isdecimal():
                return int(device["count"])
    return None


def _of_chart(node: Mapping[str, Any], where: str, folder: Path, around: _Around) -> Started:
    """The server of an entry of ``modelSpec`` in the values of vLLM's production stack."""
    config = node.get("vllmConfig")
    words = [str(node["modelURL"])]
    for key, option in CHART.items():
        value = config.get(key) if isinstance(config, Mapping) else None
        if value is True:
            words.append(option)
        elif value is False:
            words.append(f"--no-{option[2:]}")
        elif value is not None:
            words += [option, str(value)]
    cache = node.get("lmcacheConfig")
    if isinstance(cache, Mapping) and cache.get("enabled"):
        words += ["--kv-transfer-config", "lmcacheConfig"]
    if isinstance(config, Mapping) and isinstance(config.get("extraArgs"), list):
        words += [str(each) for each in config["extraArgs"]]
    image = f"{node.get('repository', 'vllm/vllm-openai')}:{node.get('tag', 'latest')}"
    name = str(node.get("name", ""))
    found = Started(
        "vllm", tuple(words), _place(where, replace(around, place=name)), image, folder=folder
    )
    found = _with(found, replace(around, model=""), {})
    asked = node.get("requestGPU")
    return replace(found, gpus=asked if isinstance(asked, int) else None)


def _of_service(
    node: Mapping[str, Any], where: str, folder: Path, around: _Around
) -> Iterator[Started]:
    """The servers of KServe's ``LLMInferenceService``: one, or a pool for each half of requests."""
    spec = node["spec"] if isinstance(node.get("spec"), Mapping) else {}
    pools = [("", spec)]
    if isinstance(spec.get("prefill"), Mapping):
        pools = [(" decode", spec), (" prefill", spec["prefill"])]
    inner = _informed(spec, around)
    named = spec.get("model")
    if isinstance(named, Mapping) and not str(named.get("uri", "")).startswith("hf://"):
        inner = replace(inner, model=str(named.get("name", inner.model)))
    for name, pool in pools:
        own = _informed(pool, inner)
        own = replace(own, place=f"{around.place}{name}", model=inner.model)
        pod = pool["template"] if isinstance(pool.get("template"), Mapping) else {}
        own = _informed(pod, own)
        listed = [each for each in pod.get("containers") or () if isinstance(each, Mapping)]
        main = next((each for each in listed if each.get("name") == "main"), {})
        engine = "sglang" if spec.get("runtime") == "sglang" else "vllm"
        stated = _container(main, where, folder, own)
        if stated:
            yield from stated
            continue
        env = _environment(main.get("env"))
        image = str(main.get("image", ""))
        yield _with(Started(engine, (), _place(where, own), image, env, folder=folder), own, main)
