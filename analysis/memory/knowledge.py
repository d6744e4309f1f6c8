"""The part of a recording's reads whose file and place are known."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.analysis.views.reading.page_uses import page_uses
from tracer.analysis.views.threads import name_of_others, of_everybody
from tracer.store.manifest import page_bytes
from tracer.store.trace import Trace

_BY_TARGET = """
SELECT target, bool_or(inferred) AS inferred, sum(unplaced)::BIGINT AS unplaced,
    sum(accessed)::BIGINT AS accessed
FROM page_uses WHERE target IS NOT NULL OR $everybody GROUP BY target ORDER BY target
"""


@dataclass(frozen=True)
class Knowledge:
    """The source of a trace's accesses, and what it does not tell."""

    inferred: bool
    """They follow from system calls and faults, since the kernel logged none."""
    unknown: dict[str, float]
    """The share of the bytes read whose file or place in it is not known, by target; empty if the
    kernel logged the accesses."""

    @property
    def sentences(self) -> list[str]:
        """Sentences to show with a result; none if the kernel logged the accesses."""
        if not self.inferred:
            return []
        said = [
            "The accesses are inferred from system calls and page faults, because this kernel logs"
            " none"
        ]
        said += [
            f"{target}: the file or the place of {100 * share:.1f} % of the data that it read is"
            " not known, so its hits are not complete"
            for target, share in self.unknown.items()
            if share > 0
        ]
        return said


def knowledge(trace: Trace) -> Knowledge:
    """Returns it for the targets of a trace, or for all processes. Needs the table page_cache."""
    page_uses(trace)
    page = page_bytes(trace.manifest)
    inferred, unknown = False, {}
    query = _BY_TARGET.replace("$everybody", str(of_everybody(trace)))
    for target, guessed, unplaced, accessed in trace.rows(query):
        inferred = inferred or bool(guessed)
        whole = unplaced + accessed * page
        if guessed and whole > 0:
            unknown[target or name_of_others(trace)] = unplaced / whole
    return Knowledge(inferred, unknown)
