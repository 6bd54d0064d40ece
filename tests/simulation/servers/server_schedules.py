"""Jobs with servers and what is done to them, drawn from a seed (pure)."""

import random
from dataclasses import dataclass, replace

from elastic_run.adapters.servers.specs import Eviction, LeastFrequent, LeastRecent, OlderThan
from elastic_run.master.servers.slot_table import SLOTS

VERBS = {
    "kill_server": 10,
    "power_off": 4,
    "kill_trainer": 10,
    "reset_line": 8,
    "part_machines": 4,
    "freeze_server": 5,
    "lose_lease": 4,
    "elect_leader": 5,
    "lag_agent": 5,
    "add_node": 8,
    "drain_node": 3,
}
"""What is done, and how often it is drawn."""


RETURN = "lose_rows"
"""Ends all that hold some slot, in jobs whose tables are saved."""


@dataclass(frozen=True, slots=True)
class ServerShape:
    """The job.

    Attributes:
        nodes: machines at the beginning.
        least, most: servers.
        replicas: 1: each slot has a backup.
        trainers: on each node.
        shards, length: of the data: how many, and records in each.
        ids: that there are; each record has `each` of them.
        optimizer: of the table `model`, by its place among those there are.
        pace: seconds between two steps of a worker, at most.
        slots: the ids are of slots below that.
        piece: rows of a copy that are sent at a time.
        delay: seconds that a message takes, at most, as a rule.
        fickle: how likely a worker that pushes dies when a table is written.
        admit: pushes that an id needs for rows of its own; 0: the first one gives it some.
        evict: which rows of the table `model` go.
        steps: workers are ranks of synchronous training, and prepare what they push.
        cramped: how likely a server has no room for a push, as the primary or the backup of its slots.
        saves: seconds from one checkpoint to the next; 0: there are none.
        disk: rows of the table `model` go to disk, since servers have little memory.
        lease: workers train on a stream, whose leases have so many offsets at most; 0: on shards.
    """

    nodes: int
    least: int
    most: int
    replicas: int
    trainers: int
    shards: int
    length: int
    ids: int
    each: int
    optimizer: int
    pace: float
    slots: int
    piece: int
    delay: float
    fickle: float
    admit: int = 0
    evict: Eviction | None = None
    steps: bool = False
    cramped: float = 0.0
    saves: float = 0.0
    disk: bool = False
    lease: int = 0


@dataclass(frozen=True, slots=True)
class ServerFault:
    """What is done `at` so many seconds, and for how long, where it lasts."""

    at: float
    verb: str
    seconds: float

    @property
    def text(self) -> str:
        """For a person."""
        return f"{self.at:.3f} {self.verb} {self.seconds:.3f}"


@dataclass(frozen=True, slots=True)
class ServerSchedule:
    """A job and all that happens to it; the seed decides whatever else is left to chance."""

    seed: int
    shape: ServerShape
    faults: tuple[ServerFault, ...]


HASTY = 10_000
"""Seeds from here on are of jobs in which a push is nearly always under way, and much happens."""


IN_STEP = 20_000
"""Seeds from here on are of jobs whose workers are ranks of synchronous training."""


RETURNING = 30_000
"""Seeds from here on are of such jobs, too, whose tables are saved, and that lose all that hold some slot."""


STREAMS = 60_000
"""Seeds from here on are of jobs whose workers train on a stream; most of them go back."""


ON_DISK = 100_000
"""Seeds from here on are of the jobs of those before, whose rows do not fit into memory here."""


MANAGED = 7
"""Of so many seeds one is of a job whose tables stay within a size."""


CRAMPED = 11
"""Of so many seeds one is of a job whose servers have no room now and then."""

SAVED = 11
"""Of so many seeds one is of a job whose tables are saved, and that loses all that hold some slot, once or more."""


def draw_schedule(seed: int) -> ServerSchedule:
    """The schedule of that seed."""
    if seed >= ON_DISK:
        drawn = draw_schedule(seed - ON_DISK)
        sizes = {"least": 2, "most": 2, "replicas": 1, "shards": 6, "length": 24, "ids": 200, "each": 3}
        shape = replace(drawn.shape, disk=True, cramped=0.0, admit=0, optimizer=3 + seed % 2, **sizes)
        return replace(drawn, seed=seed, shape=shape)
    drawn = _draw_saved(seed)
    if seed % CRAMPED != 3:
        return drawn
    cramped = random.Random(f"cramped {seed}").choice((0.02, 0.1, 0.3))
    return replace(drawn, shape=replace(drawn.shape, cramped=cramped))


