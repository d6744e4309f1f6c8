"""The caller of sudo is known by two variables, which anybody can set."""

import os

import pytest

from tracer.probes.symbols.resolver import _user_of
from tracer.store.files import invoking_user

NO_PROCESS = 1 << 22


@pytest.mark.parametrize("wrong", ["abc", "", "-1", "4294967295", "9" * 20, "\u0661_0"])
@pytest.mark.parametrize("name", ["SUDO_UID", "SUDO_GID"])
def test_a_variable_without_an_id_names_no_caller(monkeypatch, name, wrong):
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1000")
    monkeypatch.setenv(name, wrong)
    assert invoking_user() is None
    assert _user_of(NO_PROCESS) == os.geteuid()


def test_the_variables_of_sudo_name_its_caller(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "4294967294")
    known = os.geteuid() == 0
    assert invoking_user() == ((1000, 4294967294) if known else None)
    assert _user_of(NO_PROCESS) == (1000 if known else os.geteuid())
