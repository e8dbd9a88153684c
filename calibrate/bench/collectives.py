"""Measures an all-reduce over several devices.

One process per device, as engines run them, each with PyTorch's NCCL group (gloo between CPU
processes, for tests). Every process times the same calls; the slowest counts. ``bytes`` is the
tensor on each device, ``gpus`` how many take part.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection
from typing import Any

from calibrate.bench.arena import Arena
from calibrate.bench.base import WORKSPACE, BenchPoint, BenchWork, Scope, UnsupportedError
from calibrate.lazy_torch import torch

SIZES = tuple(2**exponent for exponent in range(11, 29))
GROUPS = (2, 4, 8)
ROUNDS = 20
"""All-reduces in one sample."""

PATIENCE = 120.0
"""Seconds to wait for the processes of a group."""


def point(size: int, gpus: int) -> BenchPoint:
    """A bf16 tensor of ``size`` bytes summed over ``gpus`` devices."""
    shape = {"bytes": float(size), "gpus": gpus}
    traffic = 2.0 * size * (gpus - 1) / gpus
    return BenchPoint("all_reduce", "bf16", shape, traffic, 0.0, 2.0 * size + WORKSPACE)


class Collectives:
    """All-reduce over 2, 4 and 8 devices, as many as there are."""

    shares: Mapping[str, float] = {"all_reduce": 1.0}

    def __init__(self) -> None:
        self._groups: dict[int, RankGroup] = {}

    def points(self, scope: Scope) -> Iterator[BenchPoint]:
        """Sizes from a token's hidden state to a long prompt's."""
        for gpus in (g for g in GROUPS if g <= scope.devices):
            for size in SIZES:
                yield point(size, gpus)

    def prepare(self, point: BenchPoint, arena: Arena) -> BenchWork:
        """A group of processes, kept for the next points of that size."""
        gpus, kind = point.size("gpus"), arena.device.facts.kind
        if not torch.distributed.is_available():
            raise UnsupportedError("this PyTorch is built without torch.distributed")
        group = self._groups.get(gpus)
        if group is None or not group.alive():
            group = self._groups[gpus] = RankGroup(gpus, kind)
        size = point.size("bytes")
        return BenchWork([lambda: group.all_reduce(size)], group.backend, "reported")

    def close(self) -> None:
        """End all processes."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()


class RankGroup:
    """Processes that wait for orders; they end with this one."""

    def __init__(self, count: int, kind: str) -> None:
        self.backend = "nccl" if kind == "cuda" else "gloo"
        context = multiprocessing.get_context("spawn")
        port = _free_port()
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(count):
            mine, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, rank, count, self.backend, port), daemon=True
            )
            process.start()
            theirs.close()
            self._pipes.append(mine)
            self._processes.append(process)

    def alive(self) -> bool:
        """Whether every process still runs."""
        return all(process.is_alive() for process in self._processes)

    def all_reduce(self, size: int) -> float:
        """Seconds of one all-reduce of ``size`` bytes: the slowest process's mean over some."""
        try:
            for pipe in self._pipes:
                pipe.send(size)
            return max(self._answer(pipe) for pipe in self._pipes)
        except (EOFError, OSError, TimeoutError) as error:
            self.close()
            raise RuntimeError(f"a process of the {self.backend} group ended: {error}") from None

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.join(timeout=5)

    def _answer(self, pipe: Connection) -> float:
        if not pipe.poll(PATIENCE):
            raise TimeoutError(f"no answer in {PATIENCE:.0f} s")
        answer = pipe.recv()
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return float(answer)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _work(pipe: Connection, rank: int, count: int, backend: str, port: int) -> None:
    """A process's work: it joins the group, then all-reduces tensors of the sizes it is sent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    where = "cpu" if backend == "gloo" else f"cuda:{rank}"
    if backend == "nccl":
        torch.cuda.set_device(rank)
    torch.distributed.init_process_group(
        backend, init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=count
    )
    while True:
        try:
            size = pipe.recv()
        except EOFError:
            return
        try:
            tensor = torch.randn(size // 2, device=where).to(torch.bfloat16)
            pipe.send(_timed(tensor, backend))
        except RuntimeError as error:
            pipe.send(f"{type(error).__name__}: {error}")


def _timed(tensor: Any, backend: str) -> float:
    """Mean seconds of some all-reduces; on CUDA inside a graph, as engines run them."""
    reduce = torch.distributed.all_reduce
    for _ in range(3):
        reduce(tensor)
        tensor.mul_(0.5)
    torch.distributed.barrier()
    if backend == "gloo":
        start = time.perf_counter()
        for _ in range(ROUNDS):
            reduce(tensor)
        return (time.perf_counter() - start) / ROUNDS
    torch.cuda.synchronize()
    mean = torch.distributed.ReduceOp.AVG  # a sum of sums would soon be infinite
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(ROUNDS):
            reduce(tensor, op=mean)
    graph.replay()
    torch.cuda.synchronize()
    torch.distributed.barrier()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / ROUNDS
