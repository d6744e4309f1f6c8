"""A tab of a real browser that is clicked, typed into and resized, over Chromium's own pipe.

The protocol is that of Chromium's developer tools: JSON, each message ended by a NUL.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support.browser import find

_DEADLINE_S = 120.0


class _Pipe:
    """The two pipes to a browser: commands, and its answers and events."""

    def __init__(self, to: int, come: int) -> None:
        self._to, self._come = to, come
        self._number = 0
        self._rest = b""

    def send(self, method: str, params: dict[str, Any], session: str | None) -> int:
        """Send a command; the number that its answer will have."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._to, data) :]
        return self._number

    def receive(self) -> dict[str, Any]:
        """The next answer or event of any tab."""
        while b"\0" not in self._rest:
            assert select.select([self._come], [], [], _DEADLINE_S)[0], "the browser is silent"
            data = os.read(self._come, 1 << 20)
            assert data, "the browser is gone"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(line))


class Tab:
    """An open page; keeps what it says and asks for."""

    def __init__(self, pipe: _Pipe, session: str | None = None) -> None:
        self._pipe = pipe
        self._session = session
        self.console: list[str] = []
        """Messages of the console: warnings and errors of the page and of the browser."""
        self.asked: list[str] = []
        """Addresses that were asked for, but for files and data in the page."""

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer."""
        number = self._pipe.send(method, params, self._session)
        deadline = time.monotonic() + _DEADLINE_S
        while True:
            told = self._pipe.receive()
            if told.get("id") == number:
                assert "error" not in told, told
                return dict(told["result"])
            if told.get("sessionId") == self._session:
                self._note(told)
            assert time.monotonic() < deadline, method

    def _note(self, told: dict[str, Any]) -> None:
        params = told.get("params", {})
        match told.get("method"):
            case "Runtime.exceptionThrown":
                self.console.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.console.append(str(params["args"]))
            case "Log.entryAdded":
                self.console.append(str(params["entry"]["text"]))
            case "Network.requestWillBeSent":
                url = str(params["request"]["url"])
                if not url.startswith(("file:", "data:", "blob:")):
                    self.asked.append(url)
            case "Page.javascriptDialogOpening":
                self.console.append(f"dialog: {params['message']}")

    def open(self, page: Path) -> None:
        """Show a page, and wait until all of its figures are drawn."""
        self.ask("Page.navigate", url=page.absolute().as_uri())
        self.until(
            "document.readyState === 'complete' && (document.documentElement.dataset.drawn"
            " !== undefined || !document.documentElement.classList.contains('scripted'))"
        )

    def js(self, expression: str) -> Any:
        """The value of an expression, which may be a promise."""
        found = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _DEADLINE_S
        while not self.js(expression):
            assert time.monotonic() < deadline, expression
            time.sleep(0.05)

    def place(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element, scrolled to."""
        x, y, width, height = self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
            " e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect();"
            " return [r.x, r.y, r.width, r.height]; })()"
        )
        return x, y, width, height

    def mouse(self, kind: str, x: float, y: float, clicks: int = 1) -> None:
        """A mouse event: mouseMoved, mousePressed or mouseReleased."""
        button = "none" if kind == "mouseMoved" else "left"
        held = 1 if kind == "mousePressed" else 0
        self.ask(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=clicks,
            buttons=held,
        )  # fmt: skip

    def click(self, selector: str) -> None:
        """Click the middle of an element."""
        x, y, width, height = self.place(selector)
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x + width / 2, y + height / 2)

    def drag(self, selector: str, begin: float, end: float) -> None:
        """Drag over an element from one share of its width to another."""
        x, y, width, height = self.place(selector)
        middle = y + height / 2
        self.mouse("mouseMoved", x + begin * width, middle)
        self.mouse("mousePressed", x + begin * width, middle)
        for step in range(1, 6):
            at = x + (begin + (end - begin) * step / 5) * width
            self.ask(
                "Input.dispatchMouseEvent", type="mouseMoved", x=at, y=middle, button="left",
                buttons=1,
            )  # fmt: skip
        self.mouse("mouseReleased", x + end * width, middle)

    def key(self, name: str, text: str = "") -> None:
        """Press and release a key."""
        codes = {"Enter": 13, "Tab": 9, " ": 32, "ArrowRight": 39, "ArrowLeft": 37, "End": 35}
        code = codes.get(name, 0)
        told = {"key": name, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        self.ask("Input.dispatchKeyEvent", type="keyDown", **told)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def size(self, width: int, height: int = 900, phone: bool = False) -> None:
        """Sets the size of the window; `phone`: with touch instead of a mouse."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
            mobile=phone,
        )  # fmt: skip
        self.ask("Emulation.setTouchEmulationEnabled", enabled=phone)

    def prefer(self, scheme: str) -> None:
        """Sets the system's preference for light or dark."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def restore(self) -> None:
        """Undo what tests do to a page: its tab, its zoom, its colours, and the media it is for."""
        self.ask("Emulation.setEmulatedMedia", media="", features=[])
        self.js(
            "(() => { document.activeElement.blur(); history.replaceState(null, '', ' ');"
            " document.querySelector('[role=tab]').click(); scrollTo(0, 0);"
            " const all = document.querySelector('[data-zoom=all]'); if (all) all.click();"
            " const theme = document.getElementById('theme');"
            " while (document.documentElement.dataset.theme) theme.click(); })()"
        )

    def pdf(self) -> bytes:
        """The page as it is printed."""
        told = self.ask(
            "Page.printToPDF", printBackground=False, paperWidth=8.27, paperHeight=11.69
        )
        return base64.b64decode(told["data"])

    def screenshot(self, file: Path, whole: bool = False) -> None:
        """A picture of what is seen, or of the whole page."""
        told = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(told["data"]))


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are none of the descriptors that a browser takes."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


class Browser:
    """A running browser; each tab is in a context of its own, with no cookies or storage."""

    def __init__(self, profile: Path) -> None:
        browser_reads, self._to = _pipe()
        self._come, browser_writes = _pipe()
        arguments = [
            str(find()), "--headless", "--no-sandbox", "--disable-gpu", "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking",
            "--disable-component-update", "--no-first-run", "--disable-dev-shm-usage",
            f"--user-data-dir={profile}", "--remote-debugging-pipe",
        ]  # fmt: skip
        # The browser reads commands from descriptor 3 and answers on 4.
        self._running = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{browser_reads} 4>&{browser_writes}', "-", *arguments],
            pass_fds=(browser_reads, browser_writes),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(browser_reads)
        os.close(browser_writes)
        self._pipe = _Pipe(self._to, self._come)

    @contextlib.contextmanager
    def tab(self) -> Iterator[Tab]:
        """A new tab; it is closed at the end of the `with` block."""
        window = Tab(self._pipe)
        context = window.ask("Target.createBrowserContext")["browserContextId"]
        made = window.ask("Target.createTarget", url="about:blank", browserContextId=context)
        attached = window.ask("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        tab = Tab(self._pipe, attached["sessionId"])
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.ask(f"{domain}.enable")
        yield tab
        window.ask("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        """End the browser."""
        self._running.kill()
        self._running.wait()
        os.close(self._to)
        os.close(self._come)
