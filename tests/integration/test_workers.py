"""Real worker processes: how they end, what they print, and that nothing of them is left."""

# Other processes are looked at from outside, where there is no event to wait for (`until`), and blocking calls are
# short here, or meant to keep the event loop from running.
# ruff: noqa: ASYNC110, ASYNC220, ASYNC221, ASYNC222, ASYNC240

import asyncio
import contextlib
import errno
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from elastic_run.elastic_agent.logs.output import Output
from elastic_run.elastic_agent.logs.writer import HIGH_BYTES
from elastic_run.elastic_agent.processes import out_of_memory
from elastic_run.elastic_agent.processes.guard import Guardian
from elastic_run.elastic_agent.processes.guardian import Process, process
from elastic_run.elastic_agent.processes.guardian import children as children_of
from elastic_run.elastic_agent.workers import process_search
from elastic_run.elastic_agent.workers.failure import describe, hint
from elastic_run.elastic_agent.workers.handover import COMPUTES_SHARE, COMPUTES_WITHIN
from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.elastic_agent.workers.streams import TAIL_BYTES
from elastic_run.elastic_agent.workers.worker_processes import Workers
from elastic_run.elastic_agent.workers.worker_starter import StartFailed
from elastic_run.rendezvous.member import Exit
from elastic_run.rendezvous.store.embedded.binary import KEPT_VARIABLE

from .cluster import held

DEADLINE = 60.0
"""Seconds; generous, because the machine may be busy. Nothing here waits that long unless it fails."""


class Machine:
    """One agent's workers, with their output in memory and in files."""

    def __init__(self, folder: Path, *, log_dir: bool = True) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.out = io.BytesIO()
        self.err = io.BytesIO()
        self.output = Output(
            host="node1",
            log_dir=folder / "logs" if log_dir else None,
            job_id="job",
            stream_out=self.out,
            stream_err=self.err,
        )
        self.guardian = Guardian(tag=f"test-{os.getpid()}-{id(self)}")
        self.workers = Workers(tag=f"test-{os.getpid()}-{id(self)}", output=self.output, guardian=self.guardian)

    def spec(self, rank: int, *argv: str, round: int = 1) -> WorkerSpec:
        environment = {**os.environ, **self.environment}
        return WorkerSpec(round, rank, rank, argv, environment, self.output.error_file(round, rank))

    async def start(self, *scripts: str, round: int = 1) -> None:
        """Start a Python worker for each of `scripts`."""
        await self.workers.start(
            [
                self.spec(rank, sys.executable, "-u", "-c", textwrap.dedent(script), round=round)
                for rank, script in enumerate(scripts)
            ]
        )

    async def run(self, *scripts: str) -> tuple[Exit, ...]:
        """Start workers and wait until all have ended."""
        await self.start(*scripts)
        return await self.ended()

    async def ended(self) -> tuple[Exit, ...]:
        async with asyncio.timeout(DEADLINE):
            while self.workers.alive:
                await self.workers.changed()
        return self.workers.exits

    async def shown(self, text: str, times: int = 1) -> None:
        """Wait until `text` is on the terminal."""
        await until(lambda: (self.out.getvalue() + self.err.getvalue()).count(text.encode()) >= times)

    def log(self, stream: str = "stdout", rank: int = 0, round: int = 1) -> bytes:
        return (self.output.root / f"attempt_{round}" / str(rank) / f"{stream}.log").read_bytes()


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    made.guardian.start()
    yield made
    await made.workers.close()
    await made.guardian.close()
    await made.output.close(succeeded=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.005)


def is_alive(pid: int) -> bool:
    found = process(pid)
    return found is not None and found.alive


