"""Says in one word how sure a decision is, for ``plan``, ``find``, ``compare`` and ``sensitivity``.

Two things leave a decision open: chance in the traffic, to which the empty start of a run belongs,
and the error of the predicted times. More requests narrow the first and not the second.
"""

from __future__ import annotations

SURE, LIKELY, GUESS = "sure", "likely", "a guess"


def trust(*, decided: bool, at_band: bool, at_half: bool) -> str:
    """How sure a decision is. ``decided`` says whether chance, and the start of a run, leave no
    doubt; ``at_band`` whether it is the same with iterations off by the 90 % band of predicted
    times, ``at_half`` by the 50 % band.

    >>> trust(decided=True, at_band=True, at_half=True)
    'sure'
    >>> trust(decided=True, at_band=False, at_half=True)
    'likely'
    >>> trust(decided=False, at_band=True, at_half=True)
    'a guess'
    """
    if not decided or not (at_band or at_half):
        return GUESS
    return SURE if at_band else LIKELY
