"""Orders checkpoints of the tables, and finishes those that all servers have written. Nothing waits for it."""

import asyncio
import time
from collections.abc import Callable, Collection

from ...rendezvous.base.cancel import cancel
from ...rendezvous.base.frozen import replace
from ...rendezvous.base.threads import T, Threads
from .checkpoint_folder import CheckpointFolder, CheckpointManifest
from .slot_table import NOBODY, RunningServer, SlotTable

SAVE_SECONDS = 600.0
"""For servers to write one; then it is ordered anew."""

QUIET_SECONDS = 60.0
"""Between two complaints."""

READ_SECONDS = 5.0
"""Between two attempts to read the folder at the beginning."""

FOLDER_SECONDS = 60.0
"""For the folder to answer; one that never does keeps a thread, and nothing else."""


class CheckpointKeeper:
    """Under one leadership.

    Args:
        folder: where they are.
        every: seconds from one to the next.
        say: to people.
        changed: is called when one was finished, or could not be.

    Attributes:
        newest: the last whole one; 0: there is none.
        largest: the largest number of any.
    """

    def __init__(
        self, folder: CheckpointFolder, every: float, say: Callable[[str], None], changed: Callable[[], None]
    ) -> None:
        self._folder, self._every = folder, every
        self._say, self._changed = say, changed
        self._now = asyncio.get_running_loop().time
        self._due = self._now() + every
        self._until = self._now() + max(every, SAVE_SECONDS)  # for the one that is being written
        self._quiet = 0.0
        self._threads = Threads(1)
        self._task: asyncio.Task[None] | None = None
        self._removing: asyncio.Task[None] | None = None
        self._tried = 0  # the last that all servers had written
        self._late = 0  # the last that they had not in time
        self.newest = self.largest = 0
        self._whole_at = 0.0  # when the newest was, seconds since 1970

    async def read_folder(self) -> None:
        """What there is of earlier runs; as long as that cannot be read, the job's tables do not begin."""
        while True:
            try:
                self.newest, self.largest = await self._ask_folder(self._folder.list_versions)
                self._whole_at = await self._ask_folder(lambda: self._folder.find_time(self.newest))
            except OSError as error:
                self._complain(f"{error}: trying again")
                await asyncio.sleep(READ_SECONDS)
            else:
                return

    def order_checkpoint(self, table: SlotTable, running: Collection[RunningServer]) -> SlotTable:
        """The table that asks for one, where that is due; else the same object."""
        now = self._now()
        unfinished = table.checkpoint == table.version > max(self.newest, self._tried)
        if unfinished and now >= self._until and self._late != table.version:
            self._late = table.version
            self._complain(f"not all servers have written checkpoint {table.version} in time")
        writing = self._task is not None or (unfinished and now < self._until)
        if now < self._due or writing or not can_be_saved(table, running):
            return table
        self._due, self._until = now + self._every, now + max(self._every, SAVE_SECONDS)
        if self._removing is None:  # what none will finish any more
            self._removing = asyncio.create_task(self._remove_old(table.version + 1), name="old checkpoints")
        return replace(table, version=table.version + 1, checkpoint=table.version + 1)

    def finish_checkpoint(self, table: SlotTable, running: Collection[RunningServer]) -> None:
        """Says for good that it is whole, once all parts are written."""
        if self._task is None and table.checkpoint > max(self.newest, self._tried) and is_saved(table, running):
            self._tried = table.version
            parts = tuple(table.servers[at].number for at in sorted(set(table.primary)))
            manifest = CheckpointManifest(table.version, parts)
            self._task = asyncio.create_task(self._write(manifest), name=f"checkpoint {table.version}")

    def describe_return(self) -> str:
        """That the job goes back to the newest, for people."""
        age = max(0.0, time.time() - self._whole_at)
        return f"the whole job goes back to checkpoint {self.newest} of its tables, which was whole {age:.0f} s ago"

    @property
    def until(self) -> float | None:
        """When to look again, if nothing changes."""
        return min((each for each in (self._due, self._until) if each > self._now()), default=None)

    async def close(self) -> None:
        """Waits for nothing."""
        await cancel(*(each for each in (self._task, self._removing) if each is not None))

    async def _ask_folder(self, work: Callable[[], T]) -> T:
        """One thing at a time. Raises OSError, TimeoutError among them."""
        try:
            return await self._threads.run(work, FOLDER_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"{self._folder.folder} has not answered in {FOLDER_SECONDS:g} s") from None

    async def _write(self, manifest: CheckpointManifest) -> None:
        try:
            await self._ask_folder(lambda: self._folder.complete_checkpoint(manifest))
            self.newest, self._whole_at = manifest.version, time.time()
        except OSError as error:
            self._complain(str(error))
        finally:
            self._task = None
            self._changed()

    async def _remove_old(self, newest: int) -> None:
        try:
            await self._ask_folder(lambda: self._folder.remove_old(newest))
        except OSError as error:
            self._complain(str(error))
        finally:
            self._removing = None

    def _complain(self, why: str) -> None:
        if self._now() >= self._quiet:
            self._quiet = self._now() + QUIET_SECONDS
            self._say(f"checkpoints of the tables: {why}")


def can_be_saved(table: SlotTable, running: Collection[RunningServer]) -> bool:
    """Every slot is served, and none is on its way to another server (pure)."""
    alive = {each.incarnation for each in running}
    settled = table.serves and not table.lost and set(table.joining) <= {NOBODY}
    return settled and all(table.servers[at].incarnation in alive for at in set(table.primary))


def is_saved(table: SlotTable, running: Collection[RunningServer]) -> bool:
    """All primaries have written their parts of the checkpoint that this very table orders (pure)."""
    saved = {each.incarnation: each.saved for each in running}
    savers = {table.servers[at].incarnation for at in set(table.primary)}
    return (
        table.serves and table.checkpoint == table.version and {saved.get(each) for each in savers} == {table.version}
    )
