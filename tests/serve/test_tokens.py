"""The rule that counts prompts, and answers of an exact number of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.serve.names import Names
from sim.serve.tokens import LONGEST, WORDS, Filler, decode, encode


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_nothing_is_lost(text: str) -> None:
    tokens = encode(text)
    assert decode(tokens) == text
    assert len(text.encode()) <= LONGEST * len(tokens) or not text
    assert all(0 <= token < 2**53 for token in tokens)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("one", 1),
        ("Hello, world!", 4),
        ("a  b", 3),
        ("internationalisation", 4),
        (" " * 13, 3),
        ("x = f(1)\n", 8),
        ("日本語", 2),
    ],
)
def test_counts_by_hand(text: str, tokens: int) -> None:
    assert len(encode(text)) == tokens


def test_every_word_of_an_answer_is_a_token_wherever_it_stands() -> None:
    assert len(set(WORDS)) == len(WORDS)
    assert all(len(encode(word)) == len(encode(f" {word}")) == 1 for word in WORDS)


@given(st.integers(1, 300), st.integers())
def test_an_answer_has_as_many_tokens_as_it_should(tokens: int, start: int) -> None:
    assert len(encode(Filler(tokens, start).text())) == tokens


@given(st.integers(1, 150), st.integers(0, 60), st.integers(0, 90), st.sampled_from(WORDS))
def test_a_stop_text_ends_an_answer_where_it_is_complete(
    tokens: int, start: int, least: int, stop: str
) -> None:
    whole, answer = Filler(tokens, start).text(), Filler(tokens, start, [stop], least)
    text = answer.text()
    assert whole.startswith(text)
    assert text == "".join(answer.piece(i) for i in range(answer.tokens))
    if answer.stopped is None:
        assert text == whole
    else:
        assert whole[len(text) :].startswith(stop)
        assert least <= answer.tokens <= tokens
        # the token before it does not complete the text
        assert len(encode(whole[: len(text) + len(stop)])) == answer.tokens
    if not least:
        assert stop not in text


def test_prompts_that_begin_alike_share_names_up_to_a_block() -> None:
    names = Names()
    first, _ = names.of(range(100))
    again, prefix = names.of(range(100))
    assert first == again
    assert prefix == ((first[0], 100),)
    numbers, prefix = names.of([*range(50), *range(1000, 1050)])
    assert numbers[:3] == first[:3]
    assert not set(numbers[3:]) & set(first)
    assert prefix == ((first[0], 48), (numbers[3], 100))


def test_names_that_are_not_remembered_are_never_found_again() -> None:
    names = Names(most=3)
    first, _ = names.of(range(80))
    again, prefix = names.of(range(80))
    assert again[:3] == first[:3]
    assert not set(again[3:]) & set(first)
    assert prefix == ((first[0], 48), (again[3], 80))
