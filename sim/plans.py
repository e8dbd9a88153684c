"""Defines plans of iterations: the words in which a scheduler, a cost model and an engine agree."""

from __future__ import annotations

from sim.request import Request


class Chunk:
    """``tokens`` of one request's prompt, prefilled on top of ``context`` tokens already
    computed."""

    __slots__ = ("context", "request", "tokens")

    def __init__(self, request: Request, tokens: int, context: int) -> None:
        self.request = request
        self.tokens = tokens
        self.context = context


class Plan:
    """The content of one iteration.

    ``chunks``      prompts or parts of prompts to prefill
    ``decode``      sequences that get one token each
    ``computed``    sequences the decode kernels run over; more than ``decode`` if slots are padded
    ``context``     KV tokens those hold before the iteration, summed
    ``admitted``    requests that enter the batch with this iteration
    ``preempted``   requests that were preempted to make room for it
    ``running``     sequences that hold a slot while it runs
    ``held``        KV tokens that are filled once it has run (``Allocator.reserved`` may be more)
    ``stationary``  the next plan would be the same, as long as no request finishes, no arrival
                    matters and memory lasts
    """

    __slots__ = (
        "admitted",
        "chunks",
        "computed",
        "context",
        "decode",
        "held",
        "preempted",
        "running",
        "stationary",
    )

    def __init__(
        self,
        chunks: list[Chunk],
        decode: int,
        computed: int,
        context: int,
        admitted: int,
        preempted: int,
        running: int,
        held: int,
        stationary: bool,
    ) -> None:
        self.chunks = chunks
        self.decode = decode
        self.computed = computed
        self.context = context
        self.admitted = admitted
        self.preempted = preempted
        self.running = running
        self.held = held
        self.stationary = stationary
