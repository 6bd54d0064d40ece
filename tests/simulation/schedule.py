"""What is done to a simulated job: its shape and its faults, drawn from a seed or read from a text (pure).

A schedule is text, so that a failure can be pasted, shortened by hand and kept:

    seed 17
    job nodes=3 min=2 max=3 work=8
    start+3.25      kill n1
    round.2+0.001   worker n2 0 raise
    running.2+1     cut n1 * 6

Each line after the second is a fault: *when*, *what*, and to whom. `when` is a moment that the job passes and the
seconds after it: `start`, `registered.n1` (first time), `elected.2` (the second leadership), `assigned.2` (the first
assignments of round 2 are in the store, its header is not), `round.2` (the header of round 2 is), `started.2` (a
first worker of round 2 has been started), `running.2` (all its workers have met), `finishing.2` (the first of them
has ended with 0), `leased.2` (the second write of a ledger is in the store, and nobody knows yet), `saved.2` (the
second checkpoint of a script that leases its data is written); and where workers keep their process, `formed.2` (the
process group of round 2 stands, and its ranks have said which step they have), `transferring.2` (for the second time a
rank begins to bring its state to another), `committed.2` (the first rank has committed the second step that was
trained). A fault whose moment never comes does nothing. To add a kind of fault: a line in `VERBS`, and a method of that
name in `world.py`.
"""

import contextlib
import dataclasses
import math
import random
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Shape:
    """The job, as a user typed it. Times in seconds.

    Attributes:
        nodes: machines that start at the beginning, n1 ... nN.
        work: of training, until the script ends by itself.
        etcd: members of the store.
        data: what the script leases: "" nothing, else the tracking mode, "checkpoint" or "ack"; see `data.py`.
        records, shard, epochs: of its dataset: records in an epoch, and in a shard, and how often each is used.
        every: steps between two checkpoints.
        guard: 1 where a checkpoint is written only while the round is the current one.
        inplace: 1 where the workers keep their process when the membership changes; see `stayers.py`.
        step: of training, there.
        roles, typed: of a job with roles, and which machine takes which of them only; see `roles.py`.
        masters: processes without workers that take part in the election, each on a machine of its own, c1 ... cN; see
            `masters.py`.
        services, ports: beside the workers, and how many ports are held for each of them; see `services.py`.
        cost: microseconds that an agent needs for each entry of what it goes through at once.
        write: seconds that the store's disks need for each write.
        (the others: as the options of `elastic-run`)
    """

    nodes: int = 3
    min: int = 2
    max: int = 3
    unit: int = 1
    nproc: int = 1
    work: float = 8.0
    restarts: int = 3
    same: int = 0
    scale_up: str = "now"
    last_call: float = 0.5
    settle: float = 0.5
    interval: float = 2.0
    join: float = 40.0
    recovery: float = 40.0
    ttl: int = 5
    shutdown: float = 5.0
    etcd: int = 3
    data: str = ""
    records: int = 12
    shard: int = 3
    epochs: int = 1
    every: int = 2
    guard: int = 1
    inplace: int = 0
    step: float = 0.25
    cost: float = 0.0
    write: float = 0.0
    roles: str = ""
    typed: str = ""
    masters: int = 0
    services: str = ""
    ports: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is done: `after` seconds after `moment`."""

    moment: str
    after: float
    verb: str
    words: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As a line of a schedule."""
        when = f"{self.moment}+{self.after:g}"
        return f"{when:<16} {' '.join((self.verb, *self.words))}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """A job and all that happens to it. The seed decides what is left to chance: delays above all."""

    seed: int
    shape: Shape = field(default_factory=Shape)
    faults: tuple[Fault, ...] = ()

    @property
    def text(self) -> str:
        """What `parse` reads."""
        plain = Shape()
        words = [
            f"{item.name}={value:g}"
            if isinstance(value := getattr(self.shape, item.name), float)
            else f"{item.name}={value}"
            for item in dataclasses.fields(Shape)
            if getattr(self.shape, item.name) != getattr(plain, item.name)
        ]
        return (
            "\n".join([f"seed {self.seed}", " ".join(["job", *words]), *(fault.text for fault in self.faults)]) + "\n"
        )


class Unreadable(ValueError):
    """A schedule's text is wrong; the message says which line."""


