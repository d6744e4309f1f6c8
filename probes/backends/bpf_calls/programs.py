# SPDX-License-Identifier: GPL-2.0
"""The programs that record system calls, and follow the children of the targets' threads.

The programs of `sys_enter` and `sys_exit` write a record to the ring of their CPU if a byte of the
table of threads says that the thread is followed. That of `sched_process_fork` marks the child of
such a thread, that of `sched_process_exit` unmarks a thread that ends: it makes no more calls. A
thread that calls execve goes on under the number of its process, whose first thread has ended, so
the program of `sched_process_exec` marks that number. A recording of everybody has only the first
two programs.

A program claims room by an atomic compare-and-exchange, reads the time, writes the record, and
writes its first word last. So no record is older than its claim, and a record that another one
interrupts is complete only when its own program has written it. If another program claimed the same
room in between, the record counts as lost.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import NamedTuple

from tracer.probes.backends.bpf_calls.btf import Types
from tracer.probes.backends.bpf_calls.instructions import (
    ABOVE,
    BELOW,
    EQUAL,
    KTIME_GET_NS,
    LOOKUP,
    NOT_EQUAL,
    PERF_EVENT_OUTPUT,
    PID_TGID,
    PROCESSOR_ID,
    R0,
    R1,
    R2,
    R3,
    R4,
    R5,
    R6,
    R7,
    R8,
    R9,
    STACK,
    Code,
)
from tracer.probes.backends.bpf_calls.records import BLOCK, ENTRY, EXIT, HEAD
from tracer.probes.errors import FeatureMissing
from tracer.probes.limits import PID_LIMIT

STATE = 128
"""Bytes of a CPU's state: its producer's words and its consumer's, in cache lines of their own."""
CLAIMED, LOST, TAKEN, OPEN = 0, 8, 64, 72
"""Words of a CPU's state: end of the claimed records, records without room; end of the records
that the drain has taken, and 1 if events are recorded."""
_NUMBER_AT, _FIRST_AT = HEAD, HEAD + 8
_WORD = 8
_KEY, _KEPT = -4, -16
"""Places on the stack: of a key, and of a word that a call must not change."""
_CURRENT_CPU = 0xFFFFFFFF
"""BPF_F_CURRENT_CPU"""


class Registers(NamedTuple):
    """Places in `pt_regs` (bytes): of the system call's number, and of its arguments."""

    number: int
    arguments: Sequence[int]


class Memory(NamedTuple):
    """Arrays of a recording (fds): marks of threads, states of CPUs, and the CPUs' rings."""

    threads: int
    states: int
    rings: int
    cpus: int
    """CPUs of lower numbers have a ring. The drain reads those of the recorded CPUs."""
    ring_bytes: int
    """Size of a ring, a power of two of blocks."""
    wakers: int
    """An array (fd) of perf events, by CPU, that wake the drain."""
    wake_bytes: int
    """Bytes in a ring from which on each new block wakes the drain."""


def registers(types: Types) -> Registers:
    """Returns the places of a system call's registers, as in the kernel's `syscall_get_arguments`.

    That function reads other registers for 32-bit calls on x86-64, whose arguments no table has.
    Raises FeatureMissing for other machines.
    """

    def at(member: str) -> int:
        return types.offset("pt_regs", member)

    machine = platform.machine()
    if machine == "x86_64":
        return Registers(at("orig_ax"), [at(n) for n in ("di", "si", "dx", "r10", "r8", "r9")])
    if machine == "aarch64":
        numbered = at("regs")
        others = [numbered + n * _WORD for n in range(1, 6)]
        return Registers(at("syscallno"), [at("orig_x0"), *others])
    raise FeatureMissing(f"the registers of {machine} are not known", "use --backend ftrace")


def entry(memory: Memory, event: int, its: Registers) -> bytes:
    """Returns the program of `sys_enter`, whose arguments are (pt_regs, number)."""
    code = Code()
    _begin(code, memory, event, ENTRY)
    code.load(R1, R6, 0)
    code.load(R2, R6, _WORD)
    code.store(R8, _NUMBER_AT, R2)
    for n, place in enumerate(its.arguments):
        code.load(R2, R1, place)
        code.store(R8, _FIRST_AT + n * _WORD, R2)
    return _complete(code)


def exit_(memory: Memory, event: int, its: Registers) -> bytes:
    """Returns the program of `sys_exit`, whose arguments are (pt_regs, result)."""
    code = Code()
    _begin(code, memory, event, EXIT)
    code.load(R1, R6, 0)
    code.load(R2, R1, its.number, 4)
    code.left(R2, 32)
    code.signed_right(R2, 32)
    code.store(R8, _NUMBER_AT, R2)
    code.load(R2, R6, _WORD)
    code.store(R8, _FIRST_AT, R2)
    return _complete(code)


def fork(threads: int, tid_at: int) -> bytes:
    """Returns the program of `sched_process_fork`, whose arguments are (parent, child).

    `tid_at` is the place of a thread's id in `task_struct`.
    """
    code = Code()
    code.move(R6, R1)
    code.call(PID_TGID)
    code.low_half(R7, R0)
    _find(code, threads, R7)
    code.load(R1, R1, 0, 1)
    code.jump_if(R1, EQUAL, 0, "end")
    _mark(code, threads, R6, _WORD, tid_at, 1)
    return _ended(code)


def ended(threads: int, tid_at: int) -> bytes:
    """Returns the program of `sched_process_exit`, whose first argument is the thread."""
    code = Code()
    code.move(R6, R1)
    _mark(code, threads, R6, 0, tid_at, 0)
    return _ended(code)


