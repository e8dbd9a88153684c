"""The catalogue's errors of whole runs follow the evidence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from calibrate.scoring import replay
from calibrate.scoring.whole_runs import updated
from sim import catalog
from sim.errors import UsageError

ENTRY = '  - {kind: "offline", gpus: "g", of: throughput, rows: 1, median: 1.0, p90: 2.0'
FILE = f"# Errors\nown:\n{ENTRY}}}\n{ENTRY}, experts: true}}\n"


def summary(**kinds: tuple[int, float, float]) -> dict[str, Any]:
    """A part of the evidence: rows, median and p90 of throughput by the words of each kind."""
    return {
        "kinds": [
            {
                "kind": ", ".join(name.split("_")),
                "errors": {"throughput": {"count": rows, "median": median, "p90": p90}},
            }
            for name, (rows, median, p90) in kinds.items()
        ]
    }


EVERY = summary(offline_own=(12, 3.04, 9.46), offline_own_experts=(4, 5.5, 20.0))


def test_numbers_are_those_of_the_evidence() -> None:
    dense = summary(offline_own=(10, 2.52, 7.96))
    found = updated(FILE, {"dense": dense, "every": EVERY}).split("\n")
    assert found[2].endswith("of: throughput, rows: 10, median: 2.5, p90: 8.0}")
    assert found[3].endswith("of: throughput, rows: 4, median: 5.5, p90: 20.0, experts: true}")
    assert found[:2] == FILE.split("\n")[:2]


def test_a_kind_that_the_evidence_lacks_is_refused() -> None:
    every = summary(offline_other=(12, 3.0, 9.5))
    with pytest.raises(UsageError, match="own: the evidence has no throughput of offline"):
        updated(FILE, {"dense": summary(), "every": every})


def test_dense_models_that_the_part_on_every_row_has_alone() -> None:
    found = updated(FILE, {"dense": summary(), "every": EVERY}).split("\n")
    assert found[2].endswith("of: throughput, rows: 12, median: 3.0, p90: 9.5}")


@pytest.mark.parametrize(
    ("metric", "front"), [("ttft_mean", 1), ("e2el_mean", 1), ("tpot_mean", 0)]
)
def test_a_log_of_the_engine_has_no_server_in_front(metric: str, front: int) -> None:
    key = f"mean_{metric.removesuffix('_mean')}_ms"
    ran = cast(Any, SimpleNamespace(figures={key: 250.0}, at=None))
    row, known = cast(Any, {"metric": metric}), cast(Any, SimpleNamespace(engine="vllm"))
    found = replay._scored(row, known, 0.2, ran).predicted
    assert found == pytest.approx(0.25 - front * catalog.engine("vllm").front_end)
