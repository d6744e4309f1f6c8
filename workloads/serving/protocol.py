"""The protocol between client and server: JSON over HTTP.

    GET /health     answers {"model": "lenet", "classes": 10, "sample": {"dimensions": [1, 28, 28],
                    "dtype": "float32"}, "step": 200, "answered": 0, "refused": 0}
    POST /predict   takes {"samples": [SAMPLE, ...]} and answers {"predictions": [CLASS, ...]}

A SAMPLE is a nested list of numbers with the dimensions in /health, as the data set gives it to the
model. Every other answer is {"error": "..."} with a status of 400 or above.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import NoReturn

import torch
from torch import Tensor

from tracer.workloads.data.sets import SampleShape

MAX_BODY = 8 << 20
"""Maximum bytes of a request: two samples of 3 x 224 x 224 numbers with all digits."""


class RequestError(Exception):
    """A refused request, with the HTTP status of the answer."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def encode(samples: Tensor) -> bytes:
    """Returns the body of a request for predictions of `samples`, [sample, ...]."""
    return json.dumps({"samples": samples.tolist()}, allow_nan=False).encode()


def decode(body: bytes, shape: SampleShape) -> Tensor:
    """Returns the samples in a request, [sample, *shape.dimensions]. Raises RequestError."""
    try:
        request = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise _bad("the body is not JSON") from None
    match request:
        case {"samples": [_, *_] as samples, **others} if not others:
            return _tensor(samples, shape)
        case _:
            raise _bad('the body is not {"samples": [SAMPLE, ...]}')


def _tensor(samples: list[object], shape: SampleShape) -> Tensor:
    try:
        exact = torch.tensor(samples, dtype=torch.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise _bad("the samples are not numbers in lists of equal lengths") from None
    if exact.shape[1:] != shape.dimensions:
        found, wanted = (list(dimensions) for dimensions in (exact.shape[1:], shape.dimensions))
        raise _bad(f"a sample needs the dimensions {wanted}, but has {found}")
    tensor = exact.to(shape.dtype)
    if shape.dtype.is_floating_point:
        if not tensor.isfinite().all():
            raise _bad(f"a number is not a finite {_name(shape.dtype)}")
    elif not (tensor == exact).all():
        raise _bad(f"a number is not an exact {_name(shape.dtype)}")
    elif shape.vocabulary and not ((exact >= 0) & (exact < shape.vocabulary)).all():
        # On a GPU, such a token in an embedding would end the whole process.
        raise _bad(f"a token is not in the range 0 to {shape.vocabulary - 1}")
    return tensor


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _bad(why: str) -> RequestError:
    return RequestError(HTTPStatus.BAD_REQUEST, why)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
