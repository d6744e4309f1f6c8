"""Jobs some of whose events are lost: those of pages, and those of reclaim.

It is written from docs/predict.md (Limits, Pages in memory before the recording) and docs/reads.md,
not from the code of `tracer predict`.
"""

from __future__ import annotations

from typing import Any

from tests.oracles.called_jobs import removal
from tests.oracles.warm_pages import File, Row, WarmJobs


class LostJobs(WarmJobs):
    """The jobs as the events tell them that are left: a share of them is lost.

    Each call reads one page. If all of its events are lost, it is no use. A page whose arrival is
    lost did not come, and one whose departure is lost stays. If the begin of a reclaim is lost, a
    program takes what it evicts. If its end is lost, reclaim takes all that the thread takes out
    before its next reclaim.
    """

    def __init__(self, seed: int, lost: float = 0.2, **options: Any) -> None:
        self.lost = lost
        self.gaps: list[Row] = []
        self.otherwise = 0
        """Pages that reclaim evicts and a program takes by the events that are left, or reverse."""
        self._reclaiming: set[int] = set()
        """Threads that reclaim, by the events that are left."""
        super().__init__(seed, loses=lost, **options)

    def _comes(self, file: File, index: int) -> bool:
        """Brings a page in. Its arrival is lost later."""
        missing = (file, index) not in self._cached
        self._cached.add((file, index))
        return missing

    def _read(self, actor: str, file: File, first: int, pages: int) -> None:
        """Reads a page. The call is lost, or the arrival of the page, or nothing."""
        rows, calls, opened = self.tables["page_cache"], len(self.calls), self._openings.copy()
        events, new = len(rows), self.recorded.copy()
        super()._read(actor, file, first, pages)
        told, (self.recorded, new) = rows[events:], (new, self.recorded - new)
        lost = {row["event"] for row in told if self._loses(row)}
        if "access" in lost:
            del rows[events:], self.calls[calls:]
            self._openings = opened
            return
        rows[events:] = [row for row in told if row["event"] != "add" or "add" not in lost]
        if "add" not in lost:
            self.recorded += new
            self.came.update((file, row["index"]) for row in told if row["event"] == "add")

    def _take_some(self, file: File) -> None:
        """Takes pages. Some of the events of pages, and of reclaim, are lost."""
        rows, reclaim, calls = self.tables["page_cache"], self.tables["reclaim"], len(self.calls)
        events, marks = len(rows), len(reclaim)
        super()._take_some(file)
        by_program = len(self.calls) > calls
        del self.calls[calls:]
        rows[events:] = [row for row in rows[events:] if not self._loses(row)]
        reclaim[marks:] = [mark for mark in reclaim[marks:] if not self._loses(mark)]
        self._reclaiming |= {one["tid"] for one in reclaim[marks:] if one["event"] == "memcg_begin"}
        for row in rows[events:]:
            evicted = row["tid"] in self._reclaiming
            self.otherwise += evicted == by_program
            for index in range(row["index"], row["index"] + row["pages"]) if not evicted else ():
                self.calls.append(removal(file, index, row["ts"]))
        self._reclaiming -= {one["tid"] for one in reclaim[marks:] if one["event"] == "memcg_end"}

    def _loses(self, row: Row) -> bool:
        """Draws if an event is lost. Then a gap tells that one is missing on its CPU."""
        if self.draw.random() >= self.lost:
            return False
        gap = {"stream": "ftrace-machine-cpu0", "cpu": row["cpu"], "cause": "buffer overrun"}
        self.gaps.append(gap | {"from": row["ts"], "to": row["ts"], "count": 1})
        return True

    @property
    def loss(self) -> dict[str, int]:
        """The summary of the losses in the manifest."""
        return {"events": len(self.gaps), "windows": len(self.gaps), "unknown": 0, "others": 0}
