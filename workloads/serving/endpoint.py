"""The client's view of a server: each answer is checked, and bounded in size and time."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import Any

import urllib3
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import HTTPError, LocationParseError, NewConnectionError
from urllib3.exceptions import TimeoutError as TooLate

from tracer.workloads.errors import JobError
from tracer.workloads.serving import unix
from tracer.workloads.serving.bounded import Connection, SecureConnection

_MAX_ANSWER = 4 << 20
_AT_ONCE = 64 << 10
_HEALTH_S = 10.0


class AnswerError(Exception):
    """A request without a valid answer. Failures are counted by `kind`.

    A `kind` is `refused` (no connection), `timeout`, `broken` (the connection broke), `status 500`
    or another status, or `malformed` (no answer of this protocol).
    """

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Endpoint:
    """The server at `url`, over at most `connections` kept-alive connections; thread-safe."""

    def __init__(self, url: str, connections: int = 1) -> None:
        self.url = url
        self._path = ""
        self._pool: HTTPConnectionPool
        if url.startswith(unix.SCHEME):
            path = url.removeprefix(unix.SCHEME)
            self._pool = unix.Pool(path, maxsize=connections, block=True, retries=False)
            return
        mend = "give an address such as http://127.0.0.1:8080 with --url"
        try:
            parsed = urllib3.util.parse_url(url)
        except LocationParseError as error:
            raise JobError(f"{url!r} is not a URL", mend) from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise JobError(f"{url!r} is not the URL of a server", mend)
        self._path = (parsed.path or "").rstrip("/")
        # This ignores a proxy in the environment, which would distort the measurement.
        self._pool = urllib3.connectionpool.connection_from_url(
            url, maxsize=connections, block=True, retries=False
        )
        secure = parsed.scheme == "https"
        self._pool.ConnectionCls = SecureConnection if secure else Connection

    def check(self, model: str) -> None:
        """Raises JobError unless a server of `model` answers at this URL."""
        what = f"no server of {model} answers at {self.url}"
        mend = f"start one with `python -m tracer.workloads serve {model} --checkpoint FILE`"
        try:
            health = self._ask("GET", "/health", None, _HEALTH_S)
        except AnswerError as error:
            raise JobError(f"{what} ({error.kind})", mend) from error
        match health:
            case {"model": str(found)} if found == model:
                return
            case {"model": str(found)}:
                raise JobError(f"{what}: it serves {found[:40]!r}", mend)
            case _:
                raise JobError(f"{what}: it is another program", mend)

    def predict(self, body: bytes, samples: int, timeout_s: float) -> list[int]:
        """Asks for the classes of the `samples` samples in `body`. Raises AnswerError."""
        match self._ask("POST", "/predict", body, timeout_s):
            case {"predictions": list(predictions)} if len(predictions) == samples and all(
                isinstance(prediction, int) for prediction in predictions
            ):
                return predictions
            case _:
                raise AnswerError("malformed")

    def close(self) -> None:
        """Closes the connections."""
        self._pool.close()

    def _ask(self, method: str, path: str, body: bytes | None, timeout_s: float) -> Any:
        deadline = time.monotonic() + timeout_s
        try:
            response = self._pool.urlopen(
                method,
                self._path + path,
                body=body,
                headers={"Content-Type": "application/json"},
                timeout=urllib3.Timeout(total=timeout_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            try:
                answer = _read(response, deadline)
            finally:
                response.close()
                # A response read to its end has already returned its connection to the pool.
                response.release_conn()
        except NewConnectionError:
            raise AnswerError("refused") from None
        except TooLate:
            raise AnswerError("timeout") from None
        except HTTPError:
            raise AnswerError("broken") from None
        if response.status != HTTPStatus.OK:
            raise AnswerError(f"status {response.status}")
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise AnswerError("malformed") from None


def _read(response: urllib3.BaseHTTPResponse, deadline: float) -> bytes:
    answer = b""
    while part := response.read1(_AT_ONCE):
        answer += part
        if len(answer) > _MAX_ANSWER:
            raise AnswerError("malformed")
        if time.monotonic() > deadline:
            raise AnswerError("timeout")
    return answer
