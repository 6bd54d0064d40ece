"""Workers ask their agent over a Unix socket, and agents ask the master over TCP; whoever is lost, nothing is lost.

Not tested: that another user of this machine is turned away, because a test cannot become one.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from elastic_run.adapters.client.channel import AgentGone, Back, Call, Channel
from elastic_run.elastic_agent import master_client, worker_server
from elastic_run.elastic_agent.machine.node_state import KnownRound
from elastic_run.elastic_agent.master_client import Link
from elastic_run.elastic_agent.worker_server import CallHandler, WorkerServer
from elastic_run.master.data.ledger import Answer, Piece, Request
from elastic_run.master.data.ledger_service import Ledgers
from elastic_run.master.machine.controller import Controller, Terms
from elastic_run.master.machine.memory import Memory
from elastic_run.master.machine.pace import Stepped
from elastic_run.master.machine.parameter_servers import RankWait
from elastic_run.master.status import Status
from elastic_run.rendezvous.base.errors import Deposed, StoreUnavailable
from elastic_run.rendezvous.failure_detector import AgentListener, dial, watch_until_dead
from elastic_run.rendezvous.header import Header, HeaderState, Leader
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint
from elastic_run.rendezvous.reasons import AllJoined
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.rpc import client, envelope
from elastic_run.rendezvous.rpc.envelope import Answered, Caller, Nothing, RpcError, Security, answer_of, packed
from elastic_run.rendezvous.store.contract import KeyValue, Put
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.store.waits import Waits
from elastic_run.rendezvous.wire.frame import PREFIX, framed, read_frame
from elastic_run.rendezvous.wire.values import decode, encode

DEADLINE = 20.0
"""Seconds that anything here may take on a busy machine; it takes milliseconds."""

LOOPBACK = "127.0.0.1"
KEYS = Keys("job")
FINGERPRINT = Fingerprint("train.py", (), "1:2", "1", "0")


def header(number: int = 1, state: HeaderState = "open", run: str = "run") -> Header:
    return Header(number, run, state, "start", AllJoined(2), FINGERPRINT)


def asks(number: int = 1, round: int = 1) -> Request:
    return Request("exchange", "data", round, 0, 1, sequence=number, wants=1)


def answered(number: int) -> Answer:
    return Answer(leases=(Piece(number),))


@dataclass
class Master:
    """What listens on the master's machine, and stands for its ledgers: leases place n to request n.

    Attributes:
        asked: the numbers of the requests that came.
        held: those that are not answered before `gate` is set.
        run: of the job; others are not answered.
        callers: who has asked.
        status: the job's, while it leads.
    """

    incarnation: str
    run: str = "run"
    asked: list[int] = field(default_factory=list[int])
    held: set[int] = field(default_factory=set[int])
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    deposed: bool = False
    callers: list[Caller] = field(default_factory=list[Caller])
    status: Status | None = None
    told: list[Stepped] = field(default_factory=list[Stepped])

    def __post_init__(self) -> None:
        # What is asked of the ledgers here is one method, and a double has it.
        self.server = AgentListener(self.incarnation, methods=master_client.methods(self))

    @property
    def ledgers(self) -> Ledgers:
        return cast(Ledgers, self)

    def master_of(self, run: str) -> "Master":
        if run != self.run:
            raise Deposed("this node does not lead that run")
        return self

    def stepped(self, told: Stepped) -> None:
        self.told.append(told)
        if self.deposed:
            raise Deposed("another leads")

    async def answer(self, request: Request, caller: Caller) -> Answer:
        self.callers.append(caller)
        self.asked.append(request.sequence)
        self.news.set()
        if self.deposed:
            raise Deposed("another leads")
        if request.sequence in self.held:
            await self.gate.wait()
        return answered(request.sequence)

    async def heard(self, count: int) -> None:
        while len(self.asked) < count:
            self.news.clear()
            await self.news.wait()


@dataclass
class Side:
    """An agent's side of the job: its store, its link, and what it knows."""

    store: MemoryStore = field(default_factory=MemoryStore)
    header: Header | None = field(default_factory=header)
    here: Master | None = None
    saved: list[int] = field(default_factory=list[int])
    caller: Caller = Caller("run", "a", "A1")  # noqa: RUF009  a frozen value

    def __post_init__(self) -> None:
        self.link = Link(
            self.store,
            KEYS,
            lambda: cast(Ledgers | None, self.here),  # as above
            lambda: self.caller,
            Security(),
            lambda _: False,
            lambda: KnownRound(header=self.header),
        )
        self.handler = CallHandler(
            self.store, KEYS, self.link, Waits(lambda _: None, asyncio.get_running_loop().time), self.saved.append
        )

    async def trouble(self, words: str = "") -> None:
        """Waits until an attempt has come to nothing for that reason."""
        while not self.link.trouble or words not in self.link.trouble:
            await later()

    async def elect(self, master: Master, address: str | None = None) -> None:
        where = master.server.address if address is None else address
        await self.store.txn([], [Put(KEYS.leader, encode(Leader("m", master.incarnation, where)))])


