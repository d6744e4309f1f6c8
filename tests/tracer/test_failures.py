"""An error of a file is told as what it is: a full disk, or something else, with its own mend."""

import errno
import os
from pathlib import Path

import pytest

from tracer.session.failures import DISK, ERROR, ended_by_error, unwritten


@pytest.mark.parametrize(
    ("number", "ended_by", "told"),
    [
        (errno.ENOSPC, DISK, "the disk of x.trace is full"),
        (errno.EDQUOT, DISK, "the quota of the disk of x.trace is used up"),
        (errno.EFBIG, ERROR, "x.trace ended early: File too large"),
        (errno.EIO, ERROR, "x.trace ended early: Input/output error"),
        (errno.EROFS, ERROR, "x.trace ended early: Read-only file system"),
        (errno.EPERM, ERROR, "x.trace ended early: Operation not permitted"),
    ],
)
def test_an_error_has_its_own_words_and_says_what_is_kept(number, ended_by, told):
    error = OSError(number, os.strerror(number))
    assert ended_by_error(error) == ended_by
    said = str(unwritten(Path("x.trace"), error))
    assert told in said
    assert said.endswith("see it with: tracer info x.trace")
    assert ("full" in said) == (number == errno.ENOSPC)


def test_a_folder_that_is_gone_keeps_nothing():
    said = str(unwritten(Path("x.trace"), OSError(errno.ENOENT, os.strerror(errno.ENOENT))))
    assert "x.trace was removed or replaced while it was recorded" in said
    assert "kept" not in said


def test_the_mend_is_of_the_error():
    limit = OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    assert "ulimit -f" in str(unwritten(Path("x.trace"), limit))
