"""The timeline of a run shows how even its replicas are used."""

from __future__ import annotations

import numpy as np
import pytest

from reports.figures import timeline
from tests.report_fixtures import KV_TOKENS, make_run


@pytest.mark.parametrize("replicas", [1, 3, 12])
def test_the_timeline_shows_how_even_replicas_are_used(replicas: int) -> None:
    made = make_run(400, replicas=replicas)
    drawn = timeline.figure(made.timeseries, made.requests, kv_tokens=KV_TOKENS, replicas=replicas)
    axes = {a: drawn.layout[a].title.text for a in drawn.layout if a.startswith("yaxis")}
    each = {a.replace("axis", "") for a, title in axes.items() if title == "in each replica"}
    mine = {t.name: np.asarray(t.y, float) for t in drawn.data if (t.yaxis or "y") in each}
    if replicas == 1:
        assert not mine
        return
    if replicas == 3:
        assert list(mine) == ["replica 0", "1", "2"]
        edges = next(np.asarray(t.x, float) for t in drawn.data if t.name == "replica 0")
        plans = made.timeseries
        lasts = plans["end_s"] - plans["start_s"]
        for replica, values in enumerate(mine.values()):
            of = plans["replica"] == replica
            spent = float((plans["running"] * lasts)[of].sum())
            assert float((values[:-1] * np.diff(edges)).sum()) == pytest.approx(spent, rel=1e-4)
    else:  # lines of their own would be too many
        most, mean, least = mine.values()
        assert (most >= mean).all()
        assert (mean >= least).all()
        assert most.max() > least.max()
