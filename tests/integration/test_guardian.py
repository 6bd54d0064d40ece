"""What is left of the workers when their agent dies or is stopped: nothing."""

# Other processes are looked at from outside, where there is no event to wait for (`until`).
# ruff: noqa: ASYNC110

import asyncio
import contextlib
import errno
import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from elastic_run.elastic_agent.processes import guardian as guardian_module
from elastic_run.elastic_agent.processes.guard import Guardian
from elastic_run.elastic_agent.processes.guardian import Process, carries, children, descendants, process

from .cluster import held

SILENCE = 2.0
"""Seconds without a word after which a leased agent's workers are killed: longer than a busy machine stands still."""

DEADLINE = 60.0
"""Seconds; generous, because the machine may be busy. Nothing here waits that long unless it fails."""

AGENT = """
    import asyncio, os, sys
    from pathlib import Path
    from elastic_run.elastic_agent.processes.guard import Guardian
    from elastic_run.elastic_agent.logs.output import Output
    from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
    from elastic_run.elastic_agent.workers.worker_processes import Workers

    def tell(path: Path, number: int) -> None:
        path.with_suffix(".tmp").write_text(f"{number}\\n")
        path.with_suffix(".tmp").rename(path)  # whoever waits for the file finds it whole

    async def main(folder: Path, silence: float | None) -> None:
        output = Output(host="n", log_dir=folder, job_id="j",
                        stream_out=sys.stdout.buffer, stream_err=sys.stderr.buffer)
        guardian = Guardian(tag=folder.name, silence=silence, say=output.say)
        guardian.start()
        tell(folder / "guardian.pid", guardian.pid)
        workers = Workers(tag=folder.name, output=output, guardian=guardian)
        script = (folder / "worker.py").read_text()
        if silence is not None:
            async def beat() -> None:
                while True:
                    guardian.beat()
                    await asyncio.sleep(silence / 5)
            beating = asyncio.create_task(beat())
        await workers.start([WorkerSpec(1, 0, 0, (sys.executable, "-u", "-c", script), dict(os.environ))])
        tell(folder / "worker.pid", workers.pids[0])
        (folder / "started").touch()
        while not workers.exits:
            await workers.changed()
        tell(folder / "exit", workers.exits[0].signal)
        await asyncio.Event().wait()

    asyncio.run(main(Path(sys.argv[1]), float(sys.argv[2]) if sys.argv[2] != "never" else None))
"""

WORKER = """
    import os, signal, sys, time
    folder = {folder!r}
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    def stay(name):
        with open(f"{{folder}}/{{name}}.tmp", "w") as file:
            file.write(f"{{os.getpid()}}\\n")
        os.rename(f"{{folder}}/{{name}}.tmp", f"{{folder}}/{{name}}.pid")
        while True: signal.pause()
    from multiprocessing import shared_memory
    shared_memory.SharedMemory(f"elastic-run-{{os.getpid()}}", create=True, size=16)
    if os.fork() == 0:
        stay("child")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            stay("daemon")
        os._exit(0)
    stay("self")
"""


ADOPTER = """
    import ctypes, os, subprocess, sys
    from elastic_run.elastic_agent.processes.guardian import descendants

    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the launcher's orphans, dead or alive, come here
    subprocess.run(sys.argv[1:], check=True)
    print("left:", [(found.pid, found.state) for found in descendants(os.getpid())])
"""


class Scene:
    """An agent in a process of its own, with a worker, the worker's child and its daemon."""

    def __init__(self, folder: Path, silence: float | None) -> None:
        self.folder = folder
        (folder / "worker.py").write_text(textwrap.dedent(WORKER.format(folder=str(folder))))
        self.agent = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(AGENT), str(folder), "never" if silence is None else str(silence)],
            start_new_session=True,
        )

    async def ready(self) -> list[int]:
        """The pids of the worker and of all that it started."""
        await self.appears("started")
        return [await self.pid(name) for name in ("self", "child", "daemon")]

    async def appears(self, name: str) -> Path:
        path = self.folder / name
        await until(lambda: path.exists() or self.agent.poll() is not None)
        assert path.exists(), "the agent of this test has ended"
        return path

    async def pid(self, name: str) -> int:
        return int((await self.appears(f"{name}.pid")).read_text())

    async def end(self) -> None:
        self.agent.kill()
        self.agent.wait()
        guardian = self.folder / "guardian.pid"
        if guardian.exists():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(guardian.read_text()), signal.SIGCONT)
            await gone(int(guardian.read_text()))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await asyncio.sleep(0.005)


