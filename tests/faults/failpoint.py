"""Named points at which a process dies, once a test has armed one of them.

In a worker's script:

    reached("between commit and checkpoint, rank 0")

In an agent nothing of the kind is in the product. It is started through this file instead, which wraps the methods of
the master's ledgers and then becomes `elastic-run`:

    python failpoint.py python -m elastic_run --nnodes=2 ...

A test arms a point by a file of that name in the job's directory, where agents and workers run. Whoever gets there
first removes the file and dies by SIGKILL, so that each arming kills one process, and exactly there.
"""

import asyncio
import os
import runpy
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

LAUNCHER = (sys.executable, str(Path(__file__).resolve()))
"""What comes before an agent's command line, so that it has these points."""

VOTED = Path("voted")
"""A file with the round and the step of the last cut for which some ranks have voted, and not all."""

WRITES = ("before", "inside", "after")
"""Where in the ledgers' transaction: it is not sent; it is sent and its answer is not read; it is durable, and no
worker has been told."""


def arm(directory: Path, point: str) -> None:
    """The first process of this job that gets to `point` from now on will die there."""
    (directory / f"{point}.armed").touch()


def is_armed(directory: Path, point: str) -> bool:
    """Whether nobody has died there yet."""
    return (directory / f"{point}.armed").exists()


def taken(point: str) -> bool:
    """Whether it was armed; it is not any more."""
    try:
        Path(f"{point}.armed").unlink()
    except FileNotFoundError:
        return False
    return True


def reached(point: str) -> None:
    """Dies here, if that is what the test wants."""
    if taken(point):
        die()


def die() -> None:
    """By SIGKILL, which leaves no time for anything."""
    os.kill(os.getpid(), signal.SIGKILL)


def vote(round: int, step: int) -> str:
    """What `VOTED` holds."""
    return f"round {round}, step {step}"


def write_point(when: str, what: str) -> str:
    """Its name; `what` is "a cut", or "leases" that somebody has not had before."""
    return f"{when} the write of {what}"


def deposed_point(when: str, what: str) -> str:
    """The same, where the master does not die and another one is elected."""
    return f"deposed {write_point(when, what)}"


READING = "while a new master reads the ledgers"


def _wrap() -> None:
    """Puts the points into this process's master."""
    from elastic_run.master.data.ledger import Ledger, State, fresh
    from elastic_run.master.data.ledger_service import Ledgers
    from elastic_run.master.data.stored_ledger import read
    from elastic_run.rendezvous.base.errors import Deposed
    from elastic_run.rendezvous.store.contract import Delete

    service: Any = Ledgers  # Any: its methods are its own, and are replaced here
    write: Callable[..., Awaitable[None]] = service._write_batch
    listing: Callable[..., Awaitable[Sequence[object]]] = service._list

    def leased(state: State) -> set[tuple[int, int, int]]:
        return {(one.rank, one.part, piece.shard_index) for one in state.owners for piece in one.leases}

    def contents(batch: Sequence[tuple[Any, bytes]]) -> str:
        for entry, value in batch:
            new = read(value)
            old = read(entry.value) if entry.value else fresh(new.dataset)
            if new.cuts > old.cuts:
                return "a cut"
            if leased(new) - leased(old):
                return "leases"
        return "marks"

    async def writing(self: Any, batch: Sequence[tuple[Any, bytes]]) -> None:
        if not batch:  # only a proof that this master leads
            await write(self, batch)
            return
        what = contents(batch)

        async def depose() -> None:
            await self._store.txn([], [Delete(self._keys.leader)])

        reached(write_point("before", what))
        if taken(deposed_point("before", what)):
            await depose()
        ends = taken(write_point("inside", what))
        deposed = taken(deposed_point("inside", what))
        work = asyncio.ensure_future(write(self, batch))
        if ends or deposed:
            # The request is with etcd by then, which may have applied it or not: both have to come out right.
            await asyncio.wait({work}, timeout=0.001)
        if ends:
            die()
        if deposed:
            await depose()
        await work
        reached(write_point("after", what))
        if taken(deposed_point("after", what)):
            await depose()
            raise Deposed("the test has taken the leadership away, after a write and before its answers")

    async def reading(self: Any, prefix: str) -> Sequence[object]:
        items = await listing(self, prefix)
        if items:  # so it is not the job's first master
            reached(READING)
        return items

    ledger: Any = Ledger
    cut: Callable[..., object] = ledger._cut

    def voting(self: Any, request: Any) -> object:
        answer = cut(self, request)
        if answer is None:
            VOTED.write_text(vote(request.round, request.step))
        return answer

    service._write_batch, service._list, ledger._cut = writing, reading, voting


if __name__ == "__main__":
    _wrap()
    module = sys.argv.index("-m") + 1
    name = sys.argv[module]
    sys.argv = sys.argv[module:]
    runpy.run_module(name, run_name="__main__", alter_sys=True)
