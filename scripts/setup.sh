#!/usr/bin/env bash
# Sets up everything that the demo, the tests and the tracer need. Idempotent, and quick if
# everything is already set up.
#
#   PYTHON=python3.12 scripts/setup.sh
#
# As root on a Debian-like system: system packages, kernel headers in bcc's search path, and
# tracefs. As any user: a virtual environment in .venv with this package and its dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "setup: $*" >&2; }

# Uses of the packages: venv: the environment; bpfcc and headers: eBPF; linux-perf: counters
# and call graphs; docker.io: containers; libseccomp2: names of system calls; libstdc++6: readable
# C++ names; fio: calibration of devices. For tests and benchmarks: podman, conmon, crun: another
# engine of containers; e2fsprogs, xfsprogs, btrfs-progs, mount: file systems; python3-pyfuse3: a
# slow disk; strace, bpftrace, sysstat, time, trace-cmd, blktrace: comparison; gcc, libc6-dev,
# binutils: programs, and their contents; chromium: pages in a browser.
packages=(
    python3-venv python3-bpfcc linux-perf docker.io libseccomp2 libstdc++6 fio
    podman conmon crun
    e2fsprogs xfsprogs btrfs-progs mount python3-pyfuse3
    strace bpftrace sysstat time trace-cmd blktrace
    gcc libc6-dev binutils chromium
)
headers=linux-headers-$(dpkg --print-architecture 2>/dev/null || true)

missing_packages() {
    local name
    for name in "$@"; do
        dpkg-query -W -f='${Status}\n' "$name" 2>/dev/null | grep -q '^install ok installed$' ||
            echo "$name"
    done
}

install_packages() {
    local missing
    mapfile -t missing < <(missing_packages "${packages[@]}" "$headers")
    ((${#missing[@]})) || return 0
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    local log
    log=$(mktemp)
    if ! { apt-get update && apt-get install -y --no-install-recommends "${missing[@]}"; } \
            >"$log" 2>&1 </dev/null; then
        # One by one, so that a package that this release lacks does not block the others.
        local name
        for name in "${missing[@]}"; do
            apt-get install -y --no-install-recommends "$name" >>"$log" 2>&1 </dev/null ||
                say "could not install $name (see $log); tracer doctor says what that costs"
        done
        return 0
    fi
    rm -f "$log"
}

# bcc looks in /lib/modules/$(uname -r). If no headers match the running kernel, the newest
# ones work for tracepoints, perf events and uprobes; Debian splits them into two folders.
link_headers() {
    local modules="/lib/modules/$(uname -r)" build source
    [[ -e $modules/build/Makefile ]] && return 0
    build=$(ls -d /usr/src/linux-headers-*-"${headers##*-}" 2>/dev/null | sort -V | tail -n 1)
    source=$(ls -d /usr/src/linux-headers-*-common 2>/dev/null | sort -V | tail -n 1)
    [[ -n $build && -n $source ]] || return 0
    mkdir -p "$modules"
    ln -sfn "$build" "$modules/build"
    ln -sfn "$source" "$modules/source"
    say "linked $modules/build to $build"
}

mount_tracefs() {
    grep -q ' tracefs ' /proc/self/mounts && return 0
    [[ -d /sys/kernel/tracing ]] || { say "this kernel has no tracefs"; return 0; }
    mount -t tracefs nodev /sys/kernel/tracing 2>/dev/null ||
        say "tracefs cannot be mounted here: recording will not work (tracer doctor)"
}

if ((EUID == 0)); then
    if command -v apt-get >/dev/null; then
        install_packages
        link_headers
    else
        say "no apt-get here: install perf, bcc and Docker by your system's own means"
    fi
    mount_tracefs
else
    say "not root: system packages and tracefs are left as they are"
fi

stamp=.venv/.installed
if [[ ! -e $stamp || pyproject.toml -nt $stamp ]]; then
    say "installing Python packages into .venv"
    [[ -x .venv/bin/python ]] || "${PYTHON:-python3}" -m venv .venv
    # A machine without an NVIDIA GPU needs no CUDA packages: if pip would install them, set
    # PIP_INDEX_URL or PIP_EXTRA_INDEX_URL to PyTorch's CPU wheels.
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[workloads,studies,stacks,remote,cluster,dev]'
    touch "$stamp"
fi
