"""What operators see and do: metrics, cancellation, replicas that come and go, hostile clients."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sim.loop.recorder import COMPLETED, GAVE_UP
from sim.simulation import simulate

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra `serve`")
parser = pytest.importorskip("prometheus_client.parser", reason="needs the extra `serve`")

from sim.serve.app import Server  # noqa: E402
from sim.serve.meters import FIRST_TOKEN, up_to  # noqa: E402
from sim.serve.running import listening  # noqa: E402
from sim.serve.tokens import encode  # noqa: E402
from tests.serve_harness import Live, serving  # noqa: E402

LONG = {"prompt": "a", "max_tokens": 2000, "ignore_eos": True, "stream": True}


async def ask(live: Live, **body: Any) -> tuple[int, dict[str, Any]]:
    """The status and the document of a completion."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{live.url}/v1/completions", json={"prompt": "a b c"} | body) as response,
    ):
        return response.status, await response.json()


async def control(live: Live, path: str, **body: Any) -> tuple[int, dict[str, Any]]:
    """The status and the document of a control route."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{live.url}/control/{path}", json=body) as response,
    ):
        return response.status, await response.json()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:8000"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null", "Content-Type": "text/plain"}, 403),
    ],
)
def test_pages_in_a_browser_do_not_steer(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    """A page may post to this machine without asking, and a name of its own may lead here."""

    async def post() -> tuple[int, list[str]]:
        async with serving(tmp_path / "run", {"fleet.0.replicas": 2}) as live:
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    f"{live.url}/control/scale", data='{"replicas": 1}', headers=headers
                ) as response,
            ):
                found = response.status
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"{live.url}/control/replicas") as response,
            ):
                document = await response.json()
            return found, [each["state"] for each in document["replicas"]]

    states = ["active", "drained" if status == 200 else "active"]
    assert asyncio.run(post()) == (status, states)


async def samples(live: Live) -> dict[tuple[str, str], float]:
    """The values of all metrics by name and engine; of several by the last label, their sum."""
    async with aiohttp.ClientSession() as session, session.get(f"{live.url}/metrics") as response:
        text = await response.text()
    found: dict[tuple[str, str], float] = {}
    for family in parser.text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, sample.labels["engine"]
            found[key] = found.get(key, 0.0) + sample.value
    return found


async def until(live: Live, name: str, fits: Callable[[float], bool]) -> float:
    """Wait until the sum of a metric over all engines ``fits``, and return it."""
    async with asyncio.timeout(100):  # a test that fails ends
        while True:
            found = await samples(live)
            value = sum(each for (key, _), each in found.items() if key == name)
            if fits(value):
                return value
            await asyncio.sleep(0.01)


def test_metrics_count_what_was_served(tmp_path: Path) -> None:
    async def both() -> None:
        async with serving(tmp_path / "run") as live:
            for tokens in (1, 5, 9):
                await ask(live, max_tokens=tokens, ignore_eos=True)
            found = await samples(live)
            result = live.result()
        assert found["vllm:prompt_tokens_total", "0"] == 9
        assert found["vllm:generation_tokens_total", "0"] == 15
        assert found["vllm:request_success_total", "0"] == 3
        assert found["vllm:inter_token_latency_seconds_count", "0"] == 12
        assert found["vllm:request_time_per_output_token_seconds_count", "0"] == 2
        assert found["vllm:num_requests_running", "0"] == 0
        assert found["vllm:iteration_tokens_total_sum", "0"] == 9 + 12
        assert found["vllm:prefix_cache_queries_total", "0"] == 0  # there is none
        mean = found["vllm:time_to_first_token_seconds_sum", "0"] / 3
        assert mean == pytest.approx(result.summary["mean_ttft_ms"] / 1e3, rel=1e-12)
        mean = found["vllm:e2e_request_latency_seconds_sum", "0"] / 3
        assert mean == pytest.approx(result.summary["mean_e2el_ms"] / 1e3, rel=1e-12)

    asyncio.run(both())


def test_drafts_are_counted(tmp_path: Path) -> None:
    drafts = {"method": "ngram", "num_tokens": 2, "acceptance": {"rates": [1.0, 1.0]}}

    async def both() -> None:
        async with serving(tmp_path / "run", {"speculative": drafts}) as live:
            status, document = await ask(live, max_tokens=10, ignore_eos=True)
            assert (status, document["usage"]["completion_tokens"]) == (200, 10)
            found = await samples(live)
        assert found["vllm:spec_decode_num_drafts_total", "0"] == 3
        assert found["vllm:spec_decode_num_draft_tokens_total", "0"] == 6
        assert found["vllm:spec_decode_num_accepted_tokens_total", "0"] == 6
        assert found["vllm:spec_decode_num_accepted_tokens_per_pos_total", "0"] == 6
        assert found["vllm:generation_tokens_total", "0"] == 10
        assert found["vllm:iteration_tokens_total_count", "0"] == 4
        assert found["vllm:iteration_tokens_total_sum", "0"] == 3 + 9

    asyncio.run(both())


def test_accepted_drafts_are_counted_by_their_place(tmp_path: Path) -> None:
    """With preemption and several sequences: the places add up to what the run recorded."""
    drafts = {"method": "ngram", "num_tokens": 3, "acceptance": {"rates": [0.8, 0.5, 0.2]}}
    tight = {"speculative": drafts, "kv_cache.num_gpu_blocks": 40}

    async def both() -> None:
        async with serving(tmp_path / "run", tight, speed=50.0) as live:
            assert (await ask(live, n=5, max_tokens=200, ignore_eos=True))[0] == 200
            (part,) = live.service.fleet.parts
            found = await samples(live)
            result = live.result()
        assert found["vllm:num_preemptions_total", "0"] > 0
        first, second, third = (part.accepted[place] for place in range(3))
        assert part.checks > first > second > third > 0
        assert part.accepted.total() == result.record.plans["accepted"].sum()
        assert (
            found["vllm:spec_decode_num_accepted_tokens_per_pos_total", "0"]
            == first + second + third
        )
        generated = found["vllm:iteration_tokens_total_sum", "0"]
        plans = result.record.plans
        assert generated == plans["prefill_tokens"].sum() + plans["delivered"].sum()
        assert found["vllm:iteration_tokens_total_count", "0"] == plans["iterations"].sum()

    asyncio.run(both())


def test_iterations_count_when_they_end(tmp_path: Path) -> None:
    """In the middle of a leap as well, which is one event from its first to its last iteration."""

    async def both() -> None:
        async with serving(tmp_path / "run", speed=1.0) as live:
            waits = asyncio.create_task(ask(live, max_tokens=2000, ignore_eos=True))
            some = await until(live, "vllm:generation_tokens_total", (5.0).__le__)
            found = await samples(live)
            assert found["vllm:iteration_tokens_total_count", "0"] >= some
            assert found["vllm:iteration_tokens_total_count", "0"] < 2000
            waits.cancel()

    asyncio.run(both())


def test_every_pool_has_its_own_memory_in_the_metrics(tmp_path: Path) -> None:
    fleet = [{"gpu": "h100-sxm"}, {"name": "old", "gpu": "a100-sxm-40gb"}]

    async def both() -> None:
        async with (
            serving(tmp_path / "run", {"fleet": fleet}) as live,
            aiohttp.ClientSession() as session,
            session.get(f"{live.url}/metrics") as response,
        ):
            text = await response.text()
        families = parser.text_string_to_metric_families(text)
        (info,) = [family for family in families if family.name == "vllm:cache_config_info"]
        blocks = {s.labels["engine"]: int(s.labels["num_gpu_blocks"]) for s in info.samples}
        assert blocks["0"] > 2 * blocks["1"] > 0
        for at, pool in enumerate(live.service.setup.pools):  # as vLLM logs it, with the null block
            assert (
                blocks[str(at)] == pool.capacity.num_gpu_blocks == pool.capacity.usable_blocks + 1
            )

    asyncio.run(both())


def test_the_buckets_are_vllms() -> None:
    assert len(FIRST_TOKEN) == 22
    assert up_to(4096) == (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)


def test_repeated_prompts_hit_the_cache_and_the_trace_says_so(tmp_path: Path) -> None:
    async def both() -> None:
        caching = {"kv_cache.enable_prefix_caching": True, "kv_cache.num_gpu_blocks": 60}
        async with serving(tmp_path / "run", caching, speed=50.0) as live:
            for number in range(12):
                shared = "one two three four " * (20 if number % 2 else 31)
                await asyncio.gather(
                    ask(live, prompt=f"{shared}and {number}", max_tokens=30, ignore_eos=True),
                    ask(live, prompt=f"{shared}but {number % 3}", max_tokens=9, ignore_eos=True),
                )
            found = await samples(live)
            result = live.result()
        assert found["vllm:prefix_cache_hits_total", "0"] > 500
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.plans.tobytes() == again.record.plans.tobytes()
        assert result.record.requests.tobytes() == again.record.requests.tobytes()
        assert result.summary == again.summary
        assert again.record.sessions is None  # nobody said which requests belong together
        assert result._request_columns().keys() == again._request_columns().keys()

    asyncio.run(both())


def test_who_goes_away_leaves_the_engine(tmp_path: Path) -> None:
    async def both() -> None:
        async with serving(tmp_path / "run", speed=2.0) as live:
            async with aiohttp.ClientSession() as session:
                response = await session.post(f"{live.url}/v1/completions", json=LONG)
                await response.content.readline()
                waits = asyncio.create_task(ask(live, max_tokens=2000, ignore_eos=True))
                await until(live, "vllm:num_requests_running", (2.0).__eq__)
                response.close()
                waits.cancel()
                await until(live, "vllm:num_requests_running", (0.0).__eq__)
                found = await samples(live)
            assert found["vllm:kv_cache_usage_perc", "0"] == 0
            status, _ = await ask(live, max_tokens=3)
            assert status == 200
            result = live.result()
        assert result.record.requests["status"].tolist() == [3, 3, 0]
        assert 0 < result.record.requests["generated"][0] < 2000
        assert live.service.document()["cancelled"] == 2
        rows = (tmp_path / "run" / "trace.csv").read_text().splitlines()
        assert rows[0].endswith(",cancelled_after_s")
        assert [row.endswith(",") for row in rows[1:]] == [False, False, True]
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.plans.tobytes() == again.record.plans.tobytes()
        assert result.summary == again.summary
        assert "2 answers were cancelled" in live.service.notes()[1]

    asyncio.run(both())


def test_a_replica_fails_and_its_clients_are_told(tmp_path: Path) -> None:
    async def both() -> None:
        two = {"fleet.replicas": 2, "steering.cold_start": "0s"}
        async with serving(tmp_path / "run", two, speed=2.0) as live:
            async with aiohttp.ClientSession() as session:
                response = await session.post(f"{live.url}/v1/completions", json=LONG)
                await response.content.readline()
                whole = asyncio.create_task(ask(live, max_tokens=100, ignore_eos=True))
                status, document = await control(live, "replicas/0/fail")
                assert status == 200
                assert [each["state"] for each in document["replicas"]] == ["failed", "active"]
                events = (await response.text()).split("\n\n")
                told = json.loads(events[-2][6:])["error"]["message"]
                assert told == "the replica that had it failed"
            assert (await whole)[0] == 200
            await control(live, "replicas/1/drain")
            assert (await ask(live))[0] == 503
            assert (await control(live, "replicas/7/drain"))[0] == 404
            assert (await control(live, "scale", replicas=3))[0] == 400
            await control(live, "replicas/0/start")
            assert (await ask(live))[0] == 200
            assert (await control(live, "scale", replicas=1.5))[0] == 400
            assert "Replicas were started" in live.service.notes()[-1]
            result = live.result()
        assert result.summary["infersim"]["failures"]["lost"] == 1
        (outage,) = result.summary["infersim"]["failures"]["outages"]
        assert outage["until_s"] > outage["since_s"] > 0
        assert result.summary["infersim"]["failures"]["no_replica"] == 1
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.plans.tobytes() == again.record.plans.tobytes()
        assert result.record.requests.tobytes() == again.record.requests.tobytes()
        assert result.summary == again.summary

    asyncio.run(both())


def test_replicas_fail_when_the_scenario_says_so(tmp_path: Path) -> None:
    failing = {
        "failures": [{"at": "10s", "for": "20s"}],
        "scheduler": {"client_timeout": "1s", "on_timeout": "retry"},  # left to real clients
    }

    async def both() -> None:
        async with serving(tmp_path / "run", failing, speed=10.0) as live:
            status, document = await ask(live, max_tokens=4000, ignore_eos=True)
            assert (status, document["error"]["message"]) == (503, "the replica that had it failed")
            assert (await ask(live, max_tokens=5))[0] == 503
            await until(live, "infersim:replica_up", (1.0).__eq__)
            assert (await ask(live, max_tokens=5))[0] == 200
            assert (await control(live, "replicas/0/fail"))[0] == 409
            result = live.result()
        found = result.summary["infersim"]["failures"]
        assert (found["lost"], found["no_replica"], found["gave_up"]) == (1, 1, 2)
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.requests.tobytes() == again.record.requests.tobytes()
        assert result.summary == again.summary

    asyncio.run(both())


def test_a_call_that_finds_no_replica_starts_the_clock_and_is_recorded(tmp_path: Path) -> None:
    """The one replica is gone from the start, and comes back in simulated time."""

    async def both() -> None:
        failing = {"failures": [{"at": "0s", "replica": 0, "for": "20s"}]}
        async with serving(tmp_path / "run", failing, speed=100.0) as live:
            assert (await control(live, "replicas/0/start"))[0] == 409
            status, document = await ask(live, max_tokens=5)
            assert (status, document["error"]["message"]) == (503, "no replica is in service")
            status, document = await ask(live, max_tokens=5, stream=True)  # no stream with an error
            assert (status, document["error"]["message"]) == (503, "no replica is in service")
            await until(live, "infersim:replica_up", (1.0).__eq__)
            assert (await ask(live, max_tokens=5))[0] == 200
            result = live.result()
            assert live.service.document()["unserved"] == 2
            assert any("2 requests found no replica" in note for note in live.service.notes())
        assert result.record.requests["status"].tolist() == [GAVE_UP, GAVE_UP, COMPLETED]
        assert result.summary["infersim"]["failures"]["no_replica"] == 2
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.requests.tobytes() == again.record.requests.tobytes()
        assert result.summary == again.summary

    asyncio.run(both())


def test_prompts_and_answers_of_different_pools(tmp_path: Path) -> None:
    fleet = [
        {"name": "prompts", "role": "prefill", "gpu": "h100-sxm"},
        {"name": "answers", "role": "decode", "gpu": "h100-sxm", "replicas": 2},
    ]

    async def both() -> None:
        async with serving(tmp_path / "run", {"fleet": fleet}) as live:
            answers = await asyncio.gather(*(ask(live, max_tokens=n) for n in (1, 5, 9)))
            assert [document["usage"]["completion_tokens"] for _, document in answers] == [1, 5, 9]
            found = await samples(live)
            assert found["vllm:request_success_total", "0"] == 3
            assert found["vllm:generation_tokens_total", "0"] == 3
            generated = [found["vllm:generation_tokens_total", engine] for engine in "12"]
            assert sum(generated) == 15
            _, document = await control(live, "scale", replicas=2, pool="answers")
            pools = [(each["pool"], each["role"]) for each in document["replicas"]]
            assert pools == [("prompts", "prefill"), ("answers", "decode"), ("answers", "decode")]
            assert (await control(live, "scale", replicas=1))[0] == 400
            assert (await control(live, "scale", replicas=1, pool="drafts"))[0] == 404
            assert (await control(live, "replicas/1/fail"))[0] == 409
            _, document = await control(live, "scale", replicas=1, pool="answers")
            states = [each["state"] for each in document["replicas"]]
            assert states == ["active", "active", "drained"]
            for _ in range(3):
                assert (await ask(live))[0] == 200
            found = await samples(live)
            assert found["vllm:generation_tokens_total", "2"] == generated[1]
            assert found["infersim:replica_up", "2"] == 0
            _, document = await control(live, "scale", replicas=0, pool="prompts")
            states = [each["state"] for each in document["replicas"]]
            assert states == ["drained", "active", "drained"]
            assert (await ask(live))[0] == 503

    asyncio.run(both())


@pytest.mark.slow
def test_a_fleet_scales_itself_and_its_session_is_the_run_of_its_trace(tmp_path: Path) -> None:
    scaled = {
        "fleet.replicas": {"min": 1, "max": 3},
        "scheduler.max_num_seqs": 4,
        "autoscaling": {"target": 1, "interval": "1s", "cold_start": "2s"},
    }

    async def both() -> None:
        async with serving(tmp_path / "run", scaled, speed=10.0) as live:
            long = {"max_tokens": 1500, "ignore_eos": True}
            busy = [asyncio.create_task(ask(live, **long)) for _ in range(20)]
            await until(live, "vllm:num_requests_waiting", (10.0).__le__)
            assert (await control(live, "scale", replicas=2))[0] == 409
            assert (await control(live, "replicas/2/drain"))[0] == 409
            await until(live, "infersim:replica_up", (3.0).__eq__)
            more = [asyncio.create_task(ask(live, **long)) for _ in range(12)]
            assert {status for status, _ in await asyncio.gather(*busy, *more)} == {200}
            result = live.result()
        assert set(result.record.requests["replica"].tolist()) == {0, 1, 2}
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.plans.tobytes() == again.record.plans.tobytes()
        assert result.record.held.tobytes() == again.record.held.tobytes()
        assert result.summary == again.summary

    asyncio.run(both())


def test_a_replica_of_a_fleet_that_scales_itself_fails_and_another_is_started(
    tmp_path: Path,
) -> None:
    scaled = {
        "fleet.replicas": {"min": 1, "max": 3, "start": 2},
        "autoscaling": {"interval": "60s", "cold_start": "1s"},
    }

    async def both() -> None:
        async with serving(tmp_path / "run", scaled, speed=10.0) as live:
            assert (await ask(live))[0] == 200
            assert (await control(live, "replicas/2/fail"))[0] == 409
            for at in (0, 1):
                status, document = await control(live, f"replicas/{at}/fail")
                assert status == 200
                assert document["replicas"][at]["state"] == "starting"
            assert (await ask(live))[0] == 503
            await until(live, "infersim:replica_up", (0.0).__lt__)
            assert (await ask(live))[0] == 200

    asyncio.run(both())


def test_replicas_start_as_fast_as_the_scenario_says(tmp_path: Path) -> None:
    """Before the first request at once; afterwards with a cold start, which a probe sees."""

    async def both() -> None:
        slow = {"fleet.replicas": 2, "steering.cold_start": "30s"}
        async with serving(tmp_path / "run", slow, speed=50.0) as live:

            async def healthy() -> int:
                async with (
                    aiohttp.ClientSession() as session,
                    session.get(f"{live.url}/health") as response,
                ):
                    return int(response.status)

            assert await healthy() == 200
            await control(live, "scale", replicas=0)
            assert await healthy() == 503
            _, document = await control(live, "scale", replicas=1)
            states = [each["state"] for each in document["replicas"]]
            assert (states, await healthy()) == (["active", "drained"], 200)
            assert (await ask(live, max_tokens=5))[0] == 200
            await control(live, "scale", replicas=0)
            assert (await ask(live, max_tokens=5))[0] == 503
            _, document = await control(live, "scale", replicas=1)
            states = [each["state"] for each in document["replicas"]]
            assert (states, await healthy()) == (["starting", "drained"], 503)
            begun = live.service.fleet.done_until
            await until(live, "infersim:replica_up", (1.0).__eq__)
            assert await healthy() == 200
            assert (await ask(live, max_tokens=5))[0] == 200
            result = live.result()
        assert result.record.requests["status"].tolist() == [COMPLETED, GAVE_UP, COMPLETED]
        assert result.record.requests["arrival"][2] >= begun + 30
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.requests.tobytes() == again.record.requests.tobytes()
        assert result.summary == again.summary
        steering = again.record.scenario.steering
        assert steering is not None
        assert [step.do for step in steering.steps] == ["drain", "drain", "start", "drain", "start"]
        assert [step.at for step in steering.steps[:3]] == [0, 0, 0]

    asyncio.run(both())


def test_a_router_that_remembers_replicas_is_not_steered(tmp_path: Path) -> None:
    async def both() -> None:
        routed = {"fleet.replicas": 2, "router": "session-affinity"}
        async with serving(tmp_path / "run", routed) as live:
            for path in ("replicas/0/drain", "replicas/0/fail", "replicas/0/start"):
                status, document = await control(live, path)
                assert status == 409
                assert "replicas that come and go" in document["error"]["message"]
            assert (await control(live, "scale", replicas=1))[0] == 409

    asyncio.run(both())


@pytest.mark.slow
def test_an_autoscaler_follows_the_queue(tmp_path: Path) -> None:
    """As Kubernetes does it: the metric a replica over its target, rounded up."""
    few = {"fleet.replicas": 4, "scheduler.max_num_seqs": 2, "steering.cold_start": "500ms"}

    async def both() -> None:
        async with serving(tmp_path / "run", few, speed=2.0) as live:
            await control(live, "scale", replicas=1)
            busy = [
                asyncio.create_task(ask(live, max_tokens=300, ignore_eos=True)) for _ in "x" * 10
            ]
            waiting = await until(live, "vllm:num_requests_waiting", lambda value: value > 2)
            wanted = min(4, -(-int(waiting) // 2))
            _, document = await control(live, "scale", replicas=wanted)
            states = [each["state"] for each in document["replicas"]]
            assert states == ["active", *["starting"] * (wanted - 1), *["drained"] * (4 - wanted)]
            await until(live, "infersim:replica_up", float(wanted).__eq__)
            more = [
                asyncio.create_task(ask(live, max_tokens=300, ignore_eos=True)) for _ in "x" * 6
            ]
            assert {status for status, _ in await asyncio.gather(*busy, *more)} == {200}
            result = live.result()
        replicas = result.record.requests["replica"].tolist()
        assert set(replicas[:10]) == {0}
        assert {1} <= set(replicas[10:]) <= set(range(wanted))
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.requests.tobytes() == again.record.requests.tobytes()
        assert result.summary == again.summary

    asyncio.run(both())


def test_tokens_come_and_go(tmp_path: Path) -> None:
    async def both() -> None:
        async with serving(tmp_path / "run") as live, aiohttp.ClientSession() as session:
            text = "How are you, naïve 🙂?"
            async with session.post(f"{live.url}/tokenize", json={"prompt": text}) as response:
                found = await response.json()
            assert found["count"] == len(found["tokens"]) == 9
            assert found["max_model_len"] == 4096
            body = {"tokens": found["tokens"]}
            async with session.post(f"{live.url}/detokenize", json=body) as response:
                assert (await response.json()) == {"prompt": text}
            async with session.post(f"{live.url}/tokenize", json={}) as response:
                assert response.status == 400
            status, document = await ask(live, prompt=found["tokens"])
            assert (status, document["usage"]["prompt_tokens"]) == (200, 9)

    asyncio.run(both())


def test_a_server_that_starts_says_so(tmp_path: Path) -> None:
    async def both() -> None:
        server = Server("llama-3.1-8b", encode)
        async with listening(server, ("127.0.0.1", 0)) as port, aiohttp.ClientSession() as session:
            for path in ("health", "metrics", "v1/models"):
                async with session.get(f"http://127.0.0.1:{port}/{path}") as response:
                    assert response.status == 503
                    assert "starting" in (await response.json())["error"]["message"]
            async with session.get(f"http://127.0.0.1:{port}/control/replicas") as response:
                assert response.status == 404  # off unless it is asked for

    asyncio.run(both())


def test_a_tokenizer_of_ones_own_counts_and_may_fail(tmp_path: Path) -> None:
    def letters(text: str) -> list[int]:
        return [10 // (ord(letter) - ord("!")) + 100 for letter in text]

    async def both() -> None:
        async with serving(tmp_path / "run", tokenizer=letters) as live:
            status, document = await ask(live, prompt="four")
            assert (status, document["usage"]["prompt_tokens"]) == (200, 4)
            status, document = await ask(live, prompt="fail!")
            assert (status, document["error"]["type"]) == (500, "server_error")
            assert "ZeroDivisionError" in document["error"]["message"]

    asyncio.run(both())
