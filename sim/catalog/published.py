"""Provides the number formats in which models of the catalogue are published.

They are the default of a scenario's precision: engines load a checkpoint as it is.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from sim.catalog.fields import Fields
from sim.catalog.files import read_yaml
from sim.catalog.lookup import find, names
from sim.specs.deployment import Deployment

KEY = "published_format"


class PublishedFormat(NamedTuple):
    """The format of a checkpoint's matrices, that of its experts where it is another, and its
    source."""

    weights: str
    experts: str | None
    source: str

    @property
    def stored(self) -> str:
        """The format of most of the numbers."""
        return self.experts or self.weights

    def __str__(self) -> str:
        if self.experts is None:
            return self.weights
        return f"{self.experts} (experts) and {self.weights} (the rest)"


@cache
def published_format(model: str) -> PublishedFormat | None:
    """That of the model of this name; None where the catalogue does not say, which is mostly 16
    bits."""
    if model not in names("models"):
        return None
    path = find("models", model, None)
    if KEY not in path.read_text(encoding="utf-8"):
        return None  # as of most models, in a tenth of the time
    entry = Fields(model, read_yaml(path))
    values, sources = entry.sourced()
    value = values.inner(KEY)
    value.only(["weights", "experts"])
    experts = value.text("experts") if value.has("experts") else None
    return PublishedFormat(value.text("weights"), experts, sources[KEY])


def published_note(d: Deployment) -> str | None:
    """Names the format in which the model of ``d`` is published, where it is not stored so."""
    found = published_format(d.model.name)
    if found is None or d.formats["experts"] == found.stored:
        return None
    return (
        f"{d.model.name} is published in {found} ({found.source.strip().rstrip('.')}), and counted "
        f"here in {d.formats['experts']}: `--weights {found.stored}`, in a scenario "
        f"`precision.{'experts' if found.experts else 'weights'}: {found.stored}`."
    )
