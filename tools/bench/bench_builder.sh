#!/usr/bin/env bash
# Building, differentiating and writing a 48-layer decoder: ours, then JAX's tracing and lowering of the
# same program, then ours for 6 to 48 layers, to see that the cost grows with the operations.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tools/dev/lib.sh
. "$root/tools/dev/lib.sh"
echo "ours $("$root/build/bench_builder" 48)"
echo "jax  $(JAX_PLATFORMS=cpu "$(cache_folder)/judges/bin/python" "$root/tools/bench/bench_builder.py" 48)"
"$root/build/bench_builder" 6 12 24 48
