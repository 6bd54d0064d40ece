"""What the commands that look at jobs print."""

import subprocess
import sys
import urllib.request
from pathlib import Path

from .cluster import Cluster


def run(*words: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "elastic_run", *words], cwd=cwd, capture_output=True, text=True, timeout=60
    )


def asked(job: Cluster, *words: str) -> "subprocess.CompletedProcess[str]":
    return run("status", f"--rdzv-endpoint={job.typed_endpoint}", f"--rdzv-id={job.job}", *words)


def scraped(address: str) -> dict[str, float]:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        lines = [line for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}
