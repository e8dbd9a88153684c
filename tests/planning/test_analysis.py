"""``infersim roofline`` and ``fit``: units, what would fit, JSON, and batches that are slow."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from sim import catalog
from sim.cli import app
from sim.cost import Deployment
from sim.planning.answers.roofline import EMPTY
from sim.planning.rooflines import TILES, roofline_document
from sim.specs.layout import Layout
from sim.units import show_bytes


def infersim(command: str) -> Any:
    return CliRunner().invoke(app, command.split())


SHARDED = "roofline llama-3.1-70b --gpu h100-sxm --tensor-parallel 4 --weights fp8"


def test_a_roofline_of_several_gpus_keeps_its_numbers_and_units() -> None:
    done = infersim(f"{SHARDED} --activations fp8 --batch 32 --context 4000")
    assert done.exit_code == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 88
    assert "…" not in done.stdout
    (row,) = re.findall(r"gate and up projection +([\d.,]+) +([\d.,]+) .* memory", done.stdout)[:1]
    assert row == ("601", "9,050")
    assert re.search(r"GFLOP +MiB +per byte +us", done.stdout)


def test_a_roofline_marks_the_batches_that_memory_does_not_hold() -> None:
    shown = infersim(f"{SHARDED} --batch 32 --batch 100000").stdout
    assert "4 x h100-sxm: each " in shown
    assert "Decode, batch 32, 1,024 tokens" in shown
    assert "Decode, batch 100,000, which does not fit, 1,024 tokens" in shown


@pytest.mark.parametrize("batch", [1, 32, 100_000])
def test_a_column_of_a_roofline_is_the_number_of_the_json_in_its_unit(batch: int) -> None:
    arguments = f"{SHARDED} --activations fp8 --batch {batch}"
    shown = infersim(arguments).stdout
    document = json.loads(infersim(f"{arguments} --json").stdout)
    (decode, prefill) = document["passes"]
    assert (decode["phase"], decode["batch"], prefill["phase"]) == ("decode", batch, "prefill")
    assert decode["seconds"] == pytest.approx(sum(o["seconds"] for o in decode["operators"]))
    heads = re.findall(r"operator +(\w?)FLOP +(\w*B) +per byte +(us|ms|s) ", shown)
    scale = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    binary = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    times = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    for head, each in zip(heads, document["passes"], strict=True):
        flop, size, time = scale[head[0]], binary[head[1]], times[head[2]]
        (operator,) = [o for o in each["operators"] if o["name"] == "down projection"]
        cells = [operator["flops"] / flop, operator["bytes"] / size, operator["seconds"] / time]
        rows = re.findall(r"down projection +([\d.,]+) +([\d.,]+) +[\d.,]+ +([\d.,]+)", shown)
        found = [float(cell.replace(",", "")) for cell in rows[document["passes"].index(each)]]
        assert found == pytest.approx(cells, rel=5e-3)


def test_a_small_batch_that_is_slower_is_explained_by_the_kernel_timings() -> None:
    slow = "roofline llama-3.1-70b --gpu b200-sxm --weights fp8 --activations fp8 --batch 1"
    document = json.loads(infersim(f"{slow} --batch 16 --json").stdout)
    one, sixteen = document["passes"][0]["seconds"], document["passes"][1]["seconds"]
    assert one > sixteen
    (note,) = document["notes"]
    assert note.startswith("A batch of 1 takes 18.8 ms, longer than one of ")
    assert "kernel timings of this GPU" in note
    assert note in " ".join(infersim(slow).stdout.split())


def test_weights_that_do_not_fit_are_said_in_place_of_a_batch() -> None:
    large = "roofline llama-3.1-70b --gpu h100-sxm --batch 4000 --json"
    (note,) = json.loads(infersim(large).stdout)["notes"]
    assert note.startswith(
        "No batch fits: the weights alone exceed what an engine may use of memory"
    )
    (note,) = json.loads(infersim(large.replace("70b", "8b")).stdout)["notes"]
    assert note.startswith("A batch of 4,000 does not fit: memory holds 437.6 sequences")


@pytest.mark.parametrize(
    ("asked", "context"),
    [
        ("llama-3.1-70b --gpu h100-sxm --tensor-parallel 4", 1000),
        ("llama-3.1-70b --gpu h100-sxm --tensor-parallel 4", 30_000),
        ("deepseek-v4-flash --gpu h200-sxm --tensor-parallel 2 --data-parallel 4", 8192),
        ("gpt-oss-120b --gpu h100-sxm", 8192),
        ("llama-3.1-8b --gpu l4", 2000),
    ],
)
@pytest.mark.parametrize("batch", [1, 4000])
def test_a_roofline_holds_as_many_sequences_as_fit_says(
    asked: str, context: int, batch: int
) -> None:
    fit = json.loads(infersim(f"fit {asked} --context {context} --json").stdout)
    roof = f"roofline {asked} --context {context} --batch {batch} --json"
    found = json.loads(infersim(roof).stdout)
    assert found["memory_bound"]["fits"] == int(fit["decoding_concurrency"])
    held = f"{fit['decoding_concurrency']:,.1f} sequences of {context:,} tokens (`infersim fit`)"
    assert any(held in note for note in found["notes"]) == (batch == 4000)


def test_nothing_is_said_where_larger_batches_take_longer() -> None:
    arguments = "roofline llama-3.1-8b --gpu h100-sxm --batch 1 --batch 64 --json"
    assert json.loads(infersim(arguments).stdout)["notes"] == []


def test_nothing_is_said_of_kernels_that_nobody_measured() -> None:
    arguments = "roofline llama-3.1-8b --gpu rtx-4090 --batch 1 --json"
    assert json.loads(infersim(arguments).stdout)["notes"] == []


# -- what fits -----------------------------------------------------------------------------------


def test_what_does_not_fit_says_so_and_what_would() -> None:
    done = infersim("fit llama-3.1-70b --gpu h100-sxm")
    assert done.exit_code == 3
    told = " ".join(done.stdout.split())
    assert (
        "Does not fit: 64.4 GiB short on each GPU, one request of 8,192 tokens included; it" in told
    )
    assert "--weights int4" in told


@pytest.mark.parametrize("gpus", [1, 8])
def test_no_remedy_is_larger_than_a_node(gpus: int) -> None:
    """405 billion parameters of 2 bytes take more than 8 GPUs of 80 GB."""
    asked = f"fit llama-3.1-405b --gpu h100-sxm --tensor-parallel {gpus}"
    told = " ".join(infersim(asked).stdout.split())
    assert "it fits with fp8 weights" in told if gpus == 8 else "--tensor-parallel" not in told
    assert "16 GPUs" not in told


@pytest.mark.parametrize(
    ("model", "tokens"), [("gpt-j-6b", 2048), ("llama-2-7b", 4096), ("qwen3-8b", 8192)]
)
def test_the_usual_request_is_no_longer_than_the_model_was_made_for(
    model: str, tokens: int
) -> None:
    asked = f"fit {model} --gpu h100-sxm --json"
    usual = json.loads(infersim(asked).stdout)
    assert usual == json.loads(infersim(f"{asked} --context {tokens}").stdout)


@pytest.mark.parametrize("context", [1000, 8192, 100_000])
def test_what_would_fit_does_fit_and_nothing_smaller_does(context: int) -> None:
    asked = f"fit llama-3.1-70b --gpu h100-sxm --context {context}"
    document = json.loads(infersim(f"{asked} --json").stdout)
    assert document["fits"] is False
    assert document["remedies"]
    for change in document["remedies"]:
        (name, value), *_ = change.items()
        option = f"{asked} --{name.replace('_', '-')} {value}"
        done = infersim(f"{option} --json")
        assert done.exit_code == 0
        assert json.loads(done.stdout)["fits"] is True
        assert json.loads(done.stdout)["max_concurrency"] >= 1
        if name == "tensor_parallel" and value > 2:
            fewer = f"{asked} --tensor-parallel {value // 2} --json"
            assert json.loads(infersim(fewer).stdout)["fits"] is False


def test_a_cache_too_small_for_one_request_is_told_from_a_model_that_does_not_fit() -> None:
    asked = "fit llama-3.1-70b --gpu h100-sxm --weights fp8"
    done = infersim(asked)
    assert done.exit_code == 0  # as ever: there is a cache
    assert "No request of 8,192 tokens fits: " in done.stdout
    document = json.loads(infersim(f"{asked} --json").stdout)
    blocks = -(-8192 // 16) * 16 * document["kv_bytes_per_token"]
    missing = blocks - document["kv_cache_bytes"]
    assert document["short_bytes"] == pytest.approx(missing, rel=0.01)
    assert show_bytes(document["short_bytes"]) in done.stdout
    assert "Fits: " in infersim(f"{asked} --context 1000").stdout


@pytest.mark.parametrize(
    ("asked", "bound"),
    [
        ("llama-3.1-8b --gpu h100-sxm", "model"),
        ("llama-3.1-8b --gpu l4", "memory"),
        ("gpt-oss-120b --gpu h100-sxm --gpu-memory-utilization 0.84", "memory"),
        ("qwen3-next-80b-a3b --gpu h200-sxm --weights fp8", "model"),
    ],
)
def test_the_longest_context_fits_and_one_token_more_does_not(asked: str, bound: str) -> None:
    first = infersim(f"fit {asked} --context 1000 --json")
    document = json.loads(first.stdout)
    longest = document["longest_context"]
    assert document["longest_context_bound"] == bound
    assert f"Fits: one request can have up to {longest:,} tokens (" in document["text"]
    assert ("the model's limit);" in document["text"]) == (bound == "model")
    assert json.loads(infersim(f"fit {asked} --context {longest} --json").stdout)["fits"]
    beyond = json.loads(infersim(f"fit {asked} --context {longest + 1} --json").stdout)
    assert beyond["fits"] == (bound == "model")
    assert any("was made for" in note for note in beyond["notes"]) == (bound == "model")


def test_the_first_lines_of_fit_are_its_answer_and_the_memory_in_a_line(monkeypatch: Any) -> None:
    monkeypatch.delenv("INFERSIM_FULL")
    asked = "fit llama-3.1-8b --gpu h100-sxm"
    brief, full = infersim(asked).stdout, infersim(f"{asked} --full").stdout
    told = " ".join(brief.split())
    assert told.startswith("Fits: one request can have up to 131,072 tokens (the model's limit)")
    assert "Each GPU: 72.7 GiB the engine may use: 15 weights, 1.9 activations, 1.19" in told
    assert "54.7 KV cache (give or take 1.55)." in told
    assert len(brief.splitlines()) <= 12
    assert "swap beats recompute" in full
    assert "swap" not in brief
    assert full.count("Fits: ") == 1


@pytest.mark.parametrize(("model", "more"), [("deepseek-v4-flash", 7.37), ("llama-3.1-70b", None)])
def test_data_ranks_that_hold_clearly_more_are_named(
    model: str, more: float | None, monkeypatch: Any
) -> None:
    """Latent rows of a token lie whole on each tensor rank, heads of its KV on one."""
    monkeypatch.delenv("INFERSIM_FULL")
    asked = f"fit {model} --gpu h200-sxm --tensor-parallel 8"
    told = " ".join(infersim(asked).stdout.split())
    assert ("A request in its prompt takes more: " in told) == (more is not None)
    assert ("tensor ranks keep copies" in told) == (more is not None)
    if more is not None:
        rows = json.loads(infersim(f"{asked} --json").stdout)["layouts"]
        held = {row["layout"]: row["max_concurrency"] for row in rows}
        assert held["DP 8"] / held["TP 8"] == pytest.approx(more, abs=0.01)
        assert f"As DP 8 the same GPUs hold {held['DP 8']:,.1f} such requests, {more}" in told


def test_nothing_helps_where_nothing_would() -> None:
    done = infersim("fit llama-3.1-405b --gpu l4")
    assert "take a GPU with more memory." in " ".join(done.stdout.split())


def test_weights_say_that_embedding_and_head_are_not_quantised() -> None:
    quantised = " ".join(infersim("fit llama-3.1-8b --gpu l40s --weights fp8").stdout.split())
    assert "in fp8, embedding" in quantised
    assert "and LM head in bf16" in quantised
    assert "LM head" not in infersim("fit llama-3.1-8b --gpu l40s").stdout


@pytest.mark.parametrize("model", ["deepseek-v3", "deepseek-v3.2"])
def test_a_roofline_says_which_heads_are_padded(model: str) -> None:
    def notes(gpus: int) -> str:
        layout, engine = Layout(gpus), catalog.engine("ideal")
        d = Deployment(catalog.model(model), catalog.gpu("h200-sxm"), engine, layout=layout)
        return " ".join(roofline_document(d, [1], 1024, 1024)["notes"])

    assert "tiles of 64: the 16 of each GPU take as long as 64 would" in notes(8)
    assert "tiles" not in notes(2)  # 64 heads


@pytest.mark.parametrize(("gpu", "named"), [("h100-sxm", True), ("l40s", False)])
def test_a_roofline_explains_tiles_where_it_names_them(gpu: str, named: bool) -> None:
    lines = infersim(f"roofline llama-3.1-8b --gpu {gpu}").stdout.splitlines()
    assert [line for line in lines if line.startswith("tiles: ")] == [EMPTY] * named
    assert ("(tiles)" in " ".join(lines)) == named
    assert len(EMPTY) <= 88


def test_a_roofline_shows_both_cases_of_cards_on_pcie() -> None:
    gpu, engine = catalog.gpu("l40s"), catalog.engine("ideal")
    d = Deployment(catalog.model("llama-3.1-8b"), gpu, engine, layout=Layout(4))
    (note,) = roofline_document(d, [1], 1024, 1024)["notes"]
    assert "passes take" in note
    assert "if they do not" in note
    assert roofline_document(d, [1], 1024, 1024, joined=True)["notes"] == []
    alone = Deployment(d.model, gpu, engine)
    assert roofline_document(alone, [1], 1024, 1024)["notes"] == []


def test_what_whole_tiles_cost_a_small_batch_is_not_called_arithmetic() -> None:
    """Of one row in a tile next to nothing was asked for; of a prompt's rows most were."""
    done = CliRunner().invoke(
        app, ["roofline", "gpt-oss-20b", "--gpu", "h200-sxm", "--batch", "1", "--json"]
    )
    found = json.loads(done.stdout)
    bound = {
        each["phase"]: {row["name"]: row["bound_by"] for row in each["operators"]}
        for each in found["passes"]
    }
    assert bound["decode"]["output projection"] == TILES
    assert TILES not in bound["prefill"].values()
    assert bound["prefill"]["qkv projection"] == "compute"
    assert bound["prefill"]["prefill attention"] == "compute"


