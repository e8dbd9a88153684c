"""Traces: what the readers make of good files, and what they say about bad ones."""

from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from sim.errors import TraceError, UsageError
from sim.scenario.sections.traffic import TraceSettings as Recorded
from sim.workload.lengths import Empirical, Joint
from sim.workload.traces import FORMATS, Trace, TracePlay, detect, read_trace
from sim.workload.traces.columns import PAIRS, read_column, read_pair
from sim.workload.traces.text import MAX_LINE
from sim.workload.traffic import MAX_TOKENS
from tests.counted_work import calls
from tests.places import DATA, ROOT, SHARED

HERE = DATA
TRACES = SHARED / "data" / "traces"
CHAT = ROOT / "scenarios" / "traces" / "chat-azure.csv"
FIXTURES = TRACES / "format_fixtures"
FAILED = "failed requests (no output tokens)"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
PLAIN = "arrival_s,prompt_tokens,output_tokens\n"

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "t.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def rows(trace: Trace) -> list[tuple[float, int, int]]:
    return list(
        zip(
            trace.arrivals.tolist(),
            trace.prompt_tokens.tolist(),
            trace.output_tokens.tolist(),
            strict=True,
        )
    )


def message(path: Path, trace_format: str = "auto") -> str:
    with pytest.raises(TraceError) as caught:
        read_trace(path, trace_format)
    return str(caught.value)


# Good files


def test_azure_keeps_all_seven_digits_across_midnight() -> None:
    trace = read_trace(HERE / "azure-small.csv")
    assert rows(trace) == [(0.0, 100, 10), (2e-7, 200, 20), (1.5000001, 300, 30)]


def test_azure_fixture_has_the_traps_of_the_real_files() -> None:
    content = (HERE / "azure-small.csv").read_bytes()
    assert content.count(b"\r\n") == content.count(b"\n") == 3
    assert not content.endswith(b"\n")


def test_azure_offsets_are_taken_off(write: Write) -> None:
    path = write(
        AZURE
        + "2024-05-10 00:00:00.009930+00:00,1,1\n"
        + "2024-05-10 02:00:01.009930+02:00,2,2\n"
        + "2024-05-09T20:30:02.009930-03:30,3,3\n"
        + "2024-05-10 00:00:04Z,4,4\n"
    )
    assert rows(read_trace(path)) == [(0.0, 1, 1), (1.0, 2, 2), (2.0, 3, 3), (3.99007, 4, 4)]


def test_mooncake_timestamps_are_milliseconds() -> None:
    trace = read_trace(HERE / "mooncake-small.jsonl")
    assert rows(trace) == [(0.0, 600, 5), (0.0, 700, 1), (3.003, 30, 50)]


def test_azure_2024_has_offsets_and_no_fraction_at_a_full_second() -> None:
    trace = read_trace(HERE / "azure-2024-small.csv")
    assert rows(trace) == [(0.0, 90, 9), (0.25, 80, 8), (0.375, 70, 7)]


def test_burstgpt_skips_and_counts_failed_requests() -> None:
    trace = read_trace(HERE / "burstgpt-small.csv")
    assert rows(trace) == [(0.0, 310, 25), (2.0, 45, 190), (5.0, 640, 12)]
    assert trace.skipped == {FAILED: 2}


def test_burstgpt_v2_has_more_columns_in_between() -> None:
    trace = read_trace(HERE / "burstgpt-v2-small.csv")
    assert rows(trace) == [(0.0, 310, 25), (2.0, 45, 190)]
    assert trace.skipped == {FAILED: 1}


def test_failed_requests_are_counted_over_all_blocks(write: Write) -> None:
    lines = [f"{i},{5 if i % 3 else 0},{i % 3}" for i in range(20_000)]
    path = write("Timestamp,Request tokens,Response tokens\n" + "\n".join(lines))
    trace = read_trace(path, played=TracePlay(limit=10))
    assert (len(trace), trace.skipped) == (10, {FAILED: 6667})
    assert trace.arrivals.tolist() == [0, 1, 3, 4, 6, 7, 9, 10, 12, 13]


def test_a_file_of_failed_requests_only(write: Write) -> None:
    path = write("Timestamp,Request tokens,Response tokens\n1,5,0\n2,5,0\n")
    assert f"t.csv: no request is left; skipped: 2 {FAILED}" in message(path)


