"""Words for the requests that disks served while a thread waited for storage."""

import pytest

from tracer.analysis.explain.words import meanwhile


def served(operation, size, requests, dev="8:0", comm="kworker/1:1H", own=False):
    return {
        "dev": dev, "operation": operation, "comm": comm, "for_whom": None, "own": own,
        "requests": requests, "bytes": size,
    }  # fmt: skip


@pytest.mark.parametrize("size", [0, None])
def test_flushes_have_no_amount(size):
    assert meanwhile([served("flush", size, 2)]) == "flushes of kworker/1:1H (2 requests)"


def test_parts_of_several_disks_name_them():
    parts = [served("write", 4096, 1), served("flush", 0, 2), served("flush", 0, 1, "8:16")]
    assert meanwhile(parts) == (
        "4.0 KiB of writes of kworker/1:1H on 8:0 (1 request),"
        " flushes of kworker/1:1H on 8:0 (2 requests),"
        " flushes of kworker/1:1H on 8:16 (1 request)"
    )


def test_own_requests_of_several_disks_name_them():
    parts = [served("read", 4096, 1, own=True), served("discard", 512, 3, "8:16")]
    assert meanwhile(parts) == (
        "4.0 KiB of its own reads on 8:0 (1 request),"
        " 0.5 KiB of discards of kworker/1:1H on 8:16 (3 requests)"
    )


def test_requests_without_a_name_are_other_ones():
    assert meanwhile([served("other", 512, 1)]) == (
        "0.5 KiB of other requests of kworker/1:1H (1 request)"
    )
