#!/bin/sh
# Makes sure that the tests of faults find their programs, and says whether they do: network namespaces and a firewall to
# cut machines off, a clock that jumps, a disk that is slow. Installs Debian's packages where that works without asking;
# else those tests are skipped and say so.
set -u
missing() {
    for tool in ip nft nsenter faketime strace; do
        command -v "$tool" >/dev/null 2>&1 || printf ' %s' "$tool"
    done
}
if [ -n "$(missing)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Debian's iproute2, nftables, util-linux, faketime and strace"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        iproute2 nftables util-linux faketime strace; } >/dev/null 2>&1 || echo "they could not be installed"
fi
if [ -n "$(missing)" ]; then
    echo "some tests of faults will be skipped: there is no$(missing)"
elif [ "$(id -u)" != 0 ]; then
    echo "the tests of the network will be skipped: they need root"
else
    echo "the tests of faults use $(command -v ip), $(nft --version 2>/dev/null), faketime and strace"
fi
