"""``infersim validate-run`` on the command line: what it prints, writes and returns."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import sim
from calibrate.validation.prediction import Variant
from sim import catalog
from sim.cli import app
from tests.observed_fixtures import observe, write_scenario

TRUTH = Variant(per_iteration=3e-3)


def invoke(*arguments):
    return CliRunner().invoke(app, ["validate-run", *map(str, arguments)])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three observations of a burst, and one of other arrivals."""
    folder = tmp_path_factory.mktemp("runs")
    scenario = write_scenario(folder)
    for seed in (1, 2, 3):
        observe(scenario, folder / f"run{seed}", TRUTH, noise=0.02, seed=seed)
    poisson = {"workload.arrivals": {"kind": "poisson", "rate": 4.0}}
    observe(write_scenario(folder, poisson), folder / "poisson", TRUTH, noise=0.02)
    return folder


def test_tables_fit_and_tell_everything(runs):
    done = invoke(runs / "run1", "--repeat", runs / "run2", "--repeat", runs / "run3", "--no-page")
    assert done.exit_code == 0, done.output
    assert max(map(len, done.output.splitlines())) <= 88
    for text in (
        *("TTFT mean", "ITL p99", "output tokens/s", "in band", "± 0.", "decode, 5 to 16"),
        *("mixed", "All 392 iterations have the composition", "KV blocks", "What to change"),
        *("1. engine: per_iteration 500 us -> 3.", "of the error, confidence high"),
        "not fitted to observed runs",
        "metrics are within their predicted bands; worst: ",
        "no <",
    ):
        assert text in done.output, text
    assert "Page" not in done.output


def test_no_report_is_what_other_commands_call_no_page(runs):
    before = set(runs.rglob("*.html"))
    done = invoke(runs / "run1", "--no-report", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["page"] is None
    assert set(runs.rglob("*.html")) == before


def test_one_json_object_and_a_page(runs, tmp_path):
    page = tmp_path / "page.html"
    done = invoke(runs / "run1", "--json", "-o", page, "--check", "5")
    assert done.exit_code == 99
    document = json.loads(done.output)
    assert document["page"] == str(page)
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert document["check"]["ok"] is False
    assert set(document["check"]["errors"]) == {
        "mean_ttft_ms",
        "mean_tpot_ms",
        "output_throughput",
    }
    errors = {row["figure"]: row["error"] for row in document["figures"]}
    assert document["check"]["errors"]["mean_tpot_ms"] == pytest.approx(
        100 * errors["mean_tpot_ms"]
    )
    assert document["composition"]["agreement"]["share"] == 1.0
    assert [change["cause"] for change in document["advice"]["changes"]] == ["per_iteration"]


def test_the_page_is_named_after_the_time(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke(runs / "run1")
    assert done.exit_code == 0
    (page,) = tmp_path.glob("validation-*.html")
    assert f"Page: {page.name}" in done.output


def test_a_check_that_passes(runs):
    done = invoke(runs / "run1", "--no-page", "--check", "1000")
    assert done.exit_code == 0
    assert "Check passed: within 1000 %" in done.output


def test_a_page_that_fails_costs_the_page_alone(runs, tmp_path, monkeypatch):
    def broken(*_):
        raise RuntimeError("no ink")

    monkeypatch.setattr("reports.pages.validation.page.render_validation", broken)
    done = invoke(runs / "run1", "-o", tmp_path / "page.html")
    assert done.exit_code == 0
    assert "warning: no page was written (RuntimeError: no ink)" in done.output
    assert "What to change" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["page-engine.yaml"]


# ---- what puts it right --------------------------------------------------------------------------

PLANTED = {"kernel_time": 1.12, "host_time": 1.6}
TRUTH_OF_A_SERVER: dict[str, Any] = {
    "name": "truth",
    "seed": 4,
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "assume": PLANTED,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 8},
        "prompt_tokens": {"kind": "lognormal", "mean": 600, "p95": 1800, "max": 4000},
        "output_tokens": {"kind": "lognormal", "mean": 120, "p95": 300, "max": 600},
    },
    "run": {"requests": 300, "warmup": 0},
}


