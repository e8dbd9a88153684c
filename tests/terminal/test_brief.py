"""A command prints the lines that decide; --full prints all, and the variable makes that usual."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.findings import Cell, Column, Table
from sim.planning.answers.brief import MORE, _cut
from tests.places import CHAT, ROOT

SHORT = ["--set", "run.requests=300"]


def printed(*asked: str) -> list[str]:
    done = CliRunner().invoke(app, list(asked))
    assert done.exit_code in (0, 1), done.stderr
    return done.stdout.splitlines()


@pytest.fixture(autouse=True)
def _usual(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.delenv("INFERSIM_FULL")
    monkeypatch.chdir(tmp_path)


def test_a_run_says_verdict_figures_cost_limit_and_trust_first() -> None:
    lines = printed("run", str(CHAT), *SHORT, "--no-save")
    told = "\n".join(lines)
    assert len([line for line in lines if line.strip()]) <= 16
    for word in ("SLO", "TTFT p99", "nine of ten real runs", "USD a month", "Bound by", "How sure"):
        assert word in told
    told = " ".join(told.split())
    assert (
        "How sure: that the SLO is met is a guess: at the predicted times already, chance" in told
    )
    assert "leaves it open. Published runs of" in told
    assert "KV used" not in told
    assert lines[-1] == MORE


def test_near_saturation_each_latency_has_one_band_and_an_open_end_is_in_words() -> None:
    asked = ["run", str(CHAT), "--set", "workload.arrivals.rate=28", "--no-save"]
    lines = printed(*asked)
    (ttft,) = (line for line in lines if line.startswith("TTFT p99"))
    assert "and up (no upper end)" in ttft
    (told,) = " ".join(" ".join(lines).split()).split("With iterations")[1:]
    assert "of requests are within the SLO" in told
    assert "p99" not in told
    full = " ".join(" ".join(printed(*asked, "--full")).split())
    assert "and all else as predicted, TTFT p99 is " in full


def test_the_cost_of_a_missed_slo_begins_with_that_of_good_requests() -> None:
    lines = printed("run", str(CHAT), *SHORT, "--no-save", "--set", "slo.ttft=35ms")
    (cost,) = (line for line in lines if line.startswith("Cost: "))
    assert "USD per 1,000 requests within the SLO, " in cost


def test_full_prints_the_tables_and_notes(monkeypatch: Any) -> None:
    asked = ["run", str(CHAT), *SHORT, "--no-save"]
    full = printed(*asked, "--full")
    assert any("KV used" in line for line in full)
    assert MORE not in full
    monkeypatch.setenv("INFERSIM_FULL", "1")
    assert printed(*asked) == full


@pytest.mark.parametrize(
    "asked",
    [
        ["sweep", "--sweep", "workload.arrivals.rate=1:8:8"],
        ["compare", "--vary", "scheduler.max_num_seqs=1,2,3,4,5,6,7,8", "--repetitions", "1"],
        ["sensitivity"],
    ],
)
def test_a_decision_shows_its_headline_and_the_first_rows_of_one_table(asked: list[str]) -> None:
    command, *options = asked
    brief = printed(command, str(CHAT), *SHORT, "--no-report", *options)
    full = printed(command, str(CHAT), *SHORT, "--no-report", "--full", *options)
    assert len(brief) <= 28
    assert len(brief) < len(full)
    assert ("(5 of 8)" in " ".join(brief)) == (command != "sensitivity")
    assert not any("───" in line for line in brief)
    assert brief[:2] == full[:2]
    assert brief[-1] == MORE


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("roofline llama-3.1-8b --gpu h100-sxm", "decode, batch 256"),
        ("fit llama-3.1-8b --gpu h100-sxm", "Fits: one request can"),
        ("fit llama-3.1-405b --gpu h200-sxm --tensor-parallel 8", "Fits: "),
        ("explain scenario", "workload"),
        ("explain scenario workload.arrivals", "Independent users"),
        ("explain limits", "sessions"),
        ("list", "chat-azure"),
    ],
)
def test_what_is_looked_up_begins_with_its_answer(asked: str, first: str) -> None:
    brief, full = printed(*asked.split()), printed(*asked.split(), "--full")
    assert len(brief) <= 36
    assert len(full) > 1.3 * len(brief)
    assert first in "\n".join(brief)
    assert brief[-1] == MORE
    assert MORE not in full


def test_the_rows_of_a_roofline_are_its_passes() -> None:
    """The tokens a second of a pass are its sequences, or the tokens of its prompt, over its
    time."""
    asked = ["roofline", "llama-3.1-8b", "--gpu", "h100-sxm", "--batch", "32", "--prompt", "500"]
    passes = json.loads("".join(printed(*asked, "--json")))["passes"]
    rows = [line for line in printed(*asked) if " ms " in line]
    for each, row, tokens in zip(passes, rows, (32, 500), strict=True):
        assert f" {tokens / each['seconds']:,.0f} " in row
        longest = max(each["operators"], key=lambda operator: operator["seconds"])
        assert f"{longest['name']} {longest['seconds'] / each['seconds']:.0%}" in row


def test_one_key_is_explained_whole() -> None:
    assert printed("explain", "scenario", "max_num_seqs") == printed(
        "explain", "scenario", "max_num_seqs", "--full"
    )


@pytest.mark.parametrize(
    "asked",
    [
        "find --tolerance 0.3",
        "plan --gpus h100-sxm",
        "compare --vary max_model_len=7000,8000 --repetitions 1",
        "sweep --sweep max_model_len=7000,8000",
        "diagnose",
        "ablate",
        "sensitivity",
    ],
)
def test_an_answer_that_is_not_kept_leaves_nothing(asked: str, tmp_path: Path) -> None:
    command, *options = asked.split()
    lines = printed(command, str(CHAT), *SHORT, *options, "--no-save")
    assert lines[-1] == MORE
    assert not any(line.startswith(("Run: ", "Report: ")) for line in lines)
    assert list(tmp_path.iterdir()) == []
    both = CliRunner().invoke(app, [command, str(CHAT), *options, "--no-save", "-o", "here"])
    assert (both.exit_code, "--no-save writes nothing" in both.stderr) == (2, True)


def test_what_needs_watching_is_named_and_nothing_else() -> None:
    calm = printed("run", str(CHAT), *SHORT, "--no-save")
    assert not any("rejected" in line for line in calm)
    cut = printed("run", str(CHAT), *SHORT, "--no-save", "--set", "max_model_len=1000")
    assert any(line.startswith("Watch: ") and "rejected" in line for line in cut)


def test_json_is_the_same_with_and_without() -> None:
    asked = ["run", str(CHAT), *SHORT, "--no-save", "--json"]
    assert json.loads("".join(printed(*asked))) == json.loads("".join(printed(*asked, "--full")))


def test_a_row_of_each_name_goes_before_further_ones() -> None:
    names = ["b200", "b200", "h200", "h100", "h200", "h100", "l40s", "a100"]
    rows = tuple((Cell(name, None), Cell(str(at), at)) for at, name in enumerate(names))
    cut = _cut(Table("cards", "", (Column("GPU", False), Column("#")), rows))
    assert [row[1].text for row in cut.rows] == ["0", "2", "3", "6", "7"]
    assert cut.headed() == "5 of 8"
    shown = _cut(Table("cards", "", (Column("GPU", False), Column("#")), rows, shown=(4, 0)))
    assert [row[1].text for row in shown.rows] == ["0", "4"]
    assert shown.headed() == "2 of 8"


def test_values_that_a_file_leaves_open_are_named_as_defaults(tmp_path: Path) -> None:
    model = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    model |= {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2}
    model |= {"num_attention_heads": 8, "vocab_size": 1000}
    told = "# Defaults, which the file does not state: "
    for more, named in (({}, True), ({"max_position_embeddings": 2048}, False)):
        (tmp_path / "config.json").write_text(json.dumps(model | more))
        lines = printed("show", str(tmp_path))
        assert "max_position_embeddings: 2048" in lines
        assert (f"{told}max_position_embeddings" in lines) == named
    card = "memory: 40GiB\nbandwidth: 1TB/s\npeak_flops: {bf16: 1PFLOP/s}\npower: 300W\n"
    (tmp_path / "card.yaml").write_text(f"{card}relative: l40s\n")
    lines = printed("show", str(tmp_path / "card.yaml"))
    assert f"{told}link, host_link, node, price_per_hour" in lines


def test_what_is_shown_are_values_and_in_full_their_sources() -> None:
    lines = printed("show", "h100-sxm")
    assert "bandwidth: 3.35TB/s" in lines
    assert "  usd: 3.99" in lines
    assert not any("source" in line for line in lines)
    assert lines[-1] == f"# {MORE}"
    assert len(lines) < 60
    assert not any("Defaults" in line for line in lines)
    full = printed("show", "h100-sxm", "--full")
    assert "  source: NVIDIA H100 Tensor Core GPU datasheet, product specifications, column" in full
    assert any(line.startswith("# A file with `extends: h100-sxm`") for line in full)


@pytest.mark.parametrize(
    "asked",
    [
        ["run", "--no-save"],
        ["find", "--no-report", "--tolerance", "0.5"],
        ["sweep", "--no-report", "--sweep", "workload.arrivals.rate=2,4"],
        ["compare", "--no-report", "--vary", "scheduler.max_num_seqs=8,9", "--repetitions", "1"],
    ],
)
def test_weights_alone_in_fp8_are_said_to_be_computed_in_bf16(asked: list[str]) -> None:
    command, *options = asked
    given = [command, str(CHAT), *SHORT, *options, "--set", "precision.weights=fp8"]
    told = " ".join(printed(*given))
    assert told.startswith("chat  llama-3.1-8b (fp8 weights) on 1 x h100-sxm")
    assert told.count("Weights in fp8 are computed in bf16 here: on h100-sxm engines") == 1


@pytest.mark.parametrize(
    "settings",
    [
        ["precision.weights=fp8", "precision.activations=bf16"],
        ["precision.weights=fp8", "precision.activations=fp8"],
        ["precision.weights=fp8", "fleet.gpu=a100-sxm-80gb"],
        ["precision.weights=int4"],
    ],
)
def test_products_that_are_meant_or_cannot_be_narrower_have_no_note(settings: list[str]) -> None:
    given = [text for each in settings for text in ("--set", each)]
    assert "computed in bf16 here" not in " ".join(printed("run", str(CHAT), *SHORT, *given))


def test_the_tail_of_token_times_of_variants_is_in_full_tables_and_the_result() -> None:
    asked = ["compare", str(CHAT), *SHORT, "--vary", "scheduler.max_num_seqs=8,64"]
    asked += ["--repetitions", "1", "--no-report"]
    assert "ITL p99" not in " ".join(printed(*asked))
    assert "ITL p99" in " ".join(printed(*asked, "--full"))
    result = json.loads("".join(printed(*asked, "--json")))
    (itl,) = (each for each in result["figures"] if each["key"] == "p99_itl_ms")
    assert all(mean > 0 for mean in itl["means"])


def test_a_metric_or_a_value_that_is_no_key_is_found_all_the_same() -> None:
    itl, fp8 = (
        CliRunner().invoke(app, ["explain", "scenario", name]).stderr for name in ("itl", "fp8")
    )
    assert "p99_itl_ms" in itl
    assert "a value of precision.weights, precision.activations" in fp8


@pytest.mark.parametrize(
    ("texts", "caption"),
    [
        (("* 1", "2"), "Means: * is the best of a column"),
        (("* 1", "~ 2"), "Means: * is the best of a column, ~ is tied with it"),
        (("1", "2"), "Means"),
    ],
)
def test_a_legend_explains_the_marks_that_are_shown(texts: tuple[str, str], caption: str) -> None:
    columns = Column("value"), Column("hidden", in_brief=False)
    rows = tuple((Cell(text, None), Cell("* 3", None)) for text in texts)
    legend = ("* ", "is the best of a column"), ("~ ", "is tied with it")
    assert _cut(Table("means", "Means", columns, rows, legend=legend)).headed() == caption


def test_what_turns_reuse_is_said_first() -> None:
    agent = str(ROOT / "scenarios" / "agent.yaml")
    turns = ["run", agent, "--set", "run.requests=200", "--no-save", "--no-ends"]
    (reused,) = (line for line in printed(*turns) if line.startswith("Prefix hits"))
    assert re.fullmatch(r"Prefix hits 9\d%; TTFT p50 of turn 1 \d.* ms, 2 \d.* ms, 4 \d.*", reused)
    uncached = printed(*turns, "--set", "kv_cache.enable_prefix_caching=false")
    assert not any("Prefix hits" in line for line in uncached)
    assert any(line.startswith("TTFT p50 of turn 1 ") for line in uncached)


def test_memory_for_more_than_a_model_was_made_for_is_counted_and_said_to_be() -> None:
    asked = ["fit", "llama-2-7b", "--gpu", "h100-sxm", "--context"]
    told = " ".join(" ".join(printed(*asked, "9000")).split())
    assert " requests of 9,000 tokens." in told
    assert "more than the 4,096 tokens that llama-2-7b was made for; a scenario takes them" in told
    assert "was made for" not in " ".join(printed(*asked, "4096"))


def test_what_a_long_request_keeps_behind_windows_is_said() -> None:
    """Of gemma-3-12b 8 of 48 layers keep all of it, 16 KiB a token each in 16 bits on one GPU."""
    asked = ["fit", "gemma-3-12b", "--gpu", "h100-sxm", "--context", "100000"]
    told = " ".join(" ".join(printed(*asked)).split())
    found = re.search(r"KV cache: (\d+) KiB a token in all windows, ([\d.]+) GiB for a", told)
    assert found is not None, told
    everything, kept = float(found[1]) * 100_000 / 2**20, float(found[2])
    assert everything / 6 < kept < everything / 5.5


def test_the_rate_of_a_data_rank_is_called_that() -> None:
    asked = ["roofline", "deepseek-v3", "--gpu", "h200-sxm", "--expert-parallel"]
    heads = {
        ranks: next(line for line in printed(*asked, *more) if line.startswith("pass "))
        for ranks, more in ((1, ["--tensor-parallel", "8"]), (8, ["--data-parallel", "8"]))
    }
    assert "tokens/s of each rank" in heads[8]
    assert "of each rank" not in heads[1]


def test_few_claims_have_their_figures_and_the_reason() -> None:
    claim = ROOT / "scenarios" / "claims" / "batching-not-faster.yaml"
    told = printed("claims", str(claim), "--no-save")
    at = next(place for place, line in enumerate(told) if line.startswith("holds "))
    assert told[at + 1].startswith("E2EL mean: ")
    assert "of 256" in told[at + 1]
    assert any("reads more KV" in line for line in told[at + 2 : at + 5])
