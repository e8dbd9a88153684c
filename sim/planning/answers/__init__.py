"""Provides the findings of decisions: what each answers, laid out once for terminal and page.

The findings of a command are made by the module of its name here, from its ``result.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from sim.findings import Findings


def findings_of(command: str, document: Mapping[str, Any]) -> Findings:
    """The findings that ``document``, the ``result.json`` of ``command``, holds."""
    return cast("Findings", import_module(f"{__name__}.{command}").findings(document))
