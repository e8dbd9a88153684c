"""Describes the device that is measured, and talks to it.

``cpu`` or ``cuda[:index]``. Memory and caches in bytes, clocks in MHz. ``DeviceFacts`` describe the
device and go into the measurements and the profile; ``Device`` talks to it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from calibrate.lazy_torch import torch
from sim.errors import UsageError, did_you_mean

FALLBACK_CACHE = 32 * 2**20
"""Last-level cache assumed where the system does not report it."""

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""The names of glibc's limits, in ``malloc.h``."""

LARGE, KEPT = 256 * 2**20, 2**30
"""Bytes of one tensor from which on it comes from the system and goes back to it, and of freed
memory that is kept."""

HUGE_PAGES = "THP_MEM_ALLOC_ENABLE"
"""PyTorch asks for huge pages for tensors of 2 MiB and more where this is "1" when it starts."""

CLOCK_AGE = 5.0
"""Seconds for which a clock reading is used again: asking nvidia-smi takes some 50 ms."""


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The device that was measured.

    ``units`` are streaming multiprocessors, or on a CPU the threads used; ``cache`` is the
    last-level cache; ``details`` are versions, clocks, limits and the machine's load, as text.
    """

    kind: Literal["cpu", "cuda"]
    name: str
    memory: int
    units: int
    cache: int
    details: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        """The facts as JSON; ``from_document`` reads it back."""
        return asdict(self) | {"details": dict(self.details)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DeviceFacts:
        """The facts from ``document``; ValueError if something is missing."""
        try:
            return cls(**{name: document[name] for name in cls.__slots__})
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a description of a device: {error}") from None


class Device:
    """A device that answers: how much memory is free, at which clock it runs, whether it still
    works."""

    def __init__(self, facts: DeviceFacts, index: int = 0) -> None:
        self.facts = facts
        self.index = index
        self.torch_name = "cpu" if facts.kind == "cpu" else f"cuda:{index}"
        self._clock: tuple[float, float | None] = (-1e9, None)

    def free_memory(self) -> int:
        """Bytes that could be allocated now; unused blocks of torch's allocator count as free."""
        if self.facts.kind == "cpu":
            return _cpu_free_memory()
        free, _ = torch.cuda.mem_get_info(self.index)
        reserved = torch.cuda.memory_reserved(self.index)
        return int(free + reserved - torch.cuda.memory_allocated(self.index))

    def synchronise(self) -> None:
        """Wait until everything given to the device is done."""
        if self.facts.kind == "cuda":
            torch.cuda.synchronize(self.index)

    def release(self) -> None:
        """Give memory that nothing refers to back to the system."""
        if self.facts.kind == "cuda":
            torch.cuda.empty_cache()

    def renew_generator(self) -> None:
        """Give the device's random numbers a new state after a capture of a graph failed: the old
        one believes for ever after that it is being captured, and refuses to draw."""
        if self.facts.kind == "cuda":
            fresh = torch.Generator(device=self.torch_name)
            torch.cuda.default_generators[self.index].graphsafe_set_state(fresh)

    def responds(self) -> bool:
        """Whether the device still computes: after some errors nothing does until a restart."""
        try:
            one = torch.ones(8, device=self.torch_name)
            alive = float((one + one).sum()) == 16.0
            self.synchronise()
        except Exception:
            return False
        return alive

    def clock_mhz(self) -> float | None:
        """The clock now (at most ``CLOCK_AGE`` seconds old), None where it cannot be read."""
        asked, value = self._clock
        now = time.monotonic()
        if now - asked > CLOCK_AGE:
            value = _cpu_clock() if self.facts.kind == "cpu" else self._gpu_clock()
            self._clock = (now, value)
        return value

    def _gpu_clock(self) -> float | None:
        told = _nvidia_smi(self.index, ["clocks.sm"])
        return _number(told["clocks.sm"]) if told else None


def open_device(name: str, threads: int | None = None, *, huge_pages: bool = True) -> Device:
    """The device called ``name``, ready to compute.

    ``threads`` sets how many CPU threads torch uses (all of them without it). ``huge_pages`` asks
    for them on a CPU, unless the environment or an earlier import of torch has decided: with small
    ones the time of a product depends on where in memory its weights happen to lie. UsageError, in
    a sentence, if torch is missing or the device is not there.
    """
    match = re.fullmatch(r"(cpu|cuda)(?::(\d+))?", name.strip().lower())
    if match is None or (match[1] == "cpu" and match[2]):
        hint = did_you_mean(name, ["cpu", "cuda"])
        raise UsageError(f"--device {name}: expected cpu, cuda or cuda:INDEX{hint}")
    if threads is not None and threads < 1:
        raise UsageError(f"--threads {threads}: expected at least 1")
    if huge_pages:
        os.environ.setdefault(HUGE_PAGES, "1")
    if threads is not None:
        torch.set_num_threads(threads)
    if match[1] == "cpu":
        keep_freed_memory()
        return Device(_cpu_facts(torch.get_num_threads()))
    index = int(match[2] or 0)
    return Device(_cuda_facts(index), index)