def command_line(text):
    """A printed command, given again."""
    words = shlex.split(text)
    assert words.pop(0) == "infersim"
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture(scope="module")
def benchmark(tmp_path_factory):
    """A directory made of the result of a server that is slower than predicted, of which requests
    alone are known."""
    folder = tmp_path_factory.mktemp("benchmark")
    place = sim.simulate(sim.load_scenario(TRUTH_OF_A_SERVER)).save(folder / "truth")
    command_line(f"infersim export {place} --to vllm-bench")
    command_line(
        f"infersim observe {place}/vllm-bench.json --from vllm-bench --gpu h100-sxm --no-report "
        f"-o {folder / 'run'}"
    )
    return folder / "run"


def errors(document):
    return {row["figure"]: abs(row["error"]) for row in document["figures"]}


def test_the_printed_commands_bring_every_error_down(benchmark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = json.loads(invoke(benchmark, "--json", "-o", "page.html").output)
    assert max(errors(before).values()) > 0.2
    assert before["iterations"] is None
    engine = Path(before["correction"]["engine"])
    assert engine == Path("page-engine.yaml")
    again, plan = before["correction"]["commands"]
    after = json.loads(command_line(f"{again} --json --no-page"))
    assert after["sample"]["state"] == "in sample"
    for metric, error in errors(after).items():
        assert error < max(0.05, errors(before)[metric] / 4), metric
    assert sum(errors(after).values()) < sum(errors(before).values()) / 8
    found = json.loads(
        command_line(f"{plan} --json --no-report --tensor-parallel 1 --jobs 1 -o {tmp_path / 'p'}")
    )
    assert found["fleets"]
    assert str(engine.absolute()) in plan
    assert "slo.ttft=" in plan  # a benchmark has no SLO of its own


def test_the_corrected_engine_is_said_on_the_screen_and_on_the_page(benchmark, tmp_path):
    there = tmp_path / "page-engine.yaml"
    there.write_text("in use")
    done = invoke(benchmark, "-o", tmp_path / "page.html")
    written = tmp_path / "page-engine-2.yaml"
    assert f"Corrected engine: {written}" in done.output
    assert f"  infersim validate-run {benchmark} --set engine={written}" in done.output
    assert f"  infersim plan {benchmark / 'scenario.yaml'} --gpus h100-sxm" in done.output
    assert there.read_text() == "in use"
    assert f"--set engine={written}" in (tmp_path / "page.html").read_text()
    assert catalog.engine(written).factors.kernels == pytest.approx(1.16, abs=0.02)
    assert "extends: vllm" in written.read_text()
    assert catalog.engine(written).memory_reserve == catalog.engine("vllm").memory_reserve
    # a correction of the corrected one extends the file, wherever it is used from
    done = invoke(benchmark, "--set", f"engine={written}", "--set", "assume.host_time=3", "-o",
                  tmp_path / "sub.html")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert f"extends: {written}" in (tmp_path / "sub-engine.yaml").read_text()


def test_without_a_page_nothing_is_written_unless_it_is_named(benchmark, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke(benchmark, "--no-page")
    assert "To write a corrected engine file: --corrected-engine FILE" in done.output
    assert not list(tmp_path.iterdir())
    invoke(benchmark, "--no-page", "--corrected-engine", "mine.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
    again = invoke(benchmark, "--no-page", "--corrected-engine", "mine.yaml")
    assert again.exit_code == 2
    assert "--corrected-engine mine.yaml: exists" in again.output


def test_fit_engine_takes_requests_alone(benchmark, tmp_path):
    done = invoke(benchmark, "--fit-engine", tmp_path / "mine.yaml")
    assert done.exit_code == 0, done.output
    planted = 1.6 * 8e-3 + (1.6 - 1) * 2e-6 * 600  # what each token takes is kept
    assert catalog.engine(tmp_path / "mine.yaml").front_end == pytest.approx(planted, rel=0.05)
    assert not list(tmp_path.glob("*.html"))


def test_blocks_are_a_setting_and_the_engine_stays(tmp_path):
    run = observe(write_scenario(tmp_path), tmp_path / "run", Variant(num_gpu_blocks=300))
    found = json.loads(invoke(run, "--no-page", "--json").output)["correction"]
    assert found["engine"] is None
    assert found["settings"] == ["kv_cache.num_gpu_blocks=300"]
    after = json.loads(command_line(f"{found['commands'][0]} --json --no-page"))
    assert max(errors(after).values()) < 1e-6
    assert after["correction"]["commands"] == []


def test_nothing_to_change_says_what_it_assumes(tmp_path):
    run = observe(write_scenario(tmp_path), tmp_path / "run")
    told = " ".join(invoke(run, "--no-page").output.split())
    assert "24 of 24 metrics are within their predicted bands" in told
    assert "means and throughput are off by 0.0 % at most, within twice the 2 %" in told
    assert "assumed, not measured here" in told
    assert "noise" not in told.split("Batches and memory")[0]
    twice = " ".join(invoke(run, "--no-page", "--repeat", run).output.split())
    assert "off by 0.0 % at most, and 2 runs differ as much" in twice
    assert "noise: relative standard deviation" in twice


def test_a_run_that_confirms_a_prediction_narrows_the_band_of_others(tmp_path):
    run = observe(write_scenario(tmp_path), tmp_path / "run")
    told = json.loads(invoke(run, "--json", "-o", tmp_path / "page.html").output)["correction"]
    assert told["confirmed"]
    (plan,) = told["commands"]
    assert f"engine={told['engine']}" in plan
    engine = catalog.engine(Path(told["engine"]))
    assert engine.title.endswith(", confirmed by an observed run")
    assert [fit.run for fit in engine.fitted_to] == ["run"]
    sure = []
    for more in ([], ["--set", f"engine={told['engine']}"]):
        done = command_line(f"infersim run {tmp_path / 'run/scenario.yaml'} --json --no-save "
                            f"--no-report {' '.join(more)}")  # fmt: skip
        sure.append(json.loads(done)["infersim"]["error_band"]["tpot"])
    assert sure[1] < sure[0]
    again = invoke(run, "--set", f"engine={told['engine']}", "--json", "-o", tmp_path / "more.html")
    assert json.loads(again.output)["correction"]["engine"] is None, "it rests on this run already"


def test_an_engine_is_fitted_written_and_held_out(runs, tmp_path):
    path = tmp_path / "my-engine.yaml"
    done = invoke(runs / "run1", runs / "poisson", "--fit-engine", path)
    assert done.exit_code == 0, done.output
    assert max(len(line) for line in done.output.splitlines() if str(path) not in line) <= 88
    for text in ("per_new_request", "IN SAMPLE", "had not seen", f"engine: {path}"):
        assert text in done.output
    assert catalog.engine(path).per_iteration == pytest.approx(3.5e-3, rel=0.03)
    held_out = invoke(runs / "run2", "--no-page", "--set", f"engine={path}", "--check", "5")
    assert held_out.exit_code == 0, held_out.output
    assert "Held out: the engine's times were fitted to other runs" in held_out.output
    in_sample = invoke(runs / "run1", "--no-page", "--set", f"engine={path}")
    assert "IN SAMPLE: the engine's times were fitted to this very run" in in_sample.output
    again = invoke(runs / "run1", "--fit-engine", path)
    assert again.exit_code == 2
    assert "exists" in again.output


def test_a_fit_as_json(runs, tmp_path):
    path = tmp_path / "e.yaml"
    found = json.loads(invoke(runs / "run1", "--fit-engine", path, "--json").output)
    assert [term["name"] for term in found["terms"]] == [
        *("per_iteration", "per_sequence", "per_new_request", "front_end"),
    ]
    assert found["engine"] == str(path)
    assert found["base"] == "reference"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere: does not exist"),
        (("known.yaml",), "known.yaml: is a file; the first argument is a run directory"),
        (("run1", "--fit-kernels"), "--fit-kernels goes with --fit-engine FILE"),
        (("run1", "run2"), "--repeat, or --fit-engine FILE"),
        (("run1", "known.yaml", "model.json"), "a second scenario"),
        (("run1", "--repeat", "poisson"), "came at other times"),
        (("run1", "-o", "run1/page.html"), "nothing is written to the directory of a run"),
        (("run1", "-o", "no/where/page.html"), "cannot be written there"),
        (("run1", "--set", "workload.x=1"), "the traffic is that of the observed run"),
        (("run1", "--set", "engine=vlm"), "did you mean 'vllm'"),
        (("run1", "--gpu", "h100"), "did you mean 'h100"),
    ],
)
def test_mistakes_are_told_in_one_line(runs, monkeypatch, arguments, message):
    monkeypatch.chdir(runs)
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert message in done.output
    assert "Traceback" not in done.output
    assert not list(runs.glob("validation-*.html"))


def test_help_imports_little():
    code = (
        "import sys; from typer.testing import CliRunner; from sim.cli import app\n"
        "done = CliRunner().invoke(app, ['validate-run', '--help'])\n"
        "assert done.exit_code == 0 and '--fit-engine' in done.output\n"
        "assert not {'numpy', 'scipy', 'pandas', 'torch', 'plotly', 'yaml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
