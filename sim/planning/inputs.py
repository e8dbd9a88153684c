"""Fingerprints the files that a question names: with an edited trace it is another question.

Files are known by their absolute paths, their contents by SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import file_digest
from pathlib import Path

from sim.errors import UsageError
from sim.own import located


def digests(data: object, folders: Sequence[Path]) -> dict[str, str]:
    """Path -> digest of every file that some text in plain ``data`` leads to.

    Relative paths start at the first of ``folders``; parts of one's own are looked for in all.
    UsageError for a file that cannot be read.
    """
    texts = {text for text in _texts(data) if text and "\0" not in text}
    paths = {Path(folders[0].absolute(), text) for text in texts}
    paths |= {file for text in texts if (file := located(text, folders)) is not None}
    return {str(path): _digest(path) for path in sorted(paths) if _is_file(path)}


def _texts(data: object) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from _texts(value)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a long text is no path
        return False


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from None
