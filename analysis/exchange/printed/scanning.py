"""Compiled parsers of numbers in lines of text, which return the value and where it ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from probes.compiled import compiled

NONE = -1
"""The end returned for text that is not a number, or does not fit in 64 bits."""

_SPACE, _MINUS, _DOT, _COLON = 32, 45, 46, 58
_MOST_SECONDS = 9_000_000_000


@compiled
def digits(data: Any, at: int, end: int, base: int) -> Any:
    """Returns (value, end) of an unsigned number; the end is -1 if there is none."""
    value = np.uint64(0)
    begun = at
    while at < end:
        c = np.int64(data[at])
        if 48 <= c <= 57:
            digit = c - 48
        elif base == 16 and 97 <= c <= 102:
            digit = c - 87
        elif base == 16 and 65 <= c <= 70:
            digit = c - 55
        else:
            break
        if base == 16:
            if value >> np.uint64(60):
                return np.int64(0), NONE
            value = (value << np.uint64(4)) | np.uint64(digit)
        else:
            if value > np.uint64(1844674407370955161) or (
                value == np.uint64(1844674407370955161) and digit > 5
            ):
                return np.int64(0), NONE
            value = value * np.uint64(10) + np.uint64(digit)
        at += 1
    return np.int64(value), at if at > begun else NONE


@compiled
def number(data: Any, at: int, end: int, base: int) -> Any:
    """Returns (value, end) of a number that may have a sign or 0x."""
    negative = at < end and data[at] == _MINUS
    if negative:
        at += 1
    if base == 16 and at + 1 < end and data[at] == 48 and data[at + 1] == 120:
        at += 2
    value, after = digits(data, at, end, base)
    if negative:
        if value < 0:
            return np.int64(0), NONE
        value = -value
    return value, after


@compiled
def seconds(data: Any, at: int, end: int) -> Any:
    """Returns (ns, end) of SECONDS.FRACTION."""
    whole, at = digits(data, at, end, 10)
    if at < 0 or at >= end or data[at] != _DOT or not 0 <= whole < _MOST_SECONDS:
        return np.int64(0), NONE
    at += 1
    fraction = np.int64(0)
    places = 0
    while at < end and 48 <= data[at] <= 57:
        if places < 9:
            fraction = fraction * 10 + (np.int64(data[at]) - 48)
            places += 1
        at += 1
    if places == 0:
        return np.int64(0), NONE
    while places < 9:
        fraction *= 10
        places += 1
    return whole * 1_000_000_000 + fraction, at


@compiled
def spaces(data: Any, at: int, end: int) -> Any:
    while at < end and (data[at] == _SPACE or data[at] == 9):
        at += 1
    return at


@compiled
def number_before(data: Any, at: int, begin: int) -> Any:
    """Returns (value, begin) of the number that ends before `at`; begin is -1 if there is none."""
    first = at
    while first > begin and at - first < 8 and 48 <= data[first - 1] <= 57:
        first -= 1
    if first == at:
        return np.int64(0), NONE
    value, _ = digits(data, first, at, 10)
    return value, first


@compiled
def device_number(data: Any, at: int, end: int) -> Any:
    """Returns (dev_t, end) of MAJOR,MINOR or MAJOR:MINOR."""
    major, at = digits(data, at, end, 10)
    if at < 0 or at >= end or (data[at] != 44 and data[at] != _COLON):
        return np.int64(0), NONE
    minor, at = digits(data, at + 1, end, 10)
    if at < 0 or not 0 <= major < 1 << 12 or not 0 <= minor < 1 << 20:
        return np.int64(0), NONE
    return major << 20 | minor, at
