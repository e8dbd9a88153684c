"""Routers that send a request where the beginning of its prompt is likely to be cached.

After SGLang's router (``policies/cache_aware.rs``, ``tree.rs`` and ``manual.rs`` of its gateway),
with the thresholds and sizes with which it starts (``RouterArgs`` of sglang-router 0.3.2).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from sim.request import Request
from sim.routers.base import Router, Target
from sim.routers.load import least_outstanding, most_outstanding

CACHE_THRESHOLD = 0.3
"""Share of a prompt that must have been sent somewhere for that to decide (``cache_threshold``)."""

BALANCE_ABS_THRESHOLD, BALANCE_REL_THRESHOLD = 64, 1.5
"""Unfinished requests that the busiest replica has more than the idlest, and how many times as
many, beyond which the load decides."""

REMEMBERED_TOKENS = 2**24
"""Most tokens that are remembered of each replica: 2**26 characters (``max_tree_size``), at four a
token."""

MAX_IDLE = 4 * 3600.0
"""Seconds after which a session of which nothing came is forgotten (``max_idle_secs``)."""


class SessionAffinity(Router):
    """SGLang's ``manual`` router, in its mode ``min_load``.

    A session stays where its first request went, however much there is to do; that one, and every
    request of no session, goes to the replica with the fewest unfinished requests.
    """

    name = "session-affinity"
    about = "the one that served the session before; a new session: the fewest unfinished requests"
    real = "SGLang's router, manual, or the sessions of vLLM's production stack"

    def __init__(self) -> None:
        # of each session its replica, and when something last came; the one idle longest first
        self._sessions: OrderedDict[int, tuple[int, float]] = OrderedDict()

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """Where the session is."""
        session, now, sessions = request.session, request.queued, self._sessions
        if session < 0:
            return least_outstanding(targets)
        while sessions and now - next(iter(sessions.values()))[1] >= MAX_IDLE:
            sessions.popitem(last=False)
        known = sessions.get(session)
        chosen = least_outstanding(targets) if known is None else known[0]
        sessions[session] = chosen, now
        sessions.move_to_end(session)
        return chosen


class PrefixAffinity(Router):
    """SGLang's ``cache_aware`` router.

    It knows what it sent where, not what the caches hold: neither answers nor what was evicted. A
    prompt goes to the replica that was sent the longest part of its beginning, of equals to the one
    that was sent it first, if that part is more than ``CACHE_THRESHOLD`` of it and the replicas are
    about equally loaded; else to the one with the fewest unfinished requests.
    """

    name = "prefix-affinity"
    about = "the one that was sent most of the prompt's beginning, while loads are about equal"
    real = "SGLang's router, cache_aware, or llm-d's scorer of prefix caches"

    def __init__(self, remembered: int = REMEMBERED_TOKENS) -> None:
        self._sent = SentPrompts(remembered)

    def choose(self, request: Request, targets: Sequence[Target]) -> int:
        """By the prompt, or by the load."""
        chosen = least_outstanding(targets)
        fewest = targets[chosen].outstanding
        most = most_outstanding(targets)
        apart = most - fewest > BALANCE_ABS_THRESHOLD and most > BALANCE_REL_THRESHOLD * fewest
        if not apart:
            tokens, place = self._sent.longest(request)
            if tokens > CACHE_THRESHOLD * request.prompt_tokens:
                chosen = place
        self._sent.add(request, chosen)
        return chosen


class SentPrompts:
    """The prompts that replicas were sent, text by text: ``most`` tokens of each replica.

    What was not sent for the longest time is forgotten first, of one prompt its end first.

    >>> sent = SentPrompts(100)
    >>> first, second = (Request(i, 0.0, 50, 1, prefix=((7, 30),)) for i in range(2))
    >>> sent.add(first, 2)
    >>> sent.longest(second)
    (30, 2)
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # of each text, how far each replica was sent it, by who was first
        self._ends: dict[int, dict[int, int]] = {}
        # of each replica, the tokens of the texts that it was sent, the oldest first
        self._texts: dict[int, OrderedDict[int, int]] = {}
        self._tokens: dict[int, int] = {}

    def longest(self, request: Request) -> tuple[int, int]:
        """How many tokens of the prompt of ``request`` a replica was sent before, and which one was
        sent the most; (0, 0) if none was."""
        most, place = 0, 0
        able: dict[int, int] | None = None  # those that were sent everything so far
        for text, end in request.prefix:
            ends = self._ends.get(text)
            if ends is None:
                break
            whole: dict[int, int] = {}
            for replica, sent in ends.items():
                if able is None or replica in able:
                    if sent >= end:
                        whole[replica] = sent
                    if min(sent, end) > most:
                        most, place = min(sent, end), replica
            if not whole:
                break
            able = whole
        return most, place

    def add(self, request: Request, replica: int) -> None:
        """``replica`` is sent the prompt of ``request``."""
        texts = self._texts.setdefault(replica, OrderedDict())
        tokens = self._tokens.get(replica, 0)
        parts, start = [], 0
        for text, end in (*request.prefix, (~request.id, request.prompt_tokens)):
            if end > start:
                parts.append((text, start, end))
                start = end
        for text, start, end in reversed(parts):
            ends = self._ends.setdefault(text, {})
            if ends.get(replica, 0) < end:
                ends[replica] = end
                tokens += end - start - texts.get(text, 0)
                texts[text] = end - start
            texts.move_to_end(text)
        while tokens > self._most:
            text, size = texts.popitem(last=False)
            tokens -= size
            ends = self._ends[text]
            del ends[replica]
            if not ends:
                del self._ends[text]
        self._tokens[replica] = tokens
