"""Reads requests in OpenAI's form and writes its answers: documents, and events of a stream.

What changes the course of a request is obeyed: its prompt, how long its answer may be, how many
there are. How words are chosen changes nothing here (temperature and the like are ignored); what
would change the form of an answer and is not there is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sim.serve.tokens import WORDS

MOST_CHOICES = 128
"""Answers to each prompt of a request (``n``)."""

Body = TypeVar("Body", bound=BaseModel)

Stops = Annotated[list[Annotated[str, Field(min_length=1, max_length=1000)]], Field(max_length=16)]


class ApiError(Exception):
    """A refusal in place of an answer: an HTTP status, a message and its parts."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def document(self) -> dict[str, Any]:
        """The body of the response."""
        kinds = {404: "not_found_error", 429: "rate_limit_error"}
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        return {
            "error": {
                "message": str(self),
                "type": kinds.get(self.status, kind),
                "param": self.param,
                "code": self.code,
            }
        }


class StreamOptions(BaseModel):
    """``stream_options`` of a request."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class _Request(BaseModel):
    """The common fields of completions and chat completions."""

    model_config = ConfigDict(extra="ignore")

    model: str | None = None
    n: Annotated[int, Field(ge=1)] = 1
    stream: bool = False
    stream_options: StreamOptions | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    stop: Stops = []
    seed: int | None = None
    priority: int = 0

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, data: Any) -> Any:
        """A key that is null is one that is not given; one stop text is a list of one."""
        if not isinstance(data, dict):
            return data
        given = {key: value for key, value in data.items() if value is not None}
        if isinstance(given.get("stop"), str):
            given["stop"] = [given["stop"]]
        return given

    @model_validator(mode="after")
    def _what_goes_together(self) -> _Request:
        if self.n > MOST_CHOICES:
            raise ValueError(f"n: at most {MOST_CHOICES} answers to a request, got {self.n:,}")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options: only with stream: true")
        most = getattr(self, "max_completion_tokens", None) or getattr(self, "max_tokens", None)
        if most is not None and self.min_tokens > most:
            raise ValueError(f"min_tokens: {self.min_tokens} is more than max_tokens: {most}")
        return self


class CompletionRequest(_Request):
    """The body of ``POST /v1/completions``."""

    prompt: str | list[str] | list[int] | list[list[int]]
    max_tokens: Annotated[int, Field(ge=1)] = 16
    echo: Literal[False] = False
    logprobs: None = None
    suffix: None = None
    best_of: Literal[1] = 1

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        """One or several, each a text or tokens."""
        prompt = self.prompt
        if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int):
            return [prompt]  # type: ignore[list-item]
        return prompt


class Message(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(extra="ignore")

    role: Annotated[str, Field(min_length=1, max_length=64)]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[dict[str, Any]] | None = None

    def text(self) -> str:
        """The message's text; ApiError for a part that is no text."""
        said = self.content or ""
        if not isinstance(said, str):
            for part in said:
                if part.get("type") not in ("text", "input_text") or not isinstance(
                    part.get("text"), str
                ):
                    raise ApiError(400, "messages: only parts of type text", param="messages")
            said = "".join(part["text"] for part in said)
        calls = json.dumps(self.tool_calls) if self.tool_calls else ""
        return f"{said}{calls}"


class ChatRequest(_Request):
    """The body of ``POST /v1/chat/completions``."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: list[dict[str, Any]] = []
    logprobs: Literal[False] = False
    response_format: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _only_text(self) -> ChatRequest:
        kind = (self.response_format or {"type": "text"}).get("type")
        if kind != "text":
            raise ValueError(f"response_format: the answer is filler text, not {kind}")
        return self

    def text(self) -> str:
        """The prompt: tools, then each message on a line of its own after its role, and last the
        role of the answer."""
        lines = [json.dumps(self.tools)] if self.tools else []
        lines += [f"{message.role}: {message.text()}" for message in self.messages]
        return "\n".join([*lines, "assistant:"])


class TokenizeRequest(BaseModel):
    """The body of ``POST /tokenize``: a prompt, or the messages of a chat."""

    prompt: str | None = None
    messages: list[Message] | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> TokenizeRequest:
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("give prompt or messages")
        return self

    def text(self) -> str:
        """The text to be counted."""
        if self.messages is None:
            return self.prompt or ""
        return ChatRequest(messages=self.messages).text()


class DetokenizeRequest(BaseModel):
    """The body of ``POST /detokenize``."""

    tokens: Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], Field(max_length=1_000_000)]


def parsed(kind: type[Body], body: bytes) -> Body:
    """The request in ``body``; ApiError (400) that names the first thing that is wrong."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON ({error})") from None
    if not isinstance(data, dict):
        raise ApiError(400, "the body is not a JSON object")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(step) for step in first["loc"] if not str(step).startswith("list["))
        message = first["msg"].removeprefix("Value error, ")
        if where.startswith("prompt."):
            where, message = (
                "prompt",
                "a text, a list of texts, tokens, or a list of lists of tokens",
            )
        if where:
            message = f"{where}: {message}"
        elif named := re.match(r"(\w+): ", message):
            where = named[1]
        raise ApiError(400, message, param=where or None) from None


