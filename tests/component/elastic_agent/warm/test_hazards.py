"""What an import may do that makes a process unfit to be forked: each by a tiny module in a process of its own.

One interpreter forks for each of the modules, as a warm interpreter does for each import that it tries.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import elastic_run
from elastic_run.elastic_agent.warm import hazards, native

pytestmark = pytest.mark.xdist_group("warm-hazards")

PROBE = """
import json, os, sys, threading, tempfile, random, warnings, subprocess, mmap
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from elastic_run.elastic_agent.warm.declared import Table
from elastic_run.elastic_agent.warm.hazards import Watch

found = {}
for name in json.loads(sys.argv[3]):
    output, writing = os.pipe2(os.O_CLOEXEC)
    verdict, told = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        for descriptor in (writing, verdict):
            os.close(descriptor)
        os.set_blocking(output, False)
        may_read = [("reads", name, "RANK") for name in ("wh_may_read", "wh_may_read_in_a_function", "wh_lends")]
        table = Table([*may_read, ("walks", "wh_may_walk"), ("draws", "wh_may_draw")])
        watch = Watch(output, frozenset(["RANK", "WORLD_SIZE"]), table)
        try:
            with watch:
                __import__(name)
            answer = {"problem": watch.found()}
            answer |= {"written": watch.written, "reads": watch.reads}
            answer["added"] = repr(watch.added)
        except BaseException as error:
            answer = {"problem": repr(error)}
        os.write(told, json.dumps(answer).encode())
        os._exit(0)
    for descriptor in (output, writing, told):
        os.close(descriptor)
    with open(verdict, "rb") as answers:
        found[name] = json.load(answers)
    os.waitpid(pid, 0)
