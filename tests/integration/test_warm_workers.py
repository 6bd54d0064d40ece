"""Workers that are forked from a warm interpreter: what is imported once, who dies with whom, and what never is.

What is "installed" here lies in a folder of that name on PYTHONPATH, and tells who has executed it. That scripts cannot
tell a forked worker from a fresh one is in `test_start_methods.py`.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest

from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.elastic_agent.zygotes.seed import Recipe
from elastic_run.elastic_agent.zygotes.zygote import AT_ONCE, Begin

from . import test_workers
from .test_workers import DEADLINE, Machine

SAME = (
    "test_a_crash_of_native_code_is_a_signal_with_a_hint",
    "test_a_full_disk_does_not_hurt_the_worker",
    "test_a_grandchilds_output_is_shown_after_its_worker_ended",
    "test_a_notice_goes_to_the_worker_itself",
    "test_a_paused_worker_goes_on_when_resumed_and_dies_when_stopped",
    "test_a_program_that_says_why_it_exits_is_quoted",
    "test_a_second_stop_cuts_the_grace_of_the_first",
    "test_a_signal_that_ended_a_worker_is_named",
    "test_a_stop_goes_on_where_its_caller_is_cancelled",
    "test_a_worker_that_closes_its_streams_goes_on",
    "test_a_worker_that_ends_in_its_grace_is_not_killed",
    "test_a_worker_that_ignores_the_notice_is_killed_after_its_grace",
    "test_an_end_before_the_stop_is_not_called_stopped",
    "test_an_exit_does_not_wait_for_a_grandchild_that_holds_the_pipes",
    "test_an_exit_is_heard_while_others_run",
    "test_changed_waits_for_a_new_end",
    "test_exit_codes_arrive_as_they_are",
    "test_exit_codes_of_other_children_are_not_taken",
    "test_last_words_without_a_newline_are_not_lost",
    "test_many_rounds_leave_no_open_files_behind",
    "test_orphans_that_end_are_collected_while_the_worker_runs",
    "test_rounds_follow_each_other_and_each_has_its_folder",
    "test_workers_that_still_run_are_not_started_over",
)
"""Tests of `test_workers.py` that hold however a worker was started. Here they use this module's `machine`."""

globals().update({name: vars(test_workers)[name] for name in SAME})

DEFAULT = "--start-method=fork"
"""Says nothing new: what a run is given that imports ahead only what it does by itself."""

MARK = "WARM_TEST"
"""In the environment of everything that a run starts; its value is the run's folder."""

COUNTED = """
import os
NAME, WORDS = __name__, os.environ.get("WORDS")
with open(os.path.join(os.environ["WARM_TEST"], NAME), "a") as file:
    file.write(f"{os.getpid()}\\n")
"""


# -- the promises of all workers --------------------------------------------------------------------------------------


class WarmMachine(Machine):
    """Workers of one command line, forked; each does what the script of its rank says."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.main = folder / "main.py"
        self.main.write_text(
            "import os\n"
            f"with open({str(folder)!r} + '/part' + os.environ['RANK'] + '.py') as file:\n"
            "    source = file.read()\n"
            "exec(compile(source, '<string>', 'exec'))\n"
        )

    async def start(
        self,
        *scripts: str,
        round: int = 1,
        first: int = 0,
        preload: tuple[str, ...] = (),
        begin: Begin = AT_ONCE,
    ) -> None:
        argv = (sys.executable, "-u", str(self.main))
        for rank, script in enumerate(scripts, first):
            (self.folder / f"part{rank}.py").write_text(textwrap.dedent(script))
        if self.workers._starter.zygotes is None:  # type: ignore[attr-defined]
            common = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
            self.workers.warm(Recipe(argv, common, "script", str(self.main), frozenset(["RANK"]), preload))
            await self.workers.ready()
        specs = [self._spec(rank, argv, round, begin) for rank in range(first, first + len(scripts))]
        await self.workers.start(specs)
        assert all(worker.popen is None for worker in self.workers._current), "these are to be forks"  # type: ignore[attr-defined]

    def _spec(self, rank: int, argv: tuple[str, ...], round: int, begin: Begin) -> WorkerSpec:
        environment = {**os.environ, "RANK": str(rank)}
        environment.pop("PYTEST_CURRENT_TEST", None)
        return WorkerSpec(round, rank, rank, argv, environment, self.output.error_file(round, rank), begin)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[WarmMachine]:
    made = WarmMachine(tmp_path)
    made.guardian.start()
    yield made
    await made.workers.close()
    await made.guardian.close()
    await made.output.close(succeeded=True)


PLAYED_TORCH = """
import array
class default_generator:
    seed = staticmethod(int)
    get_state = staticmethod(lambda: array.array("b"))
"""


@pytest.fixture
def torch_is_played(machine: WarmMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What workers meet through is imported ahead, in an instant."""
    site = machine.folder / "site-packages"
    site.mkdir()
    (site / "torch.py").write_text(PLAYED_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(site))


HELD = Begin("torch", held=600.0)
"""Until it is let go: no test waits that long."""


