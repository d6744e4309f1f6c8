"""Scripts for those who work on the project: set-up, the demo, other kernels, CI's second try."""
