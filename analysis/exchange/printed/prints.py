"""Patterns of the lines that the kernel prints for the events of our tables.

In a pattern {NAME:KIND} is a field of the event's format, everything else is literal text.
Kinds: dec, hex (an integer), status (an error, printed as 16 bits without a sign), dev (MAJOR,MINOR
or MAJOR:MINOR), text (up to the next literal), word (a text without spaces), name (a text, the name
of an integer), args (six hexadecimal numbers), zero (an unprinted field whose value is 0), head
(the device in the line's head); {} is text that no column needs. An event has several patterns if
kernels differ, newest first.

Source: `print fmt` of events/SYSTEM/EVENT/format; blkparse: blkparse_fmt.c, by its default formats.
"""

from __future__ import annotations

TEXT_BYTES = {"comm": 16, "newcomm": 16, "rwbs": 16, "name": 32, "bdi": 32, "dst_path": 512}
"""Number of bytes at which texts are cut."""

OPTIONAL = ("cgroup_ino", "args", "comm")
"""Fields that some lines of an event lack, at most one per event; such a line has null there."""

_BIO = "{dev:dev} {rwbs:text} {sector:dec} + {nr_sector:dec} [{comm:text}]"
_REQUEST = "{dev:dev} {rwbs:text} {} ({}) {sector:dec} + {nr_sector:dec}{} [{comm:text}]"
_DONE = "{dev:dev} {rwbs:text} ({}) {sector:dec} + {nr_sector:dec}{} [{error:dec}]"
_WORK = (
    "bdi {name:text}: sb_dev {sb_dev:dev} nr_pages={nr_pages:dec} sync_mode={sync_mode:dec} "
    "kupdate={for_kupdate:dec} range_cyclic={} background={for_background:dec} reason={reason:name}"
)
_WORKS = (f"{_WORK} cgroup_ino={{cgroup_ino:dec}}", f"{_WORK} cgroup={{}}", _WORK)
_BUFFER = "{dev:dev} sector={sector:dec} size={size:dec}"
_FOLIO = "bdi {name:text}: ino={ino:dec} index={index:dec}"
_SINGLE = (
    "bdi {name:text}: ino={ino:dec} state={} dirtied_when={dirtied_when:dec} age={} index={} "
    "to_write={nr_to_write:dec} wrote={wrote:dec}{}"
)
_FAULT = "address={address:hex} ip={ip:hex} error_code={error_code:hex}"
_EXT4 = "dev {dev:dev} ino {ino:dec}{}"

