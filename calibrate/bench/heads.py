"""Provides the head layouts and lengths at which attention is measured, and checks its results.

Layouts are those of the chosen models, shared out over GPUs, and a few more: multi-head, grouped,
multi-query, and head sizes from 64 to 256. Lengths in tokens, sizes in bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from calibrate.bench.base import Scope, UnsupportedError
from calibrate.dense import dense_layer
from calibrate.device import Device
from calibrate.lazy_torch import Tensor, torch
from sim.specs.grouped_query import GroupedQuery
from sim.specs.model import ModelSpec

Operands = TypeVar("Operands")

EXTRA_WEIGHT = 0.5


class Heads(NamedTuple):
    """Query heads, KV heads and the size of each, on one device."""

    q: int
    kv: int
    size: int

    @classmethod
    def of(cls, model: ModelSpec) -> Heads:
        """The heads of a model that one device holds whole."""
        attention = dense_layer(model).attention
        return cls(attention.num_heads, attention.num_kv_heads, attention.head_dim)


EXTRA = (
    Heads(32, 32, 128),
    Heads(32, 8, 128),
    Heads(32, 1, 128),
    Heads(64, 8, 64),
    Heads(32, 32, 64),
    Heads(16, 8, 256),
)


def layouts(scope: Scope) -> dict[Heads, float]:
    """Head layouts to measure, each with how much it matters."""
    found: dict[Heads, float] = {}
    for model in scope.models:
        for group in model.layers:
            if isinstance(group.attention, GroupedQuery):
                for gpus in (
                    n for n in scope.tensor_parallel if group.attention.num_heads % n == 0
                ):
                    one = group.attention.share(gpus)
                    found.setdefault(Heads(one.num_heads, one.num_kv_heads, one.head_dim), 1.0)
    for heads in EXTRA if scope.kernels == "torch" else ():
        found.setdefault(heads, EXTRA_WEIGHT)
    return found


def dense_attention(q: Tensor, k: Tensor, v: Tensor, window: int | None = None) -> Tensor:
    """Causal attention written out in 32 bits, the reference for every kernel here.

    ``q`` is tokens x heads x size, ``k`` and ``v`` are context x KV heads x size; the last query
    sees the whole context, the one before it a token less, and so on. With a ``window`` a query
    sees that many tokens at most, its own included.
    """
    tokens, context, group = q.shape[0], k.shape[0], q.shape[1] // k.shape[1]
    keys = k.float().repeat_interleave(group, dim=1)
    values = v.float().repeat_interleave(group, dim=1)
    scores = torch.einsum("thd,shd->hts", q.float(), keys) / q.shape[-1] ** 0.5
    rows = torch.arange(tokens, device=q.device)[:, None] + context - tokens
    hidden = torch.arange(context, device=q.device)[None, :] > rows
    if window is not None:
        hidden |= torch.arange(context, device=q.device)[None, :] <= rows - window
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("hts,shd->thd", weights, values)


def close(result: Tensor, reference: Tensor, tolerance: float) -> bool:
    """Whether the error's norm is at most ``tolerance`` of the reference's; never with a NaN."""
    error = torch.linalg.vector_norm(result.float() - reference.float())
    return bool(error <= tolerance * torch.linalg.vector_norm(reference.float()))


class HeadsCandidate(NamedTuple):
    """One way to compute something: its name, and what makes the calls for given operands."""

    name: str
    make: Callable[[], Sequence[Callable[[], object]]]
    right: Callable[[], bool] = lambda: True


def each_way(
    ways: Iterable[tuple[str, Callable[[Operands], Sequence[Callable[[], object]]]]],
    operands: Operands,
    right: Callable[[str], bool],
) -> Iterator[HeadsCandidate]:
    """The named ``ways`` to compute something of ``operands``; ``right`` says by its name whether
    one computes the right thing."""
    for name, way in ways:
        yield HeadsCandidate(name, partial(way, operands), partial(right, name))


def first_right(
    candidates: Iterable[HeadsCandidate],
) -> tuple[str, Sequence[Callable[[], object]]]:
    """The first candidate that is installed, runs and computes the right thing, with its calls.

    A kernel that is missing, refuses the shape or is wrong passes the turn to the next; running out
    of memory does not. UnsupportedError, with every reason, if none is left.
    """
    reasons = []
    for candidate in candidates:
        try:
            if not candidate.right():
                reasons.append(f"{candidate.name}: wrong result")
                continue
            calls = candidate.make()
            calls[0]()
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as error:
            reasons.append(f"{candidate.name}: {type(error).__name__} {first_line(error)}")
            continue
        return candidate.name, calls
    raise UnsupportedError("; ".join(reasons) or "no kernel")


TRIED = 3
"""Times that a way is called to see how long it takes."""


def quickest_right(
    candidates: Iterable[HeadsCandidate], device: Device
) -> tuple[str, Sequence[Callable[[], object]]]:
    """The candidate that takes least of those that are installed, run and compute the right thing;
    the rest as ``first_right``."""
    reasons, found = [], []
    for candidate in candidates:
        try:
            name, calls = first_right([candidate])
        except UnsupportedError as error:
            reasons.append(str(error))
            continue
        device.synchronise()
        start = time.perf_counter()
        for turn in range(TRIED):
            calls[turn % len(calls)]()
        device.synchronise()
        found.append((time.perf_counter() - start, name, calls))
    if not found:
        raise UnsupportedError("; ".join(reasons) or "no kernel")
    _, name, calls = min(found, key=lambda each: each[0])
    return name, calls


def first_line(error: BaseException) -> str:
    """The message of an error, in a line short enough for a table."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else ""
