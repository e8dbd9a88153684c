"""Attention alone runs once per request; the table says so from what was traced."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

from rich.console import Console
from typer import Typer
from typer.testing import CliRunner

from calibrate.engine.explain import trace, view
from sim.commands.observe import explain
from sim.errors import UsageError
from tests.engine_harness import tiny


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_attention_alone_runs_once_per_request(device, kv_heads):
    traced = trace(tiny(num_kv_heads=kv_heads), device, "fp32", requests=5, context=20)
    runs = {part.name: part.runs for part in traced.parts}
    assert {name for name, run in runs.items() if run != "once for the batch"} == {"attention"}
    assert runs["attention"] == "once per request"
    shapes = {part.name: part.shapes for part in traced.parts}
    assert shapes["attention"] == ", ".join(f"1 x {n} tokens" for n in (20, 27, 34, 41)) + (
        ", 8 x 8 tokens"
    )
    assert shapes["query, key, value"] == f"12 rows x 64 -> {64 + 2 * 16 * kv_heads}"
    assert shapes["head"] == "5 rows x 64 -> 128"
    assert shapes["rotary positions"] == f"12 rows x {64 + 16 * kv_heads}"


def test_a_part_that_scales_otherwise_is_not_called_batched(device):
    traced = trace(tiny(), device, "fp64", requests=3, context=4)
    attention = next(part for part in traced.parts if part.name == "attention")
    assert (attention.one, attention.many) == (1, 3)


def test_the_table_fits_88_columns(device):
    console = Console(width=88, record=True, file=None, quiet=False)
    with console.capture() as capture:
        console.print(view(trace(tiny(), device, "bf16", requests=4, context=64)))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) == 88
    assert sum("once per request" in line for line in lines) == 2  # the row, and the legend


def test_an_unknown_precision_is_a_mistake_of_the_user(device):
    with pytest.raises(UsageError, match="fp64, not in fp7"):
        trace(tiny(), device, "fp7", requests=2, context=4)


def test_the_command(tmp_path):
    app = Typer()
    app.add_typer(explain)
    wrong = CliRunner().invoke(app, ["explain", "batching", "lama-3.2-1b"])
    assert wrong.exit_code == 2
    assert "llama-3.2-1b" in wrong.output
