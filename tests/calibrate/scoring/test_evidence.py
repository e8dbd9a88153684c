"""One JSON object holds what pages, the README and the catalogue say of errors."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calibrate.scoring import score_all
from calibrate.scoring.evidence import evidence as evidence_of
from calibrate.scoring.evidence import text_of
from calibrate.scoring.pages import QUOTED, pages, readme
from calibrate.scoring.report import markdown
from calibrate.scoring.trust_page import trust_page
from sim.cli import app
from sim.errors import UsageError
from tests.calibrate.scoring.test_scoring import write
from tests.places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The evidence of a table of the page of dense models, and of one that is not on it."""
    folder = tmp_path_factory.mktemp("tables")
    cells = [
        {},
        {"metric": "ttft_mean"},
        {"model": "openai/gpt-oss-120b"},
        {"model": "Falcon-180B"},
    ]
    paths = [write(folder / name, *cells) for name in ("closed_loop.csv", "other.csv")]
    found = json.loads(text_of(evidence_of(score_all(paths, jobs=1))))
    assert isinstance(found, dict)
    return found


def test_parts_count_every_row_and_those_of_dense_models(made: dict[str, Any]) -> None:
    """A model that is not known counts as dense."""
    assert (made["every"]["rows"], made["every"]["predicted"]) == (8, 6)
    assert (made["dense"]["rows"], made["dense"]["predicted"]) == (3, 2)
    assert made["trust"]["figures"] == 6
    assert {each["kind"] for each in made["dense"]["kinds"]} == {"closed loop, vllm"}
    reason = {"rows": 2, "text": "the model Falcon-180B is not in the catalogue"}
    assert made["every"]["reasons"] == [reason]


def test_worst_rows_come_first_and_say_where_they_stand(made: dict[str, Any]) -> None:
    dense = [each for each in made["every"]["worst"] if each["kind"] == "closed loop, vllm"]
    sizes = [abs(each["error"]) for each in dense]
    assert sizes == sorted(sizes, reverse=True)
    assert {each["row"] for each in dense} == {
        *("closed_loop.csv:2", "closed_loop.csv:3", "other.csv:2", "other.csv:3"),
    }


def test_pages_are_made_of_the_evidence_alone(made: dict[str, Any]) -> None:
    changed = copy.deepcopy(made)
    changed["every"]["kinds"][0]["errors"]["tpot"]["p90"] = 77.7
    changed["trust"]["bands"][0]["half_width90"] = 66.6
    assert "| 77.7 |" in markdown(changed["every"])
    assert "| 67 |" in trust_page(changed["trust"])


def test_the_command_writes_it(tmp_path: Path) -> None:
    table, out = write(tmp_path / "mlperf.csv", {}), tmp_path / "evidence.json"
    done = CliRunner().invoke(app, ["score", str(table), "--jobs", "1", "-o", str(out)])
    assert done.exit_code == 0
    assert set(json.loads(out.read_text(encoding="utf-8"))) == {"every", "dense", "trust"}


def test_the_readme_quotes_it() -> None:
    kinds: dict[str, Any] = {}
    for at, each in enumerate(QUOTED):
        error = {"count": 9, "median": 1.2 + at, "p90": 20.4 + at}
        kinds.setdefault(each.kind, {})[each.of.lower()] = error
    held = {"rows": 7, "covered90": 88.4, "half_width90": 12.3}
    found = {
        "every": {"kinds": [{"kind": kind, "errors": of} for kind, of in kinds.items()]},
        "trust": {
            "figures": 1234,
            "bands": [{"of": of, **held} for of in ("all", "throughput", "tpot")],
            "left_out": [
                {"left_out": name, "quantity": of, **held}
                for name in ("layouts of a deployment", "deployments", "GPUs")
                for of in ("all", "tpot", "rate")
            ],
        },
    }
    text = readme(README, found)
    head = "| vLLM, fixed concurrency, dense models | TPOT | 1 % | 20 % |"
    assert f"{head}\n| | TTFT | 2 % | 21 % |" in text
    assert "Of 1,234 published measurements\n88 % lay within it; with whole GPUs left out" in text
    assert "left out 88 %, engines none judged" in text
    assert "for TPOT, throughput and TTFT is \u00b112 %, \u00b112 % and unknown where" in text
    with pytest.raises(UsageError, match="the evidence has no TPOT of closed loop, vllm"):
        readme(README, {**found, "every": {"kinds": []}})
    with pytest.raises(UsageError, match=r"README\.md: no text like"):
        readme("", found)


def test_all_that_quotes_the_evidence_is_up_to_date(evidence: dict[str, Any]) -> None:
    for path, text in pages(evidence).items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run calibrate.scoring.pages"
