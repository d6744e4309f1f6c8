"""The page cache: the files that were read, and the effect of each read.

reads.py                one row per file and epoch: accesses, hits, misses, evictions
page_uses.py            one row per event of the page cache, with its effect in pages
page_tracking.py        the state of each page, from event to event
page_states.py          records of the states; page_changes.py, page_mappings.py and page_calls.py
                        change them, page_keys.py tells their threads apart
written_mappings.py     folios that a write through a shared mapping makes dirty
inferred_accesses.py    accesses, inferred from system calls if the kernel logs none
open_files.py           the file and position of each descriptor
file_numbers.py         numbers of files, by device and inode
inode_ends.py           ends of inodes, whose numbers new files get
file_pages.py           the file of each page of a write bio
held_back.py            reads that a thread of the kernel logs in place of the reader
asked_bios.py           bios with the thread that asked for each
"""
