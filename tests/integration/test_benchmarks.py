"""What a run of a benchmark starts."""

import os
import subprocess

from benchmarks import arena


def test_a_run_ends_its_own_processes_and_no_others() -> None:
    with subprocess.Popen(["sleep", "600"]) as other:
        try:
            with arena.Arena("one") as run:
                own = run.start(["sh", "-c", "sleep 600 & wait"], dict(os.environ), "own.log")
            assert own.poll() is not None
            assert other.poll() is None
        finally:
            other.kill()
