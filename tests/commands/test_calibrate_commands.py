"""What ``infersim calibrate`` prints, writes and exits with."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from calibrate import device, lazy_torch, session, suite
from calibrate.device import DeviceFacts, open_device
from calibrate.lazy_torch import installed
from calibrate.measurement_store import MeasurementStore
from calibrate.measurements import Measurement, read, read_meta
from sim.commands.calibrate import app
from sim.errors import UsageError
from sim.specs.profile import KernelFit, Profile, Score

needs_torch = pytest.mark.skipif(not installed(), reason="PyTorch is not installed")
TICK = 0.1
"""Seconds that pass from one reading of a clock to the next, so that three or four are a point."""

FACTS = DeviceFacts("cpu", "Some CPU", 2**34, 2, 2**25, {})


def invoke(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.stdout, result.stderr


def fake_fit(
    measurements: Sequence[Measurement], facts: DeviceFacts, path: Path, *, drift: float = 0.0
) -> Profile:
    """What fitting looks like from here: as many points as it was given."""
    path.write_text("version: 1\n")
    error = Score(0.051, 0.123, -0.02, len(measurements))
    kernels = {"gemm": {"bf16": KernelFit({}, {}, error)}}
    return Profile("measured here", "2026-01-01", {"name": facts.name}, kernels)


@pytest.fixture
def _fitting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "load_fit", lambda: fake_fit)


def test_help_needs_neither_torch_nor_numpy() -> None:
    code = (
        "import sys\nfrom sim.commands.calibrate import app\n"
        "try:\n    app(['run', '--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "held = {'torch', 'numpy', 'scipy', 'pandas'} & set(sys.modules)\nassert not held, held"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--time-budget" in done.stdout


def test_run_may_be_left_out() -> None:
    for arguments in (["--device", "gpu"], ["run", "--device", "gpu"]):
        code, _, stderr = invoke(*arguments, "--no-fit")
        assert code == 2
        assert stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cpu", "--precision", "bf15"], "--precision bf15: not known (did you mean"),
        (["--device", "cpu", "--models", "llama-3.1-8"], "llama-3.1-8b"),
        (["--device", "cpu", "--time-budget", "3 eons"], "--time-budget 3 eons: unknown unit"),
        (["--device", "cpu", "--time-budget", "0s"], "--time-budget: expected at least 1 s"),
        (["--device", "cpu", "--out", "no/where/gpu.yaml"], "there is no directory"),
        (["--device", "cpu", "--only", "expert"], "--only expert: not known (did you mean 'exp"),
        (
            ["--device", "cpu", "--models", "qwen3-next-80b-a3b"],
            "qwen3-next-80b-a3b has layers with",
        ),
        (["--device", "cpu", "--only", "latent", "--fit"], "--only: the ceilings of"),
    ],
)
def test_mistakes_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    fit = () if "--fit" in arguments else ("--no-fit",)
    code, stdout, stderr = invoke(*arguments, *fit)
    assert (code, stdout) == (2, "")
    assert said in stderr
    assert list(tmp_path.iterdir()) == []


def test_without_torch_a_sentence_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, stderr = invoke("--device", "cpu", "--no-fit")
    assert code == 2
    assert "error: measuring needs PyTorch" in stderr
    assert "infersim[calibrate]" in stderr
    assert lazy_torch.optional("torch") is None


@needs_torch
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpu", r"--device gpu: expected cpu, cuda or cuda:INDEX"),
        ("cdua", r"did you mean 'cuda'"),
        ("cpu:1", "expected cpu, cuda or cuda:INDEX"),
        ("cuda:99", "--device cuda"),
    ],
)
def test_devices_that_are_not_there(name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_device(name)


@needs_torch
def test_the_cpu_is_described() -> None:
    found = open_device("cpu")
    facts = found.facts
    assert facts.name
    assert facts.memory > 2**28
    assert 2**16 < facts.cache < facts.memory
    assert facts.units >= 1
    assert 0 < found.free_memory() <= facts.memory
    assert found.responds()
    assert DeviceFacts.from_document(json.loads(json.dumps(facts.document()))) == facts
    with pytest.raises(UsageError, match="--threads 0"):
        open_device("cpu", 0)


@needs_torch
def test_nvidia_smi_is_believed_only_if_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    about = SimpleNamespace(uuid="1234")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: about)
    asked: list[list[str]] = []

    def answer(command: list[str], **options: object) -> SimpleNamespace:
        asked.append(command)
        return SimpleNamespace(stdout="550.1, 1980\n")

    monkeypatch.setattr(device.subprocess, "run", answer)
    told = device._nvidia_smi(0, ["driver_version", "clocks.sm"])
    assert told == {"driver_version": "550.1", "clocks.sm": "1980"}
    assert "GPU-1234" in asked[0]
    assert device._nvidia_smi(0, ["driver_version"]) == {}

    def missing(command: list[str], **options: object) -> SimpleNamespace:
        raise FileNotFoundError

    monkeypatch.setattr(device.subprocess, "run", missing)
    assert device._nvidia_smi(0, ["driver_version"]) == {}


@needs_torch
@pytest.mark.usefixtures("_fitting")
def test_measure_fit_and_measure_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real kernels, really timed; but the budget is used up by readings of the clock, so that a
    busy machine measures as many points as an idle one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(device, "_cpu_cache", lambda: 2**20)
    monkeypatch.setattr(suite, "ANCHOR_LONGEST", 0.0)  # what is an anchor depends on real time
    readings = itertools.count()
    ticking = partial(suite.Suite, clock=lambda: TICK * next(readings))
    monkeypatch.setattr(session, "Suite", ticking)
    common = ("--device", "cpu", "--models", "llama-3.2-1b", "--precision", "fp32")
    common += ("--accept-drift",)  # how noisy this machine is now is no matter here
    code, stdout, stderr = invoke(*common, "--time-budget", "6s", "--out", "mine.yaml")
    assert code == 0, stderr
    assert "Error on held-out shapes" in stdout
    assert "5.1%" in stdout
    assert "Profile: mine.yaml" in stdout
    table = read(tmp_path / "mine.csv")
    assert len(table.of("again")) == len(table.usable()) >= 4
    meta = read_meta(tmp_path / "mine.csv")
    assert (meta["ended"], meta["models"], meta["time_budget_s"]) == (
        "finished",
        ["llama-3.2-1b"],
        6,
    )

    code, _, stderr = invoke(*common, "--time-budget", "2s", "--out", "mine.yaml")
    assert (code, "mine.yaml: exists" in stderr) == (2, True)
    code, _, stderr = invoke(*common, "--out", "other.yaml", "--measurements", "mine.csv")
    assert (code, "--resume continues it" in stderr) == (2, True)

    code, _, stderr = invoke(*common, "--time-budget", "1s", "--out", "mine.yaml", "--resume")
    assert code == 0, stderr
    more = read(tmp_path / "mine.csv")
    assert more.rows[: len(table.rows)] == table.rows
    keys = [row.key for row in more.usable()]
    assert len(keys) == len(set(keys))


@needs_torch
def test_interrupted_the_measurements_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    class Stopping:
        def __init__(self, *arguments: object, **options: object) -> None:
            pass

        def run(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setattr(session, "Suite", Stopping)
    code, _, stderr = invoke("--device", "cpu", "--no-fit", "--out", "mine.yaml")
    assert code == 130
    assert "0 lines are saved in mine.csv; --resume continues there" in " ".join(stderr.split())
    assert read_meta(tmp_path / "mine.csv")["ended"] == "interrupted"


@pytest.mark.usefixtures("_fitting")
def test_fitting_later_needs_no_device(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    with MeasurementStore(path, FACTS, {"models": []}) as store:
        for m in (1, 2, 4):
            shape = {"m": m, "n": 8, "k": 8}
            row = Measurement("gemm", "bf16", "torch.mm", shape, 1e-5, 1e-5, 1e-5, 5, "ok")
            store.add(row)
    code, stdout, _ = invoke("fit", path, "--out", tmp_path / "p.yaml")
    assert code == 0
    assert (tmp_path / "p.yaml").exists()
    assert "3 ok" in stdout
    with MeasurementStore(tmp_path / "none.csv", FACTS, {"models": []}):
        pass
    code, _, stderr = invoke("fit", tmp_path / "none.csv", "--out", tmp_path / "q.yaml")
    assert (code, "holds no timing to fit" in stderr) == (2, True)
