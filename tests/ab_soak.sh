#!/bin/sh
# hone ab of two commits of this very repository: both are built in scratch worktrees (minutes), compared, and nothing but the builds
# stays. A third comparison finds the builds and is quick.
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
hone=$B/hone
[ -x "$hone" ] || { echo "$hone is not built"; exit 77; }
git rev-parse -q --verify 'HEAD~1^{commit}' >/dev/null 2>&1 || { echo "no history to compare"; exit 77; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export HONE_CACHE="$dir/cache"
mkdir "$HONE_CACHE"
"$hone" synth llama3.2-1b Q4_0 "$dir/tiny.gguf" --layers 2 --width 128 --vocab 320 >/dev/null
trees=$(git worktree list | wc -l)
compare() {
    rc=0
    "$hone" ab -m "$dir/tiny.gguf" --a git=HEAD~1 --b HEAD -n 4 -r 3 --blocks 8 --no-journal "$@" >"$dir/out" 2>"$dir/err" || rc=$?
    [ $rc = 0 ] || { cat "$dir/out" "$dir/err"; echo "ab: exit code $rc"; exit 1; }
}
compare --allow-differences # compiler flags may be another matter than the code's
grep -q '^B: ' "$dir/out"
grep -q 'declared *build.commit' "$dir/out" || { cat "$dir/out"; echo "ab: two commits are one"; exit 1; }
[ "$(find "$HONE_CACHE/builds" -type f | wc -l)" = 2 ]
[ "$(git worktree list | wc -l)" = "$trees" ]
[ -z "$(ls "$HONE_CACHE/worktrees")" ]
before=$(ls -l --time-style=full-iso "$HONE_CACHE/builds")
compare --allow-differences
[ "$(ls -l --time-style=full-iso "$HONE_CACHE/builds")" = "$before" ] || { echo "ab: a build was not found again"; exit 1; }
echo "ab: two commits of this repository, built apart and compared; nothing stays"
