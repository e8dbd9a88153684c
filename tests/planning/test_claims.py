"""Claims about serving: every shipped one comes out as it says, and a wrong one is found out."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sim.cli import app
from sim.errors import ScenarioError, UsageError
from sim.planning.claims.claim import Claim, check_claims, read_claim, read_claims
from sim.planning.claims.expressions import check
from sim.planning.points.executors import InProcess
from sim.terminal.console import as_text
from tests.answers import claims_view, render_claims

SHIPPED = Path("scenarios/claims")
FILES = sorted(SHIPPED.glob("*.yaml"))

SMALL: dict[str, Any] = {
    "claim": "Two at once take longer than one.",
    "because": "They share the GPU.",
    "scenario": {
        "model": "llama-3.2-1b",
        "fleet": {"gpu": "l40s"},
        "workload": {
            "arrivals": {"kind": "closed", "concurrency": 1},
            "prompt_tokens": {"kind": "fixed", "value": 32},
            "output_tokens": {"kind": "fixed", "value": 8},
        },
        "run": {"requests": 4},
    },
    "variants": {"one": {}, "two": {"workload.arrivals.concurrency": 2}},
    "shown": ["mean_e2el_ms", "output_throughput"],
    "holds_if": ["two.mean_e2el_ms > one.mean_e2el_ms"],
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL | changes))
    return path


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_claim_comes_out_as_it_says(file: Path) -> None:
    entry = check_claims([read_claim(file)], InProcess())["claims"][0]
    told = [f"{c['statement']}: {c['text']}" for c in entry["checks"] if not c["true"]]
    assert entry["verdict"] == entry["expected"], told
    figures = [tuple(variant["figures"].values()) for variant in entry["variants"]]
    assert len(set(figures)) == len(figures), "a variant does not differ from another"
    first, *_ = entry["figures"]
    assert first["key"] in entry["checks"][0]["statement"], "shown first is what is compared first"
    assert None not in sum(figures, ())


def test_the_claims_that_people_make_are_there() -> None:
    assert len(FILES) >= 12
    assert len({read_claim(file).claim for file in FILES}) == len(FILES)


def test_the_claim_that_the_readme_explains_comes_out_as_it_says(tmp_path: Path) -> None:
    readme = Path("sim/planning/README.md").read_text("utf-8")
    (shown,) = re.findall(r"```yaml\n(claim: .*?)```", readme, re.DOTALL)
    file = tmp_path / "mine.yaml"
    file.write_text(shown)
    document = check_claims([read_claim(file)], InProcess())
    (entry,) = document["claims"]
    assert (entry["verdict"], document["unexpected"]) == ("holds", [])
    assert set(yaml.safe_load(shown)) == set(Claim.model_fields)
    counted = re.search(r"`scenarios/claims` has (\d+)", readme)
    assert counted is not None
    assert int(counted[1]) == len(FILES)


def test_a_claim_that_figures_refute_fails(tmp_path: Path) -> None:
    claim = read_claim(written(tmp_path, holds_if=["two.mean_e2el_ms < one.mean_e2el_ms"]))
    document = check_claims([claim], InProcess())
    assert document["claims"][0]["verdict"] == "fails"
    assert document["unexpected"] == ["small"]
    assert "Unexpected: small." in as_text(claims_view(document))


def test_what_a_claim_compares_is_shown_before_what_else_it_shows(tmp_path: Path) -> None:
    stated = ["two.kv_bytes > one.kv_bytes * 0.5", "two.bound_by.memory <= one.mean_tpot_ms"]
    claim = read_claim(written(tmp_path, holds_if=stated, shown=["duration", "mean_tpot_ms"]))
    document = check_claims([claim], InProcess())
    titles = [figure["title"] for figure in document["claims"][0]["figures"]]
    assert titles == ["KV read", "Bound by memory", "TPOT mean", "Duration"]
    told = as_text(claims_view(document))
    assert re.search(r"two +\d[\d.,]* [kMG]B +[\d.]+ % +[\d.]+ ms", told), told


def test_the_command_ends_with_1_for_an_unexpected_verdict(tmp_path: Path) -> None:
    asked = ["claims", str(written(tmp_path)), "--json", "--jobs", "1"]
    right = CliRunner().invoke(app, [*asked, "-o", str(tmp_path / "right")])
    assert right.exit_code == 0
    found = json.loads(right.stdout)
    assert found["claims"][0]["verdict"] == "holds"
    assert (tmp_path / "right/report.html").is_file()
    written(tmp_path, verdict="fails")
    wrong = CliRunner().invoke(app, [*asked, "-o", str(tmp_path / "wrong")])
    assert wrong.exit_code == 1
    assert json.loads((tmp_path / "wrong/result.json").read_text())["unexpected"] == ["small"]


def test_the_page_has_every_claim_with_its_figures(tmp_path: Path) -> None:
    document = check_claims(read_claims([written(tmp_path)]), InProcess())
    page = render_claims(document)
    assert "Two at once take longer than one." in page
    for variant in document["claims"][0]["variants"]:
        assert f"{variant['figures']['output_throughput']:.3g}" in page


FIGURES = {
    "a": {"x": 3.0, "infersim": {"n": {"of it": 4}}, "text": "t", "none": None},
    "b": {"kv_bytes": 2.36e12, "infersim": {"operators": {"m l p": {"bytes": 4.72e12}}}},
}


@pytest.mark.parametrize(
    ("statement", "true", "text"),
    [
        ("a.x > 2", True, "3 > 2"),
        ("a.x * 2 - 1 <= a.n['of it'] + 1", True, "5 <= 5"),
        ("a.x / 2 >= 1.6", False, "1.5 >= 1.6"),
        ("10000000 < a.x", False, "10 M < 3"),
        ("b.kv_bytes < 0.1 * b.operators['m l p'].bytes", False, "2.36 TB < 472 GB"),
        ("b.kv_bytes / b.operators['m l p'].bytes >= a.x / 6", True, "0.5 >= 0.5"),
        ("b.kv_bytes - b.kv_bytes < 1000", True, "0 B < 1,000"),
    ],
)
def test_a_statement_compares_numbers(statement: str, true: bool, text: str) -> None:
    checked = check(statement, FIGURES)
    assert (checked.true, checked.text) == (true, text)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("a.x", "compares nothing"),
        ("a.x >", "compares nothing"),
        ("1 < a.x < 4", "compares nothing"),
        ("a.x == 3", "expected one of <, <=, >, >="),
        ("a.y > 1", "has no figure 'y'"),
        ("c.x > 1", "has no variant 'c'"),
        ("a.text > 1", "is no number"),
        ("a.none > 1", "is no number"),
        ("a.x.y > 1", "has nothing in it"),
        ("a.x / 0 > 1", "divides by zero"),
        ("abs(a.x) > 1", "is not understood"),
        ("a.x > __import__('os').getpid()", "is not understood"),
    ],
)
def test_what_is_no_statement_is_refused(statement: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(statement, FIGURES)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"shown": ["mean_ttft"]}, "no metric 'mean_ttft' (did you mean 'mean_ttft_ms'?)"),
        ({"variants": {"a b": {}}}, "'a b' cannot be named in a statement"),
        ({"verdict": "maybe"}, "holds, fails"),
        ({"holds": []}, "holds_if"),
        ({"variants": {"one": {"workload.arivals.rate": 1}}}, "arivals"),
        ({"scenario": {"model": "llama-3.2-1b"}}, "fleet"),
    ],
)
def test_a_broken_claim_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises((ScenarioError, UsageError)) as refused:
        read_claim(written(tmp_path, **changes))
    assert said in str(refused.value)
    assert "small.yaml" in str(refused.value)


def test_a_shipped_claim_is_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a folder that has none; a name that is nearly one is helped, another gets the list."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["claims", "kv-long-contexts", "--json", "--no-save"])
    assert [each["name"] for each in json.loads(done.stdout)["claims"]] == ["kv-long-contexts"]
    for name, said in {
        "kv-long-context": "no such claim (did you mean 'kv-long-contexts'?)",
        "nothing": "batching-not-faster, bigger-gpu-concurrency",
    }.items():
        wrong = CliRunner().invoke(app, ["claims", name])
        assert (wrong.exit_code, said in wrong.stderr) == (2, True), wrong.stderr


def test_a_folder_without_claims_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no claims here"):
        read_claims([tmp_path])
