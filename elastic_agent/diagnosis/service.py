"""An agent's part in a diagnosis: it tells that workers stand still, and shows them and ends them for the master."""

from collections import deque
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from ...master.diagnosis.evidence import MAX_TAIL, NodeEvidence, Worker
from ...master.diagnosis.examination import CONDEMN, EVIDENCE, REPLACE
from ...master.diagnosis.findings import MAX_FINDINGS, Finding
from ...master.diagnosis.requests import Condemned, Done, Look, Replacement
from ...master.machine.parameter_servers import NodeServers
from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.rpc.envelope import Caller
from ...rendezvous.rpc.server import Method, Methods
from ..inbox import Inbox
from ..setup import Setup
from .running import Running
from .stacks import MISSING, py_spy
from .watch import ProgressWatch

if TYPE_CHECKING:
    from .looks import Looks


@dataclass(eq=False, repr=False)
class Diagnosis:
    """Of one agent.

    Args:
        setup: what the agent is started with.
        inbox: what the agent knows.
        workers: those of this node.
        steps: how often the worker of a rank has told this agent that it comes on.
        condemn: kills the worker of a rank, and says why.
        leave: has this node leave, and says why; False: it leaves already.
        say: prints one line for a person.
        diagnosed: takes each finding of this agent's own master, at each look.
        servers: the parameter servers of this node, and the workers that wait for some; None: it keeps none.

    Attributes:
        findings: the newest of this agent's own master; none while another agent leads the job.
    """

    _setup: Setup
    _inbox: Inbox
    _workers: Callable[[], Sequence[Running]]
    _steps: Callable[[int], int]
    _condemn: Callable[[int, str], bool]
    _leave: Callable[[str], bool]
    _say: Callable[[str], None]
    _diagnosed: Callable[[Finding], None]
    _servers: Callable[[], NodeServers | None] = lambda: None

    def __post_init__(self) -> None:
        self.findings: deque[Finding] = deque(maxlen=MAX_FINDINGS)
        self._program = py_spy()
        self._watch = ProgressWatch(
            self._setup.hang_timeout,
            self._workers,
            self._steps,
            self._inbox,
            lambda near: self._looks.look_ahead(near),
            self._say,
        )

    @cached_property
    def _looks(self) -> "Looks":
        from .looks import Looks  # here, because workers that make progress are not looked at

        return Looks(self._program)

    async def watch(self) -> None:
        """Runs as long as the agent does."""
        if self._program is None:
            self._say(f"{MISSING}: a rank that stands still is named only where the kernel proves that it is the cause")
        try:
            await self._watch.run()
        finally:
            if "_looks" in vars(self):
                await self._looks.close()

    def methods(self) -> Methods:
        """What others may ask this agent."""

        async def evidence(_: Caller, wanted: Look) -> NodeEvidence:
            return await self.look(wanted)

        async def condemn(_: Caller, condemned: Condemned) -> Done:
            return self.condemn(condemned)

        async def replace(_: Caller, replacement: Replacement) -> Done:
            return self.replace(replacement)

        return {
            EVIDENCE: Method(Look, evidence),
            CONDEMN: Method(Condemned, condemn),
            REPLACE: Method(Replacement, replace),
        }

    def tell(self, finding: Finding) -> None:
        """Takes a finding of this agent's own master."""
        before = next((each for each in self.findings if each.key == finding.key), None)
        if before:
            self.findings.remove(before)
        self.findings.append(finding if finding.done or not before else replace(finding, done=before.done))
        self._diagnosed(finding)

    async def look(self, wanted: Look) -> NodeEvidence:
        """The evidence of this node's workers; none of them where they are not those of the asked round."""
        name, ours = self._inbox.state.key.name or self._setup.workers.node, self._inbox.state.workers
        here = ours.round if wanted.round not in ours.adopted else wanted.round

        def workers() -> Sequence[Running]:
            found = self._workers() if here == wanted.round else ()
            return [each for each in found if wanted.rank in (None, each.rank)]

        if wanted.tail:
            return NodeEvidence(name, wanted.round, tuple(map(_printed, workers())))
        seen = await self._looks.look(name, wanted.round, workers, self._watch.quiet, long=wanted.long)
        return with_servers(seen, found) if (found := self._servers()) else seen

    def condemn(self, condemned: Condemned) -> Done:
        """Kills a worker, where it is still that of the round."""
        return Done(condemned.round == self._inbox.state.workers.round and self._condemn(condemned.rank, condemned.why))

    def replace(self, replacement: Replacement) -> Done:
        """Has this node leave, where its workers are still those of the round."""
        return Done(replacement.round == self._inbox.state.workers.round and self._leave(replacement.why))


def with_servers(seen: NodeEvidence, found: NodeServers) -> NodeEvidence:
    """With what is known of this node's parameter servers, and of its workers that wait for some (pure)."""
    waits = {each.rank: each for each in found.waits}
    workers = tuple(replace(each, servers=waits.get(each.rank)) for each in seen.workers)
    return replace(seen, workers=workers, servers=found.servers)


def _printed(each: Running) -> Worker:
    from .looks import last_lines  # here, as `Looks`

    lines = last_lines(each.tail, MAX_TAIL)
    return Worker(each.rank, each.local_rank, each.pid, each.ended, last_lines=lines)
