"""Predicts attention through a window from the kernels of a profile, where it has them. Seconds."""

from __future__ import annotations

from sim.cost.kernels import serial
from sim.cost.kernels.form import inside
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.kernels.serial_windows import SerialWindowPrompts
from sim.cost.measured import HEADS, MeasuredDecode, PromptTrust, fitted, prompts_of, shaped
from sim.specs.gpu import GpuSpec


def window_decode_of(
    gpu: GpuSpec, precision: str, heads: tuple[int, int, int], window: int, rereads: float = 0.0
) -> MeasuredDecode | None:
    """Decode attention that looks back ``window`` tokens, if the profile has it."""
    known = fitted("window_decode", precision, gpu)
    return (
        None if known is None else MeasuredDecode(known[0], precision, gpu, heads, rereads, window)
    )


def window_prompts_of(
    gpu: GpuSpec, precision: str, heads: tuple[int, int, int], window: int
) -> tuple[Prompts | SerialWindowPrompts, PromptTrust] | None:
    """Prefill attention that looks back ``window`` tokens, if the profile has it. Of kernels
    sequence by sequence it must have attention to the whole context as well, since prompts that the
    window does not cut are timed by that."""
    known = fitted("window_prefill", precision, gpu)
    if known is None:
        return None
    fit, ceilings = known
    within = inside(fit, shaped(window=window, **dict(zip(HEADS, heads, strict=True))))
    top = "context" in fit.ranges and fit.ranges["context"][1] > 0
    trust = PromptTrust(float(within), top, fit.error)
    if fit.form != serial.NAME:
        return Prompts(fit, ceilings, precision, *heads), trust
    whole = prompts_of(gpu, precision, heads)
    if whole is None or not isinstance(whole[0], SerialPrompts):
        return None
    return SerialWindowPrompts(fit, ceilings, precision, heads, whole[0]), trust
