"""The values that are sampled and not logged: use, memory, pressure, disks, power.

One file a reader. A reader declares its series once, reads below a root that tests can put
elsewhere, and says why where the machine cannot give what it reads.
"""
