"""``infersim trace``: what it says of a trace, and the smaller or plainer ones it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from sim.cli import app
from sim.errors import UsageError
from sim.workload.traces import Trace, read_trace
from sim.workload.traces.tools import (
    describe,
    sample_thinned,
    sample_window,
    to_text,
    write_trace,
)
from tests.places import DATA

PLAIN = "arrival_s,prompt_tokens,output_tokens\n"


class Outcome:
    """What one command left: exit code, stdout, stderr. No command ever shows a traceback."""

    def __init__(self, *arguments: str | Path) -> None:
        done = CliRunner().invoke(app, ["trace", *map(str, arguments)])
        assert done.exception is None or isinstance(done.exception, SystemExit)
        self.code, self.out, self.err = done.exit_code, done.stdout, done.stderr


def rows(trace: Trace) -> list[tuple[float, int, int]]:
    columns = (trace.arrivals, trace.prompt_tokens, trace.output_tokens)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def write(path: Path, arrivals: list[float], outputs: list[int] | None = None) -> Path:
    lengths = outputs or [7] * len(arrivals)
    lines = [f"{t!r},{i + 1},{o}\n" for i, (t, o) in enumerate(zip(arrivals, lengths, strict=True))]
    path.write_text(PLAIN + "".join(lines))
    return path


# describe


def test_describe_says_in_words_and_numbers_what_is_in_a_trace(tmp_path: Path) -> None:
    # Ten a second for a minute, then one a second for nine: 600 + 540 requests.
    arrivals = [i / 10 for i in range(600)] + [60.0 + i for i in range(540)]
    path = write(tmp_path / "two rates.csv", arrivals, list(range(1, 1141)))
    done = Outcome("describe", path)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        "two rates.csv  (csv)\n"
        "  requests               1,140\n"
        "  duration            9.98 min   from the first arrival to the last\n"
        "  rate                   1.9/s   one over the mean gap\n"
        "  gap CV                 0.854   1: as if independent; more: bursts\n"
        "  burst factor            5.26   busiest minute: 10/s\n"
        "  correlation                1   of prompt and output tokens\n"
        "  tokens                  mean         p50         p90         p99         max\n"
        "  prompt                   570         570       1,026       1,129       1,140\n"
        "  output                   570         570       1,026       1,129       1,140\n"
    )


def test_describe_as_json_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [5.0, 6.0, 9.0], [10, 20, 60])
    done = Outcome("describe", path, "--json")
    assert done.code == 0
    assert json.loads(done.out) == {
        "file": str(path),
        "format": "csv",
        "requests": 3,
        "duration_s": 4.0,
        "rate_per_s": 0.5,
        "gap_cv": 0.5,
        "busiest_minute_rate_per_s": None,
        "burst_factor": None,
        "tick_s": None,
        "prompt_tokens": {"mean": 2.0, "p50": 2.0, "p90": 2.8, "p99": 2.98, "max": 3},
        "output_tokens": {"mean": 30.0, "p50": 20.0, "p90": 52.0, "p99": 59.2, "max": 60},
        "length_correlation": pytest.approx(50 / np.sqrt(2 * 1400)),
        "prefix_reuse": None,
        "prefix_block_tokens": None,
        "prefix_hits": None,
        "sessions": None,
        "session_count": None,
        "requests_per_session": None,
        "skipped": {},
    }


@pytest.mark.parametrize("arrivals", [[3.0], [3.0, 3.0, 3.0]])
def test_describe_leaves_open_what_is_undefined(tmp_path: Path, arrivals: list[float]) -> None:
    path = write(tmp_path / "t.csv", arrivals)
    figures = json.loads(Outcome("describe", path, "--json").out)
    undefined = ("rate_per_s", "gap_cv", "burst_factor", "length_correlation", "tick_s")
    assert [figures[key] for key in undefined] == [None] * 5
    assert "  rate                       -" in Outcome("describe", path).out


def test_the_busiest_minute_may_begin_anywhere(tmp_path: Path) -> None:
    arrivals = [0.0, *(50.0 + i for i in range(59)), 109.9375, 110.0, 600.0]
    figures = describe(write(tmp_path / "t.csv", arrivals))
    assert figures["busiest_minute_rate_per_s"] == 1.0
    assert figures["burst_factor"] == pytest.approx(600 / 62)


def test_describe_counts_what_is_skipped_and_why() -> None:
    figures = describe(DATA / "burstgpt-small.csv")
    assert figures["skipped"] == {"failed requests (no output tokens)": 2}
    assert to_text(figures).endswith("  skipped 2 rows: failed requests (no output tokens)")


def test_describe_finds_the_tick_of_a_coarse_clock(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [3.0 * (i // 5) for i in range(100)])
    figures = describe(path)
    assert figures["tick_s"] == 3.0
    assert "arrivals come in ticks of about 3 s; trace.spread" in to_text(figures)
    assert describe(DATA / "azure-small.csv")["tick_s"] is None


def test_describe_fits_88_columns(tmp_path: Path) -> None:
    path = write(
        tmp_path / f"{'long' * 40}.csv", [1e9 * (i // 3) for i in range(9)], [2**31 - 1] * 9
    )
    figures = describe(path)
    figures["skipped"] = {"failed requests (no output tokens)": 2**31}
    lines = to_text(figures).splitlines()
    assert max(map(len, lines)) <= 88
    assert lines[0].endswith("...  (csv)")


def test_describe_with_a_format_that_is_named(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"chat_id": 1, "timestamp": 1500, "input_length": 5, "output_length": 6}\n')
    assert Outcome("describe", path).code == 2
    done = Outcome("describe", path, "--format", "mooncake")
    assert done.out.startswith("t.jsonl  (mooncake)\n")


# convert


@pytest.mark.parametrize("path", sorted(DATA.glob("*-small*")), ids=lambda path: path.name)
def test_every_format_converts_to_the_same_requests(tmp_path: Path, path: Path) -> None:
    if path.name == "lengths-small.csv":
        return
    done = Outcome("convert", path, tmp_path / "out.csv")
    trace = read_trace(path)
    assert done.code == 0
    assert done.out == f"{tmp_path / 'out.csv'}: {len(trace)} requests\n"
    assert rows(read_trace(tmp_path / "out.csv", "csv")) == rows(trace)
    skipped = "".join(
        f"skipped {n} row{'s' * (n > 1)}: {why}\n" for why, n in trace.skipped.items()
    )
    lost = trace.repeated is not None
    assert done.err == skipped + "not written: which prompts begin alike (hash_ids)\n" * lost


def test_a_converted_trace_to_the_letter(tmp_path: Path) -> None:
    Outcome("convert", DATA / "azure-small.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_bytes() == (
        PLAIN + "0.0,100,10\n2e-07,200,20\n1.5000001,300,30\n"
    ).encode()
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@given(
    requests=st.lists(
        st.tuples(st.floats(0, 1e9), st.integers(1, 2**31 - 1), st.integers(1, 2**31 - 1)),
        min_size=1,
    )
)
def test_written_traces_are_read_again_to_the_last_bit(
    tmp_path_factory: pytest.TempPathFactory, requests: list[tuple[float, int, int]]
) -> None:
    arrivals, prompts, outputs = (
        np.array(column) for column in zip(*sorted(requests), strict=True)
    )
    trace = Trace(arrivals - arrivals[0], prompts, outputs)
    path = tmp_path_factory.getbasetemp() / "again.csv"
    write_trace(trace, path)
    assert rows(read_trace(path)) == rows(trace)


# sample


def long_trace(total: int = 20_000) -> Trace:
    gaps = np.random.default_rng(1).exponential(0.5, total)
    return Trace(np.cumsum(gaps) - gaps[0], np.arange(1, total + 1), np.full(total, 3))


@given(requests=st.integers(1, 50), seed=st.integers(0, 2**63 - 1))
def test_a_window_is_consecutive_and_begins_at_zero(requests: int, seed: int) -> None:
    whole = long_trace(50)
    part = sample_window(whole, requests, seed)
    first = int(part.prompt_tokens[0]) - 1
    assert part.prompt_tokens.tolist() == list(range(first + 1, first + 1 + requests))
    found = whole.arrivals[first : first + requests] - whole.arrivals[first]
    assert part.arrivals.tolist() == found.tolist()
    assert rows(sample_window(whole, requests, seed)) == rows(part)


def test_every_window_is_equally_likely() -> None:
    whole = long_trace(14)
    starts = [int(sample_window(whole, 10, seed).prompt_tokens[0]) for seed in range(500)]
    counts = np.bincount(starts)[1:]
    assert len(counts) == 5
    assert np.abs(counts - 100).max() < 4 * np.sqrt(500 * 0.2 * 0.8)


def test_thinning_keeps_a_share_and_more_of_it_keeps_the_same() -> None:
    whole = long_trace()
    few, many = (sample_thinned(whole, share, seed=3) for share in (0.1, 0.4))
    assert len(few) == pytest.approx(2000, abs=4 * np.sqrt(20_000 * 0.1 * 0.9))
    assert set(few.prompt_tokens.tolist()) < set(many.prompt_tokens.tolist())
    assert few.arrivals[0] == 0
    kept = whole.arrivals[few.prompt_tokens - 1]
    assert few.arrivals.tolist() == (kept - kept[0]).tolist()
    assert rows(sample_thinned(whole, 1.0, seed=3)) == rows(whole)
    assert rows(sample_thinned(whole, 0.1, seed=4)) != rows(few)


def test_sample_command_writes_a_part(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", [float(i) for i in range(100)])
    outs = [tmp_path / f"{name}.csv" for name in "abcd"]
    arguments = [["--requests", 10], ["--requests", 10, "--seed", 42], ["--requests", 10]]
    arguments[2] += ["--seed", 7]
    for out, options in zip(outs, [*arguments, ["--thin", 0.5]], strict=True):
        done = Outcome("sample", path, out, *map(str, options))
        assert (done.code, done.err) == (0, "")
        assert done.out == f"{out}: {len(read_trace(out))} requests\n"
        assert out.read_text().startswith(f"{PLAIN}0.0,")
    texts = [out.read_text() for out in outs]
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].count("\n") == 11
    assert 30 < texts[3].count("\n") < 70


# Mistakes

WRONG: list[tuple[list[Any], str]] = [
    (["describe", "nowhere.csv"], "no such file"),
    (
        ["describe", "t.csv", "--format", "azur"],
        "unknown trace format 'azur' (did you mean 'azure'?",
    ),
    (["describe", "t.csv", "--format", "azure"], "t.csv:1: no column 'TIMESTAMP'"),
    (["describe", "bad.csv"], "bad.csv:3: output_tokens is '0'; allowed: whole numbers from 1"),
    (["describe", "."], "a directory; a trace is a file"),
    (["convert", "t.csv", "t.csv"], "t.csv: the trace that is read; write to another file"),
    (["convert", "t.csv", "t.csv", "--force"], "t.csv: the trace that is read; write to another"),
    (["convert", "t.csv", "old.csv"], "old.csv: exists already; --force overwrites it"),
    (["convert", "t.csv", "folder"], "folder: a directory; name the file to write"),
    (["convert", "t.csv", "/dev/null", "--force"], "/dev/null: not a regular file"),
    (["convert", "t.csv", "no/o.csv"], "no/o.csv: no such folder: "),
    (["convert", "t.csv", "n" * 300], "cannot be written: File name too long"),
    (["convert", "t.csv", "busy.csv"], "busy.csv.part: cannot be written: File exists"),
    (["convert", "bad.csv", "o.csv"], "bad.csv:3: output_tokens is '0'"),
    (["sample", "t.csv", "o.csv"], "a sample takes either --requests N or --thin P"),
    (["sample", "t.csv", "o.csv", "--requests", 2, "--thin", 0.5], "takes either --requests N or"),
    (["sample", "t.csv", "o.csv", "--requests", 4], "--requests 4 is more than the 3 that the tra"),
    (["sample", "t.csv", "o.csv", "--requests", 0], "Invalid value for '--requests'"),
    (["sample", "t.csv", "o.csv", "--requests", 2, "--seed", -1], "Invalid value for '--seed'"),
    (["sample", "t.csv", "o.csv", "--thin", 0], "--thin is a share above 0 and up to 1, got 0"),
    (["sample", "t.csv", "o.csv", "--thin", 1.5], "--thin is a share above 0 and up to 1, got 1.5"),
    (["sample", "t.csv", "o.csv", "--thin", "nan"], "above 0 and up to 1, got nan"),
    (["sample", "t.csv", "o.csv", "--thin", 1e-9], "--thin 1e-09 keeps none of 3 requests; raise"),
    (["sample", "t.csv", "old.csv", "--thin", 1], "old.csv: exists already"),
    (["sample", "t.csv", "t.csv", "--thin", 1, "--force"], "t.csv: the trace that is read"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=lambda value: str(value)[:60])
def test_mistakes_end_with_one_message_and_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    write(Path("t.csv"), [0.0, 1.0, 2.0])
    write(Path("bad.csv"), [0.0, 1.0], [5, 0])
    Path("old.csv").write_text("precious")
    Path("busy.csv.part").write_text("of another command")
    Path("folder").mkdir()
    before = {path.name: path.is_dir() or path.read_text() for path in tmp_path.iterdir()}
    done = Outcome(*map(str, arguments))
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert {p.name: p.is_dir() or p.read_text() for p in tmp_path.iterdir()} == before


def test_force_overwrites_a_file(tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("not so precious")
    done = Outcome("convert", DATA / "plain-small.csv", tmp_path / "old.csv", "--force")
    assert done.code == 0
    assert (tmp_path / "old.csv").read_text().startswith(PLAIN)


def test_a_failing_disk_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old.csv"
    old.write_text("precious")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(UsageError, match=r"old\.csv: cannot be written: No space left on device"):
        write_trace(long_trace(5), old)
    assert [path.name for path in tmp_path.iterdir()] == ["old.csv"]
    assert old.read_text() == "precious"


def test_help_lists_the_commands() -> None:
    done = Outcome("--help")
    assert done.code == 0
    for command in ("describe", "convert", "sample"):
        assert command in done.out


@pytest.mark.parametrize(
    "asked", [["convert"], ["sample", "--requests", "2"], ["scale", "--time-scale", "1"]]
)
def test_every_command_that_writes_reads_columns_by_their_names(
    asked: list[str], tmp_path: Path
) -> None:
    source, written = tmp_path / "own.csv", tmp_path / "plain.csv"
    source.write_text("at,into,out\n0,11,7\n2000,12,8\n")
    names = "arrival=at,arrival_unit=ms,prompt_tokens=into,output_tokens=out"
    command, *options = asked
    found = Outcome(command, source, written, *options, "--columns", names)
    assert found.code == 0, found.err
    assert rows(read_trace(written)) == [(0.0, 11, 7), (2.0, 12, 8)]
