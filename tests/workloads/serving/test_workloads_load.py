"""The client: exactly as many requests as asked for, latencies from due, failures by kind."""

from __future__ import annotations

import contextlib
import http.server
import itertools
import json
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from tests.support.serving import Server, Trained
from tests.support.waiting import wait_for
from tracer.workloads.errors import JobError
from tracer.workloads.options import Arrivals, RequestOptions
from tracer.workloads.serving.endpoint import AnswerError, Endpoint
from tracer.workloads.serving.load import Call, arrivals, draw_calls, offer

pytestmark = pytest.mark.slow

SUMMARY_KEYS = [
    *("model", "url", "arrivals", "seed", "rate", "requests", "sent", "dropped", "late"),
    *("answered", "failed", "wrong", "offered_per_s", "achieved_per_s", "latency_ms", "data"),
]


@pytest.fixture
def ask(command, trained: Trained) -> Callable[..., object]:
    def run(*arguments: object):
        # Patient: what these tests are about is no machine's speed.
        return command("request", "lenet", "--data", trained.data, "--timeout", 60, *arguments)

    return run


def calls_of(trained: Trained) -> list[Call]:
    samples = [trained.test[index] for index in range(40)]
    return draw_calls((sample.unsqueeze(0), torch.tensor([label])) for sample, label in samples)


def answered(server: Server) -> int:
    return server.ask("GET", "/health")[1]["answered"]


def test_n_requests_are_n_requests(ask, server: Server, trained: Trained):
    before = answered(server)
    answer = ask("--url", server.url, "--rate", 200, "--requests", 40, "--seed", 3)
    assert (answer.status, answer.err) == (0, "")
    summary = json.loads(answer.out)
    assert list(summary) == SUMMARY_KEYS
    sent = {"requests": 40, "sent": 40, "answered": 40, "dropped": 0, "failed": {}}
    assert sent.items() <= summary.items()
    assert answered(server) == before + 40
    # 40 test samples, drawn without putting back: each was asked for once.
    wrong = sum(a != b for a, b in zip(trained.labels, trained.predictions, strict=True))
    assert summary["wrong"] == wrong > 0
    latency = summary["latency_ms"]
    assert list(latency) == ["mean", "p50", "p95", "p99", "max"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"] <= latency["max"]


def test_seconds_at_an_even_rate(ask, server: Server):
    answer = ask("--url", server.url + "/", "--rate", 46, "--seconds", 0.5, "--arrivals", "uniform")
    summary = json.loads(answer.out)
    assert (summary["requests"], summary["answered"]) == (23, 23)
    assert summary["offered_per_s"] == pytest.approx(46)
    assert summary["achieved_per_s"] <= 46


def test_a_request_may_have_more_samples(ask, server: Server, trained: Trained):
    # 40 test samples in requests of 7, 7, 7, 7, 7 and 5.
    answer = ask("--url", server.url, "--rate", 100, "--requests", 6, "--batch-size", 7)
    summary = json.loads(answer.out)
    wrong = sum(a != b for a, b in zip(trained.labels, trained.predictions, strict=True))
    assert (summary["answered"], summary["wrong"]) == (6, wrong)


def test_a_request_that_no_server_takes_is_told_beforehand():
    batch = torch.zeros(1000, 1, 100, 100), torch.zeros(1000)
    with pytest.raises(JobError, match=r"of 1000 samples has \d+ bytes, .*; lower --batch-size"):
        draw_calls([batch])


def test_arrivals_follow_the_rate_and_the_seed():
    def first(count: int, *arguments: object) -> list[float]:
        return list(itertools.islice(arrivals(*arguments), count))

    assert first(4, Arrivals.UNIFORM, 4, 0) == [0.25, 0.5, 0.75, 1.0]
    drawn = first(10_000, Arrivals.POISSON, 100, 3)
    assert drawn == first(10_000, Arrivals.POISSON, 100, 3)
    assert drawn != first(10_000, Arrivals.POISSON, 100, 4)
    assert drawn[-1] == pytest.approx(100, rel=0.05)
    gaps = [b - a for a, b in itertools.pairwise(drawn)]
    # 1/e of exponential gaps are above their mean.
    assert sum(gap > 0.01 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)


def test_a_server_that_stood_still_is_seen_in_all_that_were_due(server: Server, trained: Trained):
    """One connection: closed, the loop would have one slow answer, and quick ones after it."""
    options = RequestOptions(
        model="lenet", output=Path("unused"), rate=100, requests=23, connections=1, timeout_s=60
    )
    offsets = [number / 100 for number in range(1, 24)]
    resumed: list[float] = []

    def resume() -> None:
        resumed.append(time.monotonic())
        server.process.send_signal(signal.SIGCONT)

    endpoint = Endpoint(server.url)
    server.process.send_signal(signal.SIGSTOP)
    timer = threading.Timer(0.5, resume)
    timer.start()
    try:
        tally = offer(endpoint, calls_of(trained), iter(offsets), options)
    finally:
        timer.join()
        endpoint.close()
    assert (tally.sent, len(tally.latencies), tally.dropped) == (23, 23, 0)
    for offset, latency in zip(offsets, tally.latencies, strict=True):
        # No answer came before the server went on.
        assert latency >= resumed[0] - (tally.started + offset)
    assert tally.late > 0


def test_a_server_that_never_answers_costs_each_request_only_its_time_limit(trained: Trained):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = Endpoint(f"http://127.0.0.1:{silent.getsockname()[1]}")
        options = RequestOptions(
            model="lenet", output=Path("unused"), rate=100, requests=7, connections=1, timeout_s=1
        )
        offsets = [number / 100 for number in range(1, 8)]
        tally = offer(endpoint, calls_of(trained), iter(offsets), options)
        endpoint.close()
    assert tally.failed["timeout"] == tally.sent > 0
    assert tally.sent + tally.dropped == tally.due == 7
    assert not tally.latencies


HEAD = b"HTTP/1.1 200 OK\r\n"
WITH_BODY = HEAD + b"Content-Length: 1000000\r\n\r\n"


@pytest.mark.parametrize("first", [HEAD + b"X: ", WITH_BODY], ids=["headers", "body"])
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX], ids=["tcp", "unix"])
def test_an_answer_that_trickles_costs_its_request_only_its_time_limit(
    tmp_path: Path, first: bytes, family: socket.AddressFamily
):
    address = ("127.0.0.1", 0) if family == socket.AF_INET else str(tmp_path / "socket")
    kinds: list[str] = []

    def trickle(connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:  # the client closes it
            connection.sendall(first)
            while True:
                connection.sendall(b" ")
                time.sleep(0.02)

    def serve() -> None:
        with contextlib.suppress(OSError):  # the test closes it
            while True:
                threading.Thread(target=trickle, args=(server.accept()[0],), daemon=True).start()

    def ask() -> None:
        for _ in range(3):
            try:
                endpoint.predict(b"{}", 1, 0.2)
            except AnswerError as error:
                kinds.append(error.kind)

    with socket.create_server(address, family=family) as server:
        threading.Thread(target=serve, daemon=True).start()
        is_unix = family == socket.AF_UNIX
        url = f"unix:{address}" if is_unix else f"http://127.0.0.1:{server.getsockname()[1]}"
        endpoint = Endpoint(url)  # of one connection
        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(60)
        server.shutdown(socket.SHUT_RDWR)
    assert kinds == ["timeout"] * 3


def test_a_server_that_dies_is_counted(ask, serve: Callable[..., Server]):
    server = serve()

    def kill() -> None:
        # The last answers that the server has counted may not have left it.
        wait_for(lambda: answered(server) >= 20, "twenty answers")
        server.process.kill()

    with ThreadPoolExecutor(1) as pool:
        killing = pool.submit(kill)
        answer = ask("--url", server.url, "--rate", 100, "--requests", 151)
        killing.result()
    summary = json.loads(answer.out)
    assert (answer.status, summary["sent"]) == (0, 151)
    assert summary["answered"] >= 5
    assert summary["failed"]["refused"] > 0
    assert summary["answered"] + sum(summary["failed"].values()) == 151


def test_ctrl_c_ends_the_client_quietly(start, server: Server, trained: Trained):
    before = answered(server)
    client = start(
        *("request", "lenet", "--url", server.url, "--rate", 50, "--seconds", 1000),
        *("--data", trained.data),
    )
    wait_for(lambda: answered(server) > before, "an answer")
    client.send_signal(signal.SIGINT)
    out, err = client.communicate(timeout=60)
    assert (client.returncode, out, err) == (130, "", "")


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server of something else; gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as other:
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{other.server_port}"
        other.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (404, b"", " (status 404)"),
        (302, b"", " (status 302)"),
        (200, b"<html>", " (malformed)"),
        (200, b"[" * 100_000, " (malformed)"),
        (200, b"x" * 5_000_000, " (malformed)"),
        (200, b'{"version": 3}', ": it is another program"),
        (200, b'{"model": "resnet"}', ": it serves 'resnet'"),
    ],
)
def test_another_server_is_told_in_a_line(ask, status: int, body: bytes, reason: str):
    with answering(status, body) as url:
        answer = ask("--url", url, "--rate", 1, "--requests", 1)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == (
        f"error: no server of lenet answers at {url}{reason}; "
        "start one with `python -m tracer.workloads serve lenet --checkpoint FILE`\n"
    )


