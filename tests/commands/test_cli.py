"""The command line: results on stdout, everything else on stderr, and an exit code that says
why."""

import fcntl
import json
import os
import pty
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from sim import catalog
from sim.catalog.gpu_file import DEFAULTS
from sim.cli import app
from sim.version import core
from tests.places import ROOT, RUN_FILES

WIDTH = 88

SCENARIO = """\
# A comment that is kept.
model: llama-3.1-8b
fleet: {gpu: h100-sxm}
max_model_len: 1024
workload:
  arrivals: {kind: poisson, rate: 20}
  prompt_tokens: {kind: uniform, low: 10, high: 300}
  output_tokens: {kind: uniform, low: 1, high: 50}
slo: {ttft: 500ms, tpot: 40ms}
run: {requests: 40}
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test works in a folder of its own with one scenario in it, and no terminal settings."""
    monkeypatch.chdir(tmp_path)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "one.yaml").write_text(SCENARIO)
    return tmp_path


class Outcome:
    """What one command left: exit code, stdout, stderr. No command ever shows a traceback."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
        assert "Traceback" not in out + err

    def document(self) -> dict[str, Any]:
        """stdout as the one JSON object that it must be, without NaN or infinities."""
        document = json.loads(self.out, parse_constant=_refuse)
        assert isinstance(document, dict)
        return document


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def infersim(*arguments: str) -> Outcome:
    """Run the command in this process."""
    result = CliRunner().invoke(app, arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Outcome(result.exit_code, result.stdout, result.stderr)


def run(*arguments: str) -> Outcome:
    """``infersim run`` of the scenario, without a report."""
    return infersim("run", "one.yaml", "--no-report", *arguments)


def process(*arguments: str) -> Outcome:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "sim.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


def environment(**changes: str) -> dict[str, str]:
    """The variables of this process, and the path to the packages."""
    return {**os.environ, "PYTHONPATH": str(ROOT)} | changes


def only_run() -> Path:
    """The one run directory there is."""
    (directory,) = Path("runs").iterdir()
    return directory


# -- results and where they go -------------------------------------------------------------------


def test_run_prints_the_figures_and_writes_a_run_directory() -> None:
    done = run()
    assert done.code == 0
    assert done.err == ""
    for expected in (
        f"one  llama-3.1-8b on 1 x h100-sxm, {catalog.engine('vllm').label}, continuous",
        "KV cache size: ",
        "Maximum concurrency for 1,024 tokens per request: ",
        "SLO too close to call: met, 100% of requests",
        "TTFT",
        "of requests",
        "Bound by: ",
        "Kernel timings: ",
        f"Run: {only_run()}",
    ):
        assert expected in done.out
    assert {path.name for path in only_run().iterdir()} == RUN_FILES


def test_whole_batches_show_how_many_of_them_decode() -> None:
    busy = ("--set", "run.requests=900", "--set", "workload.arrivals.rate=500")
    static = (*busy, "--set", "scheduler.batching=static")
    whole = run("--json", *static)
    decoding = json.loads(whole.out)["infersim"]["batch"]["mean_decode_batch"]
    shown = run(*static).out
    assert re.search(rf"of running, decoding +│ +{decoding:,.1f} │", shown)
    assert "of running, decoding" not in run(*busy).out


def test_json_is_one_object_and_the_summary_on_disk() -> None:
    done = run("--json")
    assert (done.code, done.err) == (0, "")
    document = done.document()
    directory = Path(document["infersim"].pop("run_directory"))
    assert document == json.loads((directory / "summary.json").read_text())


def test_json_of_a_run_that_served_nothing_has_no_nan() -> None:
    done = run("--json", "--set", "max_model_len=2")
    assert done.code == 3
    document = done.document()
    assert document["p99_ttft_ms"] is None
    assert document["infersim"]["requests"]["rejected"] == 40
    assert "nothing could be served: 40 longer than max_model_len" in done.err


def test_errors_leave_stdout_empty() -> None:
    done = run("--json", "--set", "model=nope")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")


def test_the_command_in_a_process_of_its_own() -> None:
    done = process("run", "one.yaml", "--no-report", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.document()["completed"] == 40


def test_version() -> None:
    done = infersim("--version")
    assert (done.code, done.out) == (0, f"infersim {version('infersim')} ({core()})\n")


@pytest.mark.parametrize(
    "command", [[], ["run"], ["validate"], ["list"], ["show"], ["roofline"], ["fit"]]
)
def test_help(command: list[str]) -> None:
    done = infersim(*command, "--help")
    assert (done.code, done.err) == (0, "")
    assert "Usage" in done.out


def test_help_imports_nothing_heavy() -> None:
    # typer itself needs rich for any help, and pydantic for options with a range
    heavy = [
        *("numpy", "pandas", "pyarrow", "simpy", "yaml", "plotly", "jinja2", "torch"),
        *("rich.progress", "sim.scenario", "sim.simulation", "sim.catalog", "reports"),
    ]
    code = (
        "import sys; from sim.cli import app\n"
        "for command in ([], ['run'], ['fit']):\n"
        "    app([*command, '--help'], standalone_mode=False)\n"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stderr == "[]\n"


# -- the look of it ------------------------------------------------------------------------------

WIDE = {
    "chat": [],
    "many requests": ["--set", "run.requests=2000", "--set", "workload.arrivals.rate=2000"],
    "nothing served": ["--set", "max_model_len=2"],
    "preemptions": ["--set", "kv_cache.num_gpu_blocks=60", "--set", "workload.arrivals.rate=2000"],
    "no price": ["--set", "fleet.0.price_per_gpu_hour=null"],
    "very dear": ["--set", "fleet.0.price_per_gpu_hour=123456789"],
    "long name": ["--set", f"name={'a long name ' * 12}"],
    "one long word": ["--set", f"name={'word' * 40}"],
    "markup": ["--set", "name='[bold]not bold[/bold] [/red]'"],
    "strict": ["--set", "slo.ttft=1us", "--set", "slo.tpot=1us"],
    "slow": ["--set", "workload.arrivals.rate=1/h"],
    "closed": ["--set", "workload.arrivals={kind: closed, concurrency: 4}"],
    "horizon": ["--set", "run.horizon=1s"],
    "repetitions": ["--set", "run.repetitions=5"],
    "no served repetition": ["--set", "run.repetitions=2", "--set", "max_model_len=2"],
    "large fleet": ["--set", "fleet.0.replicas=1000", "--set", "fleet.0.tensor_parallel=8"],
}


@pytest.mark.parametrize("arguments", WIDE.values(), ids=WIDE.keys())
def test_every_line_of_a_run_fits(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.code in (0, 3)
    lines = [line for line in done.out.splitlines() if not line.startswith("Run: ")]
    assert max(len(line) for line in lines) <= WIDTH
    assert "\x1b" not in done.out


def test_markup_in_a_name_is_shown_as_written() -> None:
    assert run("--set", "name='[bold]not bold[/bold]'").out.startswith("[bold]not bold[/bold] ")


@pytest.mark.parametrize("gpu", [name for name in catalog.names("gpus") if name[-3:] != "-1g"])
def test_memory_and_roofline_fit_for_every_gpu(gpu: str) -> None:
    # batches are timed one sequence after the other: one model has the widest numbers, which is
    # more than eight slices of 10 GB hold
    for model, batch in (("llama-2-70b", "100000"), ("qwen3-32b", "1000")):
        common = [model, "--gpu", gpu, "--tensor-parallel", "8", "--weights", "int8"]
        for arguments in (
            ["fit", *common, "--context", "4000"],
            ["roofline", *common, "--batch", "1", "--batch", batch, "--prompt", "100000"],
        ):
            done = infersim(*arguments)
            assert done.code == 0
            assert max(len(line) for line in done.out.splitlines()) <= WIDTH
            assert "\x1b" not in done.out


def test_memory_table_shows_markup_in_a_path_as_written(place: Path) -> None:
    config = {
        **{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512},
        **{"num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2},
        **{"intermediate_size": 1024, "vocab_size": 1000, "max_position_embeddings": 32768},
    }
    (place / "[red]tiny").mkdir()
    (place / "[red]tiny" / "config.json").write_text(json.dumps(config))
    done = infersim("fit", "[red]tiny", "--gpu", "l40s")
    assert done.code == 0
    assert "[red]tiny" in done.out


def test_gpus_are_listed_with_what_tells_them_apart() -> None:
    rows = {line.split()[0]: line.split()[1:] for line in infersim("list", "gpus").out.splitlines()}
    assert rows["GiB"] == ["TB/s", "TFLOP/s", "at", "fp8", "USD/h", "kernels"]
    assert rows["h100-sxm"] == ["79", "3.35", "989", "1979", "3.99", "timed"]
    assert rows["rtx-3090"] == ["24", "0.94", "71", "-", "0.50", "relative", "of", "rtx-pro-6000"]
    assert rows["h100-nvl"][-3:] == ["relative", "of", "h100-sxm"]
    assert rows["gaudi-3"] == ["126", "3.67", "1835", "1835", "-", "data", "sheet"]


@pytest.mark.parametrize("kind", ["gpus", "models", "engines"])
def test_every_catalogue_entry_is_listed_and_shown(kind: str) -> None:
    listed = infersim("list", kind)
    assert listed.code == 0
    assert listed.out.splitlines()[0] == kind
    for name in catalog.names(kind):  # type: ignore[arg-type]
        assert f"  {name} " in listed.out
        shown = infersim("show", name)
        assert shown.code == 0
        assert shown.out.startswith(f"# {kind}/{name}\n")
        whole = yaml.safe_load(shown.out)
        assert whole == whole | catalog.written(kind, name)  # type: ignore[arg-type]
        if kind == "gpus" and "extends" not in whole:
            assert set(whole) >= {"efficiency", "attention", "link", "node", "power"}
    assert all(len(line) <= WIDTH for line in listed.out.splitlines())


TINY = {
    **{"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_hidden_layers": 4},
    **{"num_attention_heads": 8, "intermediate_size": 1024, "vocab_size": 1000},
}


def test_a_model_that_is_a_file_is_shown_as_it_is_read(place: Path) -> None:
    (place / "tiny").mkdir()
    quantised = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    document = {**TINY, "quantization_config": quantised}
    (place / "tiny" / "config.json").write_text(json.dumps(document))
    for name in ("tiny/config.json", "tiny"):
        shown = infersim("show", name)
        assert shown.code == 0
        assert shown.out.startswith(f"# models: {name}\n")
        found = yaml.safe_load(shown.out)
        assert found["layers"][0]["attention"]["num_kv_heads"] == 8  # as the class assumes
        assert found["max_position_embeddings"] == {
            "value": 2048, "source": "default of transformers for the class; not stated"
        }  # fmt: skip
        assert found["published_format"]["weights"] == "int4-group"
    shown = infersim("show", "Qwen/Qwen3-8B-AWQ")
    assert shown.out.startswith("# models: Qwen/Qwen3-8B-AWQ\n")
    assert "read as qwen3-8b" in shown.out


def test_a_gpu_that_is_a_file_is_shown_with_what_is_taken_and_checked(place: Path) -> None:
    text = "memory: 32GiB\nbandwidth: 1792GB/s\npeak_flops: {bf16: 209TFLOP/s}\n"
    (place / "mine.yaml").write_text(text)
    shown = infersim("show", "mine.yaml")
    assert shown.out.startswith("# gpus: mine.yaml\n")
    found = yaml.safe_load(shown.out)
    assert found["memory"] == "32GiB"
    assert found["link"]["value"]["bandwidth"] == "3.7GB/s"
    assert found["link"]["source"].startswith("default, not measured: ")
    assert set(found) >= set(DEFAULTS)
    named = {key for key in DEFAULTS if found[key]["source"].startswith("default, not measured: ")}
    assert named == set(DEFAULTS) - {"sms", "efficiency", "attention"}  # those of the relative
    (place / "mine.yaml").write_text(text.replace("peak_flops", "peak_flop"))
    refused = infersim("show", "mine.yaml")
    assert refused.code == 2
    assert "did you mean 'peak_flops'?" in refused.err


@cache
def in_terminal(columns: int, *arguments: str, **variables: str) -> str:
    """stdout of the command when that is a terminal of so many columns (stderr is none)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-m", "sim.cli", *arguments],
        stdout=theirs,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TERM="xterm-256color", **variables),
    ) as child:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux: the other end is closed
                break
            if not part:
                break
            shown += part
        assert child.stderr is not None
        assert child.stderr.read() == ""
    os.close(ours)
    assert child.returncode == 0
    return shown.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours_but_never_more_than_88_columns() -> None:
    shown = in_terminal(200, "run", "one.yaml", "--no-report")
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(len(line) for line in plain.splitlines() if "Run: " not in line) <= WIDTH


