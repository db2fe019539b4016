#!/usr/bin/env bash
# Tests of tools/dev/setup.sh by its real behaviour, on small made-up wheels served from a local folder:
# no network, no root, nothing outside a temporary folder. Programs that would need a special machine
# (a hanging unzip, a missing sudo, apt-get) are stood in for by scripts placed first on PATH. None of
# them waits for ever, so a failed case leaves nothing running for long.
#
# usage: test_setup.sh [CASE ...]   (default: all; a case is a function named case_CASE below)
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
setup=$root/tools/dev/setup.sh
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# The caller's own pip settings and folders must not matter.
unset PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_CERT XDG_CACHE_HOME TTT_PYTHON "${!TTT_@}"
export PIP_CONFIG_FILE=/dev/null PIP_NO_INDEX=1

# ---- A small world ---------------------------------------------------------------------------------

# make_wheel NAME [FILE=TEXT ...]: writes a wheel to $links and prints its table entry, which keeps
# what is under lib/. The hashes are computed here on their own, not by the script under test.
make_wheel() {
    python3 - "$links" "$@" <<'EOF'
import hashlib, sys, zipfile

links, name, *members = sys.argv[1:]
files = dict(member.split("=", 1) for member in members)
info = f"{name}-1.0.dist-info"
files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files)
path = f"{links}/{name}-1.0-py3-none-any.whl"
with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
    for member, text in files.items():
        wheel.writestr(member, text)

def tree(keep):
    lines = [
        f"{hashlib.sha256(text.encode()).hexdigest()} *./{member}\n"
        for member, text in sorted(files.items()) if keep(member)
    ]
    return hashlib.sha256("".join(lines).encode()).hexdigest()

with open(path, "rb") as wheel:
    whole = hashlib.sha256(wheel.read()).hexdigest()
print(f"wheel {name} {name} 1.0 py3-none-any\nsha256 {whole}\nsize 1 1\nkeep lib/*")
print("tree", tree(lambda member: member.startswith("lib/")))
print("# venv-tree", tree(lambda member: not member.startswith(info)))
EOF
}

# A fresh folder with one wheel `toy`, a table, and a cache whose path has a space.
fresh_world() {
    world=$(mktemp -d "$scratch/world.XXXX")
    links=$world/links bin=$world/bin table=$world/table.txt cache="$world/my cache"
    export PIP_FIND_LINKS=$links TTT_CACHE=$cache
    mkdir "$links" "$bin"
    make_wheel toy lib/a.so=alpha lib/deep/b.h=beta other/c=gamma >"$table"
}

# stand_in NAME: a program for $PATH, its text on standard input.
stand_in() {
    { echo '#!/bin/bash' && cat; } >"$bin/$1"
    chmod +x "$bin/$1"
}

# run EXPECTED_STATUS ARGUMENTS: runs set-up, leaves what it said in $world/out.
run() {
    local expected=$1 status=0
    shift
    PATH=$bin:$PATH "$setup" --no-packages --table "$table" "$@" \
        >"$world/out" 2>&1 </dev/null || status=$?
    [ "$status" -eq "$expected" ] || fail "exit $status instead of $expected: setup.sh $*"
}

fail() {
    echo "    $1"
    [ ! -s "${world:-}/out" ] || sed 's/^/    | /' "$world/out"
    exit 1
}

said() {
    grep -qF -- "$1" "$world/out" || fail "it should have said '$1'"
}

not_said() {
    ! grep -qF -- "$1" "$world/out" || fail "it should not have said '$1'"
}

holds() {
    [ "$(cat "$1" 2>/dev/null)" = "$2" ] || fail "$1 should hold '$2'"
}

# Waits until a file holds a text; ten seconds are an eternity here.
await() {
    local tries
    for ((tries = 0; tries < 200; tries++)); do
        ! grep -qsF -- "$2" "$1" || return 0
        sleep 0.05
    done
    fail "waited in vain for '$2' in $1"
}

# ---- Cases -----------------------------------------------------------------------------------------

case_usage() {
    run 0 --help
    said 'usage:'
    run 2 --frobnicate
    said "unknown argument '--frobnicate'"
    run 2 --only
    run 2 --only moon
    said "no group 'moon' (there are: toy)"
}

