#!/usr/bin/env bash
# Time of one call of an all but empty program: ours through the CPU plugin, and JAX's jitted call on
# JAX's own CPU client, one after the other, twice. Needs a release build and tools/setup.sh.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tools/dev/lib.sh
. "$root/tools/dev/lib.sh"
python=$(cache_folder)/judges/bin/python
for round in 1 2; do
    echo "round $round"
    echo "  ours $("$root/build/bench_dispatch" cpu "${1:-20000}")"
    echo "  jax  $(JAX_PLATFORMS=cpu "$python" "$root/tools/bench/bench_dispatch.py" "${1:-20000}")"
done
