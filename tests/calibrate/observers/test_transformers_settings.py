"""What transformers is told of a scenario, and what is refused before it is looked for."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from calibrate.observers.lazy_transformers import module
from calibrate.observers.transformers_settings import TransformersSettings, check_memory, wanted
from sim.errors import UsageError
from sim.scenario import load_scenario
from sim.setup import Setup, prepare

LENGTHS = {"kind": "fixed", "value": 20}
SCENARIO = {
    "model": "llama-3.2-1b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": "transformers",
    "scheduler": {"max_num_seqs": 12, "max_num_batched_tokens": 512},
    "kv_cache": {"num_gpu_blocks": 300, "block_size": 32},
    "workload": {
        "arrivals": {"kind": "burst"},
        "prompt_tokens": LENGTHS,
        "output_tokens": LENGTHS,
    },
    "run": {"requests": 3},
}


def setup(**changes: Any) -> Setup:
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return prepare(load_scenario(SCENARIO).override(dotted))


def test_settings_have_the_names_of_transformers() -> None:
    settings = wanted(setup(), None)
    assert settings.precision == "bf16"
    assert settings.continuous() == {
        "block_size": 32,
        "num_blocks": 300,
        "max_batch_tokens": 512,
        "max_requests_per_batch": 12,
        "scheduler_type": "fifo",
        "safety_margin": 0.15,
        "allow_block_sharing": False,
        "use_async_batching": False,
    }
    assert wanted(setup(), "fp32").precision == "fp32"
    one = dict.fromkeys(("precision__weights", "precision__activations"), "fp32")
    assert wanted(setup(**one, precision__kv_cache="fp32"), None).precision == "fp32"


def test_a_static_batch_has_no_blocks() -> None:
    expected = TransformersSettings("bf16", "static", 12, None, None, None)
    assert wanted(setup(scheduler__batching="static"), None) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fleet__0__replicas": 2}, "fleet.0.replicas"),
        ({"fleet__0__tensor_parallel": 2}, "fleet.0.tensor_parallel to 1"),
        ({"scheduler__batching": "request"}, "scheduler.batching: request .* continuous .* static"),
        ({"scheduler__chunked_prefill": False}, "scheduler.chunked_prefill"),
        ({"scheduler__order": "sjf"}, "scheduler.order: sjf"),
        ({"scheduler__long_prefill_token_threshold": 64}, "long_prefill_token_threshold"),
        ({"kv_cache__allocator": "contiguous"}, "kv_cache.allocator: contiguous"),
        ({"kv_cache__block_size": 2}, "kv_cache.block_size: .* at least 4 tokens, not of 2"),
        ({"precision__kv_cache": "fp8"}, "precision: .* fp8 KV cache"),
        (
            {"precision__weights": "fp8", "precision__activations": "fp8",
             "precision__kv_cache": "fp8"},
            "computes in bf16, fp16, fp32, fp64 here, not in fp8",
        ),
    ],
)  # fmt: skip
def test_what_it_cannot_be_told_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        wanted(setup(**changes), None)


def test_an_unknown_precision_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="not in fp23"):
        wanted(setup(), "fp23")


@pytest.mark.parametrize(
    ("masked", "batching", "free", "fits"),
    [
        (False, "continuous", 3_100_000_000, True),
        (False, "continuous", 3_000_000_000, False),
        (True, "continuous", 3_100_000_000, True),
        (True, "continuous", 3_065_000_000, False),  # the mask: 512 x (9600 + 512) x 2 bytes
        (False, "static", 3_100_000_000, True),
        (False, "static", 2_900_000_000, False),
    ],
)
def test_weights_cache_and_mask_must_fit(
    masked: bool, batching: str, free: int, fits: bool
) -> None:
    # weights 2.47 GB, cache 302 blocks of 32 tokens of 32 KiB: 0.32 GB, room for activations
    chosen = setup(scheduler__batching=batching)
    device: Any = SimpleNamespace(
        free_memory=lambda: free, facts=SimpleNamespace(name="Made-up device")
    )
    if fits:
        check_memory(chosen, wanted(chosen, None), device, masked)
        return
    with pytest.raises(UsageError, match=r"Made-up device has .* free; give kv_cache"):
        check_memory(chosen, wanted(chosen, None), device, masked)


def test_without_the_package_its_name_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UsageError, match=r"needs the package transformers.*infersim\[transform"):
        module("transformers")


def test_nothing_of_it_is_imported_before() -> None:
    import os
    import subprocess

    code = (
        "import sys, sim.commands.observe, calibrate.observers.transformers\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ})
