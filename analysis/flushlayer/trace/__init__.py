"""A trace as the models take it.

accesses.py     its page write-backs as dense page ids, in time order
writers.py      whose pages are taken, and what is left out
file_pages.py   which page of which file each of them is
recorded.py     its bios as the timed model asks for them, and what waits for what
next_end.py     which request covers a sector next
sync_calls.py   the system calls that wait for them
"""
