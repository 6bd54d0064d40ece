"""Several machines on one: nodes and members of etcd in network namespaces of their own, joined by a switch.

    net.cut("A")            # nothing passes between A and anybody
    net.cut("A", "B")       # what A sends does not reach B; what B sends still reaches A
    net.cut("A", ANY)       # A hears everybody, and nobody hears A
    net.split("A", "E1")    # nothing passes between these two and the others
    net.lose("A", 0.3)      # three of ten packets from A, and to A, vanish
    net.heal()              # all passes again

Nobody is told: packets vanish in the switch, so that interfaces stay up and connections stay open, as when a cable
breaks behind the next switch. `Net` is the network, `Quorum` an etcd cluster on it, `Machines` a job on it (a
`Cluster` whose agents run in the namespaces; its workers reach the test by their loopback, which no cut touches), and
`Founders` a job that starts its own etcd.

Everything needs root. `Net` raises `Unavailable` with the reason where this machine cannot do it.
"""

import asyncio
import ctypes
import itertools
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar

from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.store.contract import Event, Put
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStatus, EtcdStore
from elastic_run.rendezvous.wire.values import decode

from ..integration.cluster import DEADLINE, Cluster, seal
from ..integration.conftest import Member

ANY = "*"
"""Everybody else, for `Net.cut`."""

INTERFACE = "eth0"
"""What each place calls its end of the cable."""

TOOLS = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux"}
"""Programs that are needed, and the Debian package of each."""

COMMAND_SECONDS = 60.0
"""For one of these programs; none takes a tenth of it."""

CLONE_NEWNET = 0x40000000

_RULES = "table bridge elastic_run"

_numbers = itertools.count(1)

T = TypeVar("T")


class Unavailable(Exception):
    """This machine cannot play a network; the message says why and what to do."""


