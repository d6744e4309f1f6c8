"""A real browser, headless: what a page says, fetches and complains of."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_CONSOLE = re.compile(r'INFO:CONSOLE[^"]*"(.*)", source: (.*) \(\d+\)')


def find() -> str | None:
    """The browser's command, or None."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Seen:
    """The result of opening a page: its DOM, the console's messages, the network requests."""

    def __init__(self, dom: str, console: list[str], asked: list[str]) -> None:
        self.dom = dom
        self.console = console
        self.asked = asked


def look(page: Path, folder: Path, width: int = 1200) -> Seen:
    """Load a page from its file, let it draw, and tell what was seen. `folder`: for its profile."""
    log = folder / "net.json"
    ran = subprocess.run(
        [
            str(find()), "--headless", "--no-sandbox", "--disable-gpu", "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking",
            "--disable-component-update", "--no-first-run",
            "--enable-logging=stderr", "--v=0", "--virtual-time-budget=30000",
            f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}",
            f"--window-size={width},2000", "--dump-dom", page.absolute().as_uri(),
        ],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    return Seen(ran.stdout, [said for said, _ in _CONSOLE.findall(ran.stderr)], _asked(log))


def _asked(log: Path) -> list[str]:
    """Addresses that a page asked for, files and data in it apart.

    What the browser asks for itself has no origin.
    """
    events = json.loads(log.read_text())["events"]
    told = [one["params"] for one in events if "initiator" in one.get("params", {})]
    found = {str(one.get("url", "")) for one in told if one["initiator"] != "not an origin"}
    return sorted(url for url in found if url and not url.startswith(("file:", "data:", "blob:")))
