"""The device catalogue."""

import pytest

from analysis.flushlayer import devices
from probes.errors import UsageError


def test_the_papers_parameters_are_the_defaults():
    pcm, hdd = devices.find("pcm-paper", "nvm"), devices.find("hdd-paper", "disk")
    assert (pcm.write_ns, hdd.write_ns) == (350, 8_000_000)
    assert (pcm.confidence, hdd.confidence) == ("paper", "paper")


def test_an_unknown_device_names_those_there_are():
    with pytest.raises(UsageError, match=r"no nvm 'flux'; known: .*pcm-paper"):
        devices.find("flux", "nvm")
    with pytest.raises(UsageError, match="no nvm 'hdd-paper'"):
        devices.find("hdd-paper", "nvm")
