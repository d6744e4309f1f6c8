"""The trials that tell which faults map a whole folio."""

import mmap
from pathlib import Path

from tracer.session.folios import folios_mapped

SHIFTED = 150
"""Places in memory: some lie across two page tables, of 2 MiB each on x86."""


def test_the_trials_answer_alike_wherever_their_mappings_lie():
    kept, answers = [], set()
    for _ in range(SHIFTED):
        kept.append(mmap.mmap(-1, 37 * mmap.PAGESIZE))
        answers.add(frozenset(folios_mapped(Path("/var/tmp")).items()))
    assert len(answers) == 1
