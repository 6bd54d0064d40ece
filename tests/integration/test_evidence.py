"""What the kernel and py-spy tell of real processes that wait for something."""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from elastic_run.elastic_agent.diagnosis import descendants, kernel
from elastic_run.elastic_agent.diagnosis.activity import Quiet
from elastic_run.elastic_agent.diagnosis.looks import Looks
from elastic_run.elastic_agent.diagnosis.running import Running
from elastic_run.elastic_agent.diagnosis.stacks import Stacks, py_spy
from elastic_run.master.diagnosis import places

DEADLINE = 60.0

T = TypeVar("T")

READY = "print('ready', flush=True);"

WAITS = {
    "time": ("import time; {ready} time.sleep(1000)", ""),
    "lock": ("import threading; {ready} threading.Event().wait()", ""),
    "pipe": ("import os; r, w = os.pipe(); {ready} os.read(r, 1)", "a pipe"),
    "pipe that has a name": ("import os; os.mkfifo({path!r}); {ready} open({path!r})", "{path}"),
    "pipe that has a name and is open": (
        "import os; os.mkfifo({path!r}); f = os.open({path!r}, os.O_RDWR); {ready} os.read(f, 1)",
        "{path}",
    ),
    "pipe that has a name and is polled": (
        "import os, select; os.mkfifo({path!r}); f = os.open({path!r}, os.O_RDWR); {ready} select.select([f], [], [])",
        "{path}",
    ),
    "signal": ("import signal; signal.pthread_sigmask(0, {{10}}); {ready} signal.sigwait({{10}})", ""),
    "signal that is of any kind": ("import signal; {ready} signal.pause()", ""),
    "child": ("import subprocess; {ready} subprocess.run(['sleep', '1000'])", ""),
    "file": (
        "import fcntl; a = open({path!r}, 'w'); b = open({path!r}, 'w'); fcntl.flock(a, fcntl.LOCK_EX); {ready} "
        "fcntl.flock(b, fcntl.LOCK_EX)",
        "{path}",
    ),
    "local socket": ("import socket; a, b = socket.socketpair(); {ready} a.recv(1)", "a local socket"),
}


