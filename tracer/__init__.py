"""One recording: what to trace, for how long, and the trace directory that it leaves."""
