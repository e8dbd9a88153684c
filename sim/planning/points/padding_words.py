"""Words what batches that are served whole compute or hold in vain, and what they wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sim.metrics.states import State
from sim.schedulers import ChunkedPrefill, RequestLevel, Static
from sim.units import show_number, show_share, show_time

Summary = Mapping[str, Any]


def padding_text(summary: Summary) -> str:
    """How much of a batch that is served whole still decodes, and what is padding; empty for
    continuous batching."""
    own = summary["infersim"]
    if not _whole(own) or not _idles(own):
        return ""
    decoding, running = (own["batch"][f"mean_{each}"] for each in ("decode_batch", "running"))
    others = _padded(own) or "The others only hold their slots"
    return (
        f"A batch waits for its longest answer: on average {show_number(decoding)} of its "
        f"{show_number(running)} sequences still decode. {others}."
    )


def paddings(told: Sequence[tuple[str, Summary]]) -> str:
    """What an iteration of the first run of each label decodes, how long it takes, and what is
    padding or waits, if one of them is of batches that are served whole; empty where none is."""
    first = {label: summary["infersim"] for label, summary in reversed(told)}
    found = dict(reversed(first.items()))
    whole = [own for own in found.values() if _whole(own) and own["batch"]["mean_decode_batch"]]
    vain = [
        *dict.fromkeys(filter(None, (each(own) for own in whole for each in (_padded, _fills))))
    ]
    if not vain and not any(map(_idles, whole)):
        return ""
    batches = [
        f"{show_number(own['batch']['mean_decode_batch'])}"
        + f" of {show_number(own['batch']['mean_running'])}" * (own in whole and _idles(own))
        + f" in {show_time(own['batch']['mean_iteration_ms'] / 1e3)} ({label})"
        for label, own in found.items()
        if own["batch"]["mean_iteration_ms"]
    ]
    parts = [
        f"On average an iteration decodes so many sequences of its batch: {', '.join(batches)}",
        "A batch served whole waits for its longest answer",
        *vain,
    ]
    if any(_uses(own, RequestLevel.name) and _idles(own) for own in whole):
        parts.append("By request the slots of complete answers are empty")
    most = max(own["batch"]["mean_decode_batch"] for own in whole)
    full = [own for own in found.values() if _uses(own, ChunkedPrefill.name)]
    if any((own["batch"]["mean_decode_batch"] or 0.0) > most for own in full):
        parts.append("Continuous batching fills the slots, and its fuller iterations take longer")
    return f"{'. '.join(parts)}."


def _uses(own: Summary, policy: str) -> bool:
    return policy in own["batching"].split(", ")


def _whole(own: Summary) -> bool:
    return _uses(own, Static.name) or _uses(own, RequestLevel.name)


def _idles(own: Summary) -> bool:
    """Whether fewer sequences decode than hold a slot."""
    decoding, running = (own["batch"][f"mean_{each}"] for each in ("decode_batch", "running"))
    return bool(decoding and running and decoding < running)


def _padded(own: Summary) -> str:
    """The shares of what static batching computes that are padding; empty where it is not known."""
    found = own.get("padding") or {}
    prompts, slots = found.get("prompt_tokens"), found.get("slots")
    if prompts is None or slots is None:
        return ""
    return (
        f"Static batching computes {show_share(prompts)} of its prompt tokens and "
        f"{show_share(slots)} of its decode slots as padding"
    )


def _fills(own: Summary) -> str:
    """How long static batching waits for a full batch, where it has capacity left; else empty."""
    came, batch = own.get("while_arriving") or {}, own["batch"]["peak_running"]
    used = own["verdict"]["utilisation"]
    if not _uses(own, Static.name) or own["verdict"]["state"] == State.OVERLOADED:
        return ""
    if not came.get("seconds") or used is None or used >= 1:
        return ""
    rate = own["requests"]["submitted"] / came["seconds"] / own["replicas"]
    each = " at each replica" if own["replicas"] > 1 else ""
    return (
        f"Static batching waits until {batch:,} requests have come{each}, "
        f"{show_time(batch / rate)} at {show_number(rate)} requests/s"
    )
