"""The faults: what is injected, what a right diagnosis says of it, and how each is drawn (pure, but for the seed)."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

WIDE_SHARE = 0.1
"""Of the runs that meet by sockets: 8 ranks of 2 or 4 agents."""

TORCH_SHARE = 0.1
"""Of the runs that meet by gloo in place of sockets: torch takes seconds to start."""

INNOCENT_SHARE = 0.25

LONG = 5.9
"""Time-outs until a wait that something may end, or a loop, has lasted for so long that it counts."""

SLOW = 4.2
"""Time-outs from the beginning of a slow rank until it has been seen in two long looks that follow each other: the
first begins after one time-out, and each takes 3.2 s."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault, or of innocent slowness.

    Attributes:
        name: of the function in `scripts/victim.py`.
        label: the cause, as the matrix has it.
        kinds: findings that name it rightly; empty: nothing may be found.
        gloo: it may be run with torch.
        anyone: any rank may be named: all have it.
        patience: time-outs of the launcher until the evidence is sufficient.
        apart: what the run needs of its own: a network, a memory control group, an agent with another clock, or a job
            of two roles, whose other role is at rest.
        torch: it needs torch.
        node: to be named in place of a rank.
    """

    name: str
    label: str
    kinds: tuple[str, ...] = ()
    gloo: bool = True
    anyone: bool = False
    patience: float = 1.0
    apart: Literal["", "network", "memory", "clock", "roles"] = ""
    torch: bool = False
    node: str = ""


FAULTS: tuple[Fault, ...] = (
    Fault("stopped", "stopped process", ("stopped",), patience=LONG),
    Fault("lock_twice", "deadlock on a lock", ("deadlock",)),
    Fault("lock_crossed", "deadlock of two locks", ("deadlock",)),
    Fault("join_a_thread", "wait for a thread", ("deadlock",)),
    Fault("empty_queue", "empty queue", ("deadlock",)),
    Fault("event_loop", "event loop without events", ("deadlock",)),
    Fault("left_out", "missing collective", ("mismatched-collective",), gloo=False),
    Fault("another_operation", "wrong collective", ("mismatched-collective",), gloo=False),
    Fault("fewer_steps", "uneven steps", ("mismatched-collective", "uneven-steps"), gloo=False),
    Fault("ends_early", "uneven steps, ended", ("uneven-steps",), gloo=False, patience=0.0),
    Fault("sleep_for_ever", "sleep", ("sleeps",)),
    Fault("paused", "wait for a signal", ("sleeps",)),
    Fault("retry_for_ever", "endless retry", ("sleeps",)),
    Fault("read_a_pipe", "silent pipe", ("blocked-pipe",), patience=LONG),
    Fault("read_a_fifo", "silent named pipe", ("blocked-pipe",), patience=LONG),
    Fault("open_a_fifo", "blocked open", ("blocked-pipe", "blocked-file"), patience=LONG),
    Fault("file_lock", "lock on a file", ("file-lock",), patience=LONG),
    Fault("silent_server", "silent server", ("silent-server",), patience=LONG),
    Fault("silent_server_polled", "silent server, polled", ("silent-server",), patience=LONG),
    Fault("silent_server_http", "silent server, HTTP", ("silent-server",), patience=LONG),
    Fault("loader_died", "data loader died", ("loader-died",)),
    Fault("loader_stuck", "data loader stuck", ("loader-stuck",), patience=LONG),
    Fault("gil_in_a_sleep", "interpreter's lock held", ("gil-held",), patience=LONG),
    Fault("gil_in_a_read", "interpreter's lock held, reading", ("gil-held",), patience=LONG),
    Fault("busy", "busy loop", ("busy-loop",), patience=LONG),
    Fault("busy_wait", "busy wait", ("busy-loop",), patience=LONG),
    Fault("wait_for_a_program", "child that does not end", ("waits-for-child",), patience=LONG),
    Fault("starved", "processor taken", ("cpu-taken",), patience=LONG),
    Fault("slow_compute", "slow rank: computes", ("slow-compute",), patience=SLOW),
    Fault("slow_data", "slow rank: data", ("slow-data",), patience=SLOW),
    Fault("slow_network", "slow rank: network", ("slow-network",), patience=SLOW),
    Fault("files_leak", "descriptor limit near", ("descriptors-near",), patience=2.0),
    Fault("full_disk", "full disk", ("disk-full",), patience=0.0),
    Fault("too_many_files", "descriptor limit", ("descriptor-limit", "descriptors-near"), patience=0.0),
    Fault("too_many_threads", "thread limit", ("thread-limit",), gloo=False, patience=0.0),
    Fault("no_memory", "memory limit", ("out-of-memory",), gloo=False, patience=0.0),
    Fault("abort_in_a_library", "abort", ("abort",), patience=0.0),
    Fault("crash_in_a_library", "crash", ("crash",), patience=0.0),
    Fault("memory_group", "memory of a control group", ("out-of-memory",), gloo=False, patience=0.0, apart="memory"),
    Fault("lost_route", "lost route", ("lost-route",), gloo=False, apart="network"),
    Fault("another_clock", "wrong clock", ("clock-skew",), gloo=False, apart="clock", node="n1"),
    Fault("in_a_role", "sleep, in a job of two roles", ("sleeps",), gloo=False, apart="roles"),
    Fault("another_shape", "another shape", ("mismatched-sizes",), anyone=True, patience=0.0, torch=True),
    Fault("loader_killed", "torch's data loader killed", ("loader-died",), patience=0.0, torch=True),
)

INNOCENT: tuple[Fault, ...] = tuple(
    Fault(name, f"innocent: {words}")
    for name, words in (
        ("evaluation", "evaluation"),
        ("checkpoint", "checkpoint"),
        ("compilation", "compilation"),
        ("download", "slow download"),
        ("progress_bar", "slow, prints"),
        ("everyone_computes", "long step of all"),
        ("short_pauses", "short pauses"),
        ("slow_start", "slow start"),
        ("alarm", "alarm of its own"),
    )
)


@dataclass(frozen=True, slots=True)
class Draw:
    """One run.

    Attributes:
        number: its place.
        rank: where the fault happens, of `world`.
        step: when.
        agents: of the job; a job of two roles has one for each.
    """

    number: int
    fault: Fault
    world: int
    rank: int
    step: int
    gloo: bool
    agents: int = 1


def draws(count: int, seed: int, labels: Sequence[str] = ()) -> list[Draw]:
    """So many runs: each fault about equally often, in a random order.

    Args:
        labels: only faults of these names; empty: all.
    """
    chance = random.Random(seed)
    faults = [each for each in FAULTS if not labels or each.name in labels]
    innocent = [each for each in INNOCENT if not labels or each.name in labels]
    quiet = round(count * INNOCENT_SHARE) if faults and innocent else 0 if faults else count
    drawn = [faults[at % len(faults)] for at in range(count - quiet)] if faults else []
    drawn += [innocent[at % len(innocent)] for at in range(quiet)] if innocent else []
    chance.shuffle(drawn)
    return [_draw(number, fault, chance) for number, fault in enumerate(drawn)]


def _draw(number: int, fault: Fault, chance: random.Random) -> Draw:
    world = chance.choice((2, 3, 3, 4))
    if "mismatched-collective" in fault.kinds:
        world = max(3, world)  # of two ranks nobody can tell which one is wrong
    gloo = fault.torch or (fault.gloo and chance.random() < TORCH_SHARE)
    agents = 1
    if fault.apart in ("clock", "roles"):
        world = agents = 3 if fault.apart == "clock" else 2  # of two clocks nobody can tell which one is wrong
    elif not gloo and not fault.apart and chance.random() < WIDE_SHARE:
        world, agents = 8, chance.choice((2, 4))
    world = min(world, 3) if gloo else world
    return Draw(number, fault, world, chance.randrange(min(world, 3)), chance.randint(3, 25), gloo, agents)
