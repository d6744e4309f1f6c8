"""Traces in from, and out to, what people already have.

csv_pages.py   page operations as CSV: ts_ns,dev,page,pages,op
"""
