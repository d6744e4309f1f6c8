# SPDX-License-Identifier: GPL-2.0
"""The programs that record events of the targets' threads.

Each writes a record to the ring of its CPU if the thread is marked as followed (marks.py).

A program claims room by an atomic compare-and-exchange, reads the time, writes the record, and
writes its first word last. So no record is older than its claim, and a record that another one
interrupts is complete only when its own program has written it. If another program claimed the same
room in between, the record counts as lost.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import NamedTuple

from tracer.probes.backends.own_bpf.btf import Types
from tracer.probes.backends.own_bpf.instructions import (
    ABOVE,
    BELOW,
    EQUAL,
    KTIME_GET_NS,
    LOOKUP,
    NOT_EQUAL,
    PERF_EVENT_OUTPUT,
    PROBE_READ_KERNEL,
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
from tracer.probes.backends.own_bpf.marks import NOT_FOLLOWED, find, running
from tracer.probes.backends.own_bpf.records import BLOCK, ENTRY, EXIT, FAULT, HEAD, SIGNAL
from tracer.probes.errors import FeatureMissing

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
_SIG_AT, _ERRNO_AT, _CODE_AT, _COMM_AT, _PID_AT, _GROUP_AT, _RESULT_AT = (
    HEAD + at for at in (0, 4, 8, 12, 28, 32, 36)
)
"""Places in the record of a signal, in the order of its format."""
_COMM_BYTES = 16
_SEND_SIG_PRIV, _SI_KERNEL = 1, 0x80
"""A signal from the kernel: instead of its kernel_siginfo, and in its code."""


class Registers(NamedTuple):
    """Places in `pt_regs` (bytes): of a system call's number, of its arguments, and of the address
    of the instruction. `tid`: the place of a thread's number in `task_struct`."""

    number: int
    arguments: Sequence[int]
    instruction: int
    tid: int


class SignalTypes(NamedTuple):
    """Places of members (bytes): of two in `kernel_siginfo`, and of two in `task_struct`."""

    errno: int
    code: int
    comm: int
    tid: int


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
    """Returns the places of registers; of a system call's, as in `syscall_get_arguments`.

    That function of the kernel reads other registers for 32-bit calls on x86-64, whose arguments no
    table has. Raises FeatureMissing for other machines.
    """

    def at(member: str) -> int:
        return types.offset("pt_regs", member)

    tid = types.offset("task_struct", "pid")
    machine = platform.machine()
    if machine == "x86_64":
        arguments = [at(name) for name in ("di", "si", "dx", "r10", "r8", "r9")]
        return Registers(at("orig_ax"), arguments, at("ip"), tid)
    if machine == "aarch64":
        numbered = at("regs")
        others = [numbered + n * _WORD for n in range(1, 6)]
        return Registers(at("syscallno"), [at("orig_x0"), *others], at("pc"), tid)
    raise FeatureMissing(f"the registers of {machine} are not known", "use --backend ftrace")


def signal_types(types: Types) -> SignalTypes:
    """Returns the places of what an event tells of a signal. Raises FeatureMissing."""
    return SignalTypes(
        types.offset("kernel_siginfo", "si_errno"),
        types.offset("kernel_siginfo", "si_code"),
        types.offset("task_struct", "comm"),
        types.offset("task_struct", "pid"),
    )


def entry(memory: Memory, event: int, its: Registers) -> bytes:
    """Returns the program of `sys_enter`, whose arguments are (pt_regs, number)."""
    code = Code()
    _begin(code, memory, event, ENTRY, its.tid)
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
    _begin(code, memory, event, EXIT, its.tid)
    code.load(R1, R6, 0)
    code.load(R2, R1, its.number, 4)
    code.left(R2, 32)
    code.signed_right(R2, 32)
    code.store(R8, _NUMBER_AT, R2)
    code.load(R2, R6, _WORD)
    code.store(R8, _FIRST_AT, R2)
    return _complete(code)


def fault(memory: Memory, event: int, its: Registers) -> bytes:
    """Returns the program of a page fault, whose arguments are (address, pt_regs, error code)."""
    code = Code()
    _begin(code, memory, event, FAULT, its.tid)
    code.load(R1, R6, 0)
    code.store(R8, HEAD, R1)
    code.load(R1, R6, _WORD)
    code.load(R1, R1, its.instruction)
    code.store(R8, HEAD + 8, R1)
    code.load(R1, R6, 2 * _WORD)
    code.store(R8, HEAD + 16, R1)
    return _complete(code)


def signal(memory: Memory, event: int, its: SignalTypes) -> bytes:
    """Returns the program of `signal_generate`.

    Its arguments are (number, kernel_siginfo, task, group, result). Instead of a kernel_siginfo
    there may be one of two small numbers, which have no memory behind them: then the helper that
    copies it writes zeros. Source: TP_STORE_SIGINFO in include/trace/events/signal.h.
    """
    code = Code()
    _begin(code, memory, event, SIGNAL, its.tid)
    code.load(R1, R6, 0)
    code.store(R8, _SIG_AT, R1, 4)
    _copy(code, _ERRNO_AT, 4, 1, its.errno)
    _copy(code, _CODE_AT, 4, 1, its.code)
    code.load(R1, R6, _WORD)
    code.jump_if(R1, NOT_EQUAL, _SEND_SIG_PRIV, "told")
    code.set_small(R1, _SI_KERNEL)
    code.store(R8, _CODE_AT, R1, 4)
    code.label("told")
    _copy(code, _COMM_AT, _COMM_BYTES, 2, its.comm)
    code.load(R1, R6, 2 * _WORD)
    code.load(R1, R1, its.tid, 4)
    code.store(R8, _PID_AT, R1, 4)
    code.load(R1, R6, 3 * _WORD)
    code.store(R8, _GROUP_AT, R1, 4)
    code.load(R1, R6, 4 * _WORD)
    code.store(R8, _RESULT_AT, R1, 4)
    return _complete(code)


def _copy(code: Code, to: int, size: int, argument: int, offset: int) -> None:
    """Copies kernel memory to place `to` of the record: what an argument and an offset point to."""
    code.move(R1, R8)
    code.add(R1, to)
    code.set_small(R2, size)
    code.load(R3, R6, argument * _WORD)
    code.add(R3, offset)
    code.call(PROBE_READ_KERNEL)


def _begin(code: Code, memory: Memory, event: int, size: int, tid_at: int) -> None:
    """Ends for threads that are not followed. R8 = room for a record, with its time written.

    R6 = the context, R7 = the first word of the record.
    """
    code.move(R6, R1)
    running(code, tid_at)
    find(code, memory.threads, R7)
    code.load(R1, R1, 0, 1)
    code.jump_if(R1, EQUAL, NOT_FOLLOWED, "end")
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