class Net:
    """A network of `places`. Use as a context manager; at its end nothing of it is left.

    Args:
        places: whose namespaces these are.
        version: of IP; with 6 no interface but the loopback has an address of IPv4.

    Raises Unavailable where it cannot be made.
    """

    def __init__(self, *places: str, version: Literal[4, 6] = 4) -> None:
        self._name = f"er{os.getpid()}-{next(_numbers)}"
        # Addresses for benchmarks of networks, so nobody's; another process at the same time has another subnet.
        if version == 4:
            self._subnet, self._length = f"198.{18 + (os.getpid() >> 8) % 2}.{os.getpid() % 256}.", 24
        else:
            self._subnet, self._length = f"2001:2:0:{os.getpid() % 65536:x}::", 64
        self._next = itertools.count(2)
        self._addresses = {place: f"{self._subnet}{next(self._next)}" for place in places}
        self._uplink = f"{self._name}u"
        self._cuts: set[tuple[str, str]] = set()
        self._losses: dict[str, float] = {}

    # -- faults -------------------------------------------------------------------------------------------------------

    def cut(self, source: str, target: str | None = None) -> None:
        """From now on what `source` sends does not reach `target`; without one, nothing passes to or from `source`."""
        pairs = {(source, ANY), (ANY, source)} if target is None else {(source, target)}
        for place in itertools.chain(*pairs):
            assert place == ANY or place in self._addresses, f"{place} is nowhere in this network"
        self._cuts |= pairs
        self._apply()

    def lose(self, place: str, share: float) -> None:
        """From now on that share of what `place` sends, and of what is sent to it, vanishes; 0 ends it."""
        assert place in self._addresses, f"{place} is nowhere in this network"
        self._losses[place] = share
        self._apply()

    def split(self, *side: str) -> None:
        """From now on nothing passes between these places and the other ones; this process still reaches all."""
        for here, there in itertools.product(side, set(self._addresses) - set(side)):
            self._cuts |= {(here, there), (there, here)}
        self._apply()

    def dropped(self) -> int:
        """How many packets have vanished since the last change of what is cut and lost."""
        rules = _run("ip", "netns", "exec", self._name, "nft", "list", "ruleset")
        return sum(int(count) for count in re.findall(r"counter packets (\d+)", rules))

    def move(self, place: str) -> None:
        """From now on `place` has another address, and nothing of the old one is left."""
        namespace, self._addresses[place] = f"{self._name}-{place}", f"{self._subnet}{next(self._next)}"
        _run("ip", "-n", namespace, "address", "flush", "dev", INTERFACE)
        self._give_address(namespace, place)

    def _give_address(self, namespace: str, place: str) -> None:
        _run(*("ip", "-n", namespace, "address", "add", *self._bound(self._addresses[place]), "dev", INTERFACE))

    def _bound(self, address: str) -> tuple[str, ...]:
        # Without the search for duplicates, for whose seconds an address of IPv6 cannot be used.
        return (f"{address}/{self._length}", *(("nodad",) if ":" in address else ()))

    def heal(self) -> None:
        """All passes again."""
        self._cuts.clear()
        self._losses.clear()
        self._apply()

    def _apply(self) -> None:
        rules = [
            " ".join(
                f'{word} "{place}"' for word, place in zip(("iifname", "oifname"), pair, strict=True) if place != ANY
            )
            + " counter drop"
            for pair in sorted(self._cuts)
        ]
        for place, share in self._losses.items():
            vanish = f"numgen random mod 1000 < {round(1000 * share)} counter drop"
            rules += [f'{word} "{place}" {vanish}' for word in ("iifname", "oifname") if share]
        lines = "\n".join(rules)
        chain = f"chain pass {{\ntype filter hook forward priority 0; policy accept;\n{lines}\n}}"
        # One transaction: there is no moment between the old faults and the new ones.
        _run(
            "ip",
            "netns",
            "exec",
            self._name,
            "nft",
            "-f",
            "-",
            says=f"{_RULES}\ndelete {_RULES}\n{_RULES} {{\n{chain}\n}}\n",
        )

    # -- places -------------------------------------------------------------------------------------------------------

    @property
    def places(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._addresses)

    def address(self, place: str) -> str:
        """The address of `place`, which this process reaches as well, as long as it is not cut off."""
        return self._addresses[place]

    @property
    def prefix(self) -> list[str]:
        """Words before a command that then runs in the namespace of the place that PUPPET_NODE names."""
        return ["sh", "-c", f'exec nsenter --net="/run/netns/{self._name}-$PUPPET_NODE" "$@"', "sh"]

    def inside(self, place: str, work: Callable[[], T]) -> T:
        """Does `work` in the namespace of `place`: its sockets are there, and the processes that it starts."""

        def enter() -> T:
            with Path(f"/run/netns/{self._name}-{place}").open("rb") as namespace:
                library = ctypes.CDLL(None, use_errno=True)
                if library.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise OSError(ctypes.get_errno(), f"setns into {place}")
            return work()

        with ThreadPoolExecutor(1) as thread:  # the namespace is the thread's, and ends with it
            return thread.submit(enter).result()

    def processes(self) -> list[int]:
        """Whoever runs in one of its namespaces."""
        namespaces = [f"{self._name}-{place}" for place in self._addresses]
        return [int(pid) for name in namespaces for pid in _run("ip", "netns", "pids", name).split()]

    # -- begin and end ------------------------------------------------------------------------------------------------

    def __enter__(self) -> "Net":
        check_tools()
        try:
            self._make()
        except Unavailable:
            self._remove()
            raise
        return self

    def _make(self) -> None:
        hub = self._name
        # A namespace of its own for the switch too: no firewall of this machine has a word in what passes.
        _run("ip", "netns", "add", hub)
        _run("ip", "-n", hub, "link", "add", "switch", "type", "bridge")
        _run("ip", "-n", hub, "link", "set", "switch", "up")
        self._apply()
        for place in self._addresses:
            namespace = f"{hub}-{place}"
            _run("ip", "netns", "add", namespace)
            _run(
                *("ip", "link", "add", place, "netns", hub, "type", "veth"),
                *("peer", "name", INTERFACE, "netns", namespace),
            )
            _run("ip", "-n", hub, "link", "set", place, "master", "switch", "up")
            _run("ip", "-n", namespace, "link", "set", "lo", "up")
            self._give_address(namespace, place)
            _run("ip", "-n", namespace, "link", "set", INTERFACE, "up")
        _run("ip", "link", "add", self._uplink, "type", "veth", "peer", "name", "uplink", "netns", hub)
        _run("ip", "-n", hub, "link", "set", "uplink", "master", "switch", "up")
        _run("ip", "address", "add", *self._bound(f"{self._subnet}1"), "dev", self._uplink)
        _run("ip", "link", "set", self._uplink, "up")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        left = self.processes()
        self._remove()
        assert not left, f"processes were left in the namespaces: {left}"
        assert not self.remains(), f"left of the network: {self.remains()}"

    def _remove(self) -> None:
        # The link first: its namespace is taken down some time after its name has gone.
        if self._uplink in _links():
            _run("ip", "link", "delete", self._uplink)
        for namespace in self._namespaces():
            _run("ip", "netns", "delete", namespace)

    def remains(self) -> list[str]:
        """Names of its namespaces and interfaces that this machine still has. What hangs in them goes with them."""
        return [*self._namespaces(), *(link for link in _links() if link.startswith(self._name))]

    def _namespaces(self) -> list[str]:
        folder = Path("/run/netns")
        found = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        return [name for name in found if name == self._name or name.startswith(f"{self._name}-")]


