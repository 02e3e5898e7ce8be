#!/bin/sh
# Ranks that are processes: two and three of them under mpirun give the bits of as many threads; one that hangs, dies, leaves or brings the wrong size
# ends all the others within the limit, with an error that names it, and no process is left.
set -u
cd "$(dirname "$0")/.."
rank=${B:-build}/tests/test_comm_mpi
command -v mpirun >/dev/null 2>&1 || { echo "mpi_test: no mpirun (Debian: openmpi-bin libopenmpi-dev)"; exit 77; }
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
ok() { passed=$((passed + 1)); }
not() { failed=$((failed + 1)); echo "mpi_test: $*"; sed 's/^/    /' "$dir/err" | head -n 20; }

timeout 60 mpirun -np 2 "$rank" sums >"$dir/out" 2>"$dir/err"
if grep -q "this build has no MPI" "$dir/err"; then echo "mpi_test: built without MPI"; exit 77; fi
for n in 1 2 3; do
    timeout 120 mpirun -np $n "$rank" sums >"$dir/out" 2>"$dir/err" && ok || not "$n processes: exit code $?"
    "$rank" sums $n >"$dir/local" 2>>"$dir/err" && ok || not "$n threads: exit code $?"
    cmp -s "$dir/out" "$dir/local" && ok || not "$n processes give other bits than $n threads: $(cat "$dir/out" "$dir/local")"
done

# what rank message
ends() {
    start=$(date +%s)
    timeout 60 mpirun -np 3 "$rank" "$1" "$2" >"$dir/out" 2>"$dir/err"
    rc=$?
    spent=$(($(date +%s) - start))
    [ $rc != 0 ] && [ $rc != 124 ] && ok || not "$1: exit code $rc"
    grep -q "$3" "$dir/err" && ok || not "$1: nobody said '$3'"
    [ $spent -le 20 ] && ok || not "$1: took $spent s with a limit of 2 s"
    sleep 0.2
    # The brackets keep this command line itself from being found.
    left=$(ps -eo pid,args | grep "[t]est_comm_mpi $1" || true)
    [ -z "$left" ] && ok || not "$1: left behind: $left"
}
ends hang 1 "rank [02] waited 2 s at ffn_down-3 for rank 1"
ends die 1 "rank 1 .*exited on signal 9"
ends leave 2 ",2\]\|for rank 2"
ends differ 1 "rank"
# The same with a model: two processes give the logits of two groups of threads.
hone=${B:-build}/hone
case $hone in /*) ;; *) hone=$PWD/$hone ;; esac
"$hone" synth smollm2-135m Q4_0 "$dir/m.gguf" --layers 2 --vocab 1000 >/dev/null || not "no model"
ask="eval -m $dir/m.gguf --tokens 1,2,3,5,7,11 --greedy 8"
# shellcheck disable=SC2086
timeout 60 mpirun -np 2 "$hone" $ask -t 1 -sm tensor --logits-out "$dir/mpi.f32" >"$dir/out" 2>"$dir/err" && ok || not "a model over 2 processes: exit code $?"
# shellcheck disable=SC2086
timeout 60 "$hone" $ask -t 2 -sm tensor -ts 1/1 --logits-out "$dir/local.f32" >"$dir/local" 2>"$dir/err" && ok || not "a model over 2 groups of threads: exit code $?"
cmp -s "$dir/mpi.f32" "$dir/local.f32" && ok || not "2 processes give other logits than 2 groups of threads"
# Another build among them, made of this one by other letters in its name, and another program: at the first meeting, by name, and no time passes.
commit=$("$hone" --version | sed 's/[^(]*(\([0-9a-z]*\).*/\1/')
other=$(echo "$commit" | tr 0-9a-z a-z0-9)
LC_ALL=C sed "s/$commit/$other/g" "$hone" >"$dir/other" && chmod +x "$dir/other"
LC_ALL=C sed 's/HONERANK/HONERANX/g' "$hone" >"$dir/stranger" && chmod +x "$dir/stranger"
start=$(date +%s)
for who in other stranger; do
    # shellcheck disable=SC2086
    timeout 60 mpirun -np 1 "$hone" $ask -t 1 -sm tensor : -np 2 "$dir/$who" $ask -t 1 -sm tensor >"$dir/out" 2>"$dir/err"
    rc=$?
    [ $rc = 2 ] && ok || not "$who among the ranks: exit code $rc"
    grep -q "hone: rank 1 is another program\|hone: all ranks need the same build of hone: rank 0 has '$commit.* rank 1, 2 '$other" "$dir/err" && ok ||
        not "$who among the ranks is not named"
    [ "$(grep -c '^hone: ' "$dir/err")" = 1 ] && ok || not "$who among the ranks: told more than once"
