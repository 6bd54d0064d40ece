"""What a job's nodes hold of its checkpoint in memory, and what may be lost of it (pure)."""

from ...rendezvous.base.frozen import dataclass
from ...rendezvous.wire.fields import Number


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """As rank 0 knows it after a commit.

    Attributes:
        step: the newest of which all nodes have what is theirs.
        every: steps from one copy into memory to the next.
        nodes: how many there are.
        in_pieces: each rank has shards, which its node alone holds until they are copied to another one.
        safe: the newest step of which all shards are on two nodes; None: there is none in this round.
    """

    step: Number
    every: Number
    nodes: Number
    in_pieces: bool = False
    safe: Number | None = None


def memory_words(report: MemoryReport) -> str:
    """What the job survives, and with how many steps lost, as one sentence without its end."""
    most = report.every - 1
    lost = f"at most {most} {'step' if most == 1 else 'steps'} lost" if most else "no step lost"
    workers = "survives the loss of all workers"
    if report.nodes < 2:
        return f"{workers} with {lost}, but not of this node's agent, whose death takes the memory"
    if not report.in_pieces:
        return f"{workers}, and of all nodes but one, with {lost}"
    if report.safe is None:
        return f"{workers} with {lost}, but not yet of a node: the first copies of its shards are on their way"
    behind = report.step - report.safe + most
    return f"{workers} with {lost}, of any one node with {f'at most {behind}' if behind else 'none'}"
