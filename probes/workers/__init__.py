"""Processes of our own for what may not end, or may not be trusted to: forked, asked, given up on.

process.py       a worker: forked from this process, asked by messages, each with a deadline
opening.py       a place in a file system, found by a worker
confinement.py   how a worker gives up its rights, and all but little memory and time
system_calls.py  the filter that leaves a worker a few system calls

What reads bytes that a recorded process could have made is confined. What only opens files, which
takes rights, is not: it is a worker so that a file server that never answers stops nobody else.
"""
