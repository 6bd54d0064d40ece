"""An agent's servers: real processes of a double, started, told, registered, looked at and ended as the table wants."""

import asyncio
import dataclasses
import io
import os
import re
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from elastic_run.adapters.environment import WorkerSettings
from elastic_run.adapters.plain import Plain
from elastic_run.adapters.servers.job_servers import JobServers
from elastic_run.elastic_agent.inbox import Inbox
from elastic_run.elastic_agent.logs.output import Output
from elastic_run.elastic_agent.machine.node_events import KeyLapsed, KeyResumed, KeyWritten, RoundRead
from elastic_run.elastic_agent.machine.node_state import NodeSettings
from elastic_run.elastic_agent.servers import server_host
from elastic_run.elastic_agent.servers.server_host import ServerHost
from elastic_run.elastic_agent.setup import Setup
from elastic_run.elastic_agent.workers.services import Services
from elastic_run.master.machine.controller import Terms
from elastic_run.master.machine.parameter_servers import RankWait
from elastic_run.master.servers.placement import lose_rows
from elastic_run.master.servers.slot_table import NOBODY, SLOTS, RunningServer, ServerPlace, SlotTable
from elastic_run.rendezvous.base.cancel import cancel
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Fingerprint, Member, Report
from elastic_run.rendezvous.membership import Registration
from elastic_run.rendezvous.reasons import NodeFailed
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.store.contract import Delete, KeyValue, Put
from elastic_run.rendezvous.store.memory_store import MemoryStore
from elastic_run.rendezvous.store.waits import Waits
from elastic_run.rendezvous.wire.values import decode, encode

DOUBLE = Path(__file__).parents[3] / "doubles" / "double_server.py"
KEYS = Keys("job")
FINGERPRINT = Fingerprint("train.py", (), "1", "1", "0")
DEADLINE = 20.0


class Deaf:
    """A guardian that nobody needs."""

    def watch(self, session: int) -> None:
        pass

    def forget(self, session: int) -> None:
        pass


class Node:
    """What a host needs of its agent, and what it does."""

    def __init__(self, *how: str) -> None:
        self.store = MemoryStore()
        self.shown = io.BytesIO()
        self.output = Output(host="a", log_dir=None, job_id="job", stream_out=self.shown, stream_err=self.shown)
        self.said: list[str] = []
        self.inbox = Inbox(NodeSettings(), asyncio.get_running_loop().time)
        workers = WorkerSettings("job", "a", Plain(), (), dict(os.environ), python=sys.executable)
        setup = Setup(workers, "a.host", None, 1, Terms(Policy(1, 1), 0, 0, FINGERPRINT), lease_ttl=1)
        waits = Waits(self.said.append, self.inbox.now, self.inbox.wake)
        said, arguments = self.said.append, (str(DOUBLE), *how)
        logs = Path(how[-1]) if how and how[0] == "log" else None
        self.host = ServerHost(setup, self.store, KEYS, waits, self.inbox, said, self.services, None, arguments, logs)
        self.tasks: list[asyncio.Task[None]] = []

    def services(self) -> Services:
        return Services(f"test-{os.getpid()}", self.output, Deaf(), set(), None, self.inbox.wake)  # type: ignore[arg-type]

    async def begin(self, places: int = 1) -> None:
        await self.register(KeyWritten)
        await self.want(SlotTable(1, tuple(ServerPlace(number, "a") for number in range(places))))
        self.tasks.append(asyncio.create_task(self.host.run()))

    async def register(self, event: type[KeyWritten] | type[KeyResumed]) -> int:
        lease = await self.store.grant(60)
        member = Member("a", f"life-{lease}", "a.host", "", 1, (), FINGERPRINT)
        registration = Registration(member, KEYS.node("a"), 1, lease, 1)
        self.inbox.post(event(registration, Report()) if event is KeyWritten else KeyResumed(registration))
        return lease

    def join_run(self, number: int = 1, rows_from: int = 0) -> str:
        """A round of this run is opened."""
        reason = NodeFailed("b", "(start)")
        header = Header(number, "this run", "open", "start", reason, FINGERPRINT, rows_from=rows_from)
        self.inbox.post(RoundRead(header, (1 << 40) + number, None))
        return self.inbox.state.known.own_run

    async def want(self, table: SlotTable) -> None:
        await self.store.txn((), (Put(KEYS.slots, encode(table)),))

    async def found(self, number: int = 0) -> KeyValue | None:
        return await self.store.get(KEYS.server(number))

    async def running(self, number: int = 0) -> RunningServer | None:
        found = await self.found(number)
        return decode(RunningServer, found.value) if found else None

    async def registered(self, number: int = 0, *, unlike: str = "") -> RunningServer:
        """The server in that place, once one is registered there that is not of this incarnation."""
        found = await self.stored(number, lambda found: found is not None and found.incarnation != unlike)
        assert found is not None
        return found

    async def stored(self, number: int, holds: Callable[[RunningServer | None], object]) -> RunningServer | None:
        async with asyncio.timeout(DEADLINE):
            while True:
                if holds(found := await self.running(number)):
                    return found
                await asyncio.sleep(0.01)

    async def until(self, holds: Callable[[], object]) -> None:
        """Processes wake nobody here."""
        async with asyncio.timeout(DEADLINE):
            while True:
                if holds():
                    return
                await asyncio.sleep(0.01)

    def pids(self) -> list[int]:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        lines = {int(pid): Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children}
        return [pid for pid, line in lines.items() if str(DOUBLE).encode() in line]

    def commands(self) -> list[list[str]]:
        return [Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in self.pids()]

    async def close(self) -> None:
        await cancel(*self.tasks)
        await self.host.close()
        await self.output.close(succeeded=True)


