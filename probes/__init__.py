"""The probes: what can be observed in the kernel, and the ways to capture it."""
