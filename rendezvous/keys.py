"""Where a job's keys are in the store.

/elastic-run/<job>/leader                        leased: the elected master
/elastic-run/<job>/nodes/<node>                  leased: one registered node, written by that node only
/elastic-run/<job>/round                         the header of the current round, which alone publishes it
/elastic-run/<job>/targets                       how many nodes the job wants, of each role, and why
/elastic-run/<job>/slots                         which parameter server holds which ids (`master/servers/slot_table.py`)
/elastic-run/<job>/servers/<number>              leased: the parameter server that runs in that place
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

ROOT = "/elastic-run/"


class Keys:
    """The keys of the job `job`; any text is a valid job id (it is percent-encoded).

    The attributes are keys, or where they end with a slash what the keys of a kind begin with; `root` begins them all.
    """

    def __init__(self, job: str) -> None:
        self.job = job
        self.root = f"{ROOT}{_quoted(job)}/"
        self.leader = f"{self.root}leader"
        self.nodes = f"{self.root}nodes/"
        self.round = f"{self.root}round"
        self.targets = f"{self.root}targets"
        self.slots = f"{self.root}slots"
        self.servers = f"{self.root}servers/"
        self.listening = f"{self.root}listening"
        self.assignments = f"{self.root}assignments/"
        self.successes = f"{self.root}successes/"
        self.evictions = f"{self.root}evictions/"
        self.ledgers = f"{self.root}ledgers/"
        self.queues = f"{self.root}queues/"
        self.outcome = f"{self.root}outcome"

    def node(self, node: str) -> str:
        return f"{self.nodes}{_quoted(node)}"

    def node_at(self, key: str) -> str:
        """Whose registration that key is; the reverse of `node`."""
        return unquote(key.removeprefix(self.nodes), errors="surrogateescape")

    def assignment(self, prefix: str, node: str) -> str:
        """One node's in the round that named `prefix`."""
        return f"{self.assignments}{prefix}/{_quoted(node)}"

    def peers(self, prefix: str, number: int | None = None) -> str:
        """One value of where the workers of that round are; None: the prefix of all. No node's name has a slash."""
        return f"{self.assignments}{prefix}/peers/{'' if number is None else f'{number:06d}'}"

    def time(self, prefix: str) -> str:
        """What the job's time went into until the round that named `prefix` trained, saved, or stood still."""
        return f"{self.assignments}{prefix}/time/now"

    def server(self, number: int) -> str:
        return f"{self.servers}{number}"

    def success(self, incarnation: str) -> str:
        return f"{self.successes}{incarnation}"

    def eviction(self, incarnation: str) -> str:
        return f"{self.evictions}{incarnation}"

    def ledger(self, name: str) -> str:
        return f"{self.ledgers}{_quoted(name)}"

    def queue(self, name: str) -> str:
        return f"{self.queues}{_quoted(name)}"

    def seen_end(self, node: str, run: str = "") -> str:
        """That node has seen that run succeed; without one: the prefix of the runs of which it has."""
        return f"{self.root}ends/{_quoted(node)}/{run}"

    def is_mark(self, key: str) -> bool:
        """It is of a success, and goes by itself."""
        return key == self.outcome or key.startswith(f"{self.root}ends/")


def _quoted(text: str) -> str:
    """Percent-encoded, also where it was given in bytes that are no UTF-8."""
    return quote(text, safe="", errors="surrogateescape")
