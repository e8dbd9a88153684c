"""Events as they reach clients: of every version of HTTP, and of clients that read slowly."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

aiohttp = pytest.importorskip("aiohttp", reason="needs the extra `serve`")

from sim.serve.pace import Lateness  # noqa: E402
from sim.serve.tokens import Filler  # noqa: E402
from tests.serve_harness import Live, serving  # noqa: E402


async def sent(live: Live, body: dict[str, Any], version: str = "1.1", most: int = 2**16) -> Any:
    """A connection that has sent a request for a stream, and takes ``most`` bytes unread."""
    host, port = live.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=most)
    data = json.dumps({"prompt": "a", "ignore_eos": True, "stream": True} | body).encode()
    head = f"POST /v1/completions HTTP/{version}\r\nHost: a\r\nContent-Length: {len(data)}\r\n"
    writer.write(head.encode() + b"Connection: close\r\n\r\n" + data)
    return reader, writer


def texts(body: bytes) -> tuple[list[str], list[str | None]]:
    """The text of each answer of a stream, and how it ends."""
    *events, done, rest = body.decode().split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    found: dict[int, str] = {}
    ends: dict[int, str | None] = {}
    for event in events:
        (choice,) = json.loads(event.removeprefix("data: "))["choices"]
        found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
        assert ends.get(choice["index"]) is None
        ends[choice["index"]] = choice["finish_reason"]
    return [found[index] for index in sorted(found)], [ends[index] for index in sorted(ends)]


def unchunked(body: bytes) -> bytes:
    """What chunks of HTTP/1.1 contain; fails if one is not as long as it says."""
    found, at = [], 0
    while body[at : at + 5] != b"0\r\n\r\n":
        start = body.index(b"\r\n", at) + 2
        at = start + int(body[at:start], 16) + 2
        assert body[at - 2 : at] == b"\r\n"
        found.append(body[start : at - 2])
    assert at + 5 == len(body)
    return b"".join(found)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_every_version_gets_whole_events(version: str, tmp_path: Path) -> None:
    async def both() -> None:
        async with serving(tmp_path / "run") as live:
            reader, writer = await sent(live, {"max_tokens": 40, "n": 3}, version)
            head, _, body = (await reader.read(-1)).partition(b"\r\n\r\n")
            writer.close()
        chunked = re.search(rb"transfer-encoding: chunked", head, re.IGNORECASE)
        assert bool(chunked) == (version == "1.1")
        answers, ends = texts(unchunked(body) if chunked else body)
        assert answers == [Filler(40, start).text() for start in range(3)]
        assert ends == ["length"] * 3
        assert live.service.lateness.document()["held"] == 0

    asyncio.run(both())


def test_who_reads_late_gets_everything_and_the_server_is_not_late(tmp_path: Path) -> None:
    """More than sockets hold: 4 MB in the sending one at most, and here little in the other."""

    async def both() -> None:
        async with serving(tmp_path / "run", {"max_model_len": 16384}, speed=1000.0) as live:
            reader, writer = await sent(live, {"max_tokens": 10_000, "n": 4}, most=1)
            async with asyncio.timeout(100):
                while live.service.outstanding or not live.service.pace.started:
                    await asyncio.sleep(0.01)
            early = live.service.lateness.tokens + live.service.lateness.held
            body = bytearray()
            while piece := await reader.read(2**20):
                body += piece
            writer.close()
            notes = live.service.notes()
        answers, ends = texts(unchunked(bytes(body).partition(b"\r\n\r\n")[2]))
        assert answers == [Filler(10_000, start).text() for start in range(4)]
        assert ends == ["length"] * 4
        found = live.service.lateness
        assert early < found.tokens + found.held == 40_000
        assert found.held > 1000
        assert f"{found.held:,} tokens more waited for clients that read too slowly" in notes[0]

    asyncio.run(both())


def test_no_percentile_of_the_lateness_is_above_the_worst() -> None:
    """Steps of 0.1 ms are rounded up, but not beyond the latest token; 5 s are in no step."""
    few, far = Lateness(), Lateness()
    for late in (0.00011, 0.00012):
        few.add(late)
    far.add(5.0)
    assert few.percentile(0.99) == few.worst == 0.00012
    assert far.percentile(0.5) == 5.0