async def _start_held(machine: WarmMachine, script: str = "print('begun')", begin: Begin = HELD) -> None:
    await machine.start(script, first=1, preload=("torch",), begin=begin)
    zygotes = machine.workers._starter.zygotes  # type: ignore[attr-defined]
    assert zygotes is not None and zygotes._current is not None  # type: ignore[attr-defined]
    assert zygotes._current.account.imported == ["torch"]  # type: ignore[attr-defined]
    for pid in machine.workers.pids.values():
        streams = [Path(f"/proc/{pid}/fd/{number}") for number in (1, 2)]
        with contextlib.suppress(OSError):  # it has ended already
            # The interpreter's until the worker has been told that the agent knows of it.
            while len({stream.readlink() for stream in streams}) == 1:  # noqa: ASYNC110  it tells nobody
                await asyncio.sleep(0.001)


@pytest.mark.usefixtures("torch_is_played")
async def test_a_held_worker_begins_when_it_is_let_go(machine: WarmMachine) -> None:
    await _start_held(machine)
    await asyncio.sleep(0.2)
    assert machine.workers.alive == 1 and b"begun" not in machine.out.getvalue()
    machine.workers.let_go()
    (end,) = await machine.ended()
    await machine.output.flush()
    assert end.code == 0 and b"begun" in machine.out.getvalue()


@pytest.mark.usefixtures("torch_is_played")
async def test_a_held_worker_begins_by_itself_where_nobody_lets_it_go(machine: WarmMachine) -> None:
    await _start_held(machine, begin=Begin("torch", held=0.05))
    (end,) = await machine.ended()
    await machine.output.flush()
    assert end.code == 0 and b"begun" in machine.out.getvalue()


@pytest.mark.usefixtures("torch_is_played")
async def test_a_held_worker_begins_where_its_warm_interpreter_ends(machine: WarmMachine) -> None:
    await _start_held(machine)
    zygotes = machine.workers._starter.zygotes  # type: ignore[attr-defined]
    zygotes._current.end()  # type: ignore[attr-defined,union-attr]
    (end,) = await machine.ended()
    assert end.code == 0


@pytest.mark.usefixtures("torch_is_played")
async def test_nobody_is_held_for_what_was_not_imported_ahead(machine: WarmMachine) -> None:
    await _start_held(machine, begin=Begin("tensorflow", held=600.0))
    (end,) = await machine.ended()
    assert end.code == 0


@pytest.mark.usefixtures("torch_is_played")
async def test_a_worker_that_was_held_has_no_descriptor_more_than_another(machine: WarmMachine) -> None:
    descriptors = "import os\nprint('has', *sorted(os.listdir('/proc/self/fd')))"
    seen: list[bytes] = []
    for begin in (Begin(), HELD, Begin("torch", held=0.05), Begin()):
        await _start_held(machine, descriptors, begin)
        machine.workers.let_go()
        await machine.ended()
        await machine.output.flush()
        seen.append(machine.out.getvalue().rpartition(b"has")[2])
        await machine.workers.stop()
    assert len(set(seen)) == 1, seen


@pytest.mark.usefixtures("torch_is_played")
async def test_an_interrupt_before_the_script_has_begun_ends_the_worker_as_an_interrupt(machine: WarmMachine) -> None:
    await _start_held(machine)
    await asyncio.sleep(0.02)  # for the interpreter's next statement
    os.kill(machine.workers.pids[1], signal.SIGINT)
    (end,) = await machine.ended()
    assert end.signal == signal.SIGINT
    assert b"begun" not in machine.out.getvalue()


# -- whole runs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """What a run left.

    Attributes:
        facts: what each rank told by `tell`, in the order of telling.
        executed: of each installed module, who executed it: a worker's pid or another's.
    """

    code: int
    text: str
    facts: tuple[dict[str, Any], ...]
    executed: Mapping[str, tuple[int, ...]]

    @property
    def pids(self) -> set[int]:
        """Of the workers that told something."""
        return {fact["pid"] for fact in self.facts}


TELL = """
def tell(**more):
    import json, os
    with open("/proc/self/maps") as maps:
        libc = next(line.split("-")[0] for line in maps if "libc" in line)
    facts = {"pid": os.getpid(), "parent": os.getppid(), "rank": os.environ["RANK"], "libc": libc, **more}
    file = os.open(os.path.join(os.environ["WARM_TEST"], "facts"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, json.dumps(facts).encode() + b"\\n")
    os.close(file)
"""


@dataclass
class Runs:
    """Runs of one script, each told apart by its folder."""

    folder: Path
    number: int = 0
    started: "list[subprocess.Popen[str]]" = field(default_factory=list["subprocess.Popen[str]"])

    def write(self, script: str, **installed: str) -> None:
        site = self.folder / "site-packages"
        site.mkdir(exist_ok=True)
        for name, source in {"counted": COUNTED, "counted_late": COUNTED, **installed}.items():
            (site / f"{name}.py").write_text(source)
        (self.folder / "train.py").write_text(textwrap.dedent(script).replace("TELL", TELL, 1))

    @property
    def run(self) -> Path:
        """The folder of the current run."""
        return self.folder / f"run{self.number}"

    def start(self, *flags: str, **environment: str) -> "subprocess.Popen[str]":
        if not any(flag.startswith(("--preload=", DEFAULT)) for flag in flags):
            flags = (f"--preload={','.join(self.counted)}", *flags)
        self.number += 1
        self.run.mkdir()
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PET_", "SLURM_", "TORCH", "ELASTIC_RUN", "XDG_", "PYTEST", "OMP_"))
        }
        given = {
            MARK: str(self.run),
            "PYTHONPATH": str(self.folder / "site-packages"),
            "HOME": str(self.folder / "home"),
        }
        (self.folder / "home").mkdir(exist_ok=True)
        process = subprocess.Popen(
            [sys.executable, "-m", "elastic_run", "--standalone", f"--rdzv-id=warm{self.number}", *flags, "train.py"],
            cwd=self.folder,
            env={**kept, **given, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def finish(self, process: "subprocess.Popen[str]") -> Ran:
        text, _ = process.communicate(timeout=DEADLINE)
        return Ran(process.returncode, text, self.facts, {name: self.executed(name) for name in self.counted})

    def all(self, *flags: str, **environment: str) -> Ran:
        return self.finish(self.start(*flags, **environment))

    @property
    def counted(self) -> list[str]:
        return sorted(path.stem for path in (self.folder / "site-packages").glob("*.py"))

    def executed(self, name: str) -> tuple[int, ...]:
        """Who executed that module in the current run, so far."""
        file = self.run / name
        return tuple(map(int, file.read_text().split())) if file.exists() else ()

    @property
    def facts(self) -> tuple[dict[str, Any], ...]:
        file = self.run / "facts"
        return tuple(json.loads(line) for line in file.read_text().splitlines()) if file.exists() else ()

    @property
    def alive(self) -> dict[int, str]:
        """Every process of these runs that is there: its command line by pid."""
        found: dict[int, str] = {}
        for path in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self.folder}/".encode() in (path / "environ").read_bytes():
                    found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    @property
    def warm(self) -> list[int]:
        """The warm interpreters that are there: they have a worker's command line and are none."""
        workers = {fact["pid"] for fact in self.facts}
        return [pid for pid, command in self.alive.items() if command.endswith("-u train.py ") and pid not in workers]


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()
        _stream(process).close()
    until(lambda: not made.alive, lambda: f"left: {made.alive}")


def _stream(process: "subprocess.Popen[str]") -> IO[str]:
    assert process.stdout is not None
    return process.stdout


def until(condition: Callable[[], object], otherwise: Callable[[], str] = lambda: "it did not happen") -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.01)


