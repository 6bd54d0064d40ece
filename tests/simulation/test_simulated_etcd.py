"""The real `EtcdStore` on a simulated etcd: what it promises when answers, members, leaders and wires are lost."""

import asyncio
import contextlib
import math
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from elastic_run.master.publish import Publisher
from elastic_run.rendezvous import election, membership, ranks
from elastic_run.rendezvous.base.errors import Compacted, LeaseLost, MaybeApplied, StoreRefused, StoreUnavailable
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member, Report
from elastic_run.rendezvous.peers import NodePeers, Peers
from elastic_run.rendezvous.ranks import Assignment
from elastic_run.rendezvous.reasons import AllJoined
from elastic_run.rendezvous.store.contract import Compare, Delete, Event, Put
from elastic_run.rendezvous.store.etcd.connections import AttemptFailed
from elastic_run.rendezvous.store.etcd.etcd_store import EtcdStore
from elastic_run.rendezvous.store.etcd.proto import elastic_run_etcd_pb2 as pb
from elastic_run.rendezvous.wire.values import decode

from .etcd import LEASE_CHECK, Client, Cluster
from .etcd_cluster import BATCH
from .kernel import Kernel, Process
from .network import Network

ROOT = Path(__file__).resolve().parents[2]
MEMBERS = ("m1", "m2", "m3")
TXN = "/etcdserverpb.KV/Txn"
LONG = 600.0
"""Seconds of the virtual clock after which a wait has failed."""

Body = Callable[[EtcdStore], Coroutine[Any, Any, Any]]


class Scene:
    """A cluster, and processes that use it."""

    def __init__(self, seed: int = 1, members: Sequence[str] = MEMBERS, **options: Any) -> None:
        self.network = Network(random.Random(f"network {seed}"))
        self.kernel = Kernel(self.network, random.Random(f"kernel {seed}"))
        self.chance = random.Random(f"scene {seed}")
        chance, behind = random.Random(f"etcd {seed}"), random.Random(f"behind {seed}")
        self.cluster = Cluster(members, self.network, self.kernel, chance, behind=behind, **options)
        self.seen: list[tuple[float, int, tuple[Event, ...], str]] = []
        self.clients: dict[str, Client] = {}
        self.cluster.observe(lambda *what: self.seen.append(what))

    def start(self, body: Body, machine: str = "A", *, deadline: float = 10.0) -> Process:
        """A process with a store of its own."""

        async def main() -> Any:
            client = self.clients[machine] = Client(self.cluster, self.network, machine)
            store = EtcdStore(client, deadline=deadline, now=asyncio.get_running_loop().time)
            try:
                return await body(store)
            finally:
                await store.close()

        return self.kernel.spawn(machine, machine, main)

    def end(self, process: Process) -> Any:
        """What it returns, or raises."""
        self.kernel.run(until=self.kernel.now + LONG, stop=process.main.done)
        assert process.main.done(), f"{process.name} waits for ever"
        return process.main.result()

    def live(self, body: Body, machine: str = "A", *, deadline: float = 10.0) -> Any:
        """A process from its start to its end."""
        return self.end(self.start(body, machine, deadline=deadline))

    def wait(self, seconds: float) -> None:
        """Time passes."""
        self.kernel.run(until=self.kernel.now + seconds)

    def later(self, seconds: float, what: Callable[..., object], *arguments: object) -> None:
        """A fault that is to come."""
        self.cluster.after(seconds, what, *arguments)

    def values(self) -> list[bytes]:
        """All that was ever put, in order."""
        return [event.kv.value for _, _, events, _ in self.seen for event in events if event.kind == "put"]

    def cut(self, one: str, other: str) -> None:
        """Both ways."""
        self.network.cut(one, other)
        self.network.cut(other, one)

    def leader(self) -> str:
        """Who leads."""
        assert self.cluster.leader is not None
        return self.cluster.leader

    def used_by(self, machine: str) -> str:
        """The member that a client's store asks."""
        return self.clients[machine].current.member.name


@pytest.fixture
def make() -> Iterator[Callable[..., Scene]]:
    """`make(seed, members)` is a scene that is closed at the end of the test."""
    scenes: list[Scene] = []

    def scene(*arguments: Any, **options: Any) -> Scene:
        scenes.append(Scene(*arguments, **options))
        return scenes[-1]

    yield scene
    errors = [error for scene in scenes for error in scene.kernel.errors]
    for each in scenes:
        each.kernel.close()
    assert errors == []


@pytest.fixture
def scene(make: Callable[..., Scene]) -> Scene:
    """Three members."""
    return make()


