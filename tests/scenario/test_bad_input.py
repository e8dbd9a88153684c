"""Bad input: whatever a scenario, a trace, a catalogue file or an argument holds, the answer is one
error that says what is wrong and where, an exit code, and nothing else."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from typer.testing import CliRunner

import sim
from sim.cli import app
from tests.places import ROOT

GOOD = """\
model: llama-3.2-1b
fleet: {gpu: h100-sxm}
max_model_len: 1024
workload:
  arrivals: {kind: poisson, rate: 20}
  prompt_tokens: {kind: fixed, value: 100}
  output_tokens: {kind: fixed, value: 10}
run: {requests: 20, warmup: 0}
"""
PLAIN = "arrival_s,prompt_tokens,output_tokens\n"
ROWS = PLAIN + "0,10,5\n1,20,5\n2,30,5\n"
MOONCAKE = '{"timestamp": 0, "input_length": 10, "output_length": 5}\n'
GPU = "memory: 22GiB\nbandwidth: 600GB/s\npeak_flops: {bf16: 120TFLOP/s}\n"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "intermediate_size": 8192,
    "vocab_size": 128256,
}

Content = str | bytes
Area = Literal["scenario", "trace", "argument", "catalogue"]


@dataclass(frozen=True)
class Case:
    """One mistake: the files that it takes beside the good ones, a command, and what is said."""

    name: str
    area: Area
    command: tuple[str, ...]
    words: tuple[str, ...]
    code: int = 2
    files: dict[str, Content] = field(default_factory=dict)


def scenario(name: str, content: Content, *words: str, code: int = 2, **files: Content) -> Case:
    """A bad scenario file, s.yaml; others beside it by their stem."""
    beside = {f"{stem}.yaml": text for stem, text in files.items()}
    command = ("run", "s.yaml", "--no-report")
    return Case(name, "scenario", command, words, code, {"s.yaml": content, **beside})


def added(name: str, lines: str, *words: str, code: int = 2, **files: Content) -> Case:
    """The good scenario with these lines below its eight."""
    return scenario(name, f"{GOOD}{lines}\n", *words, code=code, **files)


def replaced(name: str, old: str, new: str, *words: str, code: int = 2) -> Case:
    """The good scenario with one part of it replaced."""
    assert old in GOOD
    return scenario(name, GOOD.replace(old, new), *words, code=code)


def trace(name: str, content: Content, *words: str, file: str = "t.csv") -> Case:
    """A bad trace, as ``infersim trace describe`` meets it."""
    return Case(name, "trace", ("trace", "describe", file), words, files={file: content})


def replayed(name: str, content: Content, *words: str, keys: str = "", file: str = "t.csv") -> Case:
    """A bad trace, as a run meets it."""
    change = f"workload={{trace: {{path: {file}{keys}}}}}"
    command = ("run", "good.yaml", "--no-report", "--set", change)
    return Case(name, "trace", command, words, files={file: content})


def drawn(name: str, content: Content, *words: str, lengths: str = "kind: joint") -> Case:
    """A bad file of lengths, as a run meets it."""
    change = f"workload={{arrivals: {{kind: burst}}, lengths: {{{lengths}, path: t.csv}}}}"
    command = ("run", "good.yaml", "--no-report", "--set", change)
    return Case(name, "trace", command, words, files={"t.csv": content})


def changed(name: str, change: str, *words: str, code: int = 2, **files: Content) -> Case:
    """The good scenario under a bad ``--set``; modules beside it by name."""
    command = ("run", "good.yaml", "--no-report", "--set", change)
    modules = {f"{stem}.py": text for stem, text in files.items()}
    return Case(name, "argument", command, words, code, modules)


def argument(name: str, command: str, *words: str, code: int = 2, **files: Content) -> Case:
    """A bad command line; N stands for an empty word and L for one of 5,000 letters."""
    expanded = tuple({"N": "", "L": "x" * 5000}.get(word, word) for word in command.split())
    return Case(name, "argument", expanded, words, code, dict(files))


def gpu(name: str, content: Content, *words: str) -> Case:
    """A bad GPU file."""
    command = ("fit", "llama-3.2-1b", "--gpu", "./g.yaml")
    return Case(name, "catalogue", command, words, files={"g.yaml": content})


def model(name: str, content: Content | dict[str, object], *words: str) -> Case:
    """A bad config.json, or keys in which it differs from a good one."""
    text = json.dumps(CONFIG | content) if isinstance(content, dict) else content
    command = ("fit", "./m", "--gpu", "h100-sxm")
    return Case(name, "catalogue", command, words, files={"m/config.json": text})


LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}, *{old}]\n"
    for old, new in zip("abcdefg", "bcdefgh", strict=True)
)

SCENARIOS = [
    # What kind of file is this?
    scenario("binary garbage", bytes(range(256)) * 40, "s.yaml:2:118: not UTF-8 text (byte 0x80)"),
    scenario("gzipped", gzip.compress(GOOD.encode()), "s.yaml:1:2: not UTF-8 text (byte 0x8b)"),
    scenario("utf-16", GOOD.encode("utf-16"), "s.yaml:1:1: not UTF-8", "save the file as UTF-8"),
    scenario("utf-16 without a mark", GOOD.encode("utf-16-le"), "s.yaml:1:2: ", "is it UTF-16?"),
    scenario("latin-1", f"{GOOD}name: café".encode("latin-1"), "s.yaml:9:10: not UTF-8", "0xe9"),
    scenario("a mark, then a mistake", f"\ufeff{GOOD}sede: 1", "s.yaml:9:1: sede: ",
             "mean 'seed'?"),
    scenario("crlf", GOOD.replace("\n", "\r\n") + "sede: 1", "s.yaml:9:1: sede: unknown key"),
    scenario("lone cr", GOOD.replace("\n", "\r") + "sede: 1", "s.yaml:9:1: sede: unknown key"),
    added("a nul byte", "name: a\0b", "s.yaml:9:8: ", "a control character"),
    added("10 MB in one line", f"name: {'x' * 10**7}", "s.yaml: larger than 1,000,000 bytes"),
    added("900,000 entries", f"slo: [{'1,' * 440_000}]", "s.yaml:9:", "more than 10,000 values"),
    scenario("300,000 blank lines", "\n" * 300_000 + "sede: 1", "s.yaml:300001:1: ", "is missing"),
    scenario("a list at the top", "- model\n- fleet\n", "s.yaml:1:1: a scenario is a mapping"),
    scenario("html", "<!DOCTYPE html><html></html>", "s.yaml:1:1: a scenario is a mapping"),
    # YAML that attacks its reader
    scenario("billion laughs", LAUGHS + GOOD, "s.yaml:1:4: a: anchors are not read; drop &a"),
    scenario("an anchor inside itself", "&a\nmodel: *a\n", "s.yaml:1:1: anchors are not read"),
    added("a call", "name: !!python/object/apply:os.system [ls]", "s.yaml:9:7: name: tags are not"),
    added("an unknown tag", "name: !secret x", "s.yaml:9:7: name: tags are not read", "'!secret'"),
    added("a merge", "<<: {seed: 1}", "s.yaml:9:1: <<: unknown key '<<'"),
    added("10,000 levels", f"slo: {'[' * 10**4}{']' * 10**4}", "s.yaml:9:25: ", "than 20 levels"),
    added("600 levels by indent", "\n".join(" " * n + "a:" for n in range(600)), "than 20 levels"),
    added("a key twice", "model: llama-2-7b", "s.yaml:9:1: model: this key is given twice",
          "line 1"),
    added("a number for a key", "1: 2",
          "s.yaml:9:1: 1: unknown key '1'; known here: version, name"),
    added("a mapping for a key", "? {a: b}\n: c", "s.yaml:9:3: ", "a key is a plain text"),
    added("two documents", f"---\n{GOOD}", "s.yaml:9:1: a second document begins"),
    added("a tab", "slo:\n\tttft: 1s", "s.yaml:10:1: ", "a tab cannot indent YAML; use spaces"),
    scenario("yaml of another age", f"%YAML 3.0\n---\n{GOOD}", "s.yaml:1:1: ", "version 1"),
    # Times and other quantities
    added("a time of no unit", "slo: {ttft: 500 ms^2}",
          "s.yaml:9:13: slo.ttft: unknown unit 'ms^2'"),
    added("a size for a time", "slo: {ttft: 500MB}", "s.yaml:9:13: ",
          "unknown unit 'MB' for a time"),
    added("a clock for a time", "slo: {tpot: 1:30}", "s.yaml:9:13: ",
          "unknown unit ':30' for a time"),
    added("a time below 0", "slo: {tpot: -40ms}", "s.yaml:9:13: ",
          "a time of more than 0, got '-40ms'"),
    added("an infinite time", "slo: {ttft: .inf}", "s.yaml:9:13: ",
          "expected a finite time, got inf"),
    added("a time beyond floats", "slo: {ttft: 1e400ms}", "s.yaml:9:13: ",
          "a finite time, got '1e400ms'"),
    added("a time that takes long to read", f'slo: {{ttft: "{"1" * 10**5}a\\nb"}}',
          "is not a time"),
    added("a wait of ages", "scheduler: {batch_timeout: 1e308s}", "s.yaml:9:28: ",
          "at most 1,000,000,000 s"),
    replaced("no number", "rate: 20", "rate: .nan", "s.yaml:5:35: ",
             "expected a finite rate, got nan"),
    replaced("a rate of 1e308", "rate: 20", "rate: 1e308", "s.yaml:5:35: ",
             "at most 1,000,000/s"),
    replaced("a think time of ages", "{kind: poisson, rate: 20}",
             "{kind: closed, concurrency: 2, think_time: 1e308s}", "s.yaml:5:56: ",
             "is too large"),
    replaced("wild bursts", "poisson, rate: 20", "gamma, rate: 20, cv: 1e9", "s.yaml:5:41: ",
             "a value from 0.0001 to 1000, got 1000000000.0"),
    replaced("a mean of 1e308", "fixed, value: 100", "normal, mean: 1e308, std: 1e308", "s.yaml:6:",
             "mean: 1e+308 is too large; at most 2,147,483,647"),
    # Tokens and counts
    replaced("no tokens", "value: 100", "value: 0", "s.yaml:6:39: ", "at least 1, got 0"),
    replaced("tokens below 0", "value: 100", "value: -7", "s.yaml:6:39: ", "at least 1, got -7"),
    replaced("half a token", "value: 100", "value: 99.5", "s.yaml:6:39: ", "whole number",
             "got 99.5"),
    replaced("5,000 digits", "value: 100", f"value: {'9' * 5000}", "s.yaml:6:39: ", "whole number"),
    replaced("other digits", "value: 100", "value: ١٠٠", "s.yaml:6:39: ", "got '١٠٠'"),
    replaced("blocks as large as memory", "fleet:", "kv_cache: {block_size: 2147483647}\nfleet:",
             "s.yaml:2:24: kv_cache.block_size: ", "at most 65,536"),
    replaced("a fleet of 2e9", "h100-sxm", "h100-sxm, replicas: 2000000000", "s.yaml:2:34: ",
             "fleet.0.replicas: 2000000000 is too large; at most 10,000"),
    replaced("a GPU for 1e308 dollars", "h100-sxm", "h100-sxm, price_per_gpu_hour: 1e308",
             "s.yaml:2:44: fleet.0.price_per_gpu_hour: expected US dollars per hour (0 to 1e+09)"),
    # Names, with the nearest
    replaced("gpu", "h100-sxm", "H100", "s.yaml:2:14: fleet.0.gpu: no gpu is called 'H100'",
             "did you mean 'h100-sxm'?"),
    replaced("model", "llama-3.2-1b", "llama-3.2-1", "s.yaml:1:8: ",
             "did you mean 'llama-3.2-1b'?"),
    replaced("a model of 900 kB", "llama-3.2-1b", "x" * 900_000, "s.yaml:1:8: ", "'xxxx", "...xxx"),
    replaced("a model of a hub", "llama-3.2-1b", "meta-llama/Llama-3.2-1B-Foo", "s.yaml:1:8: ",
             "did you mean 'llama-3.2-1b'?"),
    added("engine", "engine: v-llm", "s.yaml:9:9: ", "did you mean 'vllm'?"),
    added("order", "scheduler: {order: fcsf}", "s.yaml:9:20: ", "did you mean 'fcfs'?"),
    added("router", "router: round_robin", "s.yaml:9:9: ", "did you mean 'round-robin'?"),
    added("batching", "scheduler: {batching: contnuous}", "s.yaml:9:23: ",
          "did you mean 'continuous'?"),
    added("allocator", "kv_cache: {allocator: page}", "s.yaml:9:23: ", "did you mean 'paged'?"),
    added("a key elsewhere", "block_size: 16", "s.yaml:9:1: ", "did you mean kv_cache.block_size?"),
    # Other files
    added("itself extended", "extends: s.yaml", "s.yaml:9:10: extends: ", "in a circle",
          "s.yaml -> s.yaml"),
    added("a circle of three", "extends: a.yaml", "b.yaml:1:10: ",
          "s.yaml -> a.yaml -> b.yaml -> s.yaml", a="extends: b.yaml", b="extends: ./s.yaml"),
    added("a missing parent", "extends: bse.yaml", "s.yaml:9:10: ", "did you mean 'base.yaml'?",
          base=GOOD),
    added("a parent in utf-16", "extends: a.yaml", "a.yaml:1:1: not UTF-8",
          a=GOOD.encode("utf-16")),
    added("a parent's mistake", "extends: a.yaml", "a.yaml:1:7: seed: ", a="seed: soon"),
    added("a deep chain", "extends: p0.yaml", "more than 10 files extend each other in a row",
          **{f"p{n}": f"extends: p{n + 1}.yaml" for n in range(12)}),
    added("endless parents", "extends: /dev/zero", "s.yaml:9:10: ", "larger than 1,000,000 bytes"),
    added("parents by the hundred", f"extends: [{', '.join(['a.yaml'] * 101)}]",
          "more than 100 files are extended", a="seed: 1"),
    # Well put, and the answer is no
    replaced("a model that does not fit", "llama-3.2-1b", "llama-3.1-70b",
             "llama-3.1-70b does not fit on 1 h100-sxm GPU", "use more GPUs (tensor_parallel)",
             code=3),
    added("a slab that does not fit", "kv_cache: {allocator: contiguous, num_gpu_blocks: 9}",
          "contiguous allocation reserves max_model_len (1,024 tokens)", "lower max_model_len",
          code=3),
    replaced("experts over three of four", "h100-sxm",
             "h100-sxm, tensor_parallel: 4, expert_parallel: 3",
             "expected a divisor of the 4 GPUs that tensor_parallel and data_parallel make"),
    replaced("experts over some", "h100-sxm", "h100-sxm, expert_parallel: some",
             "expected true, false or a number of GPUs"),
    replaced("experts of a dense model", "h100-sxm",
             "h100-sxm, tensor_parallel: 2, expert_parallel: true",
             "llama-3.2-1b has no experts to spread over 2 GPUs; leave it false"),
    added("a block for nobody", "kv_cache: {num_gpu_blocks: 1}", "leaves no block for requests",
          code=3),
    added("hardly any memory", "kv_cache: {gpu_memory_utilization: 1e-300}", "does not fit",
          code=3),
]  # fmt: skip

TRACES = [
    # What kind of file is this?
    trace("gzip cut off", gzip.compress((PLAIN + "1,2,3\n" * 5000).encode())[:-20],
          "t.gz: damaged or " "incomplete gzip file", file="t.gz"),
    trace("gzip with another sum", gzip.compress(ROWS.encode())[:-8] + bytes(8), "incomplete gzip"),
    trace("gzip with another sum, behind bytes that are no text",
          gzip.compress(ROWS.encode() + b"3,\xff,1\n" + b"4,1,1\n" * 9)[:-8] + bytes(8),
          "t.csv:5: not a text file in UTF-8 (byte 0xff)"),
    trace("gzip and more", gzip.compress(ROWS.encode()) + b"more",
          "damaged or incomplete gzip file"),
    trace("gzip by name only, with a mistake", PLAIN + "1,2,x\n",
          "t.csv.gz:2: output_tokens is 'x'", file="t.csv.gz"),
    trace("two bytes of gzip", b"\x1f\x8b", "t.csv: damaged or incomplete gzip file"),
    trace("empty", "", "t.csv: the file is empty"),
    trace("a header only", "TIMESTAMP,ContextTokens,GeneratedTokens\r\n\r\n",
          "a header, but no req"),
    trace("zip", b"PK\x03\x04" + bytes(100), "t.csv: a binary file"),
    trace("parquet", b"PAR1" + bytes(100), "t.csv: damaged or incomplete file (Parquet"),
    trace("html", "<html>\n<body>404</body>\n",
          "'<html>' fit no known trace format; name them (`columns: {arrival: ts"),
    trace("utf-16", ROWS.encode("utf-16"), "t.csv:1: not a text file in UTF-8 (byte 0xff)"),
    trace("utf-16 without a mark", ROWS.encode("utf-16-be"), "t.csv: a binary file"),
    trace("latin-1 far down", (PLAIN + "0,1,1\n" * 30_000 + "1,1,é\n").encode("latin-1"),
          "t.csv:30002: not a text file in UTF-8 (byte 0xe9)"),
    trace("latin-1 in gzip", gzip.compress((ROWS + "é,1,1\n").encode("latin-1")),
          "t.csv:5: not a text"),
    trace("10 MB in one line", PLAIN + "0,1,1\n" + "1" * 10**7,
          "t.csv:3: a line of more than 1,048,576"),
    trace("a million columns", ",".join(["a"] * 500_000) + "\n", "'a', 'a'",
          "and 499988 more fit no"),
    # Columns
    trace("a column missing", "arrival_s,prompt_tokens\n0,1\n",
          "'arrival_s', 'prompt_tokens' fit no"),
    trace("columns of two formats", "arrival_s,prompt_tokens,output_tokens,TIMESTAMP,ContextTokens,"
          "GeneratedTokens\n0,1,1,x,1,1\n", "t.csv: the CSV columns", "fit more than one format"),
    trace("a column twice", "arrival_s,arrival_s,prompt_tokens,output_tokens\n0,0,1,1\n",
          "t.csv:1: two columns are called 'arrival_s'"),
    trace("semicolons", ROWS.replace(",", ";"),
          "the columns of a CSV file are separated by commas"),
    trace("tabs", ROWS.replace(",", "\t"), "'arrival_s\\tprompt_tokens", "separated by commas"),
    trace("a key twice", MOONCAKE.replace("{", '{"timestamp": 9, '), "t.jsonl:1: not JSON: ",
          "the key 'timestamp' is given twice", file="t.jsonl"),
    trace("rows of another format", MOONCAKE + '{"arrival_time_ns": 5, "input_toks": 1}\n',
          "t.jsonl:2: no 'timestamp' in this row; it has 'arrival_time_ns'", file="t.jsonl"),
    # Rows
    trace("a short row", ROWS + "3,4\n", "t.csv:5: 2 fields, but the header has 3"),
    trace("a long row", ROWS + "3,4,5,6\n", "t.csv:5: 4 fields, but the header has 3"),
    trace("an open quote", PLAIN + '"0,1,1\n1,1,1\n', "t.csv:2: 1 field, but the header has 3"),
    trace("a nul byte", ROWS + "3,\0004,5\n", "t.csv:5: prompt_tokens is '\\x004'; allowed: whole"),
    trace("carriage returns doubled", ROWS.replace("\n", "\r\r\n") + "3,0,1\r\r\n", "t.csv:9: ",
          "is '0'"),
    trace("line ends mixed", PLAIN.replace("\n", "\r\n") + "0,1,1\n1,1,1\r2,1,x\r\n", "t.csv:4: ",
          "'x'"),
    trace("no tokens", ROWS + "3,4,0\n",
          "t.csv:5: output_tokens is '0'; allowed: whole numbers from 1"),
    trace("tokens below 0", ROWS + "3,-4,1\n", "t.csv:5: prompt_tokens is '-4'"),
    trace("half a token", ROWS + "3,4.5,1\n", "t.csv:5: prompt_tokens is '4.5'"),
    trace("an exponent", ROWS + "3,1e3,1\n", "t.csv:5: prompt_tokens is '1e3'"),
    trace("thousands", ROWS + '3,"1,000",1\n', "t.csv:5: prompt_tokens is '1,000'"),
    trace("too many tokens", ROWS + f"3,{2**31},1\n", "t.csv:5: ",
          "whole numbers from 1 to 2147483647"),
    trace("a time below 0", ROWS + "-0.5,1,1\n",
          "t.csv:5: arrival_s is '-0.5'; allowed: finite numbers"),
    trace("no number for a time", ROWS + "nan,1,1\n", "t.csv:5: arrival_s is 'nan'"),
    trace("a time beyond floats", ROWS + "1e400,1,1\n", "t.csv:5: arrival_s is '1e400'"),
    trace("a time of ages", ROWS + "1e200,1,1\n",
          "t.csv:5: arrival_s is '1e200'; allowed: numbers up to"),
    trace("nanoseconds for ms", MOONCAKE.replace("0,", "1700000000000000000,", 1), "t.jsonl:1: ",
          "timestamp is 1700000000000000000; allowed: numbers up to 1e+13, or 1e+10 seconds; "
          "are they nanoseconds? (columns: {arrival_unit: ns})",
          file="t.jsonl"),
    trace("a 13th month", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-13-16 18:15:46,1,1\n",
          "t.csv:2: TIMESTAMP is '2023-13-16 18:15:46'; allowed: dates like"),
    # JSON
    trace("a line cut off", MOONCAKE * 2 + MOONCAKE[:30], "t.jsonl:3: not JSON: ", "at column 18",
          file="t.jsonl"),
    trace("csv below json", MOONCAKE + "0,10,5\n", "t.jsonl:2: not JSON: '0,10,5'", file="t.jsonl"),
    trace("an array", json.dumps([json.loads(MOONCAKE)] * 3),
          "t.csv:1: a JSON array; a trace has one"),
    trace("conversations", '[{"id": 1, "conversations": [{"from": "human", "value": "hi"}]}]',
          "t.csv: ShareGPT conversations are texts",
          "`lengths: {kind: joint, path: lengths.csv}`"),
    trace("100,000 levels", '{"a":' * 10**5, "t.csv:1: not JSON: ", "nested too deep"),
    trace("no list", json.dumps({"input_lens": "abc", "output_lens": [1], "start_times": [0]}),
          "t.csv: input_lens is 'abc'; allowed: a list"),
    trace("lists in a list",
          json.dumps({"input_lens": [[1]], "output_lens": [1], "start_times": [0]}),
          "t.csv: input_lens[0] is [1]; allowed: whole numbers"),
    trace("lists of unequal length",
          '{"input_lens": [1], "output_lens": [1, 2], "start_times": [0]}',
          "t.csv: output_lens has 2 entries, but input_lens has 1"),
    trace("a document cut off",
          json.dumps({"input_lens": [1] * 999, "output_lens": [1] * 999})[:-9],
          "t.csv:1: not JSON: ", "at column "),
    # In a scenario
    replayed("another format than said", ROWS, "t.csv:1: no column 'TIMESTAMP'",
             keys=", format: azure"),
    replayed("spread over ages", ROWS, "spread: '1e308s' is too large", keys=", spread: 1e308s"),
    replayed("stretched to ages", ROWS, "a value from 1e-06 to 1e+06", keys=", time_scale: 1e300"),
    replayed("stretched too far", PLAIN + "0,1,1\n1e9,1,1\n",
             "would arrive 1e+15 s after the start", keys=", time_scale: 1e6"),
    replayed("nobody served", "Timestamp,Request tokens,Response tokens\n1,5,0\n",
             "no request is left"),
    drawn("lengths in a trace's place", "a,b\n1,2\n", "which columns hold the lengths",
          "`prompt_column`"),
    drawn("a length of 0", "prompt_tokens,output_tokens\n5,1\n5,0\n",
          "t.csv:3: output_tokens is '0'"),
]  # fmt: skip

BROKEN_MODULE = "raise RuntimeError('not today')"
NO_SCHEDULER = "class Thing:\n    pass\n"

ARGUMENTS = [
    # --set
    changed("no value", "seed", "--set seed: an override is key=value"),
    changed("no key", "=3", "--set =3: the key is dotted"),
    changed("dots alone", "..=3", "--set ..=3: the key is dotted"),
    changed("a colon for =", "slo: {ttft: 1s}",
            "an override is key=value, such as workload.arrivals"),
    changed("into a text", "model.path.x=1", "model.path is 'llama-3.2-1b', which has no key 'x'"),
    changed("beyond the list", "fleet.7.gpu=l40s", "fleet has no entry '7': its only entry is 0"),
    changed("another file's key", "workload.arrivals.rte=1",
            "unknown key 'rte' (did you mean 'rate'?)"),
    changed("two documents", "seed=1\n---\n2", "--set seed=1 --- 2: a second document begins"),
    changed("a call", "seed=!!python/object/apply:os.system ['ls']", "tags are not read"),
    changed("3,000 levels", f"name={'[' * 3000}", "--set name=[[[", "[...: ",
            "nested deeper than 20"),
    changed("a nul byte", "name=\0", "--set name=\\x00: ", "a control character"),
    changed("half a character", "name=\udcff", "an override is a text such as 'seed=7'"),
    # Classes of one's own
    changed("no module", "scheduler.batching=no.such:Thing",
            "cannot be imported (ModuleNotFoundError"),
    changed("no class", "scheduler.batching=sim.schedulers:Statc",
            "has no 'Statc' (did you mean 'Static'?)"),
    changed("no scheduler", "scheduler.batching=bad_input_a:Thing",
            "'bad_input_a:Thing' is not a subclass " "of sim.schedulers.Scheduler",
            bad_input_a=NO_SCHEDULER),
    changed("a function", "scheduler.batching=os:getcwd",
            "is not a subclass of sim.schedulers.Scheduler"),
    changed("abstract", "scheduler.order=sim.schedulers:Order",
            "is abstract: it does not implement key"),
    changed("a scheduler for an order", "scheduler.order=sim.schedulers:Static",
            "subclass of sim.sch"),
    changed("a module that raises", "scheduler.batching=bad_input_b:Thing",
            "RuntimeError: not today", bad_input_b=BROKEN_MODULE),
    changed("a module that is none", "scheduler.order=bad_input_c:Thing", "SyntaxError",
            bad_input_c="class (:"),
    changed("no path of a class", "scheduler.batching=a.b:c.d",
            "'a.b:c.d' is none of static, request"),
    # Scenarios that are not there, and where results go
    argument("no scenario", "run godo.yaml", "godo.yaml: no such file (did you mean 'good.yaml'?)"),
    argument("a directory", "run folder",
             "folder: this is a directory; name the scenario file in it"),
    argument("a long name", "run L", "cannot be read: File name too long"),
    argument("no end", "run /dev/zero", "/dev/zero: larger than 1,000,000 bytes"),
    argument("validate a directory", "validate folder", "folder: this is a directory"),
    argument("results in a full folder", "run good.yaml -o folder", "folder is not empty"),
    argument("results in a file", "run good.yaml -o good.yaml",
             "cannot write to good.yaml: Not a dir"),
    argument("results below a file", "run good.yaml -o good.yaml/x", "cannot write to good.yaml/x"),
    argument("results where nobody writes", "run good.yaml -o /proc/x", "cannot write to /proc/x"),
    argument("a seed below 0", "run good.yaml --seed -1", "seed=-1: ", "at least 0, got -1"),
    argument("a seed of words", "run good.yaml --seed one", "Invalid value for '--seed'"),
    argument("a huge seed", f"run good.yaml --seed {2**63}", "is too large; at most 9,223,372,036"),
    argument("a check of nothing", "run good.yaml --check", "--check needs a limit to check"),
    # The catalogue
    argument("show a typo", "show llama-3.1-8", "nothing is called 'llama-3.1-8' (did you mean"),
    argument("show a path", "show ../gpus/h100-sxm", "nothing is called '../gpus/h100-sxm'"),
    argument("list a typo", "list gpu", "'gpu' is none of gpus, models", "did you mean 'gpus'?"),
    argument("fit no model", "fit N --gpu l40s", "unknown model ''; `infersim list models`"),
    argument("fit a long model", "fit L --gpu l40s", "unknown model 'xxx", "...xxx"),
    argument("fit a hub's model", "fit meta-llama/Llama-3.1-9B --gpu l40s",
             "does not exist (did you mean 'llama-3.1-8b'?); give a file"),
    argument("fit a stranger's model", "fit ~nobody-here/m --gpu l40s",
             "~nobody-here/m does not exist"),
    argument("fit a folder", "fit folder --gpu l40s", "folder: holds no config.json"),
    argument("fit on a folder", "fit llama-3.2-1b --gpu folder",
             "folder: is a folder; give the YAML"),
    argument("fit on a long name", f"fit llama-3.2-1b --gpu {'x' * 300}.yaml",
             "does not exist; give"),
    argument("fit on no end", "fit llama-3.2-1b --gpu /dev/zero",
             "/dev/zero: is larger than 1,000,000"),
    argument("fit with an engine of capitals", "fit llama-3.2-1b --gpu l40s --engine VLLM",
             "'vllm'?"),
    argument("fit in half a precision", "fit llama-3.2-1b --gpu l40s --weights bf8",
             "unknown precision"),
    argument("fit by nan", "fit llama-3.2-1b --gpu l40s --gpu-memory-utilization nan",
             "Invalid value"),
    argument("fit split by 3", "fit llama-3.2-1b --gpu l40s --tensor-parallel 3",
             "32 attention heads"),
    argument("roofline of no batch", "roofline llama-3.2-1b --gpu l40s --batch 0", "Invalid value"),
    argument("roofline of half a token", "roofline llama-3.2-1b --gpu l40s --prompt 1.5",
             "'--prompt'"),
    argument("roofline on nothing", "roofline llama-3.2-1b", "Missing option '--gpu'"),
    # The rest
    argument("init without a name", "init N", "'' is not the name of a file"),
    argument("init the folder above", "init ..", "'..' is not the name of a file"),
    argument("init over a file", "init good", "good.yaml exists already; --force overwrites it"),
    argument("init nowhere", "init no/where", "no/where.yaml: the folder no is missing"),
    argument("init like a typo", "init new --like cht", "did you mean 'chat'?",
             "there are batch, chat"),
    argument("schema of something", "schema good.yaml", "unexpected extra argument"),
    argument("a command that is none", "rnu good.yaml", "No such command 'rnu'"),
    argument("trace describe nothing", "trace describe no.csv", "no.csv: no such file"),
    argument("trace describe a typo", "trace describe god.csv", "did you mean 'good.csv'?"),
    argument("trace describe a device", "trace describe /dev/null", "not a regular file"),
    argument("trace describe as CSV", "trace describe good.csv --format CSV",
             "did you mean 'csv'?"),
    argument("trace convert onto itself", "trace convert good.csv good.csv --force",
             "the trace that is"),
    argument("trace convert into a folder", "trace convert good.csv folder",
             "name the file to write"),
    argument("trace convert nowhere", "trace convert good.csv no/o.csv",
             "no/o.csv: no such folder"),
    argument("trace sample neither", "trace sample good.csv o.csv",
             "either --requests N or --thin P"),
    argument("trace sample both", "trace sample good.csv o.csv --requests 1 --thin 1",
             "takes either"),
    argument("trace sample too many", f"trace sample good.csv o.csv --requests {10**30}",
             "the 3 that"),
    argument("trace sample less than nothing", "trace sample good.csv o.csv --thin -inf",
             "got -inf"),
    argument("trace sample hardly any", "trace sample good.csv o.csv --thin 1e-320",
             "keeps none of 3"),
]  # fmt: skip

CATALOGUE = [
    gpu("no text", b"\xff\xfe\x00", "g.yaml:1: is not a text file in UTF-8 (byte 0xff)"),
    gpu("empty", "", "g.yaml: expected a mapping of keys to values"),
    gpu("10 MB", f"title: {'x' * 10**7}\n{GPU}", "g.yaml: is larger than 1,000,000 bytes"),
    gpu("deeper than a stack", "a: " + "[" * 10**5 + "]" * 10**5,
        "g.yaml:1:23: is nested deeper than 20"),
    gpu("billion laughs", LAUGHS, "g.yaml:1:4: anchors and aliases are not read"),
    gpu("a call", GPU + "title: !!python/object/apply:os.system [ls]",
        "g.yaml:4:8: tags are not read"),
    gpu("a key twice", GPU + "memory: 80GiB", "g.yaml:4:1: ", "'memory' is given twice"),
    gpu("two documents", GPU + "---\nsms: 1", "g.yaml:4:1: a second document begins"),
    gpu("a day that is none", GPU + "title: 2001-99-99",
        "g.yaml: holds a value that cannot be read"),
    gpu("5,000 digits", GPU + f"sms: {'9' * 5000}", "g.yaml: holds a value that cannot be read"),
    gpu("400 digits of memory", GPU.replace("22GiB", "9" * 400), "g.yaml:1:9: memory: ",
        "a huge number"),
    gpu("400 digits of dollars", GPU + f"price_per_hour: {'9' * 400}",
        "g.yaml:4:17: price_per_hour: "),
    gpu("more memory than there is", GPU.replace("22GiB", "1e30"), "is too large for a GPU"),
    gpu("an age to start", GPU + "attention: {bandwidth: 0.7, floor: 1d, unit: 4us}",
        "'1d' is too large"),
    gpu("no share at all",
        GPU + "efficiency: {compute: 1.0e-300, bandwidth: 0.7, operator_latency: 5us}",
        "g.yaml:4:23: efficiency.compute: 1e-300 is too small"),
    gpu("a nearest key", GPU + "prize_per_hour: 2", "did you mean 'price_per_hour'?"),
    model("cut off", json.dumps(CONFIG)[:-20], "m/config.json:1:", "is not valid JSON"),
    model("100,000 levels", '{"a":' * 10**5, "m/config.json: is nested too deep"),
    model("5,000 digits in JSON", f'{{"hidden_size": {"9" * 5000}}}', "value that cannot be read"),
    model("400 digits", {"hidden_size": 10**400}, "m/config.json: hidden_size: expected at most"),
    model("a wrong type", {"vocab_size": "many"}, "vocab_size: expected a whole number",
          "found 'many'"),
    model("1 MB of a wrong type", {"vocab_size": "x" * 10**6}, "found 'xxxx", "...xxx"),
    model("a key missing", json.dumps({"architectures": ["LlamaForCausalLM"]}), "is missing"),
    model("another family", {"architectures": ["GPT2LMHeadModel"]},
          "found GPT2LMHeadModel, which is not"),
    model("a class that clears the screen", {"architectures": ["\x1b[2J\x9bmGPT\u202e"]},
          "architectures: found \\x1b[2J\\x9bmGPT\\u202e, which is not supported"),
    gpu("a title that clears the screen", GPU + 'title: "\\e[2J"',
        "title: expected text without control characters, found '\\x1b[2J'"),
    model("a list", "[]", "m/config.json: expected a mapping of keys to values, found a list"),
]  # fmt: skip

CASES = [*SCENARIOS, *TRACES, *ARGUMENTS, *CATALOGUE]
IN_A_PROCESS = [
    "billion laughs",
    "gzip cut off",
    "a model that does not fit",
    "deeper than a stack",
    "a command that is none",
]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good scenario, a good trace, and a folder that is not empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "good.yaml").write_text(GOOD)
    (tmp_path / "good.csv").write_text(ROWS)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").write_text("data")
    return tmp_path


def prepare(case: Case, folder: Path) -> dict[Path, bytes]:
    """Write the files of a case; all files that are there by then."""
    for name, content in case.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return files(folder)


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def check(case: Case, code: int, out: str, err: str) -> None:
    """One error with all the words, and nothing else."""
    told = re.sub(r"[\s│]+", " ", err)
    assert code == case.code, err
    assert out == ""
    assert "Traceback" not in err
    assert len(re.findall(r"^error: ", err, re.M)) + err.count("─ Error ─") == 1, err
    assert len(err) < 20_000
    for word in case.words:
        assert word in told


def test_the_table_is_wide_enough() -> None:
    areas = [case.area for case in CASES]
    assert len(CASES) >= 150
    assert areas.count("scenario") >= 40
    assert areas.count("trace") >= 40
    assert areas.count("argument") >= 40
    names = [(case.area, case.name) for case in CASES]
    assert len(set(names)) == len(names)
    assert all(case.words and all(case.words) for case in CASES)
    assert {case.code for case in CASES} == {2, 3}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.area}: {case.name}")
def test_one_error_and_nothing_else(case: Case, place: Path) -> None:
    before = prepare(case, place)
    done = CliRunner().invoke(app, case.command)
    assert isinstance(done.exception, SystemExit), done.exception
    check(case, done.exit_code, done.stdout, done.stderr)
    assert files(place) == before


@pytest.mark.parametrize("name", IN_A_PROCESS)
def test_the_same_in_a_process_of_its_own(name: str, place: Path) -> None:
    case = next(case for case in CASES if case.name == name)
    before = prepare(case, place)
    done = subprocess.run(
        [sys.executable, "-m", "sim.cli", *case.command],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    check(case, done.returncode, done.stdout, done.stderr)
    assert files(place) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
@pytest.mark.parametrize(
    "command", ["run good.yaml", "trace describe good.csv", "run good.yaml -o locked/x"]
)
def test_what_may_not_be_read_or_written(command: str, place: Path) -> None:
    (place / "locked").mkdir(mode=0o500)
    if "locked" not in command:
        for name in ("good.yaml", "good.csv"):
            (place / name).chmod(0)
    done = CliRunner().invoke(app, command.split())
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Permission denied" in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        "max_model_len=5",
        "workload.prompt_tokens.value=2147483647",
        "kv_cache={num_gpu_blocks: 2}",
        "run.horizon=1e-300s",
    ],
)
def test_a_run_in_which_nobody_is_served_ends_with_3_and_says_so(change: str, place: Path) -> None:
    done = CliRunner().invoke(app, ["run", "good.yaml", "--no-report", "--json", "--set", change])
    assert done.exit_code == 3
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("nothing could be served")
    summary = json.loads(done.stdout)
    assert summary["completed"] == 0
    assert summary["infersim"]["verdict"]["slo_met"] is None


# What looks odd, and has a meaning that is documented


def test_a_time_without_a_unit_is_in_seconds(place: Path) -> None:
    done = CliRunner().invoke(app, ["run", "good.yaml", "--no-report", "--set", "slo.ttft=5"])
    assert done.exit_code == 0
    assert "TTFT <= 5 s" in done.stdout


def test_a_limit_that_may_be_in_milliseconds_is_refused(place: Path) -> None:
    done = CliRunner().invoke(app, ["run", "good.yaml", "--no-report", "--set", "slo.ttft=500"])
    assert done.exit_code == 2
    assert "slo.ttft=500: 500 has no unit: 500ms or 500s?" in done.stderr


@pytest.mark.parametrize(
    "content",
    [
        PLAIN + "2,30,5\n0,10,5\n1,20,5\n",
        "\ufeff" + ROWS.replace("\n", "\r\n"),
        ROWS.replace("\n", "\r"),
        gzip.compress(ROWS.encode()),
        PLAIN + "1700000000,10,5\n1700000001,20,5\n1700000002,30,5",
    ],
    ids=["unsorted", "mark and crlf", "cr", "gzip under another name", "seconds since 1970"],
)
def test_traces_that_are_read_all_the_same(content: Content, place: Path) -> None:
    (place / "t.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert CliRunner().invoke(app, ["trace", "convert", "t.csv", "o.csv"]).exit_code == 0
    assert (place / "o.csv").read_text() == PLAIN + "0.0,10,5\n1.0,20,5\n2.0,30,5\n"


def test_requests_at_almost_the_same_time_have_no_rate(place: Path) -> None:
    (place / "t.csv").write_text(PLAIN + "0,1,1\n5e-324,1,1\n")
    done = CliRunner().invoke(app, ["trace", "describe", "t.csv", "--json"])
    assert json.loads(done.stdout)["rate_per_s"] is None


def test_everything_at_its_limit_still_runs(place: Path) -> None:
    changes = [
        "workload.arrivals.rate=1e6",
        "scheduler={batching: request, batch_timeout: 1e9s, max_num_seqs: 5}",
        "fleet.price_per_gpu_hour=1e9",
        "kv_cache={block_size: 65536, num_gpu_blocks: 2147483647}",
        "run={requests: 5, warmup: 0, horizon: 1e9s}",
        "slo={ttft: 1e9s, tpot: 1e-300s, attainment: 1e-300}",
        f"seed={2**63 - 1}",
    ]
    summary = sim.simulate(sim.load_scenario(place / "good.yaml", changes)).summary
    assert summary["completed"] == 5
    json.dumps(summary, allow_nan=False)