LEADING = "import counted\nTELL\ntell(words=counted.WORDS)\n"


def test_workers_are_forks_that_share_what_was_imported_once(runs: Runs) -> None:
    runs.write(LEADING)
    ran = runs.all("--nproc-per-node=2")
    assert ran.code == 0, ran.text
    assert len(ran.executed["counted"]) == 1 and not ran.pids & set(ran.executed["counted"])
    assert len({fact["libc"] for fact in ran.facts}) == 1, "forks of one process have one layout of memory"
    assert {fact["parent"] for fact in ran.facts} == {runs.started[0].pid}


def test_with_start_method_spawn_nothing_is_imported_ahead(runs: Runs) -> None:
    runs.write(LEADING)
    ran = runs.all("--nproc-per-node=2", "--start-method=spawn")
    assert ran.code == 0, ran.text
    assert set(ran.executed["counted"]) == ran.pids and len(ran.pids) == 2
    assert len({fact["libc"] for fact in ran.facts}) == 2


def test_a_program_that_is_no_script_is_started_afresh(runs: Runs) -> None:
    runs.write(LEADING)
    ran = runs.finish(runs.start("--no-python", sys.executable))
    assert ran.code == 0, ran.text
    assert set(ran.executed["counted"]) == ran.pids


WAYS_TO_READ = {
    "by name": "os.environ.get('RANK')",
    "by iteration": "dict(os.environ).get('RANK')",
    "by items": "[value for name, value in os.environ.items() if name.lower() == 'rank'][0]",
    "as a copy": "os.environ.copy()['RANK']",
    "as bytes": "dict(os.environb)[b'RANK'].decode()",
    "inside": "os.environ._data[b'RANK'].decode()",
    "from the start": "__import__('posix').environ[b'RANK'].decode()",
    "in C": "__import__('ctypes').CDLL(None).getenv(b'RANK') and __import__('ctypes').string_at("
    "(lambda f: (setattr(f, 'restype', __import__('ctypes').c_void_p), f(b'RANK'))[1])"
    "(__import__('ctypes').CDLL(None).getenv)).decode()",
    "in /proc": "[line[5:] for line in open('/proc/self/environ').read().split(chr(0)) if line.startswith('RANK=')][0]",
}
"""How an installed module may read the environment when it is imported."""


def test_an_installed_module_that_reads_the_environment_in_any_way_sees_each_ranks_own(runs: Runs) -> None:
    modules = {f"reads_{number}": f"import os\nRANK = {way}" for number, way in enumerate(WAYS_TO_READ.values())}
    runs.write(
        f"import json\nimport {', '.join(modules)}\nTELL\n"
        f"import sys\ntell(ranks=[sys.modules[f'reads_{{number}}'].RANK for number in range({len(modules)})])\n",
        **modules,
    )
    ran = runs.all("--nproc-per-node=2", DEFAULT)
    assert ran.code == 0, ran.text
    assert {fact["rank"]: set(fact["ranks"]) for fact in ran.facts} == {"0": {"0"}, "1": {"1"}}


