// SPDX-License-Identifier: GPL-2.0
//
// Records tracepoints in two rings: one for the targets' threads, one for the whole machine.
//
// The loader adds one function per event, with the id and size from the kernel's format files:
// `int on_N(void *ctx) { return record(ctx, id, bytes, scope); }`. The programs read only fields
// of tracepoints, never kernel structs.
//
// The kernel runs no program of a tracepoint while another one runs on the CPU (trace_call_bpf).
// Where possible, events that may happen in an interrupt are therefore recorded by ftrace.
//
// The loader defines RECORDER (its process id), TARGET_PAGES and MACHINE_PAGES (sizes of the
// rings), CPUS and EVERYBODY (1: every thread belongs to a target), and STACKS if the kernel stacks
// of threads that go to sleep are wanted.
//
// It includes no header beside those that bcc always includes: a header with the kernel's structs
// takes clang seven times as long.

#define TARGET 0
#define MACHINE 1
// Return value of a program on a tracepoint: 0 would hide the event from all perf users of the
// machine (perf_trace_run_bpf_submit).
#define PASS_ON 1
#define TIDS_A_PAGE 4096
#define TIDS (4 << 20) // PID_MAX_LIMIT

struct head {
    u64 ts;
    u32 tid;
    u32 tgid;
    u16 type;
    u16 cpu;
    u32 spare; // `type`, `cpu` and `spare` take the place of a tracepoint's common fields
};

struct tids {
    u8 followed[TIDS_A_PAGE];
};

struct counts {
    u64 of_cpu[CPUS];
};

#ifdef STACKS
#define MOST_FRAMES 127 // kernel.perf_event_max_stack

// The fields after `head` are those of ftrace's kernel_stack.
struct stack {
    struct head head;
    u32 frames;
    u32 spare;
    u64 callers[MOST_FRAMES];
};

BPF_PERCPU_ARRAY(stacks, struct stack, 1);
#endif

BPF_ARRAY(open_scopes, u32, 2);
// The recorder maps this table and marks threads in it, one byte per thread.
BPF_F_TABLE("array", u32, struct tids, followed_tids, TIDS / TIDS_A_PAGE, BPF_F_MMAPABLE);
// The recorder maps this table, too: while a process reads a map by a system call, the kernel runs
// no programs on its CPU (bpf_disable_instrumentation).
BPF_F_TABLE("array", u32, struct counts, lost_records, 2, BPF_F_MMAPABLE);
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

static __always_inline void count_lost(int scope)
{
    int key = scope;
    struct counts *lost = lost_records.lookup(&key);
    u64 cpu = bpf_get_smp_processor_id();
    // One register is compared and used: Linux 6.1's verifier knows no bounds of a copy.
    asm volatile("" : "+r"(cpu));
    if (lost && cpu < CPUS)
        lost->of_cpu[cpu]++;
}

static __always_inline void *reserve(int scope, int size)
{
    void *out = scope == TARGET ? target_ring.ringbuf_reserve(size)
                                : machine_ring.ringbuf_reserve(size);
    if (!out)
        count_lost(scope);
    return out;
}

static __always_inline void begin(struct head *head, u64 who, u16 type)
{
    // Read the time after the reservation, so that no record is older than its reservation.
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

static __always_inline int is_followed(void *ctx, int offset)
{
    u32 tid = 0;
    bpf_probe_read_kernel(&tid, sizeof(tid), ctx + offset);
    u8 *mark = mark_of(tid);
    return mark && *mark;
}

// Writes the first `bytes` bytes of a tracepoint's record, without its common fields.
static __always_inline int write(void *ctx, u64 who, u16 type, int bytes, int scope)
{
    struct head *out = reserve(scope, sizeof(struct head) + bytes - 8);
    if (!out)
        return PASS_ON;
    begin(out, who, type);
    if (bytes > 8)
        bpf_probe_read_kernel(out + 1, bytes - 8, ctx + 8);
    submit(scope, out);
    return PASS_ON;
}

// Records a tracepoint that happens in the context of the thread that it is about.
static __always_inline int record(void *ctx, u16 type, int bytes, int scope)
{
    u64 who = bpf_get_current_pid_tgid();
    return is_open(scope, who) ? write(ctx, who, type, bytes, scope) : PASS_ON;
}

// Records a tracepoint that may happen in an interrupt, whichever thread was interrupted.
static __always_inline int record_interrupt(void *ctx, u16 type, int bytes, int scope)
{
    int key = scope;
    u32 *open = open_scopes.lookup(&key);
    return open && *open ? write(ctx, bpf_get_current_pid_tgid(), type, bytes, scope) : PASS_ON;
}

// Records a tracepoint that is about the threads in the fields at two offsets.
static __always_inline int record_about(void *ctx, u16 type, int bytes, int first, int second)
{
    int key = TARGET;
    u32 *open = open_scopes.lookup(&key);
    if (!open || !*open)
        return PASS_ON;
    if (!EVERYBODY && !is_followed(ctx, first) && !is_followed(ctx, second))
        return PASS_ON;
    return write(ctx, bpf_get_current_pid_tgid(), type, bytes, TARGET);
}

#ifdef STACKS
// Records the kernel stack of the current thread.
static __always_inline void write_stack(void *ctx, u64 who, u16 type)
{
    int key = 0;
    struct stack *out = stacks.lookup(&key);
    if (!out)
        return;
    u64 bytes = bpf_get_stack(ctx, out->callers, sizeof(out->callers), 0);
    // A negative number is an error. One register is compared and used, as above.
    asm volatile("" : "+r"(bytes));
    if (bytes > sizeof(out->callers))
        return;
    begin(&out->head, who, type);
    out->frames = bytes / sizeof(u64);
    out->spare = 0;
    if (target_ring.ringbuf_output(out, sizeof(*out) - sizeof(out->callers) + bytes,
                                   BPF_RB_NO_WAKEUP))
        count_lost(TARGET);
}

// Records a switch between the threads in the fields at two offsets. If the first one belongs to a
// target and has one of the states in `asleep`, its stack follows.
static __always_inline int record_switch(void *ctx, u16 type, int bytes, int first, int second,
                                         u16 stack, int state, u64 asleep)
{
    int key = TARGET;
    u32 *open = open_scopes.lookup(&key);
    if (!open || !*open)
        return PASS_ON;
    u64 who = bpf_get_current_pid_tgid();
    int leaves = EVERYBODY ? who >> 32 != RECORDER : is_followed(ctx, first);
    if (!EVERYBODY && !leaves && !is_followed(ctx, second))
        return PASS_ON;
    write(ctx, who, type, bytes, TARGET);
    u64 states = 0;
    bpf_probe_read_kernel(&states, sizeof(states), ctx + state);
    if (leaves && states & asleep)
        write_stack(ctx, who, stack);
    return PASS_ON;
}
#endif

// Marks a new child of a target's thread. `offset` is that of field `pid`, from the format file.
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
