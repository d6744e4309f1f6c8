"""Verbs of `tracer` that read traces."""