def parse(text: str) -> Schedule:
    """The schedule that the text holds. Raises Unreadable. `#` begins a comment."""
    seed, shape, faults = 0, Shape(), list[tuple[int, str, Fault]]()
    for number, line in enumerate(text.splitlines(), 1):
        with _reading(number, line):
            match line.partition("#")[0].split():
                case ["seed", word]:
                    seed = _whole(word)
                case ["seed", *_]:
                    raise ValueError("seed takes one number")
                case ["job", *words]:
                    shape = _shape(words)
                case [when, *words]:
                    faults.append((number, line, _fault(when, words)))
                case _:
                    pass  # nothing but a comment
    found = tuple(fault for _, _, fault in faults)
    nodes = _nodes(shape, found)
    for number, line, fault in faults:  # the job, and who is started, may stand below
        with _reading(number, line):
            _check(fault, shape, nodes)
    return Schedule(seed, shape, found)


@contextlib.contextmanager
def _reading(number: int, line: str) -> Generator[None]:
    """What is wrong in it, is wrong in this line."""
    try:
        yield
    except ValueError as error:
        raise Unreadable(f"line {number}: {line.strip()!r}: {error}") from None


def _fault(when: str, words: Sequence[str]) -> Fault:
    moment, _, after = when.partition("+")
    if not words or words[0] not in VERBS:
        raise ValueError(f"no such fault; there are {', '.join(VERBS)}")
    if len(words) - 1 != len(VERBS[words[0]].split()):
        raise ValueError(f"{words[0]} takes: {VERBS[words[0]] or 'nothing'}")
    return Fault(moment, _number(after or "0"), words[0], tuple(words[1:]))


def _shape(words: Sequence[str]) -> Shape:
    kinds = {item.name: item.type for item in dataclasses.fields(Shape)}
    values: dict[str, object] = {}
    for word in words:
        name, _, value = word.partition("=")
        if name not in kinds:
            raise ValueError(f"a job has no {name!r}; it has {', '.join(kinds)}")
        kind: Callable[[str], object] = {int: _whole, float: _number, str: str}[kinds[name]]  # type: ignore[index]  # its own types
        values[name] = kind(value)
    shape = Shape(**values)  # type: ignore[arg-type]  # checked above
    for name in ("nodes", "min", "max", "unit", "nproc", "ttl", "etcd", "records", "shard", "epochs", "every"):
        if getattr(shape, name) < 1:
            raise ValueError(f"{name} is at least 1")
    if shape.min > shape.max:
        raise ValueError(f"min={shape.min} is more than max={shape.max}")
    if shape.max // shape.unit * shape.unit < shape.min:
        raise ValueError(f"unit={shape.unit} leaves no size between min={shape.min} and max={shape.max}")
    if shape.scale_up not in ("now", "never"):
        raise ValueError(f"scale_up is now or never, not {shape.scale_up!r}")
    if shape.data not in TRACKING_MODES:
        raise ValueError(f"data is {' or '.join(TRACKING_MODES[1:])}, not {shape.data!r}")
    if shape.step < SHORTEST:
        raise ValueError(f"step is at least {SHORTEST:g} s")
    if shape.inplace and shape.data:
        raise ValueError("workers that keep their process lease no data here: inplace and data exclude each other")
    return shape


def _whole(word: str) -> int:
    if not word.isascii() or not word.isdecimal():
        raise ValueError(f"{word!r} is no whole number from 0 on")
    return int(word)


def _number(word: str) -> float:
    """Seconds, or percent: never negative, nor without end."""
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{word!r} is no number from 0 on")
    return value


def masters(shape: Shape) -> tuple[str, ...]:
    """The machines of the processes without workers."""
    return tuple(f"c{number + 1}" for number in range(shape.masters))


def _nodes(shape: Shape, faults: Collection[Fault]) -> Collection[str]:
    """Every machine on which an agent may run: at the beginning, started later, or a stranger's."""
    first = [*(f"n{number + 1}" for number in range(shape.nodes)), *masters(shape)]
    started = [fault.words[0] for fault in faults if fault.verb == "start"]
    return (*first, *started, *(f"{fault.words[0]}x" for fault in faults if fault.verb == "stranger"))