case_table_errors() {
    local good
    good=$(cat "$table")
    refuse() {
        printf '%s\n' "$1" >"$table"
        run 1 --offline
        said "$2"
    }
    refuse 'wheel toy toy' "table.txt:1: bad wheel: 'toy toy'"
    refuse 'wheel toy ../../etc 1.0 py3-none-any' 'table.txt:1: bad wheel'
    refuse 'wheel toy toy 1.0 py3-none' 'table.txt:1: bad wheel tag'
    refuse 'sha256 00' "table.txt:1: 'sha256' before any entry"
    refuse "$good"$'\nsha256 12ab' "table.txt:7: not a SHA-256: '12ab'"
    refuse "$good"$'\ncolour red' "table.txt:7: unknown key 'colour'"
    refuse "$good"$'\nsize 1' "table.txt:7: a size is two numbers: '1'"
    refuse "${good//tree /# }" 'the entry before has no tree hash: toy'
    refuse "${good//sha256 /# }" 'the entry before has no sha256: toy'
    refuse "${good//keep /# }" 'the entry before keeps nothing: toy'
    refuse "${good//size /# }" 'the entry before has no size: toy'
    refuse '# nothing' 'the table is empty'
    rm "$table"
    run 1 --offline
    said 'cannot read the table'
}

# The table and the list of packages in the tree are well-formed and name all four groups.
case_real_table() {
    table=$root/tools/dev/wheels.txt
    run 1 --offline --only cpu,tpu,cuda,judges
    said '4 of 4 not whole'
}

case_fresh_then_warm() {
    run 0
    said 'toy 1.0: fetched and checked'
    holds "$cache/toy-1.0/lib/a.so" alpha
    holds "$cache/toy-1.0/lib/deep/b.h" beta
    [ ! -e "$cache/toy-1.0/other" ] || fail 'it unpacked what the table does not keep'
    [ -z "$(find "$cache/wheels" "$cache/tmp" -type f 2>/dev/null)" ] ||
        fail 'it left a wheel or temporary files'
    # A warm run needs neither the wheel, nor pip, nor the right to write.
    rm -r "$links"
    chmod -R a-w "$cache"
    stand_in python3 <<<'exit 1'
    TTT_PYTHON=/nonexistent run 0
    said 'toy 1.0: verified'
    run 0 --offline
    chmod -R u+w "$cache"
}

case_default_folder() {
    unset TTT_CACHE
    HOME="$world/a home" run 0
    holds "$world/a home/.cache/ttt/toy-1.0/lib/a.so" alpha
    XDG_CACHE_HOME="$world/xdg" run 0
    holds "$world/xdg/ttt/toy-1.0/lib/a.so" alpha
    (unset HOME && run 1)
    said 'HOME is not set: say where with TTT_CACHE=FOLDER'
}

case_damage_is_found_and_repaired() {
    local damage
    run 0
    cp -a "$cache/toy-1.0" "$world/good"
    for damage in 'printf alphb >lib/a.so' 'printf alp >lib/a.so' ': >lib/a.so' 'rm lib/a.so' \
        'ln -sf /dev/null lib/a.so' 'echo alpha >lib/new.h'; do
        (cd "$cache/toy-1.0" && eval "$damage")
        run 1 --offline
        said '1 of 1 not whole'
        case $damage in
            *new.h) said 'toy 1.0: damaged: lib/new.h' ;;
            *) said 'toy 1.0: damaged: lib/a.so' ;;
        esac
        rm -r "$cache/toy-1.0"
        cp -a "$world/good" "$cache/toy-1.0"
    done
    printf alp >"$cache/toy-1.0/lib/a.so"
    echo stray >"$cache/toy-1.0/lib/new.h"
    run 0
    said 'toy 1.0: damaged: lib/a.so lib/new.h'
    diff -r "$world/good" "$cache/toy-1.0" >"$world/out" || fail 'the repair is not complete'
}

case_offline_with_nothing() {
    run 1 --offline
    said 'run tools/dev/setup.sh without --offline'
    said 'toy 1.0: missing'
    [ ! -e "$cache" ] || fail 'it wrote although it should only look'
}

