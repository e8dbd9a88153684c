"""Scenarios that extend others: what is merged, where a mistake is reported, what is refused."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.scenario import load_scenario
from sim.scenario.reading.extends import LONGEST_CHAIN, MOST_FILES, RIVALS, extended
from sim.scenario.reading.loading import read
from sim.scenario.text.document import has

BASE = """\
name: parent
description: Does it hold?
seed: 7
model: llama-3.1-8b
fleet: {gpu: h100-sxm, replicas: 2}
scheduler:
  max_num_seqs: 64
  max_num_batched_tokens: 4096
workload:
  arrivals: {kind: gamma, rate: 6, cv: 2}
  prompt_tokens: {kind: lognormal, mean: 800, p95: 2400, max: 6000}
  output_tokens: {kind: lognormal, mean: 220, p95: 600}
slo: {ttft: 500ms, tpot: 40ms}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE, encoding="utf-8")
    return tmp_path


def child(folder: Path, text: str, name: str = "child.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def loaded(folder: Path, text: str) -> dict[str, Any]:
    return load_scenario(child(folder, f"extends: base.yaml\n{text}")).resolved()


def refused(path: Path) -> str:
    """The message of loading ``path``, without its folder."""
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return str(caught.value).replace(f"{path.parent}/", "")


def test_a_child_that_says_nothing_is_its_parent_under_its_own_name(folder: Path) -> None:
    parent = load_scenario(folder / "base.yaml")
    path = child(folder, "extends: base.yaml\n")
    scenario = load_scenario(path)
    assert scenario.name == "child"
    assert scenario.override(["name=parent"]) == parent
    assert scenario.source_text == "extends: base.yaml\n"
    assert "extends" not in scenario.resolved()
    assert "extends" not in scenario.to_yaml()
    assert load_scenario(scenario.resolved()) == scenario
    assert load_scenario({"extends": str(path), "name": "parent"}) == parent


def test_mappings_are_merged_and_the_child_wins(folder: Path) -> None:
    data = loaded(folder, "seed: 8\nscheduler: {max_num_seqs: 32}\nslo: {tpot: 20ms}\n")
    assert data["seed"] == 8
    assert data["scheduler"]["max_num_seqs"] == 32
    assert data["scheduler"]["max_num_batched_tokens"] == 4096
    assert (data["slo"]["ttft"], data["slo"]["tpot"]) == (0.5, 0.02)


@pytest.mark.parametrize(
    ("arrivals", "expected"),
    [
        ("{rate: 9}", {"kind": "gamma", "rate": 9.0, "cv": 2.0}),
        ("{kind: gamma, cv: 3}", {"kind": "gamma", "rate": 6.0, "cv": 3.0}),
        ("{kind: poisson, rate: 5}", {"kind": "poisson", "rate": 5.0}),
        ("{kind: burst}", {"kind": "burst"}),
    ],
)
def test_another_kind_replaces_the_whole(
    folder: Path, arrivals: str, expected: dict[str, Any]
) -> None:
    data = loaded(folder, f"workload: {{arrivals: {arrivals}}}\n")
    assert data["workload"]["arrivals"] == expected
    assert data["workload"]["output_tokens"]["mean"] == 220


def test_keys_that_exclude_each_other_are_not_both_kept(folder: Path) -> None:
    data = loaded(folder, "workload: {prompt_tokens: {cv: 2}}\n")["workload"]["prompt_tokens"]
    assert (data["p95"], data["cv"], data["mean"]) == (None, 2.0, 800.0)
    (folder / "conv.csv").write_text("TIMESTAMP\n", encoding="utf-8")
    path = child(folder, "extends: base.yaml\nworkload: {trace: {path: conv.csv}}\n", "traced.yaml")
    traced = load_scenario(path).resolved()["workload"]
    assert traced["trace"]["path"] == str(folder / "conv.csv")
    assert (traced["arrivals"], traced["prompt_tokens"], traced["output_tokens"]) == (None,) * 3
    text = BASE[BASE.index("workload") : BASE.index("slo")]
    back = load_scenario(child(folder, f"extends: traced.yaml\n{text}")).resolved()["workload"]
    assert back == load_scenario(folder / "base.yaml").resolved()["workload"]
    faster = child(folder, "extends: traced.yaml\nworkload: {trace: {time_scale: 0.5}}\n")
    trace = load_scenario(faster).workload.trace
    assert trace is not None
    assert (trace.time_scale, trace.path) == (0.5, str(folder / "conv.csv"))


def test_joint_lengths_and_single_ones_replace_each_other(folder: Path) -> None:
    (folder / "both.csv").write_text("prompt_tokens,output_tokens\n9,8\n", encoding="utf-8")
    text = "extends: base.yaml\nworkload: {lengths: {kind: joint, path: both.csv}}\n"
    joint = load_scenario(child(folder, text, "joint.yaml")).resolved()["workload"]
    assert joint["lengths"]["path"] == str(folder / "both.csv")
    assert (joint["prompt_tokens"], joint["arrivals"]["kind"]) == (None, "gamma")
    text = BASE[BASE.index("  prompt_tokens") : BASE.index("slo")]
    back = load_scenario(child(folder, f"extends: joint.yaml\nworkload:\n{text}")).resolved()
    assert back["workload"]["lengths"] is None
    assert back["workload"]["output_tokens"]["mean"] == 220


@pytest.mark.parametrize(
    "fleet", ["{gpu: h100-sxm, replicas: 2}", "[{gpu: h100-sxm, replicas: 2}]"]
)
def test_one_pool_is_changed_by_a_mapping_and_replaced_by_a_list(folder: Path, fleet: str) -> None:
    text = BASE.replace("{gpu: h100-sxm, replicas: 2}", fleet)
    (folder / "base.yaml").write_text(text, encoding="utf-8")
    (changed,) = loaded(folder, "fleet: {gpu: l40s}\n")["fleet"]
    assert (changed["gpu"], changed["replicas"]) == ("l40s", 2)
    (replaced,) = loaded(folder, "fleet: [{gpu: l40s}]\n")["fleet"]
    assert (replaced["gpu"], replaced["replicas"]) == ("l40s", 1)


def test_null_goes_back_to_the_default(folder: Path) -> None:
    data = loaded(folder, "slo: null\nscheduler: {max_num_seqs: 16}\nrun: {requests: null}\n")
    assert data["slo"]["ttft"] is None
    assert data["scheduler"]["max_num_batched_tokens"] == 4096
    assert data["run"]["requests"] == 1000


def test_of_several_parents_the_later_wins_and_each_may_have_parents(folder: Path) -> None:
    child(folder, "slo: {ttft: 1s}\nseed: 1\n", "slo.yaml")
    child(folder, "extends: [base.yaml, slo.yaml]\nseed: 2\n", "middle.yaml")
    child(folder, "seed: 3\n", "last.yaml")
    data = load_scenario(child(folder, "extends: [middle.yaml, last.yaml]\n")).resolved()
    assert (data["seed"], data["slo"]["ttft"], data["slo"]["tpot"]) == (3, 1.0, 0.04)
    twice = load_scenario(child(folder, "extends: [base.yaml, base.yaml]\n")).resolved()
    assert twice["seed"] == 7


def test_paths_start_where_they_are_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "up").mkdir()
    (folder / "up" / "conv.csv").write_text("TIMESTAMP\n", encoding="utf-8")
    for name in ("config.json", "gpu", "engine.yaml"):
        (folder / "up" / name).write_text("{}", encoding="utf-8")
    text = "model: config.json\nengine: ./engine.yaml\nfleet: {gpu: gpu}\n"
    child(folder, f"{text}workload: {{trace: {{path: conv.csv}}}}\n", "up/base.yaml")
    path = child(folder, "extends: ../up/base.yaml\nfleet: {replicas: 2}\n", "down/child.yaml")
    data = load_scenario(path).resolved()
    assert data["workload"]["trace"]["path"] == str(folder / "up" / "conv.csv")
    assert data["model"] == str(folder / "up" / "config.json")
    assert data["engine"] == str(folder / "up" / "engine.yaml")
    assert data["fleet"][0]["gpu"] == str(folder / "up" / "gpu")
    monkeypatch.chdir(folder)
    assert load_scenario({"extends": "down/child.yaml", "name": "child"}).resolved() == data
    assert load_scenario("down/child.yaml").resolved() == data
    assert load_scenario(path).override(["seed=1"]).base == folder / "down"


