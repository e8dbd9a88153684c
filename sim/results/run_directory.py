"""Makes run directories, and marks in each of them whether it is complete.

It appears with the scenario and a ``manifest.json`` that says ``incomplete``, is filled, and last
of all its manifest says ``complete`` or ``interrupted``. Every file appears whole or not at all
(written under another name, then renamed), so whatever ends the process, even a kill, leaves a
directory that is finished or says that it is not.
"""

from __future__ import annotations

import json
import os
import secrets
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Literal, Self

from sim.errors import UsageError
from sim.results.whole_file import write_text
from sim.scenario import Scenario
from sim.version import version

MANIFEST, SCENARIO, RESOLVED = "manifest.json", "scenario.yaml", "resolved.yaml"

REFUSAL = "why-not.html"
"""The page of a question that had no answer: it does not keep the next run out of its folder."""

Status = Literal["incomplete", "interrupted", "complete"]


class RunDirectory:
    """A run directory that is being written; ``path`` is where."""

    def __init__(self, path: Path, manifest: dict[str, Any], made: list[Path]) -> None:
        self.path = path
        self._manifest = manifest
        self._made = made

    @classmethod
    def create(cls, path: Path, scenario: Scenario, command: str = "") -> Self:
        """A directory with ``scenario`` in it that is marked ``incomplete``; its manifest has the
        ``command`` that makes it, if there is one.

        ``path`` is an empty folder or nothing yet; else, and where nothing can be written,
        UsageError. A new folder appears with its files in it, never empty.
        """
        check_free(path)
        resolved = scenario.to_yaml()
        manifest = _manifest(scenario, resolved) | ({"command": command} if command else {})
        (path / REFUSAL).unlink(missing_ok=True)
        made = [folder for folder in (path, *path.parents) if not folder.exists()]
        staging = path
        try:
            if made:
                staging = path.parent / f".run-{secrets.token_hex(4)}"
                staging.mkdir(parents=True)
            running = {"pid": os.getpid(), "status": "incomplete"}
            write_json(staging / MANIFEST, manifest | running)
            write_text(staging / RESOLVED, resolved)
            write_text(staging / SCENARIO, scenario.source_text or resolved)
            if made:
                staging.rename(path)
        except BaseException as error:
            _remove_files(staging)
            _remove_empty([staging, *made[1:]] if made else [])
            if isinstance(error, OSError):
                raise UsageError(f"cannot write to {path}: {error.strerror}") from None
            raise
        return cls(path, manifest, made)

    def restate(self, scenario: Scenario) -> None:
        """The directory is about ``scenario``: what it was created with has changed."""
        resolved = scenario.to_yaml()
        kept = {key: self._manifest[key] for key in ("created", "command") if key in self._manifest}
        self._manifest = _manifest(scenario, resolved) | kept
        write_text(self.path / RESOLVED, resolved)
        write_text(self.path / SCENARIO, scenario.source_text or resolved)

    def finish(self, status: Status, **entries: str) -> None:
        """Everything is written: say so in the manifest, with ``entries`` that are known by now."""
        write_json(self.path / MANIFEST, self._manifest | entries | {"status": status})

    def discard(self) -> None:
        """Take back a directory in which nothing came to be; one that holds more is left alone."""
        with suppress(OSError):
            if {entry.name for entry in self.path.iterdir()} <= {MANIFEST, SCENARIO, RESOLVED}:
                _remove_files(self.path)
                _remove_empty(self._made)


def check_free(directory: Path) -> None:
    """Raise UsageError unless ``directory`` is an empty folder, or nothing yet, and can be written
    to as far as can be seen."""
    try:
        occupied = directory.exists() and any(each.name != REFUSAL for each in directory.iterdir())
    except OSError as error:
        raise UsageError(f"cannot write to {directory}: {error.strerror}") from None
    if occupied:
        raise UsageError(f"{directory} is not empty; a run never overwrites another")
    above = next((place for place in (directory, *directory.parents) if place.exists()), None)
    if above is not None and not above.is_dir():
        raise UsageError(f"cannot write to {directory}: {above} is a file")
    if above is not None and not _writable(above):
        raise UsageError(f"cannot write to {directory}: {above} is read-only for you")


def _writable(folder: Path) -> bool:
    """Whether entries can be made in ``folder``; tried, since rights alone do not say."""
    try:
        with TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def new_run_directory(root: Path, name: str) -> Path:
    """``root/<time>-<name>-<id>``: a folder name that no earlier run has."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip("-.")[:60]
    time = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    return root / f"{time}-{plain or 'run'}-{secrets.token_hex(3)}"


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write ``document``, which holds no NaN, as JSON; the file appears whole or not at all."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def new_manifest(scenario: Scenario) -> dict[str, Any]:
    """The manifest of a directory for ``scenario``, without a status."""
    return _manifest(scenario, scenario.to_yaml())


def _manifest(scenario: Scenario, resolved: str) -> dict[str, Any]:
    return {
        "infersim": version(),
        "python_packages": {name: _version(name) for name in ("numpy", "simpy", "pyarrow")},
        "created": datetime.now().astimezone().isoformat(timespec="seconds"),
        "seed": scenario.seed,
        "scenario_sha256": sha256(resolved.encode()).hexdigest(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _remove_files(folder: Path) -> None:
    """Remove what ``create`` puts into a folder; the mark that it is incomplete goes last."""
    for name in (SCENARIO, RESOLVED, MANIFEST):
        with suppress(OSError):
            (folder / name).unlink()


def _remove_empty(folders: list[Path]) -> None:
    """Remove these folders, innermost first, up to one that holds something."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return
