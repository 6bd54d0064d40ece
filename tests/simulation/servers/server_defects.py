"""Deliberate defects of the servers and of the placement of slots, each with a seed that finds it.

    python -m tests.simulation.servers.server_defects                      all of them
    python -m tests.simulation.servers.server_defects NAME                 one, with how it breaks its rule
    python -m tests.simulation.servers.server_defects NAME --search 0:400  the first seed that finds it

How a defect is planted: `tests/simulation/seams.py` and `patterns.py`.
"""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from elastic_run.adapters.servers.compiling import compile_loops

from ..mutants import Changes
from ..patterns import Edit
from ..planted import Catch, Outdated, catch_by
from ..seams import Seam, lose_call
from .server_job import ServerJob
from .server_schedules import draw_schedule


@dataclass(frozen=True, slots=True)
class ServerDefect:
    """One defect.

    Attributes:
        title: what it is called, and what the product does wrong with it.
        defect: how it is put into the product.
        rule: which rule of `server_rules.py` it breaks.
        seed: of a schedule in which it does.
    """

    title: str
    defect: Edit | Seam | Changes
    rule: str
    seed: int

    @property
    def name(self) -> str:
        """What it is called."""
        return self.title.partition(": ")[0]


def never_close(*_: object) -> bool:
    """No copy keeps a push from its beginning."""
    return False


HOLDERS = "what is acknowledged is in each holder"
MARKS = "rows are what the marks say"
VALID = "no valid request is refused"
RAISES = "the product raises nothing"
ANSWERED = "a worker is answered"
EQUAL = "holders of a slot are equal"
COMMITTED = "what is committed is in the rows"
UNDONE = "what is undone is not in the rows"
WHOLE = "a job goes back as a whole"

QUEUE = "adapters/servers/push_queue.py::PushQueue"
MACHINE = "adapters/servers/server_machine.py::ServerMachine"
COPIES = "adapters/servers/copies.py::Copies"
ARRIVALS = "adapters/servers/copies.py::Arrivals"
MARKS_OF = "adapters/servers/marks.py::Marks"
OFFSETS = "adapters/servers/offset_marks.py::OffsetMarks"
STREAM_LEDGER = "master/data/stream_ledger.py::StreamLedger"
ROWS = "adapters/servers/rows.py::Rows"
POOL = "adapters/servers/buffer_pool.py::BufferPool"
MANAGED = "adapters/servers/managed_table.py::ManagedTable"
CLOCKS = "adapters/servers/row_use.py::SlotClocks"
USE = "adapters/servers/row_use.py::RowUse"
PREPARED = "adapters/servers/prepared.py"
RECOVERY = "adapters/servers/step_recovery.py"
PLAN = "master/servers/placement.py"
CHOOSE = "elastic_agent/servers/server_host.py::choose_table"