async def write(store: EtcdStore, value: bytes, key: str = "/w/a") -> None:
    """Once, for certain."""
    await store.txn([], [Put(key, value)])


def reading(values: list[bytes], until: bytes | None = None, *, since: int = 1) -> Body:
    """Watches, into `values`."""

    async def read(store: EtcdStore) -> None:
        async with contextlib.aclosing(store.watch("/w/", since, prefix=True)) as watch:
            async for events in watch:
                values.extend(event.kv.value for event in events)
                if until is not None and until in values:
                    return

    return read


# Answers that are lost


def test_a_write_whose_answer_is_lost_may_have_been_applied_and_was(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        scene.cluster.lose_answers(1.0)
        with pytest.raises(MaybeApplied):
            await write(store, b"x")
        scene.cluster.lose_answers(0.0)
        kv = await store.get("/w/a")
        assert kv is not None
        assert kv.value == b"x"

    scene.live(body)
    assert scene.values() == [b"x"]


def test_an_idempotent_write_whose_answer_is_lost_is_issued_again(scene: Scene) -> None:
    async def body(store: EtcdStore) -> bool:
        scene.cluster.lose_answers(1.0)
        scene.later(0.3, scene.cluster.lose_answers, 0.0)
        return (await store.txn([], [Put("/w/a", b"x")], idempotent=True)).succeeded

    assert scene.live(body)
    assert scene.values() == [b"x", b"x"]


def test_a_fenced_write_that_is_issued_again_fails_on_its_own_traces(scene: Scene) -> None:
    async def body(store: EtcdStore) -> bool:
        scene.cluster.lose_answers(1.0)
        scene.later(0.3, scene.cluster.lose_answers, 0.0)
        return (await store.txn([Compare("/w/a", 0)], [Put("/w/a", b"x")], idempotent=True)).succeeded

    assert not scene.live(body)
    assert scene.values() == [b"x"]


def test_a_lease_is_granted_once_though_the_answer_was_lost(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        scene.cluster.lose_answers(1.0)
        scene.later(0.3, scene.cluster.lose_answers, 0.0)
        lease = await store.grant(60)
        await store.txn([], [Put("/w/a", b"x", lease)])

    scene.live(body)
    assert len(scene.cluster.engine.leases) == 1


def test_a_write_that_nobody_took_was_certainly_not_applied(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        scene.cluster.kill_all()
        with pytest.raises(StoreUnavailable) as caught:
            await write(store, b"x")
        assert not isinstance(caught.value, MaybeApplied)

    scene.live(body)
    assert scene.seen == []


def test_the_write_of_a_client_that_dies_meanwhile_is_applied(scene: Scene) -> None:
    process = scene.start(lambda store: write(store, b"x"))
    scene.wait(0.0)
    while not any(endpoint.ready for endpoint in scene.clients["A"].all):
        scene.wait(0.0001)
    scene.wait(0.0001)

    process.kill()
    scene.wait(5.0)

    assert scene.values() == [b"x"]


def test_what_etcd_refuses_is_refused_in_its_words(scene: Scene) -> None:
    async def ask(path: str, request: Any, answer: Any) -> str:
        client = Client(scene.cluster, scene.network, "A")
        until = asyncio.get_running_loop().time() + 5.0
        with pytest.raises(AttemptFailed) as caught:
            await client.current.call(path, request, answer, 5.0, until, (("hasleader", "true"),))
        await client.close()
        return str(caught.value)

    async def body(_: EtcdStore) -> None:
        puts = [pb.RequestOp(request_put=pb.PutRequest(key=b"%d" % number)) for number in range(129)]
        txn, answer = "/etcdserverpb.KV/Txn", pb.TxnResponse
        assert "too many operations in txn request" in await ask(txn, pb.TxnRequest(success=puts), answer)
        large = [pb.RequestOp(request_put=pb.PutRequest(key=b"a", value=bytes(1_600_000)))]
        assert "request is too large" in await ask(txn, pb.TxnRequest(success=large), answer)
        twice = [puts[0], puts[0]]
        assert "duplicate key given in txn request" in await ask(txn, pb.TxnRequest(success=twice), answer)
        request = pb.RangeRequest(key=b"a", revision=99)
        said = await ask("/etcdserverpb.KV/Range", request, pb.RangeResponse)
        assert "required revision is a future revision" in said

    scene.live(body)
    assert scene.seen == []


# A slow disk


def test_a_write_that_needs_more_than_a_short_attempt_succeeds(make: Callable[..., Scene]) -> None:
    for members in (("m1",), MEMBERS):
        for seconds in (2.2, 3.5):
            scene = make(1, members)
            scene.cluster.write_seconds = seconds

            async def body(store: EtcdStore) -> None:
                for _ in range(2):  # calls that may be spent on learning how long it takes
                    with contextlib.suppress(StoreUnavailable):
                        await store.txn([], [Put("/w/a", b"first")], idempotent=True)
                await store.txn([], [Put("/w/a", b"second")], idempotent=True)
                await store.revoke(await store.grant(5))

            scene.live(body)
            assert scene.values()[-1] == b"second"


def test_a_lease_is_renewed_and_a_key_is_read_as_ever_while_writes_take_long(scene: Scene) -> None:
    async def body(store: EtcdStore) -> float:
        loop = asyncio.get_running_loop()
        scene.cluster.write_seconds = 3.0
        while True:
            with contextlib.suppress(StoreUnavailable):
                await store.txn([], [Put("/w/a", b"a")], idempotent=True)
                break
        scene.cluster.freeze(next(name for name in MEMBERS if name != scene.leader()))
        slowest = 0.0
        for _ in range(6):
            began = loop.time()
            await store.get("/w/a")
            slowest = max(slowest, loop.time() - began)
        return slowest

    assert scene.live(body) < 2.5


# Members that are lost


def test_writes_go_on_when_the_leader_is_killed(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        await write(store, b"before")
        scene.cluster.kill(scene.leader())
        await store.txn([], [Put("/w/a", b"after")], idempotent=True)

    term = scene.cluster.term
    scene.live(body)
    assert scene.cluster.term > term
    assert scene.values()[-1] == b"after"


def test_a_write_that_a_leader_took_with_it_is_in_doubt_and_both_happens(make: Callable[..., Scene]) -> None:
    applied: set[bool] = set()
    for seed in range(40):
        scene = make(seed)

        async def body(store: EtcdStore, scene: Scene = scene) -> None:
            await write(store, b"before")
            scene.cluster.hiccup(0.1)
            scene.later(0.05, scene.cluster.kill, scene.leader())
            with pytest.raises(MaybeApplied):
                await write(store, b"in doubt")
            await store.txn([], [Put("/w/b", b"after")], idempotent=True)

        scene.live(body)
        scene.wait(5.0)
        applied.add(b"in doubt" in scene.values())
        if len(applied) == 2:
            return
    pytest.fail(f"in 40 seeds it was always applied, or never: {applied}")


def test_a_minority_answers_nobody(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        await write(store, b"before")
        others = [member for member in MEMBERS if member != scene.leader()]
        for member in others:
            scene.cluster.freeze(member)
        with pytest.raises(StoreUnavailable):
            await store.get("/w/a")
        for member in others:
            scene.cluster.thaw(member)
        await store.txn([], [Put("/w/a", b"after")], idempotent=True)

    scene.live(body, deadline=3.0)
    assert scene.values()[-1] == b"after"


def test_a_leader_that_is_cut_off_from_the_others_leads_no_more(scene: Scene) -> None:
    old = scene.leader()

    async def body(store: EtcdStore) -> None:
        await write(store, b"before")
        for member in MEMBERS:
            if member != old:
                scene.cut(old, member)
        await store.txn([], [Put("/w/a", b"after")], idempotent=True)

    scene.live(body)
    assert scene.leader() != old
    assert scene.values()[-1] == b"after"


def test_a_member_without_data_of_its_own_serves_what_the_others_have(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        await write(store, b"before")
        for member in MEMBERS:
            scene.cluster.kill(member)
            await store.txn([], [Put("/w/a", member.encode())], idempotent=True)
            scene.cluster.start(member)
        kv = await store.get("/w/a")
        assert kv is not None
        assert kv.value == b"m3"

    scene.live(body)


def test_a_lone_machine_that_is_off_says_nothing_and_one_whose_member_died_refuses(
    make: Callable[..., Scene],
) -> None:
    def words(hurt: Callable[[Scene], None]) -> str:
        scene = make(1, ["m1"])

        async def body(store: EtcdStore) -> str:
            hurt(scene)
            with pytest.raises(StoreUnavailable) as caught:
                await store.get("/w/a")
            return str(caught.value)

        return scene.live(body, deadline=1.0)

    assert "refused" in words(lambda scene: scene.cluster.kill("m1"))
    assert "no connection within" in words(lambda scene: scene.network.power("m1", on=False))


def test_the_loss_of_the_store_is_seen_by_its_health_on_the_clock_of_the_loop(scene: Scene) -> None:
    async def body(store: EtcdStore) -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        assert abs(store.health.since - loop.time()) < 1.0
        await write(store, b"x")
        scene.later(5.0, scene.cluster.kill_all)
        watching = asyncio.create_task(reading([])(store))
        before = loop.time()
        health = await store.health_changed()
        watching.cancel()
        await asyncio.wait([watching])
        assert not health.reachable
        return before, health.since

    before, since = scene.live(body)
    assert since >= before + 5.0


@pytest.mark.parametrize("another", [True, False])
def test_a_cluster_that_lost_its_data_is_refused(scene: Scene, another: bool) -> None:
    async def body(store: EtcdStore) -> None:
        watching = asyncio.create_task(reading([])(store))
        for number in range(5):
            await write(store, b"%d" % number)
        scene.cluster.lose_data(another=another)
        with pytest.raises(StoreRefused, match="another etcd cluster" if another else "lost data"):
            await store.get("/w/a")
        with pytest.raises(StoreRefused):
            await watching

    scene.live(body)


# Watches


def kill_and_start(scene: Scene, member: str) -> None:
    """It is back after two seconds."""
    scene.cluster.kill(member)
    scene.later(2.0, scene.cluster.start, member)


def freeze_and_thaw(scene: Scene, member: str) -> None:
    """It goes on after 15 seconds."""
    scene.cluster.freeze(member)
    scene.later(15.0, scene.cluster.thaw, member)


def cut_and_heal(scene: Scene, member: str) -> None:
    """The reader does not reach it for 15 seconds."""
    scene.cut("B", member)
    scene.later(15.0, scene.network.heal)


def isolate_and_heal(scene: Scene, member: str) -> None:
    """The other members do not reach it."""
    for other in MEMBERS:
        if other != member:
            scene.cut(other, member)
    scene.later(15.0, scene.network.heal)


def all_down(scene: Scene, _: str) -> None:
    """For five seconds."""
    scene.cluster.kill_all()
    scene.later(5.0, scene.cluster.start_all)


def elect(scene: Scene, _: str) -> None:
    """Another leads."""
    scene.cluster.transfer_leadership()


def drop(scene: Scene, _: str) -> None:
    """The session gives up its streams, as it does when a call gets no answer."""
    for endpoint in scene.clients["B"].all:
        endpoint.drop_streams()


def lossy(scene: Scene, _: str) -> None:
    """A third of all messages is lost."""
    scene.network.lose("*", "*", 0.3)
    scene.later(20.0, scene.network.heal)


BREAKS = [kill_and_start, freeze_and_thaw, cut_and_heal, isolate_and_heal, all_down, elect, drop, lossy]


@pytest.mark.parametrize("hurt", BREAKS, ids=lambda hurt: hurt.__name__)
def test_a_watch_loses_and_repeats_nothing_after(make: Callable[..., Scene], hurt: Callable[..., None]) -> None:
    for seed in range(5):
        scene = make(seed)
        values: list[bytes] = []
        reader = scene.start(reading(values, b"last"), "B")

        async def body(store: EtcdStore, scene: Scene = scene) -> None:
            for number in range(60):
                if number == 20:
                    hurt(scene, scene.used_by("B"))
                await asyncio.sleep(0.5)
                with contextlib.suppress(StoreUnavailable):
                    await write(store, b"%d" % number)
            await asyncio.sleep(20.0)
            await store.txn([], [Put("/w/a", b"last")], idempotent=True)

        scene.live(body)
        scene.end(reader)
        assert values == scene.values()[: len(values)]
        assert values[-1] == b"last"
        assert len(set(values)) > 40


def test_watches_of_different_nodes_see_a_change_at_quite_different_times(make: Callable[..., Scene]) -> None:
    scene = make(lag=(0.0, 0.5))
    scene.cluster.lags["B"] = 3.0
    times: dict[str, float] = {}

    def reader(name: str) -> Body:
        async def read(store: EtcdStore) -> None:
            await reading([], b"x")(store)
            times[name] = scene.kernel.now

        return read

    readers = [scene.start(reader(name), name) for name in "BCD"]
    scene.wait(1.0)
    scene.live(lambda store: write(store, b"x"))
    for process in readers:
        scene.end(process)

    assert times["B"] > times["C"] + 2
    assert times["C"] != times["D"]


def test_a_watch_that_comes_back_too_late_is_told_that_the_history_is_gone(scene: Scene) -> None:
    values: list[bytes] = []
    reader = scene.start(reading(values), "B")

    async def body(store: EtcdStore) -> None:
        await write(store, b"before")
        await asyncio.sleep(5.0)
        for member in MEMBERS:
            scene.cut("B", member)
        await write(store, b"missed")
        await write(store, b"kept")
        scene.cluster.compact()
        await asyncio.sleep(5.0)
        scene.network.heal()

    scene.live(body)
    with pytest.raises(Compacted) as caught:
        scene.end(reader)
    assert values == [b"before"]
    assert caught.value.revision == scene.cluster.engine.revision


def test_nobody_sends_to_a_client_that_is_dead(scene: Scene) -> None:
    reader = scene.start(reading([]), "B")
    scene.wait(1.0)
    assert sum(len(member.watches) for member in scene.cluster.members.values()) == 1

    reader.kill()
    scene.live(lambda store: write(store, b"x"))
    scene.wait(1.0)

    assert sum(len(member.watches) for member in scene.cluster.members.values()) == 0


def test_a_firewall_refuses_new_connections_and_leaves_those_that_stand(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        await write(store, b"before")
        scene.network.refuse("*", "*")
        await write(store, b"after")

    async def late(store: EtcdStore) -> None:
        with pytest.raises(StoreUnavailable, match="refused"):
            await store.get("/w/a")

    scene.live(body)
    scene.live(late, "B")


def test_a_firewall_that_resets_what_stands_fails_what_waits_for_an_answer(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        await write(store, b"before")
        scene.network.refuse("*", "*")
        scene.cluster.reset("*", "*")
        with pytest.raises(StoreUnavailable, match="refused"):
            await store.get("/w/a")

    scene.live(body)


def test_a_watch_is_told_what_it_has_missed_in_several_messages_none_of_which_says_too_much(scene: Scene) -> None:
    values: list[bytes] = []
    reader = scene.start(reading(values, b"last"), "B")

    async def body(store: EtcdStore) -> None:
        await write(store, b"before")
        for member in MEMBERS:
            scene.cut("B", member)
        for number in range(3 * BATCH):
            await write(store, b"%d" % number)
        await write(store, b"last")
        scene.network.heal()

    scene.live(body)
    scene.end(reader)
    assert values == [b"before", *(b"%d" % number for number in range(3 * BATCH)), b"last"]


# Leases


def holding(lease_seconds: int, *, keep: bool) -> Body:
    """Holds a key by a lease."""

    async def hold(store: EtcdStore) -> None:
        lease = await store.grant(lease_seconds)
        await store.txn([], [Put("/w/leased", b"x", lease)])
        if keep:
            await store.keep_alive(lease, lease_seconds)
        await asyncio.sleep(LONG)

    return hold


def gone_after(scene: Scene) -> float | None:
    """Seconds from the put of the leased key to its end."""
    put = next(at for at, _, events, _ in scene.seen if events[0].kind == "put")
    return next((at - put for at, _, events, _ in scene.seen if events[0].kind == "delete"), None)


def test_a_lease_that_nobody_keeps_expires_late(make: Callable[..., Scene]) -> None:
    lateness: list[float] = []
    for seed in range(20):
        scene = make(seed)
        scene.start(holding(3, keep=False))
        scene.wait(10.0)
        after = gone_after(scene)
        assert after is not None
        assert scene.seen[-1][3] == ""
        lateness.append(after - 3)

    assert all(-0.1 < late < LEASE_CHECK + 0.1 for late in lateness)
    assert max(lateness) > 0.1


def test_a_lease_that_is_kept_stays_through_elections(scene: Scene) -> None:
    scene.start(holding(3, keep=True))
    for _ in range(5):
        scene.wait(5.0)
        kill_and_start(scene, scene.leader())
    scene.wait(10.0)

    assert gone_after(scene) is None


def test_the_lease_of_a_frozen_client_expires_and_it_is_told_when_it_goes_on(scene: Scene) -> None:
    process = scene.start(holding(3, keep=True))
    scene.wait(10.0)
    process.freeze()
    scene.wait(10.0)
    assert gone_after(scene) is not None

    process.thaw()

    with pytest.raises(LeaseLost):
        scene.end(process)


def test_without_a_quorum_no_lease_expires_and_a_new_leader_extends_it(scene: Scene) -> None:
    scene.start(holding(3, keep=False))
    scene.wait(1.0)
    for member in ("m1", "m2"):
        scene.cluster.kill(member)
    scene.wait(60.0)
    assert gone_after(scene) is None

    for member in ("m1", "m2"):
        scene.cluster.start(member)
    scene.wait(2.0)
    assert gone_after(scene) is None
    scene.wait(5.0)

    assert gone_after(scene) is not None


async def writes_and_moves_on(store: EtcdStore, scene: Scene) -> int:
    """The last revision; then the store's member is killed, so that it asks another one."""
    while scene.used_by("A") == scene.leader():
        scene.cluster.transfer_leadership()
    for number in range(40):
        written = await store.txn([], [Put("/w/a", str(number).encode())])
    scene.cluster.kill(scene.used_by("A"))
    await asyncio.sleep(0.02)
    return written.revision


def test_a_lost_lease_is_told_from_lost_data_also_by_a_member_that_lags(make: Callable[..., Scene]) -> None:
    for seed in range(20):
        scene = make(seed)

        async def body(store: EtcdStore, scene: Scene = scene) -> None:
            lease = await store.grant(60)
            await store.revoke(lease)
            await writes_and_moves_on(store, scene)
            with pytest.raises(LeaseLost):
                await store.keep_alive(lease, 3)

        scene.live(body)


def test_a_member_that_lags_answers_a_transaction_without_operations_by_itself(make: Callable[..., Scene]) -> None:
    behind: set[int] = set()
    for seed in range(20):
        scene = make(seed)

        async def body(store: EtcdStore, scene: Scene = scene) -> int:
            written = await writes_and_moves_on(store, scene)
            await store.status()  # by now it has moved on
            endpoint = scene.clients["A"].current
            assert scene.used_by("A") in MEMBERS
            own = await endpoint.call(TXN, pb.TxnRequest(), pb.TxnResponse, 1.0, math.inf, ())
            assert (await store.txn([], [])).revision == written
            later = await endpoint.call(TXN, pb.TxnRequest(), pb.TxnResponse, 1.0, math.inf, ())
            assert later.header.revision == written, "it has caught up to answer the read"
            return written - own.header.revision

        behind.add(scene.live(body))
    assert min(behind) == 0 and max(behind) > 5, behind


def test_the_keys_of_a_lease_go_in_one_revision(scene: Scene) -> None:
    async def body(store: EtcdStore) -> None:
        lease = await store.grant(2)
        for name in "abc":
            await store.txn([], [Put(f"/w/{name}", b"x", lease)])
        await asyncio.sleep(5.0)

    scene.live(body)
    assert [event.kv.key for event in scene.seen[-1][2]] == ["/w/a", "/w/b", "/w/c"]


# Everything at once


class Writer:
    """Writes numbers of its own and keeps what it was told of each."""

    def __init__(self, name: str, scene: Scene, count: int) -> None:
        self.name, self.scene, self.count = name, scene, count
        self.sure: list[bytes] = []
        self.never: list[bytes] = []

    async def run(self, store: EtcdStore) -> None:
        for number in range(self.count):
            value = f"{self.name}{number}".encode()
            await asyncio.sleep(self.scene.chance.uniform(0.0, 1.0))
            try:
                kv = await store.get(f"/w/{self.name}")
                compare = Compare(f"/w/{self.name}", kv.mod_revision if kv else 0, "mod")
                if (await store.txn([compare], [Put(f"/w/{self.name}", value)])).succeeded:
                    self.sure.append(value)
                else:
                    self.never.append(value)
            except MaybeApplied:
                continue
            except StoreUnavailable:
                self.never.append(value)


def hurt_at_random(scene: Scene, seconds: float) -> None:
    """A fault now and then."""
    chance, cluster, network = scene.chance, scene.cluster, scene.network
    if scene.kernel.now > seconds:
        return
    member, machine = chance.choice(MEMBERS), chance.choice("ABCD")
    lasting = chance.uniform(0.1, 12.0)
    match chance.randrange(9):
        case 0:
            cluster.kill(member)
            scene.later(lasting, cluster.start, member)
        case 1:
            cluster.freeze(member)
            scene.later(lasting, cluster.thaw, member)
        case 2:
            scene.cut(member, chance.choice([other for other in MEMBERS if other != member]))
            scene.later(lasting, network.heal)
        case 3:
            scene.cut(member, machine)
            scene.later(lasting, network.heal)
        case 4:
            network.cut(*chance.sample((member, machine), 2))
            scene.later(lasting, network.heal)
        case 5:
            cluster.lose_answers(0.3)
            scene.later(lasting, cluster.lose_answers, 0.0)
        case 6:
            network.lose("*", "*", 0.2)
            scene.later(lasting, network.heal)
        case 7:
            cluster.hiccup(lasting / 8)
        case _:
            cluster.transfer_leadership()
    scene.later(chance.uniform(0.5, 6.0), hurt_at_random, scene, seconds)


def story(seed: int) -> list[str]:
    """Three writers, two readers and many faults; checks what everybody was told against the truth."""
    kept, secrets.randbits = secrets.randbits, random.Random(seed).getrandbits
    scene = Scene(seed)
    try:
        writers = [Writer(name, scene, 40) for name in "ABC"]
        values: dict[str, list[bytes]] = {"D": [], "E": []}
        readers = [scene.start(reading(found, b"last"), name) for name, found in values.items()]
        scene.later(1.0, hurt_at_random, scene, 50.0)
        for process in [scene.start(writer.run, writer.name) for writer in writers]:
            scene.end(process)
        scene.kernel.run(until=max(scene.kernel.now, 50.0) + 40.0)
        assert [member.name for member in scene.cluster.members.values() if not member.up or member.frozen] == []
        scene.live(lambda store: store.txn([], [Put("/w/last", b"last")], idempotent=True))
        for reader in readers:
            scene.end(reader)
        assert scene.kernel.errors == []
        truth = scene.values()
        for found in values.values():
            assert found == truth[: len(found)], f"seed {seed}"
        for writer in writers:
            assert [truth.count(value) for value in writer.sure] == [1] * len(writer.sure), f"seed {seed}"
            assert [value for value in writer.never if value in truth] == [], f"seed {seed}"
        assert [revision for _, revision, _, _ in scene.seen] == list(range(2, len(scene.seen) + 2))
        return [f"{at:.9f} {revision} {who} {events}" for at, revision, events, who in scene.seen]
    finally:
        scene.kernel.close()
        secrets.randbits = kept


@pytest.mark.parametrize("seed", range(30))
def test_whatever_happens_everybody_is_told_the_truth(seed: int) -> None:
    assert len(story(seed)) > 40


def test_one_seed_is_one_story_in_every_interpreter() -> None:
    here = "\n".join(story(7))
    assert here != "\n".join(story(8))
    code = "from tests.simulation.test_simulated_etcd import story; print('\\n'.join(story(7)))"
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.rstrip("\n") == here


@pytest.mark.parametrize("taken_up", [False, True])
def test_what_a_frozen_member_has_not_answered_may_be_applied_when_it_goes_on(
    make: Callable[..., Scene], taken_up: bool
) -> None:
    applied: set[bool] = set()
    for seed in range(40):
        scene = make(seed, ["m1"])

        async def body(store: EtcdStore, scene: Scene = scene) -> None:
            await write(store, b"before")
            if taken_up:
                scene.cluster.hiccup(0.1)
                scene.later(0.05, scene.cluster.freeze, "m1")
            else:
                scene.cluster.freeze("m1")
            with pytest.raises(MaybeApplied):
                await write(store, b"late")
            assert scene.values() == [b"before"]
            scene.cluster.thaw("m1")
            await asyncio.sleep(1.0)

        scene.live(body)
        applied.add(b"late" in scene.values())
        if len(applied) == 2:
            return
    pytest.fail(f"in 40 seeds it was always applied, or never: {applied}")


def test_a_report_that_was_issued_again_never_undoes_a_later_one(make: Callable[..., Scene]) -> None:
    for seed in range(20):
        scene = make(seed)
        keys = Keys("job")

        async def body(store: EtcdStore, scene: Scene = scene, keys: Keys = keys) -> Member:
            fingerprint = Fingerprint("train.py", (), "2:3", "1", "0")
            member = Member("A", "life", "A.host", "A", 1, (5001, 5002), fingerprint)
            registration = await membership.register(store, keys, member, await store.grant(60))
            slow = scene.used_by("A")
            scene.cluster.freeze(slow)
            for report in (Report("running", 1), Report("succeeded", 1)):
                written = await membership.report(store, keys, registration, report, (5001, 5002))
                assert written is not None
            scene.cluster.thaw(slow)
            await asyncio.sleep(2.0)
            found = await store.get(registration.key)
            assert found is not None
            return decode(Member, found.value)

        assert scene.live(body).report.state == "succeeded", f"seed {seed}"


def header(number: int, prefix: str) -> Header:
    """Of an open round."""
    return Header(
        number, "run", "open", "start", AllJoined(1), Fingerprint("train.py", (), "1", "1", "0"), prefix=prefix, nodes=1
    )


def assignments(number: int) -> Sequence[Assignment]:
    """Of a round of one node."""
    fingerprint = Fingerprint("train.py", (), "1", "1", "0")
    return ranks.assign(number, [Member("A", "life", "A.host", "A", 1, (5001,), fingerprint)])


def peers(number: int) -> Sequence[Peers]:
    """Of a round of one node with one worker."""
    return (Peers(number, (NodePeers("A.host", "default", 0, 1, (6001,)),)),)


async def drops_what_an_earlier_run_left(publisher: Publisher, freeze: Callable[[], None]) -> set[str]:
    keys, store = publisher.keys, publisher.store
    await store.txn([], [Put(keys.round, b"an earlier run's"), Put(keys.ledger("set"), b"its leases")])
    found = await store.get(keys.round)
    publisher.header_revision = found.mod_revision if found else 0
    freeze()
    await publisher.drop_data(queues=True)
    await publisher.put_header(header(1, ""))
    await store.txn([publisher.leadership.fence], [Put(keys.ledger("set"), b"this run's leases")])
    return {keys.leader, keys.round, keys.ledger("set")}


async def publishes_two_rounds(publisher: Publisher, freeze: Callable[[], None]) -> set[str]:
    first, second = publisher.prefix(1), publisher.prefix(2)
    freeze()
    await publisher.open(header(1, first), assignments(1), "", lambda: True, peers(1))
    await publisher.open(header(2, second), assignments(2), first, lambda: True, peers(2))
    keys = publisher.keys
    return {keys.leader, keys.round, keys.assignment(second, "A"), keys.peers(second, 0)}


async def withdraws_a_round(publisher: Publisher, freeze: Callable[[], None]) -> set[str]:
    freeze()
    await publisher.open(header(1, publisher.prefix(1)), assignments(1), "", lambda: False)
    await asyncio.sleep(3.0)  # the frozen member goes on meanwhile
    prefix = publisher.prefix(1)
    await publisher.open(header(1, prefix), assignments(1), "", lambda: True)
    return {publisher.keys.leader, publisher.keys.round, publisher.keys.assignment(prefix, "A")}


async def goes_on_with_a_run_whose_node_is_back(publisher: Publisher, freeze: Callable[[], None]) -> set[str]:
    keys, store = publisher.keys, publisher.store
    await publisher.put_header(header(1, ""))
    await store.txn([], [Put(keys.node("B"), b"it is back")])
    freeze()
    assert not await publisher.abandon([("B", "its life")])
    await publisher.put_header(header(2, ""))
    await store.txn([publisher.leadership.fence], [Delete(keys.node("B"))])  # its lease has ended again
    return {keys.leader, keys.round}


WRITES = [
    drops_what_an_earlier_run_left,
    publishes_two_rounds,
    withdraws_a_round,
    goes_on_with_a_run_whose_node_is_back,
]


@pytest.mark.parametrize("write", WRITES)
def test_no_write_of_a_master_does_harm_when_it_is_applied_late(
    make: Callable[..., Scene], write: Callable[[Publisher, Callable[[], None]], Coroutine[Any, Any, set[str]]]
) -> None:
    """A frozen member of the store applies an attempt that was repeated elsewhere long before."""
    for seed in range(40):
        scene = make(seed)
        keys = Keys("job")

        async def body(store: EtcdStore, scene: Scene = scene, keys: Keys = keys) -> tuple[set[str], set[str]]:
            lease = await store.grant(60)
            won = await election.campaign(store, keys, Leader("A", "life", "A:1"), lease)
            assert isinstance(won, election.Leadership)
            slow = scene.used_by("A")

            def freeze() -> None:
                scene.cluster.freeze(slow)
                scene.later(2.5, scene.cluster.thaw, slow)

            expected = await write(Publisher(store, keys, won, lease, 0), freeze)
            await asyncio.sleep(3.0)
            return {item.key for item in (await store.list(keys.root)).items}, expected

        found, expected = scene.live(body)
        assert found == expected, f"seed {seed}"


def test_a_call_costs_little(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    rounds = 2000

    async def body(store: EtcdStore) -> tuple[float, float, float]:
        await write(store, b"x")
        marks = [time.process_time()]
        for _ in range(rounds):
            await store.get("/w/a")
        marks.append(time.process_time())
        for _ in range(rounds):
            await write(store, b"x")
        marks.append(time.process_time())
        for _ in range(rounds):
            await store.list("/w/")
        marks.append(time.process_time())
        first, second, third, last = marks
        return second - first, third - second, last - third

    def each(seconds: float) -> str:
        return f"{1e6 * seconds / rounds:.0f}"

    scene.start(reading([]), "B")
    get, txn, listing = scene.live(body)
    with capsys.disabled():
        print(
            f"\nsimulated etcd, microseconds of CPU: {each(get)} per get, {each(listing)} per list, "
            f"{each(txn)} per txn that one watch sees"
        )
    assert len(scene.seen) == rounds + 1