def until(look: Callable[[], T | None]) -> T:
    """What `look` comes to find, within DEADLINE."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError(f"not found within {DEADLINE:g} s")


@contextmanager
def process(code: str) -> Iterator[int]:
    command = [sys.executable, "-S", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as found:
        try:
            assert found.stdout is not None
            assert found.stdout.readline() == b"ready\n"
            yield found.pid
        finally:
            os.killpg(found.pid, signal.SIGKILL)  # with what it has started


@pytest.mark.parametrize("on", WAITS)
def test_what_a_process_waits_for_is_seen_from_outside(on: str, tmp_path: Path) -> None:
    code, target = (each.format(ready=READY, path=str(tmp_path / "lock")) for each in WAITS[on])
    with process(code) as pid:
        seen = until(lambda: found if (found := kernel.blocked(pid, {})).on == on.partition(" that ")[0] else None)
        assert seen.target == target
        assert kernel.used(pid)


@pytest.mark.parametrize("call", ["flock", "lockf"])
def test_of_a_lock_on_a_file_it_is_seen_who_holds_it(call: str, tmp_path: Path) -> None:
    take = f"fcntl.{call}(f, fcntl.LOCK_EX);"
    begin, rest = f"import fcntl, time; f = open({str(tmp_path / 'lock')!r}, 'w');", "time.sleep(1000)"
    waits = f"{begin} {READY} {take} {rest}"
    with process(f"{begin} {take} {READY} {rest}") as holder, process(waits) as first, process(waits) as second:
        for pid in (first, second):
            seen = until(lambda pid=pid: found if (found := kernel.blocked(pid, {})).on == "file" else None)
            assert seen.holders == (holder,)


def test_of_two_locks_that_threads_of_one_process_wait_for_it_is_not_known_whose_is_whose(tmp_path: Path) -> None:
    begin = f"import fcntl, threading, time; f, g = (open({str(tmp_path)!r} + name, 'w') for name in ('/f', '/g'));"
    take = "(lambda file: fcntl.flock(file, fcntl.LOCK_EX))"
    behind = f"threading.Thread(target={take}, args=(g,)).start();"
    with (
        process(f"{begin} {take}(f); {READY} time.sleep(1000)"),
        process(f"{begin} {take}(g); {READY} time.sleep(1000)"),
        process(f"{begin} {behind} time.sleep(0.5); {READY} {take}(f)") as waits,
    ):
        seen = until(lambda: found if (found := kernel.blocked(waits, {})).on == "file" else None)
        assert seen.holders == ()


def test_a_lock_in_memory_that_processes_share_is_told_from_one_of_a_process_alone() -> None:
    for module, shared in (("multiprocessing", True), ("threading", False)):
        with process(f"import {module}; {READY} {module}.Event().wait()") as pid:
            until(lambda pid=pid: kernel.blocked(pid, {}).on == "lock" or None)
            assert kernel.blocked(pid, {}).shared == shared


def test_a_wait_with_a_timeout_names_the_connection_as_well() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        where = server.getsockname()
        code = f"import socket; s = socket.create_connection({where!r}, timeout=1000); {READY} s.recv(1)"
        with process(code) as pid:
            peer, _ = server.accept()
            with peer:
                seen = until(
                    lambda: found if (found := kernel.blocked(pid, kernel.connections([pid])[pid])).on else None
                )
                assert (seen.on, seen.target) == ("socket", f"127.0.0.1:{where[1]}")
                (mine,) = seen.sockets
                assert mine.local == f"127.0.0.1:{peer.getpeername()[1]}" and not mine.listens


def test_a_path_that_a_worker_waits_for_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat, open_, own = os.stat, os.open, threading.get_ident()

    def touched(real: Callable[..., object], *args: Any, **keywords: Any) -> object:
        if threading.get_ident() == own:
            raise AssertionError("on a dead mount this would block")
        return real(*args, **keywords)  # by a thread that an earlier test has left

    for name in ("pipe that has a name", "pipe that has a name and is open", "file"):
        path = tmp_path / name.replace(" ", "-")
        with process(WAITS[name][0].format(ready=READY, path=str(path))) as pid:
            with monkeypatch.context() as patched:
                patched.setattr(os, "stat", partial(touched, stat))
                patched.setattr(os, "open", partial(touched, open_) if name == "file" else open_)
                seen = until(lambda pid=pid: found if (found := kernel.blocked(pid, {})).on else None)
            assert seen.target == str(path)


def test_the_connections_of_all_workers_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    real, read, parsed = kernel._read, list[str](), list[str]()  # pyright: ignore[reportPrivateUsage]  counts reads
    address = kernel._address  # pyright: ignore[reportPrivateUsage]  counts what is parsed

    def counted(path: str) -> str:
        read.append(path.rpartition("/")[2])
        return real(path)

    def parse(text: str) -> str:
        parsed.append(text)
        return address(text)

    with socket.create_server(("127.0.0.1", 0)) as server:
        where = server.getsockname()
        code = f"import socket; s = socket.create_connection({where!r}); {READY} s.recv(1)"
        with process(code) as first, process(code) as second:
            monkeypatch.setattr(kernel, "_read", counted)
            monkeypatch.setattr(kernel, "_address", parse)
            found = kernel.connections([first, second, 1 << 22])
            remotes = [[each.remote for each in found[pid].values()] for pid in (first, second, 1 << 22)]
            assert remotes == [[f"127.0.0.1:{where[1]}"], [f"127.0.0.1:{where[1]}"], []]
    assert read == ["tcp", "tcp6"]
    assert len(parsed) == 4  # two of each connection; the other ends and the listener are not


async def test_a_program_that_cannot_be_read_blocks_its_own_stack_alone(tmp_path: Path) -> None:
    program = tmp_path / "py-spy"
    program.write_text("#!/bin/sh\necho '[]'\n")
    program.chmod(0o755)
    before = signal.signal(signal.SIGIO, signal.SIG_IGN)
    held = os.open(program, os.O_RDONLY)
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    turning = asyncio.create_task(turn())
    try:
        # As on a dead mount: opening or starting the file blocks, until this lease ends.
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        stack = await Stacks(str(program)).take(os.getpid(), 1.0)
    finally:
        turning.cancel()
        os.close(held)
        signal.signal(signal.SIGIO, before)
    assert "no stack" in stack.trouble
    assert turns > 5
    until(lambda: not [each for each in descendants.children(os.getpid()) if each.name == "sh"] or None)


def test_a_process_without_a_trace_is_none() -> None:
    assert kernel.used(1 << 22) is None
    assert kernel.blocked(1 << 22, {}).on == ""
    assert kernel.connections([1 << 22]) == {1 << 22: {}}


CONNECTS = """
import os, socket, sys, time
inner = socket.create_server(("127.0.0.1", 0))
if os.fork():
    inner.accept()
    print("ready", flush=True)
else:
    connection = socket.create_connection(("127.0.0.1", {port} or inner.getsockname()[1]))
    if {port}:
        own = socket.create_connection(inner.getsockname())
