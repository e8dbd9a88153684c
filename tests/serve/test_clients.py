"""Real clients: the openai package, and events read as they come."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from sim.loop.recorder import COMPLETED, GAVE_UP
from sim.serve.protocol import ApiError
from sim.serve.tokens import Filler, encode
from sim.simulation import simulate

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra `serve`")
openai = pytest.importorskip("openai", reason="the client that is tested with")

from sim.serve.service import AnswerTerms  # noqa: E402
from tests.serve_harness import Live, serving  # noqa: E402

Talk = Callable[[Live, Any], Awaitable[None]]


def talk(path: Path, what: Talk, overrides: dict[str, Any] | None = None, **given: Any) -> None:
    """Let a client of openai's do ``what`` with a server."""

    async def both() -> None:
        async with (
            serving(path, overrides, **given) as live,
            openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client,
        ):
            await what(live, client)

    asyncio.run(both())


def test_a_chat_is_streamed_a_token_an_event(tmp_path: Path) -> None:
    async def chat(live: Live, client: Any) -> None:
        pieces, finish, usage = [], None, None
        async for chunk in await client.chat.completions.create(
            model="llama-3.1-8b",
            messages=[{"role": "user", "content": "How are you?"}],
            max_tokens=9,
            stream=True,
            stream_options={"include_usage": True},
        ):
            if chunk.choices and chunk.choices[0].delta.content:
                pieces.append(chunk.choices[0].delta.content)
                finish = chunk.choices[0].finish_reason
            usage = chunk.usage or usage
        assert len(pieces) == 9
        assert finish == "length"
        assert usage is not None
        prompt = len(encode("user: How are you?\nassistant:"))
        assert (usage.prompt_tokens, usage.completion_tokens) == (prompt, 9)
        assert len(encode("".join(pieces))) == 9

    talk(tmp_path / "run", chat)


def test_answers_are_as_long_as_those_of_the_scenario(tmp_path: Path) -> None:
    async def complete(live: Live, client: Any) -> None:
        ask = client.completions.create
        model = "llama-3.1-8b"
        free = await ask(model=model, prompt="Once", max_tokens=100)
        assert free.usage is not None
        assert (free.usage.completion_tokens, free.choices[0].finish_reason) == (20, "stop")
        forced = await ask(
            model=model, prompt="Once", max_tokens=100, extra_body={"ignore_eos": True}
        )
        assert forced.usage is not None
        assert (forced.usage.completion_tokens, forced.choices[0].finish_reason) == (100, "length")
        longer = await ask(
            model=model, prompt="Once", max_tokens=100, extra_body={"min_tokens": 30}
        )
        assert longer.usage is not None
        assert longer.usage.completion_tokens == 30
        three = await ask(model=model, prompt=["a", "b c"], n=3, max_tokens=4)
        assert three.usage is not None
        assert [choice.index for choice in three.choices] == list(range(6))
        assert (three.usage.prompt_tokens, three.usage.completion_tokens) == (3, 24)

    talk(tmp_path / "run", complete)


def test_the_same_seed_gives_the_same_answer(tmp_path: Path) -> None:
    law = {"workload.output_tokens": {"kind": "uniform", "low": 1, "high": 500}}

    async def complete(live: Live, client: Any) -> None:
        texts = []
        for seed in (5, 6, 5):
            answer = await client.completions.create(
                model="llama-3.1-8b", prompt="Once", max_tokens=1000, seed=seed
            )
            texts.append(answer.choices[0].text)
        assert texts[0] == texts[2] != texts[1]

    talk(tmp_path / "run", complete, law)


def test_a_client_that_stops_reading_its_stream_leaves_the_engine(tmp_path: Path) -> None:
    async def stop(live: Live, client: Any) -> None:
        ask = partial(client.completions.create, model="llama-3.1-8b", max_tokens=3000)
        stream = await ask(prompt="Once", stream=True, extra_body={"ignore_eos": True})
        brief = {"max_tokens": 600, "extra_body": {"ignore_eos": True}}
        other = asyncio.create_task(ask(prompt="Twice", **brief))
        got = [(await anext(stream)).choices[0].text for _ in range(3)]
        await stream.close()
        async with asyncio.timeout(100):  # a test that fails ends
            while live.service.document()["cancelled"] == 0:
                await asyncio.sleep(0.01)
        assert got == [Filler(3).piece(at) for at in range(3)]
        assert (await other).usage.completion_tokens == 600
        rows = live.result().record.requests
        assert rows["status"].tolist() == [GAVE_UP, COMPLETED]
        assert 3 <= rows["generated"][0] < 3000
        assert rows["generated"][1] == 600
        (replica,) = live.service.fleet.replicas
        assert replica.kv_used == 0

    talk(tmp_path / "run", stop, speed=5.0)


