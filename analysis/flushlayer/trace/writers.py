"""A layer takes the targets' page write-backs, or everybody's; what it leaves out is counted."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.views.whose import MINE

TARGETS, EVERYBODY = "targets", "everybody"
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Count:
    """Pages by whose they are, as the column `whose` of the view flushes says."""

    target: int = 0
    shared: int = 0
    """Pages of files that others had dirtied, too."""
    other: int = 0
    unknown: int = 0

    @property
    def mine(self) -> int:
        """Pages of targets, alone or with others."""
        return self.target + self.shared

    @property
    def all(self) -> int:
        """Pages of anybody."""
        return self.mine + self.other + self.unknown


@dataclass(frozen=True)
class Writers:
    """The writers whose pages were taken; all pages that were written, but the recorder's own."""

    taken: str
    """TARGETS or EVERYBODY."""
    why: str
    """Why everybody's were taken; empty: the targets' were."""
    data: Count
    of_all: Count
    """The journal and metadata, which file systems write for everybody: all inferred."""

    @property
    def pages(self) -> int:
        """All that were written, by anybody."""
        return self.data.all + self.of_all.all

    @property
    def mine(self) -> int:
        """Pages of the targets."""
        return self.data.mine + self.of_all.mine

    @property
    def left_out(self) -> int:
        """Pages that the models do not see."""
        return self.pages - self.mine if self.taken == TARGETS else 0

    @property
    def left_out_share(self) -> float:
        """The share of all pages that the models do not see, 0 to 1."""
        return self.left_out / self.pages if self.pages else 0.0

    def facts(self) -> dict[str, Any]:
        """For JSON: taken, why (None: the targets' were asked for), pages, left_out,
        left_out_share, data and journal_and_metadata (target, shared, other, unknown each)."""
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
        """Sentences: whose pages were taken, what of them is shared or inferred, what is not."""
        if self.taken == EVERYBODY:
            said = f"the pages of every writer count ({self.why})"
            known = self.mine or self.data.other
            share = f"; {_share(self.mine, self.pages)} are known to be the targets'"
            return [said + (share if known else "")]
        said = f"the targets' pages count: {_share(self.mine, self.pages)} that were written"
        parts = [
            f"{number:,} {what}"
            for number, what in (
                (self.of_all.mine, "of journal and metadata (inferred from who wrote or synced)"),
                (self.data.shared, "of files that others had dirtied, too"),
            )
            if number
        ]
        found = [said + (f", among them {' and '.join(parts)}" if parts else "")]
        parts = [
            f"{number:,} {what}"
            for number, what in (
                (self.data.other, "of other processes' files"),
                (self.data.unknown, "of files whose writer is not known"),
                (self.of_all.other, "of journal and metadata that others wrote"),
                (self.of_all.unknown, "of journal and metadata that are nobody's for certain"),
            )
            if number
        ]
        left = f"left out: {_share(self.left_out, self.pages)}"
        found.append(f"{left}: {', '.join(parts)} (--all-writers takes them)" if parts else left)
        return found


def writers(rows: pd.DataFrame, pages: NDArray[Any], why: str) -> Writers:
    """Count the pages of written bios; `rows` has whose, of_all (journal and metadata) and write.

    `why` is that of `whose.everybody_because`. What was read does not count.
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
    """Which bios are taken: all (there is a `why`), or those of the targets."""
    if why:
        return np.ones(len(rows), bool)
    found: NDArray[np.bool_] = rows["whose"].isin(MINE).to_numpy(bool)
    return found


def _share(part: int, whole: int) -> str:
    share = f" ({part / whole:.1%})" if whole else ""
    return f"{part:,} of {whole:,} pages{share}"
