#!/bin/sh
# Checks who includes whom. A room is a top-level folder; the direction is
# tools -> runtime -> {model, kernels, pjrt}, model -> hlo_builder, read as transitive. Across rooms only
# public headers may be included: the ones named after the room at its top. Tests may include anything.
# It refuses to be a preprocessor: conditionals are ignored (every #include counts), comments are not
# includes, and a name that no room has (system, wheel) is nobody's.
#
# usage: check_includes.sh [ROOT]      check a tree (default: the one this file is in)
#        check_includes.sh --self-test plant violations in a temporary tree and prove that each is found
set -eu

here=$(cd "$(dirname "$0")" && pwd)

check_tree() {
    (cd "$1" && for room in pjrt hlo_builder model kernels runtime tools tests; do
        [ ! -d "$room" ] || find "$room" -type f
    done) | LC_ALL=C sort | awk -v root="$1" '
    BEGIN {
        may["tools"] = " runtime model kernels pjrt hlo_builder "
        may["runtime"] = " model kernels pjrt hlo_builder "
        may["model"] = " hlo_builder "
        public["pjrt"] = "^pjrt/(hlo/)?pjrt[^/]*[.]h$"
        public["hlo_builder"] = "^hlo_builder/hlo[^/]*[.]h$"
        public["model"] = "^model/(files/)?ttt_(model|train)[^/]*[.]h$"
        public["kernels"] = "^kernels/ttt_kernels[^/]*[.]h$"
        public["runtime"] = "^runtime/([a-z]+/)?ttt_[^/]*[.]h$"
    }

    function room_of(path) { return substr(path, 1, index(path, "/") - 1) }

    # Folds "a/./b" and "a/x/../b".
    function tidy(path) {
        while (sub(/\/\.\//, "/", path)) { }
        while (sub(/[^\/.][^\/]*\/\.\.\//, "", path)) { }
        return path
    }

    # The file of this tree that an include means, or "". As a compiler does: beside the includer, then
    # from the root, then from any folder that may be on the include path, the own room first.
    function resolve(from, name,    folder, path, room, found, i) {
        folder = from
        sub(/[^\/]*$/, "", folder)
        path = tidy(folder name)
        if (path in exists) return path
        path = tidy(name)
        if (path in exists) return path
        sub(/^(\.\.\/)+/, "", path)
        room = room_of(from)
        for (i = 1; i <= files; i++) {
            if (length(file[i]) <= length(path)) continue
            if (substr(file[i], length(file[i]) - length(path)) != "/" path) continue
            if (room_of(file[i]) == room) return file[i]
            if (found == "") found = file[i]
        }
        # Code that protoc-c writes at build time belongs to the room of its .proto file.
        if (found == "" && path ~ /\.pb-c\.h$/) {
            sub(/\.pb-c\.h$/, ".proto", path)
            return resolve(from, path)
        }
        return found
    }

    # The line without comments, quoted text kept; `inside` remembers an open block comment.
    function strip(line,    out, at, end) {
        out = ""
        while (line != "") {
            if (inside) {
                end = index(line, "*/")
                if (!end) return out
                line = substr(line, end + 2)
                inside = 0
            }
            at = match(line, /["\047]|\/[*\/]/)
            if (!at) return out line
            out = out substr(line, 1, at - 1)
            line = substr(line, at)
            if (line ~ /^\/\//) return out
            if (line ~ /^\/\*/) {
                inside = 1
                line = substr(line, 3)
                continue
            }
            if (!match(line, /^"([^"\\]|\\.)*"/) && !match(line, /^\047([^\047\\]|\\.)*\047/)) RLENGTH = 1
            out = out substr(line, 1, RLENGTH)
            line = substr(line, RLENGTH + 1)
        }
        return out
    }

    # The name in an #include line, or "".
    function included(line) {
        line = strip(line)
        if (line !~ /^[ \t]*#[ \t]*include[ \t]*["<][^">]+[">]/) return ""
        sub(/^[^"<]*["<]/, "", line)
        sub(/[">].*$/, "", line)
        return line
    }

    function complain(path, number, name, why) {
        printf "%s:%d: includes \"%s\": %s\n", path, number, name, why
        violations++
    }

    function check(path, number, name,    target, from, to) {
        target = resolve(path, name)
        if (target == "") return
        from = room_of(path)
        to = room_of(target)
        if (from == to || from == "tests") return
        if (index(may[from], " " to " ") == 0) {
            complain(path, number, name, from " may not include " to)
        } else if (target !~ public[to]) {
            complain(path, number, name, target " is private to " to)
        }
    }

    { file[++files] = $0; exists[$0] = 1 }

    END {
        for (i = 1; i <= files; i++) {
            if (file[i] !~ /\.(c|h|cc|cpp|cxx|hh|hpp|cu|cuh|inc|def)$/) continue
            sources++
            inside = 0
            number = 0
            while ((status = (getline line < (root "/" file[i]))) > 0) {
                number++
                name = included(line)
                if (name != "") check(file[i], number, name)
            }
            if (status < 0) {
                printf "%s: cannot be read\n", file[i]
                violations++
            }
            close(root "/" file[i])
        }
        if (!sources) {
            print "check_includes: no source files under " root
            exit 1
        }
        printf "check_includes: %d files, %d violations\n", sources, violations
        exit violations > 0
    }'
}

# Writes a small tree in which every rule is kept.
good_tree() {
    (mkdir -p "$1" && cd "$1" && mkdir -p pjrt/cpu pjrt/proto hlo_builder model kernels runtime/device tools tests)
    : >"$1/pjrt/internal.h"
    : >"$1/pjrt/proto/options.proto"
    : >"$1/hlo_builder/hlo.h"
    : >"$1/hlo_builder/graph.h"
    : >"$1/kernels/ttt_kernels.h"
    printf '/* * #include "runtime/device/ttt_device.h"\n#include "model/ttt_model.h"\n */\n' >"$1/pjrt/pjrt.h"
    printf '#include "internal.h"\n#include <stdio.h>\n#include "xla/pjrt_c_api.h"\n' >"$1/pjrt/client.c"
    printf '#include "../internal.h"\n// #include "hlo_builder/hlo.h"\n' >"$1/pjrt/cpu/bridge.cc"
    printf '#include "options.pb-c.h"\n' >"$1/pjrt/options.c"
    printf '#include "hlo_builder/hlo.h"\n' >"$1/model/ttt_model.h"
    printf '#include "%s"\n' model/ttt_model.h pjrt/pjrt.h kernels/ttt_kernels.h >"$1/runtime/device/ttt_device.h"
    printf '#include "runtime/device/ttt_device.h"\n#include "pjrt/pjrt.h"\n' >"$1/tools/main.c"
    printf '#include "pjrt/internal.h"\n#include "tools/main.c"\n' >"$1/tests/test_pjrt.c"
}

# expect_violation TITLE FILE TEXT WORDS: the good tree plus one bad file must fail with these words.
expect_violation() {
    rm -rf "$scratch/tree"
    good_tree "$scratch/tree"
    printf '%s\n' "$3" >"$scratch/tree/$2"
    if check_tree "$scratch/tree" >"$scratch/out"; then
        echo "self-test: $1: not found"
        exit 1
    fi
    if ! grep -qF "$4" "$scratch/out" || ! grep -qF ' 1 violations' "$scratch/out"; then
        echo "self-test: $1: expected one violation with '$4', got:"
        cat "$scratch/out"
        exit 1
    fi
}

self_test() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    good_tree "$scratch/tree"
    if ! check_tree "$scratch/tree" >"$scratch/out"; then
        echo 'self-test: a good tree was refused:'
        cat "$scratch/out"
        exit 1
    fi
    expect_violation 'against the direction' pjrt/bad.c \
        '#include "model/ttt_model.h"' 'pjrt/bad.c:1'
    expect_violation 'angle brackets' kernels/bad.cu \
        '  #  include <pjrt/pjrt.h>' 'kernels may not include pjrt'
    expect_violation 'private header' tools/bad.c \
        '#include "pjrt/internal.h"' 'private to pjrt'
    expect_violation 'private by relative path' model/bad.c \
        '#include "../hlo_builder/graph.h"' 'private to hlo_builder'
    expect_violation 'by include path' runtime/bad.c \
        '#include "graph.h"' 'private to hlo_builder'
    expect_violation 'model to pjrt' model/bad.h \
        '#include "pjrt.h"' 'model may not include pjrt'
    expect_violation 'a source file' runtime/bad.c \
        '#include "pjrt/client.c"' 'private to pjrt'
    expect_violation 'generated protobuf' runtime/bad.c \
        '#include "options.pb-c.h"' 'private to pjrt'
    expect_violation 'the tools of others' runtime/bad.c \
        '#include "tools/main.c"' 'runtime may not include tools'
    expect_violation 'the tests of others' tools/bad.c \
        '#include "tests/test_pjrt.c"' 'tools may not include tests'
    expect_violation 'after a comment' pjrt/bad.c '/* a */ /* b
*/ #include "hlo_builder/hlo.h" // c' 'pjrt/bad.c:2'
    expect_violation 'after a comment mark in a string' pjrt/bad.c 'const char *s = "/*";
#include "hlo_builder/hlo.h"' 'pjrt/bad.c:2'
    echo 'check_includes: self-test passed'
}

case ${1:-} in
    --self-test) self_test ;;
    -*)
        echo "usage: check_includes.sh [ROOT | --self-test]" >&2
        exit 2
        ;;
    *) check_tree "${1:-$here/..}" ;;
esac
