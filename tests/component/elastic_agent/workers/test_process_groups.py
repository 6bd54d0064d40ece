"""A worker that keeps its process, and its agent: both sides of the socket between them."""

import asyncio
import os
import secrets
import socket
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from elastic_run.adapters.client.channel import AgentGone
from elastic_run.adapters.client.context import Context
from elastic_run.adapters.client.rounds import SUFFIX, NoAgent, Rounds, Word
from elastic_run.elastic_agent.workers.process_groups import ProcessGroups
from elastic_run.rendezvous.wire.frame import framed
from elastic_run.rendezvous.wire.values import encode

ME = os.getpid()
PATIENCE = 10.0


def environment(agent: str, round: int = 1) -> dict[str, str]:
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    return {**variables, "ELASTIC_RUN_ROUND": str(round), "ELASTIC_RUN_AGENT": agent}


class Agent:
    """The agent's side, and workers that come to it."""

    def __init__(self) -> None:
        self._news = asyncio.Event()
        self.address = f"@test-{secrets.token_hex(8)}"
        self._workers: list[Rounds] = []
        self.process_groups = ProcessGroups(self._news.set, {7: ME}.get, 0.25)

    async def __aenter__(self) -> "Agent":
        self.process_groups.start(self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()
        self.process_groups.close()

    async def worker(self, *, round: int = 1) -> Rounds:
        """One that has come to stay."""
        found = await asyncio.to_thread(Rounds, environment(self.address, round))
        self._workers.append(found)
        await self.until(lambda: bool(self.process_groups.members([ME]).staying))
        return found

    async def group(self, sockets: list[socket.socket]) -> Rounds:
        """One whose process group stands, of these sockets."""
        members = await self.worker()
        members.register_sockets(sockets)
        members.formed()
        await self.until(lambda: not self.process_groups.members([ME]).forming)
        return members

    async def until(self, true: Callable[[], bool]) -> None:
        """Waits for something to become true of the agent's process groups."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                await self._news.wait()
                self._news.clear()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A process group of two: the two ends of a connection."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        mine = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with closing(mine), closing(theirs):
            yield mine, theirs


async def test_a_worker_stays_from_its_first_word_to_its_end() -> None:
    async with Agent() as agent:
        assert not agent.process_groups.members([ME]).staying
        members = await agent.worker()
        assert agent.process_groups.members([ME, ME + 1]).staying == {ME: 0.0}
        assert agent.process_groups.members([ME]).forming == {ME}
        members.formed()
        await agent.until(lambda: not agent.process_groups.members([ME]).forming)
        assert not agent.process_groups.members([ME]).waiting
        members.close()
        await agent.until(lambda: not agent.process_groups.members([ME]).staying)


async def test_a_worker_that_has_trained_to_the_end_has_done_so_until_its_process_ends() -> None:
    async with Agent() as agent:
        members = await agent.worker()
        members.done()
        await agent.until(lambda: agent.process_groups.members([ME]).done == {ME})
        assert not agent.process_groups.members([ME]).staying
        members.close()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await agent.until(lambda: not agent.process_groups.members([ME]).done)
        agent.process_groups.forget(ME)
        assert not agent.process_groups.members([ME]).done


async def test_breaking_the_process_group_frees_who_waits_for_a_peer(pair: tuple[socket.socket, socket.socket]) -> None:
    mine, theirs = pair
    async with Agent() as agent:
        members = await agent.group([mine])
        assert not members.broken
        assert not members.over
        waits = asyncio.create_task(asyncio.to_thread(mine.recv, 1))
        agent.process_groups.break_groups([ME], 2)
        async with asyncio.timeout(PATIENCE):
            assert await waits == b""
            assert await asyncio.to_thread(theirs.recv, 1) == b""
        assert members.broken
        assert members.over


async def test_what_is_written_to_a_broken_process_group_goes_nowhere_before_it_fails(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    mine, theirs = pair
    async with Agent() as agent:
        await agent.group([mine])
        theirs.sendall(b"last")
        agent.process_groups.break_groups([ME], 2)
        assert await asyncio.to_thread(mine.recv, 10) == b"last"
        assert await asyncio.to_thread(mine.recv, 10) == b""
        mine.sendall(b"to nobody")
        assert await asyncio.to_thread(theirs.recv, 10) == b"to nobody"
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.to_thread(theirs.recv, 10) == b""
        with pytest.raises(BrokenPipeError):
            mine.sendall(b"to nobody")


async def test_what_is_written_to_a_dead_worker_does_not_fail_at_once(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    mine, theirs = pair
    async with Agent() as agent:
        await agent.group([mine])
        theirs.sendall(b"unread: the system would answer the next with a reset")
        mine.close()
        agent.process_groups.forget(ME)
        assert await asyncio.to_thread(theirs.recv, 1) == b""
        for _ in range(3):
            theirs.sendall(b"to nobody")
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    theirs.sendall(b"to nobody")
                except OSError:
                    break
                await asyncio.sleep(0.01)


async def test_an_agent_that_ends_keeps_no_socket(pair: tuple[socket.socket, socket.socket]) -> None:
    mine, theirs = pair
    async with Agent() as agent:
        await agent.group([mine])
        agent.process_groups.break_groups([ME], 2)
        agent.process_groups.close()
        theirs.settimeout(PATIENCE)
        assert theirs.recv(1) == b""


async def test_the_end_of_a_worker_is_heard_by_its_peers_while_its_child_has_the_sockets(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    mine, theirs = pair
    child = mine.dup()
    async with Agent() as agent:
        await agent.group([mine])
        mine.close()
        agent.process_groups.forget(ME)
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.to_thread(theirs.recv, 1) == b""
    child.close()


async def test_a_listening_socket_is_not_handed_over() -> None:
    async with Agent() as agent:
        members = await agent.worker()
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            members.register_sockets([server, 0, 9999])
            members.formed()
            await agent.until(lambda: not agent.process_groups.members([ME]).forming)
            agent.process_groups.break_groups([ME], 2)
            socket.create_connection(server.getsockname()).close()
        assert not members.broken


async def test_a_rank_is_given_to_who_asks_and_changes_the_environment() -> None:
    async with Agent() as agent:
        members = await agent.worker()
        assert not agent.process_groups.assign(ME, 2, {})
        asks = asyncio.create_task(asyncio.to_thread(members.next, "ValueError: lost"))
        await agent.until(lambda: agent.process_groups.members([ME]).waiting == {ME})
        assert agent.process_groups.members([ME]).broke == "ValueError: lost"
        assert agent.process_groups.assign(
            ME, 2, {"RANK": "0", "WORLD_SIZE": "1", "ELASTIC_RUN_ROUND": "2"} | one_local()
        )
        async with asyncio.timeout(PATIENCE):
            world = await asks
        assert (world.rank, world.world_size, world.round) == (0, 1, 2)
        assert not agent.process_groups.members([ME]).waiting
        assert agent.process_groups.members([ME]).broke == ""
        assert agent.process_groups.members([ME]).forming == {ME}


def one_local() -> dict[str, str]:
    return {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


async def test_the_news_of_a_planned_round_is_told_once() -> None:
    async with Agent() as agent:
        members = await agent.worker()
        assert not members.planned
        agent.process_groups.plan([ME], 2)
        agent.process_groups.plan([ME], 2)
        assert members.planned
        assert not members.over
        asks = asyncio.create_task(asyncio.to_thread(members.next))
        await agent.until(lambda: agent.process_groups.members([ME]).waiting == {ME})
        assert agent.process_groups.members([ME]).broke == ""
        agent.process_groups.assign(ME, 2, {"ELASTIC_RUN_ROUND": "2"})
        async with asyncio.timeout(PATIENCE):
            await asks
        assert not members.planned


async def test_sockets_of_a_round_that_is_over_already_are_broken_at_once(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    mine, theirs = pair
    async with Agent() as agent:
        members = await agent.worker(round=3)
        members.context = Context(1, 2, 1, 2, 0, 2, 0, "")
        members.register_sockets([mine])
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_so_are_those_that_come_after_the_news_that_their_round_is_over(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    mine, theirs = pair
    async with Agent() as agent:
        members = await agent.worker()
        agent.process_groups.break_groups([ME], 2)
        members.register_sockets([mine])
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.to_thread(theirs.recv, 1) == b""


async def test_who_needs_long_for_a_step_says_so_and_again_only_where_it_has_changed() -> None:
    async with Agent() as agent:
        members = await agent.worker()
        assert agent.process_groups.members([ME]).staying[ME] == 0.0
        members.report_state(True, 4.0)
        await agent.until(lambda: agent.process_groups.members([ME]).staying[ME] == 4.0)
        assert agent.process_groups.members([ME]).holding == {ME}
        members.report_state(True, 5.0)
        members.report_state(True, 9.0)
        await agent.until(lambda: agent.process_groups.members([ME]).staying[ME] == 9.0)
        members.report_state(True, 0.01)
        await agent.until(lambda: agent.process_groups.members([ME]).staying[ME] == 0.0)


async def test_who_waits_for_a_rank_hears_that_its_agent_has_gone() -> None:
    async with Agent() as agent:
        members = await agent.worker()
        asks = asyncio.create_task(asyncio.to_thread(members.next))
        await agent.until(lambda: agent.process_groups.members([ME]).waiting == {ME})
        agent.process_groups.close()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(AgentGone):
                await asks


async def test_a_wait_for_a_rank_has_a_deadline_and_can_be_begun_again() -> None:
    async with Agent() as agent:
        members = await agent.worker()
        with pytest.raises(TimeoutError, match=r"no rank assignment in a round after 1 within 0\.05 s"):
            await asyncio.to_thread(members.next, "", 0.05)
        await agent.until(lambda: agent.process_groups.members([ME]).waiting == {ME})
        agent.process_groups.assign(ME, 2, {"ELASTIC_RUN_ROUND": "2"})
        assert (await asyncio.to_thread(members.next, "", PATIENCE)).round == 2


async def test_many_sockets_are_handed_over_whole() -> None:
    async with Agent() as agent:
        with closing(socket.create_server(("127.0.0.1", 0), backlog=512)) as server:
            mine = [socket.create_connection(server.getsockname()) for _ in range(450)]
            theirs = [server.accept()[0] for _ in mine]
            await agent.group(mine)
            agent.process_groups.break_groups([ME], 2)
            assert [each.recv(1) for each in mine] == [b""] * len(mine)
            async with asyncio.timeout(PATIENCE):
                assert [await asyncio.to_thread(each.recv, 1) for each in theirs] == [b""] * len(theirs)
            for each in (*mine, *theirs):
                each.close()


def test_without_an_agent_there_is_one_rank() -> None:
    members = Rounds({})
    assert members.alone
    assert [world.world_size for world in members] == [1]
    assert not members.planned
    assert not members.over
    with pytest.raises(NoAgent, match="start the script with elastic-run"):
        members.next()


def test_without_an_agent_that_answers_it_is_said() -> None:
    with pytest.raises(AgentGone, match="cannot connect to the agent"):
        Rounds(environment("@nobody-is-here"))


async def test_a_service_speaks_for_a_worker_until_that_has_ended() -> None:
    async with Agent() as agent:
        lines = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for line, local_rank in zip(lines, (7, 8, 7), strict=True):
            line.connect(f"\0{agent.address.removeprefix('@')}{SUFFIX}")
            line.sendall(framed(encode(Word("stay", 1, local_rank=local_rank))))
            if local_rank == 8:
                assert await asyncio.to_thread(line.recv, 1) == b"", "there is no such worker"
            else:
                line.sendall(framed(encode(Word("state", 1, count=1))))
                await agent.until(lambda: bool(agent.process_groups.members([ME]).holding))
        assert await asyncio.to_thread(lines[0].recv, 1) == b"", "another speaks for the worker now"
        agent.process_groups.forget(ME)
        assert await asyncio.to_thread(lines[2].recv, 1) == b"" and not agent.process_groups.members([ME]).staying
        for line in lines:
            line.close()
