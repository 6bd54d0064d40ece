"""How a job that is over ends: the nodes leave, and then its keys are removed (pure)."""

from collections.abc import Iterable

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.member import DEPARTING
from ...rendezvous.round import Seen
from . import effects


@dataclass(frozen=True, slots=True)
class Ending:
    """Of one job.

    Attributes:
        header: its last.
        revision: the mod revision of that.
        deadline: until when its nodes are waited for (the master's clock).
    """

    header: Header
    revision: int
    deadline: float

    def see_off(self, members: Iterable[Seen], until: float | None, now: float) -> effects.Wait | effects.CleanUp:
        """Waits until every node has read the end and left; those that may return are awaited `until` then.

        Nodes that came after the end came for the next run, and are not waited for; nor is a node that came in the
        moment in which all others were told to leave.
        """
        if now < self.deadline and (until is not None or any(self._is_leaving(seen) for seen in members)):
            return effects.Wait(self.deadline if until is None else min(self.deadline, until))
        return effects.CleanUp(self.header.state == "succeeded")

    def _is_leaving(self, seen: Seen) -> bool:
        if seen.gone or seen.order > self.revision:
            return False
        return self.header.state != "preempted" or seen.member.report.state in DEPARTING
