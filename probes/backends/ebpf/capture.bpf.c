// SPDX-License-Identifier: GPL-2.0
//
// Tracepoints into two rings: that of the targets' threads alone, and that of the whole machine.
//
// One function an event is added by the loader, which knows ids and sizes from the kernel's own
// format files: `int on_N(void *ctx) { return record(ctx, id, bytes, scope); }`. Only fields of
// tracepoints are read, never a struct of the kernel.
//
// Defined by the loader: RECORDER (its process), TARGET_PAGES and MACHINE_PAGES (of the rings),
// EVERYBODY (1: every thread is a target's).

#include <uapi/linux/bpf_perf_event.h>
#include <uapi/linux/ptrace.h>

#define TARGET 0
#define MACHINE 1
// Of a tracepoint's program: 0 would keep the event from every perf of the machine, whoever's it
// is (perf_trace_run_bpf_submit).
#define PASS_ON 1
#define TIDS_A_PAGE 4096
#define TIDS (4 << 20) // PID_MAX_LIMIT

struct head {
    u64 ts;
    u32 tid;
    u32 tgid;
    u16 type;
    u16 cpu;
    u32 spare; // with `type` and `cpu`: where a tracepoint has its common fields
};

struct tids {
    u8 followed[TIDS_A_PAGE];
};

BPF_ARRAY(open_scopes, u32, 2);
// Mapped by the recorder, which marks threads byte by byte beside us.
BPF_F_TABLE("array", u32, struct tids, followed_tids, TIDS / TIDS_A_PAGE, BPF_F_MMAPABLE);
BPF_PERCPU_ARRAY(lost_records, u64, 2);
BPF_RINGBUF_OUTPUT(target_ring, TARGET_PAGES);
BPF_RINGBUF_OUTPUT(machine_ring, MACHINE_PAGES);

static __always_inline u8 *mark_of(u32 tid)
{
    u32 page = tid / TIDS_A_PAGE;
    struct tids *tids = followed_tids.lookup(&page);
    return tids ? &tids->followed[tid % TIDS_A_PAGE] : 0;
}

static __always_inline int is_open(int scope, u64 who)
{
    int key = scope;
    u32 *open = open_scopes.lookup(&key);
    if (!open || !*open)
        return 0;
    if (scope == MACHINE || EVERYBODY)
        return who >> 32 != RECORDER;
    u8 *mark = mark_of((u32)who);
    return mark && *mark;
}

static __always_inline void *reserve(int scope, int size)
{
    void *out = scope == TARGET ? target_ring.ringbuf_reserve(size)
                                : machine_ring.ringbuf_reserve(size);
    if (!out) {
        int key = scope;
        u64 *lost = lost_records.lookup(&key);
        if (lost)
            (*lost)++;
    }
    return out;
}

static __always_inline void begin(struct head *head, u64 who, u16 type)
{
    // After the reservation: a record is never older than its place in the ring.
    head->ts = bpf_ktime_get_ns();
    head->tid = who;
    head->tgid = who >> 32;
    head->type = type;
    head->cpu = bpf_get_smp_processor_id();
    head->spare = 0;
}

static __always_inline void submit(int scope, void *out)
{
    if (scope == TARGET)
        target_ring.ringbuf_submit(out, BPF_RB_NO_WAKEUP);
    else
        machine_ring.ringbuf_submit(out, BPF_RB_NO_WAKEUP);
}

// The first `bytes` bytes of a tracepoint's record, less its common fields.
static __always_inline int record(void *ctx, u16 type, int bytes, int scope)
{
    u64 who = bpf_get_current_pid_tgid();
    if (!is_open(scope, who))
        return PASS_ON;
    struct head *out = reserve(scope, sizeof(struct head) + bytes - 8);
    if (!out)
        return PASS_ON;
    begin(out, who, type);
    if (bytes > 8)
        bpf_probe_read_kernel(out + 1, bytes - 8, ctx + 8);
    submit(scope, out);
    return PASS_ON;
}

// Children of a target's threads are the target's, as they are made; `pid` by the format file.
static __always_inline int follow(void *ctx, int offset)
{
    u8 *parent = mark_of((u32)bpf_get_current_pid_tgid());
    if (!parent || !*parent)
        return PASS_ON;
    u32 child = 0;
    bpf_probe_read_kernel(&child, sizeof(child), ctx + offset);
    u8 *mark = mark_of(child);
    if (mark)
        *mark = 1;
    return PASS_ON;
}

static __always_inline int forget(void *ctx, int offset)
{
    u32 tid = 0;
    bpf_probe_read_kernel(&tid, sizeof(tid), ctx + offset);
    u8 *mark = mark_of(tid);
    if (mark && *mark)
        *mark = 0;
    return PASS_ON;
}
