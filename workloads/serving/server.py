"""Serving of a trained model from its checkpoint over HTTP, until Ctrl-C or SIGTERM.

The marks are `model_load`, then `inference` around all serving, with one `eval` per request on the
threads that answer. There is no `data_load`, since the checkpoint has the shape of the data set.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from waitress import wasyncore
from waitress.server import BaseWSGIServer, create_server

from tracer import phases
from tracer.workloads import checkpoint, models
from tracer.workloads.errors import JobError, explained
from tracer.workloads.job import build_model, choose_device, load_checkpoint, set_threads
from tracer.workloads.options import ServeOptions
from tracer.workloads.serving.application import Application
from tracer.workloads.serving.channel import channel_class
from tracer.workloads.serving.protocol import MAX_BODY

_CONNECTIONS = 100
_HEADER_BYTES = 16 << 10
# Waitress writes longer bodies to a file. This limit keeps a sample of an image model in memory.
_IN_MEMORY = 4 << 20


def serve(options: ServeOptions) -> dict[str, object]:
    """Answers requests until Ctrl-C or SIGTERM and returns a summary. Raises JobError.

    Prints its address on stderr once it listens.
    """
    workload = models.load(options.model)
    device = choose_device(options.device)
    set_threads(options.threads)
    with _listener(options) as listener:
        with phases.phase("model_load"):
            state = load_checkpoint(workload, options.checkpoint, device)
            if state.sample is None:
                raise JobError(
                    f"{options.checkpoint} lacks the shape of its training data",
                    "an older version wrote it; train again",
                )
            model = build_model(workload, state.sample, device)
            checkpoint.restore(model, state, options.checkpoint)
            application = Application(workload, model, state, state.sample, device)
            if not application.takes_its_samples():
                raise JobError(
                    f"{options.checkpoint} gives a sample shape that its model does not accept",
                    "name a checkpoint.pt that `train` wrote for this model",
                )
        with phases.phase("inference"):
            seconds = _run(application, listener, options)
    return {
        "model": workload.name,
        "checkpoint": str(options.checkpoint.absolute()),
        "handlers": options.handlers,
        "answered": application.answered,
        "samples": application.samples,
        "refused": application.refused,
        "seconds": seconds,
    }


def _run(application: Application, listener: socket.socket, options: ServeOptions) -> float:
    """Serves requests and returns the seconds that it served."""
    # Clients often disconnect or queue up, so warnings are hidden; defects are still logged.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    channels: dict[int, Any] = {}
    started = time.monotonic()
    try:
        with _until_asked_to_end():
            with explained(f"cannot listen at {_address(listener)}", _MEND_PORT):
                server = create_server(
                    application,
                    map=channels,
                    sockets=[listener],
                    threads=options.handlers,
                    connection_limit=_CONNECTIONS,
                    asyncore_use_poll=True,
                    channel_timeout=options.patience_s,
                    cleanup_interval=1,
                    log_socket_errors=False,
                    max_request_header_size=_HEADER_BYTES,
                    max_request_body_size=MAX_BODY,
                    inbuf_overflow=_IN_MEMORY,
                    clear_untrusted_proxy_headers=False,
                    ident=None,
                )
            assert isinstance(server, BaseWSGIServer)  # as always with a single socket
            server.channel_class = channel_class(application)
            sys.stderr.write(f"Serving {options.model} at {_address(listener)}\n")
            sys.stderr.flush()
            # It ends at a KeyboardInterrupt, after the requests in progress are answered.
            server.run()
    except KeyboardInterrupt:
        pass
    finally:
        wasyncore.close_all(channels, ignore_all=True)
    return time.monotonic() - started


@contextmanager
def _until_asked_to_end() -> Iterator[None]:
    """Lets Ctrl-C and SIGTERM raise KeyboardInterrupt in the block; a second ends the process."""

    def end(*_: object) -> None:
        put_back()
        raise KeyboardInterrupt

    def put_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before: dict[int, Any] = {}
    # Only the main thread handles signals. Signals that a shell ignores for its background jobs
    # stay ignored.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        put_back()


_MEND_PORT = "name another --host or --port; --port 0 takes any free port"
_MEND_SOCKET = "name another --socket, in an existing folder"


@contextmanager
def _listener(options: ServeOptions) -> Iterator[socket.socket]:
    """Yields a socket bound to the address. It does not listen yet: the model is loaded first."""
    if options.socket is None:
        with _bound(options.host, options.port) as listener:
            yield listener
        return
    path = options.socket
    with socket.socket(socket.AF_UNIX) as listener:
        # Open to all users of this machine, as a port is. A chmod() of the path would follow a link
        # that somebody puts there meanwhile.
        before = os.umask(0o111)
        try:
            with explained(f"cannot listen at {path}", _MEND_SOCKET):
                listener.bind(str(path))
        finally:
            os.umask(before)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _bound(host: str, port: int) -> socket.socket:
    what = f"cannot listen on {host}:{port}"
    with explained(what, _MEND_PORT):
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except UnicodeError as error:
            raise JobError(f"{what}: this is not a valid host name", _MEND_PORT) from error
        family, kind, protocol, _, address = found[0]
        listener = socket.socket(family, kind, protocol)
        try:
            # Connections of an earlier server may still be closing.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    return listener


def _address(listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
