"""The job's store, opened: for a node, which may have to start an etcd, and for a command that only asks."""

import asyncio
import contextlib
import hashlib
import os
import re
import socket
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from ..rendezvous.base.cancel import running
from ..rendezvous.base.errors import NoUsableEtcd, OtherSecret, RendezvousError, StoreRefused, StoreUnavailable
from ..rendezvous.identity import SERVER_NAME
from ..rendezvous.identity.secret import runs_with_another
from ..rendezvous.keys import Keys
from ..rendezvous.rpc.envelope import Security
from ..rendezvous.store.contract import Store
from ..rendezvous.store.endpoint import (
    Binding,
    Endpoint,
    authority,
    interface_addresses,
    loopback_alias,
    resolve,
    routable_address,
)
from ..rendezvous.store.memory_store import MemoryStore
from ..rendezvous.store.seal import unreadable
from .address import Address
from .settings import Credentials, Options, Trust
from .trust import INSECURE, identity_of, invitation_lines, protected, renew, security

if TYPE_CHECKING:
    from ..rendezvous.identity.contexts import Identity
    from ..rendezvous.store.embedded.watchdog import Kept
    from ..rendezvous.store.etcd.etcd_store import EtcdStore
    from ..rendezvous.store.seal import Seal
    from .options.reach import Reach


_CLIENT = "..rendezvous.store.etcd.etcd_store"

GRPC_VERBOSITY = "GRPC_VERBOSITY"
"""The variable that says what grpc prints; this process sets it for itself."""


HEADING = (
    "Run this on the other machines:",
    "this job is encrypted, with a secret that other machines need, too. Run this on them:",
)
"""Above the line to join, without a secret and with one."""


class NobodyAnswered(RendezvousError):
    """The store did not answer within `join_timeout`; nothing was started."""


@contextlib.asynccontextmanager
async def store_of(
    options: Options,
    endpoints: tuple[Endpoint, ...],
    where: Address,
    say: Callable[[str], None],
    identity: "Identity | None",
) -> AsyncGenerator[Store]:
    """The job's store, ready to be asked; an embedded etcd is started where an endpoint wants one."""
    if options.store.kind == "memory":
        memory = MemoryStore()
        try:
            yield memory
        finally:
            await memory.close()
        return
    # grpc's own lines say again, a hundred times, what the store's errors say; workers have their environment already.
    os.environ.setdefault(GRPC_VERBOSITY, "NONE")
    # Here, because a job of one node has no use for grpc, nor for an etcd.
    from ..rendezvous.store.embedded import local_member
    from ..rendezvous.store.embedded.member_start import WantedStore

    text = ",".join(map(str, endpoints))
    if options.local_addr and not set(resolve(options.local_addr)) & interface_addresses():
        say(f"--local-addr={options.local_addr} is not an address of this machine: listening on every interface")

    first = contextlib.ExitStack()  # of a name of the job's, which one node on this machine has: it says who reaches it

    def invite(heading: str) -> None:
        for line in (heading, *invitation_lines(options, endpoints, identity)):
            say(line)

    unnamed = options.store.kind == "implicit" and not options.store.endpoints
    if unnamed:
        invite(f"no --rdzv-endpoint is given: the rendezvous endpoint is {text}. Run this on the other machines:")
    if options.trust.insecure:
        say(INSECURE)

    def started(endpoint: Endpoint) -> None:
        try:
            named = hashlib.sha256(f"{os.getuid()} {text} {options.job_id}".encode()).hexdigest()
            first.enter_context(socket.socket(socket.AF_UNIX)).bind(f"\0elastic-run-first-{named}")
        except OSError:
            return
        address = endpoint.host if endpoint.loopback else loopback_alias(endpoint.host)
        if address and options.nodes.maximum > 1 and not options.platform:
            say(
                f"{endpoint.host} is {'loopback' if endpoint.loopback else address} on this machine, so its store "
                "listens on loopback alone and no other machine reaches it: for nodes on others, name the address by "
                f"which they reach this one, --rdzv-endpoint={authority(routable_address(()), endpoint.port)}"
            )
        # Where nobody named an endpoint that was said above; under Slurm nobody types a line on another machine.
        if not address and options.store.kind != "implicit":
            invite(HEADING[identity is not None])

    plain = [str(each) for each in endpoints if each.plain]
    if identity is not None and plain:
        say(f"the store at {', '.join(plain)} is yours and is named with http://: what is in it is not protected")
    deadline = asyncio.get_running_loop().time() + options.timing.join_timeout
    # Beside the start of an etcd, or the first question to one: both take a while to load.
    loading = asyncio.create_task(
        asyncio.to_thread(lambda: (import_module(_CLIENT, __package__), _seal(endpoints, identity))), name="import grpc"
    )
    try:
        wanted = WantedStore(
            endpoints=endpoints,
            directory=options.store.directory,
            announce=say,
            deadline=deadline,
            identity=identity,
            local=None if options.store.hosted else {},
            started=started,
            alone=options.nodes.maximum == 1,
        )
        hosting = await local_member.ensure(wanted)
        await loading
    except StoreUnavailable as error:
        raise NobodyAnswered(str(error)) from None
    finally:
        loading.cancel()
    for note in hosting.notes:
        say(note)
    async with contextlib.AsyncExitStack() as opened:
        opened.callback(hosting.release)
        opened.enter_context(first)
        store = _store_at(endpoints, options.store.credentials, identity)
        opened.push_async_callback(store.close)
        try:
            _refuse_old((await store.status()).version, text)
            leader = await store.get(Keys(options.job_id).leader)
            if leader is not None and not any(endpoint.secret for endpoint in endpoints) and unreadable(leader.value):
                raise OtherSecret(runs_with_another(options.job_id))
            if hosting.local and leader is None:
                started(hosting.local.endpoint)  # by another job, and this one begins here
        except StoreRefused as error:  # certificates, a password or endpoints that are not those of this etcd
            raise NoUsableEtcd(f"the store at {text} cannot be used: {error}") from None
        looking = _look_after(hosting.local, store, say)
        await opened.enter_async_context(running(looking, "look after the store"))
        if identity is not None:
            work = _renew(identity, hosting.local, where, len(endpoints), say)
            await opened.enter_async_context(running(work, "renew certificates"))
        yield store


