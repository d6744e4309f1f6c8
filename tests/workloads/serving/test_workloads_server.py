"""The server: its answers, its marks, its end, and clients that mean it no good."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from waitress import wasyncore
from waitress.server import create_server

from tests.support.serving import Server, Trained, receive_all
from tracer.workloads.serving.application import Application
from tracer.workloads.serving.channel import channel_class
from tracer.workloads.serving.protocol import encode

pytestmark = pytest.mark.slow


def all_samples(trained: Trained) -> torch.Tensor:
    return torch.stack([sample for sample, _ in (trained.test[i] for i in range(40))])


def is_alive(server: Server) -> bool:
    return server.ask("GET", "/health")[0] == 200


def test_health_says_what_a_sample_looks_like(server: Server):
    status, health = server.ask("GET", "/health")
    assert status == 200
    assert (health["model"], health["classes"], health["step"]) == ("lenet", 10, 60)
    assert health["sample"] == {"dimensions": [1, 28, 28], "dtype": "float32"}


def test_predictions_are_those_of_inference(server: Server, trained: Trained):
    samples = all_samples(trained)
    together = server.ask("POST", "/predict", encode(samples))
    assert together == (200, {"predictions": trained.predictions})
    with ThreadPoolExecutor(8) as pool:
        one_by_one = list(
            pool.map(lambda s: server.ask("POST", "/predict", encode(s.unsqueeze(0))), samples)
        )
    assert one_by_one == [(200, {"predictions": [p]}) for p in trained.predictions]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("POST", "/predict/", 404),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/predict", 405),
        ("DELETE", "/predict", 405),
        ("POST", "/health", 405),
    ],
)
def test_an_unknown_path_is_refused(server: Server, method: str, path: str, status: int):
    answered, answer = server.ask(method, path)
    assert answered == status
    assert list(answer) == ["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x00\xff" * 1000,
        b"[" * 1_000_000,
        b'{"samples": [[[[NaN]]]]}',
        b'{"samples": [[1, 2], [3]]}',
        b'{"samples": ["%s"]}' % (b"x" * 1_000_000),
    ],
)
def test_a_body_that_is_no_request_gets_400(server: Server, body: bytes):
    status, answer = server.ask("POST", "/predict", body)
    assert status == 400
    assert list(answer) == ["error"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000000\r\n\r\n", b"413"),
        (b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST /predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
        (b"GET /health HTTP/1.1\r\nA: " + b"a" * 20_000 + b"\r\n\r\n", b"431"),
        (b"GET /health HTTP/1.1\r\nno header\r\n\r\n", b"400"),
    ],
)
def test_bytes_that_are_not_an_http_request_get_4xx(server: Server, sent: bytes, status: bytes):
    assert server.say(sent).split()[1] == status
    assert is_alive(server)


def test_a_stream_without_end_is_dropped(server: Server):
    part = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    head = b"POST /predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection(server.address, timeout=60) as connection:
        connection.sendall(head)
        with pytest.raises(ConnectionError):
            for _ in range(1000):
                connection.sendall(part)
    assert is_alive(server)


def test_noise_leaves_the_server_alive(server: Server):
    for noise in (b"\x16\x03\x01\x02\x00", b"\r\n\r\n", bytes(range(256)) + b"\r\n\r\n"):
        with socket.create_connection(server.address, timeout=60) as connection:
            connection.sendall(noise)
    assert is_alive(server)


def test_half_a_request_holds_up_nobody(server: Server, trained: Trained):
    head = b"POST /predict HTTP/1.1\r\nContent-Length: 100\r\n\r\n"
    waiting = [socket.create_connection(server.address, timeout=60) for _ in range(20)]
    for connection in waiting:
        connection.sendall(head + b'{"samples"')
    body = encode(all_samples(trained)[:1])
    assert server.ask("POST", "/predict", body)[0] == 200
    for connection in waiting:
        connection.close()
    assert is_alive(server)


def test_a_client_that_is_gone_before_its_answer_harms_nobody(server: Server, trained: Trained):
    body = encode(all_samples(trained))
    head = f"POST /predict HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(5):
        with socket.create_connection(server.address, timeout=60) as connection:
            connection.sendall(head + body)
    assert is_alive(server)


def test_a_client_that_leaves_during_its_refusal_is_no_defect(caplog: pytest.LogCaptureFixture):
    application = Application(None, torch.nn.Identity(), None, None, None)
    ended = threading.Event()

    usual = channel_class(application)

    class Refusal(usual.error_task_class):
        def execute(self) -> None:
            self.channel.handle_close()  # as when the client's reset arrives just now
            super().execute()

    class Channel(usual):
        error_task_class = Refusal

        def service(self) -> None:
            try:
                super().service()
            finally:
                ended.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = create_server(application, map={}, sockets=[listener], threads=1)
        server.channel_class = Channel
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"\r\nno HTTP\r\n\r\n")
            while not ended.is_set():
                wasyncore.poll(0.1, map=server._map)
        server.task_dispatcher.shutdown()
        wasyncore.close_all(server._map)
    assert application.refused == 1
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_the_slow_are_dropped_and_sigterm_ends_the_server(serve: Callable[..., Server]):
    server = serve("--patience", 1)
    silent = socket.create_connection(server.address, timeout=60)
    silent.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
    with socket.create_connection(server.address, timeout=60) as dripping:
        dripping.sendall(b"POST /predict HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n")
        with pytest.raises(ConnectionError):
            for _ in range(600):
                dripping.sendall(b"[")
                time.sleep(0.1)
    assert receive_all(silent) == b""
    silent.close()
    status, summary, err = server.end(signal.SIGTERM)
    assert (status, err) == (0, "")
    assert (summary["answered"], summary["refused"]) == (0, 0)


def test_ctrl_c_ends_it_with_a_summary_and_every_request_is_marked(
    serve: Callable[..., Server], trained: Trained, spans, tmp_path: Path
):
    server = serve("--handlers", 2, TRACER_MARKS=str(tmp_path))
    bodies = [encode(sample.unsqueeze(0)) for sample in all_samples(trained)[:23]]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda body: server.ask("POST", "/predict", body), bodies))
    assert all(status == 200 for status, _ in answers)
    assert server.ask("POST", "/predict", encode(all_samples(trained)))[0] == 200
    assert server.ask("POST", "/predict", b"nonsense")[0] == 400
    assert server.say(b"nonsense\r\n\r\n").split()[1] == b"400"
    # One that stays open must not keep it.
    with socket.create_connection(server.address):
        status, summary, err = server.end(signal.SIGINT)
    assert (status, err) == (0, "")
    assert list(summary) == [
        *("model", "checkpoint", "handlers", "answered", "samples", "refused", "seconds"),
    ]
    assert (summary["answered"], summary["samples"], summary["refused"]) == (24, 63, 2)
    found = spans(tmp_path)
    assert {span.pid for span in found} == {server.process.pid}
    assert Counter((span.inside, span.name) for span in found) == {
        ((), "model_load"): 1,
        ((), "inference"): 1,
        # On threads of their own: 24 answered, and one that was JSON to nobody.
        ((), "eval"): 25,
        (("eval",), "fetch"): 25,
    }
    assert sorted(span.step for span in found if span.name == "eval") == list(range(25))


def test_a_port_that_is_taken_is_told_in_a_line(command, server: Server, trained: Trained):
    port = server.address[1]
    answer = command("serve", "lenet", "--checkpoint", trained.checkpoint, "--port", port)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err == (
        f"error: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "name another --host or --port; --port 0 takes any free port\n"
    )


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "a..b", "x" * 100])
def test_a_host_that_is_not_this_machine_is_told(command, trained: Trained, host: str):
    answer = command("serve", "lenet", "--checkpoint", trained.checkpoint, "--host", host)
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith(f"error: cannot listen on {host}:8080: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({}, "lacks the shape of its training data; an older version wrote it"),
        ({"sample": 3}, "is not a checkpoint of these jobs"),
        ({"sample": {"classes": 10}}, "is not a checkpoint of these jobs"),
        ({"name": "resnet"}, "holds a 'resnet', not a 'lenet'"),
        ({"classes": 11}, "do not fit the model"),
        ({"classes": 10**12}, "is not a checkpoint of these jobs"),
        ({"classes": 0}, "is not a checkpoint of these jobs"),
        ({"dimensions": [3, 28, 28]}, "gives a sample shape that its model does not accept"),
        ({"dtype": "int64"}, "gives a sample shape that its model does not accept"),
        ({"dimensions": [10**9, 10**9]}, "is not a checkpoint of these jobs"),
        ({"dimensions": ["1"]}, "is not a checkpoint of these jobs"),
        ({"dtype": "object"}, "is not a checkpoint of these jobs"),
    ],
)
def test_a_checkpoint_that_cannot_be_served_is_told(
    command, trained: Trained, tmp_path: Path, change: dict[str, object], complaint: str
):
    state = torch.load(trained.checkpoint, weights_only=True)
    sample = state.pop("sample")
    assert sample == {
        "classes": 10,
        "vocabulary": 0,
        "side": 28,
        "dimensions": [1, 28, 28],
        "dtype": "float32",
    }
    if set(change) <= set(sample) and change:
        state["sample"] = sample | change
    else:
        state |= change
    path = tmp_path / "checkpoint.pt"
    torch.save(state, path)
    answer = command("serve", "lenet", "--checkpoint", path, "--port", 0)
    assert (answer.status, answer.out) == (2, "")
    assert complaint in answer.err
    assert answer.err.count("\n") == 1


def test_inference_still_reads_checkpoints_without_the_shape(
    command, trained: Trained, tmp_path: Path
):
    state = torch.load(trained.checkpoint, weights_only=True)
    del state["sample"]
    torch.save(state, tmp_path / "old.pt")
    answer = command(
        *("infer", "lenet", "--checkpoint", tmp_path / "old.pt", "--data", trained.data),
        *("--workers", 0, "--output", tmp_path / "infer"),
    )
    assert answer.status == 0
    right = sum(a == b for a, b in zip(trained.labels, trained.predictions, strict=True))
    assert json.loads(answer.out)["accuracy"] == right / 40
