"""Power modes: the number and speed of a run's cores, set before the run and restored after it."""
