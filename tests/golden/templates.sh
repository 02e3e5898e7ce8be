#!/bin/sh
# Fetches a folder of published chat templates (other people's works, under their own licences; none is kept in the repository)
# into the cache, once, and prints its path: from the source package of llama-cpp-python on PyPI, of the version whose renderings
# golden/jinja_real.json holds. Exit code 77 where that cannot be had.
set -eu
CACHE=${CACHE:-${HONE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hone}}
version=0.3.36
to="$CACHE/templates-$version"
if [ ! -d "$to" ]; then
    [ -z "${OFFLINE:-}" ] || exit 77
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # pip asks the package for its name, which takes its build tools but compiles nothing.
    python3 -m pip download -q --no-deps --no-binary llama-cpp-python -d "$work" "llama-cpp-python==$version" >&2 || exit 77
    mkdir "$work/templates"
    tar -xzf "$work"/*.tar.gz -C "$work/templates" --strip-components=5 --wildcards '*/models/templates/*.jinja' || exit 77
    mkdir -p "$CACHE"
    mv "$work/templates" "$to"
fi
echo "$to"
