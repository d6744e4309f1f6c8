// SPDX-License-Identifier: GPL-2.0
//
// Counts events instead of recording them, for runs of hours: sums by process and log2 histograms
// of times. It is compiled after capture.bpf.c and uses its filter. The loader passes the offsets
// of tracepoint fields, from the kernel's format files, or those of arguments of raw tracepoints.

#define SYSCALL 1
#define FAULT 2
#define REQUEST 3
#define WRITEBACK 4

struct sum_key {
    // By kind: system call number; 0 for minor or 1 for major faults; device and operation;
    // reason of write-back.
    u64 what;
    u32 tgid;
    u32 kind;
};

struct sum {
    u64 count;
    u64 errors;
    u64 total_ns;
    u64 amount; // bytes of a request, pages written back
};

struct slot_key {
    u64 what;
    u32 kind;
    u32 slot; // bpf_log2l(): times from 2^(slot - 1) ns to less than 2^slot ns
};

struct begun {
    u64 ts;
    u64 what;
};

struct place {
    u64 sector;
    u32 dev;
    u32 spare;
};

BPF_PERCPU_HASH(sums, struct sum_key, struct sum, 65536);
BPF_PERCPU_HASH(slots, struct slot_key, u64, 65536);
BPF_HASH(calls_begun, u32, struct begun, 65536);
BPF_HASH(requests_begun, struct place, struct begun, 65536);
BPF_HASH(reasons, u32, u64, 4096);
BPF_PERCPU_ARRAY(uncounted, u64, 1);

static __always_inline void miss(void)
{
    int key = 0;
    u64 *count = uncounted.lookup(&key);
    if (count)
        (*count)++;
}

static __always_inline void add(u32 kind, u64 what, u32 tgid, u64 ns, u64 amount, int error)
{
    struct sum_key key = {.what = what, .tgid = tgid, .kind = kind};
    struct sum none = {};
    struct sum *sum = sums.lookup_or_try_init(&key, &none);
    if (!sum) {
        miss();
        return;
    }
    sum->count++;
    sum->errors += error;
    sum->total_ns += ns;
    sum->amount += amount;
}

static __always_inline void time_taken(u32 kind, u64 what, u64 ns)
{
    struct slot_key key = {.what = what, .kind = kind, .slot = bpf_log2l(ns)};
    u64 none = 0;
    u64 *count = slots.lookup_or_try_init(&key, &none);
    if (count)
        (*count)++;
    else
        miss();
}

static __always_inline int call_begins(void *ctx, int id_at)
{
    u64 who = bpf_get_current_pid_tgid();
    if (!is_open(TARGET, who))
        return PASS_ON;
    u32 tid = who;
    struct begun begun = {.ts = bpf_ktime_get_ns()};
    bpf_probe_read_kernel(&begun.what, sizeof(begun.what), ctx + id_at);
    if (calls_begun.update(&tid, &begun))
        miss();
    return PASS_ON;
}

static __always_inline int call_ends(void *ctx, int ret_at)
{
    u64 who = bpf_get_current_pid_tgid();
    u32 tid = who;
    struct begun *begun = calls_begun.lookup(&tid);
    if (!begun)
        return PASS_ON;
    u64 ns = bpf_ktime_get_ns() - begun->ts, what = begun->what;
    s64 ret = 0;
    bpf_probe_read_kernel(&ret, sizeof(ret), ctx + ret_at);
    calls_begun.delete(&tid);
    if (!is_open(TARGET, who))
        return PASS_ON;
    add(SYSCALL, what, who >> 32, ns, 0, ret < 0 && ret >= -4095);
    time_taken(SYSCALL, what, ns);
    return PASS_ON;
}

// A thread ends within its last call, which has no sys_exit. The next thread of its number begins
// with the sys_exit of the clone that made it.
static __always_inline int thread_ends(void *ctx)
{
    u32 tid = bpf_get_current_pid_tgid();
    calls_begun.delete(&tid);
    return PASS_ON;
}

