#!/usr/bin/env bash
# From a fresh Debian 12 machine to a trained model: set-up, build, train a small network on the CPU (stopped and
# resumed on the way), evaluate, generate, and compile a larger one ahead of time for a TPU and a GPU.
# Installs and builds only what running needs; tools/test.sh does the rest. Details go to build/quickstart.log.
set -euo pipefail

script_name=quickstart
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tools/dev/lib.sh
. "$root/tools/dev/lib.sh"
cd "$root"

case ${1:-} in
    '') ;;
    --help | -h)
        cat <<'USAGE'
usage: tools/quickstart.sh

Sets up this machine (Debian packages, pinned wheels), builds build/ttt, trains a network of 0.9 million parameters on
the CPU for about a minute, evaluates it, generates text, and compiles the 125m training step for a TPU and a GPU.

TTT_CACHE=FOLDER moves the cache of wheels (default ~/.cache/ttt, 1.9 GB).
USAGE
        exit 0
        ;;
    *)
        echo "quickstart: unknown argument '$1' (see --help)" >&2
        exit 2
        ;;
esac

begin=$(now_us)
TTT_CACHE=$(cache_folder)
export TTT_CACHE
mkdir -p build
log=$root/build/quickstart.log
: >"$log"

steps=8
number=0

# Runs a command with its output in the log, and says how long it took. On failure the end of the log is shown.
quiet() {
    local title=$1 start status=0
    shift
    number=$((number + 1))
    start=$(now_us)
    printf '[%d/%d] %s ... ' "$number" "$steps" "$title"
    printf '\n== %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1 </dev/null || status=$?
    if [ "$status" -ne 0 ]; then
        printf 'failed\n' >&2
        tail -n 20 "$log" >&2
        die "$title failed with exit code $status; all of its output is in $log"
    fi
    printf '%s s\n' "$(seconds_since "$start")"
}

# Runs a command with its output on the screen, below the command as a user would type it.
show() {
    local title=$1
    shift
    number=$((number + 1))
    printf '[%d/%d] %s\n  $ %s\n' "$number" "$steps" "$title" "$*"
    "$@" 2>&1 </dev/null | sed 's/^/  /'
}

build_command() {
    cmake --preset release -DBUILD_TESTING=OFF -DTTT_CUDA_KERNELS=OFF
    cmake --build --preset release
}

prepare_demo() {
    tools/dev/corpus.sh "$demo"
    build/ttt data prepare --tokenizer bytes --validation 0.1 --out "$demo/data" "$demo/kjv.jsonl"
}

compile_ahead() {
    tools/dev/setup.sh --only tpu,cuda --no-packages # fetched while the network trained
    build/ttt compile --preset 125m --step train --target tpu:v5e:2x2 --mesh fsdp=4 --dtype bf16 --top 3
    build/ttt compile --preset 125m --step train --target cuda:a100-sxm-40gb --dtype bf16 --top 3
}

printf 'quickstart: set up, build, train, generate, compile ahead of time; about 5 minutes on 2 cores, log in %s\n' "$log"
quiet 'install packages and XLA for the CPU (274 MB)' tools/dev/setup.sh --only cpu
quiet 'build the command, the CPU plugin and the library' build_command
tools/dev/setup.sh --only tpu,cuda --no-packages >"$log.fetch" 2>&1 </dev/null &
fetch=$!
demo=build/demo
rm -rf "$demo"
quiet 'prepare a corpus: the King James text, 4 MB, byte tokens' prepare_demo

train=(build/ttt train --preset tiny --data "$demo/data" --run "$demo/run" --steps 160 --eval-every 80 --log-every 20 --resume auto)
show 'train, and stop after 25 s as a pre-empted machine would' timeout --foreground --preserve-status -s TERM 25 "${train[@]}"
show 'resume: the same command goes on' "${train[@]}"
show 'generate' build/ttt generate --model "$demo/run" --prompt 'And the LORD said unto Moses, ' --max-tokens 160 --temperature 0.7 --seed 1 --state-out "$demo/after.state"
show 'evaluate at four times the training context' build/ttt eval --model "$demo/run" --data "$demo/data" --context 1024 --sequences 8 --path stream --span 256
wait "$fetch" || cat "$log.fetch" >>"$log"
quiet 'compile the 125m training step for a TPU v5e 2x2 and an A100' compile_ahead
grep -E '^(memory|work) a chip' "$log" | sed 's/^/  /'
printf 'quickstart: done in %s s. Next: build/ttt chat --model %s, build/ttt --help, tools/test.sh\n' "$(seconds_since "$begin")" "$demo/run"