def test_bailian_timestamps_are_seconds() -> None:
    trace = read_trace(HERE / "bailian-small.jsonl")
    assert rows(trace) == [(0.0, 410, 60), (0.5, 33, 700), (60.25, 515, 44)]


def test_aiperf_timestamps_are_milliseconds() -> None:
    trace = read_trace(HERE / "aiperf-small.jsonl")
    assert rows(trace) == [(0.0, 100, 20), (0.25, 200, 10), (2.0, 150, 30)]


def test_llmservingsim_arrivals_are_nanoseconds() -> None:
    trace = read_trace(HERE / "llmservingsim-small.jsonl")
    assert rows(trace) == [(0.0, 900, 35), (0.25, 77, 5), (0.75, 16, 400)]


@pytest.mark.parametrize("indent", [None, 2])
def test_vllm_start_times_are_seconds_and_failures_are_skipped(
    write: Write, indent: int | None
) -> None:
    result = json.loads((HERE / "vllm-small.json").read_text())
    trace = read_trace(write(json.dumps(result, indent=indent)))
    assert rows(trace) == [(0.0, 128, 16), (0.25, 64, 32), (0.75, 99, 8)]
    assert trace.skipped == {FAILED: 1}


def test_vllm_results_may_be_one_very_long_line(write: Write) -> None:
    result = json.loads((HERE / "vllm-small.json").read_text())
    result["generated_texts"][0] = "a" * 2 * MAX_LINE
    path = write(json.dumps(result))
    assert detect(path).name == "vllm"
    assert len(read_trace(path)) == 3


@pytest.mark.parametrize("rate", ["inf", math.inf])
def test_vllm_without_times_sent_all_at_once(write: Write, rate: object) -> None:
    result = {"request_rate": rate, "max_concurrency": None}
    trace = read_trace(write(json.dumps({**result, "input_lens": [5, 6], "output_lens": [7, 8]})))
    assert rows(trace) == [(0.0, 5, 7), (0.0, 6, 8)]


def test_plain_finds_columns_by_name_sorts_and_keeps_the_order_of_ties() -> None:
    trace = read_trace(HERE / "plain-small.csv")
    assert rows(trace) == [(0.0, 102, 12), (0.25, 101, 11), (0.25, 103, 13)]


def test_many_ties_keep_the_order_of_the_file(write: Write) -> None:
    lines = [f"{(i * 7) % 4},{i + 1},1" for i in range(20_000)]
    trace = read_trace(write(PLAIN + "\n".join(lines)))
    assert trace.arrivals.tolist() == sorted(trace.arrivals.tolist())
    for second in range(4):
        prompts = trace.prompt_tokens[trace.arrivals == second]
        assert (np.diff(prompts) > 0).all()
        assert len(prompts) == 5_000


def test_time_scale_multiplies_gaps_and_limit_keeps_the_first_arrivals() -> None:
    trace = read_trace(HERE / "plain-small.csv", played=TracePlay(time_scale=0.5, limit=2))
    assert rows(trace) == [(0.0, 102, 12), (0.125, 101, 11)]


def test_a_limit_beyond_the_end_keeps_all() -> None:
    assert len(read_trace(HERE / "plain-small.csv", played=TracePlay(limit=99))) == 3


@pytest.mark.parametrize("name", ["azure-small.csv", "mooncake-small.jsonl", "plain-small.csv"])
def test_gzip_is_read_like_the_file_in_it(name: str, tmp_path: Path) -> None:
    zipped = tmp_path / f"{name}.gz"
    zipped.write_bytes(gzip.compress((HERE / name).read_bytes()))
    assert rows(read_trace(zipped)) == rows(read_trace(HERE / name))


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + PLAIN + "1,2,3\n",
        "\n\n" + PLAIN + "\n1,2,3\n\n  \n",
        PLAIN.replace("\n", "\r\n") + "1,2,3\r\n",
        "arrival_s , prompt_tokens,output_tokens \n 1.0 , 2 , 3 ",
        PLAIN + "1e0,2,3",
        "arrival_s,note,prompt_tokens,output_tokens\n1,,2,3",
    ],
    ids=["byte order mark", "blank lines", "crlf", "spaces", "exponent", "extra empty field"],
)
def test_harmless_differences_in_writing(write: Write, content: str) -> None:
    assert rows(read_trace(write(content))) == [(0.0, 2, 3)]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("azure-small.csv", "azure"),
        ("azure-2024-small.csv", "azure"),
        ("burstgpt-small.csv", "burstgpt"),
        ("burstgpt-v2-small.csv", "burstgpt"),
        ("mooncake-small.jsonl", "mooncake"),
        ("bailian-small.jsonl", "bailian"),
        ("aiperf-small.jsonl", "aiperf"),
        ("llmservingsim-small.jsonl", "llmservingsim"),
        ("vllm-small.json", "vllm"),
        ("plain-small.csv", "csv"),
    ],
)
def test_formats_are_told_apart_by_names_of_columns(name: str, expected: str) -> None:
    assert detect(HERE / name).name == expected
    assert rows(read_trace(HERE / name, expected)) == rows(read_trace(HERE / name))


