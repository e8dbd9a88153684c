"""Writes all that quotes the evidence anew: the pages of validation and of trust, the table of the
README and the catalogue's errors of whole runs. ``python -m calibrate.scoring.pages`` does so from
``calibrate/evidence.json``, ``make validation`` with an evidence just made.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple

from calibrate.scoring.evidence import FILE
from calibrate.scoring.report import Part, markdown
from calibrate.scoring.trust_page import trust_page
from calibrate.scoring.whole_runs import errors_by_kind, updated
from sim.errors import UsageError
from sim.results.whole_file import write_text

ROOT = Path(__file__).parents[2]
WHOLE_RUNS = Path("sim", "catalog", "whole_runs.yaml")


class Quoted(NamedTuple):
    """A row of the README's table: its first two cells, and the kind and quantity it quotes."""

    measurement: str
    metric: str
    kind: str
    of: str


QUOTED = (
    Quoted("vLLM, fixed concurrency, dense models", "TPOT", "closed loop, vllm", "TPOT"),
    Quoted("", "TTFT", "closed loop, vllm", "TTFT"),
    Quoted("the same, models with experts", "TPOT", "closed loop, vllm, experts", "TPOT"),
    Quoted("", "TTFT", "closed loop, vllm, experts", "TTFT"),
    Quoted(
        "TensorRT-LLM behind Triton, below saturation",
        "throughput",
        "online, tensorrt-llm-triton",
        "throughput",
    ),
    Quoted(
        "TensorRT-LLM, fixed concurrency (its worst: a busy front end)",
        "TTFT",
        "closed loop, tensorrt-llm",
        "TTFT",
    ),
    Quoted(
        "MLPerf server, close to saturation, lengths by their published distribution",
        "TPOT",
        "online, tensorrt-llm-executor",
        "TPOT",
    ),
)

HEAD = "| measurement | metric | median | p90 |\n|---|---|---:|---:|\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)+")
HELD = re.compile(r"Of [\d,]+ published measurements\s.*?\bin closed loops\.", re.DOTALL)


def readme(text: str, evidence: dict[str, Any]) -> str:
    """The README ``text`` with the table of errors and the intervals of ``evidence``.

    Raises UsageError for a text or an evidence without them.
    """
    for part in (TABLE, HELD):
        if part.search(text) is None:
            raise UsageError(f"README.md: no text like {part.pattern!r}")
    found = errors_by_kind(evidence["every"])
    rows = []
    for each in QUOTED:
        if (each.kind, each.of) not in found:
            raise UsageError(f"the evidence has no {each.of} of {each.kind}")
        _, median, p90 = found[each.kind, each.of]
        rows.append(f"| {each.measurement} | {each.metric} | {median:.0f} % | {p90:.0f} % |\n")
    table, held = HEAD + "".join(rows).replace("|  |", "| |"), _intervals(evidence["trust"])
    return HELD.sub(lambda _: held, TABLE.sub(lambda _: table, text))


def _intervals(trust: Part) -> str:
    """How many measurements lay in their intervals, and how wide those are."""
    left = {(each["left_out"], each["quantity"]): each for each in trust["left_out"]}

    def held(name: str) -> str:
        found = left.get((name, "all"))
        return f"{found['covered90']:.0f} %" if found else "none judged"

    def widths(name: str) -> str:
        known = [left.get((name, of)) for of in ("tpot", "rate", "ttft")]
        shown = [f"±{each['half_width90']:.0f} %" if each else "unknown" for each in known]
        return "{}, {} and {}".format(*shown)

    return (
        f"Of {trust['figures']:,} published measurements\n"
        f"{held('deployments')} lay within it; with whole GPUs left out "
        f"{held('GPUs')}, engines {held('engines')}, families of models "
        f"{held('model families')}, and of the newest releases\n"
        f"{held('newest releases')}. Half of the median interval for TPOT, throughput and TTFT is "
        f"{widths('layouts of a deployment')} where the engine,\nGPU and model were compared, and "
        f"{widths('deployments')} elsewhere,\nmost of which was measured in closed loops."
    )


def pages(evidence: dict[str, Any], root: Path = ROOT) -> dict[Path, str]:
    """Each file that quotes the evidence, below ``root``, and what it should be."""
    calibrate, front, whole = root / "calibrate", root / "README.md", root / WHOLE_RUNS
    return {
        calibrate / "VALIDATION.md": markdown(evidence["dense"], dense=True),
        calibrate / "VALIDATION-wide.md": markdown(evidence["every"]),
        calibrate / "TRUST.md": trust_page(evidence["trust"]),
        front: readme(front.read_text(encoding="utf-8"), evidence),
        whole: updated(whole.read_text(encoding="utf-8"), evidence),
    }


def main() -> None:
    """Write the files anew."""
    for path, text in pages(json.loads(FILE.read_text(encoding="utf-8"))).items():
        write_text(path, text)


if __name__ == "__main__":
    main()
