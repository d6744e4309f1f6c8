"""Numbering of words and morphemes."""

from __future__ import annotations

import pytest

from tracer.workloads.data import vocabulary
from tracer.workloads.data.vocabulary import Vocabulary, build, split


@pytest.mark.parametrize(
    ("word", "morphemes"),
    [
        ("walk", ("walk",)),
        ("walks", ("walk", "##s")),
        ("walking", ("walk", "##ing")),
        ("kindness", ("kind", "##ness")),
        ("boxes", ("box", "##es")),
        ("red", ("red",)),
        ("bus", ("bus",)),
        ("s", ("s",)),
        ("형태소", ("형태소",)),
    ],
)
def test_a_word_is_a_stem_and_at_most_one_ending(word: str, morphemes: tuple[str, ...]):
    assert split(word) == morphemes


def test_morphemes_are_numbered_by_frequency_then_alphabet():
    built = build(["Walk, walk; walks!", "a_zoo the ZOO 7", "zoo"])
    assert built.morphemes == ["walk", "zoo", "##s", "7", "a", "the"]
    assert built.size == 8


def test_texts_become_numbers():
    built = Vocabulary(["walk", "##s"])
    assert built.encode("Walks the walk.", 10) == [1, 2, 3, 1]
    assert built.encode("Walks the walk.", 3) == [1, 2, 3]
    assert built.encode("walks", 1) == [1]
    assert built.encode(" ... ", 10) == [3]
    assert built.encode("", 10) == [3]


def test_only_the_most_frequent_morphemes_get_a_number(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vocabulary, "KNOWN", 2)
    built = build(["one two two three three three"])
    assert built.morphemes == ["three", "two"]
    assert built.encode("one two three four", 9) == [3, 2, 1, 3]


def test_the_rarest_of_too_many_words_are_forgotten():
    texts = ["aa aa aa bb bb cc", "dd ee ff gg hh"]
    assert build(texts).morphemes == ["aa", "bb", "cc", "dd", "ee", "ff", "gg", "hh"]
    assert build(texts, counted=7).morphemes == ["aa", "bb"]
    assert build(texts[:1], counted=1).morphemes == ["aa"]


def test_long_words_and_lone_surrogates_do_no_harm():
    built = build(["x" * 1000, "\ud800lone \x00"])
    assert built.morphemes == ["x" * 64, "lone", "x" * 40]
