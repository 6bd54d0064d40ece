"""Workers that are forked from a warm interpreter: what is imported once, who dies with whom, and what is learnt.

What is "installed" here lies in a folder of that name on PYTHONPATH, and tells who has executed it. That scripts cannot
tell a forked worker from a fresh one is in `test_start_methods.py`.
"""

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

from elastic_run.elastic_agent.preload import QUIET_SECONDS
from elastic_run.elastic_agent.seed import Recipe
from elastic_run.elastic_agent.workers import WorkerSpec

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

    async def start(self, *scripts: str, round: int = 1) -> None:
        argv = (sys.executable, "-u", str(self.main))
        for rank, script in enumerate(scripts):
            (self.folder / f"part{rank}.py").write_text(textwrap.dedent(script))
        if self.workers._zygotes is None:  # type: ignore[attr-defined]
            common = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
            self.workers.warm(Recipe(argv, common, "script", str(self.main), frozenset(["RANK"])))
            await self.workers.ready()
        specs = [self._spec(rank, argv, round) for rank in range(len(scripts))]
        await self.workers.start(specs)
        assert all(worker.popen is None for worker in self.workers._current), "these are to be forks"  # type: ignore[attr-defined]

    def _spec(self, rank: int, argv: tuple[str, ...], round: int) -> WorkerSpec:
        environment = {**os.environ, "RANK": str(rank)}
        environment.pop("PYTEST_CURRENT_TEST", None)
        return WorkerSpec(round, rank, rank, argv, environment, self.output.error_file(round, rank))


@pytest.fixture
async def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WarmMachine]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = WarmMachine(tmp_path)
    made.guardian.start()
    yield made
    await made.workers.close()
    await made.guardian.close()
    await made.output.close(succeeded=True)


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
    """Runs of one script, each told apart by its folder; they share a cache."""

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
        self.number += 1
        self.run.mkdir()
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PET_", "SLURM_", "TORCH", "ELASTIC_RUN", "XDG_", "PYTEST", "OMP_"))
        }
        given = {
            # The same in all runs, or what one learns would not be found by the next.
            MARK: str(self.folder / "current"),
            "PYTHONPATH": str(self.folder / "site-packages"),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
        }
        current = self.folder / "current"
        current.unlink(missing_ok=True)
        current.symlink_to(self.run)
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
        return [path.stem for path in (self.folder / "site-packages").glob("*.py")]

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
    assert not (runs.folder / "cache").exists()


def test_a_program_that_is_no_script_is_started_afresh(runs: Runs) -> None:
    runs.write(LEADING)
    ran = runs.finish(runs.start("--no-python", sys.executable))
    assert ran.code == 0, ran.text
    assert set(ran.executed["counted"]) == ran.pids


def test_what_one_run_learns_the_next_one_imports_ahead(runs: Runs) -> None:
    runs.write("import counted\nTELL\ntell()\nimport counted_late\n")
    first = runs.all()
    assert set(first.executed["counted_late"]) == first.pids
    (file,) = (runs.folder / "cache" / "elastic-run" / "preload").iterdir()
    assert json.loads(file.read_text())["steps"][-1] == "counted_late"
    second = runs.all()
    assert len(second.executed["counted_late"]) == 1
    assert not second.pids & {*second.executed["counted_late"], *second.executed["counted"]}


def test_what_is_told_while_a_warm_interpreter_is_made_is_in_the_next_list(runs: Runs) -> None:
    pause = f"import time; time.sleep({QUIET_SECONDS + 1})"
    runs.write(
        f"import counted\nTELL\ntell()\nimport one, two, three\n{pause}\n",
        one=pause,  # the next interpreter is begun in the middle of this one
        two=pause,  # and is ready in the middle of this one
        three="",
    )
    runs.all()
    (file,) = (runs.folder / "cache" / "elastic-run" / "preload").iterdir()
    steps = json.loads(file.read_text())["steps"]
    assert [step for step in steps if step in ("one", "two", "three")] == ["one", "two", "three"]


def test_a_cache_that_cannot_be_written_costs_nothing_but_itself(runs: Runs) -> None:
    runs.write(LEADING)
    (runs.folder / "file").write_text("")
    ran = runs.all(XDG_CACHE_HOME=str(runs.folder / "file"))
    assert ran.code == 0, ran.text
    assert not ran.pids & set(ran.executed["counted"])


def test_a_cache_that_is_damaged_is_none(runs: Runs) -> None:
    runs.write(LEADING)
    runs.all()
    (file,) = (runs.folder / "cache" / "elastic-run" / "preload").iterdir()
    file.write_text("{")
    ran = runs.all()
    assert ran.code == 0, ran.text
    assert not ran.pids & set(ran.executed["counted"])


def test_a_script_that_was_edited_is_learnt_anew(runs: Runs) -> None:
    runs.write("import counted\nTELL\ntell()\nimport counted_late\n")
    runs.all()
    runs.write("import counted\nTELL\ntell()\n")
    assert runs.all().executed["counted_late"] == ()


def test_a_variable_that_the_script_sets_before_an_import_reaches_it_in_every_run(runs: Runs) -> None:
    runs.write("import os\nos.environ['WORDS'] = 'seven'\nimport counted\nTELL\ntell(words=counted.WORDS)\n")
    for _ in range(2):
        ran = runs.all()
        assert [fact["words"] for fact in ran.facts] == ["seven"], ran.text


