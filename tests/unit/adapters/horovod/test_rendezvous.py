"""What Horovod's workers say and hear, without Horovod: places, messages, the store of a round."""

import asyncio
import base64
import hashlib
import hmac
import io
import os
import pickle
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from elastic_run.adapters.contract import Peer, Round, Worker
from elastic_run.adapters.horovod import messages
from elastic_run.adapters.horovod.adapter import Horovod
from elastic_run.adapters.horovod.messages import Registered, Unexpected, hosts_updated, read_registration
from elastic_run.adapters.horovod.node_rendezvous import Told, respond_from, told_by
from elastic_run.adapters.horovod.rank_assignment import RankAssignment, assign, hostname, read_assignment
from elastic_run.adapters.horovod.requests import BadRequest, Request, parse_head
from elastic_run.adapters.horovod.round_store import RoundStore
from elastic_run.adapters.services import line
from elastic_run.rendezvous.member import Report

SECRET = b"s" * 32


def registered(value: object) -> bytes:
    """What a worker would put for that value."""
    return base64.b64encode(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL))


class TestWhatAWorkerRegisters:
    def test_is_read(self) -> None:
        value = ({"eth0": [("10.0.0.1", 4711), ("::1", 70)], "lo": [("10.0.0.1", 72)], "none": []}, SECRET)
        listed = (("10.0.0.1", 4711), ("::1", 70), ("10.0.0.1", 72))
        for protocol in (4, 5):
            body = base64.b64encode(pickle.dumps(value, protocol=protocol))
            assert read_registration(body) == Registered(listed, SECRET)

    def test_makes_nothing_run(self) -> None:
        class Harm:
            def __reduce__(self) -> tuple[object, tuple[str]]:
                return os.system, ("false",)

        for value in (Harm(), ({"lo": [Harm()]}, SECRET), RuntimeError, Report("waiting")):
            with pytest.raises(Unexpected, match="it has STACK_GLOBAL, and plain"):
                read_registration(registered(value))

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (b"!", "no pickle in base64"),
            (b"", "no pickle"),
            (base64.b64encode(b"\x80\x05K"), "no pickle"),
            (base64.b64encode(b"."), "not a pair"),
            (base64.b64encode(b"\x80\x04P1\n."), "it has PERSID, and plain"),
            (b"A" * (messages.MOST_BYTES + 4), "at most"),
            (registered("text"), "not a pair"),
            (registered(({}, SECRET)), "no address"),
            (registered(({"lo": [("127.0.0.1", 4711)]}, "text")), "a pair in it is neither"),
            (registered(({"lo": "text"}, SECRET)), "no address"),
            (registered(({"lo": [("a", 1.5)]}, SECRET)), "it has BINFLOAT, and plain"),
            (registered(({"lo": [("127.0.0.1", 70000)]}, SECRET)), "a pair in it is neither"),
            (registered(({"lo": [("a", 1)]}, SECRET, 1)), "it has TUPLE3, and plain"),
            (base64.b64encode(b"\x80\x04h\x00."), "no pickle"),
            (base64.b64encode(b"\x80\x04K\x01K\x01\x86."), "a pair in it is neither"),
        ],
    )
    def test_is_refused_in_words_where_it_is_something_else(self, body: bytes, why: str) -> None:
        with pytest.raises(Unexpected, match=why):
            read_registration(body)


@dataclass
class HostsUpdatedRequest:
    """As a worker would make it of the message."""

    timestamp: int = 0
    res: int = 0


def test_a_notification_is_signed_and_has_a_round_and_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = hosts_updated(7, SECRET)
    digest, (length,), body = sent[:32], struct.unpack("i", sent[32:36]), sent[36:]
    assert digest == hmac.new(SECRET, body, hashlib.sha256).digest() and length == len(body)

    class Here(pickle.Unpickler):
        def find_class(self, module_name: str, global_name: str, /) -> type:
            assert (module_name, global_name) == ("horovod.runner.elastic.worker", "HostsUpdatedRequest")
            return HostsUpdatedRequest

    assert Here(io.BytesIO(body)).load() == HostsUpdatedRequest(timestamp=7, res=2)


def test_a_worker_has_a_place_among_all_on_its_node_and_across_nodes() -> None:
    assert assign(3, 1, 1, (2, 2)) == RankAssignment(3, 4, 1, 2, 1, 2)
    assert assign(2, 1, 1, (1, 2, 3)) == RankAssignment(2, 6, 1, 2, 0, 2), "the first node has no second worker"
    assert assign(5, 2, 2, (1, 2, 3)) == RankAssignment(5, 6, 2, 3, 0, 1)
    assert assign(3, 1, 1, (2, 2)).answer == b"3,4,1,2,1,2"
    assert read_assignment(assign(3, 1, 1, (2, 2)).variables) == assign(3, 1, 1, (2, 2))


