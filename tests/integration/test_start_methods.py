"""A worker must not be able to tell how it was started: awkward scripts, each in every way, and nothing may differ."""

import difflib
import importlib.util
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ..sampling import SEEDS, sample
from .start_methods import SCRIPTS, Case, Runs, Seen, in_parallel

pytestmark = pytest.mark.xdist_group("start-methods")

ENDINGS: dict[str, tuple[int | signal.Signals, str]] = {
    "uncaught": (1, "ZeroDivisionError"),
    "chained": (1, "direct cause(.|\n)*another exception"),
    "group": (1, "ExceptionGroup"),
    "noted": (1, "of two lines"),
    "recursion": (1, "Previous line repeated"),
    "unprintable": (1, "exception str"),
    "exit_none": (0, "one that fails"),
    "exit_int": (3, ""),
    "exit_true": (1, ""),
    "exit_large": (5, ""),
    "exit_larger": (255, ""),
    "exit_negative": (254, ""),
    "exit_text": (1, "the last words"),
    "exit_object": (1, "'a': 2"),
    "exit_inside": (4, "finally"),
    "exit_in_hook": (1, "before the hook"),
    "kill_int": (signal.SIGINT, "KeyboardInterrupt"),
    "keyboard": (signal.SIGINT, "by hand"),
    "os_exit": (6, "not flushed"),
    "abort": (signal.SIGABRT, ""),
    "segfault": (signal.SIGSEGV, ""),
    "fault_told": (signal.SIGABRT, "Fatal Python error: Aborted"),
    "fault_segfault": (signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
    "user_signal": (signal.SIGUSR1, ""),
    "terminated": (signal.SIGTERM, ""),
    "killed": (signal.SIGKILL, ""),
    "broken_pipe": (signal.SIGPIPE, ""),
    "alarm": (signal.SIGALRM, ""),
    "hook_replaced": (1, "the hook has"),
    "hook_fails": (1, "in the hook"),
    "closed_output": (120, "Bad file descriptor"),
    "replaced": (7, "another program"),
    "assertion": (1, "AssertionError: arguments"),
    "in_thread": (9, ""),
    "in_import": (10, "module ends_early"),
    "in_import_fails": (1, "partially initialized module|cannot import name"),
    "misspelt": (1, "No module named 'sklaern'"),
    "half_missing": (1, "cannot import name 'load_them'"),
    "memory": (1, "MemoryError"),
    "core_limit": (signal.SIGXCPU, ""),
}
"""Of `awkward/endings.py`: how each one ends, and a pattern of what it says."""

DRAWS = (
    "random",
    "numpy",
    "again",
    "numpy again",
    "default_rng",
    "state",
    "in a thread",
    "SystemRandom",
    "urandom",
    "secrets",
    "uuid4",
    "mktemp",
    "authkey",
)
"""What `awkward/draws.py` draws, and what no two workers may have alike."""

INSTALLED = {"PYTHONPATH": "{run}/awkward/site-packages"}
"""The environment in which the modules there are installed."""

TABLE: dict[str, Case] = {
    # What a script sees of itself.
    "interpreter": Case(("awkward/interpreter.py", "--lr", "1", "", "a b", "{x}", "-x"), workers=2),
    "process": Case(("awkward/process.py",), workers=2),
    "a nice process with limits": Case(
        ("awkward/process.py",),
        through=("sh", "-c", 'umask 027; ulimit -n 200; ulimit -c 0; exec nice -n 5 taskset -c 0 "$@"', "sh"),
        says="umask: 23",
    ),
    "a soft limit of open files": Case(
        ("awkward/process.py",),
        through=("sh", "-c", 'ulimit -S -n 200; exec "$@"', "sh"),
        says=r"RLIMIT_NOFILE: \(200, ",
    ),
    "flags in the environment": Case(
        ("awkward/interpreter.py",),
        env={
            "PYTHONOPTIMIZE": "1",
            "PYTHONFAULTHANDLER": "1",
            "PYTHONHASHSEED": "7",
            "PYTHONTRACEMALLOC": "1",
            "PYTHONINTMAXSTRDIGITS": "5000",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONNOUSERSITE": "1",
            "PYTHONBREAKPOINT": "0",
        },
    ),
    "development mode": Case(("awkward/interpreter.py",), env={"PYTHONDEVMODE": "1"}),
    "warnings are errors": Case(("awkward/interpreter.py",), env={"PYTHONWARNINGS": "error"}),
    "latin-1": Case(
        ("awkward/interpreter.py",),
        env={"PYTHONIOENCODING": "latin-1:replace", "PYTHONUNBUFFERED": "1", "LC_ALL": "C", "PYTHONUTF8": "0"},
        says="encoding: b' .*'",
    ),
    # Python itself puts LC_CTYPE into the environment of the launcher, so that its workers find a locale.
    "no locale": Case(("awkward/interpreter.py",), env={"LC_ALL": None, "LANG": None, "LC_CTYPE": None}, plain=()),
    "another zone and locale": Case(
        ("awkward/interpreter.py",), env={"TZ": "Asia/Kathmandu", "LC_ALL": "C.UTF-8", "PYTHONUTF8": "1"}
    ),
    "a path of one's own": Case(
        ("own.py",),
        env={"PYTHONPATH": "{run}/mine:relative::/nowhere", "PYTHONPYCACHEPREFIX": "{run}/../compiled"},
        files={
            "own.py": "import sys\nprint(sys.mine, sys.path)\nimport colorsys\nprint(sorted(sys.modules))\n",
            "mine/sitecustomize.py": (
                "import os, sys, json\nsys.mine = 1\nif 'RANK' in os.environ: print('customized', sys.argv, __name__)\n"
            ),
            "mine/usercustomize.py": "import sys\nsys.mine += 1\n",
            "mine/colorsys.py": "print('a colorsys of our own')\n",
        },
        says="a colorsys of our own",
    ),
    "folders put on the path": Case(
        ("own.py",),
        files={
            "own.py": (
                "import os, sys\nimport csv\nsys.path.insert(0, os.path.join(os.path.dirname(__file__), 'mine'))\n"
                "import decimal, colorsys\nsys.path.append('relative')\nsys.path.remove(sys.path[1])\n"
                "import fractions, helper\nprint(sys.path, colorsys.value, helper.value)\nprint(sorted(sys.modules))\n"
                "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n    sys.stdout.flush(); os._exit(3)\n"
            ),
            "mine/colorsys.py": "import queue\nvalue = 'a colorsys of our own'\n",
            "relative/helper.py": "import statistics\nvalue = statistics.mean([1, 3])\n",
        },
        says="a colorsys of our own",
    ),
    "no debug ranges": Case(("awkward/endings.py", "uncaught"), env={"PYTHONNODEBUGRANGES": "1"}, ends=1),
    "optimized": Case(("awkward/endings.py", "assertion"), env={"PYTHONOPTIMIZE": "2"}, ends=8),
    "unclosed files in development mode": Case(("awkward/ends_well.py",), env={"PYTHONDEVMODE": "1"}, workers=6),
    # How it ends.
    **{
        f"ends by {name}": Case(("awkward/endings.py", name), ends=ends, says=says)
        for name, (ends, says) in ENDINGS.items()
    },
    "ends well in many ways": Case(
        ("awkward/ends_well.py",), workers=15, says="a thread at the end", env={"PYTHONHASHSEED": "0"}
    ),
    # How it is named.
    "by a relative path": Case(("../awkward/main_facts.py", "x"), folder="elsewhere", ends=1, says="path"),
    "by an absolute path": Case(("{run}/awkward/main_facts.py",), ends=1),
    "by a strange path": Case(("./awkward/../awkward//main_facts.py",), ends=1),
    "through a link": Case(("link.py",), links={"link.py": "awkward/main_facts.py"}, ends=1, says="ZeroDivision"),
    "without .py": Case(("train",), links={"train": "awkward/main_facts.py"}, ends=1, says="ZeroDivision"),
    "by -m": Case(("awkward.main_facts", "x", "-m"), flags=("-m",), ends=1, says="__main__ .*main_facts"),
    "a package by -m": Case(("awkward.shadows.package", "x"), flags=("-m",), says="awkward.shadows.package.__main__"),
    "a folder": Case(
        ("program", "x"),
        files={"program/__main__.py": "import mate\n" + (SCRIPTS / "main_facts.py").read_text(), "program/mate.py": ""},
        ends=1,
    ),
    "a zip file": Case(
        ("program.pyz", "x"),
        archive={
            "__main__.py": "import mate\n" + (SCRIPTS / "main_facts.py").read_text(),
            "mate.py": "print(__file__)",
        },
        ends=1,
    ),
    "by --run-path": Case(("awkward/main_facts.py", "x"), flags=("--run-path",), plain=(), ends=1),
    "no such module": Case(("awkward.missing",), flags=("-m",), ends=1, says="No module named awkward.missing"),
    "broken syntax": Case(("broken.py",), files={"broken.py": "import json\nif True print(1)\n"}, ends=1, says="\\^"),
    "broken encoding": Case(
        ("broken.py",), files={"broken.py": "# coding: nothing-known\nprint(1)\n"}, ends=1, says="nothing-known"
    ),
    "tabs and spaces": Case(
        ("tabs.py",), files={"tabs.py": "if 1:\n\tx = 1\n        y = 2\n"}, ends=1, says="TabError"
    ),
    "a null byte": Case(("null.py",), files={"null.py": "print(1)\n\0\n"}, ends=1, says="null bytes"),
    "an empty script": Case(("empty.py",), files={"empty.py": ""}),
    "an encoding of its own": Case(
        ("own.py",),
        files={"own.py": "#!/usr/bin/env python\n# -*- coding: utf-7 -*-\nimport json\nprint(ascii('+AOQ-'))\n"},
        says="xe4",
    ),
    "for the future": Case(
        ("future.py",),
        files={"future.py": "from __future__ import annotations\nx: y = 1\nprint(__annotations__, annotations)\n"},
        says="{'x': 'y'}",
    ),
    "no python": Case(
        (sys.executable, "-B", "-X", "utf8", "awkward/main_facts.py"),
        flags=("--no-python",),
        plain=(sys.executable, "-B", "-X", "utf8", "awkward/main_facts.py"),
        ends=1,
        says="-X",
    ),
    "torch by --run-path": Case(
        ("torch_by_path.py", "x"),
        flags=("--run-path",),
        files={
            "torch_by_path.py": (
                "import torch\nimport colorsys, os, sys\nprint(sys.argv, sys.path, __name__, __file__, __spec__)\n"
                "print(sorted(sys.modules), [name for name in vars(sys.modules['__main__'])])\n"
                "print('threads', torch.get_num_threads(), torch.ones(2).sum(), flush=True)\n"
                "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0':\n    os._exit(3)\n"
            )
        },
        plain=(),
        says=r"threads \d+ tensor\(2\.\)",
        fits=True,
    ),
    # What it does.
    "draws": Case(
        ("awkward/draws.py",),
        workers=2,
        draws=DRAWS,
        says="seeded",
    ),
    "a fixed order of sets": Case(("awkward/draws.py",), env={"PYTHONHASHSEED": "5"}, says="a set: {'word"),
    "no random order of sets": Case(("awkward/draws.py",), env={"PYTHONHASHSEED": "0"}, says="a set: {'word"),
    **{
        f"processes by {method}": Case(("awkward/processes.py", method), says=r"left \[\]")
        for method in ("fork", "spawn", "forkserver")
    },
    "programs": Case(("awkward/programs.py",), says="ASYNCIO"),
    "signals": Case(("awkward/signals.py",), says="interrupted"),
    "reads its input": Case(("awkward/reads_stdin.py",), stdin="one\ntwo\nthree\nfour\nfive", says="five"),
    # What it imports, and how.
    "patches": Case(("awkward/patches.py",), says="queue has 5.0"),
    "hooks": Case(("awkward/hooks.py",), says="cgi warns"),
    "lazily": Case(("awkward/lazily.py",), workers=2, env={"PYTHONHASHSEED": "0"}, says="reloaded True"),
    "shadows": Case(("awkward/shadows/main.py",), says="sklearn beside the script"),
    "installed": Case(
        ("awkward/installed.py", "captures", "threaded", "writes", "prints", "luck", "locks", "odd", "half", "changes"),
        env=INSTALLED,
        says="a question",
    ),
    "installed for two": Case(
        ("awkward/installed.py", "captures", "luck", "locks", "odd", "half", "threaded"),
        workers=2,
        env=INSTALLED,
        says="a question",
    ),
    "installed anew": Case(("awkward/installed.py", "captures", "version"), env=INSTALLED, says="the second version"),
    **{
        f"a module that {how} elsewhere": Case(
            ("awkward/installed.py", "elsewhere"), env={**INSTALLED, "ELSEWHERE": how}, says="only here"
        )
        for how in ("ends", "exits", "crashes", "fails", "hangs")
    },
    # Frameworks.
    "torch first": Case(("awkward/torch_first.py",), draws=("seed", "draw", "of numpy"), says="threads 1"),
    "torch, patched": Case(("awkward/torch_patched.py",), ends=1, says="hook: RuntimeError"),
    "torch and a queue": Case(("awkward/torch_ends.py",), says=r"\[0, 1, 2\]"),
    "torch's loaders": Case(("awkward/torch_loaders.py",), says="loaded"),
    "data parallel": Case(
        ("awkward/torch_ddp.py", "leave"), workers=2, aborts=True, says="own random bytes 2 own seeds 2"
    ),
    "sharded": Case(("awkward/torch_ddp.py", "sharded"), workers=2, aborts=True, says="own random bytes 2 own seeds 2"),
    "the Trainer of transformers": Case(
        ("awkward/transformers_trainer.py",), workers=2, aborts=True, says="step 4 of 2"
    ),
    "accelerate": Case(("awkward/accelerate_loop.py",), workers=2, aborts=True, says="Num processes: 2"),
    # It prints when it is imported, so it is left to the workers.
    "tensorflow": Case(("awkward/tensorflow_fit.py",), workers=2, says="LogicalDevice"),
}

FRAMEWORKS = {
    "torch, patched": "torch",
    "torch and a queue": "torch",
    "torch's loaders": "torch",
    "data parallel": "torch",
    "sharded": "torch",
    "the Trainer of transformers": "transformers",
    "accelerate": "accelerate",
    "tensorflow": "tensorflow",
}
"""Cases that import for seconds in each of up to twelve processes, and what they need of the extra `frameworks`."""

CASES = [*(name for name in TABLE if name not in FRAMEWORKS), *sample(FRAMEWORKS, 3, "start methods")]

ALIKE = "test_a_worker_cannot_tell_how_it_was_started"


def marks(name: str) -> list[pytest.MarkDecorator]:
    if framework := FRAMEWORKS.get(name):
        missing = importlib.util.find_spec(framework) is None
        return [pytest.mark.torch, pytest.mark.skipif(missing, reason=f"{framework} is not installed")]
    return [pytest.mark.torch] if "torch" in TABLE[name].command[0] else []


def different(one: str, lines: Sequence[str], other: str, others: Sequence[str]) -> str:
    """The lines that only one of two ways shows; empty where they are equal."""
    return "\n".join(difflib.unified_diff(lines, others, one, other, n=1, lineterm=""))


@pytest.fixture(scope="module")
def ways(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[str, Seen]]:
    """All chosen cases, started at once; `ways(name)` waits for one of them."""
    chosen = {item.name for item in request.session.items if item.path == request.path}
    cases = {name: case for name, case in TABLE.items() if f"{ALIKE}[{name}]" in chosen}
    return in_parallel(cases, tmp_path_factory.mktemp("ways"))


@pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in CASES])
def test_a_worker_cannot_tell_how_it_was_started(ways: Callable[[str], dict[str, Seen]], name: str) -> None:
    case, seen = TABLE[name], ways(name)
    for way, one in seen.items():
        assert one.problems == (), way
        assert one.ended == case.ends, "\n".join([way, *one.lines])
    assert re.search(case.says, "\n".join(seen["spawn"].lines)), "\n".join(seen["spawn"].lines)
    if "plain" in seen:
        assert different("plain", seen["plain"].without_launcher(), "spawn", seen["spawn"].without_launcher()) == ""
    assert different("spawn", seen["spawn"].lines, "fork", seen["fork"].lines) == ""
    for key in case.draws:
        drawn = [str(worker[key]) for one in seen.values() for worker in one.drawn]
        assert len(drawn) == case.workers * len(seen)
        assert len(set(drawn)) == len(drawn), f"{key} is not random: {drawn}"