def test_what_is_imported_after_a_change_of_the_search_path_is_imported_ahead_with_it(runs: Runs) -> None:
    (runs.folder / "mine").mkdir()
    (runs.folder / "mine" / "helper.py").write_text("import counted\n")
    runs.write(
        "import sys\nsys.path.insert(0, sys.path[0] + '/mine')\nimport helper, counted_late\nTELL\n"
        "tell(path=sys.path[0], helper=helper.__file__)\n"
    )
    for number in range(3):
        ran = runs.all("--nproc-per-node=2")
        assert ran.code == 0, ran.text
        assert {Path(fact["path"]).name for fact in ran.facts} == {"mine"}
        assert {Path(fact["helper"]).parent.name for fact in ran.facts} == {"mine"}
        alone = ran.pids & {*ran.executed["counted"], *ran.executed["counted_late"]}
        assert (alone == ran.pids) if number == 0 else not alone, ran.text


def test_a_search_path_that_only_one_rank_changes_is_respected(runs: Runs) -> None:
    for where in ("usual", "other"):
        (runs.folder / where).mkdir()
        (runs.folder / where / "helper.py").write_text(f"import counted\nWHERE = '{where}'\n")
    runs.write(
        "import os, sys\nsys.path.insert(0, sys.path[0] + ('/usual', '/other')[os.environ['RANK'] == '0'])\n"
        "import json\nimport counted_late\nimport helper\nTELL\ntell(where=helper.WHERE)\n"
    )
    for _ in range(3):
        ran = runs.all("--nproc-per-node=2")
        assert ran.code == 0, ran.text
        assert {fact["rank"]: fact["where"] for fact in ran.facts} == {"0": "other", "1": "usual"}, ran.text


def test_a_variable_that_only_one_rank_sets_before_an_import_reaches_it_there(runs: Runs) -> None:
    runs.write(
        "import json, os\nif os.environ['RANK'] == '1':\n    os.environ['WORDS'] = 'seven'\n"
        "import counted\nTELL\ntell(words=counted.WORDS)\n"
    )
    for _ in range(3):
        ran = runs.all("--nproc-per-node=2")
        assert {fact["rank"]: fact["words"] for fact in ran.facts} == {"0": None, "1": "seven"}, ran.text


def test_a_worker_whose_streams_are_its_own_begins_again_where_it_has_to(runs: Runs) -> None:
    runs.write(
        "import json, os, sys\nclass Own:\n    def write(self, text):\n        return len(text)\nsys.stdout = Own()\n"
        "if os.environ['RANK'] == '1':\n    os.environ['WORDS'] = 'seven'\n"
        "import counted\nsys.stdout = sys.__stdout__\nTELL\ntell(words=counted.WORDS)\n"
    )
    for _ in range(3):
        ran = runs.all("--nproc-per-node=2")
        assert ran.code == 0, ran.text
        assert {fact["rank"]: fact["words"] for fact in ran.facts} == {"0": None, "1": "seven"}, ran.text


def test_what_cannot_be_imported_ahead_is_not_tried_in_every_run(runs: Runs) -> None:
    runs.write("import noisy\nTELL\ntell()\n", noisy=COUNTED + "print('loud')")
    first = runs.all()
    assert len(first.executed["noisy"]) == 2 and first.pids < set(first.executed["noisy"])
    second = runs.all()
    assert set(second.executed["noisy"]) == second.pids


def test_an_import_that_prints_is_left_to_the_workers_and_what_was_before_it_is_not(runs: Runs) -> None:
    runs.write("import counted\nimport noisy\nimport counted_late\nTELL\ntell()\n", noisy=COUNTED + "print('loud')")
    ran = runs.all("--nproc-per-node=2")
    assert ran.text.count("loud") == 2
    assert len(ran.executed["counted"]) == 1
    assert ran.pids <= set(ran.executed["noisy"]) and ran.pids == set(ran.executed["counted_late"])


def test_an_import_that_prints_more_than_a_pipe_holds_is_left_to_the_workers(runs: Runs) -> None:
    runs.write("import counted\nimport noisy\nTELL\ntell()\n", noisy=COUNTED + "print('loud ' * 50_000)")
    ran = runs.all()
    assert ran.code == 0, ran.text
    assert not ran.pids & set(ran.executed["counted"])
    assert len(ran.executed["noisy"]) == 2 and ran.pids < set(ran.executed["noisy"])


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


def test_a_child_of_the_script_that_changes_something_and_imports_does_not_run_the_script_again(runs: Runs) -> None:
    runs.write(
        "import counted, multiprocessing, os\nTELL\ntell()\n"
        "def child():\n    os.environ['WORDS'] = 'seven'\n    import counted_late\n    tell(words=counted_late.WORDS)\n"
        "process = multiprocessing.get_context('fork').Process(target=child)\nprocess.start()\nprocess.join()\n"
        "import counted_late\ntell(words=counted_late.WORDS)\n"
    )
    for _ in range(3):
        ran = runs.all()
        assert len(ran.facts) == 3 and len({fact["pid"] for fact in ran.facts}) == 2, ran.text
        assert ran.facts[2]["words"] is None


def test_more_workers_than_fit_into_one_message_are_forked(runs: Runs) -> None:
    runs.write(LEADING)
    ran = runs.all("--nproc-per-node=130")
    assert ran.code == 0, ran.text
    assert len(ran.pids) == 130 and not ran.pids & set(ran.executed["counted"])
    assert "never retrieved" not in ran.text
