"""Where a job's keys are in the store.

/elastic-run/<job>/leader                        leased: the elected master
/elastic-run/<job>/nodes/<node>                  leased: one registered node, written by that node only
/elastic-run/<job>/round                         the header of the current round, which alone publishes it
/elastic-run/<job>/listening                     leased: the number of the round whose rank 0 listens for the others
/elastic-run/<job>/assignments/<prefix>/<node>   what the header's round gives to each node
/elastic-run/<job>/assignments/<prefix>/peers/<number>  where the round's workers are, if their framework asks
/elastic-run/<job>/assignments/<prefix>/time/now  what the job's time went into, once all its workers ran
/elastic-run/<job>/successes/<incarnation>       a node whose workers of the current round all ended with 0
/elastic-run/<job>/evictions/<incarnation>       leased: why a node was evicted
/elastic-run/<job>/ledgers/<name>                who has which shards of a dataset whose position lies in checkpoints
/elastic-run/<job>/queues/<name>                 the same of one whose position lies here: only a success removes it
/elastic-run/<job>/outcome                       leased for a minute: this job has just succeeded
/elastic-run/<job>/ends/<node>/<run>             leased with it: that node has seen that run succeed
"""

from urllib.parse import quote, unquote

from .base.frozen import dataclass, field

ROOT = "/elastic-run/"


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the job `job`; any text is a valid job id (it is percent-encoded)."""

    job: str
    root: str = field(init=False, repr=False, compare=False)
    """The prefix of all of them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", f"{ROOT}{_quoted(self.job)}/")

    @property
    def leader(self) -> str:
        """The elected master."""
        return f"{self.root}leader"

    @property
    def nodes(self) -> str:
        """The prefix of the registered nodes."""
        return f"{self.root}nodes/"

    def node(self, node: str) -> str:
        """One registered node."""
        return f"{self.nodes}{_quoted(node)}"

    def node_at(self, key: str) -> str:
        """Whose registration that key is; the reverse of `node`."""
        return unquote(key.removeprefix(self.nodes), errors="surrogateescape")

    @property
    def round(self) -> str:
        """The current round's header."""
        return f"{self.root}round"

    @property
    def listening(self) -> str:
        """Which round's rank 0 was the last to listen for its peers."""
        return f"{self.root}listening"

    @property
    def assignments(self) -> str:
        """The prefix of all assignments."""
        return f"{self.root}assignments/"

    def assignment(self, prefix: str, node: str) -> str:
        """One node's assignment in the round that named `prefix`."""
        return f"{self.assignments}{prefix}/{_quoted(node)}"

    def peers(self, prefix: str, number: int | None = None) -> str:
        """One value of where the workers of that round are; None: the prefix of all. No node's name has a slash."""
        return f"{self.assignments}{prefix}/peers/{'' if number is None else f'{number:06d}'}"

    def time(self, prefix: str) -> str:
        """What the job's time went into until the round that named `prefix` trained, saved, or stood still."""
        return f"{self.assignments}{prefix}/time/now"

    @property
    def successes(self) -> str:
        """The prefix of the nodes that have done their part of the current round."""
        return f"{self.root}successes/"

    def success(self, incarnation: str) -> str:
        """That incarnation has done its part."""
        return f"{self.successes}{incarnation}"

    @property
    def evictions(self) -> str:
        """The prefix of the reasons why nodes were evicted."""
        return f"{self.root}evictions/"

    def eviction(self, incarnation: str) -> str:
        """Why that incarnation was evicted."""
        return f"{self.evictions}{incarnation}"

    @property
    def ledgers(self) -> str:
        """The prefix of the ledgers of datasets of tracking mode "checkpoint"."""
        return f"{self.root}ledgers/"

    def ledger(self, name: str) -> str:
        """The ledger of that dataset."""
        return f"{self.ledgers}{_quoted(name)}"

    @property
    def queues(self) -> str:
        """The prefix of the ledgers of datasets of tracking mode "ack"."""
        return f"{self.root}queues/"

    def queue(self, name: str) -> str:
        """The ledger of that dataset."""
        return f"{self.queues}{_quoted(name)}"

    @property
    def outcome(self) -> str:
        """The tombstone of a success."""
        return f"{self.root}outcome"

    def seen_end(self, node: str, run: str = "") -> str:
        """That node has seen that run succeed; without one: the prefix of the runs of which it has."""
        return f"{self.root}ends/{_quoted(node)}/{run}"

    def is_mark(self, key: str) -> bool:
        """It is of a success, and goes by itself."""
        return key == self.outcome or key.startswith(f"{self.root}ends/")


def _quoted(text: str) -> str:
    """Percent-encoded, also where it was given in bytes that are no UTF-8."""
    return quote(text, safe="", errors="surrogateescape")