def test_a_module_of_the_users_word_that_goes_through_the_environment_is_left_to_the_workers(runs: Runs) -> None:
    runs.write(
        "import settings\nTELL\ntell(seen=settings.RANK)\n",
        settings=COUNTED + "RANK = {name.lower(): value for name, value in os.environ.items()}['rank']\n",
    )
    ran = runs.all("--nproc-per-node=2", "--preload=settings")
    assert ran.code == 0, ran.text
    assert {fact["rank"]: fact["seen"] for fact in ran.facts} == {"0": "0", "1": "1"}
    assert ran.pids <= set(ran.executed["settings"])
    assert "--preload: settings is not imported ahead, it " in ran.text


def test_nothing_is_imported_ahead_that_nobody_declared(runs: Runs) -> None:
    runs.write(LEADING)
    ran = runs.all(DEFAULT)
    assert set(ran.executed["counted"]) == ran.pids
    assert not list((runs.folder / "home").rglob("*")), "nothing is kept between runs"


def test_with_preload_none_nothing_is_imported_ahead(runs: Runs) -> None:
    runs.write("import sys\nimport colorsys\nTELL\ntell(line=sys._getframe().f_lineno)\n")
    assert runs.all("--preload=none").code == 0


LEFT_A_GROUP = """
import ctypes, hashlib, os, sys, threading, types
sys.modules["torch.distributed"] = types.SimpleNamespace(is_initialized=lambda: True)
running = threading.Event()
def gloo():
    ctypes.CDLL(None).prctl(15, b"pt_gloo_runloop", 0, 0, 0)
    running.set()
    hashlib.pbkdf2_hmac("sha256", b"", b"", 1_000_000)  # longer than any fixed pause, and without Python's lock
    os.write(1, b"it has let go\\n")
threading.Thread(target=gloo, daemon=True).start()
running.wait()
"""


@pytest.mark.parametrize("flag", ["--preload=none", DEFAULT])
def test_the_end_of_a_script_waits_for_threads_of_gloo_whoever_has_imported_torch(runs: Runs, flag: str) -> None:
    runs.write(LEFT_A_GROUP)
    assert "it has let go" in runs.all(flag).text


SEEDED = """
import os, random, time
TELL
random.seed(7)
import mine
tell(drawn=mine.DRAWN, counted=mine.counted.__name__)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    # Not before the other rank has told, which the end of this one would stop.
    while len(open(os.path.join(os.environ["WARM_TEST"], "facts")).readlines()) < 2:
        time.sleep(0.01)
    raise SystemExit(1)
"""


def test_what_stands_before_an_import_has_happened_before_it_in_every_run_and_round(runs: Runs) -> None:
    runs.write(SEEDED)
    (runs.folder / "mine.py").write_text("import random, counted\nDRAWN = random.random()\n")
    for _ in range(2):
        ran = runs.all("--nproc-per-node=2", "--max-restarts=1", DEFAULT)
        assert ran.code == 0, ran.text
        assert [fact["drawn"] for fact in ran.facts] == [0.32383276483316237] * 4


def test_what_a_script_does_before_its_imports_is_done_once(runs: Runs) -> None:
    runs.write(
        "import os\nos.mkdir(os.path.join(os.environ['WARM_TEST'], 'made' + os.environ['RANK']))\n"
        "if os.environ['RANK'] == '1':\n    os.environ['WORDS'] = 'seven'\n"
        "import counted\nTELL\ntell(words=counted.WORDS)\n"
    )
    for flags in ((), (DEFAULT,)):
        ran = runs.all("--nproc-per-node=2", "--max-restarts=0", *flags)
        assert ran.code == 0, ran.text
    assert {fact["rank"]: fact["words"] for fact in ran.facts} == {"0": None, "1": "seven"}, ran.text


def test_a_variable_that_changed_after_an_import_by_the_users_word_is_told(runs: Runs) -> None:
    runs.write("import os\nos.environ['WORDS'] = str(7)\nimport counted\nTELL\ntell(words=counted.WORDS)\n")
    ran = runs.all("--preload=counted")
    assert ran.code == 0, ran.text
    assert "counted was imported ahead, before the script changed WORDS" in ran.text


def test_a_variable_that_the_script_sets_first_reaches_what_is_imported_ahead(runs: Runs) -> None:
    runs.write("import os\nos.environ['WORDS'] = 'seven'\nimport counted\nTELL\ntell(words=counted.WORDS)\n")
    ran = runs.all("--nproc-per-node=2")
    assert [fact["words"] for fact in ran.facts] == ["seven"] * 2, ran.text
    assert not ran.pids & set(ran.executed["counted"])
    assert "seven" not in ran.text


def test_a_variable_that_is_set_before_a_missing_module_reaches_the_next_import(runs: Runs) -> None:
    runs.write(
        "import os\nos.environ['WORDS'] = 'seven'\n"
        "try:\n    import nowhere_to_be_found\nexcept ImportError:\n    pass\n"
        "import counted\nTELL\ntell(words=counted.WORDS)\n"
    )
    ran = runs.all("--nproc-per-node=2")
    assert [fact["words"] for fact in ran.facts] == ["seven"] * 2, ran.text
    assert not ran.pids & set(ran.executed["counted"])
    assert "was imported ahead, before" not in ran.text


THREADS = """
import sys, threading
import numpy
TELL
sys.setswitchinterval(1e-5)
begin, failed = threading.Barrier(5), []
def draw():
    begin.wait()
    try:
        for _ in range(50):
            numpy.random.rand()
            import torch
            torch.optim.SGD
    except BaseException as error:
        failed.append(repr(error))
threads = [threading.Thread(target=draw) for _ in range(4)]
for thread in threads:
    thread.start()
begin.wait()
import torch
torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
for thread in threads:
    thread.join()
tell(failed=failed)
"""