def test_a_mistake_is_reported_in_the_file_that_has_it(folder: Path) -> None:
    (folder / "base.yaml").write_text(BASE.replace("40ms", "40mz") + "seed: 9\n", "utf-8")
    message = refused(child(folder, "extends: base.yaml\n\nslo: {ttft: soon}\nsed: 1\n"))
    heads = [line for line in message.splitlines() if ".yaml:" in line]
    assert [head.split(": ")[:2] for head in heads] == [
        ["child.yaml:3:13", "slo.ttft"],
        ["child.yaml:4:1", "sed"],
        ["base.yaml:13:26", "slo.tpot"],
        ["base.yaml:14:1", "seed"],
    ]
    assert "  13 | slo: {ttft: 500ms, tpot: 40mz}\n     |                          ^^^^" in message


def test_values_of_two_files_that_contradict_each_other_point_at_the_child(folder: Path) -> None:
    message = refused(child(folder, "extends: base.yaml\nscheduler: {max_num_seqs: 5000}\n"))
    assert message.startswith("child.yaml:2:27: scheduler: max_num_batched_tokens (4,096) is less")


def test_what_is_missing_is_missing_in_the_child(folder: Path) -> None:
    (folder / "base.yaml").write_text("model: llama-3.1-8b\nfleet: {gpu: l40s}\n", "utf-8")
    message = refused(child(folder, "extends: base.yaml\n"))
    assert message.startswith("child.yaml:1:1: `workload` is missing")


