"""Provides the families of benchmarks, by the operators that they measure."""

from __future__ import annotations

from calibrate.bench.base import Family, Scope
from calibrate.bench.collectives import Collectives
from calibrate.bench.copies import Copies
from calibrate.bench.decode_attention import DecodeAttention
from calibrate.bench.elementwise import Elementwise
from calibrate.bench.experts import Experts
from calibrate.bench.files import Files
from calibrate.bench.gemm import Gemm
from calibrate.bench.latent_attention import LatentAttention
from calibrate.bench.launch import Launch
from calibrate.bench.layer import Layers
from calibrate.bench.prefill_attention import PrefillAttention
from calibrate.bench.vllm_cpu import Products
from calibrate.bench.window_attention import WindowAttention

__all__ = ["families"]


def families(scope: Scope) -> list[Family]:
    """Every family, ready for a scope; of an engine's kernels only those it has, and the memory."""
    own: list[Family] = [
        Gemm(None if scope.kernels == "torch" else Products(scope.turnover)),
        DecodeAttention(scope.kernels),
        PrefillAttention(scope.kernels),
        Elementwise(scope.kernels),
        Copies(),
    ]
    if scope.kernels != "torch":
        return own
    newer: list[Family] = [Experts(), LatentAttention(), WindowAttention()]
    around: list[Family] = [Launch(), Layers(scope.models), Files(scope.scratch), Collectives()]
    return [*own, *newer, *around]
