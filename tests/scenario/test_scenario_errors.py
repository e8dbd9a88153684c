"""Scenarios that are wrong: each error names its position, the value and what is allowed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import ScenarioError
from sim.scenario import Scenario, load_scenario
from sim.scenario.sections.support import LIMITS, LimitedSection

BASE = """\
model: llama-3.1-8b
fleet:
  gpu: h100-sxm
workload:
  arrivals: {kind: poisson, rate: 6}
  prompt_tokens: {kind: fixed, value: 512}
  output_tokens: {kind: fixed, value: 128}
"""

FLEET = "fleet:\n  gpu: h100-sxm\n"
ARRIVALS = "{kind: poisson, rate: 6}"
PROMPTS = "{kind: fixed, value: 512}"


def problem(folder: Path, text: str | bytes) -> str:
    """The message of loading ``text`` as s.yaml, without the folder."""
    path = folder / "s.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path)
    return str(caught.value).replace(f"{folder}/", "")


REPLACED = [
    # (written, instead of it, position, phrases of the message)
    (
        "h100-sxm",
        "h100",
        "3:8",
        ["no gpu is called 'h100'", "did you mean 'h100-sxm'?", "`infersim list gpus`"],
    ),
    ("h100-sxm", "gpus/my.yaml", "3:8", ["fleet.0.gpu: no such file: gpus/my.yaml"]),
    ("llama-3.1-8b", "llama-3.1", "1:8", ["no model is called", "'llama-3.1-8b'", "list models`"]),
    ("llama-3.1-8b", "./config.json", "1:8", ["model: no such file: config.json"]),
    ("llama-3.1-8b", "8", "1:8", ["expected a text, got 8", "quotes"]),
    ("llama-3.1-8b", "", "1:1", ["model: expected a text, got nothing"]),
    ("model: llama-3.1-8b\n", "", "1:1", ["`model` is missing, for example `model: llama-3.1-8b`"]),
    (
        "llama-3.1-8b",
        "{path: llama-3.1-8b, name: x}",
        "1:29",
        ["(write `model: llama-3.1-8b`, or --set mo"],
    ),
    ("gpu: h100-sxm", "replicas: 2", "2:1", ["fleet.0: `gpu` is missing", "`gpu: h100-sxm`"]),
    ("gpu: h100-sxm", "gpus: h100-sxm", "3:3", ["unknown key 'gpus' (did you mean 'gpu'?)"]),
    (FLEET, "fleet: []\n", "2:8", ["the list is empty", "fleet: {gpu: h100-sxm}"]),
    (FLEET, "fleet: h100-sxm\n", "2:8", ["expected a mapping such as `fleet: {gpu"]),
    (FLEET, "fleet: [h100-sxm]\n", "2:9", ["fleet.0: expected a mapping such as `fleet: {gpu"]),
    (FLEET, "fleet:\n- gpu: l40s\n- gpu: h100-sxm\n", "4:3", ["two pools are called 'main'"]),
    (
        FLEET,
        "fleet:\n- {gpu: l40s, name: a}\n- {gpu: l40s, name: b, scheduler: {max_seqs: 8}}\n",
        "4:36",
        ["unknown key 'max_seqs'", "max_num_seqs"],
    ),
    (
        FLEET,
        "fleet:\n- {gpu: l40s, name: a}\n- {gpu: l40s, name: b, scheduler: {order: edf}}\n",
        "4:43",
        ["edf serves the earliest deadline first"],
    ),
    (ARRIVALS, "poisson", "5:13", ["`arrivals: {kind: poisson, rate: 6.0}`, got 'poisson'"]),
    (
        "poisson, rate: 6",
        "closed, users: 6",
        "5:28",
        ["workload.arrivals.users: unknown key 'users' (did you mean 'concurrency'?)"],
    ),
    ("kind: poisson", "kind: poison", "5:20", ["expected one of poisson, gamma", "'poisson'?"]),
    ("kind: poisson", "kind: ramps", "5:20", ["closed, ramp, diurnal, got 'ramps' (did you mean"]),
    ("kind: poisson", "kind: ramp", "5:3", ["workload.arrivals: `final_rate` is missing, for"]),
    ("kind: poisson", "kind: diurnal", "5:3", ["workload.arrivals: `peak_rate` is missing"]),
    (
        ARRIVALS,
        "{kind: diurnal, rate: 6, peak_rate: 5}",
        "5:49",
        ["peak_rate (5) is less than rate"],
    ),
    (ARRIVALS, "{kind: diurnal, rate: 6, peak_rate: 7, period: 0s}", "5:60", ["of more than 0"]),
    ("kind: poisson, ", "", "5:3", ["arrivals: `kind` is missing; it is one of poisson, gamma"]),
    (", rate: 6", "", "5:3", ["workload.arrivals: `rate` is missing"]),
    ("rate: 6", "rate: 6, cv: 2", "5:38", ["unknown key 'cv'; known here: kind, rate"]),
    ("rate: 6", "rate: 6 per s", "5:35", ["unknown unit 'per s' for a rate"]),
    ("rate: 6", "rate: -6", "5:35", ["expected a rate of more than 0, got -6"]),
    ("rate: 6", "rate: 0", "5:35", ["expected a rate of more than 0, got 0"]),
    ("rate: 6", "rate: .inf", "5:35", ["expected a finite rate, got inf"]),
    ("rate: 6", "rate: 1e999", "5:35", ["expected a finite rate, got inf"]),
    ("rate: 6", "rate: true", "5:35", ["such as 6 or 6/s, got true"]),
    ("rate: 6", "rate: [6]", "5:35", ["such as 6 or 6/s, got a list"]),
    ("rate: 6", "rate: ", "5:29", ["such as 6 or 6/s, got nothing"]),
    ("value: 512", "value: 0", "6:39", ["expected a whole number of at least 1, got 0"]),
    ("value: 512", "value: 1.5", "6:39", ["expected a whole number of at least 1, got 1.5"]),
    ("value: 512", "value: 3000000000", "6:39", ["too large; at most 2,147,483,647"]),
    (PROMPTS, "{kind: uniform, low: 9, high: 5}", "6:39", ["low (9) is more than high (5)"]),
    (PROMPTS, "{kind: lognormal, mean: 800}", "6:25", ["one of p95 and cv; here is neither"]),
    (PROMPTS, "{kind: lognormal, mean: 8, p95: 9, cv: 1}", "6:50", ["p95 and cv; here is both"]),
    (PROMPTS, "{kind: lognormal, mean: 8, p95: 7}", "6:50", ["p95 (7) is not more than mean (8)"]),
    (PROMPTS, "{kind: lognormal, mean: 100, p95: 400}", "6:52", ["4.00 times", "than 3.87"]),
    (PROMPTS, "{kind: lognormal, mean: 8, cv: 1, max: 7}", "6:57", ["max (7) is less than mean"]),
    (PROMPTS, "{kind: lognormal, mean: 8, cv: 1, min: 9}", "6:42", ["mean (8) is less than min"]),
    (PROMPTS, "{kind: normal, mean: 8}", "6:3", ["workload.prompt_tokens: `std` is missing"]),
    (PROMPTS, "{kind: normal, mean: 8, std: 0}", "6:47", ["a number above 0, got 0"]),
    (PROMPTS, "{kind: normal, mean: 8, std: 1, min: 9}", "6:39", ["mean (8) is less than min"]),
    (
        f"  prompt_tokens: {PROMPTS}\n",
        "  lengths: {kind: joint, path: s.yaml}\n",
        "7:18",
        [
            "workload: lengths replaces output_tokens; give one or the other",
        ],
    ),
    (PROMPTS, "{kind: empirical, path: a.csv}", "6:42", ["no such file: a.csv"]),
    (PROMPTS, "{kind: empirical, path: .}", "6:42", ["'.' is a directory; name the file in it"]),
    (f"  prompt_tokens: {PROMPTS}\n", "", "4:1", ["workload: prompt_tokens missing", "`trace`"]),
]


@pytest.mark.parametrize(("old", "new", "position", "phrases"), REPLACED)
def test_a_wrong_value(
    tmp_path: Path, old: str, new: str, position: str, phrases: list[str]
) -> None:
    assert old in BASE
    message = problem(tmp_path, BASE.replace(old, new))
    assert message.startswith(f"s.yaml:{position}: ")
    for phrase in phrases:
        assert phrase in message
    assert_caret(message)


ADDED = [
    # (lines after the base, which has seven; position, phrases of the message)
    ("version: 2", "8:10", ["reads version 1 of the scenario format, not 2"]),
    ("nam: x", "8:1", ["nam: unknown key 'nam' (did you mean 'name'?)"]),
    ("name: 12", "8:7", ["name: expected a text, got 12; put it in quotes"]),
    ("name: ' '", "8:7", ["expected one line of text"]),
    ("seed: -1", "8:7", ["expected a whole number of at least 0, got -1"]),
    ("engine: vlm", "8:9", ["no engine is called 'vlm' (did you mean 'vllm'?)"]),
    ("max_num_seqs: 3", "8:1", ["did you mean scheduler.max_num_seqs?"]),
    ("rate: 3", "8:1", ["did you mean workload.arrivals.rate?"]),
    ("gpu: l40s", "8:1", ["did you mean fleet.0.gpu?"]),
    ("max_model_len: 8k", "8:16", ["expected a whole number of at least 1, got '8k'"]),
    (
        "router: robin",
        "8:9",
        ["'robin' is none of round-robin, random, least-outstanding, power-of-two, least-kv, se"],
    ),
    ("router: prefix-afinity", "8:9", ["did you mean 'prefix-affinity'?"]),
    ("precision: fp8", "8:12", ["a mapping with the keys weights, activations, kv_cache"]),
    (
        "precision: {weights: fp5}",
        "8:22",
        ["one of 27 names, such as fp8, fp32, fp16, nvfp4, got 'fp5'"],
    ),
    ("precision: {kv_cache: nvfp4}", "8:23", ["'nvfp4' is not supported yet; supported: bf16"]),
    ("precision: {kv_cache: int4}", "8:23", ["'int4' is not supported yet; supported: bf16"]),
    ("scheduler: {batching: continous}", "8:23", ["package.module:Class (did you mean 'contin"]),
    ("scheduler: {batching: 'a:b.c'}", "8:23", ["'a:b.c' is none of static, request"]),
    ("scheduler: {order: edf}", "8:20", ["edf serves the earliest deadline first, but no request"]),
    ("scheduler: {order: sfj}", "8:20", ["'sfj' is none of fcfs, sjf", "you mean 'sjf'?"]),
    (
        "scheduler: {order: 'a:b.c'}",
        "8:20",
        ["'a:b.c' is none of fcfs, sjf, priority, edf, lpm, fair, or a"],
    ),
    ("scheduler: {long_prefill_token_threshold: -1}", "8:43", ["at least 1, got -1"]),
    ("scheduler: {chunked_prefill: 1}", "8:30", ["expected true or false, got 1"]),
    ("scheduler: {batch_timeout: -1s}", "8:28", ["a time of 0 or more, got '-1s'"]),
    (
        "scheduler: {max_num_batched_tokens: 9, max_num_seqs: 256}",
        "8:37",
        ["(9) is less than max_num_seqs (256)"],
    ),
    ("scheduler: {max_num_seqs: 9000}", "8:27", ["(8,192) is less than max_num_seqs (9,000)"]),
    ("kv_cache: {block_size: 0}", "8:24", ["at least 1, got 0"]),
    ("kv_cache: {gpu_memory_utilization: 90}", "8:36", ["up to 1, got 90; for 90 % write 0.9"]),
    ("kv_cache: {swap_space: 4GiB}", "8:24", ["'4GiB' is not supported yet"]),
    ("kv_cache: {swap_space: 4GIB}", "8:24", ["unknown unit 'GIB'"]),
    ("speculative: {method: magic}", "8:1", ["`num_tokens` is missing", "got 'magic'"]),
    ("speculative: {method: mtp, num_tokens: 2}", "8:23", ["nothing else says how many drafts"]),
    (
        "speculative: {method: mtp, num_tokens: 2, acceptance: {rates: [0.5]}}",
        "8:63",
        ["1 rates for 2 drafts"],
    ),
    (
        "speculative: {method: mtp, num_tokens: 2, acceptance: {rates: [0.5, 0.6]}}",
        "8:69",
        ["0.6 is more than the 0.5 of the position before"],
    ),
    (
        "speculative: {method: mtp, num_tokens: 2, acceptance: {length: 3.5}}",
        "8:64",
        ["an acceptance length with 2 drafts is 1 to 3, not 3.5"],
    ),
    (
        "speculative: {method: mtp, num_tokens: 2, acceptance: {table: glm-5-mtp}}",
        "8:63",
        ["no table is called 'glm-5-mtp' (did you mean 'glm-5.2-mtp'?)"],
    ),
    (
        "speculative: {method: mtp, num_tokens: 9, acceptance: {table: glm-5.2-mtp}}",
        "8:40",
        ["glm-5.2-mtp has lengths of up to 8 drafts, not of 9"],
    ),
    (
        "speculative: {method: draft_model, num_tokens: 2, acceptance_rate: 0.5}",
        "8:23",
        ["method draft_model needs a draft_model"],
    ),
    (
        "speculative: {method: ngram, num_tokens: 64, acceptance_rate: 0.5}\n"
        "scheduler: {max_num_seqs: 256}",
        "9:27",
        ["takes 65 tokens of an iteration"],
    ),
    ("slo: {ttft: soon}", "8:13", ["'soon' is not a time; write it like 500ms"]),
    ("slo: {ttft: 0}", "8:13", ["expected a time of more than 0"]),
    ("slo:\n  attainment: 0", "9:15", ["expected a share above 0 and up to 1, got 0"]),
    ("run: {requests: none}", "8:17", ["expected a whole number of at least 1, got 'none'"]),
    ("run: {warmup: 30.5}", "8:15", ["a time with its unit such as 30s; got 30.5"]),
    ("run: {warmup: 5 lightyears}", "8:15", ["unknown unit 'lightyears'"]),
    ("run: {warmup: 1000}", "8:15", ["a warmup of 1,000 requests leaves nothing of 1,000"]),
    ("run: {horizon: -1s}", "8:16", ["expected a time of more than 0, got '-1s'"]),
    ("  shared_prefix: {groups: 4}", "8:3", ["tokens"]),
    ("  trace: {path: s.yaml}", "5:13", ["a trace replaces arrivals and prompt_tokens and output"]),
    (
        "  lengths: {kind: joint, path: s.yaml}",
        "6:18",
        [
            "lengths replaces prompt_tokens and output_tokens; give one or the other",
        ],
    ),
    ("  lengths: {kind: joint, path: a.csv}", "8:32", ["lengths.path: no such file: a.csv"]),
    (
        "  lengths: {kind: single, path: s.yaml}",
        "8:19",
        ["kind: expected one of joint, mixture, got 'single'"],
    ),
    (
        "  lengths: {kind: mixture, parts: [{share: 0.5, prompt_tokens: 9, output_tokens: 9}]}",
        "8:35",
        ["the shares of the parts sum to 0.5, not to 1"],
    ),
    (
        "  lengths: {kind: joint, path: s.yaml, output_column: b}",
        "8:55",
        [
            "output_column alone; give both prompt_column and output_column, or none",
        ],
    ),
    ("  lengths: lengths.csv", "8:12", ["a mapping such as `lengths: {kind: joint, path: leng"]),
    ("  trace: {path: s.yaml, spread: 0s}", "8:33", ["a time of more than 0, got '0s'"]),
    ("  trace: {path: s.yaml, format: vlm}", "8:33", ["got 'vlm' (did you mean 'vllm'?)"]),
    ("  trace: {path: conv.csv}", "8:17", ["workload.trace.path: no such file: conv.csv"]),
    (
        "seed: 1\nslo: {ttft: 1s}\nseed: 2",
        "10:1",
        ["given twice; the first is at line 8, column 1"],
    ),
    ("slo: &limits {ttft: 1s}", "8:6", ["slo: anchors are not read; drop &limits"]),
    ("slo: *limits", "8:6", ["aliases are not read; write out what *limits stands for"]),
    (
        "name: !!python/name:os.system x",
        "8:7",
        ["tags are not read; drop '!!python/name:os.system"],
    ),
    ('name: "\\ud800"', "8:7", ["name: the text holds half a character"]),
    ("slo:\n\tttft: 1s", "9:1", ["a tab cannot indent YAML; use spaces"]),
    ("slo: {ttft: 1s", "8:6", ["this '{' is not closed, or a ',' is missing after it"]),
    ("name: 'chat", "8:7", ["a quote that is opened here is never closed"]),
    ("name: a: b", "8:8", ["a second ':' in a line; quote a text that has one"]),
    ("name: @a", "8:7", ["a text cannot begin with this character; put it in quotes"]),
    ("nonsense", "8:1", ["a key without its ':' (write `key: value`)"]),
    (" slo: {}", "8:2", ["this does not line up with the lines above"]),
    ("? [a]\n: b", "8:3", ["a key is a plain text, such as `model`"]),
    ('name: "\\UFFFFFFFF"', "8:10", ["this number or escape is out of range"]),
    (f"slo: {'[' * 5000}", "8:25", ["nested deeper than 20 levels"]),
    ("---\nmodel: llama-2-7b", "8:1", ["a second document begins; a file holds one scenario"]),
    ("description: '漢字'\nname: [漢字, 漢字, *x]", "9:7", ["name: expected a text, got a list"]),
]


@pytest.mark.parametrize(("lines", "position", "phrases"), ADDED)
def test_a_wrong_addition(tmp_path: Path, lines: str, position: str, phrases: list[str]) -> None:
    message = problem(tmp_path, f"{BASE}{lines}\n")
    assert message.startswith(f"s.yaml:{position}: ")
    for phrase in phrases:
        assert phrase in message
    assert_caret(message)


def assert_caret(message: str) -> None:
    """Below the first message stand its source line and a caret."""
    lines = message.splitlines()
    number = lines[0].split(":")[1]
    assert lines[1].startswith(f"  {number} | ")
    assert re.fullmatch(rf" {{{len(number) + 2}}} \|  *\^+", lines[2])
    assert message.count("\n") % 3 == 2


WHOLE = [
    (b"", "s.yaml:1:1: the file is empty; a scenario is a mapping with at least model, fleet"),
    (b"# nothing here\n", "s.yaml:1:1: the file is empty"),
    (b"--- ~\n", "s.yaml:1:1: the file is empty"),
    (b"- model: a\n", "s.yaml:1:1: a scenario is a mapping with at least model, fleet and"),
    (b"hello\n", "s.yaml:1:1: a scenario is a mapping"),
    (b"&a [*a, *a]\n", "s.yaml:1:1: anchors are not read; drop &a"),
    (b"a: b\nc: d\xff\n", "s.yaml:2:5: not UTF-8 text (byte 0xff); save the file as UTF-8"),
    ("model: x".encode("utf-16"), "s.yaml:1:1: not UTF-8 text (byte 0xff)"),
    (b"a: b\nc: \x07\n", "s.yaml:2:4: the YAML cannot be read: a control character"),
    (b"%YAML 1." + b"9" * 5000 + b"\n--- a\n", "s.yaml:1:"),
    (b"a" * 1_000_001, "s.yaml: larger than 1,000,000 bytes"),
    (b"{}", "s.yaml:1:1: `model` is missing"),
]


@pytest.mark.parametrize(("content", "start"), WHOLE, ids=range(len(WHOLE)))
def test_a_file_that_is_no_scenario_at_all(tmp_path: Path, content: bytes, start: str) -> None:
    assert problem(tmp_path, content).startswith(start)


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(BASE, encoding="utf-8")
    with pytest.raises(ScenarioError, match=r"this is a directory; name the scenario file in it"):
        load_scenario(tmp_path)
    with pytest.raises(ScenarioError, match=r"chats\.yaml: no such file \(did you mean 'chat\.y"):
        load_scenario(tmp_path / "chats.yaml")
    with pytest.raises(ScenarioError, match=r"no/where: no such file"):
        load_scenario("no/where")
    with pytest.raises(ScenarioError, match=r"a\\x00b: cannot be read"):
        load_scenario("a\0b")
    with pytest.raises(ScenarioError, match=r"cannot be read: "):
        load_scenario("x" * 5000)
    with pytest.raises(ScenarioError, match=r"a scenario is a path or a mapping, got 7"):
        load_scenario(7)  # type: ignore[arg-type]


def test_all_problems_are_listed_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = BASE.replace("rate: 6", "rate: 6rps").replace("h100-sxm", "h1000") + "seed: x\nslo: []\n"
    heads = [line for line in problem(tmp_path, text).splitlines() if line.startswith("s.yaml")]
    assert [head.split(": ")[:2] for head in heads] == [
        ["s.yaml:3:8", "fleet.0.gpu"],
        ["s.yaml:5:35", "workload.arrivals.rate"],
        ["s.yaml:8:7", "seed"],
        ["s.yaml:9:6", "slo"],
    ]


def test_one_message_to_the_letter(tmp_path: Path) -> None:
    assert problem(tmp_path, BASE + "slo:\n  tttf: 1s\n") == (
        "s.yaml:9:3: slo.tttf: unknown key 'tttf' (did you mean 'ttft'?); known here: ttft, tpot, "
        "e2el, attainment, ttft_p50, ttft_p90, ttft_p95, ttft_p99, tpot_p50, tpot_p90, tpot_p95, "
        "tpot_p99, e2el_p50, e2el_p90, e2el_p95, e2el_p99\n"
        "  9 |   tttf: 1s\n"
        "    |   ^^^^"
    )


def test_a_wide_or_long_line_keeps_its_caret(tmp_path: Path) -> None:
    lines = problem(tmp_path, BASE + "slo: {'漢字': 1}\n").splitlines()
    assert lines[1:] == ["  8 | slo: {'漢字': 1}", "    |       ^^^^^^"]
    text = f"slo: {{{' ' * 400}tttf: 1s}}\n"
    head, source, caret = problem(tmp_path, BASE + text).splitlines()
    assert head.startswith("s.yaml:8:407: ")
    assert source[caret.index("^") :].startswith("tttf: 1s")
    assert len(source) < 120


def test_many_problems_are_cut(tmp_path: Path) -> None:
    keys = "".join(f"x{number}: 1\n" for number in range(50))
    assert problem(tmp_path, BASE + keys).endswith("... and 30 more problems")


def test_a_path_that_exists_only_in_the_working_directory_is_pointed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("scenarios", "here"):
        (tmp_path / folder).mkdir()
    (tmp_path / "here" / "conv.csv").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "here")
    text = BASE[: BASE.index("  arrivals")] + "  trace: {path: conv.csv}\n"
    message = problem(tmp_path / "scenarios", text)
    assert "no such file: conv.csv (it exists in the working directory: write /" in message


OVERRIDES = [
    ("workload.arrivals.rate=abc", "'abc' is not a rate; write it like 6 or 6/s"),
    ("workload.arrivals.rte=1", "unknown key 'rte' (did you mean 'rate'?)"),
    ("fleet.gpu=h100", "fleet.0.gpu: no gpu is called 'h100' (did you mean 'h100-sxm'?)"),
    ("fleet.1.gpu=l40s", "fleet has no entry '1': its only entry is 0"),
    ("fleet=[]", "the list is empty"),
    ("seed.x=1", "seed is 42, which has no key 'x'"),
    ("seed", "an override is key=value, such as workload.arrivals.rate=8"),
    ("=3", "the key is dotted, such as workload.arrivals.rate"),
    ("a..b=3", "the key is dotted"),
    ("model=[1,", "the YAML cannot be read: a value is missing, or a '[' or '{' is not closed"),
    ("model=*x", "aliases are not read"),
    ("slo={ttft: 1s, ttft: 2s}", "this key is given twice"),
    ("scheduler.max_num_seqs=9000", "scheduler: max_num_batched_tokens (8,192) is less than"),
    ("workload=null", "expected a mapping such as `workload: {trace"),
    ("workload.trace.path=s.yaml", "workload: a trace replaces arrivals"),
    ("nothing=\ud800", "an override is a text such as 'seed=7'"),
]


@pytest.mark.parametrize(("argument", "phrase"), OVERRIDES)
def test_a_wrong_override_is_reported_at_the_argument(
    tmp_path: Path, argument: str, phrase: str
) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(BASE + "seed: 42\nscheduler: {max_num_batched_tokens: 8192}\n", "utf-8")
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path).override([argument])
    message = str(caught.value)
    assert phrase in message
    if argument.isprintable() and not argument.startswith("workload.trace"):
        assert message.startswith(f"--set {argument}: ")
    key, equals, text = argument.partition("=")
    if equals and key != "" and ".." not in key and not re.search(r"[\[{*\ud800]", text):
        with pytest.raises(ScenarioError) as again:
            load_scenario(path).override({key: yaml.safe_load(text)})
        assert str(again.value) == message.removeprefix("--set ")


def test_wrong_values_from_python_are_reported_by_their_path() -> None:
    good = yaml.safe_load(BASE)
    wrong: list[tuple[Any, str]] = [
        ({**good, "slo": {"ttft": "soon"}}, "slo.ttft: 'soon' is not a time"),
        ({**good, "slo": {"ttft": object()}}, "slo.ttft: expected a text, number, list or map"),
        ({**good, "slo": {1: 2}}, "slo: keys are texts; 1 is none"),
        ({**good, "seed": 10**5000}, "seed: a huge number is too large"),
        ({**good, "slo": {"ttft": 10**5000}}, "slo.ttft: expected a finite number, got a huge"),
        ({**good, "name": "\ud800"}, "name: the text holds half a character"),
        ({}, "`model` is missing"),
    ]
    for mapping, start in wrong:
        with pytest.raises(ScenarioError) as caught:
            load_scenario(mapping)
        assert str(caught.value).startswith(start)
    endless: dict[str, Any] = {}
    endless["slo"] = endless
    with pytest.raises(ScenarioError, match="nested deeper than 20 levels"):
        load_scenario(endless)
    for changes in ([7], {7: 8}):
        with pytest.raises(ScenarioError, match=r"override"):
            load_scenario(good, changes)  # type: ignore[arg-type]


def test_every_limit_belongs_to_a_key_that_exists() -> None:
    sections = {section.__name__: section for section in LimitedSection.__subclasses__()}
    for limit in LIMITS:
        assert limit.key in sections[limit.section].model_fields


JARGON = re.compile(
    r"pydantic|Input should|\[type=|validation error|Value error|Extra inputs|union_tag|tuple|dict|"
    r"Traceback|<.* object at",
)


def assert_only_our_words(load: Callable[[], Scenario]) -> None:
    """Whatever ``load`` does, it gives a scenario or a ScenarioError in our own words."""
    try:
        load()
    except ScenarioError as error:
        message = str(error)
    else:
        return
    assert message
    assert not JARGON.search(re.sub(r"'[^'\n]*'|\|.*|--set .*: ", "", message))


@given(text=st.text(max_size=200) | st.text("ab:-[]{}&*!|>'\"%@#,? \n\t", max_size=40))
def test_arbitrary_text_never_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert_only_our_words(lambda: load_scenario(path))


def keys_of(data: Any) -> set[str]:
    """All keys of nested mappings."""
    if isinstance(data, list):
        return {key for item in data for key in keys_of(item)}
    if not isinstance(data, dict):
        return set()
    return set(data) | {key for item in data.values() for key in keys_of(item)}


COMPLETE = load_scenario(yaml.safe_load(BASE)).resolved()
WORDS = sorted(keys_of(COMPLETE) | {"kind", "mean", "p95", "path", "low", "high", "cv", "tokens"})
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["1e3", "5s", "-3ms", "4GiB", "poisson", "ramp", "lognormal", "fixed", "vllm"]),
    st.sampled_from(["fp8", "int4", "swap", "static", "a:B", ".", "auto", "catalogue", "h100-sxm"]),
)
ANYTHING = st.recursive(
    VALUES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)


@given(data=st.dictionaries(st.sampled_from(sorted(COMPLETE)), ANYTHING))
def test_arbitrary_mappings_never_raise_anything_else(data: dict[str, Any]) -> None:
    assert_only_our_words(lambda: load_scenario({**COMPLETE, **data}))
    assert_only_our_words(lambda: load_scenario(data))


@given(changes=st.dictionaries(st.sampled_from(sorted(COMPLETE)), ANYTHING, min_size=1))
def test_arbitrary_yaml_never_raises_anything_else(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, Any]
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(yaml.safe_dump({**COMPLETE, **changes}).encode("utf-8", "replace"))
    assert_only_our_words(lambda: load_scenario(path))


@given(
    key=st.lists(st.sampled_from(WORDS) | st.sampled_from(["0", "1", "-1", "²"]), max_size=4),
    text=st.text(max_size=10),
    value=ANYTHING,
)
def test_arbitrary_overrides_never_raise_anything_else(
    key: list[str], text: str, value: Any
) -> None:
    scenario = load_scenario(COMPLETE)
    name = ".".join(key)
    assert_only_our_words(lambda: scenario.override([f"{name}={text}"]))
    assert_only_our_words(lambda: scenario.override([text]))
    assert_only_our_words(lambda: scenario.override({name: value}))


@pytest.mark.parametrize("role", [[], {}])
def test_a_role_that_is_no_word_is_named(role: object) -> None:
    with pytest.raises(ScenarioError, match=r"fleet\.0\.role: expected one of both, prefill"):
        load_scenario({**COMPLETE, "fleet": {"gpu": "h100-sxm", "role": role}})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("autoscaling.target=2", "nothing is scaled"),
        ("transfer.mode=pull", "nothing is handed over"),
        ("failures.in_flight.kind=retry", "failures: give mtbf, or outages"),
        ("workload.arrivals.kind=closed", "workload.arrivals: `concurrency` is missing"),
    ],
)
def test_what_an_override_breaks_is_said_of_the_override(
    tmp_path: Path, given: str, told: str
) -> None:
    """Not of a line of the file, which is right."""
    path = tmp_path / "s.yaml"
    path.write_text(BASE)
    with pytest.raises(ScenarioError) as caught:
        load_scenario(path, [given])
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f"--set {given}: {told}")
    assert all(line.startswith(f"--set {given}: ") for line in lines)
