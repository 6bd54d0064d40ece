"""`elastic_run.launch`: a function instead of a script, found by name, with JSON for arguments and results."""

import functools
import subprocess
import sys
from pathlib import Path

import pytest

import elastic_run
from elastic_run.adapters.environment import WorkerSettings
from elastic_run.launcher import launch as launching
from elastic_run.launcher import run as runs
from elastic_run.launcher.address import Address
from elastic_run.launcher.errors import UsageError
from elastic_run.launcher.settings import Command, Options
from elastic_run.rendezvous.identity.secret import new_secret

from .conftest import free_ports

MODULE = """
import os

def place(greeting, times=1):
    return {"rank": int(os.environ["RANK"]), "world": int(os.environ["WORLD_SIZE"]), "said": greeting * times}

def fails_on_rank_1():
    if os.environ["RANK"] == "1":
        raise ValueError("no such data")

def fails_once():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        raise ValueError("the first time")
    return os.environ["TORCHELASTIC_RESTART_COUNT"]

def leaves():
    if os.environ["RANK"] == "1":
        os._exit(0)

def returns_a_set():
    return {1, 2}

def leaves_a_process():
    import subprocess
    subprocess.Popen(["sleep", "3"], start_new_session=True)

class Config:
    min_nodes = max_nodes = 1
    nproc_per_node = 2
    max_restarts = 0
    run_id = "by-config"
    role = "default_role"
    rdzv_endpoint = ""
    rdzv_configs = {}
    local_addr = None
"""


def run(folder: Path, main: str) -> subprocess.CompletedProcess[str]:
    """Runs `main` in an interpreter of its own: `launch` handles signals and wants the main thread."""
    (folder / "things.py").write_text(MODULE)
    (folder / "main.py").write_text(f"import elastic_run, things\n{main}")
    return subprocess.run(
        [sys.executable, "main.py"], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


def test_returns_what_each_local_worker_returned_by_rank(tmp_path: Path) -> None:
    done = run(tmp_path, "print(elastic_run.launch(things.place, ['ha'], {'times': 2}, nproc_per_node=2))")
    assert done.returncode == 0, done.stderr
    results = {rank: {"rank": rank, "world": 2, "said": "haha"} for rank in (0, 1)}
    assert done.stdout.splitlines()[-1] == str(results)


def test_takes_a_function_of_the_main_script_without_running_the_script_again(tmp_path: Path) -> None:
    main = (
        "def here(x):\n    return x + 1\n"
        "if __name__ == '__main__':\n    print('main', elastic_run.launch(here, [1], nproc_per_node=2))\n"
    )
    done = run(tmp_path, main)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "main" in line] == ["main {0: 2, 1: 2}"]


def test_restarts_the_function_as_it_restarts_a_script(tmp_path: Path) -> None:
    done = run(tmp_path, "print(elastic_run.launch(things.fails_once, nproc_per_node=1))")
    assert done.stdout.splitlines()[-1] == "{0: '1'}", done.stderr


def test_of_a_function_that_fails_raises_with_the_root_cause_and_the_exit_code(tmp_path: Path) -> None:
    main = (
        "try:\n    elastic_run.launch(things.fails_on_rank_1, nproc_per_node=2, max_restarts=0)\n"
        "except elastic_run.LaunchFailed as failed:\n    print('failed with', failed.code, failed)\n"
    )
    done = run(tmp_path, main)
    assert "failed with 1" in done.stdout and "ValueError: no such data" in done.stdout, done.stderr


def test_of_a_result_that_is_no_json_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "elastic_run.launch(things.returns_a_set, max_restarts=0)")
    assert "things:returns_a_set returned set, which cannot be encoded as JSON" in done.stderr


def test_of_a_worker_that_ends_well_without_returning_says_so(tmp_path: Path) -> None:
    main = (
        "try:\n    elastic_run.launch(things.leaves, nproc_per_node=2)\n"
        "except elastic_run.LaunchFailed as failed:\n    print('failed:', failed)\n"
    )
    done = run(tmp_path, main)
    assert "failed: things:leaves did not return on rank 1" in done.stdout, done.stderr
    assert "Traceback" not in done.stderr


def test_has_torchs_name_and_shape_too(tmp_path: Path) -> None:
    done = run(tmp_path, "print(sorted(elastic_run.compat.elastic_launch(things.Config, things.place)('hi')))")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[0, 1]"
    assert "job by-config" in done.stderr


