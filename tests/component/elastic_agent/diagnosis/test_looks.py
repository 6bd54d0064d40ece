"""A close look at workers blocks nobody, and costs a node no more than it may."""

import asyncio
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from elastic_run.elastic_agent.diagnosis import descendants, kernel, looks, watch
from elastic_run.elastic_agent.diagnosis.looks import LOOKS, Looks
from elastic_run.elastic_agent.diagnosis.running import Running
from elastic_run.elastic_agent.diagnosis.stacks import Stack, Stacks
from elastic_run.elastic_agent.diagnosis.watch import ProgressWatch
from elastic_run.elastic_agent.inbox import Inbox
from elastic_run.elastic_agent.machine.node_state import NodeSettings
from elastic_run.master.diagnosis.evidence import Blocked, Frame, Socket
from elastic_run.rendezvous.base.threads import Threads

ME = Running(0, 0, os.getpid())


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """Ends what the doubles of a dead mount keep blocked."""
    found = threading.Event()
    yield found
    found.set()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The pids whose stacks are taken, by a double of py-spy."""
    found = list[int]()

    async def take(_: Stacks, pid: int, seconds: float = 0.0) -> Stack:
        found.append(pid)
        return Stack((Frame("train.py", 1, "train"),), trouble=f"a double, {seconds}")

    monkeypatch.setattr(Stacks, "take", take)
    monkeypatch.setattr(looks, "PAUSE", 0.0)
    monkeypatch.setattr(looks, "MORE_PAUSE", 0.0)
    monkeypatch.setattr(looks, "LONG_PAUSE", 0.0)
    monkeypatch.setattr(kernel, "memory", lambda: (1, 100))
    monkeypatch.setattr(kernel, "processes", lambda: (0, 0))
    return found


async def test_threads_are_few_at_a_time_and_one_that_is_blocked_keeps_its_place(release: threading.Event) -> None:
    threads = Threads(2)
    with pytest.raises(TimeoutError):
        await threads.run(release.wait, 0.01)
    running, most = set[int](), 0

    def work() -> None:
        nonlocal most
        running.add(threading.get_ident())
        most = max(most, len(running))
        running.remove(threading.get_ident())

    await asyncio.gather(*(threads.run(work, 60) for _ in range(8)))
    assert most == 1
    with pytest.raises(TimeoutError):
        await asyncio.gather(threads.run(release.wait, 0.01), threads.run(lambda: None, 0.01))
    release.set()
    assert await threads.run(lambda: 7, 60) == 7


async def test_what_work_on_a_thread_raises_is_raised_where_it_is_awaited() -> None:
    with pytest.raises(ValueError, match="odd"):
        await Threads(1).run(lambda: int("odd"), 60)


async def test_a_dead_mount_costs_the_evidence_that_file_system_alone(
    monkeypatch: pytest.MonkeyPatch, taken: list[int], release: threading.Event
) -> None:
    real = os.statvfs

    def statvfs(path: str) -> os.statvfs_result:
        if path == "/dead":
            release.wait()
        return real(path)

    monkeypatch.setattr(looks, "READ_SECONDS", 1.0)
    monkeypatch.setattr(os, "statvfs", statvfs)
    evidence = await Looks(None).look("A", 1, lambda: [ME], {}, paths=("/dead", "/tmp"))
    assert [disk.path for disk in evidence.disks] == ["/tmp"]
    assert len(evidence.workers) == 1 and taken


async def test_a_worker_of_which_something_cannot_be_read_is_still_seen(
    monkeypatch: pytest.MonkeyPatch, taken: list[int], release: threading.Event
) -> None:
    def blocked(_: int, __: dict[int, Socket]) -> Blocked:
        release.wait()
        return Blocked()

    monkeypatch.setattr(looks, "READ_SECONDS", 0.2)
    monkeypatch.setattr(kernel, "blocked", blocked)
    (worker,) = (await Looks(None).look("A", 1, lambda: [ME], {})).workers
    assert len(worker.snapshots) >= LOOKS and taken


async def test_a_node_near_its_limits_takes_no_stacks(monkeypatch: pytest.MonkeyPatch, taken: list[int]) -> None:
    for name in ("memory", "processes"):
        with monkeypatch.context() as patched:
            patched.setattr(kernel, name, lambda: (99, 100))
            for long in (False, True):
                (worker,) = (await Looks(None).look("A", 1, lambda: [ME], {}, long=long)).workers
                assert "near its limit" in worker.stacks
    assert not taken


@pytest.mark.parametrize("long", [True, False])
async def test_a_node_takes_so_many_stacks_at_most(
    monkeypatch: pytest.MonkeyPatch, taken: list[int], *, long: bool
) -> None:
    monkeypatch.setattr(looks, "MAX_STACKS", 3)
    await Looks(None).look("A", 1, lambda: [ME], {}, long=long)
    assert 2 <= len(taken) <= 3


def stands_still(pid: int, *, moved: bool = True, without: Sequence[int] = ()) -> kernel.Used:
    """A double: the kernel's word of a worker that waits."""
    assert not without
    return kernel.Used("S", 1.0, 1.0, 0, 1, 0, 0.0, pid if moved else 0)


