"""Figures as image files, drawn by a local Chromium with the plotly of the pages.

kaleido was not taken: its page loads MathJax from the network unless told otherwise, brings another
plotly, and runs the browser with the rights of root.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from tracer.analysis.page.base import render
from tracer.probes.errors import FeatureMissing
from tracer.store.files import invoking_user, write_whole

if TYPE_CHECKING:
    import plotly.graph_objects as go

MEND = "install one (Debian: apt install chromium)"
MOST_BYTES = 300_000
"""The most bytes of an SVG; a larger picture becomes a PNG."""
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_WIDTH_PX = 880
_TIME_S = 300
_MADE = re.compile(r'<pre class="made">([^<]*)</pre>')
_KINDS = {"data:image/svg+xml,": "svg", "data:image/png;base64,": "png"}


@dataclass(frozen=True)
class Picture:
    """An image file. `kind`: svg or png."""

    kind: str
    data: bytes


def browser() -> str | None:
    """Returns the path of a Chromium; None if none is installed."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def pictures(figures: Sequence[go.Figure], most_bytes: int = MOST_BYTES) -> list[Picture]:
    """Returns each figure as an SVG, or as a PNG if the SVG has more than `most_bytes`.

    The same figures give the same bytes with the same Chromium and fonts. Raises FeatureMissing if
    there is no Chromium, or if it does not draw.
    """
    if not figures:
        return []
    command = browser()
    if command is None:
        raise FeatureMissing("there is no Chromium to draw figures", MEND)
    page = render(
        "pictures.html.j2", Path(__file__).with_name("templates"), figures=True,
        own=("pictures.js",), drawn=figures, width=_WIDTH_PX, most=most_bytes,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="traintrace-figures-") as folder:
        seen = _open(command, page, Path(folder))
    found = [_picture(html.unescape(told)) for told in _MADE.findall(seen)]
    if len(found) != len(figures):
        raise FeatureMissing(
            f"{command} drew {len(found)} of {len(figures)} figures", "try another Chromium"
        )
    return found


def _open(command: str, page: str, folder: Path) -> str:
    """Returns the text of a page after its scripts have run. The browser may load nothing."""
    file = folder / "figures.html"
    write_whole(file, page.encode("utf-8", "replace"))
    user = invoking_user()
    if user is not None:
        os.chown(folder, *user)
        os.chown(file, *user)
    uid, gid = user or (None, None)
    options = [
        "--headless", "--disable-gpu", "--disable-extensions", "--disable-dev-shm-usage",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-background-networking",
        "--disable-component-update", "--no-first-run", "--virtual-time-budget=60000",
        f"--user-data-dir={folder / 'profile'}", f"--window-size={_WIDTH_PX},2000",
    ]  # fmt: skip
    if os.geteuid() == 0 and user is None:
        options.append("--no-sandbox")  # Chromium refuses to run as root with its sandbox
    try:
        ran = subprocess.run(
            [command, *options, "--dump-dom", file.as_uri()],
            env={**os.environ, "HOME": str(folder)},
            capture_output=True, timeout=_TIME_S, check=True,
            user=uid, group=gid, extra_groups=None if user is None else [],
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        raise FeatureMissing(f"{command} failed: {_short(error)}", "try another Chromium") from None
    return ran.stdout.decode("utf-8", "replace")


def _short(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return f"exit status {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no result after {_TIME_S} s"
    return str(error)


def _picture(told: str) -> Picture:
    for head, kind in _KINDS.items():
        if told.startswith(head):
            rest = told.removeprefix(head)
            try:
                data = base64.b64decode(rest) if kind == "png" else unquote_to_bytes(rest) + b"\n"
            except binascii.Error:
                break
            return Picture(kind, data)
    raise FeatureMissing(f"a figure was not drawn: {json.dumps(told[:200])}", "report this error")