async def pid_in(path: Path) -> int:
    """The pid that a worker's descendant writes into `path`."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


async def test_exit_codes_arrive_as_they_are(machine: Machine):
    exits = await machine.run("", "raise SystemExit(3)", "import os; os._exit(255)")
    assert {exit.rank: exit.code for exit in exits} == {0: 0, 1: 3, 2: 255}
    assert all(exit.signal is None and not exit.stopped and exit.round == 1 for exit in exits)
    assert [exit.ok for exit in sorted(exits, key=lambda exit: exit.rank)] == [True, False, False]


async def test_a_signal_that_ended_a_worker_is_named(machine: Machine):
    (exit,) = await machine.run("import os; os.kill(os.getpid(), 9)")
    assert (exit.code, exit.signal) == (None, signal.SIGKILL)
    assert describe(exit) == f"rank 0 (local 0, pid {exit.pid}) died by SIGKILL (9)"


async def test_an_exit_is_heard_while_others_run(machine: Machine):
    await machine.start("raise SystemExit(1)", "import time; time.sleep(600)")
    async with asyncio.timeout(DEADLINE):
        await machine.workers.changed()
    assert [exit.rank for exit in machine.workers.exits] == [0]
    assert machine.workers.alive == 1


async def test_changed_waits_for_a_new_end(machine: Machine):
    await machine.start("raise SystemExit(1)", "import time; time.sleep(600)")
    await machine.workers.changed()
    waiting = asyncio.create_task(machine.workers.changed())
    await asyncio.sleep(0)
    assert not waiting.done()
    machine.workers.signal(signal.SIGTERM)
    async with asyncio.timeout(DEADLINE):
        await waiting
    assert machine.workers.alive == 0


async def test_a_traceback_is_captured_without_any_change_to_the_script(machine: Machine):
    (exit,) = await machine.run("def f():\n    raise ValueError('no data')\nf()")
    assert exit.code == 1
    assert exit.message == "ValueError: no data"
    assert exit.traceback.startswith("Traceback (most recent call last):")
    assert exit.log == str(machine.output.root / "attempt_1" / "0" / "stderr.log")
    await machine.output.flush()
    assert exit.traceback in Path(exit.log).read_text()


async def test_the_error_file_of_a_library_is_read(machine: Machine):
    await machine.start("")
    await machine.ended()
    await machine.workers.stop()
    script = "import sys; open(sys.argv[1], 'w').write('{\"message\": \"told by a library\"}'); sys.exit(1)"
    spec = machine.spec(0, sys.executable, "-c", script, str(machine.output.error_file(2, 0)), round=2)
    await machine.workers.start([spec])
    (exit,) = await machine.ended()
    assert exit.message == "told by a library"


async def test_a_crash_of_native_code_is_a_signal_with_a_hint(machine: Machine):
    (exit,) = await machine.run("import ctypes; ctypes.string_at(0)")
    assert exit.signal == signal.SIGSEGV
    assert "PYTHONFAULTHANDLER=1" in hint(exit)


async def test_a_crash_of_native_code_under_faulthandler_shows_where(machine: Machine):
    (exit,) = await machine.run("import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)")
    assert exit.message == "Fatal Python error: Segmentation fault"
    assert 'File "<string>", line 1 in <module>' in exit.traceback


async def test_a_program_that_says_why_it_exits_is_quoted(machine: Machine):
    (exit,) = await machine.run("import sys; sys.exit('no such data set')")
    assert exit.message == "last line on stderr: no such data set"


async def test_a_program_that_says_why_it_exits_on_stdout_is_quoted_with_that_log(machine: Machine):
    (exit,) = await machine.run("import sys; print('no such data set'); sys.exit(1)")
    assert exit.message == "last line on stdout: no such data set"
    await machine.output.flush()
    assert Path(exit.log).read_text() == "no such data set\n"


async def test_a_traceback_on_stdout_is_read_where_stderr_says_nothing(machine: Machine):
    (exit,) = await machine.run("""
        import sys, traceback
        try:
            {}["learning_rate"]
        except KeyError:
            traceback.print_exc(file=sys.stdout)
            sys.exit(1)
    """)
    assert exit.message == "KeyError: 'learning_rate'"
    assert exit.traceback.startswith("Traceback")
    assert exit.log.endswith("stdout.log")


async def test_without_a_log_dir_the_last_words_are_kept_and_say_how_much_is_missing(tmp_path: Path):
    machine = Machine(tmp_path, log_dir=False)
    machine.guardian.start()
    (exit,) = await machine.run("import sys; print('x' * 99_999); print('no such data set'); sys.exit(1)")
    kept = Path(exit.log).read_text()
    missing = 100_000 + len("no such data set\n") - TAIL_BYTES
    assert kept.startswith(f"[elastic-run] {missing} bytes before this were not kept: --log-dir keeps all\nxxx")
    assert kept.endswith("x\nno such data set\n")
    await machine.workers.close()
    await machine.guardian.close()
    await machine.output.close(succeeded=True)


async def test_a_program_that_does_not_exist_is_exit_127_with_a_sentence(machine: Machine):
    await machine.workers.start([machine.spec(0, "no-such-program")])
    (exit,) = await machine.ended()
    assert (exit.code, exit.message) == (127, "cannot run no-such-program: no such file or command")


async def test_a_file_that_is_not_executable_is_exit_126_with_a_sentence(machine: Machine, tmp_path: Path):
    plain = tmp_path / "plain.txt"
    plain.write_text("hello")
    await machine.workers.start([machine.spec(0, str(plain))])
    (exit,) = await machine.ended()
    assert (exit.code, exit.message) == (126, f"cannot run {plain}: permission denied")


async def test_a_script_whose_interpreter_is_missing_says_so(machine: Machine, tmp_path: Path):
    script = tmp_path / "run.sh"
    script.write_text("#!/no/such/shell\n")
    script.chmod(0o755)
    await machine.workers.start([machine.spec(0, str(script))])
    (exit,) = await machine.ended()
    assert exit.code == 127
    assert "interpreter named in its first line" in exit.message


async def test_where_one_cannot_be_started_none_runs(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def second_fails(*args: object, **kwargs: object) -> subprocess.Popen[bytes]:
        if started:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        started.append(real(*args, **kwargs))  # type: ignore[call-overload]  # passed through
        return started[0]

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", second_fails)
        with pytest.raises(StartFailed, match=r"rank 1 \(local 1\).*temporarily unavailable"):
            await machine.start("import time; time.sleep(600)", "")
    assert machine.workers.alive == 0
    await until(lambda: process(started[0].pid) is None)
    assert machine.workers.exits == ()
    assert (await machine.run(""))[0].ok


async def test_a_worker_starts_as_a_process_of_the_launchers_caller_would(machine: Machine):
    script = """
        import os, signal
        print("ignored:", open("/proc/self/status").read().split("SigIgn:")[1].split()[0])
        print("blocked:", open("/proc/self/status").read().split("SigBlk:")[1].split()[0])
        print("leads:", os.getpid() == os.getsid(0) == os.getpgid(0))
        print("open:", sorted(os.listdir("/proc/self/fd"))[:4])
    """
    show = "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0])"
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        await machine.start(script)
        beside = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    await machine.ended()
    await machine.output.flush()
    text = machine.out.getvalue().decode()
    assert int(beside.stdout, 16) & 1 << signal.SIGUSR2 - 1
    assert f"ignored: {beside.stdout.strip()}" in text
    assert "blocked: 0000000000000000" in text
    assert "leads: True" in text
    assert "open: ['0', '1', '2', '3']" in text


async def test_a_notice_goes_to_the_worker_itself(machine: Machine):
    await machine.start("""
        import signal, subprocess, sys
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        signal.signal(signal.SIGTERM, lambda *_: (print("told, child is", child.poll()), sys.exit(7)))
        print("ready")
        signal.pause()
    """)
    await machine.shown("ready")
    machine.workers.signal(signal.SIGTERM)
    (exit,) = await machine.ended()
    assert exit.code == 7
    assert not exit.stopped
    await machine.shown("told, child is None")


async def test_a_worker_that_ends_in_its_grace_is_not_killed(machine: Machine):
    await machine.start("""
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
        print("ready")
        signal.pause()
    """)
    await machine.shown("ready")
    (exit,) = await machine.workers.stop(grace=DEADLINE)
    assert (exit.code, exit.stopped) == (5, True)


async def test_a_shells_child_gets_the_grace_too(machine: Machine, tmp_path: Path):
    saved = tmp_path / "saved"
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(f"""
            import signal, sys, threading
            told = threading.Event()
            signal.signal(signal.SIGTERM, lambda *_: told.set())
            print("ready", flush=True)
            told.wait()
            threading.Event().wait(0.3)
            open({str(saved)!r}, "w").write("yes")
        """)
    )
    await machine.workers.start([machine.spec(0, "/bin/sh", "-c", f"{sys.executable} {script}; echo not reached")])
    await machine.shown("ready")
    await machine.workers.stop(grace=DEADLINE)
    assert saved.read_text() == "yes"


async def test_what_a_worker_started_lives_until_the_worker_has_ended_in_its_grace(machine: Machine, tmp_path: Path):
    # As the processes of a DataLoader: whoever saves on the notice may wait for a batch of theirs first.
    helper = tmp_path / "helper.py"
    helper.write_text("for n in range(10): print(input() + ' comes', flush=True)")
    await machine.start(f"""
        import signal, subprocess, sys
        helper = subprocess.Popen([sys.executable, {str(helper)!r}], stdin=-1, stdout=-1, text=True)
        def ask(word):
            helper.stdin.write(word + "\\n")
            helper.stdin.flush()
            return helper.stdout.readline().strip()
        print(ask("the first batch"))
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0 if ask("another") == "another comes" else 7))
        print("ready")
        signal.pause()
    """)
    await machine.shown("ready")
    (exit,) = await machine.workers.stop(grace=DEADLINE)
    assert (exit.code, exit.message) == (0, "")


async def test_what_a_worker_leaves_behind_in_its_grace_is_told_when_the_worker_has_ended(
    machine: Machine, tmp_path: Path
):
    told = tmp_path / "told"
    await machine.start(f"""
        import os, signal
        def tell(*_):
            open({str(told)!r}, "w").write(str(os.getppid() == parent))
            os._exit(0)
        parent = os.getpid()
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, tell)
            print("ready")
            while True: signal.pause()
        signal.pause()
    """)
    await machine.shown("ready")
    await machine.workers.stop(grace=DEADLINE)
    assert told.read_text() == "False", "its parent was not there any more"


async def test_a_worker_that_ignores_the_notice_is_killed_after_its_grace(machine: Machine):
    await machine.start("""
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready")
        while True: signal.pause()
    """)
    await machine.shown("ready")
    (exit,) = await machine.workers.stop(grace=0.2)
    assert (exit.signal, exit.stopped) == (signal.SIGKILL, True)


async def test_a_second_stop_cuts_the_grace_of_the_first(machine: Machine):
    await machine.start("""
        import signal
        signal.signal(signal.SIGTERM, lambda *_: print("told"))
        print("ready")
        while True: signal.pause()
    """)
    await machine.shown("ready")
    patient = asyncio.create_task(machine.workers.stop(grace=10 * DEADLINE))
    await machine.shown("told")
    async with asyncio.timeout(DEADLINE):
        (exit,) = await machine.workers.stop()
        assert await patient == (exit,)
    assert exit.signal == signal.SIGKILL


async def test_a_stop_goes_on_where_its_caller_is_cancelled(machine: Machine):
    await machine.start("""
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("ready")
        while True: signal.pause()
    """)
    await machine.shown("ready")
    stopping = asyncio.create_task(machine.workers.stop(grace=0.2))
    await asyncio.sleep(0)
    stopping.cancel()
    (exit,) = await machine.ended()
    assert exit.signal == signal.SIGKILL
    assert stopping.cancelled()


async def test_an_end_before_the_stop_is_not_called_stopped(machine: Machine):
    await machine.start("raise SystemExit('no data')", "import time; time.sleep(600)")
    pid = machine.workers.pids[0]
    # Its end is known to the kernel but not yet to the event loop, which must not run in between.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    exits = await machine.workers.stop()
    assert [(exit.rank, exit.code, exit.stopped) for exit in exits] == [(0, 1, False), (1, None, True)]
    # Nor had the event loop read its last words.
    assert exits[0].message == "last line on stderr: no data"


@pytest.mark.parametrize(
    "escape",
    [
        pytest.param("os.fork() == 0 and stay()", id="a child"),
        pytest.param("os.fork() == 0 and (os.setpgid(0, 0), stay())", id="a child in its own group"),
        pytest.param("os.fork() == 0 and (os.setsid(), stay())", id="a child in its own session"),
        pytest.param("os.fork() == 0 and (os.setsid(), os.fork() == 0 and stay(), os._exit(0))", id="a daemon"),
        pytest.param(
            "os.fork() == 0 and (os.fork() == 0 and run_without_environment(), os._exit(0))",
            id="an orphan without the tag",
        ),
        pytest.param(
            "os.fork() == 0 and (os.setsid(), os.fork() == 0 and run_without_environment(), signal.pause())",
            id="a child without the tag of one in its own session",
        ),
    ],
)
@pytest.mark.parametrize("worker_ends", ["first", "with it"])
async def test_nothing_that_a_worker_started_outlives_the_stop(
    machine: Machine, tmp_path: Path, escape: str, worker_ends: str
):
    path = tmp_path / "pid"
    stay = f"import os, signal; open({str(path)!r}, 'w').write(str(os.getpid()) + chr(10)); signal.pause()"
    await machine.start(f"""
        import os, signal, sys, time
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        def stay():
            exec({stay!r})
        def run_without_environment():
            os.execve(sys.executable, [sys.executable, "-c", {stay!r}], {{}})
        {escape}
        while not (os.path.exists({str(path)!r}) and os.path.getsize({str(path)!r})):
            time.sleep(0.005)
        {"os._exit(0)" if worker_ends == "first" else "signal.pause()"}
    """)
    pid = await pid_in(path)
    try:
        assert is_alive(pid)
        if worker_ends == "first":
            await machine.ended()
            assert is_alive(pid)
        await machine.workers.stop()
        assert not is_alive(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert process(pid) is None
    assert machine.workers.alive == 0
    assert machine.workers.unkillable == ()
    assert all(process(exit.pid) is None for exit in machine.workers.exits)


SHARES = """
    import os, signal, sys, time
    from multiprocessing import Process, resource_tracker, shared_memory
    shared_memory.SharedMemory({name!r}, create=True, size=16)  # tracked by a process of its own, until both have ended
    tracker = f"/proc/{{resource_tracker._resource_tracker._pid}}/cmdline"
    while b"resource_tracker" not in open(tracker, "rb").read():  # it is forked, and not yet what it will be
        time.sleep(0.01)
    Process(target=time.sleep, args=(600,), daemon=True).start()
    print("shares")
    {then}
