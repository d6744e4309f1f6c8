"""Verbs without privileges."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.support.pages import Page, raw_trace

FIXTURES = ROOT / "fixtures"


def one_line(text):
    assert text.count("\n") == 1, text
    assert text.startswith("tracer: ")
    return text


@pytest.mark.skipif(os.geteuid() != 0, reason="wants to become nobody")
class TestNobody:
    """Without privileges."""

    @pytest.fixture
    def nobody(self, tmp_path):
        """Run `tracer` as nobody, who needs to reach this interpreter and the packages."""

        def run(*arguments):
            source = (
                "import os, sys\n"
                "import docker, duckdb, numba, numpy, pandas, psutil, pyarrow.parquet\n"
                "import rich.console\n"
                "from tracer.analysis.report import tables; from tracer.session import recording\n"
                "from tracer.cli import clean, doctor, info, record; import tracer.probes.doctor\n"
                "from tracer.cli.main import main\n"
                "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
                f"sys.argv = ['tracer', *{[str(a) for a in arguments]!r}]\n"
                "main()\n"
            )
            return subprocess.run(
                [sys.executable, "-c", source],
                capture_output=True,
                text=True,
                check=False,
                cwd="/",
            )

        return run

    def test_record_needs_root_and_says_so(self, nobody):
        ran = nobody("record", "-e", "syscalls", "-o", "/tmp/never.trace", "--", "/bin/true")
        assert ran.returncode == 3, ran.stderr
        assert "root" in one_line(ran.stderr)
        assert not Path("/tmp/never.trace").exists()

    def test_doctor_says_what_is_missing(self, nobody):
        ran = nobody("doctor")
        assert ran.returncode == 3, ran.stderr
        assert "user 65534" in ran.stdout
        assert "sudo" in ran.stdout

    def test_clean_needs_root_and_says_so(self, nobody):
        ran = nobody("clean")
        assert ran.returncode == 3, ran.stderr
        one_line(ran.stderr)

    @pytest.mark.parametrize(
        "words",
        [
            ("export", FIXTURES / "lenet.trace", "-o", "/never"),
            ("pack", FIXTURES / "lenet.trace", "-o", "/never"),
            ("import", FIXTURES / "exchange/load.blkparse.txt", "-o", "/never"),
            ("study", "run", "quick", "-o", "/never"),
        ],
        ids=lambda words: words[0],
    )
    def test_an_unwritable_output_has_one_status(self, nobody, words):
        ran = nobody(*words)
        assert ran.returncode == 3, ran.stderr
        said = one_line(ran.stderr)
        assert "/never" in said and "Permission denied" in said
        assert not Path("/never").exists()

    def test_a_folder_that_may_not_be_looked_into_has_the_same_status(self, nobody, tmp_path):
        (tmp_path / "closed").mkdir(mode=0o700)
        ran = nobody("report", FIXTURES / "lenet.trace", "--html", tmp_path / "closed/x.html")
        assert ran.returncode == 3, ran.stderr
        assert "closed/x.html: Permission denied; name another file" in one_line(ran.stderr)

    def test_a_foreign_trace_may_not_be_read(self, nobody, tmp_path):
        raw_trace(tmp_path / "t", {0: [Page(0)]})
        (tmp_path / "t/manifest.json").chmod(0o600)
        ran = nobody("info", tmp_path / "t")
        assert ran.returncode in (3, 6), ran.stderr
        assert "Traceback" not in ran.stderr
        one_line(ran.stderr)
