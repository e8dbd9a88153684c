"""Multiplies the lengths of the prompts or answers of the same requests.

Lengths in tokens. A request that fitted the longest sequence still does afterwards: what does not
fit is cut off the prompt if that was lengthened, else off the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sim.workload.traffic import ClosedTraffic, LengthChunk, OpenTraffic, TrafficChunk


@dataclass(frozen=True, slots=True)
class Longer:
    """Factors for prompts and answers, and the tokens that both may have together (None: any)."""

    prompts: float
    outputs: float
    longest: int | None

    @property
    def changes(self) -> bool:
        """Whether any length becomes another one."""
        return self.prompts != 1.0 or self.outputs != 1.0

    def lengths(self, prompt: int, output: int) -> tuple[int, int]:
        """The new lengths of one request; at least one token each.

        >>> Longer(1.5, 1.0, 1000).lengths(100, 10), Longer(1.5, 1.0, 120).lengths(100, 10)
        ((150, 10), (110, 10))
        """
        prompts = max(1, round(prompt * self.prompts))
        outputs = max(1, round(output * self.outputs))
        if self.longest is None or prompt + output > self.longest:
            return prompts, outputs
        over = max(0, prompts + outputs - self.longest)
        if prompts > prompt:
            cut = min(over, prompts - prompt)
            prompts, over = prompts - cut, over - cut
        return prompts, outputs - over


def lengthened(traffic: OpenTraffic | ClosedTraffic, by: Longer) -> OpenTraffic | ClosedTraffic:
    """``traffic`` with other lengths; arrivals and classes stay."""
    if not by.changes:
        return traffic
    if isinstance(traffic, ClosedTraffic):
        lengths = (
            LengthChunk(*_columns(chunk, by), chunk.classes, chunk.prefixes)
            for chunk in traffic.lengths()
        )
        return ClosedTraffic(
            traffic.total, traffic.concurrency, traffic.think_time, lengths, traffic.classes
        )
    chunks = _timed(traffic, by)
    return OpenTraffic(traffic.total, chunks, traffic.notes, traffic.classes, traffic.patience)


def _timed(traffic: OpenTraffic, by: Longer) -> Iterator[TrafficChunk]:
    for chunk in traffic.chunks():
        prompts, outputs = _columns(chunk, by)
        yield chunk._replace(prompt_tokens=prompts, output_tokens=outputs)


def _columns(chunk: TrafficChunk | LengthChunk, by: Longer) -> tuple[list[int], list[int]]:
    pairs = zip(chunk.prompt_tokens, chunk.output_tokens, strict=True)
    prompts, outputs = zip(*(by.lengths(*pair) for pair in pairs), strict=True)
    return list(prompts), list(outputs)
