#!/bin/sh
# ab_validity.sh: whether hone ab keeps its word on this machine, by comparisons whose answer is known:
#
#   aa      A against A: at most 1 of 40 is called win or loss
#   spin3   a gate makes every step 3 % longer: called loss in at least 9 of 10
#   spin02  0.2 % longer: called win or loss in at most 1 of 10
#   drift   A against A while another process takes more and more of a core: at most 1 of 10 is called win or loss
#
#   bench/ab_validity.sh                            all four with --in-process, and a quarter of the first two with fresh processes
#   MODES=fresh bench/ab_validity.sh                all with fresh processes, the default of hone ab (over an hour on SmolLM2)
#   MODES=in-process CASES='aa drift' AA=10 OUT=rows.jsonl bench/ab_validity.sh MODEL
#
# A line for each comparison, then the counts; OUT keeps the lines as JSON. Exit code 1 when a count is not as it should be. The comparisons are
# made at default settings and in random order, so that an hour of a noisy neighbour does not fall on one kind alone.
set -eu
cd "$(dirname "$0")/.."
hone=${B:-build}/hone
model=${1:-$(sh examples/fetch.sh smollm2)}
modes=${MODES:-in-process some-fresh} cases=${CASES:-aa spin3 spin02 drift}
out=${OUT:-$(mktemp)}
: >"$out"

plan() { # mode, case, how many
    for i in $(seq "$3"); do echo "$1 $2 $i"; done
}
for mode in $modes; do
    for c in $cases; do
        case $c in aa) n=${AA:-40} ;; *) n=${N:-10} ;; esac
        case $mode.$c in
        some-fresh.aa | some-fresh.spin3) plan fresh "$c" $(((n + 3) / 4)) ;;
        some-fresh.*) ;;
        *) plan "$mode" "$c" "$n" ;;
        esac
    done
done | python3 bench/ab_validity.py shuffle >"$out.plan"
total=$(wc -l <"$out.plan")

# From idle to one whole core in so many seconds, in slices of 50 ms.
grow_load() {
    exec python3 -c '
import sys, time
span, start = float(sys.argv[1]), time.monotonic()
while True:
    t = time.monotonic()
    share = min(1, (t - start) / span)
    while time.monotonic() < t + 0.05 * share:
        pass
    time.sleep(0.05 * (1 - share) + 1e-4)' "$1"
}

k=0 load=
trap '[ -z "$load" ] || kill "$load" 2>/dev/null || true' EXIT
trap 'exit 130' INT TERM
while read -r mode c i; do
    k=$((k + 1))
    set -- --b base
    case $c in spin3) set -- --b debug.spin=3 ;; spin02) set -- --b debug.spin=0.2 ;; esac
    span=60
    [ "$mode" = fresh ] || { set -- "$@" --in-process; span=20; }
    if [ "$c" = drift ]; then
        grow_load $span &
        load=$!
    fi
    rc=0
    "$hone" ab -m "$model" "$@" --seed "$i" --no-journal -o jsonl >"$out.one" 2>"$out.err" </dev/null || rc=$?
    [ -z "$load" ] || { kill "$load"; load=; }
    [ $rc = 0 ] || { cat "$out.err" >&2; echo "ab_validity: exit code $rc"; exit 1; }
    python3 bench/ab_validity.py row "$mode" "$c" "$i" "$k/$total" "$out" <"$out.one"
done <"$out.plan"
rm -f "$out.plan" "$out.one" "$out.err"

python3 bench/ab_validity.py summary "$out"
