"""The writers whose page write-backs a layer takes: the targets or all; counts of the others."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tracer.analysis.views.writing.whose import AS_ASKED, MINE
from tracer.sizes import show_part

TARGETS, EVERYBODY = "targets", "everybody"
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Count:
    """Pages by owner: the column `whose` of the view flushes."""

    target: int = 0
    shared: int = 0
    """Pages of files that both targets and others dirtied."""
    other: int = 0
    unknown: int = 0

    @property
    def mine(self) -> int:
        """Pages of targets, alone or with others."""
        return self.target + self.shared

    @property
    def all(self) -> int:
        """Pages of all owners."""
        return self.mine + self.other + self.unknown


@dataclass(frozen=True)
class Writers:
    """The writers whose pages are taken, and counts of all written pages but the recorder's own."""

    taken: str
    """TARGETS or EVERYBODY."""
    why: str
    """The reason for EVERYBODY; empty for TARGETS."""
    data: Count
    of_all: Count
    """Journal and metadata, which file systems write for all processes: owners are inferred."""

    @property
    def pages(self) -> int:
        """All written pages, of any writer."""
        return self.data.all + self.of_all.all

    @property
    def mine(self) -> int:
        """Pages of the targets."""
        return self.data.mine + self.of_all.mine

    @property
    def left_out(self) -> int:
        """Pages that the models leave out."""
        return self.pages - self.mine if self.taken == TARGETS else 0

    @property
    def left_out_share(self) -> float:
        """Share of all pages that the models leave out, 0 to 1."""
        return self.left_out / self.pages if self.pages else 0.0

    def facts(self) -> dict[str, Any]:
        """Returns the facts for JSON.

        Keys: taken, why (None: only the targets' pages are taken), pages, left_out, left_out_share,
        data and journal_and_metadata (each with target, shared, other, unknown).
        """
        return {
            "taken": self.taken,
            "why": self.why or None,
            "pages": self.pages,
            "left_out": self.left_out,
            "left_out_share": self.left_out_share,
            "data": asdict(self.data),
            "journal_and_metadata": asdict(self.of_all),
        }

    def said(self) -> list[str]:
        """Returns sentences on the pages that are taken, shared or inferred, and left out."""
        mine = show_part(self.mine, self.pages, " pages")
        if self.taken == EVERYBODY:
            said = f"the pages of all writers count ({self.why})"
            known = self.mine or (self.why == AS_ASKED and self.data.other)
            share = f"; {mine} are known to be the targets'"
            return [said + (share if known else "")]
        said = f"only the targets' pages count: {mine} written"
        parts = [
            f"{number:,} {what}"
            for number, what in (
                (self.of_all.mine, "of journal and metadata (inferred from who wrote or synced)"),
                (self.data.shared, "of files that others also dirtied"),
            )
            if number
        ]
        found = [said + (f", including {' and '.join(parts)}" if parts else "")]
        parts = [
            f"{number:,} {what}"
            for number, what in (
                (self.data.other, "of other processes' files"),
                (self.data.unknown, "of files whose writer is not known"),
                (self.of_all.other, "of journal and metadata that others wrote"),
                (self.of_all.unknown, "of journal and metadata whose writer is not known"),
            )
            if number
        ]
        left = f"left out: {show_part(self.left_out, self.pages, ' pages')}"
        found.append(f"{left}: {', '.join(parts)} (--all-writers includes them)" if parts else left)
        return found


def writers(rows: pd.DataFrame, pages: NDArray[Any], why: str) -> Writers:
    """Counts the pages of write bios; `rows` has whose, of_all (journal and metadata) and write.

    `why` is the reason of `whose.everybody_because`. Reads do not count.
    """
    whose = rows["whose"].fillna(_UNKNOWN).to_numpy()
    of_all = rows["of_all"].to_numpy(bool)
    written = rows["write"].to_numpy(bool)

    def count(chosen: NDArray[np.bool_]) -> Count:
        return Count(
            **{
                name: int(pages[chosen & written & (whose == name)].sum())
                for name in (*MINE, "other", _UNKNOWN)
            }
        )

    return Writers(EVERYBODY if why else TARGETS, why, count(~of_all), count(of_all))


def taken(rows: pd.DataFrame, why: str) -> NDArray[np.bool_]:
    """Returns whether each bio is taken: all bios with a `why`, else those of the targets."""
    if why:
        return np.ones(len(rows), bool)
    found: NDArray[np.bool_] = rows["whose"].isin(MINE).to_numpy(bool)
    return found