"""


def in_shared_memory(start: str) -> list[Path]:
    return list(Path("/dev/shm").glob(f"{start}*"))


@pytest.mark.parametrize("then", ["os.kill(os.getpid(), signal.SIGKILL)", "os._exit(1)", "time.sleep(600)"])
async def test_the_next_round_finds_no_shared_memory_of_those_that_were_killed(machine: Machine, then: str):
    name = f"elastic-run-{os.getpid()}-{len(then)}"
    for round in (1, 2, 3):
        await machine.start(*(SHARES.format(name=f"{name}-{rank}", then=then) for rank in (0, 1)), round=round)
        await machine.shown("shares", 2 * round)
        assert len(in_shared_memory(name)) == 2
        await machine.workers.stop(grace=0.0)
        assert in_shared_memory(name) == []
    assert machine.workers.unkillable == ()
    assert b"FileExistsError" not in machine.err.getvalue()


async def test_a_success_leaves_no_shared_memory_that_nobody_removed(machine: Machine):
    name = f"elastic-run-{os.getpid()}-ends"
    await machine.run(SHARES.format(name=name, then="os._exit(0)"))
    await machine.workers.close(keep_detached=True)
    assert in_shared_memory(name) == []


async def test_who_only_looks_like_a_tracker_is_killed_with_the_others(machine: Machine, tmp_path: Path):
    (tmp_path / "resource_tracker.py").write_text("import time\ndef main():\n    print('up'); time.sleep(600)\n")
    await machine.start(f"""
        import subprocess, sys, time
        tracker = [sys.executable, "-u", "-c", "from resource_tracker import main;main()"]
        subprocess.Popen(tracker, cwd={str(tmp_path)!r})
        time.sleep(600)
    """)
    await machine.shown("up")
    (worker,) = machine.workers.pids.values()
    (tracker,) = children_of(worker) or ()
    await machine.workers.stop()
    assert not is_alive(tracker)
    assert machine.workers.unkillable == ()


async def test_what_torch_shares_as_files_is_removed_by_its_manager_when_all_were_killed(machine: Machine):
    pytest.importorskip("torch")
    await machine.start("""
        import os, time, torch, torch.multiprocessing
        torch.multiprocessing.set_sharing_strategy("file_system")
        shared = [torch.zeros(100).share_memory_() for _ in range(3)]
        print("shares")
        time.sleep(600)
    """)
    await machine.shown("shares")
    (worker,) = machine.workers.pids.values()
    (manager,) = children_of(worker) or ()
    assert len(in_shared_memory(f"torch_{worker}_")) == 3
    await machine.workers.stop()
    assert machine.workers.unkillable == ()
    await until(lambda: in_shared_memory(f"torch_{worker}_") == [])
    await until(lambda: process(manager) is None)
    assert b"keep running" not in machine.err.getvalue()


async def test_what_has_left_its_session_may_outlive_the_end_and_still_be_heard(machine: Machine, tmp_path: Path):
    pids, go = tmp_path / "pids", tmp_path / "go"
    stays = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.005)\nprint('uploaded')"
    await machine.run(f"""
        import subprocess, sys
        own = subprocess.Popen([sys.executable, "-c", {stays!r}], start_new_session=True)
        same = subprocess.Popen([sys.executable, "-c", {stays!r}])
        open({str(pids)!r}, "w").write(f"{{own.pid}} {{same.pid}}")
    """)
    own, same = map(int, pids.read_text().split())
    await machine.workers.close(keep_detached=True)
    await machine.guardian.close(keep_detached=True)
    assert is_alive(own) and not is_alive(same)
    await machine.output.flush()
    assert f"processes that the script started in their own session keep running: pid {own} (".encode() in (
        machine.err.getvalue()
    )
    go.touch()
    await until(lambda: machine.log() == b"uploaded\n")
    await until(lambda: not is_alive(own))


async def test_orphans_that_end_are_collected_while_the_worker_runs(machine: Machine, tmp_path: Path):
    path = tmp_path / "pid"
    # The kernel names the eldest child that has ended first: this one, which its owner does not collect yet.
    elder = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, elder.pid, os.WEXITED | os.WNOWAIT)
    await machine.start(f"""
        import os, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                open({str(path)!r}, "w").write(str(os.getpid()) + chr(10))
            os._exit(0)
        os.wait()
        time.sleep(600)
    """)
    pid = await pid_in(path)
    await until(lambda: process(pid) is None)
    assert machine.workers.alive == 1
    assert elder.wait() == 0


async def test_exit_codes_of_other_children_are_not_taken(machine: Machine):
    await machine.start("import time; time.sleep(600)")
    same_session = subprocess.Popen([sys.executable, "-c", "raise SystemExit(42)"])
    own_session = subprocess.Popen([sys.executable, "-c", "raise SystemExit(43)"], start_new_session=True)
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", "raise SystemExit(44)")
    assert await other.wait() == 44
    for pid in (same_session.pid, own_session.pid):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    machine.workers.reaper.reap()
    assert (same_session.wait(), own_session.wait()) == (42, 43)


async def test_an_exit_does_not_wait_for_a_grandchild_that_holds_the_pipes(machine: Machine):
    (exit,) = await machine.run("""
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        print("last words", file=sys.stderr)
        sys.exit("no data")
    """)
    assert exit.message == "last line on stderr: no data"
    await machine.output.flush()
    assert b"[node1 rank 0] last words\n" in machine.err.getvalue()


async def test_a_grandchilds_output_is_shown_after_its_worker_ended(machine: Machine, tmp_path: Path):
    go = tmp_path / "go"
    await machine.run(f"""
        import subprocess, sys
        subprocess.Popen([sys.executable, "-c",
            "import os, time\\nwhile not os.path.exists({str(go)!r}): time.sleep(0.005)\\nprint('still here')"])
    """)
    go.touch()
    await machine.shown("[node1 rank 0] still here")


async def test_a_worker_that_closes_its_streams_goes_on(machine: Machine, tmp_path: Path):
    path = tmp_path / "pid"
    await machine.start(f"""
        import os, signal
        os.close(1); os.close(2)
        open({str(path)!r}, "w").write(str(os.getpid()) + chr(10))
        signal.pause()
    """)
    await pid_in(path)
    assert machine.workers.alive == 1
    machine.workers.signal(signal.SIGTERM)
    (exit,) = await machine.ended()
    assert exit.signal == signal.SIGTERM


async def test_last_words_without_a_newline_are_not_lost(machine: Machine):
    await machine.run("import os; os.write(1, b'out'); os.write(2, b'err'); os._exit(1)")
    await machine.output.flush()
    assert machine.out.getvalue() == b"[node1 rank 0] out\n"
    assert machine.err.getvalue() == b"[node1 rank 0] err\n"


async def test_much_output_in_front_of_a_terminal_that_stands_still_holds_up_neither_worker_nor_file(tmp_path: Path):
    reading, writing = os.pipe()
    size = 10 << 20
    with os.fdopen(writing, "wb") as slow:
        machine = Machine(tmp_path)
        machine.output = Output(host="n", log_dir=tmp_path, job_id="j", stream_out=slow, stream_err=machine.err)
        machine.workers = Workers(tag="slow", output=machine.output, guardian=machine.guardian)
        machine.guardian.start()
        await machine.start(f"""
            import sys
            for n in range({size} // 64):
                sys.stdout.write("%063d\\n" % n)
        """)
        (exit,) = await machine.ended()
        shown = asyncio.create_task(asyncio.to_thread(_read_slowly, reading))
        await machine.workers.stop()
        assert await machine.output.flush(DEADLINE)
        await machine.workers.close()
        await machine.guardian.close()
        await machine.output.close(succeeded=True)
    assert exit.ok
    assert machine.log() == b"".join(b"%063d\n" % n for n in range(size // 64))
    assert await shown == size + size // 64 * len("[n rank 0] ")
    os.close(reading)


async def test_a_terminal_that_stands_still_holds_back_a_worker_without_files_but_not_its_stop(tmp_path: Path):
    reading, writing = os.pipe()
    written = tmp_path / "written"
    with os.fdopen(writing, "wb") as stuck:
        machine = Machine(tmp_path)
        machine.output = Output(host="n", log_dir=None, job_id="j", stream_out=stuck, stream_err=machine.err)
        machine.workers = Workers(tag="stuck", output=machine.output, guardian=machine.guardian)
        machine.guardian.start()
        await machine.start(f"""
            lines = 0
            while True:
                print('x' * 1000)
                lines += 1
                if lines % 1000 == 0:
                    open({str(written)!r}, "w").write(str(lines))
        """)
        await until(lambda: machine.output.full)
        # Long enough for far more than this, were the worker not held back.
        await asyncio.sleep(0.5)
        assert int(written.read_text()) * 1000 < 2 * HIGH_BYTES
        async with asyncio.timeout(DEADLINE):
            (exit,) = await machine.workers.stop()
        assert exit.signal == signal.SIGKILL
        await machine.workers.close()
        await machine.guardian.close()
        await machine.output.close(succeeded=True, seconds=0.1)
    os.close(reading)


async def test_a_full_disk_does_not_hurt_the_worker(machine: Machine):
    (machine.output.worker_dir(1, 0) / "stdout.log").symlink_to("/dev/full")
    (exit,) = await machine.run("for _ in range(1000): print('line')")
    assert exit.ok
    await machine.output.flush()
    assert machine.err.getvalue().count(b"No space left on device") == 1


async def test_rounds_follow_each_other_and_each_has_its_folder(machine: Machine):
    for round in (1, 2, 3):
        await machine.start(f"print('round {round}')", round=round)
        (exit,) = await machine.ended()
        assert exit.round == round
        await machine.workers.stop()
    await machine.output.flush()
    assert [machine.log(round=round) for round in (1, 2, 3)] == [b"round 1\n", b"round 2\n", b"round 3\n"]


def open_descriptors() -> dict[str, str]:
    found: dict[str, str] = {}
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # of the listing itself, or just closed by a thread
            found[each.name] = str(each.readlink())
    return found


async def test_many_rounds_leave_no_open_files_behind(machine: Machine):
    async def one_round() -> None:
        await machine.start("print('hello')", "import time; time.sleep(600)")
        await machine.workers.changed()
        await machine.workers.stop()
        await machine.output.flush()

    await one_round()
    first = open_descriptors()
    for _ in range(3):
        await one_round()
    # What is open for a moment (a thread that reads a file of /proc) is no leak: that would be there at every look.
    for _ in range(100):
        if len(now := open_descriptors()) <= len(first):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"open before: {sorted(first.values())}; after three more rounds: {sorted(now.values())}")


async def test_workers_that_still_run_are_not_started_over(machine: Machine):
    await machine.start("import time; time.sleep(600)")
    with pytest.raises(RuntimeError, match="stop them first"):
        await machine.start("")


async def test_a_paused_worker_goes_on_when_resumed_and_dies_when_stopped(machine: Machine):
    await machine.start("import time\nwhile True:\n    print('tick'); time.sleep(0.01)")
    await machine.shown("tick")
    pid = machine.workers.pids[0]
    machine.workers.pause()
    await until(lambda: (found := process(pid)) is not None and found.state == "T")
    machine.workers.resume()
    before = machine.out.getvalue().count(b"tick")
    await machine.shown("tick", times=before + 3)
    machine.workers.pause()
    (exit,) = await machine.workers.stop()
    assert exit.signal == signal.SIGKILL


DAEMON = """
import os, sys, time
path, environment, rest, leads = {path!r}, {environment!r}, {rest!r}, {leads!r}
if os.fork() == 0:
    os.setsid()
    if leads or os.fork() == 0:
        code = f"import os, time; open({path!r}, 'w').write(str(os.getpid()) + chr(10)); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-I", "-S", "-c", code], environment)
    os._exit(0)