def test_values_from_python_are_not_reported_in_a_file(folder: Path) -> None:
    mapping = {"extends": str(folder / "base.yaml"), "slo": {"ttft": "soon"}, "name": 7}
    with pytest.raises(ScenarioError) as caught:
        load_scenario(mapping)
    assert sorted(line.split(":")[0] for line in str(caught.value).splitlines()) == [
        "name",
        "slo.ttft",
    ]


def test_an_override_of_a_parents_value_is_reported_at_the_argument(folder: Path) -> None:
    scenario = load_scenario(child(folder, "extends: base.yaml\n"))
    with pytest.raises(ScenarioError, match=r"^--set workload\.arrivals\.rate=x: 'x' is not a r"):
        scenario.override(["workload.arrivals.rate=x"])


def test_a_parent_that_is_missing(folder: Path) -> None:
    message = refused(child(folder, "seed: 1\nextends: bse.yaml\n"))
    assert re.match(
        r"child\.yaml:2:10: extends: bse\.yaml: no such file \(did you mean 'base\.yaml'\?\)\n"
        r"  2 \| extends: bse\.yaml\n    \|          \^{8}$",
        message,
    )
    child(folder, "extends: [base.yaml, gone.yaml]\n", "middle.yaml")
    message = refused(child(folder, "extends: middle.yaml\n"))
    assert message.startswith("middle.yaml:1:22: extends: gone.yaml: no such file")
    assert "(child.yaml -> middle.yaml)" in message
    with pytest.raises(ScenarioError, match=r"^extends: gone\.yaml: no such file"):
        load_scenario({"extends": "gone.yaml"})


def test_a_parent_that_is_no_scenario(folder: Path) -> None:
    (folder / "up").mkdir()
    message = refused(child(folder, "extends: up\n"))
    assert message.startswith("child.yaml:1:10: extends: up: this is a directory")
    child(folder, "", "empty.yaml")
    path = child(folder, "extends: empty.yaml\n")
    assert refused(path).startswith("empty.yaml:1:1: the file is empty")
    child(folder, "a: [\n", "empty.yaml")
    assert refused(path).startswith("empty.yaml:2:1: the YAML cannot be read")


