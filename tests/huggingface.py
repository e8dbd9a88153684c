"""Models of made-up ``config.json`` files, for the tests of all who read them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from sim import catalog
from sim.errors import UsageError
from sim.specs.model import ModelSpec


def config(folder: Path, base: Mapping[str, Any], **changes: object) -> ModelSpec:
    """The model of a config.json like ``base`` with ``changes``; a change to ... drops the key."""
    document = {key: value for key, value in {**base, **changes}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(document))
    return catalog.model(folder)


def refused(folder: Path, base: Mapping[str, Any], changes: Mapping[str, Any]) -> str:
    """What is wrong with the config.json, after the name of the file."""
    with pytest.raises(UsageError) as caught:
        config(folder, base, **changes)
    file = str(folder / "config.json")
    assert str(caught.value).startswith(file)
    return str(caught.value).removeprefix(file)
