"""The contract between elastic-run and an adapter: what a framework expects of the launcher of its workers (pure).

An adapter tells; it starts nothing, opens nothing and imports no framework, because the launcher and every agent load
it. It gets the frozen values that are here and returns plain ones. `plain.Plain` says what it is asked, and is the
adapter for no framework in particular: inherit from it and change what differs. `registry.adapter` finds an adapter by
what `--framework` gives.

Whatever the adapter says, a worker has the plain variables (`environment.py`): who it is, and where rank 0 is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from .imports_ahead import Package

MOST_WORKER_PORTS = 16


@dataclass(frozen=True, slots=True)
class Peer:
    """Where one worker of a round is.

    Attributes:
        rank: among all workers.
        host: as its peers call it.
        ports: free there until it starts; as many as `Plain.worker_ports` says.
        role: its role's name.
        node: the rank of its node.
    """

    rank: int
    host: str
    ports: tuple[int, ...]
    role: str = "default"
    node: int = 0


@dataclass(frozen=True, slots=True)
class Round:
    """What all workers of a rendezvous round have in common.

    Attributes:
        job: the job's id.
        number: of the round, from 1; 0 for workers that are started before they have a part in one.
        world_size: workers in the round.
        nodes: nodes in the round.
        master_addr: host of rank 0.
        master_port: free there until the workers start; 0 where the adapter wants none.
        restart_count: failures of the job so far that were charged.
        max_restarts: how many of them the job may have.
        signals: names of those that tell a worker to end, as in SIGTERM.
        peers: where all workers are, by rank. Empty where the adapter asks for no `worker_ports`, and in a round of
            number 0.
        services: the words that the services of this node said with `ready`, by their names. Empty while `services` is
            asked, and in a round of number 0.
    """

    job: str
    number: int
    world_size: int
    nodes: int
    master_addr: str
    master_port: int
    restart_count: int = 0
    max_restarts: int = 0
    signals: tuple[str, ...] = ()
    peers: tuple[Peer, ...] = ()
    services: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker of a round.

    Attributes:
        rank: among all workers.
        local_rank: among those of its node.
        local_world_size: workers of its node.
        node: its node's name.
        node_rank: of its node.
        role: its role's name (--roles, else --role).
        role_rank: among the workers of its role.
        role_world_size: workers of its role.
        error_file: where its library may describe its error: JSON with a `message`, or what torch's `record` writes.
            Without it the traceback is taken from the worker's stderr.
        own_device: it sees one accelerator only, as device 0 (--virtual-local-rank); the agent sets `visible_devices`.
    """

    rank: int
    local_rank: int
    local_world_size: int
    node: str = ""
    node_rank: int = 0
    role: str = "default"
    role_rank: int = 0
    role_world_size: int = 0
    error_file: str = ""
    own_device: bool = False


Lifetime = Literal["round", "job"]


@dataclass(frozen=True, slots=True)
class Service:
    """A process that an agent keeps beside its workers, such as a tracker or a coordinator.

    It runs in the workers' own Python, with what workers inherit as its environment. Of each round it is told by a line
    of JSON on its stdin, before the workers start: `job`, `round`, `world_size`, `nodes`, `master_addr`, `master_port`,
    `restart_count`, `node_rank` of its own node, and `peers`, a list by rank of `host`, `ports`, `role` and `node`. The
    workers start when it has printed the line `ready`, or has exited with 0, which means that it has done its work, or
    `ready_seconds` have passed. In a line `ready: WORDS` the adapter gets the words (`Round.services`). All else that
    it prints is shown with its name before it.

    A service can speak for workers that keep their process but know nothing of elastic-run: by `client.channel.Word`s
    with their local rank, on the socket that ELASTIC_RUN_AGENT names.

    A service that dies ends the round, and is named as the cause: the next round starts it again, with all workers, on
    every node. So does one that dies before it is ready, twice in a row at most. It ends with its agent, whatever ends
    that.

    Attributes:
        name: before its lines.
        arguments: what follows the interpreter: `("-m", "package.tracker")`, or a file and its arguments.
        lifetime: "round": each round has another process, which is ended after the workers; "job": one process is told
            of one round after the other while rank 0 stays on its node, or on every node, and ends with the agent.
        where: on the node of rank 0 ("first"), or on every node ("every").
        ready_seconds: how long workers wait for it.
        between_nodes: services of this kind speak to those of other nodes. Where the job's nodes prove themselves to
            each other, the line has `tls` for that: `authority`, `certificate` and `key` in PEM, and the `name` in each
            certificate, which is empty where the user's own authority vouches for whatever name there is.
    """

    name: str
    arguments: tuple[str, ...]
    lifetime: Lifetime = "round"
    where: Literal["first", "every"] = "first"
    ready_seconds: float = 30.0
    between_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Hint:
    """What to do about a failure.

    Attributes:
        pattern: a regular expression that is searched for in the failure's message and traceback.
        advice: one line for a person.
    """

    pattern: str
    advice: str


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The accelerators of this machine.

    Attributes:
        count: those that a worker may use.
        sought: what was looked for, and by what, to continue from the word "no": "NVIDIA GPU is visible here (...)".
    """

    count: int
    sought: str


@dataclass(frozen=True, slots=True)
class ImportsAhead:
    """What the warm interpreter may import beyond the table for all (`imports_ahead.py`).

    Attributes:
        packages: each was tried: its import gives every worker in every run the same result.
        repairs: by full name, modules that note something of their process when they are imported, each with a file of
            Python that has a function `repair(module)`. Each worker calls it, as if the module had been imported just
            now. It is not imported, so that the worker finds nothing of it.
    """

    packages: tuple[Package, ...] = ()
    repairs: Mapping[str, Path] = field(default_factory=dict[str, Path])


@dataclass(frozen=True, slots=True)
class Meeting:
    """How workers meet at the port of rank 0, where one that comes before rank 0 loses time.

    Workers that are forked begin at the same moment. Where they have `module` already, the others wait for rank 0.

    Attributes:
        module: by which they meet.
        later: seconds that the others on rank 0's node begin after it.
        held: seconds that those of other nodes wait, at most, until rank 0 listens.
    """

    module: str
    later: float
    held: float