def test_each_format_is_registered_under_its_own_name() -> None:
    assert [f.name for f in FORMATS.values()] == list(FORMATS)


def test_a_scenario_may_name_every_format() -> None:
    assert {*get_args(Recorded.model_fields["format"].annotation)} == {"auto", *FORMATS}


# Files that are no trace at all


def test_an_unknown_header_names_what_was_found_and_what_is_known(write: Write) -> None:
    text = message(write("Time,Model,Request size,Response size\n5,ChatGPT,472,18\n"))
    assert "'Time', 'Model', 'Request size', 'Response size' fit no known trace format;" in text
    assert all(f"{f.name}: {f.layout}" in text for f in FORMATS.values())


@pytest.mark.parametrize("key", ['"chat_id": 7', '"user": "a"', '"session_id": 1, "turn": 2'])
def test_keys_of_other_services_are_not_taken_for_mooncake(write: Write, key: str) -> None:
    row = f'{{{key}, "timestamp": 61.1, "input_length": 5, "output_length": 6}}'
    assert "fit no known trace format" in message(write(row))
    assert rows(read_trace(write(row), "mooncake")) == [(0.0, 5, 6)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the file is empty"),
        (" \n\r\n\t\n", "the file is empty"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
        (PLAIN, "a header, but no requests"),
        (PLAIN + "\n\n", "a header, but no requests"),
        (AZURE.strip(), "a header, but no requests"),
        (bytes(range(256)) * 40, "not a text file"),
        (b"PAR1\x15\x04\x15\xff\xfe\n" * 99, "damaged or incomplete file"),
        ("\0" * 5000, "a binary file"),
        ('[{"timestamp": 0}]', "a JSON array"),
        ("[" * 100_000, "a JSON array"),
        ('{"timestamp": 0, ', "not JSON"),
        ("0.0,512,128\n0.5,512,128\n", "'0.0', '512', '128' fit no known"),
        (gzip.compress(PLAIN.encode() + b"1,2,3\n" * 9999, mtime=0)[:-9], "incomplete gzip"),
        (gzip.compress(PLAIN.encode() + b"1,2,3\n" * 9999, mtime=0)[:40], "incomplete gzip"),
        (b"\x1f\x8bnot really", "gzip"),
        ("x" * 10_000_000, f"more than {MAX_LINE:,} characters"),
        (PLAIN + "1,2," + "3" * 10_000_000, f"t.csv:2: a line of more than {MAX_LINE:,}"),
        ('{"timestamp": ' + " " * 10_000_000 + "1", f"more than {MAX_LINE:,} characters"),
        ('{"timestamp": ' + " " * 10_000_000 + "1}", "'timestamp' fit no known"),
        (" " * 3_000_000 + "x", f"t.csv:1: a line of more than {MAX_LINE:,}"),
        ('{\n "input_lens": [1],\n "output_lens": [2\n}', "t.csv:4: not JSON: Expecting ',' deli"),
        ('{"a": 1}\n' * 3, "'a' fit no known"),
        ('{\n"input_lens": [1]}\n{"input_lens": [1]}', "t.csv:3: a second JSON document"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_no_trace_at_all(write: Write, content: str | bytes, words: str) -> None:
    text = message(write(content))
    assert words in text
    assert "t.csv" in text
    assert len(text) < 1300


SHAREGPT = [{"id": "one", "conversations": [{"from": "human", "value": "good day"}] * 9}]


@pytest.mark.parametrize("indent", [None, 2])
def test_sharegpt_is_refused_with_the_way_round_it(write: Write, indent: int | None) -> None:
    path = write(json.dumps(SHAREGPT * 9, indent=indent))
    text = message(path)
    assert "t.csv: ShareGPT conversations are texts" in text
    assert "`lengths: {kind: joint, path: lengths.csv}`" in text
    with pytest.raises(TraceError, match="model's tokenizer"):
        read_pair(path, None)


def test_a_file_of_lengths_is_no_trace_but_may_be_drawn_from() -> None:
    text = message(HERE / "lengths-small.csv")
    assert "fit no known trace format (lengths without arrivals can be drawn from" in text


# Turns that wait for an answer, and results without times


def test_aiperf_turns_that_wait_for_an_answer_are_refused(write: Write) -> None:
    first = '{"session_id": "a", "timestamp": 0.0, "input_length": 5, "output_length": 6}\n'
    text = message(write(first * 2 + first.replace('"timestamp": 0.0', '"delay": 6573.6')))
    assert "t.csv:3: a delay (6573.6) instead of a timestamp: this turn waits" in text
    assert "sessions are not supported yet; give every row a timestamp" in text
    text = message(write(first.replace("0.0", "null")))
    assert "t.csv:1: no timestamp: this turn waits for the answer" in text


def test_agents_of_llmservingsim_are_refused(write: Write) -> None:
    flat = '{"arrival_time_ns": 5, "input_toks": 1, "output_toks": 1}\n'
    agent = '{"session_id": "t", "arrival_time_ns": 5, "sub_requests": []}\n'
    for content, line in ((agent, 1), (flat + agent, 2)):
        text = message(write(content))
        assert f"t.csv:{line}: sub_requests: each of them waits" in text
        assert "not supported yet" in text


VLLM = {"input_lens": [5, 6], "output_lens": [7, 8], "start_times": [0.5, 1.0]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"start_times": [0.5]}, "start_times has 1 entries, but input_lens has 2"),
        ({"start_times": [0.5, -1]}, "start_times[1] is -1; allowed: finite numbers that are not"),
        ({"start_times": 3}, "start_times is 3; allowed: a list"),
        ({"input_lens": [5, None]}, "input_lens[1] is None; allowed: whole numbers from 1"),
        ({"input_lens": [0, 5], "output_lens": [0, -1]}, "output_lens[1] is -1; allowed: whole"),
        ({"input_lens": [], "output_lens": [], "start_times": []}, "input_lens is an empty list"),
        ({"output_lens": [0, 0]}, f"no request is left; skipped: 2 {FAILED}"),
    ],
)
def test_bad_results_of_vllm(write: Write, changes: dict[str, object], words: str) -> None:
    text = message(write(json.dumps({**VLLM, **changes})))
    assert words in text
    assert "t.csv: " in text


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"request_rate": 4.0}, "the rate that was asked for (request_rate is 4.0) with the rec"),
        ({}, "request_rate is None"),
        ({"request_rate": "inf", "max_concurrency": 32}, "{kind: closed, concurrency: 32}` with"),
    ],
)
def test_results_of_vllm_without_times(write: Write, found: dict[str, object], words: str) -> None:
    text = message(write(json.dumps({**found, "input_lens": [5], "output_lens": [7]})))
    assert "t.csv: no start_times: this release of vLLM" in text
    assert words in text
    assert "`lengths: {kind: joint, path: t.csv}`" in text


