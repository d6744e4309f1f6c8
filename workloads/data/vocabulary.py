"""The conversion of text to numbers: words, their morphemes, and numbers of the most frequent ones.

A word is a run of letters and digits, in lower case. It is split at most once, into a stem of three
letters or more and one of the English endings below. This replaces the morpheme analysers of other
languages, which split more finely.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

PADDING = 0
SIZE = 30_522
"""The size of BERT's vocabulary. Models have it even if their texts have fewer morphemes, so that a
share of the texts changes no checkpoint's size."""
KNOWN = SIZE - 2
"""Morphemes that get a number, beside padding and unknown."""
COUNTED = 2_000_000
"""Maximum number of different words that are counted at a time."""

# Longer runs, such as those of languages written without spaces, are cut.
_WORD = re.compile(r"[^\W_]{1,64}")
# Longer endings first, since the first that fits is used.
_ENDINGS = ("ation", "ment", "ness", "able", "ing", "est", "ed", "er", "es", "ly", "s")
_LEAST_STEM = 3
_MARK = "##"  # no word contains it


class Vocabulary:
    """The numbers of morphemes: 1 for the most frequent, 0 for padding, the last for unknown."""

    def __init__(self, morphemes: list[str]) -> None:
        self.morphemes = morphemes
        self.size = len(morphemes) + 2
        self._unknown = len(morphemes) + 1
        self._numbers = {morpheme: number for number, morpheme in enumerate(morphemes, start=1)}

    def encode(self, text: str, most: int) -> list[int]:
        """Returns the numbers of the first `most` morphemes of `text`.

        A text without words gives the number for unknown morphemes: there is always one number,
        since a model cannot attend to padding alone.
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
    """Returns the morphemes of a word, such as ("walk", "##ing") for "walking"."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_STEM:
            return word[: -len(ending)], _MARK + ending
    return (word,)


def build(texts: Iterable[str], counted: int = COUNTED) -> Vocabulary:
    """Builds the vocabulary of `texts`: most frequent first, then in alphabetical order.

    If there are more than `counted` different words, it drops the rarest, so that any number of
    texts fits in memory.
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
