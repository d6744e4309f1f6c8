"""Write-back: who dirtied which pages, why they were written, whose data a request carries.

flushes.py         one row per page run written back: reason, inode, dirtier, certainty
submissions.py     write bios with the bracket, system call and file system that they come from
dirtiers.py        processes that dirtied an inode's pages since they were last clean
whose.py           the owner of a write bio: targets, others, or both
carried.py         the bio whose data a bio below a stacked device carries
passes.py          one row per pass of the flusher, with its wake
request_data.py    the data that write requests carry
data_owners.py     owners of the data that a commit wrote while a thread waited for it
"""
