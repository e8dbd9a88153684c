"""Defines plans of iterations: what a scheduler decides, and a replica or an engine carries out."""

from __future__ import annotations

from sim.iteration import Part
from sim.request import Request


class Chunk(Part):
    """The part of a prompt that an iteration prefills, and ``request``, whose prompt it is."""

    __slots__ = ("request",)

    def __init__(self, request: Request, tokens: int, context: int) -> None:
        self.request = request
        self.tokens = tokens
        self.context = context


class Plan:
    """The content of one iteration. What a policy does not name is 0, or absent.

    ``chunks``      prompts or parts of prompts to prefill
    ``decode``      sequences that get one token each
    ``sequences``   sequences the decode kernels run over: ``decode`` if not given, more if slots
                    are padded
    ``context``     KV tokens those hold before the iteration, summed
    ``admitted``    requests that enter the batch with this iteration
    ``preempted``   requests that were preempted to make room for it
    ``running``     sequences that hold a slot while it runs
    ``held``        KV tokens that are filled once it has run (``Allocator.reserved`` may be more)
    ``stationary``  the next plan would be the same, as long as no request finishes, no arrival
                    matters and memory lasts

    Keywords are for readers. Only the policy that plans most iterations passes positions: three
    times as fast, which a leap-free run notices.
    """

    __slots__ = (
        "admitted",
        "chunks",
        "context",
        "decode",
        "held",
        "preempted",
        "running",
        "sequences",
        "stationary",
    )

    def __init__(
        self,
        chunks: list[Chunk] | None = None,
        decode: int = 0,
        sequences: int | None = None,
        context: int = 0,
        admitted: int = 0,
        preempted: int = 0,
        running: int = 0,
        held: int = 0,
        stationary: bool = False,
    ) -> None:
        self.chunks = [] if chunks is None else chunks
        self.decode = decode
        self.sequences = decode if sequences is None else sequences
        self.context = context
        self.admitted = admitted
        self.preempted = preempted
        self.running = running
        self.held = held
        self.stationary = stationary
