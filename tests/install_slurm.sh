#!/bin/sh
# Makes sure that the tests find a Slurm, and says whether they do. Installs Debian's packages where that works without
# asking, and starts none of them: the tests start controller and nodes of their own. Without it those tests are skipped.
set -u
missing() {
    for tool in slurmctld slurmd sbatch munged unshare; do
        command -v "$tool" >/dev/null 2>&1 || printf ' %s' "$tool"
    done
}
if [ -n "$(missing)" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Debian's slurmctld, slurmd, slurm-client, munge and util-linux"
    # Packages start their servers when they are installed; 101 tells them not to.
    policy=/usr/sbin/policy-rc.d
    [ -e "$policy" ] || { made=$policy; printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"; }
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        slurmctld slurmd slurm-client munge util-linux; } >/dev/null 2>&1 || echo "they could not be installed"
    [ -z "${made:-}" ] || rm -f "$made"
fi
if [ -n "$(missing)" ]; then
    echo "the tests of Slurm will be skipped: there is no$(missing)"
elif [ "$(id -u)" != 0 ]; then
    echo "the tests of Slurm will be skipped: they need root"
else
    echo "the tests use $(slurmctld -V)"
fi