def _check(fault: Fault, shape: Shape, nodes: Collection[str]) -> None:
    """Raises ValueError where the moment, or a word, is not of the kind that it should be."""
    moment, _, which = fault.moment.partition(".")
    if fault.moment != "start":
        if moment == "registered":
            _check_word("node", which, shape, nodes)
        elif moment not in MOMENTS:
            moments = ", ".join(f"{name}.NUMBER" for name in MOMENTS)
            raise ValueError(f"no such moment; there are start, registered.NODE, {moments}")
        elif str(_whole(which)) != which or which == "0":
            raise ValueError(f"{moment} takes a number from 1 on, as in {moment}.1")
    for kind, word in zip(VERBS[fault.verb].split(), fault.words, strict=True):
        _check_word("machine" if fault.verb in ("start", "stranger") else kind, word, shape, nodes)
    if len(set(fault.words[:2])) == 1 and fault.words[0] != "*" and VERBS[fault.verb].count(" ") == 2:
        raise ValueError(f"{fault.words[0]} and {fault.words[1]} are one machine")


def _check_word(kind: str, word: str, shape: Shape, nodes: Collection[str]) -> None:
    members = [f"m{number + 1}" for number in range(shape.etcd)]
    match kind:
        case "machine":
            if word not in masters(shape) and (not word.startswith("n") or not word[1:].isdecimal()):
                raise ValueError(f"{word!r} is no machine: they are called n1, n2, ...")
        case "node":
            if word not in nodes:
                raise ValueError(f"no agent ever runs on {word!r}: there are {', '.join(dict.fromkeys(nodes))}")
        case "member":
            if word not in members:
                raise ValueError(f"the store has no member {word!r}: there are {', '.join(members)}")
        case "a" | "b" | "from" | "to":
            if word not in (*nodes, *members, "*"):
                raise ValueError(f"{word!r} is nobody: there are {', '.join((*dict.fromkeys(nodes), *members))} and *")
        case "local":
            if _whole(word) >= shape.nproc:
                raise ValueError(f"no worker has the local rank {word}: nproc is {shape.nproc}")
        case "how":
            if word not in DEATHS:
                raise ValueError(f"{word!r} is no end of a worker; there are {', '.join(DEATHS)}")
        case "name":
            names = [each.partition(":")[0] for each in shape.services.split(",") if each]
            if word not in names:
                raise ValueError(f"the job has no service {word!r}; it has {', '.join(names) or 'none'}")
        case "end":
            if word not in SERVICE_ENDS:
                raise ValueError(f"{word!r} is no end of a service; there are {', '.join(SERVICE_ENDS)}")
        case "count":
            _whole(word)
        case "percent":
            if _number(word) > 100.0:
                raise ValueError(f"{word} is more than 100 percent")
        case "seconds":
            _number(word)
        case _:
            raise NotImplementedError(f"say here what a {kind} may be")


MOMENTS: Sequence[str] = (
    *("elected", "assigned", "round", "started", "running", "finishing", "leased", "saved"),
    *("formed", "transferring", "committed"),
)
"""Moments of which there is a first, a second, ...; beside `start` and `registered`."""

VERBS: Mapping[str, str] = {
    # a worker: how it ends is one of DEATHS
    "worker": "node local how",
    # an agent
    "kill": "node",  # SIGKILL
    "freeze": "node seconds",  # SIGSTOP, then SIGCONT; its workers run on until its guardian strikes
    "leave": "node",  # SIGTERM
    "leave_twice": "node",  # two SIGINT, a second apart
    "start": "node",  # a new agent on that machine, where none runs
    "stranger": "node",  # an agent with another command under the same job id
    # a worker of it
    "hold": "node local",  # from then on SIGKILL does not end its process
    # a machine
    "power_off": "node",
    "pause": "node seconds",  # the whole virtual machine
    "taken_port": "node",  # the port for MASTER_PORT is somebody else's, once
    "failed_start": "node count",  # its next workers cannot be started
    # the network: machine names, m1 ... of the store, or *
    "cut": "a b seconds",  # both ways
    "deafen": "from to seconds",  # one way
    "lose": "percent seconds",  # of all messages
    "refuse": "from to seconds",  # a firewall refuses new connections: false evidence of a death
    "reset": "a b seconds",  # and ends those that stand, both ways
    # the store
    "etcd_kill": "member seconds",  # and started again
    "etcd_freeze": "member seconds",
    "etcd_stop": "count seconds",  # so many members at once, all where there are no more; then they go on
    "etcd_down": "seconds",  # all members
    "etcd_elect": "",  # another member leads
    "etcd_stall": "seconds",  # its disk is slow
    "etcd_full": "seconds",  # it refuses writes
    "etcd_forget_answers": "percent seconds",  # applied writes whose answer is lost
    "etcd_compact": "",
    # a service beside the workers: how it ends is one of SERVICE_ENDS
    "service": "node name end",
}
"""Every kind of fault, and what it is told."""

