"""Cost of capture, compared with other tools: a storm of system calls and one of page faults.

    python benchmarks/capture.py --json [--rounds N] [--scale F]

Each round runs the bare load and the load under every tool, one after the other, so that drift of
the machine's speed affects all alike. Prints one JSON object:

    {"storm": {"ns_per_event": {TOOL: x}, "events_per_s": {TOOL: x}, "lost": {TOOL: n},
               "tool_cpu_s_per_million": {TOOL: x}},
     "faults": {the same}}

`ns_per_event` is CPU time of the traced load that the tool adds to an event: (traced - bare) wall
time x CPUs / events, the median of the rounds. An event of the storm is one of a call's two
tracepoints; an event of the other load is a fault with its address, access and kind. perf and
bpftrace record the same. `lost`: the lost events that a tool reports, in all rounds. A value that a
tool does not support is null. Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

LOADS = Path(__file__).with_name("parts") / "loads.py"
TRACER = [sys.executable, "-c", "from tracer.cli.main import main; main()"]
STORM, FAULTS = "storm", "faults"
_CALLS, _FAULTS, _SLOW = 2_000_000, 400_000, 40
"""Events per CPU; a tool that stops its target at each event gets a part of them."""


@dataclass
class Figures:
    """The results of one tool, round by round."""

    ns_per_event: list[float] = field(default_factory=list)
    events_per_s: list[float] = field(default_factory=list)
    cpu_s_per_million: list[float] = field(default_factory=list)
    lost: int = 0


def main() -> None:
    """Runs the rounds and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the sizes of the loads"
    )
    options = parser.parse_args()
    result = {
        STORM: storm(_TOOLS, "calls", int(_CALLS * options.scale), 2, options.rounds),
        FAULTS: storm(
            {k: v for k, v in _TOOLS.items() if k != "strace"},
            FAULTS,
            int(_FAULTS * options.scale),
            1,
            options.rounds,
        ),
    }
    result[FAULTS] = {key: {**value, "strace": None} for key, value in result[FAULTS].items()}
    if options.json:
        print(json.dumps(result))
        return
    for name, table in result.items():
        print(name)
        for tool in table["ns_per_event"]:
            row = "  ".join(f"{key} {values[tool]}" for key, values in table.items())
            print(f"  {tool:9} {row}")


Tool = Callable[[Path, str, list[str]], tuple[dict[str, float], int, float]]
"""A function that runs a load under a tool: returns the load's output, lost events, tool CPU s."""


def storm(
    tools: dict[str, Tool], load: str, count: int, per_event: int, rounds: int
) -> dict[str, dict[str, float | None]]:
    """Runs all tools on one load, `rounds` times."""
    cpus = os.cpu_count() or 1
    figures = {name: Figures() for name in tools}
    for number in range(rounds + 1):
        for name, tool in tools.items():
            some = count // _SLOW if name == "strace" else count
            command = [sys.executable, "-S", "-E", str(LOADS), load, str(some)]
            with tempfile.TemporaryDirectory() as folder:
                bare = _bare(command)
                try:
                    traced, lost, cpu_s = tool(Path(folder), load, command)
                except FileNotFoundError:
                    continue  # this machine lacks the tool
            if number == 0:
                continue  # compiles, fills caches
            events = traced["events"] * per_event
            mine = figures[name]
            mine.ns_per_event.append((traced["seconds"] - bare["seconds"]) * cpus / events * 1e9)
            mine.events_per_s.append(events / traced["seconds"])
            mine.cpu_s_per_million.append(cpu_s / events * 1e6)
            mine.lost += lost

    def middle(values: list[float], digits: int) -> float | None:
        return round(statistics.median(values), digits) if values else None

    return {
        "ns_per_event": {n: middle(f.ns_per_event, 1) for n, f in figures.items()},
        "events_per_s": {n: middle(f.events_per_s, 0) for n, f in figures.items()},
        "lost": {n: f.lost if f.ns_per_event else None for n, f in figures.items()},
        "tool_cpu_s_per_million": {n: middle(f.cpu_s_per_million, 3) for n, f in figures.items()},
    }


def _bare(command: list[str]) -> dict[str, float]:
    found: dict[str, float] = json.loads(subprocess.check_output(command))
    return found


