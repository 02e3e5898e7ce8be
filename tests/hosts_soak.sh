#!/bin/sh
# Three hosts, as network namespaces of this machine joined by a bridge, each with an address and a name of its own, with mpirun between them: the sums
# have the bits of three threads, SmolLM2 says the tokens that it says on one device, and a rank that is killed or stopped in the middle of a text, the
# leader or another, ends the others within the limit, with an error that names it and no process left on any host.
# Needs root (ip netns) and Open MPI.
set -u
cd "$(dirname "$0")/.."
B=${B:-build}
root=$PWD
case $B in /*) ;; *) B=$root/$B ;; esac
command -v mpirun >/dev/null 2>&1 || { echo "hosts_soak: no mpirun (Debian: openmpi-bin)"; exit 77; }
command -v ip >/dev/null 2>&1 || { echo "hosts_soak: no ip (Debian: iproute2)"; exit 77; }
id=hone$$
dir=$(mktemp -d)
clean() {
    for h in 1 2 3; do
        for pid in $(ip netns pids "$id-$h" 2>/dev/null); do kill -9 "$pid" 2>/dev/null; done
        ip netns del "$id-$h" 2>/dev/null
    done
    ip link del "$id" 2>/dev/null
    rm -rf "$dir"
}
trap clean EXIT
trap 'exit 130' INT TERM
ip netns add "$id-1" 2>"$dir/err" || { echo "hosts_soak: no network namespaces here: $(cat "$dir/err")"; exit 77; }
ip link add "$id" type bridge && ip link set "$id" up || { echo "hosts_soak: no bridge here"; exit 77; }
for h in 1 2 3; do
    [ $h = 1 ] || ip netns add "$id-$h"
    ip link add "h$h-$$" type veth peer name eth0 netns "$id-$h" || { echo "hosts_soak: no veth here"; exit 77; }
    ip link set "h$h-$$" master "$id" up
    ip -n "$id-$h" addr add "10.77.$(($$ % 250)).$h/24" dev eth0
    ip -n "$id-$h" link set eth0 up
    ip -n "$id-$h" link set lo up
    mkdir -p "$dir/host$h"
done
net=10.77.$(($$ % 250))

# What mpirun uses in place of ssh: the host's namespace, with a name and a folder for temporary files of its own.
cat >"$dir/enter" <<EOT
#!/bin/sh
host=\$1
shift
h=\${host##*.}
exec ip netns exec $id-\$h unshare --uts sh -c "hostname host\$h; export TMPDIR=$dir/host\$h; cd '$root'; \$*"
EOT
chmod +x "$dir/enter"
over_hosts() { # command...
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout "${limit:-120}" "$dir/enter" "$net.1" mpirun -np 3 \
        --host "$net.1,$net.2,$net.3" --mca plm_rsh_agent "$dir/enter" --mca btl tcp,self --mca btl_tcp_if_include "$net.0/24" \
        --mca oob_tcp_if_include "$net.0/24" -x OMPI_ALLOW_RUN_AS_ROOT -x OMPI_ALLOW_RUN_AS_ROOT_CONFIRM "$@"
}
passed=0 failed=0
ok() { passed=$((passed + 1)); }
not() { failed=$((failed + 1)); echo "hosts_soak: $*"; head -n 20 "$dir/err" | sed 's/^/    /'; }

over_hosts "$B/tests/test_comm_mpi" sums >"$dir/out" 2>"$dir/err" && ok || not "sums: exit code $?"
"$B/tests/test_comm_mpi" sums 3 >"$dir/local" 2>&1 && cmp -s "$dir/out" "$dir/local" && ok || not "three hosts give other bits than three threads"

start=$(date +%s)
over_hosts "$B/tests/test_comm_mpi" hang 1 >"$dir/out" 2>"$dir/err" && not "a host hung and nobody said so" || ok
grep -q "for rank 1" "$dir/err" && ok || not "a host hung and nobody named it"
[ $(($(date +%s) - start)) -le 30 ] && ok || not "a host hung and the others took $(($(date +%s) - start)) s"

hone=$B/hone
"$hone" synth smollm2-135m Q4_0 "$dir/m.gguf" --layers 2 --vocab 1000 >/dev/null || not "no model"
. tests/mpi_ends.sh
each_interrupted "STOP:0 STOP:1 STOP:2 KILL:0 KILL:1 KILL:2" over_hosts
left=$(for h in 1 2 3; do ip netns pids "$id-$h"; done | tr '\n' ' ')
[ -z "$left" ] && ok || not "left on a host: $left"

model=${HONE_MODELS:+$(ls "$HONE_MODELS"/*[Ss]mol[Ll][Mm]2*.gguf 2>/dev/null | head -n 1)}
if [ -n "$model" ]; then
    tokens=$("$B/hone" tokenize -m "$model" 'The capital of France is Paris. The capital of Germany is' | tr -d '[] \n')
    ask="eval -m $model --tokens $tokens --greedy 32"
    # shellcheck disable=SC2086
    "$B/hone" $ask >"$dir/one" 2>"$dir/err" && ok || not "one device: exit code $?"
    # shellcheck disable=SC2086
    "$B/hone" $ask -sm tensor -ts 1/1/1 -t 3 --logits-out "$dir/threads.f32" >"$dir/threads" 2>"$dir/err" && ok || not "three groups of threads: exit code $?"
    limit=300
    # shellcheck disable=SC2086
    over_hosts "$B/hone" $ask -sm tensor -t 1 --logits-out "$dir/hosts.f32" >"$dir/hosts" 2>"$dir/err" && ok || not "three hosts: exit code $?"
    cmp -s "$dir/threads.f32" "$dir/hosts.f32" && ok || not "three hosts give other logits than three groups of threads"
    # One device sums elsewhere, so far on in a text a near-tie may fall to the other side.
    python3 - "$dir/one" "$dir/threads" "$dir/hosts" <<'EOT' && ok || not "three hosts say other tokens than one device, or than three groups of threads"
import json, sys
one, threads, hosts = (json.load(open(p))["greedy"] for p in sys.argv[1:])
sys.exit(not (len(one) == 32 and one[:16] == hosts[:16] and threads == hosts))
EOT
else
    echo "hosts_soak: no SmolLM2 (HONE_MODELS): the tokens are not compared"
fi
echo "hosts_soak: $passed passed, $failed failed"
[ $failed = 0 ]
