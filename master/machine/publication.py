"""From a decision to the header that tells of it: what it says, and who goes before it is published.

A part of the controller (pure). `publish.py` writes the header.
"""

from collections.abc import Mapping
from dataclasses import replace

from ...rendezvous import peers, ranks
from ...rendezvous.header import Header
from ...rendezvous.member import Fingerprint
from ...rendezvous.ranks import Assignment
from ...rendezvous.reasons import Reason
from ...rendezvous.round import Finish, Open, OpenInPlace, Suspend
from . import effects, incident
from .changes import Lost
from .faults import Charge
from .round_state import RoundState


class Publication:
    """Of one leadership.

    Args:
        run: what a run that begins with the next header is called.
        recovery_timeout: how long a suspended job waits, in seconds.

    Attributes:
        header: the current one, once it is adopted or published.
        revision: its mod revision.
        published_at: when it was (the master's clock).
        assigned: what the round that is published, or was last, assigns.
    """

    def __init__(self, run: str, recovery_timeout: float) -> None:
        self.header: Header | None = None
        self.revision = 0
        self.published_at = 0.0
        self.assigned: tuple[Assignment, ...] = ()
        self._run = run
        self._recovery_timeout = recovery_timeout
        self._chosen = frozenset[str]()  # the incarnations of the round that is being published
        self._lost: dict[str, Lost] = {}  # of those, who has gone meanwhile

    @property
    def run(self) -> str:
        """What the job's run is, or will be, called."""
        return self.header.run if self.header else self._run

    def adopt(self, header: Header, revision: int, published_at: float) -> None:
        """This header is the current one."""
        self.header, self.revision, self.published_at = header, revision, published_at

    def prepare(
        self,
        decision: Open | Suspend | Finish,
        reason: Reason,
        charge: Charge,
        current: RoundState,
        fingerprint: Fingerprint,
    ) -> effects.Publish:
        """What is to be published of a decision on the `current` round; its time is not split yet."""
        base = self.header or Header(0, self._run, "open", "start", reason, fingerprint)
        counted = None if isinstance(decision, Finish) else charge.incident
        header = replace(
            base,
            number=current.number + 1,
            reason=reason,
            in_place=isinstance(decision, OpenInPlace),
            previous_nodes=base.nodes,
            tally=charge.tally,
            incident=charge.incident,
            restart_count=incident.count_restarts(charge.tally, counted, base),
            max_restarts=charge.max_restarts,
            rows_from=current.number + 1 if charge.goes_back else base.rows_from,
        )
        match decision:
            case Open():
                return self._open(decision, header, charge.begun, current)
            case Suspend(cause):
                header = replace(header, state="waiting", cause=cause, deadline_seconds=self._recovery_timeout)
                return effects.Publish("suspend", header, (), charge.begun)
            case Finish(outcome):
                return effects.Publish("finish", replace(header, state=outcome), (), charge.begun)

    def lose(self, lost: Lost) -> None:
        """Of the round that is being published, perhaps."""
        if lost.incarnation in self._chosen:
            self._lost[lost.incarnation] = lost

    def keep_node(self, incarnation: str) -> None:
        """It is there, whatever was heard."""
        self._lost.pop(incarnation, None)

    def all_here(self, present: Mapping[str, object]) -> bool:
        """These are there, and so nobody was lost of the round that is being published."""
        return self._chosen <= present.keys()

    def open_round(self) -> list[Lost]:
        """The round is published; who of it has gone meanwhile."""
        lost = list(self._lost.values())
        self._chosen, self._lost = frozenset[str](), {}
        return lost

    def _open(self, decision: Open, header: Header, begun: float, current: RoundState) -> effects.Publish:
        nodes, before = decision.nodes, {each.incarnation: each for each in current.assigned}
        started = {each: before[each].since or current.number for each in decision.untouched}
        self.assigned = ranks.assign(header.number, nodes, decision.node_workers, before, started)
        self._chosen, self._lost = frozenset(member.incarnation for member in nodes), {}
        first = nodes[0].incarnation in current.current.nodes[:1]
        if not (self.header and decision.untouched and first):  # who is untouched goes on where they met
            ports = nodes[0].ports
            port = ports[header.number % len(ports)] if ports else 0
            header = replace(header, master_addr=nodes[0].host, master_port=port)
        header = replace(
            header,
            state="open",
            cause=decision.cause,
            prefix="",
            nodes=len(self.assigned),
            world_size=sum(each.nproc for each in self.assigned),
            deadline_seconds=0.0,
            roles=ranks.by_role(decision.node_workers),
        )
        where = peers.chunks(header.number, nodes, self.assigned)
        return effects.Publish("open", header, self.assigned, begun, where)
