"""Provides the folders that tests read from."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
MODELS = ROOT / "tests" / "models"
FROZEN = ROOT / "tests" / "frozen"
VLLM = str(FROZEN / "vllm.yaml")
"""An engine that no refit changes and that chooses nothing where a scenario says nothing."""
CHAT = FROZEN / "chat.yaml"
"""scenarios/chat.yaml with that engine."""
SHARED = ROOT.parent / "shared"
"""Traces and measurements next to the project. Tests that read them are skipped without it."""

RUN_FILES = {
    "scenario.yaml",
    "resolved.yaml",
    "manifest.json",
    "summary.json",
    "charts.json",
    "requests.parquet",
    "timeseries.parquet",
    "chunks.parquet",
    "absences.parquet",
}
"""What every run directory has, without its page."""
