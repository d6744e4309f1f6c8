"""The view `flushes` and the naive one agree on write-backs drawn at random."""

import random

from analysis.views.flushes import FLUSHES
from tests.oracles.drawing import batches, grouped, rows_of_view
from tests.oracles.drawn_writes import TABLES, Disk
from tests.oracles.flushes import flushes_of

DISKS = 100
"""Cases in a trace, each on a disk of its own, with threads of its own."""
COLUMNS = ("ts", "dev", "sector", "reason", "ino", "dirtier", "dirtiers", "target", "certainty")


def compared(cases: list[random.Random]) -> tuple[dict, dict, list[Disk]]:
    """Rows of the view and of the oracle by disk, and the disks as they were drawn."""
    half = DISKS // 2
    drawn = [Disk(case, numbers, case > half).run() for case, numbers in enumerate(cases)]
    tables = {name: [row for one in drawn for row in one.tables[name]] for name in TABLES}
    names = ("disks", "mounts")
    manifest = {name: [row for one in drawn for row in one.manifest[name]] for name in names}
    rows = rows_of_view(FLUSHES, tables, **manifest)
    found = [{name: row[name] for name in COLUMNS} for row in rows]
    expected = flushes_of(tables, manifest)
    return grouped(found, lambda r: r["dev"]), grouped(expected, lambda r: r["dev"]), drawn


def test_the_flushes_of_disks_are_those_of_the_oracle():
    for cases in batches(DISKS):
        found, expected, _ = compared(cases)
        assert found == expected