async def _look_after(local: "Kept | None", store: Store, say: Callable[[str], None]) -> None:
    from ..rendezvous.store.embedded import watchdog

    try:
        if local is not None:
            await watchdog.look_after(local, store, say)
    except* Exception as errors:  # noqa: BLE001  the edge of this task: the job continues without it
        say(f"the store's etcd on this machine is no longer monitored: {errors.exceptions[0]!r}")


async def _renew(
    identity: "Identity", local: "Kept | None", where: Address, members: int, say: Callable[[str], None]
) -> None:
    """Keeps certificates of this process, and of an etcd of this machine, from ending while the job runs."""
    from ..rendezvous.identity.contexts import LOOK_SECONDS
    from ..rendezvous.store.embedded.member_start import member_hosts

    folder = local.folder / "tls" if local is not None else None

    def hosts() -> Iterable[str]:
        assert local is not None
        bound = where.bind or where.host
        return member_hosts(local.endpoint, Binding(bound, where.host), members)

    while True:
        await asyncio.sleep(LOOK_SECONDS)
        renew(identity, folder, hosts, say)


@contextlib.asynccontextmanager
async def renewed(identity: "Identity | None", say: Callable[[str], None]) -> AsyncGenerator[None]:
    """Keeps the certificates of a command that asks for days from ending; None: it has none."""
    async with contextlib.AsyncExitStack() as stack:
        if identity is not None:
            work = _renew(identity, None, Address("", None), 0, say)
            await stack.enter_async_context(running(work, "renew certificates"))
        yield


def asked_at(reach: "Reach") -> tuple[Endpoint, ...]:
    """Where a command that takes part in no job asks the store; this machine where no endpoint is given."""
    return reach.store.endpoints or (Endpoint(routable_address(()), reach.store.port),)


def etcd_at(
    endpoints: Sequence[Endpoint],
    credentials: Credentials,
    trust: Trust,
    say: Callable[[str], None],
    *,
    make: bool = False,
) -> tuple["EtcdStore", Security, "Identity | None"]:
    """The store of a job of others, which is only asked, what its agents speak, and who asks; nothing is started.

    Args:
        endpoints, credentials, trust, say: as for a node of the job.
        make: as for `identity_of`.

    Raises NoIdentity.
    """
    os.environ.setdefault(GRPC_VERBOSITY, "NONE")
    identity = identity_of(trust, endpoints, say, "operator", make=make)
    secured = protected(tuple(endpoints), identity)
    return _store_at(secured, credentials, identity), security(identity), identity


async def nobody_listens(endpoints: Sequence[Endpoint]) -> bool:
    """Each of them refuses a connection: to ask on would only be to wait."""
    from ..rendezvous.store.embedded.etcd_admin import Reach, probe

    return all(each.reach is Reach.REFUSED for each in await asyncio.gather(*map(probe, endpoints)))


async def stranger(endpoints: Sequence[Endpoint], trust: Trust) -> str:
    """Why the store there does not take what `etcd_at` proves itself with; empty where that is not the matter.

    Raises NoIdentity.
    """
    from ..rendezvous.store.embedded.etcd_admin import Reach, probe

    identity = identity_of(trust, endpoints, lambda line: None, "operator", make=False)
    tls = identity.store if identity is not None else None
    asking = (probe(each, tls=tls if each.secret else None) for each in protected(tuple(endpoints), identity))
    return next((each.detail for each in await asyncio.gather(*asking) if each.reach is Reach.STRANGER), "")


def _store_at(endpoints: Sequence[Endpoint], credentials: Credentials, identity: "Identity | None") -> "EtcdStore":
    """The store there; it connects when it is first asked."""
    from ..rendezvous.store.etcd.etcd_store import Credentials as EtcdUser
    from ..rendezvous.store.etcd.etcd_store import EtcdStore, Proof, Tls

    tls: Tls | Proof | None = None
    if identity is not None and any(endpoint.secret for endpoint in endpoints):
        tls = Proof(lambda: identity.pem, SERVER_NAME)
    elif credentials.tls:
        files = (credentials.cacert, credentials.cert, credentials.key)
        tls = Tls(*(None if file is None else str(file) for file in files))
    user = EtcdUser(credentials.user, credentials.password) if credentials.user else None
    seal = _seal(endpoints, identity)
    return EtcdStore([str(each) for each in endpoints], tls=tls, credentials=user, seal=seal)


def _seal(endpoints: Iterable[Endpoint], identity: "Identity | None") -> "Seal | None":
    """For values in a store of the user's own, which others may read; one that the secret protects needs none."""
    if identity is None or identity.secret is None or any(endpoint.secret for endpoint in endpoints):
        return None
    from ..rendezvous.identity.sealing import SecretSeal

    return SecretSeal(identity.secret)


def _refuse_old(version: str, where: str) -> None:
    from ..rendezvous.store.embedded.binary import OLDEST, EtcdTooOld

    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        raise EtcdTooOld(
            f"the etcd at {where} is {version}, and at least {OLDEST[0]}.{OLDEST[1]} is needed: "
            "upgrade it, or name another with --rdzv-endpoint"
        )
