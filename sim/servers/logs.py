"""Reads an engine's own settings off the log of its start: vLLM's and SGLang's."""

from __future__ import annotations

import ast
import re
from typing import Any

from sim.servers.started import Started

_VLLM_CONFIG = re.compile(
    r"Initializing an? (?:V(\d) )?LLM engine \(v([\w.+]+)\) with config: (.*)"
)
_VLLM_VERSION = re.compile(r"(?:vLLM (?:API server )?|[\u2580\u2584\u2588]\s+)version (\d[\w.+]*)")
_VLLM_GIVEN = re.compile(r"non-default args: (\{.*\})")
_VLLM_TOKENS = re.compile(r"max_num_batched_tokens=(\d+)")
_VLLM_ASYNC = re.compile(r"Asynchronous scheduling is (enabled|disabled)")
_VLLM_KV = re.compile(r"GPU KV cache size: ([\d,]+) tokens")
_SGLANG_ARGS = re.compile(r"(?:server_args=)?ServerArgs\((.*)")
_SGLANG_ROOM = re.compile(r"max_total_num_tokens=(\d+), (.*)")
_ENTRY = re.compile(r"'(\w+)': ('(?:[^'\\]|\\.)*'|[\w.+-]+)")
_PAIR = re.compile(r"(\w+)=('(?:[^'\\]|\\.)*'|\"[^\"]*\"|\{[^}]*\}|\[[^\]]*\]|[^,()\s]+)")

RENAMED = {"max_seq_len": "max_model_len", "chunked_prefill_enabled": "enable_chunked_prefill"}
"""Options of vLLM by the names that its configuration has for them."""

SGLANG_FOUND = ("chunked_prefill_size", "max_prefill_tokens", "max_running_requests")
"""Settings that SGLang prints as it has resolved them."""

SGLANG_CHOSEN = (
    *("attention_backend", "prefill_attention_backend", "decode_attention_backend"),
    *("sampling_backend", "moe_runner_backend", "fp8_gemm_backend"),
)
"""Kernels that SGLang prints whether its command or itself has chosen them."""


def started_in(text: str, where: str) -> Started | None:
    """The server whose start ``text`` logs; None where it is no such log."""
    lines = text.splitlines()
    return _vllm(lines, where) or _sglang(lines, where)


def _pairs(text: str) -> dict[str, Any]:
    """``name=value`` of a printed configuration, as Python values; None is left out."""
    found: dict[str, Any] = {}
    for name, value in _PAIR.findall(text):
        plain = _value(value)
        if plain is not None:
            found.setdefault(name, plain)
    return found


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.removeprefix("torch.")


def _vllm(lines: list[str], where: str) -> Started | None:
    known: dict[str, Any] = {}
    version, settings, seen = "", {}, False
    env: dict[str, str] = {}
    stated: frozenset[str] = frozenset()
    for line in lines:
        if found := _VLLM_VERSION.search(line):
            version = version or found[1]
        if found := _VLLM_GIVEN.search(line):
            given = _value(found[1])
            if not isinstance(given, dict):
                given = {name: _value(value) for name, value in _ENTRY.findall(found[1])}
            seen, known = True, {**given, **known}
            stated = frozenset(name.replace("_", "-") for name in given)
        if found := _VLLM_CONFIG.search(line):
            seen, version = True, found[2]
            env = {"VLLM_USE_V1": found[1] or "0"}
            config = {RENAMED.get(key, key): each for key, each in _pairs(found[3]).items()}
            known = {**known, **config}
        if "hunked prefill is enabled" in line and (found := _VLLM_TOKENS.search(line)):
            known["max_num_batched_tokens"] = int(found[1])
        if found := _VLLM_ASYNC.search(line):
            known["async_scheduling"] = found[1] == "enabled"
        if found := _VLLM_KV.search(line):
            tokens = int(found[1].replace(",", ""))
            settings["kv_tokens"] = (tokens, found[0])
    if not seen:
        return None
    known = {key: each for key, each in known.items() if each is not None}
    model = known.pop("model_tag", known.get("model"))
    if model is not None:
        known["model"] = model
    return Started(
        *("vllm", (), where),
        env=env,
        settings=settings,
        log=known,
        given=stated,
        version=version,
    )


def _sglang(lines: list[str], where: str) -> Started | None:
    known: dict[str, Any] = {}
    settings = {}
    for line in lines:
        if found := _SGLANG_ARGS.search(line):
            known = {**_pairs(found[1]), **known}
        if found := _SGLANG_ROOM.search(line):
            resolved = _pairs(found[2])
            known |= {key: resolved[key] for key in SGLANG_FOUND if key in resolved}
            settings["kv_tokens"] = (int(found[1]), f"max_total_num_tokens={found[1]}")
    if "model_path" not in known:
        return None
    for name in SGLANG_CHOSEN:
        if known.get(name) != "triton":
            known.pop(name, None)
    if 0 < known.get("chunked_prefill_size", 0) <= known.get("max_prefill_tokens", 0):
        known.pop("max_prefill_tokens", None)
    return Started("sglang", (), where, settings=settings, log=known)
