"""The C library, for system calls that Python lacks."""

from __future__ import annotations

import ctypes
import os
from functools import cache


@cache
def libc() -> ctypes.CDLL:
    """Returns the C library of this process; it keeps errno for `checked`."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """Returns the result of a call. Raises OSError with errno if it is negative."""
    if result < 0:
        raise os_error(ctypes.get_errno())
    return result


def os_error(number: int) -> OSError:
    """Returns an OSError for an errno, with the system's message."""
    return OSError(number, os.strerror(number))
