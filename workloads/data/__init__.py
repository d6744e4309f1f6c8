"""Data sets: made by seed, written as real files, read back sample by sample."""
