"""Finds the servers in YAML: Docker Compose, Kubernetes, KServe, and values of Helm charts.

A container is a mapping with a ``command``, ``entrypoint`` or ``args``; what is around it says how
often it runs, on how many GPUs and on which. Charts that build the command themselves (vLLM's
production stack, llm-d) are read by the keys that they build it from.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sim.errors import UsageError
from sim.servers.shell import commands
from sim.servers.started import Started, engine_of_image, program_in, substituted

GPU_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu")
GPU_LABELS = (
    *("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name"),
    *("gpu.nvidia.com/model", "gpu.nvidia.com/class", "eks.amazonaws.com/instance-gpu-name"),
    *("k8s.amazonaws.com/accelerator",),
)
"""Labels of nodes that name their GPU."""

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
}
"""Options of vLLM by the keys of ``parallelism`` in values of llm-d and resources of KServe."""

_SHELLS = {"sh", "bash", "/bin/sh", "/bin/bash"}
_PROGRAM = re.compile(
    r"vllm serve|vllm\.entrypoints|sglang\.launch_server|trtllm-serve|llama-server"
)


@dataclass(frozen=True)
class _Around:
    """What the surroundings of a container say of it."""

    place: str = ""
    replicas: tuple[Any, str] | None = None
    gpu_label: str = ""
    model: str = ""
    parallelism: tuple[str, ...] = ()


def servers_in(documents: Sequence[Any], where: str, folder: Path) -> list[Started]:
    """The servers that YAML ``documents`` start, in their order; parts of a file that start the
    same server are replicas of it."""
    alike: dict[tuple[Any, ...], dict[str, Started]] = {}
    for document in documents:
        for each in _walk(document, where, folder, _Around(_named(document))):
            env = {k: v for k, v in each.env.items() if not k.endswith("VISIBLE_DEVICES")}
            what = (each.engine, each.words, each.image, each.gpus, each.gpu_label, *env.items())
            alike.setdefault(what, {})[each.where] = each
    return [_together(list(parts.values())) for parts in alike.values()]


def _together(parts: Sequence[Started]) -> Started:
    """The server that all of ``parts`` start, with the sum of their replicas."""
    first, one = parts[0], (1, "")
    if len(parts) == 1:
        return first
    total = sum(each.settings.get("fleet.0.replicas", one)[0] for each in parts)
    replicas = {"fleet.0.replicas": (total, f"{len(parts)} parts of the file that are alike")}
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
            yield from _walk(each, where, folder, around)
        return
    if isinstance(node, str):
        if _PROGRAM.search(node):
            for each in commands(node, _place(where, around), folder=folder):
                yield _with(each, around, {})
        return
    if not isinstance(node, Mapping):
        return
    around = _informed(node, around)
    if isinstance(node.get("modelURL"), str):
        yield _of_chart(node, where, folder, around)
        return
    found = _container(node, where, folder, around)
    if found is not None:
        yield from found
        return
    if node.get("kind") == "LLMInferenceService":
        yield _of_service(node, where, folder, around)
        return
    for key, each in node.items():
        inner = replace(around, place=f"{around.place} {key}".strip()) if _is_part(each) else around
        yield from _walk(each, where, folder, inner)


def _is_part(node: Any) -> bool:
    """Whether a mapping is a service of Compose or a role of a chart, whose key names it."""
    return isinstance(node, Mapping) and any(
        key in node for key in ("image", "command", "args", "containers")
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
            for word in (option, str(parallel[key]))
        ]
        around = replace(around, parallelism=tuple(words))
    return around


def _labels(node: Mapping[str, Any]) -> Iterator[str]:
    """The GPUs that a mapping asks its node for by label."""
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
    env = _environment(node.get("env", node.get("environment")))
    words = [*_words(node, "entrypoint"), *_words(node, "command"), *_words(node, "args")]
    words = [substituted(word, env) for word in words]
    image = node["image"] if isinstance(node.get("image"), str) else _joined(node.get("image"))
    place = _place(where, around)
    if words and words[0] in _SHELLS and len(words) > 2 and words[1].startswith("-"):
        found = commands("\n".join(words[2:]), place, env=env, folder=folder)
        found = [replace(each, image=each.image or substituted(image, env)) for each in found]
    elif (program := program_in(words)) is not None:
        engine, at = program
        found = [Started(engine, tuple(words[at:]), place, image, env, folder=folder)]
    elif engine := engine_of_image(image) or _format(node):
        found = [Started(engine, tuple(words), place, image, env, folder=folder)]
    else:
        return None
    return [_with(each, around, node) for each in found]


def _joined(image: Any) -> str:
    """An image that a chart states in parts."""
    if not isinstance(image, Mapping):
        return ""
    name, tag = image.get("repository", image.get("name", "")), image.get("tag", "")
    return f"{name}:{tag}" if tag else str(name)


def _format(node: Mapping[str, Any]) -> str:
    """The engine behind a model format of KServe: vLLM for Hugging Face's; empty for others."""
    stated = node.get("modelFormat")
    name = stated.get("name", "") if isinstance(stated, Mapping) else ""
    return "vllm" if str(name).lower() in ("huggingface", "vllm") else ""


def _with(found: Started, around: _Around, node: Mapping[str, Any]) -> Started:
    """``found`` with what its container and its surroundings say."""
    settings = dict(found.settings)
    if around.replicas is not None:
        number, key = around.replicas
        settings["fleet.0.replicas"] = (number, f"{key}: {number}")
    words = list(found.words)
    if found.engine == "vllm":
        extra = found.env.get("VLLM_ADDITIONAL_ARGS", "")
        words = [*words, *around.parallelism, *shlex.split(extra)]
    if around.model and not any(w in ("--model", "--model-path") for w in words):
        option = "--model-path" if found.engine == "sglang" else "--model"
        if not (words and not words[0].startswith("-")):
            words = [option, around.model, *words]
    return replace(
        found,
        words=tuple(words),
        settings=settings,
        gpus=_gpus(node) or found.gpus,
        gpu_label=around.gpu_label,
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
                return len(device["device_ids"])
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


def _of_service(node: Mapping[str, Any], where: str, folder: Path, around: _Around) -> Started:
    """The server of KServe's ``LLMInferenceService`` that states no container of its own."""
    spec = node.get("spec")
    inner = _informed(spec, around) if isinstance(spec, Mapping) else around
    found = Started("vllm", (), _place(where, inner), folder=folder)
    return _with(found, inner, {})
