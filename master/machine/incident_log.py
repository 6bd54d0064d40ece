"""The cases before the judge: evidence by round, the incident that is still open, and what has been charged (pure).

A round is opened on the first evidence that is no mere consequence, and its verdict is provisional: what arrives for
`incident.GATHER` seconds may still change what the round before ended of. Time is an argument, and so is the current
round.

Invariants: an incident is charged once; evidence of a round that nothing had ended charges nothing; what is lost while
nobody trains belongs to the incident that suspended the job.
"""

import dataclasses
import math
from dataclasses import dataclass

from ...rendezvous.header import Incident, Tally
from ...rendezvous.node_reasons import ReturnWanted
from ...rendezvous.round import Fault, Round
from .incident import (
    ALIKE_SECONDS,
    GATHER,
    ROOT_SECONDS,
    Evidence,
    FailedWorker,
    Gathering,
    charge,
    consequence,
    fatal,
    hopeless,
    is_cause,
    its_own,
    likeness,
)


@dataclass(slots=True)
class _Case:
    """What is known of how one round ended.

    Attributes:
        since: when the first of it came, on the master's clock.
        ran: seconds for which the round had been open then.
        alike: every worker that has failed did so as the first one.
        likeness: how that one failed; empty where nobody has, or where it tells nothing.
    """

    since: float
    ran: float
    evidence: Gathering
    alike: bool = True
    likeness: str = ""

    def compare(self, failed: FailedWorker) -> None:
        """Whether this worker failed as the others did."""
        if self.alike:
            found = likeness(failed.exit)
            self.alike = bool(found) and found == (self.likeness or found)
            self.likeness = found


class IncidentLog:
    """What is known of incidents. A new master begins with the tally and the open incident of the header.

    Attributes:
        tally: the closed incidents.
        pending: why the current round was opened; charged when the next one is.
    """

    def __init__(self, tally: Tally | None = None, pending: Incident | None = None) -> None:
        self.tally = tally or Tally()
        self.pending = pending
        self._cases: dict[int, _Case] = {}  # by round

    def note(self, new: Evidence, current: Round, now: float) -> None:
        """Adds `new` to what is known of its round; what came too late to count changes nothing."""
        number = new.round
        if number == current.number and not current.running:
            number -= 1  # nobody trains: it belongs to the incident that suspended the job
        if number != current.number:
            if not self._gathers(number, now):
                return
        elif (new.lost or new.left) and (known := self.pending) and self._gathers(number - 1, now):
            # The news of what ended the round before comes after its consequences: it is one incident, charged once.
            self.pending = known if not new.lost and known.exit and is_cause(known.exit) else None
        if (case := self._cases.get(number)) is None:
            case = self._cases[number] = _Case(now, now - current.opened_at, Gathering(number))
        for failed in case.evidence.add(new):
            case.compare(failed)
        if self.pending is not None and self.pending.round == number != current.number:
            self.pending = self.verdict(number)  # provisional until the round after this one

    def verdict(self, number: int) -> Incident | None:
        """The incident that the evidence of round `number` amounts to so far."""
        case = self._cases.get(number)
        incident = case.evidence.judge() if case else None
        return dataclasses.replace(incident, ran=case.ran) if case and incident else None

    def fault(
        self, number: int, max_restarts: int, same_failure_limit: int, workers: int = 0, own_failure_limit: int = 0
    ) -> Fault | None:
        """The same as `round.decide` wants it, with how the job must end on account of it.

        Args:
            own_failure_limit: takes the other limit's place for exceptions of the script's own; 0: nothing does.
            workers: how many exits of round `number` can be reported; 0 where that is not known.
        """
        incident = self.verdict(number)
        if incident is None:
            return None
        case = self._cases[number]
        end, alike_by = None, -math.inf
        if incident.cause in ("failure", "problem"):  # the others are free, whatever the tally
            tally = charge(self.settled(), incident)
            if own_failure_limit and incident.exit and its_own(incident.exit):
                same_failure_limit = own_failure_limit
            end = fatal(tally, incident, max_restarts, same_failure_limit)
            if end is None and same_failure_limit and workers and case.alike and (last := hopeless(tally, incident)):
                if case.evidence.all_failed(workers):
                    end = last
                else:
                    alike_by = case.since + ALIKE_SECONDS
        root_by = case.since + ROOT_SECONDS if consequence(incident, maybe=True) else -math.inf
        outcome, reason = end or (None, incident.reason)
        complete = case.evidence.all_failed(workers) and not case.evidence.outside
        return Fault(reason, incident.cause, outcome, case.since + GATHER * (not complete), root_by, alike_by)

    def goes_back(self, number: int) -> bool:
        """Whether round `number` ends because the job is to go back to a checkpoint."""
        incident = self.verdict(number)
        return incident is not None and isinstance(incident.reason, ReturnWanted)

    def settled(self) -> Tally:
        """The tally with the incident that opened the current round."""
        return charge(self.tally, self.pending)

    def turn(self, number: int, tally: Tally, because: Incident | None) -> None:
        """Round `number` has been published, with `tally` and because of `because`."""
        self.tally, self.pending = tally, because
        if because is not None and because.cause != "joined":
            self.pending = self.verdict(number - 1) or because  # more may have come while it was being published
        self._cases = {key: case for key, case in self._cases.items() if key >= number - 1}

    def _gathers(self, number: int, now: float) -> bool:
        """Whether what comes `now` may still change what is known of that round."""
        case = self._cases.get(number)
        return case is not None and now <= case.since + GATHER
