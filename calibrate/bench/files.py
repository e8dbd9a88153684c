"""Measures loading weights from disk to the device.

A file is written to the output folder, pushed out of the page cache where the system allows that,
and read back in pieces into memory and on to the device: ``file_to_device``. Where it cannot be
pushed out (a memory file system, no ``posix_fadvise``) only ``file_to_device_warm``, from the page
cache, can be measured. Sizes in bytes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from calibrate.bench.arena import Arena
from calibrate.bench.base import WORKSPACE, BenchPoint, BenchWork, Scope, UnsupportedError
from calibrate.lazy_torch import Tensor, torch

COLD, WARM = "file_to_device", "file_to_device_warm"

SIZES = tuple(2**exponent for exponent in range(20, 31))
PIECE = 16 * 2**20
"""Bytes read at a time, as loaders of weights do."""

IN_MEMORY = ("tmpfs", "ramfs")


def file_point(size: int, operator: str) -> BenchPoint:
    """A file of ``size`` bytes, to the device."""
    shape = {"bytes": float(size)}
    memory = 2.0 * size + WORKSPACE
    return BenchPoint(operator, "bf16", shape, float(size), 0.0, memory)


class Files:
    """Reading weights from disk; ``scratch`` is the directory used."""

    shares: Mapping[str, float] = {COLD: 0.2, WARM: 0.2}

    def __init__(self, scratch: str = ".") -> None:
        self._scratch = Path(scratch)

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Cold and warm reads."""
        for size in SIZES:
            for operator in (COLD, WARM):
                yield file_point(size, operator)

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """A file of random bytes, deleted when the point is done."""
        size, cold = point.size("bytes"), point.operator == COLD
        if cold and not can_drop(self._scratch):
            raise UnsupportedError(f"files in {self._scratch} cannot leave the page cache")
        if size * 2 > free_disk(self._scratch):
            raise UnsupportedError(f"the disk of {self._scratch} has no room for {size} bytes")
        path = _written(self._scratch, size, arena)
        target = arena.take((size,), "uint8")[0]
        piece = torch.empty(PIECE, dtype=torch.uint8, pin_memory=target.is_cuda)

        def run() -> float:
            if cold:
                drop(path)
            start = time.perf_counter()
            _read(path, piece, target)
            arena.device.synchronise()
            return time.perf_counter() - start

        release: Callable[[], None] = path.unlink
        return BenchWork([run], "read() in pieces of 16 MiB", "reported", release)


def can_drop(directory: Path) -> bool:
    """Whether the system can be asked to forget what it has cached of a file there."""
    return hasattr(os, "posix_fadvise") and file_system(directory) not in IN_MEMORY


def file_system(directory: Path) -> str:
    """The kind of file system a directory lies on, empty where the system does not say."""
    try:
        mounts = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    place = directory.resolve()
    best, kind = -1, ""
    for line in mounts:
        fields = line.split()
        where = Path(fields[1])
        if (place == where or where in place.parents) and len(fields[1]) >= best:
            best, kind = len(fields[1]), fields[2]
    return kind


def free_disk(directory: Path) -> int:
    """Bytes that may still be written there."""
    about = os.statvfs(directory)
    return about.f_bavail * about.f_frsize


def drop(path: Path) -> None:
    """Write a file out and push it from the page cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _written(directory: Path, size: int, arena: Arena) -> Path:
    handle, name = tempfile.mkstemp(prefix=".infersim-", suffix=".bin", dir=directory)
    piece = arena.take((min(size, PIECE),), "uint8")[0].cpu().numpy().tobytes()
    try:
        with os.fdopen(handle, "wb") as out:
            for start in range(0, size, len(piece)):
                out.write(piece[: size - start])
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def _read(path: Path, piece: Tensor, target: Tensor) -> None:
    buffer = memoryview(piece.numpy())
    done = 0
    with path.open("rb", buffering=0) as source:
        while count := source.readinto(buffer):
            target[done : done + count].copy_(piece[:count])
            done += count