PRINTS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("block:block_bio_queue", "block:block_bio_backmerge", "block:block_bio_frontmerge"),
        (_BIO,),
    ),
    "block:block_bio_remap": (
        "{dev:dev} {rwbs:text} {sector:dec} + {nr_sector:dec} <- ({old_dev:dev}) {old_sector:dec}",
    ),
    **dict.fromkeys(
        ("block:block_rq_insert", "block:block_rq_merge", "block:block_rq_issue"), (_REQUEST,)
    ),
    **dict.fromkeys(
        ("block:block_rq_requeue", "block:block_rq_complete", "block:block_rq_error"), (_DONE,)
    ),
    **dict.fromkeys(("block:block_touch_buffer", "block:block_dirty_buffer"), (_BUFFER,)),
    **dict.fromkeys(
        (
            *("writeback:writeback_queue", "writeback:writeback_exec"),
            *("writeback:writeback_start", "writeback:writeback_written"),
            "writeback:writeback_wait",
        ),
        _WORKS,
    ),
    "writeback:writeback_pages_written": ("{pages:dec}",),
    "writeback:writeback_wake_background": (
        "bdi {name:text}: cgroup_ino={cgroup_ino:dec}",
        "bdi {name:text}",
    ),
    "writeback:writeback_dirty_folio": (_FOLIO,),
    "writeback:writeback_dirty_page": (_FOLIO,),
    "writeback:writeback_mark_inode_dirty": ("bdi {name:text}: ino={ino:dec} state={}",),
    "writeback:balance_dirty_pages": ("bdi {bdi:text}: limit={} pause={pause:dec} period={}",),
    "writeback:writeback_single_inode_start": (_SINGLE,),
    "writeback:writeback_single_inode": (_SINGLE,),
    "writeback:writeback_write_inode": ("bdi {name:text}: ino={ino:dec} sync_mode={}",),
    "raw_syscalls:sys_enter": ("NR {id:dec} ({args:args})", "NR {id:dec} ({}"),
    "raw_syscalls:sys_exit": ("NR {id:dec} = {ret:dec}",),
    "exceptions:page_fault_user": (_FAULT,),
    "exceptions:page_fault_kernel": (_FAULT,),
    "signal:signal_generate": ("sig={sig:dec} errno={} code={code:dec} comm={}",),
    "task:task_newtask": ("pid={pid:dec} comm={comm:text} clone_flags={clone_flags:hex} {}",),
    "task:task_rename": ("pid={pid:dec} oldcomm={} newcomm={newcomm:text} oom_score_adj={}",),
    "sched:sched_process_exec": ("filename={} pid={pid:dec} old_pid={old_pid:dec}",),
    "sched:sched_process_exit": ("comm={comm:text} pid={pid:dec} prio={}",),
    "cgroup:cgroup_attach_task": (
        "dst_root={dst_root:dec} dst_id={} dst_path={dst_path:text} pid={pid:dec} comm={}",
    ),
    "ext4:ext4_writepages": (
        "dev {dev:dev} ino {ino:dec} nr_to_write {nr_to_write:dec} pages_skipped {} "
        "range_start {range_start:dec} range_end {range_end:dec} sync_mode {sync_mode:dec}{}",
    ),
    **dict.fromkeys(
        (
            *("ext4:ext4_writepages_result", "ext4:ext4_sync_file_enter"),
            *("ext4:ext4_sync_file_exit", "ext4:ext4_free_inode"),
        ),
        (_EXT4,),
    ),
    "ext4:ext4_alloc_da_blocks": ("dev {dev:dev} ino {ino:dec} reserved_data_blocks {}",),
    "ext4:ext4_fc_commit_start": ("dev {dev:dev}{}",),
    "ext4:ext4_fc_commit_stop": ("dev {dev:dev} {}",),
    "iomap:iomap_dio_rw_begin": (
        "dev {dev:dev} ino {ino:hex} size {} offset {pos:hex} length {count:hex} {}",
    ),
    "iomap:iomap_dio_rw_queued": ("dev {dev:dev} ino {ino:hex} {}",),
    "iomap:iomap_dio_complete": ("dev {dev:dev} ino {ino:hex} {}",),
    **dict.fromkeys(
        ("xfs:xfs_file_fsync", "xfs:xfs_dir_fsync", "xfs:xfs_inode_inactivating"),
        ("dev {dev:dev} ino {ino:hex} {}",),
    ),
    **dict.fromkeys(
        ("xfs:xfs_map_blocks_found", "xfs:xfs_map_blocks_alloc"),
        ("dev {dev:dev} ino {ino:hex} disize {} pos {offset:hex} bytecount {count:hex} {}",),
    ),
    "xfs:xlog_iclog_write": ("dev {dev:dev} state {}",),
}
"""Patterns of each event in the output of perf script and trace-cmd report."""

_SIZED = "{dev:head}{rwbs:word} {sector:dec} + {nr_sector:dec} "
_FLUSH = "{dev:head}{sector:zero}{nr_sector:zero}{rwbs:word} "
_BLK = (
    f"{_SIZED}[{{comm:text}}]",
    f"{_FLUSH}[{{comm:text}}]",
    *(f"{_FLUSH}{{bytes:dec}} {command}[{{comm:text}}]" for command in ("({}) ", "")),
)
"""The last two are passthrough requests: bytes and command, but no sectors."""
_BLK_DONE = (
    f"{_SIZED}[{{error:status}}]",
    "{dev:head}{nr_sector:zero}{rwbs:word} {sector:dec} [{error:status}]",
    f"{_FLUSH}[{{error:status}}]",
    f"{_FLUSH}({{}}) [{{error:status}}]",
)

BLKPARSE_EVENTS = {
    "Q": "block:block_bio_queue",
    "M": "block:block_bio_backmerge",
    "F": "block:block_bio_frontmerge",
    "I": "block:block_rq_insert",
    "D": "block:block_rq_issue",
    "C": "block:block_rq_complete",
    "A": "block:block_bio_remap",
    "R": "block:block_rq_requeue",
}
"""Blkparse's names of the events of our table."""

BLKPARSE_PRINTS: dict[str, tuple[str, ...]] = {
    **{BLKPARSE_EVENTS[action]: _BLK for action in "QMFID"},
    "block:block_rq_complete": _BLK_DONE,
    "block:block_bio_remap": (f"{_SIZED}<- ({{old_dev:dev}}) {{old_sector:dec}}",),
    "block:block_rq_requeue": _BLK_DONE + _BLK,
}
"""Patterns of each event in the output of blkparse."""
