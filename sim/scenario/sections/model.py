"""Describes the model that is served, and what its checkpoint does not say of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from sim import catalog
from sim.scenario.sections.support import Section
from sim.scenario.text.document import Document
from sim.scenario.values.fields import ModelName, Nonnegative, at_most
from sim.specs.model import ModelSpec

STEEPEST = 4.0
"""The largest exponent: nearly all tokens choose the same experts."""

Skew = Annotated[Nonnegative, at_most(STEEPEST)]


class ModelChoice(Section):
    """A model, by its name or path alone or with what its config does not say."""

    path: ModelName = Field(
        description="Catalogue name, id on Hugging Face of such a model or of a variant of its "
        "shape, or the path of a config.json or its folder.",
        examples=["qwen3-30b-a3b"],
    )
    expert_skew: Skew = Field(
        default=0.0,
        description="How unevenly tokens choose experts: the exponent of a power law, 0 to 4. 0: "
        "equally often, much as real texts do; 0.01: as unevenly as random tokens do, which "
        "benchmarks send. Published kernel timings have 1.01 and 1.2.",
        examples=[1.0],
    )

    @model_validator(mode="wrap")
    @classmethod
    def _by_name(cls, value: Any, handler: ValidatorFunctionWrapHandler) -> ModelChoice:
        """A plain name stands for a model without further settings."""
        if isinstance(value, dict | ModelChoice):
            return _made(handler(value))
        try:
            return _made(handler({"path": value}))
        except ValidationError as error:
            raise error.errors()[0]["ctx"]["error"] from None

    @model_serializer(mode="wrap")
    def _as_written(self, handler: SerializerFunctionWrapHandler) -> Any:
        """A plain name if there are no further settings."""
        return handler(self) if self.expert_skew else self.path

    def __str__(self) -> str:
        """The name, and the skew if there is one."""
        return self.path + (f", expert skew {self.expert_skew:g}" if self.expert_skew else "")

    def spec(self, base: Path) -> ModelSpec:
        """The model, relative to ``base`` if it is a path; ValueError for a skew without
        experts."""
        return catalog.model(self.path, base).with_skew(self.expert_skew)


def _made(value: Any) -> ModelChoice:
    assert isinstance(value, ModelChoice)
    return value


def model_as_mapping(document: Document) -> Document:
    """A model given by its name becomes the mapping that it stands for."""
    name = document.data.get("model")
    if not isinstance(name, str):
        return document
    return dataclasses.replace(
        document,
        data={**document.data, "model": {"path": name}},
        keys=_below(document.keys),
        values=_below(document.values),
    )


def _below(places: dict[Any, Any]) -> dict[Any, Any]:
    at = places.get(("model",))
    return places if at is None else {**places, ("model", "path"): at}
