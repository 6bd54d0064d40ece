#!/bin/sh
# Asks pip-audit for known weaknesses of the packages in the environment of the Python $1: exit code 1 where there are
# some. Its data come over the network; where they cannot be had, that is said, and nothing fails.
set -u
python=$1
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
{ "$python" -m venv "$work/venv" && "$work/venv/bin/python" -m pip install --quiet 'pip-audit>=2.7,<3'; } 2>"$work/said" || {
    echo "not audited: pip-audit could not be installed ($(tail -n 1 "$work/said" | cut -c 1-200))"
    exit 0
}
# Builds of a package with a local version, as torch's for the CPU, are known by the version before the plus.
"$python" -m pip freeze --exclude-editable | grep -v ' @ ' | sed 's/+[a-z0-9.]*$//' >"$work/packages"
"$work/venv/bin/pip-audit" --requirement "$work/packages" --no-deps --disable-pip --progress-spinner=off \
    --format=json --output="$work/found" 2>"$work/said"
[ -s "$work/found" ] || {
    echo "not audited: the data about known weaknesses could not be had ($(tail -n 1 "$work/said" | cut -c 1-200))"
    exit 0
}
"$python" - "$work/found" <<'END'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    packages = json.load(file)["dependencies"]
known = [each for each in packages if "skip_reason" not in each]
weak = [each for each in known if each["vulns"]]
for each in weak:
    for found in each["vulns"]:
        better = ", ".join(found["fix_versions"]) or "none"
        print(f"{each['name']} {each['version']}: {found['id']}; without it: {better}")
if not known:
    print(f"not audited: nothing is known of any of {len(packages)} packages, so the data could not be had")
else:
    unknown = len(packages) - len(known)
    print(f"audited: {len(known)} packages, {len(weak)} of them with known weaknesses; nothing is known of {unknown}")
sys.exit(bool(weak))
END
