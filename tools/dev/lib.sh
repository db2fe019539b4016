# shellcheck shell=bash
# What tools/*.sh share: messages, clocks, and where the cache folder is. It is sourced, never run,
# and does nothing by itself. It refuses to know about wheels, builds or tests.

# The name that starts every message; the script that sources this sets its own.
: "${script_name:=ttt}"

# Microseconds since the epoch. Some locales write EPOCHREALTIME with a comma, hence the filter.
now_us() {
    printf '%s' "${EPOCHREALTIME//[!0-9]/}"
}

# Seconds with one decimal since a moment that now_us gave.
seconds_since() {
    local tenths=$((($(now_us) - $1) / 100000))
    printf '%d.%d' $((tenths / 10)) $((tenths % 10))
}

say() {
    printf '%s: %s\n' "$script_name" "$*"
}

# The first argument is the one clear line; the others are details, indented below it.
die() {
    local line
    printf '%s: error: %s\n' "$script_name" "$1" >&2
    shift
    for line in "$@"; do
        printf '  %s\n' "$line" >&2
    done
    exit 1
}

# Runs a command under a title and says how long it took. The command's own output is untouched.
timed() {
    local title=$1 start status=0
    shift
    start=$(now_us)
    printf '\n== %s\n' "$title"
    "$@" || status=$?
    if [ "$status" -ne 0 ]; then
        printf '%s: error: %s failed (exit %d after %s s): %s\n' \
            "$script_name" "$title" "$status" "$(seconds_since "$start")" "$*" >&2
        return "$status"
    fi
    printf '== %s: %s s\n' "$title" "$(seconds_since "$start")"
}

# Prints the cache folder as an absolute path.
cache_folder() {
    local folder=${TTT_CACHE:-}
    if [ -z "$folder" ]; then
        [ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] || die "HOME is not set: say where with TTT_CACHE=FOLDER"
        folder=${XDG_CACHE_HOME:-$HOME/.cache}/ttt
    fi
    case $folder in
        /*) printf '%s' "$folder" ;;
        *) printf '%s' "$PWD/$folder" ;;
    esac
}
