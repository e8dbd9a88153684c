"""Provides the names of operators, variables and points on a profile's page, and formats times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

TITLES: Mapping[str, str] = {
    "gemm": "Matrix products",
    "decode_attention": "Decode attention",
    "prefill_attention": "Prefill attention",
    "mla_decode": "Decode attention, latent",
    "mla_prefill": "Prefill attention, latent",
    "dsa_decode": "Decode attention, sparse",
    "dsa_prefill": "Prefill attention, sparse",
    "window_decode": "Decode attention, window",
    "window_prefill": "Prefill attention, window",
    "moe": "Experts",
    "moe_ranks": "Experts, shared out whole",
    "moe_older": "Experts, older release",
    "decode_attention_older": "Decode attention, older release",
    "decode_attention_triton": "Decode attention by Triton",
    "prefill_attention_triton": "Prefill attention by Triton",
    "all_reduce_older": "All-reduce, older release",
    "all_reduce_fused": "All-reduce, fused with a norm",
    "ll_dispatch": "Tokens to experts, low latency",
    "ll_combine": "Tokens back, low latency",
    "ht_dispatch": "Tokens to experts, high throughput",
    "ht_combine": "Tokens back, high throughput",
    "all_reduce": "All-reduce",
    "stream": "Element-wise operators",
    "norm": "Norms with their residual",
    "rotary": "Rotary embedding",
    "kv_write": "Writes to the KV cache",
    "activation": "Gated activation",
    "embedding": "Embedding look-up",
    "quantise": "Quantisation of activations",
    "sampling": "Sampling",
    "memory": "Copies in memory",
    "memory_read": "Reads of memory",
    "host_to_device": "Copies host to device",
    "host_to_device_pageable": "Copies host to device, pageable",
    "device_to_host": "Copies device to host",
    "device_to_host_pageable": "Copies device to host, pageable",
    "device_to_device": "Copies device to device",
    "file_to_device": "Loading files",
    "file_to_device_warm": "Loading files from the page cache",
}
"""Operator -> its name; an operator that is not here has no form and is in no figure."""

AXES: Mapping[str, str] = {
    "m": "rows",
    "context": "tokens of context",
    "tokens": "new tokens of a prompt",
    "bytes": "bytes",
}

MOST_POINTS = 2000
"""So many points are drawn in one figure; of more, evenly spaced ones."""


class Own(NamedTuple):
    """Points of one operator, as columns; there are ``total`` of them, not all of them here."""

    operator: str
    columns: Mapping[str, Sequence[Any]]
    total: int

    def __len__(self) -> int:
        return len(self.columns["measured"])

    @property
    def precisions(self) -> list[str]:
        """The precisions of the kernel, in the order of the points."""
        return list(dict.fromkeys(self.columns["precision"]))

    def where(self, **wanted: Any) -> dict[str, list[Any]]:
        """The columns of those points that have these values."""
        chosen = [
            index
            for index in range(len(self))
            if all(self.columns[name][index] == value for name, value in wanted.items())
        ]
        return {name: [column[i] for i in chosen] for name, column in self.columns.items()}


def by_operator(points: Mapping[str, Sequence[Any]]) -> list[Own]:
    """The points of each operator, thinned to what can be drawn."""
    found = []
    for operator in dict.fromkeys(points["operator"]):
        chosen = [i for i, name in enumerate(points["operator"]) if name == operator]
        step = -(-len(chosen) // MOST_POINTS)
        columns = {name: [c[i] for i in chosen[::step]] for name, c in points.items()}
        found.append(Own(operator, columns, len(chosen)))
    return found


def title(operator: str) -> str:
    """The operator's name on the page."""
    return TITLES.get(operator, operator)
