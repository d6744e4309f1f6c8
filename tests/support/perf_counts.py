"""Events that perf counts on a device, beside ours."""

INSERTED = "block:block_rq_insert"
"""An event that a device without a scheduler may never have."""
SAME = {
    "block:block_bio_queue": ("block", "bio_queue", "dev"),
    INSERTED: ("block", "insert", "dev"),
    "block:block_rq_issue": ("block", "issue", "dev"),
    "block:block_rq_complete": ("block", "complete", "dev"),
    "block:block_touch_buffer": ("buffers", "touch_buffer", "dev"),
    "block:block_dirty_buffer": ("buffers", "dirty_buffer", "dev"),
    "writeback:writeback_start": ("writeback", "start", "bdi"),
    "writeback:writeback_single_inode": ("inode_writeback", "end", "dev"),
    "writeback:writeback_dirty_folio": ("dirty", "dirty_folio", "dev"),
}
"""perf's events and ours: table, event, and column of the device."""


def perf_stat(dev, log):
    """The command line of a perf that counts what happens on a device."""
    major, minor = map(int, dev.split(":"))
    filters = {"block": f"dev == {major << 20 | minor}", "writeback": f'name == "{dev}"'}
    events = [
        word
        for event in SAME
        for word in ("-e", event, "--filter", filters[event.partition(":")[0]])
    ]
    return ["perf", "stat", "-a", "-x", ",", "-o", log, *events, "--"]
