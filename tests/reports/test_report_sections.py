"""The sections of a run's report hold the right numbers: parts add up, and agree with the run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sim
from reports.figures import (
    histogram,
    latency_cdf,
    latency_parts,
    memory_use,
    operator_work,
    slo_bars,
)
from reports.figures.charts import SHAPES
from reports.figures.latency_parts import EDGES, PARTS, TITLES, bands
from reports.figures.memory_use import gpu_memory as in_memory
from reports.figures.steps import (
    fleet_steps,
    happened,
    nice_width,
    per_iteration,
    rate,
    replica_count,
)
from reports.frame.formats import phrase
from reports.frame.run_directory import SavedRun
from reports.pages.run import machine, response, slo, traffic
from reports.pages.run.missing import OLDER
from sim.metrics.latency.latency_parts import PARTS as ALL_PARTS
from sim.metrics.latency.latency_parts import TTFT_PARTS
from sim.metrics.terms.definitions import bound_name
from tests.report_fixtures import KV_TOKENS, make_run, plan_frame
from tests.reports.test_report import FIGURES, MANY, Reader, render

SCENARIO = {
    "name": "sections",
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm", "replicas": 2},
    "max_model_len": 2048,
    "kv_cache": {"num_gpu_blocks": 500},
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 60},
        "prompt_tokens": {"kind": "uniform", "low": 50, "high": 900},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 200},
    },
    "slo": {"ttft": "150ms", "tpot": "12ms", "attainment": 0.9},
    "run": {"requests": 400, "warmup": 20},
}


@pytest.fixture(scope="module")
def run() -> SavedRun:
    """A run in which requests wait, share iterations and are preempted."""
    result = sim.simulate(sim.load_scenario(SCENARIO))
    assert result.summary["infersim"]["preemptions"] > 0
    return SavedRun(
        summary=result.summary,
        requests=result.requests,
        timeseries=result.timeseries,
        scenario_yaml=result.scenario.to_yaml(),
        charts=result.charts,
    )


def own(run: SavedRun) -> Any:
    return run.summary["infersim"]


def without(run: SavedRun, *names: str) -> SavedRun:
    """The same run as an older version would have left it, without entries of the summary."""
    kept = {key: value for key, value in own(run).items() if key not in names}
    return dataclasses.replace(run, summary={**run.summary, "infersim": kept})


# ---- where latency goes --------------------------------------------------------------------------


def test_the_parts_are_those_that_the_simulator_writes() -> None:
    assert PARTS["ttft"] == TTFT_PARTS
    assert PARTS["e2el"] == ALL_PARTS
    assert set(TITLES) == set(ALL_PARTS)


@pytest.mark.parametrize("of", ["ttft", "e2el"])
def test_parts_add_up_to_the_latency_in_every_band(run: SavedRun, of: Any) -> None:
    found = bands(run.requests, of)
    assert found is not None
    np.testing.assert_allclose(sum(found.parts.values()), found.whole, rtol=1e-12)
    assert (np.diff(found.whole) > 0).all()
    done = run.requests[(run.requests["status"] == "completed") & ~run.requests["warmup"]]
    values = np.sort(done[f"{of}_s"])
    assert sum(found.counts) == len(values)
    weighted = np.average(found.whole, weights=found.counts)
    assert weighted == pytest.approx(values.mean()) == pytest.approx(sum(found.mean.values()))
    assert found.whole[-1] == pytest.approx(values[round(len(values) * 0.99) :].mean())


def test_the_figure_stacks_to_the_latency(run: SavedRun) -> None:
    found = bands(run.requests, "ttft")
    assert found is not None
    drawn = latency_parts.figure(found, "ttft")
    assert drawn.layout.barmode == "stack"
    heights = np.sum([np.asarray(trace.y) for trace in drawn.data], axis=0)
    np.testing.assert_allclose(heights, found.whole * 1e3, rtol=1e-9)
    assert {trace.name for trace in drawn.data} >= {"queue", "own prefill"}


def test_the_tables_have_the_same_parts_and_their_sum(run: SavedRun) -> None:
    plots, listed = response.parts(run.summary, run.requests)
    assert [plot.spec is not None for plot in plots] == [True, True]
    for table in listed:
        values = np.array([[cell.value for cell in row[1:]] for row in table.rows], dtype=float)
        np.testing.assert_allclose(values[:-1].sum(axis=0), values[-1], rtol=1e-9)
        assert len(table.columns) == values.shape[1] + 1 == len(EDGES) + 1


def test_few_requests_leave_bands_out() -> None:
    found = bands(make_run(3).requests, "e2el")
    assert found is not None
    assert sum(found.counts) == 3
    assert len(found.labels) == len(found.whole) == 3


# ---- limits --------------------------------------------------------------------------------------


def test_attainment_is_that_of_the_requests_with_an_interval_around_it(run: SavedRun) -> None:
    judged = run.requests[~run.requests["warmup"]]
    found = {each.title: each for each in slo.attained(run.summary)}
    assert found["TTFT"].share == pytest.approx((judged["ttft_s"] <= 0.15).mean())
    tpot = judged["tpot_s"].fillna(0.0) <= 0.012
    assert found["TPOT"].share == pytest.approx(tpot.mean())
    assert found["whole SLO"].share == pytest.approx(judged["slo_met"].mean())
    for each in found.values():
        assert each.low is not None
        assert each.high is not None
        assert 0 <= each.low <= each.share <= each.high <= 1
        naive = math.sqrt(each.share * (1 - each.share) / len(judged))
        assert each.high - each.low >= 3.8 * naive  # neighbours are alike: never less than if not


def test_the_limit_that_breaks_first_is_named_with_its_margin(run: SavedRun) -> None:
    table = slo.limits_table(run.summary, run.requests)
    used = {row[0].text: float(str(row[6].value)) for row in table.rows}
    first = max(used, key=lambda title: used[title])
    assert slo.sentence(run.summary, run.requests).startswith(f"{first} ")
    judged = np.sort(run.requests["ttft_s"][~run.requests["warmup"]])
    promised = np.percentile(judged, 90)
    assert used["TTFT"] == pytest.approx(promised / 0.15 * 100)


@pytest.mark.parametrize(
    ("low", "high", "share", "tone"),
    [(0.98, 1.0, 0.99, "good"), (0.9, 0.97, 0.95, "warn"), (0.5, 0.6, 0.55, "bad")],
)
def test_a_limit_that_may_be_either_way_says_so(
    low: float, high: float, share: float, tone: str
) -> None:
    each = slo_bars.AttainedLimit("TTFT", share, low, high)
    assert each.tone(0.95) == tone
    (trace,) = slo_bars.attainment([each], 0.95).data
    assert trace.marker.symbol == (SHAPES.get(tone, "circle"),)
    assert trace.x[0] + trace.error_x.array[0] == pytest.approx(high)
    assert trace.x[0] - trace.error_x.arrayminus[0] == pytest.approx(low)


def test_repetitions_have_the_interval_of_their_mean() -> None:
    scenario = sim.load_scenario(SCENARIO).override({"run.repetitions": 4, "run.requests": 150})
    summary = sim.simulate(scenario).summary
    entry = summary["infersim"]["verdict"]["limits"]["ttft"]
    between = summary["infersim"]["repetitions"]["intervals"]["verdict.limits.ttft.attainment"]
    assert between["half_width"] > 0
    assert (entry["low"], entry["high"]) == (between["low"], between["high"])


# ---- memory --------------------------------------------------------------------------------------


def test_the_memory_of_a_gpu_adds_up(run: SavedRun) -> None:
    given = own(run)["memory"]
    found = in_memory(given, run.timeseries)
    assert sum(found.parts.values()) == pytest.approx(given["gpu_bytes"])
    assert min(found.parts.values()) >= 0
    token, tokens = given["kv_bytes_per_token"], own(run)["kv_cache"]["tokens"]
    names = ("used", "wasted", "cached", "free")
    cache = {name: found.parts[f"kv_{name}"] / token for name in names}
    assert sum(cache.values()) == pytest.approx(tokens)
    usable = tokens - own(run)["kv_cache"]["block_size"]  # the engine keeps a block
    assert cache["used"] + cache["wasted"] == own(run)["kv_cache"]["peak_reserved"] * usable
    assert 0 < cache["wasted"] < 0.2 * cache["used"]
    drawn = memory_use.gpu_bars(found)
    (bars,) = drawn.data
    ends = [start + length for start, length in zip(bars.base, bars.x, strict=True)]
    assert list(bars.base) == pytest.approx([0.0, *ends[:-1]])
    assert ends[-1] == pytest.approx(given["gpu_bytes"] / 2**30)


def test_too_many_blocks_are_told(run: SavedRun) -> None:
    given = own(run)["memory"] | {"kv_cache_bytes": 90e9}
    found = in_memory(given, run.timeseries)
    assert found.parts["outside"] == 0
    assert sum(found.parts.values()) == pytest.approx(given["gpu_bytes"] + found.short)
    summary = {**run.summary, "infersim": own(run) | {"memory": given}}
    plot, _ = machine.whole_gpu(summary, run.timeseries)
    assert "more than the GPU has" in plot.caption


def test_the_cache_over_time_is_whole_at_any_time(run: SavedRun) -> None:
    tokens, replicas = own(run)["kv_cache"]["tokens"], 2
    steps = fleet_steps(run.timeseries, run.requests)
    found = memory_use.kv_parts(steps, tokens * replicas)
    np.testing.assert_allclose(sum(found.values()), tokens * replicas, rtol=1e-12)
    drawn = memory_use.kv_map(run.timeseries, run.requests, kv_tokens=tokens, replicas=replicas)
    heights = np.sum([np.asarray(trace.y) for trace in drawn.data], axis=0)
    np.testing.assert_allclose(heights, 1.0, atol=1e-6)


def test_the_cache_of_a_long_run_is_drawn_as_large_as_it_is() -> None:
    made = make_run(3000, rate=40.0)
    tokens = float(KV_TOKENS)
    steps = fleet_steps(made.timeseries, made.requests)
    assert steps.time.size > memory_use.FEW
    drawn = memory_use.kv_map(made.timeseries, made.requests, kv_tokens=tokens)
    *areas, most = drawn.data
    assert all(area.line.width == 0 for area in areas)
    lasted = np.diff(steps.time)
    for area, (name, values) in zip(areas, memory_use.kv_parts(steps, tokens).items(), strict=True):
        mean = (values[:-1] * lasted).sum() / lasted.sum() / tokens
        assert np.mean(area.y) == pytest.approx(mean, rel=1e-5), name
    heights = np.sum([np.asarray(area.y) for area in areas], axis=0)
    np.testing.assert_allclose(heights, 1.0, atol=1e-6)
    used, empty, _ = memory_use.kv_parts(steps, tokens).values()
    assert max(most.y) == pytest.approx(float((used + empty).max()) / tokens, rel=1e-6)


def test_the_cache_over_time_has_the_means_of_the_summary(run: SavedRun) -> None:
    steps = fleet_steps(run.timeseries, run.requests)
    lasted = np.diff(steps.time)
    usable = (own(run)["kv_cache"]["tokens"] - own(run)["kv_cache"]["block_size"]) * 2
    for level, name in (("kv_used_tokens", "mean_used"), ("kv_reserved_tokens", "mean_reserved")):
        mean = (steps.levels[level][:-1] * lasted).sum() / run.summary["duration"] / usable
        assert mean == pytest.approx(own(run)["kv_cache"][name], rel=2e-3)


# ---- where the time goes -------------------------------------------------------------------------


def test_operators_split_by_bound_add_up_to_both(run: SavedRun) -> None:
    shares, done = own(run)["time_by_operator"], own(run)["operators"]
    drawn = operator_work.operator_time(shares, done)
    bound = {bound_name(name): share for name, share in own(run)["bound_by"].items()}
    rows = dict.fromkeys(shares, 0.0)
    for trace in drawn.data:
        for name, length in zip(trace.y, trace.x, strict=True):
            rows[name] += length
        assert sum(trace.x) == pytest.approx(bound[trace.name])
    assert rows == pytest.approx(shares)
    assert list(drawn.layout.yaxis.ticktext) == sorted(shares, key=shares.get, reverse=True)


def test_the_table_of_operators_accounts_for_all_of_the_busy_time(run: SavedRun) -> None:
    table = machine.operator_table(run.summary)
    busy = (run.timeseries["end_s"] - run.timeseries["start_s"]).sum()
    columns = [column.title for column in table.columns]
    seconds = [float(str(row[columns.index("Seconds")].value)) for row in table.rows]
    assert sum(seconds) == pytest.approx(busy)
    gemm = next(row for row in table.rows if row[0].text == "gate and up projection")
    flop, moved = gemm[3].value, gemm[4].value
    tokens = (
        run.timeseries["prefill_tokens"]
        + run.timeseries["decode_seqs"] * run.timeseries["iterations"]
    ).sum()
    assert flop == 2 * 4096 * 2 * 14336 * 32 * tokens  # multiply-adds of all layers
    assert gemm[5].value == pytest.approx(float(str(flop)) / float(str(moved)))


def test_no_operating_point_lies_above_the_roof(run: SavedRun) -> None:
    found = run.charts["roofline"]
    for point in found["points"]:
        roof = min(found["peak_flops"], found["bandwidth"] * point["flops"] / point["bytes"])
        assert point["flops"] / point["seconds"] <= roof
    drawn = operator_work.roofline(found)
    corner = np.asarray(drawn.data[0].x)[1]
    assert corner == pytest.approx(found["peak_flops"] / found["bandwidth"])
    circles = [trace for trace in drawn.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in circles) == len(found["points"])
    share = sum(row[0] for trace in circles for row in trace.customdata)
    assert share == pytest.approx(1.0)
    largest = max(float(size) for trace in circles for size in trace.marker.size)
    assert largest == operator_work.LARGEST


def test_names_of_operators_are_text_and_not_markup() -> None:
    drawn = operator_work.operator_time({"<b>bold</b>": 1.0}, {})
    assert drawn.layout.yaxis.ticktext == ("&lt;b&gt;bold&lt;/b&gt;",)


# ---- distributions, traffic, moments -------------------------------------------------------------


def test_the_gaps_between_tokens_have_the_percentiles_of_the_summary(run: SavedRun) -> None:
    drawn = latency_cdf.itl(run.charts["itl"], latency_cdf.stated(run.summary))
    marks = drawn.data[-1]
    assert np.asarray(marks.x) == pytest.approx([run.summary[f"p{p}_itl_ms"] for p in (50, 90, 99)])
    curve = drawn.data[0]
    for x, share in zip(marks.x, (0.5, 0.9, 0.99), strict=True):
        at = int(np.searchsorted(np.asarray(curve.x), x))
        assert curve.y[at - 1] <= share <= curve.y[min(at + 1, len(curve.y) - 1)]


@pytest.mark.parametrize("whole", [True, False])
def test_histograms_count_every_value_once(whole: bool) -> None:
    random = np.random.default_rng(5)
    for values in (
        random.integers(1, 30, 500).astype(float),
        random.lognormal(6, 2, 3000).round(),
        np.full(7, 512.0),
        np.zeros(3),
        np.array([0.0, *random.exponential(1.0, 200)]).round(3 if not whole else 0),
    ):
        found = histogram.binned(values, whole=whole)
        assert found.counts.sum() == len(values)
        assert len(found.counts) <= histogram.BINS + 1
        assert (np.diff(found.edges) > 0).all()
        if whole:
            assert (found.edges % 1 == 0.5).all()


def test_the_workload_is_that_of_all_requests(run: SavedRun) -> None:
    prompts, outputs, gaps = traffic.workload(run.requests)
    mean = run.requests["prompt_tokens"].mean()
    assert prompts.caption.startswith(f"400 requests: mean {mean:,.0f} tokens")
    assert outputs.spec is not None
    cut = run.requests.assign(prompt_tokens=run.requests["prompt_tokens"].clip(upper=500))
    piled = (cut["prompt_tokens"] == 500).mean()
    assert piled > 0.01
    told = f"{phrase(piled, 'share')} have the longest length, 500 tokens."
    assert told in traffic.workload(cut)[0].caption
    few = run.requests.assign(prompt_tokens=np.r_[np.arange(1, 398), [900] * 3])
    told = traffic.workload(few)[0].caption
    assert f"{phrase(3 / 400, 'share')} have the longest length, 900 tokens." in told
    alone = few.assign(prompt_tokens=np.arange(1, 401))
    assert "longest length" not in traffic.workload(alone)[0].caption
    apart = np.diff(run.requests["arrival_s"])
    assert f"variation {apart.std() / apart.mean():.3f}" in gaps.caption
    at_once = run.requests.assign(arrival_s=0.0)
    assert traffic.workload(at_once)[2].caption == "All requests arrived at once."


def test_what_happens_is_counted_once(run: SavedRun) -> None:
    end = float(run.timeseries["end_s"].max())
    width = nice_width(end, 50)
    edges = np.arange(math.ceil(end / width) + 1) * width
    done = run.requests["finish_s"].to_numpy()
    assert happened(done, edges).sum() == run.summary["completed"]
    lengths = np.minimum(edges[1:], end) - edges[:-1]
    assert (rate(done, edges, end) * lengths).sum() == pytest.approx(run.summary["completed"])


def test_tokens_of_an_iteration() -> None:
    series = plan_frame(
        [
            (0, 0.0, 2.0, 4, 10, 0, 0, 0, 10, 0, 0, 0, 0),  # four iterations of ten decodes
            (0, 2.0, 3.0, 1, 10, 0, 1, 500, 11, 0, 0, 0, 0),
            (0, 5.0, 6.0, 1, 0, 0, 1, 700, 1, 0, 0, 0, 0),
        ]
    )
    edges = np.array([0.0, 1.0, 3.0, 4.0, 6.0])
    decode = per_iteration(series, "decode_seqs", edges)
    assert decode.mean.tolist() == [10, 10, 0, 0]
    assert decode.most.tolist() == [10, 10, 0, 0]
    prefill = per_iteration(series, "prefill_tokens", edges)
    assert prefill.mean.tolist() == [0, 500, 0, 700]  # those that decode only are left out
    assert prefill.most.tolist() == [0, 500, 0, 700]


def test_the_timeline_says_whether_anybody_was_preempted(run: SavedRun) -> None:
    assert (
        "preempted" not in machine.whole_run(run.summary, run.requests, run.timeseries, {}).caption
    )
    calm = run.timeseries.assign(preemptions=0)
    told = machine.whole_run(run.summary, run.requests, calm, {}).caption
    assert "No preemptions." in told
    unknown = run.timeseries.assign(preemptions=np.nan)
    told = machine.whole_run(run.summary, run.requests, unknown, {}).caption
    assert "Preemptions were not recorded." in told


# ---- what is missing -----------------------------------------------------------------------------


def test_a_run_has_every_figure(run: SavedRun) -> None:
    html = render(run)
    assert [name for name in FIGURES if f'data-spec="spec-{name}"' not in html] == []
    assert len(html.encode()) < 1_500_000


def test_a_run_directory_of_an_older_version_says_what_it_lacks(run: SavedRun) -> None:
    old = without(run, "operators", "memory", "precision")
    verdict = own(old)["verdict"]
    verdict = {key: value for key, value in verdict.items() if not key.startswith("attainment_")}
    verdict["limits"] = {
        name: {key: entry[key] for key in ("limit_ms", "attainment")}
        for name, entry in verdict["limits"].items()
    }
    old.summary["infersim"]["verdict"] = verdict
    parts = [f"{name}_s" for name in ALL_PARTS if name != "queue"]
    old = dataclasses.replace(
        old,
        requests=run.requests.drop(columns=parts),
        timeseries=run.timeseries.drop(columns="kv_reserved_end_tokens"),
        charts={},
    )
    html = render(old)
    text = Reader(html).text
    missing = {"cdf-itl", "parts-ttft", "parts-e2el", "gpu-memory", "roofline"}
    assert {name for name in FIGURES if f'data-spec="spec-{name}"' not in html} == missing
    assert text.count(OLDER) == len(missing)
    assert "No interval: an older version wrote this run directory." in text
    assert "What bound each operator is not in this run directory" in text


def test_an_observed_run_says_what_it_cannot_know(run: SavedRun) -> None:
    seen = without(run)
    seen.summary["infersim"] |= {
        "verdict": own(run)["verdict"] | {"state": "observed", "headroom": None},
        "operators": {},
        "memory": None,
        "bound_by": {},
        "time_by_operator": {"forward": 0.8, "schedule": 0.15, "prepare": 0.05},
    }
    parts = {f"{name}_s": math.nan for name in ALL_PARTS}
    seen = dataclasses.replace(
        seen,
        requests=run.requests.assign(**parts, scheduled_s=math.nan),
        timeseries=run.timeseries.assign(
            prefill_seqs=math.nan, decode_context=math.nan, preemptions=math.nan
        ),
        charts={"itl": run.charts["itl"], "roofline": None},
    )
    html = render(seen)
    text = Reader(html).text
    assert OLDER not in text
    missing = {"cdf-queue", "parts-ttft", "parts-e2el", "gpu-memory", "roofline"}
    assert {name for name in FIGURES if f'data-spec="spec-{name}"' not in html} == missing
    for expected in (
        "measured, not predicted",
        "Not in this record",
        "What TTFT consists of; What E2EL consists of",
        "By phase of an iteration, as measured.",
        "the capacity of a real engine was not measured",
    ):
        assert expected in text
    for frame in (response.NOT_RECORDED, machine.UNKNOWN, machine.NOT_COUNTED):
        assert frame not in text  # one line for all, no empty frames
    for section in ("parts", "roofline"):
        assert f'id="{section}"' not in html


def test_a_cache_of_unknown_size_is_not_mapped(run: SavedRun) -> None:
    cache = own(run)["kv_cache"] | {"tokens": None, "max_concurrency": None}
    summary = {**run.summary, "infersim": own(run) | {"kv_cache": cache}}
    plot = machine.cache_over_time(summary, run.requests, run.timeseries)
    assert plot.spec is None
    assert "not recorded" in plot.caption


def test_a_made_up_run_has_as_many_replicas_as_it_says() -> None:
    made = make_run(100, replicas=3)
    assert replica_count(made.timeseries, made.requests) == 3
    drawn = memory_use.kv_map(made.timeseries, made.requests, kv_tokens=KV_TOKENS, replicas=3)
    assert isinstance(drawn.data[0].y, np.ndarray)
    assert float(pd.Series(drawn.data[0].y).max()) <= 1


@pytest.mark.slow
def test_a_hundred_thousand_requests_draw_few_points() -> None:
    random = np.random.default_rng(3)
    base = make_run(400)
    chosen = random.integers(0, 400, 100_000)
    requests = base.requests.iloc[chosen].reset_index(drop=True)
    late = np.sort(random.uniform(0, 5e3, 100_000)) - requests["arrival_s"].to_numpy()
    for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s"):
        requests[name] += late
    rows = base.timeseries.iloc[random.integers(0, len(base.timeseries), 200_000)]
    start = np.arange(200_000) * 0.025
    series = rows.assign(start_s=start, end_s=start + 0.025).reset_index(drop=True)
    html = render(dataclasses.replace(base, requests=requests, timeseries=series))
    assert len(html.encode()) < 1_500_000
    specs = [text for name, text in Reader(html).json.items() if name.startswith("spec-")]
    assert len(specs) == len(MANY)
    for spec in specs:
        points = sum(_length(trace["x"]) for trace in spec["data"] if "x" in trace)
        assert points <= 12_000


def _length(values: Any) -> int:
    """Of a list, or of numbers that Plotly packed into base64."""
    if isinstance(values, list):
        return len(values)
    return len(values["bdata"]) * 3 // 4 // int(values["dtype"][1:])
