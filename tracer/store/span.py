"""A span: an activity of a thread with begin and end. The open spans of a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

MOST_OPEN = 1000
"""Deepest nesting of spans on one thread. Deeper nesting means a corrupt marks file."""


@dataclass(slots=True, eq=False)
class Span:
    """An activity of a thread with begin and end. End None: it had not ended.

    Negative pids and tids are those of a container, if the machine's own ids are unknown.
    """

    start: int
    pid: int
    tid: int
    name: str
    epoch: int | None = None
    step: int | None = None
    end: int | None = None
    source: str = "script"
    gpu_ns: int | None = None
    """GPU time in ns, if measured."""
    around: tuple[int | None, int | None] | None = None
    """Epoch and step of the surrounding phase of the script, if that has any."""
    within: int = 0
    """Number of the script's innermost phase `epoch` around it, or of itself; 0: none."""
    number: int = 0
    """Number of the span, counted in order of begin within a process."""
    loop: int = -1
    """If not -1, the epoch is that of cycle `cycle` of this loop (`numbers.Epochs`)."""
    cycle: int = -1


class OpenSpans:
    """The open spans of a thread. An end closes the innermost span of its name."""

    def __init__(self) -> None:
        self._spans: deque[Span] = deque()
        self._often: dict[str, int] = {}
        """Number of open spans by name: a thread may end phases that it never began."""

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    @property
    def inner(self) -> Span | None:
        """The innermost open span."""
        return self._spans[-1] if self._spans else None

    @property
    def outer(self) -> Span | None:
        """The outermost open span."""
        return self._spans[0] if self._spans else None

    def push(self, span: Span) -> Span | None:
        """Opens a span. Returns the outermost span if it was dropped."""
        given_up = self.give_up() if len(self._spans) >= MOST_OPEN else None
        self._spans.append(span)
        self._often[span.name] = self._often.get(span.name, 0) + 1
        return given_up

    def give_up(self) -> Span:
        """Removes and returns the outermost span."""
        span = self._spans.popleft()
        self._forget(span.name)
        return span

    def close(self, ts: int, name: str) -> list[Span]:
        """Ends the innermost span of a name and the spans that an exception left open inside it.

        Returns them, the outermost first; none if the span began before the marks were kept.
        """
        closed: list[Span] = []
        if name not in self._often:
            return closed
        while not closed or closed[-1].name != name:
            span = self._spans.pop()
            span.end = ts
            self._forget(span.name)
            closed.append(span)
        return closed[::-1]

    def _forget(self, name: str) -> None:
        self._often[name] -= 1
        if not self._often[name]:
            del self._often[name]
