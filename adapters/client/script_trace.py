"""A script's own marks and spans, in the trace of its job (`--trace`)."""

import functools
import os
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...rendezvous.host.trace_file import Trace

TRACE = "ELASTIC_RUN_TRACE"
"""The variable that names the file, from the root; workers have it only while their launcher traces."""

TRACE_NODE = "ELASTIC_RUN_TRACE_NODE"
"""The variable that says whose rows are meant: the node's name."""


def mark(name: str, /, **args: object) -> None:
    """Records that something happens now; does nothing without --trace.

    Args:
        name: what, as a viewer shows it.
        args: numbers and texts that belong to it, say `step=120`.
    """
    if file := os.environ.get(TRACE):
        _opened(file, os.environ.get(TRACE_NODE, ""), os.getpid()).instant(name, _row(), **args)


def span(name: str, /, **args: object) -> AbstractContextManager[None]:
    """`with span("checkpoint"):` records how long the block takes; does nothing without --trace.

    Args:
        name: what, as a viewer shows it.
        args: numbers and texts that belong to it.

    Returns:
        a context manager.
    """
    if file := os.environ.get(TRACE):
        return _opened(file, os.environ.get(TRACE_NODE, ""), os.getpid()).span(name, _row(), **args)
    return nullcontext()


@functools.cache
def _opened(file: str, node: str, process: int) -> "Trace":
    """This process's own: whoever forks it may close what it has open."""
    from ...rendezvous.host.trace_file import Trace  # a script that is not traced does not pay for it

    return Trace(file, node, _say)


def _say(line: str) -> None:
    print(f"[elastic-run] {line}", file=sys.stderr, flush=True)


def _row() -> str:
    """The rank's; other threads and processes of it have rows of their own, because a row's spans must not overlap."""
    rank = f"rank {os.environ.get('RANK', '?')}"
    processes = sys.modules.get("multiprocessing.process")  # not imported: a script without it has no such child
    if processes is not None and processes.parent_process() is not None:
        rank += f", {processes.current_process().name}"
    thread = threading.current_thread()
    return rank if thread is threading.main_thread() else f"{rank}, {thread.name}"
