"""What a launcher finds around it: closed streams, nohup, no more descriptors. Each ends in words."""

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import venv
from io import BytesIO
from pathlib import Path

import pytest

from elastic_run.elastic_agent.logs import output as output_module
from elastic_run.elastic_agent.logs import slow_disk
from elastic_run.elastic_agent.logs.output import Output
from elastic_run.elastic_agent.processes.guard import Guardian
from elastic_run.elastic_agent.workers import worker_exit
from elastic_run.elastic_agent.workers.started_worker import WorkerSpec
from elastic_run.elastic_agent.workers.worker_processes import Workers
from elastic_run.rendezvous.member import Exit

from .cluster import embedded_ports

COMMAND = [sys.executable, "-m", "elastic_run", "--standalone"]
DEADLINE = 60.0


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text("import sys\nprint('begins', flush=True)\nsys.stdin.readline()\n")
    return path


def test_a_closed_standard_output_hurts_nobody(script: Path) -> None:
    command = ["sh", "-c", '"$@" >&-', "sh", *COMMAND, str(script)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=DEADLINE, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "succeeded" in done.stderr


@pytest.mark.parametrize(("output", "code"), [("/dev/null", 3), ("/dev/full", 120)])
def test_what_is_not_yet_written_at_the_end_is_written_or_missed(output: str, code: int) -> None:
    ends = "import sys; from elastic_run.launcher import cli; cli.main = lambda: sys.stdout.write('abc'); cli.run()"
    command = ["sh", "-c", f'"$@" >{output}', "sh", sys.executable, "-c", ends]
    done = subprocess.run(command, env={**os.environ, "PYTHONUNBUFFERED": ""}, check=False)
    assert done.returncode == code  # 120 is the interpreter's own


GONE = 'mkdir gone; cd gone; rmdir ../gone; exec "$@"'
NO_PROC = 'mount -t tmpfs tmpfs /proc; exec "$@"'


@pytest.mark.parametrize(
    ("prepared", "words", "code", "sentence"),
    [
        (GONE, ["--standalone", "t.py"], 2, "the working folder has been removed: change to one that exists, with cd"),
        (GONE, ["master", "--nnodes=1"], 2, "the working folder has been removed: change to one that exists, with cd"),
        (NO_PROC, ["--nnodes=2", "--rdzv-endpoint=127.0.0.1:1", "t.py"], 2, "/proc is not mounted, and all but"),
        (
            NO_PROC,
            ["--insecure", "--nnodes=2", "--rdzv-endpoint=http://127.0.0.1:1", "t.py"],
            2,
            "/proc is not mounted",
        ),
    ],
)
def test_what_is_missing_where_the_command_runs_is_a_sentence(
    prepared: str, words: list[str], code: int, sentence: str, tmp_path: Path
) -> None:
    if prepared == NO_PROC and os.geteuid() != 0:
        pytest.skip("only root can mount")
    (tmp_path / "t.py").write_text("")
    words = ["sh", "-c", prepared, "sh", sys.executable, "-m", "elastic_run", *words]
    command = words if prepared == GONE else ["unshare", "--mount", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == code and sentence in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_ctrl_c_before_the_job_begins_is_no_traceback() -> None:
    typed = (
        "class Typed:\n def find_spec(self, name, *_):\n  if name.endswith('options.parse'): os.kill(os.getpid(), 2)"
    )
    code = f"import os, sys\n{typed}\nfrom elastic_run.launcher.cli import run\nsys.meta_path.insert(0, Typed())\nrun()"
    done = subprocess.run(
        [sys.executable, "-c", code, "t.py"], capture_output=True, text=True, timeout=DEADLINE, check=False
    )
    assert (done.returncode, done.stderr) == (130, "[elastic-run] interrupted\n")


@pytest.mark.parametrize(
    ("from_line", "codes"),
    [
        ("1 worker here", {0, 143}),  # before the agent, while it runs, and at its end
        ("succeeded", {0}),
    ],
)
def test_until_all_is_cleaned_up_no_signal_ends_the_launcher(from_line: str, codes: set[int], tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (tmp_path / "t.py").write_text("print('begins', flush=True)\n")
    file = tmp_path / "said"  # a pipe that nobody reads meanwhile would be full
    with file.open("wb") as output:
        job = subprocess.Popen(
            [*COMMAND, str(tmp_path / "t.py")], stderr=output, env={**os.environ, "TMPDIR": str(own)}
        )
    end = time.monotonic() + DEADLINE
    while from_line not in file.read_text():
        assert time.monotonic() < end
    while job.poll() is None:  # hardly a wait: the moments between two handlers are what is looked for
        os.kill(job.pid, signal.SIGTERM)
        time.sleep(0.0002)
        assert time.monotonic() < end, file.read_text()[-2000:]
    said = file.read_text()
    assert job.returncode in codes, said[-2000:]
    assert not [path for path in own.iterdir() if path.name.startswith("elastic-run_")], said


def test_under_nohup_a_closed_terminal_is_no_notice(script: Path) -> None:
    job = subprocess.Popen(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *COMMAND, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert job.stdout and "begins" in job.stdout.readline()
    os.kill(job.pid, signal.SIGHUP)
    _, said = job.communicate("\n", timeout=DEADLINE)
    assert job.returncode == 0, said
    assert "SIGHUP" not in said


def test_a_closed_terminal_is_a_notice_otherwise(script: Path) -> None:
    job = subprocess.Popen(
        [*COMMAND, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert job.stdout and "begins" in job.stdout.readline()
    os.kill(job.pid, signal.SIGHUP)
    job.wait(timeout=DEADLINE)  # its standard input stays open, so it is the notice that ends the script
    _, said = job.communicate()
    assert job.returncode == 128 + signal.SIGHUP, said
    assert "SIGHUP: this node leaves the job" in said


def test_a_machine_that_cannot_start_workers_fails_and_is_not_taken_for_preempted(script: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    done = subprocess.run(
        [
            "bash",
            "-c",
            'ulimit -n 80; for n in {30..79}; do eval "exec $n</dev/null"; done; exec "$@"',  # few are left of these
            "bash",
            *COMMAND,
            "--nproc-per-node=8",
            f"--summary-json={summary}",
            script,
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "Too many open files" in done.stderr and "no remaining node can start workers" in done.stderr
    assert json.loads(summary.read_text())["outcome"] == "failed"


@pytest.fixture
def prints_much(tmp_path: Path) -> Path:
    path = tmp_path / "prints.py"
    path.write_text("import sys\nsys.stdout.write(''.join(f'line {n}\\n' for n in range(60_000)))\n")
    return path


def test_a_reader_that_stalls_gets_every_line_in_the_end(prints_much: Path) -> None:
    job = subprocess.Popen(
        [*COMMAND, "--node-name=n", str(prints_much)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert job.stdout and job.stderr
    said = ""
    while "the workers' output is read slowly: waiting for its reader" not in said:
        line = job.stderr.readline()
        assert line, said
        said += line
    assert job.stdout.read() == "".join(f"[n rank 0] line {n}\n" for n in range(60_000))
    said += job.stderr.read()
    job.stdout.close()
    job.stderr.close()
    assert job.wait(DEADLINE) == 0, said


def test_a_signal_ends_the_wait_for_a_reader_and_what_is_dropped_is_counted(prints_much: Path) -> None:
    job = subprocess.Popen([*COMMAND, str(prints_much)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout and job.stderr
    said = ""
    while "waiting for its reader" not in said:
        line = job.stderr.readline()
        assert line, said
        said += line
    job.send_signal(signal.SIGINT)
    assert re.search(r"\d+ bytes for standard output were dropped: a signal arrived", job.stderr.read())
    assert job.wait(DEADLINE) == 0
    job.stdout.close()
    job.stderr.close()


def test_a_node_that_was_told_to_leave_waits_only_briefly_for_a_reader_that_stalls(tmp_path: Path) -> None:
    script = tmp_path / "prints.py"
    much = "print('unread' * 100_000, flush=True)"  # more than the pipe to the reader holds
    script.write_text(f"import sys\n{much}\nprint('enough', file=sys.stderr)\nwhile True: print('unread')\n")
    job = subprocess.Popen([*COMMAND, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert job.stdout and job.stderr
    line = job.stderr.readline()
    while "enough" not in line:
        assert line, "it ended before"
        line = job.stderr.readline()
    job.send_signal(signal.SIGTERM)
    assert re.search(r"\d+ bytes for standard output were dropped: no output was read for 5 s", job.stderr.read())
    assert job.wait(DEADLINE) == 128 + signal.SIGTERM
    job.stdout.close()
    job.stderr.close()


def test_redirected_output_without_a_log_dir_says_where_it_is(script: Path) -> None:
    done = subprocess.run(
        [*COMMAND, "--redirects=3", str(script)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    kept = re.search(r"complete logs are in (\S+) ", done.stderr)
    assert done.returncode == 0 and kept, done.stderr
    assert (Path(kept[1]) / "attempt_1" / "0" / "stdout.log").read_text() == "begins\n"
    shutil.rmtree(kept[1])


def test_a_prompt_is_shown_on_a_terminal_before_it_is_answered(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text("print('hello', input('name? '))\n")
    ours, theirs = os.openpty()
    job = subprocess.Popen([*COMMAND, "--node-name=n", str(script)], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    while not said.endswith(b"name? "):
        said += os.read(ours, 1000)
    os.write(ours, b"me\n")
    while b"hello me" not in said:
        said += os.read(ours, 1000)
    assert job.wait(DEADLINE) == 0
    os.close(ours)


def test_without_a_prefix_one_workers_output_is_what_it_is_without_a_launcher(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    lines = ["import pdb", r"print('\r0', end=''); print('\r1')", "step = 2", "pdb.set_trace()", "print('end')"]
    script.write_text("\n".join(lines))

    def printed(*command: str) -> str:
        typed = "p step + 5\ncontinue\n"
        return subprocess.run(command, input=typed, capture_output=True, text=True, timeout=DEADLINE, check=True).stdout

    alone = printed(sys.executable, str(script))
    assert "(Pdb) 7" in alone
    assert printed(*COMMAND, "--no-prefix", str(script)) == alone


@pytest.mark.parametrize(
    ("flags", "ends", "lives"),
    [
        ([], "", True),
        (["--detached=kill"], "", False),
        (["--max-restarts=0"], "sys.exit(1)", False),
    ],
    ids=["succeeded", "succeeded, and to be killed", "failed"],
)
def test_what_a_script_has_detached_lives_on_when_the_job_has_succeeded(
    tmp_path: Path, flags: list[str], ends: str, lives: bool
) -> None:
    script, go = tmp_path / "train.py", tmp_path / "go"
    uploads = f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.005)\nprint('uploaded')"
    script.write_text(
        f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {uploads!r}], start_new_session=True)\n{ends}"
    )
    with subprocess.Popen([*COMMAND, *flags, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout and job.stderr
        assert (job.wait(DEADLINE) == 0) == (not ends)
        go.touch()
        assert job.stdout.read() == (b"uploaded\n" if lives else b"")
        assert (b"keep running" in job.stderr.read()) == lives


def test_a_low_soft_limit_of_open_files_is_raised_for_the_agent_and_kept_for_the_workers(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import resource\nprint('may open', resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n")
    done = subprocess.run(
        ["sh", "-c", 'ulimit -S -n 40; exec "$@"', "sh", *COMMAND, "--nproc-per-node=8", str(script)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("may open 40\n") == 8


def test_an_inherited_ignored_sigchld_hides_no_childs_end(tmp_path: Path) -> None:
    """Among them the store's, whose version is asked, and the warm interpreter's."""
    script = tmp_path / "train.py"
    script.write_text("import signal\nprint('handles', signal.getsignal(signal.SIGCHLD).name)\n")
    [port] = embedded_ports(1)
    flags = ["--nnodes=1:2", f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=last_call_timeout=0", str(script)]
    done = subprocess.run(
        ["sh", "-c", 'trap "" CHLD; exec "$@"', "sh", *COMMAND[:-1], *flags],
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0 and "handles SIG_DFL" in done.stdout, done.stderr
    assert "No child processes" not in done.stderr


def test_a_signal_while_the_store_is_awaited_ends_in_words_and_a_summary(script: Path, tmp_path: Path) -> None:
    summary = tmp_path / "summary.json"
    with socket.create_server(("127.0.0.1", 0)) as mute:
        where = ("--nnodes=2", f"--rdzv-endpoint=127.0.0.1:{mute.getsockname()[1]}", f"--summary-json={summary}")
        command = [sys.executable, "-m", "elastic_run", *where, str(script)]
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        mute.settimeout(DEADLINE)
        asked, _ = mute.accept()
        with asked:
            asked.settimeout(DEADLINE)
            assert asked.recv(1)  # from here on it waits for an answer
            job.send_signal(signal.SIGTERM)
            _, said = job.communicate(timeout=DEADLINE)
    assert job.returncode == 128 + signal.SIGTERM, said
    assert "SIGTERM arrived while this node waited for the store" in said and "Traceback" not in said
    assert json.loads(summary.read_text())["exit_code"] == 128 + signal.SIGTERM


async def ends(count: int, log_dir: Path | None) -> tuple[Exit, ...]:
    """Of so many workers that fail with code 3, each with an error file."""
    output = Output(host="a", log_dir=log_dir, job_id="job", stream_out=BytesIO(), stream_err=BytesIO())
    guardian = Guardian(tag=f"surroundings-{os.getpid()}")
    workers = Workers(tag=f"surroundings-{os.getpid()}", output=output, guardian=guardian)
    guardian.start()
    fails, environment = (sys.executable, "-c", "raise SystemExit(3)"), dict(os.environ)
    try:
        await workers.start(
            [WorkerSpec(1, rank, rank, fails, environment, output.error_file(1, rank)) for rank in range(count)]
        )
        async with asyncio.timeout(DEADLINE):
            while workers.alive or len(workers.exits) < count:
                await workers.changed()
        return workers.exits
    finally:
        await workers.close()
        await guardian.close()
        await output.close(succeeded=False)


async def test_a_worker_whose_last_words_cannot_be_read_has_ended_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing_left(*_arguments: object) -> tuple[str, str]:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(worker_exit, "read_failure", nothing_left)
    (ended,) = await ends(1, tmp_path)
    assert ended.code == 3 and "cannot be read" in ended.message and "Too many open files" in ended.message


@pytest.mark.parametrize("hangs", ["read_named", "rglob"])
async def test_a_folder_that_hangs_holds_up_neither_the_end_of_a_worker_nor_the_agent(
    hangs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS whose server is away: each look at it is said to last, and the agent's lease would end."""
    held, hung = threading.Event(), list[object]()

    def hang(*arguments: object) -> None:
        hung.append(arguments[0])
        held.wait()

    monkeypatch.setattr(slow_disk if hangs == "read_named" else Path, hangs, hang)
    if hangs == "rglob":
        monkeypatch.setattr(output_module, "END_SECONDS", 0.5)
    try:
        assert {end.code for end in await ends(3, None)} == {3}
        assert len(hung) == 1, "the others do not wait as well"
    finally:
        held.set()


def test_an_address_that_is_none_is_refused(script: Path) -> None:
    command = [sys.executable, "-m", "elastic_run", "--nnodes=1:2", "--rdzv-endpoint=127.0.0.1:7", str(script)]
    for address, words in (("garbage..host", "is not a host name"), ("nosuch.invalid", "does not resolve")):
        done = subprocess.run(
            [*command[:-1], f"--local-addr={address}", command[-1]],
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 2, done.stderr
        assert words in done.stderr and "Traceback" not in done.stderr


def test_installed_as_a_tool_of_its_own_workers_run_the_active_environments_python(tmp_path: Path) -> None:
    for name in ("tool", "mine"):
        venv.create(tmp_path / name, symlinks=True, with_pip=False)
    (tmp_path / "tool" / "uv-receipt.toml").touch()
    (packages,) = (tmp_path / "tool").glob("lib/python3*/site-packages")
    # What `uv tool install` would have put there: this package, and what it needs.
    (packages / "here.pth").write_text("\n".join(path for path in sys.path if path and Path(path).is_dir()))
    (tmp_path / "train.py").write_text("import sys\nprint('in', sys.prefix)\nimport what_only_my_environment_has\n")
    environment = {**os.environ, "VIRTUAL_ENV": str(tmp_path / "mine")}
    for added in (False, True):
        if added:
            (packages,) = (tmp_path / "mine").glob("lib/python3*/site-packages")
            (packages / "what_only_my_environment_has.py").touch()
        done = subprocess.run(
            [tmp_path / "tool" / "bin" / "python", "-m", "elastic_run", "--max-restarts=0", "train.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        said = done.stdout + done.stderr
        assert f"rank 0] in {tmp_path / 'mine'}" in said, said
        assert f"workers run {tmp_path / 'mine/bin/python'} (VIRTUAL_ENV), because uv tool" in said
        assert (done.returncode == 0) == added, said
        assert (f"(workers here run {tmp_path / 'mine/bin/python'})" in said) != added, said


FINDER = """
import sys
class Finder:
    def find_spec(self, name, path, target=None):
        return None
sys.meta_path.insert(0, Finder())
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("_numba_cuda_redirector", ""),
        ("prepares", "Python's start-up imports prepares, which each worker must run itself"),
    ],
)
def test_workers_are_fresh_where_pythons_start_up_runs_what_is_not_known_to_read_nothing(
    tmp_path: Path, module: str, words: str
) -> None:
    venv.create(tmp_path / "mine", symlinks=True, with_pip=False)
    (packages,) = (tmp_path / "mine").glob("lib/python3*/site-packages")
    (packages / "here.pth").write_text("\n".join(path for path in sys.path if path and Path(path).is_dir()))
    (packages / f"{module}.py").write_text(FINDER)
    (packages / f"{module}.pth").write_text(f"import {module}\n")
    (tmp_path / "train.py").write_text("import json, sys\nprint([type(each).__name__ for each in sys.meta_path])\n")

    def ran(method: str) -> tuple[list[str], str]:
        done = subprocess.run(
            [tmp_path / "mine/bin/python", "-m", "elastic_run", "--standalone", f"--start-method={method}", "train.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines(), done.stderr

    (fork, said), (spawn, _) = ran("fork"), ran("spawn")
    assert fork == spawn
    assert "'Finder'" in fork[0]
    fresh = "workers start as fresh interpreters: "
    assert (f"{fresh}{words}" in said) if words else (fresh not in said), said


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes takes root")
def test_as_a_containers_first_process_it_ends_nothing_that_others_have_started_there(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, time\n"
        "print('begins', flush=True)\n"
        f"while not os.path.exists('{tmp_path}/go'): time.sleep(0.01)\n"
        "sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n"
    )
    job = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *COMMAND, "--max-restarts=1", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert job.stdout
    try:
        while "begins" not in (line := job.stdout.readline()):
            assert line, "it did not begin"
        agent = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()[0]
        others = f"setsid sleep 600 & echo $! >{tmp_path}/other"
        subprocess.run(
            ["nsenter", f"--target={agent}", "--pid", "--mount", "env", "-i", "/bin/sh", "-c", others], check=True
        )
        script.write_text(
            "import os, sys\n"
            f"print('lives:', os.path.exists(f'/proc/{{open(\"{tmp_path}/other\").read().strip()}}'), flush=True)\n"
        )
        (tmp_path / "go").touch()
        rest, _ = job.communicate(timeout=DEADLINE)
    finally:
        job.kill()
        job.wait()
    assert "lives: True" in rest, rest
    assert job.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace of processes takes root")
def test_proc_of_another_namespace_is_not_believed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '0': time.sleep(0 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '1' else 600)\n"
        "sys.exit(os.environ['TORCHELASTIC_RESTART_COUNT'] == '0')\n"
    )
    flags = ("--max-restarts=1", "--nproc-per-node=2")
    done = subprocess.run(
        ["unshare", "--pid", "--fork", "--kill-child", *COMMAND, *flags, str(script)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert "does not die" not in done.stderr, done.stderr
    assert done.returncode == 0, done.stderr
