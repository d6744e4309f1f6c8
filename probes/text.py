"""Text for terminals and messages."""

from __future__ import annotations


def printable(text: str) -> str:
    """Returns a text that cannot control the terminal: unprintable characters are escaped.

    A byte that is not UTF-8, in a text from `os.fsdecode`, is escaped as that byte.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{_number(c):02x}" for c in text)


def shortened(text: str, most: int) -> str:
    """Returns a text of at most `most` characters; the last one is "…" if the text was longer."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _number(character: str) -> int:
    number = ord(character)
    return number & 0xFF if 0xDC80 <= number <= 0xDCFF else number
