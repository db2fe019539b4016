#!/usr/bin/env bash
# From a fresh machine to the main job: set-up, release build, a StableHLO program compiled and run on
# the CPU, and the same one compiled ahead of time for a TPU pod and for a GPU (neither is needed).
# It refuses to test anything: that is tools/test.sh.
set -euo pipefail

script_name=quickstart
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tools/lib.sh
. "$root/tools/lib.sh"
cd "$root"

case ${1:-} in
    '') ;;
    --help | -h)
        echo 'usage: tools/quickstart.sh    (set-up, build, then the main job)'
        echo 'TTT_CACHE=FOLDER moves the cache.'
        exit 0
        ;;
    *)
        echo "quickstart: unknown argument '$1' (see --help)" >&2
        exit 2
        ;;
esac

start=$(now_us)
TTT_CACHE=$(cache_folder)
export TTT_CACHE

# Shows the command as a user would type it, then runs it.
show() {
    timed "$*" "$@"
}

timed 'set-up' tools/setup.sh --only cpu,tpu,cuda
timed 'configure' cmake --preset release
timed 'build' cmake --build --preset release
show build/ttt devices --plugin cpu
show build/ttt hlo run tools/examples/matmul.mlir --plugin cpu
show build/ttt hlo compile tools/examples/matmul.mlir --target tpu:v5e:16x16
show build/ttt hlo compile tools/examples/sharded_matmul.mlir --target tpu:v5e:16x16 \
    --partitions 256
show build/ttt hlo compile tools/examples/matmul.mlir --target cuda:a100-sxm-40gb
# A model that learns at test time, with its outer gradient: built, run, compiled for both.
build/ttt hlo example ttt >build/ttt_example.mlir
show build/ttt hlo run build/ttt_example.mlir --plugin cpu
show build/ttt hlo compile build/ttt_example.mlir --target tpu:v5e:2x2
show build/ttt hlo compile build/ttt_example.mlir --target cuda:h100-sxm
printf '\nquickstart: done in %s s. Next: build/ttt --help, tools/test.sh\n' "$(seconds_since "$start")"
