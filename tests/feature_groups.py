"""Groups of features that go together, so that every pair of features meets in one of few runs.

A pair counts as met in a group where nothing else in it hides the pair. The harness that writes
down when each token came has replicas of one kind that are always there: features that leave it
(``FLEETS``) count for their own pairs alone. So do those after which little happens (``SHORT``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations

from tests.feature_pairs import FEATURES, Names, cases, is_thorough

SIZE = 5
"""Larger groups make longer runs and hardly fewer: pairs of what counts alone remain."""

FLEETS = frozenset(
    (
        *("two-pools", "two-models", "weighted-pools", "weighted-turns", "roles", "pushed"),
        *("autoscaled", "autoscaled-late", "autoscaled-to-none", "autoscaled-failing"),
        *("failing", "lost", "steered", "impatient", "insistent"),
    )
)
SHORT = frozenset(
    ("one-slot", "static", "request", "shedding", "rejecting", "one-token", "horizon")
)

VLLM = "it goes with continuous batching"
DRAFTED = "not modelled for models with windows or a state whose tokens are drafted"
NO_CACHED_WINDOWS: Mapping[str, str] = {
    "prefill-first": VLLM,
    "priority": VLLM,
    "sglang": "SGLang's is not modelled for models with windows or a state",
    "ngram": DRAFTED,
    "drafts-by-batch": DRAFTED,
    "pipeline": "over the stages of a pipeline",
}
REFUSED_TOGETHER: Mapping[Names, str] = {
    ("contiguous", "small-memory", "small-blocks"): "contiguous allocation reserves max_model_len",
    **{
        (name, "windows", cached): why
        for name, why in NO_CACHED_WINDOWS.items()
        for cached in ("shared-prefix", "sessions", "cached-trace")
    },
}
"""Three of which every two can be had together, and words of the refusal."""

ALONE: Names = ("burst", "sessions")
"""Two that meet by themselves: with what refuses requests, no session would begin in the place of
the turns that a refused one leaves unsent, and every run is to have all its requests."""


def met(group: Names) -> Iterator[Names]:
    """The pairs of features that meet in a group, with nothing that hides them.

    >>> sorted(met(("async", "horizon", "closed")))
    [('async', 'horizon'), ('horizon', 'closed')]
    """
    fleets, short = FLEETS.intersection(group), SHORT.intersection(group)
    for pair in combinations(group, 2):
        if short.issubset(pair) and not (fleets and fleets.isdisjoint(pair)):
            yield pair


@cache
def groups() -> tuple[Names, ...]:
    """As ``found_groups``, found once."""
    return tuple(found_groups())


def found_groups() -> Iterator[Names]:
    """Groups in which every pair of ``cases`` meets, except pairs that repeat much of others: each
    begins with a pair not yet met, and grows by what lets it meet most."""
    pairs = [pair for pair in cases() if len(pair) == 2 and not is_thorough(pair)]
    partners: dict[str, set[str]] = {name: set() for pair in pairs for name in pair}
    for one, other in pairs:
        partners[one].add(other)
        partners[other].add(one)
    never = [frozenset(names) for names in (ALONE, *REFUSED_TOGETHER)]
    names = [name for name in FEATURES if name in partners]
    left = dict.fromkeys(pairs)

    def gained(group: Names) -> int:
        return sum(pair in left for pair in met(group))

    def wider(group: Names) -> Iterator[Names]:
        for name in names:
            longer = {*group, name}
            if partners[name].issuperset(group) and not any(map(longer.issuperset, never)):
                yield tuple(sorted(longer, key=place.__getitem__))

    place = {name: at for at, name in enumerate(names)}
    while left:
        group: Names = next(iter(left))
        while len(group) < SIZE:
            best = max(wider(group), key=gained, default=group)
            if gained(best) <= gained(group):
                break
            group = best
        yield group
        for pair in met(group):
            left.pop(pair, None)