SHORTEST = 0.01
"""Seconds of a step."""

TRACKING_MODES: Sequence[str] = ("", "checkpoint", "ack")
"""Of a job's data."""

DEATHS: Sequence[str] = ("killed", "segv", "raise", "exit3", "exit0", "hang")
"""How a worker may end: SIGKILL, SIGSEGV, an exception, an exit code, exit code 0 before its work is done, or not."""


SERVICE_ENDS: Sequence[str] = ("killed", "exit0", "exit3")
"""How a service may end: SIGKILL, its work done, or an exit code."""


def draw(seed: int) -> Schedule:
    """A schedule that the seed alone decides."""
    chance = random.Random(f"schedule {seed}")
    shape = _draw_shape(chance)
    kinds = chance.choices(_MIXTURES, weights=(5, 5, 1, 1, 1, 1))[0]
    faults = _draw_habit(chance, shape) if chance.random() < _HABIT else []
    count = chance.choice((1, 2, 2, 3, 3, 4, 4, 5))
    while len(faults) < count:
        faults += _draw_fault(chance, shape, faults, kinds)
    schedule = _with_data(random.Random(f"data {seed}"), Schedule(seed, shape, tuple(faults)))
    schedule = _in_place(random.Random(f"in place {seed}"), schedule)
    return _with_held(random.Random(f"held {seed}"), schedule)


def _with_held(chance: random.Random, schedule: Schedule) -> Schedule:
    """The same, with a worker that SIGKILL does not end, for some."""
    if chance.random() >= _HELD:
        return schedule
    shape = schedule.shape
    words = f"n{chance.randint(1, shape.nodes)}", str(chance.randrange(shape.nproc))
    moment = f"{chance.choice(('started', 'running'))}.{chance.choice((1, 1, 2))}"
    fault = Fault(moment, round(chance.uniform(0.0, 0.5), 4), "hold", words)
    return dataclasses.replace(schedule, faults=(*schedule.faults, fault))


def _with_data(chance: random.Random, schedule: Schedule) -> Schedule:
    """The same, of a script that leases its data, for some."""
    if chance.random() >= _DATA:
        return schedule
    shape = dataclasses.replace(
        schedule.shape,
        data=chance.choice(TRACKING_MODES[1:]),
        records=chance.choice((3, 6, 8, 11, 14)),
        shard=chance.choice((1, 2, 3, 5)),
        epochs=chance.choice((1, 1, 2)),
        every=chance.choice((1, 1, 2, 3)),
        guard=chance.choice((0, 1)),
    )
    faults = [
        at_a_lease(chance, shape, fault)
        if fault.moment.startswith(("running", "finishing")) and chance.random() < _AT_A_LEASE
        else fault
        for fault in schedule.faults
    ]
    return dataclasses.replace(schedule, shape=shape, faults=tuple(faults))


def at_a_lease(chance: random.Random, shape: Shape, fault: Fault) -> Fault:
    """The same, as a ledger or a checkpoint is written."""
    saved = shape.data == "checkpoint" and chance.random() < 0.5
    moment = f"saved.{chance.randint(1, 4)}" if saved else f"leased.{chance.randint(1, 16)}"
    after = chance.choice((0.0, 0.0005, 0.003, 0.05, 0.5)) * chance.uniform(0.0, 1.0)
    return dataclasses.replace(fault, moment=moment, after=round(after, 4))


def _in_place(chance: random.Random, schedule: Schedule) -> Schedule:
    """The same, of workers that keep their process, for some."""
    if schedule.shape.data or chance.random() >= _IN_PLACE:
        return schedule
    faults = [
        _at_a_process_group(chance, fault)
        if fault.moment.startswith(("running", "round", "started")) and chance.random() < _AT_A_PROCESS_GROUP
        else fault
        for fault in schedule.faults
    ]
    shape = dataclasses.replace(schedule.shape, inplace=1, step=chance.choice((0.1, 0.25, 0.25, 0.7)))
    if chance.random() < _IN_MID_STEP:
        words = f"n{chance.randint(1, shape.nodes)}", str(chance.randrange(shape.nproc)), "killed"
        faults.append(_at_a_process_group(chance, Fault("", 0.0, "worker", words), ("committed", "transferring")))
    return dataclasses.replace(schedule, shape=shape, faults=tuple(faults))


