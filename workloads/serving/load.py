"""The load on a server: requests at a fixed rate, in an open loop.

The times at which requests are due are drawn beforehand, and a late answer does not delay the next
request. A latency is measured from the time the request was due, not from the time it was sent. If
a server stalls for a second, all requests of that second wait, including those that found no free
connection and were sent afterwards. Measured from the time they were sent, these would look fast
("coordinated omission").
"""

from __future__ import annotations

import itertools
import operator
import random
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from tracer import phases
from tracer.workloads.data.loader import Batch
from tracer.workloads.errors import JobError
from tracer.workloads.job import make_batches
from tracer.workloads.job_data import open_data
from tracer.workloads.options import Arrivals, RequestOptions
from tracer.workloads.progress import Progress
from tracer.workloads.serving.endpoint import AnswerError, Endpoint
from tracer.workloads.serving.protocol import MAX_BODY, encode

MAX_REQUESTS = 10_000_000
_WAITING = 10_000
"""Maximum number of due requests that wait for a connection; further requests are dropped."""
_LATE_S = 0.01
_MAX_DISTINCT = 256
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class Call:
    """A request that is ready to send, and the labels of its samples."""

    body: bytes
    labels: list[int]


@dataclass
class Tally:
    """The counts and latencies of the requests. `started` is a time of time.monotonic.

    `due` requests were to be sent. `dropped` of them were never sent: too many waited, or no
    connection was free before their timeout. `late` were sent more than 10 ms after they were due.
    `wrong` counts samples with a wrong prediction. `latencies` are the seconds from due to answer,
    in the order of the answers. `last_due` and `last_answer` are seconds from `started`.
    """

    started: float = field(default_factory=time.monotonic)
    due: int = 0
    last_due: float = 0.0
    sent: int = 0
    dropped: int = 0
    late: int = 0
    wrong: int = 0
    last_answer: float = 0.0
    failed: Counter[str] = field(default_factory=Counter)
    latencies: array[float] = field(default_factory=lambda: array("d"))


def request(options: RequestOptions) -> dict[str, object]:
    """Sends requests to a server and returns a summary. Raises JobError if no server answers.

    Latencies are from due to answer, over the answered requests.
    """
    due_times = _schedule(options)
    endpoint = Endpoint(options.url, options.connections)
    endpoint.check(options.model)
    with phases.phase("data_load"):
        sets = open_data(options)
        batches = make_batches(options, sets.test, torch.device("cpu"), shuffle=True)
        calls = draw_calls(batches)
    try:
        tally = offer(endpoint, calls, due_times, options)
    finally:
        endpoint.close()
    return {
        "model": options.model,
        "url": options.url,
        "arrivals": options.arrivals.value,
        "seed": options.seed,
        "rate": options.rate,
        **_summary(tally),
        "data": str(sets.folder),
    }


def arrivals(kind: Arrivals, rate: float, seed: int) -> Iterator[float]:
    """Yields times at which requests are due, in seconds from the start, at `rate` per second.

    The iterator has no end.
    """
    if kind is Arrivals.UNIFORM:
        return (number / rate for number in itertools.count(1))
    # Exponential gaps make a Poisson process.
    source = random.Random(seed)
    return itertools.accumulate(source.expovariate(rate) for _ in itertools.repeat(None))


def draw_calls(batches: Iterable[Batch]) -> list[Call]:
    """Makes requests of one batch each: the first 256, or 64 MiB of them.

    Raises JobError if a request is larger than a server accepts.
    """
    calls: list[Call] = []
    size = 0
    for samples, labels in itertools.islice(batches, _MAX_DISTINCT):
        body = encode(samples)
        if len(body) >= MAX_BODY:
            raise JobError(
                f"a request of {len(labels)} samples has {len(body)} bytes, over {MAX_BODY}",
                "lower --batch-size",
            )
        calls.append(Call(body, labels.tolist()))
        size += len(body)
        if size >= _MAX_BYTES:
            break
    return calls