done
[ $(($(date +%s) - start)) -le 20 ] && ok || not "another build took $(($(date +%s) - start)) s"
# Other words than rank 0's, which would not count; and one that never joins: within the limit.
# shellcheck disable=SC2086
timeout 60 mpirun -np 1 "$hone" $ask -sm tensor -t 1 -ts 1/2 : -np 1 "$hone" $ask -sm tensor -t 1 -ts 2/1 >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc = 2 ] && grep -q "^hone: all ranks need the same command line: rank 0 has '1/2', rank 1 '2/1'" "$dir/err" && ok || not "other words on rank 1: exit code $rc"
start=$(date +%s)
# shellcheck disable=SC2086
timeout 60 mpirun -np 1 "$hone" $ask -sm tensor -t 1 --set comm.timeout=2 : -np 1 true >"$dir/out" 2>"$dir/err"
rc=$?
[ $rc = 4 ] && grep -q '^hone: rank 0 waited 2 s for all processes that mpirun started to join' "$dir/err" && ok || not "a rank that never joins: exit code $rc"
[ $(($(date +%s) - start)) -le 20 ] && ok || not "a rank that never joins: $(($(date +%s) - start)) s"
# A rank that cannot open the model is named, once; processes that have nothing to do are told of.
cp "$dir/m.gguf" "$dir/own.gguf"
(cd "$dir" && timeout 60 mpirun -np 1 "$hone" eval -m own.gguf --tokens 1 -t 1 -sm tensor : -np 1 -wdir / "$hone" eval -m own.gguf --tokens 1 -t 1 -sm tensor >"$dir/out" 2>"$dir/err")
rc=$?
[ $rc = 3 ] && [ "$(grep '^hone: ' "$dir/err" | grep -v 'split\|warning')" = 'hone: rank 1: own.gguf: No such file or directory' ] && ok || not "a rank without the model: exit code $rc"
timeout 60 mpirun -np 2 "$hone" eval -m "$dir/m.gguf" --tokens 1 -t 1 >"$dir/out" 2>"$dir/err" && grep -q 'warning: mpirun started 2 processes, and all but the first did nothing' "$dir/err" && ok ||
    not "idle processes are not told of"
# Another file of the same path: one number of its metadata is another.
mkdir "$dir/one" "$dir/two"
cp "$dir/m.gguf" "$dir/one/m.gguf"
for change in metadata; do
    python3 - "$dir/m.gguf" "$dir/two/m.gguf" $change <<'EOT'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
at = b.index(b"attention.layer_norm_rms_epsilon") + 32 + 4
b[at + 2] ^= 0x11
open(sys.argv[2], "wb").write(b)
EOT
    (cd "$dir/one" && timeout 60 mpirun -np 1 "$hone" eval -m m.gguf --tokens 1 -t 1 -sm tensor : -np 1 -wdir "$dir/two" "$hone" eval -m m.gguf --tokens 1 -t 1 -sm tensor >"$dir/out" 2>"$dir/err")
    rc=$?
    [ $rc = 1 ] && grep -q "the model's file: rank [01] and rank [01] differ" "$dir/err" && ok || not "another file on rank 1 ($change): exit code $rc"
done
# Gates are those of the first process, and a world of one splits over threads.
# shellcheck disable=SC2086
timeout 60 mpirun -np 1 "$hone" $ask -t 1 -sm tensor --logits-out "$dir/again.f32" : -np 1 env HONE_SET=kernel=ref "$hone" $ask -t 1 -sm tensor --logits-out "$dir/again.f32" >"$dir/out" 2>"$dir/err" && ok || not "HONE_SET on rank 1: exit code $?"
cmp -s "$dir/mpi.f32" "$dir/again.f32" && ok || not "HONE_SET on rank 1 changes the logits"
# shellcheck disable=SC2086
timeout 60 mpirun -np 1 "$hone" $ask -t 2 -sm tensor -ts 1/1 --logits-out "$dir/again.f32" >"$dir/out" 2>"$dir/err" && cmp -s "$dir/mpi.f32" "$dir/again.f32" && ok || not "a world of one does not split over threads"
# Devices under mpirun: for what is not split; and what is says that they stay idle.
timeout 60 mpirun -np 2 "${B:-build}/tests/test_ranks_device" mpi >"$dir/err" 2>&1 && ok || not "devices under mpirun: exit code $?"
# One that is killed or stopped in the middle of a text, the leader or another.
. tests/mpi_ends.sh
each_interrupted "STOP:1 STOP:0 KILL:1 KILL:0" timeout 60 mpirun -np 3
echo "mpi_test: $passed passed, $failed failed"
[ $failed = 0 ]
