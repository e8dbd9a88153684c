"""Provides a folder of its own to commands that plan."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.planning_fixtures import SMALL


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with ``SMALL`` in it as ``one.yaml``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    (tmp_path / "one.yaml").write_text(yaml.safe_dump(SMALL))
    return tmp_path
