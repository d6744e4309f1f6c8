"""Block requests, and the times in which disks had work.

volumes.py            the devices of a trace, for joins of tables that name them differently
devices.py            notes on the devices of a trace
requests.py           one row per block request: latency in the queue and of the service
request_pairing.py    the events of each request, paired by a hash table (request_entries.py)
rest_queues.py        one row per request that is the rest of a split bio: when that was queued
disk_writing.py       times in which disks had writes to do
write_waits.py        one row per time in which a job may have waited for a disk's writes
wait_times.py         those times, joined while they are collected
"""