@pytest.fixture
async def node(request: pytest.FixtureRequest) -> AsyncGenerator[Node]:
    made = Node(*getattr(request, "param", ()))
    yield made
    await made.close()
    assert made.pids() == []


def serving(version: int, *servers: RunningServer, places: int = 1) -> SlotTable:
    wanted = tuple(ServerPlace(number, "a") for number in range(places))
    return SlotTable(version, wanted, servers, (0,) * SLOTS, (NOBODY,) * SLOTS, (NOBODY,) * SLOTS)


async def test_a_server_runs_in_each_place_of_its_node_and_is_registered_under_the_nodes_lease(node: Node) -> None:
    await node.begin(places=2)
    first, second = await node.registered(0), await node.registered(1)
    assert (first.number, first.node, first.remote, first.joined) == (0, "a", "", 0)
    assert re.fullmatch("@elastic-run-double-[0-9a-f]{16}", first.local)
    assert first.incarnation != second.incarnation and len(node.pids()) == 2
    found = await node.found()
    registration = node.inbox.state.key.registration
    assert found and registration and found.lease == registration.lease
    assert node.host.failure == ""


async def test_places_of_other_nodes_are_left_to_them_and_a_place_that_goes_ends_its_server(node: Node) -> None:
    await node.begin(places=2)
    await node.registered(0)
    await node.registered(1)
    places = ServerPlace(0, "a"), ServerPlace(1, "b"), ServerPlace(2, "b")
    await node.want(SlotTable(2, places))
    await node.until(lambda: len(node.pids()) == 1)
    assert await node.running(0) is not None
    await node.stored(1, lambda found: found is None)
    assert await node.running(2) is None


@pytest.mark.parametrize("node", [("joins",)], indirect=True)
async def test_a_server_is_told_of_each_table_and_what_it_says_then_is_written(node: Node) -> None:
    await node.begin()
    server = await node.registered()
    await node.want(serving(5, server))
    await node.stored(0, lambda found: found and found.joined == 5)
    await node.until(lambda: b"orders of 5 to " + server.incarnation.encode() in node.shown.getvalue())


async def test_a_server_that_dies_is_taken_out_of_the_store_and_another_takes_its_place(node: Node) -> None:
    await node.begin()
    server = await node.registered()
    (pid,) = node.pids()
    os.kill(pid, signal.SIGKILL)
    another = await node.registered(unlike=server.incarnation)
    assert another.local != server.local and node.pids() not in ([], [pid])
    await node.until(lambda: b"the service server 0 (pid %d) died by SIGKILL (9)" % pid in node.shown.getvalue())
    assert node.host.failure == ""
    assert node.host.failure == ""


