"""Sockets of processes."""

import re
import subprocess


def listening(*pids: int) -> list[str]:
    """The ports on which these processes listen."""
    shown = subprocess.run(
        ["ss", "--tcp", "--listening", "--numeric", "--processes"], capture_output=True, text=True, check=True
    )
    return [
        found[1]
        for line in shown.stdout.splitlines()
        if any(f"pid={pid}," in line for pid in pids) and (found := re.search(r":(\d+)\s", line))
    ]
