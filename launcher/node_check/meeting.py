"""The nodes of a check find each other in the store, and tell each other what came of it.

Nodes that have come write themselves down. When nobody else has come for a while, or the job has its maximum, the first
to notice writes a *plan*: who is checked with whom. Exactly one such plan exists for each number. Who comes later is in
the next plan. All keys hang on leases: a node's own goes with it, plans and outcomes after LASTING seconds, because
others may read them when their writer has gone on.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

from ...rendezvous.base.cancel import running
from ...rendezvous.base.frozen import dataclass
from ...rendezvous.store.contract import Compare, Put, Store
from ...rendezvous.wire.fields import Name, Number, Port, Words
from ...rendezvous.wire.values import Count, decode_or_none, encode
from .collective import Place
from .pairs import TURNS, Outcome, Pair, Verdict, judge, pairs

ROOT = "/elastic-run-check/"
"""Of the keys. They are not the job's: nobody takes a check for a job."""

LEASE, LASTING = 30, 600
"""Seconds: of a node that is there, and of what it has said."""

LOOK = 0.2
"""Seconds between two looks."""

MOST = 4096
"""Nodes of one plan."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Present:
    """A node that has come, where it can be met in each turn, and which versions it has of what is compared."""

    node: Name
    host: Name
    ports: Annotated[tuple[Port, ...], Count(TURNS)]
    versions: Annotated[tuple[tuple[Name, Name], ...], Count(8)] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The nodes of one check, in order."""

    number: Number
    nodes: Annotated[tuple[Present, ...], Count(MOST)]


@dataclass(frozen=True, slots=True)
class Told:
    """What one node says of one of its pairs."""

    speed: float
    problem: Words


class Meeting:
    """One node's part in a check. Raises StoreError.

    Args:
        me: this node; its name must be its own alone.
        most: nodes that the job may have: when so many have come, nobody else is waited for.
        settle: seconds without another arrival after which the check begins.
    """

    def __init__(self, store: Store, job: str, me: Present, most: int, settle: float) -> None:
        self._store = store
        self._root = f"{ROOT}{job}/"
        self._me = me
        self._most = most
        self._settle = settle
        self._lease = self._lasting = 0

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[None]:
        """This node is there while the context lasts."""
        self._lease, self._lasting = await self._store.grant(LEASE), await self._store.grant(LASTING)
        try:
            async with running(self._store.keep_alive(self._lease, LEASE), "node check: lease"):
                await self._put(f"{self._root}nodes/{self._me.node}", encode(self._me), self._lease)
                yield
        finally:
            await self._store.revoke(self._lease)

    async def plan(self, until: float) -> Plan | None:
        """The plan that this node is in; None where nobody else came. `until`: the loop's clock."""
        loop = asyncio.get_running_loop()
        seen, since = 0, loop.time()
        while True:
            plans = await self._written(Plan, "plans")
            for each in plans:
                if any(node.node == self._me.node for node in each.nodes):
                    return each if len(each.nodes) > 1 else None
            taken = {node.node for each in plans for node in each.nodes}
            here = [each for each in await self._written(Present, "nodes") if each.node not in taken]
            if len(here) != seen:
                seen, since = len(here), loop.time()
            full = len(here) + len(taken) >= self._most
            if full or loop.time() - since >= self._settle or loop.time() >= until:
                number = max((each.number for each in plans), default=0) + 1
                made = Plan(number, tuple(here[:MOST]))
                key = f"{self._root}plans/{number}"
                await self._store.txn((Compare(key, 0),), (Put(key, encode(made), self._lasting),), idempotent=True)
                continue  # whoever was first
            await asyncio.sleep(LOOK)

    async def turns(self, plan: Plan, run: Callable[[Place], Awaitable[Outcome]], until: float) -> Verdict:
        """Takes part in both turns, and returns what all of them say of this node."""
        names = [each.node for each in plan.nodes]
        hosts = {each.node: each for each in plan.nodes}
        mine = self._me.node
        for turn in range(TURNS):
            pair = next((each for each in pairs(names, turn) if mine in each), None)
            if pair is None:
                continue
            first = hosts[pair[0]]
            other = pair[1 - pair.index(mine)]
            place = Place(first.host, first.ports[turn], pair.index(mine))
            outcome = await self._unless_told(run(place), self._key(plan, turn, pair, other))
            told = encode(Told(outcome.speed, outcome.problem))
            await self._put(self._key(plan, turn, pair, mine), told, self._lasting)
        return judge(names, await self._outcomes(plan, names, until))[mine]

    async def _unless_told(self, work: Awaitable[Outcome], key: str) -> Outcome:
        """What comes of `work`, which is given up once the partner has told that it failed."""
        task = asyncio.ensure_future(work)
        try:
            while True:
                await asyncio.wait({task}, timeout=LOOK)
                if task.done():
                    return task.result()
                found = await self._store.get(key)
                if found and (why := decode_or_none(Told, found.value)) and why.problem:
                    return Outcome(problem=why.problem)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _outcomes(self, plan: Plan, names: list[str], until: float) -> Mapping[tuple[int, Pair], Outcome]:
        """Of all pairs, when both of each have told, or the time is over."""
        loop = asyncio.get_running_loop()
        wanted = {
            self._key(plan, turn, pair, node): (turn, pair)
            for turn in range(TURNS)
            for pair in pairs(names, turn)
            for node in pair
        }
        while True:
            told: dict[tuple[int, Pair], list[Told]] = {}
            for item in (await self._store.list(f"{self._root}told/{plan.number}/")).items:
                said = decode_or_none(Told, item.value)
                if said and item.key in wanted:
                    told.setdefault(wanted[item.key], []).append(said)
            if sum(map(len, told.values())) == len(wanted) or loop.time() >= until:
                return {key: _outcome(found) for key, found in told.items()}
            await asyncio.sleep(LOOK)

    def _key(self, plan: Plan, turn: int, pair: Pair, node: str) -> str:
        return f"{self._root}told/{plan.number}/{turn}/{pair[0]}/{pair[1]}/{node}"

    async def _put(self, key: str, value: bytes, lease: int) -> None:
        await self._store.txn((), (Put(key, value, lease),), idempotent=True)

    async def _written(self, kind: type[T], folder: str) -> list[T]:
        """In the order in which they were written."""
        items = (await self._store.list(f"{self._root}{folder}/")).items
        items = sorted(items, key=lambda item: item.create_revision)
        return [found for item in items if (found := decode_or_none(kind, item.value))]


def _outcome(told: list[Told]) -> Outcome:
    """Both must have had success; where only one has told, the other hangs or is gone."""
    problems = [each.problem for each in told if each.problem]
    if problems or len(told) < 2:
        return Outcome(problem=problems[0] if problems else "one of the two said nothing")
    return Outcome(speed=min(each.speed for each in told))
