"""What is acknowledged: pushes, tables that are opened, leases that begin, one after the other (pure).

Each goes to the backups first and is applied here when all have answered: so what the primary has, its backups have.
Then it is answered. Where a backup has no room for it, the push is refused in that backup's slots, and goes on in the
others, whose backups may have it: so both copies of a slot have the same pushes, in the same order. Whole copies that
no table names yet hear of it after the backups, so that they have none that is refused. Also what was applied before
goes to the backups again: of a primary that was a backup until now, the one before may be the backup, and need not have
all that it told.

A new version meanwhile: the push goes on in the slots whose primary this server still is, and its backups hear of it
again, because some of them may have applied it; the worker, which hears "moved" where slots have gone, sends the same
push again. In slots whose primary is another server now, and whose backup is this one, it is in *doubt*: the new
primary is asked whether it was applied there, and has nothing else done here until that is known. If this server is
their primary again before that, the push goes on.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from .copies import Copies
from .errors import TableMisused
from .marks import Marks, RecordsRefused
from .outbox import Outbox
from .prepared import PreparedPart, PreparedSteps, choose_step, make_part, wanted_of
from .requests import (
    ApplyStep,
    AskApplied,
    ForwardLease,
    ForwardOpen,
    ForwardPrepare,
    ForwardPush,
    OpenTable,
    PeerRequest,
    PrepareGradients,
    PushGradients,
    PushSource,
    ReadMarks,
    Refusal,
    Reply,
)
from .row_memory import TableFull
from .server_events import Array, Connection, Peer, ServerAsked
from .slot_roles import SlotRoles
from .slot_sets import NO_SLOTS, SlotSet, read_slots, write_slots
from .tables import FoundPart, TablePart, Tables, apply_parts, find_parts

Queued = OpenTable | PushGradients | PrepareGradients | ApplyStep | ReadMarks

NOBODY_ASKS = 0
"""In place of a connection: who asked was answered."""

Forwarded = ForwardOpen | ForwardPush | ForwardPrepare | ForwardLease


class RowsMissing(Exception):
    """This server has not what the slot table, or another server, takes it to have: it must end, and another begin."""


@dataclass(slots=True)
class QueuedTask:
    """What was begun, and is not answered yet.

    Attributes:
        connection: of whoever asked.
        request: what was asked; the push that a step has become which is to be applied.
        slots: those that it is for.
        found: of a push: what it has for each table.
        prepared: what is kept of a part of a step.
        waiting: peers that must answer first, and what they were told.
        backed: all backups have answered; who waits has a whole copy.
        cut: some of its slots have got another primary since it was asked.
        full: why it is not applied in some of the slots that were asked for; empty: it is in all.
    """

    connection: Connection
    request: Queued
    slots: SlotSet
    found: list[FoundPart] = field(default_factory=list[FoundPart])
    prepared: PreparedPart | None = None
    waiting: dict[Peer, PeerRequest] = field(default_factory=dict[Peer, PeerRequest])
    backed: bool = False
    cut: bool = False
    full: str = ""

    @property
    def parts(self) -> list[TablePart]:
        """Of a push."""
        return [each.part for each in self.found]


@dataclass(slots=True)
class Doubt:
    """A push of which only another server knows whether it counts, in these slots."""

    source: PushSource
    parts: list[TablePart]
    slots: SlotSet


class PushQueue:
    """Of one server.

    Args:
        me: its incarnation.
        tables, marks, prepared: what is changed.
        copies: from here: they hear of what is applied.
        outbox: where to say it.
    """

    def __init__(
        self, me: Peer, tables: Tables, marks: Marks, prepared: PreparedSteps, copies: Copies, outbox: Outbox
    ) -> None:
        self._me = me
        self._tables = tables
        self._marks = marks
        self._prepared = prepared
        self._copies = copies
        self._outbox = outbox
        self._roles = SlotRoles(0, NO_SLOTS, NO_SLOTS, {}, {}, {}, {})
        self._queue: deque[tuple[ServerAsked, Queued]] = deque()
        self._task: QueuedTask | None = None
        self._begun = 0
        self._resumed: deque[QueuedTask] = deque()  # pushes that an earlier version has begun
        self._doubts: list[Doubt] = []

    @property
    def is_pushing(self) -> bool:
        """Something has been told to backups, and is not applied here."""
        return self._task is not None or bool(self._resumed)

    @property
    def is_idle(self) -> bool:
        """Nothing was asked that is not answered, and nothing is in doubt."""
        return not (self.is_pushing or self._queue or self._doubts)

    @property
    def awaited(self) -> tuple[int, tuple[Peer, ...]]:
        """How many were begun, and who must answer before the one that the others wait behind is done."""
        return self._begun, tuple(self._task.waiting) if self._task is not None else ()

    def add_asked(self, asked: ServerAsked, request: Queued) -> None:
        """Of a worker, under the version that this server goes by."""
        self._queue.append((asked, request))
        self.start_next()

    def start_next(self) -> None:
        """Until one has to wait."""
        while self._task is None:
            if self._resumed:  # they are of no slots whose copy is closing
                self._task = self._resumed.popleft()
            elif self._queue and not self._copies.are_closing:
                self._task = self._begin_task(*self._queue.popleft())
            else:
                return
            if self._task is not None:
                self._forward_task(self._task)

    def _begin_task(self, asked: ServerAsked, request: Queued) -> QueuedTask | None:
        """None where it is refused."""
        self._begun += 1
        if request.version != self._roles.version:
            self._answer(asked.connection, "moved")
            return None
        task = QueuedTask(asked.connection, request, self._roles.mine)
        try:
            self._check_task(task, asked)
        except TableMisused as error:
            self._answer(asked.connection, "misused", str(error))
        except TableFull as error:
            self._answer(asked.connection, "full", str(error))
        except RecordsRefused as error:
            self._answer(asked.connection, "records", str(error))
        else:
            return task
        return None

    def _answer(self, connection: Connection, refused: Refusal, text: str = "", count: int = 0) -> None:
        self._outbox.answer(connection, Reply(refused, text, self._roles.version, count))

    def _check_task(self, task: QueuedTask, asked: ServerAsked) -> None:
        """All that can be wrong. Raises TableMisused, TableFull, RecordsRefused."""
        match task.request:
            case OpenTable(table, _):
                self._tables.open_table(table)
            case ReadMarks() as asked_marks:
                self._marks.take_lease(asked_marks, task.slots)
            case PushGradients(names, source, _):
                if not task.slots.any():
                    return
                parts = self._tables.read_push(names, asked.arrays, task.slots)
                new = self._marks.judge(source, task.slots)
                task.found = find_parts(parts)
                self._tables.check_room(_choose_found(task, new), self._prepared.count_bytes())
            case PrepareGradients(names, source, share, _):
                parts = self._tables.read_push(names, asked.arrays, task.slots)
                task.slots = self._marks.judge(source, task.slots) if task.slots.any() else NO_SLOTS
                chosen = [part.choose_slots(task.slots) for part in parts]
                task.found = find_parts(chosen)
                task.prepared = make_part(source, share, chosen, task.slots)
                self._prepared.forget_decided(source)
                kept = self._prepared.count_bytes(source, share.rank)
                self._tables.check_prepared(task.found, task.prepared.bytes, kept)
            case ApplyStep():
                self._begin_step(task, task.request)

    def _begin_step(self, task: QueuedTask, request: ApplyStep) -> None:
        """From here on a step that is to be applied is a push; of no slots where it is applied already.

        Raises RecordsRefused.
        """
        source, parts = choose_step(self._prepared, self._marks, request, task.slots)
        if source is None:
            task.slots = NO_SLOTS
        names = tuple(part.rows.spec.name for part in parts)
        task.request = PushGradients(names, source or wanted_of(request), request.version)
        task.found = find_parts(parts)
        self._tables.make_room(task.found)

    def _holders(self) -> dict[Peer, SlotSet]:
        """Who must have everything of which of this server's slots, before this server has it."""
        found = dict(self._roles.backups)
        for peer, slots in self._copies.whole.items():
            found[peer] = found.get(peer, NO_SLOTS) | slots
        return found

    def _forward_task(self, task: QueuedTask) -> None:
        """Tells all backups; applied at once where there is none."""
        task.waiting.clear()
        task.backed = isinstance(task.request, PushGradients) and not task.slots.any()  # then nobody is told
        for peer in self._roles.backups if not task.backed else ():
            self._forward_to(peer, task)
        if isinstance(task.request, OpenTable):
            holders = self._holders()
            for peer in self._roles.joining:
                if peer not in holders:
                    self._outbox.tell_peer(peer, ForwardOpen(self._me, task.request.table, self._roles.version))
        self._finish_task()

    def _forward_to(self, peer: Peer, task: QueuedTask) -> None:
        version, arrays = self._roles.version, list[Array]()
        match task.request:
            case OpenTable(table, _):
                request = ForwardOpen(self._me, table, version)
            case ReadMarks(dataset, shard_index, lease, _, offsets, floors):
                request = ForwardLease(self._me, dataset, shard_index, lease, version, offsets, floors)
            case PushGradients(names, source, _) | PrepareGradients(names, source, _, _) as pushed:
                holders = self._copies.whole if task.backed else self._roles.backups
                slots = holders.get(peer, NO_SLOTS) & task.slots
                parts = [part.choose_slots(slots) for part in task.parts]
                arrays = [array for part in parts for array in (part.ids, part.gradients)]
                if isinstance(pushed, PrepareGradients):
                    request = ForwardPrepare(self._me, names, source, pushed.share, write_slots(slots), version)
                else:
                    request = ForwardPush(self._me, names, source, write_slots(slots), version)
            case ApplyStep():
                raise AssertionError("a step that is applied is a push by then")
        task.waiting[peer] = request
        self._outbox.tell_peer(peer, request, arrays)

    def take_answer(self, peer: Peer, request: Forwarded, reply: Reply) -> None:
        """Of a backup. One that has no room has the asker refused. One that refuses otherwise is waited for until a
        new version says who is to be."""
        pushed = isinstance(request, ForwardPush | ForwardPrepare)
        lost = reply.refused == "copy" and pushed and self._is_of_copy(peer, request)
        if lost:
            self._copies.lose_whole(peer)
        if (task := self._task) is None or task.waiting.get(peer) is not request:
            return
        if reply.refused in ("full", "misused") and isinstance(request, ForwardOpen):
            self._task = None
            self._answer(task.connection, reply.refused, f"a server that keeps copies refuses: {reply.text}")
            self._copies.wake_idle()
        elif reply.refused == "full" and not task.backed:
            self._leave_out(task, peer, reply)
        elif (
            reply.refused == "full" and not self._copies.were_said
        ):  # else the next version names it, and it is told anew
            self._copies.lose_whole(peer)
            del task.waiting[peer]
        elif lost or not reply.refused:
            del task.waiting[peer]
        self._finish_task()
        self.start_next()

    def _is_of_copy(self, peer: Peer, request: ForwardPush | ForwardPrepare) -> bool:
        """Whether it was told as to one that has a whole copy."""
        return bool((read_slots(request.slots) & self._copies.whole.get(peer, NO_SLOTS)).any())

    def _finish_task(self) -> None:
        """Applies and answers what all backups have, and all whole copies."""
        task = self._task
        if task is None or task.waiting:
            return
        if not task.backed:
            task.backed = True
            for peer in self._copies.whole:
                self._forward_to(peer, task)
            if task.waiting:
                return
        self._task = None
        match task.request:
            case OpenTable(table, _):
                self._answer(task.connection, "", count=self._tables.find_table(table.name).count)
            case ReadMarks() as asked:
                marks = self._marks.read_lease(asked, task.slots)
                self._outbox.answer(task.connection, Reply(version=self._roles.version, marks=marks))
            case PushGradients(_, source, _):
                try:
                    count = self._apply_push(task, source) if task.slots.any() else 0
                except TableFull as error:  # there was room when it was begun
                    if any((slots & task.slots).any() for slots in self._holders().values()):
                        raise RowsMissing(f"no room for a push that the backups have: {error}") from None
                    task.full, count = str(error), 0
                self._answer(task.connection, "moved" if task.cut else "full" if task.full else "", task.full, count)
            case PrepareGradients():
                if task.prepared is not None and task.slots.any():
                    self._prepared.put_part(task.prepared)
                self._answer(task.connection, "")
            case ApplyStep():
                raise AssertionError("a step that is applied is a push by then")
        self._copies.wake_idle()

    def _leave_out(self, task: QueuedTask, peer: Peer, reply: Reply) -> None:
        """A push is not applied in the slots whose backup has no room for it, and has not applied it before."""
        out = task.slots & self._roles.backups.get(peer, NO_SLOTS) & ~read_slots(reply.applied)
        if out.any():
            task.full = f"a server that keeps copies refuses: {reply.text}"
        task.slots = task.slots & ~out
        task.found = find_parts([part.choose_slots(task.slots) for part in task.parts])
        del task.waiting[peer]

    def _apply_push(self, task: QueuedTask, source: PushSource) -> int:
        new = self._marks.find_new(source, task.slots)
        if not new.any():
            return 0
        found = _choose_found(task, new)
        changes = apply_parts(found, reuse=not self._copies.are_under_way, at=source.at)
        self._marks.advance(source, task.slots)
        self._prepared.forget_applied(source, task.slots)
        self._copies.send_applied([each.part for each in found], changes, new)
        return sum(len(each.part.ids) for each in found)

    def reconnect_peer(self, peer: Peer) -> None:
        """Its connection was lost: it is told again what it has not answered."""
        self._ask_doubts(peer)
        if self._task is not None and peer in self._task.waiting:
            self._forward_to(peer, self._task)

    def follow_roles(self, roles: SlotRoles) -> None:
        """A new version. The copies have followed it already."""
        self._roles = roles
        begun = [self._task, *self._resumed] if self._task is not None else list(self._resumed)
        doubts, self._task, self._doubts = self._doubts, None, []
        self._resumed.clear()
        for task in begun:
            if isinstance(task.request, PushGradients):
                self._follow_push(task, task.request)
            else:
                self._answer(task.connection, "moved")
        for doubt in doubts:
            names = tuple(part.rows.spec.name for part in doubt.parts)
            request = PushGradients(names, doubt.source, roles.version)
            self._split_push(QueuedTask(NOBODY_ASKS, request, doubt.slots), doubt.source, doubt.parts)
        for peer in roles.kept_of:
            self._ask_doubts(peer)
        if not self.is_pushing:
            self._copies.wake_idle()
        self.start_next()

    def _follow_push(self, task: QueuedTask, request: PushGradients) -> None:
        if (task.slots & ~self._roles.mine).any():
            task.cut = True
        if not (task.slots & self._roles.mine).any():
            self._answer(task.connection, "moved")
        self._split_push(task, request.source, task.parts)

    def _split_push(self, task: QueuedTask, source: PushSource, parts: Sequence[TablePart]) -> None:
        """It goes on where this server is the primary. Where another is now, and this server the backup, it may have
        been applied there: in doubt."""
        if (doubtful := task.slots & self._roles.kept).any():
            self._doubts.append(Doubt(source, [part.choose_slots(doubtful) for part in parts], doubtful))
        task.slots = task.slots & self._roles.mine
        task.found = find_parts([part.choose_slots(task.slots) for part in parts])
        if task.slots.any():
            self._resumed.append(task)

    def is_in_doubt(self, peer: Peer) -> bool:
        """Whether that primary has to say first what it has applied."""
        slots = self._roles.kept_of.get(peer, NO_SLOTS)
        return any((doubt.slots & slots).any() for doubt in self._doubts)

    def _ask_doubts(self, peer: Peer) -> None:
        """All at once, and before that peer is told anything else that can wait there for its own doubts."""
        slots = self._roles.kept_of.get(peer, NO_SLOTS)
        for doubt in self._doubts:
            if (doubt.slots & slots).any():
                ask = AskApplied(self._me, doubt.source, write_slots(doubt.slots & slots), self._roles.version)
                self._outbox.tell_peer(peer, ask)

    def settle_doubt(self, peer: Peer, request: AskApplied, reply: Reply) -> None:
        """The new primary has answered."""
        asked = read_slots(request.slots)
        if reply.refused or request.version != self._roles.version:
            return
        for doubt in self._doubts:
            if doubt.source == request.source and not (asked & ~doubt.slots).any():
                applied = read_slots(reply.applied) & asked
                self.follow_push(doubt.source, [part.choose_slots(applied) for part in doubt.parts], applied)
                doubt.slots = doubt.slots & ~asked
                break
        self._doubts = [doubt for doubt in self._doubts if doubt.slots.any()]

    def follow_push(self, source: PushSource, parts: Sequence[TablePart], slots: SlotSet) -> None:
        """As a backup: applies what a primary has told, all of these slots. Raises RowsMissing."""
        try:
            new = self._marks.find_new(source, slots)
        except RecordsRefused as error:
            raise RowsMissing(f"a push that its primary has judged does not fit here: {error}") from None
        if new.any():
            chosen = parts if new is slots else [part.choose_slots(new) for part in parts]
            apply_parts(find_parts(chosen), reuse=not self._copies.are_under_way, at=source.at)
        if slots.any():
            self._marks.advance(source, slots)
            self._prepared.forget_applied(source, slots)


def _choose_found(task: QueuedTask, new: SlotSet) -> list[FoundPart]:
    """What a push has for these of its slots."""
    if new is task.slots or not (task.slots & ~new).any():
        return task.found
    return find_parts([part.choose_slots(new) for part in task.parts])
