"""The verification: what it writes, how it scores, and what it makes of disturbances and drift.

No speed is asserted: a tiny model runs for moments, on a machine that others use as well.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine needs PyTorch")

from rich.console import Console
from typer.testing import CliRunner

from calibrate import fit
from calibrate.device import Device, DeviceFacts, open_device
from calibrate.engine.loop import CpuClock
from calibrate.lazy_torch import torch
from calibrate.measurements import Measurement, MeasurementTable, Purpose
from calibrate.verify import harness, host, score, shapes, traffic
from calibrate.verify.budget import Wish
from calibrate.verify.console import view
from calibrate.verify.course import Pace
from calibrate.verify.disturbance import DisturbanceCounts, Watch
from sim import catalog
from sim.commands.calibrate import app
from sim.errors import UsageError
from sim.setup import prepare
from tests.engine_configs import CONFIGS
from tests.engine_fixtures import llama

CONFIG = llama(
    hidden_size=32,
    num_attention_heads=2,
    num_key_value_heads=1,
    intermediate_size=48,
    vocab_size=128,
    max_position_embeddings=256,
    tie_word_embeddings=True,
)


TICK = 0.02
"""Seconds that pass from one reading of a calibration's clock to the next: a busy machine measures
as many points as an idle one."""


@pytest.fixture(autouse=True)
def _ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = itertools.count()
    ticking = partial(harness.Suite, clock=lambda: TICK * next(readings))
    monkeypatch.setattr(harness, "Suite", ticking)


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(CONFIG))
    threads = torch.get_num_threads()
    yield path
    torch.set_num_threads(threads)


def setting(model: Path, **changes: Any) -> traffic.TrafficSetting:
    values: dict[str, Any] = {
        **{"model": str(model), "precision": "fp32", "batch": 3, "chunk": 24},
        **{"prompt": (4, 20), "output": (2, 6), "seconds": 0.1, "repeats": 1},
    }
    return traffic.TrafficSetting(**values | changes)


def command(model: Path, *more: str) -> list[str]:
    return [
        *("verify", "--device", "cpu", "--threads", "1", "--model", str(model), "--batch", "3"),
        *("--chunk", "24", "--prompt", "4:20", "--answer", "2:6", "--run-time", "100ms"),
        *("--time-budget", "2s", "--repeats", "1", "-o", str(model.parent / "out"), *more),
    ]


@pytest.mark.slow
def test_a_verification_from_beginning_to_end(model: Path) -> None:
    out = model.parent / "out"
    arguments = command(model, "--traces", "burst", "--batching", "static,continuous")
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert max(map(len, done.stdout.splitlines())) <= 88
    assert "Left out" not in done.stdout
    assert "Anchor step:" in done.stdout
    lines = done.stderr.splitlines()
    assert lines[0].startswith("burst: calibration; about ")
    assert all(line.endswith(" left") for line in lines)
    assert next(line for line in lines if "run" in line).startswith("burst: static, run 1")
    document = json.loads((out / "summary.json").read_text())
    (result,) = document["traces"]
    assert [run["batching"] for run in result["runs"]] == ["static", "continuous"]
    assert len(result["anchors_s"]) == len(result["host"]) == 2
    engine = catalog.engine(out / "burst" / harness.ENGINE)
    prepared = [terms["per_drafting_pass"] for terms in result["host"]]
    assert min(prepared) > 0
    assert engine.per_drafting_pass == pytest.approx(sum(prepared) / 2, rel=1e-3)
    assert all(abs(run["drift"]) < 50 for run in result["runs"])
    assert result["drift"][0].keys() >= {"gemm", "decode_attention", "norm"}
    for run in result["runs"]:
        assert run["measured"].keys() == run["predicted"].keys() == score.METRICS.keys()
        assert run["iterations"].keys() == {"decode", "prefill"}
        assert sum(kind["share"] for kind in run["iterations"].values()) == pytest.approx(1)
    with (out / "errors.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 2 * len(score.METRICS)
    gpu = catalog.gpu(out / "burst" / "profile.yaml")
    assert gpu.profile is not None
    assert {"gemm", "norm", "kv_write", "sampling"} <= gpu.profile.kernels.keys()
    assert catalog.engine(out / "burst" / "engine.yaml").per_iteration >= 0
    for kind in ("observed", "simulated"):
        assert (out / "burst" / kind / "static-1" / "summary.json").exists()

    again = CliRunner().invoke(app, [*arguments, "--json"])
    assert "burst: already done" in again.stderr
    assert json.loads(again.stdout)["traces"][0]["runs"] == result["runs"]
    other = CliRunner().invoke(app, [*arguments, "--repeats", "2"])
    assert other.exit_code == 2
    assert "other settings" in other.stderr


CUT = {"calibration 0": 1, "host terms": 2, "run": 3, "calibration 1": 4}
"""Parts of the shortest verification, in their order."""


@pytest.mark.parametrize("over", CUT)
def test_nothing_goes_on_once_the_time_is_over(
    model: Path, monkeypatch: pytest.MonkeyPatch, over: str
) -> None:
    """The time is over as soon as one part begins, which is cut short; a run that is done is kept,
    and judged by the calibration before it."""
    part, now = [0], [0.0]
    monkeypatch.setattr(fit, "FOLDS", 2)  # how well anything is fitted does not matter here
    monkeypatch.setattr(fit, "PROGRESS", 0.1)

    def begins(method: str, at: int | None = None) -> None:
        real = getattr(harness, method)

        def begun(*arguments: Any) -> Any:
            part[0] = CUT[f"calibration {arguments[2]}"] if at is None else max(part[0], at)
            now[0] = 1e6 if part[0] >= CUT[over] else now[0]
            return real(*arguments)

        monkeypatch.setattr(harness, method, begun)

    begins("_calibrate")
    begins("_host", CUT["host terms"])
    begins("_watched", CUT["run"])
    course = partial(harness.VerifyCourse, clock=lambda: now[0])
    monkeypatch.setattr(harness, "VerifyCourse", course)
    chosen = setting(model)
    wish = Wish(1000.0, ["burst"], ["continuous"], 1, 1.0, 1.0)
    said: list[str] = []
    device = open_device("cpu", threads=1)
    plans = harness.Plans(device, chosen, model.parent / "out", wish, started=0.0)
    if over != "calibration 1":
        with pytest.raises(UsageError, match="too short"):
            harness.verify(plans, said.append)
        return
    (result,) = harness.verify(plans, said.append)["traces"]
    assert result["cut_short"]
    assert len(result["runs"]) == len(result["host"]) == 1
    assert any("calibration after the runs is cut short" in line for line in said)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--traces", "bursts"), "did you mean 'burst'"),
        (("--batching", ","), "is empty"),
        (("--prompt", "20:4"), "LOW:HIGH"),
        (("--answer", "0:4"), "LOW:HIGH"),
        (("--prompt", "4:400"), "404 tokens|406 tokens"),
        (("--run-time", "soon"), "--run-time soon"),
        (("--model", "llama-9"), "llama"),
        (("--total-time", "20s"), "give --total-time "),
        (("--cpu-time", "--threads", "2"), "--cpu-time: times one thread"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    model: Path, more: tuple[str, ...], message: str
) -> None:
    done = CliRunner().invoke(app, command(model, *more))
    assert done.exit_code == 2
    assert not (model.parent / "out").exists()
    assert any(part in done.stderr for part in message.split("|"))


def test_processor_time_stands_still_but_for_what_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = iter([10.0, 10.5, 10.5, 10.75])
    clock = CpuClock()  # the model and its memory come before the run
    monkeypatch.setattr("calibrate.engine.loop.time.thread_time", lambda: next(read))
    assert clock.now() == 0.0
    assert clock.now() == 0.5
    clock.wait(3.0)
    assert clock.now() == 3.25


def test_runs_by_processor_time_are_scored_whatever_else_runs(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "disturbed", 0.9)
    for by_cpu, scored in ((False, False), (True, True)):
        chosen = setting(model, cpu_time=by_cpu)
        trace = traffic.VerifyTrace("burst", {"kind": "burst"}, 3)
        scenario = traffic.scenario(chosen, trace, "continuous", "h100-sxm", "reference")
        wish = Wish(60.0, ["burst"], ["continuous"], 1, 1.0, 1.0)
        plans = harness.Plans(open_device("cpu", threads=1), chosen, model.parent, wish)
        observed, disturbed = harness._watched(plans, scenario, Pace(1.0).tick)
        assert score.counts({"disturbed": disturbed}) == scored
        assert observed.record.completed.all()


def test_points_cover_every_operator_of_the_pass(model: Path) -> None:
    spec = catalog.model(model)
    points = list(shapes.points(spec, setting(model), "cpu"))
    assert {point.operator for point in points} == {
        *("gemm", "decode_attention", "prefill_attention", "norm", "embedding", "activation"),
        *("rotary", "kv_write", "sampling", "memory"),
    }
    products = [point for point in points if point.operator == "gemm"]
    assert {(p.shape["n"], p.shape["k"]) for p in products} == {
        *((64, 32), (32, 32), (96, 32), (32, 48), (128, 32)),
    }
    assert {1, 2, 3, 4, 5, 6} <= {int(p.shape["m"]) for p in products}
    assert max(p.shape["m"] for p in products) == 3 * 20  # a static batch of the longest prompts
    checks = {p.size("tokens") for p in points if p.shape.get("context") and "tokens" in p.shape}
    assert checks >= {2, 3, 4, 5, 9}


def test_a_model_with_fewer_layers_is_the_same_otherwise(model: Path, tmp_path: Path) -> None:
    for name in ("qwen2.5-7b", "qwen3-8b", "llama-3.2-1b"):
        spec = catalog.model(name)
        path = tmp_path / "fewer.json"
        path.write_text(json.dumps(host.config(spec, 3)))
        fewer = catalog.model(path)
        assert fewer.num_layers == 3
        assert replace(fewer.layers[0], count=spec.num_layers) == spec.layers[0]
        assert fewer.head_parameters() == spec.head_parameters()


@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("mixtral", {"moe"}),
        ("gemma-3", {"window_decode", "window_prefill", "activation"}),
        ("deepseek-v3", {"moe", "mla_decode", "mla_prefill", "activation"}),
    ],
)
def test_points_cover_experts_windows_and_latents(
    tmp_path: Path, name: str, operators: set[str]
) -> None:
    path = tmp_path / "kind.json"
    path.write_text(json.dumps(CONFIGS[name]))
    spec = catalog.model(path)
    points = list(shapes.points(spec, setting(path), "cpu"))
    newer = {"moe", "mla_decode", "mla_prefill", "window_decode", "window_prefill", "activation"}
    assert newer & {point.operator for point in points} == operators
    assert len({point.key for point in points}) == len(points)
    counted = {(p.shape["n"], p.shape["k"]) for p in points if p.operator == "gemm"}
    head = (spec.vocab_size, spec.hidden_size)
    assert {*shapes.products(spec), head} == counted


def test_a_model_of_other_layers_keeps_its_first_ones(tmp_path: Path) -> None:
    path = tmp_path / "kind.json"
    path.write_text(json.dumps(CONFIGS["gemma-3"]))
    spec = catalog.model(path)
    path.write_text(json.dumps(host.shortened(str(path), spec, 3)))
    fewer = catalog.model(path)
    assert [group.count for group in spec.layers] == [3, 1]
    assert [group.count for group in fewer.layers] == [2, 1]
    assert [group.attention for group in fewer.layers] == [g.attention for g in spec.layers]


def test_windows_leave_memory_for_each_group_of_layers(tmp_path: Path) -> None:
    path = tmp_path / "kind.json"
    path.write_text(json.dumps(CONFIGS["gemma-3"]))  # three layers with a window, one without
    chosen = setting(path)
    trace = traffic.trace_of("burst", chosen, Path("h100-sxm"), Path("reference"))
    made = traffic.scenario(chosen, trace, "static", "h100-sxm", "reference")
    assert prepare(made).only.capacity.num_gpu_blocks == 3 * 2 * 4


def test_traces_are_as_long_as_they_should_be_by_prediction(model: Path, tmp_path: Path) -> None:
    chosen, files = setting(model), (Path("h100-sxm"), Path("vllm"))
    closed = traffic.trace_of("closed", chosen, *files)
    assert closed.arrivals == {"kind": "closed", "concurrency": 3}
    poisson = traffic.trace_of("poisson", chosen, *files)
    assert closed.requests == poisson.requests == traffic.LEAST_BATCHES * chosen.batch
    assert traffic.longer(poisson, 0.2) == poisson
    long = traffic.longer(poisson, 20.0)
    ways = ("static", "continuous")
    predicted = traffic.predicted(chosen, long, ways, *files) - traffic.PREPARING
    assert predicted == pytest.approx(long.requests / poisson.arrivals["rate"], rel=0.2)
    scenario = traffic.scenario(chosen, poisson, "static", "h100-sxm", "vllm")
    assert (scenario.max_model_len, scenario.kv_cache.num_gpu_blocks) == (26, 6)


# -- scores --------------------------------------------------------------------------------------


def told(number: int, measured: float, predicted: float, disturbed: float | None) -> dict[str, Any]:
    return {
        "batching": "static",
        "round": number,
        "disturbed": disturbed,
        "measured": dict.fromkeys(score.METRICS, measured),
        "predicted": dict.fromkeys(score.METRICS, predicted),
    }


def scores(trace: str, *runs: dict[str, Any]) -> list[dict[str, Any]]:
    return score._scores({"trace": trace, "runs": list(runs)})


def test_the_error_is_the_median_of_the_runs_that_count() -> None:
    runs = [told(1, 100.0, 103.0, 0.0), told(2, 110.0, 104.5, 0.05), told(3, 104.0, 104.0, None)]
    found = scores("burst", *runs, told(4, 500.0, 100.0, 0.4))
    assert [row["metric"] for row in found] == list(score.METRICS)
    row = found[0]
    assert (row["runs"], row["measured"], row["predicted"]) == (3, 104.0, 104.0)
    assert row["error"] == pytest.approx(0.0)
    assert row["noise"] == pytest.approx(110 / 104 - 1)


def test_the_drift_of_the_machine_is_taken_out_of_the_error() -> None:
    """While it ran the machine was a quarter slower than while it was calibrated: times predicted
    a fifth too short, and a rate a quarter too high, are right."""
    slow = told(1, 100.0, 80.0, 0.0) | {"drift": 0.25}
    slow["predicted"]["throughput"] = 125.0
    for row in scores("burst", slow):
        assert row["steady"] == pytest.approx(0.0)
        assert abs(row["error"]) >= 0.2 - 1e-9
    still = told(1, 100.0, 80.0, 0.0) | {"drift": 0.01}  # what an anchor cannot tell
    assert all(row["steady"] == pytest.approx(-0.2) for row in scores("burst", still))
    of_earlier_versions = scores("burst", told(1, 100.0, 80.0, 0.0))
    assert all(row["steady"] == pytest.approx(-0.2) for row in of_earlier_versions)


def printed(document: dict[str, Any]) -> str:
    console = Console(width=88, file=io.StringIO())
    with console.capture() as captured:
        console.print(view(document))
    return captured.get()


def test_the_terminal_says_how_far_the_machine_drifted() -> None:
    runs = [told(1, 100.0, 80.0, 0.0) | {"drift": 0.25, "iterations": {}}]
    result = {
        **{"trace": "burst", "arrivals": {"kind": "burst"}, "requests": 9, "runs": runs},
        **{"anchors_s": [0.01, 0.011], "drift": [{"gemm": 0.1}]},
    }
    wish = Wish(60.0, ["burst"], ["static"], 1)
    document = {
        "setting": {"repeats": 1, "total": 60.0},
        "traces": [result | {"scores": score._scores(result)}],
        "left_out": score.left_out(wish, [result]),
    }
    shown = printed(document)
    assert "Machine during static, slower (+) or faster (-) than while it was" in shown
    assert "+25.0%" in shown
    assert "0 of 4 metrics are within the wanted error." in shown
    assert "With the machine's own drift taken out (steady), 3 are." in " ".join(shown.split())


def test_what_arrivals_decide_is_not_scored_and_no_run_is_no_score() -> None:
    found = scores("poisson", told(1, 100.0, 100.0, 0.9))
    assert {row["metric"] for row in found} == {"tpot", "mean_ttft", "p90_ttft"}
    assert {row["error"] for row in found} == {None}
    assert {row["runs"] for row in found} == {0}


def row(m: float, seconds: float, purpose: Purpose = "") -> Measurement:
    shape = {"m": m, "n": 64.0, "k": 64.0}
    return Measurement(
        "gemm", "fp32", "made up", shape, seconds, None, None, 9, "ok", purpose=purpose
    )


def test_two_calibrations_become_one() -> None:
    before = MeasurementTable((row(1, 1.0), row(2, 4.0)))
    after = MeasurementTable((row(1, 1.21), row(3, 7.0)))
    joined = {found.shape["m"]: found.seconds for found in score.joined(before, after)}
    assert joined == {1.0: pytest.approx(1.1), 2.0: 4.0, 3.0: 7.0}
    assert score.drift([before, after]) == [{"gemm": pytest.approx(0.21)}]


def test_what_was_left_out_is_in_the_document_and_in_the_terminal(tmp_path: Path) -> None:
    wish = Wish(180.0, ("burst", "closed"), ("static", "continuous"), 3)
    runs = [told(1, 1.0, 1.0, 0.0), told(2, 1.0, 1.0, 0.0)]
    left_out = score.left_out(wish, [{"trace": "burst", "runs": runs}])
    assert left_out == {
        "traces": ["closed"],
        "batchings": {"burst": ["continuous"]},
        "repeats": {"burst": 2},
    }
    document = {"setting": {"repeats": 3, "total": 180.0}, "traces": [], "left_out": left_out}
    lines = [str(part) for part in view(document).renderables]
    assert lines[-6:] == [
        "No metric is scored: other programs used the processors during every run.",
        "Left out for lack of time (--total-time 3 min):",
        "  closed: no run",
        "  burst: no continuous",
        "  burst: 2 of 3 runs of each kind",
        "The same command runs the traces that are left.",
    ]


# -- disturbances --------------------------------------------------------------------------------


def test_windows_in_which_others_ran_are_marked() -> None:
    now, everybody, own = [0.0], [0.0], [0.0]

    def after(seconds: float, others: float) -> None:
        now[0] += seconds
        own[0] += seconds
        everybody[0] += seconds + others

    watch = Watch(lambda: now[0], lambda: DisturbanceCounts(everybody[0], own[0]))
    after(0.5, 0.4)
    watch.tick()  # too soon for a window
    after(0.5, 0.0)
    watch.tick()
    after(2.0, 0.1)
    watch.done()
    assert [(w.start, w.end, w.disturbed) for w in watch.windows] == [
        (0.0, 1.0, True), (1.0, 3.0, False),
    ]  # fmt: skip
    assert watch.disturbed == pytest.approx(1 / 3)


def test_where_nothing_counts_nothing_is_known() -> None:
    now = [0.0]
    watch = Watch(lambda: now[0], lambda: None)
    now[0] = 5.0
    watch.done()
    assert watch.disturbed is None


def test_the_time_left_follows_what_steps_took() -> None:
    """Ten steps of 10 s planned; the first two take 15 s each, so the other eight will as well."""
    now, said = [0.0], list[str]()
    pace = Pace(100.0, said.append, clock=lambda: now[0])
    pace.begin("one", 10.0)
    assert said == ["one; about 100 s left"]
    now[0] = 9.0
    pace.tick()
    assert len(said) == 1
    now[0] = 12.0
    pace.tick()
    assert said[-1] == "one; about 88 s left"
    now[0] = 15.0
    pace.begin("two", 10.0)
    now[0] = 30.0
    pace.begin("three", 10.0)
    assert pace.left() == 120.0
    now[0] = 1000.0
    pace.begin("the end", 0.0)
    assert pace.left() >= 0.0


def test_the_default_model_of_a_cpu_is_small(tmp_path: Path) -> None:
    assert traffic.default_model("cuda:1", tmp_path) == "llama-3.2-1b"
    assert list(tmp_path.iterdir()) == []
    found = catalog.model(traffic.default_model("cpu", tmp_path / "out"))
    assert 30e6 < found.parameters < 32e6


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_passes_that_no_graph_covers_wait_for_their_launches(tmp_path: Path, kind: str) -> None:
    """On a CPU calls of operators are in their own timings; on CUDA decodes are one graph."""
    facts = DeviceFacts(kind, "Pretended", 2**33, 4, 2**16, {})  # type: ignore[arg-type]
    samples = [
        host.HostSample(layers, 1, 1, took=1e-3 + layers * 15 * 20e-6, predicted=layers * 50e-6)
        for layers in (4, 16)
    ]
    launch = host.launch_time(samples) if kind == "cuda" else 0.0
    terms = host.Terms(1e-4, 0.0, 1e-6, 1e-5, launch=launch)
    host.write_engine(tmp_path / "engine.yaml", terms, Device(facts))
    engine = catalog.engine(tmp_path / "engine.yaml")
    assert engine.launch_time(16, prompts=False) == 0
    waits = engine.launch_time(16, prompts=True)
    assert waits == pytest.approx(16 * 15 * 20e-6 if kind == "cuda" else 0)