case_fetch_fails() {
    rm "$links"/*
    run 1
    said 'error: could not fetch toy 1.0 (1 MB)'
    said 'command: python3 -m pip'
    said 'pip: ERROR: No matching distribution'
    said 'HTTPS_PROXY'
    said 'Free disk space'
    [ ! -e "$cache/toy-1.0" ] || fail 'a failed fetch left a folder'
}

case_wrong_wheel_is_refused() {
    make_wheel toy lib/a.so=evil lib/deep/b.h=beta other/c=gamma >/dev/null
    run 1
    said 'could not fetch toy 1.0'
    said 'pip:'
    [ ! -e "$cache/toy-1.0" ] || fail 'it kept a wheel that is not the pinned one'
}

# The wheel is the pinned one, but what is kept of it is not what the table says.
case_wrong_tree_is_refused() {
    local right
    right=$(sed -n 's/^tree //p' "$table")
    sed -i "s/$right/$(printf '0%.0s' {1..64})/" "$table"
    run 1
    said 'what came out is not what'
    said "got         $right"
    [ ! -e "$cache/toy-1.0" ] || fail 'it kept an unexpected tree'
}

case_bad_leftover_wheel_is_fetched_again() {
    mkdir -p "$cache/wheels"
    echo 'half a wheel' >"$cache/wheels/toy-1.0-py3-none-any.whl"
    run 0
    holds "$cache/toy-1.0/lib/a.so" alpha
}

case_no_space() {
    sed -i 's/^size .*/size 1 900000000/' "$table"
    run 1
    said 'not enough disk space'
    said '900000002 MB needed'
}

case_unwritable_cache() {
    : >"$world/file"
    TTT_CACHE=$world/file/cache run 1
    said "cannot write to the cache folder '$world/file/cache': choose one with TTT_CACHE=FOLDER"
}

case_no_pip() {
    stand_in python <<<'echo "No module named pip" >&2; exit 1'
    TTT_PYTHON=$bin/python run 1
    said "no Python with pip: $bin/python cannot import it"
    said 'apt-get install python3-pip'
}

# Starts set-up in a process group of its own and kills all of it without mercy once $1 says $2.
kill_when() {
    local group
    set -m
    PATH=$bin:$PATH "$setup" --no-packages --table "$table" >"$world/out" 2>&1 </dev/null &
    group=$!
    set +m
    await "$1" "$2"
    kill -9 -- "-$group"
    wait "$group" 2>/dev/null || true
}