async def test_a_server_with_a_log_that_dies_goes_on_as_the_same_and_is_never_missed(tmp_path: Path) -> None:
    node = Node("log", str(tmp_path))
    try:
        await node.begin()
        first = await node.registered()
        (log,) = [each for each in node.commands()[0] if each.startswith("--log=")]
        assert log == f"--log={tmp_path}/server-0/{first.incarnation}"
        (tmp_path / "server-0" / first.incarnation).mkdir(parents=True)
        (tmp_path / "server-0" / first.incarnation / "log-0").touch()
        await node.want(serving(5, first))
        await node.until(lambda: b"orders of 5 to" in node.shown.getvalue())
        os.kill(node.pids()[0], signal.SIGKILL)
        again = await node.stored(0, lambda found: found is None or found.local != first.local)
        assert again is not None and again.incarnation == first.incarnation and log in node.commands()[0]
        await node.want(SlotTable(6, lost="some rows have gone", restore=1))  # now all begins anew
        await node.want(dataclasses.replace(serving(7), servers=(), primary=(), rows_from=2))
        await node.registered(unlike=first.incarnation)
        assert log not in node.commands()[0] and not (tmp_path / "server-0").exists()
    finally:
        await node.close()


async def test_a_server_whose_log_somebody_has_removed_is_lost_with_its_rows(tmp_path: Path) -> None:
    node = Node("log", str(tmp_path))
    try:
        await node.begin()
        first = await node.registered()
        await node.want(serving(5, first))
        await node.until(lambda: b"orders of 5 to" in node.shown.getvalue())
        os.kill(node.pids()[0], signal.SIGKILL)
        assert (await node.registered(unlike=first.incarnation)).incarnation != first.incarnation
    finally:
        await node.close()


@pytest.mark.parametrize("node", [("dies",)], indirect=True)
async def test_servers_that_die_before_they_are_ready_end_the_job_in_words(node: Node) -> None:
    await node.begin()
    await node.until(lambda: node.host.failure)
    assert re.fullmatch(
        r"no server can be started on node a, 3 times in a row: the service server 0 \(pid \d+\) exited with code 1: "
        r"cannot begin",
        node.host.failure,
    )
    assert [line.endswith("cannot begin: starting it again") for line in node.said] == [True, True]


@pytest.mark.parametrize("node", [("mumbles",)], indirect=True)
async def test_a_server_whose_words_are_not_understood_is_given_up(node: Node) -> None:
    await node.begin()
    await node.until(lambda: node.host.failure)
    assert "server 0 has said 'somewhere', which is not where it listens" in node.host.failure


@pytest.mark.parametrize("node", [("hangs",)], indirect=True)
async def test_a_server_that_does_not_answer_for_the_time_of_a_lease_is_killed(node: Node) -> None:
    await node.begin()
    server = await node.registered()
    another = await node.registered(unlike=server.incarnation)
    assert another.incarnation != server.incarnation
    assert "server 0 has not answered for 1 s" in node.said


@pytest.mark.parametrize("node", [("damaged",)], indirect=True)
async def test_a_checkpoint_that_cannot_be_read_ends_the_job_and_names_its_file(node: Node) -> None:
    await node.begin()
    await node.want(serving(2, await node.registered()))
    await node.until(lambda: node.host.failure)
    assert node.host.failure.endswith("the rows of a checkpoint cannot be read: part-0 is damaged")


async def test_a_server_that_is_not_ready_in_time_is_given_up(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_host, "READY_SECONDS", 0.001)
    await node.begin()
    await node.until(lambda: node.host.failure)
    assert "server 0 was not ready within 0.001 s" in node.host.failure


async def test_a_node_that_registers_again_takes_its_servers_with_it(node: Node) -> None:
    await node.begin()
    server = await node.registered()
    before = node.inbox.state.key.registration
    assert before is not None
    node.inbox.post(KeyLapsed())
    await node.store.revoke(before.lease)
    assert await node.running() is None
    lease = await node.register(KeyResumed)
    assert await node.registered() == server
    found = await node.found()
    assert found is not None and found.lease == lease


async def test_a_place_that_another_node_holds_for_a_moment_more_is_waited_for(node: Node) -> None:
    other = RunningServer(0, "of-b", "b", "@b")
    await node.store.txn((), (Put(KEYS.server(0), encode(other)),))
    await node.begin()
    await node.until(node.pids)
    await asyncio.sleep(0.5)
    assert await node.running() == other
    held = await node.found()
    assert held is not None
    await node.store.txn((), (Put(KEYS.server(0), encode(dataclasses.replace(other, node="a"))),))
    assert (await node.registered(unlike="of-b")).node == "a"  # one of its own earlier life is nobody