async def later() -> None:
    """A moment has passed."""
    await asyncio.sleep(0.001)


@contextlib.asynccontextmanager
async def leading(side: Side, incarnation: str = "M1", **more: Any) -> AsyncGenerator[Master, None]:
    master = Master(incarnation, **more)
    await master.server.start(LOOPBACK, LOOPBACK)
    await side.elect(master)
    try:
        yield master
    finally:
        await master.server.close()


@pytest.fixture
async def side() -> AsyncGenerator[Side, None]:
    made = Side()
    try:
        async with asyncio.timeout(DEADLINE):
            yield made
    finally:
        await made.link.close()


# -- what the job is at this moment ---------------------------------------------------------------------------------


STATUS = Controller(KEYS, Terms(Policy(1, 2), 3, 0, FINGERPRINT), 0.0, memory=Memory(0.0), run="run").status(5.0)


async def asks_status(master: Master, run: str) -> Status:
    reader, writer = await dial(master.server.address, master.incarnation)
    connection = client.Connection(reader, writer, "the master", Caller(run))
    try:
        return await connection.ask(master_client.STATUS, Nothing(), Status, DEADLINE)
    finally:
        await connection.close()


async def test_the_master_tells_the_status_of_the_job_to_who_names_its_run(side: Side) -> None:
    async with leading(side) as master:
        master.status = replace(STATUS, state="open", round=1)
        assert await asks_status(master, "run") == master.status
        with pytest.raises(RpcError) as refused:
            await asks_status(master, "another")
        assert refused.value.code == "moved"


async def test_who_leads_hears_how_far_rank_0_is_and_nobody_else_keeps_the_agent_from_its_work(side: Side) -> None:
    async with leading(side) as master:
        await side.handler.answer(Call("steps", 2, rank=0, steps=7))
        assert not master.told, "this handler was given nobody to tell"
        await side.link.stepped(Stepped(2, 7))
        assert master.told == [Stepped(2, 7)]
        master.deposed = True
        await side.link.stepped(Stepped(2, 8))
    await side.link.stepped(Stepped(2, 9))
    assert len(master.told) == 2


async def test_steps_that_a_worker_of_another_run_tells_are_not_the_jobs(side: Side) -> None:
    async with leading(side) as master:
        reader, writer = await dial(master.server.address, master.incarnation)
        connection = client.Connection(reader, writer, "the master", Caller("another"))
        try:
            with pytest.raises(RpcError) as refused:
                await connection.ask(master_client.STEPS, Stepped(2, 7), Nothing, DEADLINE)
        finally:
            await connection.close()
        assert refused.value.code == "moved" and not master.told


async def test_before_the_first_round_the_status_is_told_to_who_cannot_know_the_run(side: Side) -> None:
    async with leading(side) as master:
        master.status = STATUS
        assert await asks_status(master, "") == STATUS


async def test_an_agent_that_does_not_lead_has_no_status(side: Side) -> None:
    async with leading(side) as master:
        with pytest.raises(RpcError) as refused:
            await asks_status(master, "run")
        assert refused.value.code == "moved"


# -- from agent to master ---------------------------------------------------------------------------------------------