def usage(prompt: int, answer: int) -> dict[str, int]:
    """The counts of tokens at the end of an answer."""
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer,
        "total_tokens": prompt + answer,
    }


class Writer:
    """Writes the answers to one request: as events of a stream, or as one document.

    ``chat`` is whether it is a chat completion, ``identity`` its id, ``created`` seconds since
    1970.
    """

    def __init__(self, identity: str, model: str, created: int, *, chat: bool) -> None:
        self._chat = chat
        kind = "chat.completion" if chat else "text_completion"
        self._base: dict[str, Any] = {
            "id": identity,
            "object": kind,
            "created": created,
            "model": model,
        }
        chunk = self._base | {"object": "chat.completion.chunk" if chat else kind}
        self._chunk = chunk
        self._head = json.dumps(chunk)[:-1] + ', "choices": [{"index": '
        self._open = ', "delta": {"content": ' if chat else ', "text": '
        closing = ', "logprobs": null, "finish_reason": '
        self._close = "}" + closing if chat else closing
        self._usage = ""
        self._heads: dict[int, bytes] = {}
        self._tail = b""
        self._chunks: dict[tuple[int, str], bytes] = {}  # the words of answers are few

    def with_usage(self) -> None:
        """Every event has a usage, null but in the last one."""
        self._usage = ', "usage": null'

    def first(self, index: int) -> bytes:
        """The event with which a choice of a chat begins; nothing for a completion."""
        if not self._chat:
            return b""
        text = f'{self._head}{index}, "delta": {{"role": "assistant", "content": ""}}'
        text += f', "logprobs": null, "finish_reason": null}}]{self._usage}}}'
        return _event(text)

    def token(self, index: int, piece: str, reason: str | None) -> bytes:
        """The event of a token; ``reason`` is why it was the last one."""
        if (head := self._heads.get(index)) is None:
            head = self._heads[index] = f"data: {self._head}{index}{self._open}".encode()
            self._tail = f"{self._close}null}}]{self._usage}}}\n\n".encode()
        tail = (
            self._tail
            if reason is None
            else self._tail.replace(b"null}]", b'"%b"}]' % reason.encode())
        )
        return head + (QUOTED.get(piece) or json.dumps(piece).encode()) + tail

    def chunk(self, index: int, piece: str) -> bytes:
        """The event of a token that is not the last one, as a chunk of HTTP/1.1; made once for each
        text."""
        key = index, piece
        found = self._chunks.get(key)
        if found is None:
            event = self.token(index, piece, None)
            found = self._chunks[key] = b"%x\r\n%b\r\n" % (len(event), event)
        return found

    def last(self, tokens: dict[str, int] | None) -> bytes:
        """The end of a stream, with the usage if that is wanted."""
        counted = b""
        if tokens is not None:
            counted = _event(json.dumps(self._chunk | {"choices": [], "usage": tokens}))
        return counted + b"data: [DONE]\n\n"

    def document(
        self, choices: Sequence[tuple[str, str, str | None]], tokens: dict[str, int]
    ) -> dict[str, Any]:
        """The whole answer; of each choice the text, why it ended, and the text that stopped it."""
        return self._base | {
            "choices": [
                {"index": index, "logprobs": None, "finish_reason": reason, "stop_reason": stop}
                | (
                    {"message": {"role": "assistant", "content": text, "refusal": None}}
                    if self._chat
                    else {"text": text}
                )
                for index, (text, reason, stop) in enumerate(choices)
            ],
            "usage": tokens,
        }


def failed(error: ApiError) -> bytes:
    """The event that tells a client in the middle of a stream why it ends."""
    return _event(json.dumps(error.document()))


def _event(text: str) -> bytes:
    return f"data: {text}\n\n".encode()


QUOTED = {text: json.dumps(text).encode() for word in WORDS for text in (word, f" {word}")}
"""The words of answers as JSON."""