@pytest.mark.parametrize(
    ("value", "position", "given"),
    [
        ("7", "1:10", "7"),
        ("", "1:1", "nothing"),
        ("''", "1:10", "''"),
        ("{a: b}", "1:10", "a mapping"),
        ("[base.yaml, 7]", "1:22", "7"),
    ],
)
def test_what_is_extended_is_a_path(folder: Path, value: str, position: str, given: str) -> None:
    message = refused(child(folder, f"extends: {value}\n{BASE}"))
    assert message.startswith(f"child.yaml:{position}: extends")
    assert f"expected the path of a scenario, or a list of such paths; got {given}\n" in message


def test_a_circle_is_shown(folder: Path) -> None:
    child(folder, "extends: child.yaml\n", "middle.yaml")
    message = refused(child(folder, "extends: ./middle.yaml\n"))
    assert message.startswith("middle.yaml:1:10: extends: files extend each other in a circle")
    assert "(child.yaml -> middle.yaml -> child.yaml)" in message
    message = refused(child(folder, "extends: child.yaml\n"))
    assert message.startswith("child.yaml:1:10: extends: files extend each other in a circle")


def test_chains_have_an_end(folder: Path) -> None:
    for number in range(1, LONGEST_CHAIN + 1):
        child(folder, f"extends: {number - 1}.yaml\n", f"{number}.yaml")
    child(folder, BASE, "0.yaml")
    assert load_scenario(folder / f"{LONGEST_CHAIN - 1}.yaml").seed == 7
    message = refused(folder / f"{LONGEST_CHAIN}.yaml")
    assert message.startswith(f"1.yaml:1:10: extends: more than {LONGEST_CHAIN} files extend each")
    assert "10.yaml -> 9.yaml -> 8.yaml" in message


def test_a_scenario_has_only_so_many_parents(folder: Path) -> None:
    for number in range(1, 4):
        again = ", ".join(["base.yaml" if number == 1 else f"{number - 1}.yaml"] * 9)
        child(folder, f"extends: [{again}]\n", f"{number}.yaml")
    message = refused(folder / "3.yaml")
    assert f"extends: more than {MOST_FILES} files are extended" in message


TOP = ("seed", "name", "slo", "fleet", "workload", "arrivals", "prompt_tokens", "trace")
KEYS = st.sampled_from([*TOP, "ttft", "gpu", "kind", "rate", "p95", "cv", "x"])
VALUES = st.sampled_from([None, 1, "x", "poisson", "l40s", "burst"])
TREES = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=4)
)


@given(
    path=st.text(max_size=8) | st.sampled_from(["~nobody/a.yaml", "\0", "x" * 300, ".", "/"]),
    changes=st.dictionaries(KEYS, TREES, max_size=5),
)
def test_whatever_is_extended_gives_a_scenario_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, path: str, changes: dict[str, Any]
) -> None:
    base = tmp_path_factory.getbasetemp() / "base.yaml"
    base.write_text(BASE, encoding="utf-8")
    for extends in (path, str(base), [str(base), path]):
        with contextlib.suppress(ScenarioError):
            assert "extends" not in load_scenario({**changes, "extends": extends}).resolved()


@given(changes=st.dictionaries(KEYS, TREES, max_size=5))
def test_every_place_belongs_to_a_value_that_is_there(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    folder = tmp_path_factory.getbasetemp()
    (folder / "base.yaml").write_text(BASE, encoding="utf-8")
    path = child(folder, yaml.safe_dump({"extends": "base.yaml", **changes}), "any.yaml")
    document, _ = extended(read(path)[0])
    assert set(document.keys) == set(document.values)
    for at, place in document.keys.items():
        assert has(document.data, at)
        assert place.line is not None
        assert document.texts[place.label].splitlines()[place.line - 1]
    for key, value in changes.items():
        if not isinstance(value, dict):
            assert document.data[key] == value
            assert document.keys[key,].label == str(path)
    rivals = RIVALS["workload",]
    workload = changes.get("workload")
    if isinstance(workload, dict) and workload.get("trace") is not None:
        kept = set(document.data["workload"]) & set(rivals["trace"])
        assert kept <= set(workload)
