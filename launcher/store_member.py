"""`elastic-run store`: one member of a store of its own, for as long as this process lives.

    elastic-run store --rdzv-endpoint=s-0:2379,s-1:2379,s-2:2379 --member=s-1:2379 --listen=10.0.0.7 --store-dir=DIR

It runs the etcd of one of the endpoints, whoever uses it: a member that has lost its data takes the place of the one
that it was, as soon as a majority of the others answers (`rendezvous/store/embedded/member_slot.py`). SIGTERM ends it
in order. The job's secret comes from the environment.
"""

import argparse
import asyncio
import contextlib
import ipaddress
import math
import os
import signal
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from ..rendezvous.base.cancel import cancel
from ..rendezvous.base.errors import NoUsableEtcd
from ..rendezvous.base.frozen import dataclass
from ..rendezvous.identity.contexts import Identity
from ..rendezvous.identity.secret import NoIdentity
from ..rendezvous.store.embedded import etcd_admin, local_member, watchdog
from ..rendezvous.store.embedded.member_slot import Reach
from ..rendezvous.store.embedded.member_start import WantedStore, member_hosts
from ..rendezvous.store.endpoint import Binding, Endpoint, parse_endpoints
from .console import say
from .errors import UsageError
from .trust import identity_of, protected, renew, trust_of

PAUSE = 1.0
"""Seconds after a member has ended, or could not begin, until the next look."""

LOOK = 5.0
"""Seconds between two looks at whether the member answers, and whether the others are a store without it."""

REFUSED = 2
"""The exit code where no member can be run as asked."""

STOP_SECONDS = 8.0
"""For the member's orderly end, which its supervisor bounds to less."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message} (see {self.prog} --help)")


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs it, with what follows the word `store`; the exit code. Raises UsageError."""
    parser = _Parser("elastic-run store", description="One member of the store of a job, until it is told to end.")
    parser.add_argument("--rdzv-endpoint", required=True, metavar="HOST:PORT,...", help="of all members")
    parser.add_argument("--member", required=True, metavar="HOST:PORT", help="which of them this one is")
    parser.add_argument("--listen", required=True, metavar="ADDRESS", help="the IP address that it listens on")
    parser.add_argument("--store-dir", required=True, type=Path, metavar="DIR", help="for its data and its log")
    parser.add_argument("--ready-file", type=Path, metavar="FILE", help="is there while the member answers")
    parser.add_argument("--insecure", action="store_true", help="neither encrypt nor authenticate")
    found = parser.parse_args(list(argv))
    trust, _ = trust_of(insecure=found.insecure, join_file=None, own=(None,) * 3, environ=environ, here=True)
    try:
        endpoints = parse_endpoints(found.rdzv_endpoint)
        (member,) = parse_endpoints(found.member)
        listen = str(ipaddress.ip_address(found.listen))
    except ValueError as error:
        raise UsageError(f"elastic-run store: {error}") from None
    if member not in endpoints:
        raise UsageError(f"elastic-run store: --member={member} is not among --rdzv-endpoint={found.rdzv_endpoint}")
    try:
        identity = identity_of(trust, endpoints, say, "member")
        endpoints, (member,) = protected(endpoints, identity), protected((member,), identity)
        given = _Given(endpoints, member, listen, found.store_dir, found.ready_file, identity)
        return asyncio.run(_until_told(given))
    except (NoUsableEtcd, NoIdentity) as error:
        say(str(error))
        return REFUSED


@dataclass(frozen=True, slots=True)
class _Given:
    """What one member was asked for; see `main`."""

    endpoints: tuple[Endpoint, ...]
    member: Endpoint
    listen: str
    directory: Path
    ready: Path | None
    identity: Identity | None

    @property
    def tls(self) -> ssl.SSLContext | None:
        """For who asks the members."""
        return self.identity.store if self.identity is not None and self.member.secret else None

    def tell(self, *, ready: bool) -> None:
        """Makes or removes the file that says that the member answers."""
        if self.ready is None:
            return
        try:
            if ready:
                self.ready.touch()
            else:
                self.ready.unlink(missing_ok=True)
        except OSError as error:
            say(f"--ready-file={self.ready}: {error.strerror}")


async def _until_told(given: _Given) -> int:
    """Serves until SIGTERM or SIGINT. Raises NoUsableEtcd."""
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, told.set)
    serving = asyncio.create_task(_serve(given), name="serve")
    ending = asyncio.create_task(told.wait(), name="told to end")
    await asyncio.wait({serving, ending}, return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if serving.done():
        serving.result()  # it never ends by itself: raises what went wrong
    serving.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    return 0


async def _serve(given: _Given) -> NoReturn:
    wanted = WantedStore(
        endpoints=given.endpoints,
        directory=given.directory,
        announce=say,
        deadline=math.inf,
        local={given.member: given.listen},
        identity=given.identity,
    )
    while True:
        given.tell(ready=False)
        hosting = await local_member.ensure(wanted)
        try:
            for note in hosting.notes:
                say(note)
            if hosting.local is not None:
                say(f"the member at {given.member} answers")
                await _while_it_serves(hosting.local, given)
                say(f"the member at {given.member} has ended")
        finally:
            given.tell(ready=False)
            hosting.release()
        await asyncio.sleep(PAUSE)


async def _while_it_serves(kept: watchdog.Kept, given: _Given) -> None:
    """Until its supervisor has ended, or the others are a store without it: then, and when cancelled, it is ended."""
    ended = asyncio.create_task(watchdog.end_of(kept), name="the member's supervisor")
    replaced = asyncio.create_task(_until_replaced(kept, given), name="a store without this member")
    try:
        await asyncio.wait({ended, replaced}, return_when=asyncio.FIRST_COMPLETED)
        if replaced.done():
            replaced.result()  # raises what went wrong
            say(f"the other members lost their data, and formed a store without the one at {kept.endpoint}")
    finally:
        await cancel(ended, replaced)
        with contextlib.suppress(ProcessLookupError, TimeoutError):
            os.kill(kept.supervisor_pid, signal.SIGTERM)
            async with asyncio.timeout(STOP_SECONDS):
                await watchdog.end_of(kept)
        # Where this is a container's first process, what is orphaned there is its child.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(kept.supervisor_pid, os.WNOHANG)  # noqa: ASYNC222  it does not wait


async def _until_replaced(kept: watchdog.Kept, given: _Given) -> None:
    """Returns when the member does not answer, and another does that is of another store."""
    birth, member, tls = "", kept.endpoint, given.tls

    def hosts() -> list[str]:
        return member_hosts(member, Binding(given.listen, given.listen), len(given.endpoints))

    while True:
        asked = (member, *(each for each in given.endpoints if each != member))
        own, *others = await asyncio.gather(*(etcd_admin.probe(each, tls=tls) for each in asked))
        given.tell(ready=own.reach is Reach.ANSWERS)
        if given.identity is not None:
            renew(given.identity, kept.folder / "tls", hosts, say)
        if own.reach is Reach.ANSWERS:
            birth = own.birth or birth
        elif birth and any(each.birth not in ("", birth) for each in others):
            return
        await asyncio.sleep(LOOK)