def _draw_saved(seed: int) -> ServerSchedule:
    drawn = _draw_managed(seed)
    if seed >= STREAMS:
        if seed % 4 == 0:
            return drawn
    elif (seed % SAVED != 7 or drawn.shape.steps) and seed < RETURNING:
        return drawn
    chance = random.Random(f"saved {seed}")
    losses = [ServerFault(chance.uniform(1.0, 5.0), RETURN, 0.0) for _ in range(chance.randint(1, 3))]
    shape = replace(drawn.shape, saves=chance.uniform(0.3, 1.0), length=3 * drawn.shape.length)
    return replace(drawn, shape=shape, faults=tuple(sorted((*drawn.faults, *losses), key=lambda fault: fault.at)))


def _draw_managed(seed: int) -> ServerSchedule:
    if seed >= STREAMS:
        drawn = _draw_plain(seed if seed % 2 else seed - STREAMS)
        return replace(
            drawn, seed=seed, shape=replace(drawn.shape, lease=random.Random(f"stream {seed}").randint(2, 9))
        )
    if seed >= IN_STEP:
        drawn = _draw_plain(seed if seed % 2 else seed - (HASTY if seed < RETURNING else RETURNING))
        return replace(drawn, seed=seed, shape=replace(drawn.shape, steps=True, trainers=2))
    drawn = _draw_plain(seed)
    if seed % MANAGED != MANAGED - 2:
        return drawn
    chance = random.Random(f"managed {seed}")
    rows = SLOTS * chance.randint(1, 2)
    evict = chance.choice((None, LeastRecent(rows), LeastFrequent(rows), OlderThan(0.5), OlderThan(0.5, rows)))
    admit = chance.choice((0, 2, 3)) if evict is not None else chance.randint(2, 4)
    return replace(drawn, shape=replace(drawn.shape, admit=admit, evict=evict))


def _draw_plain(seed: int) -> ServerSchedule:
    chance = random.Random(f"servers {seed}")
    if seed >= HASTY:
        return ServerSchedule(seed, _draw_hasty(chance), _draw_faults(chance, chance.randint(5, 12)))
    nodes = chance.randint(1, 4)
    least = chance.randint(2, 4) if nodes == 1 else chance.randint(1, 4)
    shape = ServerShape(
        nodes,
        least,
        max(least, chance.randint(nodes, nodes + 2)),
        int(least > 1 and chance.random() < 0.9),
        chance.choice((1, 1, 2)),
        chance.randint(3, 6),
        chance.randint(8, 24),
        chance.choice((12, 60, 200)),
        chance.randint(1, 3),
        chance.randint(0, 4),
        chance.choice((0.02, 0.1, 0.3)),
        chance.choice((40, 200, 1024)),
        chance.choice((1, 4, 16, 16_384)),
        chance.choice((0.001, 0.01, 0.03)),
        chance.choice((0.0, 0.3, 0.8)),
    )
    return ServerSchedule(seed, shape, _draw_faults(chance, chance.randint(0, 9)))


def _draw_hasty(chance: random.Random) -> ServerShape:
    return ServerShape(
        nodes=chance.randint(2, 3),
        least=3,
        most=chance.randint(3, 5),
        replicas=1,
        trainers=2,
        shards=3,
        length=chance.randint(16, 24),
        ids=30,
        each=2,
        optimizer=chance.randint(0, 4),
        pace=0.02,
        slots=chance.choice((40, 200)),
        piece=chance.choice((1, 4)),
        delay=chance.choice((0.01, 0.03)),
        fickle=0.8,
    )


def _draw_faults(chance: random.Random, count: int) -> tuple[ServerFault, ...]:
    verbs, weights = zip(*VERBS.items(), strict=True)
    at, faults = 0.4, list[ServerFault]()
    for _ in range(count):
        at += chance.choice((chance.uniform(0.0, 0.05), chance.uniform(0.0, 0.8)))
        faults.append(ServerFault(at, chance.choices(verbs, weights)[0], chance.uniform(0.05, 1.0) ** 2 * 3.0))
    return tuple(faults)
