"""The embedded etcd: when an endpoint of the store is this machine and nobody serves it, its member is started here.

`member_slot` decides, `etcd_admin` asks, `binary` says what is started, `supervisor` runs it; this module holds the
lock and waits. While a job runs, `watchdog` looks after it.

    NoUsableEtcd
    ├── NoEtcdBinary      a member must be started and there is no etcd to start (see `binary`)
    ├── EtcdTooOld        the one there is cannot be used (see `binary`)
    ├── SupervisorFailed    its supervisor did not start (see `watchdog`)
    └── EmbeddedFailed    a member cannot be started, or did not live; the message quotes etcd's log

Where things lie is in `folders.py`.

The limit of what this can promise: if every member of a store is down and one of them lost its data, that one may
start empty before the others are back, and a write that only it and a later one had confirmed can be lost.
"""

import asyncio
import contextlib
import math
import os
import secrets
import shutil
import signal
from collections.abc import Awaitable, Sequence
from pathlib import Path

from ...base.errors import StoreUnavailable
from ...base.frozen import dataclass, field
from ..endpoint import Endpoint, is_local
from . import etcd_admin, supervisor, watchdog
from .binary import short_of_addresses
from .folders import EmbeddedFailed, MemberFolder, last_lines
from .member_slot import (
    Data,
    Decision,
    Member,
    Probe,
    Reach,
    View,
    decide,
    missing_members,
    peer_url,
    vacant,
    waiting_for,
)
from .member_start import MemberStarter, WantedStore
from .watchdog import take_lock

PATIENCE_SECONDS = 15.0
"""After this a state that should pass is believed. Longer than LINGER_SECONDS: an idle store that outlasts it stays."""

_REPORT_SECONDS = 10.0
_FIRST_REPORT_SECONDS = 2.0  # a usual start is quicker, and needs no line


@dataclass(frozen=True, slots=True)
class Hosting:
    """How the store was found.

    Attributes:
        missing: endpoints that nobody serves yet; the store answers without them.
        notes: for the user, to be said once.
        local: the member that this call started, or one that answers and runs on data in this agent's folder, or None.
        uses: descriptors that keep the supervisors of this machine from stopping the store; see `release`.
    """

    missing: tuple[Endpoint, ...] = ()
    notes: tuple[str, ...] = ()
    local: watchdog.Kept | None = field(default=None, compare=False)
    uses: tuple[int, ...] = field(default=(), compare=False)

    def release(self) -> None:
        """The store is not used any more by who asked for it. Once; the end of the process does the same."""
        for descriptor in self.uses:
            os.close(descriptor)


@dataclass(slots=True)
class _Running:
    """The member that this agent started. Owns the supervisor's pidfd.

    Attributes:
        again: it is another command's member, whose supervisor was killed.
    """

    endpoint: Endpoint
    home: MemberFolder
    kept: watchdog.Kept
    pidfd: int
    again: bool = False
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def watch(self) -> None:
        def ended() -> None:
            loop.remove_reader(self.pidfd)
            self.ended.set()

        loop = asyncio.get_running_loop()
        loop.add_reader(self.pidfd, ended)

    def forget(self) -> None:
        asyncio.get_running_loop().remove_reader(self.pidfd)
        os.close(self.pidfd)


async def ensure(wanted: WantedStore) -> Hosting:
    """Returns when the store answers; starts this machine's member of it where nobody serves it.

    At most one member is started. It outlives this process; its supervisor stops it when no job needs it.

    Raises:
        StoreUnavailable: nobody answered by the deadline; the message says who did what.
        NoEtcdBinary, EtcdTooOld, EmbeddedFailed: a member had to be started here and could not be.
    """
    attempt = _EnsureCall(wanted)
    try:
        return await attempt.run()
    except BaseException:  # a cancellation too: nobody will use what was started
        await attempt.abandon()
        raise
    finally:
        attempt.close()