def test_a_summary_of_vllm_is_known_but_not_enough(write: Write) -> None:
    summary = {"total_input_tokens": 5, "request_throughput": 0.5}
    assert "--save-detailed" in message(write(json.dumps(summary, indent=1)))
    two = f"{json.dumps(VLLM)}\n{json.dumps(VLLM)}\n"
    assert "t.csv:2: a second JSON document; put each into a file of its own" in message(write(two))


# The tick of a coarse clock


def test_spread_moves_each_arrival_by_a_share_of_the_tick(write: Write) -> None:
    ticks = np.repeat(np.arange(0, 300, 3), 40)
    path = write(PLAIN + "\n".join(f"{t},{i + 1},1" for i, t in enumerate(ticks)))
    recorded, spread = read_trace(path), read_trace(path, played=TracePlay(spread=3.0, seed=5))
    assert sorted(spread.prompt_tokens.tolist()) == recorded.prompt_tokens.tolist()
    assert spread.prompt_tokens.tolist() != recorded.prompt_tokens.tolist()
    assert spread.arrivals[0] == 0
    assert (np.diff(spread.arrivals) >= 0).all()
    by_request = spread.arrivals[np.argsort(spread.prompt_tokens)]
    moved = by_request - recorded.arrivals
    moved -= moved.min()
    assert moved.max() < 3
    assert moved.mean() == pytest.approx(1.5, abs=4 * 3 / math.sqrt(12 * len(ticks)))
    gaps = np.diff(spread.arrivals)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.1)  # about Poisson
    assert np.unique(recorded.arrivals).size == 100
    assert rows(read_trace(path, played=TracePlay(spread=3.0, seed=5))) == rows(spread)
    assert rows(read_trace(path, played=TracePlay(spread=3.0, seed=6))) != rows(spread)


