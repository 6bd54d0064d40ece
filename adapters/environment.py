"""The whole environment of one worker: what it inherits, the plain variables, its framework's, and our own (pure)."""

import signal
import sys
from collections.abc import Mapping

from ..rendezvous.base.errors import ElasticRunError
from ..rendezvous.base.frozen import dataclass, field, replace
from .accelerators import own_device
from .client.context import AGENT, JOB, LARGEST_WORLD, RESTART_COUNT, ROUND, SCALE_UP
from .client.script_trace import TRACE, TRACE_NODE
from .contract import Round, Worker
from .plain import Plain


@dataclass(frozen=True, slots=True)
class Told:
    """What the library in a worker (`client/`) is told of the job, whatever the framework.

    Attributes:
        largest_world: how many workers the job may come to have; 0 is not told.
        agent: where the worker can ask its agent; empty is not told.
        tells_saves: the job wants to know of checkpoints.
        trace: the file that the launcher traces to; empty is not told.
    """

    largest_world: int = 0
    agent: str = ""
    tells_saves: bool = False
    trace: str = ""


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What all workers of one node have in common, whatever the round: what the flags say of them.

    The launcher makes it once (`launcher/early.py`), for the interpreter that workers are forked from, for the agent
    and for a dry run.

    Attributes:
        inherited: the launcher's own environment, without its secrets.
        told: what our library in them is told; the agent adds its address.
        commands: by role, the command line where it is not `command`.
        python: their interpreter, for the services beside them.
        role: theirs, in a job without roles.
        own_device: each sees one accelerator only (--virtual-local-rank).
        signals: those that tell a worker to end.
    """

    job: str
    node: str
    adapter: Plain
    command: tuple[str, ...]
    inherited: Mapping[str, str]
    told: Told = field(default_factory=Told)
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    python: str = sys.executable
    role: str = "default"
    own_device: bool = False
    signals: tuple[signal.Signals, ...] = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)

    @property
    def signal_names(self) -> tuple[str, ...]:
        """As in SIGTERM."""
        return tuple(number.name for number in self.signals)

    def environment(self, round: Round, worker: Worker, agent: str = "") -> dict[str, str]:
        """The whole environment of one worker; `agent`: where it can ask its agent. Raises as `worker_environment`."""
        return worker_environment(self.adapter, round, worker, self.inherited, replace(self.told, agent=agent))


class AdapterFailed(ElasticRunError, ValueError):
    """An adapter raised what it should not; the message names it. It is to be mended by its author."""


def per_worker(adapter: Plain) -> frozenset[str]:
    """The variables that are not the same for all workers of a node in all rounds, often are made so by a script (the
    devices), or are known only once the agent listens."""
    plain = frozenset(_plain(Round("", 0, 0, 0, "", 0), Worker(0, 0, 0)))
    return (plain | adapter.per_worker | {ROUND, AGENT, adapter.visible_devices}) - {JOB, ""}


def worker_environment(
    adapter: Plain, round: Round, worker: Worker, inherited: Mapping[str, str], told: Told
) -> dict[str, str]:
    """The whole environment of one worker.

    Args:
        round, worker: what it is part of, and who it is.
        inherited: the launcher's own environment.
        told: what our library in it is told.

    Raises:
        ValueError: there are fewer visible devices than workers, or this worker cannot be started for another reason.
        AdapterFailed: the adapter is broken.
    """
    try:
        variables = dict(adapter.environment(round, worker, inherited))
    except ValueError:
        raise
    except Exception as error:  # code that is not ours
        raise AdapterFailed(
            f"the adapter {adapter.name} failed at the environment of rank {worker.rank}: {error!r}"
        ) from error
    given: dict[str, str | None] = {**inherited, **_plain(round, worker), **variables}
    if worker.own_device:
        name = adapter.visible_devices
        given[name] = own_device(name, inherited.get(name), worker.local_rank)
    return {name: value for name, value in {**given, **_ours(round, worker, told)}.items() if value is not None}


def _plain(round: Round, worker: Worker) -> dict[str, str | None]:
    """What every worker has: names that most frameworks' users know."""
    return {
        "RANK": str(worker.rank),
        "LOCAL_RANK": "0" if worker.own_device else str(worker.local_rank),
        "WORLD_SIZE": str(round.world_size),
        "LOCAL_WORLD_SIZE": str(worker.local_world_size),
        "GROUP_RANK": str(worker.node_rank),
        "GROUP_WORLD_SIZE": str(round.nodes),
        "ROLE_NAME": worker.role,
        "MASTER_ADDR": round.master_addr,
        "MASTER_PORT": str(round.master_port) if round.master_port else None,
        JOB: round.job,
        RESTART_COUNT: str(round.restart_count),
    }


def _ours(round: Round, worker: Worker, told: Told) -> dict[str, str | None]:
    """None: also that of a launcher around this one goes."""
    numbers = {ROUND: round.number, LARGEST_WORLD: told.largest_world}
    return {name: str(number) for name, number in numbers.items() if number} | {
        AGENT: told.agent or None,
        SCALE_UP: "commit" if told.tells_saves else None,
        TRACE: told.trace or None,
        TRACE_NODE: worker.node if told.trace else None,
    }
