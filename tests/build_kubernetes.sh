#!/bin/sh
# Makes sure that the tests find a real Kubernetes control plane, and says which one: API server, controller manager and
# scheduler, built once from Debian's source package and kept in ~/.cache. It takes some minutes, 2 GB of disk while it
# is built, and a system whose package manager is apt. Elsewhere the tests of Kubernetes are skipped and say so.
set -eu
skipped() {
    echo "THE TESTS OF KUBERNETES WILL BE SKIPPED: $1"
    exit 0
}
recipe=$(cksum <"$0" | cut -d ' ' -f 1)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/elastic-run-tests/kubernetes-$recipe
if [ ! -x "$cache/kube-apiserver" ]; then
    command -v apt-get >/dev/null 2>&1 || skipped "there is no apt-get for its source package"
    [ "$(id -u)" = 0 ] || skipped "to install what builds it, this must be root"
    made=$(mktemp -d)
    trap 'rm -rf "$made"' EXIT
    echo "building Kubernetes from Debian's source package: this takes some minutes, once"
    build() {
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            golang-1.19-go golang-github-modern-go-reflect2-dev dpkg-dev xz-utils
        # The distribution's own archives, as this system names them, for sources.
        mkdir -p "$made/apt/lists/partial"
        apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT) $(ORIGIN)' "Created-By: Packages" | sort -u |
            while read -r site release component origin; do
                [ "$origin" != Debian ] || echo "deb-src $site $release $component"
            done >"$made/apt/sources.list"
        set -- -o "Dir::Etc::SourceList=$made/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
            -o "Dir::State::Lists=$made/apt/lists"
        apt-get "$@" update -qq
        (cd "$made" && apt-get "$@" source --download-only -qq kubernetes)
        tree=$made/go/src/k8s.io/kubernetes
        mkdir -p "$tree"
        tar -xf "$made"/kubernetes_*.orig.tar.* -C "$tree" --strip-components=1
        # The vendored one does not know this Go, and crashes on custom resources.
        rm -rf "$tree/vendor/github.com/modern-go/reflect2"
        cp -r /usr/share/gocode/src/github.com/modern-go/reflect2 "$tree/vendor/github.com/modern-go/"
        cd "$tree"
        export PATH="/usr/lib/go-1.19/bin:$PATH" GOPATH="$made/go" GOCACHE="$made/cache" GO111MODULE=off CGO_ENABLED=0
        export GOTOOLCHAIN=local GOFLAGS=
        go build -o "$made/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
        # The schema of the API is not in the package: it is made of the types that say so.
        types=$(grep -rl '+k8s:openapi-gen=' --include='*.go' pkg staging/src/k8s.io cmd |
            grep -v -E 'code-generator|sample-apiserver|/testdata/|_test\.go|kube-openapi' | xargs -n1 dirname | sort -u |
            sed -e 's#^staging/src/#k8s.io/kubernetes/vendor/#' -e 's#^\(pkg\|cmd\)/#k8s.io/kubernetes/\1/#' | paste -sd,)
        "$made/openapi-gen" --logtostderr -i "$types" -p k8s.io/kubernetes/pkg/generated/openapi \
            -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$made/violations"
        version=v$(basename "$made"/kubernetes_*.dsc | sed -e 's/^kubernetes_//' -e 's/.*really//' -e 's/-.*//')
        at=k8s.io/kubernetes/vendor/k8s.io/component-base/version
        major=$(echo "$version" | cut -d. -f1 | tr -d v) minor=$(echo "$version" | cut -d. -f2)
        mkdir -p "$made/bin"
        go build -trimpath -o "$made/bin/" \
            -ldflags "-s -w -X $at.gitVersion=$version -X $at.gitMajor=$major -X $at.gitMinor=$minor" \
            ./cmd/kube-apiserver ./cmd/kube-controller-manager ./cmd/kube-scheduler
    }
    (build) >"$made/log" 2>&1 || {
        tail -n 30 "$made/log"
        skipped "it could not be built, see above"
    }
    mkdir -p "$(dirname "$cache")"
    rm -rf "$cache.new.$$"
    mv "$made/bin" "$cache.new.$$"
    rm -rf "$cache"
    mv "$cache.new.$$" "$cache"
fi
if ! command -v kubectl >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends kubernetes-client >/dev/null 2>&1 ||
        echo "Debian's kubernetes-client could not be installed"
fi
echo "the tests use Kubernetes $("$cache/kube-apiserver" --version | cut -d ' ' -f 2) in $cache"
