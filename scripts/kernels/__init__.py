"""Tests of the tracer on Debian's kernels, in QEMU: see `make test-kernels` and docs/kernels.md."""
