"""The rule that counts prompts, and answers of an exact number of tokens."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.errors import UsageError
from sim.serve import tokens
from sim.serve.names import Names
from sim.serve.tokens import LONGEST, WORDS, Filler, decode, encode, tokenizer_of


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


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.json", None, "no such file; give a tokenizer.json"),
        ("wrong.json", "{}", "this is no tokenizer.json of Hugging Face's"),
        ("none:such", None, "cannot be imported"),
    ],
)
def test_what_is_no_tokenizer_is_refused(
    name: str, text: str | None, said: str, tmp_path: Path
) -> None:
    if name == "wrong.json":
        pytest.importorskip("tokenizers", reason="reads such files")
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=said):
        tokenizer_of(name if ":" in name else str(tmp_path / name))


def test_a_tokenizer_of_hugging_faces_counts(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="reads such files")
    words = tokenizers.models.WordLevel({"one": 7, "two": 8, "?": 0}, unk_token="?")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    count = tokenizer_of(str(tmp_path / "tokenizer.json"))
    assert list(count("one two three")) == [7, 8, 0]


def test_without_the_package_that_reads_it_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(tokens, "find_spec", lambda _: None)
    with pytest.raises(UsageError, match="needs `pip install tokenizers`"):
        tokenizer_of(str(tmp_path / "tokenizer.json"))
