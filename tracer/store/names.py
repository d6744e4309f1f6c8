r"""Names of files and processes as text from which their bytes can be restored.

Linux allows all bytes except NUL and / in a name; JSON and Parquet need UTF-8. A byte that is not
UTF-8 is written as \xNN, like Python's backslashreplace. If a name itself contains the characters
\x80 to \xff, their backslash is written as \x5c, so that two names never become equal.
"""

from __future__ import annotations

import re

from tracer.probes.errors import UsageError

_ODD = re.compile(r"[\udc80-\udcff]|\\(?=(x5c)*x[89a-f][0-9a-f])")
_ESCAPE = re.compile(rb"\\x(5c(?=(?:x5c)*x[89a-f][0-9a-f])|[89a-f][0-9a-f])")


def escaped(name: bytes | str) -> str:
    """Returns a name as text that is valid UTF-8. A str must come from `os.fsdecode`."""
    text = name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name
    return _ODD.sub(lambda odd: f"\\x{ord(odd[0]) & 0xFF:02x}", text)


def original(text: str) -> bytes:
    """Returns the bytes of an escaped name."""
    return _ESCAPE.sub(lambda escape: bytes.fromhex(escape[1].decode()), text.encode())


def refuse_empty(name: str) -> None:
    """Raises UsageError for an empty name, which would stand for the current folder."""
    if not name:
        raise UsageError("an empty name is no file and no folder", "is a shell variable unset?")