def test_no_server_is_told_in_a_line(ask):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unheard.getsockname()[1]}"
        answer = ask("--url", url, "--rate", 1, "--requests", 1)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith(f"error: no server of lenet answers at {url} (refused); start one")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--requests", 1], "Missing option '--rate'"),
        (["--rate", 0, "--requests", 1], "Invalid value for '--rate'"),
        (["--rate", "inf", "--requests", 1], "Invalid value for '--rate'"),
        (["--rate", 1, "--requests", 0], "Invalid value for '--requests'"),
        (["--rate", 1, "--seconds", -1], "Invalid value for '--seconds'"),
        (["--rate", 1, "--seconds", 1, "--arrivals", "late"], "Invalid value for '--arrivals'"),
        (["--rate", 1], "the number of requests is not set"),
        (["--rate", 1, "--seconds", 1, "--requests", 1], "the number of requests is not set"),
        (["--rate", 1e6, "--seconds", 1e6], "exceed 10000000"),
        (
            ["--rate", 1, "--requests", 1, "--url", "ftp://a"],
            "'ftp://a' is not the URL of a server",
        ),
        (["--rate", 1, "--requests", 1, "--url", "http://[1"], "'http://[1' is not a URL"),
        (["--rate", 1, "--requests", 1, "--url", ""], "'' is not the URL of a server"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(ask, arguments: list[object], complaint: str):
    answer = ask(*arguments)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("error: ")
    assert complaint in answer.err
    assert answer.err.count("\n") == 1
