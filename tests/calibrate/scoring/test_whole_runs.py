"""The catalogue's errors of whole runs follow the pages of validation."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from calibrate.scoring import replay
from calibrate.scoring.whole_runs import published, updated
from sim import catalog
from sim.errors import UsageError

PAGE = """# Page
## By kind of measurement

| kind | of | rows | bias | median | p90 | rank |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
| offline, own | throughput | 12 | -1.5 | 3.0 | 9.5 | 0.9 |
| offline, own, experts | throughput | 4 | +2.0 | 5.5 | 20.0 | |

## Next
| offline, own | TTFT | 1 | 0.0 | 0.0 | 0.0 | |
"""

ENTRY = '  - {kind: "offline", gpus: "g", of: throughput, rows: 1, median: 1.0, p90: 2.0'
FILE = f"# Errors\nown:\n{ENTRY}}}\n{ENTRY}, experts: true}}\n"


def test_numbers_are_those_of_the_pages() -> None:
    dense = {("offline, own", "throughput"): (10, 2.5, 8.0)}
    found = updated(FILE, dense, published(PAGE)).split("\n")
    assert found[2].endswith("of: throughput, rows: 10, median: 2.5, p90: 8.0}")
    assert found[3].endswith("of: throughput, rows: 4, median: 5.5, p90: 20.0, experts: true}")
    assert found[:2] == FILE.split("\n")[:2]


def test_a_kind_that_no_page_has_is_refused() -> None:
    with pytest.raises(UsageError, match="own: no page has throughput of offline"):
        updated(FILE, {}, published(PAGE.replace("offline, own", "offline, other")))


def test_dense_models_that_the_page_of_every_row_has_alone() -> None:
    found = updated(FILE, {}, published(PAGE)).split("\n")
    assert found[2].endswith("of: throughput, rows: 12, median: 3.0, p90: 9.5}")


@pytest.mark.parametrize(
    ("metric", "front"), [("ttft_mean", 1), ("e2el_mean", 1), ("tpot_mean", 0)]
)
def test_a_log_of_the_engine_has_no_server_in_front(metric: str, front: int) -> None:
    key = f"mean_{metric.removesuffix('_mean')}_ms"
    ran = cast(Any, SimpleNamespace(figures={key: 250.0}, causes={key: {}}))
    row, known = cast(Any, {"metric": metric}), cast(Any, SimpleNamespace(engine="vllm"))
    found = replay._scored(row, known, 0.2, ran).predicted
    assert found == pytest.approx(0.25 - front * catalog.engine("vllm").front_end)
