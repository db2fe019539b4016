#!/usr/bin/env bash
# Set-up, build, all tests through ctest: release first, then with the address and undefined-behaviour
# sanitizers, with the thread sanitizer, and the fuzz targets for some seconds each. clang only builds:
# its warnings count. Ends with what was slow and with ctest's own closing lines. A failed test does not
# stop the run, a failed build does.
set -euo pipefail

script_name='test'
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=tools/dev/lib.sh
. "$root/tools/dev/lib.sh"
cd "$root"

presets=(release asan tsan fuzz)
compile_only=(clang)
case ${1:-} in
    '') ;;
    --quick)
        presets=(release)
        compile_only=()
        ;;
    --help | -h)
        cat <<'EOF'
usage: tools/test.sh [--quick]

  --quick    the release build only: no sanitizers, no fuzzing, no second compiler

TTT_CACHE=FOLDER moves the cache, CTEST_PARALLEL_LEVEL=N the tests that run at once (default: cores),
TTT_FUZZ_SECONDS=N how long each fuzz target runs (default 10).
EOF
        exit 0
        ;;
    *)
        echo "test: unknown argument '$1' (see --help)" >&2
        exit 2
        ;;
esac

start=$(now_us)
TTT_CACHE=$(cache_folder)
CTEST_PARALLEL_LEVEL=${CTEST_PARALLEL_LEVEL:-$(nproc)}
TTT_FUZZ_SECONDS=${TTT_FUZZ_SECONDS:-10}
export TTT_CACHE CTEST_PARALLEL_LEVEL TTT_FUZZ_SECONDS
parts=()

# A part of the run with its time kept for the closing table.
part() {
    local title=$1 begin status=0
    begin=$(now_us)
    timed "$@" || status=$?
    parts+=("$(printf '%8s s  %s' "$(seconds_since "$begin")" "$title")")
    return "$status"
}

log_of() {
    case $1 in
        release) printf 'build/ctest.log' ;;
        *) printf 'build-%s/ctest.log' "$1" ;;
    esac
}

run_ctest() {
    ctest --preset "$1" --output-on-failure --no-tests=error </dev/null 2>&1 | tee "$(log_of "$1")"
}

# The ten slowest tests of a log, slowest first.
slowest() {
    sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: ([^ ]+) .* ([0-9]+\.[0-9]+) sec.*$/\2 \1/p' "$1" |
        sort -rn | head -n 10 | awk '{ printf "%8s s  %s\n", $1, $2 }'
}

# ctest's closing lines: everything from its verdict on.
closing_lines() {
    sed -n '/tests passed,/,$p' "$1"
}

part 'set-up' tools/dev/setup.sh
for preset in "${presets[@]}" "${compile_only[@]}"; do
    part "configure $preset" cmake --preset "$preset"
    part "build $preset" cmake --build --preset "$preset"
done
failed=()
for preset in "${presets[@]}"; do
    part "tests $preset" run_ctest "$preset" || failed+=("$preset")
done

printf '\n== time by part\n'
printf '%s\n' "${parts[@]}"
for preset in "${presets[@]}"; do
    printf '== slowest tests, %s\n' "$preset"
    slowest "$(log_of "$preset")"
done
for preset in "${presets[@]}"; do
    printf '== ctest, %s\n' "$preset"
    closing_lines "$(log_of "$preset")"
done
if [ ${#failed[@]} -gt 0 ]; then
    die "tests failed: ${failed[*]}, $(seconds_since "$start") s in all"
fi
say "all tests passed, $(seconds_since "$start") s in all"