def test_spread_comes_before_limit_and_time_scale() -> None:
    path = HERE / "mooncake-small.jsonl"
    whole = rows(read_trace(path, played=TracePlay(spread=3.0, seed=1)))
    assert rows(read_trace(path, played=TracePlay(limit=2, spread=3.0, seed=1))) == whole[:2]
    scaled = read_trace(path, played=TracePlay(time_scale=0.5, spread=3.0, seed=1))
    assert rows(scaled) == [(t / 2, p, o) for t, p, o in whole]
    assert rows(read_trace(path)) == rows(read_trace(path, played=TracePlay(seed=1)))


def test_missing_file_suggests_its_neighbour(write: Write) -> None:
    path = write(PLAIN)
    assert "no such file (did you mean 't.csv'?)" in message(path.with_name("tt.csv"))


def test_missing_folder_directory_and_device(tmp_path: Path) -> None:
    assert "no such file" in message(tmp_path / "nowhere" / "t.csv")
    assert "a directory" in message(tmp_path)
    assert "not a regular file" in message(Path("/dev/null"))
    assert "cannot be read" in message(tmp_path / ("long" * 100))


def test_an_unknown_format_is_a_mistake_of_use() -> None:
    with pytest.raises(
        UsageError, match=r"did you mean 'mooncake'.*known: auto, azure, burstgpt, mooncake, bai"
    ):
        read_trace(HERE / "plain-small.csv", "moncake")


def test_a_format_that_is_named_must_fit() -> None:
    assert "no column 'arrival_s'" in message(HERE / "azure-small.csv", "csv")
    assert "mooncake-small.jsonl:1: no column" in message(HERE / "mooncake-small.jsonl", "azure")
    assert "azure-small.csv:1: not JSON" in message(HERE / "azure-small.csv", "mooncake")


def test_a_misspelt_or_doubled_column(write: Write) -> None:
    path = write("arrival,prompt_tokens,output_tokens\n1,2,3\n")
    assert "no column 'arrival_s' (did you mean 'arrival'?)" in message(path, "csv")
    assert "t.csv:1: two columns are called 'arrival_s'" in message(write("arrival_s," + PLAIN))


# Bad rows: each names file:line, the value and what is allowed

WHOLE = f"allowed: whole numbers from 1 to {MAX_TOKENS}"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1,0,3", f"t.csv:3: prompt_tokens is '0'; {WHOLE}"),
        ("1,2,0", f"t.csv:3: output_tokens is '0'; {WHOLE}"),
        ("1,-2,3", f"t.csv:3: prompt_tokens is '-2'; {WHOLE}"),
        ("1,2.5,3", f"t.csv:3: prompt_tokens is '2.5'; {WHOLE}"),
        ("1,nan,3", f"t.csv:3: prompt_tokens is 'nan'; {WHOLE}"),
        ("1,2,", f"t.csv:3: output_tokens is ''; {WHOLE}"),
        ("1,2,three", f"t.csv:3: output_tokens is 'three'; {WHOLE}"),
        ("1,2,2147483648", f"t.csv:3: output_tokens is '2147483648'; {WHOLE}"),
        ("1,2,\u0663", f"t.csv:3: output_tokens is '\u0663'; {WHOLE}"),
        ("1,2," + "9" * 5000, "t.csv:3: output_tokens is '999"),
        ("-1,2,3", "t.csv:3: arrival_s is '-1'; allowed: finite numbers that are not negative"),
        ("nan,2,3", "t.csv:3: arrival_s is 'nan'"),
        ("inf,2,3", "t.csv:3: arrival_s is 'inf'"),
        (",2,3", "t.csv:3: arrival_s is ''"),
        ("soon,2,3", "t.csv:3: arrival_s is 'soon'"),
        ("1,2", "t.csv:3: 2 fields, but the header has 3"),
        ("1", "t.csv:3: 1 field, but the header has 3"),
        ("1,2,3,4", "t.csv:3: 4 fields, but the header has 3"),
        ('1,"2,3', "t.csv:3: 2 fields, but the header has 3"),
        ('1,"' + "x\n" * 200_000, "t.csv:3: not a row of CSV: field larger"),
    ],
    ids=lambda value: value[:20],
)
def test_bad_rows_of_csv(write: Write, row: str, words: str) -> None:
    text = message(write(f"{PLAIN}0,1,1\n{row}\n0,1,1\n"))
    assert words in text
    assert len(text) < 300


