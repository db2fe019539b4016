#!/usr/bin/env bash
# Makes a machine ready to build and test: Debian packages, then the pinned wheels and the Python
# environment of the tests' judges, in a cache folder. Run it as often as you like. When all is there
# it only verifies, in about a second, without root, network or a writable cache.
# It refuses to build anything and to write outside the cache folder (Debian packages aside).
#
# How it stays whole: everything is made under CACHE/tmp, checked, and renamed into place, one set-up
# at a time (CACHE/lock). So a killed run leaves nothing that looks complete, and each run compares
# every kept file with the pinned table, so what is damaged is replaced. A wheel is removed once it is
# unpacked: damage is rare, and fetching 600 MB again in that case is kinder than keeping them on disk.
set -euo pipefail

script_name=setup
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=tools/dev/lib.sh
. "$root/tools/dev/lib.sh"

usage() {
    cat <<'EOF'
usage: tools/dev/setup.sh [options]

Installs the Debian packages of tools/dev/packages.txt and packages-tests.txt if any is missing,
fetches what tools/dev/wheels.txt pins, and verifies every kept file by its hash. Safe to run again.

  --only LIST       only these groups, by commas: cpu, tpu, cuda, judges (default: all)
  --offline         fetch and install nothing: verify, and fail if something is missing
  --no-packages     leave Debian packages alone
  --packages FILE   another list of packages
  --table FILE      another table of wheels
  --help            this text

environment:
  TTT_CACHE         the cache folder (default ${XDG_CACHE_HOME:-~/.cache}/ttt), about 2.5 GB
  TTT_PYTHON        the Python that runs pip (default: the first of python3, /usr/bin/python3 with pip)
  pip's own         PIP_INDEX_URL, PIP_FIND_LINKS, PIP_NO_INDEX, HTTPS_PROXY ... work as usual

exit: 0 all is there, 1 something failed or is missing, 2 wrong use
EOF
}

wrong_use() {
    printf '%s: %s (see --help)\n' "$script_name" "$1" >&2
    exit 2
}

parse_arguments() {
    only='' offline=no with_packages=yes
    packages_files=("$root/tools/dev/packages.txt" "$root/tools/dev/packages-tests.txt")
    packages_given=no
    table_file=$root/tools/dev/wheels.txt
    while [ $# -gt 0 ]; do
        case $1 in
            --only | --packages | --table)
                [ $# -ge 2 ] || wrong_use "$1 needs a value"
                case $1 in
                    --only) only=$2 ;;
                    --packages)
                        packages_files=("$2")
                        packages_given=yes
                        ;;
                    --table) table_file=$2 ;;
                esac
                shift
                ;;
            --offline) offline=yes ;;
            --no-packages) with_packages=no ;;
            --help | -h)
                usage
                exit 0
                ;;
            *) wrong_use "unknown argument '$1'" ;;
        esac
        shift
    done
    # Without the judges there are no tests, and no need for their packages.
    if [ "$packages_given" = no ] && [ -n "$only" ] && [[ ,$only, != *,judges,* ]]; then
        packages_files=("$root/tools/dev/packages.txt")
    fi
}

# ---- Debian packages -------------------------------------------------------------------------------

# Sets `missing` to the listed packages that are not installed.
find_missing_packages() {
    local installed wanted package
    for package in "${packages_files[@]}"; do
        [ -r "$package" ] || die "cannot read the list of packages '$package'"
    done
    mapfile -t wanted < <(sed 's/#.*//; s/[[:space:]]//g; /^$/d' "${packages_files[@]}")
    installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null || true)
    missing=()
    for package in "${wanted[@]}"; do
        grep -qxF "installed $package" <<<"$installed" || missing+=("$package")
    done
}

