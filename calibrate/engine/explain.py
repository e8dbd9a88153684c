"""Finds which operations of a forward pass can be batched, by tracing the pass itself.

A layer is traced twice, once with one request and once with several, and the operators that PyTorch
dispatches are counted in each part of the pass. A part whose main operator is called as often both
times runs once for the whole batch: its matrix only has more rows. One whose calls grow with the
number of requests runs once for each: every request has keys and values of its own, of its own
length. Attention is traced request by request. A paged kernel puts that loop inside one launch, but
what it computes remains as many separate products.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from calibrate.device import Device
from calibrate.engine.attention import BySequence
from calibrate.engine.batch import Span, make_step
from calibrate.engine.cache import BlockTables, Cache
from calibrate.engine.model import Transformer
from calibrate.engine.places import kv_places
from calibrate.engine.run import DTYPES
from calibrate.lazy_torch import Tensor, torch
from sim.errors import UsageError
from sim.specs.model import ModelSpec
from sim.units import show_bytes

BLOCK_SIZE = 16
PROMPT = 8
"""Tokens of the prompt that is prefilled along with the decodes."""

STAGGER = 7
"""Each request has this many more tokens of context than the one before."""

MAIN = (
    "scaled_dot_product_attention",
    "linear",
    "embedding",
    "rms_norm",
    "index_copy_",
    "cat",
    "silu",
)
"""The main operator of a part that calls several."""

Shape = tuple[int, ...]
Call = tuple[Shape, ...]
"""One call of an operator: the shapes of the tensors it was given."""


@dataclass(frozen=True, slots=True)
class ExplainedPart:
    """One part of a pass: its main operator, how often that is called with ``one`` request and with
    ``many`` (``requests`` of them), and what it then works on."""

    name: str
    operator: str
    one: int
    many: int
    requests: int
    shapes: str

    @property
    def runs(self) -> str:
        """How often it runs, in words."""
        if self.one == self.many:
            return "once for the batch"
        if self.many == self.one * self.requests:
            return "once per request"
        return f"{self.one} times, then {self.many}"


@dataclass(frozen=True, slots=True)
class EngineTrace:
    """The trace, with its parts in the order of the pass."""

    model: ModelSpec
    precision: str
    contexts: Sequence[int]
    parts: Sequence[ExplainedPart]

    @property
    def rows(self) -> int:
        """Tokens of the batch: one of each request that decodes, and a prompt."""
        return len(self.contexts) - 1 + PROMPT


def trace(
    spec: ModelSpec, device: Device, precision: str, requests: int, context: int
) -> EngineTrace:
    """Trace one layer of ``spec`` and what stands before and behind it.

    All requests but the last decode, with ``context`` tokens and more; the last is prefilled.
    UsageError for a model or a precision that the engine does not know.
    """
    if precision not in DTYPES:
        raise UsageError(f"the engine computes in {', '.join(DTYPES)}, not in {precision}")
    dtype, where = getattr(torch, DTYPES[precision]), device.torch_name
    contexts = [context + STAGGER * number for number in range(requests - 1)] + [PROMPT]
    blocks = sum(-(-tokens // BLOCK_SIZE) for tokens in contexts)
    layer = replace(spec, layers=(replace(spec.layers[0], count=1, places=()),))
    if layer.parameters * dtype.itemsize > device.free_memory():
        raise UsageError(
            f"one layer and the vocabulary of {spec.name} take "
            f"{show_bytes(layer.parameters * dtype.itemsize)}, more than {device.facts.name} has "
            "free; take a smaller model"
        )
    model = Transformer(layer, dtype=dtype, device=where, seed=0, max_positions=max(contexts))
    cache = Cache(kv_places(layer), blocks, BLOCK_SIZE, dtype=dtype, device=where)
    heads = model.layers[0].attention.spec.num_heads
    one = _calls(model, cache, contexts[:1])
    many = _calls(model, cache, contexts[:-1], prompt=PROMPT)
    parts = []
    for name, operators in many.items():
        main = next((operator for operator in MAIN if operator in operators), next(iter(operators)))
        calls = operators[main]
        shapes = ", ".join(dict.fromkeys(_shape(main, call, heads) for call in calls))
        parts.append(ExplainedPart(name, main, len(one[name][main]), len(calls), requests, shapes))
    return EngineTrace(spec, precision, contexts, parts)


def view(trace: EngineTrace) -> Group:
    """The trace as a table."""
    requests = len(trace.contexts)
    table = Table(expand=True)
    table.add_column("Part")
    table.add_column(f"Works on, with {requests} requests", ratio=1)
    table.add_column("Calls", justify="right")
    table.add_column("Runs", no_wrap=True)
    for part in trace.parts:
        alone = part.runs == "once per request"
        calls = f"{part.one} -> {part.many}"
        table.add_row(part.name, part.shapes, calls, part.runs, style="yellow" if alone else "")
    lengths = ", ".join(str(context) for context in trace.contexts[:-1])
    return Group(
        Text(f"{trace.model.name}, one layer and the head, {trace.precision}", style="bold"),
        Text(
            f"{requests} requests in one pass: {requests - 1} decode, with {lengths} tokens; one "
            f"is prefilled with {PROMPT}: {trace.rows} rows in all."
        ),
        table,
        Text(
            "Calls: of the part's main operator, with 1 request and with "
            f"{requests}. What runs once reads its weights once, for however many rows; what runs "
            "once per request reads that request's own keys and values, which no other one shares."
        ),
    )


def _calls(
    model: Transformer, cache: Cache, contexts: Sequence[int], prompt: int = 0
) -> Mapping[str, Mapping[str, list[Call]]]:
    """Part -> operator -> its calls, in a pass over a decode of each context and one prompt."""
    tables = BlockTables(cache.num_blocks, cache.block_size)
    spans = [
        Span(number, [0], context - 1, 0, samples=True, prompt=False)
        for number, context in enumerate(contexts)
    ]
    if prompt:
        spans.append(Span(len(contexts), [0] * prompt, 0, 0, samples=True, prompt=True))
    for span in spans:
        tables.resize(span.request, span.stop)
    with torch.inference_mode():
        step = make_step(spans, tables, nowhere=cache.nowhere, device=model.device)
        attend = BySequence().of(step)
        listener = _listener()
        with listener:
            model.forward(step, cache, attend, listener.begin)
    heard: Mapping[str, Mapping[str, list[Call]]] = listener.parts
    return heard


def _listener() -> Any:
    """A mode in which PyTorch reports every operator; views and new tensors are not counted."""
    base = torch.utils._python_dispatch.TorchDispatchMode

    class Listener(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()
            self.parts: dict[str, dict[str, list[Call]]] = {}
            self._part: dict[str, list[Call]] = {}

        def begin(self, part: str) -> None:
            self._part = self.parts.setdefault(part, defaultdict(list))

        def __torch_dispatch__(
            self, operator: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = operator.overloadpacket.__name__
            shapes = tuple(tuple(a.shape) for a in _tensors(args))
            if not operator.is_view and shapes:
                self._part[name].append(shapes)
            return operator(*args, **(kwargs or {}))

    return Listener()


def _tensors(args: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, also those in a list of them."""
    flat = [a for arg in args for a in (arg if isinstance(arg, list | tuple) else [arg])]
    return [arg for arg in flat if isinstance(arg, torch.Tensor)]


def _shape(operator: str, call: Call, heads: int) -> str:
    """The shape of one call, as people write it; ``heads`` are query heads."""
    if operator == "linear":
        return f"{call[0][0]} rows x {call[0][1]:,} -> {call[1][0]:,}"
    if operator == "scaled_dot_product_attention":
        queries = call[0][1] * call[0][2] // heads
        return f"{queries} x {call[1][2]} tokens"
    if operator == "embedding":
        return f"{call[1][0]} rows x {call[0][1]:,}"
    if operator == "index_copy_":
        return f"{call[1][0]} rows x {math.prod(call[2][1:]):,}"
    width = math.prod(call[0][1:]) * (len(call) if operator == "cat" else 1)
    return f"{call[0][0]} rows x {width:,}"