SERVER_DEFECTS: tuple[ServerDefect, ...] = (
    # -- what is acknowledged
    ServerDefect(
        "early-answer: a push is acknowledged before the backups have it",
        Edit(QUEUE, "task.waiting[peer] = request", "pass"),
        HOLDERS,
        0,
    ),
    ServerDefect(
        "whole-unheard: a copy that is whole need not have a push first",
        Edit(f"{QUEUE}._finish_task", "for peer in self._copies.whole: self._forward_to(peer, task)", "pass"),
        HOLDERS,
        2,
    ),
    ServerDefect(
        "applied-twice: a push that is new in some slots only is applied in all",
        Edit(
            QUEUE,
            "new = self._marks.judge(source, task.slots)",
            "new = task.slots = self._marks.judge(source, task.slots)",
        ),
        MARKS,
        10000,
    ),
    ServerDefect(
        "dropped-in-flight: a new table drops the push that some backups have applied",
        Edit(f"{QUEUE}.follow_roles", "isinstance(task.request, PushGradients)", "False"),
        RAISES,
        10002,
    ),
    ServerDefect(
        "grown: a push in flight counts for slots that its server has got meanwhile",
        Edit(f"{QUEUE}._split_push", "task.slots = task.slots & self._roles.mine", "task.slots = self._roles.mine"),
        MARKS,
        10000,
    ),
    ServerDefect(
        "undoubted: a primary that becomes the backup forgets the push that it had told",
        Edit(
            QUEUE,
            "self._doubts.append(Doubt(source, [part.choose_slots(doubtful) for part in parts], doubtful))",
            "pass",
        ),
        RAISES,
        10012,
    ),
    ServerDefect(
        "mark-alone: a backup moves the mark and not the rows",
        Edit(QUEUE, "apply_parts(find_parts(chosen), reuse=..., at=source.at)", "pass"),
        MARKS,
        0,
    ),
    ServerDefect(
        "rows-alone: a primary moves the rows and not the mark",
        Edit(QUEUE, "self._marks.advance(source, task.slots)", "pass"),
        MARKS,
        0,
    ),
    ServerDefect(
        "empty-push: a push without ids moves no mark",
        Edit(
            QUEUE,
            "self._apply_push(task, source) if task.slots.any() else 0",
            "self._apply_push(task, source) if len(task.parts[0].ids) else 0",
        ),
        HOLDERS,
        0,
    ),
    ServerDefect(
        "silent-forward: what a lost connection had told is not told again",
        lose_call("adapters.servers.push_queue.PushQueue.reconnect_peer"),
        ANSWERED,
        10003,
    ),
    ServerDefect(
        "unparked: what is asked under a table that is to be read here is forgotten",
        Edit(f"{MACHINE}._take_told", "self._parked.append(asked)", "pass"),
        ANSWERED,
        0,
    ),
    ServerDefect(
        "all-refused: a push is refused in all slots where one backup has no room, and others have it",
        Edit(f"{QUEUE}._leave_out", "task.slots = task.slots & ~out", "task.slots = NO_SLOTS"),
        RAISES,
        36,
    ),
    ServerDefect(
        "refused-again: a push is left out in slots whose backup has it from before",
        Edit(f"{QUEUE}._leave_out", "~read_slots(reply.applied)", "~NO_SLOTS"),
        EQUAL,
        11762,
    ),
    ServerDefect(
        "dropped-copy: a whole copy without room is given up, and the next table names it",
        Edit(
            f"{QUEUE}.take_answer",
            'reply.refused == "full" and not self._copies.were_said',
            'reply.refused == "full"',
        ),
        RAISES,
        157,
    ),
    # -- marks
    ServerDefect(
        "least-mark: a worker is told the least of a server's marks, and does not cut at the others",
        Edit(MARKS_OF, "tuple(np.unique(...).tolist())", "tuple(np.unique(...).tolist()[:1])"),
        VALID,
        10000,
    ),
    ServerDefect(
        "one-mark: a copy has one mark for all of its slots",
        Edit(MARKS_OF, "exceptions = _by_shard(apart)", "exceptions = _by_shard(apart[:0])"),
        MARKS,
        10000,
    ),
    ServerDefect(
        "dropped-mark: the mark of a shard is dropped at the shard's end",
        Edit(f"{MARKS_OF}._raise_floor", "self._floors[dataset] = floor = floor + 1", "floor = floor + 1"),
        MARKS,
        0,
    ),
    ServerDefect(
        "hasty-floor: a shard counts as finished everywhere while it is in some slots only",
        Edit(f"{MARKS_OF}._is_finished", "shard not in self._apart", "True"),
        MARKS,
        10,
    ),
    ServerDefect(
        "one-floor: slots that are copied bring what is finished in them to the slots that are there",
        Edit(f"{MARKS_OF}.put_slots", "self._floors.get(name, 0) if others.any() else floor", "floor"),
        MARKS,
        27,
    ),
    # -- copies
    ServerDefect(
        "copy-alone: a copy has no push that was applied after its piece was sent",
        lose_call("adapters.servers.copies.Copies.send_applied"),
        MARKS,
        2,
    ),
    ServerDefect(
        "not-closed: pushes begin while the marks of a copy are on their way",
        Seam("adapters.servers.copies.Copies.are_closing", never_close),
        HOLDERS,
        5,
    ),
    ServerDefect(
        "freed-place: a row that is made during a copy takes a free place, which the copy has passed",
        Edit(
            QUEUE,
            "apply_parts(found, reuse=not self._copies.are_under_way, at=source.at)",
            "apply_parts(found, reuse=True, at=source.at)",
        ),
        MARKS,
        25,
    ),
    ServerDefect(
        "whole-early: copies are said to be whole before their last rows are there",
        Edit(COPIES, "peer in self._confirmed and not (...).any()", "True"),
        RAISES,
        0,
    ),
    ServerDefect(
        "copy-stuck: a copy whose connection was lost does not begin again",
        lose_call("adapters.servers.copies.Copies.reconnect_peer"),
        "copies end",
        10004,
    ),
    ServerDefect(
        "bare-rows: a copy has the rows without what their optimizer keeps",
        Edit(
            ROWS,
            "for own, part in zip(numbers, parts[: len(numbers)], strict=True): own[at] = part[some]",
            "for own, part in zip(numbers[:1], parts[:1], strict=True): own[at] = part[some]",
        ),
        EQUAL,
        9,
    ),
    ServerDefect(
        "kept-rows: a server keeps the rows of slots that it holds no more",
        Edit(MACHINE, "self._forget_slots(something & ...)", "pass"),
        "a server forgets what it holds no more",
        10000,
    ),
    # -- tables that stay within a size
    ServerDefect(
        "late-admission: an id is admitted one push later where its server has other rows beside it",
        Edit(
            f"{MANAGED}.prepare_push",
            "seen >= self._rows.spec.admit_after",
            "seen >= self._rows.spec.admit_after + self._rows.count % 2",
        ),
        EQUAL,
        68,
    ),
    ServerDefect(
        "unshared: the gradients of ids that wait are dropped",
        Edit(
            f"{MANAGED}.apply_push",
            "changes.append(self._take_step(self._shared, push.shared, push.slots, due))",
            "pass",
        ),
        MARKS,
        12,
    ),
    ServerDefect(
        "uncounted: a copy has not the counts of ids that wait",
        Edit(
            f"{COPIES}._send_piece",
            "copy.places.get(spec.name, 0)",
            "copy.places.get(spec.name, 1 << 40 if spec.name.endswith('(waiting)') else 0)",
        ),
        EQUAL,
        12,
    ),
    ServerDefect(
        "untold: a copy is not told what a push has changed in tables that are managed",
        Edit(f"{COPIES}.send_applied", "for change in changes: ...", "pass"),
        MARKS,
        19,
    ),
    ServerDefect(
        "kept-evicted: a copy keeps rows that were evicted at its source",
        Edit(f"{ARRIVALS}.take_part", "rows.remove_ids(arrays[0])", "pass"),
        EQUAL,
        26,
    ),
    ServerDefect(
        "clock-anew: the clock of a slot begins anew where it is copied to",
        lose_call("adapters.servers.row_use.RowUse.follow_rows"),
        EQUAL,
        26,
    ),
    ServerDefect(
        "one-clock: all slots of a server have one clock",
        Edit(f"{CLOCKS}.advance", "self.now[slots] = after", "self.now[:] = after.max(initial=0)"),
        EQUAL,
        26,
    ),
    ServerDefect(
        "place-order: of rows that were trained on together the first in memory goes",
        Edit(f"{USE}.choose_surplus", "np.lexsort((ids[rows], ...))", "np.lexsort((rows, ...))"),
        EQUAL,
        54,
    ),
    ServerDefect(
        "own-time: a backup has another time than its primary for the same push",
        Edit(
            f"{QUEUE}.follow_push",
            "apply_parts(find_parts(chosen), reuse=not self._copies.are_under_way, at=source.at)",
            "apply_parts(find_parts(chosen), reuse=not self._copies.are_under_way, at=source.at + 7)",
        ),
        EQUAL,
        40,
    ),
    # -- rows on disk
    ServerDefect(
        "stale-record: a row that has changed in memory is read from disk as it was before",
        Edit(f"{POOL}.locate", "self._change(frames)", "pass"),
        EQUAL,
        100002,
    ),
    ServerDefect(
        "bare-record: what the optimizer keeps of a row stays behind when it goes to disk",
        Edit(
            f"{POOL}._write",
            'records[f"f{place}"] = each[changed]',
            'records[f"f{place}"] = each[changed] if not place else 0',
        ),
        EQUAL,
        100000,
    ),
    # -- ranks in step
    ServerDefect(
        "undone: a prepared step is applied after the ranks have undone it",
        Edit(
            f"{RECOVERY}::settle_steps",
            "yield ApplyStep(dataset, epoch, lease, end, 0)",
            "yield ApplyStep(dataset, epoch, lease, WHOLE_EPOCH, 0)",
        ),
        UNDONE,
        20006,
    ),
    ServerDefect(
        "primary-alone: a step is prepared on the primary and not on its backup",
        Edit(f"{MACHINE}._do_told", "if slots.any(): self._prepared.put_part(...)", "pass"),
        VALID,
        20000,
    ),
    ServerDefect(
        "copy-unprepared: a copy has not what is prepared in its slots",
        Edit(f"{COPIES}._end_copy", "for part in self._prepared.take_slots(copy.slots): ...", "pass"),
        COMMITTED,
        20009,
    ),
    ServerDefect(
        "step-twice: a step is applied again for each rank that says so",
        Changes(
            (
                Edit(
                    f"{PREPARED}::choose_step",
                    "marks.find_new(source, slots) if key is not None else NO_SLOTS",
                    "slots if key is not None else NO_SLOTS",
                ),
                Edit(f"{QUEUE}._apply_push", "new = self._marks.find_new(source, task.slots)", "new = task.slots"),
                Edit(f"{QUEUE}._apply_push", "self._prepared.forget_applied(source, task.slots)", "pass"),
            )
        ),
        MARKS,
        20000,
    ),
    ServerDefect(
        "first-come: a step is summed in the order in which its parts came",
        Edit(f"{PREPARED}::PreparedSteps.sum_step", "sorted(self._steps[key], key=...)", "self._steps[key]"),
        "rows are those of one process",
        20000,
    ),
    # -- placement
    ServerDefect(
        "same-server: a slot's primary is chosen as its backup",
        Edit(PLAN, "[at for at in self._staying if at != primary]", "list(self._staying)"),
        "a slot's holders are different servers",
        2,
    ),
    ServerDefect(
        "early-joined: a copy that was whole under the table before is taken for whole",
        Edit(
            PLAN,
            "self._servers[at].joined >= self._table.version",
            "self._servers[at].joined >= self._table.version - 1",
        ),
        RAISES,
        0,
    ),
    ServerDefect(
        "dead-backup: a backup that has gone stays the backup",
        Edit(PLAN, "if backup not in self._alive: self._backup[slot] = NOBODY", "pass"),
        ANSWERED,
        0,
    ),
    ServerDefect(
        "hasty-loss: rows are lost as soon as the lease of the only server that has them is",
        Edit(PLAN, "not {primary, backup} & self._awaited", "True"),
        "no rows are lost while a holder lives",
        6,
    ),
    ServerDefect(
        "unprepared: a server that joins is the primary as soon as the primary has gone",
        Edit(
            PLAN,
            """
            self._primary[slot], self._backup[slot] = backup, NOBODY
            if self._joining[slot] == backup:
                self._joining[slot] = NOBODY
            """,
            """
            self._primary[slot] = backup if self._joining[slot] == NOBODY else self._joining[slot]
            self._backup[slot] = self._joining[slot] = NOBODY
            """,
        ),
        RAISES,
        1,
    ),
    # -- a stream
    ServerDefect(
        "leased-twice: the last offset of a lease is in the next one as well",
        Edit(
            f"{STREAM_LEDGER}._cut_pieces",
            "self._partitions[each.partition] = replace(each, first=first)",
            "self._partitions[each.partition] = replace(each, first=max(each.first, first - 1))",
        ),
        VALID,
        60000,
    ),
    ServerDefect(
        "by-lease: offsets are marked by the lease that has pushed them",
        Edit(
            "adapters/servers/marks.py::_offsets_of",
            "(source.dataset, source.partition)",
            "(f'{source.dataset}{source.lease}', source.partition)",
        ),
        MARKS,
        60001,
    ),
    ServerDefect(
        "high-floor: the floor of a partition is beyond what a worker has of it",
        Edit(f"{STREAM_LEDGER}._floors", "firsts[offsets.partition] = min(...)", "pass"),
        MARKS,
        60000,
    ),
    # -- a job that goes back
    ServerDefect(
        "alone: rows go back to the checkpoint, and workers and what they lease do not",
        Edit(
            f"{PLAN}::lose_rows",
            "replace(lost, restore=checkpoint, servers=(), primary=(), backup=(), joining=())",
            "replace(lost, lost='', restore=checkpoint, servers=(), primary=(), backup=(), joining=())",
        ),
        HOLDERS,
        7,
    ),
    ServerDefect(
        "old-generation: a server of before the job went back gets slots after that",
        Edit(PLAN, "[each for each in running if each.rows_from == table.rows_from]", "list(running)"),
        WHOLE,
        7,
    ),
    ServerDefect(
        "old-worker: a worker of before is told of the rows that the job has gone back to",
        Edit(CHOOSE, "table if usable and not table.goes_back else ...", "table"),
        VALID,
        161,
    ),
    ServerDefect(
        "ranks-alone: rows go back to the checkpoint, and ranks in step do not",
        Edit(
            f"{PLAN}::lose_rows",
            "replace(lost, restore=checkpoint, servers=(), primary=(), backup=(), joining=())",
            "replace(lost, lost='', restore=checkpoint, servers=(), primary=(), backup=(), joining=())",
        ),
        HOLDERS,
        30000,
    ),
    ServerDefect(
        "before-prepared: ranks of before prepare steps in the rows that the job has gone back to",
        Changes(
            (
                Edit(CHOOSE, "table if usable and not table.goes_back else ...", "table"),
                Edit(f"{MARKS_OF}.check_lease", "source.lease < lease", "False"),
            )
        ),
        COMMITTED,
        30044,
    ),
)


