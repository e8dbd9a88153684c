"""What of the CUDA side can be checked without a GPU: the timer's logic over a made-up device, the
choice of kernels, and the Triton kernels in Triton's interpreter (where Triton is installed)."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from calibrate import timing
from calibrate.bench import decode_attention, elementwise, gemm, prefill_attention
from calibrate.bench.arena import Arena
from calibrate.bench.base import BenchWork, Mode, UnsupportedError
from calibrate.bench.heads import Heads
from calibrate.device import Device, DeviceFacts
from tests.places import ROOT

CUDA = DeviceFacts("cuda", "Pretended", 2**33, 4, 2**16, {})


class PretendedCuda:
    """A device on which a launch from Python takes 5 us and a kernel what it says; in a graph the
    launches take nothing."""

    def __init__(self, capture: bool = True) -> None:
        self.time, self.queue_until, self.asleep = 0.0, 0.0, 0.0
        self.can_capture, self.captured = capture, None
        self.OutOfMemoryError = MemoryError
        event = lambda enable_timing: PretendedEvent(self)  # noqa: E731
        self.cuda = SimpleNamespace(
            Event=event,
            Stream=lambda index: SimpleNamespace(wait_stream=lambda other: None),
            current_stream=lambda index: SimpleNamespace(wait_stream=lambda other: None),
            stream=self.nothing,
            graph=self.graph,
            CUDAGraph=lambda: PretendedGraph(self),
            synchronize=lambda index: None,
            _sleep=self.sleep,
        )

    @contextmanager
    def nothing(self, stream: object) -> Iterator[None]:
        yield

    @contextmanager
    def graph(self, graph: PretendedGraph) -> Iterator[None]:
        if not self.can_capture:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.captured = graph
        yield
        self.captured = None

    def sleep(self, cycles: int) -> None:
        self.queue_until = max(self.queue_until, self.time) + cycles / 1e9

    def kernel(self, seconds: float) -> Callable[[], None]:
        def run() -> None:
            if self.captured is not None:
                self.captured.seconds += seconds
                return
            self.time += 5e-6
            self.queue_until = max(self.queue_until, self.time) + seconds

        return run


class PretendedGraph:
    def __init__(self, world: PretendedCuda) -> None:
        self.world, self.seconds = world, 0.0

    def replay(self) -> None:
        self.world.time += 5e-6
        self.world.queue_until = max(self.world.queue_until, self.world.time) + self.seconds


class PretendedEvent:
    def __init__(self, world: PretendedCuda) -> None:
        self.world, self.at = world, 0.0

    def record(self) -> None:
        self.at = max(self.world.queue_until, self.world.time)

    def synchronize(self) -> None:
        self.world.time = max(self.world.time, self.world.queue_until)

    def elapsed_time(self, end: PretendedEvent) -> float:
        return 1e3 * (end.at - self.at)


def pretended(renewed: Callable[[], None] = lambda: None) -> Device:
    made = Device(CUDA)
    made.synchronise = lambda: None  # type: ignore[method-assign]
    made.renew_generator = renewed  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize(
    ("mode", "capture", "expected", "named"),
    [
        ("device", True, 2e-6, "graph"),
        ("device", False, 2e-6, "events"),
        ("eager", True, 5e-6, "eager"),
    ],
)
def test_launches_count_only_where_they_should(
    monkeypatch: pytest.MonkeyPatch, mode: Mode, capture: bool, expected: float, named: str
) -> None:
    world = PretendedCuda(capture)
    monkeypatch.setattr(timing, "torch", world)
    timer = timing.CudaTimer(pretended())
    found = timer.measure(BenchWork([world.kernel(1e-6), world.kernel(3e-6)], "", mode), 0.01)
    assert found.mode == named
    assert found.seconds == pytest.approx(expected, rel=0.05)
    assert not found.noisy


def test_memory_running_out_while_capturing_is_not_taken_for_a_graph_that_cannot_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = PretendedCuda()
    monkeypatch.setattr(timing, "torch", world)
    timer = timing.CudaTimer(pretended())

    def full() -> None:
        if world.captured is not None:
            raise MemoryError

    with pytest.raises(MemoryError):
        timer.measure(BenchWork([full], ""), 0.01)


def test_what_is_compiled_at_its_first_call_is_compiled_before_the_capture(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of many calls may be the first with its alignment, or its place in a pool."""
    world = PretendedCuda()
    monkeypatch.setattr(timing, "torch", world)
    seen = set[int]()

    def call(number: int) -> Callable[[], None]:
        kernel = world.kernel(1e-6)

        def run() -> None:
            if number not in seen and world.captured is not None:
                raise RuntimeError("a compiler allocates while a graph is captured")
            seen.add(number)
            kernel()

        return run

    work = BenchWork([call(number) for number in range(40)], "")
    assert timing.CudaTimer(pretended()).measure(work, 0.01).mode == "graph"


