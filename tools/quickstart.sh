#!/usr/bin/env bash
# From a fresh machine to the main job: set-up, release build, a small network trained on a demo corpus
# for about two minutes, stopped and continued on the way, evaluated, continued from a prompt; and a larger one's training step
# compiled ahead of time for a TPU and for a GPU (neither is needed).
# It refuses to test anything: that is tools/test.sh.
set -euo pipefail

script_name=quickstart
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tools/dev/lib.sh
. "$root/tools/dev/lib.sh"
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

timed 'set-up' tools/dev/setup.sh --only cpu,tpu,cuda
timed 'configure' cmake --preset release
timed 'build' cmake --build --preset release

# Text to a trained model: the demo corpus, a network of a million parameters, stopped on the way and continued, judged on text that it
# has not seen.
demo=build/demo
rm -rf "$demo"
show tools/dev/corpus.sh "$demo"
show build/ttt data prepare --tokenizer bytes --validation 0.1 --out "$demo/data" "$demo/kjv.jsonl"
train=(build/ttt train --preset tiny --data "$demo/data" --run "$demo/run" --steps 300 --eval-every 50 --log-every 25 --resume auto)
show timeout --foreground --preserve-status -s TERM 50 "${train[@]}" # else it sends the signal twice, which is "at once"
show "${train[@]}"
show build/ttt eval --model "$demo/run" --data "$demo/data" --context 1024 --sequences 16 --path stream --span 256

# It goes on from a prompt; the state after it is a file of constant size, from which it goes on without reading the prompt again.
show build/ttt generate --model "$demo/run" --prompt 'And the LORD said unto Moses, ' --max-tokens 160 --temperature 0.7 --seed 1 \
    --state-out "$demo/after.state"
show build/ttt generate --model "$demo/run" --prompt ' And it came to pass' --max-tokens 80 --temperature 0.7 --seed 2 \
    --state-in "$demo/after.state"

# The same step for a TPU pod and for a GPU: compiled by their real compilers, neither is needed.
show build/ttt compile --preset 125m --step train --target tpu:v5e:2x2 --mesh fsdp=4 --dtype bf16 --top 3
show build/ttt compile --preset 125m --step train --target cuda:a100-sxm-40gb --dtype bf16 --top 3
printf '\nquickstart: done in %s s. Next: build/ttt --help, tools/test.sh\n' "$(seconds_since "$start")"
