"""Drawn articles: one seed gives the same words everywhere, in Zipf's shares, and learnable."""

from __future__ import annotations

import hashlib
from collections import Counter

from tracer.workloads.data import articles, jsonl
from tracer.workloads.data.vocabulary import split


def drawn(seed: int, part: int, count: int) -> list[jsonl.Article]:
    return list(articles.draw(seed, part, count))


def stems(article: jsonl.Article) -> set[str]:
    words = article.text.lower().replace(".", " ").replace(",", " ").split()
    return {split(word)[0] for word in words}


def test_one_seed_draws_the_same_bytes_on_every_machine():
    whole = b"".join(map(jsonl.pack, drawn(0, 0, 300)))
    assert hashlib.sha256(whole).hexdigest() == (
        "823e61c3d1265d708910ead80e493878acd7830bb93bd928d2c3770ff9c053f1"
    )


def test_another_seed_or_another_split_draws_other_articles():
    texts = [
        article.text for seed in (0, 1) for part in (0, 1) for article in drawn(seed, part, 20)
    ]
    assert len(set(texts)) == 80


def test_an_article_does_not_depend_on_the_number_drawn():
    many = drawn(5, 0, articles.BLOCK + 44)
    assert len(many) == articles.BLOCK + 44
    assert drawn(5, 0, 10) == many[:10]


def test_words_have_zipfs_shares_and_articles_many_lengths():
    found = drawn(0, 0, 1024)
    assert {article.topic for article in found} == set(articles.TOPICS)
    counts = Counter(word for article in found for word in article.text.lower().split())
    (_, first), (_, tenth) = counts.most_common(10)[0], counts.most_common(10)[9]
    # With shares of 1 / (rank + 2.7), the first is 12.7 / 3.7 times as frequent as the tenth.
    assert 2.5 < first / tenth < 4.5
    lengths = sorted(len(article.text.split()) for article in found)
    assert 160 < lengths[512] < 200
    assert lengths[-1] > 5 * lengths[512] > 25 * lengths[0]


def test_the_assumed_size_is_just_above_the_mean():
    sizes = [len(jsonl.pack(article)) for article in drawn(3, 0, 4096)]
    assert 0.8 * articles.MEAN_BYTES < sum(sizes) / len(sizes) < articles.MEAN_BYTES


def test_words_tell_topics_apart():
    of_topic = {topic: Counter() for topic in articles.TOPICS}
    for article in drawn(0, 0, 512):
        of_topic[article.topic].update(stems(article))
    everywhere = sum(of_topic.values(), Counter())
    unseen = drawn(0, 1, 128)
    right = 0
    for article in unseen:
        scores = {
            topic: sum(counts[word] / everywhere[word] for word in stems(article) if counts[word])
            for topic, counts in of_topic.items()
        }
        right += max(scores, key=scores.__getitem__) == article.topic
    assert right > 0.8 * len(unseen)
