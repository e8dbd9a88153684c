"""Tests the compiled core of a wheel as the Python modules are tested.

``python -m tests.compiled`` copies the checkout, puts the extension modules of the platform's wheel
in ``dist`` next to their Python files, where they are imported first, and runs the golden scenarios
and the tests of the folders that the core is from. Exits with their status.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

from hatch_build import CORE
from tests.places import ROOT

IGNORED = shutil.ignore_patterns(".*", "dist", "build", "runs", "node_modules", "__pycache__")


def main() -> int:
    """Run them."""
    (wheel,) = (ROOT / "dist").glob("infersim-*-cp*.whl")
    with tempfile.TemporaryDirectory() as place:
        copy = Path(shutil.copytree(ROOT, Path(place, "checkout"), ignore=IGNORED))
        archive = zipfile.ZipFile(wheel)
        modules = [name for name in archive.namelist() if name.endswith(tuple(EXTENSION_SUFFIXES))]
        assert len(modules) == sum(len(each.split()) for each in CORE.values()), modules
        archive.extractall(copy, modules)
        said = [sys.executable, "-m", "sim", "--version"]
        told = subprocess.run(said, cwd=copy, check=True, capture_output=True, text=True).stdout
        assert "compiled core" in told, told
        folders = [f"tests/{folder}" for folder in CORE]
        pytest = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "-m"]
        tests = ["not slow and not thorough", "tests/test_golden.py"]
        return subprocess.run([*pytest, *tests, *folders], cwd=copy, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
