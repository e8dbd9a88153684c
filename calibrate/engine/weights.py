"""Draws the random weights of a model, and provides norms and rotary positions.

The weights are drawn so that the hidden state is of order one in any depth: what they compute means
nothing, but it is as sensitive to a wrong position, block or mask as a trained model.
"""

from __future__ import annotations

from typing import Any

from calibrate.lazy_torch import Tensor, torch
from sim.specs.model import ModelSpec

NORM_EPSILON = 1e-6


class EngineWeights:
    """Draws tensors one after the other from one stream; ``drawn`` counts their numbers.

    Matrices lie side by side in one piece of memory: on a CPU it can then consist of huge pages
    except at its ends, and takes the same time wherever the system puts it.
    """

    def __init__(self, spec: ModelSpec, dtype: Any, device: str, seed: int) -> None:
        vocabulary = spec.vocab_size * spec.hidden_size
        self.drawn = 0
        self.hidden = spec.hidden_size
        self.kept = hidden_scale(spec)
        count = spec.linear_parameters() + vocabulary * (1 if spec.tie_word_embeddings else 2)
        self._free = torch.empty(count, dtype=dtype, device=device)
        self._generator = torch.Generator(device).manual_seed(seed)

    def matrix(self, *shape: int, scale: float | None = None) -> Tensor:
        """Rows x columns, or a stack of such; without ``scale``, results are of order one."""
        size = 1
        for length in shape:
            size *= length
        taken, self._free = self._free[:size], self._free[size:]
        scale = shape[-1] ** -0.5 if scale is None else scale
        return self._draw(taken.view(shape), scale)

    def out(self, *shape: int) -> Tensor:
        """A ``matrix`` whose results are added to the hidden state."""
        return self.matrix(*shape, scale=self.kept * shape[-1] ** -0.5)

    def small(self, *shape: int, scale: float | None = None) -> Tensor:
        """A ``matrix`` that lies for itself: one that engines never quantise."""
        scale = shape[-1] ** -0.5 if scale is None else scale
        return self._draw(self._free.new_empty(shape), scale)

    def bias(self, *shape: int) -> Tensor:
        """Biases, sinks of heads, and other numbers that are added."""
        return self._draw(self._free.new_empty(shape), 0.5)

    def out_bias(self, *shape: int) -> Tensor:
        """Biases of what is added to the hidden state."""
        return self._draw(self._free.new_empty(shape), 0.5 * self.kept)

    def norm(self, size: int) -> Tensor:
        """Around one, not one itself: a norm that is left out must show."""
        return 1 + self._draw(self._free.new_empty(size), 0.1)

    @property
    def left(self) -> int:
        """Numbers that the model's matrices were said to have, and that were not drawn."""
        return len(self._free)

    def _draw(self, empty: Tensor, scale: float) -> Tensor:
        self.drawn += empty.numel()
        return empty.normal_(0.0, scale, generator=self._generator)


def hidden_scale(spec: ModelSpec) -> float:
    """The factor of the two results that each layer adds to the hidden state, so that all
    together they are of order one."""
    return float((2 * spec.num_layers) ** -0.5)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    """The norm over the last dimension."""
    return torch.nn.functional.rms_norm(x, weight.shape, weight, NORM_EPSILON)


class Angles:
    """Cosine and sine of each position's angles, for heads of ``size`` (position x 1 x half of
    it)."""

    def __init__(self, positions: int, size: int, base: float, dtype: Any, device: str) -> None:
        rates = base ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = torch.arange(positions, dtype=torch.float64)[:, None, None] * rates
        self._cos = torch.cos(angles).to(device=device, dtype=dtype)
        self._sin = torch.sin(angles).to(device=device, dtype=dtype)

    def at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The rotations of ``positions``."""
        return self._cos[positions], self._sin[positions]
