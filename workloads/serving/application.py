"""The WSGI application. A model answers the requests of `tracer.workloads.serving.protocol`.

Each complete POST to /predict is marked as an `eval` with its number, on the thread that answers.
Inside it, a `fetch` marks the reading of the body.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from tracer import phases
from tracer.workloads.checkpoint import Checkpoint
from tracer.workloads.data.sets import SampleShape
from tracer.workloads.models.workload import Workload
from tracer.workloads.serving.protocol import RequestError, decode

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_METHODS = {"/health": "GET", "/predict": "POST"}


class Application:
    """The application. It answers requests on any number of threads at once, and counts them."""

    def __init__(
        self,
        workload: Workload,
        model: nn.Module,
        state: Checkpoint,
        sample: SampleShape,
        device: torch.device,
    ) -> None:
        self._workload = workload
        self._model = model.eval()
        self._state = state
        self._sample = sample
        self._device = device
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self.answered = 0
        """Requests that were answered with predictions."""
        self.samples = 0
        """Samples in the answered requests."""
        self.refused = 0
        """Requests that were answered with an error."""

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        headers = [("Content-Type", "application/json")]
        path = environ["PATH_INFO"]
        answer: dict[str, Any]
        try:
            method = _METHODS.get(path)
            if method is None:
                raise RequestError(HTTPStatus.NOT_FOUND, f"only {' and '.join(_METHODS)} exist")
            if environ["REQUEST_METHOD"] != method:
                headers.append(("Allow", method))
                raise RequestError(HTTPStatus.METHOD_NOT_ALLOWED, f"{path} takes {method}")
            answer = self._health() if path == "/health" else self._predict(environ)
            status = HTTPStatus.OK
        except RequestError as error:
            self.count_refused()
            status = error.status
            answer = {"error": str(error)}
        body = json.dumps(answer).encode()
        headers.append(("Content-Length", str(len(body))))
        start_response(f"{status.value} {status.phrase}", headers)
        return [body]

    def takes_its_samples(self) -> bool:
        """Returns whether the model accepts samples of the checkpoint's shape.

        This is also the first, slower run of the model.
        """
        sample = torch.zeros(1, *self._sample.dimensions, dtype=self._sample.dtype)
        try:
            return len(self._compute(sample)) == 1
        except (RuntimeError, ValueError, TypeError, LookupError, AssertionError):
            return False

    def count_refused(self) -> None:
        """Counts a request that the application or the HTTP server refused."""
        with self._lock:
            self.refused += 1

    def _health(self) -> dict[str, object]:
        return {
            "model": self._workload.name,
            "classes": self._sample.classes,
            "sample": {
                "dimensions": list(self._sample.dimensions),
                "dtype": str(self._sample.dtype).removeprefix("torch."),
            },
            "step": self._state.step,
            "answered": self.answered,
            "refused": self.refused,
        }

    def _predict(self, environ: WSGIEnvironment) -> dict[str, object]:
        with phases.phase("eval", step=next(self._numbers)):
            with phases.phase("fetch"):
                samples = decode(environ["wsgi.input"].read(), self._sample)
            predictions = self._run(samples)
        with self._lock:
            self.answered += 1
            self.samples += len(predictions)
        return {"predictions": predictions}

    def _run(self, samples: Tensor) -> list[int]:
        try:
            return self._compute(samples)
        except (RuntimeError, MemoryError) as error:
            # For example, the GPU lacks memory for this request; the next may be smaller.
            reason = str(error).partition("\n")[0]
            sys.stderr.write(f"error: a request could not be answered: {reason}\n")
            raise RequestError(
                HTTPStatus.INTERNAL_SERVER_ERROR, "the model failed on these samples"
            ) from None

    def _compute(self, samples: Tensor) -> list[int]:
        # Inference mode applies per thread.
        with torch.inference_mode():
            outputs = self._model(samples.to(self._device))
            predictions: list[int] = self._workload.predict(outputs).tolist()
        return predictions
