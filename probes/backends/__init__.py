"""Ways to get events out of the kernel, all into the same tables."""
