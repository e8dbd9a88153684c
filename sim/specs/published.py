"""Describes the number formats in which a checkpoint is stored, by its own files."""

from __future__ import annotations

from typing import NamedTuple


class PublishedFormat(NamedTuple):
    """The formats that a checkpoint states, as keys of a scenario's ``precision``, and its source.

    ``experts`` is that of experts which differ from the other weights. ``activations`` None stands
    for those that usually go with the weights, ``kv_cache`` None for that of the model. ``static``
    says that the checkpoint holds the scales of its activations. ``note`` says where these formats
    are only nearly those of the checkpoint. ``problem`` is why the checkpoint cannot be counted as
    it is stored; the formats then mean nothing.
    """

    weights: str
    experts: str | None
    source: str
    activations: str | None = None
    kv_cache: str | None = None
    static: bool = False
    note: str | None = None
    problem: str | None = None

    @property
    def stored(self) -> str:
        """The format of most of the numbers."""
        return self.experts or self.weights

    def __str__(self) -> str:
        if self.experts is None:
            return self.weights
        return f"{self.experts} (experts) and {self.weights} (the rest)"
