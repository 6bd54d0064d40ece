"""What a table of embeddings is, as the script says it and as it goes to the servers (values)."""

import math
from typing import Annotated, Any, Literal

from ...master.servers.slot_table import SLOTS
from ...rendezvous.base.frozen import dataclass, fields, replace
from ...rendezvous.wire.fields import Number
from ...rendezvous.wire.values import Tagged, Text
from .errors import TableMisused

MOST_NAME = 200

Name = Annotated[str, Text(MOST_NAME, printable=True)]

MOST_COLUMNS = 4096
"""Of a row."""

MOST_STALE = 1 << 30
"""Pushes."""


@dataclass(frozen=True, slots=True)
class SGD(Tagged):
    """`row -= lr * gradient`."""

    lr: float


@dataclass(frozen=True, slots=True)
class Momentum(Tagged):
    """As `torch.optim.SGD(momentum=...)`, for the rows that have a gradient."""

    lr: float
    momentum: float = 0.9


@dataclass(frozen=True, slots=True)
class Adagrad(Tagged):
    """As `torch.optim.Adagrad`, for the rows that have a gradient."""

    lr: float = 0.01
    eps: float = 1e-10
    initial_accumulator_value: float = 0.0


@dataclass(frozen=True, slots=True)
class Adam(Tagged):
    """As `torch.optim.Adam`, for the rows that have a gradient: each counts its own steps."""

    lr: float = 0.001
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8


@dataclass(frozen=True, slots=True)
class FTRL(Tagged):
    """Follow the regularized leader, each coordinate with its own rate. Source: McMahan et al., 2013, algorithm 1."""

    lr: float = 0.05
    beta: float = 1.0
    l1: float = 0.0
    l2: float = 0.0


Optimizer = SGD | Momentum | Adagrad | Adam | FTRL
"""How a row follows its gradients; the servers apply it, each row with its own state beside it."""


@dataclass(frozen=True, slots=True)
class Zeros(Tagged):
    """Every row begins with zeros."""


@dataclass(frozen=True, slots=True)
class Uniform(Tagged):
    """Numbers from `low` to `high`."""

    low: float = -0.05
    high: float = 0.05


@dataclass(frozen=True, slots=True)
class Normal(Tagged):
    """Numbers of the normal distribution."""

    mean: float = 0.0
    std: float = 0.05


Initializer = Zeros | Uniform | Normal
"""What a row is before its first gradient: by its id and the table's seed alone, on every server and in every run."""


@dataclass(frozen=True, slots=True)
class LeastRecent(Tagged):
    """A table of no more than so many rows, or bytes of rows: those go first that were trained on the longest ago.

    Of copies on other servers nothing is counted. Each slot keeps its share: rows that go are those of the least recent
    push in their slot, not in the whole table.
    """

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class LeastFrequent(Tagged):
    """As `LeastRecent`: those go first that the fewest pushes have trained; of several the least recent."""

    rows: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class OlderThan(Tagged):
    """Rows go that no push has trained for so long, at the latest an eighth of that later, when their slot is trained.

    The time is that of workers. With a limit, rows go as with `LeastRecent`, too.
    """

    seconds: float
    rows: int = 0
    bytes: int = 0


Eviction = LeastRecent | LeastFrequent | OlderThan
"""Which rows go."""

MOST_ADMIT_AFTER = 1 << 20

MOST_SECONDS = 1e9

INDEX_BYTES = 53
"""That a row takes in its table's index, where that has just become twice as long."""


