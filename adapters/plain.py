"""What is asked of an adapter, and the one for no framework in particular (`--framework=none`), which answers (pure).

The adapters of frameworks inherit from it, and answer otherwise where they differ.
"""

from collections.abc import Mapping, Sequence

from . import accelerators
from .contract import Accelerators, Hint, ImportsAhead, Meeting, Round, Service, Worker

COLLECTIVES = (r"gloo(?!::\w+: invalid)", r"nccl", r"mpi_", r"ucc\b", r"HorovodInternalError")
"""Words of the libraries by which workers exchange tensors: a worker with an error there has lost a peer, unless
it is about the script's own tensors. Several frameworks use each of them, and so may a script without one."""


GLOO_SECONDS = 0.25
"""gloo forgets a send that fails, and the receiver waits until the group's time-out. So a send must not fail before
the worker has read that its process group is at its end, which gloo does within milliseconds, or later."""


class Plain:
    """Tells a script who it is, and nothing that only one framework knows.

    Nothing here may take long, print, or change anything.
    """

    name: str = "none"
    """As `--framework` gives it; by it nodes tell whether all have the same adapter."""

    port: str = "MASTER_PORT"
    """What workers call the port that is kept free for them on the host of rank 0, for messages.

    Each round has another one. Empty: workers need none, and no node offers any.
    """

    needs: tuple[str, ...] = ()
    """The packages that workers import, as in `import NAME`. Without them a job is refused before it starts."""

    meets_through: Meeting | None = None
    """How workers meet at that port, where others must not come before rank 0. None: nobody waits for rank 0."""

    half_open_seconds: float = GLOO_SECONDS
    """How an agent breaks the process group of workers that keep their process, when the round is over.

    Workers first read that their connections have ended. What they write goes nowhere only so many seconds later.
    0: at once.
    """

    worker_ports: int = 0
    """How many ports are held for each worker on its host until it starts, up to MOST_WORKER_PORTS.

    Workers that are started in a round have others than those that were started in the round before. With any, a
    round carries its peers. 0: workers need none.
    """

    per_worker: frozenset[str] = frozenset()
    """Those of the variables of `environment` that are not the same for all workers of a node in all rounds.

    An interpreter from which workers are forked must not read them before it forks.
    """

    standby: bool = True
    """Whether workers that keep their process may be started before a round has a rank for them."""

    state_from_rank_0: bool = False
    """Whether workers that keep their process take the job's state from rank 0.

    Then rank 0 goes to the worker that has been there for the longest time, and a node's ranks may begin with
    another than its first worker.
    """

    visible_devices: str = accelerators.VISIBLE
    """The variable that says which accelerators a process sees, as in CUDA_VISIBLE_DEVICES; empty: none does."""

    imports_ahead: ImportsAhead = ImportsAhead()
    """What may be imported before workers are forked."""

    consequences: tuple[str, ...] = COLLECTIVES
    """Regular expressions, whatever the case: a worker whose message has one of them has lost another worker.

    Its failure is a consequence, and the cause is looked for elsewhere. Lost connections are known without it.
    """

    hints: tuple[Hint, ...] = ()
    """What to do about this framework's failures; the first that fits is printed."""

    def accelerators(self, environ: Mapping[str, str]) -> Accelerators:
        """How many workers `--nproc-per-node=gpu` starts with this environment, without importing the framework.

        Here: NVIDIA's GPUs.
        """
        return Accelerators(accelerators.count_gpus(environ), accelerators.SOUGHT)

    def environment(self, round: Round, worker: Worker, inherited: Mapping[str, str]) -> Mapping[str, str | None]:
        """The variables that the framework expects, beside the plain ones; None takes one away. Here: nothing.

        Args:
            round: what all workers have in common. It also is asked for with ranks and sizes of 0, for what does not
                depend on them.
            worker: whose.
            inherited: the launcher's own variables, which the worker has as well.

        Raises ValueError where this worker cannot be started, with words.
        """
        return {}

    def role_options(self, roles: Mapping[str, int]) -> Mapping[str, str]:
        """What this framework's roles are unless the user says otherwise, by name, as `--role-options` would give it.

        Asked only where the job has roles, before anything starts. Here: all are alike.

        Args:
            roles: the most nodes that each role may have, by its name, in the order of `--roles`.

        Raises ValueError where the framework cannot run with these, with words.
        """
        return {}

    def services(self, round: Round) -> Sequence[Service]:
        """The processes that run beside the workers of this round, of names that differ. Here: none.

        Raises ValueError where the round cannot be served, with words.
        """
        return ()
