"""A library in the place of CUDA's driver, for machines without a GPU."""

from __future__ import annotations

from pathlib import Path

from tests.support.binaries import compile_c
from tracer.probes.events.gpu_calls import LIBRARY

_SOURCE = """
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void spin(int64_t ns) {
    for (int64_t until = now() + ns; now() < until;) ;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static int finished;

static void *handle(void *ns) {
    struct itimerspec at = {.it_value = {(int64_t)ns / 1000000000, (int64_t)ns % 1000000000}};
    struct pollfd one = {timerfd_create(CLOCK_MONOTONIC, 0), POLLIN, 0};
    pthread_mutex_lock(&lock);  /* until the other thread sleeps, however late that is */
    pthread_mutex_unlock(&lock);
    timerfd_settime(one.fd, 0, &at, 0);
    while (poll(&one, 1, -1) != 1) ;
    close(one.fd);
    pthread_mutex_lock(&lock);
    finished = 1;
    pthread_cond_signal(&done);
    pthread_mutex_unlock(&lock);
    return 0;
}

static void sleep_until_woken(int64_t ns) {
    pthread_t thread;
    finished = 0;
    pthread_mutex_lock(&lock);
    if (pthread_create(&thread, 0, handle, (void *)ns)) abort();
    while (!finished) pthread_cond_wait(&done, &lock);
    pthread_mutex_unlock(&lock);
    pthread_join(thread, 0);
}

/* A name that begins like another one, and comes before it. */
int cuStreamSynchronize_ptsz(int64_t ns) { spin(ns); return 1; }
int cuStreamSynchronize(int64_t ns) { if (ns < 0) return 2; spin(ns); return 0; }
int cuEventSynchronize(int64_t ns) { if (ns <= 0) return 2; sleep_until_woken(ns); return 0; }
int cuMemcpyDtoH_v2(int64_t ns) { spin(ns / 2); sleep_until_woken(ns / 2); return 0; }
int cuLaunchKernel(int64_t ns) { spin(ns); return 0; }
int cuCtxSynchronize(void) { for (;;) pause(); }
"""
"""Each function takes the time (ns) that it is to last; cuCtxSynchronize never returns.

As in CUDA, a thread spins, or sleeps until a thread of the library wakes it that polls a file.
"""


def make_driver(folder: Path) -> Path:
    """Makes the library in a folder, which then belongs into LD_LIBRARY_PATH."""
    return compile_c(folder, _SOURCE, "-shared", "-fPIC", "-pthread", name=LIBRARY)
