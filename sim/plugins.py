"""Loads a user's own parts: the class or function that ``module:Name`` or ``file.py:Name`` names.

A module is looked for in the folders of the question first (the scenario's, then the working
directory), then among all that Python can import. A file from such a folder is loaded under a
private name: it never hides a module of that name from other code, and two scenarios in two folders
may each have their own ``policy.py``. It is loaded once a process, as modules are. While it is, it
can import its neighbours: their folder stands at the end of ``sys.path`` for as long, behind the
standard library and every package.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from types import ModuleType, TracebackType
from typing import Any

from sim.errors import TRACEBACK, InfersimError, UsageError, did_you_mean

_NAME = r"[^\W\d]\w*"
PATTERN = rf"({_NAME}(\.{_NAME})*|.*[^/]\.py):{_NAME}"
"""The name of a part of one's own: ``package.module:Name``, or the path of a file and a name."""

WRITTEN = "package.module:Name or file.py:Name"

_one_at_a_time = RLock()


def is_own(text: str) -> bool:
    """Whether ``text`` names a part of one's own, be it there or not.

    >>> [is_own(text) for text in ("mine:Policy", "../parts/mine.py:Policy", "continuous")]
    [True, True, False]
    """
    return re.fullmatch(PATTERN, text) is not None


def located(text: str, folders: Sequence[Path]) -> Path | None:
    """The file of the part that ``text`` names, absolute; None if no folder has it.

    Relative paths of files, as opposed to modules, start at the first of ``folders``.
    """
    if not is_own(text):
        return None
    if ".py:" in text:
        return _given(text, folders)
    found = _found(text.partition(":")[0], folders)
    return None if found is None else found[1]


def absolute(text: str, folders: Sequence[Path]) -> str:
    """``text`` with the absolute path of its file, if a folder has it; else unchanged."""
    file = located(text, folders)
    return text if file is None else f"{file}:{text.rpartition(':')[2]}"


def load_class(text: str, base: type, noun: str, folders: Sequence[Path] = ()) -> Any:
    """The concrete subclass of ``base`` that ``text`` names; ``noun`` is what messages call it.

    Raises UsageError, which says where was looked, for a text that leads nowhere or elsewhere.
    """
    found = _load(text, noun, folders)
    if not (isinstance(found, type) and issubclass(found, base)):
        home = base.__module__.removesuffix(".base").removesuffix(".orders")
        raise UsageError(
            f"{noun} {text!r} is not a subclass of {home}.{base.__name__}{_defined(found)}"
        )
    if isinstance(found, ABCMeta) and inspect.isabstract(found):
        missing = ", ".join(sorted(found.__abstractmethods__))
        raise UsageError(
            f"{noun} {text!r} is abstract: it does not implement {missing}{_defined(found)}"
        )
    return found


def load_function(text: str, noun: str, folders: Sequence[Path] = ()) -> Callable[..., Any]:
    """The callable at ``text``; UsageError as for ``load_class``."""
    found = _load(text, noun, folders)
    if not callable(found):
        raise UsageError(f"{noun} {text!r} is no function, but {type(found).__name__}")
    return found


def _defined(found: object) -> str:
    """Where a class or function begins, in words; empty where Python does not know its file.

    >>> _defined(3), _defined(did_you_mean).rpartition("/")[2].partition(":")[0]
    ('', 'errors.py')
    """
    if not (inspect.isclass(found) or inspect.isfunction(found)):
        return ""
    try:
        return f" (defined at {inspect.getsourcefile(found)}:{inspect.getsourcelines(found)[1]})"
    except (OSError, TypeError):
        return ""


@contextmanager
def own_mistakes(parts: Mapping[str, str], folders: Sequence[Path]) -> Iterator[None]:
    """Turn what a user's own code raises into a UsageError with its file and line.

    ``parts`` are the parts at work: what messages call each, by the text that names it. Where none
    is, nothing is caught. What infersim raises on purpose stays.
    """
    try:
        yield
    except InfersimError:
        raise
    except Exception as error:
        if not parts:
            raise
        raise UsageError(_mistake(error, parts, folders)) from error


def _mistake(error: BaseException, parts: Mapping[str, str], folders: Sequence[Path]) -> str:
    """Describes which part failed and how, with the lines of its own files that led there."""
    files = {text: located(text, folders) for text in parts}
    homes = {text: _root(file)[0] for text, file in files.items() if file is not None}
    frames = [frame for each in _causes(error) for frame in traceback.extract_tb(each)]
    own = [
        (text, frame)
        for frame in frames
        for text, home in homes.items()
        if Path(frame.filename).is_relative_to(home) and "site-packages" not in frame.filename
    ]
    reason = f"{type(error).__name__}: {error}".removesuffix(": ")
    if own:
        text = own[-1][0]
        mine = [frame for named, frame in own if named == text]
        told = [f"{parts[text]} {text!r} failed: {reason}"]
        for frame in mine:
            told.append(f"  {frame.filename}:{frame.lineno}, in {frame.name}")
            told += [f"    {frame.line}"] if frame.line else []
    else:
        named = " or ".join(f"{noun} {text!r}" for text, noun in parts.items())
        at = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        told = [f"{named} gave something that the simulation cannot go on with: {reason}{at}"]
    told.append(f"  (the whole traceback: {TRACEBACK}=1)")
    return "\n".join(told)


