"""Describes how far back attention looks where it does not see the whole context. Tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

NEVER = 1 << 60


class Window(NamedTuple):
    """The last ``size`` tokens, a query's own included; or, ``chunked``, those since the last
    multiple of ``size``, so that what a sequence sees grows like the teeth of a saw."""

    size: int
    chunked: bool = False

    def seen(self, context: int) -> int:
        """How many of the ``context`` tokens of a sequence its next token sees.

        >>> Window(4).seen(9), Window(4, chunked=True).seen(9)
        (3, 1)
        """
        if self.chunked:
            return context % self.size
        return context if context < self.size else self.size - 1

    def turns(self, context: int) -> int:
        """How many tokens a sequence of ``context`` gains, seeing one more with each, before that
        changes; ``NEVER`` if it sees no more with any.

        >>> Window(4).turns(1), Window(4).turns(9) == NEVER, Window(4, chunked=True).turns(9)
        (2, True, 3)
        """
        if self.chunked:
            return self.size - context % self.size
        rest = self.size - 1 - context
        return rest if rest > 0 else NEVER

    def bends(self, context: Any) -> Any:
        """How often ``turns`` came to an end on the way to ``context``: a number or an array.

        >>> Window(4).bends(2), Window(4).bends(9), Window(4, chunked=True).bends(9)
        (False, True, 2)
        """
        return context // self.size if self.chunked else context >= self.size - 1

    def seen_by_equals(self, sequences: Any, context: Any) -> Any:
        """Tokens seen by ``sequences`` that hold ``context`` in sum, equally much each: numbers or
        arrays."""
        import numpy as np  # noqa: PLC0415 - not needed to read the catalogue

        if self.chunked:
            chunk = np.maximum(sequences, 1) * self.size
            return context - chunk * np.floor(context / chunk)
        return np.minimum(context, sequences * (self.size - 1))

    def parts(self, tokens: int, context: int) -> list[tuple[int, int]]:
        """``tokens`` on top of ``context`` as parts of which each sees all tokens before it: pairs
        of tokens and context. One, unless chunks cut them.

        >>> Window(4, chunked=True).parts(9, 6), Window(4).parts(9, 6)
        ([(2, 2), (4, 0), (3, 0)], [(9, 6)])
        """
        if not self.chunked:
            return [(tokens, context)]
        found, at = [], context % self.size
        while tokens > 0:
            part = min(tokens, self.size - at)
            found.append((part, at))
            tokens, at = tokens - part, 0
        return found

    def pairs(self, tokens: int, context: int) -> float:
        """Causal query-key pairs of ``tokens`` on top of ``context``.

        >>> Window(4).pairs(3, 2), Window(4, chunked=True).pairs(3, 2)  # 3 + 4 + 4, 3 + 4 + 1
        (11.0, 8.0)
        """
        if self.chunked:
            parts = self.parts(tokens, context)
            return sum(t * before + t * (t + 1) / 2 for t, before in parts)
        rising = min(tokens, max(0, self.size - context))
        return rising * context + rising * (rising + 1) / 2 + (tokens - rising) * float(self.size)
