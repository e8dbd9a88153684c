"""Windows and chunks against a mask with a cell for each query and key."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.specs.grouped_query import GroupedQuery
from sim.specs.window import NEVER, Window

WINDOWS = st.builds(Window, st.integers(1, 20), st.booleans())
LENGTHS = st.integers(0, 70)


def mask(window: Window, tokens: int) -> np.ndarray:
    """Which keys (columns) each query of a sequence of ``tokens`` sees."""
    query, key = np.arange(tokens)[:, None], np.arange(tokens)[None, :]
    if window.chunked:
        return (key <= query) & (key // window.size == query // window.size)
    return (key <= query) & (query - key < window.size)


@given(WINDOWS, LENGTHS)
def test_a_token_sees_itself_and_what_is_seen_of_the_context(window: Window, held: int) -> None:
    assert window.seen(held) + 1 == mask(window, held + 1)[-1].sum()
    assert window.seen_by_equals(3, 3 * held) == 3 * window.seen(held)


@given(WINDOWS, LENGTHS)
def test_as_many_tokens_bring_one_more_each(window: Window, held: int) -> None:
    turn = window.turns(held)
    coming = [window.seen(held + i) for i in range(200)]
    if turn == NEVER:
        assert set(coming) == {window.size - 1}
    else:
        rising = turn if window.chunked else turn + 1
        assert coming[:rising] == [coming[0] + i for i in range(rising)]
        assert coming[rising] != coming[0] + rising


@given(WINDOWS, st.integers(1, 40), LENGTHS)
def test_pairs_of_a_part_of_a_prompt(window: Window, tokens: int, context: int) -> None:
    seen = mask(window, context + tokens)[context:]
    assert window.pairs(tokens, context) == seen.sum()
    parts = window.parts(tokens, context)
    assert sum(part for part, _ in parts) == tokens
    if window.chunked:  # each of them sees all before it, and nothing else
        assert sum(t * before + t * (t + 1) / 2 for t, before in parts) == seen.sum()
        assert all(before + part <= window.size for part, before in parts)


def test_a_layer_has_a_window_or_chunks() -> None:
    heads = {"num_heads": 4, "num_kv_heads": 4, "head_dim": 8}
    common = {**heads, "attention_bias": False, "qk_norm": False}
    assert GroupedQuery(**common).window is None
    assert GroupedQuery(**common, sliding_window=5).window == Window(5)
    assert GroupedQuery(**common, attention_chunk=5).window == Window(5, chunked=True)
    with pytest.raises(ValueError, match="not both"):
        GroupedQuery(**common, attention_chunk=5, sliding_window=5)
    with pytest.raises(ValueError, match="attention_chunk: got 0"):
        GroupedQuery(**common, attention_chunk=0)
