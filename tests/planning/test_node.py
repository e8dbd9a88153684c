"""``infersim fit``: every layout of a node, against the same question asked of each alone."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.planning.fits import node_layouts

MODEL = "fit qwen3-235b-a22b --gpu h100-sxm --weights fp8 --activations fp8"


def infersim(command: str) -> Any:
    return CliRunner().invoke(app, shlex.split(command))


def document(command: str) -> Any:
    return json.loads(infersim(f"{command} --json").stdout)


def test_layouts_of_a_node() -> None:
    """Of 8 GPUs four ways to share them among tensor and data ranks, of 4 three, of 2 two, each
    with experts cut or whole; one GPU has no choice."""
    found = list(node_layouts(experts=True))
    assert len(found) == len(set(found)) == 2 * (4 + 3 + 2) + 1
    assert {layout.gpus for layout in found} == {1, 2, 4, 8}
    assert {layout.expert for layout in found if layout.gpus == 4} == {1, 4}
    assert [layout.tensor for layout in node_layouts(experts=False)] == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("options", "layout"),
    [
        ("--tensor-parallel 8", "TP 8"),
        ("--tensor-parallel 4 --data-parallel 2 --expert-parallel", "TP 4 x DP 2, EP"),
        ("--data-parallel 8", "DP 8"),
        ("--tensor-parallel 2 --expert-parallel", "TP 2, EP"),
    ],
)
def test_a_line_is_what_asking_for_that_layout_says(options: str, layout: str) -> None:
    (row,) = [row for row in document(MODEL)["layouts"] if row["layout"] == layout]
    alone = document(f"{MODEL} {options}")
    for name in ("fits", "weight_bytes", "activation_bytes", "kv_cache_bytes", "num_gpu_blocks"):
        assert row[name] == alone[name], name
    ranks = row["data_parallel"]
    assert row["kv_cache_tokens"] == alone["kv_cache_tokens"] * ranks
    assert row["max_concurrency"] == alone["max_concurrency"] * ranks
    assert (row["reason"] is None) == row["fits"]


def test_what_does_not_fit_or_cannot_be_says_why() -> None:
    """235 GB in 8 bits are too much for two GPUs of 80 GB. 14 heads are not shared by 4 GPUs."""
    rows = {row["layout"]: row for row in document(MODEL)["layouts"]}
    assert not rows["TP 2"]["fits"]
    assert "short on each GPU" in rows["TP 2"]["reason"]
    small = document("fit qwen2.5-7b --gpu h100-sxm")["layouts"]
    assert [row["fits"] for row in small] == [True, True, True, False]
    assert "8 GPUs cannot share the 28 attention heads" in small[-1]["reason"]
    assert small[-1]["weight_bytes"] is None


def test_the_weights_of_a_gpu_are_the_sum_of_their_parts() -> None:
    found = document(f"{MODEL} --tensor-parallel 4 --data-parallel 2 --expert-parallel")
    parts = {part["name"]: part for part in found["weights"]}
    assert sum(part["bytes"] for part in parts.values()) == found["weight_bytes"]
    assert parts["experts"]["parameters"] == 94 * 128 / 8 * 3 * 4096 * 1536
    assert parts["router"]["bytes"] == 94 * 128 * 4096 * 2
    assert parts["embedding"]["parameters"] == 151_936 * 4096 / 4


def test_the_table_has_a_line_for_every_layout_and_fits_the_screen() -> None:
    shown = infersim(f"{MODEL} --tensor-parallel 8").stdout
    assert max(map(len, shown.splitlines())) <= 88
    for layout in node_layouts(experts=True):
        assert f"\n{layout.text} " in shown
    assert "  experts " in shown
    assert "TP 1: 153 GiB short on each GPU" in shown
