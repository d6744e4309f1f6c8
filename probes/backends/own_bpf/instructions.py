"""BPF instructions, written by name. Layout and codes: include/uapi/linux/bpf.h."""

from __future__ import annotations

import struct

R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, STACK = range(11)
"""Registers. R0 holds results, R1 to R5 the arguments of a helper, which calls do not keep."""
EQUAL, ABOVE, NOT_EQUAL, BELOW = 0x10, 0x20, 0x50, 0xA0
"""Conditions of numbers without a sign."""
LOOKUP, KTIME_GET_NS, PROCESSOR_ID, PERF_EVENT_OUTPUT = 1, 5, 8, 25
PROBE_READ_KERNEL, CURRENT_TASK = 113, 158
"""Helpers."""

_SIZES = {1: 0x10, 2: 0x08, 4: 0x00, 8: 0x18}
_LOAD, _STORE, _ATOMIC = 0x61, 0x63, 0xC3
_ALU, _ALU32, _JUMP = 0x07, 0x04, 0x05
_BY_REGISTER = 0x08
_ADD, _SUBTRACT, _MULTIPLY, _OR, _AND, _LEFT, _RIGHT, _MOVE, _SIGNED_RIGHT = (
    *(0x00, 0x10, 0x20, 0x40, 0x50, 0x60, 0x70, 0xB0, 0xC0),
)
_CALL, _EXIT = 0x85, 0x95
_WIDE = 0x18
_OF_MAP, _OF_VALUE = 1, 2
_EXCHANGE, _COMPARE_EXCHANGE = 0xE1, 0xF1
_INSTRUCTION = struct.Struct("=BBhi")


class Code:
    """A program under construction. Jumps go forward, to labels that are placed later."""

    def __init__(self) -> None:
        self._made: list[tuple[int, int, int, int]] = []
        self._labels: dict[str, int] = {}
        self._jumps: list[tuple[int, str]] = []

    def load(self, to: int, base: int, offset: int, size: int = 8) -> None:
        """to = the `size` bytes at base + offset."""
        self._add(_LOAD | _SIZES[size], to, base, offset)

    def store(self, base: int, offset: int, value: int, size: int = 8) -> None:
        """The `size` bytes at base + offset = value."""
        self._add(_STORE | _SIZES[size], base, value, offset)

    def add_atomic(self, base: int, offset: int, value: int) -> None:
        """The word at base + offset += value, at once."""
        self._add(_ATOMIC | _SIZES[8], base, value, offset, _ADD)

    def exchange(self, base: int, offset: int, value: int) -> None:
        """Swaps the word at base + offset with value, at once and after all earlier stores."""
        self._add(_ATOMIC | _SIZES[8], base, value, offset, _EXCHANGE)

    def compare_exchange(self, base: int, offset: int, value: int) -> None:
        """The word at base + offset = value if it is R0, at once; R0 = the word before."""
        self._add(_ATOMIC | _SIZES[8], base, value, offset, _COMPARE_EXCHANGE)

    def move(self, to: int, value: int) -> None:
        """to = the register `value`."""
        self._add(_ALU | _MOVE | _BY_REGISTER, to, value)

    def low_half(self, to: int, value: int) -> None:
        """to = the low 32 bits of the register `value`."""
        self._add(_ALU32 | _MOVE | _BY_REGISTER, to, value)

    def set(self, to: int, number: int) -> None:
        """to = a number of 64 bits."""
        self._wide(to, 0, number & 0xFFFFFFFF, number >> 32)

    def set_small(self, to: int, number: int) -> None:
        """to = a number of 32 bits with a sign."""
        self._add(_ALU | _MOVE, to, 0, 0, number)

    def map(self, to: int, fd: int) -> None:
        """to = a map, as an argument of helpers."""
        self._wide(to, _OF_MAP, fd, 0)

    def value(self, to: int, fd: int) -> None:
        """to = the address of the only value of an array."""
        self._wide(to, _OF_VALUE, fd, 0)

    def add(self, to: int, number: int) -> None:
        """to += number."""
        self._add(_ALU | _ADD, to, 0, 0, number)

    def add_register(self, to: int, value: int) -> None:
        """to += the register `value`."""
        self._add(_ALU | _ADD | _BY_REGISTER, to, value)

    def subtract_register(self, to: int, value: int) -> None:
        """to -= the register `value`."""
        self._add(_ALU | _SUBTRACT | _BY_REGISTER, to, value)

    def or_register(self, to: int, value: int) -> None:
        """to |= the register `value`."""
        self._add(_ALU | _OR | _BY_REGISTER, to, value)

    def multiply(self, to: int, number: int) -> None:
        """to *= number."""
        self._add(_ALU | _MULTIPLY, to, 0, 0, number)

    def bits(self, to: int, mask: int) -> None:
        """to &= mask, a number of 32 bits with a sign."""
        self._add(_ALU | _AND, to, 0, 0, mask)

    def left(self, to: int, bits: int) -> None:
        """to <<= bits."""
        self._add(_ALU | _LEFT, to, 0, 0, bits)

    def right(self, to: int, bits: int) -> None:
        """to >>= bits."""
        self._add(_ALU | _RIGHT, to, 0, 0, bits)

    def signed_right(self, to: int, bits: int) -> None:
        """to >>= bits, with the sign kept."""
        self._add(_ALU | _SIGNED_RIGHT, to, 0, 0, bits)

    def jump_if(self, left: int, condition: int, number: int, label: str) -> None:
        """Goes to `label` if the condition holds between a register and a number."""
        self._jumps.append((len(self._made), label))
        self._add(_JUMP | condition, left, 0, 0, number)

    def jump_if_register(self, left: int, condition: int, right: int, label: str) -> None:
        """Goes to `label` if the condition holds between two registers."""
        self._jumps.append((len(self._made), label))
        self._add(_JUMP | condition | _BY_REGISTER, left, right)

    def call(self, helper: int) -> None:
        """Calls a helper of the kernel."""
        self._add(_CALL, 0, 0, 0, helper)

    def label(self, name: str) -> None:
        """Names the place of the next instruction."""
        self._labels[name] = len(self._made)

    def end(self) -> None:
        """Returns 0 from the program."""
        self.set_small(R0, 0)
        self._add(_EXIT, 0)

    def assemble(self) -> bytes:
        """Returns the program as the kernel takes it."""
        made = list(self._made)
        for at, label in self._jumps:
            code, registers, _, number = made[at]
            made[at] = (code, registers, self._labels[label] - at - 1, number)
        return b"".join(_INSTRUCTION.pack(*one) for one in made)

    def _add(self, code: int, to: int, source: int = 0, offset: int = 0, number: int = 0) -> None:
        self._made.append((code, to | source << 4, offset, number))

    def _wide(self, to: int, kind: int, low: int, high: int) -> None:
        """An instruction of two words: a number of 64 bits, or a map by its fd."""
        self._add(_WIDE, to, kind, 0, _signed(low))
        self._add(0, 0, 0, 0, _signed(high))


def _signed(word: int) -> int:
    """Returns the number with the same 32 bits in the range of those with a sign."""
    return word - (1 << 32) if word >> 31 else word