def _causes(error: BaseException) -> Iterator[TracebackType]:
    """The tracebacks of ``error`` and of what it came from, the first one last: events of a
    simulation raise what their processes did."""
    found: BaseException | None = error
    while found is not None:
        if found.__traceback__ is not None:
            yield found.__traceback__
        found = found.__cause__


def _load(text: str, noun: str, folders: Sequence[Path]) -> object:
    """The attribute that ``text`` names."""
    where, _, name = text.rpartition(":")
    try:
        module = _module(text, where, folders)
    except (Exception, SystemExit) as error:  # whatever a user's module does when imported
        reason = f"{type(error).__name__}: {error}"
        looked = _looked(where, folders) if _is_missing(error, where) else ""
        if (place := located(text, folders)) is not None and not isinstance(error, SyntaxError):
            frames = traceback.extract_tb(error.__traceback__)
            at = next((each for each in frames if Path(each.filename) == place), None)
            looked = looked if at is None else f" at {place}:{at.lineno}{looked}"
        raise UsageError(f"{noun} {text!r} cannot be imported ({reason}){looked}") from error
    try:
        return getattr(module, name)
    except AttributeError:
        meant = did_you_mean(name, [known for known in vars(module) if known[:1] != "_"])
        file = getattr(module, "__file__", None) or where
        raise UsageError(f"{noun} {text!r}: {file} has no {name!r}{meant}") from None


def _is_missing(error: BaseException, where: str) -> bool:
    """Whether the module itself was not there, rather than one that it imports."""
    if not isinstance(error, ModuleNotFoundError):
        return False
    return error.name is not None and f"{where}.".startswith(f"{error.name}.")


def _looked(where: str, folders: Sequence[Path]) -> str:
    """Where a module was looked for, in words."""
    file = f"{where.replace('.', '/')}.py"
    listed = "".join(f"{folder / file}, " for folder in folders)
    return (
        f"; looked for {listed}and a module of that name on Python's path (PYTHONPATH adds to it)"
    )


def _module(text: str, where: str, folders: Sequence[Path]) -> ModuleType:
    if ".py:" in text:
        file = _given(text, folders)
        if not file.is_file():
            raise FileNotFoundError(f"no such file: {file}")
        return _loaded(*_root(file), file)
    found = _found(where, folders)
    if found is None:
        return importlib.import_module(where)
    return _loaded(found[0], where, found[1])


def _given(text: str, folders: Sequence[Path]) -> Path:
    """The file that ``path/to/file.py:Name`` names."""
    base = folders[0] if folders else Path()
    return Path(base, Path(text.rpartition(":")[0]).expanduser()).absolute()


def _found(where: str, folders: Sequence[Path]) -> tuple[Path, Path] | None:
    """The first of ``folders`` that has a module, and the file of that."""
    steps = where.split(".")
    if not all(steps):
        return None
    for folder in folders:
        place = folder.absolute().joinpath(*steps)
        for file in (place.with_name(f"{steps[-1]}.py"), place / "__init__.py"):
            if file.is_file():
                return folder.absolute(), file
    return None


def _root(file: Path) -> tuple[Path, str]:
    """The folder from which a file is imported, and its name there: packages are left."""
    names = [] if file.name == "__init__.py" else [file.stem]
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def _loaded(root: Path, name: str, file: Path) -> ModuleType:
    """The module ``name`` of the folder ``root``: Python's own where it would find this file."""
    with _one_at_a_time:
        importlib.invalidate_caches()  # the file may be a second old
        if _python_finds(name.partition(".")[0], root):
            return importlib.import_module(name)
        space = f"_infersim_own_{sha256(str(root.resolve()).encode()).hexdigest()[:16]}"
        if space not in sys.modules:
            sys.modules[space] = ModuleType(space, f"Parts of one's own in {root}")
            sys.modules[space].__path__ = [str(root)]
        try:
            with _neighbours(root):
                return importlib.import_module(f"{space}.{name}")
        except ModuleNotFoundError as error:
            if error.name is not None and error.name.startswith(space):
                raise ImportError(f"{file} is no module that can be imported") from error
            raise


def _python_finds(top: str, root: Path) -> bool:
    """Whether ``import top`` leads into ``root``."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [Path(place).parent for place in spec.submodule_search_locations or ()]
    if not places and spec.origin is not None:
        places = [Path(spec.origin).parent]
    return root.resolve() in [place.resolve() for place in places]


@contextmanager
def _neighbours(root: Path) -> Iterator[None]:
    """Let modules of ``root`` be imported where nothing else has their name, and forget them
    afterwards: those who imported them keep them, another folder has its own."""
    entry, known = str(root), set(sys.modules)
    sys.path.append(entry)
    try:
        yield
    finally:
        del sys.path[len(sys.path) - 1 - sys.path[::-1].index(entry)]
        tops = {name.partition(".")[0] for name in set(sys.modules) - known}
        strangers = {top for top in tops if top not in known and not _importable(top)}
        for name in set(sys.modules) - known:
            if name.partition(".")[0] in strangers:
                del sys.modules[name]


def _importable(top: str) -> bool:
    """Whether a module could be imported again as things are, or is one of this file's own."""
    if top.startswith("_infersim_own_"):
        return True
    return any(
        finder.find_spec(top, None) is not None
        for finder in sys.meta_path
        if hasattr(finder, "find_spec")
    )
