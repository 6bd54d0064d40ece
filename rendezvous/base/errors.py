"""The base of every error of elastic-run, and what can go wrong between a node and its job.

    ElasticRunError
    ├── RendezvousError (below), which only the launcher's own code sees
    └── what a script or a caller of `launch` sees: the list is `elastic_run.exceptions`

    RendezvousError
    ├── StoreError              the store's side
    │   ├── StoreUnavailable    nobody answered within the deadline; nothing was written
    │   │   └── MaybeApplied    a write timed out: it may or may not have been applied; re-read before repeating
    │   ├── Compacted           a watch asked for history that the store no longer has; list again
    │   ├── LeaseLost           the lease expired or was revoked: its keys are gone
    │   ├── NoThreads           this process may not start the threads that asking a store takes
    │   └── StoreRefused        the store answered and said no (credentials, version, no space); retrying is useless
    │       └── Unreadable      a key of the job holds what is no value of this version
    │           └── Sealed      or what was written with another secret
    ├── NoUsableEtcd            an etcd must be started or used here, and cannot (its kinds: `binary`, `embedded`)
    ├── Deposed                 this master is no longer the leader; its write changed nothing
    └── Refused                 the job refuses this node, with a sentence that says what to do
        ├── AlreadyOver         because it has just succeeded
        └── OtherSecret         because its nodes share a secret that this node does not have

Messages say what happened, to whom, and what to do next.
"""


class ElasticRunError(Exception):
    """Base of every error that elastic-run raises of its own; a `public` one shows the path that a script imports."""

    __module__ = "elastic_run.exceptions"

    def __init_subclass__(cls, *, public: bool = False) -> None:
        if public:
            cls.__module__ = ElasticRunError.__module__


class RendezvousError(ElasticRunError):
    """Base of everything that rendezvous raises."""


class StoreError(RendezvousError):
    """The store could not do what was asked."""


class StoreUnavailable(StoreError):
    """No endpoint answered within the deadline; nothing was written."""


class MaybeApplied(StoreUnavailable):
    """A write timed out on the way: it may or may not have been applied."""


class Compacted(StoreError):
    """The history before `revision` is gone.

    Attributes:
        revision: the oldest revision that the store still has.
    """

    def __init__(self, revision: int) -> None:
        super().__init__(f"the store has compacted its history up to revision {revision}: list the keys again")
        self.revision = revision


class LeaseLost(StoreError):
    """The lease expired or was revoked; every key under it is gone."""


class NoThreads(StoreError):
    """This process may not start the threads that asking a store takes; nothing was asked."""


class StoreRefused(StoreError):
    """The store answered and refused; trying again without a change is useless."""


class Unreadable(StoreRefused):
    """A key of the job holds what this version cannot read, or what cannot be meant."""


class Sealed(Unreadable):
    """A key of the job holds what was written with another secret than this node's."""


class NoUsableEtcd(RendezvousError):
    """An etcd must be started or used here, and cannot; to try again without a change is useless."""


class Deposed(RendezvousError):
    """Another master leads: the fenced write changed nothing."""


class Refused(RendezvousError):
    """The job does not take this node."""


class AlreadyOver(Refused):
    """The job has succeeded within the last minute."""


class OtherSecret(Refused):
    """The job's nodes share a secret that this node does not have."""
