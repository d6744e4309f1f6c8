"""From text to numbers: words, their morphemes, and the numbers of the most frequent ones.

A word is a run of letters and digits, in lower case. It is split once: a stem and, of the
English endings below, one that leaves the stem three letters or more. That stands in for the
morpheme analysers of other languages, whose splits are finer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

PADDING = 0
KNOWN = 30_520
"""Morphemes that get a number; with padding and unknown ones as many as BERT's vocabulary has."""
COUNTED = 2_000_000
"""Different words that are counted at a time."""

# Longer runs, such as of a language that is written without spaces, are cut.
_WORD = re.compile(r"[^\W_]{1,64}")
# Longer ones first: the first that fits is taken.
_ENDINGS = ("ation", "ment", "ness", "able", "ing", "est", "ed", "er", "es", "ly", "s")
_LEAST_STEM = 3
_MARK = "##"  # no word can hold it


class Vocabulary:
    """Numbers of morphemes: 1 for the most frequent, 0 for padding, the last for unknown ones."""

    def __init__(self, morphemes: list[str]) -> None:
        self.morphemes = morphemes
        self.size = len(morphemes) + 2
        self._unknown = len(morphemes) + 1
        self._numbers = {morpheme: number for number, morpheme in enumerate(morphemes, start=1)}

    def encode(self, text: str, most: int) -> list[int]:
        """The numbers of the first `most` morphemes of `text`; a text without words is unknown.

        There is always one, as a model cannot attend to padding alone.
        """
        numbers: list[int] = []
        for found in _WORD.finditer(text.lower()):
            for morpheme in split(found[0]):
                numbers.append(self._numbers.get(morpheme, self._unknown))
            if len(numbers) >= most:
                break
        return numbers[:most] or [self._unknown]


@lru_cache(1 << 17)
def split(word: str) -> tuple[str, ...]:
    """The morphemes of a word: ("walk", "##ing") of "walking"."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            return word[: -len(ending)], _MARK + ending
    return (word,)


def build(texts: Iterable[str], counted: int = COUNTED) -> Vocabulary:
    """The vocabulary of `texts`: most frequent first, those of one frequency by alphabet.

    Where there are more than `counted` different words, the rarest are forgotten, so that any
    number of texts fits into memory.
    """
    words: Counter[str] = Counter()
    floor = 0
    for text in texts:
        words.update(_WORD.findall(text.lower()))
        while len(words) > counted:
            floor += 1
            words = Counter({word: count for word, count in words.items() if count > floor})
    morphemes: Counter[str] = Counter()
    for word, count in words.items():
        for morpheme in split(word):
            morphemes[morpheme] += count
    ranked = sorted(morphemes, key=lambda morpheme: (-morphemes[morpheme], morpheme))
    return Vocabulary(ranked[:KNOWN])
