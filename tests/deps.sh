#!/bin/sh
# The arrows between the folders (DESIGN.md, "Layers"): which folder may include from which. Fails and names each breach.
set -eu
cd "$(dirname "$0")/.."

# folder: folders it may include from, besides itself. A file by name narrows a folder to that header.
allowed() {
    case $1 in
    base) echo "" ;;
    formats) echo "base" ;;
    ops) echo "base formats comm/comm.h" ;;
    graph) echo "base formats ops comm/comm.h backends/backend.h" ;;
    comm) echo "base" ;;
    model) echo "base formats ops graph/graph.h" ;;
    model/arch) echo "base formats ops graph/graph.h model" ;;
    backends) echo "base formats ops comm" ;;
    backends/*) echo "base formats ops comm backends/backend.h" ;;
    engine) echo "base formats ops graph comm backends model" ;;
    lab) echo "base formats ops graph comm backends model engine" ;;
    cmd) echo "base formats ops graph comm backends model engine lab" ;;
    tests | tests/* | bench | examples | examples/*) echo "base formats ops graph comm backends backends/cpu backends/cuda backends/plugin model model/arch engine lab cmd tests tests/golden" ;;
    *) echo "?" ;;
    esac
}

breaches=0
files=$(git ls-files --cached --others --exclude-standard -- '*.c' '*.h' '*.cu' '*.cuh' '*.cl' '*.def')
for file in $files; do
    dir=$(dirname "$file")
    [ "$dir" = include ] && continue
    may=$(allowed "$dir")
    if [ "$may" = "?" ]; then
        echo "$file: the folder $dir is not part of the house"
        breaches=$((breaches + 1))
        continue
    fi
    # Only includes by a path within the project count; include/ is open to all.
    for inc in $(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\/[^"]*\)".*/\1/p' "$file"); do
        from=$(dirname "$inc")
        ok=no
        [ "$from" = "$dir" ] && ok=yes
        for a in $may; do
            { [ "$from" = "$a" ] || [ "$inc" = "$a" ]; } && ok=yes
        done
        # A table of rows (.def) below the own folder names what the linker joins: model/model.c and model/arch/arch.def.
        case $inc in "$dir"/*.def) ok=yes ;; esac
        if [ "$ok" = no ]; then
            echo "$file includes $inc: $dir may not see $from"
            breaches=$((breaches + 1))
        fi
    done
done
[ "$breaches" = 0 ] || { echo "deps: $breaches breach(es)"; exit 1; }
echo "deps: $(echo "$files" | wc -l) files hold the arrows"
