"""What a script uses for leased data: shards of records that each rank asks for, as fast as it is.

    for shard in elastic_run.data.shards("train", 1_000_000, shard_size=1000, epochs=3):
        for index in shard.indices:
            ...
        shard.done()

The ledger decides who gets what (`master/data/ledger.py`), and arithmetic what is in a shard (`master/data/shard.py`).
Here is what a script sees of it. Leases are asked for before they are needed (`ledger_client.py`), and what is done
travels with the next request, so a worker does not wait for a round trip. Its errors: `elastic_run.exceptions`.
"""

import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn, Self

from ...master.data.ledger import DONE, Tracking
from ...master.data.shard import Files, Layout, Span
from ...master.data.stream import StreamLayout
from . import pushes
from .ledger_client import Leaser, ShardsMisused
from .saves import Saves
from .whose_ledger import Client, NoLedger, client_of

_leasers: "weakref.WeakSet[Leaser]" = weakref.WeakSet()
"""Of this process's datasets."""


def list_opened() -> list[Leaser]:
    """Those of this process that are open."""
    return [each for each in _leasers if each.opened and not each.closed and each.pid == os.getpid()]


def check_alone(leaser: Leaser) -> None:
    """Raises ShardsMisused where a shard of another dataset is begun here."""
    for each in list_opened():
        if each is not leaser and each.client == leaser.client and each.begun and not each.rest:
            raise ShardsMisused(
                f"{each.not_done()}, and a shard of {leaser.layout.name!r} is wanted: what is computed from two shards "
                "at a time cannot be told apart where its gradients go to tables. Call done() of a shard before the "
                "next, also of another dataset"
            )


