"""A job with a controller and without a store, and its status as one value."""

from pathlib import Path

from elastic_run.master.machine import effects, events
from elastic_run.master.machine.controller import Controller, Terms
from elastic_run.master.machine.memory import Memory
from elastic_run.master.status import Status
from elastic_run.rendezvous.header import Header
from elastic_run.rendezvous.keys import Keys
from elastic_run.rendezvous.member import Exit, Fingerprint, Member, Report
from elastic_run.rendezvous.round import Policy
from elastic_run.rendezvous.wire.values import decode

FINGERPRINT = Fingerprint("train.py", (), "2", "2", "1.0")
TERMS = Terms(Policy(min_nodes=2, max_nodes=2), 3, 0, FINGERPRINT)
GOLDEN = Path(__file__).with_name("status.json")
"""The status of the job of `failed`, once both nodes run again."""

STATUS = decode(Status, GOLDEN.read_bytes())


class ControlledJob:
    """A controller that is told of what happens, and whose headers are published at once."""

    def __init__(self, terms: Terms = TERMS) -> None:
        self.controller = Controller(Keys("job"), terms, 0.0, memory=Memory(0.0), run="run")
        self.published: list[effects.Publish] = []
        self.revision = 10

    def tell(self, event: events.Event, now: float) -> None:
        for effect in self.controller.on(event, now):
            if isinstance(effect, effects.Publish):
                self.revision += 1
                self.published.append(effect)
                self.tell(events.Published(effect.header, self.revision, now), now)

    @property
    def header(self) -> Header:
        return self.published[-1].header

    def node(self, name: str, order: int, now: float, report: Report | None = None) -> None:
        member = Member(name, f"{name}#1", f"{name}.host", "", 2, (5001,), FINGERPRINT, report=report or Report())
        self.tell(events.Registered(name, member, order, now), now)

    def runs(self, name: str, order: int, now: float) -> None:
        self.node(name, order, now, Report("running", self.header.number, run="run"))

    def look(self, now: float) -> None:
        self.tell(events.Look(), now)


def running() -> ControlledJob:
    """Round 1 of a and b is opened at 1, and trains from 3 on; c waits."""
    job = ControlledJob()
    job.node("a", 1, 0.0)
    job.node("b", 2, 0.0)
    job.tell(events.Found(None, 0, 0.0), 0.0)
    job.look(1.0)
    job.node("c", 3, 1.0)
    job.runs("a", 1, 2.0)
    job.runs("b", 2, 3.0)
    return job


def failed() -> ControlledJob:
    """A worker of b fails at 7, and round 2 is opened at 9."""
    job = running()
    exit_ = Exit(1, 3, 1, 4711, code=1, message="ValueError: no", traceback="Traceback ...")
    job.node("b", 2, 7.0, Report("failed", 1, (exit_,), run="run"))
    job.look(9.0)
    return job