print(json.dumps(found))
"""

HAZARDS: dict[str, tuple[str, str]] = {
    "prints": ("print('hello')", "prints ('hello')"),
    "prints_an_error": ("import sys; sys.stderr.write('careful\\nnow')", "prints ('careful')"),
    "prints_natively": ("import os; os.write(1, b'low')", "prints ('low')"),
    "prints_much": ("print('x' * 50000)", f"prints ({'x' * 80!r})"),
    "warns": ("import warnings; warnings.warn('old')", "prints ('"),
    "reads": ("import os; r = os.environ.get('RANK')", "reads RANK"),
    "reads_by_getenv": ("import os; r = os.getenv('RANK', '0')", "reads RANK"),
    "reads_as_bytes": ("import os; r = os.environb.get(b'RANK')", "reads RANK"),
    "asks_for": ("import os; r = 'RANK' in os.environ", "reads RANK"),
    "reads_by_anothers_function": ("import wh_lends; r = wh_lends.rank()", "reads RANK"),
    "reads_more_than_it_may": ("import wh_may_read, os; w = os.environ.get('WORLD_SIZE')", "reads WORLD_SIZE"),
    "walks": ("import os; e = dict(os.environ)", "reads all environment variables (in wh_walks)"),
    "walks_by_name": (
        "import os; e = [n for n in os.environ]",
        "reads all environment variables (in wh_walks_by_name)",
    ),
    "walks_by_items": ("import os; e = list(os.environ.items())", "reads all environment variables (in "),
    "walks_by_values": ("import os; e = list(os.environ.values())", "reads all environment variables (in "),
    "walks_a_copy": ("import os; e = os.environ.copy()", "reads all environment variables (in "),
    "walks_a_union": ("import os; e = os.environ | {}", "reads all environment variables (in "),
    "walks_in_words": ("import os; e = repr(os.environ)", "reads all environment variables (in "),
    "walks_bytes": ("import os; e = dict(os.environb)", "reads all environment variables (in "),
    "walks_inside": ("import os; e = {**os.environ._data}", "reads all environment variables (in "),
    "walks_the_first": ("import posix; e = dict(posix.environ)", "reads all environment variables (in "),
    "walks_through_others": ("import wh_walks", "reads all environment variables (in wh_walks)"),
    "reads_the_first": ("import posix; e = posix.environ.get(b'RANK')", "reads RANK"),
    "pops": ("import os; e = os.environ.pop('RANK', None)", "reads RANK"),
    "draws": ("import random; r = random.random()", "draws random numbers"),
    "catches": ("import signal; signal.signal(signal.SIGUSR1, print)", "changes how signals are handled"),
    "ignores": ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)", "changes how signals are handled"),
    "catches_natively": ("import faulthandler; faulthandler.enable()", "changes how signals are handled"),
    "sets": ("import os; os.environ['RANK'] = '0'", "sets RANK, which is not the same for all workers"),
    "sets_its_pid": ("import os; os.environ['OWNER'] = f'x-{os.getpid()}'", "sets OWNER, which is not the same"),
    "sets_natively": ("import os; os.putenv('HIDDEN', '1')", "changes the environment from native code"),
    "opens": ("import os; f = open(__file__)", "keeps a file open ("),
    "listens": ("import _socket; s = _socket.socket()", "keeps a file open (socket:["),
    "shares": ("import mmap; m = mmap.mmap(-1, 4096)", "shares memory ("),
    "moves": ("import os; os.chdir('/')", "changes the working directory"),
    "takes_away": ("import sys; sys.path.pop()", "removes an entry from sys.path"),
    "changes_order": ("import sys; sys.path.reverse()", "removes an entry from sys.path"),
    "forgets_warnings": ("import warnings; warnings.resetwarnings()", "removes an entry from sys.path"),
    "traces": ("import sys; sys.settrace(lambda *_: None)", "traces or profiles"),
    "profiles": ("import sys; sys.setprofile(lambda *_: None)", "traces or profiles"),
    "makes_files": (
        "import tempfile, os; os.rmdir(tempfile.mkdtemp())",
        "creates temporary files, which workers would",
    ),
    "starts_a_process": (
        "import subprocess; p = subprocess.Popen(['sleep', '60'], stdout=-3, stderr=-3)",
        "starts a process (",
    ),
    "starts_a_thread": (
        "import threading; threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "starts 1 thread",
    ),
    "starts_threads": (
        "import threading\nfor _ in range(3): threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "starts 3 threads",
    ),
}

HARMLESS: dict[str, str] = {
    "does_nothing": "",
    "reads_others": "import os; h = os.environ.get('HOME'), os.getenv('OMP_NUM_THREADS')",
    "may_walk": "import os; e = dict(os.environ), [n for n in os.environ], os.environ.copy()",
    "may_read": "import os; r = os.environ.get('RANK')",
    "may_read_in_a_function": "import os\ndef rank(): return os.environ.get('RANK')\nr = rank()",
    "lends": "import os\ndef rank(): return os.environ.get('RANK')\nr = rank()",
    "sets_others": "import os; os.environ['KMP_INIT_AT_FORK'] = 'FALSE'; os.environ.pop('GIVEN', None)",
    "opens_and_closes": "open(__file__).close()",
    "adds": "import sys, warnings; sys.path.insert(0, '/a'); sys.path.append('/b'); warnings.simplefilter('ignore')",
    "may_draw": "import random; r = random.random()",
    "asks_for_the_folder_of_files": "import tempfile; t = tempfile.gettempdir()",
    "a_process_that_ended": "import subprocess; subprocess.run(['true'], check=True)",
    "a_thread_that_ended": "import threading; t = threading.Thread(target=len, args=('',)); t.start(); t.join()",
    "private_memory": "import mmap; m = mmap.mmap(-1, 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """What a watch says of each of the modules above."""
    folder = tmp_path_factory.mktemp("modules")
    sources = {name: source for name, (source, _) in HAZARDS.items()} | HARMLESS
    for name, source in sources.items():
        (folder / f"wh_{name}.py").write_text(source, encoding="utf-8")
    package = Path(next(iter(elastic_run.__path__))).parent
    names = json.dumps([f"wh_{name}" for name in sources])
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON") and name not in ("RANK", "OMP_NUM_THREADS", "KMP_INIT_AT_FORK")
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE, str(package), str(folder), names],
        env={**environment, "GIVEN": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {name.removeprefix("wh_"): answer for name, answer in json.loads(done.stdout).items()}


@pytest.mark.parametrize("hazard", HAZARDS)
def test_a_hazard_is_found_and_told_in_words(found: dict[str, dict[str, str]], hazard: str) -> None:
    assert HAZARDS[hazard][1] in found[hazard]["problem"]


@pytest.mark.parametrize("name", HARMLESS)
def test_what_a_fork_does_not_share_is_no_hazard(found: dict[str, dict[str, str]], name: str) -> None:
    assert found[name]["problem"] == ""


def test_what_an_import_sets_and_removes_is_known(found: dict[str, dict[str, object]]) -> None:
    assert found["sets_others"]["written"] == {"KMP_INIT_AT_FORK": "FALSE", "GIVEN": None}
    assert found["does_nothing"]["written"] == {}


def test_what_an_import_adds_to_lists_is_known(found: dict[str, dict[str, str]]) -> None:
    assert found["adds"]["added"].startswith("[(['/a'], ['/b']), ([], []), ([], []), ([('ignore',")
    assert found["does_nothing"]["added"] == "[([], []), ([], []), ([], []), ([], [])]"


def test_what_an_import_reads_is_known_with_the_values_before_it(found: dict[str, dict[str, object]]) -> None:
    assert found["reads_others"]["reads"] == {"HOME": os.environ.get("HOME"), "OMP_NUM_THREADS": None}
    assert found["does_nothing"]["reads"] == {}
    assert found["may_read"]["reads"] == {}, "each worker has its own, and reads it again"


@pytest.mark.parametrize(("preloaded", "is_instrumented"), [("", False), ("/opt/trace.so", True)])
def test_preloaded_libraries_are_seen(preloaded: str, is_instrumented: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "exists", lambda _: False)  # the machine may preload some for all processes
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    assert native.is_instrumented() is is_instrumented


class WarningsOf314:
    """A double of `_warnings` in Python 3.14, where who tells of changed filters has to hold a lock."""

    def __init__(self) -> None:
        self.held = False
        self.told = 0

    def _acquire_lock(self) -> None:
        self.held = True

    def _release_lock(self) -> None:
        self.held = False

    def _filters_mutated_lock_held(self) -> None:
        if not self.held:
            raise RuntimeError("warnings lock is not held")
        self.told += 1


def test_python_is_told_of_filters_also_where_that_takes_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    double = WarningsOf314()
    monkeypatch.delitem(sys.modules, "warnings")  # as in the start-up of Python 3.14, which does not load it
    monkeypatch.setattr(hazards, "_warnings", double)
    hazards.tell_of_filters()
    assert (double.told, double.held) == (1, False)
