"""Where all workers of a round are: what is published of it, how large that is, and what a node makes of it."""

import asyncio
import dataclasses
from collections.abc import Mapping, Sequence

import pytest

from elastic_run.master.publish import Publisher
from elastic_run.rendezvous import election, membership, peers
from elastic_run.rendezvous.base.errors import Unreadable
from elastic_run.rendezvous.header import Header, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import MAX_WORKER_PORTS, Fingerprint, Member
from elastic_run.rendezvous.peers import CHUNK, NodePeers, Peers
from elastic_run.rendezvous.ranks import PORT_SETS, Assignment, assign
from elastic_run.rendezvous.reasons import AllJoined
from elastic_run.rendezvous.store.contract import MAX_VALUE_BYTES
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.wire.values import encode

FINGERPRINT = Fingerprint("train.py", (), "1:1000", "8", "0")


def nodes(count: int, nproc: int = 2, ports: int = 1) -> list[Member]:
    held = tuple(range(20000, 20000 + nproc * ports * PORT_SETS))
    member = Member("n", "life", "host", "", nproc, (5001,), FINGERPRINT, worker_ports=held)
    return [
        dataclasses.replace(member, node=f"n{each}", incarnation=f"i{each}", host=f"h{each}") for each in range(count)
    ]


def chunks(number: int, members: Sequence[Member]) -> tuple[Peers, ...]:
    return peers.chunks(number, members, assign(number, members))


def test_each_worker_has_its_ports_and_other_ones_in_the_next_round() -> None:
    (found,) = chunks(1, nodes(2))
    assert found.nodes == (
        NodePeers("h0", "default", 0, 2, (20000, 20001)),
        NodePeers("h1", "default", 2, 2, (20000, 20001)),
    )
    before = {each.incarnation: each for each in assign(1, nodes(2))}
    (after,) = peers.chunks(2, nodes(2), assign(2, nodes(2), before=before))
    assert after.nodes[0].ports == (20002, 20003)


def test_workers_that_start_anew_after_others_did_alone_have_other_ports_than_before() -> None:
    members = nodes(2)
    ports: list[list[tuple[int, ...]]] = []
    before: Mapping[str, Assignment] = {}
    for number, untouched in ((1, {}), (2, {"i1": 1}), (3, {"i0": 2})):
        given = assign(number, members, before=before, untouched=untouched)
        (found,) = peers.chunks(number, members, given)
        ports.append([each.ports for each in found.nodes])
        before = {each.incarnation: each for each in given}
    first, second = (20000, 20001), (20002, 20003)
    assert ports == [[first, first], [second, first], [second, second]]


def test_workers_of_a_node_that_has_registered_again_have_other_ports_than_before() -> None:
    members = [dataclasses.replace(each, agent_address=f"{each.node}:1") for each in nodes(2)]
    before = {each.incarnation: each for each in assign(1, members)}
    again = [members[0], dataclasses.replace(members[1], incarnation="another")]
    (found,) = peers.chunks(2, again, assign(2, again, before=before))
    assert [each.ports for each in found.nodes] == [(20002, 20003), (20002, 20003)]


def test_where_no_node_holds_ports_nothing_is_published() -> None:
    assert chunks(1, nodes(300, ports=0)) == ()


def test_the_values_of_a_thousand_nodes_with_eight_workers_are_few_and_small() -> None:
    found = chunks(1, nodes(1000, 8))
    assert len(found) == 14
    assert sum(len(encode(each)) for each in found) < 150_000


@pytest.mark.parametrize("fill", ["x", "ä", "𝄞"])
def test_the_largest_value_fits_the_store(fill: str) -> None:
    ports = (65535,) * (MAX_WORKER_PORTS // PORT_SETS)
    largest = Peers(2**53 - 1, (NodePeers(fill * 253, fill * 253, 2**53 - 1, 1024, ports),) * CHUNK)
    assert len(encode(largest)) < MAX_VALUE_BYTES
    assert len(encode(dataclasses.replace(nodes(1)[0], worker_ports=ports * PORT_SETS))) < MAX_VALUE_BYTES / 10


def test_they_are_joined_in_rank_order_whatever_the_order_in_which_they_are_read() -> None:
    found = chunks(1, nodes(250))
    assert [peer.first_rank for peer in peers.joined(reversed(found), 500, 1)] == [*range(0, 500, 2)]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_value_is_noticed(missing: int) -> None:
    found = [each for index, each in enumerate(chunks(1, nodes(250))) if index != missing]
    with pytest.raises(ValueError, match="of 500 workers only the first"):
        peers.joined(found, 500, 1)


def test_ports_that_are_missing_are_noticed() -> None:
    with pytest.raises(ValueError, match="of 2 workers only the first 0"):
        peers.joined([Peers(1, (NodePeers("h", "default", 0, 2, (1, 2, 3)),))], 2, 2)


def test_they_are_read_while_their_round_is_the_current_one_and_are_removed_with_it() -> None:
    async def scene() -> None:
        store, keys, members = MemoryStore(), Keys("job"), nodes(150)
        lease = await store.grant(10)
        won = await election.campaign(store, keys, Leader("n0", "i0", ""), lease)
        assert isinstance(won, election.Leadership)
        publisher = Publisher(store, keys, won, lease, 0)
        headers: list[Header] = []
        for number in (1, 2):
            header = Header(
                number,
                "run",
                "open",
                "start",
                AllJoined(150),
                FINGERPRINT,
                publisher.prefix(number),
                150,
                world_size=300,
            )
            drop = headers[-1].prefix if headers else ""
            there = chunks(number, members)
            assert await publisher.open(header, assign(number, members), drop, lambda: True, there)
            headers.append(header)
        found = await membership.read_peers(store, keys, headers[1], 1)
        assert found == peers.joined(chunks(2, members), 300, 1)
        with pytest.raises(Unreadable, match="does not say where all workers are"):
            await membership.read_peers(store, keys, headers[0], 1)
        assert await membership.read_assignment(store, keys, headers[1], members[3])
        await store.close()

    asyncio.run(scene())
