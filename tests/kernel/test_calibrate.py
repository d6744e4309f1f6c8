"""Calibration leaves block devices alone that are in use, or may hold data."""

import subprocess
from pathlib import Path

import pytest

from tracer.analysis.flushlayer.devices.calibrate import calibrate
from tracer.probes.errors import UsageError

pytestmark = pytest.mark.kernel
SMALL = {"size": 1 << 20, "seconds": 0.1, "depth": 4}


def test_a_mounted_device_is_refused_even_when_told(file_system):
    mount, number = file_system(size_mib=4)
    device = Path("/dev") / Path(f"/sys/dev/block/{number}").resolve().name
    (mount / "precious").write_text("data")
    with pytest.raises(UsageError, match=f"{device} cannot be measured: Device or resource busy"):
        calibrate(device, "mine", "ssd", overwrite=True, **SMALL)
    subprocess.run(["umount", str(mount)], check=True)
    with pytest.raises(UsageError, match=f"{device} may hold data"):
        calibrate(device, "mine", "ssd", **SMALL)
