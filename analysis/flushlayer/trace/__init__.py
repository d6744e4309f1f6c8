"""A trace as input of the models.

accesses.py        the page write-backs as dense page ids, in time order
bio_parts.py       the parts of bios that lie in one page of the device and in one page of a file
partial_writes.py  writes past a layer that replace only a part of what it has of a page
writers.py         the writers whose pages are taken, and counts of pages left out
loop_reads.py      the reads of a disk that a loop device on it makes
page_count.py      the size of the pages, and the limit of their number
recorded.py        the bios as input of the timed model, with issuers and completions
last_requests.py   the last request of each bio, which completes it
sync_calls.py      the system calls that wait for bios
file_paths.py      the path of each file, through renames
"""
