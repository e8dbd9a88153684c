"""Packs plotly.js into a page, so that the page opens offline and stays small.

The library that the installed plotly package ships is gzipped and written as base64 text; the page
inflates and runs it. Nothing is fetched.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from typing import NamedTuple

from plotly.offline import get_plotlyjs


class Bundle(NamedTuple):
    """plotly.js: ``packed`` is base64 of gzip of UTF-8; ``digest`` is its CSP source."""

    packed: str
    digest: str


@cache
def plotly_js() -> Bundle:
    """The library, packed once per process; the same bytes for the same version of plotly."""
    source = get_plotlyjs()
    packed = gzip.compress(source.encode(), compresslevel=9, mtime=0)
    return Bundle(base64.b64encode(packed).decode("ascii"), script_digest(source))


def script_digest(script: str) -> str:
    """The Content-Security-Policy source that allows exactly this inline script to run."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