ensure_packages() {
    local become=() missing install
    command -v dpkg-query >/dev/null ||
        die "this is not a Debian system: install what ${packages_files[*]} list, then use --no-packages"
    find_missing_packages
    [ ${#missing[@]} -gt 0 ] || return 0
    install="apt-get install -y --no-install-recommends ${missing[*]}"
    [ "$offline" = no ] || die "Debian packages are missing: ${missing[*]}"
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            die "Debian packages are missing, and installing needs root. Run this, then set-up again:" \
                "sudo sh -c 'apt-get update && $install'"
        fi
        become=(sudo -n)
    fi
    say "installing ${#missing[@]} Debian packages: ${missing[*]}"
    # A broken third-party source makes the update fail although the packages are within reach.
    "${become[@]}" apt-get -q update || say "apt-get update failed; trying to install anyway"
    # shellcheck disable=SC2086  # the command is words on purpose
    "${become[@]}" env DEBIAN_FRONTEND=noninteractive $install -q -o DPkg::Lock::Timeout=300 \
        </dev/null ||
        die "apt-get could not install the packages (its own words are above)" \
            "command: $install"
}

# ---- The table -------------------------------------------------------------------------------------

bad_table() {
    die "$table_file:$line_number: $1"
}

is_hash() {
    [[ $1 =~ ^[0-9a-f]{64}$ ]]
}

# Names come from the table and become folders: nothing that could leave the cache.
is_plain() {
    [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]]
}

start_entry() {
    local kind=$1 words=$2 group name version tag surplus
    check_entry
    read -r group name version tag surplus <<<"$words"
    if ! is_plain "$group" || ! is_plain "$name" || ! is_plain "$version" || [ -n "$surplus" ]; then
        bad_table "bad $kind: '$words'"
    fi
    case $kind in
        wheel)
            [[ $tag =~ ^[a-z0-9]+-[a-z0-9]+-[a-z0-9_]+$ ]] || bad_table "bad wheel tag: '$words'"
            folders+=("$name-$version")
            ;;
        venv)
            [ -z "$tag" ] || bad_table "bad venv: '$words'"
            folders+=("$group")
            ;;
    esac
    kinds+=("$kind") groups+=("$group") names+=("$name") versions+=("$version") tags+=("$tag")
    sha256s+=('') trees+=('') fetch_mb+=('') keep_mb+=('') keeps+=('')
}

