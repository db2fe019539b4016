#!/usr/bin/env bash
# One token after another, and reading a prompt, on the CPU: ours (kernels with weights in f32, bf16 and s8; the compiled graph alone) and
# PyTorch's eager mode, the same weights, one after the other. Beside them the time that reading the weights once takes.
# Needs a release build, a machine that does nothing else, and a Python with PyTorch: TTT_TORCH_PYTHON=…, default /usr/bin/python3.
# On Debian: apt-get install python3-torch libopenblas0-pthread. Nothing here installs it, unless --install-rival is given.
#
# usage: tools/bench/bench_decode.sh [--install-rival] [PRESET [MIXER …]]      (default: 125m ttt_linear ttt_mlp)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
python=${TTT_TORCH_PYTHON:-/usr/bin/python3}
export TTT_PLUGIN_CPU=${TTT_PLUGIN_CPU:-$root/build/pjrt_cpu_plugin.so} TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
if [ "${1:-}" = --install-rival ]; then
    apt-get install -y python3-torch libopenblas0-pthread
    shift
fi
preset=${1:-125m}
shift || true
[ $# -gt 0 ] || set -- ttt_linear ttt_mlp
"$python" -c 'import torch' 2>/dev/null || {
    echo "bench_decode.sh: $python has no PyTorch: give TTT_TORCH_PYTHON, or run it with --install-rival" >&2
    exit 1
}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# step_ms and tokens a second of reading, from a line of JSON.
figures() {
    sed -E 's/.*"step_ms": ([0-9.]+).*"read_tokens_per_second": ([0-9.]+).*/\1 \2/'
}

row() {
    awk -v what="$1" -v ours="$2" -v rival="$3" 'BEGIN {
        split(ours, o, " "); split(rival, r, " ")
        printf "%-28s %9.2f ms %9.2f ms %6.1fx", what, o[1], r[1], r[1] / o[1]
        if (o[2] > 0 && r[2] > 0) printf "   reading %7.0f %7.0f tok/s %6.1fx", o[2], r[2], o[2] / r[2]
        print ""
    }'
}

printf '%-28s %12s %12s %7s\n' '' ours PyTorch ratio
for mixer in "$@"; do
    model=$scratch/$mixer
    build/ttt init "$model" --preset "$preset" --mixer "$mixer" >/dev/null
    for batch in 1 8; do
        rival=$("$python" tools/bench/bench_decode.py "$model" "$batch" 24 "$((batch == 1 ? 1536 : 0))" | figures)
        for weights in f32 bf16 s8 graph; do
            prompt=$((batch == 1 ? 1536 : 0))
            ours=$(build/bench_decode "$model" "$batch" 64 "$weights" "$prompt" 2>/dev/null | figures)
            row "$preset $mixer x$batch $weights" "$ours" "$rival"
        done
    done
done