def tagged_child(tag: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(["/bin/sleep", "600"], env={**os.environ, "ELASTIC_RUN_TAG": tag})


def tagged_orphan(tag: str) -> int:
    environment = {**os.environ, "ELASTIC_RUN_TAG": tag}
    made = subprocess.run(
        ["/bin/sh", "-c", "sleep 600 >&- & echo $!"], env=environment, stdout=subprocess.PIPE, check=True
    )
    return int(made.stdout)


def is_alive(pid: int) -> bool:
    found = process(pid)
    return found is not None and found.alive


async def gone(*pids: int) -> None:
    await until(lambda: not any(is_alive(pid) for pid in pids))


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path, silence=None)
    yield made
    await made.end()


@pytest.fixture
async def leased(tmp_path: Path) -> AsyncIterator[Scene]:
    made = Scene(tmp_path, silence=SILENCE)
    yield made
    await made.end()


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that belongs to nobody here."""
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    yield started
    started.kill()
    started.wait()


async def test_nothing_outlives_an_agent_that_was_killed(scene: Scene):
    pids = await scene.ready()
    guardian = await scene.pid("guardian")
    shared = Path(f"/dev/shm/elastic-run-{pids[0]}")
    assert shared.is_file()  # noqa: ASYNC240
    scene.agent.kill()
    await gone(*pids, guardian)
    assert not shared.is_file()  # noqa: ASYNC240


async def test_the_worker_itself_dies_with_its_agent_even_without_a_guardian(scene: Scene):
    pids = await scene.ready()
    guardian = await scene.pid("guardian")
    # Stopped first, so that it cannot be what kills the worker.
    os.kill(guardian, signal.SIGSTOP)
    scene.agent.kill()
    await gone(pids[0])
    assert is_alive(pids[2])
    os.kill(guardian, signal.SIGCONT)
    await gone(*pids, guardian)


async def test_nothing_outlives_an_agent_that_was_killed_while_it_was_stopped(scene: Scene):
    pids = await scene.ready()
    scene.agent.send_signal(signal.SIGSTOP)
    scene.agent.kill()
    await gone(*pids, await scene.pid("guardian"))


async def test_an_agent_that_is_stopped_for_too_long_loses_its_workers_and_hears_of_it(leased: Scene):
    pids = await leased.ready()
    leased.agent.send_signal(signal.SIGSTOP)
    await gone(*pids)
    leased.agent.send_signal(signal.SIGCONT)
    assert (await leased.appears("exit")).read_text() == "9\n"
    assert is_alive(await leased.pid("guardian"))


async def test_without_a_lease_a_stopped_agent_keeps_its_workers(scene: Scene):
    pids = await scene.ready()
    scene.agent.send_signal(signal.SIGSTOP)
    # Longer than the silence that the other tests use; a shorter wait could only hide a defect, not invent one.
    await asyncio.sleep(1.5 * SILENCE)
    assert all(is_alive(pid) for pid in pids)


async def test_an_agent_that_beats_keeps_its_workers(leased: Scene):
    pids = await leased.ready()
    await asyncio.sleep(1.5 * SILENCE)
    assert all(is_alive(pid) for pid in pids)


async def test_time_in_which_the_guardian_was_stopped_too_is_not_silence(leased: Scene):
    pids = await leased.ready()
    guardian = await leased.pid("guardian")
    leased.agent.send_signal(signal.SIGSTOP)
    os.kill(guardian, signal.SIGSTOP)
    await asyncio.sleep(2.5 * SILENCE)
    os.kill(guardian, signal.SIGCONT)
    leased.agent.send_signal(signal.SIGCONT)
    await asyncio.sleep(0.5)
    assert all(is_alive(pid) for pid in pids)


async def test_an_interrupt_of_the_terminal_does_not_end_the_guardian(scene: Scene):
    pids = await scene.ready()
    guardian = await scene.pid("guardian")
    assert os.getsid(guardian) == guardian
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(guardian, number)
    scene.agent.kill()
    await gone(*pids)


async def test_another_agents_workers_are_left_alone(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = Scene(tmp_path / "one", None), Scene(tmp_path / "two", None)
    try:
        dying, staying = await one.ready(), await two.ready()
        one.agent.kill()
        await gone(*dying, await one.pid("guardian"))
        assert all(is_alive(pid) for pid in staying)
    finally:
        await one.end()
        await two.end()


async def test_a_guardian_that_dies_is_started_again_and_knows_whom_to_watch(sleeper: "subprocess.Popen[bytes]"):
    said: list[str] = []
    guardian = Guardian(tag="again", say=said.append)
    guardian.start()
    guardian.watch(sleeper.pid)
    first = guardian.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    await until(lambda: guardian.pid not in (first, None))
    assert said == ["the guardian of this machine's workers exited (signal 9) and is restarted"]
    assert is_alive(sleeper.pid)
    await guardian.close()
    assert sleeper.wait(DEADLINE) == -signal.SIGKILL


async def test_a_guardian_that_does_not_read_is_replaced(sleeper: "subprocess.Popen[bytes]"):
    guardian = Guardian(tag="deaf")
    guardian.start()
    first = guardian.pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    for _ in range(20_000):
        guardian.beat()
    guardian.watch(sleeper.pid)
    await until(lambda: guardian.pid not in (first, None))
    await guardian.close()
    assert sleeper.wait(DEADLINE) == -signal.SIGKILL


async def test_a_session_that_was_forgotten_is_left_alone(sleeper: "subprocess.Popen[bytes]"):
    guardian = Guardian(tag="forgets")
    guardian.start()
    guardian.watch(sleeper.pid)
    guardian.forget(sleeper.pid)
    pid = guardian.pid
    await guardian.close()
    assert pid is not None
    assert not is_alive(pid)
    assert is_alive(sleeper.pid)


async def test_a_paused_silence_does_not_count(sleeper: "subprocess.Popen[bytes]"):
    guardian = Guardian(tag="paused", silence=0.4)
    guardian.start()
    guardian.watch(sleeper.pid)
    guardian.pause()
    await asyncio.sleep(1.0)
    assert is_alive(sleeper.pid)
    guardian.beat()
    assert await asyncio.to_thread(sleeper.wait, DEADLINE) == -signal.SIGKILL
    await guardian.close()


async def test_a_guardian_whose_agent_sees_nothing_left_ends_without_a_look(monkeypatch: pytest.MonkeyPatch):
    words: list[str] = []
    tell = Guardian._tell
    monkeypatch.setattr(Guardian, "_tell", lambda self, word, **must: (words.append(word), tell(self, word, **must)))
    guardian = Guardian(tag="unneeded")
    guardian.start()
    pid = guardian.pid
    # It is not below this process, so only a look at the whole machine would find it.
    orphan = tagged_orphan("unneeded")
    await guardian.close()
    assert words == ["end"]
    assert pid is not None
    assert process(pid) is None
    assert is_alive(orphan)
    os.kill(orphan, signal.SIGKILL)


async def test_a_guardian_looks_where_something_of_the_workers_is_left_below_the_agent():
    guardian = Guardian(tag="needed")
    guardian.start()
    left = tagged_child("needed")
    await guardian.close()
    assert left.wait(DEADLINE) == -signal.SIGKILL


def test_a_process_that_is_just_being_started_is_known_by_its_tag():
    """While its program is loaded, the kernel shows no environment of it: several of a hundred tries meet that."""
    unknown = 0
    for _ in range(100):
        child = tagged_child("young")
        unknown += not carries(child.pid, "young")
        child.kill()
        child.wait()
    assert unknown == 0


def test_a_process_whose_start_a_busy_machine_draws_out_is_known_by_its_tag(monkeypatch: pytest.MonkeyPatch):
    read = guardian_module._read  # type: ignore[attr-defined]
    looks = 0

    def loading(path: str) -> bytes:
        """For a tenth of a second the kernel shows what it shows while a program is loaded."""
        nonlocal looks
        found = read(path)
        if path == f"/proc/{child.pid}/environ":
            looks += 1
            return b"" if looks <= 50 else found
        if path == f"/proc/{child.pid}/stat" and looks <= 50:
            head, _, rest = found.rpartition(b") ")
            fields = rest.split()
            fields[48] = b"0"
            return head + b") " + b" ".join(fields)
        return found

    child = tagged_child("young")
    monkeypatch.setattr(guardian_module, "_read", loading)
    assert carries(child.pid, "young")
    child.kill()
    child.wait()


def test_a_process_without_an_environment_carries_no_tag():
    child = subprocess.Popen(["/bin/sleep", "600"], env={})
    assert not carries(child.pid, "young")
    child.kill()
    child.wait()


async def test_a_guardian_looks_where_its_agent_cannot(monkeypatch: pytest.MonkeyPatch):
    guardian = Guardian(tag="blind")
    guardian.start()
    left = tagged_child("blind")

    def blind(_root: int) -> Iterator[Process]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(guardian_module, "descendants", blind)
    await guardian.close()
    assert left.wait(DEADLINE) == -signal.SIGKILL


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_launcher_that_has_ended_leaves_no_process_behind(method: str, tmp_path: Path):
    (tmp_path / "worker.py").write_text("print('worked')\n")
    launcher = [sys.executable, "-m", "elastic_run", "--standalone", f"--start-method={method}", "worker.py"]
    found = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ADOPTER), *launcher], cwd=tmp_path, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    assert "worked" in found.stdout
    assert found.stdout.splitlines()[-1] == "left: []"


async def test_a_guardian_that_cannot_be_killed_does_not_hold_up_its_agent():
    guardian = Guardian(tag="held")
    guardian.start()
    pid = guardian.pid
    assert pid is not None
    with held("exit", pid):
        async with asyncio.timeout(DEADLINE):
            await guardian.close(seconds=0.1)
        assert guardian.pid is None
    await asyncio.to_thread(os.waitpid, pid, 0)


async def test_closing_a_guardian_twice_or_before_its_start_does_no_harm():
    guardian = Guardian(tag="idle")
    await guardian.close()
    guardian = Guardian(tag="idle")
    guardian.start()
    await guardian.close()
    await guardian.close()
    assert guardian.pid is None


def test_the_guardian_loads_little():
    heavy = ("asyncio", "subprocess", "pathlib", "ctypes", "elastic_run")
    path = guardian_module.__file__
    check = f"import runpy, sys; runpy.run_path({path!r}); print([m for m in {heavy} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-I", "-S", "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_process_is_described_whatever_its_name(tmp_path: Path):
    odd = tmp_path / "a) S (b"
    odd.symlink_to("/bin/sleep")
    started = subprocess.Popen([str(odd), "600"], start_new_session=True)
    try:
        found = process(started.pid)
        assert found is not None
        assert (found.parent, found.group, found.session) == (os.getpid(), started.pid, started.pid)
        assert found.alive
        assert started.pid in (children(os.getpid()) or ())
        assert started.pid in {each.pid for each in descendants(os.getpid())}
    finally:
        started.kill()
        os.waitid(os.P_PID, started.pid, os.WEXITED | os.WNOWAIT)
        zombie = process(started.pid)
        assert zombie is not None
        assert not zombie.alive
        started.wait()
    assert process(started.pid) is None


def test_a_tag_is_compared_whole_and_may_be_one_of_several():
    environment = {**os.environ, "ELASTIC_RUN_TAG": "outer,inner"}
    with subprocess.Popen(["/bin/cat"], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        started.stdin.write(b"x")
        started.stdin.flush()
        select.select([started.stdout], [], [], DEADLINE)
        assert carries(started.pid, "outer")
        assert carries(started.pid, "inner")
        assert not carries(started.pid, "out")
        assert not carries(os.getpid(), "outer")
        started.stdin.close()