def test_no_color_is_obeyed() -> None:
    shown = in_terminal(80, "run", "one.yaml", "--no-report", NO_COLOR="1")
    assert "of requests" in shown
    assert "\x1b" not in shown


def test_a_terminal_of_80_columns_loses_no_column() -> None:
    shown = in_terminal(80, "run", "one.yaml", "--no-report", NO_COLOR="1")
    (row,) = [line for line in shown.splitlines() if "time to first token" in line]
    assert row.endswith("│")
    assert row.count("ms") == 5


# -- exit codes ----------------------------------------------------------------------------------

MISTAKES = {
    "file": (["run", "nope.yaml"], "no such file"),
    "directory": (["run", "."], "directory"),
    "nearest file": (["run", "on.yaml"], "one.yaml"),
    "key": (["run", "one.yaml", "--set", "modle=llama-3.1-8b"], "unknown key 'modle'"),
    "nested key": (["run", "one.yaml", "--set", "slo.ttfl=1s"], "ttft"),
    "no value": (["run", "one.yaml", "--set", "seed"], "key=value"),
    "bad value": (["run", "one.yaml", "--set", "fleet.0.replicas=some"], "replicas"),
    "no such pool": (["run", "one.yaml", "--set", "fleet.3.replicas=2"], "fleet has no entry '3'"),
    "model": (["run", "one.yaml", "--set", "model=llama-3-8b"], "llama-3.1-8b"),
    "gpu": (["run", "one.yaml", "--set", "fleet.gpu=h100"], "h100-sxm"),
    "engine": (["run", "one.yaml", "--set", "engine=vlm"], "vllm"),
    "batching": (["run", "one.yaml", "--set", "scheduler.batching=continous"], "continuous"),
    "own batching": (["run", "one.yaml", "--set", "scheduler.batching=no.such:Thing"], "no.such"),
    "later": (["run", "one.yaml", "--set", "precision.kv_cache=nvfp4"], "not supported yet"),
    "too long": (["run", "one.yaml", "--set", "max_model_len=200000"], "131,072"),
    "seed": (["run", "one.yaml", "--seed", "-1"], "at least 0"),
    "no number": (["run", "one.yaml", "--seed", "seven"], "--seed"),
    "check": (["run", "one.yaml", "--check", "--set", "slo=null"], "has none in slo"),
    "validate": (["validate", "nope.yaml"], "no such file"),
    "list": (["list", "gpu"], "did you mean 'gpus'?"),
    "show": (["show", "h100"], "h100-sxm"),
    "fit model": (["fit", "llama-3", "--gpu", "l40s"], "llama-3.1-8b"),
    "fit gpu": (["fit", "llama-3.1-8b", "--gpu", "l40sx"], "l40s"),
    "fit weights": (["fit", "llama-3.1-8b", "--gpu", "l40s", "--weights", "fp7"], "fp8"),
    "fit kv": (["fit", "llama-3.1-8b", "--gpu", "l40s", "--kv-cache", "fp7"], "fp8"),
    "fit engine": (["fit", "llama-3.1-8b", "--gpu", "l40s", "--engine", "x"], "vllm"),
    "fit split": (["fit", "llama-3.1-8b", "--gpu", "l40s", "--tensor-parallel", "7"], "32"),
    "roofline": (["roofline", "llama-3.1-8b", "--gpu", "l40s", "--weights", "fp7"], "fp8"),
    "batch": (["roofline", "llama-3.1-8b", "--gpu", "l40s", "--batch", "0"], "--batch"),
    "no gpu": (["fit", "llama-3.1-8b"], "--gpu"),
    "command": (["rnu"], "rnu"),
    "option": (["run", "one.yaml", "--no-reprot"], "--no-report"),
}


