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
    # pip's download would build the package to learn its name: only the address is asked for.
    python3 - "$work/package.tar.gz" "$version" >&2 <<'PYTHON' || exit 77
import json, sys, urllib.request
facts = json.load(urllib.request.urlopen("https://pypi.org/pypi/llama-cpp-python/%s/json" % sys.argv[2], timeout=60))
urllib.request.urlretrieve(next(u["url"] for u in facts["urls"] if u["packagetype"] == "sdist"), sys.argv[1])
PYTHON
    mkdir "$work/templates"
    tar -xzf "$work/package.tar.gz" -C "$work/templates" --strip-components=5 --wildcards '*/models/templates/*.jinja' || exit 77
    mkdir -p "$CACHE"
    mv "$work/templates" "$to"
fi
echo "$to"
