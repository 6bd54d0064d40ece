"""The cases before the judge: evidence by round, the incident that is still open, and what has been charged (pure).

A round is opened on the first evidence that is no mere consequence, and its verdict is provisional: what arrives for
`incident.GATHER` seconds may still change what the round before ended of. Time is an argument, and so is the current
round.

Invariants: an incident is charged once; evidence of a round that nothing had ended charges nothing; what is lost while
nobody trains belongs to the incident that suspended the job.
"""

import dataclasses
import math

from ..rendezvous.header import Incident, Tally
from ..rendezvous.round import Fault, Round
from .incident import GATHER, ROOT_SECONDS, Evidence, charge, consequence, fatal, judge


class Docket:
    """What is known of incidents. A new master begins with the tally and the open incident of the header.

    Attributes:
        tally: the closed incidents.
        pending: why the current round was opened; charged when the next one is.
    """

    def __init__(self, tally: Tally | None = None, pending: Incident | None = None) -> None:
        self.tally = tally or Tally()
        self.pending = pending
        self._evidence: dict[int, Evidence] = {}
        self._since: dict[int, float] = {}
        self._ran: dict[int, float] = {}  # so many seconds until then

    def note(self, new: Evidence, current: Round, now: float) -> None:
        """Adds `new` to what is known of its round; what came too late to count changes nothing."""
        number = new.round
        if number == current.number and not current.running:
            number -= 1  # nobody trains: it belongs to the incident that suspended the job
        if number != current.number:
            since = self._since.get(number)
            if since is None or now > since + GATHER:
                return
        elif (new.lost or new.left) and self.pending and now <= self._since.get(number - 1, -math.inf) + GATHER:
            # The news of what ended the round before comes after its consequences: it is one incident, charged once.
            self.pending = None
        self._since.setdefault(number, now)
        self._ran.setdefault(number, now - current.opened_at if number == current.number else 0.0)
        known = self._evidence.get(number, Evidence(number))
        self._evidence[number] = known.joined(new)
        if self.pending is not None and self.pending.round == number != current.number:
            self.pending = self.verdict(number)  # provisional until the round after this one

    def verdict(self, number: int) -> Incident | None:
        """The incident that the evidence of round `number` amounts to so far."""
        evidence = self._evidence.get(number)
        if evidence is None or evidence.empty:
            return None
        return dataclasses.replace(judge(evidence), ran=self._ran[number])

    def fault(self, number: int, max_restarts: int, same_failure_limit: int) -> Fault | None:
        """The same as `round.plan` wants it, with how the job must end on account of it."""
        incident = self.verdict(number)
        if incident is None:
            return None
        end = None
        if incident.cause in ("failure", "problem"):  # the others are free, whatever the tally
            end = fatal(charge(self.settled(), incident), max_restarts, same_failure_limit)
        text = f"{incident.text}; {end[1]}" if end else incident.text
        since = self._since[number]
        root_by = since + ROOT_SECONDS if consequence(incident) else -math.inf
        return Fault(text, incident.cause, end[0] if end else None, since + GATHER, root_by)

    def settled(self) -> Tally:
        """The tally with the incident that opened the current round."""
        return charge(self.tally, self.pending)

    def turn(self, number: int, tally: Tally, because: Incident | None) -> None:
        """Round `number` has been published, with `tally` and because of `because`."""
        self.tally, self.pending = tally, because
        if because is not None and because.cause != "joined":
            self.pending = self.verdict(number - 1) or because  # more may have come while it was being published
        self._evidence = {key: value for key, value in self._evidence.items() if key >= number - 1}
        self._since = {key: value for key, value in self._since.items() if key >= number - 1}
        self._ran = {key: value for key, value in self._ran.items() if key >= number - 1}