def test_of_long_calls_only_so_many_are_made_as_the_time_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = PretendedCuda()
    monkeypatch.setattr(timing, "torch", world)
    work = BenchWork([world.kernel(0.1)] * 50, "")
    found = timing.CudaTimer(pretended()).measure(work, 0.04)
    assert found.seconds == pytest.approx(0.1, rel=0.01)
    assert world.time < 30 * 0.1


def test_random_numbers_are_drawn_again_after_a_capture_that_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timing, "torch", world := PretendedCuda(capture=False))
    renewed = list[str]()
    timer = timing.CudaTimer(pretended(lambda: renewed.append("yes")))
    timer.measure(BenchWork([world.kernel(1e-6)], ""), 0.01)
    assert renewed == ["yes"]


def test_the_signatures_of_triton_kernels_name_only_what_triton_knows() -> None:
    """Its compiler looks up each annotation, and refuses Python's own."""
    tree = ast.parse((ROOT / "calibrate/bench/paged_triton_kernels.py").read_text(encoding="utf-8"))
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    kernels = [node for node in defined if node.decorator_list]
    assert {kernel.name for kernel in kernels} == {"attend", "combine"}
    for kernel in kernels:
        named = {ast.unparse(arg.annotation) for arg in kernel.args.args if arg.annotation}
        assert named == {"tl.constexpr"}


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch) -> Arena:
    """Pools in host memory for a device that says it is a GPU."""
    device = Device(CUDA)
    device.torch_name = "cpu"
    monkeypatch.setattr(device, "free_memory", lambda: 2**32)
    return Arena(device, least=2**18)


def test_kernels_that_are_missing_give_way_to_those_that_are_there(arena: Arena) -> None:
    heads = Heads(4, 2, 16)
    point = decode_attention.point("fp32", 8, 60, heads, 2.0)
    assert decode_attention.DecodeAttention().prepare(point, arena).kernel == "gather and SDPA"
    quantised = decode_attention.point("fp8", 3, 60, heads)
    assert decode_attention.DecodeAttention().prepare(quantised, arena).kernel == "gather and SDPA"
    chunk = prefill_attention.point("fp32", 1, 8, 24, heads)
    assert prefill_attention.PrefillAttention().prepare(chunk, arena).kernel == "SDPA"
    norm = elementwise.stream_point("norm", "fp32", 4, 64)
    if find_spec("triton") is None:
        assert elementwise.Elementwise().prepare(norm, arena).kernel == "torch"


def test_odd_head_sizes_are_named_as_unsupported(arena: Arena) -> None:
    point = decode_attention.point("fp32", 2, 60, Heads(4, 2, 80))
    with pytest.raises(UnsupportedError, match="head size 80"):
        decode_attention.DecodeAttention().prepare(point, arena)


def test_few_rows_are_padded_where_int8_needs_it(arena: Arena) -> None:
    calls, _ = gemm._int8(arena, 3, 64, 128)
    assert calls[0]().shape == (32, 64)  # type: ignore[attr-defined]


INTERPRETED = """
from types import SimpleNamespace
import torch
from calibrate.bench import decode_attention, paged_triton
from calibrate.bench.arena import Arena
from calibrate.bench.heads import Heads
from calibrate.device import Device, DeviceFacts

units = {units}
torch.cuda.get_device_properties = lambda where: SimpleNamespace(multi_processor_count=units)
arena = Arena(Device(DeviceFacts("cpu", "Small", 2**32, 1, 2**16, {{}})), least=2**18)
for precision in ("fp32",):
    for heads in (Heads(4, 4, 16), Heads(8, 2, 64), Heads(5, 1, 32)):
        right = decode_attention.agrees(paged_triton.decode_calls, arena, heads, precision)
        assert right, (precision, heads)
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
@pytest.mark.parametrize("units", [1, 100])
def test_the_triton_kernels_equal_dense_attention(units: int) -> None:
    """With few multiprocessors in one split, with many in several that are combined."""
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED.format(units=units)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
