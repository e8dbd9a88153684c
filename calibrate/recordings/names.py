"""What does the catalogue call a model or a GPU that a record of a run names in its own way?"""

from __future__ import annotations

import re
from pathlib import Path

from calibrate.known_gpus import KNOWN
from sim import catalog

_TUNED = r"(-(instruct|chat|base|it|hf|v\d+(\.\d+)*|\d{4}))*"
"""What publishers add to a name for other weights of the same shape."""


def known_model(named: str) -> str | None:
    """The catalogue's name of the model that is published as ``named``, or None.

    >>> known_model("meta-llama/Meta-Llama-3.1-8B-Instruct"), known_model("Qwen/Qwen3-8B-FP8")
    ('llama-3.1-8b', None)
    """
    plain = named.rpartition("/")[2].lower().removeprefix("meta-")
    for name in catalog.names("models"):
        if re.fullmatch(re.escape(name) + _TUNED, plain):
            return name
    return None


def known_gpu(named: str) -> str | None:
    """The catalogue's name of the GPU that its driver calls ``named``, or None."""
    return KNOWN.get(named)


def absolute(name: str, kind: catalog.Kind) -> str:
    """``name``, made absolute if it is the path of a file here and not in the catalogue."""
    if name in catalog.names(kind) or not Path(name).exists():
        return name
    return str(Path(name).absolute())
