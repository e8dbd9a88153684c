"""What static batching computes in vain, and how comparisons say it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import sim
from sim.planning.points.padding_words import padding_text, paddings
from tests.planning_fixtures import small

ROWS = [(0.0, 10, 2), (0.0, 20, 4), (1.0, 8, 3), (1.0, 8, 3)]
"""Arrival (s), prompt and output tokens: a batch whose members differ, and one of equal ones."""


def of_rows(path: Path, rows: list[tuple[float, int, int]], batching: str) -> dict[str, Any]:
    lines = (",".join(map(str, row)) for row in rows)
    path.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    return sim.simulate(
        {
            "model": "llama-3.1-8b",
            "fleet": {"gpu": "h100-sxm"},
            "scheduler": {"batching": batching, "max_num_seqs": 2},
            "workload": {"trace": {"path": str(path)}},
        }
    ).summary


def test_padding_is_what_no_request_needs(tmp_path: Path) -> None:
    """Of 2 x 20 tokens 10; of 2 x 3 decodes 2, as the first token is of the prefill."""
    own = of_rows(tmp_path / "t.csv", ROWS[:2], "static")["infersim"]
    assert own["padding"] == {
        "prompt_tokens": pytest.approx(10 / 40),
        "slots": pytest.approx(1 / 3),
    }
    both = of_rows(tmp_path / "t.csv", ROWS, "static")["infersim"]
    assert both["padding"] == {
        "prompt_tokens": pytest.approx(10 / 56),
        "slots": pytest.approx(2 / 10),
    }
    equal = of_rows(tmp_path / "t.csv", ROWS[2:], "static")["infersim"]
    assert equal["padding"] == {"prompt_tokens": 0.0, "slots": 0.0}


@pytest.mark.parametrize("batching", ["request", "continuous"])
def test_other_policies_pad_nothing(tmp_path: Path, batching: str) -> None:
    assert "padding" not in of_rows(tmp_path / "t.csv", ROWS, batching)["infersim"]


def runs(rate: float, requests: int) -> list[tuple[str, dict[str, Any]]]:
    asked = {"workload__arrivals__rate": rate, "scheduler__max_num_seqs": 16}
    return [
        (
            name,
            sim.simulate(small(scheduler__batching=name, run__requests=requests, **asked)).summary,
        )
        for name in ("static", "continuous")
    ]


def test_overload_is_said_to_pad_prompts_and_slots() -> None:
    told = runs(200, 300)
    found = told[0][1]["infersim"]["padding"]
    shares = f"{found['prompt_tokens']:.0%} of its prompt tokens and {found['slots']:.0%} of its"
    text = paddings(told)
    assert f"Static batching computes {shares} decode slots as padding." in text
    assert shares in padding_text(told[0][1])
    assert "Continuous batching fills the slots" in text
    assert "waits until" not in text


def test_at_a_low_load_static_batching_waits_for_a_full_batch() -> None:
    """16 requests take 16 s to come at 1 a second; few decode at once with either policy."""
    text = paddings(runs(1, 160))
    assert "Static batching waits until 16 requests have come, 16 s at 1 requests/s." in text
    assert "Continuous batching fills" not in text
