"""Clients that break rules, send nothing, or never read stall nobody, and are got rid of."""

import asyncio
import json
import socket
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra `serve`")

from sim.serve import app  # noqa: E402
from sim.serve.app import Server  # noqa: E402
from sim.serve.running import listening  # noqa: E402
from sim.serve.tokens import encode  # noqa: E402
from tests.serve_harness import Live, serving  # noqa: E402

HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"


async def status(live: Live, data: bytes) -> int:
    """What the server makes of a body."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(f"{live.url}/v1/completions", data=BytesIO(data)) as response,
    ):
        await response.read()
        return int(response.status)


async def stalled_by(path: Path, connections: int, served: int) -> None:
    """Requests are served while so many ``connections`` do nothing good, and afterwards nothing of
    those is left."""
    async with serving(path, speed=50.0) as live:
        host, port = live.url.removeprefix("http://").split(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(connections)]
        beginnings = [
            HEAD + b"Content-Length: 100\r\n\r\n{",  # half a body
            HEAD + b"Transfer-Encoding: chunked\r\n\r\nffffffff\r\n{",
            HEAD[:-9],  # half a head
            b"\x00\xff not http at all\r\n\r\n",
            b"",
        ]
        for number, (_, writer) in enumerate(opened):
            writer.write(beginnings[number % len(beginnings)])
        deaf = socket.socket()  # reads nothing of a long stream
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        deaf.connect((host, int(port)))
        long = {"prompt": "a", "max_tokens": 3000, "n": 5, "ignore_eos": True, "stream": True}
        data = json.dumps(long).encode()
        deaf.sendall(HEAD + f"Content-Length: {len(data)}\r\n\r\n".encode() + data)
        nested = b'{"prompt": ' + b"[" * 100_000
        for body in (b"[" * 100_000, nested, b"\xff" * 1000, b"", b"null"):
            assert await status(live, body) == 400
        too_large = {413, 503} if connections // len(beginnings) >= app.MOST_LARGE else {413}
        assert await status(live, b'"' + b"x" * 10_000_000) in too_large
        good = json.dumps({"prompt": "a b c", "max_tokens": 5}).encode()
        assert {*await asyncio.gather(*(status(live, good) for _ in range(served)))} == {200}
        deaf.close()
        for _, writer in opened:
            writer.close()
        async with asyncio.timeout(100):  # a test that fails ends
            while live.service.outstanding:
                await asyncio.sleep(0.01)


def test_hostile_clients_stall_nobody(tmp_path: Path) -> None:
    asyncio.run(stalled_by(tmp_path / "run", 100, 20))


@pytest.mark.slow
def test_a_thousand_hostile_clients_stall_nobody(tmp_path: Path) -> None:
    asyncio.run(stalled_by(tmp_path / "run", 1000, 200))


def test_a_body_that_is_not_compressed_as_it_says_is_a_bad_request(tmp_path: Path) -> None:
    async def both() -> None:
        async with (
            serving(tmp_path / "run") as live,
            aiohttp.ClientSession() as session,
            session.post(
                f"{live.url}/v1/completions",
                data=b"no gzip",
                headers={"Content-Encoding": "gzip"},
                skip_auto_headers=["Content-Type"],
            ) as response,
        ):
            assert response.status == 400
            assert "cannot be read" in (await response.json())["error"]["message"]

    asyncio.run(both())


BODY = json.dumps({"prompt": "a", "max_tokens": 3}).encode()

MALFORMED = {
    "a length below zero": (HEAD + b"Content-Length: -5\r\n\r\n", b"400"),
    "a length that is no number": (HEAD + b"Content-Length: abc\r\n\r\n", b"400"),
    "two lengths": (HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", b"400"),
    "a long header": (HEAD + b"X: " + b"a" * 20_000 + b"\r\n\r\n", b"400"),
    "many headers": (HEAD + b"".join(b"X%d: a\r\n" % n for n in range(500)) + b"\r\n", b"400"),
    "a bad chunk": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\na", b"400"),
    "no gzip": (HEAD + b"Content-Encoding: gzip\r\nContent-Length: 7\r\n\r\nno gzip", b"400"),
    "no HTTP": (b"\x16\x03\x01\x00\r\n\r\n", b"400"),
    "too long": (HEAD + b"Content-Length: 9000000\r\n\r\n", b"413"),
    "too long, asked first": (
        HEAD + b"Expect: 100-continue\r\nContent-Length: 9000000\r\n\r\n",
        b"413",
    ),
    "another wish": (HEAD + b"Expect: all\r\nContent-Length: 1\r\n\r\n", b"417"),
    "asked first": (
        HEAD + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY),
        b"100",
    ),
}
"""What a client sends, and the status that it gets before it has sent a body."""


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_requests_are_answered_and_leave_no_trace_in_the_log(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def both() -> None:
        data, wanted = MALFORMED[name]
        async with serving(tmp_path / "run") as live:
            host, port = live.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            async with asyncio.timeout(100):
                assert (await reader.readline()).split()[1] == wanted
            if wanted == b"100":
                await reader.readline()
                writer.write(BODY)
                assert (await reader.readline()).split()[1] == b"200"
            writer.close()
            assert await status(live, BODY) == 200

    with caplog.at_level("DEBUG"):
        asyncio.run(both())
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []


@pytest.mark.parametrize("sent", [HEAD, HEAD + b"Content-Length: 100\r\n\r\n{"])
def test_who_stops_in_the_middle_leaves_no_trace_in_the_log(
    sent: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def both() -> None:
        async with serving(tmp_path / "run") as live:
            host, port = live.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            writer.write_eof()
            async with asyncio.timeout(100):
                assert await reader.read() == b""
            writer.close()
            assert await status(live, BODY) == 200

    with caplog.at_level("DEBUG"):
        asyncio.run(both())
    assert [record for record in caplog.records if record.levelname != "DEBUG"] == []


def test_a_fault_of_the_server_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: str) -> list[int]:
        raise ZeroDivisionError("mine")

    async def both() -> None:
        async with serving(tmp_path / "run", tokenizer=broken) as live:
            assert await status(live, BODY) == 500

    asyncio.run(both())
    assert any(record.exc_info and "mine" in str(record.exc_info[1]) for record in caplog.records)


def test_who_never_asks_is_hung_up_on_and_who_listens_is_not(tmp_path: Path) -> None:
    async def both() -> None:
        server = Server("llama-3.1-8b", encode)
        async with listening(server, ("127.0.0.1", 0), silent=0.2) as port:
            asks = await asyncio.open_connection("127.0.0.1", port)
            asks[1].write(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b"503" in await asks[0].readline()
            for beginning in (b"", HEAD[:-9]):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(beginning)
                with suppress(ConnectionResetError):  # an end is as good
                    assert await reader.read() == b""
                writer.close()
            asks[1].write(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n")
            head = await asks[0].readuntil(b"is starting")
            head += await asks[0].readuntil(b"is starting")
            assert head.count(b"is starting") == 2
            asks[1].close()

    asyncio.run(both())


def test_large_bodies_are_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MOST_LARGE", 2)

    async def both() -> None:
        async with serving(tmp_path / "run") as live:
            host, port = live.url.removeprefix("http://").split(":")
            opened = [await asyncio.open_connection(host, int(port)) for _ in range(2)]
            for _, writer in opened:
                writer.write(HEAD + b"Content-Length: 1000000\r\n\r\n{")
            large = json.dumps({"prompt": "a", "user": "x" * 300_000}).encode()
            small = json.dumps({"prompt": "a", "max_tokens": 2}).encode()
            async with asyncio.timeout(100):
                while await status(live, large) != 503:
                    await asyncio.sleep(0.01)
            assert await status(live, small) == 200
            for _, writer in opened:
                writer.close()
            async with asyncio.timeout(100):
                while await status(live, large) != 200:
                    await asyncio.sleep(0.01)

    asyncio.run(both())
