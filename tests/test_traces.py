"""Traces: what the readers make of good files, and what they say about bad ones."""

from __future__ import annotations

import gzip
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sim.errors import TraceError, UsageError
from sim.workload.lengths import Empirical
from sim.workload.traces import FORMATS, Trace, detect, read_trace
from sim.workload.traces.rows import MAX_TOKENS, read_column
from sim.workload.traces.text import MAX_LINE

HERE = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data" / "traces"
CHAT = Path(__file__).parents[1] / "scenarios" / "traces" / "chat-azure.csv"
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
    trace = read_trace(HERE / "plain-small.csv", time_scale=0.5, limit=2)
    assert rows(trace) == [(0.0, 102, 12), (0.125, 101, 11)]


def test_a_limit_beyond_the_end_keeps_all() -> None:
    assert len(read_trace(HERE / "plain-small.csv", limit=99)) == 3


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
        ("mooncake-small.jsonl", "mooncake"),
        ("plain-small.csv", "csv"),
    ],
)
def test_formats_are_told_apart_by_names_of_columns(name: str, expected: str) -> None:
    assert detect(HERE / name).name == expected
    assert rows(read_trace(HERE / name, expected)) == rows(read_trace(HERE / name))


def test_each_format_is_registered_under_its_own_name() -> None:
    assert {name: f.name for name, f in FORMATS.items()} == {
        name: name for name in ("azure", "mooncake", "csv")
    }


# Files that are no trace at all


def test_an_unknown_header_names_what_was_found_and_what_is_known(write: Write) -> None:
    text = message(write("Timestamp,Model,Request tokens,Response tokens\n5,ChatGPT,472,18\n"))
    assert "'Timestamp', 'Model', 'Request tokens', 'Response tokens'" in text
    assert all(f"{f.name}: {f.layout}" in text for f in FORMATS.values())


@pytest.mark.parametrize("key", ['"chat_id": 7', '"session_id": "a"', '"delay": 3'])
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
        (b"PAR1\x15\x04\x15\xff\xfe\n" * 99, "not a text file"),
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
        ('{"timestamp": ' + " " * 10_000_000 + "1}", f"more than {MAX_LINE:,} characters"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_no_trace_at_all(write: Write, content: str | bytes, words: str) -> None:
    text = message(write(content))
    assert words in text
    assert "t.csv" in text
    assert len(text) < 800


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
        UsageError, match=r"did you mean 'mooncake'.*known: auto, azure, mooncake, csv"
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

real = pytest.mark.skipif(not SHARED.is_dir(), reason=f"no real traces at {SHARED}")


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
    began = time.process_time()
    trace = read_trace(SHARED / name)
    assert time.process_time() - began < 1.0  # ten times what it takes, to hold on a busy machine
    assert len(trace) == requests
    assert trace.arrivals[0] == 0
    assert trace.arrivals[-1] / 60 == pytest.approx(minutes, abs=0.06)
    assert round(trace.prompt_tokens.mean()) == prompt
    assert round(trace.output_tokens.mean()) == output


@real
def test_burstiness_of_the_real_traces() -> None:
    def cv(name: str) -> float:
        gaps = np.diff(read_trace(SHARED / name).arrivals)
        return float(gaps.std() / gaps.mean())

    assert cv("azure_conv_2023.csv") == pytest.approx(1.1, abs=0.05)
    assert cv("azure_code_2023.csv") == pytest.approx(13, abs=0.5)


@real
@pytest.mark.parametrize(
    "name",
    ["bailian.jsonl", "aiperf_mooncake_multiturn.jsonl", "burstgpt_v1_6col.csv", "sharegpt.json"],
)
def test_formats_of_others_are_refused(name: str) -> None:
    assert name in message(SHARED / "format_fixtures" / name)


@real
def test_lengths_without_arrivals() -> None:
    values = read_column(SHARED / "lengths_sharegpt_10k_llama2.csv", "num_prefill_tokens")
    assert len(values) == 10_000
    assert values.mean() == pytest.approx(245.75, abs=0.01)
