"""What devices are known to do, each value with its unit, source and confidence.

device.py       a device, and the catalogue: ours (devices.toml) with the user's own file
parameters.py   which parameters there are, of which kinds of device; units
calibrate.py    an entry of a device that one owns, measured by fio
"""

from analysis.flushlayer.devices.device import (
    PAGE,
    Device,
    Parameter,
    catalogue,
    find,
    load,
    missing,
    page_ns,
)

__all__ = ["PAGE", "Device", "Parameter", "catalogue", "find", "load", "missing", "page_ns"]