@pytest.mark.parametrize(
    "stamp",
    ["12.5", "", "2023-02-30 10:00:00.0000000", "2023-11-16 25:00:00", "NaT", "today", "2023"],
)
def test_bad_dates(write: Write, stamp: str) -> None:
    good = "2023-11-16 18:15:46.6805900,1,1\n"
    text = message(write(f"{AZURE}{good}{stamp},1,1\n{good}"))
    assert f"t.csv:3: TIMESTAMP is {stamp!r}; allowed: dates like 2023-11-16 18:15:46" in text


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('{"timestamp": 1, "input_length": 2}', "t.csv:3: no 'output_length' in this row; it has"),
        ("{}", "t.csv:3: no 'timestamp' in this row; it has nothing"),
        ('{"timestamp": 1, "input_length": 2.0, "output_length": 3}', "input_length is 2.0;"),
        ('{"timestamp": 1, "input_length": true, "output_length": 3}', "input_length is True;"),
        ('{"timestamp": 1, "input_length": 2, "output_length": 0}', "output_length is 0;"),
        ('{"timestamp": 1, "input_length": 2, "output_length": null}', "output_length is None;"),
        ('{"timestamp": NaN, "input_length": 2, "output_length": 3}', "timestamp is nan;"),
        ('{"timestamp": -1, "input_length": 2, "output_length": 3}', "timestamp is -1;"),
        ('{"timestamp": [], "input_length": 2, "output_length": 3}', "timestamp is [];"),
        ('{"timestamp": true, "input_length": 2, "output_length": 3}', "timestamp is True;"),
        ('{"timestamp": 1' + "0" * 400 + ', "input_length": 2, "output_length": 3}', "t.csv:3: "),
        ('{"timestamp": 1, "input_length"', "t.csv:3: not JSON: "),
        ('{"a": ' * 50_000, "t.csv:3: not JSON: "),
        ("9" * 9_000, "t.csv:3: not JSON: "),
        ("[1, 2, 3]", "t.csv:3: not a JSON object: "),
    ],
    ids=lambda value: value[:60],
)
def test_bad_rows_of_json(write: Write, row: str, words: str) -> None:
    good = '{"timestamp": 0, "input_length": 1, "output_length": 1}\n'
    text = message(write(f"{good}\n{row}\n{good}"))
    assert "t.csv:3: " in text
    assert words in text
    assert len(text) < 300


def test_line_numbers_count_blank_lines_quoted_line_breaks_and_blocks(write: Write) -> None:
    header = "note,arrival_s,prompt_tokens,output_tokens\n"
    filler = "".join(f"x,{i},1,1\n" for i in range(20_000))
    text = message(write(f'{header}\n"two\nlines",1,1,1\n{filler}x,1,0,1\n'))
    assert "t.csv:20005: prompt_tokens is '0'" in text


# Lengths from files


def test_bare_lengths_with_and_without_a_final_newline(write: Write) -> None:
    assert read_column(write("12\n7\n\n30"), None).tolist() == [12, 7, 30]
    assert read_column(write("12\r\n7\r\n"), None).tolist() == [12, 7]


def test_a_single_column_need_not_be_named(write: Write) -> None:
    assert read_column(write("tokens\n12\n7\n"), None).tolist() == [12, 7]
    assert read_column(write('{"n": 12}\n{"n": 7}\n'), None).tolist() == [12, 7]


