"""Another backend beside the programs: they record some of the events, it records all others."""

from __future__ import annotations

from collections.abc import Sequence

from tracer.probes.backends.backend import Backend, Filter, Together
from tracer.probes.backends.drain import Source
from tracer.probes.backends.own_bpf.backend import OwnPrograms
from tracer.probes.schema import Scope


class BesideOwn:
    """A `Backend` made of another one and of the programs."""

    def __init__(self, other: Backend, programs: OwnPrograms) -> None:
        """Joins them. `other` was made without the events of the programs."""
        self.wide = other.wide
        self.layout = other.layout
        self.missing = other.missing
        self.formats = {**other.formats, **programs.formats}
        self.sources: Sequence[Source] = [*programs.sources, *other.sources]
        self.filters: dict[Scope, Filter] = dict(other.filters)
        its = self.filters.get(Scope.TARGET)
        self.filters[Scope.TARGET] = programs if its is None else Together(its, programs)
