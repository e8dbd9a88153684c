"""What tests of engines share, whichever engine: a tiny Llama, a scenario that serves it within a
second on one CPU thread, a clock made of ticks, and the batches that were run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from calibrate.device import Device, open_device
from calibrate.lazy_torch import torch

CLOSED = {"kind": "closed", "concurrency": 5}


def llama(**changes: Any) -> dict[str, Any]:
    """The ``config.json`` of a model that is small, but has all that a large one has."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 96,
        "vocab_size": 128,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    } | changes


def write_tiny(
    folder: Path,
    engine: str,
    *,
    model: dict[str, Any] | None = None,
    max_model_len: int = 256,
    blocks: int = 40,
    block_size: int = 8,
    prompts: tuple[int, int] = (3, 70),
    outputs: tuple[int, int] = (1, 25),
    requests: int = 20,
) -> Path:
    """``tiny.yaml`` in ``folder``, and the model beside it: a burst that chunks its prompts and
    cannot seat all of its requests at once."""
    (folder / "tiny.json").write_text(json.dumps(model or llama()))
    path = folder / "tiny.yaml"
    path.write_text(f"""
version: 1
name: tiny
model: ./tiny.json
fleet: {{gpu: h100-sxm}}
engine: {engine}
max_model_len: {max_model_len}
scheduler: {{max_num_seqs: 6, max_num_batched_tokens: 48}}
kv_cache: {{num_gpu_blocks: {blocks}, block_size: {block_size}}}
workload:
  arrivals: {{kind: burst}}
  prompt_tokens: {{kind: uniform, low: {prompts[0]}, high: {prompts[1]}}}
  output_tokens: {{kind: uniform, low: {outputs[0]}, high: {outputs[1]}}}
run: {{requests: {requests}}}
""")
    return path


@contextmanager
def one_thread() -> Iterator[Device]:
    """The CPU, with one thread; the number of threads is put back."""
    threads = torch.get_num_threads()
    yield open_device("cpu", threads=1)
    torch.set_num_threads(threads)


def batches(rows: Any) -> list[tuple[int, ...]]:
    """What was in each iteration: who decoded, what was prefilled, memory, queue."""
    names = ("decode", "computed", "context", "prefill_seqs", "prefill_tokens", "admitted")
    names += ("preemptions", "running", "waiting", "held", "reserved", "finished")
    return [tuple(int(row[name]) for name in names) for row in rows]


class Ticks:
    """A clock that moves by a step whenever it is read, and as told when waited for."""

    def __init__(self, step: float) -> None:
        self.time, self.step, self.waits = 0.0, step, list[float]()

    def now(self) -> float:
        self.time += self.step
        return self.time

    def wait(self, until: float) -> None:
        self.waits.append(until)
        self.time = max(self.time, until)
