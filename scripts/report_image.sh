#!/usr/bin/env bash
# Makes docs/images/report.png: a screenshot of the report page of a real recording.
#
#   scripts/report_image.sh [TRACE.trace]
#
# Without a trace, it records one: LeNet-5 with two workers, checkpoints and a sync. Recording
# needs root. Needs Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."

tracer=.venv/bin/tracer
out=build/report-image
image=docs/images/report.png
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "no Chromium is installed (apt-get install chromium)" >&2
    exit 1
}
mkdir -p "$out" "$(dirname "$image")"
trace=${1:-}
if [[ -z $trace ]]; then
    trace=$out/lenet.trace
    rm -rf "$out/run"
    train="python -m tracer.workloads train lenet --steps 800 --samples 6400 --workers 2 --threads 1"
    PATH=$PWD/.venv/bin:$PATH $tracer record -o "$trace" --force --sample-hz 5 -- \
        sh -c "$train --output $out/run && sync"
fi
$tracer report "$trace" --html "$out/report.html" --force
"$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --force-color-profile=srgb \
    --user-data-dir="$out/profile" --window-size=1280,2100 --virtual-time-budget=30000 \
    --screenshot="$out/report.png" "file://$PWD/$out/report.html" 2>/dev/null
# Few colours: a third of the size, with no visible difference.
.venv/bin/python - "$out/report.png" "$image" <<'END'
import sys
from PIL import Image

Image.open(sys.argv[1]).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(
    sys.argv[2], optimize=True
)
END
ls -l "$image" >&2
