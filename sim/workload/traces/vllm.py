"""Reads the results of ``vllm bench serve --save-detailed``, to replay a measured run.

One JSON document with a list per quantity: ``input_lens`` and ``output_lens`` in tokens,
``start_times`` in seconds by the client's clock, when each request was sent. (The figures in the
same document whose names end in ``_ms`` are milliseconds; none is used.) Results without
``start_times`` do not say when requests were sent, except that all went at once where
``request_rate`` is infinite, "inf", and ``max_concurrency`` is null. Failed requests have zero
output tokens: they are skipped and counted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sim.errors import TraceError
from sim.workload.traces.base import FAILED, Trace, TraceFormat
from sim.workload.traces.head import Head, document, document_block
from sim.workload.traces.rows import shown

_SUMMARY = {"total_input_tokens", "request_throughput"}


def _recognises(head: Head) -> bool:
    """A summary without details is known too, to say what is missing."""
    names = set(head.names)
    detailed = {"input_lens", "output_lens"} <= names
    return head.container in ("json", "jsonl") and (detailed or names >= _SUMMARY)


def _read(path: Path) -> Trace:
    found = document(path)
    if "input_lens" not in found:
        raise TraceError(
            f"{path}: a summary without the single requests (input_lens, output_lens); save the"
            " result with `vllm bench serve --save-result --save-detailed`"
        )
    sent = "start_times" in found
    if not sent:
        _check_at_once(path, found)
    wanted = ["input_lens", "output_lens", *(["start_times"] if sent else [])]
    block = document_block(path, found, wanted)
    failed = block.zeros("output_lens")
    served = block.without(failed)
    return Trace(
        served.seconds("start_times") if sent else np.zeros(len(served.places)),
        served.tokens("input_lens"),
        served.tokens("output_lens"),
        {FAILED: sum(failed)} if any(failed) else {},
    )


def _check_at_once(path: Path, found: dict[str, object]) -> None:
    """Whether a result without times is one of requests that were all sent together."""
    rate, users = found.get("request_rate"), found.get("max_concurrency")
    if rate not in ("inf", float("inf")):
        instead = f"arrivals of the rate that was asked for (request_rate is {shown(rate)})"
    elif users is not None:
        instead = f"`arrivals: {{kind: closed, concurrency: {shown(users)}}}`"
    else:
        return
    raise TraceError(
        f"{path}: no start_times: this release of vLLM did not save when requests were sent. Use"
        f" {instead} with the recorded lengths, `lengths: {{kind: joint, path: {path.name}}}`"
    )


FORMAT = TraceFormat(
    name="vllm",
    layout="JSON that `vllm bench serve --save-detailed` saved: input_lens, output_lens,"
    " start_times (seconds)",
    recognises=_recognises,
    read=_read,
)