MANY = {
    **{
        f"ends well {first}": Case(("awkward/ends_well.py", str(first)), workers=2, env={"PYTHONHASHSEED": "0"})
        for first in range(0, 15, 2)
    },
    "installed": Case(("awkward/installed.py", "threaded", "locks", "captures"), workers=2, env=INSTALLED),
    "lazily": Case(("awkward/lazily.py",), workers=2),
    "draws": Case(("awkward/draws.py",), workers=2),
    "interpreter": Case(("awkward/interpreter.py",), workers=2),
    **{
        f"ends by {name}": Case(("awkward/endings.py", name), ends=ENDINGS[name][0])
        for name in ("uncaught", "kill_int", "segfault", "os_exit", "in_thread", "fault_told")
    },
    "torch": Case(("awkward/torch_first.py",)),
    "training that ends at once": Case(("awkward/torch_at_once.py",), workers=2, aborts=True),
    "data parallel": Case(("awkward/torch_ddp.py", "leave"), workers=2, aborts=True),
}
"""Jobs whose workers leave threads, files, locks, children or a process group behind, or die.

Nearly all of them are cases above, too: a run draws some, and a soak runs all of them with each of its seeds.
"""

ONLY_HERE = "training that ends at once"


@pytest.mark.slow
@pytest.mark.torch
def test_many_jobs_end_and_leave_nothing(tmp_path: Path) -> None:
    """Each of two rounds, within a bound."""
    names = [*sample(MANY.keys() - {ONLY_HERE}, 4, "many jobs"), ONLY_HERE]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for seed in SEEDS:
            runs = [Runs(tmp_path / f"{seed}-{place}", MANY[name]) for place, name in enumerate(names)]
            for name, seen in zip(names, pool.map(Runs.once, runs, itertools.repeat("fork")), strict=True):
                assert (name, seen.problems) == (name, ())
                assert (name, seen.ended) == (name, MANY[name].ends), "\n".join(seen.lines)
