"""What the figures were made on: without it they mean little."""

import asyncio
import importlib.metadata
import os
import platform
from pathlib import Path

from elastic_run.rendezvous.store.embedded.binary import binary_version, find_binary
from elastic_run.rendezvous.version import VERSION


def facts() -> dict[str, str]:
    """The machine, and the versions of everything that takes part."""
    binary = find_binary()
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "etcd": ".".join(map(str, asyncio.run(binary_version(binary)))) + f" ({binary.name}, embedded, one member)",
        "elastic-run": VERSION,
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def load() -> float:
    """The load average of the last minute: the benchmark's own work is in it, too."""
    return os.getloadavg()[0]


def sentence(known: dict[str, str]) -> str:
    """The facts in one line."""
    return ", ".join(f"{name} {value}" for name, value in known.items())