class _EnsureCall:
    """One call of `ensure`: looks, decides, does, until the store answers."""

    def __init__(self, wanted: WantedStore) -> None:
        self._wanted = wanted
        self._tls = wanted.tls
        self._folders = wanted.folders
        self._starter = MemberStarter(wanted, self._folders)
        self._now = asyncio.get_running_loop().time
        self._local: frozenset[Endpoint] = frozenset()
        self._running: _Running | None = None
        self._busy = set[Endpoint]()  # local ones whose lock another agent's member holds
        self._remembered: set[Endpoint] = set()
        self._steady = self._now()  # since when nothing was done but waiting
        self._report_at, self._reported = self._now() + _FIRST_REPORT_SECONDS, ""

    def close(self) -> None:
        if self._running is not None:
            self._running.forget()

    async def abandon(self) -> None:
        """Stops the member that was started for a store that never came. Data that was there before stays.

        A member that others may wait for is left to its supervisor, which stops it when nobody does.
        """
        for descriptor in self._starter.uses.descriptors:
            os.close(descriptor)
        if self._running is None or self._running.again:
            return
        if supervisor.in_use(self._folders.users(self._running.endpoint)):
            return
        await self._stop(self._running)
        if not self._running.home.seen(self._running.endpoint).birth:
            shutil.rmtree(self._running.home.path, ignore_errors=True)

    async def _stop(self, running: _Running) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(running.pidfd, signal.SIGTERM)
        await running.ended.wait()  # the supervisor kills etcd after 5 s at most

    async def run(self) -> Hosting:
        probes: tuple[Probe, ...] = ()
        last: Decision | None = None
        interval = 0.01
        resolve_at = self._now()
        while True:
            if self._now() >= resolve_at:
                self._local, resolve_at = await self._find_local(), self._now() + _REPORT_SECONDS
            if self._running is not None and self._running.ended.is_set():
                await self._diagnose(self._running)
            probes = tuple(await asyncio.gather(*map(self._probe, self._wanted.endpoints)))
            if await self._outrun(probes):
                continue
            decision = await self._step(probes)
            if decision.action == "use":
                return await self._hosting(probes, decision)
            if decision.action == "refuse":
                raise EmbeddedFailed(decision.reason)
            if decision.action == "wait":
                last = decision
                self._report(decision)
                self._check_deadline(probes, last)
                # etcd announces its readiness to nobody, so it is asked again; only its end is an event.
                await self._pause(interval)
                interval = min(0.5, interval * 1.25)
            else:
                interval = 0.01
                self._steady = self._now()
                self._check_deadline(probes, last)

    def _probe(self, endpoint: Endpoint) -> Awaitable[Probe]:
        return etcd_admin.probe(endpoint, tls=self._tls)

    async def _outrun(self, probes: Sequence[Probe]) -> bool:
        """What answers at the member slot is another member than the one started here, which must end: it has no port.

        It happens where two agents share a port and no lock (two users, two containers on one network).
        """
        running = self._running
        if running is None or not any(p.endpoint == running.endpoint and p.reach is Reach.ANSWERS for p in probes):
            return False
        if await self._serves(running.endpoint, running.home) is not False:
            return False  # where it is not told, believe the supervisor, which would have ended
        await self._stop(running)
        await self._diagnose(running, outrun=True)
        return True

    async def _serves(self, endpoint: Endpoint, home: MemberFolder) -> bool | None:
        """What answers there runs on the data in that folder; None where it does not tell."""
        try:
            command = await etcd_admin.command_line(endpoint, tls=self._tls)
        except (etcd_admin.NotAnswered, etcd_admin.EtcdAdminRefused):
            return None
        return etcd_admin.told(home.data) in command if command else None

    async def _find_local(self) -> frozenset[Endpoint]:
        if self._wanted.local is not None:
            return frozenset(self._wanted.local)
        # The resolver has no asynchronous form; asyncio's own wrapper is a thread as well.
        found = await asyncio.gather(*(asyncio.to_thread(is_local, e.host) for e in self._wanted.endpoints))
        return frozenset(e for e, local in zip(self._wanted.endpoints, found, strict=True) if local)

    def _report(self, decision: Decision) -> None:
        if self._now() >= self._report_at and (news := decision.reason + self._trouble()) != self._reported:
            self._report_at, self._reported = self._now() + _REPORT_SECONDS, news
            left = max(0.0, self._wanted.deadline - self._now())
            waits = f"; waiting up to {left:.0f} s more" if math.isfinite(left) else ""
            self._wanted.announce(news + waits)

    def _trouble(self) -> str:
        """Why this machine's member does not serve, whoever has started it; empty where nothing tells."""
        kept = (watchdog.supervisor_of(endpoint, self._folders.lock(endpoint)) for endpoint in self._busy)
        folders = [self._running.home.path] if self._running else [each.folder for each in kept if each]
        return next((f"; {words}" for folder in folders if (words := watchdog.trouble(folder))), "")

    def _check_deadline(self, probes: Sequence[Probe], last: Decision | None) -> None:
        if self._now() < self._wanted.deadline:
            return
        text = last.reason if last is not None else waiting_for(probes)
        listed = "; ".join(map(str, probes))
        text += f" ({listed})" if listed not in text else ""
        printed = f"; its etcd printed:\n{last_lines(self._running.home.log)}\n" if self._running else ""
        advice = "gave up at the deadline: start the missing machines, or check the endpoint"
        raise StoreUnavailable(f"{text}{self._trouble() or printed}; {advice}")

    async def _pause(self, seconds: float) -> None:
        left = max(0.0, min(seconds, self._wanted.deadline - self._now()))
        ended = self._running.ended if self._running is not None else asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(left):
                await ended.wait()

    async def _step(self, probes: tuple[Probe, ...]) -> Decision:
        """Decides on what is seen, and does it. Member slots whose lock another agent holds are passed over."""
        self._busy.clear()
        members, idle = await self._ask_quorum(probes)
        while True:
            view = View(
                probes=probes,
                local=self._local,
                busy=frozenset(self._busy),
                data=self._data(),
                members=members,
                idle=idle,
                hosted=self._running.endpoint if self._running else None,
                theirs=self._running is not None and self._running.again,
                remembered=frozenset(self._remembered),
                patient=self._now() - self._steady >= PATIENCE_SECONDS,
            )
            decision = decide(view)
            if decision.action in ("use", "wait", "refuse") or decision.endpoint is None:
                return decision
            if self._running is not None:  # discard
                await self._discard_running(self._running, decision.reason)
                return decision
            await self._starter.find_binary()  # first, because what cannot start must leave nothing behind
            lock = take_lock(self._folders.lock(decision.endpoint))
            if lock is None:
                self._busy.add(decision.endpoint)
                continue
            try:
                if await self._act(decision, decision.endpoint, probes, members, lock):
                    return decision
                return Decision("wait", decision.reason, decision.endpoint)
            finally:
                os.close(lock)  # the supervisor, if one was started, holds its own copy

    async def _ask_quorum(self, probes: Sequence[Probe]) -> tuple[tuple[Member, ...] | None, bool]:
        """The members and whether the store is idle, asked only where a member slot here is vacant beside a quorum."""
        answering = [probe.endpoint for probe in probes if probe.reach is Reach.ANSWERS]
        view = View(tuple(probes), local=self._local, hosted=self._running.endpoint if self._running else None)
        if not answering or answering[0].own or not vacant(view):
            return None, False
        try:
            members = await etcd_admin.list_members(answering[0], tls=self._tls)
            return members, await etcd_admin.is_idle(answering[0], tls=self._tls)
        except (etcd_admin.NotAnswered, etcd_admin.EtcdAdminRefused):
            return None, False  # it wants credentials, or has just lost its quorum: nothing to be done to it here

    def _data(self) -> tuple[Data, ...]:
        # Either generation's: which one the store has is told by its birth.
        found: list[Data] = []
        for endpoint in self._wanted.endpoints:
            if self._running is not None and self._running.again and self._running.endpoint == endpoint:
                found.append(self._running.home.seen(endpoint))
            elif endpoint in self._local and (home := self._folders.home_with_data(endpoint)).written:
                found.append(home.seen(endpoint))
        return tuple(found)

    # What is done.

    async def _act(
        self, decision: Decision, slot: Endpoint, probes: Sequence[Probe], members: tuple[Member, ...] | None, lock: int
    ) -> bool:
        """Carries the decision out, under the lock; False where the quorum would not have it now."""
        birth = next((probe.birth for probe in probes if probe.birth), "")
        answered = any(probe.reach is Reach.ANSWERS for probe in probes)  # then the quorum says whose data is good
        killed = None if answered else self._killed_elsewhere(slot)
        match decision.action:
            case "discard":
                shutil.rmtree(self._folders.home_with_data(slot).path)
            case "restart" | "start" if killed is not None:
                await self._start_again(slot, killed, lock)
            case "restart":
                home = self._folders.home_with_data(slot)
                await self._run(slot, home, await self._starter.start(slot, home, lock, decision.reason, restarts=True))
            case "start" | "anew":
                if decision.action == "anew":
                    self._folders.generation = 2
                    self._remembered.discard(slot)
                home = self._folders.home(slot)
                await self._run(slot, home, await self._starter.start(slot, home, lock, decision.reason))
            case _:  # join, replace
                through = next(probe.endpoint for probe in probes if probe.reach is Reach.ANSWERS)
                await self._starter.check_ready(slot)  # before the store is changed for a member that cannot start
                if decision.action == "replace":
                    changed = await self._replace_member(through, slot, members or ())
                    if changed is None:
                        return False
                    members = changed
                known = next(member for member in members or () if peer_url(slot) in member.peer_urls)
                data = Data(slot, birth, known.id)
                home, why = self._folders.home(slot), decision.reason
                kept = await self._starter.start(slot, home, lock, why, members=members, data=data)
                await self._run(slot, home, kept)
        return True

    def _killed_elsewhere(self, slot: Endpoint) -> watchdog.Kept | None:
        """The supervisor that served this slot from another folder until it was killed. Under the lock.

        Its store may live: agents of other commands, here or elsewhere, wait for it with what its data says. A member
        without that data, or with older data, would take its place. For a store of several members this holds where
        the endpoints are the same; a lone one is the same store however its endpoint is written.
        """
        kept = watchdog.killed_supervisor(slot, self._folders.lock(slot))
        if kept is None or not MemberFolder(kept.folder).written:
            return None
        own = [home.path for home in self._folders.homes(slot)]
        same = kept.folder.name in (path.name for path in own)
        lone = len(self._wanted.endpoints) == 1 and watchdog.is_lone(kept)
        return kept if kept.folder not in own and (lone or same) else None

    async def _start_again(self, slot: Endpoint, killed: watchdog.Kept, lock: int) -> None:
        await self._starter.uses.add(slot)
        home = MemberFolder(killed.folder)
        try:
            # Files of another secret, or none, stay as they are.
            if self._wanted.secured is not None and self._wanted.secured.vouches_for(home.tls):
                self._starter.protect(slot, await self._starter.find_binding(slot), home)
            kept = await watchdog.start_again(killed, lock, self._wanted.announce)
        except (watchdog.SupervisorFailed, OSError) as error:
            raise EmbeddedFailed(
                f"the store at {slot} has its data in {killed.folder}, its supervisor was killed, and it cannot be "
                f"restarted: {error}. To start an empty store instead, remove {killed.folder}"
            ) from None
        await self._run(slot, home, kept, again=True)

    async def _replace_member(
        self, through: Endpoint, slot: Endpoint, members: Sequence[Member]
    ) -> tuple[Member, ...] | None:
        """Removes the dead member and adds a new one; None where the quorum refuses for now.

        In this order: adding first would raise the majority that the living must make.
        """
        try:
            for member in members:
                if peer_url(slot) in member.peer_urls:
                    await etcd_admin.remove_member(through, member.id, tls=self._tls)
            return await etcd_admin.add_member(through, peer_url(slot), tls=self._tls)
        except etcd_admin.NotAnswered:
            return None  # it may have happened; the next look tells
        except etcd_admin.EtcdAdminRefused as error:
            # Members that have known each other for less than 5 s count as unhealthy; or somebody else was quicker.
            if self._now() >= self._report_at:
                self._report_at = self._now() + _REPORT_SECONDS
                self._wanted.announce(f"the store does not replace the dead member at {slot} yet: {error}")
            return None

    async def _run(self, slot: Endpoint, home: MemberFolder, kept: watchdog.Kept, *, again: bool = False) -> None:
        try:
            pidfd = os.pidfd_open(kept.supervisor_pid)
        except ProcessLookupError:
            await self._explain(slot, home)
            return
        self._running = _Running(slot, home, kept, pidfd, again)
        self._running.watch()

    async def _discard_running(self, running: _Running, reason: str) -> None:
        """Stops the member that waits in vain and sets its data aside."""
        self._wanted.announce(f"stopping the member at {running.endpoint}: {reason}")
        await self._stop(running)
        running.forget()
        self._running = None
        shutil.rmtree(running.home.path, ignore_errors=True)
        self._folders.generation = 1

    async def _diagnose(self, running: _Running, *, outrun: bool = False) -> None:
        running.forget()
        self._running = None
        await self._explain(running.endpoint, running.home, outrun=outrun)

    async def _explain(self, slot: Endpoint, home: MemberFolder, *, outrun: bool = False) -> None:
        """What to do about a member that ended: go on where its log, or another in its slot, says why, else raise."""
        tail = last_lines(home.log, 60)
        self._steady = self._now()
        if "already been bootstrapped" in tail:
            self._remembered.add(slot)
            shutil.rmtree(home.path, ignore_errors=True)
        elif "member has been permanently removed" in tail or "has been removed from" in tail:
            shutil.rmtree(home.path, ignore_errors=True)
        elif outrun or "address already in use" in tail:
            if not home.written:
                shutil.rmtree(home.path, ignore_errors=True)
        else:
            full = watchdog.full_disk(home.path)
            advice = short_of_addresses() or (full and f"{full}: make room, or name another folder with --store-dir")
            raise EmbeddedFailed(f"the etcd that was started for {slot} exited at once; {home.last_words(advice)}")

    async def _hosting(self, probes: tuple[Probe, ...], decision: Decision) -> Hosting:
        running = self._running
        mine = next((p for p in probes if running and p.endpoint == running.endpoint), None)
        if running is not None and mine is not None and mine.reach is Reach.ANSWERS:
            await self._settle(running, mine)
        local = running.kept if running is not None else None
        for endpoint in self._local:
            lock = self._folders.lock(endpoint, make=False)
            if lock.exists():
                await self._starter.uses.add(endpoint)
                local = local or await self._kept(endpoint, lock)
        return Hosting(missing_members(probes), tuple(self._starter.notes), local, self._starter.uses.descriptors)

    async def _kept(self, endpoint: Endpoint, lock: Path) -> watchdog.Kept | None:
        """The supervisor that another agent has started; None where its data is not this agent's own."""
        kept = watchdog.supervisor_of(endpoint, lock)
        home = next((home for home in self._folders.homes(endpoint) if kept and home.path == kept.folder), None)
        return kept if home and await self._serves(endpoint, home) else None

    async def _settle(self, running: _Running, mine: Probe) -> None:
        """Gives the store its birth if it has none, and notes beside the data which store it belongs to."""
        birth = mine.birth
        while not birth:
            try:
                birth = await etcd_admin.give_birth(
                    mine.endpoint, secrets.token_hex(8), self._wanted.endpoints, tls=self._tls
                )
            except (etcd_admin.NotAnswered, etcd_admin.EtcdAdminRefused) as error:
                if self._now() >= self._wanted.deadline:
                    why = str(error) or "it does not answer in time"
                    raise StoreUnavailable(
                        f"the store at {mine.endpoint} answers, but accepts no write: {why}"
                    ) from None
                await self._pause(0.1)
        running.home.remember(birth, mine.member)
