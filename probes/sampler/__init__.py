"""The values that are sampled and not logged: use, memory, pressure, disks, power.

Each reader has its own file. A reader declares its series once, reads below a root folder that
tests can change, and gives the reason if the machine lacks its values.
"""
