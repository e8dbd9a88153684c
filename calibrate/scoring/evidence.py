"""Provides the evidence behind predictions as one JSON object, of which all pages are made.

``every`` covers all rows, ``dense`` the rows of the page of dense models (``DENSE``); each has
errors by kind of measurement, halves that constants were fitted to and judged on, errors by source
and by what is published of clients, rows whose client is left open, the worst rows, assumptions and
reasons. ``trust`` says how far prediction intervals held. Errors in %, figures in seconds or per
second, six digits. Predictions count facts that are published; ``inferred`` counts those that were
read off measured results, too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from calibrate.published_names import has_experts
from calibrate.scoring.document import SOURCE, group_document
from calibrate.scoring.errors import (
    QUANTITIES,
    client,
    coverage,
    errors_of,
    grouped,
    groups,
    kind,
    left_open,
    source,
)
from calibrate.scoring.floors import every_group, floors
from calibrate.scoring.learning import coverages, figures
from calibrate.scoring.predict import Scored
from calibrate.scoring.ratios import ratios
from calibrate.scoring.uses import LOW, uses
from sim.version import version

FILE = Path(__file__).parents[1] / "evidence.json"

DENSE = (
    *("batch1_gptfast.csv", "closed_loop.csv", "mlperf.csv", "offline_trtllm.csv"),
    *("online_trtllm.csv", "static_batch_trtllm.csv"),
)
"""Tables of the page of dense models, which has logs of requests, too."""

FEW = 10
"""Measurements of fewer rows say little of a coverage."""

WORST = 5
"""Rows named for each kind of measurement."""

OUTSIDE = 8
"""Rows named as the farthest outside their bands."""


class Split(NamedTuple):
    """Rows of a kind, of which those that ``fitted`` picks made the constants named in ``what``."""

    kind: str
    what: str
    fitted: Callable[[Scored], bool]
    halves: tuple[str, str]


SPLITS = (
    Split(
        "closed loop, vllm",
        "host time of `vllm`",
        lambda row: row.row["tp"] in ("2", "4"),
        ("2 and 4 GPUs", "8 GPUs"),
    ),
    Split(
        "closed loop, tensorrt-llm",
        "host time and launches of `tensorrt-llm`",
        lambda row: row.row["tp"] in ("1", "4"),
        ("1 and 4 GPUs", "2 and 8 GPUs"),
    ),
    Split(
        "online, tensorrt-llm-triton",
        "host time and front end of `tensorrt-llm-triton`",
        lambda row: row.row["isl"].startswith("467"),
        ("prompts of 467", "prompts of 202"),
    ),
)
"""Published settings made some constants of the engine presets: the rows those were fitted on."""


def evidence(rows: Sequence[Scored]) -> dict[str, Any]:
    """The whole object."""
    dense = [
        row
        for row in rows
        if (row.row.file in DENSE or not row.row.line) and not has_experts(row.row["model"])
    ]
    return {"every": summary(rows), "dense": summary(dense), "trust": trust(rows)}


def summary(rows: Sequence[Scored]) -> dict[str, Any]:
    """Errors of ``rows`` and what belongs to them."""
    predicted = [row for row in rows if row.error is not None]
    return _made() | {
        "rows": len(rows),
        "predicted": len(predicted),
        "kinds": [group_document(group, ("kind",)) for group in groups(predicted, kind)],
        "fitted": list(_fitted(predicted)),
        "sources": [group_document(group, SOURCE) for group in groups(predicted, source)],
        "clients": [group_document(group, ("client",)) for group in groups(predicted, client)],
        "left_open": [
            {
                "source": name,
                "of": quantity,
                **found._asdict(),
                "ways": [way._asdict() for way in found.ways],
            }
            for name, quantity, found in left_open(predicted)
        ],
        "worst": list(_worst(predicted)),
        "assumed": _counted(each for row in predicted if row.known for each in row.known.assumed),
        "reasons": _counted(row.reason for row in rows if row.error is None),
    }


def trust(rows: Sequence[Scored]) -> dict[str, Any]:
    """How far the bands of ``rows`` held."""
    known = [row for row in rows if row.bands is not None]
    by_quantity = grouped(known, lambda row: str(row.quantity))
    sources: list[dict[str, Any]] = [
        {"source": " ".join(part for part in name if part), "rows": len(members), **_held(members)}
        for name, members in grouped(known, lambda row: (*source(row), str(row.quantity))).items()
        if len(members) >= FEW
    ]
    wider = every_group(known)
    return _made() | {
        "figures": len(known),
        "bands": [
            {"of": of, "rows": len(members), **_held(members)}
            for of, members in ({"all": known} | by_quantity if known else {}).items()
        ],
        "kinds": [group_document(group, ("kind",)) for group in groups(known, kind)],
        "left_out": [each._asdict() for each in coverages(figures(known))],
        "floors": [each._asdict() for each in floors(known)],
        "every_group": None if wider is None else wider._asdict(),
        "ratios": [each._asdict() for each in ratios(rows)],
        "advice": [each._asdict() | {"use": each.text} for each in uses(known)],
        "large_sources": len(sources),
        "too_narrow": [each for each in sources if each["covered90"] < LOW],
        "outside": list(_outside(known)),
    }


def text_of(document: dict[str, Any]) -> str:
    """``document`` as JSON, an entry of a list on each line."""
    rounded = _rounded(document)
    return "{\n" + ",\n".join(_part(*each) for each in rounded.items()) + "\n}\n"


def _part(name: str, part: dict[str, Any]) -> str:
    lines = []
    for key, value in part.items():
        shown = json.dumps(value, allow_nan=False, ensure_ascii=False)
        if isinstance(value, list) and value:
            entries = (json.dumps(each, allow_nan=False, ensure_ascii=False) for each in value)
            shown = "[\n   " + ",\n   ".join(entries) + "\n  ]"
        lines.append(f'  "{key}": {shown}')
    return f' "{name}": {{\n' + ",\n".join(lines) + "\n }"


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value


def _made() -> dict[str, str]:
    return {"version": version(), "date": f"{date.today():%Y-%m-%d}"}


def _held(rows: Sequence[Scored]) -> dict[str, float]:
    found = coverage(rows)
    assert found is not None, "only rows with bands are asked for"
    return asdict(found)


def _fitted(rows: Sequence[Scored]) -> Iterable[dict[str, Any]]:
    for split in SPLITS:
        members = [row for row in rows if kind(row) == (split.kind,)]
        for quantity in QUANTITIES:
            of_it = [row for row in members if row.quantity == quantity]
            halves = [[row for row in of_it if split.fitted(row) == wanted] for wanted in (1, 0)]
            if all(halves):
                fitted, judged = (
                    {"rows": name, "median": found.median, "p90": found.p90}
                    for name, found in zip(split.halves, map(errors_of, halves), strict=True)
                )
                found = {"kind": split.kind, "constants": split.what, "of": quantity}
                yield found | {"fitted": fitted, "judged": judged}


def _worst(rows: Sequence[Scored]) -> Iterable[dict[str, Any]]:
    for (name,), members in grouped(rows, kind).items():
        for row in sorted(members, key=lambda row: -abs(row.error or 0.0))[:WORST]:
            yield {"kind": name, **_row(row), "error": 100 * (row.error or 0.0)}


def _outside(rows: Sequence[Scored]) -> Iterable[dict[str, Any]]:
    def distance(row: Scored) -> float:
        assert row.bands is not None
        low, high = row.bands[1]
        value = float(row.measured or 0.0)
        return max(value / high, low / value)

    for row in sorted(rows, key=distance, reverse=True)[:OUTSIDE]:
        assert row.bands is not None
        yield {"engine": row.engine, **_row(row), "band90": list(row.bands[1])}


def _row(row: Scored) -> dict[str, Any]:
    published = row.row
    return {
        "row": f"{published.file}:{published.line}" if published.line else published.file,
        "model": published["model"],
        "conditions": conditions_of(row),
        "metric": published["metric"].split("(")[0],
        "quantity": row.quantity,
        "measured": row.measured,
        "predicted": row.predicted,
    }


def conditions_of(row: Scored) -> str:
    """Model, GPUs, precision, lengths and load as they are published."""
    published = row.row
    return (
        f"{published['model']}, {published['gpu'].split('(')[0].strip()} x {published['n_gpus']}, "
        f"{published['weight_dtype']}, {published['isl']}/{published['osl'].split(' ')[0]}, "
        f"{published['batch_or_concurrency'] or published['request_rate_rps']}"
    )


def _counted(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Texts with the number of rows of each, the most frequent first."""
    return [{"rows": count, "text": text} for text, count in Counter(texts).most_common()]
