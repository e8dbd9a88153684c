"""Reads the conditions of a logged vLLM server: its ``meta.json``, and what is given by hand.

Current logs state the engine's settings (``engine_kwargs``, ``resolved_config``), its KV cache
(``kv_cache``) and the machine (``hardware``). Older ones lack parts, or the file: model and GPU
must then be given; what else is missing is assumed, and every assumption is stated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from calibrate.published_names import Unrepresentable, gpu_name, model_name
from calibrate.server_meta import DTYPES, KV_DTYPES, ServerMeta
from sim.errors import TraceError

SEQUENCES, BATCHED, BLOCK = 256, 8192, 16
"""vLLM's own defaults of ``max_num_seqs``, ``max_num_batched_tokens`` on a large GPU (both since
0.8), and ``block_size``."""

FORMATS = {theirs: ours for theirs, ours in DTYPES.items() if ours != "fp32"}


class Given(NamedTuple):
    """The values given by hand; they go before those of a log. ``model`` and ``gpu`` are names of
    the catalogue, or paths of files."""

    model: str | None = None
    gpu: str | None = None
    num_gpu_blocks: int | None = None


@dataclass(frozen=True)
class LogMeta:
    """The statements of a log, by the names of its fields; None for those it lacks."""

    path: Path
    published_model: str | None
    published_gpu: str | None
    version: str
    gpus: int
    tensor_parallel: int
    weights: str
    kv_cache: str
    max_model_len: int | None
    max_num_seqs: int
    max_num_batched_tokens: int
    num_gpu_blocks: int | None
    block_size: int
    assumed: tuple[str, ...]

    def model(self, given: Given) -> str:
        """The model by the catalogue's name; TraceError if it is not stated, Unrepresentable for
        one that the catalogue has not.
        """
        if given.model is not None:
            return _absolute(given.model)
        return model_name(self._stated(self.published_model, "model", "which model it served"))

    def gpu(self, given: Given) -> str:
        """The GPU by the catalogue's name; errors as of ``model``."""
        if given.gpu is not None:
            return _absolute(given.gpu)
        what = "on which GPU it ran (hardware.device_name)"
        return gpu_name(self._stated(self.published_gpu, "gpu", what))

    def _stated(self, value: str | None, option: str, what: str) -> str:
        if value is None:
            raise TraceError(
                f"{self.path}: does not say {what}; add --{option} NAME (`infersim list` has the "
                "names) or the path of a file"
            )
        return value


def read_meta(path: Path, given: Given) -> LogMeta:
    """Statements of ``path``, which may be missing; TraceError with the field for a damaged one."""
    meta = ServerMeta(path)
    assumed: list[str] = []

    def default(mapping: Mapping[str, object], name: str, value: int) -> int:
        stated = meta.whole(mapping, name)
        if stated is None:
            assumed.append(f"{name} is not stated: {value:,}, vLLM's own default")
        return value if stated is None else stated

    sequences = default(meta.scheduler, "max_num_seqs", SEQUENCES)
    batched = default(meta.scheduler, "max_num_batched_tokens", BATCHED)
    block = default(meta.cache, "block_size", BLOCK)
    blocks = given.num_gpu_blocks or meta.whole(meta.cache, "num_gpu_blocks")
    if blocks is None:
        assumed.append(
            "the KV blocks are not stated: computed from the GPU's memory (--num-gpu-blocks gives "
            "those that the engine printed)"
        )
    if meta.cache.get("enable_prefix_caching"):
        assumed.append("its prefix cache is left out")
    tensor = meta.whole(meta.parallel, "tensor_parallel_size") or 1
    weights, cache = _formats(meta)
    return LogMeta(
        path=path,
        published_model=meta.served_model,
        published_gpu=meta.text(meta.hardware, "device_name"),
        version=meta.text(meta.document, "vllm_version") or "unknown",
        gpus=meta.whole(meta.hardware, "device_count") or tensor,
        tensor_parallel=tensor,
        weights=weights,
        kv_cache=cache,
        max_model_len=meta.whole(meta.model, "max_model_len"),
        max_num_seqs=sequences,
        max_num_batched_tokens=batched,
        num_gpu_blocks=blocks,
        block_size=block,
        assumed=tuple(assumed),
    )


def _formats(meta: ServerMeta) -> tuple[str, str]:
    """The formats of weights and KV cache; TraceError for an unknown one."""
    weights = meta.number_format("dtype", FORMATS) or "bf16"
    cache = meta.number_format("cache_dtype", FORMATS | KV_DTYPES) or weights
    return meta.text(meta.model, "quantization") or weights, cache


def representable(weights: str) -> str:
    """``weights`` if the simulator has that format; Unrepresentable otherwise."""
    if weights not in ("bf16", "fp16", "fp8"):
        raise Unrepresentable(f"the quantization {weights} does not tell the format of the weights")
    return weights


def _absolute(name: str) -> str:
    return str(Path(name).absolute()) if Path(name).exists() else name
