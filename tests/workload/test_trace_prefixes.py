"""Prompts that begin alike: counted by hand, said in every answer, and simulated in full."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.workload.traces import Trace, TracePlay, read_trace
from sim.workload.traces.prefixes import reuse_note, reuse_share
from sim.workload.traces.tools import describe, to_text, write_trace
from tests.places import DATA, SHARED
from tests.planning_fixtures import small
from tests.report_fixtures import on_page

REAL = SHARED / "data" / "traces"
MOONCAKE = REAL / "mooncake_conversation_trace.jsonl"

PROMPTS: list[tuple[int, list[Any]]] = [
    (1100, [1, 2, 3]),  # new
    (1200, [1, 2, 9]),  # begins like the first: two blocks of 512
    (1100, [1, 2, 3]),  # the first again, its last block too: all 1,100
    (600, [7, 2]),  # a known block behind a new one repeats nothing
    (500, [7]),  # all 500 of it
]
REPEATED = [0, 1024, 1100, 0, 500]


def mooncake(path: Path, prompts: list[tuple[int, Any]] | None = None) -> Path:
    rows = [
        {"timestamp": 1000 * i, "input_length": length, "output_length": 5, "hash_ids": ids}
        for i, (length, ids) in enumerate(PROMPTS if prompts is None else prompts)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def repeated(trace: Trace) -> list[int] | None:
    return None if trace.repeated is None else trace.repeated.tolist()


def told(path: Path, **trace: Any) -> list[str]:
    scenario = small(workload={"trace": {"path": str(path), **trace}}, run={}, max_model_len=None)
    return list(sim.simulate(scenario).summary["infersim"]["notes"])


def test_repeated_tokens_by_hand(tmp_path: Path) -> None:
    trace = read_trace(mooncake(tmp_path / "t.jsonl"))
    assert repeated(trace) == REPEATED
    assert reuse_share(trace) == 2624 / 4500


def test_the_count_goes_on_across_blocks_of_rows(tmp_path: Path) -> None:
    trace = read_trace(
        mooncake(tmp_path / "t.jsonl", [(512, [0]), *[(512, [i]) for i in range(9000)]])
    )
    assert trace.repeated is not None
    assert trace.repeated.sum() == 512
    again = read_trace(mooncake(tmp_path / "t.jsonl", [(512, [i % 8500]) for i in range(9000)]))
    assert again.repeated is not None
    assert again.repeated.sum() == 500 * 512


def test_a_part_of_a_trace_has_its_own_share(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl")
    assert repeated(read_trace(path, played=TracePlay(limit=2))) == REPEATED[:2]
    assert reuse_share(read_trace(path, played=TracePlay(overlay=2))) == 2624 / 4500


@pytest.mark.parametrize("ids", [None, [], "abc", 5, [[1], [1]], {"a": 1}])
def test_names_that_are_none_repeat_nothing_and_break_nothing(tmp_path: Path, ids: Any) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(600, ids), (600, ids)])
    trace = read_trace(path)
    assert repeated(trace) is None
    assert reuse_note(trace) is None
    mixed = read_trace(mooncake(tmp_path / "m.jsonl", [(600, [1, 2]), (600, ids), (600, [1, 3])]))
    assert repeated(mixed) == [0, 0, 512]


def test_blocks_of_another_size_count_by_their_number(tmp_path: Path) -> None:
    # 64 tokens in four blocks, of which three are known
    path = mooncake(tmp_path / "t.jsonl", [(64, [1, 2, 3, 4]), (64, [1, 2, 3, 5])])
    assert repeated(read_trace(path)) == [0, 48]


def test_blocks_of_bailian_have_16_tokens(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    own = {"chat_id": 1, "parent_chat_id": -1, "turn": 1, "output_length": 5}
    rows = [
        {**own, "timestamp": 0.0, "input_length": 40, "hash_ids": [1, 2, 3]},
        {**own, "timestamp": 1.0, "input_length": 44, "hash_ids": [1, 2, 4]},
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    trace = read_trace(path)
    assert (repeated(trace), trace.sessions) == ([0, 32], "chat_id")


@pytest.mark.parametrize(
    ("name", "sessions"),
    [
        ("burstgpt-v2-small.csv", "Session ID"),
        ("burstgpt-small.csv", None),
        ("aiperf-small.jsonl", "session_id"),
        ("plain-small.csv", None),
    ],
)
def test_conversations_without_blocks_are_named(name: str, sessions: str | None) -> None:
    trace = read_trace(DATA / name)
    assert trace.sessions == sessions
    if trace.repeated is None:
        note = reuse_note(trace)
        assert (note is None) == (sessions is None)
        assert f"conversations ({sessions})" in (note or f"conversations ({sessions})")


def test_a_run_says_it_and_simulates_the_same_as_without_names(tmp_path: Path) -> None:
    named = mooncake(tmp_path / "named.jsonl")
    bare = mooncake(tmp_path / "bare.jsonl", [(length, None) for length, _ in PROMPTS])
    (note,) = [each for each in told(named) if "prefix" in each]
    assert note.startswith("58% of the prompt tokens repeat the beginning of an earlier prompt")
    assert "are computed again here" in note
    assert "enable_prefix_caching=true" in note
    assert not any("prefix" in each for each in told(bare))
    tables = [
        sim.simulate(small(workload={"trace": {"path": str(path)}}, run={}, max_model_len=4096))
        for path in (named, bare)
    ]
    assert tables[0].requests.equals(tables[1].requests)


def test_describe_shows_the_share(tmp_path: Path) -> None:
    figures = describe(mooncake(tmp_path / "t.jsonl"))
    assert figures["prefix_reuse"] == 2624 / 4500
    text = to_text(figures)
    assert "  prefix reuse           58.3%   of prompt tokens repeat an earlier prompt's" in text
    assert "what an LRU cache of so many blocks of 512 tokens would have at hand" in text
    assert max(map(len, text.splitlines())) <= 88
    none = describe(DATA / "azure-small.csv")
    assert none["prefix_reuse"] is None
    assert "prefix" not in to_text(none)


def test_what_a_plain_file_cannot_hold_is_said(tmp_path: Path) -> None:
    path, out = mooncake(tmp_path / "t.jsonl"), tmp_path / "o.csv"
    done = CliRunner().invoke(app, ["trace", "convert", str(path), str(out)])
    assert (done.exit_code, done.stderr) == (
        0,
        "not written: which prompts begin alike (hash_ids)\n",
    )


def test_find_and_plan_say_it_too(tmp_path: Path) -> None:
    path = mooncake(tmp_path / "t.jsonl", [(300, [i % 5]) for i in range(40)])
    asked = small(workload={"trace": {"path": str(path)}}, run={}, slo={"ttft": "200ms"})
    answers = [
        sim.find(asked, tolerance=0.5),
        sim.plan(asked, ["h100-sxm"], tensor_parallel=[1], rate="1x", jobs=1),
    ]
    for answer in answers:
        (note,) = answer["traffic_notes"]
        assert note.startswith("88% of the prompt tokens repeat")
        assert "88% of the prompt tokens repeat" in " ".join(str(answer).split())
        page = answer.report(tmp_path / answer["command"]).read_text(encoding="utf-8")
        shown = html.unescape(re.sub("</?code>", "", page))
        assert on_page(note) in " ".join(shown.split())


@pytest.mark.skipif(not MOONCAKE.exists(), reason=f"the trace is not at {MOONCAKE}")
def test_the_real_conversations_repeat_37_percent() -> None:
    assert describe(MOONCAKE)["prefix_reuse"] == pytest.approx(0.3736, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "named"),
    [
        ("bailian-small.jsonl", [0, 1, 0]),  # by the turn that a turn names
        ("aiperf-small.jsonl", [0, 1, 0]),
        ("burstgpt-v2-small.csv", [0, -1]),
        ("azure-small.csv", None),
    ],
)
def test_requests_of_one_conversation_are_known(name: str, named: list[int] | None) -> None:
    found = read_trace(DATA / name).session_ids
    assert (None if found is None else found.tolist()[: len(named or [])]) == named


def test_conversations_reach_the_router_and_the_results(tmp_path: Path) -> None:
    """Copies that are overlaid are other people; written as plain CSV they are read again."""
    path = DATA / "bailian-small.jsonl"
    twice = read_trace(path, played=TracePlay(overlay=2))
    assert twice.session_ids is not None
    assert sorted(twice.session_ids.tolist()) == [0, 0, 1, 2, 2, 3]
    plain = tmp_path / "plain.csv"
    write_trace(read_trace(path), plain)
    again = read_trace(plain).session_ids
    assert again is not None
    assert again.tolist() == [0, 1, 0]
    workload = {"trace": {"path": str(plain)}}
    result = sim.simulate({"model": "llama-3.2-1b", "fleet": {"gpu": "a10g"}, "workload": workload})
    assert result.requests["session"].tolist() == [0, 1, 0]
    assert result.requests["turn"].tolist() == [1, 1, 2]
    assert result.summary["infersim"]["sessions"]["finished"] == 2
