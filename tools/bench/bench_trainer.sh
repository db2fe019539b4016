#!/usr/bin/env bash
# What the trainer costs on top of its compiled step: the median step of `ttt train` against that of the bare program (bench_train),
# one after the other on the same shapes, three times. Also the shares of time that data and checkpoints took, and the process's memory.
# usage: tools/bench/bench_trainer.sh [SIZE MIXER TOKENS STEPS]      (default: small ttt_linear 2048 60)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$root"
size=${1:-small} mixer=${2:-ttt_linear} tokens=${3:-2048} steps=${4:-60}
export TTT_PLUGIN_CPU=${TTT_PLUGIN_CPU:-$root/build/pjrt_cpu_plugin.so} TF_CPP_MIN_LOG_LEVEL=3 TF_ENABLE_ONEDNN_OPTS=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

tools/dev/corpus.sh "$scratch"
build/ttt data prepare --tokenizer bytes --out "$scratch/data" "$scratch/kjv.jsonl" >/dev/null
for round in 1 2 3; do
    build/bench_train "$size" "$mixer" "$tokens" "$((steps < 64 ? steps : 64))" >"$scratch/bare.$round"
    build/ttt train --preset "$size" --mixer "$mixer" --data "$scratch/data" --run "$scratch/run.$round" --steps "$steps" --no-eval \
        --set vocab_size=512 --context "$tokens" --batch-tokens "$tokens" --json >"$scratch/train.$round"
    tail -n 2 "$scratch/run.$round/metrics.jsonl" | head -n 1 >"$scratch/last.$round"
done
python3 - "$scratch" "$size $mixer $tokens" <<'END'
import json, sys
folder, what = sys.argv[1:]
load = lambda name: [json.load(open(f"{folder}/{name}.{i}")) for i in (1, 2, 3)]
bare, train, last = load("bare"), load("train"), load("last")
for b, t, l in zip(bare, train, last):
    g = t["goodput"]
    loop = g["compute"] + g["data"] + g["save"]
    print(f"{what}: bare step {1e3 * b['step_seconds']:.1f} ms, ttt train {1e3 * t['step_seconds']:.1f} ms "
          f"({100 * (t['step_seconds'] / b['step_seconds'] - 1):+.1f}%), data wait {100 * g['data'] / loop:.2f}%, "
          f"checkpoints {100 * g['save'] / loop:.2f}%, process {l['memory'] / 1e6:.0f} MB")
END
