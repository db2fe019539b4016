#!/usr/bin/env bash
# The CPU's kernels against what XLA:CPU makes of the same operations, in one table; and the load of the
# machine, for figures of a busy one mean little. Needs a release build. TTT_KERNELS=avx2 or portable
# measures another path.
#
# usage: bench_kernels.sh [step | product | scan]...
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
uptime
TF_CPP_MIN_LOG_LEVEL=3 "$root/build/bench_kernels" "$@"
uptime
