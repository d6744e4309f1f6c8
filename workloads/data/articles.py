"""Articles similar to Wikipedia's, drawn from a seed: invented words with Zipf's frequencies.

There are ten topics. A third of the words belong to one topic, so that a classifier can learn the
topics. Words are spelled from syllables, and a third of them have the ending of an inflected word.
The lengths of articles follow a log-normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tracer.workloads.data.jsonl import Article

TOPICS = (
    *("art", "biology", "economics", "geography", "history"),
    *("mathematics", "music", "physics", "politics", "sport"),
)
STEMS = 30_000
BLOCK = 256
"""Articles drawn at once. Article i of a split depends only on the seed and i."""
MEAN_BYTES = 1_600
"""Mean bytes of an article with its JSON, measured and rounded up."""

_Ints = NDArray[np.int64]
_Words = NDArray[np.object_]

# The most frequent words are common to all topics.
_COMMON = 500
_TOPICAL = 1 / 3
_TITLE_WORDS = 2
_MEDIAN_WORDS = 180
_SIGMA = 0.8
_ONSETS = ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z")
_VOWELS = ("a", "e", "i", "o", "u", "é")
_SYLLABLES = tuple(onset + vowel for onset in _ONSETS for vowel in _VOWELS)
# One entry is drawn per word, so the number of equal entries sets their share.
_ENDINGS = ("",) * 16 + ("s",) * 4 + ("ed", "ing", "ly", "ness")
_MARKS = (" ",) * 56 + (", ",) * 4 + (". ",) * 3 + (".\n",)


def draw(seed: int, split: int, count: int) -> Iterator[Article]:
    """Yields `count` articles. Two splits of the same seed share none."""
    drawing = _Drawing()
    for first in range(0, count, BLOCK):
        random = np.random.default_rng([seed, split, first // BLOCK])
        yield from drawing.block(random)[: count - first]


class _Drawing:
    """The tables to draw from."""

    def __init__(self) -> None:
        self._stems = _column([_spell(number) for number in range(STEMS)])
        self._capitals = _column([stem.capitalize() for stem in self._stems])
        self._endings = _column(_ENDINGS)
        self._marks = _column(_MARKS)
        self._stops = np.array([mark[0] == "." for mark in _MARKS])
        self._any = _zipf(STEMS)
        self._topical = _zipf((STEMS - _COMMON) // len(TOPICS))
        # Numbers of words, one per quantile; as integers they do not depend on rounding in exp.
        normal = NormalDist(math.log(_MEDIAN_WORDS), _SIGMA)
        self._lengths = np.array([round(math.exp(x)) for x in _quantiles(normal, 1024)])

    def block(self, random: np.random.Generator) -> list[Article]:
        topics = random.integers(0, len(TOPICS), BLOCK)
        lengths = _TITLE_WORDS + self._lengths[random.integers(0, len(self._lengths), BLOCK)]
        ends = np.cumsum(lengths)
        begins = ends - lengths
        total = int(ends[-1])

        in_title = (begins[:, None] + np.arange(_TITLE_WORDS)).ravel()
        topical = random.random(total) < _TOPICAL
        topical[in_title] = True
        owned = self._topical.searchsorted(random.random(total), side="right")
        of_topic = _COMMON + owned * len(TOPICS) + topics.repeat(lengths)
        of_any = self._any.searchsorted(random.random(total), side="right")
        stems = np.where(topical, of_topic, of_any)

        marks = random.integers(0, len(_MARKS), total)
        opens = np.roll(self._stops[marks], 1)
        opens[in_title] = True
        opens[begins + _TITLE_WORDS] = True
        endings = random.integers(0, len(_ENDINGS), total)
        words = np.where(opens, self._capitals[stems], self._stems[stems]) + self._endings[endings]
        marked = words + self._marks[marks]
        return [
            Article(
                title=" ".join(words[begin : begin + _TITLE_WORDS]),
                text="".join(marked[begin + _TITLE_WORDS : end - 1]) + words[end - 1] + ".",
                topic=TOPICS[topic],
            )
            for begin, end, topic in zip(
                begins.tolist(), ends.tolist(), topics.tolist(), strict=True
            )
        ]


def _column(strings: tuple[str, ...] | list[str]) -> _Words:
    return np.array(strings, dtype=object)


def _quantiles(normal: NormalDist, count: int) -> list[float]:
    return [normal.inv_cdf((i + 0.5) / count) for i in range(count)]


def _zipf(count: int) -> NDArray[np.float64]:
    """Returns the cumulative shares of the words by rank: Zipf-Mandelbrot's 1 / (rank + 2.7).

    It uses only quotients and ordered sums, which IEEE 754 rounds the same on every machine.
    """
    sums = np.cumsum(1 / (np.arange(1, count + 1) + 2.7))
    shares: NDArray[np.float64] = sums / sums[-1]
    return shares


def _spell(number: int) -> str:
    """Spells the word of this rank. The first 96 have one syllable, the next 9,216 two."""
    syllables, words = 1, len(_SYLLABLES)
    while number >= words:
        number -= words
        syllables += 1
        words *= len(_SYLLABLES)
    # The factor is odd and no multiple of 3: the words stay distinct, and neighbours differ much.
    number = number * 60_493 % words
    spelled = ""
    for _ in range(syllables):
        number, last = divmod(number, len(_SYLLABLES))
        spelled += _SYLLABLES[last]
    return spelled