@pytest.mark.torch
def test_threads_that_import_at_once_find_whole_modules(runs: Runs) -> None:
    runs.write(THREADS)
    ran = runs.all("--nproc-per-node=6", "--preload=torch,torch._dynamo")
    assert ran.code == 0, ran.text
    assert [fact["failed"] for fact in ran.facts] == [[]] * 6


def test_a_file_that_is_read_at_an_import_is_read_again_after_a_restart(runs: Runs) -> None:
    runs.write(
        "import configured\nTELL\ntell(value=configured.VALUE)\nimport os\n"
        "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n"
        "    open('config', 'w').write('new')\n    raise SystemExit(1)\n",
        configured="VALUE = open('config').read()",
    )
    (runs.folder / "config").write_text("old")
    ran = runs.all("--max-restarts=1", DEFAULT)
    assert [fact["value"] for fact in ran.facts] == ["old", "new"], ran.text


EDITS = """
import counted
TELL
tell(words=counted.WORDS)
import os
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with open("train.py") as file:
        source = file.read()
    with open("train.py", "w") as file:
        file.write("import os; os.environ['WORDS'] = str(7)" + source)
    raise SystemExit(1)
"""


def test_a_script_that_is_edited_while_it_runs_is_read_again_for_the_next_start(runs: Runs) -> None:
    runs.write(EDITS)
    ran = runs.all("--max-restarts=1", "--preload=counted")
    assert ran.code == 0, ran.text
    assert [fact["words"] for fact in ran.facts] == [None, "7"], ran.text
    assert "workers start as fresh interpreters: train.py has changed" in ran.text


SETTINGS = """
import fsspec
TELL
import os
tell(read=fsspec.config.conf.get("file", {}).get("key"))
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    with open(os.path.join(os.environ["FSSPEC_CONFIG_DIR"], "conf.json"), "w") as file:
        file.write('{"file": {"key": "new"}}')
    raise SystemExit(1)
"""


def test_settings_that_an_installed_package_reads_when_it_is_imported_are_read_again_after_a_change(runs: Runs) -> None:
    pytest.importorskip("fsspec")
    runs.write(SETTINGS)
    (runs.folder / "conf").mkdir()
    ran = runs.all("--max-restarts=1", DEFAULT, FSSPEC_CONFIG_DIR=str(runs.folder / "conf"))
    assert ran.code == 0, ran.text
    assert [fact["read"] for fact in ran.facts] == [None, "new"], ran.text
    assert "workers start as fresh interpreters: " in ran.text


MATPLOTLIB = (
    COUNTED
    + """
with open("matplotlibrc") as file:
    SETTING = file.read()
if SETTING == "changes":
    with open("matplotlibrc", "w") as file:
        file.write("has changed")


def get_configdir():
    with open(os.path.join(os.environ["WARM_TEST"], "asked"), "w"):
        return os.environ["WARM_TEST"]
"""
)
"""A package of that name, which reads a file of settings when it is imported, and may be the one that changes it."""


@pytest.mark.parametrize(("first", "seen", "forked"), [("stays", "stays", 1), ("changes", "has changed", 0)])
def test_a_setting_that_changes_right_after_it_was_read_is_read_again(
    runs: Runs, first: str, seen: str, forked: int
) -> None:
    runs.write("import matplotlib\nTELL\ntell(setting=matplotlib.SETTING)\n", matplotlib=MATPLOTLIB)
    (runs.folder / "matplotlibrc").write_text(first)
    ran = runs.all("--preload=matplotlib")
    assert ran.code == 0, ran.text
    assert [fact["setting"] for fact in ran.facts] == [seen], ran.text
    assert len(ran.pids - set(ran.executed["matplotlib"])) == forked
    assert not (runs.run / "asked").exists(), "a package notes what it answers, and may make a folder"


def test_matplotlib_is_left_to_the_workers_where_it_would_make_a_temporary_folder(runs: Runs) -> None:
    runs.write("import matplotlib\nTELL\ntell()\n", matplotlib=COUNTED)
    ran = runs.all("--preload=matplotlib", MPLCONFIGDIR="/proc/nowhere")
    assert ran.code == 0, ran.text
    assert set(ran.executed["matplotlib"]) == ran.pids
    assert "would create a temporary folder, because /proc/nowhere is not writable" in ran.text


GENERATOR = """
import sklearn.ensemble
TELL
import inspect
from sklearn.ensemble._hist_gradient_boosting.grower import TreeGrower
tell(drawn=inspect.signature(TreeGrower.__init__).parameters["rng"].default.random())
"""


def test_a_generator_that_a_package_seeds_when_it_is_imported_is_each_ranks_own(runs: Runs) -> None:
    pytest.importorskip("sklearn")
    runs.write(GENERATOR)
    ran = runs.all("--nproc-per-node=2", DEFAULT)
    assert ran.code == 0, ran.text
    assert len({fact["drawn"] for fact in ran.facts}) == 2, ran.text


RANKS = """
from torchmetrics.utilities.prints import rank_zero_only as metrics
from lightning.fabric.utilities.rank_zero import rank_zero_only
import sys
TELL
import os
tell(ranks=[metrics.rank, rank_zero_only.rank])
"""


