"""What a node may do next: `plan.act` says which, `agent.py` carries it out."""

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.header import Header
from ...rendezvous.ranks import Assignment


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do until something changes, or `seconds` have passed."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Register:
    """Become a member (again)."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Take up the registration whose lease has ended, as the same incarnation. The workers continue."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start the workers of this round, having read the header once more."""

    header: Header
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Ready:
    """Start workers without a rank: they do all that precedes their first process group, and wait, as stayers do."""

    header: Header


@dataclass(frozen=True, slots=True)
class Invite:
    """Ask the workers to leave the process group for `round` together, at a step's end; wait up to `seconds`."""

    round: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Break:
    """Break the workers' process group: the job waits for nodes, and they keep what they have until then."""

    round: int


@dataclass(frozen=True, slots=True)
class Reform:
    """Give each worker that keeps its process its rank assignment in this round, and start those that are missing."""

    header: Header
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Adopt:
    """The workers continue as they are: another node's are started again in this round, and theirs are not."""

    header: Header
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Stop:
    """End every local worker: signal `first`, SIGKILL after `grace` seconds."""

    first: int
    grace: float


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the job and exit with `code`."""

    code: int


Action = Wait | Register | Resume | Start | Ready | Invite | Break | Reform | Adopt | Stop | Leave

Operation = Register | Resume | Start | Ready | Reform | Adopt | Stop
"""Those that take time. One is under way at a time."""