def test_the_names_of_nodes_can_stand_in_a_url_and_stay_different() -> None:
    assert hostname("node-1.example") == "node-1.example"
    odd = hostname("a b/c"), hostname("a-b/c"), hostname("a-b-c")
    assert len({*odd}) == 3 and not any(set(name) & set(" /:?#") for name in odd)


PEERS = tuple(Peer(rank, f"10.0.0.{node}", (20000 + rank,), "default", node) for rank, node in enumerate((0, 0, 1, 1)))

ROUND = Round("job", 3, 4, 2, "10.0.0.0", 23456, peers=PEERS, services={"rendezvous": "eth1 4711 4712"})


class TestTheEnvironment:
    def environment(self, round: Round = ROUND, **inherited: str) -> Mapping[str, str | None]:
        worker = Worker(3, 1, 2, node="b", node_rank=1, role_rank=3, role_world_size=4)
        return Horovod().environment(round, worker, inherited)

    def test_says_where_the_worker_stands_and_where_its_own_rendezvous_is(self) -> None:
        given = self.environment()
        assert read_assignment({name: value for name, value in given.items() if value}) == RankAssignment(
            3, 4, 1, 2, 1, 2
        )
        assert given["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "127.0.0.1" and given["HOROVOD_GLOO_RENDEZVOUS_PORT"] == "4712"
        assert given["HOROVOD_GLOO_IFACE"] == "eth1" and given["HOROVOD_HOSTNAME"] == "b"
        assert given["MASTER_PORT"] is None and given["PMI_RANK"] is None

    def test_leaves_the_users_interface_and_time_out(self) -> None:
        mine = {"HOROVOD_GLOO_IFACE": "ib0", "HOROVOD_GLOO_TIMEOUT_SECONDS": "90"}
        assert {name: self.environment(**mine)[name] for name in mine} == mine

    def test_names_no_interface_that_is_not_known(self) -> None:
        assert self.environment(replace(ROUND, services={"rendezvous": "- 1 2"}))["HOROVOD_GLOO_IFACE"] is None

    def test_is_refused_to_a_job_with_roles(self) -> None:
        with pytest.raises(ValueError, match="leave --roles out"):
            Horovod().environment(ROUND, Worker(3, 1, 2, role_world_size=2), {})


def test_a_service_understands_the_agents_line() -> None:
    assert told_by(line(ROUND, 1)) == Told(3, (2, 2), ("10.0.0.0", "10.0.0.1"), 1, "10.0.0.0", 23456)


class TestTheStoreOfARound:
    async def test_lets_nobody_in_before_all_have_come(self) -> None:
        store = RoundStore(2)
        assert not await store.arrive(1, 0.0) and store.missing == [0] and store.awaited
        first = asyncio.ensure_future(store.arrive(1, 60.0))
        assert await store.arrive(0, 60.0) and await first
        assert await store.arrive(0, 0.0), "who comes again is let in"

    async def test_gives_a_value_that_comes_while_it_is_waited_for(self) -> None:
        store = RoundStore(2)
        waits = asyncio.ensure_future(store.get("global/0", 60.0))
        await asyncio.sleep(0)
        await store.carry_out("PUT", "global/0", b"there")
        assert await waits == b"there"
        await store.carry_out("DELETE", "global/0", b"")
        assert await store.get("global/0", 0.0) is None

    async def test_answers_other_nodes_in_its_own_round_only(self) -> None:
        store = RoundStore(1)
        assert await respond_from(store, 3, Request("PUT", "/3/value/global/0", b"there")) == b""
        assert await respond_from(store, 3, Request("GET", "/3/value/global/0")) == b"there"
        assert await respond_from(store, 3, Request("GET", "/3/arrive/0")) == b""
        for method, path in (
            ("GET", "/2/value/global/0"),
            ("GET", "/3/arrive/x"),
            ("POST", "/3/value/global/0"),
            ("GET", "/"),
            ("DELETE", "/4/value/global/0"),
        ):
            assert await respond_from(store, 3, Request(method, path)) is None
        assert await respond_from(store, 3, Request("DELETE", "/3/value/global/0")) == b""
        assert await store.get("global/0", 0.0) is None


def test_the_head_of_a_request_says_how_long_its_body_is() -> None:
    head = b"PUT /global/0 HTTP/1.1\r\nHost: a\r\ncontent-length: 12"
    assert parse_head(head) == ("PUT", "/global/0", 12)
    assert parse_head(b"GET / HTTP/1.1") == ("GET", "/", 0)
    for wrong in (
        b"",
        b"what",
        b"PUT / HTTP/1.1\r\nContent-Length: -1",
        b"PUT / HTTP/1.1\r\nContent-Length: 99999999999",
    ):
        with pytest.raises(BadRequest):
            parse_head(wrong)