@pytest.mark.torch
def test_each_worker_has_its_own_rank_where_a_package_reads_it_when_it_is_imported(runs: Runs) -> None:
    pytest.importorskip("lightning")
    pytest.importorskip("torchmetrics")
    runs.write(RANKS)
    ran = runs.all("--nproc-per-node=2", DEFAULT)
    assert ran.code == 0, ran.text
    assert {fact["rank"]: fact["ranks"] for fact in ran.facts} == {"0": [0, 0], "1": [1, 1]}
    assert len({fact["libc"] for fact in ran.facts}) == 1, "forks of one process have one layout of memory"
    explained = runs.all("--nproc-per-node=2", DEFAULT, "--explain-preload")
    assert "  lightning.fabric.utilities.rank_zero\n" in explained.text, explained.text


LATE = """
import os, sys
import torch
TELL
if os.environ["RANK"] == "1":
    os.environ["TORCH" + "INDUCTOR_MAX_AUTOTUNE"] = "1"
before = "torch._dynamo" in sys.modules
optimizer = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)
import torch._inductor.config as config
tell(before=before, after="torch._dynamo" in sys.modules, tuned=config.max_autotune)
"""


@pytest.mark.torch
def test_what_torch_imports_late_is_there_and_reads_what_the_script_has_set_by_then(runs: Runs) -> None:
    runs.write(LATE)
    seen: list[dict[str, tuple[object, ...]]] = []
    for flags in ((), ("--start-method=spawn",)):
        ran = runs.all("--nproc-per-node=2", DEFAULT, *flags)
        assert ran.code == 0, ran.text
        seen.append({fact["rank"]: (fact["before"], fact["after"], fact["tuned"]) for fact in ran.facts})
        assert ("torch._dynamo was imported ahead" in ran.text) == (flags == ()), ran.text
    assert seen[0] == seen[1] and seen[0]["1"] == (False, True, True)


@pytest.mark.torch
def test_what_torch_imports_late_is_left_to_a_script_that_names_a_variable_of_it(runs: Runs) -> None:
    runs.write(LATE.replace('"TORCH" + "INDUCTOR_MAX_AUTOTUNE"', '"TORCHINDUCTOR_MAX_AUTOTUNE"'))
    ran = runs.all("--nproc-per-node=2", DEFAULT)
    assert ran.code == 0, ran.text
    assert {fact["rank"]: fact["tuned"] for fact in ran.facts} == {"0": False, "1": True}
    assert "was imported ahead" not in ran.text


@pytest.mark.torch
def test_so_it_is_for_a_variable_that_only_native_code_reads(runs: Runs) -> None:
    runs.write(LATE.replace('"TORCH" + "INDUCTOR_MAX_AUTOTUNE"', '"TRITON_DEBUG"'))
    explained = runs.all(DEFAULT, "--explain-preload")
    assert "reads TRITON_DEBUG, which the script mentions" in explained.text


@pytest.mark.torch
def test_a_library_that_torch_imports_late_sets_its_filters_when_the_script_imports_it_first(runs: Runs) -> None:
    pytest.importorskip("sympy")
    runs.write(
        "import torch\nimport sys, warnings\nsys.setrecursionlimit(3000)\noptim = torch.optim\nimport sympy\nTELL\n"
        "tell(dynamo='torch._dynamo' in sys.modules, filters=[f'{f[0]} {f[2].__name__}' for f in warnings.filters])\n"
    )
    seen: list[list[object]] = []
    for flags in (("--preload=none",), ()):
        ran = runs.all(DEFAULT, *flags)
        assert ran.code == 0, ran.text
        seen.append([(fact["dynamo"], fact["filters"]) for fact in ran.facts])
    assert seen[0] == seen[1]
    assert "once SymPyDeprecationWarning" in str(seen[0]) and "True" not in str(seen[0])


def test_an_import_that_prints_is_left_to_the_workers_and_what_was_before_it_is_not(runs: Runs) -> None:
    runs.write("import counted\nimport noisy\nimport counted_late\nTELL\ntell()\n", noisy=COUNTED + "print('loud')")
    ran = runs.all("--nproc-per-node=2", "--preload=counted,noisy")
    assert ran.text.count("] loud") == 2
    assert len(ran.executed["counted"]) == 1
    assert ran.pids <= set(ran.executed["noisy"]) and ran.pids == set(ran.executed["counted_late"])


def test_an_import_that_prints_more_than_a_pipe_holds_is_left_to_the_workers(runs: Runs) -> None:
    runs.write("import counted\nimport noisy\nTELL\ntell()\n", noisy=COUNTED + "print('loud ' * 50_000)")
    ran = runs.all()
    assert ran.code == 0, ran.text
    assert not ran.pids & set(ran.executed["counted"])
    assert len(ran.executed["noisy"]) == 2 and ran.pids < set(ran.executed["noisy"])


def test_the_users_own_code_that_a_library_finds_first_is_executed_by_workers_only(runs: Runs) -> None:
    runs.write("import cProfile\nTELL\ntell(words=cProfile._pyprofile.WORDS)\n")
    (runs.folder / "profile.py").write_text(COUNTED + "def run(): ...\ndef runctx(): ...\n")
    ran = runs.all("--nproc-per-node=2", DEFAULT)
    assert len(ran.facts) == 2, ran.text
    assert sorted(runs.executed("profile")) == sorted(ran.pids)


