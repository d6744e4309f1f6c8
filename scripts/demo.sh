#!/usr/bin/env bash
# The main job, end to end: record a real PyTorch training run, then report and simulate.
# If this machine cannot record, says why and reads a real recording from fixtures/ instead.
set -euo pipefail
cd "$(dirname "$0")/.."

tracer=.venv/bin/tracer
out=build/demo
mkdir -p "$out"

if why=$($tracer doctor 2>&1); then
    echo "== tracer record: LeNet-5, 200 steps, a DataLoader with 2 workers, then sync" >&2
    # The sync is needed because a short run ends before the flusher writes, 30 s after dirtying.
    $tracer record -o "$out/lenet.trace" --force -- sh -c "
        .venv/bin/python -m tracer.workloads train lenet --steps 200 --workers 2 --output $out/run && sync"
    trace=$out/lenet.trace
else
    echo "This machine cannot record:" >&2
    grep -A1 '^missing' <<<"$why" >&2 || true
    trace=$out/lenet.trace
    echo "== Reading fixtures/lenet.trace instead: recorded earlier, on another machine" >&2
    rm -rf "$trace"
    cp -r fixtures/lenet.trace "$trace"
fi

echo >&2
echo "== tracer report $trace" >&2
$tracer report "$trace"
echo "== tracer simulate $trace" >&2
$tracer simulate "$trace"
echo "== tracer info $trace" >&2
$tracer info "$trace"
