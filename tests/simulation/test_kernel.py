"""The simulated operating system keeps its promises: order, clocks, processes, machines, the network and its TCP."""

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

import pytest

from elastic_run.rendezvous.failure_detector import AgentListener, watch_until_dead
from elastic_run.rendezvous.keys import Keys

from .kernel import Kernel, Livelock, Process
from .network import Network

ROOT = Path(__file__).parents[2]

FOREVER = 100_000.0
"""Seconds of the world's time that nothing here takes."""


@pytest.fixture
def network() -> Network:
    return Network(random.Random(1))


@pytest.fixture
def kernel(network: Network) -> Generator[Kernel, None, None]:
    with Kernel(network, random.Random(2)) as kernel:
        yield kernel


def never() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


class Diary:
    """What happened, and when by the world's clock."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.lines: list[tuple[float, str]] = []

    def note(self, words: str) -> None:
        self.lines.append((round(self._kernel.now, 6), words))

    @property
    def words(self) -> list[str]:
        return [words for _, words in self.lines]

    async def every(self, seconds: float, words: str) -> None:
        while True:
            await asyncio.sleep(seconds)
            self.note(words)


@pytest.fixture
def diary(kernel: Kernel) -> Diary:
    return Diary(kernel)


# -- order and time ---------------------------------------------------------------------------------------------------


def test_time_passes_only_while_everybody_waits(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        for _ in range(1000):
            await asyncio.sleep(0)
        diary.note("worked")
        await asyncio.sleep(3600)
        diary.note("slept")

    kernel.spawn("a", "p", main)
    assert kernel.run() == "idle"
    assert diary.lines == [(0.0, "worked"), (3600.0, "slept")]


def test_callbacks_run_in_the_order_in_which_they_were_asked_for(kernel: Kernel, diary: Diary) -> None:
    for name in "abc":
        kernel.call_later(1.0, diary.note, f"late {name}")
    for name in "abc":
        kernel.call_soon(diary.note, name)
    kernel.run()
    assert diary.words == ["a", "b", "c", "late a", "late b", "late c"]


def test_what_is_cancelled_is_not_called_and_does_not_hold_the_clock(kernel: Kernel, diary: Diary) -> None:
    kernel.call_later(50.0, diary.note, "never").cancel()
    kernel.call_soon(diary.note, "never either").cancel()
    kernel.run()
    assert (diary.words, kernel.now) == ([], 0.0)


def test_what_a_process_does_takes_time_where_it_costs_and_only_its_own_timers_wait(
    kernel: Kernel, diary: Diary
) -> None:
    async def works() -> None:
        renews = asyncio.create_task(diary.every(0.5, "busy"))
        await asyncio.sleep(0.25)
        keys = [(job.success("a"), job.time("1.1")) for _ in range(21)]  # two of the product's functions, 21 times
        await asyncio.sleep(1.0)
        renews.cancel()
        assert len(keys) == 21

    job = Keys("job")
    kernel.cost = 0.1
    kernel.spawn("a", "p", works)
    kernel.spawn("b", "q", lambda: diary.every(0.5, "idle"))
    kernel.run(until=2.75)
    assert [words for at, words in diary.lines if at < 2.0] == ["idle"] * 3
    assert next(at for at, words in diary.lines if words == "busy") == pytest.approx(0.25 + 21 * 0.1)


def test_a_run_ends_at_its_time_and_goes_on_from_there(kernel: Kernel, diary: Diary) -> None:
    kernel.spawn("a", "p", lambda: diary.every(1.0, "tick"))
    assert kernel.run(until=2.5) == "until"
    assert (len(diary.words), kernel.now) == (2, 2.5)
    kernel.run(until=4.0)
    assert len(diary.words) == 4


def test_a_run_ends_as_soon_as_it_is_told_to(kernel: Kernel, diary: Diary) -> None:
    kernel.spawn("a", "p", lambda: diary.every(1.0, "tick"))
    assert kernel.run(until=FOREVER, stop=lambda: len(diary.words) == 3) == "stop"
    assert kernel.now == 3.0


def test_a_run_without_end_names_who_keeps_it_busy(kernel: Kernel) -> None:
    async def spin() -> None:
        while True:  # noqa: ASYNC110  the point is that it never ends
            await asyncio.sleep(0)

    kernel.spawn("a", "p", spin)
    with pytest.raises(Livelock, match=r"p: task main"):
        kernel.run(limit=1000)


def test_a_deadline_is_not_missed_by_rounding(kernel: Kernel) -> None:
    """A task that sleeps until a time on its own clock wakes when that clock has reached it."""
    early: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for step in range(1, 2000):
            deadline = loop.time() + 0.1 / step
            while loop.time() < deadline:  # noqa: ASYNC110  the point is how often
                await asyncio.sleep(deadline - loop.time())
            event = asyncio.Event()
            deadline = loop.time() + 0.1 / step
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await event.wait()
            if loop.time() < deadline:
                early.append(deadline - loop.time())

    kernel.spawn("a", "p", main)
    kernel.run(limit=100_000)
    assert early == []


def test_asyncio_works_as_usual(kernel: Kernel, diary: Diary) -> None:
    async def worker(queue: "asyncio.Queue[int]", lock: asyncio.Lock) -> int:
        total = 0
        while (item := await queue.get()) >= 0:
            async with lock:
                await asyncio.sleep(0.1)
                total += item
        return total

    async def main() -> None:
        queue: asyncio.Queue[int] = asyncio.Queue(2)
        lock = asyncio.Lock()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(worker(queue, lock)) for _ in range(3)]
            for item in (1, 2, 3, 4, -1, -1, -1):
                await queue.put(item)
        diary.note(f"sum {sum(task.result() for task in tasks)}")
        done, pending = await asyncio.wait([asyncio.create_task(asyncio.sleep(n)) for n in (1, 9)], timeout=2)
        diary.note(f"{len(done)} done, {len(pending)} pending")
        for task in pending:
            task.cancel()
        try:
            await asyncio.wait_for(never(), 1)
        except TimeoutError:
            diary.note("waited in vain")
        await asyncio.gather(*pending, return_exceptions=True)

    process = kernel.spawn("a", "p", main)
    kernel.run()
    assert diary.words == ["sum 10", "1 done, 1 pending", "waited in vain"]
    assert (process.end, process.leftover, kernel.errors) == ("returned", (), [])


def test_each_machine_has_a_clock_of_its_own_and_they_run_alike(kernel: Kernel) -> None:
    times: dict[str, list[float]] = {}

    async def main(name: str) -> None:
        loop = asyncio.get_running_loop()
        times[name] = [loop.time()]
        await asyncio.sleep(10)
        times[name].append(loop.time())

    for machine, name in (("a", "a1"), ("a", "a2"), ("b", "b1")):
        kernel.spawn(machine, name, lambda name=name: main(name))
    kernel.run()
    assert times["a1"] == times["a2"]
    assert abs(times["a1"][0] - times["b1"][0]) > 1
    assert all(after - before == pytest.approx(10) for before, after in times.values())
    assert kernel.time() == kernel.now == 10


def test_a_timer_is_set_by_the_clock_of_whoever_sets_it(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(loop.time() + 2, diary.note, "mine")
        loop.call_at(loop.time() + 3, diary.note, "the world's", context=kernel.world)
        await asyncio.sleep(5)

    kernel.spawn("a", "p", main)
    kernel.run()
    assert diary.lines == [(2.0, "mine"), (3.0, "the world's")]


# -- processes --------------------------------------------------------------------------------------------------------


def test_a_killed_process_never_runs_again_not_even_its_finally(kernel: Kernel, diary: Diary) -> None:
    async def child() -> None:
        try:
            await diary.every(1.0, "child")
        finally:
            diary.note("child ends")

    async def main() -> None:
        task = asyncio.create_task(child())
        try:
            await diary.every(1.0, "main")
        finally:
            task.cancel()
            diary.note("main ends")

    process = kernel.spawn("a", "p", main)
    kernel.run(until=1.5)
    process.kill()
    assert kernel.run(until=60) in ("idle", "until")
    assert sorted(diary.words) == ["child", "main"]
    assert (process.alive, process.end) == (False, "SIGKILL")


def test_a_frozen_process_stands_still_and_does_what_has_waited_in_order_when_it_thaws(
    kernel: Kernel, diary: Diary
) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for seconds in (4, 2, 3):
            loop.call_later(seconds, diary.note, f"after {seconds}")
        await asyncio.sleep(20)
        diary.note("the end")

    process = kernel.spawn("a", "p", main)
    kernel.run(until=1)
    process.freeze()
    kernel.run(until=10)
    assert diary.words == []
    process.thaw()
    kernel.run()
    assert diary.lines == [(10.0, "after 2"), (10.0, "after 3"), (10.0, "after 4"), (20.0, "the end")]


def test_the_clock_of_a_frozen_process_goes_on(kernel: Kernel) -> None:
    slept: list[float] = []

    async def main() -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(2)
        slept.append(asyncio.get_running_loop().time() - began)

    process = kernel.spawn("a", "p", main)
    kernel.run(until=1)
    process.freeze()
    kernel.call_later(30, process.thaw)
    kernel.run()
    assert slept == [31]


def test_a_frozen_process_can_be_killed(kernel: Kernel, diary: Diary) -> None:
    process = kernel.spawn("a", "p", lambda: diary.every(1.0, "tick"))
    kernel.run(until=1.5)
    process.freeze()
    kernel.run(until=5)
    process.kill()
    process.thaw()
    kernel.run(until=60)
    assert diary.words == ["tick"]


def test_the_others_go_on_while_one_is_frozen(kernel: Kernel, diary: Diary) -> None:
    kernel.spawn("a", "p", lambda: diary.every(1.0, "frozen")).freeze()
    kernel.spawn("a", "q", lambda: diary.every(1.0, "other"))
    kernel.call_later(1.5, diary.note, "world")
    kernel.run(until=2.5)
    assert diary.words == ["other", "world", "other"]


def test_a_process_that_returns_dies_with_the_tasks_that_it_left(kernel: Kernel, diary: Diary) -> None:
    async def main() -> str:
        asyncio.get_running_loop().create_task(diary.every(1.0, "tick"), name="ticks")
        await asyncio.sleep(1.5)
        return "result"

    process = kernel.spawn("a", "p", main)
    kernel.run(until=60)
    assert diary.words == ["tick"]
    assert (process.leftover, process.end, process.main.result()) == (("ticks",), "returned", "result")


def test_a_process_whose_main_task_raises_is_an_error(kernel: Kernel) -> None:
    async def main() -> None:
        raise ValueError("no such thing")

    process = kernel.spawn("a", "p", main)
    kernel.run()
    assert process.end == "raised"
    assert len(kernel.errors) == 1
    assert kernel.errors[0].startswith("p: ") and "no such thing" in kernel.errors[0]


def test_an_error_that_nobody_takes_is_kept_with_the_name_of_its_process(kernel: Kernel) -> None:
    async def fail() -> None:
        raise ValueError("lost")

    async def main() -> None:
        asyncio.create_task(fail())  # noqa: RUF006  nobody holds it: that is the point
        asyncio.get_running_loop().call_soon({}.pop, "missing")
        await asyncio.sleep(1)

    kernel.spawn("a", "p", main)
    kernel.run()
    assert [("lost" in line, "missing" in line) for line in kernel.errors] == [(True, False), (False, True)]
    assert all(line.startswith("p: ") for line in kernel.errors)


def test_an_error_of_the_world_ends_the_run(kernel: Kernel) -> None:
    kernel.call_soon({}.pop, "missing")
    with pytest.raises(KeyError):
        kernel.run()


def test_a_generator_that_is_dropped_half_way_is_ended_by_its_process(kernel: Kernel, diary: Diary) -> None:
    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(1)
            diary.note("ended")

    async def main() -> None:
        async for _ in numbers():
            break
        await asyncio.sleep(5)

    kernel.spawn("a", "p", main)
    kernel.run()
    assert diary.lines == [(1.0, "ended")]


# -- signals ----------------------------------------------------------------------------------------------------------


async def _catching(diary: Diary, *numbers: int) -> None:
    for number in numbers:
        asyncio.get_running_loop().add_signal_handler(number, diary.note, signal.Signals(number).name)
    await never()


def test_a_signal_calls_the_handler_of_its_process_alone(kernel: Kernel, diary: Diary) -> None:
    process = kernel.spawn("a", "p", lambda: _catching(diary, signal.SIGTERM))
    other = kernel.spawn("a", "q", lambda: diary.every(10, "tick"))
    kernel.run(until=1)
    process.signal(signal.SIGTERM)
    kernel.run(until=2)
    assert diary.words == ["SIGTERM"]
    assert process.alive and other.alive


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_without_a_handler_kills(kernel: Kernel, diary: Diary, number: signal.Signals) -> None:
    process = kernel.spawn("a", "p", lambda: _catching(diary, signal.SIGUSR1))
    kernel.run(until=1)
    process.signal(number)
    assert (process.alive, process.end) == (False, number.name)


def test_a_signal_whose_handler_was_removed_kills(kernel: Kernel) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, lambda: None)
        assert loop.remove_signal_handler(signal.SIGTERM)
        assert not loop.remove_signal_handler(signal.SIGTERM)
        await never()

    process = kernel.spawn("a", "p", main)
    kernel.run(until=1)
    process.signal(signal.SIGTERM)
    assert not process.alive


def test_signals_to_a_frozen_process_wait_until_it_goes_on_but_sigkill_does_not(kernel: Kernel, diary: Diary) -> None:
    process = kernel.spawn("a", "p", lambda: _catching(diary, signal.SIGTERM, signal.SIGINT))
    kernel.run(until=1)
    process.signal(signal.SIGSTOP)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        process.signal(number)
    kernel.run(until=2)
    assert diary.words == []
    process.signal(signal.SIGCONT)
    kernel.run(until=3)
    process.signal(signal.SIGSTOP)
    process.signal(signal.SIGCONT)
    kernel.run(until=4)
    assert diary.words == ["SIGTERM", "SIGINT"]
    process.signal(signal.SIGSTOP)
    process.signal(signal.SIGKILL)
    assert not process.alive


# -- the network ------------------------------------------------------------------------------------------------------


def test_a_cut_is_one_way_until_it_is_healed(network: Network) -> None:
    network.cut("a", "b")
    assert network.delay("a", "b") is None and not network.reaches("a", "b")
    assert network.delay("b", "a") is not None and network.reaches("b", "a")
    network.heal("a", "b")
    assert network.delay("a", "b") is not None


def test_a_machine_that_is_cut_off_by_a_wildcard_still_reaches_itself(network: Network) -> None:
    network.cut("*", "a")
    network.cut("a", "*")
    assert network.delay("a", "b") is None and network.delay("b", "a") is None
    assert network.delay("a", "a") is not None and network.delay("b", "c") is not None
    network.heal("*", "a")
    assert network.delay("b", "a") is not None and network.delay("a", "b") is None
    network.heal()
    assert network.delay("a", "b") is not None


def test_messages_are_lost_by_chance_and_slowed_by_their_factor(network: Network) -> None:
    network.lose("a", "b", 0.5)
    lost = sum(network.delay("a", "b") is None for _ in range(1000))
    assert 400 < lost < 600
    assert all(network.delay("b", "a") for _ in range(100))
    network.lose("a", "b", 0.0)
    network.slow("a", "b", 1000.0)
    delays = [network.delay("a", "b") for _ in range(100)]
    assert all(delay is not None and 0.2 <= delay <= 2.0 for delay in delays)


# -- TCP --------------------------------------------------------------------------------------------------------------

PORT = 7000

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


def server(kernel: Kernel, handler: Handler, machine: str = "server", port: int = PORT) -> Process:
    async def main() -> None:
        started = await asyncio.start_server(handler, None, port)
        assert started.sockets[0].getsockname() == (machine, port)
        await never()

    return kernel.spawn(machine, machine, main)


def listening(diary: Diary) -> Handler:
    """Notes each line, the end, and how it came."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                diary.note(line.decode().strip())
            diary.note("the end")
        except OSError as error:
            diary.note(type(error).__name__)
        writer.close()

    return handler