def test_so_it_is_where_a_library_that_takes_every_error_finds_it(runs: Runs) -> None:
    runs.write(
        "import lenient\nTELL\ntell(found=lenient.own is not None)\n",
        lenient="try:\n    import own\nexcept:\n    own = None\n",
    )
    (runs.folder / "own.py").write_text(COUNTED)
    ran = runs.all("--nproc-per-node=2")
    assert [fact["found"] for fact in ran.facts] == [True, True], ran.text
    assert sorted(runs.executed("own")) == sorted(ran.pids)
    assert (
        "lenient is not imported ahead, it imports own, which is a part of the script, not an installed package"
        in ran.text
    )


def test_a_warning_of_an_import_that_is_meant_for_the_script_is_shown_by_each_worker(runs: Runs) -> None:
    old = "import warnings\nwarnings.warn('this is old', DeprecationWarning, stacklevel=2)\n"
    lazy = "def __getattr__(name):\n    import warnings\n    warnings.warn('so is this', DeprecationWarning, 2)\n"
    runs.write("import old\nTELL\ntell()\n", old=old)
    ran = runs.all("--nproc-per-node=2")
    assert ran.code == 0, ran.text
    assert ran.text.count("train.py:1: DeprecationWarning: this is old") == 2, ran.text
    runs.write("from lazy import thing\nTELL\ntell()\n", lazy=lazy)
    ran = runs.all("--nproc-per-node=2")
    assert ran.text.count("train.py:1: DeprecationWarning: so is this") == 2, ran.text


@pytest.mark.torch
@pytest.mark.parametrize("at", [0, 1, 2])
def test_an_import_by_the_users_word_that_seeds_what_all_code_draws_from_is_left_to_the_workers(
    runs: Runs, at: int
) -> None:
    seed = ("random.seed(0)", "numpy.random.seed(0)", "torch.manual_seed(0)")[at]
    drawing = "random.random(), numpy.random.rand(), torch.rand(1).item()"
    runs.write(
        f"import seeds, random, numpy, torch\nTELL\ntell(drawn=({drawing}))\n",
        seeds=f"import random, numpy, torch\n{seed}\n",
    )
    ran = runs.all("--nproc-per-node=2")
    assert "seeds is not imported ahead, it draws random numbers" in ran.text
    drawn = [fact["drawn"] for fact in (*ran.facts, *runs.all("--nproc-per-node=2", "--preload=none").facts)]
    assert len(drawn) == 4
    assert [len({numbers[column] for numbers in drawn}) for column in range(3)] == [
        1 if c == at else 4 for c in range(3)
    ]


def test_an_import_by_the_users_word_sets_its_variables_before_it_imports_what_holds_random_numbers(runs: Runs) -> None:
    sets = "import os\nos.environ['WORDS'] = 'set'\nimport torch\n"
    runs.write("import sets, torch\nTELL\ntell(words=torch.WORDS)\n", sets=sets, torch=COUNTED + PLAYED_TORCH)
    ran = runs.all("--nproc-per-node=2")
    assert ran.code == 0, ran.text
    assert [fact["words"] for fact in ran.facts] == ["set", "set"], ran.text
    assert len(ran.executed["torch"]) == 1, ran.text