def check_tools() -> None:
    """Raises Unavailable where this process may not make networks, or a program for it is missing."""
    if os.geteuid() != 0:
        raise Unavailable("network namespaces need root")
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if missing:
        raise Unavailable(f"install {' and '.join(missing)} (sh tests/install_network_tools.sh)")


def _run(*command: str, says: str = "") -> str:
    try:
        done = subprocess.run(command, input=says, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{' '.join(command)}: {error}") from None
    if done.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout


def _links() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


class Quorum:
    """An etcd cluster whose members are at `places` of `net`. Use as a context manager."""

    def __init__(self, net: Net, directory: Path, places: Sequence[str]) -> None:
        self._net = net
        self.members = {place: Member(place, directory, net.address(place), 2379, 2380) for place in places}
        everyone = ",".join(f"{name}={member.peer_url}" for name, member in self.members.items())
        for member in self.members.values():
            member.initial_cluster = everyone
            # Ten times what suits one machine in peace: lost packets alone shall not depose its leader all the time.
            member.options = ["--heartbeat-interval=100", "--election-timeout=1000"]

    def __enter__(self) -> "Quorum":
        try:
            for place, member in self.members.items():
                self._net.inside(place, member.spawn)
            for member in self.members.values():
                member.wait_ready()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def _kill(self) -> None:
        for member in self.members.values():
            member.kill()

    @property
    def endpoint(self) -> str:
        """All members, as `--rdzv-endpoint` takes them."""
        return ",".join(member.endpoint for member in self.members.values())

    def leader(self, besides: str = "") -> str:
        """Where the member is that leads now; `besides` is not asked, because it is cut off.

        On a busy machine it may have to be elected first.
        """
        until = time.monotonic() + DEADLINE
        while time.monotonic() < until:
            for place, status in self._statuses(besides).items():
                if status.leader == status.member:
                    return place
        raise AssertionError("no member of etcd leads")

    def _statuses(self, besides: str) -> dict[str, EtcdStatus]:
        async def ask() -> dict[str, EtcdStatus]:
            found: dict[str, EtcdStatus] = {}
            for place, member in self.members.items():
                if place == besides:
                    continue
                store = EtcdStore([member.endpoint])
                try:
                    found[place] = await store.status()
                finally:
                    await store.close()
            return found

        return asyncio.run(ask())

    def wait_for(self, place: str) -> None:
        """Waits until the member at `place` has a quorum: only then does it answer a read that may not be stale."""

        async def ask() -> None:
            store = EtcdStore([self.members[place].endpoint], deadline=DEADLINE)
            try:
                await store.get("/")
            finally:
                await store.close()

        asyncio.run(ask())

    def history(self, job: str) -> list[tuple[Event, ...]]:
        """Every change of the job's keys since etcd began, in order: one tuple for each revision."""

        async def read() -> list[tuple[Event, ...]]:
            keys = Keys(job)
            store = EtcdStore([member.endpoint for member in self.members.values()], seal=seal())
            found: list[tuple[Event, ...]] = []
            try:
                end = (await store.txn([], [Put(f"{keys.root}end-of-test", b"")], idempotent=True)).revision
                async for events in store.watch(keys.root, 1, prefix=True):
                    if events[0].kv.mod_revision >= end:
                        return found
                    found.append(events)
            finally:
                await store.close()
            raise AssertionError("the watch ended")

        return asyncio.run(read())


@dataclass(frozen=True, slots=True)
class Published:
    """One header, as the store's history has it.

    Attributes:
        header: what was written.
        master: the node that led when it was written.
    """

    header: Header
    master: str


def published(history: Iterable[tuple[Event, ...]], job: str) -> list[Published]:
    """Every header that was published, in order.

    Raises AssertionError where two masters wrote at one time: a header that nobody who led has written, that names
    another leadership than the one that held, or whose number is not above that of the one before.
    """
    keys = Keys(job)
    found: list[Published] = []
    leader: Event | None = None
    for events in history:
        before = leader
        for event in events:
            if event.kv.key == keys.leader:
                leader = event if event.kind == "put" else None
            elif event.kv.key == keys.round and event.kind == "put":
                header = decode(Header, event.kv.value)
                assert before is not None, f"round {header.number} was published while nobody led"
                revision = before.kv.create_revision
                assert header.state != "open" or header.prefix.startswith(f"{revision}.{header.number}."), (
                    f"round {header.number} was published under {header.prefix} while leadership {revision} held"
                )
                assert not found or header.number > found[-1].header.number, (
                    f"round {header.number} was published after round {found[-1].header.number}"
                )
                found.append(Published(header, decode(Leader, before.kv.value).node))
    return found


class Places(Cluster):
    """A job whose agent A runs in the namespace of the place A of `net`, and so on.

    Args:
        places: those whose workers report to the test.
        (the others: as `Cluster` has them)
    """

    def __init__(
        self,
        directory: Path,
        net: Net,
        places: Iterable[str],
        endpoint: str,
        failed: Callable[[], bool],
        *,
        embedded: bool = False,
    ) -> None:
        super().__init__(directory, endpoint, failed, embedded=embedded)
        self.net = net
        port: int = self._listener.getsockname()[1]
        # The same address as outside, in each of the namespaces: what a worker tells the test is no traffic of its.
        self._doors = [net.inside(place, lambda: socket.create_server(("127.0.0.1", port))) for place in places]
        for door in self._doors:
            self._thread(self._open, door)

    def _open(self, door: socket.socket) -> None:
        while True:
            try:
                connection, _ = door.accept()
            except OSError:
                return  # closed: the test has ended
            self._thread(self._listen, connection)

    def start(
        self,
        *names: str,
        script: Path | None = None,
        args: Sequence[str] | None = None,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        conf: Mapping[str, float] | None = None,
        **flags: str | int | None,
    ) -> None:
        """See `Cluster.start`; each in its own namespace."""
        within = [*self.net.prefix, *prefix]
        # Else gloo takes the address that this machine's name has, which is the loopback's on many.
        env = {"GLOO_SOCKET_IFNAME": INTERFACE, **(env or {})}
        super().start(*names, script=script, args=args, env=env, prefix=within, conf=conf, **flags)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.net.heal()
        for door in self._doors:
            door.shutdown(socket.SHUT_RDWR)
            door.close()
        super().__exit__(kind, error, trace)


class Machines(Places):
    """A job on the etcd `quorum`."""

    def __init__(self, directory: Path, net: Net, quorum: Quorum, failed: Callable[[], bool]) -> None:
        nodes = [place for place in net.places if place not in quorum.members]
        super().__init__(directory, net, nodes, quorum.endpoint, failed)
        self.quorum = quorum

    def rounds(self) -> list[Published]:
        """All that was published, once it is known that no two masters wrote at one time."""
        return published(self.quorum.history(self.job), self.job)


class Founders(Places):
    """A job whose agents start the store themselves, with a member at each of `members`."""

    def __init__(self, directory: Path, net: Net, members: Sequence[str], failed: Callable[[], bool]) -> None:
        hosts = (net.address(place) for place in members)
        endpoint = ",".join(f"[{host}]:2379" if ":" in host else f"{host}:2379" for host in hosts)
        super().__init__(directory, net, net.places, endpoint, failed, embedded=True)

    def boot(
        self, *names: str, fresh: bool = False, conf: Mapping[str, float] | None = None, **flags: str | int | None
    ) -> None:
        """As `start`, on machines with temporary folders of their own; `fresh`: the folder is a new one."""
        for name in names:
            folder = self._temporary / name
            if fresh:
                shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(exist_ok=True)
            self.start(name, env={"TMPDIR": str(folder)}, conf=conf, **flags)