def _run(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=True, capture_output=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _ours(backend: str) -> Tool:
    def run(folder: Path, load: str, command: list[str]) -> tuple[dict[str, float], int, float]:
        probe = "syscalls" if load == "calls" else "page_faults"
        trace = folder / "x.trace"
        options = ["record", "--backend", backend, "-e", probe, "-o", str(trace), "--"]
        ran = _run([*TRACER, *options, *command])
        manifest = json.loads((trace / "manifest.json").read_text())
        cpu_s = manifest["own_cost"]["capture_cpu_s"]
        return json.loads(ran.stdout), manifest["loss"]["events"], cpu_s

    return run


def _perf(folder: Path, load: str, command: list[str]) -> tuple[dict[str, float], int, float]:
    _need("perf")
    events = {
        "calls": ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit"],
        FAULTS: [
            *("-d", "-c", "1", "-e", "minor-faults", "-e", "major-faults"),
            *("-e", "exceptions:page_fault_user", "-e", "exceptions:page_fault_kernel"),
        ],
    }[load]
    before = _children_cpu_s()
    data = folder / "perf.data"
    ran = _run(["perf", "record", "-o", str(data), *events, "--", *command])
    cpu_s = _children_cpu_s() - before
    stats = _run(["perf", "report", "--stats", "-i", str(data)]).stdout
    lost = re.findall(r"LOST(?:_SAMPLES)? events:\s+(\d+)", stats)
    text = re.search(r"lost (\d+) chunks", ran.stderr)
    printed = json.loads(ran.stdout)
    missed = sum(map(int, lost)) or int(text[1] if text else 0)
    return printed, missed, cpu_s - printed["cpu_s"]


def _bpftrace(folder: Path, load: str, command: list[str]) -> tuple[dict[str, float], int, float]:
    _need("bpftrace")
    program = {
        "calls": (
            'tracepoint:raw_syscalls:sys_enter /comm == "dd"/ '
            '{ printf("%llu %d %d %d\\n", nsecs, cpu, tid, args->id); } '
            'tracepoint:raw_syscalls:sys_exit /comm == "dd"/ '
            '{ printf("%llu %d %d %d\\n", nsecs, cpu, tid, args->ret); }'
        ),
        FAULTS: (
            'tracepoint:exceptions:page_fault_user /comm == "python3"/ '
            '{ printf("%llu %d %d %llx %llx %d\\n", nsecs, cpu, tid, args->address, args->ip,'
            " args->error_code); } "
            'software:minor-faults:1 /comm == "python3"/ { printf("%llu %d\\n", nsecs, tid); }'
        ),
    }[load]
    out, printed = folder / "out.txt", folder / "load.json"
    script = folder / "load.sh"
    quoted = " ".join(f"'{part}'" for part in command)
    script.write_text(f"exec {quoted} > '{printed}'\n")
    before = _children_cpu_s()
    ran = _run(["bpftrace", "-o", str(out), "-e", program, "-c", f"/bin/sh {script}"])
    cpu_s = _children_cpu_s() - before
    with out.open() as file:
        lost = sum(int(m[1]) for line in file if (m := re.match(r"Lost (\d+) events", line)))
    lost += sum(map(int, re.findall(r"Lost (\d+) events", ran.stderr)))
    found = json.loads(printed.read_text())
    return found, lost, cpu_s - found["cpu_s"]


def _strace(folder: Path, load: str, command: list[str]) -> tuple[dict[str, float], int, float]:
    _need("strace")
    before = _children_cpu_s()
    ran = _run(["strace", "-f", "-ttt", "-o", str(folder / "strace.txt"), *command])
    printed = json.loads(ran.stdout)
    return printed, 0, _children_cpu_s() - before - printed["cpu_s"]


def _need(program: str) -> None:
    if shutil.which(program) is None:
        raise FileNotFoundError(program)


_TOOLS: dict[str, Tool] = {
    "ftrace": _ours("ftrace"),
    "ebpf": _ours("ebpf"),
    "perf": _perf,
    "bpftrace": _bpftrace,
    "strace": _strace,
}


if __name__ == "__main__":
    main()
