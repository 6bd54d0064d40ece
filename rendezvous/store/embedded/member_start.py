"""What is done to start a member of the store here: its binary, address and port, its folder, its supervisor."""

import asyncio
import os
import shutil
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...base.frozen import dataclass
from ...host import leftovers
from ...identity.contexts import Identity
from ..endpoint import Binding, Endpoint, binding, interface_addresses
from . import etcd_admin, supervisor, watchdog
from .binary import OLDEST, Version, binary_version, etcd_arguments, find_binary, refuse_unfit, trying_out_only
from .folders import EmbeddedFailed, MemberFolder, StoreFolders
from .member_slot import MEMBER_PREFIX, Data, Member, Reach, cluster_token, peer_port, port_clash
from .watchdog import Announce, take_lock

LINGER_SECONDS = 10.0
"""A store without any job's node is stopped after this."""

GRACE_SECONDS = 60.0
"""The first node must come within this, once the store answers."""

_PEER_PORT_SECONDS = 3.0  # a member that is just ending, or just starting under another user, passes within this


def member_hosts(slot: Endpoint, where: Binding, members: int) -> list[str]:
    """The names and addresses by which other members may know the one at `slot`, which is this machine.

    Nobody needs them where it is the only one: who asks it goes by the name that is in every certificate.
    """
    if members == 1:
        return []
    given = (slot.host, where.advertise, where.listen, "localhost", *sorted(interface_addresses()))
    return [host for host in dict.fromkeys(given) if host not in ("0.0.0.0", "::")]


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedStore:
    """The store that somebody wants to use.

    Attributes:
        endpoints: of all its members.
        directory: for members' data and logs; None: the user's folder on this machine.
        announce: told at most every 10 s, in words, what is being waited for, where that has changed.
        deadline: an instant on the running loop's clock.
        runtime: for locks; None: the user's folder on this machine. For tests.
        linger: seconds without a node before the member is stopped.
        grace: seconds for the first node to come.
        local: the endpoints whose member may be started here, and the address that each listens on; None: those whose
            name resolves to this machine.
        identity: protects the store where the endpoints name a secret.
        started: told which endpoint's member is started here, before it answers.
        alone: no other machine is expected.
    """

    endpoints: tuple[Endpoint, ...]
    directory: Path | None
    announce: Announce
    deadline: float
    runtime: Path | None = None
    linger: float = LINGER_SECONDS
    grace: float = GRACE_SECONDS
    local: Mapping[Endpoint, str] | None = None
    identity: Identity | None = None
    started: Callable[[Endpoint], None] = lambda endpoint: None
    alone: bool = False

    @property
    def secured(self) -> Identity | None:
        """What protects it; None where its endpoints name no secret."""
        return self.identity if any(endpoint.secret for endpoint in self.endpoints) else None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For requests to its members."""
        return self.secured.store if self.secured is not None else None

    @property
    def folders(self) -> StoreFolders:
        """Where its members here keep what they have."""
        return StoreFolders(self.endpoints, self.directory, self.runtime)


class StoreUses:
    """Tells the supervisors of this machine's members that an agent here uses the store.

    Args:
        folders: where the locks are by which they know.
        deadline: an instant on the running loop's clock, after which nobody is told.
    """

    def __init__(self, folders: StoreFolders, deadline: float) -> None:
        self._folders = folders
        self._deadline = deadline
        self._held: dict[Endpoint, int] = {}

    @property
    def descriptors(self) -> tuple[int, ...]:
        """They hold the locks."""
        return tuple(self._held.values())

    async def add(self, endpoint: Endpoint) -> None:
        """The member there is used from now on."""
        while endpoint not in self._held and asyncio.get_running_loop().time() < self._deadline:
            if (descriptor := take_lock(self._folders.users(endpoint), shared=True)) is not None:
                self._held[endpoint] = descriptor
            else:  # the supervisor has it for an instant, to see whether anybody has
                await asyncio.sleep(0.01)


class MemberStarter:
    """Starts members of one store on this machine.

    Args:
        wanted: the store.
        folders: where they have what they keep.

    Attributes:
        uses: is told which members are used.
        notes: for the user, of what was started.
    """

    def __init__(self, wanted: WantedStore, folders: StoreFolders) -> None:
        self._wanted = wanted
        self._folders = folders
        self._binary: Path | None = None
        self._version: Version = (*OLDEST, 0)
        self.uses = StoreUses(folders, wanted.deadline)
        self.notes: list[str] = []

    async def check_ready(self, slot: Endpoint) -> tuple[Path, Binding]:
        """A binary that can be used and a free peer port. Raises NoEtcdBinary, EtcdTooOld, EmbeddedFailed."""
        clash = port_clash(self._wanted.endpoints)
        if clash is not None:
            raise EmbeddedFailed(clash)
        binary = await self.find_binary()
        where = await self.find_binding(slot)
        now = asyncio.get_running_loop().time
        give_up = min(self._wanted.deadline, now() + _PEER_PORT_SECONDS)
        while (problem := _bind_problem(where.listen, peer_port(slot.port))) is not None:
            if (await etcd_admin.probe(slot, tls=self._wanted.tls)).reach is not Reach.REFUSED:
                break  # not a stranger: another member has just taken the member slot, and etcd will say so
            if now() >= give_up:
                raise EmbeddedFailed(
                    f"port {peer_port(slot.port)} of {where.listen} cannot be used ({problem}): the store's members "
                    f"need it for their own traffic, beside the endpoint's port {slot.port}. Stop the program that "
                    "uses it, or choose "
                    "another port in the endpoint"
                )
            await asyncio.sleep(min(0.1, max(0.0, self._wanted.deadline - now())))
        return binary, where

    async def find_binding(self, slot: Endpoint) -> Binding:
        """Where the member listens, and under which name the others know it."""
        if self._wanted.local is not None:
            return Binding(self._wanted.local[slot], self._wanted.local[slot])
        peers = [endpoint for endpoint in self._wanted.endpoints if endpoint != slot]
        return await asyncio.to_thread(binding, slot.host, peers, alone=self._wanted.alone)  # resolves names, as above

    async def find_binary(self) -> Path:
        """A binary that can be used. Raises NoEtcdBinary, EtcdTooOld."""
        if self._binary is None:
            path = find_binary()
            version = await binary_version(path)
            refuse_unfit(version, path)
            self._binary, self._version = path, version
        return self._binary

    async def start(
        self,
        slot: Endpoint,
        home: MemberFolder,
        lock: int,
        why: str,
        *,
        restarts: bool = False,
        members: Sequence[Member] | None = None,
        data: Data | None = None,
    ) -> watchdog.Kept:
        """Starts the member of that slot, whose lock is held, under a supervisor.

        Args:
            why: in words.
            restarts: on the data that is there.
            members: those of the store that it joins; None: of a new store.
            data: of which store and member its data will be.
        """
        binary, where = await self.check_ready(slot)
        if not restarts and (warning := trying_out_only(self._version)):
            self.notes.append(warning)  # once for each store, and not at each node
        if not restarts and home.path.exists():
            shutil.rmtree(home.path)  # leftovers of a start that failed; there is no data, or it was set aside
        home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.utime(home.path)  # its data may be old, if the machine was off: it is in use again, and no leftover
        if self._wanted.directory is None:
            leftovers.prune(home.path.parent, MEMBER_PREFIX, time.time())
        home.data.mkdir(mode=0o700, exist_ok=True)
        if data is not None:
            home.remember(data.birth, data.member)
        generation = 2 if home == self._folders.home(slot, 2) else 1
        token = cluster_token(self._wanted.endpoints, generation)
        tls, version = home.tls if self.protect(slot, where, home) else None, self._version
        arguments = etcd_arguments(
            self._wanted.endpoints, slot, where, home.data, token=token, members=members, tls=tls, version=version
        )
        loopback = {"0.0.0.0": "127.0.0.1", "::": "::1"}
        options = {
            "--home": home.path,
            "--log": home.log,
            "--lock": self._folders.lock(slot),
            "--client-host": loopback.get(where.listen, where.listen),
            "--client-port": slot.port,
            "--users": self._folders.users(slot),
            "--linger": self._wanted.linger,
            "--grace": self._wanted.grace,
            **({"--tls": tls} if tls is not None else {}),
        }
        await self.uses.add(slot)
        keeping = (sys.executable, "-I", "-S", supervisor.__file__)
        command = (
            *keeping,
            *(str(part) for option in options.items() for part in option),
            "--",
            str(binary),
            *arguments,
        )
        pid = await watchdog.start_supervisor(command, lock)
        self._wanted.announce(f"starting etcd at {slot}: {why}")
        self._wanted.started(slot)
        return watchdog.Kept(slot, pid, home.path, self._folders.lock(slot), command)

    def protect(self, slot: Endpoint, where: Binding, home: MemberFolder) -> bool:
        """Writes the member's certificate; False where the store has no secret. Raises EmbeddedFailed."""
        if self._wanted.secured is None:
            return False
        try:
            self._wanted.secured.member_files(
                home.tls, lambda: member_hosts(slot, where, len(self._wanted.endpoints)), time.time()
            )
        except OSError as error:
            raise EmbeddedFailed(f"the certificate of the store cannot be written to {home.tls}: {error}") from None
        return True


def _bind_problem(host: str, port: int) -> str | None:
    """Why nothing can listen there, or None."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(1)  # with the option above, binding alone succeeds beside a listener
        except OSError as error:
            return error.strerror or str(error)
    return None