async def test_many_requests_go_over_one_connection_and_are_answered_in_any_order(side: Side) -> None:
    async with leading(side, held={1}) as master:
        slow = asyncio.create_task(side.link.ask(asks(1)))
        await master.heard(1)
        assert await asyncio.gather(*(side.link.ask(asks(number)) for number in range(2, 50))) == [
            answered(number) for number in range(2, 50)
        ]
        assert not slow.done()
        master.gate.set()
        assert await slow == answered(1)
        assert master.server.connections == 1


async def test_a_request_is_asked_again_where_the_master_is_lost_before_it_answers(side: Side) -> None:
    async with leading(side, held={1, 2}) as master:
        asked = [asyncio.create_task(side.link.ask(asks(number))) for number in (1, 2)]
        await master.heard(2)
        await master.server.close()
        async with leading(side, "M2") as second:
            assert [await each for each in asked] == [answered(1), answered(2)]
            assert sorted(second.asked) == [1, 2]


async def test_a_deposed_master_hangs_up_and_the_next_one_is_asked(side: Side) -> None:
    async with leading(side, deposed=True) as master, leading(side, "M2") as second:
        await side.elect(master)
        asked = asyncio.create_task(side.link.ask(asks()))
        await master.heard(3)
        assert side.link.trouble == "another leads"
        await side.elect(second)
        assert await asked == answered(1)


@pytest.mark.parametrize("address", ["", "nowhere", "127.0.0.1:none"])
async def test_a_leader_without_an_address_is_asked_for_again(side: Side, address: str) -> None:
    async with leading(side) as master:
        await side.elect(master, address)
        asked = asyncio.create_task(side.link.ask(asks()))
        await side.trouble()
        await side.elect(master)
        assert await asked == answered(1)


async def test_who_has_the_masters_address_now_is_not_asked(side: Side) -> None:
    async with leading(side) as stranger:
        await side.elect(Master("M2"), stranger.server.address)
        asked = asyncio.create_task(side.link.ask(asks()))
        await side.trouble("is not M2")
        assert stranger.asked == []
        async with leading(side, "M2"):
            assert await asked == answered(1)


async def test_a_silent_master_is_given_up(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_client, "ASKING", 600.0)
    monkeypatch.setattr(client, "SILENCE", -599.95)
    async with leading(side, held={1}) as silent:
        asked = asyncio.create_task(side.link.ask(asks()))
        await silent.heard(2)
        async with leading(side, "M2"):
            assert await asked == answered(1)


async def test_an_agent_asks_its_own_master_without_a_connection(side: Side) -> None:
    side.here = Master("M1")
    assert await side.link.ask(asks()) == answered(1)
    side.here.deposed = True
    asked = asyncio.create_task(side.link.ask(asks(2)))
    await side.here.heard(2)
    side.here = None
    async with leading(side, "M2"):
        assert await asked == answered(2)


async def test_a_request_of_a_round_that_is_over_is_not_asked_for_ever(side: Side) -> None:
    asked = asyncio.create_task(side.link.ask(asks()))
    await side.trouble()
    side.header = header(2)
    stale = await asked
    assert stale.kind == "stale" and "round 2" in stale.text


async def test_another_run_of_the_job_is_not_answered(side: Side) -> None:
    async with leading(side, run="another") as master:
        asked = asyncio.create_task(side.link.ask(asks()))
        await side.trouble("does not lead that run")
        assert master.asked == []
        master.run = "run"
        assert await asked == answered(1)


async def test_an_agent_that_was_born_again_asks_as_that(side: Side) -> None:
    async with leading(side) as master:
        assert await side.link.ask(asks(1)) == answered(1)
        side.caller = Caller("run", "a", "A2")
        assert await side.link.ask(asks(2)) == answered(2)
        assert master.callers == [Caller("run", "a", "A1"), Caller("run", "a", "A2")]


async def test_whoever_says_what_cannot_be_understood_is_hung_up_on_and_nobody_else(side: Side) -> None:
    async with leading(side) as master:
        assert await side.link.ask(asks()) == answered(1)
        watcher = asyncio.create_task(watch_until_dead(master.server.address, "M1"))
        host, _, port = master.server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        await reader.readline()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with contextlib.suppress(ConnectionResetError):  # where it hangs up before it has read all
            message = await read_frame(reader)
            assert message and answer_of(message)[0].error == "too long"
            assert await reader.read() == b""
        writer.close()
        assert await side.link.ask(asks(2)) == answered(2)
        assert master.server.connections >= 1 and not watcher.done()
        watcher.cancel()