Numbers = Literal["float32", "bfloat16", "float16"]
"""What rows and gradients are on their way; servers keep float32."""


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table, as every worker declares it.

    Attributes:
        name: one table for each, in a job.
        columns: numbers in a row (float32).
        optimizer, initializer: see there.
        seed: of the initializer.
        unusable: what is done with a gradient that is no finite number: the whole push is refused, or the rows of such
            gradients stay as they are.
        max_staleness: how many of a worker's pushes another may lack in the rows that it trains on; None: any number.
        dtype: of rows and gradients on their way between workers and servers.
        admit_after: an id gets its row with the so manieth push that has it; until then it shares one with others.
        evict: which rows go; None: none.
    """

    name: Name
    columns: int
    optimizer: Optimizer
    initializer: Initializer
    seed: int = 0
    unusable: Literal["refuse", "skip"] = "refuse"
    max_staleness: Number | None = None
    dtype: Numbers = "float32"
    admit_after: int = 0
    evict: Eviction | None = None

    @property
    def first_state(self) -> tuple[float, ...]:
        """What each array of an optimizer's state beside the rows begins with."""
        match self.optimizer:
            case SGD():
                return ()
            case Momentum():
                return (0.0,)
            case Adagrad():
                return (self.optimizer.initial_accumulator_value,)
            case Adam() | FTRL():
                return (0.0, 0.0)

    @property
    def number_bytes(self) -> int:
        """Of a row's values, and of what its optimizer keeps."""
        return 4 * self.columns * (1 + len(self.first_state)) + 8 * isinstance(self.optimizer, Adam)

    @property
    def row_bytes(self) -> int:
        """That a row takes, with its state and its place in the index."""
        use = 24 * (self.evict is not None) + 8 * isinstance(self.evict, LeastFrequent)
        return 10 + self.number_bytes + use + INDEX_BYTES

    @property
    def limit(self) -> int:
        """Rows that the table may have on all servers together; 0: as many as there is memory for."""
        if self.evict is None:
            return 0
        return self.evict.rows or self.evict.bytes // self.row_bytes

    @property
    def waiting(self) -> "TableSpec | None":
        """The table that counts the pushes of ids which have no row yet."""
        if self.admit_after < 2:
            return None
        evict = self.evict
        if evict is not None and self.limit:
            evict = replace(evict, rows=self.limit, bytes=0)
        return TableSpec(f"{self.name} (waiting)", 1, SGD(1.0), Zeros(), evict=evict)

    @property
    def shared(self) -> "TableSpec | None":
        """The table of rows that such ids share, one in each slot."""
        if self.admit_after < 2:
            return None
        return TableSpec(f"{self.name} (shared)", self.columns, self.optimizer, self.initializer, self.seed)

    def check(self) -> None:
        """Raises TableMisused."""
        if not self.name.isprintable() or not 1 <= len(self.name) <= MOST_NAME:
            raise TableMisused(f"a table's name has 1 to 200 printable characters: {self.name!r} does not")
        what = f"table {self.name!r}"
        if not 1 <= self.columns <= MOST_COLUMNS:
            raise TableMisused(f"{what}: dim={self.columns!r} must be from 1 to {MOST_COLUMNS}")
        if not 0 <= self.seed < 2**63:
            raise TableMisused(f"{what}: seed={self.seed!r} must be from 0 to 2**63 - 1")
        if self.unusable not in ("refuse", "skip"):
            raise TableMisused(f"{what}: unusable={self.unusable!r} must be refuse or skip")
        bound = self.max_staleness
        if bound is not None and (type(bound) is not int or not 0 <= bound <= MOST_STALE):
            raise TableMisused(f"{what}: max_staleness={bound!r} must be a number of pushes from 0, or None")
        admit_after: Any = self.admit_after  # Any: it is as the script gives it
        if not isinstance(admit_after, int) or not 0 <= admit_after <= MOST_ADMIT_AFTER:
            raise TableMisused(f"{what}: admit_after={self.admit_after!r} must be from 0 to {MOST_ADMIT_AFTER}")
        if self.admit_after > 1 and len(self.name) > MOST_NAME - len(" (waiting)"):
            raise TableMisused(
                f"{what}: with admit_after its name has at most {MOST_NAME - len(' (waiting)')} characters"
            )
        self._check_limit(what)
        for each in (self.optimizer, self.initializer):
            for field in fields(each):
                number = getattr(each, field.name)
                if not isinstance(number, int | float) or not math.isfinite(number):
                    raise TableMisused(f"{what}: {each.code}({field.name}={number!r}) must be a finite number")
                least, below = BOUNDS.get(field.name, (-math.inf, math.inf))
                if not least <= number < below or (field.name == "lr" and not number):
                    side = "above" if field.name == "lr" else "at least"
                    raise TableMisused(
                        f"{what}: {each.code}({field.name}={number!r}) must be {side} {least:g} and below {below:g}"
                    )

    def _check_limit(self, what: str) -> None:
        """Raises TableMisused."""
        evict: Any = self.evict  # Any: it is as the script gives it
        if evict is None:
            return
        words = f"{what}: evict={evict!r}"
        if not isinstance(evict, LeastRecent | LeastFrequent | OlderThan):
            raise TableMisused(f"{words} must be a LeastRecent, LeastFrequent or OlderThan of elastic_run.servers")
        limits: tuple[Any, ...] = evict.rows, evict.bytes
        if not all(isinstance(each, int) for each in limits):
            raise TableMisused(f"{words} must say whole numbers of rows or bytes")
        if isinstance(evict, OlderThan):
            if not 0.001 <= evict.seconds <= MOST_SECONDS:
                raise TableMisused(f"{words}: seconds must be from 0.001 to {MOST_SECONDS:g}")
            if not evict.rows and not evict.bytes:
                return
        if bool(evict.rows) == bool(evict.bytes):
            raise TableMisused(f"{words} must say either rows or bytes")
        if self.limit < SLOTS:
            raise TableMisused(
                f"{words} must be at least {SLOTS} rows, here {SLOTS * self.row_bytes} bytes: each of {SLOTS} slots "
                "keeps its share"
            )

    def describe_difference(self, other: "TableSpec") -> str:
        """What `other` is in place of this, in words; empty where both are the same."""
        names = (each.name for each in fields(self) if each.name != "name")
        pairs = ((name, getattr(self, name), getattr(other, name)) for name in names)
        return ", ".join(f"{name} {other!r} in place of {mine!r}" for name, mine, other in pairs if mine != other)


def collision_probability(ids: int) -> float:
    """That of so many strings some two have the same hash of 64 bits."""
    return -math.expm1(-ids * (ids - 1) / 2.0**65)


BOUNDS = {
    "lr": (0.0, math.inf),
    "momentum": (0.0, 1.0),
    "eps": (0.0, math.inf),
    "initial_accumulator_value": (0.0, math.inf),
    "beta1": (0.0, 1.0),
    "beta2": (0.0, 1.0),
    "beta": (0.0, math.inf),
    "l1": (0.0, math.inf),
    "l2": (0.0, math.inf),
    "std": (0.0, math.inf),
}
"""Of the numbers of optimizers and initializers, by name: the least, and what none may reach."""