def test_the_kv_cache_of_a_fit_is_between_two_sizes() -> None:
    """Weights are counted; half of what else comes off may be more or less."""
    found = CliRunner().invoke(app, ["fit", "llama-3.1-8b", "--gpu", "h100-sxm", "--json"])
    document = json.loads(found.stdout)
    low, high = document["kv_cache_bytes_band"]
    apart = (document["activation_bytes"] + document["reserve_bytes"]) / 2
    assert (low, high) == (
        document["kv_cache_bytes"] - apart,
        document["kv_cache_bytes"] + apart,
    )


@pytest.mark.parametrize("context", [64, 1024])
def test_the_batch_at_which_memory_stops_binding_is_that_of_the_tables(context: int) -> None:
    asked = f"roofline llama-3.1-8b --gpu h100-sxm --context {context}"
    found = json.loads(infersim(f"{asked} --json").stdout)["memory_bound"]

    def seconds(batch: int, what: str) -> tuple[float, float]:
        answer = json.loads(infersim(f"{asked} --batch {batch} --json").stdout)
        rows = answer["passes"][0]["operators"]
        rows = [row for row in rows if what == "pass" or row["shared"] == "weights"]
        memory = sum(row["seconds"] for row in rows if row["bound_by"] == "memory")
        return memory, sum(row["seconds"] for row in rows if row["bound_by"] in ("compute", TILES))

    assert found["fits"] > 400
    assert (found["pass"] is None) == (context == 1024)
    for what in ("products", "pass"):
        at = found[what] or found["fits"] + 1
        memory, compute = seconds(at - 1, what)
        assert memory > compute
        if found[what] is not None:
            memory, compute = seconds(at, what)
            assert memory <= compute
    text = " ".join(infersim(asked).stdout.split())
    first, last = found["ranges"]["products"][0]
    assert (first, last + 1) == (1, found["products"])
    if context == 64:
        alike = f"memory-bound at a batch of {last + 1:,} (tiles); so do its matrix products."
        assert f"Decoding stops being {alike}" in text
    else:
        assert (
            f"Decoding is memory-bound at every batch that fits (up to {found['fits']:,})" in text
        )
        assert f"Its matrix products stop being so at a batch of {last + 1:,} (tiles)." in text