// A thread that calls execve takes over the number of its process's first thread, which has ended.
static __always_inline int thread_executes(void *ctx, int old_at)
{
    u64 argument = 0;
    bpf_probe_read_kernel(&argument, sizeof(argument), ctx + old_at);
    u32 tid = bpf_get_current_pid_tgid(), old = argument;
    if (old == tid)
        return PASS_ON;
    struct begun *begun = calls_begun.lookup(&old);
    if (!begun)
        return PASS_ON;
    struct begun call = *begun;
    calls_begun.delete(&old);
    if (calls_begun.update(&tid, &call))
        miss();
    return PASS_ON;
}

static __always_inline int count_fault(u64 major)
{
    u64 who = bpf_get_current_pid_tgid();
    if (is_open(TARGET, who))
        add(FAULT, major, who >> 32, 0, 0, 0);
    return 0;
}

static __always_inline int request_issued(void *ctx, int dev_at, int sector_at)
{
    u64 who = bpf_get_current_pid_tgid();
    if (!is_open(MACHINE, who))
        return PASS_ON;
    struct place place = {};
    struct begun begun = {.ts = bpf_ktime_get_ns(), .what = who >> 32};
    bpf_probe_read_kernel(&place.dev, sizeof(place.dev), ctx + dev_at);
    bpf_probe_read_kernel(&place.sector, sizeof(place.sector), ctx + sector_at);
    if (requests_begun.update(&place, &begun))
        miss();
    return PASS_ON;
}

static __always_inline int request_completed(void *ctx, int dev_at, int sector_at, int length_at,
                                             int rwbs_at, int error_at)
{
    struct place place = {};
    bpf_probe_read_kernel(&place.dev, sizeof(place.dev), ctx + dev_at);
    bpf_probe_read_kernel(&place.sector, sizeof(place.sector), ctx + sector_at);
    struct begun *begun = requests_begun.lookup(&place);
    if (!begun)
        return PASS_ON;
    u64 ns = bpf_ktime_get_ns() - begun->ts;
    u32 tgid = begun->what, sectors = 0;
    s32 error = 0;
    char rwbs[2] = {};
    requests_begun.delete(&place);
    bpf_probe_read_kernel(&sectors, sizeof(sectors), ctx + length_at);
    bpf_probe_read_kernel(&rwbs, sizeof(rwbs), ctx + rwbs_at);
    bpf_probe_read_kernel(&error, sizeof(error), ctx + error_at);
    // In `rwbs`, 'F' before 'W' is a flush that precedes the write.
    u64 operation = rwbs[0] == 'F' && rwbs[1] == 'W' ? 'W' : rwbs[0];
    u64 what = (u64)place.dev << 8 | operation;
    add(REQUEST, what, tgid, ns, (u64)sectors * 512, error != 0);
    time_taken(REQUEST, what, ns);
    return PASS_ON;
}

static __always_inline int work_begins(void *ctx, int reason_at)
{
    u64 who = bpf_get_current_pid_tgid();
    if (!is_open(MACHINE, who))
        return PASS_ON;
    u32 tid = who, reason = 0;
    bpf_probe_read_kernel(&reason, sizeof(reason), ctx + reason_at);
    u64 value = reason;
    if (reasons.update(&tid, &value))
        miss();
    add(WRITEBACK, value, who >> 32, 0, 0, 0);
    return PASS_ON;
}

static __always_inline int inode_written(void *ctx, int wrote_at)
{
    u64 who = bpf_get_current_pid_tgid();
    u32 tid = who;
    u64 *reason = reasons.lookup(&tid);
    if (!reason || !is_open(MACHINE, who))
        return PASS_ON;
    u64 wrote = 0;
    bpf_probe_read_kernel(&wrote, sizeof(wrote), ctx + wrote_at);
    struct sum_key key = {.what = *reason, .tgid = who >> 32, .kind = WRITEBACK};
    struct sum *sum = sums.lookup(&key);
    if (sum)
        sum->amount += wrote;
    return PASS_ON;
}

static __always_inline int work_ends(void *ctx)
{
    u32 tid = bpf_get_current_pid_tgid();
    reasons.delete(&tid);
    return PASS_ON;
}
