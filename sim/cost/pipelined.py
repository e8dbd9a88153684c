"""Predicts how long a batch takes through the stages of a pipeline, in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from sim.cost.iteration import IterationTimes
from sim.iteration import Batch, Legs, Passage
from sim.specs.deployment import Deployment


class PipelinedTimes(IterationTimes):
    """``IterationTimes``, with each stage of a pipeline timed as a model of its own layers."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._stages: list[tuple[Self, tuple[int, ...]]] = []  # with the windows of each
        self._legs: dict[int, tuple[float, float, Legs]] = {}  # by sequences, from a context on
        self._messages: list[tuple[float, float]] = []  # fixed, and for each token

    def passage(self, batch: Batch) -> Passage:
        """``batch`` on its way through the stages of a pipeline, each timed as a model of its own
        layers; where the host prepares a batch while another one runs, it only sets the pace."""
        sequences, context, parts, admitted, seen = batch
        attention = pairs = 0.0
        tokens, outputs = sequences, sequences + len(parts)
        for part in parts:
            tokens += part.tokens
        if parts:
            attention, pairs = self.attention.prefill_seconds(parts, sequences, context)
        stages = []
        for stage, windows in self.stages:
            if windows and seen:
                own = Batch(sequences, context, parts, admitted, tuple(seen[at] for at in windows))
                stages.append(stage.seconds(own))
            elif parts:
                stages.append(stage.iteration(sequences, context, parts, admitted)[0])
            else:
                _, intercept, slope = stage.line(sequences, context)
                stages.append(intercept + slope * context)
        messages = [fixed + each * tokens for fixed, each in self._messages]
        host, pace = self._host_time(outputs, admitted), outputs * self._streamed
        if self._overlapped:
            host, pace = 0.0, max(host, pace)
        return Passage(host, stages, messages, pace, attention, pairs)

    def legs(self, sequences: int, context: int) -> tuple[float, Legs]:
        """(limit, legs) of the way that ``passage`` describes, of decoding ``sequences`` that hold
        at least ``context``; no limit beyond that where a stage takes less as contexts grow."""
        low, limit, legs = self._legs.get(sequences, (0.0, 0.0, ()))
        if not low <= context < limit:
            lines = [stage.line(sequences, context) for stage, _ in self.stages]
            falls = min([slope for _, _, slope in lines]) < 0
            limit = context if falls else min([limit for limit, _, _ in lines])
            sent = [0.0, *[fixed + each * sequences for fixed, each in self._messages]]
            legs = [(message, *line[1:]) for message, line in zip(sent, lines, strict=True)]
            self._legs[sequences] = context, limit, legs
        return limit, legs

    def cycle(self, batch: Batch) -> float:
        """Seconds from one batch to the next at each place in flight of a pipeline, where all are
        like ``batch``: the way of one, or as long as the slowest stage takes for all of them."""
        places = self.deployment.layout.pipeline
        if places == 1:
            return self.seconds(batch)
        passage = self.passage(batch)
        alone = passage.host + sum(passage.stages) + sum(passage.messages)
        return max(alone, places * max(passage.host, passage.pace, *passage.stages))

    @property
    def stages(self) -> Sequence[tuple[Self, tuple[int, ...]]]:
        """Timers of the pipeline's stages, without the host, and the model's windows in their
        layers."""
        if not self._stages:
            d = self.deployment
            engine = self._engine.without_host()
            for stage in d.stages():
                windows = tuple(d.model.windows.index(each) for each in stage.model.windows)
                self._stages.append((type(self)(replace(stage, engine=engine)), windows))
            sent = [self.by_size.sent(tokens) for tokens in (0.0, 1.0)]
            self._messages = [
                (float(none.seconds), float(one.seconds) - float(none.seconds))
                for none, one in zip(*sent, strict=True)
            ]
        return self._stages
