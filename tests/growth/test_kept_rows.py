"""Rows that are kept in narrow columns are read as they were, and summed up alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import sim
from sim.growth.kept_rows import KeptRows
from sim.loop import recorder

ROW = np.dtype(
    [("time", "f8"), ("few", "f8"), ("count", "i8"), ("signed", "i4"), ("two", "i8", (2,))]
)


def made(rows: int, seed: int) -> np.ndarray:
    """Rows with what is hard to keep: no number, minus zero, negative and large numbers."""
    rng = np.random.default_rng(seed)
    found = np.empty(rows, ROW)
    found["time"] = rng.random(rows).cumsum()
    found["few"] = rng.choice([0.0, -0.0, np.nan, 0.1], rows)
    found["count"] = rng.integers(0, 2**40, rows)
    found["signed"] = rng.integers(-200, 200, rows)
    found["two"] = rng.integers(0, 70_000, (rows, 2))
    return found


def test_rows_come_back_to_the_bit() -> None:
    blocks = [made(rows, seed) for seed, rows in enumerate((700, 1, 0, 300))]
    blocks[0]["signed"] = 7
    rows, kept = np.concatenate(blocks), KeptRows(ROW)
    for block in blocks:
        kept.add(block)
    mask = rows["signed"] > 3
    assert len(kept) == len(rows)
    assert kept.whole().tobytes() == rows.tobytes()
    assert kept[mask].tobytes() == rows[mask].tobytes()
    for at in (slice(650, 702), slice(701, 701), slice(0, None), slice(690, 5000)):
        assert [len(kept[at]), kept[at].dtype] == [len(rows[at]), ROW]
        for name in ROW.names or ():
            assert kept[at][name].tobytes() == rows[at][name].tobytes()
    assert kept[100:900][50:60]["time"].tolist() == rows["time"][150:160].tolist()


def test_columns_that_say_the_same_take_memory_once() -> None:
    row = np.dtype(
        [("start", "f8"), ("decode", "i4"), ("computed", "i4"), ("idle", "i8"), ("end", "f8")]
    )
    rows = np.zeros(1000, row)
    rows["end"] = np.random.default_rng(1).random(1000).cumsum()
    rows["start"][1:] = rows["end"][:-1]
    rows["start"][[400, 900]] = rows["end"][400] - 1e-9, -0.0
    rows["decode"] = rows["computed"] = np.arange(1000) % 200
    rows["idle"] = 16 * np.arange(3000, 13000, 10) - 16
    kept = KeptRows(row)
    kept.add(rows)
    assert kept.whole().tobytes() == rows.tobytes()
    assert kept[350:450]["start"].tobytes() == rows["start"][350:450].tobytes()
    (block,) = kept._blocks
    assert block["computed"][0] is block["decode"][0]
    assert block["idle"][0].dtype == np.uint16  # how many times 16
    assert len(block["start"][1]) == 3  # the first, and those behind a pause


FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "windows": {"model": "gpt-oss-20b"},
    "drafts": {"speculative": {"method": "ngram", "num_tokens": 3, "acceptance_rate": 0.4}},
    "short of memory": {"kv_cache": {"num_gpu_blocks": 200}},
    "pipelines": {"fleet": {"gpu": "h100-sxm", "pipeline_parallel": 2}},
    "two pools": {"fleet": [{"name": gpu, "gpu": gpu} for gpu in ("h100-sxm", "l40s")]},
    "impatient clients": {"scheduler": {"client_timeout": "3s", "on_timeout": "retry"}},
}

CHAT: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 12.0},
        "prompt_tokens": {"kind": "lognormal", "mean": 500, "p95": 1500, "max": 3000},
        "output_tokens": {"kind": "lognormal", "mean": 150, "p95": 400, "max": 800},
    },
    "run": {"requests": 250},
}


@pytest.mark.parametrize("feature", FEATURES)
def test_long_runs_are_summed_up_as_short_ones(
    feature: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = sim.load_scenario(CHAT | FEATURES[feature])
    plain = sim.simulate(scenario)
    monkeypatch.setattr(recorder, "BLOCK", 64)
    kept = sim.simulate(scenario)
    assert isinstance(kept.record.plans, KeptRows) == (feature != "pipelines")
    assert kept.summary == plain.summary
    assert kept.charts == plain.charts
    assert kept.timeseries.equals(plain.timeseries)
