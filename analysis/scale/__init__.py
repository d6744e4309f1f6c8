"""Many traces: where they are found, and one function mapped over them, here or by Dask.

sources.py    traces in folders, packed or not, or at a URL
remote.py     those at URLs (fsspec)
mapping.py    a function of one trace over many: in this process, in others, on a cluster
worker.py     how a worker of ours starts
"""
