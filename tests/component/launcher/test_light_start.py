"""What the launcher of a job of one machine has loaded when its workers run the first line of their script."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from elastic_run.launcher import later
from elastic_run.rendezvous.base.cancel import running

from ...house.sources import ROOT

LISTED = Path(__file__).with_name("loaded_at_start.txt")
FIRST_LINE = "the first line of the script"


def imported(report: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each module that `-X importtime` tells of, and who imported it: the next line that is indented less."""
    open_: list[tuple[int, str]] = []
    for line in report:
        if found := re.fullmatch(r"import time: +[0-9]+ \| +[0-9]+ \| ( *)(\S+)", line):
            depth, name = len(found[1]), found[2]
            while open_ and open_[-1][0] > depth:
                yield open_.pop()[1], name
            open_.append((depth, name))
    yield from ((name, "the command itself") for _, name in open_)


def loaded_at_start(folder: Path) -> dict[str, str]:
    """Our modules, without packages, that a launcher loads before its workers' first line, and who imports each."""
    (folder / "train.py").write_text(f"import sys\nsys.stderr.write({FIRST_LINE!r} + chr(10))\n")
    command = [sys.executable, "-X", "importtime", "-m", "elastic_run", "--nproc-per-node=2", "train.py"]
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    before, reached, _ = done.stderr.partition(FIRST_LINE)
    assert reached, done.stderr
    return {
        name.removeprefix("elastic_run."): by.removeprefix("elastic_run.")
        for name, by in imported(before.splitlines())
        if name.startswith("elastic_run.") and not (ROOT / name.replace(".", "/").removeprefix("elastic_run/")).is_dir()
    }


def test_a_job_of_one_machine_loads_nothing_before_its_first_line_that_is_not_listed(tmp_path: Path) -> None:
    """The list only falls: what can be loaded later is imported where it is used, and named in `launcher/later.py`."""
    loaded, listed = loaded_at_start(tmp_path), set(LISTED.read_text().split())
    for _ in range(4):  # on a busy machine a worker may begin after the launcher has begun to load what it uses later
        if not loaded.keys() - listed:
            break
        again = loaded_at_start(tmp_path)
        loaded = {name: by for name, by in loaded.items() if name in again}
    newcomers = [f"{name}, imported by {loaded[name]}" for name in sorted(loaded.keys() - listed)]
    assert not newcomers, "loaded before the first line, and not listed: " + "; ".join(newcomers)
    assert not listed - loaded.keys(), "listed, and not loaded any more: take them out of the list"


def test_a_package_on_a_file_system_that_hangs_does_not_hold_the_launchers_end(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, never = threading.Event(), threading.Event()

    def hang(*_: object) -> None:
        begun.set()
        never.wait()

    async def scene() -> None:
        async with running(later.load_later(), "load"):
            assert await asyncio.to_thread(begun.wait, 60)

    monkeypatch.setattr(later, "import_module", hang)
    asyncio.run(scene())
    never.set()
