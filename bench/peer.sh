#!/bin/sh
# peer.sh [peer.py's arguments]: measures llama.cpp, the peer that hone's ratios are taken against.
#
#   bench/peer.sh MODEL -t 2 -p 128 -n 64     prefill and decode tokens a second, one line of JSON
#   bench/peer.sh --python                    prints the Python that has the peer, and ends (tests/golden/*.py run with it)
#   bench/peer.sh                             measures SmolLM2 as a sign of life (`make bench` runs every script without arguments)
#
# The peer is built once from its source package, natively (GGML_NATIVE, the compiler's best for this CPU), into a virtual environment
# in the cache folder ($CACHE, default $HONE_CACHE or ${XDG_CACHE_HOME:-~/.cache}/hone), and pinned, so that a ratio of today can be
# compared with one of next month: a prebuilt wheel would be the slower peer. The folder's name holds the version; PEER_PYTHON=...
# uses another Python that has it instead. pip's cache is passed by: a wheel in it may have been built with other flags or for another
# CPU. The first build takes about 5 minutes on two cores. OFFLINE=1 builds nothing: exit code 77.
set -eu
cd "$(dirname "$0")/.."
version=0.3.36
CACHE=${CACHE:-${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}}
venv=$CACHE/peer-$version

has_peer() { # python
    "$1" -c "import llama_cpp, sys; sys.exit(llama_cpp.__version__ != '$version')" >/dev/null 2>&1
}

build() {
    mkdir -p "$CACHE"
    exec 9>"$CACHE/.peer.lock"
    flock 9
    ! has_peer "$venv/bin/python" || return 0
    [ -z "${OFFLINE:-}" ] || { echo "peer: SKIPPED: OFFLINE is set and $venv is not there" >&2; exit 77; }
    echo "peer: building llama-cpp-python $version natively into $venv (once, some minutes)" >&2
    rm -rf "$venv"
    python3 -m venv "$venv" >&2 || { echo "peer: python3 with venv is needed (Debian: python3-venv)" >&2; exit 4; }
    "$venv/bin/python" -m pip install -q numpy gguf jinja2 >&2
    CMAKE_ARGS='-DGGML_NATIVE=ON -DCMAKE_BUILD_TYPE=Release' CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) \
        "$venv/bin/python" -m pip install -q --no-cache-dir --no-binary llama-cpp-python "llama-cpp-python==$version" >&2 || {
        rm -rf "$venv"
        echo "peer: llama-cpp-python $version could not be built (it needs a C++ compiler: Debian g++)" >&2
        exit 4
    }
    has_peer "$venv/bin/python"
}

python=${PEER_PYTHON:-$venv/bin/python}
if ! has_peer "$python"; then
    [ -z "${PEER_PYTHON:-}" ] || { echo "peer: $PEER_PYTHON has no llama-cpp-python $version" >&2; exit 2; }
    build
fi
case ${1:-} in
--python) echo "$python" ;;
'') exec "$python" bench/peer.py "$(sh examples/fetch.sh smollm2)" ;;
*) exec "$python" bench/peer.py "$@" ;;
esac
