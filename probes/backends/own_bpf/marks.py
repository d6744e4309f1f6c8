# SPDX-License-Identifier: GPL-2.0
"""The marks of the threads that are followed, and the programs that keep them.

There is a byte for each thread number. The program of `task_newtask` marks a new thread as the
thread that made it is marked, so a number never keeps the mark of an earlier thread. Unlike
`sched_process_fork`, that event also tells of the kernel's threads that work for an io_uring. The
one of `sched_process_exit` notes that a thread is ending: it can still take page faults, as the
kernel gives back its memory. A thread that calls execve goes on under the number of its process,
whose first thread has ended, so the program of `sched_process_exec` marks that number. A recording
of everybody does not need these programs.
"""

from __future__ import annotations

from tracer.probes.backends.own_bpf.instructions import (
    ABOVE,
    CURRENT_TASK,
    EQUAL,
    R0,
    R1,
    R2,
    R6,
    R7,
    R8,
    Code,
)
from tracer.probes.limits import PID_LIMIT

NOT_FOLLOWED, FOLLOWED, ENDING = range(3)
"""Marks. Events of a thread are recorded unless it is not followed."""
_WORD = 8


def made(threads: int, tid_at: int) -> bytes:
    """Returns the program of `task_newtask`, whose first argument is the new thread.

    `threads` is the array (fd) of marks, `tid_at` the place of a thread's number in `task_struct`.
    """
    code = Code()
    code.move(R6, R1)
    code.set_small(R8, NOT_FOLLOWED)
    running(code, tid_at)
    find(code, threads, R7)
    code.load(R1, R1, 0, 1)
    code.jump_if(R1, EQUAL, NOT_FOLLOWED, "marked")
    code.set_small(R8, FOLLOWED)
    code.label("marked")
    _thread(code, threads, R6, 0, tid_at)
    code.store(R1, 0, R8, 1)
    return _ended(code)


def ended(threads: int, tid_at: int) -> bytes:
    """Returns the program of `sched_process_exit`, whose first argument is the thread."""
    code = Code()
    _thread(code, threads, R1, 0, tid_at)
    code.load(R2, R1, 0, 1)
    code.jump_if(R2, EQUAL, NOT_FOLLOWED, "end")
    code.set_small(R2, ENDING)
    code.store(R1, 0, R2, 1)
    return _ended(code)


def executed(threads: int, tid_at: int) -> bytes:
    """Returns the program of `sched_process_exec`, whose first arguments are (thread, its number
    before)."""
    code = Code()
    code.move(R6, R1)
    code.load(R7, R6, _WORD)
    code.low_half(R7, R7)
    find(code, threads, R7)
    code.load(R2, R1, 0, 1)
    code.jump_if(R2, EQUAL, NOT_FOLLOWED, "end")
    code.set_small(R2, NOT_FOLLOWED)
    code.store(R1, 0, R2, 1)
    _thread(code, threads, R6, 0, tid_at)
    code.set_small(R2, FOLLOWED)
    code.store(R1, 0, R2, 1)
    return _ended(code)


def running(code: Code, tid_at: int) -> None:
    """R7 = the number of the running thread.

    Most kernels put the address of its `task_struct` there without a call. The helper that returns
    its number is a call on all of them, which takes 7 ns on a machine that guards returns.
    """
    code.call(CURRENT_TASK)
    code.load(R7, R0, tid_at, 4)


def find(code: Code, threads: int, tid: int) -> None:
    """R1 = the address of a thread's mark. `tid` is a register, other than R1.

    The program ends here if the number is impossible.
    """
    code.jump_if(tid, ABOVE, PID_LIMIT - 1, "end")
    code.value(R1, threads)
    code.add_register(R1, tid)


def _thread(code: Code, threads: int, context: int, argument: int, tid_at: int) -> None:
    """R1 = the address of the mark of the thread that is an argument of the tracepoint."""
    code.load(R7, context, argument)
    code.load(R7, R7, tid_at, 4)
    find(code, threads, R7)


def _ended(code: Code) -> bytes:
    code.label("end")
    code.end()
    return code.assemble()
