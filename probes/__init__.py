"""The probes: the kernel events that can be recorded, and the ways to capture them."""
