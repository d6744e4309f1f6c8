"""The process that demangles C++ names; demangle.py starts it and talks to it.

A name of 200 bytes can stand for gigabytes, each part of it repeating the parts before, and a
demangler that writes it out takes memory and time without end. So this process has little of
both and dies of too much. Standard library only: it is run as a script.

Asked: 4 bytes of length, then that many bytes of names, each ended by a NUL. Answered: for each
name in turn what it stands for, cut short, and a NUL; nothing but the NUL where it is no name.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys

MAX_ANSWER_BYTES = 4096
_MEMORY_BYTES = 512 << 20
_SECONDS_A_NAME = 0.25
_NOT_FOUND = 3


def main() -> int:
    """Answer until the input ends."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        library = ctypes.CDLL("libstdc++.so.6")
        demangle = library.__cxa_demangle
    except (OSError, AttributeError):
        return _NOT_FOUND
    demangle.restype = ctypes.c_void_p
    demangle.argtypes = [
        ctypes.c_char_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.POINTER(ctypes.c_int),
    ]
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    # A terminal's Ctrl-C is the recorder's to handle; this process ends with its input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    requests = sys.stdin.buffer
    status = ctypes.c_int()
    while len(head := requests.read(4)) == 4:
        for name in requests.read(int.from_bytes(head, "little")).split(b"\0")[:-1]:
            # SIGPROF kills: processor time, so that a busy machine makes no difference.
            signal.setitimer(signal.ITIMER_PROF, _SECONDS_A_NAME)
            answer = b""
            pointer = demangle(name, None, None, ctypes.byref(status))
            if pointer:
                answer = (ctypes.cast(pointer, ctypes.c_char_p).value or b"")[:MAX_ANSWER_BYTES]
                free(pointer)
            os.write(1, answer + b"\0")
    return 0


if __name__ == "__main__":
    sys.exit(main())