def test_an_import_that_crashes_crashes_the_worker_and_nothing_else(runs: Runs) -> None:
    runs.write("import counted\nimport deadly\n", deadly="import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    ran = runs.all("--max-restarts=0")
    assert ran.code == 1
    assert "rank 0 (local 0, pid" in ran.text and "SIGSEGV (11)" in ran.text


def test_a_missing_module_is_told_by_the_worker_as_ever(runs: Runs) -> None:
    runs.write("import counted\nimport nowhere_to_be_found\n")
    ran = runs.all("--max-restarts=0")
    assert ran.code == 1
    assert "ModuleNotFoundError: No module named 'nowhere_to_be_found'" in ran.text


def test_what_follows_a_tried_import_of_a_name_that_is_not_there_is_imported_ahead(runs: Runs) -> None:
    runs.write("try:\n    from first import nothing\nexcept ImportError:\n    pass\n" + LEADING, first=COUNTED)
    ran = runs.all("--nproc-per-node=2")
    assert ran.code == 0, ran.text
    assert len(ran.executed["first"]) == len(ran.executed["counted"]) == 1, ran.text
    assert not ran.pids & set(ran.executed["counted"])


def test_a_tried_import_of_a_part_that_is_not_there_reaches_what_follows_it(runs: Runs) -> None:
    script = "try:\n    import first.part\nexcept ImportError:\n    pass\n" + LEADING
    runs.write(script, first="import os\nos.environ['WORDS'] = 'set'\n")
    ran = runs.all("--nproc-per-node=2")
    assert ran.code == 0, ran.text
    assert [fact["words"] for fact in ran.facts] == ["set", "set"], ran.text


WAITS = """
import counted, json, os, sys, time
TELL
tell()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    while not os.path.exists(os.path.join(os.environ["WARM_TEST"], "go")):
        time.sleep(0.01)
    sys.exit(1)
"""


def test_a_killed_warm_interpreter_costs_nothing_but_its_imports(runs: Runs) -> None:
    runs.write(WAITS)
    process = runs.start("--max-restarts=1")
    until(lambda: runs.facts)
    (warm,) = runs.warm
    os.kill(warm, signal.SIGKILL)
    until(lambda: not runs.warm)
    (runs.run / "go").touch()
    ran = runs.finish(process)
    assert ran.code == 0, ran.text
    first, second = (fact["pid"] for fact in ran.facts)
    assert ran.executed["counted"][1:] == (second,) and first != second
    assert ran.text.count("workers start as fresh interpreters: ") == 1, ran.text


def test_a_restart_is_a_fork_of_what_the_first_start_was_forked_from(runs: Runs) -> None:
    runs.write(WAITS)
    process = runs.start("--max-restarts=1")
    until(lambda: runs.facts)
    (runs.run / "go").touch()
    ran = runs.finish(process)
    assert ran.code == 0, ran.text
    assert len(ran.pids) == 2 and len({fact["libc"] for fact in ran.facts}) == 1
    assert len(ran.executed["counted"]) == 1


STAYS = "import counted, json, os, signal\nTELL\ntell()\nwhile True: signal.pause()\n"


def test_when_the_agent_is_killed_neither_workers_nor_the_warm_interpreter_stay(runs: Runs) -> None:
    runs.write(STAYS)
    process = runs.start("--nproc-per-node=2")
    until(lambda: len(runs.facts) == 2)
    assert len(runs.warm) == 1
    process.kill()
    process.wait()
    until(lambda: not runs.alive, lambda: f"left: {runs.alive}")


def test_when_the_agent_is_killed_while_it_warms_up_nothing_stays(runs: Runs) -> None:
    runs.write("import slow\n", slow=COUNTED + "import time\ntime.sleep(600)")
    process = runs.start()
    until(lambda: runs.executed("slow"))
    process.kill()
    process.wait()
    until(lambda: not runs.alive, lambda: f"left: {runs.alive}")


def test_a_notice_while_it_warms_up_ends_the_job_at_once(runs: Runs) -> None:
    runs.write("import slow\n", slow=COUNTED + "import time\ntime.sleep(600)")
    process = runs.start()
    until(lambda: runs.executed("slow"))
    process.terminate()
    assert runs.finish(process).code == 143
    assert runs.alive == {}


def test_a_notice_reaches_forked_workers_and_all_is_gone_after_it(runs: Runs) -> None:
    runs.write(
        "import counted\nimport signal, sys\nTELL\n"
        "signal.signal(signal.SIGTERM, lambda *_: (tell(told=True), sys.exit(0)))\n"
        "tell()\nwhile True: signal.pause()\n"
    )
    process = runs.start("--nproc-per-node=2")
    until(lambda: len(runs.facts) == 2)
    process.terminate()
    ran = runs.finish(process)
    assert ran.code == 143
    assert sum(fact.get("told", False) for fact in ran.facts) == 2
    assert runs.alive == {}


def test_ctrl_z_and_fg_stop_forked_workers_and_let_them_go_on(runs: Runs) -> None:
    runs.write("import counted\nTELL\ntell()\nimport time\nwhile True: time.sleep(0.01)\n")
    process = runs.start()
    until(lambda: runs.facts)
    (worker,) = (fact["pid"] for fact in runs.facts)

    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]

    process.send_signal(signal.SIGTSTP)
    until(lambda: state(worker) == "T" and state(process.pid) == "T")
    process.send_signal(signal.SIGCONT)
    until(lambda: state(worker) in "SR" and state(process.pid) in "SR")
    process.terminate()
    assert runs.finish(process).code == 143


RAN = """
import counted, os
with open(os.path.join(os.environ["WARM_TEST"], "ran"), "a") as file:
    file.write(os.environ.get("RANK", "none") + "\\n")
"""


@pytest.mark.parametrize("failing", ["1 / 0", "import nowhere_to_be_found", "raise ImportError('broken', name='x')"])
def test_a_customization_of_the_users_that_fails_does_not_run_the_script_twice(runs: Runs, failing: str) -> None:
    runs.write(RAN, sitecustomize=failing)
    ran = runs.all()
    assert ran.code == 0, ran.text
    assert (runs.run / "ran").read_text() == "0\n"
    assert ran.text.count("rank 0] Error in sitecustomize") == 1


def test_a_warm_interpreter_that_can_open_no_more_files_does_not_run_the_script(runs: Runs) -> None:
    runs.write("import limits\n" + RAN, limits="import resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (6, 6))")
    ran = runs.all()
    assert ran.code == 0, ran.text
    assert (runs.run / "ran").read_text() == "0\n"


def test_more_workers_than_fit_into_one_message_are_forked(runs: Runs) -> None:
    runs.write(LEADING)
    ran = runs.all("--nproc-per-node=130")
    assert ran.code == 0, ran.text
    assert len(ran.pids) == 130 and not ran.pids & set(ran.executed["counted"])
    assert "never retrieved" not in ran.text


ANOTHER_SEED = """
import ctypes
known = {"rank": 1}
secret = (ctypes.c_ubyte * 24).in_dll(ctypes.pythonapi, "_Py_HashSecret")
for place in range(24):
    secret[place] ^= 0x5A
print(known.get("rank"), known.get("".join(["ra", "nk"])), flush=True)
__import__("os")._exit(0)
"""


def test_the_seed_of_hash_cannot_be_drawn_again_once_there_are_texts() -> None:
    done = subprocess.run([sys.executable, "-c", ANOTHER_SEED], capture_output=True, text=True, check=True)
    assert done.stdout == "1 None\n", "an equal text that is made later is not found any more"