def test_lengths_from_a_named_column() -> None:
    assert read_column(HERE / "plain-small.csv", "output_tokens").tolist() == [11, 12, 13]
    assert read_column(HERE / "mooncake-small.jsonl", "input_length").tolist() == [600, 700, 30]


@pytest.mark.parametrize("names", PAIRS)
def test_pairs_of_lengths_are_found_by_the_usual_names(
    write: Write, names: tuple[str, str]
) -> None:
    prompt, output = names
    for content in (
        f"{output},other,{prompt}\n1,x,10\n2,x,20\n",
        f'{{"{prompt}": 10, "{output}": 1}}\n{{"{output}": 2, "{prompt}": 20}}\n',
        f'{{"n": 2, "{prompt}": [10, 20], "{output}": [1, 2]}}',
        f'{{"n": 2,\n"{prompt}": [10, 20],\n"{output}": [1, 2]}}',
    ):
        prompts, outputs = read_pair(write(content), None)
        assert (prompts.tolist(), outputs.tolist()) == ([10, 20], [1, 2])


def test_pairs_of_lengths_from_named_columns() -> None:
    prompts, outputs = read_pair(HERE / "plain-small.csv", ("output_tokens", "output_tokens"))
    assert prompts.tolist() == outputs.tolist() == [11, 12, 13]


@pytest.mark.parametrize(
    ("content", "columns", "words"),
    [
        ("a,b\n5,6\n", None, "Say it with `prompt_column` and `output_column`; the file has 'a',"),
        ("5\n6\n", None, "the file has '5': no known pair of names (prompt_tokens, output_to"),
        (
            "input_length,output_length,prompt_tokens,output_tokens\n1,1,1,1\n",
            None,
            "more than one known pair of names",
        ),
        ("a,b\n5,6\n", ("a", "c"), "t.csv:1: no column 'c'"),
        (
            "a,b\n5,0\n",
            ("a", "b"),
            f"t.csv:2: b is '0'; allowed: whole numbers from 1 to {2**31 - 1}",
        ),
        ('{"a": [5], "b": [0]}', ("a", "b"), "t.csv: b[0] is 0; allowed: whole numbers from 1"),
        ('{"a": [5], "b": [6, 7]}', ("a", "b"), "b has 2 entries, but a has 1"),
        ('{"a": [5], "b": 6}', ("a", "b"), "t.csv: b is 6; allowed: a list"),
        ('{"a": [5]}', ("a", "b"), "t.csv: no 'b' in this document; it has 'a'"),
    ],
)
def test_bad_files_of_pairs(
    write: Write, content: str, columns: tuple[str, str] | None, words: str
) -> None:
    with pytest.raises(TraceError) as caught:
        Joint.from_file(write(content), columns)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "column", "words"),
    [
        ("a,b\n5,6\n", None, "t.csv:1: which column holds the lengths? Say it with `column`"),
        ("5\n0\n", None, "t.csv:2: length is '0'; allowed: whole numbers from 1"),
        ("-5\n5\n", None, "t.csv:1: length is '-5'"),
        ("5\nsix\n", None, "t.csv:2: length is 'six'"),
        ("tokens\n", None, "a header, but no requests"),
        ("", None, "the file is empty"),
        ("tokens\n5\n", "token", "no column 'token' (did you mean 'tokens'?)"),
        ("tokens\n-5\n", "tokens", "t.csv:2: tokens is '-5'"),
        ('{"n": 5}\n', "m", "t.csv:1: no 'm' in this row; it has 'n'"),
    ],
)
def test_bad_files_of_lengths(write: Write, content: str, column: str | None, words: str) -> None:
    with pytest.raises(TraceError) as caught:
        Empirical.from_file(write(content), column)
    assert words in str(caught.value)


# The trace that the project ships


def test_the_shipped_chat_trace_is_what_its_script_writes(tmp_path: Path) -> None:
    again = tmp_path / "again.csv"
    script = CHAT.with_name("make_chat_azure.py")
    subprocess.run([sys.executable, str(script), str(again)], check=True)
    assert again.read_bytes() == CHAT.read_bytes()


