"""The table of what does not go together: each row refuses what it says, at the key it names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import sim
from sim.cli import app
from sim.errors import ScenarioError, UsageError
from sim.scenario.checks.table import ALL
from sim.scenario.clash import Clash
from sim.scenario.reference.keys import asked
from sim.scenario.text.parsing import parse
from sim.simulation import prepare
from tests.feature_pairs import BASE, FEATURES
from tests.golden_scenarios import changed
from tests.places import MODELS

OWN = """
from sim.routers import ROUTERS
from sim.schedulers import BatchShape, ChunkedPrefill

class Silent(ChunkedPrefill):
    shape = BatchShape()

class Losing(Silent):
    abilities = frozenset({"loses"})

class Drafting(Silent):
    abilities = frozenset({"drafts"})

class Turns(ROUTERS["round-robin"]):
    name = ""
    weighs = False
"""
SILENT = {"scheduler.batching": "mine:Silent"}
ONE, TWO = {"name": "one", "gpu": "a10g"}, {"name": "two", "gpu": "l40s"}
PROMPTS = {"name": "prompts", "role": "prefill", "gpu": "a10g"}
ANSWERS = {"name": "answers", "role": "decode", "gpu": "a10g"}
DRAIN = {"steps": [{"at": "1s", "do": "drain"}]}
FAIL = {"steps": [{"at": "1s", "do": "fail"}]}
OUTAGE = {"failures": [{"at": "1s"}]}
GIVE_UP = {"scheduler.client_timeout": "1s"}
CACHING = {"kv_cache.enable_prefix_caching": True}
DRAFTS = {"method": "eagle", "num_tokens": 2, "acceptance_rate": 0.5}
BY_BATCH = {**DRAFTS, "num_tokens_per_batch_size": [[1, 6, 1]]}
WINDOWS, MAMBA, EXPERTS = (str(MODELS / f"tiny-{name}") for name in ("windows", "mamba", "experts"))
SMALL = {"workload.classes": [{"name": "all", "share": 1, "model": WINDOWS}]}
BOTH_MODELS = [{"name": "large", "share": 0.5}, {"name": "small", "share": 0.5, "model": WINDOWS}]

EXAMPLES: Mapping[str, Mapping[str, tuple[Sequence[str | dict[str, Any]], str]]] = {
    "data ranks": {"pipelines": (["data-parallel", "pipeline"], "fleet.data_parallel")},
    "sessions": {
        "arrivals whose rate follows a curve": (["sessions", "ramp"], "workload.arrivals.kind"),
    },
    "autoscaling": {
        "pools of a fixed size": ([{"autoscaling": {}}], "autoscaling"),
        "a policy that goes by requests/s, and no target": (
            ["autoscaled", {"autoscaling": {"policy": "slo"}}],
            "autoscaling.policy",
        ),
        "a router that remembers replicas by their places": (
            ["autoscaled", {"router": "session-affinity"}],
            "router",
        ),
        "replicas: {{min: 0}} and a policy that keeps the last replica": (
            ["autoscaled-to-none", {"autoscaling": {"policy": "hpa"}}],
            "fleet.replicas.min",
        ),
        "replicas: {{min: 0}} and metric: kv": (
            ["autoscaled-to-none", {"autoscaling.metric": "kv", "autoscaling.target": 0.5}],
            "fleet.replicas.min",
        ),
        "pools of one phase": (
            [{"fleet": [{**PROMPTS, "replicas": {"max": 2}}, ANSWERS]}],
            "fleet.0.replicas",
        ),
        "batching that does not serve on by itself": (
            ["autoscaled", "static"],
            "scheduler.batching",
        ),
    },
    "transfer": {"pools of both phases": ([{"transfer": {"latency": "1ms"}}], "transfer")},
    "pools of one phase": {
        "pools of both phases": ([{"fleet": [PROMPTS, ANSWERS, ONE]}], "fleet.2"),
        "no pool of the role decode": ([{"fleet": [PROMPTS]}], "fleet.0.role"),
        "no pool of the role prefill": ([{"fleet": [ANSWERS]}], "fleet.0.role"),
        "pipelines": (
            [{"fleet": [PROMPTS, {**ANSWERS, "pipeline_parallel": 2}]}],
            "fleet.1.pipeline_parallel",
        ),
        "batching of whole batches": (["roles", "static"], "scheduler.batching"),
        "the rule of another engine than vLLM": (
            [{"fleet": [PROMPTS, {**ANSWERS, "scheduler": {"policy": "sglang"}}]}],
            "fleet.1.scheduler.policy",
        ),
        "plans made ahead": (["roles", "async"], "scheduler.async_scheduling"),
        "a cadence of prompts": (
            ["roles", {"scheduler.prefill_schedule_interval": 2}],
            "scheduler.prefill_schedule_interval",
        ),
        "an order that preempts by rank": (["roles", "priority"], "scheduler.order"),
        "memory without blocks": (["roles", "contiguous"], "kv_cache.allocator"),
        "memory in the host": (["roles", "host-tier"], "kv_cache.host_memory"),
        "a prefix cache in a decode pool": (
            ["roles", CACHING],
            "kv_cache.enable_prefix_caching",
        ),
        "another block_size in each": (
            [{"fleet": [PROMPTS, {**ANSWERS, "kv_cache": {"block_size": 8}}]}],
            "fleet.1.kv_cache.block_size",
        ),
    },
    "weights of pools": {
        "a router that does not go by them": (
            [{"fleet": [ONE, {**TWO, "weight": 2}], "router": "session-affinity"}],
            "fleet.1.weight",
        ),
    },
    "scheduler.client_timeout": {
        "another one in each pool": (
            [{"fleet": [ONE, {**TWO, "scheduler": {"client_timeout": "9s"}}]}],
            "fleet.1.scheduler.client_timeout",
        ),
        "a rule that counts on requests that run": (["sglang", GIVE_UP], "fleet"),
        "pools of one phase": (["roles", GIVE_UP], "fleet.0"),
        "pipelines": (["pipeline", GIVE_UP], "fleet"),
        "batching of whole batches": (["static", GIVE_UP], "fleet"),
        "memory in the host": (["swap", GIVE_UP], "fleet"),
    },
    "failures": {
        "a router that remembers replicas by their places": (["least-kv", OUTAGE], "router"),
        "a rule that counts on requests that run": (["sglang", OUTAGE, GIVE_UP], "fleet"),
        "pools of one phase": (["roles", {"failures": {"mtbf": "9h"}}], "fleet.0"),
        "pipelines": (["pipeline", OUTAGE], "fleet"),
        "batching of whole batches": (["request", OUTAGE], "fleet"),
        "memory in the host": (["host-tier", OUTAGE], "fleet"),
    },
    "an outage": {
        "an earlier one that still lasts": (
            [{"failures": [{"at": "1s", "for": "1s"}, {"at": "1500ms"}]}],
            "failures.1.at",
        ),
    },
    "steering": {
        "a router that remembers replicas by their places": (
            ["least-kv", {"steering": DRAIN}],
            "router",
        ),
        "replicas: {{min: 0}}": (["autoscaled-to-none", {"steering": FAIL}], "fleet.replicas"),
        "pools that are scaled, but to let replicas fail": (
            ["autoscaled", {"steering": DRAIN}],
            "steering.steps.0",
        ),
        "failures, where operators let replicas fail": (
            [OUTAGE, {"steering": FAIL}],
            "steering.steps.0",
        ),
        "pools of one phase": (
            [
                {
                    "fleet": [PROMPTS, ANSWERS],
                    "steering.steps": [{**FAIL["steps"][0], "pool": "answers"}],
                }
            ],
            "steering.steps.0",
        ),
        "pipelines": (["pipeline", {"steering": FAIL}], "steering.steps.0"),
        "batching of whole batches": (["static", {"steering": FAIL}], "steering.steps.0"),
        "memory in the host": (["swap", {"steering": FAIL}], "steering.steps.0"),
    },
    "a model that a class asks for": {
        "pools that all serve others": ([SMALL], "workload.classes.0.model"),
    },
    "several models in one fleet": {
        "a model that no class asks for": (
            [{"fleet": [ONE, {**TWO, "model": WINDOWS}]}],
            "model",
        ),
        "pools of one phase": (
            ["two-models", {"fleet": [PROMPTS, {**ANSWERS, "model": "qwen3-0.6b"}]}],
            "fleet",
        ),
        "pools that are scaled": (
            [
                "two-models",
                {"fleet": [ONE, {**TWO, "model": "qwen3-0.6b", "replicas": {"max": 2}}]},
            ],
            "fleet",
        ),
        "failures": (["two-models", {"failures": {"mtbf": "9h"}}], "fleet"),
        "steering": (["two-models", {"steering": {"steps": []}}], "fleet"),
        "drafts (speculative), which are made for one model": (["two-models", "eagle"], "fleet"),
        "models with windows or a state": (
            [{"fleet": [ONE, {**TWO, "model": WINDOWS}], "workload.classes": BOTH_MODELS}],
            "",
        ),
    },
    "admission": {
        "requests without a deadline": ([{"admission": {}}], "admission"),
        "clients that send again": (["shedding", OUTAGE], "admission"),
        "pools of one phase": (["shedding", "roles"], "admission"),
        "data ranks and pipelines": (["shedding", "pipeline"], "admission"),
        "batching of whole batches": (["shedding", "static"], "admission"),
        "an order but fcfs": (["shedding", "sjf"], "admission"),
    },
    "order: fair": {"batching of whole batches": (["fair", "static"], "scheduler.order")},
    "order: edf": {
        "requests without a deadline": (
            [{"fleet": [ONE, {**TWO, "scheduler": {"order": "edf"}}]}],
            "fleet.1.scheduler.order",
        ),
    },
    "order: lpm": {
        "memory without SGLang's prefix tree": (
            [CACHING, {"scheduler.order": "lpm"}],
            "scheduler.order",
        ),
    },
    "pipelines": {
        "batching of whole batches": (["pipeline", "static"], "scheduler.batching"),
        "the rule of another engine than vLLM": (["pipeline", "no-evict"], "scheduler.policy"),
        "plans made ahead": (["pipeline", "async"], "scheduler.async_scheduling"),
        "an order that preempts by rank": (["pipeline", "edf"], "scheduler.order"),
    },
    "drafts (speculative)": {
        "pools of one phase and num_tokens_per_batch_size": (
            ["roles", {"speculative": BY_BATCH}],
            "fleet.0.role",
        ),
        "batching of whole batches": (["eagle", "request"], "scheduler.batching"),
        "the rule of another engine than vLLM": (["eagle", "sglang"], "scheduler.policy"),
        "an order that preempts by rank": (["eagle", "priority"], "scheduler.order"),
        "plans made ahead and method: ngram": (["ngram", "async"], "scheduler.async_scheduling"),
        "plans made ahead and num_tokens_per_batch_size": (
            ["async", {"speculative": BY_BATCH}],
            "scheduler.async_scheduling",
        ),
        "plans made ahead on data ranks": (
            ["data-parallel", "async", {"speculative": DRAFTS}],
            "scheduler.async_scheduling",
        ),
        "a cap on the tokens of a prompt": (
            ["eagle", "long-prefill"],
            "scheduler.long_prefill_token_threshold",
        ),
        "memory without blocks": (["eagle", "contiguous"], "kv_cache.allocator"),
        "memory in the host": (["eagle", "host-tier"], "kv_cache.host_memory"),
        "pipelines": (["eagle", "pipeline"], "fleet.pipeline_parallel"),
        "data ranks and match_rate": (
            ["data-parallel", "ngram", {"speculative.match_rate": 0.5}],
            "fleet.data_parallel",
        ),
        "data ranks and num_tokens_per_batch_size": (
            ["data-parallel", {"speculative": BY_BATCH}],
            "fleet.data_parallel",
        ),
        "iterations of too few tokens": (["eagle", "small-budget"], "scheduler.max_num_seqs"),
        "models with a state": (["eagle", "mamba"], ""),
        "method: mtp and a model without such a layer": (
            ["mtp", {"model": "llama-3.2-1b"}],
            "",
        ),
        "method: mtp and a model whose last layer has a window": (
            ["mtp", {"model": "drafting"}],
            "",
        ),
        "a draft_model with windows or a state": (
            [{"speculative": {**DRAFTS, "method": "draft_model", "draft_model": WINDOWS}}],
            "",
        ),
        "a draft_model of other tokens": (
            [{"speculative": {**DRAFTS, "method": "draft_model", "draft_model": "qwen3-0.6b"}}],
            "",
        ),
    },
    "LoRA adapters (lora)": {
        "batching that does not follow an engine's rule": (
            ["lora", "static"],
            "scheduler.batching",
        ),
        "the rule of another engine than vLLM and SGLang": (
            ["lora", "no-evict"],
            "scheduler.policy",
        ),
        "an order but fcfs": (["lora", "sjf"], "scheduler.order"),
        "drafts (speculative)": (["lora", "eagle"], "speculative"),
        "pools of one phase": (["lora", "roles"], "fleet.0.role"),
        "data ranks": (["lora", "data-parallel"], "fleet.data_parallel"),
        "pipelines": (["lora", "pipeline"], "fleet.pipeline_parallel"),
        "memory in the host": (["lora", "swap"], "kv_cache.host_memory"),
        "several models in one fleet": (["lora", "two-models"], "fleet"),
    },
    "a policy that counts pages": {
        "memory without blocks": (["sglang", "contiguous"], "kv_cache.allocator"),
        "blocks of more tokens than an iteration takes": (
            ["sglang", {"kv_cache.block_size": 128}],
            "kv_cache.block_size",
        ),
    },
    "a policy of one's own that does not say so": {
        "pipelines": ([SILENT, "pipeline"], ""),
        "prefill pools": ([SILENT, "roles"], ""),
        "decode pools": (
            [{"fleet": [PROMPTS, {**ANSWERS, "scheduler": {"batching": "mine:Silent"}}]}],
            "",
        ),
        "failures": ([SILENT, OUTAGE], ""),
        "operators that let replicas fail": ([SILENT, {"steering": FAIL}], ""),
        "clients that give up": ([SILENT, GIVE_UP], ""),
        "requests taken back": ([{"scheduler.batching": "mine:Losing"}, GIVE_UP], ""),
        "autoscaling": ([SILENT, "autoscaled"], ""),
        "admission": ([SILENT, "shedding"], ""),
        "order: fair": ([SILENT, "fair"], ""),
        "drafts": ([SILENT, "eagle"], ""),
        "num_tokens_per_batch_size": (
            [{"scheduler.batching": "mine:Drafting"}, {"speculative": BY_BATCH}],
            "",
        ),
        "memory in the host": ([SILENT, "swap"], ""),
    },
    "a router of one's own that does not say so": {
        "weights of pools": ([{"router": "mine:Turns", "fleet": [ONE, {**TWO, "weight": 2}]}], ""),
    },
    "limits of a replica": {
        "max_model_len beyond what the model is made for": ([{"max_model_len": 10**6}], ""),
        "compressed rows by a release without kernels for them": (
            [
                {
                    "model": "deepseek-v4-flash",
                    "engine": "vllm@0.19",
                    "fleet": [{"gpu": "h200-sxm", "tensor_parallel": 8}],
                }
            ],
            "",
        ),
        "a cadence of prompts without data ranks": (
            [{"scheduler.prefill_schedule_interval": 2}],
            "",
        ),
        "a cadence of prompts with several batches in flight, or memory in the host": (
            ["pipeline", {"engine": "vllm@0.33", "scheduler.prefill_schedule_interval": 2}],
            "",
        ),
        "a cadence of prompts by another scheduler than vLLM's": (["cadence", "priority"], ""),
        "prompts that wait for company on data ranks": (["data-parallel", "prompts-wait"], ""),
        "ranks that wait for each other, of which there is one": (
            ["no-evict", {"scheduler.attention_dp_timeout_iters": 5}],
            "",
        ),
    },
    "models with a state": {
        "a policy that counts pages, and iterations smaller than the state": (
            ["mamba", "sglang", {"scheduler.max_num_batched_tokens": 16}],
            "",
        ),
    },
    "a prefix cache": {
        "memory without blocks": ([CACHING, "contiguous"], ""),
        "batching of whole batches": ([CACHING, "static"], ""),
        "the rule of another engine than vLLM and SGLang": ([CACHING, "no-evict"], ""),
        "prefix_policy of another engine": ([CACHING, {"kv_cache.prefix_policy": "radix"}], ""),
        "models with a state": ([CACHING, "mamba"], ""),
        "windows and SGLang's tree": ([CACHING, "windows", "sglang"], ""),
        "windows and drafts": ([CACHING, "windows", "eagle"], ""),
        "windows and pipelines": ([CACHING, "windows", "pipeline"], ""),
        "windows and an order that preempts by rank, or another policy": (
            [CACHING, "windows", "priority"],
            "",
        ),
    },
    "models with windows or a state": {
        "drafts and plans made ahead": (["windows", "async-drafts"], ""),
        "a state_ratio and no pool of states": (
            ["mamba", {"kv_cache.state_ratio": 0.5}],
            "",
        ),
        "windows and pools of one phase": (["windows", "roles"], ""),
        "a state and pools of one phase": (["mamba", "roles"], ""),
    },
    "memory in the host": {
        "memory without blocks": (["swap", "contiguous"], ""),
        "models with windows": (["swap", "windows"], ""),
        "models with a state": (["swap", "mamba"], ""),
        "data ranks": (["swap", "data-parallel"], ""),
        "pipelines": (["swap", "pipeline"], ""),
        "batching of whole batches": (["swap", "static"], ""),
        "the rule of another engine than vLLM": (["swap", "sglang"], ""),
        "plans made ahead": (["swap", "async"], ""),
        "an order that preempts by rank": (["swap", "priority"], ""),
    },
}
"""For each row, by what its chapter is about and with what: features and changes that it refuses,
and the key at which the scenario is blamed; "" where the refusal comes later, and names the key."""

ROWS = [(chapter.about, row) for chapter in ALL for row in chapter.rows]


def row_ids() -> list[str]:
    return [f"{about} + {row.other}" for about, row in ROWS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with parts of one's own, and a model behind windows that also drafts."""
    (tmp_path / "mine.py").write_text(OWN)
    model = json.loads((MODELS / "tiny-windows" / "config.json").read_text())
    model |= {"num_nextn_predict_layers": 1, "layer_types": ["sliding_attention"] * 6}
    (tmp_path / "drafting").mkdir()
    (tmp_path / "drafting" / "config.json").write_text(json.dumps(model))
    return tmp_path


