#!/bin/sh
# What an all_reduce costs between two one-thread ranks of one machine: hone's between threads (local), hone's between processes (mpi), and
# MPI_Allreduce, for parts of 20 KB (a decode step of width 5120) and around. The three take turns, blocks of runs in fresh processes, so what the
# machine does meanwhile meets all alike; a row gives each one's median over the blocks' medians and the median of the paired ratios.
#   BLOCKS=15 RUNS=2000 RANKS=2 SIZES="512 4096 20480 65536 1048576"
set -eu
cd "$(dirname "$0")/.."
B=${B:-build}
make -s B="$B" "$B/bench/collectives"
program=$B/bench/collectives
blocks=${BLOCKS:-15} runs=${RUNS:-2000} ranks=${RANKS:-2} sizes=${SIZES:-512 4096 20480 65536 1048576}
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_rmaps_base_oversubscribe
mpi=yes
command -v mpirun >/dev/null 2>&1 && mpirun -np "$ranks" "$program" mpi 64 10 >/dev/null 2>&1 || mpi=
[ -n "$mpi" ] || echo "collectives: no MPI here: hone's local ranks alone" >&2

once() { # which bytes
    case $1 in
    local) "$program" local "$ranks" "$2" "$runs" ;;
    *) mpirun -np "$ranks" "$program" "$1" "$2" "$runs" ;;
    esac
}

echo "| bytes | local us | mpi us | MPI_Allreduce us | local : MPI_Allreduce | mpi : MPI_Allreduce |"
echo "|---:|---:|---:|---:|---:|---:|"
for bytes in $sizes; do
    for block in $(seq "$blocks"); do
        l=$(once local "$bytes") m=- t=-
        if [ -n "$mpi" ]; then
            m=$(once mpi "$bytes")
            t=$(once MPI_Allreduce "$bytes")
        fi
        echo "$l $m $t"
    done | python3 -c '
import statistics, sys
bytes = sys.argv[1]
rows = [line.split() for line in sys.stdin]
def column(i):
    return [float(r[i]) for r in rows if r[i] != "-"]
def us(x):
    return f"{statistics.median(x) / 1e3:.2f}" if x else "-"
l, m, t = column(0), column(1), column(2)
def ratio(x):
    return f"{statistics.median(a / b for a, b in zip(x, t)):.2f}" if t else "-"
print(f"| {bytes} | {us(l)} | {us(m)} | {us(t)} | {ratio(l)} | {ratio(m)} |")
' "$bytes"
done
