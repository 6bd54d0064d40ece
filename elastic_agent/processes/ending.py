"""Ends processes, look after look, and awaits their ends."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Sequence

from .guardian import LOOK_AGAIN_SECONDS, Mercy, Process, open_process, send


def kill(mercy: Mercy, left: Sequence[Process], waited: Sequence[Process]) -> list[Process]:
    """SIGKILL to those of `left` that are not spared; of them, those in `waited`."""
    condemned: list[Process] = []
    with contextlib.suppress(OSError):  # who is missed for want of descriptors is still there at the next look
        condemned = mercy.condemned(waited, time.monotonic())
        for found in (*condemned, *(each for each in left if each not in waited)):
            send(found, signal.SIGKILL)
    return condemned


async def ended(waited: Sequence[Process], seconds: float, hurry: asyncio.Event | None = None) -> None:
    """Wait until all of `waited` have ended, `hurry` is set, or `seconds` have passed.

    Where nobody is named, or there are not descriptors to watch them all: at most LOOK_AGAIN_SECONDS.
    """
    loop = asyncio.get_running_loop()
    done = hurry or asyncio.Event()
    handles: list[int] = []
    blind = not waited
    try:
        for found in waited:
            if (handle := open_process(found)) is not None:
                handles.append(handle)
    except OSError:
        blind = True
    missing = set(handles)

    def one(handle: int) -> None:
        loop.remove_reader(handle)
        missing.discard(handle)
        if not missing:
            done.set()

    try:
        for handle in handles:
            loop.add_reader(handle, one, handle)
        if missing or blind:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(seconds, LOOK_AGAIN_SECONDS) if blind else seconds, 0)):
                    await done.wait()
    finally:
        for handle in handles:
            loop.remove_reader(handle)
            os.close(handle)


def describe_state(found: Process) -> str:
    """Its state as /proc names it, and what that may mean for a process that does not die."""
    match found.state:
        case "D":
            return "D (the kernel waits for a device)"
        case "t":
            return "t (a tracer, such as a debugger, holds it)"
        case "Z":
            return "Z (its first thread has exited, and another has not)"
        case state:
            return state