async def _connect(host: str = "server", port: int = PORT) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(host, port)


def client(kernel: Kernel, diary: Diary, name: str = "client") -> Process:
    """Connects, notes what it hears, and how that ended."""

    async def main() -> None:
        try:
            reader, writer = await _connect()
            diary.note("connected")
            await listening(diary)(reader, writer)
        except OSError as error:
            diary.note(type(error).__name__)

    return kernel.spawn(name, name, main)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line)
        await writer.drain()
    writer.close()
    await writer.wait_closed()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()
    writer.close()


def test_streams_talk_to_and_fro_in_order(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        reader, writer = await _connect()
        for number in range(100):
            writer.write(b"%d\n" % number)
        await writer.drain()
        for _ in range(100):
            diary.note((await reader.readline()).decode().strip())
        writer.close()
        await writer.wait_closed()
        assert await reader.read() == b""

    server(kernel, echo)
    process = kernel.spawn("client", "client", main)
    kernel.run(until=60)
    assert diary.words == [str(number) for number in range(100)]
    assert (process.end, kernel.errors) == ("returned", [])
    assert 0 < diary.lines[-1][0] < 0.05


def test_nobody_listens_so_that_a_connection_is_refused_after_a_round_trip(kernel: Kernel, diary: Diary) -> None:
    kernel.spawn("server", "other", never_main)
    client(kernel, diary)
    kernel.run(until=60)
    assert diary.words == ["ConnectionRefusedError"]
    assert 0.0004 <= diary.lines[0][0] <= 0.004


async def never_main() -> None:
    await never()


def test_a_machine_that_is_off_answers_nothing_and_a_lost_syn_is_repeated(
    kernel: Kernel, network: Network, diary: Diary
) -> None:
    server(kernel, silent)
    network.cut("client", "server")
    client(kernel, diary)
    kernel.call_later(2.5, network.heal)
    kernel.run(until=60)
    assert diary.words == ["connected"] and 3 <= diary.lines[0][0] < 3.1  # tried after 0, 1 and 3 s
    kernel.power_off("server")
    client(kernel, diary, "another")
    kernel.run(until=60 + 130)
    assert diary.words == ["connected", "TimeoutError"]
    assert diary.lines[1][0] == pytest.approx(60 + 127)


def test_an_attempt_to_connect_can_be_given_up(kernel: Kernel, network: Network, diary: Diary) -> None:
    async def main() -> None:
        try:
            async with asyncio.timeout(0.5):
                await _connect()
        except TimeoutError:
            diary.note("gave up")
        await never()

    server(kernel, listening(diary))
    network.cut("server", "client")
    kernel.spawn("client", "client", main)
    kernel.call_later(0.9, network.heal)
    kernel.run(until=60)
    assert diary.words == ["gave up"]


def test_a_connection_that_comes_about_after_it_was_given_up_is_reset(
    kernel: Kernel, network: Network, diary: Diary
) -> None:
    async def main() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await _connect()
        await never()

    server(kernel, listening(diary))
    network.slow("server", "client", 1000.0)
    kernel.spawn("client", "client", main)
    kernel.run(until=60)
    assert diary.words == ["ConnectionResetError"] and 0.2 < diary.lines[0][0] < 2.1


def test_a_connection_that_nobody_took_before_the_listener_closed_is_reset(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        listener = kernel.listen(PORT)
        await asyncio.sleep(5)
        listener.close()
        await never()

    kernel.spawn("server", "server", main)
    client(kernel, diary)
    kernel.run(until=60)
    assert diary.words == ["connected", "ConnectionResetError"] and 5 < diary.lines[1][0] < 5.1


def test_bytes_that_meet_a_cut_arrive_soon_after_it_is_healed_and_in_order(
    kernel: Kernel, network: Network, diary: Diary
) -> None:
    async def main() -> None:
        _, writer = await _connect()
        for number in range(5):
            writer.write(b"%d\n" % number)
            await asyncio.sleep(1)
        await never()

    server(kernel, listening(diary))
    kernel.spawn("client", "client", main)
    kernel.call_later(0.5, network.cut, "client", "server")
    kernel.call_later(3.5, network.heal)
    kernel.run(until=60)
    assert diary.words == ["0", "1", "2", "3", "4"]
    when = {words: at for at, words in diary.lines}
    assert 3.5 <= when["1"] == when["2"] == when["3"] <= 3.5 + 3.2 and when["4"] < when["3"] + 4


def test_a_process_that_closes_ends_the_stream_of_its_peer(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        _, writer = await _connect()
        writer.write(b"bye\n")
        writer.close()

    server(kernel, listening(diary))
    kernel.spawn("client", "client", main)
    kernel.run(until=60)
    assert diary.words == ["bye", "the end"]


@pytest.mark.parametrize("how", ["killed", "returned"])
def test_a_process_that_is_gone_ends_the_streams_of_its_peers(kernel: Kernel, diary: Diary, how: str) -> None:
    async def main() -> None:
        await asyncio.start_server(silent, None, PORT)
        await asyncio.sleep(5 if how == "returned" else FOREVER)

    process = kernel.spawn("server", "server", main)
    kernel.run(until=0.1)
    client(kernel, diary)
    kernel.call_later(4.9, process.kill if how == "killed" else never_called)
    kernel.run(until=60)
    assert diary.words == ["connected", "the end"] and 5 < diary.lines[1][0] < 5.1
    client(kernel, diary, "another")
    kernel.run(until=120)
    assert diary.words[2:] == ["ConnectionRefusedError"]


def never_called() -> None:
    """Stands for nothing to do."""


def test_bytes_that_a_killed_process_had_not_read_make_its_end_a_reset(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        reader, writer = await _connect()
        process.freeze()
        writer.write(b"unread\n")
        kernel.call_later(1, process.kill, context=kernel.world)
        try:
            await reader.read()
        except OSError as error:
            diary.note(type(error).__name__)

    process = server(kernel, listening(diary))
    kernel.spawn("client", "client", main)
    kernel.run(until=60)
    assert diary.words == ["ConnectionResetError"]


def test_a_frozen_process_is_still_connected_to_and_hears_everything_later(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        _, writer = await _connect()
        diary.note("connected")
        writer.write(b"hello\n")
        writer.close()

    process = server(kernel, listening(diary))
    kernel.run(until=1)
    process.freeze()
    kernel.spawn("client", "client", main)
    kernel.run(until=10)
    assert diary.words == ["connected"]
    process.thaw()
    kernel.run(until=20)
    assert diary.words == ["connected", "hello", "the end"]


def test_without_power_nothing_is_said_and_keep_alive_finds_out(kernel: Kernel, diary: Diary) -> None:
    server(kernel, silent)

    async def main(name: str, keep_alive: bool) -> None:
        reader, writer = await _connect()
        if keep_alive:
            for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
                writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, option, value)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            await reader.read()
        except OSError as error:
            diary.note(f"{name}: {type(error).__name__}")

    kernel.run(until=0.1)
    kernel.spawn("b", "b", lambda: main("deaf", False))
    kernel.spawn("c", "c", lambda: main("careful", True))
    kernel.run(until=7)
    kernel.power_off("server")
    kernel.run(until=60)
    assert diary.words == ["careful: TimeoutError"]
    assert diary.lines[0][0] == pytest.approx(5.1 + 11, abs=0.1)  # it last heard of its peer at 5.1


def test_keep_alive_is_content_with_a_peer_that_is_frozen(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        reader, writer = await _connect()
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await reader.read()
        diary.note("broken")

    process = server(kernel, silent)
    kernel.spawn("client", "client", main)
    kernel.run(until=1)
    process.freeze()
    kernel.run(until=1000)
    assert diary.words == []


def test_who_writes_to_a_machine_that_has_booted_again_is_reset(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        reader, writer = await _connect()
        await asyncio.sleep(5)
        writer.write(b"still there?\n")
        try:
            await reader.read()
        except OSError as error:
            diary.note(type(error).__name__)

    server(kernel, silent)
    kernel.spawn("client", "client", main)
    kernel.run(until=1)
    before = kernel.machine("server").offset
    kernel.power_off("server")
    kernel.power_on("server")
    assert kernel.machine("server").offset != before
    kernel.run(until=60)
    assert diary.words == ["ConnectionResetError"]


def test_all_processes_of_a_machine_die_with_its_power(kernel: Kernel, diary: Diary) -> None:
    processes = [kernel.spawn("a", name, lambda: diary.every(1.0, "tick")) for name in ("p", "q")]
    other = kernel.spawn("b", "r", never_main)
    kernel.run(until=1.5)
    kernel.power_off("a")
    kernel.run(until=60)
    assert diary.words == ["tick", "tick"]
    assert [process.end for process in processes] == ["powered off", "powered off"] and other.alive
    with pytest.raises(ValueError, match="a is off"):
        kernel.spawn("a", "p", never_main)


def test_a_port_is_given_once(kernel: Kernel) -> None:
    async def main() -> None:
        first, second = kernel.listen(), kernel.listen()
        assert first.getsockname()[1] != second.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            kernel.listen(first.getsockname()[1])
        first.close()
        kernel.listen(first.getsockname()[1])

    process = kernel.spawn("a", "p", main)
    kernel.run()
    assert (process.end, kernel.errors) == ("returned", [])


def test_a_connection_that_comes_before_the_server_is_taken_by_it(kernel: Kernel, diary: Diary) -> None:
    async def main() -> None:
        listener = kernel.listen(PORT)
        await asyncio.sleep(5)
        await asyncio.start_server(listening(diary), sock=listener)  # type: ignore[arg-type]  # as far as one is needed
        await never()

    async def speak() -> None:
        _, writer = await _connect()
        diary.note("connected")
        writer.write(b"early\n")
        await never()

    kernel.spawn("server", "server", main)
    kernel.spawn("client", "client", speak)
    kernel.run(until=60)
    assert diary.words == ["connected", "early"]
    assert diary.lines[1][0] == pytest.approx(5.0)


# -- the product's evidence of death ----------------------------------------------------------------------------------


class Watched:
    """An agent's listener of the product on machine `a`, and the product's watcher on `b`."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.verdict = ""
        self.at = 0.0
        self.process = self.serve("A1")
        kernel.run(until=0.5)
        self.watcher = kernel.spawn("b", "watcher", self._watch)
        kernel.run(until=1)
        assert not self.verdict

    def serve(self, incarnation: str) -> Process:
        async def main() -> None:
            listener = AgentListener(incarnation, lambda _: self._kernel.listen(PORT))  # type: ignore[arg-type,return-value]  # as far as a socket is needed
            await listener.start("", "a")
            assert listener.address == f"a:{PORT}"
            await never()

        return self._kernel.spawn("a", incarnation, main)

    async def _watch(self) -> None:
        self.verdict = str(await watch_until_dead(f"a:{PORT}", "A1"))
        self.at = self._kernel.now

    def after(self, seconds: float) -> str:
        """The verdict so many seconds from now."""
        self._kernel.run(until=self._kernel.now + seconds)
        assert self._kernel.errors == []
        return self.verdict


@pytest.fixture
def watched(kernel: Kernel) -> Watched:
    return Watched(kernel)


def test_a_watcher_proves_the_death_of_a_killed_process(watched: Watched) -> None:
    watched.process.kill()
    assert "refuses connections" in watched.after(60)
    assert watched.at < 1.1


def test_a_watcher_proves_the_death_of_a_process_that_was_frozen_first(watched: Watched) -> None:
    watched.process.freeze()
    assert watched.after(60) == ""
    watched.process.kill()
    assert "refuses connections" in watched.after(60)


def test_a_watcher_proves_nothing_about_a_process_that_lives(watched: Watched) -> None:
    assert watched.after(600) == ""


def test_a_watcher_proves_nothing_about_a_frozen_process(watched: Watched, kernel: Kernel) -> None:
    watched.process.freeze()
    assert watched.after(600) == ""
    watched.process.thaw()
    assert watched.after(600) == ""


@pytest.mark.parametrize("links", [[("a", "b")], [("b", "a")], [("a", "b"), ("b", "a")]])
def test_a_watcher_proves_nothing_about_a_process_that_is_cut_off(
    watched: Watched, network: Network, links: list[tuple[str, str]]
) -> None:
    for link in links:
        network.cut(*link)
    assert watched.after(600) == ""
    network.heal()
    assert watched.after(600) == ""
    watched.process.kill()
    assert "refuses connections" in watched.after(60)


def test_a_watcher_is_misled_by_a_firewall_that_resets_what_stands_and_refuses_what_is_new(
    watched: Watched, kernel: Kernel, network: Network
) -> None:
    network.refuse("b", "a")
    assert watched.after(60) == ""
    kernel.stack.reset("a", "b")
    assert "refuses connections" in watched.after(60)


@pytest.mark.parametrize("ends", [("a", "*"), ("*", "b"), ("b", "a")])
def test_connections_that_are_reset_are_made_again_where_nobody_refuses(
    watched: Watched, kernel: Kernel, ends: tuple[str, str]
) -> None:
    kernel.stack.reset(*ends)
    assert watched.after(60) == ""
    watched.process.kill()
    assert "refuses connections" in watched.after(60)


def test_a_watcher_proves_nothing_about_a_machine_that_is_off(watched: Watched, kernel: Kernel) -> None:
    kernel.power_off("a")
    assert watched.after(600) == ""


def test_a_watcher_proves_the_death_of_a_process_whose_machine_has_booted_again(
    watched: Watched, kernel: Kernel
) -> None:
    kernel.power_off("a")
    watched.after(5)
    kernel.power_on("a")
    assert "refuses connections" in watched.after(60)


def test_a_watcher_knows_another_incarnation_in_the_same_place(watched: Watched) -> None:
    watched.process.kill()
    watched.serve("A2")
    assert "another process uses its address" in watched.after(60)


def test_a_firewall_that_refuses_is_taken_for_proof_once_the_connection_is_lost(
    watched: Watched, network: Network
) -> None:
    network.refuse("b", "a")
    assert watched.after(60) == ""  # what is connected stays connected
    network.cut("a", "b")
    watched.after(20)
    network.heal()
    assert "refuses connections" in watched.after(60)
    assert watched.process.alive


# -- one seed, one story ----------------------------------------------------------------------------------------------


def story(seed: int) -> str:
    """Everything that happens to a few processes under faults, as text."""
    network = Network(random.Random(seed))
    lines: list[str] = []
    with Kernel(network, random.Random(seed)) as kernel:

        def note(words: str) -> None:
            lines.append(f"{kernel.now!r} {asyncio.get_running_loop().time()!r} {words}")

        async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                while line := await reader.readline():
                    note(f"heard {line!r} from {writer.get_extra_info('peername')}")
            note("lost one")
            writer.close()

        async def call(name: str, other: str) -> None:
            for number in range(5):
                try:
                    async with asyncio.timeout(3):
                        _, writer = await _connect(other)
                    writer.write(json.dumps([name, number]).encode() + b"\n")
                    await asyncio.sleep(0.3)
                    writer.close()
                except OSError as error:
                    note(f"{name} cannot reach {other}: {error!r}")

        async def main(name: str) -> None:
            await asyncio.start_server(handler, None, PORT)
            async with asyncio.TaskGroup() as group:
                for other in ("a", "b", "c"):
                    group.create_task(call(name, other))
            note(f"tasks: {sorted(task.get_name() for task in asyncio.all_tasks())}")
            await never()

        processes = [kernel.spawn(name, name, lambda name=name: main(name)) for name in ("a", "b", "c")]
        network.lose("*", "*", 0.1)
        kernel.call_later(0.4, network.cut, "a", "b")
        kernel.call_later(0.5, processes[1].freeze)
        kernel.call_later(0.9, processes[2].kill)
        kernel.call_later(2.5, network.heal)
        kernel.call_later(2.9, processes[1].thaw)
        kernel.run(until=30)
        lines.append(f"{kernel.handled} {kernel.errors} {[process.leftover for process in processes]}")
    return "\n".join(lines)


def test_the_same_seed_tells_the_same_story_in_every_interpreter() -> None:
    stories = [
        subprocess.run(
            [sys.executable, "-c", "from tests.simulation.test_kernel import story; print(story(7))"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2")
    ]
    assert stories[0] == stories[1] == story(7) + "\n"
    assert story(8) != story(7)
    assert "heard" in stories[0] and "cannot reach" in stories[0]


# -- the end ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def complaints() -> Generator[list[str], None, None]:
    """What the interpreter complains about, until now and in what is left for the garbage collector."""
    heard: list[str] = []
    before = sys.unraisablehook
    gc.collect()  # what others have left
    sys.unraisablehook = lambda what: heard.append(f"{what.exc_value!r} in {what.object!r}")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield heard
            gc.collect()
        heard += [str(warning.message) for warning in caught]
    finally:
        sys.unraisablehook = before


def _untidy(kernel: Kernel) -> list[str]:
    """Everything that is hard to throw away; what of it reaches an `except Exception` on the way is in the answer."""
    seen: list[str] = []

    async def stubborn() -> None:
        try:
            await never()
        finally:
            try:
                await asyncio.sleep(1)
            finally:
                await asyncio.gather(asyncio.create_task(asyncio.sleep(1)), return_exceptions=True)

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.sleep(FOREVER)
        finally:
            await asyncio.sleep(1)

    async def reads_numbers() -> None:
        async for _ in numbers():
            pass

    async def holds_a_number() -> None:
        generator = numbers()
        await anext(generator)
        await never()

    async def group() -> None:
        async with asyncio.TaskGroup() as tasks, asyncio.timeout(FOREVER):
            tasks.create_task(stubborn())
            tasks.create_task(reads_numbers())
            await asyncio.shield(asyncio.create_task(holds_a_number()))

    async def careful() -> None:
        try:
            await nested()
        except Exception as error:  # noqa: BLE001  it shows what nobody should see
            seen.append(repr(error))

    async def nested() -> None:
        try:
            await stubborn()
        finally:
            await stubborn()

    async def failing() -> None:
        try:
            await never()
        finally:
            raise ValueError("on the way out")

    async def main() -> None:
        listener = AgentListener("A1", lambda _: kernel.listen())  # type: ignore[arg-type,return-value]  # as above
        await listener.start("", asyncio.current_task().get_name())  # type: ignore[union-attr]  # in a task
        kept = [asyncio.create_task(work()) for work in (stubborn, group, failing, careful, holds_a_number)]
        try:
            _, writer = await _connect("server")
            writer.write(b"unfinished")
            await asyncio.wait(kept)
        finally:
            for task in kept:
                task.cancel()
            await asyncio.gather(*kept, return_exceptions=True)
            await listener.close()

    server(kernel, echo)
    killed, frozen, _, _ = (kernel.spawn(name, name, main) for name in ("killed", "frozen", "off", "alive"))
    kernel.run(until=5)
    killed.kill()
    frozen.freeze()
    kernel.power_off("off")
    kernel.run(until=10)
    for machine in ("killed", "alive"):
        kernel.spawn(machine, "unstarted", main)
    return seen


def test_a_kernel_is_closed_without_a_word(network: Network) -> None:
    with complaints() as heard:
        with Kernel(network, random.Random(1)) as kernel:
            seen = _untidy(kernel)
            assert kernel.errors == []
        assert kernel.errors == []
        del kernel
    assert (heard, seen) == ([], [])


def test_thousands_of_kernels_leave_nothing_behind() -> None:
    def live() -> int:
        gc.collect()
        return len(gc.get_objects())

    def once(seed: int) -> None:
        with Kernel(Network(random.Random(seed)), random.Random(seed)) as kernel:
            _untidy(kernel)

    once(0)
    before = live()
    for seed in range(20):
        once(seed)
    assert live() - before < 200  # one kernel alone is more than that


def test_the_collector_of_garbage_is_off_while_a_kernel_lives_and_on_again_after(network: Network) -> None:
    assert gc.isenabled()
    with Kernel(network, random.Random(1)):
        assert not gc.isenabled()
    assert gc.isenabled()


def test_a_kernel_does_many_callbacks(kernel: Kernel) -> None:
    async def main() -> None:
        event = asyncio.Event()
        for _ in range(2000):
            await asyncio.sleep(0.1)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await event.wait()

    for machine in ("a", "b", "c"):
        kernel.spawn(machine, machine, main)
    began = time.process_time()
    assert kernel.run() == "idle"
    seconds = time.process_time() - began
    assert kernel.now == pytest.approx(400.0)
    assert 3 * 2000 * 4 <= kernel.handled <= 3 * 2000 * 8
    print(f"{1e6 * seconds / kernel.handled:.2f} microseconds per callback ({kernel.handled} callbacks)")
