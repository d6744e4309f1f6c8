"""The verbs of `tracer`, one file a verb.

A verb is a plain function with Typer annotations. The entry-point group `tracer.commands` names
it. Its module imports nothing heavy at the top.
"""
