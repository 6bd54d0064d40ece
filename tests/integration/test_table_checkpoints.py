"""Jobs whose tables are saved: killed whole, and begun again with another number of servers."""

import re
import subprocess
import sys
import time
from pathlib import Path

from .server_jobs import kill_whole, newest

SCRIPT = Path(__file__).with_name("scripts") / "servers_count.py"

SECONDS = 240.0
"""For a job, on a busy machine."""


def command(folder: Path, servers: str, pause: float) -> list[str]:
    words = [f"--servers={servers}", f"--ps-checkpoint={folder / 'rows'}", "--ps-checkpoint-every=1"]
    launcher = [sys.executable, "-m", "elastic_run", "--standalone", "--rdzv-id=job", "--nproc-per-node=2", *words]
    return [*launcher, str(SCRIPT), "--by=numpy", "--records=6000", f"--pause={pause}"]


def test_a_job_that_was_killed_whole_goes_on_from_its_tables_with_other_servers(tmp_path: Path) -> None:
    with subprocess.Popen(
        command(tmp_path, "2", 0.2), cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as job:
        assert job.stdout is not None
        assert any("pushed 20" in line for line in job.stdout)
        number = newest(tmp_path) + 1
        until = time.monotonic() + SECONDS
        while newest(tmp_path) <= number:  # one that was ordered after those pushes
            assert job.poll() is None, job.stdout.read()
            assert time.monotonic() < until
            time.sleep(0.1)  # a folder tells nobody of its changes
        assert kill_whole(job, tmp_path) >= 5  # the agent, two servers, two workers
        job.wait(SECONDS)
    done = subprocess.run(command(tmp_path, "3", 0.001), cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    begun = re.search(r"tables begin with checkpoint (\d+) of an earlier run", said)
    assert begun is not None and int(begun[1]) > number, said
    assert "counted [2.0] 12000" in said
    assert 0 < len(re.findall("pushed [0-9]+", said)) <= 2 * 60 * 4 - 20  # the others are in the checkpoint
