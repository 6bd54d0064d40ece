"""What a unit test may not do, and how it is seen: mostly by Python's audit events, whichever library raises them."""

import contextlib
import multiprocessing.process
import selectors
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

FRAMEWORKS = frozenset(
    {
        "accelerate",
        "datasets",
        "horovod",
        "jax",
        "kopf",
        "kubernetes",
        "lightning",
        "numpy",
        "opentelemetry",
        "pandas",
        "prometheus_client",
        "sklearn",
        "tensorflow",
        "torch",
        "transformers",
        "xgboost",
        "yaml",
    }
)
"""Packages that unit tests run without."""

PROCESS, SOCKET = "a unit test starts no process", "a unit test opens no port and no connection"
REFUSED = {
    "os.exec": PROCESS,
    "os.fork": PROCESS,
    "os.forkpty": PROCESS,
    "os.posix_spawn": PROCESS,
    "os.system": PROCESS,
    "subprocess.Popen": PROCESS,
    "socket.bind": SOCKET,
    "socket.connect": SOCKET,
}
"""By audit event what is told. Pairs of connected sockets, which event loops use, raise none of them."""

SLEEP, FRAMEWORK = "a unit test does not sleep", "a unit test needs no framework"
WHERE = "move it to tests/component, or make what it tests pure"

_found: list[str] | None = None

_strangers: frozenset[int] = frozenset()
"""Threads that earlier tests of this process have left behind: what they do is not the watched test's."""


class Impure(BaseException):
    """Raised at the line that is not pure. No `except Exception` takes it."""


def refuse(what: str) -> None:
    """Notes what a test may not do, while one is watched. Raises Impure."""
    if _found is not None and threading.get_ident() not in _strangers:
        _found.append(f"{what}: {WHERE}")
        raise Impure(_found[-1])


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _found is None:
        return
    if event in REFUSED:
        refuse(f"{REFUSED[event]} ({event})")
    elif event == "import":
        package = args[0].partition(".")[0]
        if package in FRAMEWORKS and package not in sys.modules:  # hypothesis loads more of a numpy that is there
            refuse(f"{FRAMEWORK} ({args[0]})")


_sleep = time.sleep  # Python raises an event for it from 3.13 on


def sleep(seconds: float) -> None:
    """In place of `time.sleep`."""
    if seconds > 0:
        refuse(f"{SLEEP} ({seconds:g} s)")
    _sleep(seconds)


class _Selector(selectors.DefaultSelector):
    """The selector of an event loop on the real clock: one whose time-out has passed has slept."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout)
        if not ready and timeout is not None and timeout > 0:
            refuse(
                f"{SLEEP} ({timeout:g} s, in an event loop on the real clock; tests.doubles.virtual_loop has another)"
            )
        return ready


def start_process(process: multiprocessing.process.BaseProcess) -> None:
    """In place of `multiprocessing`'s, whose way to spawn raises no event."""
    refuse(f"{PROCESS} (multiprocessing)")
    _start_process(process)


_start_process = multiprocessing.process.BaseProcess.start
sys.addaudithook(_audit)
multiprocessing.process.BaseProcess.start = start_process
time.sleep = sleep
selectors.DefaultSelector = _Selector  # type: ignore[misc]  # which asyncio looks up for each new loop


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """While it lasts, whatever is not pure raises Impure and is noted in the list, should somebody take the error."""
    global _found, _strangers
    before = _found, _strangers
    _strangers = frozenset(each.ident or 0 for each in threading.enumerate()) - {threading.get_ident()}
    _found = []
    try:
        yield _found
    finally:
        _found, _strangers = before