def _at_a_process_group(chance: random.Random, fault: Fault, moments: Sequence[str] = ()) -> Fault:
    last = {"formed": 4, "transferring": 5, "committed": 20}
    moment = chance.choice(moments or tuple(last))
    after = chance.choice((0.0, 0.0005, 0.003, 0.05, 0.5)) * chance.uniform(0.0, 1.0)
    return dataclasses.replace(fault, moment=f"{moment}.{chance.randint(1, last[moment])}", after=round(after, 4))


def _draw_habit(chance: random.Random, shape: Shape) -> list[Fault]:
    """A worker that ends in the same way after each restart: an error that is the script's own."""
    words = (
        f"n{chance.randint(1, shape.nodes)}",
        str(chance.randrange(shape.nproc)),
        chance.choice(("exit3", "exit3", "exit3", "raise", "killed")),
    )
    soon = round(chance.uniform(0.0, 1.0), 4)
    return [Fault(f"running.{number}", soon, "worker", words) for number in range(1, chance.choice((3, 4, 5)))]


def _draw_shape(chance: random.Random) -> Shape:
    nodes = chance.choice((1, 2, 2, 3, 3, 3, 4))
    least = chance.randint(1, nodes)
    most = max(least, nodes + chance.choice((-1, 0, 0, 0, 1, 2)))
    unit = 2 if least in (2, 4) and chance.random() < 0.3 else 1
    if unit == 2:
        most = max(least, (most + 1) // 2 * 2)
    return Shape(
        nodes=nodes,
        min=least,
        max=most,
        unit=unit,
        nproc=chance.choice((1, 1, 1, 2)),
        work=chance.choice((2.0, 4.0, 6.0)),
        restarts=chance.choice((0, 1, 2, 3, 3)),
        same=chance.choice((0, 0, 2, 3)),
        scale_up=chance.choice(("now", "now", "now", "never")),
        last_call=chance.choice((0.0, 0.5, 2.0)),
        settle=chance.choice((0.0, 0.5, 2.0)),
        interval=chance.choice((0.0, 2.0, 8.0)),
        join=chance.choice((15.0, 40.0)),
        recovery=chance.choice((15.0, 40.0)),
        ttl=chance.choice((3, 5, 5, 8)),
        shutdown=chance.choice((1.0, 5.0)),
        etcd=chance.choice((1, 3, 3)),
    )


def _draw_fault(
    chance: random.Random, shape: Shape, earlier: Sequence[Fault], kinds: Mapping[str, float]
) -> list[Fault]:
    moment, after = _draw_moment(chance, shape, earlier)
    verb = chance.choices(
        tuple(kinds), weights=[0 if verb == "etcd_elect" and shape.etcd == 1 else w for verb, w in kinds.items()]
    )[0]
    node = f"n{chance.randint(1, shape.nodes)}"
    anybody = (*(f"n{i}" for i in range(1, shape.nodes + 1)), *(f"m{i}" for i in range(1, shape.etcd + 1)), "*")
    seconds = f"{chance.choice((0.3, 1.0, 1.0, 2.5, 2.5, 6.0, 6.0, 12.0, 25.0)) * chance.uniform(0.7, 1.3):.3f}"
    member = f"m{chance.randint(1, shape.etcd)}"
    match VERBS[verb].split():
        case []:
            words: tuple[str, ...] = ()
        case ["node"]:
            words = (node,)
        case ["node", "seconds"]:
            words = (node, seconds)
        case ["node", "local", "how"]:
            words = (
                node,
                str(chance.randrange(shape.nproc)),
                chance.choice(DEATHS[:-1] if chance.random() < 0.9 else DEATHS),
            )
        case ["node", "count"]:
            words = (node, chance.choice(("1", "1", "2", "3")))
        case ["count", "seconds"]:
            words = (str(shape.etcd // 2 + 1 if chance.random() < 0.5 else shape.etcd), seconds)
        case ["percent", "seconds"]:
            words = (chance.choice(("5", "20", "50")), seconds)
        case ["seconds"]:
            words = (seconds,)
        case ["member", "seconds"]:
            words = (member, seconds)
        case [_, _, "seconds"]:  # two ends
            # Rather another agent, or everybody, than a member of the store: there is more to misunderstand.
            others = [name for name in anybody if name != node and (name[0] != "m" or chance.random() < 0.4)]
            words = (node, chance.choice(others), seconds)
            if chance.random() < 0.3 and words[1] != "*":
                words = (words[1], words[0], seconds)
        case other:
            raise NotImplementedError(f"{verb} takes {other}: say here how that is drawn")
    faults = [Fault(moment, round(after, 4), verb, words)]
    if verb in ("kill", "power_off", "leave", "leave_twice") and chance.random() < 0.5:
        back = after + chance.choice((0.01, 0.3, 2.0, 6.0)) * chance.uniform(0.5, 1.5)
        faults.append(Fault(moment, round(back, 4), "start", words[:1]))
    return faults


def _draw_moment(chance: random.Random, shape: Shape, earlier: Sequence[Fault]) -> tuple[str, float]:
    if earlier and chance.random() < 0.4:  # on the heels of another
        last = earlier[-1]
        return last.moment, last.after + chance.choice((0.0005, 0.005, 0.05, 0.5, 1.5, 3.0)) * chance.uniform(0.0, 2.0)
    if chance.random() < 0.25:
        return "start", chance.uniform(0.0, 8.0)
    if chance.random() < 0.1:
        return f"registered.n{chance.randint(1, shape.nodes)}", chance.choice((0.002, 0.05, 0.5)) * chance.random()
    number = chance.choice((1, 1, 2, 2, 3)) if earlier else 1
    what = chance.choice(("assigned", "round", "started", "running", "running", "running", "finishing", "elected"))
    span = 0.005 if what == "assigned" else chance.choice((0.002, 0.05, 0.5, shape.work))
    return f"{what}.{number}", chance.uniform(0.0, span)


_WEIGHTS: Mapping[str, float] = {
    "worker": 10,
    "kill": 8,
    "freeze": 5,
    "leave": 5,
    "leave_twice": 1,
    "start": 4,
    "stranger": 1,
    "power_off": 4,
    "pause": 3,
    "taken_port": 1.5,
    "failed_start": 1.5,
    "cut": 5,
    "deafen": 3,
    "lose": 2,
    "refuse": 1,
    "reset": 2,
    "etcd_kill": 3,
    "etcd_freeze": 2,
    "etcd_stop": 2,
    "etcd_down": 2,
    "etcd_elect": 2,
    "etcd_stall": 1,
    "etcd_full": 1,
    "etcd_forget_answers": 3,
    "etcd_compact": 2,
}

_CALM = ("worker", "kill", "leave", "start", "taken_port", "failed_start", "stranger")
_ENDS = ("kill", "leave", "power_off", "start")

_MIXTURES: Sequence[Mapping[str, float]] = (
    _WEIGHTS,
    {verb: _WEIGHTS[verb] for verb in _CALM},
    {verb: weight for verb, weight in _WEIGHTS.items() if verb.startswith("etcd") or verb in _ENDS},
    {verb: _WEIGHTS[verb] for verb in ("cut", "deafen", "lose", "freeze", "pause", *_ENDS)},
    {"cut": 3, "refuse": 3, "reset": 10, "worker": 4, **{verb: _WEIGHTS[verb] / 2 for verb in _ENDS}},
    {verb: weight for verb, weight in _WEIGHTS.items() if verb.startswith("etcd")},
)
"""Everything; what nobody's hearing suffers from, where the rules are strictest; the store's faults; the network's;
false evidence, which is seldom elsewhere, since it excuses what nothing else does; and the store's faults alone, which
may cost no worker."""

_HABIT = 0.06
"""How many jobs have a worker that always ends in the same way."""

_DATA = 0.3
"""How many jobs have a script that leases its data."""

_AT_A_LEASE = 0.5
"""How many of their faults, of those that come while workers run, come as a ledger or a checkpoint is written."""

_HELD = 0.04
"""How many jobs have a worker that SIGKILL does not end."""

_IN_PLACE = 0.3
"""How many of the other jobs have workers that keep their process."""

_IN_MID_STEP = 0.35
"""How many of them lose a worker in the middle of a step, or while a state is on its way."""

_AT_A_PROCESS_GROUP = 0.5
"""How many of their faults, of those that come as a round begins or workers run, come as a process group forms or
trains."""
