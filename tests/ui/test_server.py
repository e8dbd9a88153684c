"""The server of the page: who may ask, traces that are kept, questions that are withdrawn."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aiohttp", reason="needs the extra `serve`")

from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from typer.testing import CliRunner

from sim.cli import app
from sim.ui import server
from sim.ui.job import Job, Step
from sim.ui.question import read
from sim.ui.server import Page
from sim.ui.workers import Simulators

Client = TestClient[web.Request, web.Application]
JSON = {"Content-Type": "application/json"}


class Echo:
    """Workers that answer with what they were asked."""

    async def ask(self, job: Job) -> AsyncGenerator[Step, None]:
        text = None if job.trace is None else job.trace.read_text()
        yield {"rate": job.question["rate"], "trace": text, "window": job.window}


def in_page(folder: Path, do: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        page = Page("<p>page", Echo(), folder)  # type: ignore[arg-type]
        async with TestClient(TestServer(page.application())) as client:
            return await do(client)

    return asyncio.run(run())


def posted(
    folder: Path, body: str, headers: dict[str, str] = JSON, at: str = "/ask"
) -> tuple[int, str]:
    """The status and the text of the answer to what is posted."""

    async def post(client: Client) -> tuple[int, str]:
        async with client.post(at, data=body, headers=headers) as response:
            return response.status, await response.text()

    found: tuple[int, str] = in_page(folder, post)
    return found


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:80"}, 200),
        ({"Host": "rebound.example:8765"}, 403),
        ({"Host": "127.0.0.1.rebound.example:80"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "http://other.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://127.0.0.1:1"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
    ],
)
def test_only_the_page_itself_may_ask(headers: dict[str, str], status: int, tmp_path: Path) -> None:
    assert posted(tmp_path, '{"question": {}}', JSON | headers)[0] == status


@pytest.mark.parametrize(
    "body",
    [
        *("", "[]", "{}", "[" * 10**5, '{"question": {"router": "x:Y"}}', '{"question": 1}'),
        *('{"question": {}, "window": [2, 1]}', '{"question": {}, "window": "x"}'),
    ],
)
def test_a_question_that_is_none_is_refused(body: str, tmp_path: Path) -> None:
    status, told = posted(tmp_path, body)
    assert (status, json.loads(told)["errors"].keys()) == (400, {""})


def test_traces_are_kept_under_names_of_the_server(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()

    async def keep(client: Client) -> Any:
        names = []
        for number in range(server.MOST_TRACES + 1):
            address = "/trace?name=../../evil.csv"
            headers = {"Content-Type": "text/csv"}
            async with client.post(address, data=f"row {number}", headers=headers) as response:
                names.append((await response.json())["trace"])
        found = []
        for name in (names[0], names[-1], "../../etc/passwd"):
            body = json.dumps({"question": {"trace": name}, "window": [1, 2]})
            async with client.post("/ask", data=body, headers=JSON) as response:
                found.append(json.loads(await response.text()))
        return names, found

    names, found = in_page(folder, keep)
    assert len(set(names)) == server.MOST_TRACES + 1
    assert [each["trace"] for each in found] == [None, f"row {server.MOST_TRACES}", None]
    assert found[0]["window"] == [1, 2]
    assert len(list(folder.iterdir())) == server.MOST_TRACES
    assert list(tmp_path.iterdir()) == [folder]


def test_a_large_trace_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_BYTES", 10)

    assert posted(tmp_path, "x" * 11, {"Content-Type": "text/csv"}, "/trace")[0] == 413
    assert list(tmp_path.iterdir()) == []


def slow(contents: Any, window: Any) -> Step:
    """Draws at once, but what comes after the first step not for a minute; nor a rate of 13."""
    if "trail" in contents and contents["summary"]["infersim"]["asked"]["traffic"][:2] == "13":
        time.sleep(60)
    return {"full": "trail" in contents}


@pytest.mark.slow
def test_a_question_that_is_withdrawn_holds_up_no_other() -> None:
    async def ask() -> None:
        workers = Simulators(slow)
        try:
            brief = {"requests": "20"}
            for _ in range(4):  # more than there are processes
                async with aclosing(workers.ask(Job(read(brief | {"rate": "13"})))) as answer:
                    assert (await anext(answer))["full"] is False
            async with asyncio.timeout(50):
                found = [step async for step in workers.ask(Job(read(brief)))]
            assert [step["full"] for step in found] == [False, True]
        finally:
            workers.close()

    asyncio.run(ask())


def test_a_port_that_is_taken_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.ui.server.Simulators", lambda _: type("No", (), {"close": print})())
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        done = CliRunner().invoke(app, ["ui", "--no-open", "--port", port])
    assert done.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in done.stderr


def test_without_aiohttp_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.commands.ui.find_spec", lambda _: None)
    done = CliRunner().invoke(app, ["ui"])
    assert done.exit_code == 2
    assert "pip install '.[serve]'" in done.stderr
