"""Answers HTTP: OpenAI's API and what an inference server offers besides."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import Any

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from sim.loop.live import UNSERVED
from sim.serve.control import Control, ScaleRequest
from sim.serve.exchange import Call
from sim.serve.protocol import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
    Writer,
    parsed,
    usage,
)
from sim.serve.service import AnswerTerms, Service
from sim.serve.stream import Stream
from sim.serve.tokens import LONGEST, Tokenizer, decode, encode
from sim.version import version

MOST_BYTES = 8 * 2**20
"""The largest body of a request."""

MOST_REQUESTS = 4096
"""Requests that are served at a time, streams included; others are turned away."""

LARGE_BYTES = 2**18
"""A body of more than that, or of a length that is not stated, is large."""

MOST_LARGE = 64
"""Large bodies that may be on their way at a time; others are turned away."""

BODY_TIMEOUT = 30.0
"""Seconds in which a body must have come."""

IDLE_TIMEOUT = 75.0
"""Seconds that a connection may be open without a request."""

PLACE = "{at:[0-9]{1,6}}/{what:drain|fail|start}"
"""A replica, and what is to become of it."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """The handlers. ``serve`` gives them a fleet; ``name`` is what clients call the model,
    ``tokenizer`` counts prompts, ``controlled`` opens the routes of ``sim.serve.control`` to those
    who call it localhost, by its address, or ``host``: the name it listens on."""

    def __init__(
        self, name: str, tokenizer: Tokenizer, *, controlled: bool = False, host: str = ""
    ) -> None:
        self._service: Service | None = None
        self._control: Control | None = None
        self._controlled = controlled
        self._host = host
        self.name = name
        self._tokenizer = tokenizer
        self._created = int(time.time())
        self._active = self._large = 0
        self.heard: set[object] = set()  # connections on which a request has come

    def application(self) -> web.Application:
        """All routes."""

        async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guarded(request, handler)

        app = web.Application(middlewares=[web.middleware(guarded)], client_max_size=MOST_BYTES)
        app.add_routes(
            [
                web.post("/v1/completions", self._completions, expect_handler=_expected),
                web.post("/v1/chat/completions", self._chat, expect_handler=_expected),
                web.get("/v1/models", self._models),
                web.get("/v1/models/{name:.+}", self._model),
                web.get("/health", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                web.post("/tokenize", self._tokenize),
                web.post("/detokenize", self._detokenize),
            ]
        )
        if self._controlled:
            app.add_routes(
                [
                    web.get("/control/replicas", self._replicas),
                    web.post("/control/scale", self._scale),
                    web.post(f"/control/replicas/{PLACE}", self._steer),
                ]
            )
        return app

    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Every error in OpenAI's form; and no more requests at a time than the limit."""
        if self._active >= MOST_REQUESTS:
            return _refused(ApiError(503, f"{self._active} requests are being served"))
        self._active += 1
        self.heard.add(request.protocol)
        try:
            return await handler(request)
        except ApiError as error:
            return _refused(error)
        except ConnectionError:  # the client has gone
            raise
        except web.HTTPRequestEntityTooLarge:
            return _refused(_too_large())
        except web.HTTPException as error:
            return _refused(
                ApiError(error.status, f"{request.method} {request.path}: {error.reason}")
            )
        except Exception as error:  # such as one of a user's own tokenizer
            request.app.logger.exception("%s %s", request.method, request.path)
            return _refused(ApiError(500, f"{type(error).__name__}: {error}"))
        finally:
            self._active -= 1

    def serve(self, service: Service) -> None:
        """The fleet is there."""
        self._service = service
        self._control = Control(service)

    @property
    def ready(self) -> Service:
        """The service; ApiError while there is none."""
        if self._service is None:
            raise ApiError(503, "the server is starting")
        if not self._service.open:
            raise ApiError(503, "the server is stopping")
        return self._service

    async def _body(self, http: web.Request) -> bytes:
        """The body; ApiError if it does not come in time, or while too many large ones come."""
        length = http.content_length
        if length is not None and length > MOST_BYTES:
            raise _too_large()
        large = http.can_read_body and (length is None or length > LARGE_BYTES)
        if large and self._large >= MOST_LARGE:
            raise ApiError(503, f"{self._large} large bodies are on their way already")
        self._large += large
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                body: bytes = await http.read()
        except web.RequestPayloadError as error:
            raise ApiError(400, f"the body cannot be read: {error}") from None
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {BODY_TIMEOUT:g} s") from None
        finally:
            self._large -= large
        return body

    async def _health(self, _: web.Request) -> web.Response:
        if self.ready.fleet.closed:
            raise ApiError(503, UNSERVED)
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": f"infersim {version()}"})

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [self._described]})

    async def _model(self, http: web.Request) -> web.Response:
        described, name = self._described, http.match_info["name"]
        if name != self.name:
            raise self._unknown(name)
        return web.json_response(described)

    @property
    def _described(self) -> dict[str, Any]:
        """The entry of the model in a list of models."""
        service = self.ready
        return {
            "id": self.name,
            "object": "model",
            "created": self._created,
            "owned_by": "infersim",
            "root": service.setup.scenario.model.path,
            "parent": None,
            "max_model_len": service.max_model_len,
        }

    def _unknown(self, name: str) -> ApiError:
        """There is no model of that ``name``."""
        return ApiError(
            404,
            f"The model `{name}` does not exist; this server has `{self.name}`",
            param="model",
            code="model_not_found",
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        if self._service is None:
            raise ApiError(503, "the server is starting")
        text = self._service.meters.text()
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    def _steering(self, http: web.Request) -> Control:
        """The control of the fleet; ApiError for a request that a page in a browser may have sent.

        A browser adds ``Origin`` to what a page posts. A page whose own name was made to lead here
        (DNS rebinding) calls the server by that name, which is neither an address nor ours.
        """
        if "Origin" in http.headers:
            raise ApiError(403, "/control is closed to pages in a browser (Origin is set)")
        host = http.url.host or ""
        if host not in ("localhost", self._host) and not _is_address(host):
            raise ApiError(
                403, f"/control: Host {host!r} is neither localhost, an address, nor --host"
            )
        self.ready  # noqa: B018 - it says if not
        assert self._control is not None
        return self._control

    async def _replicas(self, http: web.Request) -> web.Response:
        return web.json_response(self._steering(http).document())

    async def _scale(self, http: web.Request) -> web.Response:
        control = self._steering(http)
        asked = parsed(ScaleRequest, await self._body(http))
        control.scale(asked.replicas, asked.pool)
        return web.json_response(control.document())

    async def _steer(self, http: web.Request) -> web.Response:
        control, at = self._steering(http), int(http.match_info["at"])
        {"drain": control.drain, "fail": control.fail, "start": control.start}[
            http.match_info["what"]
        ](at)
        return web.json_response(control.document())

    async def _tokenize(self, http: web.Request) -> web.Response:
        asked, service = parsed(TokenizeRequest, await self._body(http)), self.ready
        tokens = list(await self._tokens(asked.text()))
        found = {"count": len(tokens), "max_model_len": service.max_model_len, "tokens": tokens}
        return web.json_response(found)

    async def _detokenize(self, http: web.Request) -> web.Response:
        if self._tokenizer is not encode:
            raise ApiError(400, "detokenize: only the server's own rule has a way back")
        asked = parsed(DetokenizeRequest, await self._body(http))
        return web.json_response({"prompt": decode(asked.tokens)})

    async def _completions(self, http: web.Request) -> web.StreamResponse:
        moment, service = asyncio.get_running_loop().time(), self.ready
        asked = parsed(CompletionRequest, await self._body(http))
        prompts = [await self._tokens(each) for each in asked.prompts]
        return await self._answered(http, service, moment, asked, prompts, asked.max_tokens)

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        moment, service = asyncio.get_running_loop().time(), self.ready
        asked = parsed(ChatRequest, await self._body(http))
        prompts = [await self._tokens(asked.text())]
        most = asked.max_completion_tokens or asked.max_tokens
        return await self._answered(http, service, moment, asked, prompts, most)

    async def _tokens(self, prompt: str | list[int]) -> Sequence[int]:
        """The tokens of a prompt, which is not empty."""
        service = self.ready
        if not isinstance(prompt, str):
            tokens: Sequence[int] = prompt
        else:
            text = prompt.encode(errors="replace").decode()
            if len(text) > LONGEST * service.max_model_len * 8:
                raise ApiError(
                    400,
                    f"This model's maximum context length is {service.max_model_len} tokens, but "
                    f"the prompt has {len(text):,} characters",
                    param="prompt",
                    code="context_length_exceeded",
                )
            tokens = self._tokenizer(text)
        if not tokens:
            raise ApiError(400, "prompt: it is empty", param="prompt")
        if any(not 0 <= token < 2**63 for token in tokens):
            raise ApiError(400, "prompt: a token is a number from 0", param="prompt")
        return tokens

    async def _answered(
        self,
        http: web.Request,
        service: Service,
        moment: float,
        asked: CompletionRequest | ChatRequest,
        prompts: Sequence[Sequence[int]],
        most: int | None,
    ) -> web.StreamResponse:
        """The answer to a request that came at ``moment``."""
        if asked.model is not None and asked.model != self.name:
            raise self._unknown(asked.model)
        if asked.ignore_eos and most is None:
            raise ApiError(400, "ignore_eos: give max_tokens as well", param="ignore_eos")
        exchange = service.submit(
            moment,
            prompts,
            AnswerTerms(
                choices=asked.n,
                max_tokens=most,
                min_tokens=asked.min_tokens,
                ignore_eos=asked.ignore_eos,
                stop=asked.stop,
                seed=asked.seed,
                priority=asked.priority,
            ),
        )
        chat = isinstance(asked, ChatRequest)
        identity = f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}"
        writer = Writer(identity, self.name, int(time.time()), chat=chat)
        try:
            if not asked.stream:
                await exchange.finish()
                return web.json_response(_document(writer, exchange))
            counted = asked.stream_options is not None and asked.stream_options.include_usage
            stream = Stream(
                http,
                exchange,
                writer,
                service.pace,
                service.lateness,
                counted=counted,
                doubtful=service.fleet.closed,
            )
            return await stream.send()
        finally:
            service.leave(exchange)


def _document(writer: Writer, exchange: Call) -> dict[str, Any]:
    choices = [
        (answer.filler.text(), answer.reason, answer.filler.stopped) for answer in exchange.answers
    ]
    return writer.document(choices, usage(exchange.prompt_tokens, exchange.answer_tokens))


def _too_large() -> ApiError:
    return ApiError(413, f"the body is larger than {MOST_BYTES:,} bytes")


async def _expected(http: web.Request) -> web.StreamResponse | None:
    """Let a client that asks first (``Expect: 100-continue``) send its body, if it may."""
    if http.content_length is not None and http.content_length > MOST_BYTES:
        return _refused(_too_large())
    if http.headers.get("Expect", "").lower() != "100-continue":
        return _refused(ApiError(417, "Expect: only 100-continue is known"))
    await http.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    http.writer.output_size = 0  # nothing of the answer itself
    return None


def _refused(error: ApiError) -> web.Response:
    headers = {"Retry-After": "1"} if error.status in (429, 503) else None
    return web.json_response(error.document(), status=error.status, headers=headers)


def _is_address(host: str) -> bool:
    """Whether a host is given by its IP address.

    >>> _is_address("127.0.0.1"), _is_address("::1"), _is_address("evil.example")
    (True, True, False)
    """
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
