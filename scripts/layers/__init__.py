"""Stacked devices and real layers, in QEMU: see `make test-layers` and docs/layers.md."""