def test_the_row_of_a_pass_names_its_bound_as_the_sentence_above_does(monkeypatch: Any) -> None:
    """Of 320 rows memory has the largest single share, tiles and compute together a larger one."""
    monkeypatch.delenv("INFERSIM_FULL")
    asked = "roofline llama-3.1-70b --gpu h100-sxm --tensor-parallel 4 --context 500"
    batches = (256, 257, 300, 310, 320, 330, 400, 512, 800)
    asked += "".join(f" --batch {batch}" for batch in batches)
    shown = infersim(asked).stdout
    document = json.loads(infersim(f"{asked} --json").stdout)
    ranges = document["memory_bound"]["ranges"]["pass"]
    for batch, each in zip(batches, document["passes"], strict=False):
        (row,) = re.findall(rf"decode, batch {batch} .*", shown)
        within = any(a <= batch <= b for a, b in ranges)
        assert is_memory_bound(each["operators"]) == within
        assert bool(re.search(r" memory \d+%", row)) == within
        assert bool(re.search(r"(tiles|compute) \d+%", row)) == (not within)


def is_memory_bound(operators: list[dict[str, Any]]) -> bool:
    """Whether memory takes longer than arithmetic in the documents of ``operators``."""
    seconds = dict.fromkeys(("memory", "compute", TILES), 0.0)
    for each in operators:
        if each["bound_by"] in seconds:
            seconds[each["bound_by"]] += each["seconds"]
    return seconds["memory"] > seconds["compute"] + seconds[TILES]