def executed(threads: int, tid_at: int) -> bytes:
    """Returns the program of `sched_process_exec`, whose first arguments are (thread, its number
    before)."""
    code = Code()
    code.move(R6, R1)
    code.load(R7, R6, _WORD)
    code.low_half(R7, R7)
    _find(code, threads, R7)
    code.load(R2, R1, 0, 1)
    code.jump_if(R2, EQUAL, 0, "end")
    code.set_small(R2, 0)
    code.store(R1, 0, R2, 1)
    _mark(code, threads, R6, 0, tid_at, 1)
    return _ended(code)


def _find(code: Code, threads: int, tid: int) -> None:
    """R1 = the address of a thread's mark. `tid` is a register, other than R1."""
    code.jump_if(tid, ABOVE, PID_LIMIT - 1, "end")
    code.value(R1, threads)
    code.add_register(R1, tid)


def _mark(code: Code, threads: int, context: int, argument: int, tid_at: int, mark: int) -> None:
    """Marks the thread that is an argument of the tracepoint."""
    code.load(R7, context, argument)
    code.load(R7, R7, tid_at, 4)
    _find(code, threads, R7)
    code.set_small(R2, mark)
    code.store(R1, 0, R2, 1)


def _begin(code: Code, memory: Memory, event: int, size: int) -> None:
    """Ends for threads that are not followed. R8 = room for a record, with its time written.

    R6 = the context, R7 = the first word of the record.
    """
    code.move(R6, R1)
    code.call(PID_TGID)
    code.low_half(R7, R0)
    _find(code, memory.threads, R7)
    code.load(R1, R1, 0, 1)
    code.jump_if(R1, EQUAL, 0, "end")
    _state(code, memory)
    _claim(code, memory, size)
    _room(code, memory)
    # Read the time after the claim, so that no record is older than its claim.
    code.call(KTIME_GET_NS)
    code.store(R8, _WORD, R0)
    code.set(R1, event << 32 | size << 48)
    code.or_register(R7, R1)


def _state(code: Code, memory: Memory) -> None:
    """R8 = the CPU, R9 = the address of its state. Ends if it has no ring or records nothing."""
    code.call(PROCESSOR_ID)
    code.low_half(R8, R0)
    code.jump_if(R8, ABOVE, memory.cpus - 1, "end")
    code.move(R1, R8)
    code.multiply(R1, STATE)
    code.value(R9, memory.states)
    code.add_register(R9, R1)
    code.load(R1, R9, OPEN)
    code.jump_if(R1, EQUAL, 0, "end")


def _claim(code: Code, memory: Memory, size: int) -> None:
    """R2 = the position of a record of `size` bytes, which is claimed; else counts it as lost."""
    code.load(R0, R9, CLAIMED)
    code.move(R2, R0)
    code.move(R3, R2)
    code.bits(R3, BLOCK - 1)
    code.jump_if(R3, BELOW, BLOCK - ENTRY + 1, "fits")
    _wake(code, memory)
    code.move(R2, R0)
    code.add(R2, BLOCK - 1)
    code.bits(R2, -BLOCK)
    code.label("fits")
    code.move(R3, R2)
    code.add(R3, size)
    code.load(R4, R9, TAKEN)
    code.move(R5, R3)
    code.subtract_register(R5, R4)
    code.jump_if(R5, ABOVE, memory.ring_bytes, "lost")
    code.move(R4, R0)
    code.compare_exchange(R9, CLAIMED, R3)
    code.jump_if_register(R0, NOT_EQUAL, R4, "lost")


def _wake(code: Code, memory: Memory) -> None:
    """Wakes the drain if the ring has filled. Keeps R0."""
    code.store(STACK, _KEPT, R0)
    code.load(R3, R9, TAKEN)
    code.subtract_register(R0, R3)
    code.jump_if(R0, BELOW, memory.wake_bytes, "not full")
    code.move(R1, R6)
    code.map(R2, memory.wakers)
    code.set(R3, _CURRENT_CPU)
    code.move(R4, STACK)
    code.add(R4, _KEPT)
    code.set_small(R5, _WORD)
    code.call(PERF_EVENT_OUTPUT)
    code.label("not full")
    code.load(R0, STACK, _KEPT)


def _room(code: Code, memory: Memory) -> None:
    """R8 = the address of position R2 in the ring of CPU R8."""
    blocks = memory.ring_bytes // BLOCK
    code.multiply(R8, blocks)
    code.move(R1, R2)
    code.right(R1, BLOCK.bit_length() - 1)
    code.bits(R1, blocks - 1)
    code.add_register(R8, R1)
    code.store(STACK, _KEY, R8, 4)
    code.move(R8, R2)
    code.move(R2, STACK)
    code.add(R2, _KEY)
    code.map(R1, memory.rings)
    code.call(LOOKUP)
    code.jump_if(R0, EQUAL, 0, "end")
    code.bits(R8, BLOCK - 1)
    code.jump_if(R8, ABOVE, BLOCK - ENTRY, "end")
    code.add_register(R8, R0)


def _complete(code: Code) -> bytes:
    """Writes the first word of the record, after all others; returns the whole program."""
    if platform.machine() == "x86_64":  # which keeps the order of stores
        code.store(R8, 0, R7)
    else:
        code.exchange(R8, 0, R7)
    code.label("end")
    code.end()
    code.label("lost")
    code.set_small(R1, 1)
    code.add_atomic(R9, LOST, R1)
    code.end()
    return code.assemble()


def _ended(code: Code) -> bytes:
    code.label("end")
    code.end()
    return code.assemble()
