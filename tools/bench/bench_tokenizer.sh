#!/usr/bin/env bash
# Tokenizers against their originals, one thread each, on the Bible and on mixed text: megabytes of text a
# second, encoding and decoding, and training. Models are trained in the run.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tools/dev/lib.sh
. "$root/tools/dev/lib.sh"
"$(cache_folder)/judges/bin/python" "$root/tools/bench/bench_tokenizer.py" "$root/build/bench_tokenizer" "$root/build/ttt"
