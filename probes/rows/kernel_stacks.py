"""Kernel stacks as text: each stack is decoded, named and kept once.

A stack is its functions from the root to the innermost, joined by `;`, without the tracer's own. An
event holds the addresses, the innermost first, to which the functions return. Events are untrusted
input: addresses, and the stacks of a trace, are bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tracer.probes.backends.event_format import EventFormat
from tracer.probes.backends.timeline import Batch
from tracer.probes.call_graphs import TRUNCATED, UNKNOWN
from tracer.probes.compiled import compiled
from tracer.probes.symbols.frames import PLUMBING, escaped, without_module
from tracer.probes.symbols.kernel import KernelSymbols

NO_STACK = -1
MAX_DEPTH = 127
"""Frames kept of a stack: the kernel's default (kernel.perf_event_max_stack)."""
_ADDRESS_BYTES = 8
_MOST_STACKS = 1 << 16
_MOST_TEXT = 64 << 20
"""Most characters of all stacks of a trace."""
_LONGEST = 64 << 10
"""Most characters of a stack: 127 frames with names of 500."""

_Chain = tuple[tuple[int, ...], bool]
"""Addresses, the innermost first, and whether frames were left out behind them."""


class KernelStacks:
    """The stacks of a trace, by number."""

    def __init__(self, event: EventFormat | None, kernel: KernelSymbols | None) -> None:
        """`event` is the format of ftrace's `kernel_stack`; without `kernel`, no stack is kept."""
        self._fields = None
        if event is not None:
            frames, callers = event.first(("size",)), event.first(("caller",))
            if frames is not None and callers is not None and frames.size == 4:
                self._fields = frames.offset, callers.offset
        self._kernel = kernel
        self.unnamed = 0
        """Stacks that were left out because no names of the kernel's functions are known."""
        self.left_out = 0
        """Stacks that were left out because too many others are known."""
        self.too_long = 0
        """Stacks that were left out because their text would be too long."""
        self._numbers: dict[int, int] = {}
        """Numbers of stacks by their digests; NO_STACK for those that are left out."""
        self._chains: list[_Chain] = []
        self._texts: dict[int, str] = {}
        self._names: dict[int, str] = {}
        self._text_room = _MOST_TEXT

    def numbers(self, batch: Batch, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the numbers of the stacks in the events at `rows`; NO_STACK: none is kept."""
        if self._fields is None or self._kernel is None:
            self.unnamed += len(rows)
            return np.full(len(rows), NO_STACK)
        digests, depths = np.zeros(len(rows), np.uint64), np.zeros(len(rows), np.int64)
        _digest(batch.payload, batch.offset, batch.length, rows, *self._fields, digests, depths)
        found, first, where = np.unique(digests, return_index=True, return_inverse=True)
        for at, digest in zip(first.tolist(), found.tolist(), strict=True):
            if digest not in self._numbers:
                if len(self._numbers) >= _MOST_STACKS:
                    break
                self._numbers[digest] = self._kept(batch, int(rows[at]), int(depths[at]))
        known = [self._numbers.get(digest) for digest in found.tolist()]
        numbers = np.array([NO_STACK if n is None else n for n in known], np.int64)
        each = where.reshape(-1)
        self.left_out += int(np.isin(each, [i for i, n in enumerate(known) if n is None]).sum())
        return numbers[each]

    def _kept(self, batch: Batch, row: int, depth: int) -> int:
        if depth <= 0:
            return NO_STACK
        assert self._fields is not None
        begin = int(batch.offset[row]) + self._fields[1]
        kept = min(depth, MAX_DEPTH)
        data = batch.payload[begin : begin + kept * _ADDRESS_BYTES].tobytes()
        self._chains.append((tuple(np.frombuffer(data, "<u8").tolist()), depth > MAX_DEPTH))
        return len(self._chains) - 1

    def column(self, numbers: NDArray[np.int64]) -> pa.Array:
        """Returns the stacks with these numbers as text; null for NO_STACK."""
        used, codes = np.unique(numbers, return_inverse=True)
        texts = [self._text(number) if number >= 0 else "" for number in used.tolist()]
        told = np.array([bool(text) for text in texts], np.bool_)[codes.reshape(-1)]
        self.too_long += int(np.count_nonzero((numbers >= 0) & ~told))
        indices = pa.array(codes.reshape(-1).astype(np.int32), mask=~told)
        return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))

    def _text(self, number: int) -> str:
        text = self._texts.get(number)
        if text is None:
            addresses, deeper = self._chains[number]
            frames = self._frames(addresses)
            text = ";".join(reversed([*frames, TRUNCATED] if deeper else frames))
            if len(text) > min(self._text_room, _LONGEST):
                text = ""
            self._text_room -= len(text)
            self._texts[number] = text
        return text

    def _frames(self, addresses: Iterable[int]) -> list[str]:
        frames: list[str] = []
        for address in addresses:
            frame = self._names.get(address)
            if frame is None:
                frame = self._names[address] = self._name(address)
            if frames or not frame.startswith(PLUMBING):
                frames.append(frame)
        return frames

    def _name(self, address: int) -> str:
        assert self._kernel is not None
        # The call lies before the address to which it returns, which may be in the next function.
        (name,) = self._kernel.table.names_of(np.array([max(address - 1, 0)], np.uint64))
        return escaped(without_module(name)) if name else UNKNOWN

    def losses(self) -> Mapping[str, int]:
        """Returns counts of the stacks that were left out, by phrase (`store.left_out`)."""
        told = {
            "kernel stacks left out: no names of kernel functions are known": self.unnamed,
            f"kernel stacks left out: {_MOST_STACKS} are known": self.left_out,
            "kernel stacks left out: their names take too much memory": self.too_long,
        }
        return {phrase: count for phrase, count in told.items() if count}


@compiled
def _digest(
    payload: Any,
    offset: Any,
    length: Any,
    rows: Any,
    size_at: int,
    callers_at: int,
    digests: Any,
    depths: Any,
) -> None:
    """Digests the addresses in events, and counts them: 0 in an event that is too short."""
    for i in range(len(rows)):
        row = rows[i]
        room = (length[row] - callers_at) // 8
        if size_at + 4 > length[row] or room <= 0:
            continue
        depth: Any = np.int64(0)
        for k in range(4):
            depth |= np.int64(payload[offset[row] + size_at + k]) << (8 * k)
        depth = min(depth, np.int64(room))
        digest = np.uint64(0xCBF29CE484222325)
        last: Any = np.int64(0)
        for frame in range(min(depth, np.int64(128))):
            address = np.uint64(0)
            at = offset[row] + callers_at + 8 * frame
            for k in range(8):
                address |= np.uint64(payload[at + k]) << np.uint64(8 * k)
            if address == np.uint64(0) or address == ~np.uint64(0):
                break  # older kernels fill the rest
            last = np.int64(frame + 1)
            digest ^= address
            digest *= np.uint64(0x9E3779B97F4A7C15)
            digest ^= digest >> np.uint64(29)
        digests[i] = digest
        depths[i] = last
