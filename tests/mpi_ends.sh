# mpi_ends.sh, sourced: a rank that is killed or stopped in the middle of a text. The caller has $dir (with m.gguf), $hone, ok and not.

# The processes of a rank, or of all with mpirun itself.
of_rank() { # rank
    for p in $(pgrep -f "$hone run -m $dir/m.gguf"); do
        tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -q "^OMPI_COMM_WORLD_RANK=$1\$" && echo "$p"
    done
}

# The text is told to be longer than anybody waits; a signal for that rank ends it, with an error that names the rank.
interrupted() { # signal rank words launcher...
    what="rank $2 gets $1" signal=$1 rank=$2 words=$3 tries=0
    shift 3
    : >"$dir/err"
    "$@" "$hone" run -m "$dir/m.gguf" -t 1 -sm tensor -p x -n 8000 --ignore-eos -c 8192 --set comm.timeout=2 >"$dir/out" 2>"$dir/err" &
    job=$!
    while ! grep -q 'output.weight\|token_embd' "$dir/err" && [ $tries -lt 150 ]; do # the split is told: the session is there
        tries=$((tries + 1))
        sleep 0.1
    done
    sleep 0.5
    pid=$(of_rank "$rank")
    began=$(date +%s)
    [ -n "$pid" ] && kill "-$signal" $pid && ok || not "$what: no such process"
    wait $job
    rc=$?
    spent=$(($(date +%s) - began))
    [ $rc != 0 ] && [ $rc != 124 ] && ok || not "$what: exit code $rc"
    grep -q "$words" "$dir/err" && ok || not "$what: nobody said '$words'"
    [ $spent -le 20 ] && ok || not "$what: the others took $spent s with a limit of 2 s"
    sleep 0.5
    left=$(pgrep -f "$hone run -m $dir/m.gguf" | tr '\n' ' ')
    [ -z "$left" ] && ok || not "$what: left behind: $left"
    # shellcheck disable=SC2086
    [ -z "$left" ] || kill -KILL $left 2>/dev/null
}

# A list of SIGNAL:RANK. One that is killed is named by mpirun, one that is stopped by whoever waits for it.
each_interrupted() { # list launcher...
    list=$1
    shift
    for one in $list; do
        case $one in
        KILL:*) interrupted KILL "${one#*:}" "rank ${one#*:} .*exited on signal 9" "$@" ;;
        STOP:*) interrupted STOP "${one#*:}" "rank [0-9]* waited 2 s at .* for rank ${one#*:}" "$@" ;;
        esac
    done
}
