#!/bin/sh
# Adds the SPDX line to every source file that lacks it; with --check it only lists those and fails.
#
# usage: tools/dev/spdx.sh [--check]
set -eu
cd "$(dirname "$0")/../.."
mode=${1:-add}
missing=0
for file in $(git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.py' '*.sh' '*.cmake' '*CMakeLists.txt' '*.proto'); do
    [ -f "$file" ] || continue
    head -n 3 "$file" | grep -q 'SPDX-License-Identifier' && continue
    if [ "$mode" = --check ]; then
        echo "$file: no SPDX-License-Identifier"
        missing=1
        continue
    fi
    case $file in
        *.c | *.h) line='/* SPDX-License-Identifier: Apache-2.0 */' ;;
        *.cc | *.cu | *.proto) line='// SPDX-License-Identifier: Apache-2.0' ;;
        *) line='# SPDX-License-Identifier: Apache-2.0' ;;
    esac
    # A script's first line names its interpreter and stays first.
    if head -n 1 "$file" | grep -q '^#!'; then
        sed -i "1a $line" "$file"
    else
        sed -i "1i $line" "$file"
    fi
done
exit "$missing"
