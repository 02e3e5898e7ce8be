#!/bin/sh
# Models over processes: every model of the test data over two, three and four of them under mpirun, with even and uneven shares, checked as
# tests/test_shard_mpi.c says, and with the bits of as many groups of threads of one process. PROCESSES="2 3 4"; HONE_SOAK: 20 repeats of each.
set -u
cd "$(dirname "$0")/.."
program=${B:-build}/tests/test_shard_mpi
command -v mpirun >/dev/null 2>&1 || { echo "shard_mpi_test: no mpirun (Debian: openmpi-bin libopenmpi-dev)"; exit 77; }
[ -n "${HONE_DATA:-}" ] && [ -d "$HONE_DATA" ] || { echo "shard_mpi_test: HONE_DATA does not name the folder with archs/"; exit 77; }
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
passed=0 failed=0
ok() { passed=$((passed + 1)); }
not() { failed=$((failed + 1)); echo "shard_mpi_test: $*"; tail -n 20 "$dir/log" | sed 's/^/    /'; }

for n in ${PROCESSES:-2 3 4}; do
    start=$(date +%s)
    timeout "${LIMIT:-900}" mpirun -np "$n" "$program" "$dir/mpi" >"$dir/log" 2>&1 && ok || not "$n processes: exit code $?"
    if grep -q "this build has no MPI" "$dir/log"; then echo "shard_mpi_test: built without MPI"; exit 77; fi
    between=$(date +%s)
    timeout "${LIMIT:-900}" "$program" "$dir/local" "$n" >"$dir/log" 2>&1 && ok || not "$n groups of threads: exit code $?"
    diff "$dir/mpi" "$dir/local" >"$dir/log" && [ -s "$dir/mpi" ] && ok || not "$n processes give other bits than $n groups of threads:"
    echo "shard_mpi_test: $n ranks: $(wc -l <"$dir/mpi") models and splits; processes $((between - start)) s, threads $(($(date +%s) - between)) s"
done
echo "shard_mpi_test: $passed passed, $failed failed"
[ $failed = 0 ]
