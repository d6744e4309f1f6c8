"""Many traces: finding them, and mapping one function over them in this process or by Dask.

sources.py    traces in folders, packed or not, or at a URL
remote.py     traces at URLs (fsspec)
mapping.py    maps a function over traces: in this process, in others, or on a cluster
worker.py     start of a local Dask worker
"""
