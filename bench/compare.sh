#!/bin/sh
# compare.sh [A B [options]]: llama.cpp's own compare-llama-bench.py on two files of `hone bench`: a table with the speed of both and their
# ratio.
#
#   build/hone bench -m MODEL -o json > a.json; git switch other; make; build/hone bench -m MODEL -o json > b.json
#   bench/compare.sh a.json b.json            JSON or CSV; rows of llama-bench itself may be one of the files
#   bench/compare.sh --script                 prints PYTHONPATH, the Python and the script that it runs, a line each
#   bench/compare.sh                          measures SmolLM2 twice and compares, as a sign of life
#
# The script tells builds apart by commit alone: where both files have the same one, copies are compared whose commits are called "baseline" and
# "compared". It is taken once, as it is, from the source package llama-cpp-python, which has llama.cpp's tree inside, into the cache folder
# ($CACHE, default $HONE_CACHE or ${XDG_CACHE_HOME:-~/.cache}/hone), with the two libraries that it needs beside it. OFFLINE=1 takes nothing: exit
# code 77.
set -eu
cd "$(dirname "$0")/.."
version=0.3.36
CACHE=${CACHE:-${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}}
home=$CACHE/compare-$version
script=$home/compare-llama-bench.py
PYTHONPATH=$home/lib
export PYTHONPATH
python=
for p in python3 /usr/bin/python3; do # a user's own may have no pip (examples/fetch.sh)
    [ -n "$python" ] || ! "$p" -m pip --version >/dev/null 2>&1 || python=$(command -v "$p")
done
[ -n "$python" ] || { echo "compare: python3 with pip is needed (Debian: python3-pip)" >&2; exit 4; }

ready() {
    [ -s "$script" ] && "$python" "$script" --check >/dev/null 2>&1
}

take() {
    mkdir -p "$CACHE"
    exec 9>"$CACHE/.compare.lock"
    flock 9
    ! ready || return 0
    [ -z "${OFFLINE:-}" ] || { echo "compare: SKIPPED: OFFLINE is set and $script is not there" >&2; exit 77; }
    rm -rf "$home"
    mkdir -p "$home"
    "$python" -m pip install -q --disable-pip-version-check --root-user-action ignore --target "$home/lib" 'GitPython~=3.1' 'tabulate~=0.9' >&2 || { echo "compare: no GitPython and tabulate to be had" >&2; exit 4; }
    "$python" -m pip download -q --disable-pip-version-check --no-deps --no-binary llama-cpp-python -d "$home/source" "llama-cpp-python==$version" >&2 ||
        { echo "compare: no source package llama-cpp-python $version to be had" >&2; exit 4; }
    tar -xzf "$home"/source/*.tar.gz -C "$home" --strip-components 4 --wildcards '*/vendor/llama.cpp/scripts/compare-llama-bench.py'
    rm -rf "$home/source"
    ready || { echo "compare: the script does not start" >&2; exit 4; }
}

# Both files to $1: as they are, or with other names in place of a commit that they share. Prints the two names.
prepare() {
    "$python" - "$1" "$2" "$3" <<'END'
import csv, json, sys
to, paths = sys.argv[1], sys.argv[2:]

def rows(path):
    text = open(path, encoding="utf-8").read()
    if path.endswith(".csv"):
        return list(csv.DictReader(text.splitlines()))
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]

both = [[r for r in rows(p) if r.get("status", "done") == "done"] for p in paths]
for p, r in zip(paths, both):
    if not r:
        sys.exit(f"compare: {p} has no finished test")
names = [r[0]["build_commit"] for r in both]
if names[0] == names[1]:
    names = ["baseline", "compared"]
for i, r in enumerate(both):
    for row in r:
        row["build_commit"] = names[i]
    json.dump(r, open(f"{to}/{i}.json", "w"))
print(*names)
END
}

case ${1:-} in
--script)
    ready || take
    printf '%s\n' "$PYTHONPATH" "$python" "$script"
    exit 0
    ;;
esac
ready || take
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [ $# = 0 ]; then
    model=$(sh examples/fetch.sh smollm2)
    for i in a b; do "${B:-build}/hone" bench -m "$model" -p 128 -n 32 -r 3 --no-journal -o json >"$work/$i.json"; done
    set -- "$work/a.json" "$work/b.json"
fi
[ $# -ge 2 ] || { echo "usage: compare.sh [A B [options of compare-llama-bench.py]]" >&2; exit 2; }
names=$(prepare "$work" "$1" "$2")
shift 2
cd "$work" # outside of any repository: commits are named by the files alone
"$python" "$script" -t llama-bench -b "${names% *}" -c "${names#* }" -i 0.json -i 1.json "$@"
