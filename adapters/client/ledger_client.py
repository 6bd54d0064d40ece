"""One process's side of the ledger: its requests, one at a time and numbered, and what it has.

The ledger itself is `master/data/ledger.py`; a script uses `shards.py`.

Leases are asked for when half of what was leased ahead is used, and the answer lies in the socket until somebody looks.
How many are ahead follows from this process's own pace. What was said to be done travels with the next request.
"""

import contextlib
import os
import threading
import time
import weakref
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Literal

from ...master.data.ledger import DONE, Answer, Dataset, Mark, Piece, Position, Request, Tracking
from ...master.data.shard import Layout, ShardsError, Span
from ...master.data.stream import StreamLayout
from ...rendezvous.base.visible import visible
from ...rendezvous.wire.frame import TooLong
from ...rendezvous.wire.values import Malformed
from . import pushes
from .channel import Call, Channel, say_line, say_wait
from .own_ledger import OwnLedger
from .saves import Saves
from .whose_ledger import Client

AHEAD = 0.5
"""Seconds of work, at this worker's own pace, that it leases ahead: few requests, and little that a lost worker had."""

MOST = 64
"""Shards leased ahead at most."""

MOST_OF_ALL = 4096
"""The same, of all ranks together: the master keeps every lease in one value of the store, which has a limit."""

HELD = 256
"""Shards that a process may have begun and not called done() of."""

QUIET = 20.0
"""Seconds that a wait may take before a person is told why."""

REMINDER = 60.0
"""Seconds until that is told again."""

CLOSING = 5.0
"""Seconds that giving leases back may take; without it they come back when the round ends."""


class ShardsMisused(ShardsError, RuntimeError, public=True):
    """The script calls what cannot be called, or not now."""


class ShardsNotDone(ShardsError, RuntimeError, public=True):
    """There are no more shards, or too many begun ones, and the script has not said of all of them that they are done.

    Iterating can go on afterwards: whoever finishes shards in the background waits for them, and begins a loop again.
    """


class ShardsRefused(ShardsError, RuntimeError, public=True):
    """The ranks contradict each other, or this run of the job an earlier one."""


class RoundOver(ShardsError, RuntimeError, public=True):
    """The job is in another round. The launcher ends this worker; what it does until then counts for nothing."""


@dataclass(slots=True)
class _Numbers:
    """What the ledger knows this process by, in one round; a dataset that is closed and opened again counts on."""

    sequence: int = 0
    cuts: int = 0
    holder: "weakref.ref[Leaser] | None" = None


_numbers: dict[tuple[Client, int, str], _Numbers] = {}
"""By client, part and dataset. It belongs to the process, because to the ledger the process is one."""


