"""The operation of an rwbs string is the same at the decoding of call graphs and in queries."""

import itertools

import duckdb

from tracer.analysis.views.disks.requests import OPERATION
from tracer.probes.events.block import operation


def test_python_and_sql_name_the_same_operation():
    texts = [
        "".join(one) for size in range(4) for one in itertools.product("FWRDNS\n", repeat=size)
    ]
    found = duckdb.sql(
        f"SELECT rwbs, {OPERATION} FROM (SELECT unnest($t) AS rwbs)", params={"t": texts}
    )
    assert dict(found.fetchall()) == {text: operation(text) for text in texts}


def test_operations_of_the_kernels_own_strings():
    kernel = {  # kernel/trace/blktrace.c blk_fill_rwbs()
        "W": "write", "WSM": "write", "FWFS": "write", "RA": "read", "D": "discard",
        "DE": "discard", "FF": "flush", "F": "flush", "N": "other", "ZAW": "other",
    }  # fmt: skip
    assert {text: operation(text) for text in kernel} == kernel
