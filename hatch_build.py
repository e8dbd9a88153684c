"""The README as package indexes show it: without pictures, and without links to files."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

PICTURE = re.compile(r"^!\[[^\]]*\]\([^)]*\)\n+", re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\((?!https?://)[^)]+\)")


def standalone(text: str) -> str:
    """A Markdown text whose words stay where no other file is next to it.

    >>> standalone("![picture](a.png)\\n\\nRead [the map](sim/README.md).")
    'Read the map.'
    """
    return LINK.sub(r"\1", PICTURE.sub("", text))


class ReadmeHook(MetadataHookInterface):
    """Hands the README to the metadata of the package."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme``."""
        text = Path(self.root, "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": standalone(text)}
