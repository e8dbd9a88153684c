"""Predicts prompts that see a window from the kernels of a profile, where it has them. Seconds."""

from __future__ import annotations

from sim.cost.kernels import serial
from sim.cost.kernels.lookup import WINDOW, kernel_of
from sim.cost.kernels.prompts import Prompts
from sim.cost.kernels.serial_prompts import SerialPrompts
from sim.cost.kernels.serial_windows import SerialWindowPrompts
from sim.cost.measured import HEADS, PromptTrust, prompt_trust, prompts_of
from sim.specs.gpu import GpuSpec


def window_prompts_of(
    gpu: GpuSpec, precision: str, heads: tuple[int, int, int], window: int
) -> tuple[Prompts | SerialWindowPrompts, PromptTrust] | None:
    """Prefill attention that looks back ``window`` tokens, if the profile has it. Of kernels
    sequence by sequence it must have attention to the whole context as well, since prompts that the
    window does not cut are timed by that."""
    kernel = kernel_of(gpu, "prefill_attention", precision, WINDOW)
    if kernel is None:
        return None
    fit, ceilings = kernel.fit, kernel.ceilings
    trust = prompt_trust(fit, window=window, **dict(zip(HEADS, heads, strict=True)))
    if fit.form != serial.NAME:
        return Prompts(fit, ceilings, precision, *heads), trust
    whole = prompts_of(gpu, precision, heads)
    if whole is None or not isinstance(whole[0], SerialPrompts):
        return None
    return SerialWindowPrompts(fit, ceilings, precision, heads, whole[0]), trust
