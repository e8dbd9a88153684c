"""What engines pad experts in mxfp4 to in memory, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sim import catalog
from sim.specs.deployment import Deployment
from sim.specs.layout import Layout

MATRICES = 36 * 128 * 3
"""Of gpt-oss-120b's experts: layers, experts, matrices; 2,880 x 2,880 each, 17/32 B a weight."""


def extra(gpu: str, engine: str, gpus: int, *, marlin: bool = False) -> float:
    """Bytes of the weights on one GPU beyond those under an engine that pads nothing."""
    model = catalog.model("gpt-oss-120b")
    mine, bare = (
        Deployment(
            model, catalog.gpu(gpu), each, layout=Layout(gpus), experts="mxfp4"
        ).weight_bytes()
        for each in (replace(catalog.engine(engine), marlin=marlin), catalog.engine("ideal"))
    )
    return mine - bare


@pytest.mark.parametrize(
    ("gpu", "gpus", "hidden", "width"),
    [
        ("h100-sxm", 1, 2880, 2880),  # 45 x 64
        ("h100-sxm", 2, 2880, 1472),  # 1,440 are 22.5 x 64
        ("h100-sxm", 8, 2880, 384),  # 360
        ("b200-sxm", 1, 3072, 2944),  # multiples of 256, and of 128
        ("gb300", 8, 3072, 384),
        ("l40s", 4, 3072, 768),  # by Marlin: 256, and 720 to a multiple of 128
    ],
)
def test_vllm_pads_gpt_oss_by_gpu(gpu: str, gpus: int, hidden: int, width: int) -> None:
    added = MATRICES * (hidden * width - 2880 * 2880 // gpus) * 17 / 32
    assert extra(gpu, "vllm", gpus) == pytest.approx(added, abs=1.0)


def test_releases_before_0_28_padded_widths_on_blackwell_further() -> None:
    added = MATRICES * (3072 * 512 - 2880 * 2880 // 8) * 17 / 32
    assert extra("gb300", "vllm@0.22", 8) == pytest.approx(added, abs=1.0)


def test_marlin_pads_as_marlin_does_wherever_it_is_asked_for() -> None:
    """2,880 to 3,072 and, on two GPUs, 1,440 to 1,536: not Triton's 1,472."""
    added = MATRICES * (3072 * 1536 - 2880 * 1440) * 17 / 32
    assert extra("h100-sxm", "vllm", 2, marlin=True) == pytest.approx(added, abs=1.0)
    assert extra("mi300x", "vllm", 2) == 0.0


def test_other_formats_are_stored_as_they_are() -> None:
    model, gpu = catalog.model("gpt-oss-120b"), catalog.gpu("b200-sxm")
    sizes = [
        Deployment(model, gpu, catalog.engine(name), layout=Layout(8)).weight_bytes()
        for name in ("vllm", "ideal")
    ]
    assert sizes[0] == sizes[1]
