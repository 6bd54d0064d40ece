"""Slots on their way from the server that has them to one that joins (pure): both ends of a copy.

The source sends the rows in pieces while it goes on serving. A push that it applies meanwhile goes to the copy at that
moment: it is applied there to the rows that have come, and the others come later, with it. New rows take places behind
the cursor. When the cursor is at the end, the source starts no further push until what is left, and the marks, are
there: from then on the copy is *whole*, and must have every push before the source has it, as a backup.

What is sent of a copy is known by its number, and accepted while the table that the receiver goes by has the same
source and target: a new version does not break a copy off. Whether whole copies are whole still, both having read
tables of which the other may know nothing, is asked under each version.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from .managed_table import TableChange
from .marks import Marks
from .outbox import Outbox
from .prepared import PreparedSteps, make_part
from .requests import BeginCopy, ConfirmCopy, CopyChange, CopyPrepared, CopyPush, CopyRows, EndCopy, Reply
from .rows import Rows
from .server_events import Arrays, CopiesWhole, Peer, SayWords, WantTurn
from .slot_roles import SlotRoles, union_of
from .slot_sets import NO_SLOTS, SlotSet, read_slots, write_slots
from .tables import TablePart, Tables, apply_where_present, choose_of

PIECE, PIECE_BYTES = 16_384, 1 << 22
"""Rows that are copied at a time, and what they may take here: a few milliseconds."""

MOST_BEHIND = 64 << 20
"""Bytes of pushes that a joining server may have before it: no other begins while it has more."""


def piece_size(rows: Rows) -> int:
    """How many rows of this table are copied at a time."""
    return max(1, min(PIECE, PIECE_BYTES // rows.row_bytes))


@dataclass(slots=True)
class CopyUnderWay:
    """One that is under way.

    Attributes:
        number: among all that begin here.
        slots: of which it is.
        places: by table, the place after what was sent.
        ready: the next piece may be sent.
        closing: the end was reached once, and no push may start.
        idle: it waits for a push to be applied, and for no answer.
        stalled: the other end goes by a newer table, or has no room: it begins again with a newer table.
        behind: bytes of each push that was told and is not answered.
    """

    number: int
    slots: SlotSet
    places: dict[str, int] = field(default_factory=dict[str, int])
    ready: bool = False
    closing: bool = False
    idle: bool = False
    stalled: bool = False
    behind: deque[int] = field(default_factory=deque[int])

    @property
    def holds_pushes(self) -> bool:
        """None may start."""
        return self.closing or (not self.stalled and sum(self.behind) > MOST_BEHIND)


class Copies:
    """The source's end.

    Args:
        me: its incarnation.
        tables, marks, prepared: what is copied.
        outbox: where to say it.
    """

    def __init__(self, me: Peer, tables: Tables, marks: Marks, prepared: PreparedSteps, outbox: Outbox) -> None:
        self._me = me
        self._tables = tables
        self._marks = marks
        self._prepared = prepared
        self._outbox = outbox
        self._joining: dict[Peer, SlotSet] = {}
        self._version = 0
        self._said = 0  # the version all of whose copies were said to be whole
        self._number = 0
        self._active: dict[Peer, CopyUnderWay] = {}
        self._whole: dict[Peer, SlotSet] = {}
        self._confirmed: set[Peer] = set()
        self._told: set[Peer] = set()  # people were, of its refusal

    @property
    def whole(self) -> dict[Peer, SlotSet]:
        """Slots whose copies must have each push before this server has it."""
        return self._whole

    @property
    def were_said(self) -> bool:
        """The job's leader may have heard that all of this version are whole, and name them in the next."""
        return self._said == self._version

    @property
    def are_under_way(self) -> bool:
        """No row may take a place that a cursor has passed."""
        return bool(self._active)

    @property
    def has_any(self) -> bool:
        """Under way, or whole and not named by the table."""
        return bool(self._active or self._whole or self._joining)

    @property
    def slots_under_way(self) -> int:
        """Slots that are sent, to whomever."""
        return sum(int(copy.slots.sum()) for copy in self._active.values())

    @property
    def are_closing(self) -> bool:
        """No push may start."""
        return any(copy.holds_pushes for copy in self._active.values())

    def follow_roles(self, roles: SlotRoles) -> None:
        """A new version: what is wanted still goes on."""
        self._joining, self._version = roles.joining, roles.version
        self._confirmed.clear()
        kept = {peer: slots & self._joining.get(peer, NO_SLOTS) for peer, slots in self._whole.items()}
        self._whole = {peer: slots for peer, slots in kept.items() if slots.any()}
        for peer, copy in list(self._active.items()):
            if copy.stalled or (copy.slots & ~self._joining.get(peer, NO_SLOTS)).any():
                del self._active[peer]
        for peer in self._joining:
            self._confirm(peer)
            self._begin_copy(peer)
        self._say_if_whole()

    def _confirm(self, peer: Peer) -> None:
        if (slots := self._whole.get(peer)) is not None:
            self._outbox.tell_peer(peer, ConfirmCopy(self._me, write_slots(slots), self._version))

    def _begin_copy(self, peer: Peer) -> None:
        """Of all that the peer joins and has not."""
        slots = self._joining[peer] & ~self._whole.get(peer, NO_SLOTS)
        if peer in self._active or not slots.any():
            return
        self._number += 1
        self._active[peer] = CopyUnderWay(self._number, slots)
        begin = BeginCopy(self._me, self._number, write_slots(slots), self._tables.specs, self._version)
        self._outbox.tell_peer(peer, begin)

    def restart_copy(self, peer: Peer) -> None:
        """From its beginning, where it is not whole."""
        self._active.pop(peer, None)
        if peer in self._joining:
            self._begin_copy(peer)

    def lose_whole(self, peer: Peer) -> None:
        """It has not what it was thought to have."""
        self._whole.pop(peer, None)
        self.restart_copy(peer)

    def take_turn(self, pushing: bool) -> bool:
        """Sends one piece of the first copy that waits for it. Whether there was one.

        Args:
            pushing: a push is on its way to be applied, so that no copy can be ended.
        """
        for peer, copy in self._active.items():
            if copy.ready:
                self._active[peer] = self._active.pop(peer)  # the others come first the next time
                copy.ready = False
                self._send_piece(peer, copy, pushing)
                return True
        return False

    def _send_piece(self, peer: Peer, copy: CopyUnderWay, pushing: bool) -> None:
        for spec in self._tables.specs:
            rows, place = self._tables.find_table(spec.name), copy.places.get(spec.name, 0)
            if place >= rows.end:
                continue
            arrays, copy.places[spec.name] = rows.copy_piece(place, copy.slots, piece_size(rows))
            if len(arrays[0]):
                self._outbox.tell_peer(peer, CopyRows(self._me, copy.number, spec.name, self._version), arrays)
            else:
                self._want_turn(copy)
            return
        copy.closing = True
        if pushing:
            copy.idle = True
        else:
            self._end_copy(peer, copy)

    def _end_copy(self, peer: Peer, copy: CopyUnderWay) -> None:
        for part in self._prepared.take_slots(copy.slots):
            tables = tuple(each.rows.spec.name for each in part.parts)
            slots = write_slots(part.slots)
            request = CopyPrepared(self._me, copy.number, tables, part.source, part.share, slots, self._version)
            self._outbox.tell_peer(
                peer, request, [array for each in part.parts for array in (each.ids, each.gradients)]
            )
        names, arrays = self._marks.take_slots(copy.slots)
        self._outbox.tell_peer(
            peer, EndCopy(self._me, copy.number, write_slots(copy.slots), names, self._version), arrays
        )

    def send_applied(self, parts: Sequence[TablePart], changes: Sequence[TableChange], slots: SlotSet) -> None:
        """A push was applied here in these slots, a moment ago: the copies have it as well. The next may begin."""
        plain = [part for part in parts if part.managed is None]
        for peer, copy in self._active.items():
            if copy.stalled or not (wanted := slots & copy.slots).any():
                continue
            chosen = [part.choose_slots(wanted) for part in plain]
            if chosen := [part for part in chosen if len(part.ids)]:
                names = tuple(part.rows.spec.name for part in chosen)
                arrays = [array for part in chosen for array in (part.ids, part.gradients)]
                self._send_behind(peer, copy, CopyPush(self._me, copy.number, names, self._version), arrays)
            for change in changes:
                ids, gone = choose_of(change.ids, wanted), choose_of(change.gone, wanted)
                if len(ids) or len(gone):
                    request = CopyChange(self._me, copy.number, change.rows.spec.name, self._version)
                    self._send_behind(peer, copy, request, [gone, *change.rows.copy_ids(ids)])

    def _send_behind(self, peer: Peer, copy: CopyUnderWay, request: CopyPush | CopyChange, arrays: Arrays) -> None:
        copy.behind.append(sum(each.nbytes for each in arrays))
        self._outbox.tell_peer(peer, request, arrays)

    def wake_idle(self) -> None:
        """No push is on its way any more."""
        for copy in self._active.values():
            if copy.idle:
                copy.idle = False
                self._want_turn(copy)

    def _want_turn(self, copy: CopyUnderWay) -> None:
        copy.ready = True
        self._outbox.add_effect(WantTurn())

    def take_answer(
        self,
        peer: Peer,
        request: BeginCopy | CopyRows | CopyPush | CopyChange | CopyPrepared | EndCopy | ConfirmCopy,
        reply: Reply,
    ) -> None:
        """Of what was told here."""
        if isinstance(request, ConfirmCopy):
            self._take_confirmed(peer, request, reply)
            return
        copy = self._active.get(peer)
        if copy is None or copy.number != request.number:
            return
        if isinstance(request, CopyPush | CopyChange):
            copy.behind.popleft()
        if reply.refused == "copy" or (reply.refused == "moved" and reply.version <= self._version):
            self.restart_copy(peer)
        elif reply.refused:
            if reply.text and peer not in self._told:
                self._told.add(peer)
                self._outbox.add_effect(SayWords(f"a server that is to get a copy refuses it: {reply.text}"))
            copy.stalled, copy.closing, copy.ready = True, False, False
        elif copy.stalled or isinstance(request, CopyPush | CopyChange | CopyPrepared):
            pass
        elif isinstance(request, EndCopy):
            del self._active[peer]
            self._whole[peer] = self._whole.get(peer, NO_SLOTS) | copy.slots
            self._confirmed.add(peer)
            self._begin_copy(peer)
            self._say_if_whole()
        else:
            self._want_turn(copy)

    def _take_confirmed(self, peer: Peer, request: ConfirmCopy, reply: Reply) -> None:
        if request.version != self._version:
            return
        if not reply.refused:
            self._confirmed.add(peer)
            self._say_if_whole()
        elif reply.refused == "copy" and peer in self._whole:
            self.lose_whole(peer)

    def _say_if_whole(self) -> None:
        whole = all(
            peer in self._confirmed and not (slots & ~self._whole.get(peer, NO_SLOTS)).any()
            for peer, slots in self._joining.items()
        )
        if self._joining and whole and self._said != self._version:
            self._said = self._version
            self._outbox.add_effect(CopiesWhole(self._version))

    def reconnect_peer(self, peer: Peer) -> None:
        """The connection was lost: a copy begins again, a question is asked again."""
        if peer in self._joining:
            if peer not in self._confirmed:
                self._confirm(peer)
            self.restart_copy(peer)


class Arrivals:
    """The joining server's end.

    Args:
        tables, marks, prepared: where a copy goes.
    """

    def __init__(self, tables: Tables, marks: Marks, prepared: PreparedSteps) -> None:
        self._tables = tables
        self._marks = marks
        self._prepared = prepared
        self._under_way: dict[Peer, tuple[int, SlotSet]] = {}
        self._whole: dict[Peer, SlotSet] = {}
        self._last: dict[Peer, int] = {}  # the number of the last copy that has begun

    @property
    def whole(self) -> SlotSet:
        """Slots of which there is all."""
        return union_of(self._whole.values())

    @property
    def slots(self) -> SlotSet:
        """Slots of which there is something."""
        return union_of((self.whole, *(slots for _, slots in self._under_way.values())))

    def whole_from(self, peer: Peer) -> SlotSet:
        """Slots of which there is all, from that source."""
        return self._whole.get(peer, NO_SLOTS)

    def follow_roles(self, roles: SlotRoles) -> None:
        """Forgets what does not join any more, or from another source. The rows are the caller's affair."""
        self._whole = {peer: slots & roles.copied_from(peer) for peer, slots in self._whole.items()}
        self._under_way = {
            peer: (number, slots)
            for peer, (number, slots) in self._under_way.items()
            if not (slots & ~roles.copied_from(peer)).any()
        }

    def accepts_copy(self, request: BeginCopy, roles: SlotRoles) -> bool:
        """Whether it is of slots that are copied from there, and not older than another that has begun."""
        slots = read_slots(request.slots)
        return not (slots & ~roles.copied_from(request.sender)).any() and request.number > self._last.get(
            request.sender, 0
        )

    def forget_copy(self, peer: Peer, slots: SlotSet) -> SlotSet:
        """These slots are here no more, and not what came of the last copy from there: that is what is returned."""
        _, before = self._under_way.pop(peer, (0, NO_SLOTS))
        self._whole[peer] = self.whole_from(peer) & ~slots
        return before

    def begin_copy(self, request: BeginCopy) -> None:
        """One that is accepted, when nothing is here of its slots any more. Raises TableMisused, TableFull."""
        for spec in request.tables:
            self._tables.take_table(spec)
        self._last[request.sender] = request.number
        self._under_way[request.sender] = request.number, read_slots(request.slots)

    def take_part(
        self, request: CopyRows | CopyPush | CopyChange | CopyPrepared | EndCopy, arrays: Arrays, reuse: bool
    ) -> bool:
        """Whether it is of a copy that is under way. Raises TableMisused, ValueError. See `Rows.make` for `reuse`."""
        number, slots = self._under_way.get(request.sender, (0, NO_SLOTS))
        if number != request.number:
            return False
        match request:
            case CopyRows():
                self._tables.find_table(request.table).put_piece(arrays, reuse)
            case CopyPush():
                apply_where_present(self._tables.read_push(request.tables, arrays, slots))
            case CopyChange():
                rows = self._tables.find_table(request.table)
                rows.remove_ids(arrays[0])
                rows.put_piece(arrays[1:], reuse)
            case CopyPrepared():
                parts = self._tables.read_push(request.tables, arrays, slots)
                given = read_slots(request.slots) & slots
                self._prepared.put_part(make_part(request.source, request.share, parts, given))
            case EndCopy():
                if (read_slots(request.slots) ^ slots).any():
                    return False
                self._marks.put_slots(slots, request.datasets, arrays)
                self._whole[request.sender] = self.whole_from(request.sender) | slots
                del self._under_way[request.sender]
        return True
