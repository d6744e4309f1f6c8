"""Reads and prints sizes and numbers as people write them."""

from __future__ import annotations

import re

from tracer.probes.errors import UsageError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"^([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([KMGT]?)(?:i?B)?$", re.IGNORECASE)
_MOST = 1 << 50
"""No memory and no disk is larger than 1 PiB."""


def parse_size(text: str) -> int:
    """Returns the bytes of "4096", "64K", "16M" or "1.5G" (powers of 1024), at most 1 PiB.

    Raises UsageError.
    """
    return int(_parsed(text))


def parse_page_size(text: str, page_bytes: int, what: str, mend: str) -> int:
    """Returns the bytes of a size that holds pages: 0, or at least one page.

    `what` and `mend`, for the error message: what the size is given for, e.g. "--memory", and what
    to write instead. Raises UsageError.
    """
    if _SIZE.match(text.strip()) is None:
        raise UsageError(f"{what} {text.strip()!r} is not a size", mend)
    size = _parsed(text)
    if 0 < size < page_bytes:
        raise UsageError(
            f"{what} {text.strip()} means {size:g} bytes, less than one page of {page_bytes} bytes",
            mend,
        )
    return int(size)


def _parsed(text: str) -> float:
    match = _SIZE.match(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not a size", "write e.g. 4096, 64K, 16M or 1.5G")
    size = float(match[1]) * _UNITS[match[2].upper()]
    if size > _MOST:
        raise UsageError(f"the size {text.strip()} is too large", "give at most 1024T (1 PiB)")
    return size


def show_size(size: float) -> str:
    """Returns a size in B, KiB, MiB or GiB for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def show_number(value: float, digits: int) -> str:
    """Returns a number with `digits` decimals; "> -0.1" instead of "-0.0"."""
    if value < 0 and round(value, digits) == 0:
        return f"> -{10.0**-digits:.{digits}f}"
    return f"{value:,.{digits}f}"


def show_share(value: float, digits: int = 1) -> str:
    """Returns a share of 1 in percent, without rounding it to nothing or to all.

    "below 0.1%, negative" instead of "-0.0%", "less than 0.1%", and "more than 99.9%".
    """
    least = 10.0**-digits
    if -0.5 * 10.0 ** -(digits + 2) <= value < 0:
        return f"below {least:.{digits}f}%, negative"
    said = f"{value:.{digits}%}"
    if value > 0 and said == f"{0:.{digits}%}":
        return f"less than {least:.{digits}f}%"
    if value < 1 and said == f"{1:.{digits}%}":
        return f"more than {100 - least:.{digits}f}%"
    return said


def show_bound(value: float, digits: int = 1) -> str:
    """Returns an upper bound of a share of 1: "at most 71.0%", "less than 0.1%"."""
    said = show_share(value, digits)
    if said.startswith("less"):
        return said
    return f"at most {value:.{digits}%}" if said.startswith("more") else f"at most {said}"


def show_part(part: int, whole: int, noun: str = "") -> str:
    """Returns a number of a number, with its share: "all 7", "none of 7", "3 of 7 (42.9%)".

    `noun` stands behind the second number.
    """
    if whole <= 1 or 0 < part < whole:
        share = f" ({show_share(part / whole)})" if whole > 1 else ""
        return f"{part:,} of {whole:,}{noun}{share}"
    return f"{'all' if part else 'none of'} {whole:,}{noun}"