def keep_freed_memory() -> None:
    """Let the C library keep what tensors give back, up to ``KEPT`` bytes.

    Otherwise intermediate results of long prompts come as fresh pages at every operator, and
    touching those takes several percent of a pass. Where the library has no such setting nothing is
    done.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(M_MMAP_THRESHOLD, LARGE)
    mallopt(M_TRIM_THRESHOLD, KEPT)


def _cpu_facts(threads: int) -> DeviceFacts:
    return DeviceFacts(
        kind="cpu",
        name=_cpu_name(),
        memory=_cpu_memory(),
        units=threads,
        cache=_cpu_cache(),
        details=_machine()
        | {"threads": str(threads), "huge pages": os.environ.get(HUGE_PAGES, "0")},
    )


def _cuda_facts(index: int) -> DeviceFacts:
    if not torch.cuda.is_available():
        built = torch.version.cuda or "without CUDA"
        raise UsageError(
            f"--device cuda: PyTorch {torch.__version__} (built {built}) finds no CUDA device here"
        )
    count = torch.cuda.device_count()
    if index >= count:
        there = "cuda:0" if count == 1 else f"cuda:0 to cuda:{count - 1}"
        raise UsageError(f"--device cuda:{index}: there is only {there}")
    torch.cuda.set_device(index)
    about = torch.cuda.get_device_properties(index)
    fields = ("driver_version", "clocks.max.sm", "clocks.sm", "clocks.mem", "power.limit")
    told = _nvidia_smi(index, [*fields, "utilization.gpu", "temperature.gpu"])
    details = {
        "cuda": str(torch.version.cuda),
        "capability": f"{about.major}.{about.minor}",
        "devices": str(count),
    }
    return DeviceFacts(
        kind="cuda",
        name=str(about.name),
        memory=int(about.total_memory),
        units=int(about.multi_processor_count),
        cache=int(getattr(about, "L2_cache_size", 0)) or FALLBACK_CACHE,
        details=_machine() | details | told,
    )


def _machine() -> dict[str, str]:
    """Facts about the host, whatever is measured on it."""
    found = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "system": platform.platform(),
        "host": platform.node(),
        "cpu": _cpu_name(),
        "cpus": str(os.cpu_count() or 1),
    }
    if hasattr(os, "getloadavg"):
        found["load"] = f"{os.getloadavg()[0]:.2f}"
    return found


def _nvidia_smi(index: int, fields: list[str]) -> dict[str, str]:
    """The answer of nvidia-smi on a device, empty where there is none or it does not answer."""
    uuid = getattr(torch.cuda.get_device_properties(index), "uuid", None)
    which = f"GPU-{uuid}" if uuid else str(index)
    command = ["nvidia-smi", "-i", which, f"--query-gpu={','.join(fields)}"]
    try:
        done = subprocess.run(
            [*command, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return dict(zip(fields, values, strict=True)) if len(values) == len(fields) else {}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _cpu_name() -> str:
    return _proc("cpuinfo", r"model name\s*:\s*(.+)") or platform.processor() or platform.machine()


def _cpu_clock() -> float | None:
    found = _proc("cpuinfo", r"cpu MHz\s*:\s*([\d.]+)")
    return float(found) if found else None


def _cpu_memory() -> int:
    """Bytes of the machine, or of the container if that has fewer."""
    pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    limit = _read(Path("/sys/fs/cgroup/memory.max"))
    return min(pages * size, int(limit)) if limit.isdigit() else pages * size


def _cpu_free_memory() -> int:
    found = _proc("meminfo", r"MemAvailable:\s*(\d+) kB")
    free = int(found) * 1024 if found else _cpu_memory() // 2
    limit = _read(Path("/sys/fs/cgroup/memory.max"))
    used = _read(Path("/sys/fs/cgroup/memory.current"))
    return min(free, int(limit) - int(used)) if limit.isdigit() and used.isdigit() else free


def _cpu_cache() -> int:
    """The largest cache of the first core."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        match = re.fullmatch(r"(\d+)([KMG])", _read(path))
        if match:
            sizes.append(int(match[1]) * units[match[2]])
    return max(sizes, default=FALLBACK_CACHE)


def _proc(name: str, pattern: str) -> str | None:
    match = re.search(pattern, _read(Path("/proc") / name))
    return match[1].strip() if match else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
