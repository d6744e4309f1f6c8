"""Data sets: generated from a seed, written as real files, read back sample by sample."""
