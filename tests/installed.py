"""Installs the built wheel with the oldest dependencies it allows, and asks the README's questions.

``python -m tests.installed`` makes a virtual environment of its own and an empty folder, where
nothing of the checkout is at hand. Exits with 1, and the difference, where an answer is not the one
that the README quotes, or where a command whose code is not installed does not say so.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from tests.places import ROOT
from tests.readme import one_line, quoted, sentences

PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


def floors() -> list[str]:
    """The oldest release of each dependency that pyproject.toml allows, as constraints.

    >>> next(each for each in floors() if each.startswith("simpy"))
    'simpy==4.1.1'
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pairs = [re.match(r"([\w-]+)>=([\d.]+)", each) for each in project["dependencies"]]
    assert all(pairs), "every dependency has a floor"
    return [f"{found[1]}=={found[2]}" for found in pairs if found]


def main() -> int:
    """Print what was asked and what was answered otherwise; the number of differences."""
    with tempfile.TemporaryDirectory() as place:
        build, empty = Path(place, "build"), Path(place, "empty")
        empty.mkdir()
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(build)],
            cwd=ROOT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (wheel,) = build.glob("*.whl")
        subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel], check=True)
        venv.create(build / "venv", with_pip=True)
        python = build / "venv" / "bin" / "python"
        subprocess.run([python, *PIP, str(wheel), *floors()], check=True)
        inside = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        check = "import infersim; infersim.simulate('chat'); print(infersim.__file__)"
        done = subprocess.run(
            [python, "-c", check], cwd=empty, env=inside, check=True, capture_output=True, text=True
        )
        assert str(build) in done.stdout, done.stdout
        command = python.with_name("infersim")
        return sum(_asked(command, empty, inside)) + _refused(command, empty, inside)


CHECKOUT = (
    ("score", "table.csv"),
    ("calibrate", "import", "aiconfigurator", "--system", "h100_sxm"),
    ("calibrate", "import", "vidur", "mlp.csv", "--gpu", "a100-sxm-80gb"),
)
"""Commands whose code is not installed."""


def _refused(command: Path, empty: Path, inside: dict[str, str]) -> int:
    """The number of commands of ``CHECKOUT`` that do not say that they need one."""
    found = 0
    for words in CHECKOUT:
        done = subprocess.run(
            [command, *words], cwd=empty, env=inside, check=False, capture_output=True, text=True
        )
        good = done.returncode == 2 and "needs a checkout of the repository" in done.stderr
        print(f"{'ok' if good else 'differs'}: infersim {' '.join(words)}: {done.stderr.strip()}")
        found += not good
    return found


def _asked(command: Path, empty: Path, inside: dict[str, str]) -> list[int]:
    found = []
    for words, answer in quoted():
        done = subprocess.run(
            [command, *words], cwd=empty, env=inside, check=False, capture_output=True, text=True
        )
        told = one_line(done.stdout)
        missing = [each for each in sentences(answer) if each not in told]
        print(f"{'differs' if missing or done.returncode else 'ok'}: infersim {' '.join(words)}")
        if missing or done.returncode:
            print(f"  quoted, not said: {missing}\n  exit {done.returncode}: {told[:600]}")
            print(f"  {one_line(done.stderr)[:600]}")
        found.append(int(bool(missing or done.returncode)))
    return found


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
