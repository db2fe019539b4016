#!/usr/bin/env bash
# A training step of the TTT network, ours through the CPU plugin and the rival's on JAX's own CPU client,
# one after the other: time of a step, temporaries, building and compiling. Needs a release build and
# tools/dev/setup.sh, and a machine that does nothing else.
#
# usage: tools/bench/bench_train.sh [SIZE MIXER TOKENS STEPS …]     default: the table of docs/speed.md
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tools/dev/lib.sh
. "$root/tools/dev/lib.sh"
python=$(cache_folder)/judges/bin/python
export TF_CPP_MIN_LOG_LEVEL=3
if [ $# -eq 0 ]; then
    set -- small ttt_linear 2048 5 small ttt_mlp 2048 5 125m ttt_linear 512 3 125m ttt_mlp 512 3 \
        125m ttt_linear 2048 1 125m ttt_mlp 2048 1
fi
rival() {
    "$python" "$root/tools/bench/bench_train.py" "$@" 2>/dev/null
}
peak=$(rival --matmul-peak)
echo "matmul peak $peak"
while [ $# -ge 4 ]; do
    ours=$("$root/build/bench_train" "$1" "$2" "$3" "$4" 2>/dev/null)
    jax=$(rival --size "$1" --mixer "$2" --tokens "$3" --steps "$4")
    "$python" "$root/tools/bench/bench_train_row.py" "$1 $2 $3" "$ours" "$jax" "$peak"
    shift 4
done
