"""Training jobs to trace: models, data, and the loops that real jobs run.

Of our own packages only `tracer.phases` is imported here.
"""