def test_every_row_has_an_example_and_every_example_a_row() -> None:
    rows = [(about, row.other) for about, row in ROWS]
    assert len(set(rows)) == len(rows)
    assert set(rows) == {(about, other) for about, others in EXAMPLES.items() for other in others}


@pytest.mark.parametrize(("about", "row"), ROWS, ids=row_ids())
def test_a_row_refuses_its_example_at_its_key(
    about: str, row: Clash[Any], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, key = EXAMPLES[about][row.other]
    data = BASE
    for change in changes:
        data = changed(data, FEATURES[change] if isinstance(change, str) else change)
    text = yaml.safe_dump(data, sort_keys=False)
    (folder / "example.yaml").write_text(text)
    said: dict[int, str] = {}
    message = Clash.message

    def noted(row: Clash[Any], *subject: Any) -> str:
        said[id(row)] = message(row, *subject)
        return said[id(row)]

    monkeypatch.setattr(Clash, "message", noted)
    with pytest.raises(ScenarioError if key else UsageError) as refused:
        prepare(sim.load_scenario(folder / "example.yaml"))
    assert list(said) == [id(row)], said
    words = str(refused.value).split("\n")[0]
    if not key:
        assert words == f"{row.where[0]}: {said[id(row)]}"
        return
    steps = tuple(int(step) if step.isdigit() else step for step in key.split("."))
    place = parse(text, str(folder / "example.yaml")).values[steps]
    section = {"data ranks": "fleet.0: ", "sessions": "workload: "}.get(about, "")
    assert words == f"{place}: {section}{said[id(row)]}"


@pytest.mark.parametrize(("about", "row"), ROWS, ids=row_ids())
def test_the_keys_of_a_row_are_those_of_a_scenario(about: str, row: Clash[Any]) -> None:
    assert row.keys
    assert all(asked(key.removesuffix(".kind")) for key in row.keys)


def test_the_table_is_shown_in_88_columns() -> None:
    done = CliRunner().invoke(app, ["explain", "limits"])
    assert done.exit_code == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= 88
    shown = " ".join(done.stdout.split())
    assert "{" not in shown.replace("{min", "").replace("{name", "").replace("frozenset({", "")
    for row in json.loads(CliRunner().invoke(app, ["explain", "limits", "--json"]).stdout)[
        "limits"
    ]:
        assert f"with {row['with']} ({', '.join(row['keys'])})" in shown
        assert " ".join(row["why"].split()) in shown


@pytest.mark.parametrize("key", sorted({key for _, row in ROWS for key in row.keys}))
def test_every_key_of_the_table_shows_its_own_rows_in_full(key: str) -> None:
    done = CliRunner().invoke(app, ["explain", "limits", key, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["limits"]
    assert 0 < len(found) < len(ROWS)
    assert all(any(f".{key}." in f".{each}." for each in row["keys"]) for row in found)


def test_a_key_that_no_limit_is_about_is_refused_with_the_nearest() -> None:
    done = CliRunner().invoke(app, ["explain", "limits", "fleet.replica"])
    assert done.exit_code == 2
    assert "no limit is about 'fleet.replica' (did you mean 'fleet.replicas'?)" in done.stderr
    shown = CliRunner().invoke(app, ["explain", "limits", "replicas"]).stdout
    assert "fleet.replicas" in shown
    assert "; " in shown  # why, and what works instead


def test_json_has_one_entry_a_row() -> None:
    document = json.loads(CliRunner().invoke(app, ["explain", "limits", "--json"]).stdout)
    assert document["command"] == "explain limits"
    assert len(document["limits"]) == len(ROWS)
    row = next(r for r in document["limits"] if r["with"] == "a prefix cache in a decode pool")
    assert row == {
        "what": "pools of one phase",
        "with": "a prefix cache in a decode pool",
        "why": "a decode pool (NAME) takes all KV of a prompt over the link, so that no prefix "
        "cache is modelled for it",
        "hint": "enable it in the prefill pools alone (kv_cache of each pool)",
        "keys": ["fleet.kv_cache.enable_prefix_caching", "kv_cache.enable_prefix_caching"],
    }


def test_an_iteration_of_one_block_is_large_enough_for_a_policy_that_counts_pages() -> None:
    data = changed(changed(BASE, FEATURES["mamba"]), FEATURES["sglang"])
    with pytest.raises(UsageError, match="whole blocks") as refused:
        prepare(sim.load_scenario(data, {"scheduler.max_num_batched_tokens": 16}))
    found = re.search(r"give it ([\d,]+) or more", str(refused.value))
    assert found is not None
    least = int(found[1].replace(",", ""))
    prepare(sim.load_scenario(data, {"scheduler.max_num_batched_tokens": least}))


@pytest.mark.parametrize(("method", "least"), [("ngram", 30), ("draft_model", 40)])
def test_an_iteration_has_room_for_every_draft(method: str, least: int) -> None:
    """10 requests with 2 drafts each; a draft model takes a token more."""
    drafts = {"method": method, "num_tokens": 2, "acceptance_rate": 0.5}
    if method == "draft_model":
        drafts["draft_model"] = "llama-3.2-1b"
    scenario = {
        "model": "llama-3.1-8b",
        "fleet": {"gpu": "h100-sxm"},
        "workload": {
            "arrivals": {"kind": "burst"},
            "prompt_tokens": {"kind": "fixed", "value": 8},
            "output_tokens": {"kind": "fixed", "value": 8},
        },
        "speculative": drafts,
        "scheduler": {"max_num_seqs": 10, "max_num_batched_tokens": least},
    }
    sim.load_scenario(scenario)
    with pytest.raises(ScenarioError, match="its drafts included"):
        sim.load_scenario(scenario, {"scheduler.max_num_batched_tokens": least - 1})