def no_children(_: int) -> float:
    """A double of what they have used."""
    return 0.0


async def test_a_diagnosis_begins_with_the_look_that_was_taken_ahead(
    monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    monkeypatch.setattr(kernel, "used", stands_still)
    found = Looks(None)
    await found.look_ahead([ME])
    await found.look_ahead([ME])  # at the next look of the watch
    assert len(taken) == 1
    (worker,) = (await found.look("A", 1, lambda: [ME], {})).workers
    assert len(taken) == 2
    assert len(worker.snapshots) == 3  # ahead, now, and after the stacks
    await found.look("A", 1, lambda: [ME], {})  # it serves one diagnosis
    assert len(taken) == 4
    await found.close()


async def test_a_look_ahead_that_is_old_or_at_another_ranks_worker_is_not_used(
    monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    for rank, fresh in ((1, looks.FRESH), (0, -1.0)):
        found = Looks(None)
        taken.clear()
        await found.look_ahead([ME])
        monkeypatch.setattr(looks, "FRESH", fresh)
        (worker,) = (await found.look("A", 1, lambda rank=rank: [Running(rank, 0, ME.pid)], {})).workers
        assert len(worker.snapshots) > LOOKS
        await found.close()


async def test_a_watch_asks_for_the_first_look_one_period_before_a_worker_is_a_suspect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, told = 0.0, list[str]()
    monkeypatch.setattr(kernel, "used", stands_still)
    monkeypatch.setattr(descendants, "child_cpu", no_children)
    inbox = Inbox(NodeSettings(), lambda: now)

    def nears(workers: Sequence[Running]) -> None:
        told.append(f"nears {len(workers)}, stalled {inbox.state.machine.stalled}")

    found = ProgressWatch(10.0, lambda: [ME], lambda _: 0, inbox, nears, print)
    for now in range(17):
        found.look()
        expected = ["nears 1, stalled 0"] * (now >= 9) + ["nears 1, stalled 1"] * (now >= 10)
        assert told == expected


def test_a_worker_whose_main_thread_rests_beside_one_that_polls_all_the_time_is_quiet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0

    def used(_: int, *, moved: bool = True, without: Sequence[int] = ()) -> kernel.Used:
        return kernel.Used("S", 1.0 if 77 in without else now, 1.0, 0, 9, 0, 0.0, int(moved))

    monkeypatch.setattr(kernel, "used", used)
    monkeypatch.setattr(kernel, "polling_threads", lambda _: (77,))
    monkeypatch.setattr(descendants, "child_cpu", no_children)
    found = ProgressWatch(10.0, lambda: [ME], lambda _: 0, Inbox(NodeSettings(), lambda: now), lambda _: None, print)
    while now < 24:
        found.look()
        now += 1
    assert found.quiet[0].seconds >= 10 and found.quiet[0].rested == 23


def test_a_thread_that_polls_is_known_by_its_name_and_what_it_has_used_can_be_left_out() -> None:
    worked, end = threading.Event(), threading.Event()

    def poll() -> None:
        Path(f"/proc/self/task/{threading.get_native_id()}/comm").write_text("TP_SHM_reactor")
        while time.thread_time() < 0.1:
            pass
        worked.set()
        end.wait()

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        assert worked.wait(60)
        assert kernel.polling_threads(ME.pid) == (thread.native_id,)
        without, all_ = kernel.used(ME.pid, without=kernel.polling_threads(ME.pid)), kernel.used(ME.pid)
        assert without and all_ and all_.cpu - without.cpu >= 0.09
    finally:
        end.set()
        thread.join()


def watch_of(look: Callable[[], list[Running]], say: Callable[[str], None]) -> ProgressWatch:
    return ProgressWatch(0.04, look, lambda _: 0, Inbox(NodeSettings(), lambda: 0.0), lambda _: None, say)


async def test_a_watch_that_fails_says_so_once_and_ends_nobody() -> None:
    said = list[str]()

    def fails() -> list[Running]:
        raise LookupError("MemAvailable")

    await watch_of(fails, said.append).run()
    (line,) = said
    assert "MemAvailable" in line


def test_a_kernel_that_does_not_tell_its_free_memory_has_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(path: str) -> str:
        return "MemTotal: 8 kB\n" if path == "/proc/meminfo" else ""

    monkeypatch.setattr(kernel, "_read", read)
    monkeypatch.setattr(kernel, "folders_of", lambda *_: iter(()))
    assert kernel.memory() == (0, 0)
    assert not watch.is_near([])


def test_a_lock_of_this_process_is_told_from_one_that_processes_share() -> None:
    lock, shared = threading.Lock(), multiprocessing.get_context("spawn").Lock()
    for acquire, leave, alone in ((lock.acquire, lock.release, True), (shared.acquire, shared.release, False)):
        acquire()
        waits = threading.Thread(target=acquire)
        waits.start()
        # A wait for the interpreter's lock ends after a moment.
        while (seen := kernel.blocked(ME.pid, {}, waits.native_id)).on != "lock" or seen.ends is not None:
            assert waits.is_alive()
        leave()
        waits.join()
        assert (seen.call, seen.semaphore) == ("futex", alone)


def test_the_signals_that_a_process_handles_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kernel.handled_signals(ME.pid)
    held = signal.signal(signal.SIGUSR2, lambda *_: None)
    try:
        assert set(kernel.handled_signals(ME.pid)) - set(before) == {signal.SIGUSR2}
    finally:
        signal.signal(signal.SIGUSR2, held)

    def read(_: str) -> str:
        return "SigCgt:\t8000000000000001\n"

    monkeypatch.setattr(kernel, "_read", read)
    assert kernel.handled_signals(ME.pid) == (1, 64)


def test_a_timer_of_a_process_and_a_process_that_it_starts_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not kernel.has_timers(ME.pid)
    files = {
        "timers": "ID: 0\nsignal: 32/0000559187b64700\nnotify: signal/tid.3966\nClockID: 1\n",
        "syscall": "435 0x1 0x58 0x0 0x8 0x0 0x0 0x0 0x0",
    }

    def read(path: str) -> str:
        return files[path.rpartition("/")[2]]

    monkeypatch.setattr(kernel, "_read", read)
    assert kernel.has_timers(ME.pid)
    assert kernel.blocked(ME.pid, {}) == Blocked("clone3", "child")


async def test_evidence_says_that_the_connections_of_the_workers_could_not_be_read(
    taken: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not (await Looks(None).look("A", 1, lambda: [ME], {})).blind

    def fails(pids: object) -> dict[int, dict[int, Socket]]:
        raise OSError("no table")

    monkeypatch.setattr(kernel, "connections", fails)
    assert (await Looks(None).look("A", 1, lambda: [ME], {})).blind
