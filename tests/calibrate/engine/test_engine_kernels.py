"""Kernels for CUDA are believed only if they agree; what is around them is tried on a CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

from calibrate.bench.heads import dense_attention
from calibrate.engine import attention_cuda
from calibrate.engine.attention import BySequence, gathered, prompts_one_by_one
from calibrate.engine.attention_cuda import Batched, prompts_at_once
from calibrate.lazy_torch import torch
from tests.engine_harness import tiny


def varlen_attn(
    query: Any,
    key: Any,
    value: Any,
    cu_seq_q: Any,
    cu_seq_k: Any,
    max_q: int,
    max_k: int,
    *,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
) -> Any:
    """What PyTorch's variable-length kernel is documented to do, prompt by prompt."""
    assert window_size == (-1, 0)
    assert enable_gqa
    out = torch.empty_like(query)
    starts, ends = cu_seq_q.tolist(), cu_seq_k.tolist()
    for i in range(len(starts) - 1):
        rows, places = slice(*starts[i : i + 2]), slice(*ends[i : i + 2])
        assert rows.stop - rows.start <= max_q
        assert places.stop - places.start <= max_k
        out[rows] = dense_attention(query[rows], key[places], value[places]).to(query.dtype)
    return out


def agrees(prompts: Any, dtype: Any) -> bool:
    candidate = Batched(gathered, prompts, "", replayable=False)
    return attention_cuda._agrees(candidate, tiny(), dtype, "cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_prompts_at_once_are_prompts_one_by_one(monkeypatch, dtype):
    library = SimpleNamespace(varlen_attn=varlen_attn)
    monkeypatch.setattr(attention_cuda, "optional", lambda module: library)
    assert agrees(prompts_at_once, getattr(torch, dtype))
    assert agrees(prompts_one_by_one, getattr(torch, dtype))


def test_a_kernel_that_is_wrong_is_not_used(monkeypatch):
    def wrong(*args: Any, window_size: tuple[int, int], **options: Any) -> Any:
        return 1.1 * varlen_attn(*args, window_size=window_size, **options)

    library = SimpleNamespace(varlen_attn=wrong)
    monkeypatch.setattr(attention_cuda, "optional", lambda module: library)
    assert not agrees(prompts_at_once, torch.float32)


def test_a_kernel_that_is_missing_is_not_used(monkeypatch):
    monkeypatch.setattr(attention_cuda, "optional", lambda module: None)
    assert not agrees(prompts_at_once, torch.float32)
    triton = Batched(attention_cuda.triton_decode, prompts_one_by_one, "", replayable=True)
    assert not attention_cuda._agrees(triton, tiny(), torch.float32, "cpu")


def test_a_cpu_attends_by_sequence():
    assert isinstance(attention_cuda.choose(tiny(), torch.float32, "cpu"), BySequence)