def test_the_shipped_chat_trace_looks_like_chat() -> None:
    content = CHAT.read_bytes()
    assert content.startswith(b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2025-")
    assert content.count(b"\r\n") == content.count(b"\n") == 3_000
    assert not content.endswith(b"\n")
    trace = read_trace(CHAT)
    gaps = np.diff(trace.arrivals)
    assert len(trace) == 3_000
    assert 570 < trace.arrivals[-1] < 630
    assert 1.0 < gaps.std() / gaps.mean() < 1.2
    assert 1_050 < trace.prompt_tokens.mean() < 1_150
    assert 5_500 < trace.prompt_tokens.max() <= 7_000
    assert 200 < trace.output_tokens.mean() < 220
    assert 550 < np.percentile(trace.output_tokens, 99) < 650


# Real traces

real = pytest.mark.skipif(not TRACES.is_dir(), reason=f"no real traces at {TRACES}")


@real
@pytest.mark.parametrize(
    ("name", "requests", "minutes", "prompt", "output"),
    [
        ("azure_conv_2023.csv", 19_366, 58.4, 1_155, 211),
        ("azure_code_2023.csv", 8_819, 57.3, 2_048, 28),
        ("mooncake_conversation_trace.jsonl", 12_031, 58.9, 12_035, 343),
    ],
)
def test_real_traces(name: str, requests: int, minutes: float, prompt: int, output: int) -> None:
    read: list[Trace] = []
    worked = calls(lambda: read.append(read_trace(TRACES / name)))
    (trace,) = read
    assert worked < 100 * requests  # 4 calls a row of CSV, 38 a row of JSON; each is read once
    assert len(trace) == requests
    assert trace.arrivals[0] == 0
    assert trace.arrivals[-1] / 60 == pytest.approx(minutes, abs=0.06)
    assert round(trace.prompt_tokens.mean()) == prompt
    assert round(trace.output_tokens.mean()) == output


@real
def test_burstiness_of_the_real_traces() -> None:
    def cv(name: str) -> float:
        gaps = np.diff(read_trace(TRACES / name).arrivals)
        return float(gaps.std() / gaps.mean())

    assert cv("azure_conv_2023.csv") == pytest.approx(1.1, abs=0.05)
    assert cv("azure_code_2023.csv") == pytest.approx(13, abs=0.5)


@real
@pytest.mark.parametrize(
    ("name", "trace_format", "first"),
    [
        ("azure_2024.csv", "azure", (0.0, 2162, 5)),
        ("burstgpt_v1_6col.csv", "burstgpt", (0.0, 472, 18)),
        ("burstgpt_v2_8col.csv", "burstgpt", (0.0, 906, 446)),
        ("bailian.jsonl", "bailian", (0.0, 502, 1494)),
        ("llmservingsim_flat.jsonl", "llmservingsim", (0.0, 27369, 1626)),
        ("mooncake_arxiv_excerpt.jsonl", "mooncake", (0.0, 6264, 3)),
    ],
)
def test_formats_of_others(name: str, trace_format: str, first: tuple[float, int, int]) -> None:
    assert detect(FIXTURES / name).name == trace_format
    assert rows(read_trace(FIXTURES / name))[0] == first


@real
def test_units_of_others() -> None:
    last = {
        "burstgpt_v1_6col.csv": 113.0,
        "burstgpt_v2_8col.csv": 51.0,
        "bailian.jsonl": 62.5,
        "llmservingsim_flat.jsonl": 0.042833,
        "mooncake_arxiv_excerpt.jsonl": 6.109,
    }
    found = {name: read_trace(FIXTURES / name).arrivals[-1] for name in last}
    assert found == pytest.approx(last)


@real
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("aiperf_mooncake_multiturn.jsonl", ":2: a delay (6573.6) instead of a timestamp"),
        ("llmservingsim_agentic.jsonl", ":1: sub_requests: "),
        ("sharegpt.json", ": ShareGPT conversations are texts"),
    ],
)
def test_what_others_write_that_cannot_be_replayed(name: str, words: str) -> None:
    assert f"{name}{words}" in message(FIXTURES / name)


@real
def test_lengths_without_arrivals() -> None:
    values = read_column(TRACES / "lengths_sharegpt_10k_llama2.csv", "num_prefill_tokens")
    assert len(values) == 10_000
    assert values.mean() == pytest.approx(245.75, abs=0.01)
    prompts, outputs = read_pair(TRACES / "lengths_sharegpt_10k_llama2.csv", None)
    assert prompts.tolist() == values.tolist()
    assert len(outputs) == 10_000