def outer() -> object:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda: None, "cannot take a lambda"),
        (outer(), "defined inside a function"),
        (functools.partial(print), "is not one"),
    ],
)
def test_refuses_what_has_no_name_in_another_process(function: object, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        elastic_run.launch(function)  # type: ignore[arg-type]  # that is the point


def test_refuses_arguments_that_are_no_json() -> None:
    with pytest.raises(UsageError, match="cannot be encoded as JSON"):
        elastic_run.launch(run, [object()])


def test_refuses_a_function_of_an_interactive_session() -> None:
    code = "import elastic_run\ndef f(): pass\ntry: elastic_run.launch(f)\nexcept Exception as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "interactive session or a notebook" in done.stdout


async def test_refuses_to_run_inside_an_event_loop() -> None:
    with pytest.raises(UsageError, match="inside another"):
        elastic_run.launch(run)


def test_leaves_the_callers_signal_handlers_as_they_were(tmp_path: Path) -> None:
    main = (
        "import signal\n"
        "def mine(number, frame): pass\n"
        "numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP]\n"
        "for number in numbers: signal.signal(number, mine)\n"
        "signal.signal(signal.SIGQUIT, signal.SIG_IGN)\n"
        "elastic_run.launch(things.place, ['ha'])\n"
        "print([number for number in numbers if signal.getsignal(number) is not mine])\n"
        "print(signal.getsignal(signal.SIGQUIT) is signal.SIG_IGN)\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, ()))\n"
    )
    done = run(tmp_path, main)
    assert done.stdout.splitlines()[-3:] == ["[]", "True", "set()"], done.stderr


def test_leaves_the_callers_environment_as_it_was(tmp_path: Path) -> None:
    main = (
        "import os\n"
        f"os.environ.update(XDG_CONFIG_HOME={str(tmp_path)!r}, ELASTIC_RUN_SECRET={new_secret().text!r})\n"
        "before = dict(os.environ)\n"
        f"elastic_run.launch(things.place, ['ha'], rdzv_endpoint='127.0.0.1:{free_ports(1)[0]}', store_dir='store')\n"
        "print({name for name, _ in before.items() ^ os.environ.items()})\n"
    )
    done = run(tmp_path, main)
    assert done.stdout.splitlines()[-1:] == ["set()"], done.stderr


def test_starts_no_process_that_has_the_callers_secret_in_its_environment(tmp_path: Path) -> None:
    secret = new_secret().text
    main = (
        "import os\n"
        "from pathlib import Path\n"
        f"os.environ.update(XDG_CONFIG_HOME={str(tmp_path)!r}, ELASTIC_RUN_SECRET={secret!r})\n"
        f"flags = dict(detached='keep', store_dir='store', rdzv_endpoint='127.0.0.1:{free_ports(1)[0]}')\n"
        "elastic_run.launch(things.leaves_a_process, **flags)\n"
        "for found in Path('/proc').glob('[0-9]*'):\n"
        "    try:\n"
        f"        if {secret.encode()!r} in (found / 'environ').read_bytes():\n"
        "            print('has it:', (found / 'cmdline').read_bytes())\n"
        "    except OSError: pass\n"
        "print('looked')\n"
    )
    done = run(tmp_path, main)
    assert done.stdout.splitlines()[-1:] == ["looked"], done.stderr
    assert "has it" not in done.stdout


def test_takes_the_logs_and_the_start_method_of_torchs_launch_config(tmp_path: Path) -> None:
    config = (
        "config = things.Config()\nconfig.log_dir, config.redirects, config.start_method = 'logs', {0: 1}, 'spawn'\n"
    )
    done = run(tmp_path, f"{config}elastic_run.compat.elastic_launch(config, things.place)('hi')\n")
    assert done.returncode == 0, done.stderr
    assert {file.name for file in (tmp_path / "logs").rglob("*.log")} == {"stdout.log", "stderr.log"}


@pytest.mark.torch
def test_torchs_own_launch_config_is_understood_whole(tmp_path: Path) -> None:
    main = (
        "from torch.distributed.launcher.api import LaunchConfig\n"
        "from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std\n"
        "from elastic_run.launcher.launch import _flags_of\n"
        "logs = DefaultLogsSpecs(log_dir='logs', redirects=Std.OUT, tee={1: Std.ALL}, local_ranks_filter={0})\n"
        "config = LaunchConfig(1, 2, 2, logs_specs=logs, run_id='id', start_method='fork', monitor_interval=5,\n"
        "    rdzv_endpoint='h', signals_to_handle='SIGTERM', shutdown_timeout=0,\n"
        "    duplicate_stdout_filters=['a,b', 'c'])\n"
        "print(dict(sorted(_flags_of(config).items())))\n"
        "print(sorted(_flags_of(LaunchConfig(1, 1, 1))))\n"
    )
    done = run(tmp_path, main)
    assert done.returncode == 0, done.stderr
    given, least = done.stdout.splitlines()[-2:]
    assert given == str(
        {
            "duplicate_stdout_filters": "a,,b,c",
            "local_ranks_filter": "0",
            "log_dir": "logs",
            "max_restarts": 3,
            "monitor_interval": 5,
            "nnodes": "1:2",
            "nproc_per_node": 2,
            "rdzv_backend": "etcd",
            "rdzv_conf": "timeout=900",
            "rdzv_endpoint": "h",
            "rdzv_id": "id",
            "redirects": "1",
            "shutdown_timeout": 0,
            "signals_to_handle": "SIGTERM",
            "start_method": "fork",
            "tee": "1:3",
        }
    )
    every = ["max_restarts", "nnodes", "nproc_per_node", "rdzv_backend", "rdzv_conf", "shutdown_timeout"]
    assert least == str([*every, "signals_to_handle", "start_method"])


def of_this_module() -> None:
    """What the test below launches."""


@pytest.mark.parametrize(("flags", "compared"), [({}, True), ({"rdzv_id": "given"}, False)])
def test_nodes_compare_the_source_of_the_functions_module_where_the_id_is_derived(
    monkeypatch: pytest.MonkeyPatch, flags: dict[str, str], compared: bool
) -> None:
    made: list[tuple[str, ...]] = []

    async def run(options: Options, workers: WorkerSettings, *, written: Command) -> None:
        place = Address("127.0.0.1", None)
        made.append(runs.setup(options, workers, place, written).terms.fingerprint.source)
        raise RuntimeError

    monkeypatch.setattr(launching, "run", run)
    with pytest.raises(RuntimeError):
        elastic_run.launch(of_this_module, nnodes=2, **flags)
    assert [entry.partition(":")[0] for entry in made[0][:1]] == (["test_launch.py"] if compared else [])
