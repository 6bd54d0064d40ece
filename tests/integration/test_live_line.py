"""The line that tells how the job is, on a real terminal; and none where there is no terminal."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

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
    whole = seen.replace(b"\r\n", b"\n")
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
