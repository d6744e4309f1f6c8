"""The probes: one module each, with the kernel's events, their table and how its rows are made."""
