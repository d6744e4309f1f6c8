"""Derived tables, each a named function over a trace's tables: DuckDB does the joins.

requests.py   one row a block request, with queue and service latency
flushes.py    one row a page run written back: reason, inode, dirtier, certainty
"""
