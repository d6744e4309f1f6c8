"""What can be observed in the kernel, and how."""
