"""Text for terminals and messages."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

_LONGEST_WORD = 350
"""Most characters of a name in a printed command. Messages cut longer ones in their middle."""


def printable(text: str) -> str:
    """Returns a text that cannot control the terminal: unprintable characters are escaped.

    A byte that is not UTF-8, in a text from `os.fsdecode`, is escaped as that byte.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{_number(c):02x}" for c in text)


def shell_word(name: str | Path) -> str:
    """Returns a name as one word of a printed command, which may be pasted into a shell.

    A name with unprintable characters becomes $'...' with octal escapes. A path never looks like
    an option. A name that is too long for a message becomes PATH.
    """
    text = f"./{name}" if isinstance(name, Path) and str(name).startswith("-") else str(name)
    word = shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_octal, text))}'"
    return word if len(word) <= _LONGEST_WORD else "PATH"


def shortened(text: str, most: int) -> str:
    """Returns a text of at most `most` characters; the last one is "…" if the text was longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _octal(character: str) -> str:
    """Returns a character for $'...'. A quote is escaped, too, for shells without $'...'."""
    if character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))


def _number(character: str) -> int:
    number = ord(character)
    return number & 0xFF if 0xDC80 <= number <= 0xDCFF else number
