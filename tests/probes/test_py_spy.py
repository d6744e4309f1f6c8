"""Words of py-spy about processes that may have chosen them."""

import os

import pytest

from tracer.probes.backends.py_spy import NotRead, look

FAILS = "#!/bin/sh\nhead -c 4096 /dev/zero | tr '\\0' '\\001' >&2\nexit 1\n"


def test_the_reason_of_a_failure_is_short_and_printable(tmp_path):
    """Reasons are kept for the table of losses, in a file with a limit."""
    script = tmp_path / "py-spy"
    script.write_text(FAILS)
    script.chmod(0o755)
    with pytest.raises(NotRead) as error:
        look(str(script), os.getpid())
    said = str(error.value)
    assert said.isprintable()
    assert 0 < len(said) <= 200