async def test_a_request_that_is_none_of_the_ledgers_is_refused_and_asked_again(side: Side) -> None:
    async with leading(side) as master:
        asked = asyncio.create_task(side.link.ask(replace(asks(), kind=cast(Any, "none"))))
        await side.trouble("Request.kind")
        asked.cancel()
        assert master.asked == []


@pytest.mark.parametrize("babble", [b"babble", packed(Answered(1), b"babble")[4:]])
async def test_a_master_that_says_what_cannot_be_understood_is_dialled_again(side: Side, babble: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"incarnation": "M1"}\n')
        await read_frame(reader)
        await read_frame(reader)
        writer.write(framed(babble))
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    await side.elect(Master("M1"), f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}")
    asked = asyncio.create_task(side.link.ask(asks()))
    await side.trouble()
    async with leading(side, "M2"):
        assert await asked == answered(1)
    server.close()


# -- the handler of calls ----------------------------------------------------------------------------------------------


async def test_a_call_that_nobody_answers_is_answered_in_words(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_server, "CALL_SECONDS", 0.05)
    back = await side.handler.answer(Call("ledger", 1, asks()))
    assert back.answer is None and "the job has no master" in back.text


async def test_later_is_passed_on(side: Side) -> None:
    later = Answer("later", "others are missing")

    class Busy(Master):
        async def answer(self, request: Request, caller: Caller) -> Answer:
            return later

    side.here = Busy("M1")
    assert await side.handler.answer(Call("ledger", 1, asks())) == Back(later)


async def test_a_round_is_current_where_the_store_says_so_now(side: Side) -> None:
    async def current() -> tuple[bool, str]:
        back = await side.handler.answer(Call("current", 1))
        return back.current, back.text

    assert await current() == (False, "the store holds no round of this job")
    for number, state, yes in (
        (1, "open", True),
        (2, "open", False),
        (1, "waiting", False),
        (1, "failed", False),
        (1, "preempted", True),  # every node was told to leave: what their scripts save now is the newest
        (2, "preempted", False),
    ):
        await side.store.txn([], [Put(KEYS.round, encode(header(number, cast(HeaderState, state))))])
        found, text = await current()
        assert found == yes and bool(text) != yes


async def test_a_worker_is_told_of_the_jobs_servers_by_the_version_that_it_knows(side: Side) -> None:
    assert await side.handler.answer(Call("servers", 1, steps=3)) == Back()  # it has none

    waits: list[RankWait] = []

    async def tell(version: int, wait: RankWait, round: int) -> str:
        waits.append(wait)
        return f"newer than {version}, in round {round}"

    with_servers = replace(side.handler, servers=tell)
    call = Call("servers", 1, rank=2, steps=3, awaits=(1,), seconds=4.5)
    assert await with_servers.answer(call) == Back(told="newer than 3, in round 1")
    assert waits == [RankWait(2, (1,), 4.5)]


