"""What a serving engine adds to the kernels: host time, launches, memory, and its front end.

Seconds and bytes. The values of each engine, with their sources, are in ``catalog/engines``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The overheads of one engine.

    ``per_iteration``    host time of one iteration: scheduling, input preparation, sampling, output
    ``per_sequence``     host time for each sequence in the iteration
    ``per_new_request``  host time when a request enters the batch for the first time or again
    ``per_layer``        time between the kernels of one layer and the next
    ``overlapped``       the host prepares an iteration while the GPU runs another one: an iteration
                         then takes the longer of both, not their sum
    ``cuda_graphs``      kernels are replayed from a graph; otherwise the host launches each of the
                         ``kernels_per_layer``, ``launch`` apart, and the GPU may wait for it
    ``front_end``        time outside the engine before a request reaches the scheduler: HTTP,
                         tokeniser, hand-over
    ``memory_reserve``   GPU memory for context, graphs and communication buffers, beside weights,
                         activations and KV cache
    ``null_blocks``      KV blocks that the engine counts but never gives to a request
    ``kernels``          the framework whose kernels it runs, as profiles of the catalogue are named
    """

    name: str
    title: str
    per_iteration: float
    per_sequence: float
    per_new_request: float
    per_layer: float
    overlapped: bool
    cuda_graphs: bool
    launch: float
    kernels_per_layer: int
    front_end: float
    memory_reserve: float
    null_blocks: int
    kernels: str
    sources: Mapping[str, str]

    def host_time(self, sequences: int, new_requests: int) -> float:
        """Host seconds of an iteration over ``sequences``, of which ``new_requests`` just came."""
        return (
            self.per_iteration + self.per_sequence * sequences + self.per_new_request * new_requests
        )

    def launch_time(self, num_layers: int) -> float:
        """Seconds the host needs to launch one forward pass kernel by kernel; 0 with CUDA
        graphs."""
        return 0.0 if self.cuda_graphs else self.launch * self.kernels_per_layer * num_layers