def test_a_session_of_clients_is_the_run_of_its_trace(tmp_path: Path) -> None:
    async def many(live: Live, client: Any) -> None:
        async def one(number: int) -> None:
            await asyncio.sleep(0.013 * number)
            stream = await client.completions.create(
                model="llama-3.1-8b",
                prompt="word " * (1 + 97 * number),
                max_tokens=1 + 7 * number,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            assert len([chunk async for chunk in stream]) == 1 + 7 * number

        await asyncio.gather(*(one(number) for number in range(25)))
        result = live.result()
        again = simulate(tmp_path / "run" / "scenario.yaml")
        assert result.record.plans.tobytes() == again.record.plans.tobytes()
        assert result.record.requests.tobytes() == again.record.requests.tobytes()
        assert result.summary == again.summary
        assert result.summary["completed"] == 25

    talk(tmp_path / "run", many, {"fleet.replicas": 2})


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 400, "not a JSON object"),
        (b"{}", 400, "prompt: Field required"),
        (b'{"prompt": ""}', 400, "empty"),
        (b'{"prompt": "a", "max_tokens": 0}', 400, "max_tokens"),
        (b'{"prompt": "a", "max_tokens": 5000}', 400, "maximum context length is 4096"),
        (b'{"prompt": "a", "n": 1000}', 400, "n: "),
        (b'{"prompt": "a", "echo": true}', 400, "echo"),
        (b'{"prompt": "a", "model": "gpt-9"}', 404, "does not exist"),
        (b'{"prompt": "a", "stream_options": {}}', 400, "only with stream"),
        (b'{"prompt": "a", "priority": 3}', 400, "priority"),
        (b'{"prompt": [1, -1]}', 400, "token"),
        (b'{"prompt": []}', 400, "empty"),
        (b'{"prompt": [[]]}', 400, "empty"),
        (b'{"prompt": [1, "a"]}', 400, "prompt: a text, a list"),
        (b'{"prompt": "a", "max_tokens": 4, "min_tokens": 5}', 400, "min_tokens: 5 is more"),
        (b'{"prompt": "' + b"a " * 5000 + b'"}', 400, "maximum context length"),
        (b'{"prompt": "' + b"a" * 9_000_000 + b'"}', 413, "larger than"),
        (b'{"prompt": "\\ud800"}', 200, ""),
    ],
)
def test_errors_are_told_in_openais_form(
    body: bytes, status: int, said: str, tmp_path: Path
) -> None:
    async def ask(live: Live, client: Any) -> None:
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{live.url}/v1/completions", data=BytesIO(body)) as response,
        ):
            document = await response.json()
            assert response.status == status
            if status != 200:
                assert said in document["error"]["message"]
                assert document["error"].keys() == {"message", "type", "param", "code"}

    talk(tmp_path / "run", ask)


def test_unknown_routes_and_a_full_queue(tmp_path: Path) -> None:
    async def ask(live: Live, client: Any) -> None:
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="llama-3.1-8b", input="a")
        one = partial(client.completions.create, model="llama-3.1-8b", prompt="a")
        stream = await one(max_tokens=3000, stream=True, extra_body={"ignore_eos": True})
        await anext(stream)
        with pytest.raises(openai.RateLimitError, match="0 requests wait already, of 0"):
            await one()
        await stream.close()
        async with asyncio.timeout(100):
            while live.service.outstanding or live.service.fleet.outstanding:
                await asyncio.sleep(0.01)
        assert (await one()).usage.completion_tokens == 16
        with pytest.raises(openai.RateLimitError):
            await one(n=2)

    slots = {"scheduler.max_num_seqs": 1}
    talk(tmp_path / "run", ask, slots, most_waiting=0, speed=5.0)


def test_the_model_is_found_by_its_name_and_no_other(tmp_path: Path) -> None:
    async def ask(live: Live, client: Any) -> None:
        (listed,) = (await client.models.list()).data
        assert await client.models.retrieve("llama-3.1-8b") == listed
        for name in ("gpt-9", "meta-llama/Llama-3.1-8B"):
            with pytest.raises(openai.NotFoundError, match=f"`{name}` does not exist") as raised:
                await client.models.retrieve(name)
            assert (raised.value.param, raised.value.code) == ("model", "model_not_found")

    talk(tmp_path / "run", ask)


def test_errors_name_the_parameter(tmp_path: Path) -> None:
    async def ask(live: Live, client: Any) -> None:
        wrong = {
            "n": ({"n": 129}, "n: at most 128 answers to a request, got 129"),
            "min_tokens": ({"max_tokens": 1, "extra_body": {"min_tokens": 2}}, "more than"),
            "stream_options": ({"stream_options": {}}, "only with stream"),
            "max_tokens": ({"max_tokens": 0}, "max_tokens: "),
            "prompt": ({"prompt": ["a"] * 100, "n": 100}, "10,000 answers; at most 4,096"),
            None: ({"extra_body": {"prompt": None}}, "prompt"),
        }
        for param, (given, said) in wrong.items():
            asked = {"model": "llama-3.1-8b", "prompt": "a"} | given
            with pytest.raises(openai.BadRequestError) as raised:
                await client.completions.create(**asked)
            assert raised.value.param == (param or "prompt")
            assert said in raised.value.message
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{live.url}/v1/completions", data=b"{") as response,
        ):
            assert (await response.json())["error"]["param"] is None

    talk(tmp_path / "run", ask)


def test_no_more_requests_wait_than_may_also_of_those_that_are_not_in_the_queue_yet(
    tmp_path: Path,
) -> None:
    async def ask(live: Live, client: Any) -> None:
        service, moment = live.service, live.service.pace.time()

        def sent(choices: int) -> bool:
            try:
                service.submit(moment, [[1, 2]], AnswerTerms(choices=choices, max_tokens=2))
            except ApiError as error:
                assert error.status == 429  # noqa: PT017
                return False
            return True

        assert not sent(4)
        assert [sent(1) for _ in range(9)] == [True] * 3 + [False] * 6
        while service.outstanding:
            await asyncio.sleep(0.01)
        assert sent(3)
        assert service.document()["refused"] == 7
        assert "7 calls were turned away" in service.notes()[-1]

    talk(tmp_path / "run", ask, {"scheduler.max_num_seqs": 2}, most_waiting=1)


def test_what_a_batch_has_places_for_does_not_wait(tmp_path: Path) -> None:
    """Two replicas of four places: eight requests at once, of which none may wait."""

    async def ask(live: Live, client: Any) -> None:
        waiting = live.service.fleet.waiting
        assert [waiting(more) for more in (0, 8, 9, 12)] == [0, 0, 1, 4]
        live.service.submit(live.service.pace.time(), [[1]] * 3, AnswerTerms(max_tokens=2000))
        assert [waiting(more) for more in (5, 6)] == [0, 1]  # on their way to a queue
        async with asyncio.timeout(100):
            while live.service.fleet.done_until < 0.1:
                await asyncio.sleep(0.01)
        assert [waiting(more) for more in (5, 6)] == [0, 1]  # in batches
        live.service.fleet.without("drained", {1})
        assert waiting(3) in (0, 1)  # one replica, with one or two of them
        assert waiting(4) == waiting(3) + 1

    few = {"scheduler.max_num_seqs": 4, "fleet.replicas": 2}
    talk(tmp_path / "run", ask, few, speed=1.0)


def test_events_end_with_done(tmp_path: Path) -> None:
    async def ask(live: Live, client: Any) -> None:
        body = {"prompt": "a", "max_tokens": 3, "stream": True, "ignore_eos": True}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{live.url}/v1/completions", json=body) as response,
        ):
            assert response.content_type == "text/event-stream"
            events = (await response.text()).split("\n\n")
        assert events[-2:] == ["data: [DONE]", ""]
        told = [json.loads(event.removeprefix("data: ")) for event in events[:-2]]
        assert [each["choices"][0]["finish_reason"] for each in told] == [None, None, "length"]
        assert len({each["id"] for each in told}) == 1

    talk(tmp_path / "run", ask)