class Shard:
    """Records that are leased to this process; `elastic_run.data.shards` gives them.

    Attributes:
        epoch: from 0.
        number: which shard of its epoch's data it is, from 0; in other epochs it is the same records.
        index: which shard in the order of all epochs it is, from 0: what `Shards.mark` takes.
        file: the file that `start`, `stop` and `indices` count in; empty where the dataset has no files.
        start, stop: the first record of the whole shard, and the one after its last.
        key: a name for its output (`e00000-s000000123`): no other shard has it, and the same one has it when it is done
            again, so that what is written under it is replaced and not doubled.
        offset: records of it, in the order of their use, that are in the model already; 0 unless a worker was lost in
            the middle of it, or a checkpoint was taken there. Where one was lost whose gradients go to tables, the same
            shard may come in parts, one after the other, each with an offset of its own.
    """

    __slots__ = (
        "_end",
        "_indices",
        "_leaser",
        "_progress",
        "_said",
        "_span",
        "epoch",
        "file",
        "index",
        "key",
        "number",
        "offset",
        "start",
        "stop",
    )

    def __init__(self, leaser: Leaser, span: Span, offset: int, end: int) -> None:
        self._leaser = leaser
        self._span = span
        self._end = end
        self.epoch, self.number, self.index = span.epoch, span.number, span.shard_index
        self.file, self.start, self.stop, self.key = span.file, span.start, span.stop, span.key
        self.offset = offset
        self._indices: Sequence[int] | None = None
        self._progress = 0
        self._said = False

    @property
    def indices(self) -> Sequence[int]:
        """The records to use, in this order: all of the shard, or of this part of it, but the first `offset`."""
        if self._indices is None:
            self._indices = self._leaser.layout.indices(self._span, self.offset)[: len(self)]
        return self._indices

    def __len__(self) -> int:
        """How many `indices` there are."""
        return self._end - self.offset

    def __repr__(self) -> str:
        file = f" of {self.file!r}" if self.file else ""
        return f"<Shard {self.key}: records {self.start} to {self.stop}{file}, {self.offset} of them done>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"shard {self.key} cannot be sent to another process: send its file, indices and key, and call done() here"
        )

    def done(self) -> None:
        """Marks the shard done: every record is in the model, or its output is written. From any thread; no round trip.

        The mark travels with the next request, or with `Shards.flush` and `Shards.state_dict`.

        Raises:
            elastic_run.exceptions.ShardsMisused: it is done already, or `Shards.close` has given it back.
        """
        self._leaser.check_mine(self._span)
        with self._leaser.lock:
            if self._said:
                raise ShardsMisused(
                    f"done() was called twice for shard {self.key}: call it once, after its last record"
                )
        self._push(len(self))
        with self._leaser.lock:
            self._said, self._progress = True, len(self)
        self._report()

    def progress(self, count: int) -> None:
        """Marks the first `count` of `indices` as in the model, so that a checkpoint need not wait for `done`.

        It counts from the beginning of this lease, not of the shard. With commit="ack" it has no effect, because an
        output is of whole shards.

        Args:
            count: records.

        Raises:
            elastic_run.exceptions.ShardsMisused: it goes backwards or beyond the end.
        """
        self._leaser.check_mine(self._span)
        if not isinstance(count, int) or isinstance(count, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise TypeError(f"progress({count!r}) must be a whole number of records")
        with self._leaser.lock:
            if self._said:
                raise ShardsMisused(
                    f"progress({count}) after done() of shard {self.key}: the whole shard was marked done"
                )
            if not self._progress <= count <= len(self):
                raise ShardsMisused(
                    f"progress({count}) of shard {self.key}, which has {len(self)} records to use, {self._progress} "
                    "of which were marked done: progress can neither decrease nor exceed the shard"
                )
            if count == self._progress:
                return
        self._push(count)
        with self._leaser.lock:
            self._progress = count
        if self._leaser.tracking == "checkpoint":
            self._report()

    def _report(self) -> None:
        """Tells the ledger what is done; where outputs are of whole shards, only of a whole one."""
        done = self.offset + self._progress
        if done == len(self._span):
            self._leaser.said(self._span, DONE)
            return
        if done == self._end:
            self._leaser.rest = self._span, done
        if self._leaser.tracking == "checkpoint":
            self._leaser.said(self._span, done)

    def _push(self, count: int) -> None:
        """What is computed from the records up to the first `count` of `indices` goes to the job's servers."""
        for each in pushes.registered if count > self._progress else ():
            lease = self._leaser.granted.get(self._span.shard_index, 0)
            self._leaser.pushing = self._span
            try:
                self._push_to(each, lease, self.offset + self._progress, self.offset + count)
            finally:
                if not each.in_doubt:
                    self._leaser.pushing = None

    def _push_to(self, servers: pushes.Pushes, lease: int, begin: int, end: int) -> None:
        """These records of the shard."""
        order, last = self._leaser.layout.order, end == len(self._span)
        servers.push(order, self._span.shard_index, lease, begin, end, last=last)


class Shards(Iterator[Shard]):
    """The shards of a dataset that this rank gets, through all epochs; `elastic_run.data.shards` makes it.

    It may be used by one thread at a time; `Shard.done` and `Shard.progress` by any.

    Args:
        name, size, shard_size, epochs, shuffle, seed, commit: see `shards`.
        environment: None: this process's own.
    """

    def __init__(
        self,
        name: str,
        size: int | Files,
        *,
        shard_size: int,
        epochs: int = 1,
        shuffle: bool = True,
        seed: int = 0,
        commit: Tracking = "checkpoint",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        layout = Layout(name, size, shard_size, epochs=epochs, shuffle=shuffle, seed=seed)
        layout.dataset(commit)  # refuses another tracking mode
        client = client_of(environment)
        self._lease_by(Leaser(layout, commit, client, 0, Saves(environment) if client.rank == 0 else None))

    def _lease_by(self, leaser: Leaser) -> None:
        self._leaser = leaser
        self._layout = leaser.layout
        _leasers.add(self._leaser)
        # At exit as well, so that a script that leaves its loop early gives back what it has.
        self._finalizer = weakref.finalize(self, self._leaser.quit)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Shard:
        """The next shard. The loop ends when nothing is left for this rank, and the master knows what is done.

        With commit="checkpoint" the first call is collective: the ranks are compared.

        Raises:
            elastic_run.exceptions.ShardsNotDone: nothing is left to lease, and not all that was begun is done.
            elastic_run.exceptions.ShardsRefused: the ranks declare different data, or restored different positions.
            elastic_run.exceptions.ShardsMisused: it was closed, or another process declared it.
            elastic_run.exceptions.RoundOver: the job is in another round.
            elastic_run.exceptions.AgentGone: the launcher has ended.
            elastic_run.exceptions.AgentTimeout: the launcher does not answer.
        """
        if pushes.registered:
            check_alone(self._leaser)
        if (taken := self._cut(self._rest() or self._leaser.take())) is None:
            raise StopIteration
        span, (offset, end, *_) = taken
        return self._shard_of(span, offset, end)

    def _take_whole(self) -> tuple[Shard, list[int]] | None:
        """A shard for who names records as they were drawn, also of several shards at a time: the records at which it
        begins, at which a batch has to end, and at which it ends itself; None at the end."""
        if pushes.registered:
            check_alone(self._leaser)
        if (taken := self._cut(self._leaser.take())) is None:
            return None
        span, edges = taken
        return self._shard_of(span, edges[0], len(span)), edges

    def _cut(self, taken: tuple[Span, int] | None) -> tuple[Span, list[int]] | None:
        """What was taken, or the next lease of which not all is applied: where it begins, the records that no push may
        cross, and its end."""
        while taken is not None:
            span, offset = taken
            lease = self._leaser.granted.get(span.shard_index, 0)
            marks = [self._find_marks(each, span, lease, offset) for each in pushes.registered]
            found = (min(each, len(span)) for each in marks[0]) if marks else (offset,)
            edges = sorted({*found, len(span)})
            if len(edges) > 1:
                return span, edges
            self._leaser.said(span, DONE)
            taken = self._leaser.take()
        pushes.rest()
        return None

    def _find_marks(self, servers: pushes.Pushes, span: Span, lease: int, offset: int) -> list[int]:
        """See `Pushes.cuts`."""
        return servers.cuts(self._layout.order, span.shard_index, lease, offset)

    def _rest(self) -> tuple[Span, int] | None:
        """What follows a part that is done of its shard. Raises ShardsMisused where the last shard is not done."""
        rest, self._leaser.rest = self._leaser.rest, None
        if not pushes.registered or not self._leaser.begun:
            return None
        if not rest:
            raise ShardsMisused(
                "the last shard is not done: what is computed from two shards at a time cannot be told apart where its "
                "gradients go to tables. Call done() of a shard before the next"
            )
        self._leaser.begin()
        return rest

    def _shard_of(self, span: Span, offset: int, end: int) -> Shard:
        """What the script gets of a lease."""
        return Shard(self._leaser, span, offset, end)

    def flush(self) -> None:
        """Returns when the master has stored everything that was marked done.

        Raises:
            elastic_run.exceptions.RoundOver: the job is in another round.
            elastic_run.exceptions.AgentGone: the launcher has ended.
        """
        self._leaser.flush()

    def state_dict(self, step: int | None = None) -> dict[str, object]:
        """Returns the position of all ranks, as plain values. Collective: every rank calls it after the same step.

        It has what each rank had marked done before its call, and nothing else, and is the same on all of them: one
        rank's checkpoint is enough.

        Args:
            step: compared between the ranks, where it is given: the optimizer steps so far, say.

        Raises:
            elastic_run.exceptions.ShardsMisused: commit="ack", whose position is in the job's store and in no
                checkpoint.
            elastic_run.exceptions.ShardsRefused: the ranks give different steps.
            elastic_run.exceptions.RoundOver: the job is in another round.
        """
        if step is not None and (not isinstance(step, int) or isinstance(step, bool) or step < 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"step={step!r} must be a whole number of 0 or more")
        return self._layout.state(self._leaser.cut(step or 0))

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Sets the position, for any number of ranks. Every rank calls it, before the first shard.

        The number of epochs may be another than before. Where gradients go to tables, their rows say what is done,
        whatever the position is, which may be newer or older.

        Args:
            state: what `state_dict` gave.

        Raises:
            elastic_run.exceptions.BadShardsState: the state is of another dataset, or damaged.
            elastic_run.exceptions.ShardsMisused: it comes after the first shard, or with commit="ack".
        """
        self._leaser.restore(self._layout.restored(state))

    def part(self, number: int) -> "Part":
        """Returns shards for another process of this rank, say a loader's; it can be pickled and sent there.

        That process only leases; this one marks its shards done, by `mark`. The first call is collective, as the first
        shard is.

        Args:
            number: from 1, another one for each process that this rank starts in this round.

        Raises:
            elastic_run.exceptions.NoLedger: without elastic-run, the ledger is in this process.
            elastic_run.exceptions.ShardsMisused: gradients go to tables, with what this process itself computes.
        """
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"part({number!r}) must be a whole number from 1")
        client = self._leaser.client
        if pushes.registered:
            raise ShardsMisused(
                f"dataset {self._layout.name!r} cannot be shared with other processes, because gradients go to tables "
                "with shard.done() of this one: iterate here, or use ElasticIterableDataset"
            )
        if not client.agent:
            raise NoLedger(
                f"dataset {self._layout.name!r} cannot be shared with other processes, because without elastic-run "
                "its ledger is in this process: start the script with elastic-run, or load the data in this process"
            )
        self._leaser.begin()
        return Part(self._layout, self._leaser.tracking, client, number)

    def mark(self, index: int, offset: int = DONE) -> None:
        """Marks records done of a shard that a `part` of this rank leased.

        With commit="ack" it returns when the master has stored that, because other ranks may wait for it.

        Args:
            index: `Shard.index`.
            offset: records of the whole shard, in the order of their use, that are in the model: `shard.offset` and
                how many of `indices`; -1: all.

        Raises:
            elastic_run.exceptions.ShardsMisused: the shard has fewer records, or no `part` of this rank has it.
        """
        for name, value, least in (("index", index, 0), ("offset", offset, DONE)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"mark() with {name}={value!r}, which must be a whole number from {least}")
        size = len(self._layout.span(index))
        if offset > size:
            raise ShardsMisused(f"mark() reports {offset} records of shard {index} as done, but it has {size}")
        self._leaser.mark(index, DONE if offset == size else offset)

    def close(self) -> None:
        """Reports what is done, and gives the rest back for other ranks. The end of a `with` calls it, and the exit."""
        pushes.rest()
        self._leaser.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"dataset {self._layout.name!r} cannot be sent to another process: send a part of it, shards.part(number)"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._leaser.quit()  # what it may have to say must not hide that error


@dataclass(frozen=True, slots=True)
class Part:
    """Shards for another process of this rank: iterate over it there, and call `Shards.mark` here. See `Shards.part`.

    The socket is opened where it is iterated over. With commit="ack" it ends when nothing is left to lease, though
    others may still be at work.
    """

    _layout: Layout | StreamLayout
    _tracking: Tracking
    _client: Client
    _number: int

    def __iter__(self) -> Iterator[Shard]:
        leaser = Leaser(self._layout, self._tracking, self._client, self._number)
        try:
            while taken := leaser.take():
                yield Shard(leaser, *taken, len(taken[0]))
        finally:
            leaser.quit()


def shards(
    name: str,
    size: int | Files,
    *,
    shard_size: int,
    epochs: int = 1,
    shuffle: bool = True,
    seed: int = 0,
    commit: Tracking = "checkpoint",
) -> Shards:
    """Returns the shards of a dataset for this rank. Each shard goes to one rank, and to another if that one is lost.

    Every rank declares the same. Nothing is asked for before the first shard is. Under elastic-run the job's master
    has the ledger. Without a launcher this is a world of one, and the ledger ends with the process.

    Args:
        name: of the dataset, one ledger for each; part of the order.
        size: records, or a list of pairs: a file, and its records. Then `Shard.file` is set, and no shard spans two.
        shard_size: records in a shard, a fraction of a second's work or more; a multiple of the batch's size, say.
        epochs: how often each record is used; the iterator goes through all of them.
        shuffle: an order of its own for each epoch, of shards and of the records in each; False: as the data stand.
        seed: of the orders.
        commit: whose word counts when workers are lost. "checkpoint": what the ranks restore, by `state_dict` and
            `load_state_dict` in the model's checkpoints. "ack": `Shard.done`, for outputs that lie elsewhere.

    Returns:
        an iterator of `Shard`, to be used in a `with` or until its end.

    Raises:
        elastic_run.exceptions.BadDataset: an argument makes no sense.
        elastic_run.exceptions.NoLedger: there are several ranks, and no elastic-run around them.
        elastic_run.exceptions.BadEnvironment: the launcher's environment is incomplete.
        TypeError: an argument is of the wrong type.
    """
    return Shards(name, size, shard_size=shard_size, epochs=epochs, shuffle=shuffle, seed=seed, commit=commit)
