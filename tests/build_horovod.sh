#!/bin/sh
# Makes sure that the tests find a real Horovod in the virtual environment of the Python $1, and says which one.
#
# No wheel of Horovod is published, so this builds one, once for each combination of versions: it takes a few minutes, and
# is kept in ~/.cache. Horovod's sources stay as they are: `horovod_cxx` beside this file has them compile. Without a
# compiler the tests of Horovod are skipped and say so.
set -eu
python=$1
here=$(cd "$(dirname "$0")" && pwd)
version=0.28.1
skipped() {
    echo "THE TESTS OF HOROVOD WILL BE SKIPPED: $1"
    exit 0
}
versions=$("$python" - <<'END'
import sys
from importlib.metadata import PackageNotFoundError, version
def of(*names):
    for name in names:
        try:
            return f"{name}{version(name)}"
        except PackageNotFoundError:
            pass
    return f"no-{names[0]}"
print(sys.implementation.cache_tag, of("torch"), of("tensorflow", "tensorflow_cpu", "tensorflow-cpu"), sep="-")
END
)
recipe=$(cat "$0" "$here/horovod_cxx" | cksum | cut -d ' ' -f 1)
key=horovod$version-$versions-$recipe
stamp=$("$python" -c 'import sys; print(sys.prefix)')/.horovod
if [ "$(cat "$stamp" 2>/dev/null)" = "$key" ]; then
    echo "the tests use Horovod $version, built for $versions"
    exit 0
fi
cache=${XDG_CACHE_HOME:-$HOME/.cache}/elastic-run-tests/$key
if [ ! -d "$cache" ]; then
    missing() { for tool in g++ cmake make; do command -v $tool >/dev/null 2>&1 || printf ' %s' $tool; done; }
    if [ -n "$(missing)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "installing Debian's g++, cmake and make"
        { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            g++ cmake make; } >/dev/null 2>&1 || echo "they could not be installed"
    fi
    [ -z "$(missing)" ] || skipped "to build it there is no$(missing)"
    tensorflow=1
    case $versions in *no-tensorflow*) tensorflow=0 ;; esac
    echo "building Horovod $version for $versions: this takes a few minutes, once"
    made=$(mktemp -d)
    trap 'rm -rf "$made"' EXIT
    "$python" -m pip install --quiet setuptools wheel packaging
    PATH="$(dirname "$python"):$PATH" CXX="$here/horovod_cxx" MAKEFLAGS="-j$(nproc)" \
        HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MXNET=1 HOROVOD_WITH_PYTORCH=1 \
        HOROVOD_WITH_TENSORFLOW=$tensorflow HOROVOD_WITHOUT_TENSORFLOW=$((1 - tensorflow)) \
        timeout 1800 "$python" -m pip wheel --no-build-isolation --no-deps --no-cache-dir --no-binary horovod \
        --wheel-dir "$made/wheel" "horovod==$version" >"$made/log" 2>&1 || {
        tail -n 40 "$made/log"
        skipped "it could not be built, see above"
    }
    mkdir -p "$(dirname "$cache")"
    rm -rf "$cache.new.$$"
    mv "$made/wheel" "$cache.new.$$"
    mv -T "$cache.new.$$" "$cache" 2>/dev/null || rm -rf "$cache.new.$$" # another run was quicker
fi
"$python" -m pip install --quiet cloudpickle psutil pyyaml packaging
"$python" -m pip install --quiet --no-deps --force-reinstall "$cache"/horovod-*.whl
echo "$key" >"$stamp"
echo "the tests use Horovod $version, built for $versions"
