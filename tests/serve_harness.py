"""A server in the test's own process, at a port of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sim.result import Result
from sim.scenario import load_scenario
from sim.serve.app import Server
from sim.serve.running import listening
from sim.serve.service import Service
from sim.serve.session import without_clients
from sim.serve.tokens import Tokenizer, encode
from sim.setup import prepare
from tests.places import VLLM

CHAT: dict[str, Any] = {
    "name": "chat",
    "model": "llama-3.1-8b",
    "fleet": {"gpu": "h100-sxm"},
    "engine": VLLM,
    "max_model_len": 4096,
    "workload": {
        "arrivals": {"kind": "poisson", "rate": 1},
        "prompt_tokens": {"kind": "fixed", "value": 100},
        "output_tokens": {"kind": "fixed", "value": 20},
    },
}


class Live:
    """A server that runs: where, and what serves behind it."""

    def __init__(self, url: str, service: Service) -> None:
        self.url, self.service = url, service

    def result(self) -> Result:
        """Stop, and what was served."""
        found = self.service.finish()
        assert found is not None
        return Result(found[0])


@asynccontextmanager
async def serving(
    path: Path,
    overrides: dict[str, Any] | None = None,
    *,
    speed: float = 20.0,
    most_waiting: int | None = None,
    tokenizer: Tokenizer = encode,
) -> AsyncIterator[Live]:
    """``CHAT`` with ``overrides``, recorded in ``path``."""
    server = Server("llama-3.1-8b", tokenizer, controlled=True)
    async with listening(server, ("127.0.0.1", 0)) as port:
        scenario = without_clients(load_scenario(CHAT).override(overrides or {}))
        setup = await asyncio.to_thread(prepare, scenario)
        service = Service(setup, path, server.name, speed=speed, most_waiting=most_waiting)
        server.serve(service)
        try:
            yield Live(f"http://127.0.0.1:{port}", service)
        finally:
            service.finish()
