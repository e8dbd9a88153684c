"""Reads GPU and engine files that extend another: ``extends: h100-sxm``, or a path.

What a file does not state is taken over, with its source; that of a GPU with another title opens
with "As the" and the title of the base. A mapping is merged key by key
(``peak_flops: {fp8: 900TFLOP/s}`` leaves the other precisions), unless it is of another ``kind``;
``price_per_hour`` is replaced whole, since a mixture of two offers is no provider's offer, and
``releases``, since a span has one beginning and one end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sim.catalog.entries import KINDS, Kind, names
from sim.catalog.files import position, read_yaml
from sim.catalog.lookup import find
from sim.catalog.releases import as_of, spelled
from sim.errors import UsageError

LONGEST_CHAIN = 10
"""Files that extend one another in a row; in a longer chain a value is hard to trace."""

UNSOURCED = ("title", "names", "profile", "fitted_to")
"""Keys without a source of their own."""
WHOLE = (*UNSOURCED, "price_per_hour", "releases")
"""Keys that are never merged."""

TWINS = (("bf16", "fp16"), ("fp16", "bf16"))
"""Entries of ``peak_flops`` that are one rate: where a file gives only the first, and its base has
both, the second follows it."""

_LENT = "As the "
"""How the source of a value opens that was taken over from another card."""


@dataclass(frozen=True)
class CatalogEntry:
    """The file at ``path``: ``own`` is what it says, ``document`` also what it takes over from
    ``base``, the entry that it extends, if any; neither has the key ``extends``."""

    path: Path
    own: Mapping[str, object]
    document: Mapping[str, object]
    base: CatalogEntry | None = None

    @property
    def unsourced(self) -> str:
        """The source of a value that the file gives without one."""
        return f"given in {self.path.name}"

    @property
    def root(self) -> CatalogEntry:
        """The entry at the end of the chain, which extends none."""
        return self if self.base is None else self.base.root

    def sourced(self) -> dict[str, object]:
        """The document, bare values with the source that they have here."""
        return {
            key: value
            if key in UNSOURCED or (isinstance(value, Mapping) and "value" in value)
            else {"value": value, "source": self.unsourced}
            for key, value in self.document.items()
        }

    def where(self, key: str) -> str:
        """The file, and the place in it of the dotted ``key``."""
        return position(self.path, key)


def read_entry(
    kind: Kind, path: Path, chain: tuple[Path, ...] = (), release: str = ""
) -> CatalogEntry:
    """The file at ``path`` with what it takes over; ``chain`` are the files that led to it. An
    engine is read at ``release``, or at the newest that its file knows.

    Raises UsageError, with file and line, for a base that does not exist and for files that extend
    each other in a circle or more than ``LONGEST_CHAIN`` in a row.
    """
    document = read_yaml(path)
    own = {key: value for key, value in document.items() if key != "extends"}
    if "extends" not in document:
        if kind == "engines":
            own = as_of(own, release, str(path))
        return CatalogEntry(path, own, own)
    name = document["extends"]
    if not isinstance(name, str) or not name.strip():
        known = "the name of an entry of the catalogue, or the path of a file"
        raise _error(path, f"expected {known}")
    if kind == "engines" and not release:
        name, release = spelled(name)
    try:
        parent = find(kind, name, path.parent)
    except UsageError as error:
        raise _error(path, str(error)) from None
    chain = (*chain, path)
    if parent.resolve() in [each.resolve() for each in chain]:
        raise _error(path, f"files extend each other in a circle ({_arrows(chain, parent)})")
    if len(chain) >= LONGEST_CHAIN:
        raise _error(path, f"more than {LONGEST_CHAIN} files extend each other in a row")
    if parent.is_dir():
        raise _error(path, f"{parent} is a folder; give a file in it")
    base = read_entry(kind, parent, chain, release)
    lent = base.sourced()
    if kind == "gpus" and own.get("title", lent.get("title")) != lent.get("title"):
        lent = {key: _lent(value, lent.get("title")) for key, value in lent.items()}
    return CatalogEntry(path, own, _merged(lent, own, f"given in {path.name}"), base)


def kind_of(path: Path) -> Kind:
    """The file's kind: that of its parent, else by the keys that only that kind has."""
    document = read_yaml(path)
    name = document.get("extends")
    for _ in range(LONGEST_CHAIN):
        if not isinstance(name, str):
            break
        name = spelled(name).name
        for kind in KINDS:
            if name in names(kind):
                return kind
        path = path.parent / name
        if not path.is_file():
            break
        document = read_yaml(path)
        name = document.get("extends")
    marks: dict[str, Kind] = {"per_iteration": "engines", "architecture": "models"}
    return next((kind for key, kind in marks.items() if key in document), "gpus")


def _error(path: Path, problem: str) -> UsageError:
    return UsageError(f"{position(path, 'extends')}: extends: {problem}")


def _arrows(chain: tuple[Path, ...], last: Path) -> str:
    return " -> ".join(each.name for each in (*chain, last))


def _merged(
    base: Mapping[str, object], own: Mapping[str, object], unsourced: str
) -> dict[str, object]:
    """``own`` on top of ``base``; what is merged says which part comes from where."""
    merged = dict(base)
    for key, value in own.items():
        merged[key] = value
        if key in WHOLE or key not in base or _odd(value):
            continue
        (above, source), (below, origin) = _parts(value, unsourced), _parts(base[key], "")
        if not isinstance(above, Mapping) or not isinstance(below, Mapping):
            continue
        if "kind" in above and above["kind"] != below.get("kind"):
            continue
        follows = {twin: above[one] for one, twin in TWINS if one in above and twin in below}
        below = {**below, **follows}
        if set(below) - set(above):
            source = f"{', '.join(map(str, above))}: {source}; the rest: {origin}"
        merged[key] = {"value": {**below, **above}, "source": source}
    return merged


def _lent(value: object, title: object) -> object:
    """The value of a base for another card: its source speaks of the card with that ``title``."""
    if not isinstance(value, Mapping) or "value" not in value:
        return value
    source = str(value.get("source", ""))
    if title is None or source.startswith(_LENT):
        return value
    return {**value, "source": f"{_LENT}{title}: {source}"}


def _odd(value: object) -> bool:
    """Whether a value with a source is not written like one, which its reader will refuse."""
    return isinstance(value, Mapping) and "value" in value and set(value) != {"value", "source"}


def _parts(value: object, unsourced: str) -> tuple[object, object]:
    """A value and its source."""
    if isinstance(value, Mapping) and "value" in value:
        return value["value"], value.get("source", unsourced)
    return value, unsourced
