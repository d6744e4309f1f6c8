"""Views of a trace, reports about it, and simulation of a flush layer."""
