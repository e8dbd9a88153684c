"""Puts into words what a validation found: its headline, changes to make, agreement of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, isfinite, log
from typing import Any, NamedTuple

from calibrate.validation import proposals
from calibrate.validation.alternatives import TriedSetting
from calibrate.validation.figures import TYPICAL_NOISE, ValidatedFigure
from calibrate.validation.proposals import Cause
from calibrate.validation.residuals import HOST
from sim.metrics.terms.definitions import METRIC
from sim.specs.engine import EngineSpec
from sim.units import show_time


class Words(NamedTuple):
    """The setting to change, in a line, and why."""

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
"""The name of a cause in a list of several."""

_WHERE: Mapping[str, str] = {
    "per_iteration": "Iterations take {} {} than predicted, whatever is in them",
    "per_sequence": "Each sequence of an iteration takes {} {} than predicted",
    "per_new_request": "A request that enters the batch takes {} {} than predicted",
}
_KERNELS: Mapping[str, str] = {
    "tokens": "What grows with the tokens in a pass (matrix products of prompts and large batches)",
    "decode_attention": "Decode attention, which grows with the context",
    "prefill_attention": "Prefill attention",
    "kernels": "Tokens come as if all kernels together",
}
_REMEDIES: Mapping[str, str] = {
    "tokens": "Calibrate matrix products",
    "decode_attention": "Calibrate decode attention",
    "prefill_attention": "Calibrate prefill attention",
    "kernels": "Calibrate the device",
}


def words(cause: Cause, engine: EngineSpec, blocks: int) -> Words:
    """How ``cause`` is worded, for a prediction with ``engine`` and that many KV ``blocks``."""
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


def setting_words(each: TriedSetting) -> Words:
    """How a setting is worded that the prediction leaves open, and that explains the metrics."""
    return Words(
        ", ".join(each.options),
        f"{each.note} With this setting {each.within} of {each.metrics} metrics are in their "
        "bands: say in the scenario what your server has, before any time of the engine or its "
        "kernels is corrected.",
    )


def tried_text(each: TriedSetting) -> str:
    """The outcome of a setting that does not explain the metrics."""
    return (
        f"Left open and tried: with {', '.join(each.options)} metrics are off by a factor of "
        f"{exp(each.left):.2f} in the mean."
    )


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
    title = f"{NAMES[cause.name]}: {factor:.2f}x the predicted time"
    verb = "took" if cause.name == "kernels" else "takes"
    between = ""
    if cause.low is not None and cause.high is not None and isfinite(cause.high - cause.low):
        between = f" (95 %: {1.0 + cause.low:.2f} to {1.0 + cause.high:.2f})"
    text = f"{_KERNELS[cause.name]} {verb} {factor:.2f} times the predicted time{between}."
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


def quiet(runs: int, error: float) -> str:
    """Why nothing is to be changed, and what that assumes; ``runs`` of the engine were observed,
    ``error`` is the largest of the main metrics.

    >>> print(quiet(3, 0.012))
    Nothing to change: means and throughput are off by 1.2 % at most, and 3 runs differ as much.
    """
    size = f"Nothing to change: means and throughput are off by {100 * error:.1f} % at most"
    if runs > 1:
        return f"{size}, and {runs} runs differ as much."
    return (
        f"{size}, within twice the {100 * TYPICAL_NOISE:.0f} % by which two runs of one engine "
        "usually differ. That is assumed, not measured here: give a second run with --repeat to "
        "measure it."
    )


NOTHING_FOUND = (
    "The error is larger than runs of the engine differ by, but nothing that was tried explains it."
)


def too_few(requests: int, needed: int) -> str:
    """Why nothing is concluded from so few requests.

    >>> print(too_few(1, 5))
    The run has 1 request, too few to tell what the error comes from: at least 5 are needed, since \
that of a single one may be chance.
    """
    return (
        f"The run has {requests} request{'s' * (requests != 1)}, too few to tell what the error "
        f"comes from: at least {needed} are needed, since that of a single one may be chance."
    )


def failed(requests: int) -> str:
    """The note on requests that the engine did not serve.

    >>> failed(1)
    '1 request failed and is not sent again.'
    """
    are = "request failed and is" if requests == 1 else "requests failed and are"
    return f"{requests:,} {are} not sent again."


FAILURES = (
    "Failed requests are missing from the record, and what the engine did for them may explain all "
    "of the error: nothing is concluded. Take in a run in which nearly all requests are served."
)
ONLY_A_SUMMARY = (
    "The record is a summary, from which no change can be inferred: save the single requests (vllm "
    "bench serve --save-result --save-detailed) and take in that result."
)


def headline(rows: Sequence[ValidatedFigure]) -> str:
    """The result in a sentence: how many metrics are within the band, and which is off most.

    >>> row = ValidatedFigure("p50_ttft_ms", "ms", 200.0, 190.0, None, 0.04)
    >>> headline([row, row._replace(key="p50_tpot_ms", predicted=201.0)])
    '1 of 2 metrics is within its predicted band; worst: TTFT p50 -5.0 %'
    """
    if not rows:
        return "No metric was observed that can be compared"
    worst = max(rows, key=lambda row: abs(log(row.predicted / row.observed)))
    told = f"worst: {metric_name(worst.key)} {100 * worst.error:+.1f} %"
    if all(row.within_band is None for row in rows):
        return f"{len(rows)} metrics, {told}; the prediction has no error band"
    inside = sum(row.within_band is True for row in rows)
    are = "is within its predicted band" if inside == 1 else "are within their predicted bands"
    return f"{inside} of {len(rows)} metrics {are}; {told}"


def metric_name(key: str) -> str:
    """A metric as it is called on the screen.

    >>> metric_name("mean_ttft_ms"), metric_name("output_throughput")
    ('TTFT mean', 'output tokens/s')
    """
    known = METRIC[key]
    return known.title if known.kind == "ms" else known.called


def share_text(share: float) -> str:
    """The effect of a change on the error."""
    return f"{share:.0%} of the error" if share else "no effect on this traffic"


def advice_summary(before: float, left: float) -> str:
    """The effect of all changes together; both arguments are logarithms of a ratio.

    >>> advice_summary(0.693147, 0.01)
    'On average a metric is off by a factor of 2.00 as predicted, of 1.01 with all of this.'
    """
    return (
        f"On average a metric is off by a factor of {exp(before):.2f} as predicted, of "
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
