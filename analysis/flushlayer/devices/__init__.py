"""The catalogue of devices; each value has its unit, source and confidence.

device.py       a device, and the catalogue: devices.toml and the user's own file
parameters.py   the list of parameters, for which kinds of device, and their units
calibrate.py    a catalogue entry of the user's own device, measured by fio
"""

from tracer.analysis.flushlayer.devices.device import (
    PAGE,
    Device,
    Parameter,
    catalogue,
    find_device,
    fua_ns,
    load,
    missing,
    names,
    page_ns,
)

__all__ = [
    "PAGE",
    "Device",
    "Parameter",
    "catalogue",
    "find_device",
    "fua_ns",
    "load",
    "missing",
    "names",
    "page_ns",
]
