"""Runs decodes by replaying CUDA graphs, without launching each kernel from Python.

One graph for each size of ``SIZES``; a batch between two sizes is padded with rows that read and
write one place of a block that belongs to no request. The block tables are as wide as the longest
request needs, so this pays only with an attention kernel whose time follows the true lengths.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from calibrate.engine.attention import EngineAttention
from calibrate.engine.batch import EngineStep
from calibrate.engine.cache import Cache
from calibrate.engine.model import Transformer
from calibrate.lazy_torch import Tensor, torch

SIZES = (1, 2, 4, *range(8, 257, 8), *range(272, 513, 16))
"""Batch sizes that have a graph, close enough that filling up costs little; larger batches are
launched kernel by kernel, where launching is hidden behind the work anyway."""

Capture = Callable[[Callable[[], Tensor]], Callable[[], Tensor]]
"""Turns a function that computes on fixed tensors into one that repeats exactly that."""


class DecodeGraphs:
    """The pass over decodes only, for batches of up to ``most`` sequences of up to ``longest``
    tokens. All graphs are captured at once."""

    def __init__(
        self,
        model: Transformer,
        cache: Cache,
        attention: EngineAttention,
        *,
        most: int,
        longest: int,
        capture: Capture,
    ) -> None:
        self._nowhere = cache.nowhere
        self._block_size = cache.block_size
        enough = SIZES[: bisect_left(SIZES, most) + 1]
        width = -(-longest // cache.block_size)
        self._steps = {size: self._still(size, width, model.device) for size in enough}
        self._sizes = enough
        self._replays = {}
        for size in reversed(enough):  # the largest first: the others fit into its memory
            step = self._steps[size]
            attend = attention.of(step)
            self._replays[size] = capture(
                lambda step=step, attend=attend: model.forward(step, cache, attend)  # type: ignore[misc]
            )

    def covers(self, step: EngineStep) -> bool:
        """Whether ``step`` is one for a graph."""
        count = len(step.spans)
        return count == step.decodes <= self._sizes[-1] and not step.padded

    def run(self, step: EngineStep) -> Tensor:
        """The logits of ``step``; overwritten by the next call."""
        count = len(step.spans)
        size = self._sizes[bisect_left(self._sizes, count)]
        still = self._steps[size]
        columns = [(still.tokens, step.tokens, 0), (still.positions, step.positions, 0)]
        columns.append((still.slots[0], step.slots[0], self._idle_slot))
        for column, filled, idle in columns:
            column[:count].copy_(filled)
            column[count:].fill_(idle)
        still.lengths[:count].copy_(step.lengths)
        still.lengths[count:].fill_(1)
        (table,), (filled,) = still.tables, step.tables
        table[:count, : filled.shape[1]].copy_(filled)
        table[count:].fill_(self._nowhere)
        return self._replays[size]()[:count]

    @property
    def _idle_slot(self) -> int:
        return self._nowhere * self._block_size

    def _still(self, size: int, width: int, device: str) -> EngineStep:
        """A step of idle rows, whose tensors stay where they are."""

        def full(*shape: int, value: int) -> Tensor:
            return torch.full(shape, value, dtype=torch.int64, device=device)

        return EngineStep(
            spans=(),
            decodes=size,
            block_size=self._block_size,
            tokens=full(size, value=0),
            positions=full(size, value=0),
            sampling=torch.arange(size, device=device),
            lengths=full(size, value=1),
            firsts=full(size, value=0),
            slots=(full(size, value=self._idle_slot),),
            tables=(full(size, width, value=self._nowhere),),
        )


class CudaCapture:
    """Captures functions as CUDA graphs that share their memory."""

    WARM_UPS = 3
    """Calls before the capture: kernels are compiled and libraries make their plans."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """``run`` as a graph; its result is the same tensor every time."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(self.WARM_UPS):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            result = run()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay
