"""One server, as a pure function of what happens: it opens no socket and reads no clock.

Where rows may be on disk it reads and writes them there, of which nothing depends but how long it takes.

    server_events.py  what happens, and what it wants done
    push_queue.py     what is acknowledged: backups first, one after the other
    prepared.py       steps of all ranks that are not applied yet
    copies.py         slots on their way from one server to another
    tables.py         rows; marks.py: how far each shard is in them

Invariants. What a primary has applied, each of its backups has, and so has each whole copy of its slots. A row and the
mark of its slot change together, and move together. Whoever asks under an earlier version of the slot table than this
server's is refused, and under a later one has to wait until this server has read it. A server keeps what it has of a
slot while the versions that it reads say that it is the slot's primary or backup, or joins it from the same source; it
removes the rest some rows at a time, and no copy of the slot begins before that is done.
"""

from ...master.servers.slot_table import SLOTS, SlotTable
from .copies import Arrivals, Copies
from .errors import TableMisused
from .marks import Marks
from .offset_marks import write_applied
from .outbox import Outbox
from .prepared import PreparedSteps, make_part
from .push_queue import PushQueue, RowsMissing
from .record_file import DiskLimit
from .requests import (
    ApplyStep,
    AskApplied,
    BeginCopy,
    ConfirmCopy,
    CopyChange,
    CopyPrepared,
    CopyPush,
    CopyRows,
    EndCopy,
    ForwardLease,
    ForwardOpen,
    ForwardPrepare,
    ForwardPush,
    OpenTable,
    PeerRequest,
    Ping,
    PrepareGradients,
    PullRows,
    PushGradients,
    ReadMarks,
    ReadPiece,
    ReadStream,
    Reply,
)
from .row_memory import TableFull
from .server_events import (
    Arrays,
    CopyTurn,
    Peer,
    PeerAnswered,
    PeerBroken,
    ServerAsked,
    ServerEffect,
    ServerEvent,
    TableRead,
    WantTurn,
)
from .slot_roles import SlotRoles, read_roles
from .slot_sets import NO_SLOTS, SlotSet, read_slots, write_slots
from .tables import Tables

CopyPart = CopyRows | CopyPush | CopyChange | CopyPrepared | EndCopy
"""Of a copy that is under way, whatever version it was sent under."""


class ServerMachine:
    """One server.

    Args:
        incarnation: its own, as in `RunningServer`.
        memory: bytes that the rows of all its tables may take together.
        disk: where others may be; None: nowhere.
    """

    def __init__(self, incarnation: Peer, memory: int, disk: DiskLimit | None = None) -> None:
        self._incarnation = incarnation
        self._tables = Tables(memory, disk)
        self._marks = Marks()
        self._outbox = Outbox()
        self._prepared = PreparedSteps()
        self._copies = Copies(incarnation, self._tables, self._marks, self._prepared, self._outbox)
        self._arrivals = Arrivals(self._tables, self._marks, self._prepared)
        self._queue = PushQueue(incarnation, self._tables, self._marks, self._prepared, self._copies, self._outbox)
        self._roles = SlotRoles(0, NO_SLOTS, NO_SLOTS, {}, {}, {}, {})
        self._read_slots = False  # a table that has slots
        self._removing = False  # a turn for that was asked for
        self._making_room = False  # and for that
        self._parked: list[ServerAsked] = []

    @property
    def version(self) -> int:
        """Of the slot table that it goes by."""
        return self._roles.version

    @property
    def serving(self) -> SlotSet:
        """The slots whose primary it is."""
        return self._roles.mine

    @property
    def tables(self) -> Tables:
        """All rows: between two events each push is in all of them or in none."""
        return self._tables

    @property
    def marks(self) -> Marks:
        """As far as the rows are."""
        return self._marks

    @property
    def has_begun(self) -> bool:
        """It has read a table that has slots: what it is to have from then on, others give it."""
        return self._read_slots

    @property
    def peers(self) -> list[Peer]:
        """Those that it keeps a connection to."""
        return self._outbox.peers

    @property
    def is_settled(self) -> bool:
        """It is nothing but its rows and marks: nothing is asked, prepared, copied, removed or in doubt."""
        busy = self._parked or self._removing or not self._queue.is_idle or not self._prepared.is_empty
        return self._read_slots and not (busy or self._copies.has_any or self._arrivals.slots.any())

    @property
    def awaited(self) -> tuple[int, tuple[Peer, ...]]:
        """See `PushQueue.awaited`."""
        return self._queue.awaited

    @property
    def copying(self) -> int:
        """Slots on their way from here to others."""
        return self._copies.slots_under_way

    def on(self, event: ServerEvent) -> list[ServerEffect]:
        """What is to be done about it, in this order. Raises RowsMissing, RowsUnreadable: then it serves nothing."""
        match event:
            case TableRead(table):
                if table.version > self.version:
                    self._follow_table(table)
            case ServerAsked():
                self._take_asked(event)
            case PeerAnswered(peer, reply):
                self._take_answer(peer, reply)
            case PeerBroken(peer):
                if peer in self._outbox.peers:
                    self._outbox.forget_told(peer)
                    self._queue.reconnect_peer(peer)
                    self._copies.reconnect_peer(peer)
            case CopyTurn():
                if not self._copies.take_turn(self._queue.is_pushing):
                    self._tidy_some()
        self._queue.start_next()
        if not self._making_room and (shared := self._tables.shared) is not None and shared.is_short:
            self._making_room = True
            self._outbox.add_effect(WantTurn())
        return self._outbox.take_effects()

    def _follow_table(self, table: SlotTable) -> None:
        before, roles = self._whole_slots(), read_roles(table, self._incarnation)
        something = before | self._arrivals.slots
        if self._read_slots and (missing := (roles.mine | roles.kept) & ~before).any():
            raise RowsMissing(
                f"version {table.version} of the slot table names this server for {int(missing.sum())} slots that it "
                "was not given"
            )
        self._read_slots = self._read_slots or len(table.primary) == SLOTS
        self._roles = roles
        self._arrivals.follow_roles(roles)
        whole = self._whole_slots()
        self._forget_slots(something & ~(whole | self._arrivals.slots))
        self._marks.hold_slots(whole)
        self._copies.follow_roles(roles)
        self._queue.follow_roles(roles)
        self._hang_up_others()
        self._take_parked()

    def _forget_slots(self, slots: SlotSet) -> None:
        self._tables.forget_slots(slots)
        self._prepared.forget_slots(slots)
        if not self._removing and self._tables.has_rows(slots):
            self._removing = True
            self._outbox.add_effect(WantTurn())

    def _tidy_some(self) -> None:
        """Removes rows that are to go, or writes some to disk."""
        if self._removing:
            self._remove_some()
        elif self._making_room and (shared := self._tables.shared) is not None:
            self._making_room = shared.make_some_room()
            if self._making_room:
                self._outbox.add_effect(WantTurn())

    def _remove_some(self) -> None:
        self._removing = self._tables.remove_some()
        if self._removing:
            self._outbox.add_effect(WantTurn())
        else:
            self._take_parked()

    def _whole_slots(self) -> SlotSet:
        """Those of which this server has all."""
        return self._roles.mine | self._roles.kept | self._arrivals.whole

    def _hang_up_others(self) -> None:
        roles = self._roles
        for peer in self._outbox.peers:
            if peer not in roles.backups and peer not in roles.joining and not self._queue.is_in_doubt(peer):
                self._outbox.hang_up(peer)

    def _take_asked(self, asked: ServerAsked) -> None:
        if any(each.connection == asked.connection for each in self._parked):
            self._parked.append(asked)  # or its answer would be taken for that of what came before
            return
        match asked.request:
            case Ping():
                self._answer(asked, Reply())
            case (
                OpenTable()
                | PullRows()
                | PushGradients()
                | PrepareGradients()
                | ApplyStep()
                | ReadMarks()
                | ReadStream()
                | ReadPiece() as request
            ):
                if request.version > self.version:
                    self._parked.append(asked)
                elif request.version < self.version:
                    self._answer(asked, Reply("moved"))
                elif isinstance(request, PullRows | ReadPiece | ReadStream):
                    self._read_rows(asked, request)
                else:
                    self._queue.add_asked(asked, request)
            case request:
                self._take_told(asked, request)

    def _answer(self, asked: ServerAsked, reply: Reply, arrays: Arrays = ()) -> None:
        told = Reply(reply.refused, reply.text, self.version, reply.count, reply.marks, reply.applied)
        self._outbox.answer(asked.connection, told, arrays)

    def _read_rows(self, asked: ServerAsked, request: PullRows | ReadPiece | ReadStream) -> None:
        mine = self._roles.mine
        try:
            match request:
                case PullRows(names):
                    self._answer(asked, Reply(), self._tables.pull_rows(names, asked.arrays, mine))
                case ReadPiece(name, first, _):
                    ids, values, following = self._tables.find_table(name).read_piece(first, mine)
                    self._answer(asked, Reply(count=following), (ids, values))
                case ReadStream(dataset, _):
                    self._answer(asked, Reply(), write_applied(self._marks.offsets.list_applied(dataset, mine)))
        except TableMisused as error:
            self._answer(asked, Reply("misused", str(error)))

    def _take_told(self, asked: ServerAsked, request: PeerRequest) -> None:
        """What another server asks. Of a version that is to be read here, it waits."""
        try:
            if request.version < self.version and not isinstance(request, CopyPart):
                self._answer(asked, Reply("moved"))
            elif request.version > self.version or self._must_wait(request):
                self._parked.append(asked)
            else:
                self._answer(asked, self._do_told(asked, request))
        except TableFull as error:
            self._answer(asked, Reply("full", str(error)))
        except (TableMisused, ValueError) as error:
            self._answer(asked, Reply("misused", str(error)))

    def _must_wait(self, request: PeerRequest) -> bool:
        """A push, until what was acknowledged before is known here; a copy, until what was here before is removed."""
        if isinstance(request, BeginCopy) and self._arrivals.accepts_copy(request, self._roles):
            slots = read_slots(request.slots)
            self._forget_slots(slots | self._arrivals.forget_copy(request.sender, slots))
            self._marks.hold_slots(self._whole_slots())
            return self._tables.has_rows(slots)
        return isinstance(request, ForwardPush | ForwardPrepare | ForwardLease) and self._queue.is_in_doubt(
            request.sender
        )

    def _take_parked(self) -> None:
        parked, self._parked = self._parked, []
        for asked in parked:
            self._take_asked(asked)

    def _do_told(self, asked: ServerAsked, request: PeerRequest) -> Reply:
        """Raises TableMisused, TableFull, ValueError, RowsMissing."""
        match request:
            case ForwardOpen(_, table, _):
                self._tables.open_table(table)
            case ForwardPush(sender, names, source, text, _):
                slots = read_slots(text)
                if not self._has_from(sender, slots):
                    return Reply("copy")
                try:
                    self._queue.follow_push(source, self._tables.read_push(names, asked.arrays, slots), slots)
                except TableFull as error:
                    return Reply("full", str(error), applied=write_slots(self._marks.find_applied(source, slots)))
            case ForwardPrepare(sender, names, source, share, text, _):
                slots = read_slots(text)
                if not self._has_from(sender, slots):
                    return Reply("copy")
                parts = self._tables.read_push(names, asked.arrays, slots)
                if slots.any():
                    self._prepared.put_part(make_part(source, share, parts, slots))
            case ForwardLease(sender):
                kept = self._roles.kept_of.get(sender, NO_SLOTS) | self._arrivals.whole_from(sender)
                self._marks.take_lease(request, kept)
            case BeginCopy():
                if not self._arrivals.accepts_copy(request, self._roles):
                    return Reply("copy")
                self._arrivals.begin_copy(request)
            case CopyRows() | CopyPush() | CopyChange() | CopyPrepared() | EndCopy():
                if not self._arrivals.take_part(request, asked.arrays, not self._copies.are_under_way):
                    return Reply("copy")
            case ConfirmCopy(sender, text, _):
                if (read_slots(text) & ~self._arrivals.whole_from(sender)).any():
                    return Reply("copy")
            case AskApplied(_, source, text, _):
                return Reply(applied=write_slots(self._marks.find_applied(source, read_slots(text))))
        return Reply()

    def _has_from(self, sender: Peer, slots: SlotSet) -> bool:
        """Whether all of these slots are here, and that sender is their primary."""
        kept = self._roles.kept_of.get(sender, NO_SLOTS)
        return not (slots & ~(kept | self._arrivals.whole_from(sender))).any()

    def _take_answer(self, peer: Peer, reply: Reply) -> None:
        match self._outbox.take_told(peer):
            case None:
                pass
            case ForwardOpen() | ForwardPush() | ForwardPrepare() | ForwardLease() as request:
                self._queue.take_answer(peer, request, reply)
            case AskApplied() as request:
                self._queue.settle_doubt(peer, request, reply)
                self._take_parked()
            case request:
                self._copies.take_answer(peer, request, reply)