@pytest.mark.parametrize(("arguments", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_ends_with_2_and_says_what_is_right(arguments: list[str], told: str) -> None:
    done = infersim(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert told in re.sub(r"\s+", " ", done.err)
    assert not Path("runs").exists()


INFEASIBLE = {
    "weights": (["--set", "model=llama-3.1-70b", "--set", "fleet.0.gpu=l40s"], "131 GiB"),
    "slab": (["--set", "kv_cache={allocator: contiguous, num_gpu_blocks: 20}"], "1,024"),
}


@pytest.mark.parametrize(("changes", "told"), INFEASIBLE.values(), ids=INFEASIBLE.keys())
def test_what_does_not_fit_ends_with_3(changes: list[str], told: str) -> None:
    done = run(*changes)
    assert (done.code, done.out) == (3, "")
    assert told in done.err
    assert not Path("runs").exists()


@pytest.mark.parametrize(("gpu", "lacks"), [("a100-sxm-80gb", True), ("h100-sxm", False)])
def test_a_format_that_the_gpu_lacks_is_said_everywhere(gpu: str, lacks: bool) -> None:
    said = f"{gpu} has no fp8 units: weights are stored in fp8 and computed in bf16."
    formats = ["precision.weights=fp8", "precision.activations=fp8", f"fleet.0.gpu={gpu}"]
    done = run(*(word for text in formats for word in ("--set", text)), "--json")
    assert (said in done.document()["infersim"]["notes"]) == lacks
    shown = run(*(word for text in formats for word in ("--set", text)))
    assert (said in " ".join(shown.out.split())) == lacks
    common = ["llama-3.2-1b", "--gpu", gpu, "--weights", "fp8", "--activations", "fp8"]
    for command in ("fit", "roofline"):
        assert (said in " ".join(infersim(command, *common).out.split())) == lacks
    title = infersim("roofline", *common).out.splitlines()[0]
    assert ("fp8 weights, computed in bf16" in title) == lacks


def test_memory_table_of_a_model_that_does_not_fit_ends_with_3() -> None:
    done = infersim("fit", "llama-3.1-70b", "--gpu", "l40s")
    assert done.code == 3
    assert "0 tokens" in done.out


def test_nothing_served_ends_with_3_and_counts_the_reasons() -> None:
    done = run("--set", "max_model_len=2")
    assert done.code == 3
    assert done.err == "nothing could be served: 40 longer than max_model_len\n"
    rows = pd.read_parquet(only_run() / "requests.parquet")
    assert set(rows["reason"]) == {"longer than max_model_len"}


def test_slo_missed_matters_only_when_checked() -> None:
    missed = ["--set", "slo.ttft=1us"]
    assert run(*missed).code == 0
    done = run(*missed, "--check")
    assert done.code == 99
    assert "SLO missed, first by TTFT" in done.out
    assert run("--check").code == 0


def test_explain_batching_without_pytorch_names_what_shows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("calibrate.lazy_torch.installed", lambda: False)
    refused = infersim("explain", "batching", "qwen3-8b")
    assert refused.code == 2
    command = "infersim roofline qwen3-8b --gpu h100-sxm --full"
    assert f"`{command}`" in " ".join(refused.err.split())
    shown = infersim(*command.split()[1:])
    assert "shared" in shown.out


def test_check_does_not_pass_what_a_longer_run_would_miss() -> None:
    overload = ["--set", "workload.arrivals.rate=2000", "--set", "slo.ttft=60s"]
    done = run(*overload, "--check")
    assert done.code == 99
    assert "SLO met so far" in " ".join(done.out.split())
    assert done.err.endswith("met so far, and this run does not show that it will be\n")
    assert run(*overload).code == 0
    told = " ".join(infersim("run", "--help").out.replace("│", " ").split())
    assert "overloaded, too short to tell, or ends before the peak" in told


def test_check_does_not_pass_a_day_without_its_peak() -> None:
    day = "{kind: diurnal, rate: 2, peak_rate: 30, period: 20s}"
    asked = ["--set", f"workload.arrivals={day}", "--set", "slo={ttft: 60s, attainment: 0.5}"]
    assert run(*asked, "--set", "run.requests=40", "--check").code == 99
    assert run(*asked, "--set", "run.requests=320", "--check").code == 0


def test_check_does_not_pass_what_it_could_not_judge() -> None:
    assert run("--check", "--set", "run.warmup=1h").code != 0


@pytest.mark.parametrize(
    "changes",
    [
        [],
        ["--set", "modle=x"],
        ["--set", "model=llama-3.1-70b", "--set", "fleet.0.gpu=l40s"],
        ["--set", "scheduler.batching=no.such:Thing"],
        ["--set", "kv_cache={allocator: contiguous, num_gpu_blocks: 20}"],
    ],
    ids=["good", "key", "weights", "scheduler", "slab"],
)
def test_validate_and_run_agree(changes: list[str]) -> None:
    validated = infersim("validate", "--trust", "one.yaml", *changes)
    assert validated.code == run(*changes).code


def test_a_length_that_is_assumed_is_said_by_every_command(place: Path) -> None:
    folder = place / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(
        json.dumps(
            {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000}
            | {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2}
            | {"num_attention_heads": 8}
        )
    )
    long = ["--set", "workload.prompt_tokens={kind: fixed, value: 3000}"]
    long += ["--set", "max_model_len=null", "--set", "model=./tiny"]
    said = "the 2,048 tokens that transformers takes by default for tiny, whose config.json gives"
    checked = infersim("validate", "one.yaml", *long)
    assert checked.code == 0
    assert said in checked.err
    assert infersim("validate", "one.yaml").err == ""
    told = " ".join(run(*long).out.split())
    assert "To serve them, add max_position_embeddings to the config.json of tiny, which" in told
    planned = infersim("plan", "one.yaml", "--gpus", "h100-sxm", "--no-report", *long)
    assert planned.code == 3
    assert planned.err.count(said) == 1
    assert "1 x h100-sxm, 2 x h100-sxm, 4 x h100-sxm, 8 x h100-sxm: does not fit" in planned.err


def test_validate_reports_every_file_and_the_worst_code(place: Path) -> None:
    (place / "bad.yaml").write_text(SCENARIO.replace("model:", "modle:"))
    (place / "large.yaml").write_text(
        SCENARIO.replace("llama-3.1-8b", "llama-3.1-70b").replace("h100-sxm", "l40s")
    )
    done = infersim("validate", "one.yaml", "bad.yaml", "large.yaml")
    assert done.code == 3
    assert done.out == "one.yaml: ok\n"
    assert "bad.yaml:2:1" in done.err
    assert "does not fit" in done.err
    assert not Path("runs").exists()


def test_validate_runs_no_code_of_a_scenario_that_is_not_trusted(place: Path) -> None:
    """A file that a scenario names leaves a trace when it is imported: only --trust does that."""
    (place / "own.py").write_text(
        "from pathlib import Path\n"
        "from sim.routers import RoundRobin\n"
        "Path('imported').touch()\n"
        "class Mine(RoundRobin):\n    pass\n"
        "def metric(result):\n    return 1.0\n"
    )
    for setting in ("router=own.py:Mine", "metrics=[own.py:metric]"):
        refused = infersim("validate", "one.yaml", "--set", setting)
        assert refused.code == 2
        assert f"own.py ({place / 'own.py'})" in refused.err.replace(":Mine", "").replace(
            ":metric", ""
        )
        assert "infersim validate --trust one.yaml" in refused.err
        assert not (place / "imported").exists()
    trusted = infersim("validate", "one.yaml", "--trust", "--set", "router=own.py:Mine")
    assert (trusted.code, trusted.out) == (0, "one.yaml: ok\n")
    assert (place / "imported").exists()


# -- options -------------------------------------------------------------------------------------


def test_output_directory_may_be_new_or_empty(place: Path) -> None:
    (place / "empty").mkdir()
    for name in ("empty", "deep/er"):
        done = run("-o", name)
        assert done.code == 0
        assert f"Run: {name}\n" in done.out
        assert {path.name for path in (place / name).iterdir()} == RUN_FILES
    assert not Path("runs").exists()


def test_output_directory_with_something_in_it_is_left_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "full").mkdir()
    (place / "full" / "precious").write_text("data")
    done = run("-o", "full")
    assert (done.code, done.out) == (2, "")
    assert "full is not empty" in done.err
    assert [path.name for path in (place / "full").iterdir()] == ["precious"]
    assert (place / "full" / "precious").read_text() == "data"

    def simulate(*_: object, **__: object) -> None:
        raise AssertionError("the run was simulated before anyone looked at the directory")

    monkeypatch.setattr("sim.simulation.simulate", simulate)
    assert run("-o", "full").code == 2


def test_output_that_is_a_file(place: Path) -> None:
    (place / "file").write_text("data")
    for name in ("file", "file/below"):
        done = run("-o", name)
        assert (done.code, done.out) == (2, "")
        assert "cannot write to" in done.err
    assert (place / "file").read_text() == "data"


def test_seed_changes_the_traffic_and_is_recorded(place: Path) -> None:
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        assert run("--seed", str(seed), "-o", name).code == 0
        assert json.loads((place / name / "manifest.json").read_text())["seed"] == seed
        assert json.loads((place / name / "summary.json").read_text())["infersim"]["seed"] == seed
        assert yaml.safe_load((place / name / "resolved.yaml").read_text())["seed"] == seed
    a, b, c = (pd.read_parquet(place / name / "requests.parquet") for name in "abc")
    pd.testing.assert_frame_equal(a, b)
    assert (a["arrival_s"] != c["arrival_s"]).all()


def test_set_reaches_lists_and_nested_keys(place: Path) -> None:
    changes = ["fleet.0.replicas=2", "workload.arrivals.rate=90/min", "slo={ttft: 2s}", "seed=9"]
    done = run("-o", "out", *(part for change in changes for part in ("--set", change)))
    assert done.code == 0
    assert "on 2 x (1 x h100-sxm)," in done.out
    resolved = yaml.safe_load((place / "out" / "resolved.yaml").read_text())
    assert resolved["fleet"][0]["replicas"] == 2
    assert resolved["workload"]["arrivals"]["rate"] == 1.5
    assert (resolved["slo"]["ttft"], resolved["slo"]["tpot"]) == (2.0, None)
    assert resolved["seed"] == 9
    assert (place / "out" / "scenario.yaml").read_text() == SCENARIO


# -- reports -------------------------------------------------------------------------------------


def test_a_report_is_written() -> None:
    done = infersim("run", "one.yaml")
    assert (done.code, done.err) == (0, "")
    page = only_run() / "report.html"
    assert f"Report: {page}" in done.out
    assert page.stat().st_size > 10_000


def test_a_failing_report_costs_a_warning_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("out of ink")

    monkeypatch.setattr("reports.write_report", fail)
    done = infersim("run", "one.yaml", "--json")
    assert done.code == 0
    assert done.document()["completed"] == 40
    assert done.err == "warning: no report was written (RuntimeError: out of ink)\n"
    assert {path.name for path in only_run().iterdir()} == RUN_FILES


# -- interrupts ----------------------------------------------------------------------------------

STARTER = """\
import itertools, sys
from sim.loop.recorder import Recorder
close, served = Recorder.close, itertools.count(1)
def counted(self, *arguments, **named):
    close(self, *arguments, **named)
    if next(served) == 1000:
        print("simulating", file=sys.stderr, flush=True)
Recorder.close = counted
from sim.cli import main
main()
"""


def test_an_interrupt_keeps_what_was_done() -> None:
    arguments = ["run", "one.yaml", "--no-report", "--json", "--set", "run.requests=2000000"]
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as child:
        try:
            assert child.stderr is not None
            assert child.stderr.readline() == "simulating\n"
            child.send_signal(signal.SIGINT)
            out, err = child.communicate()
        finally:
            child.kill()
    done = Outcome(child.returncode, out, err)
    assert done.code == 130
    assert "interrupted" in done.err
    summary = done.document()
    counts, directory = summary["infersim"]["requests"], only_run()
    assert summary["infersim"].pop("run_directory") == str(directory)
    assert summary == json.loads((directory / "summary.json").read_text())
    assert summary["infersim"]["interrupted"] is True
    assert json.loads((directory / "manifest.json").read_text())["status"] == "interrupted"
    assert counts["submitted"] == sum(
        counts[fate] for fate in ("completed", "rejected", "unfinished")
    )
    assert counts["submitted"] + counts["not_arrived"] == 2_000_000
    assert 0 < counts["completed"] < 2_000_000
    rows = pd.read_parquet(directory / "requests.parquet")
    assert len(rows) == counts["submitted"]
    assert rows["status"].value_counts().to_dict().items() <= counts.items()
    assert {path.name for path in directory.iterdir()} == RUN_FILES


def test_an_interrupt_before_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sim.scenario.load_scenario", interrupted)
    done = run()
    assert (done.code, done.out, done.err) == (130, "", "interrupted\n")


# -- what the documentation says -----------------------------------------------------------------


def documented() -> list[str]:
    """The commands in the code blocks of the README."""
    blocks = re.findall(r"^```[a-z]*\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    lines = [line.partition("#")[0] for block in blocks for line in block.splitlines()]
    commands = [part.strip() for line in lines for part in line.split(";")]
    return [command for command in commands if command.startswith("infersim ")]


def test_there_are_commands_in_the_readme() -> None:
    assert {command.split()[1] for command in documented()} >= {"run", "find", "plan", "compare"}


LONG = {"calibrate", "observe", "score", "validate-run", "find", "plan", "ablate", "diagnose"}
LONG |= {"sensitivity", "export", "serve", "ui"}


@pytest.mark.parametrize("command", documented())
def test_commands_of_the_readme_work(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "scenarios").symlink_to(ROOT / "scenarios")
    words: list[str] = []
    for word in shlex.split(command)[1:]:
        words += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    if words[0] in ("run", "compare", "sweep"):
        words += ["--no-report", "--set", "run.requests=50"]
    if words[0] in LONG:
        words.append("--help")  # minutes, or files of one's own; unknown options are refused
    done = infersim(*words)
    assert done.code in ((0, 99) if "--check" in words else (0,))
    assert done.out


@pytest.mark.parametrize("arguments", [["list"], ["run", "one.yaml", "--no-report", "--json"]])
def test_a_reader_that_stops_early_is_no_error(arguments: list[str]) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sim.cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as child:
        assert child.stdout is not None
        child.stdout.close()
        assert child.stderr is not None
        assert "Traceback" not in child.stderr.read()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("form", ["--json", "--no-report"])
def test_a_full_disk_behind_stdout_is_an_error_and_the_run_is_kept(
    tmp_path: Path, form: str
) -> None:
    (tmp_path / "one.yaml").write_text(
        "model: llama-3.1-8b\nfleet: {gpu: h100-sxm}\nworkload:\n  arrivals: {kind: burst}\n"
        "  prompt_tokens: {kind: fixed, value: 64}\n  output_tokens: {kind: fixed, value: 4}\n"
        "run: {requests: 3}\n"
    )
    command = [sys.executable, "-m", "sim.cli", "run", "one.yaml", "--no-report", "-o", "out", form]
    root = str(ROOT)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": root},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the run is in out" in done.stderr
    assert (tmp_path / "out" / "summary.json").exists()


# -- awkward surroundings ------------------------------------------------------------------------


def test_a_policy_whose_module_exits_is_told_not_obeyed(place: Path) -> None:
    (place / "leaver.py").write_text("import sys\nsys.exit(0)\n")
    command = ["run", "one.yaml", "--set", "scheduler.batching=leaver:Policy"]
    done = subprocess.run(
        [sys.executable, "-m", "sim.cli", *command],
        capture_output=True, text=True, check=False,
        env=environment(PYTHONPATH=f"{ROOT}{os.pathsep}{place}"),
    )  # fmt: skip
    assert done.returncode == 2
    assert "leaver:Policy" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_order_that_wants_arguments_is_a_mistake(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(place)
    (place / "demanding.py").write_text(
        "from sim.schedulers.orders import Order\n"
        "class Needs(Order):\n"
        "    def __init__(self, weight): ...\n"
        "    def key(self, request): return 0.0\n"
    )
    done = run("--set", "scheduler.order=demanding:Needs")
    assert done.code == 2
    assert "cannot be made without arguments" in done.err


@pytest.mark.parametrize("option", ["--context", "--block-size", "--max-num-seqs"])
def test_a_count_of_400_digits_is_a_mistake(option: str) -> None:
    done = infersim("fit", "llama-3.1-8b", "--gpu", "l40s", option, "9" * 400)
    assert done.code == 2
    assert option in done.err


def test_a_terminal_that_cannot_show_a_name_shows_the_rest(place: Path) -> None:
    (place / "two.yaml").write_text(f"name: größer\n{SCENARIO}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "sim.cli", "run", "two.yaml", "--no-report"],
        capture_output=True, text=True, check=False, env=environment(PYTHONIOENCODING="ascii"),
    )  # fmt: skip
    assert done.returncode == 0
    assert "gr??er" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="file names are text elsewhere")
def test_a_directory_whose_name_is_not_utf8(place: Path) -> None:
    name = os.fsdecode(b"out\xff")
    assert process("run", "one.yaml", "--no-report", "-o", name).code == 0
    assert {path.name for path in Path(name).iterdir()} >= RUN_FILES


@pytest.mark.parametrize("command", ["fit", "roofline"])
def test_a_scenario_is_answered_with_the_model_and_the_gpu_to_write(command: str) -> None:
    for name in ("chat", "scenarios/chat.yaml"):
        refused = CliRunner().invoke(app, [command, name])
        assert refused.exit_code == 2
        written = f"infersim {command} llama-3.1-8b --gpu h100-sxm"
        assert f"is a scenario; this command takes a model and a GPU: `{written}`" in refused.stderr
    done = CliRunner().invoke(app, written.split()[1:])
    assert done.exit_code == 0, done.output
