"""In which words is a change proposed, and an agreement told?"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, isfinite
from typing import Any, NamedTuple

from sim.engine import EngineSpec
from sim.units import show_time
from sim.validation import proposals
from sim.validation.proposals import Cause
from sim.validation.residuals import HOST


class Words(NamedTuple):
    """What to set, in a line, and why."""

    title: str
    text: str


NAMES: Mapping[str, str] = {
    "per_iteration": "a constant time an iteration",
    "per_sequence": "a time for each sequence",
    "per_new_request": "a time for each new request",
    "tokens": "work that grows with the tokens of a pass",
    "decode_attention": "decode attention",
    "prefill_attention": "prefill attention",
    "kernels": "all kernels in proportion",
    "front_end": "time outside the engine",
    "num_gpu_blocks": "KV blocks",
}
"""What a cause is called beside others."""

_WHERE: Mapping[str, str] = {
    "per_iteration": "Iterations take {} {} than priced, whatever is in them",
    "per_sequence": "Each sequence of an iteration takes {} {} than priced",
    "per_new_request": "A request that enters the batch takes {} {} than priced",
}
_KERNELS: Mapping[str, str] = {
    "tokens": "What grows with the tokens in a pass (matrix products of prompts and large batches)",
    "decode_attention": "Decode attention, which grows with the context",
    "prefill_attention": "Prefill attention",
    "kernels": "A token takes as if all kernels",
}
_REMEDIES: Mapping[str, str] = {
    "tokens": "Calibrate matrix products",
    "decode_attention": "Calibrate decode attention",
    "prefill_attention": "Calibrate prefill attention",
    "kernels": "Calibrate the device",
}


def words(cause: Cause, engine: EngineSpec, blocks: int) -> Words:
    """How ``cause`` is told, beside a prediction with ``engine`` and so many KV ``blocks``."""
    if cause.name == proposals.BLOCKS:
        return Words(
            f"kv_cache.num_gpu_blocks: {int(cause.value)}",
            f"The engine had {int(cause.value):,} KV blocks, the prediction {blocks:,}: paste the "
            "engine's own number into the scenario.",
        )
    if cause.name == proposals.FRONT_END:
        return _time_words(
            cause, engine, "First tokens come {} {} than predicted, whatever the load: time {}"
        )
    if cause.name in HOST:
        return _time_words(cause, engine, _WHERE[cause.name] + "{}")
    return _kernel_words(cause)


def _time_words(cause: Cause, engine: EngineSpec, sentence: str) -> Words:
    """A time of the engine preset, by how much it is off and what it would be."""
    before = float(getattr(engine, cause.name))
    after = max(0.0, before + cause.value)
    side = "more" if cause.value > 0 else "less"
    if cause.name == proposals.FRONT_END:
        told = sentence.format(
            show_time(abs(cause.value)),
            "later" if cause.value > 0 else "earlier",
            "outside the engine (HTTP, tokeniser, queues before it)",
        )
    else:
        told = sentence.format(show_time(abs(cause.value)), side, "")
    title = f"engine: {cause.name} {show_time(before)} -> {show_time(after)}"
    return Words(title, f"{told}{_interval(cause, after - before)}.{_rivals(cause)}")


def _kernel_words(cause: Cause) -> Words:
    factor = 1.0 + cause.value
    title = f"{NAMES[cause.name]}: {factor:.2f}x its price"
    verb = "took" if cause.name == "kernels" else "takes"
    between = ""
    if cause.low is not None and cause.high is not None and isfinite(cause.high - cause.low):
        between = f" (95 %: {1.0 + cause.low:.2f} to {1.0 + cause.high:.2f})"
    text = f"{_KERNELS[cause.name]} {verb} {factor:.2f} times its price{between}."
    remedy = f" {_REMEDIES[cause.name]} at the sizes of this run (`infersim calibrate`)."
    return Words(title, text + remedy + _rivals(cause))


def _interval(cause: Cause, change: float) -> str:
    if cause.low is None or cause.high is None or not isfinite(cause.high - cause.low):
        return ""
    low, high = sorted((abs(cause.low), abs(cause.high)))
    if cause.low * cause.high < 0:
        low = 0.0
    return f" (95 %: {show_time(low)} to {show_time(high)})" if change else ""


def _rivals(cause: Cause) -> str:
    if not cause.rivals:
        return ""
    return f" This run cannot tell it from {' or '.join(NAMES[name] for name in cause.rivals)}."


QUIET = "Nothing: the error is within what two runs of the engine differ by."
NOTHING_FOUND = (
    "The error is larger than the engine's noise, but nothing that was tried explains it."
)


def share_text(share: float) -> str:
    """What a change does to the error."""
    return f"{share:.0%} of the error" if share else "no effect on this traffic"


def advice_summary(before: float, left: float) -> str:
    """What all changes together do; both are logarithms of a ratio.

    >>> advice_summary(0.693147, 0.01)
    'On average a figure is off by a factor of 2.00 as predicted, of 1.01 with all of this.'
    """
    return (
        f"On average a figure is off by a factor of {exp(before):.2f} as predicted, of "
        f"{exp(left):.2f} with all of this."
    )


def agreement_text(found: Mapping[str, Any]) -> str:
    """How far both ran the same batches, in a sentence."""
    if found["first_difference"] is None:
        return f"All {found['observed']:,} iterations have the composition that was predicted."
    parting = found["first_difference"]
    sides = [
        "nothing more"
        if parting[side] is None
        else ", ".join(f"{n} {v:,}" for n, v in zip(parting["columns"], parting[side], strict=True))
        for side in ("observed", "predicted")
    ]
    return (
        f"The first {found['same']:,} of {found['observed']:,} iterations ({found['share']:.0%}) "
        f"have the composition that was predicted. Then observed: {sides[0]}; predicted: "
        f"{sides[1]}."
    )
