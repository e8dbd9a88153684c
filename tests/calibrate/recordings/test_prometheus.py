"""A window of Prometheus becomes traffic and figures: histograms, rates, hits, what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from calibrate.recordings import find_format
from calibrate.recordings.prometheus_queries import Buckets
from calibrate.recordings.recording import Recording, RecordingChoice
from sim.cli import app
from sim.commands.observe import _next
from sim.errors import TraceError
from sim.workload.traces import read_trace

WINDOW = 600.0
UNTIL = "2026-11-28T12:00:00+00:00"

VLLM = {
    "vllm:time_to_first_token_seconds_count": 300.0,
    "vllm:time_to_first_token_seconds_sum": 60.0,
    "vllm:request_prompt_tokens_count": 300.0,
    "vllm:request_prompt_tokens_sum": 60_000.0,
    "vllm:prompt_tokens_total": 60_000.0,
    "vllm:generation_tokens_total": 15_000.0,
    "vllm:prefix_cache_queries_total": 60_000.0,
    "vllm:prefix_cache_hits_total": 24_000.0,
}
BUCKETS = {
    "vllm:time_to_first_token_seconds_bucket": {"0.1": 100.0, "0.3": 250.0, "+Inf": 300.0},
    "vllm:request_prompt_tokens_bucket": {"100": 100.0, "500": 300.0, "+Inf": 300.0},
}


class Stub(BaseHTTPRequestHandler):
    """Answers sums of increases, buckets, and a curve: all requests in the second half."""

    counters: ClassVar[dict[str, float]] = {}
    models = ("Qwen/Qwen3-8B",)
    seen = WINDOW

    def do_GET(self) -> None:
        """Answer one query."""
        query = parse_qs(urlsplit(self.path).query)["query"][0]
        body = json.dumps({"status": "success", "data": {"result": self.found(query)}})
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def up(self, since: float) -> list[dict[str, Any]]:
        """That servers were seen in the last ``since`` seconds of the window."""
        end = float(parse_qs(urlsplit(self.path).query)["end"][0])
        return [{"values": [[t, "2"] for t in np.arange(end - since + 5, end + 1, 5)]}]

    def curve(self) -> list[dict[str, Any]]:
        """A request each second of the second half of the window."""
        asked = parse_qs(urlsplit(self.path).query)
        start, end, step = (float(asked[key][0]) for key in ("start", "end", "step"))
        times = np.arange(start, end + step / 2, step)
        late = times > end - WINDOW / 2
        return [{"values": [[t, str(step * n)] for t, n in zip(times, late, strict=True)]}]

    def found(self, query: str) -> list[dict[str, Any]]:  # noqa: PLR0911 - a kind after the other
        """The series of a query."""
        if self.path.startswith("/api/v1/query_range"):
            return self.up(self.seen) if query.startswith("count(") else self.curve()
        if query.startswith("count by (model_name)"):
            return [{"metric": {"model_name": name}, "value": [0, "1"]} for name in self.models]
        if query.startswith("count("):
            return [{"metric": {}, "value": [0, "2"]}]
        if query == "vllm:cache_config_info":
            info = {"num_gpu_blocks": "1000", "block_size": "16", "enable_prefix_caching": "True"}
            return [{"metric": info, "value": [0, "1"]}]
        for name, buckets in BUCKETS.items():
            if f"{name}[" in query and self.counters:
                return [{"metric": {"le": le}, "value": [0, str(v)]} for le, v in buckets.items()]
        for name, value in self.counters.items():
            if f"{name}[" in query:
                return [{"metric": {}, "value": [0, str(value)]}]
        return []

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: Any) -> Iterator[str]:
    monkeypatch.setattr(Stub, "counters", VLLM)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), Stub)
    Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}"
    listening.shutdown()
    listening.server_close()


def read(url: str, **choice: Any) -> Recording:
    asked = RecordingChoice(window=WINDOW, until=UNTIL, **choice)
    return find_format("prometheus").read(Path(url), asked)


def test_quantiles_are_evenly_spread_in_their_buckets() -> None:
    found = Buckets(np.array([1.0, 2.0, 4.0, math.inf]), np.array([10.0, 10.0, 20.0, 20.0]), 1.0)
    assert [found.quantile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [0.5, 1.0, 3.0, 4.0]


def test_a_window_gives_figures_traffic_and_settings(server: str, tmp_path: Path) -> None:
    found = read(server)
    assert found.summary is not None
    assert found.stated.engine == "vllm"
    assert found.stated.model == "Qwen/Qwen3-8B"
    assert found.stated.settings == {
        "fleet.0.replicas": 2,
        "kv_cache.num_gpu_blocks": 1000,
        "kv_cache.block_size": 16,
        "kv_cache.enable_prefix_caching": True,
    }
    metrics = found.summary.metrics
    assert metrics["mean_ttft_ms"] == pytest.approx(200)
    assert metrics["p50_ttft_ms"] == pytest.approx(1e3 * (0.1 + 0.2 * 50 / 150))
    assert "p99_ttft_ms" not in metrics  # its bucket has no end
    assert any(note.endswith("TTFT p90, TTFT p95, TTFT p99.") for note in found.notes)
    assert found.summary.state["hit_rate"] == pytest.approx(0.4)
    assert metrics["request_throughput"] == pytest.approx(0.5)
    assert metrics["output_throughput"] == pytest.approx(25)
    drawn = found.summary.drawn
    assert drawn is not None
    assert len(drawn.arrivals) == 300
    assert float(drawn.prompt_tokens.mean()) == pytest.approx(200, rel=0.02)
    assert set(drawn.output_tokens.tolist()) == {50}  # no histogram: all alike
    drawn.write(tmp_path / "traffic.jsonl")
    trace = read_trace(tmp_path / "traffic.jsonl")
    assert trace.repeated is not None
    share = float(trace.repeated.sum() / trace.prompt_tokens.sum())
    assert share == pytest.approx(0.4, abs=0.05)


def test_requests_come_when_the_counters_rose(server: str) -> None:
    """All of them in the second half of ten minutes: within five of each other."""
    drawn = read(server).summary
    assert drawn is not None
    assert drawn.drawn is not None
    assert 250 < float(drawn.drawn.arrivals.max()) <= 300


@pytest.mark.parametrize("name", ["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"])
def test_the_use_of_the_kv_cache_is_read_by_each_of_its_names(
    server: str, monkeypatch: Any, name: str
) -> None:
    assert "mean_kv_used" not in read(server).summary.state
    monkeypatch.setattr(Stub, "counters", VLLM | {name: 0.25})
    assert read(server).summary.state["mean_kv_used"] == 0.25


def test_several_models_and_no_requests_are_refused(server: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(Stub, "models", ("a", "b"))
    with pytest.raises(TraceError, match="serves a, b: choose one, --select"):
        read(server)
    monkeypatch.setattr(Stub, "counters", {})
    with pytest.raises(TraceError, match="neither vLLM nor SGLang served a request"):
        read(server)


def test_an_address_without_a_prometheus_is_one_clear_error() -> None:
    for url, message in (("http://127.0.0.1:9", "no Prometheus answers"), ("x", "the address of")):
        with pytest.raises(TraceError, match=message):
            read(url)


def test_a_window_longer_than_the_data_is_cut_to_it(server: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(Stub, "seen", 300.0)
    found = read(server)
    assert found.summary is not None
    assert found.summary.metrics["request_throughput"] == pytest.approx(1.0)
    assert any("data of the last 5 min" in note for note in found.notes)


def test_how_a_server_was_started_goes_before_what_it_exports(
    server: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    start = "vllm serve Qwen/Qwen3-8B --max-num-seqs 64 --block-size 32 --numa-bind\n"
    Path("start.sh").write_text(start, encoding="utf-8")
    asked = ["observe", server, "--from", "prometheus", "--gpu", "h100-sxm", "--no-report"]
    asked += ["--window", "10m", "--until", UNTIL, "--server", "start.sh", "-o", "day"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.stderr
    found = yaml.safe_load(Path("day/scenario.yaml").read_text(encoding="utf-8"))
    assert found["fleet"] == [{"replicas": 2, "gpu": "h100-sxm"}]
    assert found["scheduler"]["max_num_seqs"] == 64
    assert found["kv_cache"]["block_size"] == 32
    assert "num_gpu_blocks" not in found["kv_cache"]
    run = ["run", "day/scenario.yaml", "--json", "--no-report", "--no-save"]
    for more, blocks in (([], 1000), (["--set", "fleet.0.tensor_parallel=2"], 2000)):
        done = CliRunner().invoke(app, [*run, *more])
        known = json.loads(done.stdout)["infersim"]["kv_cache"]["num_gpu_blocks"]
        assert known == blocks if not more else known > blocks
    Path("start.sh").write_text("fleet: 3\n", encoding="utf-8")
    again = CliRunner().invoke(app, [*asked[:-1], "again"])
    assert again.exit_code == 2
    assert "start.sh:1" in again.stderr, "a faulty scenario is one"


def test_the_busy_hour_of_a_day_is_told(server: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(Stub, "seen", 6 * 3600)
    found = find_format("prometheus").read(
        Path(server), RecordingChoice(window=6 * 3600.0, until=UNTIL)
    )
    (told,) = [note for note in found.notes if note.startswith("Busy hour")]
    assert "requests/s, TTFT p95 " not in told, "a quantile in a bucket without an end is not said"
    assert told.endswith("requests/s (workload.trace.busiest: 1h).")


@pytest.mark.parametrize(("hours", "busy"), [(24.0, True), (1.0, False)])
def test_a_long_day_is_asked_by_its_busy_hour(hours: float, busy: bool) -> None:
    lines = _next(Path("day"), {"duration": hours * 3600, "completed": 80_000})
    assert all((" --set workload.trace.busiest=1h" in line) is busy for line in lines[1:3])


def test_the_day_that_was_recorded_runs_with_failures(
    server: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ["observe", server, "--from", "prometheus", "--gpu", "h100-sxm", "--no-report"]
    asked += ["--window", "10m", "--until", UNTIL, "-o", "day"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.stderr
    assert "infersim diagnose day/scenario.yaml" in done.stdout
    outage = "failures.outages=[{at: 1min, replica: 0, for: 10s}]"
    again = ["run", "day/scenario.yaml", "--set", outage, "--no-save"]
    done = CliRunner().invoke(app, again)
    assert done.exit_code == 0, done.stderr