async def test_a_store_that_does_not_answer_makes_no_round_current(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(MemoryStore):
        async def get(self, key: str) -> KeyValue | None:
            raise StoreUnavailable("no answer")

    monkeypatch.setattr(worker_server, "CURRENT_SECONDS", 0.05)
    back = await Side(Silent()).handler.answer(Call("current", 1))
    assert not back.current and "the store does not say" in back.text


async def test_a_checkpoint_is_told(side: Side) -> None:
    assert await side.handler.answer(Call("saved", 7)) == Back()
    assert side.saved == [7]


# -- from worker to agent ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def serving(respond: Callable[[Call], Awaitable[Back]]) -> AsyncGenerator[WorkerServer, None]:
    made = WorkerServer(respond, {}, print)
    await made.start()
    try:
        async with asyncio.timeout(DEADLINE):
            yield made
    finally:
        await made.close()


async def test_a_worker_asks_over_its_socket(side: Side) -> None:
    async with leading(side), serving(side.handler.answer) as listening:
        assert listening.address.startswith("@elastic-run-")

        def work() -> list[Back]:
            asking = Channel(listening.address, DEADLINE)
            try:
                return [asking.ask(Call("ledger", 1, asks(number))) for number in (1, 2)]
            finally:
                asking.close()

        several = await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
        assert several == [[Back(answered(1)), Back(answered(2))]] * 4


async def test_a_worker_whose_agent_has_ended_is_told_so() -> None:
    waits = asyncio.Event()

    async def respond(_: Call) -> Back:
        waits.set()
        await asyncio.get_running_loop().create_future()
        return Back()

    async with serving(respond) as listening:
        asking = Channel(listening.address, DEADLINE)
        asked = asyncio.create_task(asyncio.to_thread(asking.ask, Call("current", 1)))
        await waits.wait()
        await listening.close()
        with pytest.raises(AgentGone):
            await asked
        asking.close()
        with pytest.raises(AgentGone):
            Channel(listening.address, DEADLINE)


@pytest.mark.parametrize("words", [PREFIX.pack(2**32 - 1), framed(b"{}"), framed(b"\xff"), b"\0\0"])
async def test_a_worker_that_says_what_cannot_be_understood_is_hung_up_on_alone(side: Side, words: bytes) -> None:
    async with serving(side.handler.answer) as listening:
        good = Channel(listening.address, DEADLINE)
        reader, writer = await asyncio.open_unix_connection("\0" + listening.address[1:])
        writer.write(words)
        writer.write_eof()
        said = await reader.read()
        assert said == b"" or answer_of(said[PREFIX.size :])[0].error in ("malformed", "too long")
        writer.close()
        assert await asyncio.to_thread(good.ask, Call("saved", 1)) == Back()
        good.close()


async def test_an_agent_that_fails_says_so_in_words_and_goes_on() -> None:
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)

    async def respond(call: Call) -> Back:
        if call.round == 1:
            raise KeyError("a defect")
        return Back(current=True)

    async with serving(respond) as listening:
        channel = Channel(listening.address, DEADLINE)
        back = await asyncio.to_thread(channel.ask, Call("current", 1))
        assert not back.current and "'current' could not be answered" in back.text
        assert await asyncio.to_thread(channel.ask, Call("current", 2)) == Back(current=True)
        channel.close()


async def test_a_worker_of_another_version_is_told_so(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelope, "VERSION", 7)
    async with serving(side.handler.answer) as listening:
        channel = Channel(listening.address, DEADLINE)
        with pytest.raises(AgentGone, match="refuses the connection: this process speaks version 7"):
            await asyncio.to_thread(channel.ask, Call("saved", 1))
        channel.close()


async def test_no_descriptor_of_the_agent_reaches_its_workers(side: Side) -> None:
    async with serving(side.handler.answer) as listening:
        asking = Channel(listening.address, DEADLINE)
        await asyncio.to_thread(asking.ask, Call("saved", 1))
        ours = [number for number in range(3, 200) if _is_unix_socket(number)]
        assert ours and not any(os.get_inheritable(number) for number in ours)
        asking.close()


def _is_unix_socket(number: int) -> bool:
    try:
        with socket.socket(fileno=os.dup(number)) as found:
            return found.family == socket.AF_UNIX
    except OSError:
        return False


def test_a_call_survives_the_wire() -> None:
    call = Call("ledger", 3, asks())
    assert decode(Call, encode(call)) == call
    back = Back(answered(2), current=True, text="why")
    assert decode(Back, encode(back)) == back


async def test_a_worker_waits_for_room_in_its_agents_queue() -> None:
    name = f"test-{os.getpid()}-queue"
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(f"\0{name}")
        listening.listen(1)
        for _ in range(100):
            stranger = opened.enter_context(socket.socket(socket.AF_UNIX))
            stranger.setblocking(False)
            try:
                stranger.connect(f"\0{name}")
            except BlockingIOError:
                break
        with pytest.raises(TimeoutError):
            Channel(f"@{name}", timeout=0.1)
        connecting = asyncio.create_task(asyncio.to_thread(Channel, f"@{name}", timeout=DEADLINE))
        await asyncio.sleep(0.2)
        assert not connecting.done()
        opened.enter_context(listening.accept()[0])
        (await connecting).close()
