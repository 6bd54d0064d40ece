"""The history of a controller: its events with their times, and its effects, as lines of JSON; and the same made again.

A line is `{"kind": ..., "at": ..., "value": ...}`: `Begin` once for each leadership, then each event, followed by the
effects that it had. Since the controller is pure, the events alone say what it decided: `replay` makes a controller
anew from them and compares its effects with those that were recorded.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any, get_args

from ..rendezvous.base.frozen import dataclass
from ..rendezvous.host.named_files import open_to_write
from ..rendezvous.keys import Keys
from ..rendezvous.node_reasons import NodeReason
from ..rendezvous.wire.fields import Name
from ..rendezvous.wire.values import decode, encode
from .machine.controller import Controller, Terms
from .machine.effects import Effect
from .machine.events import Event
from .machine.memory import Memory

_EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
"""By name; `Any`: a union's members are no one type."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a `Memory` holds of one incarnation or run."""

    name: Name
    proof: NodeReason | None = None
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Begin:
    """What a controller was made of; see there."""

    job: Name
    terms: Terms
    began: float
    run: Name
    lease_ttl: float
    dead: tuple[Remembered, ...] = ()
    abandoned: tuple[Remembered, ...] = ()

    @classmethod
    def of(cls, job: str, terms: Terms, memory: Memory, run: str, lease_ttl: float) -> "Begin":
        """For a controller that is about to be made."""
        dead = tuple(Remembered(name, proof) for name, proof in memory.dead.items())
        abandoned = tuple(Remembered(name, at=at) for name, at in memory.abandoned.items())
        return cls(job, terms, memory.began, run, lease_ttl, dead, abandoned)

    def controller(self, now: float) -> Controller:
        """The same one anew."""
        memory = Memory(
            self.began,
            {each.name: each.proof for each in self.dead if each.proof},
            {each.name: each.at for each in self.abandoned},
        )
        return Controller(Keys(self.job), self.terms, now, memory=memory, run=self.run, lease_ttl=self.lease_ttl)


class History:
    """Writes a history to one file, until that fails.

    Args:
        file: is made, or gone on with.
        say: prints one line for a person, where the file cannot be written.
    """

    def __init__(self, file: Path, say: Callable[[str], None]) -> None:
        self._file: IO[bytes] | None = None
        self._path = file
        self._say = say
        try:
            self._file = os.fdopen(open_to_write(file, append=True), "ab")
        except OSError as error:
            self._give_up(error)

    def add(self, value: Begin | Event, now: float, effects: Iterable[Effect] = ()) -> None:
        """One event at its time, and what it had as effects."""
        if self._file is None:
            return
        lines = [_line(value, now), *(_line(effect, now) for effect in effects)]
        try:
            self._file.write(b"".join(lines))
            self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _give_up(self, error: OSError) -> None:
        self._file = None
        self._say(f"the history {self._path} cannot be written ({error.strerror}): the master records no more events")


@dataclass(frozen=True, slots=True)
class Difference:
    """An event that has other effects now than it had when it was recorded, each as its line."""

    line: int
    recorded: tuple[str, ...]
    now: tuple[str, ...]


def replay(lines: Iterable[bytes]) -> Iterator[Difference]:
    """Has controllers of today decide on a recorded history; yields where they decide otherwise.

    Raises `Malformed` (`rendezvous.wire.values`) where the history is of another version.
    """
    controller: Controller | None = None
    made, recorded, begun = list[str](), list[str](), 0
    for number, line in enumerate(lines, 1):
        found = json.loads(line)
        kind, now, value = found["kind"], found["at"], json.dumps(found["value"]).encode()
        if kind not in ("Begin", *_EVENTS):
            recorded.append(line.decode().rstrip("\n"))
            continue
        if made != recorded:
            yield Difference(begun, tuple(recorded), tuple(made))
        made, recorded, begun = [], [], number
        if kind == "Begin":
            controller = decode(Begin, value).controller(now)
        elif controller is not None:
            done = controller.on(decode(_EVENTS[kind], value), now)
            made = [_line(effect, now).decode().rstrip("\n") for effect in done]
    if made != recorded:
        yield Difference(begun, tuple(recorded), tuple(made))


def _line(value: Begin | Event | Effect, now: float) -> bytes:
    return b'{"kind":"%s","at":%s,"value":%s}\n' % (type(value).__name__.encode(), repr(now).encode(), encode(value))
