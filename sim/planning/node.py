"""Lists the layouts that a replica can have on one node, and what each leaves for requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from sim.cost import Deployment
from sim.memory.capacity import Capacity
from sim.specs.drafter import on_layout
from sim.specs.gpu import GpuSpec
from sim.specs.layout import Layout
from sim.units import show_bytes

MOST = 8
"""GPUs of the largest layout that is listed, however many a node has."""

CapacityOf = Callable[[Deployment], Capacity]
"""The memory arithmetic of a deployment under settings that are decided."""


def node_layouts(*, experts: bool, most: int = MOST, pipelines: bool = False) -> Iterator[Layout]:
    """Every layout of 1, 2, 4, ... GPUs up to ``most``: tensor ranks, and for models with
    ``experts`` data ranks and experts that are cut or whole; as engines start, by powers of two.
    With ``pipelines``, stages of tensor ranks in the place of data ranks.

    >>> [layout.text for layout in node_layouts(experts=True, most=2)]
    ['TP 1', 'TP 2', 'TP 2, EP', 'DP 2', 'DP 2, EP']
    >>> [layout.text for layout in node_layouts(experts=False)]
    ['TP 1', 'TP 2', 'TP 4', 'TP 8']
    >>> [layout.text for layout in node_layouts(experts=False, most=4, pipelines=True)]
    ['TP 1', 'TP 2', 'PP 2', 'TP 4', 'TP 2 x PP 2', 'PP 4']
    """
    gpus = 1
    while gpus <= most:
        tensor = gpus
        while tensor >= 1:
            data = gpus // tensor
            if pipelines:
                yield Layout(tensor, data)
                if experts and tensor > 1:
                    yield Layout(tensor, data, expert=tensor)
            elif data == 1 or experts:
                yield Layout(tensor, data=data)
                if experts and gpus > 1:
                    yield Layout(tensor, data=data, expert=gpus)
            tensor //= 2
        gpus *= 2


def most_of(gpu: GpuSpec) -> int:
    """GPUs of the largest replica that is proposed: those of a node, up to ``MOST``."""
    return min(gpu.node.gpus or MOST, MOST)


def layout_rows(d: Deployment, capacity_of: CapacityOf, context: int) -> list[dict[str, Any]]:
    """The memory of each layout of ``d`` on a node for requests of ``context`` tokens.

    Bytes and blocks are of one GPU, ``kv_cache_tokens`` and ``max_concurrency`` of the replica.
    ``reason`` says why one does not fit or cannot be; amounts are None where it cannot be.
    """
    rows = []
    piped = d.layout.pipeline > 1
    for layout in node_layouts(experts=d.model.has_experts, most=most_of(d.gpu), pipelines=piped):
        head = {
            "layout": layout.text,
            "gpus": layout.gpus,
            "tensor_parallel": layout.tensor,
            "pipeline_parallel": layout.pipeline,
            "data_parallel": layout.data,
            "expert_parallel": layout.expert,
        }
        try:
            memory = capacity_of(on_layout(d, layout))
        except ValueError as error:
            rows.append(head | dict.fromkeys(_AMOUNTS) | {"fits": False, "reason": str(error)})
            continue
        short = shortage(memory, context)
        amounts = (
            memory.weights,
            memory.activations,
            memory.kv_cache,
            memory.kv_bytes_per_token,
            memory.num_gpu_blocks,
            memory.printed_tokens(context) * layout.data,
            memory.max_concurrency(context) * layout.data,
        )
        reason = None if short == 0 else f"{show_bytes(short)} short on each GPU"
        found = head | dict(zip(_AMOUNTS, amounts, strict=True))
        rows.append(found | {"fits": short == 0, "reason": reason})
    return rows


_AMOUNTS = (
    *("weight_bytes", "activation_bytes", "kv_cache_bytes", "kv_bytes_per_token"),
    *("num_gpu_blocks", "kv_cache_tokens", "max_concurrency"),
)


def shortage(memory: Capacity, context: int) -> float:
    """Bytes of each GPU that are missing for one request of ``context`` tokens; 0: it fits."""
    blocks = memory.blocks_of(context)
    if memory.usable_blocks >= blocks:
        return 0.0
    needed = (blocks + memory.null_blocks) * memory.block_size * memory.kv_bytes_per_token
    return needed - memory.kv_cache
