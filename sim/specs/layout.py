"""Describes how the GPUs of one replica share a model."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

BACKENDS = (
    "allgather_reducescatter",
    "deepep_high_throughput",
    "deepep_low_latency",
    "flashinfer_nvlink_one_sided",
    "flashinfer_nvlink_two_sided",
)
"""How tokens get to whole experts on other GPUs, by vLLM's names; the first is its default."""

DEFAULT_BACKEND = BACKENDS[0]

OVER_NVLINK = BACKENDS[3:]
"""Backends that reach no GPU beyond the NVLink switch of one node."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The ways in which one replica spreads a model over its GPUs, each a number of parts.

    ``tensor`` GPUs share the heads and the width of every layer. ``pipeline`` stages have
    consecutive layers each. ``data`` ranks of attention data parallelism have a scheduler, requests
    and KV cache of their own, and a copy of all but the experts. ``expert`` groups of GPUs hold
    whole experts each; 1 cuts every expert along its width. The experts of a layer are spread over
    all tensor and data ranks, whichever way, as vLLM does. With a ``split`` as many GPUs have
    consecutive layers each and work in turn: to a pass they are one GPU with the memory of all
    (llama.cpp's ``--split-mode layer``).

    Raises ValueError for numbers that do not go together.

    >>> Layout(tensor=2, data=4, expert=8).gpus, Layout(tensor=8, expert=4).expert_width
    (8, 2)
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    expert: int = 1
    split: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(
                    f"{field.name}_parallel: got {getattr(self, field.name)}, expected at least 1"
                )
        if self.ranks % self.expert:
            raise ValueError(
                f"expert_parallel: got {self.expert}, expected a divisor of the {self.ranks} GPUs "
                "that tensor_parallel and data_parallel make"
            )

    @property
    def ranks(self) -> int:
        """GPUs that share one layer: tensor ranks of all data ranks."""
        return self.tensor * self.data

    @property
    def gpus(self) -> int:
        """GPUs of the replica."""
        return self.ranks * self.pipeline * self.split

    @property
    def linked(self) -> bool:
        """Whether GPUs wait for what others send in every pass."""
        return self.ranks * self.pipeline > 1

    @property
    def batches(self) -> int:
        """Batches in flight at once: one of each data rank, or one for each stage.

        >>> Layout(tensor=2, pipeline=4).batches, Layout(data=8).batches
        (4, 8)
        """
        return self.data * self.pipeline

    @property
    def text(self) -> str:
        """The layout as engines' users write it; ``EP`` are whole experts, on groups of GPUs with a
        number.

        >>> Layout(tensor=2, data=4, expert=8).text, Layout(tensor=8, expert=2).text
        ('TP 2 x DP 4, EP', 'TP 8, EP 2')
        """
        parts = {"TP": self.tensor, "PP": self.pipeline, "DP": self.data, "split": self.split}
        shown = " x ".join(f"{name} {count}" for name, count in parts.items() if count > 1)
        experts = "" if self.expert == 1 else ", EP"
        if 1 < self.expert < self.ranks:
            experts += f" {self.expert}"
        return (shown or "TP 1") + experts

    def with_tensor(self, tensor: int) -> Layout:
        """The layout on ``tensor`` GPUs a layer; experts that are whole on each GPU stay so."""
        whole = self.expert > 1 and self.expert == self.ranks
        return replace(self, tensor=tensor, expert=tensor * self.data if whole else self.expert)

    @property
    def shares_tokens(self) -> bool:
        """Whether the tensor ranks bring a share of their tokens each to the experts: where whole
        experts are spread over data ranks too (vLLM's sequence-parallel experts)."""
        return min(self.tensor, self.data, self.expert) > 1

    @property
    def expert_width(self) -> int:
        """GPUs that share the width of one expert."""
        return self.ranks // self.expert


ONE_GPU = Layout()
"""Everything on one GPU."""