def catch_server_defect(defect: ServerDefect, seeds: Iterable[int]) -> Catch | None:
    """The first of these seeds that sees it, in another process. Raises Outdated."""
    return catch_by(defect.defect.plant, lambda: _find_broken(seeds))


def _find_broken(seeds: Iterable[int]) -> tuple[str, str, str] | None:
    for seed in seeds:
        try:
            broken = ServerJob(draw_schedule(seed)).run()
        except Exception as error:  # noqa: BLE001  what the product raises is as good as a rule
            return str(seed), RAISES, repr(error)
        if broken is not None:
            return str(seed), broken.rule, str(broken)
    return None


def _range_of(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last))


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.servers.server_defects")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--search", metavar="FIRST:LAST,...")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    compile_loops()  # once, and not in each process
    seeds = [seed for part in options.search.split(",") for seed in _range_of(part)] if options.search else []
    missed = 0
    for each in SERVER_DEFECTS:
        if options.names and each.name not in options.names:
            continue
        try:
            found = catch_server_defect(each, seeds or (each.seed,))
        except Outdated as error:
            found = Catch("", "it is not in the product any more", str(error))
        caught = found is not None and found.rule == each.rule
        missed += not caught
        if options.json:
            rule, what, seed = (found.rule, found.what, found.schedule) if found is not None else ("", "", "")
            print(json.dumps({"name": each.name, "rule": rule, "what": what, "seed": seed}), flush=True)
        else:
            print(f"{'caught' if caught else 'MISSED'} {each.title}\n       {found or 'nothing is broken'}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