@dataclass(eq=False)
class Leaser:
    """One owner's requests, one at a time, and what it has.

    Attributes:
        layout, tracking, client, part: of what, and whose.
        saves: told of checkpoints; None for ranks that write none.
        io: held by whoever asks.
        lock: of what other threads may change: `begun` and `marks`.
        queue: leases that are not begun.
        begun: by shard index, what was given out and is not done; parts do not follow that.
        marks: what was said, and not sent.
        granted: by shard index, the number of its lease, where its gradients go to tables.
        pushing: a shard of which a push is on its way, or may come to a server still.
        rest: of a shard in parts, one of which is done: from which record on the next part is.
        restored: the position that was loaded.
        of_rows: the position of rows of tables, where the ledger has to be told.
        outstanding: the request whose answer is not known.
        ended: there will be no more leases.
        dry: the last exchange gave none, for now.
        wanted: how many leases it wants to be ahead.
        pace: seconds that a shard takes here.
    """

    layout: Layout | StreamLayout
    tracking: Tracking
    client: Client
    part: int
    saves: Saves | None = None
    io: "threading.RLock" = field(default_factory=threading.RLock)
    lock: threading.Lock = field(default_factory=threading.Lock)
    pid: int = field(default_factory=os.getpid)
    queue: "deque[Piece]" = field(default_factory=deque[Piece])
    begun: dict[int, Span] = field(default_factory=dict[int, Span])
    marks: dict[int, int] = field(default_factory=dict[int, int])
    granted: dict[int, int] = field(default_factory=dict[int, int])
    pushing: Span | None = None
    rest: tuple[Span, int] | None = None
    restored: Position | None = None
    of_rows: Position | None = None
    outstanding: Request | None = None
    opened: bool = False
    ended: bool = False
    dry: bool = False
    closed: bool = False
    broken: Exception | None = None
    wanted: int = 1
    pace: float | None = None
    given: float | None = None
    sent: float = 0.0
    wire: Channel | OwnLedger | None = None
    numbers: _Numbers = field(default_factory=_Numbers)

    # -- what others call -----------------------------------------------------------------------------------------

    def take(self) -> tuple[Span, int] | None:
        """The next shard and how many of its records are done; None at the end."""
        with self.io:
            self._measure()
            self.begin()
            if len(self.begun) >= HELD:
                raise ShardsNotDone(f"{self.not_done()}; a rank cannot hold more at once: call done() of each")
            self._look()
            if self.tracking == "ack":
                self._ask_of_lost()
            if not self._fill():
                return None
            piece = self.queue.popleft()
            span = self.layout.span_of(piece)
            if not self.part:
                with self.lock:
                    self.begun[piece.shard_index] = span
            if self._low and not self.outstanding:
                self._exchange(self._wants())
            self.given = time.monotonic()
            return span, piece.offset

    def said(self, span: Span, offset: int) -> None:
        """Something is done of a shard that was given out here."""
        with self.lock:
            if span.shard_index not in self.begun:  # another worker has done it, and the ledger knows
                return
            self.marks[span.shard_index] = offset
            if offset == DONE:
                del self.begun[span.shard_index]
                self.granted.pop(span.shard_index, None)
        if self.saves:
            self.saves.committed()

    def check_mine(self, span: Span) -> None:
        """Raises ShardsMisused where this process cannot speak for it."""
        if self.part:
            raise ShardsMisused(
                f"shard {span.key} was leased in a process that cannot mark it done: the main process does that with "
                "Shards.mark(shard.index)"
            )
        self._check_process()
        if self.closed and span.shard_index in self.begun:
            raise ShardsMisused(f"shard {span.key} was returned by close(): another worker may be processing it")

    def mark(self, shard_index: int, offset: int) -> None:
        """Something is done of a shard that a part was given."""
        with self.io:
            self.begin()
            with self.lock:
                self.marks[shard_index] = offset
                self.begun.pop(shard_index, None)
            if self.tracking == "ack":
                self.flush()
                return
            self._look()
            self._tell()
        if self.saves:
            self.saves.committed()

    def flush(self) -> None:
        """Everything said is durable when this returns."""
        with self.io:
            self._check_usable()
            if self.outstanding:
                self._settle()
            if self.marks:
                self.begin()
                self._exchange(0)
                self._settle()

    def cut(self, step: int) -> Position:
        """The position of all ranks."""
        if self.tracking == "ack":
            raise ShardsMisused(
                f"state_dict() of dataset {self.layout.name!r} with commit='ack': the position is in the job's "
                "store, not in checkpoints; leave it out, or use commit='checkpoint'"
            )
        with self.io:
            self.begin()
            if self.outstanding:
                self._settle()
            self._send(replace(self._numbered("cut"), cut=self.numbers.cuts + 1, step=step, marks=self._outgoing()))
            position = self._settle().position
            assert position is not None, "that is what an ok to a cut has"
        if self.saves:
            self.saves.taken()
        return position

    def restore(self, position: Position) -> None:
        """Is told to the ledger when the dataset is opened."""
        if self.tracking == "ack":
            raise ShardsMisused(
                f"load_state_dict() of dataset {self.layout.name!r} with commit='ack': the position is in the job's "
                "store; leave it out, or use commit='checkpoint'"
            )
        with self.io:
            if self.opened or self.outstanding:
                raise ShardsMisused(
                    f"load_state_dict() of dataset {self.layout.name!r} after the first use: call it before the "
                    "first shard, and before state_dict()"
                )
            self.restored = position

    def begin(self) -> None:
        """Opens the dataset, once; parts find it open."""
        with self.io:
            self._check_usable()
            if self.opened:
                return
            dataset = replace(self.layout.dataset(self.tracking), alone=bool(pushes.registered))
            if self.wire is None:
                self._connect(dataset)
            if self.part:
                self.opened = True
                return
            if self.outstanding is None:
                # What that position has and older rows of tables have not would be left out: their marks say it all.
                restored = self.of_rows if dataset.alone else self.restored
                if self.restored is not None and dataset.alone and self.client.rank == 0:
                    words = "goes on from what the rows of its tables have, and not from the position that was loaded"
                    say_line(f"dataset {self.layout.name!r} {words}")
                self._send(replace(self._request("open"), dataset=dataset, restored=restored))
            self._settle()

    def close(self) -> None:
        """Says what is done, gives back the rest, and hangs up; a second time it does nothing."""
        if self.pid != os.getpid():
            return  # a copy, in a process that was forked: its parent goes on
        with self.io:
            if self.closed:
                return
            self.closed = True
            try:
                if self.opened and self.broken is None:
                    self._give_back(time.monotonic() + CLOSING)
            finally:
                if self.wire:
                    self.wire.close()

    def quit(self) -> None:
        """`close`, where nobody is left to hear of what goes wrong: the round's end gives back what is lost here."""
        with contextlib.suppress(ShardsError, OSError, Malformed, TooLong):
            self.close()

    # -- requests -------------------------------------------------------------------------------------------------

    def _connect(self, dataset: Dataset) -> None:
        key = (self.client, self.part, self.layout.name)
        numbers = _numbers.setdefault(key, _Numbers())
        holder = numbers.holder() if numbers.holder else None
        if holder is not None and not holder.closed and holder.pid == self.pid:
            raise ShardsMisused(
                f"dataset {self.layout.name!r} is already used by this process: close() the first one, or give this "
                "one another name"
            )
        if self.client.agent:
            self.wire = Channel(self.client.agent, rank=self.client.rank)
            self.numbers = numbers
        else:
            self.wire = OwnLedger(dataset)
        numbers.holder = weakref.ref(self)

    def _request(self, kind: Literal["open", "exchange", "cut"]) -> Request:
        return Request(kind, self.layout.name, self.client.round, self.client.rank, self.client.size, self.part)

    def _numbered(self, kind: Literal["exchange", "cut"]) -> Request:
        self.numbers.sequence += 1
        return replace(self._request(kind), sequence=self.numbers.sequence)

    def _exchange(self, wants: int, release: tuple[int, ...] = ()) -> None:
        self._send(replace(self._numbered("exchange"), marks=self._outgoing(), release=release, wants=wants))

    def _outgoing(self) -> tuple[Mark, ...]:
        with self.lock:
            marks, self.marks = self.marks, {}
        return tuple(Mark(shard_index, offset) for shard_index, offset in marks.items())

    def _send(self, request: Request) -> None:
        assert self.wire is not None and self.outstanding is None
        self.outstanding, self.sent = request, time.monotonic()
        try:
            self.wire.send(Call("ledger", self.client.round, request))
        except (OSError, TooLong) as error:
            self.broken = error
            raise

    def _settle(self, deadline: float | None = None) -> Answer:
        """Waits for the outstanding answer, and takes it in. Raises the errors above."""
        request = self.outstanding
        assert request is not None
        pushes.await_work(self.wire)
        try:
            answer = self._wait(request, deadline)
        except (ShardsError, OSError, Malformed, TooLong) as error:
            self.broken = error
            raise
        self.outstanding = None
        for shard_index in answer.lost:
            self.queue = deque(piece for piece in self.queue if piece.shard_index != shard_index)
            with self.lock:
                self.begun.pop(shard_index, None)
        if request.kind == "open":
            self.opened = True
        elif request.kind == "cut":
            self.numbers.cuts = request.cut
        else:
            self.queue.extend(answer.leases)
            self.granted.update((piece.shard_index, answer.lease) for piece in answer.leases if answer.lease)
            self.ended |= answer.ended
            if request.wants:
                self.dry = not answer.leases
        return answer

    def _wait(self, request: Request, deadline: float | None) -> Answer:
        assert self.wire is not None
        told = time.monotonic() + QUIET
        while True:
            back = self.wire.receive(None if deadline is None else max(0.001, deadline - time.monotonic()))
            answer = back.answer or Answer("later", back.text)
            match answer.kind:
                case "ok":
                    return answer
                case "stale":
                    raise RoundOver(
                        f"{visible(answer.text)}; the launcher ends this worker, and its work since then is repeated"
                    )
                case "refused":
                    raise ShardsRefused(visible(answer.text))
                case "later":
                    if time.monotonic() >= told:
                        told = time.monotonic() + REMINDER
                        say_wait(self.client.rank, answer.text)
                    self.wire.send(Call("ledger", self.client.round, request))

    def _give_back(self, deadline: float) -> None:
        if self.outstanding:
            self._settle(deadline)
        # What a part has given out, the main process may still say to be done.
        rest = {*(piece.shard_index for piece in self.queue), *self.begun}
        if self.pushing:  # its last push may still come to a server: only a new lease tells it from another worker's
            rest.discard(self.pushing.shard_index)
        if rest or self.marks:
            self._exchange(0, tuple(sorted(rest)))
            self._settle(deadline)

    def _fill(self) -> bool:
        """Waits until there is something in the queue; False where there will be nothing."""
        had_all = False
        while not self.queue:
            if self.outstanding:
                self._settle()
                continue
            if self.ended or self.dry:
                if self.part:
                    return False
                self._all_done()
            if self.ended:
                self.flush()
                return False
            if self.dry and had_all:
                raise ShardsRefused(
                    f"the ledger of {self.layout.name!r} has shards of rank {self.client.rank}, and that has none: "
                    "an earlier use of the dataset in this process could not return them; restart the job"
                )
            had_all = self.dry
            self._exchange(self._wants())
        return True

    @property
    def _low(self) -> bool:
        """There is little left, and more to be had."""
        return not (self.ended or self.dry) and len(self.queue) <= self.wanted // 2

    def _ask_of_lost(self) -> None:
        """After a while without a word, says what is done, and hears what idle workers have done of the queue.

        It waits for the answer: a round trip, once in AHEAD seconds, against doing a shard in vain.
        """
        if not self.part and self.queue and time.monotonic() >= self.sent + AHEAD:
            if self.outstanding:
                self._settle()
            self._exchange(self._wants() if self._low else 0)
            self._settle()

    def _look(self) -> None:
        """Takes in the outstanding answer if it is there."""
        if self.outstanding and self.wire and self.wire.ready():
            self._settle()

    def _tell(self) -> None:
        """Sends what was said, once in a while."""
        if self.marks and not self.outstanding and time.monotonic() >= self.sent + AHEAD:
            self._exchange(0)

    # -- how much, and what is missing ----------------------------------------------------------------------------

    def _measure(self) -> None:
        if self.given is not None:
            seconds = time.monotonic() - self.given
            self.pace = seconds if self.pace is None else 0.7 * self.pace + 0.3 * seconds
            self.given = None

    def _wants(self) -> int:
        if self.pace is not None:
            most = max(1, min(MOST, MOST_OF_ALL // self.client.size))
            enough = most if self.pace * most <= AHEAD else max(1, int(AHEAD / self.pace))
            self.wanted = min(2 * self.wanted, enough)
        return max(1, self.wanted - len(self.queue))

    def _all_done(self) -> None:
        if self.begun:
            raise ShardsNotDone(
                f"there are no more shards for this rank, and {self.not_done()}: call done() on each when its "
                "records are used, before the loop asks for the next; or finish them now, and start the loop again"
            )

    def not_done(self) -> str:
        with self.lock:
            keys = [span.key for span in self.begun.values()]
        more = f" and {len(keys) - 5} more" if len(keys) > 5 else ""
        return (
            f"dataset {self.layout.name!r} has shards that were started and are not done: {', '.join(keys[:5])}{more}"
        )

    def _check_usable(self) -> None:
        self._check_process()
        if self.broken is not None:
            raise self.broken
        if self.closed:
            raise ShardsMisused(f"dataset {self.layout.name!r} was closed: declare it again to continue")

    def _check_process(self) -> None:
        if self.pid != os.getpid():
            raise ShardsMisused(
                f"dataset {self.layout.name!r} belongs to another process: give this one a part of it, "
                "shards.part(number)"
            )
