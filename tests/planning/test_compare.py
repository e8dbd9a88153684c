"""Comparisons: zero where nothing differs, intervals that cover, and what is best."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

import sim
from sim.cli import app
from sim.errors import UsageError
from sim.planning.answers import findings_of
from sim.planning.contrast import bound_words
from sim.planning.contrast.bound_words import why_layouts_differ
from sim.planning.contrast.compare import Comparison, traffic_digest
from sim.planning.contrast.compare_words import main_headline
from sim.planning.contrast.contrast import ContrastColumn, contrasts
from sim.planning.contrast.difference_words import change
from sim.planning.contrast.paired import bootstrap, difference
from sim.planning.contrast.runs import compare_runs
from sim.planning.points.executors import InProcess, local
from sim.planning.points.grid import read_axes
from sim.planning.points.wording import spoken
from sim.rng import repetition_seed
from sim.terminal.console import as_text
from sim.terminal.findings import command_view
from tests.answers import compare_view, headlines, render_compare
from tests.planning_fixtures import SMALL, small
from tests.played import mean_ttfts

BATCHING = "scheduler.batching=static,request,continuous"


pytestmark = pytest.mark.usefixtures("place")


def compared(*varied: str, repetitions: int = 3, **changes: object) -> dict[str, Any]:
    asked = Comparison(small(**changes), tuple(read_axes(varied, "--vary")), repetitions)
    return asked.run(InProcess())


def figure(document: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = next(entry for entry in document["figures"] if entry["key"] == key)
    return found


def infersim(*arguments: str, code: int = 0) -> Result:
    done = CliRunner().invoke(app, ["compare", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done


# ---- variants of a scenario -----------------------------------------------------------------


@pytest.mark.parametrize("policy", ["static", "request"])
def test_the_sentence_says_what_iterations_decode_and_how_long_they_take(policy: str) -> None:
    busy = {"workload__arrivals__rate": 200, "scheduler__max_num_seqs": 16}
    found = compared(f"scheduler.batching={policy},continuous", repetitions=1, **busy)
    *before, said = headlines(found)
    asked = r"On average an iteration .*: (.*) of .* in .* \((.*)\), ([\d.]+) in .* \("
    told = re.match(asked, said)
    assert told is not None, said
    assert told[2] == policy
    assert float(told[1]) < float(told[3])  # of which sequences hold a place that have ended
    assert "A batch served whole waits for its longest answer" in said
    assert not any("longest answer" in line for line in before)


def test_the_terminal_says_why_continuous_batching_has_a_longer_tpot() -> None:
    """Prefills between its steps; the page also that its batches are fuller."""
    busy = {"workload__arrivals__rate": 200, "scheduler__max_num_seqs": 16}
    found = compared("scheduler.batching=request,continuous", repetitions=2, **busy)
    (why,) = found["tpot"]
    assert why["text"].startswith("TPOT of continuous is ")
    assert "fuller: " in why["text"]
    assert "fuller: " not in why["brief"]
    first = as_text(command_view("compare", found, full=False))
    assert why["brief"] in " ".join(first.split())
    assert "prefills join between decode steps: " in why["brief"]
    assert " requests decode at once instead of " in render_compare(found)
    assert compared("engine=vllm,sglang", repetitions=1, run__requests=40)["tpot"] == []


def test_every_variant_has_its_iterations_if_one_pads() -> None:
    busy = {"workload__arrivals__rate": 200, "scheduler__max_num_seqs": 16, "run__requests": 60}
    found = compared("scheduler.batching=static,request,continuous", repetitions=2, **busy)
    said = " ".join(headlines(found))
    assert said.count("longest answer") == 1
    assert said.index(" ms (static)") < said.index(" ms (request)") < said.index(" ms (continuous)")
    same = " ".join(headlines(compared("scheduler.max_num_seqs=4,8", run__requests=60)))
    assert "an iteration decodes" not in same


def test_identical_variants_do_not_differ_at_all() -> None:
    # more seats than there are requests: the same schedule
    found = compared("scheduler.max_num_seqs=100,200,128", run__requests=60)
    assert found["same_traffic"]
    for entry in found["figures"]:
        assert len(set(entry["means"])) == 1, entry["key"]
        for apart in entry["differences"][1:]:
            assert (apart["mean"], apart["low"], apart["high"]) == (0.0, 0.0, 0.0)
            assert apart["relative"] in (0.0, None)
            assert not apart["certain"]
        assert entry["best"] == []


def test_fleets_of_other_numbers_show_what_they_cost_and_hold() -> None:
    """However little their costs differ."""
    found = compared("fleet.replicas=2,3", repetitions=2, run__requests=40)
    assert figure(found, "replicas_held")["means"] == [2.0, 3.0]
    shown = as_text(compare_view(found))
    assert "Replicas" in shown
    assert "USD" in shown
    alike = compared("scheduler.max_num_seqs=4,8", repetitions=2, run__requests=40)
    assert all(entry["key"] != "replicas_held" for entry in alike["figures"])
    assert "Replicas" not in as_text(compare_view(alike))
    assert "Replicas held" in render_compare(found)


def test_every_percentile_that_has_a_limit_is_a_column(tmp_path: Path) -> None:
    limits = {"ttft_p90": "1s", "ttft_p50": "1s", "e2el_p95": "9s"}
    asked, rates = small(slo=SMALL["slo"] | limits), {"workload.arrivals.rate": [10, 20]}
    titles = {"TTFT p50", "TTFT p90", "TTFT p99", "E2EL p95"}
    for found in (
        sim.compare(asked, rates, repetitions=1, jobs=1),
        sim.sweep(asked, rates, jobs=1),
    ):
        page = found.report(tmp_path / f"{found['command']}.html").read_text(encoding="utf-8")
        assert titles <= set(re.findall(r"TTFT p\d\d|E2EL p\d\d", page)), found["command"]
        heads = " ".join(line for line in str(found).splitlines() if "TTFT" in line)
        assert heads.count("TTFT") >= 3, heads


@pytest.mark.parametrize(
    ("slo", "asked"), [({"ttft_p95": "1s"}, "p95"), ({"attainment": 0.97}, "p97")]
)
def test_the_percentile_of_the_slo_is_shown_and_ranked_by(slo: dict[str, Any], asked: str) -> None:
    limits = {"ttft": None, "tpot": None, **slo} if asked == "p95" else {"ttft": "1s", **slo}
    found = compared("fleet.replicas=1,2", repetitions=2, slo=limits, run__requests=800)
    entry = figure(found, f"{asked}_ttft_ms")
    assert (entry["title"], found["latencies"]["ttft"]) == (f"TTFT {asked}", entry["key"])
    assert figure(found, "p99_ttft_ms")["means"] != entry["means"]
    assert any(f"TTFT {asked}" in text for text in headlines(found))
    shown = as_text(compare_view(found))
    assert f"TTFT {asked}" in shown
    assert "TTFT p99" not in shown


def test_prefix_hits_are_shown_where_they_differ() -> None:
    """Of sessions only one variant keeps the texts; with more slots no more are kept."""
    sessions = {"turns": {"kind": "fixed", "value": 4}}
    changes = {"workload__sessions": sessions, "run__requests": 80}
    cached = "kv_cache.enable_prefix_caching"
    found = compared(f"{cached}=true,false", repetitions=1, **changes)
    assert max(filter(None, figure(found, "prefix_cache.hit_rate")["means"])) > 0.3
    assert "hits" in as_text(compare_view(found))
    alike = compared("scheduler.max_num_seqs=100,200", repetitions=1,
                     **changes, kv_cache__enable_prefix_caching=True)  # fmt: skip
    assert "hits" not in as_text(compare_view(alike))


def test_a_target_that_policies_read_in_their_own_way_is_named() -> None:
    scaled = {"policy": "hpa", "target": 4, "cold_start": "1s"}
    asked = Comparison(
        small(fleet__replicas={"min": 1, "max": 2}, autoscaling=scaled, run__requests=40),
        tuple(read_axes(["autoscaling.policy=hpa,slo,saturation"], "--vary")),
        1,
    )
    found = asked.run(InProcess())
    told = "hpa: 4 waiting requests a replica; slo: 4 requests/s a replica"
    assert any(told in note for note in found["notes"])
    assert "autoscaling.policy saturation does not heed target." in found["notes"]
    assert "Replicas" in as_text(compare_view(found))


def test_a_difference_is_that_of_runs_under_the_same_seeds() -> None:
    found = compared("scheduler.max_num_seqs=2,8", repetitions=4)
    values = {}
    for seats in (2, 8):
        seeds = [repetition_seed(42, number) for number in range(4)]
        runs = [sim.simulate(small(scheduler__max_num_seqs=seats, seed=seed)) for seed in seeds]
        values[seats] = np.array([run.summary["mean_ttft_ms"] for run in runs])
    entry = figure(found, "mean_ttft_ms")
    assert entry["means"] == pytest.approx([values[2].mean(), values[8].mean()], rel=1e-12)
    apart = values[8] - values[2]
    half = 3.182446 * apart.std(ddof=1) / 2  # t of 3 degrees of freedom, over the root of 4
    first = entry["differences"][1]
    assert entry["differences"][0] is None
    assert first["mean"] == pytest.approx(apart.mean(), rel=1e-12)
    assert first["high"] - first["low"] == pytest.approx(2 * half, rel=1e-5)
    assert first["pairs"] == 4
    assert found["variants"][0]["values"]["mean_ttft_ms"] == pytest.approx(list(values[2]))
    assert entry["best"] == [1]


def test_a_difference_says_how_sure_it_is_and_what_is_shared() -> None:
    """One slot or eight is a multiple whatever the error; one GPU or another a few percent."""
    closed = {"kind": "closed", "concurrency": 8}
    found = compared("scheduler.max_num_seqs=1,8", repetitions=3, workload__arrivals=closed)
    apart = figure(found, "mean_ttft_ms")["differences"][1]
    assert apart["trust"] == "sure"
    low, high = apart["band90"]
    assert 0 <= low < apart["band50"][0] < 1 + apart["relative"] < apart["band50"][1] < (high or 9)
    assert (high or 9) < 1
    assert found["variants"][1]["errors"]["own"] == []
    assert "That is sure" in " ".join(headlines(found))
    assert "These runs differ by more than chance does." in " ".join(headlines(found))
    assert "Errors that both share cancel in part" in " ".join(as_text(compare_view(found)).split())
    gpus = compared("fleet.0.gpu=h100-sxm,h200-sxm", repetitions=3)
    own = gpus["variants"][1]["errors"]["own"]
    assert {"GPU", "this deployment"} <= set(own)
    assert "engine" not in own
    assert all(figure(gpus, k)["differences"][1]["trust"] for k in ("mean_ttft_ms", "p99_tpot_ms"))
    assert figure(gpus, "verdict.attainment")["differences"][1]["trust"] is None
    assert "those of each alone do not: GPU" in render_compare(gpus)


def test_where_it_is_simulated_does_not_matter() -> None:
    asked = Comparison(small(), tuple(read_axes([BATCHING], "--vary")), 2)
    assert asked.run(local(2)) == asked.run(InProcess())


def test_the_traffic_is_the_same_unless_it_is_varied() -> None:
    assert compared(BATCHING, repetitions=1)["same_traffic"]
    found = compared("workload.arrivals.rate=10,20", repetitions=1)
    assert not found["same_traffic"]
    assert "The traffic differs" in found["notes"][0]
    assert traffic_digest(small()) == traffic_digest(small(fleet__0__gpu="l40s"))
    assert traffic_digest(small()) != traffic_digest(small(seed=43))
    closed = {"kind": "closed", "concurrency": 4}
    users = small(workload__arrivals=closed)
    assert traffic_digest(users) != traffic_digest(
        small(workload__arrivals={**closed, "concurrency": 5})
    )


def test_what_is_not_random_is_played_once() -> None:
    fixed = {"kind": "fixed", "value": 20}
    found = compared(
        BATCHING,
        repetitions=7,
        workload__arrivals={"kind": "constant", "rate": 10},
        workload__prompt_tokens=fixed,
        workload__output_tokens=fixed,
    )
    assert len(found["seeds"]) == 1
    assert "nothing" in found["notes"][0].lower()
    assert "Predicted iteration times are good to about" in found["notes"][0]
    assert "exact" not in found["notes"][0]
    assert figure(found, "mean_ttft_ms")["differences"][1]["low"] is None


def test_one_run_of_a_trace_is_called_a_sample(tmp_path: Path) -> None:
    rows = [f"{second / 2},20,10" for second in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    trace = {"path": str(tmp_path / "t.csv"), "format": "csv"}
    scenario = {**SMALL, "workload": {"trace": trace}}
    axes = tuple(read_axes(["scheduler.max_num_seqs=2,8"], "--vary"))
    found = Comparison(sim.load_scenario(scenario), axes, 3).run(InProcess())
    assert "a trace is itself one sample" in found["notes"][0]
    assert "no intervals" in found["notes"][0]


def test_what_differs_by_next_to_nothing_has_no_winner(tmp_path: Path) -> None:
    rows = [f"{second / 2},20,10" for second in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]))
    trace = {"path": str(tmp_path / "t.csv"), "format": "csv"}
    scenario = sim.load_scenario({**SMALL, "workload": {"trace": trace}})
    axes = tuple(read_axes(["engine=vllm,sglang,ideal"], "--vary"))
    found = Comparison(scenario, axes, 3).run(InProcess())
    means = figure(found, "request_goodput")["means"]
    assert 1 < max(means) / min(means) < 1.005
    told = [line for line in headlines(found) if "oodput" in line]
    assert told == [f"Goodput: the same within 0.5%, about {max(means):.3g} requests/s."]
    assert any("has the lowest TTFT p99" in line for line in headlines(found))


def test_a_value_that_all_share_is_in_no_label() -> None:
    found = compared("engine=vllm", "scheduler.max_num_seqs=2,8", repetitions=1)
    assert [variant["label"] for variant in found["variants"]] == ["2", "8"]
    assert [axis["name"] for axis in found["axes"]] == ["engine", "max_num_seqs"]


def test_variants_that_are_mappings_are_named_by_what_differs() -> None:
    gpu = "gpu: h100-sxm, replicas: 2"
    varied = "fleet={%s, tensor_parallel: 2},{%s, pipeline_parallel: 2, price_per_gpu_hour: 3}"
    found = compared(varied % (gpu, gpu), repetitions=1, run__requests=40)
    names = ["TP 2", "PP 2 price_per_gpu_hour: 3"]
    assert [variant["label"] for variant in found["variants"]] == names
    assert found["variants"][0]["settings"]["fleet"]["replicas"] == 2
    first = " ".join(as_text(compare_view(found)).split())
    assert "TP 2 has the lowest" in first
    assert "fleet TP 2" not in first
    assert first.count(f"TP 2: {{{gpu}, tensor_parallel: 2}}") == 1
    assert render_compare(found).count("tensor_parallel: 2}") == 1


def test_each_variant_is_compared_with_the_best_one() -> None:
    found = compared("scheduler.max_num_seqs=2,8,64", repetitions=3)
    entry = figure(found, "mean_ttft_ms")
    first = entry["first"]
    assert entry["means"][first] == min(entry["means"])
    assert entry["to_first"][first] is None
    for index, apart in enumerate(entry["to_first"]):
        assert apart is None or (not apart["certain"]) == (index in entry["best"])


def test_large_differences_are_multiples() -> None:
    shown = as_text(compare_view(compared("scheduler.max_num_seqs=1,64", repetitions=3)))
    assert "%" in shown
    found = change({"mean": 8.0, "relative": 8.88, "relative_half_width": None})
    assert found == "9.88x"


def test_a_variant_that_fails_is_told_and_the_rest_compared() -> None:
    found = compared("model=llama-3.1-70b,llama-3.1-8b,llama-3.2-1b", repetitions=2)
    assert found["base"] == 1
    assert [variant["exit_code"] for variant in found["variants"]] == [3, 0, 0]
    assert "does not fit" in found["variants"][0]["error"]
    entry = figure(found, "mean_tpot_ms")
    assert entry["means"][0] is None
    assert entry["differences"][:2] == [None, None]
    assert entry["differences"][2]["mean"] < 0
    assert entry["best"] == [2]


@pytest.mark.parametrize(
    ("varied", "says"),
    [
        ([], "nothing is varied"),
        (["seed=1,2"], "sets it itself"),
        (["run.repetitions=1,2"], "sets it itself"),
        (["engine=vllm"], "one variant only"),
        (["scheduler.batchin=static,request"], "did you mean"),
    ],
)
def test_what_is_no_comparison(varied: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Comparison(small(), tuple(read_axes(varied, "--vary")), 2)


def test_values_that_only_exclude_each_other_are_rows_with_their_reason() -> None:
    varied = ["scheduler.max_num_seqs=64,512", "scheduler.max_num_batched_tokens=256,8192"]
    asked = Comparison(small(), tuple(read_axes(varied, "--vary")), 1)
    found = asked.run(InProcess())
    assert [variant["exit_code"] for variant in found["variants"]] == [0, 0, 2, 0]
    assert "less than max_num_seqs" in found["variants"][2]["error"]


def test_all_mistakes_are_named_at_once() -> None:
    varied = ["engine=vllm,vlm,sglan", "fleet.0.gpu=h100-sxm,b20"]
    with pytest.raises(UsageError) as caught:
        Comparison(small(), tuple(read_axes(varied, "--vary")), 1)
    for wrong in ("engine=vlm", "engine=sglan", "fleet.0.gpu=b20"):
        assert f"{wrong}: no " in str(caught.value)


def test_at_least_one_repetition() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        Comparison(small(), tuple(read_axes(["engine=vllm,sglang"], "--vary")), 0)


# ---- how sure -------------------------------------------------------------------------------


def test_intervals_of_simulated_differences_cover_at_their_rate() -> None:
    groups, each = 40, 5
    scenario = small(run__requests=30, workload__arrivals={"kind": "poisson", "rate": 60})
    seeds = range(groups * each)
    found = {
        seats: mean_ttfts(scenario.override({"scheduler.max_num_seqs": seats}), seeds)
        for seats in (3, 8)
    }
    truth = float(np.mean(np.subtract(found[8], found[3])))
    covered = alone = 0
    for start in range(0, groups * each, each):
        values, bases = (found[seats][start : start + each] for seats in (8, 3))
        paired = difference(values, bases)
        assert paired.low is not None
        assert paired.high is not None
        covered += paired.low <= truth <= paired.high
        unpaired = difference(values, bases[1:] + bases[:1])  # traffic of another seed
        assert unpaired.low is not None
        assert unpaired.high is not None
        alone += paired.high - paired.low < unpaired.high - unpaired.low
    assert 0.87 * groups <= covered <= groups  # 95 %, and what chance makes of 40 of them
    assert alone > 0.5 * groups  # the same traffic makes differences surer


@pytest.mark.parametrize(("each", "tolerance"), [(2, 0.01), (5, 0.01), (20, 0.01)])
def test_intervals_cover_at_their_rate(each: int, tolerance: float) -> None:
    random = np.random.default_rng(7)
    hits = relative = 0
    draws = 4000
    for _ in range(draws):
        bases = random.normal(100, 10, each)
        values = bases * 1.2 + random.normal(0, 3, each)
        found = difference(values.tolist(), bases.tolist())
        assert found.low is not None
        assert found.high is not None
        assert found.relative is not None
        assert found.relative_half_width is not None
        hits += found.low <= 20 <= found.high
        relative += abs(found.relative - 0.2) <= found.relative_half_width
    assert hits / draws == pytest.approx(0.95, abs=tolerance)
    assert relative / draws == pytest.approx(0.95, abs=tolerance)


def test_pairs_that_are_not_defined_do_not_count() -> None:
    found = difference([1.0, None, 3.0], [None, 2.0, 1.0])
    assert (found.mean, found.low, found.pairs, found.relative) == (2.0, None, 1, 2.0)
    none = difference([None], [1.0])
    assert (none.mean, none.certain, none.pairs) == (None, False, 0)
    assert difference([1.0, 2.0], [0.0, 0.0]).relative is None


@pytest.mark.slow
@pytest.mark.parametrize("rank", [None, 90.0])
def test_the_bootstrap_covers_at_its_rate(rank: float | None) -> None:
    random = np.random.default_rng(11)
    draws, hits = 80, 0
    wide = random.gamma(2.0, 1.0, 400_000)
    truth = 0.5 * (wide.mean() if rank is None else np.percentile(wide, rank))
    for _ in range(draws):
        bases = random.gamma(2.0, 1.0, 200)
        found = bootstrap(1.5 * bases, bases, rank)
        assert found.low is not None
        assert found.high is not None
        assert found.relative == pytest.approx(0.5)
        hits += found.low <= truth <= found.high
    assert 0.86 <= hits / draws <= 1


def test_neighbours_that_share_a_fate_make_the_bootstrap_unsure() -> None:
    random = np.random.default_rng(3)
    luck = np.repeat(random.normal(0, 1, 40), 25)  # of 25 requests in a row
    bases = np.full(1000, 10.0)
    together, apart = (
        bootstrap(bases + 1 + x, bases, None) for x in (luck, random.permutation(luck))
    )
    assert together.mean == pytest.approx(apart.mean)
    widths = [(each.high or 0) - (each.low or 0) for each in (together, apart)]
    assert widths[0] > 2.5 * widths[1]


def test_best_are_those_that_cannot_be_told_from_the_best() -> None:
    def column(label: str, values: list[float]) -> ContrastColumn:
        return ContrastColumn(label, {}, {"mean_ttft_ms": values}, None, 0, ("stable",))

    noise = [0.0, 1.0, -1.0, 0.5]
    columns = [
        column("slow", [20 + x for x in noise]),
        column("fast", [10 + x for x in noise]),
        column("as fast", [10.1 - x for x in noise]),
    ]
    assert contrasts(columns)["figures"][0]["best"] == [1, 2]
    assert contrasts(columns[:2])["figures"][0]["best"] == [1]
    assert contrasts(columns[1:])["figures"][0]["best"] == []
    failed = ContrastColumn("failed", {}, {}, "no", 3, ())
    assert contrasts([failed, failed])["figures"] == []
    assert contrasts([failed, failed])["base"] is None


# ---- run directories ------------------------------------------------------------------------


def saved(name: str, **changes: object) -> Path:
    return sim.simulate(small(**changes)).save(Path(name))


def test_a_run_does_not_differ_from_itself() -> None:
    path = saved("a")
    found = compare_runs([path, path])
    assert found["paired_by"] == "request"
    for entry in found["figures"]:
        apart = entry["differences"][1]
        assert apart["mean"] == 0
        assert apart["low"] in (0, None)
        assert apart["relative_half_width"] in (0, None)


def test_runs_of_the_same_traffic_are_paired_request_by_request() -> None:
    one, other = saved("a", scheduler__max_num_seqs=2), saved("b", scheduler__max_num_seqs=4)
    found = compare_runs([one, other])
    assert (found["paired_by"], found["same_traffic"]) == ("request", True)
    assert "bootstrap" in found["pairing"]
    tables = [pd.read_parquet(path / "requests.parquet") for path in (one, other)]
    counted = ~tables[0]["warmup"] & ~tables[1]["warmup"]
    apart = 1e3 * (tables[1]["ttft_s"] - tables[0]["ttft_s"])[counted]
    entry = figure(found, "mean_ttft_ms")["differences"][1]
    assert entry["mean"] == pytest.approx(apart.mean())
    assert entry["pairs"] == counted.sum()
    assert entry["low"] < entry["mean"] < entry["high"]
    assert figure(found, "output_throughput")["differences"][1]["low"] is None
    assert [variant["label"] for variant in found["variants"]] == ["a", "b"]


def test_runs_with_repetitions_are_paired_by_their_seeds() -> None:
    changes = {"run__repetitions": 3, "run__requests": 40}
    one = saved("a", scheduler__max_num_seqs=2, **changes)
    other = saved("b", scheduler__max_num_seqs=8, **changes)
    found = compare_runs([one, other])
    again = compared("scheduler.max_num_seqs=2,8", repetitions=3, run__requests=40)
    assert found["paired_by"] == "repetition"
    assert found["seeds"] == again["seeds"]
    for key in ("mean_ttft_ms", "p99_e2el_ms", "output_throughput"):
        mine, theirs = figure(found, key), figure(again, key)
        paired = ("mean", "low", "high", "relative", "relative_half_width", "pairs", "certain")
        apart, other_way = mine["differences"][1], theirs["differences"][1]
        assert [apart[k] for k in paired] == pytest.approx([other_way[k] for k in paired])
        assert apart["trust"] is None  # these runs were saved without their bands
        assert other_way["trust"]


def test_runs_of_other_traffic_have_no_intervals() -> None:
    found = compare_runs([saved("a"), saved("b", seed=7)])
    assert (found["paired_by"], found["same_traffic"]) == (None, False)
    assert found["notes"][0] == "The runs did not meet the same traffic."
    assert found["notes"][-1].startswith("How sure")
    assert figure(found, "mean_ttft_ms")["differences"][1]["low"] is None


def test_closed_loops_meet_the_same_requests_at_other_times() -> None:
    closed = {"workload__arrivals": {"kind": "closed", "concurrency": 4}}
    found = compare_runs([saved("a", **closed), saved("b", scheduler__max_num_seqs=1, **closed)])
    assert found["paired_by"] == "request"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("summary.json", "{", "summary.json:1:2: is not valid JSON"),
        ("summary.json", '{"infersim": {}}', "infersim.verdict: expected a mapping, found nothing"),
        ("manifest.json", None, "manifest.json is missing"),
        ("requests.parquet", "no table", "cannot be read as a Parquet table"),
        ("repetitions.csv", "a,b\n1,2\n", "seed: expected a whole number in each row"),
    ],
)
def test_what_is_no_run(name: str, content: str | None, says: str) -> None:
    path = saved("a")
    if content is None:
        (path / name).unlink()
    else:
        (path / name).write_text(content)
    with pytest.raises(UsageError, match=says):
        compare_runs([path, path])


def test_a_table_without_a_column() -> None:
    path = saved("a")
    table = pd.read_parquet(path / "requests.parquet").drop(columns="warmup")
    table.to_parquet(path / "requests.parquet")
    with pytest.raises(UsageError, match="has no column warmup"):
        compare_runs([path, path])


# ---- the command ----------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    done = infersim(
        *("one.yaml", "--vary", BATCHING, "--vary", "scheduler.max_num_seqs=4,64"),
        *("--repetitions", "2", "--jobs", "1", "-o", "it"),
    )
    assert max(map(len, done.stdout.splitlines())) <= 88
    assert "Compared: 6" in done.stdout
    assert "2 runs of each variant under the same seeds" in " ".join(done.stdout.split())
    found = json.loads((tmp_path / "it/result.json").read_text())
    assert [variant["settings"]["scheduler.batching"] for variant in found["variants"]] == [
        *("static", "static", "request", "request", "continuous", "continuous")
    ]
    page = (tmp_path / "it/report.html").read_text()
    assert "★" in page
    assert 'id="spec-difference-p99_ttft_ms"' in page


def test_the_best_is_marked() -> None:
    lines = as_text(compare_view(compared("scheduler.max_num_seqs=1,64", repetitions=4)))
    slow, fast = (
        [line for line in lines.splitlines() if line.startswith(f"{n} ")] for n in (1, 64)
    )
    assert "".join(slow).count("* ") == 2  # alone in the batch, each token comes sooner: TPOT, ITL
    assert "".join(fast).count("* ") == 7


def test_the_command_for_runs() -> None:
    saved("a")
    saved("b", engine="sglang")
    done = json.loads(infersim("a", "b", "--json", "--no-report").stdout)
    assert done["paired_by"] == "request"
    assert done["page"] is None
    assert Path(done["directory"], "result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["one.yaml"], 2, "nothing is varied"),
        (["one.yaml", "two.yaml", "--no-report"], 2, "one.yaml: is no run directory"),
        (["one.yaml", "one.yaml"], 2, 'infersim compare one.yaml --vary "fleet={gpu: h100-sxm, '),
        (["one.yaml", "--sweep", "engine={a: 1}"], 2, "here: --vary 'engine={a: 1}'"),
        (["one.yaml", "--vary", "engine"], 2, "--vary engine: is KEY=VALUES"),
        (
            ["one.yaml", "--vary", "scheduler.batching=continuous,contnous", "--jobs", "1"],
            2,
            "'contnous' is none of static, request, continuous, or a class of your own as "
            "package.module:Class (did you mean 'continuous'?)",
        ),
        (
            ["one.yaml", "--vary", "model=llama-3.2-1b,llama-3.1-8", "--jobs", "1"],
            2,
            "did you mean 'llama-3.1-8b'",
        ),
        (
            ["one.yaml", "--vary", "scheduler.order=fcfs,no.such:P", "--jobs", "1"],
            2,
            "no.such:P' cannot be imported",
        ),
        (
            ["one.yaml", "--vary", "fleet.0.tensor_parallel=1,3", "--jobs", "1"],
            2,
            "3 GPUs cannot share the 32 attention heads",
        ),
        (["one.yaml", "--vary", "engine=vllm,foo", "--repetitions", "0"], 2, "at least 1"),
        (["one.yaml", "--vary", "max_model_len=3,4", "--jobs", "1", "-o", "."], 2, "not empty"),
        (["."], 2, "one run alone"),
        ([".", ".", "--vary", "engine=vllm,sglang"], 2, "as they are"),
        ([".", "."], 2, "is no complete run directory (manifest.json is missing)"),
    ],
)
def test_bad_requests(arguments: list[str], code: int, says: str, tmp_path: Path) -> None:
    done = infersim(*arguments, code=code)
    assert says in done.stderr
    assert done.stderr.count("error:") == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"one.yaml"}


def test_nothing_that_fits() -> None:
    arguments = ("--vary", "fleet.0.gpu=h100-sxm,l4", "--set", "model=llama-3.1-70b")
    done = infersim("one.yaml", *arguments, "--jobs", "1", "-o", "it", code=3)
    assert "all variants failed" in done.stderr
    assert done.stdout.count("Failures: ") == 2


def test_the_page_says_what_was_changed_in_the_file_and_on_which_gpu() -> None:
    varied = ("--vary", "scheduler.max_num_seqs=4,8", "--repetitions", "1", "--jobs", "1")
    infersim("one.yaml", "--set", "run.requests=40", *varied, "-o", "it")
    page = Path("it/report.html").read_text("utf-8")
    assert "Changed in the scenario file: run.requests: 60 \u2192 40" in page
    gpu = SMALL["fleet"]["gpu"]
    assert f"1 \u00d7 {gpu}, comparison" in page
    other = compared("fleet.gpu=l40s,h100-sxm", repetitions=1)
    assert other["hardware"] == ""
    assert "GPUs</dt>" not in render_compare(other)


def test_what_a_study_varies_is_no_change() -> None:
    varied = ("--vary", "run.requests=50,70", "--repetitions", "1", "--jobs", "1", "--no-report")
    done = infersim("one.yaml", "--set", "run.requests=40", *varied, "-o", "it", "--json")
    assert json.loads(done.stdout)["asked"]["changes"] == []


def test_one_of_two_differs_as_surely_as_the_other() -> None:
    """Five times 3 to 29 times as long: most of the spread is that of the longer ones."""
    long, short = [2.0, 20.0, 9.0, 4.0, 3.0], [0.6, 0.7, 0.65, 0.62, 0.7]
    assert difference(long, short).certain
    assert difference(short, long).certain
    assert not difference(long, [3.0, 4.0, 9.5, 20.0, 2.0]).certain


def test_a_comparison_of_layouts_says_why_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the parts of an iteration that differ most; not where the layout is the same."""
    document = compared("fleet.0.tensor_parallel=1,4", repetitions=2)

    def runs_of(size: int) -> list[dict[str, Any]]:
        layout = {"fleet__0__tensor_parallel": size}
        return [
            sim.simulate(small(**layout, seed=seed)).summary["infersim"]
            for seed in document["seeds"]
        ]

    runs = [runs_of(size)[0] for size in (1, 4)]
    bounds = [each["bounds"] for each in document["variants"]]
    assert [b["weights_bytes"] for b in bounds] == [r["memory"]["weights_bytes"] for r in runs]
    assert [b["kv_tokens"] for b in bounds] == [r["kv_cache"]["tokens"] for r in runs]
    assert bounds[0]["bound_by"]["communication"] == 0 < bounds[1]["bound_by"]["communication"]
    spent = [bound["iteration_ms"] for bound in bounds]
    assert sum(spent[1].values()) == pytest.approx(
        np.mean([v["batch"]["mean_iteration_ms"] for v in runs_of(4)])
    )
    less = spent[0]["weights"] - spent[1]["weights"]
    assert less > 0 == spent[0]["communication"]
    (why,) = why_layouts_differ(document)
    assert why.startswith("Why tensor_parallel=4 has the lowest TPOT p99: its iterations")
    assert f"{less:.2g} ms less for reading weights" in why
    assert spoken(why) in " ".join(as_text(compare_view(document)).split())
    assert "Bound by" in render_compare(document)
    alike = compared("scheduler.max_num_seqs=1,64", repetitions=2)
    assert why_layouts_differ(alike) == []
    more = compared("fleet.0.tensor_parallel=1,2,4,8", repetitions=1)
    monkeypatch.setattr(bound_words, "FEW", 2)
    (second,) = why_layouts_differ(more)  # of three others the second best alone
    assert " Against tensor_parallel=" in second
    assert "tensor_parallel=1 " not in second


def test_replicas_have_room_in_every_cache() -> None:
    document = compared("fleet.0.replicas=1,3", repetitions=2)
    one, three = (each["bounds"]["kv_tokens"] for each in document["variants"])
    assert three == 3 * one


def test_how_sure_the_best_is_stands_apart_from_the_headline() -> None:
    """The terminal has both in a line, the page the headline alone, whatever words it has."""
    document = compared(BATCHING)
    first, _ = main_headline(document)
    assert first.sure
    assert first.sure not in first.text
    shown = findings_of("compare", document).headline
    assert (shown.title, bool(shown.sure)) == (spoken(first.text), True)
    on_page = render_compare(document)
    start = on_page.index('class="headline-title">')
    assert "That " not in on_page[start : on_page.index("</p>", start)]
    assert shown.sure[:30] in as_text(compare_view(document)).replace("\n", " ")
