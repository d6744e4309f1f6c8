"""Requests as bytes: what is no request for predictions is refused with a reason."""

from __future__ import annotations

import json

import pytest
import torch

from tracer.workloads.data.sets import SampleShape
from tracer.workloads.serving.protocol import RequestError, decode, encode

PAIR = SampleShape(classes=10, dimensions=(2,), dtype=torch.float32)
TEXT = SampleShape(classes=2, vocabulary=100, dimensions=(3,), dtype=torch.int64)


def samples(value: object) -> bytes:
    return json.dumps({"samples": value}).encode()


def test_decoding_returns_exactly_the_encoded_bits():
    images = torch.randn(3, 2, generator=torch.Generator().manual_seed(23))
    assert torch.equal(decode(encode(images), PAIR), images)
    tokens = torch.tensor([[0, 99, 7]])
    decoded = decode(encode(tokens), TEXT)
    assert torch.equal(decoded, tokens)
    assert decoded.dtype == torch.int64


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"samples=1", "not JSON"),
        (b'{"samples": [[1, 2]', "not JSON"),
        (b'{"samples": [[1, NaN]]}', "not JSON"),
        (b'{"samples": [[1, -Infinity]]}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"samples": [[1, %s]]}' % (b"9" * 5000), "not JSON"),
        (b"[[1, 2]]", "the body is not"),
        (b"{}", "the body is not"),
        (samples([]), "the body is not"),
        (samples("12"), "the body is not"),
        (samples({"0": [1, 2]}), "the body is not"),
        (b'{"samples": [[1, 2]], "model": "other"}', "the body is not"),
        (samples([[1, 2], [3]]), "not numbers in lists"),
        (samples([[1, "2"]]), "not numbers in lists"),
        (samples([[1, None]]), "not numbers in lists"),
        (samples([[1, {}]]), "not numbers in lists"),
        (samples([[1, 10**400]]), "not numbers in lists"),
        (b'{"samples": %s%s}' % (b"[" * 500, b"]" * 500), "not numbers in lists"),
        (samples([1, 2]), r"dimensions \[2\], but has \[\]"),
        (samples([[1, 2, 3]]), r"dimensions \[2\], but has \[3\]"),
        (samples([[[1, 2]]]), r"dimensions \[2\], but has \[1, 2\]"),
        (samples([[]]), r"dimensions \[2\], but has \[0\]"),
        (b'{"samples": [[1, 1e999]]}', "not a finite float32"),
        (samples([[1, 1e300]]), "not a finite float32"),
    ],
)
def test_no_samples_of_this_model(body: bytes, why: str):
    with pytest.raises(RequestError, match=why) as caught:
        decode(body, PAIR)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        ([0, 1, 100], "a token is not in the range 0 to 99"),
        ([0, 1, -1], "a token is not in the range 0 to 99"),
        ([0, 1, 0.5], "a number is not an exact int64"),
        ([0, 1, 1e300], "a number is not an exact int64"),
    ],
)
def test_no_tokens_of_this_vocabulary(tokens: list[float], why: str):
    with pytest.raises(RequestError, match=why):
        decode(samples([tokens]), TEXT)
