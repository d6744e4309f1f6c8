"""The verbs of `tracer`, one file a verb.

A verb is a plain function with Typer annotations, named by the entry-point group
`tracer.commands`; its module imports nothing heavy at the top.
"""
