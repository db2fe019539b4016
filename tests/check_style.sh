#!/bin/sh
# House style, by machine: clang-format's verdict on C (the C++ of pjrt/cpu follows XLA's own style), no file of more than about 1,000 lines, nothing left
# behind (TODO and the like), no machine path.
#
# usage: check_style.sh [ROOT]
set -eu
cd "${1:-$(dirname "$0")/..}"
failed=0
complain() {
    printf '%s\n' "$2" | sed "s/^/$1: /"
    failed=1
}
sources=$(find pjrt hlo_builder model kernels runtime tools tests examples -name '*.[ch]' -o -name '*.cc' -o -name '*.cu' | LC_ALL=C sort)
c_sources=$(printf '%s\n' "$sources" | grep '\.[ch]$' | grep -v '^pjrt/cpu/')
# shellcheck disable=SC2086
unformatted=$(for file in $c_sources; do clang-format --dry-run -Werror "$file" >/dev/null 2>&1 || echo "$file"; done)
[ -z "$unformatted" ] || complain 'not as clang-format wants it' "$unformatted"
# shellcheck disable=SC2086
long=$(wc -l $sources | awk '$2 != "total" && $1 > 1050 { print $2 " (" $1 ")" }')
[ -z "$long" ] || complain 'too long' "$long"
# shellcheck disable=SC2086
marks=$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $sources || true)
[ -z "$marks" ] || complain 'left behind' "$marks"
# shellcheck disable=SC2086
paths=$(grep -nE '(^|[^A-Za-z0-9_.])/(work|root)/' $sources || true)
[ -z "$paths" ] || complain 'a path of one machine' "$paths"
exit "$failed"
