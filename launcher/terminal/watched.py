"""`elastic-run status --watch` on a terminal: the job again each second, and with a key the log or stacks of a rank.

It takes the whole terminal while it lasts, and gives it back as it was, with the job as it was last.
"""

import asyncio
import codecs
import contextlib
import os
import shutil
import sys
import termios
import tty
from collections.abc import Callable, Generator, Sequence
from typing import Protocol

from ...master.diagnosis.evidence import NodeEvidence
from ...master.status import RUNS, Status
from ...rendezvous.base.cancel import cancel
from ...rendezvous.base.errors import RendezvousError
from ...rendezvous.base.visible import visible
from ..diagnostics.status_lines import lines
from .keys import HELP, OBSERVER_HELP, OBSERVER_KEYS, View, fit, press, split, wrap
from .live_line import Asks
from .rank_lines import log_lines, stack_lines

EACH = 1.0
"""Seconds between two answers."""

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
"""The terminal's other screen, without a cursor, and back."""


class Looks(Protocol):
    """How one rank is; RendezvousError."""

    async def __call__(self, status: Status, rank: int, *, tail: bool) -> NodeEvidence: ...


def possible() -> bool:
    """There is a terminal, and this process may take its keys."""
    try:
        own = os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return False
    return own and sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Watched:
    """A job on a terminal.

    Args:
        ask: how the job is.
        look: how a rank is seen; None for an observer, who may not see that.
    """

    def __init__(self, ask: Asks, look: Looks | None) -> None:
        self._ask = ask
        self._look_at = look
        self._view: View | None = View()
        self._status: Status | None = None
        self._found: Sequence[str] = ()
        self._changed = asyncio.Event()

    @property
    def answered(self) -> bool:
        """The job has said how it is."""
        return self._status is not None

    async def run(self) -> None:
        """Until the job is over, or a key ends it. Raises what `ask` raises.

        Afterwards the terminal shows the job as it was last.
        """
        try:
            with _keys(self._press):
                await self._run()
        finally:
            if self._status:
                _write("\n".join([*lines(self._status), ""]))

    async def _run(self) -> None:
        following = asyncio.create_task(self._follow(), name="status")
        looking: asyncio.Task[None] | None = None
        shown: tuple[str, int, int] | None = None
        try:
            while (view := self._view) is not None:
                wanted = view.what, view.rank, view.asked
                if wanted != shown:
                    await cancel(*([looking] if looking else []))
                    self._found = ("...",)
                    if self._status is not None:
                        look, shown = self._look_at if view.what != "job" else None, wanted
                        looking = asyncio.create_task(self._look(view, look), name="rank") if look else None
                self._draw()
                if following.done():
                    following.result()
                    return
                await self._changed.wait()
                self._changed.clear()
        finally:
            await cancel(following, *([looking] if looking else []))

    async def _follow(self) -> None:
        try:
            while self._status is None or self._status.state in RUNS:
                self._status = await self._ask()
                self._changed.set()
                await asyncio.sleep(EACH)
        finally:
            self._changed.set()

    async def _look(self, view: View, look: Looks) -> None:
        """Its log again and again; its stacks once, since they cost its machine something."""
        tail = view.what == "log"
        while True:
            assert self._status is not None, "a rank is looked at once there is a status"
            try:
                evidence = await look(self._status, view.rank, tail=tail)
                self._found = tuple((log_lines if tail else stack_lines)(evidence, view.rank))
            except RendezvousError as error:
                self._found = (visible(str(error)),)
            self._changed.set()
            if not tail:
                return
            await asyncio.sleep(EACH)

    def _press(self, data: str) -> None:
        for key in split(data):
            if self._view is not None and (self._look_at or key in OBSERVER_KEYS):
                world = self._status.world_size if self._status else 0
                self._view = press(self._view, key, world, shutil.get_terminal_size().lines - 3)
        self._changed.set()

    def _draw(self) -> None:
        view = self._view
        if view is None:
            return
        size = shutil.get_terminal_size()
        head, text = self._text(view)
        log = view.what == "log"
        room = max(1, size.lines - len(head) - 1)
        text, up = fit(wrap(text, size.columns), room, view.up, from_end=log)
        self._view = View(view.what, view.rank, view.typed, up, view.asked)
        foot = f"rank {view.typed}_  Enter" if view.typed else HELP if self._look_at else OBSERVER_HELP
        shown = [*head, *text, *[""] * (room - len(text)), f"\x1b[7m{foot[: size.columns - 1]}\x1b[m"]
        _write(
            "\x1b[H" + "\r\n".join(f"{line[: size.columns]}\x1b[K" for line in shown[:-1]) + f"\r\n{shown[-1]}\x1b[K"
        )

    def _text(self, view: View) -> tuple[Sequence[str], Sequence[str]]:
        if self._status is None:
            return (), ("asks the job ...",)
        if view.what == "job":
            return (), tuple(lines(self._status))
        node = self._status.node_of(view.rank)
        where = f" on node {visible(node.node)}" if node else ""
        what = "the last output" if view.what == "log" else "where it is"
        state = f"round {self._status.round}, {self._status.state}"
        return (f"job {visible(self._status.job)}, {state}: rank {view.rank}{where}, {what}",), self._found


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


@contextlib.contextmanager
def _keys(pressed: Callable[[str], None]) -> Generator[None]:
    """Keys are told as they are pressed, and nothing is echoed, while the context lasts."""
    loop, descriptor = asyncio.get_running_loop(), sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read() -> None:
        try:
            data = os.read(descriptor, 1024)
        except OSError:  # the terminal has gone
            data = b""
        if not data:
            loop.remove_reader(descriptor)
            pressed("q")
            return
        pressed(decoder.decode(data))

    tty.setcbreak(descriptor)
    loop.add_reader(descriptor, read)
    try:
        _write(_ENTER)
        yield
    finally:
        loop.remove_reader(descriptor)
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        with contextlib.suppress(OSError):
            _write(_LEAVE)
