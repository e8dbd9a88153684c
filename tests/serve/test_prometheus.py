"""A real Prometheus scrapes `infersim serve`; the day that is read back from it predicts what was
served. INFERSIM_SCRAPED is how long it scrapes, in seconds."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from typer.testing import CliRunner

from sim.cli import app
from sim.metrics.bands.figure_bands import figure_bands
from sim.result import simulate
from sim.scenario import load_scenario
from tests.places import ROOT

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra `serve`")

PROGRAM = shutil.which("prometheus")
LENGTH = float(os.environ.get("INFERSIM_SCRAPED", "60"))
RATE = 6.0
SERVER = """
version: 1
name: served
model: llama-3.1-8b
fleet: {gpu: h100-sxm}
engine: vllm
max_model_len: 8192
workload: {arrivals: {kind: poisson, rate: 1}, prompt_tokens: {kind: fixed, value: 100},
           output_tokens: {kind: fixed, value: 10}}
run: {requests: 10}
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(url: str, seconds: float) -> None:
    """Wait until something answers at ``url``."""
    end = time.monotonic() + seconds
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.2)


@contextmanager
def started(words: list[str], folder: Path, ready: str) -> Iterator[None]:
    """A program that runs until the end of the block, from when it answers at ``ready``."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log)
        try:
            answers(ready, 60)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


async def clients(url: str, seconds: float) -> tuple[int, float, float]:
    """Poisson arrivals for so long: how many requests were sent, and their mean lengths."""
    draw = np.random.default_rng(3)
    sent: list[tuple[int, int]] = []

    async def one(session: Any, prompt: int, output: int) -> None:
        body = {"prompt": list(range(prompt)), "max_tokens": output, "ignore_eos": True}
        async with session.post(f"{url}/v1/completions", json=body) as response:
            assert response.status == 200, await response.text()
            await response.read()

    # a server may close a connection that is idle just when it is used again
    link = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=link) as session, asyncio.TaskGroup() as group:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            prompt, output = int(draw.integers(50, 1500)), int(draw.integers(20, 300))
            sent.append((prompt, output))
            group.create_task(one(session, prompt, output))
            await asyncio.sleep(draw.exponential(1 / RATE))
    prompts, outputs = zip(*sent, strict=True)
    return len(sent), float(np.mean(prompts)), float(np.mean(outputs))


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="prometheus is not installed")
def test_what_a_real_prometheus_scraped_predicts_what_was_served(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    served, scraped = tmp_path / "served", tmp_path / "scraped"
    served.mkdir()
    scraped.mkdir()
    (tmp_path / "server.yaml").write_text(SERVER, encoding="utf-8")
    port, watch = free_port(), free_port()
    (scraped / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: vllm\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n",
        encoding="utf-8",
    )
    serve = [sys.executable, "-m", "sim", "serve", str(tmp_path / "server.yaml")]
    serve += ["--port", str(port), "-o", str(served / "run"), "--no-report"]
    assert PROGRAM is not None
    look = [PROGRAM, "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    look += [f"--web.listen-address=127.0.0.1:{watch}"]
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    url, metrics = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{watch}"
    with started(serve, served, f"{url}/health"), started(look, scraped, f"{metrics}/-/ready"):
        time.sleep(3)  # the counters are seen at 0
        begun = time.monotonic()
        number, prompts, outputs = asyncio.run(clients(url, LENGTH))
        time.sleep(2)
        window = f"{time.monotonic() - begun + 3:.0f}s"
        asked = ["observe", metrics, "--from", "prometheus", "--server", "server.yaml"]
        done = CliRunner().invoke(
            app, [*asked, "--window", window, "-o", "day", "--json", "--no-report"]
        )
    assert done.exit_code == 0, done.stderr
    seen = json.loads(done.stdout)
    # Prometheus extrapolates an increase to the ends of its window
    assert seen["completed"] == pytest.approx(number, rel=0.1)
    assert seen["total_input_tokens"] / seen["completed"] == pytest.approx(prompts, rel=0.05)
    assert seen["total_output_tokens"] / seen["completed"] == pytest.approx(outputs, rel=0.05)
    scenario = load_scenario(tmp_path / "day" / "scenario.yaml")
    assert scenario.workload.trace is not None
    result = simulate(scenario)
    bands = figure_bands(result.record, result.summary, None)
    assert bands is not None
    for key in ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "output_throughput"):
        low, high = bands["figures"][key]["band90"]
        assert low <= seen[key] <= high, (key, low, seen[key], high)
    checked = CliRunner().invoke(app, ["validate-run", "day", "--no-report", "-o", "checked"])
    assert checked.exit_code == 0, checked.stderr
