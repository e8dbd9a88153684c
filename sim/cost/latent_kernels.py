"""Finds the kernels of latent and sparse attention: a profile's fits, else stated defaults.

Where the GPU's profile lacks them, the same forms take parameters that were fitted to published
timings of an H200, relative to the peaks of the GPU at hand. Such times count as not
measured. Seconds.
"""

from __future__ import annotations

from typing import NamedTuple

from sim.cost.kernels import latent_attention, serial, sparse_attention
from sim.cost.kernels.choice import ATTENTION_WORK, FORMS, bounded
from sim.cost.kernels.form import Ceilings, Form, Parameters
from sim.cost.kernels.lookup import kernel_of
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.measured import Amount, PromptTrust, Timing, prompt_trust, shaped, trusted
from sim.cost.trust import LATENT_ERROR
from sim.specs.gpu import GpuSpec
from sim.specs.latent import Latent
from sim.specs.precision import precision_bytes
from sim.specs.profile import KernelFit, Score
from sim.specs.sparse import SparseLatent

DEFAULTS: dict[str, dict[str, float]] = {
    "mla_decode": {
        "floor": 5.6e-5,
        "share": 0.93,
        "compute": 0.74,
        "blend": 6.0,
        "wave": 6e-6,
        "query": 7.0,
    },
    "mla_prefill": {
        **latent_attention.PREFILL_SAME,
        "floor": 8e-5,
        "unit": 1e-8,
        "compute": 0.97,
        "softmax": 6.8,
        "tail": 0.1,
        "split": 1.0,
        "droop": 0.06,
        "share": 0.28,
        "write": 0.8,
        "copy": 1.6e-8,
        "blend": 8.0,
    },
    "dsa_decode": {
        "floor": 1.1e-4,
        "compute": 0.34,
        "split": 0.19,
        "flat": 0.3,
        "share": 0.71,
        "query": 0.1,
    },
    "dsa_prefill": {
        "floor": 4e-4,
        "host": 1.3e-3,
        "compute": 0.63,
        "rate": 0.8,
        "choice": 1.8e-7,
        "few": 1.0,
        "few_flat": 0.0,
    },
}
"""Parameters where a profile has none, rounded: what vLLM 0.24's blocks of attention take beyond
their products (aiconfigurator-core 0.12 tables of an H200, weights and cache in 16 bits). Floors
are those of all kernels in a block but the products. Whole blocks are then 4.2 % (decoding) and
1.8 % (prompts) off in the median, sparse ones 5.0 and 4.5 %."""

EIGHT_BITS: dict[str, dict[str, float]] = {
    "mla_decode": {"floor": 6.2e-5, "share": 0.88, "compute": 0.8, "wave": 1.2e-5, "query": 5.0},
    "dsa_decode": {"floor": 1e-4, "compute": 0.27, "split": 0.53, "flat": 0.94},
    "dsa_prefill": {"few": 0.4, "few_flat": 1.0},
}
"""Differences for an 8-bit cache, which other kernels read."""

NOWHERE = (float("inf"), float("-inf"))


class LatentDecode(NamedTuple):
    """Decoding of one GPU's heads over equal contexts, as ``DecodeTable`` asks for it."""

    operator: str
    fit: KernelFit
    form: Form
    ceilings: Ceilings
    precision: str
    widths: dict[str, float]

    def timing(self, batch: Amount, context: Amount) -> Timing:
        """``batch`` sequences of ``context`` tokens each, the new one included."""
        shape = shaped(batch=batch, context=context, **self.widths)
        seconds = self.form.predict(self.fit, shape, self.ceilings)
        return self.parts(batch, context)._replace(seconds=seconds)

    def parts(self, batch: Amount, context: Amount) -> Timing:
        """The timing with its seconds left at 0: arithmetic at the full rate of the
        GPU, traffic at the bandwidth that long reads see."""
        shape = shaped(batch=batch, context=context, **self.widths)
        flops, moved = ATTENTION_WORK[self.operator]
        rate = self.ceilings.bandwidth * self.fit.parameters["share"]
        read = moved(shape, precision_bytes(self.precision))
        trust = trusted(self.fit, shape, LATENT_ERROR)
        return Timing(0.0, flops(shape) / self.ceilings.peak, read / rate, *trust)