case_killed_while_unpacking() {
    stand_in unzip <<<"mkdir -p '$cache/tmp/unpack/lib'; cd '$cache/tmp/unpack/lib'
        echo alp | tee a.so >stray
        echo now >'$world/now'; sleep 20"
    kill_when "$world/now" now
    [ -e "$cache/tmp/unpack/lib/a.so" ] || fail 'the kill came too late to prove anything'
    [ ! -e "$cache/toy-1.0" ] || fail 'half a folder is in place'
    # The wheel was complete: no second fetch.
    rm "$bin/unzip" "$links"/*
    run 0
    not_said fetching
    holds "$cache/toy-1.0/lib/a.so" alpha
    [ ! -e "$cache/tmp" ] || fail 'what the killed run left is still there'
}

case_killed_while_fetching() {
    stand_in python <<<"case \"\$*\" in *import*) exit 0 ;; esac
        mkdir -p '$cache/tmp/download'; echo half >'$cache/tmp/download/toy-1.0-py3-none-any.whl'
        echo now >'$world/now'; sleep 20"
    TTT_PYTHON=$bin/python kill_when "$world/now" now
    run 0
    holds "$cache/toy-1.0/lib/a.so" alpha
}

# A polite stop: the exit status says so and nothing temporary stays.
case_terminated() {
    local pid status=0
    stand_in unzip <<<"echo now >'$world/now'; sleep 1; exit 1"
    PATH=$bin:$PATH "$setup" --no-packages --table "$table" >"$world/out" 2>&1 </dev/null &
    pid=$!
    await "$world/now" now
    kill -TERM "$pid"
    wait "$pid" || status=$?
    [ "$status" -eq 143 ] || fail "exit $status instead of 143"
    [ ! -e "$cache/tmp" ] || fail 'temporary files stayed'
}

case_two_at_once() {
    local first second
    stand_in unzip <<<"echo now >'$world/now'
        for ((i = 0; i < 400; i++)); do [ ! -e '$world/go' ] || break; sleep 0.05; done
        exec $(command -v unzip) \"\$@\""
    PATH=$bin:$PATH "$setup" --no-packages --table "$table" >"$world/first" 2>&1 </dev/null &
    first=$!
    await "$world/now" now
    PATH=$bin:$PATH "$setup" --no-packages --table "$table" >"$world/out" 2>&1 </dev/null &
    second=$!
    await "$world/out" 'another set-up is at work'
    : >"$world/go"
    wait "$first" || fail "the first failed: $(cat "$world/first")"
    wait "$second" || fail 'the second failed'
    not_said fetching
    said 'toy 1.0: verified'
}

# The judges' environment: made, verified, repaired, and never with an unpinned package.
case_environment() {
    local version entry
    version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    entry=$(make_wheel judge judge/__init__.py=answer=42)
    echo "judge==1.0 --hash=sha256:$(sed -n 's/^sha256 //p' <<<"$entry")" >"$world/needs.txt"
    printf 'venv judges needs.txt %s\ntree %s\nsize 1 1\n' "$version" \
        "$(sed -n 's/^# venv-tree //p' <<<"$entry")" >"$table"
    run 0
    "$cache/judges/bin/python" -c 'import judge; assert judge.answer == 42' ||
        fail 'the judge cannot be imported'
    # Python's own cache files, which the import just wrote, are no damage.
    run 0 --offline
    echo 'answer = 43' >"$cache/judges/lib/python$version/site-packages/judge/__init__.py"
    run 1 --offline
    said 'damaged: judge/__init__.py'
    run 0
    ln -sfn /nonexistent "$cache/judges/bin/python"
    run 1 --offline
    said 'its Python does not start'
    run 0
    sed -i "s/$version/2.7/" "$table"
    rm -r "$cache"
    run 1
    said 'needs Python 2.7'
    # A package without a hash is refused by pip itself.
    sed -i "s/2.7/$version/" "$table"
    echo 'judge==1.0' >"$world/needs.txt"
    run 1
    said 'could not fetch judges'
}

# Packages: the missing one is named in one command for whoever may not install it, and installed by
# whoever may. `id` decides who we seem to be.
case_packages() {
    echo 'no-such-package-of-ours  # why' >"$world/packages.txt"
    packages_run() {
        local expected=$1 status=0
        shift
        PATH=$bin:$PATH "$setup" --packages "$world/packages.txt" --table "$table" "$@" \
            >"$world/out" 2>&1 </dev/null || status=$?
        [ "$status" -eq "$expected" ] || fail "exit $status instead of $expected: setup.sh $*"
    }
    stand_in id <<<'echo 1000'
    stand_in sudo <<<'exit 1'
    packages_run 1
    said "sudo sh -c 'apt-get update && apt-get install -y --no-install-recommends no-such-package-of-ours'"
    [ ! -e "$cache" ] || fail 'it went on without the package'
    packages_run 1 --offline
    said 'Debian packages are missing: no-such-package-of-ours'

    stand_in apt-get <<<"echo \"\$*\" >>'$world/apt'"
    stand_in id <<<'echo 0'
    packages_run 0
    grep -q 'update' "$world/apt" || fail 'no apt-get update'
    grep -q 'install -y .* no-such-package-of-ours' "$world/apt" || fail 'no apt-get install'
    stand_in apt-get <<<'echo "E: broken" >&2; exit 100'
    packages_run 1
    said 'apt-get could not install the packages'

    # Passwordless sudo is enough.
    stand_in id <<<'echo 1000'
    # shellcheck disable=SC2016  # it is the stand-in that expands them
    stand_in sudo <<<'shift; echo "sudo $*" >>'"'$world/apt'"'; [ "$1" = true ] || exec "$@"'
    stand_in apt-get <<<'exit 0'
    packages_run 0
    grep -q 'sudo env .*apt-get install' "$world/apt" || fail 'sudo was not used'

    # Nothing missing: no root, no apt-get.
    echo 'dpkg' >"$world/packages.txt"
    stand_in sudo <<<'exit 1'
    stand_in apt-get <<<'exit 1'
    packages_run 0
}

# ---- Running them ----------------------------------------------------------------------------------

main() {
    local name status names=("$@") failures=0
    [ $# -gt 0 ] || mapfile -t names < <(declare -F | sed -n 's/^declare -f case_//p')
    for name in "${names[@]}"; do
        # The case runs outside of any condition, so that set -e holds inside of it.
        set +e
        (
            set -e
            fresh_world
            "case_$name"
        )
        status=$?
        set -e
        case $status in
            0) echo "ok      $name" ;;
            *)
                echo "FAILED  $name"
                failures=$((failures + 1))
                ;;
        esac
    done
    echo "test_setup: ${#names[@]} cases, $failures failed"
    [ "$failures" -eq 0 ]
}

main "$@"
