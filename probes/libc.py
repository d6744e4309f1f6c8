"""The C library, for system calls that Python has not."""

from __future__ import annotations

import ctypes
import os
from functools import cache


@cache
def libc() -> ctypes.CDLL:
    """The C library of this process, which keeps errno for `checked`."""
    return ctypes.CDLL(None, use_errno=True)


def checked(result: int) -> int:
    """The result of a call; OSError by errno where it is negative."""
    if result < 0:
        raise os_error(ctypes.get_errno())
    return result


def os_error(number: int) -> OSError:
    """The error of an errno, in the system's words."""
    return OSError(number, os.strerror(number))