# Checks that the entry that ends here is complete.
check_entry() {
    local last=$((${#kinds[@]} - 1))
    [ "$last" -ge 0 ] || return 0
    [ -n "${trees[last]}" ] || bad_table "the entry before has no tree hash: ${names[last]}"
    [ -n "${fetch_mb[last]}" ] || bad_table "the entry before has no size: ${names[last]}"
    [ "${kinds[last]}" = wheel ] || return 0
    [ -n "${sha256s[last]}" ] || bad_table "the entry before has no sha256: ${names[last]}"
    [ -n "${keeps[last]}" ] || bad_table "the entry before keeps nothing: ${names[last]}"
}

read_table() {
    local line key words last
    line_number=0
    kinds=() groups=() names=() versions=() tags=() folders=()
    sha256s=() trees=() fetch_mb=() keep_mb=() keeps=()
    [ -r "$table_file" ] || die "cannot read the table '$table_file'"
    while read -r line || [ -n "$line" ]; do
        line_number=$((line_number + 1))
        read -r key words <<<"${line%%#*}"
        [ -n "$key" ] || continue
        last=$((${#kinds[@]} - 1))
        [ "$last" -ge 0 ] || [[ $key == wheel || $key == venv ]] || bad_table "'$key' before any entry"
        case $key in
            wheel | venv) start_entry "$key" "$words" ;;
            sha256)
                is_hash "$words" || bad_table "not a SHA-256: '$words'"
                sha256s[last]=$words
                ;;
            tree)
                is_hash "$words" || bad_table "not a SHA-256: '$words'"
                trees[last]=$words
                ;;
            size)
                [[ $words =~ ^[0-9]+\ +[0-9]+$ ]] || bad_table "a size is two numbers: '$words'"
                fetch_mb[last]=${words%% *} keep_mb[last]=${words##* }
                ;;
            keep) keeps[last]+="$words " ;;
            *) bad_table "unknown key '$key'" ;;
        esac
    done <"$table_file"
    check_entry
    [ ${#kinds[@]} -gt 0 ] || die "$table_file: the table is empty"
}

# Sets `selected` to the indices of the entries that --only asks for.
select_entries() {
    local group index found
    selected=("${!kinds[@]}")
    [ -n "$only" ] || return 0
    selected=()
    for group in ${only//,/ }; do
        found=no
        for index in "${!groups[@]}"; do
            [ "${groups[index]}" = "$group" ] || continue
            selected+=("$index")
            found=yes
        done
        [ "$found" = yes ] || wrong_use "--only: no group '$group' (there are: ${groups[*]})"
    done
    [ ${#selected[@]} -gt 0 ] || wrong_use "--only needs a group"
}

title_of() {
    case ${kinds[$1]} in
        wheel) printf '%s %s' "${names[$1]}" "${versions[$1]}" ;;
        venv) printf '%s (Python environment)' "${groups[$1]}" ;;
    esac
}

# ---- Hashes ----------------------------------------------------------------------------------------

# Prints "hash *path" for files named on standard input with NUL ends.
hash_files() {
    if command -v openssl >/dev/null; then
        xargs -0 -r openssl dgst -sha256 -r
    else
        xargs -0 -r sha256sum -b
    fi
}

hash_text() {
    sha256sum | cut -d' ' -f1
}

# The folder whose files an entry is answerable for.
content_folder() {
    local folder=$cache/${folders[$1]}
    case ${kinds[$1]} in
        wheel) printf '%s' "$folder" ;;
        venv) printf '%s' "$folder/lib/python${versions[$1]}/site-packages" ;;
    esac
}

# The listing whose hash is `tree`. What Python writes on its own account is left out, as is the copy
# of the listing, .files, which only serves to name the damaged ones.
list_tree() {
    local folder=$1
    [ -d "$folder" ] || return 0
    (cd "$folder" &&
        find . -type f ! -path '*/__pycache__/*' ! -path './*.dist-info/*' ! -path ./.files -print0 |
        LC_ALL=C sort -z | hash_files)
}

# Says what differs between an entry's good listing, if it is there, and the one given.
name_damage() {
    local listing=$1 good=$2/.files tree=$3 damaged
    [ -r "$good" ] && [ "$(hash_text <"$good")" = "$tree" ] || return 0
    damaged=$(sort "$good" - <<<"$listing" | uniq -u | sed 's/.*\*\.\///' | sort -u)
    printf '%s' "$(head -n 3 <<<"$damaged" | xargs)"
    [ "$(wc -l <<<"$damaged")" -le 3 ] || printf ' and more'
}

# Prints nothing when an entry is whole, otherwise the reason. The listing comes on standard input.
judge_entry() {
    local index=$1 folder listing names
    folder=$(content_folder "$index")
    listing=$(cat)
    if [ ! -d "$cache/${folders[index]}" ]; then
        printf 'missing'
    elif [ "$(hash_text <<<"$listing")" != "${trees[index]}" ]; then
        names=$(name_damage "$listing" "$folder" "${trees[index]}")
        printf '%s' "${names:+damaged: }${names:-not what the table pins}"
    elif [ "${kinds[index]}" = venv ] && ! "$cache/${folders[index]}/bin/python" -c '' &>/dev/null; then
        printf 'damaged: its Python does not start'
    fi
}

# Verifies the given entries, reading them all at once. Sets `broken` to the indices of those that are
# not whole and `reasons`, by index, to why.
verify_entries() {
    local index fd pipes=()
    broken=() reasons=()
    for index in "$@"; do
        exec {fd}< <(list_tree "$(content_folder "$index")" 2>&1)
        pipes[index]=$fd
    done
    for index in "$@"; do
        fd=${pipes[index]}
        reasons[index]=$(judge_entry "$index" <&"$fd")
        exec {fd}<&-
        if [ -n "${reasons[index]}" ]; then
            broken+=("$index")
        else
            say "$(title_of "$index"): verified (${keep_mb[index]} MB)"
        fi
    done
}

# With --offline a broken entry is the end.
refuse_broken() {
    local index lines=()
    for index in "${broken[@]}"; do
        lines+=("$(title_of "$index"): ${reasons[index]}")
    done
    die "${#broken[@]} of ${#selected[@]} not whole in '$cache': run tools/dev/setup.sh without --offline" \
        "${lines[@]}"
}

# ---- Fetching --------------------------------------------------------------------------------------

# Takes the lock, which the kernel gives back however this process ends, and clears what a killed run
# left behind.
lock_cache() {
    if ! mkdir -p "$cache" 2>/dev/null || ! { : >>"$cache/lock"; } 2>/dev/null; then
        die "cannot write to the cache folder '$cache': choose one with TTT_CACHE=FOLDER"
    fi
    exec 9>>"$cache/lock"
    if ! flock -n 9; then
        say "another set-up is at work in $cache; waiting for it"
        flock 9
    fi
    tmp=$cache/tmp
    rm -rf "$tmp"
    mkdir -p "$tmp" "$cache/wheels"
    trap 'stop_heartbeat; rm -rf "$tmp"' EXIT
    trap 'say "interrupted; run it again, what is complete is kept" >&2; exit 130' INT
}

free_mb() {
    df -Pm "$cache" | awk 'NR == 2 { print $4 }'
}

# pip holds the file twice for a moment, in its own temporary folder and in ours.
check_space() {
    local index=$1 need=$((2 * ${fetch_mb[$1]} + ${keep_mb[$1]})) free
    free=$(free_mb)
    [ "$free" -ge "$need" ] ||
        die "not enough disk space in '$cache' for $(title_of "$index"): $need MB needed, $free MB free" \
            "free some, or choose another folder with TTT_CACHE=FOLDER"
}

# Sets `python` to one that has pip.
find_python() {
    local candidate
    [ -z "${python:-}" ] || return 0
    for candidate in ${TTT_PYTHON:+"$TTT_PYTHON"} ${TTT_PYTHON-python3 /usr/bin/python3}; do
        if "$candidate" -c 'import pip' 2>/dev/null; then
            python=$candidate
            return 0
        fi
    done
    die "no Python with pip: ${TTT_PYTHON:-python3 and /usr/bin/python3} cannot import it" \
        "try: sudo apt-get install python3-pip, or name another one with TTT_PYTHON=PATH"
}

# Off a terminal pip is silent; a line now and then tells a slow download from a dead one.
start_heartbeat() {
    local title=$1 total=$2 parent=$$
    heartbeat=''
    [ ! -t 1 ] || return 0
    # Reading a pipe that nobody writes is a sleep without a child that could outlive us.
    (
        exec 9>&-
        trap - EXIT INT
        while kill -0 "$parent" 2>/dev/null; do
            read -rt 10 _ <> <(:) || true
            say "$title: $(du -sm "$tmp" 2>/dev/null | cut -f1) of about $total MB so far"
        done
    ) &
    heartbeat=$!
}

stop_heartbeat() {
    [ -n "${heartbeat:-}" ] || return 0
    kill "$heartbeat" 2>/dev/null || true
    wait "$heartbeat" 2>/dev/null || true
    heartbeat=''
}

# Runs pip with its temporary files in our folder, no cache of its own (a second copy outside ours),
# and the user's settings that would move its target switched off.
run_pip() {
    local index=$1 total=$2 log=$tmp/pip.log status=0
    shift 2
    find_python
    set -- "$python" -m pip --no-cache-dir --disable-pip-version-check "$@"
    start_heartbeat "$(title_of "$index")" "$total"
    if [ -t 1 ]; then
        TMPDIR=$tmp PIP_REQUIRE_VIRTUALENV=0 PIP_USER=0 "$@" </dev/null || status=$?
        : >"$log"
    else
        TMPDIR=$tmp PIP_REQUIRE_VIRTUALENV=0 PIP_USER=0 "$@" </dev/null >"$log" 2>&1 || status=$?
    fi
    stop_heartbeat
    [ "$status" -eq 0 ] || explain_pip_failure "$index" "$log" "$*"
}

# pip names the cause of a network failure only in its warnings, once a retry: the last one is enough.
explain_pip_failure() {
    local index=$1 log=$2 command=$3 words=()
    mapfile -t words < <({
        grep -i 'retrying' "$log" | tail -n 1 || true
        grep -iE 'error:|could not|no space' "$log" | grep -vi 'retrying' | tail -n 4 || tail -n 3 "$log"
    } | cut -c1-300)
    die "could not fetch $(title_of "$index") (${fetch_mb[index]} MB)" \
        "command: $command" "${words[@]/#/pip: }" \
        "try: the same command again, what is complete is kept; behind a proxy HTTPS_PROXY=..., and" \
        "     PIP_CERT=FILE if it has its own certificate; PIP_INDEX_URL=... for a mirror." \
        "     Free disk space in $cache: $(free_mb) MB"
}

# Leaves the wheel, checked, as CACHE/wheels/FILE, unless a killed run already did.
fetch_wheel() {
    local index=$1 wheel=$2 python_tag abi platform start hash
    if [ -f "$wheel" ]; then
        hash=$(printf '%s\0' "$wheel" | hash_files | cut -d' ' -f1)
        [ "$hash" != "${sha256s[index]}" ] || return 0
        rm -f "$wheel"
    fi
    check_space "$index"
    start=$(now_us)
    IFS=- read -r python_tag abi platform <<<"${tags[index]}"
    [ "$python_tag" != py3 ] || python_tag=cp311
    printf '%s==%s --hash=sha256:%s\n' "${names[index]}" "${versions[index]}" "${sha256s[index]}" \
        >"$tmp/wanted.txt"
    say "$(title_of "$index"): fetching ${fetch_mb[index]} MB"
    run_pip "$index" "${fetch_mb[index]}" download --no-deps --only-binary=:all: --require-hashes \
        --implementation cp --python-version "${python_tag#cp}" --abi "$abi" --platform "$platform" \
        --dest "$tmp/download" --requirement "$tmp/wanted.txt"
    hash=$(find "$tmp/download" -name '*.whl' -print0 | hash_files | cut -d' ' -f1)
    [ "$hash" = "${sha256s[index]}" ] ||
        die "$(title_of "$index"): the fetched wheel is not the pinned one" \
            "pinned ${sha256s[index]}" "got    ${hash:-nothing}"
    mv "$tmp/download"/*.whl "$wheel"
    say "$(title_of "$index"): fetched and checked in $(seconds_since "$start") s"
}

# Compares what was made in a folder with the pinned hash and leaves the listing in it.
seal() {
    local index=$1 folder=$2 hash
    list_tree "$folder" >"$tmp/files"
    hash=$(hash_text <"$tmp/files")
    [ "$hash" = "${trees[index]}" ] ||
        die "$(title_of "$index"): what came out is not what $table_file pins" \
            "pinned tree ${trees[index]}" "got         $hash"
    mv "$tmp/files" "$folder/.files"
}

provide_wheel() {
    local index=$1 wheel patterns start
    wheel=$cache/wheels/${names[index]//-/_}-${versions[index]}-${tags[index]}.whl
    fetch_wheel "$index" "$wheel"
    start=$(now_us)
    read -ra patterns <<<"${keeps[index]}"
    unzip -q -o "$wheel" "${patterns[@]}" -d "$tmp/unpack" </dev/null >"$tmp/unzip.log" 2>&1 ||
        die "could not unpack $(title_of "$index"): $(tail -n 1 "$tmp/unzip.log")" \
            "free disk space in $cache: $(free_mb) MB"
    seal "$index" "$tmp/unpack"
    rm -rf "$cache/${folders[index]:?}"
    mv "$tmp/unpack" "$cache/${folders[index]}"
    rm -f "$wheel"
    say "$(title_of "$index"): unpacked ${keep_mb[index]} MB in $(seconds_since "$start") s"
}

# A venv knows its own path, so it is made in place; until its last file is right it does not verify.
# pip stays outside of it: fewer files, and Debian's python3-venv is not needed.
provide_venv() {
    local index=$1 folder=$cache/${folders[$1]} start requirements found
    requirements=$(cd "$(dirname "$table_file")" && pwd)/${names[index]}
    start=$(now_us)
    check_space "$index"
    find_python
    found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    [ "$found" = "${versions[index]}" ] ||
        die "$(title_of "$index") needs Python ${versions[index]}, and $python is $found" \
            "name another one with TTT_PYTHON=PATH, or do without those tests: --only cpu,tpu,cuda"
    rm -rf "$folder"
    "$python" -m venv --without-pip "$folder" || die "$python could not make a venv in $folder"
    say "$(title_of "$index"): fetching ${fetch_mb[index]} MB"
    run_pip "$index" "${fetch_mb[index]}" --python "$folder/bin/python" install --no-deps --no-compile \
        --only-binary=:all: --require-hashes --requirement "$requirements"
    seal "$index" "$(content_folder "$index")"
    say "$(title_of "$index"): installed in $(seconds_since "$start") s"
}

main() {
    local start index
    start=$(now_us)
    parse_arguments "$@"
    read_table
    select_entries
    cache=$(cache_folder)
    [ "$with_packages" = no ] || ensure_packages
    verify_entries "${selected[@]}"
    if [ ${#broken[@]} -gt 0 ]; then
        [ "$offline" = no ] || refuse_broken
        [ "$(uname -m)" = x86_64 ] || die "the pinned wheels are for x86_64, and this is $(uname -m)"
        lock_cache
        # Whoever held the lock may have done the work.
        verify_entries "${broken[@]}"
        for index in "${broken[@]}"; do
            say "$(title_of "$index"): ${reasons[index]}"
            "provide_${kinds[index]}" "$index"
        done
    fi
    say "done in $(seconds_since "$start") s, cache folder $cache"
}

main "$@"
