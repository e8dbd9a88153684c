"""Writes a scenario as YAML that reads back as the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from sim.scenario.text.parsing import scalar


def write_yaml(data: Mapping[str, Any]) -> str:
    """Plain data as the text of a scenario, which reads back as the same."""
    return yaml.dump(
        dict(data), Dumper=_ScenarioDumper, sort_keys=False, width=100, allow_unicode=True,
        default_flow_style=False,
    )  # fmt: skip


class _ScenarioDumper(yaml.SafeDumper):
    """Quotes every text that a scenario would read as something else, such as ``1e3``."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write equal values out each time: scenarios have no aliases."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if isinstance(scalar(text), str) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_ScenarioDumper.add_representer(str, _represent_text)