def test_memory_that_binds_again_where_tiles_are_full_is_said() -> None:
    """Of 129 and 257 rows most of the second tile is empty; of 256 and 512 none is."""
    asked = "roofline llama-3.1-70b --gpu h100-sxm --tensor-parallel 4 --weights fp8 "
    asked += "--activations fp8 --context 1000 --batch 128 --batch 129 --batch 256 --batch 384"
    document = json.loads(infersim(f"{asked} --batch 512 --json").stdout)
    batches = [128, 129, 256, 384, 512]
    bound = {
        batch
        for batch, each in zip(batches, document["passes"], strict=False)
        if is_memory_bound(each["operators"])
    }
    assert bound == {128, 256, 512}
    assert document["memory_bound"]["pass"] == 129
    ranges = document["memory_bound"]["ranges"]["pass"]
    assert {each for each in batches if any(a <= each <= b for a, b in ranges)} == bound
    few, many = (
        " ".join(infersim(f"{asked} {more}").stdout.split()) for more in ("", "--batch 512")
    )
    named = few[few.index("Decoding ") : few.index("Memory-bound: ")]
    assert named in many  # whatever batches are asked for
    again = [f"{first} to {last}" for first, last in ranges[1:]]
    assert (
        f"Decoding stops being memory-bound at a batch of 129 (tiles), and is again at "
        f"{' and '.join(again)}. Its matrix products" in named
    )
    assert "Memory-bound: operators bound by 'memory' take longer in all than" in few


def test_a_batch_that_takes_much_longer_than_one_of_a_sequence_fewer_is_noted() -> None:
    """The kernels of 257 rows take more than twice as long; 2 rows of a model with experts take
    longer, too, but touch twice as many of them."""
    asked = "roofline llama-3.1-70b --gpu h100-sxm --tensor-parallel 4 --weights fp8 "
    asked += "--activations fp8 --context 1000 --batch 256 --batch 257 --json"
    (note,) = json.loads(infersim(asked).stdout)["notes"]
    assert note.startswith("A batch of 257 takes 38.8 ms, 42% longer than one of 256 (27.3 ms).")
    assert note.endswith("its kernels for more rows are the slower ones.")
    experts = "roofline gpt-oss-20b --gpu h200-sxm --batch 2 --json"
    assert json.loads(infersim(experts).stdout)["notes"] == []