time.sleep(1000)
"""


def test_a_process_is_apart_that_is_connected_with_its_worker_alone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as outer:
        for port, apart in ((0, True), (outer.getsockname()[1], False)):
            with process(CONNECTS.format(port=port)) as pid:
                (child,) = descendants.children(pid)
                assert descendants.processes_apart(pid, [child.pid]) == ({child.pid} if apart else set())
                assert not descendants.is_native(pid)
                os.kill(child.pid, signal.SIGKILL)


def test_a_shell_and_what_it_has_started_run_no_python() -> None:
    with subprocess.Popen(["/bin/sh", "-c", "sleep 1000 & wait"], start_new_session=True) as shell:
        try:
            until(lambda: [each for each in descendants.children(shell.pid) if each.name == "sleep"] or None)
            assert descendants.is_native(shell.pid)
        finally:
            os.killpg(shell.pid, signal.SIGKILL)


def test_limits_of_this_machine_are_read() -> None:
    used, limit = kernel.memory()
    assert 0 < used < limit
    count, most = kernel.descriptors(os.getpid())
    assert 0 < count < most


def test_py_spy_reads_the_stack_of_a_process_that_waits_and_the_evidence_has_it() -> None:
    with process(f"import time\ndef rest():\n    {READY}\n    time.sleep(1000)\nrest()\n") as pid:
        until(lambda: kernel.blocked(pid, {}).on == "time" or None)
        stack = asyncio.run(Stacks(py_spy()).take(pid))
        assert [frame.function for frame in stack.frames] == ["rest", "<module>"], stack.trouble
        running = Running(3, 0, pid, tail=b"step 7\n")
        evidence = asyncio.run(Looks(py_spy()).look("A", 1, lambda: [running], {0: Quiet(70.0, 60.0)}))
        (worker,) = evidence.workers
        assert (worker.rank, worker.quiet, worker.last_lines) == (3, 70.0, ("step 7",))
        assert worker.blocked.on == "time" and worker.snapshots[-2].frames == stack.frames


RECEIVES = """
import site; site.main()
import os, tempfile, time
import torch, torch.distributed as dist
store = tempfile.mkdtemp() + "/store"
rank = 0 if os.fork() else 1
dist.init_process_group("gloo", init_method=f"file://{{store}}", rank=rank, world_size=2)
group = dist.new_group([0, 1])
secret = "s3cret"
if rank:
    time.sleep(1000)
print("ready", flush=True)
dist.{call}
"""


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("recv(torch.ones(1), src=1, tag=3)", "src=1, tag=3"),
        ("recv(torch.ones(1), 1)", "src=1"),
        ("recv(torch.ones(1))", "src=None"),
        ("recv(torch.ones(1), 1, group)", "src=1, group=..."),
        ("broadcast(torch.ones(1), src=1, group=group)", "src=1, group=..."),
        ("broadcast_object_list([0], src=1)", "src=1"),
    ],
)
def test_a_stack_says_between_which_ranks_an_operation_is_and_nothing_else_of_variables(
    call: str, arguments: str
) -> None:
    source = RECEIVES.format(call=call)
    with process(f"exec(compile({source!r}, '/home/me/train.py', 'exec'))") as pid:

        def waiting() -> places.Place | None:
            found = asyncio.run(Looks(py_spy()).look("A", 1, lambda: [Running(0, 0, pid)], {0: Quiet(70.0, 60.0)}))
            assert "s3cret" not in str(found)
            (worker,) = found.workers
            here = places.place("", worker, {})
            return here if here.what == "collective" and here.still else None

        found = until(waiting)
        assert found.call and found.call.function == call.partition("(")[0]
        assert found.call.arguments == arguments and f"({arguments})" in found.where


SPINS = f"""
import ctypes, os
device = os.open("/dev/zero", os.O_RDONLY)
libc, lock = ctypes.CDLL(None), ctypes.c_int(0)
libc.pthread_spin_init(ctypes.byref(lock), 0)
libc.pthread_spin_lock(ctypes.byref(lock))
def wait():
    {READY}
    libc.pthread_spin_lock(ctypes.byref(lock))
wait()
"""
"""A double of a driver that waits for its accelerator: a loop of native code, without the interpreter's lock."""


def test_a_main_thread_that_waits_in_a_loop_of_native_code_is_told_from_one_that_waits_in_the_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "_ACCELERATORS", ("/dev/zero",))
    with process(SPINS) as pid:
        assert kernel.uses_accelerator(pid)
        used, waits = kernel.used(pid), kernel.waits(pid)
        assert used is not None
        until(lambda: ((now := kernel.used(pid)) and now.cpu > used.cpu + 0.5) or None)
        assert kernel.waits(pid) == waits
        quiet = Quiet(0.0, 60.0, spins=70.0)
        evidence = asyncio.run(Looks(py_spy()).look("A", 1, lambda: [Running(0, 0, pid)], {0: quiet}))
        (worker,) = evidence.workers
        place = places.place("", worker, {}, 30.0)
        assert (place.what, place.still, "in wait" in place.where) == ("device", True, True)
    with process(f"import time; {READY}\nwhile True: time.sleep(0.01)") as pid:
        assert not kernel.uses_accelerator(pid)
        waits = kernel.waits(pid)
        until(lambda: kernel.waits(pid) != waits or None)


async def test_without_py_spy_the_evidence_says_so() -> None:
    assert "pip install" in (await Stacks(None).take(os.getpid())).trouble


async def test_a_look_that_is_broken_off_leaves_no_program_behind() -> None:
    with process(f"import time; {READY} time.sleep(1000)") as pid:
        task = asyncio.create_task(Looks(py_spy()).look("A", 1, lambda: [Running(0, 0, pid)], {}))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        until(lambda: not [each for each in descendants.children(os.getpid()) if each.name == "py-spy"] or None)
