r"""Names of files and processes as text, from which their bytes can be had again.

Linux takes any bytes but NUL and / for a name; JSON and Parquet take UTF-8. A byte that is none is
written as \xNN, as Python's backslashreplace does. Where a name itself has \x80 to \xff, in so many
characters, their backslash is written as \x5c, so that two names never become one.
"""

from __future__ import annotations

import re

_ODD = re.compile(r"[\udc80-\udcff]|\\(?=(x5c)*x[89a-f][0-9a-f])")
_ESCAPE = re.compile(rb"\\x(5c(?=(?:x5c)*x[89a-f][0-9a-f])|[89a-f][0-9a-f])")


def escaped(name: bytes | str) -> str:
    """A name as text that can be UTF-8. Of a str, as `os.fsdecode` makes it."""
    text = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
    return _ODD.sub(lambda odd: f"\\x{ord(odd[0]) & 0xFF:02x}", text)


def original(text: str) -> bytes:
    """The bytes of an escaped name."""
    return _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), text.encode())