while not os.path.exists(path) or not open(path).read().endswith(chr(10)):
    time.sleep(0.01)
exec(rest)
"""
"""A worker that starts a daemon without anything of its environment, and then does the rest."""


@pytest.mark.parametrize("leads", [False, True], ids=["a daemon", "the leader of a session"])
@pytest.mark.parametrize(
    ("environment", "rest", "ends"),
    [
        ({}, "time.sleep(600)", True),
        ({}, "sys.exit(3)", True),
        ({}, "", False),
        ({KEPT_VARIABLE: "store"}, "sys.exit(3)", False),
    ],
    ids=["of a round that is over", "of a failure", "of a success", "of the store"],
)
async def test_a_daemon_with_another_environment_ends_with_the_round_unless_it_is_meant_to_stay(
    machine: Machine, tmp_path: Path, environment: dict[str, str], rest: str, ends: bool, leads: bool
):
    workers = Workers(tag=f"alone-{os.getpid()}", output=machine.output, guardian=machine.guardian, alone=True)
    path = tmp_path / "pid"
    script = DAEMON.format(path=str(path), environment=environment, rest=rest, leads=leads)
    await workers.start([machine.spec(0, sys.executable, "-c", script)])
    pid = await pid_in(path)
    try:
        if rest != "time.sleep(600)":
            while workers.alive:
                await workers.changed()
        await workers.close(keep_detached=not rest)
        assert is_alive(pid) != ends
        assert machine.guardian.pid is not None and is_alive(machine.guardian.pid)  # no tag is in its environment, too
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_a_daemon_whose_worker_dies_between_two_looks_is_found(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workers = Workers(tag=f"alone-{os.getpid()}", output=machine.output, guardian=machine.guardian, alone=True)
    path = tmp_path / "pid"
    script = DAEMON.format(path=str(path), environment={}, rest="time.sleep(600)", leads=True)
    await workers.start([machine.spec(0, sys.executable, "-c", script)])
    worker, pid = workers.pids[0], await pid_in(path)
    look = process_search.descendants

    def look_and_kill(root: int) -> Iterator[Process]:
        found = list(look(root))
        if any(each.pid == worker and each.alive for each in found):
            os.kill(worker, signal.SIGKILL)
            while (now := process(pid)) is None or now.parent != os.getpid():
                time.sleep(0.001)
        return iter(found)

    monkeypatch.setattr(os, "killpg", lambda *_: None)  # who dies when is this test's to say
    monkeypatch.setattr(process_search, "descendants", look_and_kill)
    try:
        await workers.close()
        assert not is_alive(pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


async def test_a_process_that_does_not_die_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    stubborn = Workers(tag="stubborn", output=machine.output, guardian=machine.guardian, kill_seconds=0.1)
    await stubborn.start([machine.spec(0, sys.executable, "-c", "import time; time.sleep(600)")])
    pid = stubborn.pids[0]

    # Nothing on an ordinary machine survives SIGKILL on demand: here the signals are lost on their way.
    def lost(*_: object) -> None:
        """A signal that never arrives."""

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lost)
        patch.setattr(signal, "pidfd_send_signal", lost)
        exits = await stubborn.stop()
    assert exits == ()
    assert stubborn.unkillable == (pid,)
    with pytest.raises(StartFailed, match=f"process {pid} .* does not exit"):
        await stubborn.start([])
    await machine.output.flush()
    assert f"process {pid} does not die".encode() in machine.err.getvalue()
    os.kill(pid, signal.SIGKILL)
    await stubborn.close()
    await until(lambda: process(pid) is None)


WITH_A_THREAD = """
import threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
print('two threads')
time.sleep(600)
"""


@pytest.mark.parametrize(("how", "state"), [("exit", "t"), ("thread", "Z")])
async def test_a_worker_that_does_not_die_of_sigkill_is_given_up_and_named(machine: Machine, how: str, state: str):
    stuck = Workers(tag="stuck", output=machine.output, guardian=machine.guardian, kill_seconds=0.3)
    await stuck.start([machine.spec(0, sys.executable, "-u", "-c", WITH_A_THREAD)])
    pid = stuck.pids[0]
    await machine.shown("two threads")
    with held(how, pid):
        await stuck.stop()
        assert stuck.unkillable == (pid,)
        assert (stuck.alive, stuck.pids) == (0, {}), "nobody waits for it again"
        await machine.output.flush()
        assert f"process {pid} does not die: SIGKILL was sent 0.3 s ago and its state is {state}".encode() in (
            machine.err.getvalue()
        )
        await stuck.stop()
        await machine.output.flush()
        assert machine.err.getvalue().count(b"does not die") == 1, "it is said once"
    await stuck.close()
    await until(lambda: process(pid) is None)


async def test_who_was_given_up_is_not_waited_for_again(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    stuck = Workers(tag="stuck", output=machine.output, guardian=machine.guardian, kill_seconds=0.3)
    await stuck.start([machine.spec(0, sys.executable, "-u", "-c", WITH_A_THREAD)])
    await machine.shown("two threads")
    with held("exit", stuck.pids[0]):
        await stuck.stop()
        with monkeypatch.context() as patch:
            patch.setattr("elastic_run.elastic_agent.workers.worker_ending.ended", None)
            await stuck.close()


async def test_a_process_whose_first_thread_has_ended_is_alive_while_another_runs(machine: Machine):
    await machine.start(WITH_A_THREAD)
    pid = machine.workers.pids[0]
    await machine.shown("two threads")
    with held("thread", pid):
        os.kill(pid, signal.SIGKILL)
        await until(lambda: (found := process(pid)) is not None and found.state == "Z")
        found = process(pid)
        assert found is not None
        assert found.alive
        assert machine.workers.alive == 1
    await until(lambda: process(pid) is None)


async def test_the_end_of_a_worker_is_heard_though_a_tracer_keeps_it(machine: Machine):
    await machine.start("print('here'); import time; time.sleep(600)")
    pid = machine.workers.pids[0]
    await machine.shown("here")
    with held("zombie", pid):
        os.kill(pid, signal.SIGKILL)
        (exit,) = await machine.ended()
        assert exit.signal == signal.SIGKILL
    await until(lambda: process(pid) is None)


async def test_a_tracer_that_keeps_a_worker_which_ended_well_costs_no_processor(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    go = tmp_path / "go"
    await machine.start(f"import os, time\nprint('here')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)")
    pid = machine.workers.pids[0]
    await machine.shown("here")
    looks: list[int] = []
    waitid = os.waitid

    def counted(kind: int, which: int, options: int) -> "os.waitid_result | None":
        looks.append(which)
        return waitid(kind, which, options)

    with held("zombie", pid):
        monkeypatch.setattr(os, "waitid", counted)
        go.touch()
        await until(lambda: (found := process(pid)) is not None and found.state == "Z")
        await machine.shown("a tracer")
        assert len(looks) < 100
        assert machine.workers.alive == 1, "its exit code is not known yet"
    (exit,) = await machine.ended()
    assert exit.ok


@pytest.mark.parametrize("made", ["os.mkfifo(path)", "os.symlink('/dev/zero', path)", "os.mkdir(path)"])
async def test_what_a_worker_puts_in_the_place_of_its_error_file_does_not_hold_up_the_agent(
    machine: Machine, made: str
):
    machine.environment = {"TORCHELASTIC_ERROR_FILE": str(machine.output.worker_dir(1, 0) / "error.json")}
    (exit,) = await machine.run(f"import os, sys; path = os.environ['TORCHELASTIC_ERROR_FILE']; {made}; sys.exit('no')")
    assert (exit.code, exit.message) == (1, "last line on stderr: no")


async def test_a_named_pipe_in_the_place_of_a_log_costs_that_log_only(machine: Machine):
    os.mkfifo(machine.output.worker_dir(1, 0) / "stdout.log")
    await machine.run("print('hello')")
    await machine.output.flush()
    assert b"hello" in machine.out.getvalue()
    assert b"stdout.log" in machine.err.getvalue()


async def test_a_kill_without_memory_pressure_is_not_blamed_on_it(machine: Machine):
    (exit,) = await machine.run("import os; os.kill(os.getpid(), 9)")
    assert "out of memory" not in exit.message
    assert exit.oom_kills == 0


def counts(monkeypatch: pytest.MonkeyPatch, *values: tuple[int, bool]) -> None:
    """A double of the kernel's count: it stays at the last value."""
    left = list(values)
    monkeypatch.setattr(out_of_memory, "count_kills", lambda: left.pop(0) if len(left) > 1 else left[0])


