"""What a table of embeddings is, as the script says it and as it goes to the servers (values)."""

import math
from typing import Annotated, Literal

from ...rendezvous.base.frozen import dataclass, fields
from ...rendezvous.wire.values import Tagged, Text
from .errors import TableMisused

Name = Annotated[str, Text(200, printable=True)]

MOST_COLUMNS = 4096
"""Of a row."""


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
        dtype: of rows and gradients on their way between workers and servers.
    """

    name: Name
    columns: int
    optimizer: Optimizer
    initializer: Initializer
    seed: int = 0
    unusable: Literal["refuse", "skip"] = "refuse"
    dtype: Numbers = "float32"

    def check(self) -> None:
        """Raises TableMisused."""
        if not self.name.isprintable() or not 1 <= len(self.name) <= 200:
            raise TableMisused(f"a table's name has 1 to 200 printable characters: {self.name!r} does not")
        what = f"table {self.name!r}"
        if not 1 <= self.columns <= MOST_COLUMNS:
            raise TableMisused(f"{what}: dim={self.columns!r} must be from 1 to {MOST_COLUMNS}")
        if not 0 <= self.seed < 2**63:
            raise TableMisused(f"{what}: seed={self.seed!r} must be from 0 to 2**63 - 1")
        for each in (self.optimizer, self.initializer):
            for field in fields(each):
                number = getattr(each, field.name)
                if not isinstance(number, int | float) or not math.isfinite(number):
                    raise TableMisused(f"{what}: {each.code}({field.name}={number!r}) must be a finite number")
                least, below = BOUNDS.get(field.name, (-math.inf, math.inf))
                if not least <= number < below or (field.name == "lr" and not number):
                    raise TableMisused(
                        f"{what}: {each.code}({field.name}={number!r}) must be at least {least:g} and below {below:g}"
                    )

    def describe_difference(self, other: "TableSpec") -> str:
        """What `other` is in place of this, in words; empty where both are the same."""
        names = ("columns", "optimizer", "initializer", "seed", "unusable", "dtype")
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