class SparsePrompts(NamedTuple):
    """Prompts over chosen tokens: seconds of a layer's call at least (``host``), of a call next to
    what it computes (``floor``), and of one chosen pair, one rated pair and one token."""

    host: float
    floor: float
    chosen: float
    rated: float
    token: float


def latent_decode(gpu: GpuSpec, precision: str, one: Latent, unit: str) -> LatentDecode:
    """Decoding over a cache in ``precision`` of the heads of one GPU, in arithmetic of ``unit``."""
    return _decode("mla_decode", gpu, precision, _widths(one), unit)


def sparse_decode(gpu: GpuSpec, precision: str, one: SparseLatent, unit: str) -> LatentDecode:
    """The decode kernel over chosen tokens."""
    return _decode("dsa_decode", gpu, precision, _index_widths(one), unit)


def latent_prompts(
    gpu: GpuSpec, precision: str, one: Latent, unit: str
) -> tuple[Prompts | SerialPrompts, PromptTrust]:
    """Prompts whose keys and values are projected up, by one GPU's heads."""
    fit, _, ceilings = _found("mla_prefill", gpu, precision, unit)
    heads = latent_attention.prefill_heads(one.num_heads, one.key_size, one.v_head_dim)
    kind = SerialPrompts if fit.form == serial.NAME else Prompts
    return kind(fit, ceilings, precision, *heads), _trust(fit, one)


def sparse_prompts(
    gpu: GpuSpec, precision: str, one: SparseLatent, unit: str
) -> tuple[SparsePrompts, PromptTrust]:
    """Prompts over chosen tokens."""
    fit, _, ceilings = _found("dsa_prefill", gpu, precision, unit)
    p: Parameters = fit.parameters
    rates = sparse_attention.prompt_rates(p, shaped(**_index_widths(one)), ceilings)
    chosen, rated, token = (float(rate) for rate in rates)
    return SparsePrompts(p["host"], p["floor"], chosen, rated, token), _trust(fit, one)


def _decode(
    operator: str, gpu: GpuSpec, precision: str, widths: dict[str, float], unit: str
) -> LatentDecode:
    return LatentDecode(operator, *_found(operator, gpu, precision, unit), precision, widths)


def _found(
    operator: str, gpu: GpuSpec, precision: str, unit: str
) -> tuple[KernelFit, Form, Ceilings]:
    """The profile's fit, or the default as one, its form, and its ceilings."""
    wider = unit == "fp32" and precision != "fp32"  # queries than the cache, as no profile has it
    known = None if wider else kernel_of(gpu, operator, precision)
    if known is not None:
        return known.fit, known.form, known.ceilings
    parameters = DEFAULTS[operator]
    if precision_bytes(precision) < 2:
        parameters = parameters | EIGHT_BITS.get(operator, {})
    fit = KernelFit(parameters, {"batch": NOWHERE}, Score(LATENT_ERROR, LATENT_ERROR, 0.0, 0))
    form = bounded(FORMS[operator, ""](precision), operator, precision, gpu)
    return fit, form, Ceilings(gpu.flops(unit), gpu.bandwidth, gpu.sms)


def _trust(fit: KernelFit, one: Latent) -> PromptTrust:
    return prompt_trust(fit, q_heads=float(one.num_heads), batch=1.0)


def _widths(one: Latent) -> dict[str, float]:
    return {
        "q_heads": float(one.num_heads),
        "latent": float(one.kv_lora_rank),
        "rope": float(one.qk_rope_head_dim),
    }


def _index_widths(one: SparseLatent) -> dict[str, float]:
    index_heads, index_dim = (0, 0) if one.index_shared else (one.index_n_heads, one.index_head_dim)
    return {
        **_widths(one),
        "index_heads": float(index_heads),
        "index_dim": float(index_dim),
        "topk": float(one.index_topk),
    }