async def test_a_kill_that_the_kernel_counts_is_named(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    counts(monkeypatch, (4, True), (5, True))
    (exit,) = await machine.run("import os; os.kill(os.getpid(), 9)")
    assert exit.message == "killed by the kernel: out of memory (oom_kill rose by 1)"
    assert exit.oom_kills == 1
    assert "memory limit" in hint(exit)


async def test_a_kill_somewhere_on_the_machine_is_no_proof(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    killed = tmp_path / "killed"
    monkeypatch.setattr(out_of_memory, "count_machine_kills", lambda: 5 if killed.exists() else 4)
    (exit,) = await machine.run(f"import os; open({str(killed)!r}, 'w').close(); os.kill(os.getpid(), 9)")
    assert exit.oom_kills == 0
    assert exit.message.startswith("it may have been killed by the kernel: out of memory")


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "raise SystemExit(1)"])
async def test_an_earlier_kill_on_the_machine_was_another_programs(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool, end: str
):
    go = tmp_path / "go"
    os.mkfifo(go)
    looks = [4]

    def count() -> int:
        looks.append(5)
        return looks[-2]

    monkeypatch.setattr(out_of_memory, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(out_of_memory, "count_machine_kills", count)
    monkeypatch.setattr(out_of_memory, "count_kills", lambda: (7 if own else looks[-1], own))
    await machine.start(f"import os; open({str(go)!r}).read(); {end}")
    await until(lambda: len(looks) > 8)
    go.write_text("")
    (exit,) = await machine.ended()
    assert (exit.oom_kills, exit.message) == (0, "")


async def test_one_counted_kill_explains_the_end_of_one_worker(machine: Machine, monkeypatch: pytest.MonkeyPatch):
    counts(monkeypatch, (4, True), (5, True))
    exits = await machine.run(*["import os; os.kill(os.getpid(), 9)"] * 2)
    assert sorted(exit.oom_kills for exit in exits) == [0, 1]


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A memory control group of 300 MB, of either version."""
    parents = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers in ("", "memory"):
            parents.insert(0, Path("/sys/fs/cgroup") / controllers / group.lstrip("/"))
    for parent in parents:
        made = parent / f"elastic-run-test-{os.getpid()}"
        try:
            made.mkdir()
        except OSError:
            continue
        for name in ("memory.max", "memory.limit_in_bytes"):
            if (made / name).exists():
                (made / name).write_text(str(300 << 20))
                yield made
                made.rmdir()
                return
        made.rmdir()
    pytest.skip("this machine lets nobody here make a memory control group")


def test_a_real_kill_for_lack_of_memory_is_named(small_group: Path, tmp_path: Path):
    agent = """
        import asyncio, os, sys
        from pathlib import Path
        from elastic_run.elastic_agent.processes.guard import Guardian
        from elastic_run.elastic_agent.logs.output import Output
        from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
        from elastic_run.elastic_agent.workers.worker_processes import Workers

        async def main() -> None:
            Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
            output = Output(host="n", log_dir=Path(sys.argv[2]), job_id="j",
                            stream_out=sys.stdout.buffer, stream_err=sys.stderr.buffer)
            guardian = Guardian(tag="oom")
            guardian.start()
            workers = Workers(tag="oom", output=output, guardian=guardian)
            greedy = "x = []\\nwhile True: x.append(bytearray(10_000_000))"
            await workers.start([WorkerSpec(1, 0, 0, (sys.executable, "-c", greedy), dict(os.environ))])
            while workers.alive:
                await workers.changed()
            output.say(workers.exits[0].message)
            assert workers.exits[0].oom_kills == 1
            await workers.close()
            await guardian.close()
            await output.close(succeeded=True)

        asyncio.run(main())
    """
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(agent), str(small_group), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert ran.stderr == "[elastic-run] killed by the kernel: out of memory (oom_kill rose by 1)\n"


def _read_slowly(descriptor: int) -> int:
    total = 0
    while data := os.read(descriptor, 1 << 16):
        total += len(data)
        time.sleep(0.001)
    return total


COMPUTES = """
    import os
    os.sched_setaffinity(0, {{{cpu}}})
    os.nice({nice})
    print("computes", flush=True)
    while True:
        pass
"""


async def test_a_worker_that_others_leave_no_processor_is_seen_to_compute(machine: Machine):
    (cpu, *_) = os.sched_getaffinity(0)
    await machine.start(*(COMPUTES.format(cpu=cpu, nice=nice) for nice in (19, 0)))
    await machine.shown("computes", 2)
    slow = [machine.workers.pids[0]]
    before, at = machine.workers.used(slow), time.monotonic()
    await asyncio.sleep(COMPUTES_WITHIN)
    assert machine.workers.used(slow) - before > COMPUTES_SHARE * (time.monotonic() - at)


async def test_a_worker_that_waits_for_something_is_not_seen_to_compute(machine: Machine):
    await machine.start("import signal; print('waits', flush=True); signal.pause()")
    await machine.shown("waits")
    pids = [machine.workers.pids[0]]
    await until(lambda: (found := process(pids[0])) is not None and found.state == "S")
    before = machine.workers.used(pids)
    await asyncio.sleep(COMPUTES_WITHIN)
    assert machine.workers.used(pids) - before < COMPUTES_SHARE * COMPUTES_WITHIN


ECHOES = """
    # Has a child, and prints each word that it is signalled to.
    import os, signal, subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    signal.signal(signal.SIGUSR1, lambda *_: print(os.environ["NAME"], "is heard", flush=True))
    print(child.pid, "is its child", flush=True)
    while True:
        signal.pause()
"""


def echoing(machine: Machine, rank: int, local: int, name: str, round: int) -> WorkerSpec:
    environment = {**os.environ, "NAME": name}
    argv = (sys.executable, "-u", "-c", textwrap.dedent(ECHOES))
    return WorkerSpec(round, rank, local, argv, environment, machine.output.error_file(round, local))


async def children(machine: Machine, count: int) -> list[int]:
    """The pids of the workers' children, in the order of their lines."""
    await machine.shown("is its child", count)
    lines = machine.out.getvalue().decode().splitlines()
    return [int(line.split()[-4]) for line in lines if "is its child" in line]


async def test_who_is_kept_goes_on_with_another_rank_and_who_is_not_is_ended_with_its_children(machine: Machine):
    await machine.workers.start([echoing(machine, rank, rank, f"worker {rank}", 1) for rank in range(3)])
    await children(machine, 3)
    before = machine.workers.pids
    machine.workers.keep({before[2]: echoing(machine, 0, 2, "", 2)})
    await machine.workers.fill([echoing(machine, 1, 0, "new", 2)])
    after = machine.workers.pids
    assert after[2] == before[2]
    assert set(after) == {0, 2}
    assert after[0] != before[0]
    assert not is_alive(before[0])
    assert not is_alive(before[1])
    born = await children(machine, 4)
    await until(lambda: sum(map(is_alive, born)) == 2)
    assert machine.workers.exits == (), "nobody of this round has ended"

    machine.workers.signal(signal.SIGUSR1)
    await machine.shown("is heard", 2)
    text = machine.out.getvalue().decode()
    assert "rank 0] worker 2 is heard" in text, "its lines come under its new rank"
    assert "rank 1] new is heard" in text
    await until(lambda: b"worker 2 is heard" in machine.log(rank=2, round=2))

    os.kill(after[2], signal.SIGKILL)
    async with asyncio.timeout(DEADLINE):
        while not machine.workers.exits:
            await machine.workers.changed()
    (exit,) = machine.workers.exits
    assert (exit.round, exit.rank, exit.local_rank, exit.signal) == (2, 0, 2, signal.SIGKILL)


async def test_a_worker_that_has_ended_is_replaced_beside_those_that_are_kept(machine: Machine):
    await machine.start("raise SystemExit(3)", "import time; time.sleep(600)")
    async with asyncio.timeout(DEADLINE):
        await machine.workers.changed()
    (kept,) = machine.workers.pids.values()
    machine.workers.keep({kept: machine.spec(1, sys.executable, round=2)})
    assert machine.workers.exits == ()
    await machine.workers.fill([machine.spec(0, sys.executable, "-c", "raise SystemExit(4)", round=2)])
    async with asyncio.timeout(DEADLINE):
        while not machine.workers.exits:
            await machine.workers.changed()
    assert [(exit.round, exit.rank, exit.code) for exit in machine.workers.exits] == [(2, 0, 4)]
    assert machine.workers.pids == {1: kept}


async def test_where_none_can_be_started_beside_them_those_that_are_kept_live(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    await machine.start("raise SystemExit(3)", "import time; time.sleep(600)")
    async with asyncio.timeout(DEADLINE):
        await machine.workers.changed()
    (kept,) = machine.workers.pids.values()
    machine.workers.keep({kept: machine.spec(1, sys.executable, round=2)})

    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with pytest.raises(StartFailed, match="cannot start the worker of rank 0"):
        await machine.workers.fill([machine.spec(0, sys.executable, round=2)])
    monkeypatch.undo()
    assert machine.workers.pids == {1: kept}
    assert is_alive(kept)


async def test_an_agent_that_cannot_look_ends_those_only_that_are_not_kept(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
):
    blind = Workers(tag="blind", output=machine.output, guardian=machine.guardian, kill_seconds=0.3)
    await blind.start([machine.spec(rank, sys.executable, "-c", "import time; time.sleep(600)") for rank in (0, 1)])
    kept, gone = blind.pids[1], blind.pids[0]
    blind.keep({kept: machine.spec(1, sys.executable, round=2)})

    def look(_: int) -> Iterator[Process]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(process_search, "descendants", look)
        await blind.fill([])
    assert blind.pids == {1: kept} and is_alive(kept) and not is_alive(gone)
    await blind.close()
