"""Traces at a URL of somebody else's server, which says one thing and sends another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.traces import make_trace
from tracer.analysis.scale import remote
from tracer.analysis.scale.sources import find_traces, opened
from tracer.probes.errors import BadTrace, UsageError
from tracer.store.packing import pack

pytest.importorskip("aiohttp", reason="aiohttp is not installed")
PART = b"x" * (1 << 20)


@pytest.fixture
def serve() -> Iterator:
    """Serve by a handler, on this machine; gives the URL."""
    running = []

    def start(handler) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class _Endless(BaseHTTPRequestHandler):
    """Says that a pack has 100 bytes, and sends them without end; a listing has none either."""

    sent = 0

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "100")
        self.end_headers()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        try:
            while True:
                self.wfile.write(PART)
                type(self).sent += len(PART)
        except OSError:
            pass

    def log_message(self, *_: object) -> None:
        pass


class _Links(BaseHTTPRequestHandler):
    """Every folder holds a hundred more."""

    def do_GET(self) -> None:
        self.send_response(404 if "manifest" in self.path else 200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"".join(b'<a href="%d/">x</a>' % n for n in range(100)))

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


def test_a_trace_and_a_pack_over_http(tmp_path: Path, serve) -> None:
    (tmp_path / "there").mkdir()
    make_trace(tmp_path / "there/a.trace", {"block": []}).close()
    pack(tmp_path / "there/a.trace", tmp_path / "there/b.tar.zst")
    url = serve(partial(_Quiet, directory=str(tmp_path / "there")))
    (there,) = find_traces([f"{url}/b.tar.zst"])
    with opened(there) as trace:
        assert trace.tables == ["block", "loss"]
    (there,) = find_traces([f"{url}/a.trace"])
    with opened(there) as trace:
        assert trace.tables == ["block", "loss"]
    assert [one.name for one in find_traces([f"{url}/"])] == ["a.trace", "b.tar.zst"]


def test_more_than_was_announced_is_not_copied(serve, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    _Endless.sent = 0
    url = serve(_Endless)
    with (
        pytest.raises(BadTrace, match="longer than the 100 bytes"),
        opened(find_traces([f"{url}/x.tar.zst"])[0]),
    ):
        pass
    assert _Endless.sent < 64 << 20
    assert list(tmp_path.iterdir()) == []


def test_a_file_without_an_announced_size_is_copied_as_far_as_there_is_room(
    tmp_path: Path, serve, monkeypatch
) -> None:
    class Silent(_Endless):
        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(remote, "MOST_BYTES", 3 << 20)
    with (
        pytest.raises(UsageError, match="room for"),
        opened(find_traces([f"{serve(Silent)}/x.tar.zst"])[0]),
    ):
        pass


def test_a_listing_without_end_is_refused(serve) -> None:
    class Listing(_Endless):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def do_GET(self) -> None:
            if "manifest" in self.path:
                self.send_error(404)
            else:
                super().do_GET()

    with pytest.raises(BadTrace, match="cannot be read: its answer is longer"):
        find_traces([serve(Listing)])


def test_folders_without_end_are_refused(serve, monkeypatch) -> None:
    monkeypatch.setattr(remote, "_MOST_ENTRIES", 500)
    with pytest.raises(UsageError, match="holds more than 500 files and folders"):
        find_traces([serve(_Links)])


def test_a_url_within_a_url_is_refused() -> None:
    with pytest.raises(UsageError, match="contains another URL"):
        find_traces(["simplecache::http://127.0.0.1:1/runs"])
