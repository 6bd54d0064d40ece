"""The line that tells how the job is, on a real terminal; and none where there is no terminal."""

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from ..doubles.screen import Screen

SECONDS = 120.0
WIPE = b"\r\x1b[K"
SCRIPT = """
import pathlib, sys, time
print("begun", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
print("a last line", flush=True)
"""


def test_a_terminal_shows_how_the_job_is_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    master, slave = os.openpty()
    command = [sys.executable, "-m", "elastic_run", "--standalone", "train.py"]
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(command, cwd=tmp_path, stdout=slave, stderr=slave, stdin=slave, env=environment)
    os.close(slave)
    seen, until = b"", time.monotonic() + SECONDS
    while True:
        ready, _, _ = select.select([master], [], [], max(0.0, until - time.monotonic()))
        assert ready, seen
        try:
            data = os.read(master, 10_000)
        except OSError:  # the terminal's last user has gone
            break
        seen += data
        if b"[elastic-run] round 1, " in seen and b"1 worker on 1 node" in seen:
            (tmp_path / "go").touch()
        if not data:
            break
    os.close(master)
    assert process.wait(SECONDS) == 0
    whole = re.sub(rb"\x1b\[\?2026[hl]", b"", seen.replace(b"\r\n", b"\n"))
    assert b"a last line\n" in whole and b"succeeded" in whole.splitlines()[-2], whole
    kept = [line.rpartition(WIPE)[2] for line in whole.split(b"\n")]
    assert not any(b"1 worker on 1 node" in line for line in kept), "every drawing of it is wiped"


def test_a_pipe_sees_what_it_always_saw(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(2.5)\n")  # longer than a terminal waits for the line
    command = [sys.executable, "-m", "elastic_run", "--standalone", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=SECONDS, check=False)
    assert done.returncode == 0 and b"\x1b" not in done.stderr and b"\r" not in done.stderr
    assert all(line.startswith(b"[elastic-run] ") for line in done.stderr.splitlines())
    assert b"1 worker on 1 node" not in done.stderr


BARS = """
import os, pathlib, sys, time
print("sees", sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(1), os.get_terminal_size(2), flush=True)
from rich.console import Console
from rich.progress import Progress
from tqdm import tqdm
def wait():
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
Console().print("[red]coloured[/red]")
with tqdm(total=4, desc="tqdm") as bar:
    bar.update(3)
    bar.refresh()
    with Progress() as progress:
        one, two = progress.add_task("first", total=4), progress.add_task("second", total=4)
        progress.update(two, completed=2)
        wait()
        progress.update(one, completed=4)
        progress.update(two, completed=4)
    bar.update(1)
"""


@pytest.mark.parametrize("warm", [True, False])
def test_bars_and_colours_of_workers_live_on_a_terminal_and_leave_clean_logs(tmp_path: Path, warm: bool) -> None:
    pytest.importorskip("tqdm")
    pytest.importorskip("rich")
    (tmp_path / "bars.py").write_text(BARS)
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 123, 0, 0))
    start = ["--start-method=fork" if warm else "--start-method=spawn", "--log-dir=logs"]
    command = [sys.executable, "-m", "elastic_run", "--standalone", *start, "bars.py"]
    environment = {**os.environ, "TERM": "xterm"}
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    process = subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    seen, until = "", time.monotonic() + SECONDS
    while True:
        assert select.select([ours], [], [], max(0.0, until - time.monotonic()))[0], seen
        try:
            seen += os.read(ours, 10_000).decode(errors="replace")
        except OSError:
            break
        shown = re.sub(r"\x1b\[[0-9;]*m", "", seen)
        if re.search(r"tqdm:  75%", shown) and re.search(r"first .* 0%", shown) and re.search(r"second .* 50%", shown):
            (tmp_path / "go").touch()
    os.close(ours)
    assert process.wait(SECONDS) == 0, seen
    size = "os.terminal_size(columns=123, lines=33)"
    assert f"sees True True {size} {size}" in seen
    assert "\x1b[31mcoloured\x1b[0m" in seen
    [out] = tmp_path.glob("logs/latest/attempt_1/0/stdout.log")
    lines = out.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["sees", "coloured", "first", "second"], lines
    errors = out.with_name("stderr.log").read_text()
    assert len(errors.splitlines()) == 1 and errors.startswith("tqdm: 100%"), errors
    assert "\x1b" not in out.read_text() + errors and "\r" not in out.read_text() + errors