def offer(
    endpoint: Endpoint, calls: list[Call], due_times: Iterator[float], options: RequestOptions
) -> Tally:
    """Sends `calls` in turn, one at each of `due_times` (seconds from now). Waits for the last."""
    waiting = threading.BoundedSemaphore(options.connections + _WAITING)
    lock = threading.Lock()
    tally = Tally()
    expected = options.requests or round(options.rate * (options.seconds or 0))

    def send(call: Call, due: float) -> None:
        try:
            _send(endpoint, call, due, options.timeout_s, tally, lock)
        finally:
            waiting.release()

    with _pool(options.connections) as submit, Progress("request", expected) as progress:
        for offset in due_times:
            due = tally.started + offset
            # A request is never sent early, and at once if it is already due.
            time.sleep(max(0.0, due - time.monotonic()))
            call = calls[tally.due % len(calls)]
            tally.due += 1
            tally.last_due = offset
            if waiting.acquire(blocking=False):
                submit(send, call, due)
            else:
                with lock:
                    tally.dropped += 1
            progress.show(min(tally.due, expected))
    return tally


def _send(
    endpoint: Endpoint,
    call: Call,
    due: float,
    timeout_s: float,
    tally: Tally,
    lock: threading.Lock,
) -> None:
    delay = time.monotonic() - due
    with lock:
        if delay >= timeout_s:
            tally.dropped += 1
            return
        tally.sent += 1
        tally.late += delay > _LATE_S
    failure, predictions = None, []
    try:
        predictions = endpoint.predict(call.body, len(call.labels), timeout_s - delay)
    except AnswerError as error:
        failure = error.kind
    now = time.monotonic()
    with lock:
        if failure is not None:
            tally.failed[failure] += 1
            return
        tally.latencies.append(now - due)
        tally.last_answer = now - tally.started
        tally.wrong += sum(map(operator.ne, predictions, call.labels))


@contextmanager
def _pool(threads: int) -> Iterator[Callable[..., None]]:
    """Yields a function that hands a call to the threads.

    The threads end with the block, and an exception in one of them is raised there.
    """
    broken: list[Future[None]] = []

    def note(future: Future[None]) -> None:
        if not future.cancelled() and future.exception() is not None:
            broken.append(future)

    def submit(call: Callable[..., None], *arguments: object) -> None:
        pool.submit(call, *arguments).add_done_callback(note)

    pool = ThreadPoolExecutor(threads)
    try:
        yield submit
    except BaseException:
        pool.shutdown(cancel_futures=True)
        raise
    pool.shutdown()
    for future in broken:
        future.result()


def _schedule(options: RequestOptions) -> Iterator[float]:
    times = arrivals(options.arrivals, options.rate, options.seed)
    requests, seconds = options.requests, options.seconds
    if requests is not None and seconds is None:
        return itertools.islice(times, requests)
    if requests is not None or seconds is None:
        raise JobError("the number of requests is not set, or set twice", _MEND_NUMBER)
    if options.rate * seconds > MAX_REQUESTS:
        raise JobError(
            f"{options.rate:g} requests per second for {seconds:g} s exceed {MAX_REQUESTS}",
            "lower --rate or --seconds",
        )
    return itertools.takewhile(lambda time: time <= seconds, times)


_MEND_NUMBER = "give --requests or --seconds, not both"


def _summary(tally: Tally) -> dict[str, object]:
    answered = len(tally.latencies)
    return {
        "requests": tally.due,
        "sent": tally.sent,
        "dropped": tally.dropped,
        "late": tally.late,
        "answered": answered,
        "failed": dict(sorted(tally.failed.items())),
        "wrong": tally.wrong,
        "offered_per_s": tally.due / tally.last_due if tally.due else None,
        "achieved_per_s": answered / tally.last_answer if answered else None,
        "latency_ms": _latency_ms(np.frombuffer(tally.latencies)) if answered else None,
    }


def _latency_ms(seconds: NDArray[np.float64]) -> dict[str, float]:
    ms = 1000 * seconds
    p50, p95, p99 = np.percentile(ms, (50, 95, 99))
    return {
        "mean": float(ms.mean()),
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
        "max": float(ms.max()),
    }