async def test_workers_hear_of_a_newer_table_that_serves_and_else_of_the_newest(node: Node) -> None:
    await node.begin()
    server, began = await node.registered(), node.inbox.now()
    told = decode(JobServers, (await node.host.answer(0, RankWait(0), 1)).encode())
    assert (told.table.version, told.node, told.tls) == (1, "a", None)
    assert node.inbox.now() - began >= server_host.ANSWER_SECONDS
    waiting = asyncio.create_task(node.host.answer(1, RankWait(0), 1))
    await node.want(serving(2, server))
    told = decode(JobServers, (await waiting).encode())
    assert told.table.version == 2 and told.table.servers == (server,)
    assert decode(JobServers, (await node.host.answer(1, RankWait(0), 1)).encode()) == told


async def test_what_servers_do_is_told_and_who_waits_for_them(node: Node) -> None:
    await node.begin()
    assert [each.state for each in node.host.describe().servers] in ([], ["starting"])
    server = await node.registered()
    await node.want(serving(2, server))
    await node.until(lambda: node.host.describe().servers[0].resident)
    await node.host.answer(0, RankWait(3, (0,), 4.0), 1)
    await node.host.answer(0, RankWait(4, (), 60.0), 1)  # it was answered
    told = node.host.describe()
    (report,) = told.servers
    assert (report.number, report.incarnation, report.state) == (0, server.incarnation, "answers")
    assert (report.slots, report.backups, report.bare) == (SLOTS, 0, SLOTS)
    (wait,) = told.waits
    assert told.node == "a" and (wait.rank, wait.servers) == (3, (0,)) and 4.0 <= wait.seconds < 60.0
    (pid,) = node.pids()
    os.kill(pid, signal.SIGSTOP)
    await node.until(lambda: node.host.describe().servers[0].state in ("stopped", "starting"))
    await node.until(lambda: not node.host.describe().waits)


async def test_rows_that_an_earlier_run_has_lost_are_not_this_ones(node: Node) -> None:
    await node.begin()
    server = await node.registered()
    await node.want(dataclasses.replace(serving(2, server), lost="rows of the day before"))
    await node.until(lambda: node.host.table.lost)
    assert node.host.failure == ""
    await node.store.txn((), (Delete(KEYS.slots),))  # the master of this run does it, before it opens the first round
    assert node.join_run() == "this run"  # the node may hear of the round first
    await node.until(lambda: not node.host.table.lost)
    assert node.host.failure == ""


async def test_rows_that_are_lost_are_the_jobs_failure(node: Node) -> None:
    await node.begin()
    await node.registered()
    node.join_run()
    await node.want(dataclasses.replace(serving(2), lost="its rows are gone"))
    await node.until(lambda: node.host.failure)
    assert node.host.failure == "its rows are gone"


async def test_a_job_goes_back_with_other_servers_and_its_workers_hear_of_no_rows_but_their_own(node: Node) -> None:
    async def version_for(round: int) -> int:
        return decode(JobServers, (await node.host.answer(0, RankWait(0), round)).encode()).table.version

    await node.begin()
    before = await node.registered()
    node.join_run()
    await node.want(serving(2, before))
    await node.until(lambda: node.host.table.serves)
    assert await version_for(1) == 2
    await node.want(lost := lose_rows(serving(2, before), "rows are lost", 9))
    await node.until(lambda: node.host.return_wanted)
    assert (node.host.return_wanted, node.host.failure) == ("rows are lost", "")
    assert await version_for(1) == 0
    node.join_run(4, 4)
    assert node.host.return_wanted == ""
    await node.want(began := dataclasses.replace(lost, version=4, lost="", rows_from=4))
    after = await node.registered(unlike=before.incarnation)
    assert after.rows_from == 4
    await node.want(dataclasses.replace(serving(5, after), rows_from=4))
    await node.until(lambda: node.host.table.serves)
    assert [await version_for(1), await version_for(4), began.version] == [0, 5, 4]
    node.join_run(6, 6)  # it may hear of the round that goes back before it reads the table without slots
    assert [await version_for(round) for round in (4, 6)] == [5, 0]


async def test_servers_are_stopped_and_continue_with_their_agent(node: Node) -> None:
    await node.begin()
    await node.registered()
    (pid,) = node.pids()
    node.host.pause()
    await node.until(lambda: "State:\tT" in Path(f"/proc/{pid}/status").read_text())
    node.host.resume()
    await node.until(lambda: "State:\tS" in Path(f"/proc/{pid}/status").read_text())