def test_a_stream_that_goes_to_a_file_too_is_no_terminal(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys\nprint('sees', sys.stdout.isatty(), sys.stderr.isatty(), flush=True)"
    )
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "elastic_run", "--standalone", "--tee=2", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], SECONDS)[0]:
            try:
                seen += os.read(ours, 10_000)
            except OSError:
                break
        os.close(ours)
        assert process.wait(SECONDS) == 0
    assert b"sees True False" in seen, "as with torchrun"


def test_nobody_waits_for_keys_of_a_terminal_on_which_nobody_can_type(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os\nfor stream in (1, 2):\n    try:\n        os.read(stream, 1)\n"
        "    except OSError as error:\n        print('fails', os.isatty(stream), error, flush=True)\n"
    )
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "elastic_run", "--standalone", "train.py"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], 30.0)[0]:  # the live line writes on
            try:
                seen += os.read(ours, 10_000)
            except OSError:
                break
            if seen.count(b"1 worker on 1 node") > 20:
                process.terminate()
        os.close(ours)
        assert process.wait(SECONDS) == 0, seen
    assert seen.count(b"fails True [Errno 9]") == 2, "as of a pipe's writing end"


def test_what_a_shell_wrote_while_the_launcher_was_stopped_stays(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import pathlib, time\nat = 0\nwhile not pathlib.Path('go').exists():\n"
        "    at += 1\n    print(f'\\rone {at}\\ntwo {at}\\x1b[A', end='', flush=True)\n    time.sleep(0.05)\n"
    )
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 123, 0, 0))
    launch = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.executable, sys.argv[1:])"
    )
    words = [sys.executable, "-m", "elastic_run", "--standalone", "--live-line=never", "train.py"]
    process = subprocess.Popen(
        [sys.executable, "-c", launch, *words], cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm"}, start_new_session=True,
    )  # fmt: skip
    screen, seen, stopped, until = Screen(), b"", False, time.monotonic() + SECONDS
    while True:
        assert select.select([ours], [], [], max(0.0, until - time.monotonic()))[0], screen.rows
        try:
            data = os.read(ours, 10_000)
        except OSError:
            break
        seen += data
        screen.feed(data)
        if not stopped and b"two 9" in seen:
            os.write(ours, b"\x1a")  # Ctrl-Z
            while not os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)[0]:
                assert time.monotonic() < until
                time.sleep(0.01)
            stopped, seen = True, b""
            os.write(theirs, b"\nthe shell's words\n$ fg\n")
            os.close(theirs)
            process.send_signal(signal.SIGCONT)
        elif stopped and seen.count(b"two ") > 3:
            (tmp_path / "go").touch()
    os.close(ours)
    assert process.wait(SECONDS) == 0
    at = screen.rows.index("the shell's words")
    assert screen.rows[at + 1] == "$ fg" and "two" in screen.rows[at - 1], screen.rows


def test_the_live_line_is_on_the_screen_whatever_else_is_written(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import pathlib, time\nwhile not pathlib.Path('go').exists():\n"
        "    print('\\n'.join(f'step {at}' for at in range(400)), flush=True)\n    time.sleep(0.01)\n"
    )
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 123, 0, 0))
    command = [sys.executable, "-m", "elastic_run", "--standalone", "--nproc-per-node=2", "train.py"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        screen, looks, missing, until = Screen(), 0, 0, time.monotonic() + SECONDS
        while looks < 300:
            assert select.select([ours], [], [], max(0.0, until - time.monotonic()))[0], screen.rows
            screen.feed(os.read(ours, 10_000))
            there = "2 workers on 1 node" in screen.rows[-1]
            looks, missing = looks + bool(looks or there), missing + bool(looks and not there)
        (tmp_path / "go").touch()
        while select.select([ours], [], [], SECONDS)[0]:
            try:
                os.read(ours, 10_000)
            except OSError:
                break
        os.close(ours)
        assert process.wait(SECONDS) == 0
    assert missing == 0, f"{missing} of {looks}"
