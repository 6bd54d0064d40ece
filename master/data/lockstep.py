"""Which records each rank trains on in synchronous training, at any world size, by arithmetic alone (pure).

A *position* says how many records of its epoch the committed model contains. An epoch is one order of all records, so
what a commit leaves to do is the rest of that order, and any number of ranks can continue from there. A *step* is the
next part of the order, the same for all ranks; each takes its share, as micro-batches. Only a commit moves the
position.

How an epoch is cut into steps, with R records left in it, W ranks and G = W x batch x accumulate, or the fixed N:

  - A step takes G records while enough are left. The tail, what is left after the last whole step, follows the policy:
    "uneven": it is one more step; too short a tail joins the step before it. "drop": nobody trains on it. "pad": it is
    filled up to G with records from the beginning of the order.
  - Too short are fewer than W x accumulate records (each micro-batch of each rank needs one), and fewer than N with a
    fixed global batch. So are fewer than the largest world that the job may become, as long as they fit beside a step
    that is at most doubled: if the world grew before the last step, there would not be a record for each rank.
  - The shares of a step differ by one record at most, and so do the micro-batches of a share; none is empty. Their
    number is the same for all ranks: `accumulate`, with a fixed global batch as many as keep them within `batch`,
    fewer only where an epoch has fewer records left than `accumulate` x W.
  - If the world has grown all the same and R is less than W, that is the last step of the epoch, and the ranks that no
    record is left for repeat one, with weight 0.

Invariants, whatever the world sizes between the commits: no step spans two epochs; the steps from one position to the
end of the epoch contain each record left exactly once, but for what "drop" drops (less than one G) and what "pad"
repeats; every rank has the same number of micro-batches in a step; with a fixed global batch the steps are the same at
every world size.

Where a part of the model is further than the position, as rows on servers can be after a fault, no step may cross that
part's own position: it would be done there in part. Such a *cut* divides what is left of an epoch: the steps up to it
are those of an "uneven" epoch that ends there.

    SamplerError
    ├── BadSampler        (ValueError)    the script asks for what cannot be
    ├── WorldSizeRefused  (ValueError)    so many ranks cannot train like this
    ├── BadSamplerState   (ValueError)    a checkpoint that is not this dataset's
    ├── RanksDiffer       (ValueError)    ranks that disagree on what to do
    └── SamplerMisused    (RuntimeError)  the script commits what it has not done
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from ...rendezvous.base.errors import ElasticRunError
from ...rendezvous.base.frozen import dataclass, replace
from ...rendezvous.base.plural import ranks
from .permutation import Permutation, key

Tail = Literal["uneven", "drop", "pad"]
"""What becomes of the records at the end of an epoch that make no whole step."""

TAILS: tuple[Tail, ...] = get_args(Tail)
STATE_VERSION = 1
LARGEST = 2**62
"""No number of records, ranks or epochs is larger: they must fit in a signed 64-bit integer of a collective."""


class SamplerError(ElasticRunError, public=True):
    """Base of what synchronous training refuses."""


class BadSampler(SamplerError, ValueError, public=True):
    """The script asks for what cannot be."""


class WorldSizeRefused(SamplerError, ValueError, public=True):
    """So many ranks cannot train like this."""


class BadSamplerState(SamplerError, ValueError, public=True):
    """The checkpoint is of another dataset or order, or is none of ours."""


class RanksDiffer(SamplerError, ValueError, public=True):
    """The ranks do not agree on what to train on, or from where."""


class SamplerMisused(SamplerError, RuntimeError, public=True):
    """The script commits what it has not done, or continues with what is no longer so."""


@dataclass(frozen=True, slots=True)
class Position:
    """What the committed model contains.

    Attributes:
        epoch: the epochs that are done.
        consumed: records of the next epoch's order that are done, from its beginning.
        step: commits so far, in the whole history.
    """

    epoch: int = 0
    consumed: int = 0
    step: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One optimizer step of all ranks.

    Attributes:
        epoch: which order its records are of.
        start: its first index in that order.
        count: how many indices it takes, for all ranks together.
        size: records in the dataset; an index beyond it is one from the beginning ("pad").
        world: how many ranks share it.
        accumulate: micro-batches of each rank.
    """

    epoch: int
    start: int
    count: int
    size: int
    world: int
    accumulate: int

    @property
    def repeated(self) -> int:
        """Records in it that the epoch has had already, or that two ranks have."""
        return max(0, self.start + self.count - self.size) + max(0, self.world - self.count)

    def share(self, rank: int) -> range:
        """The indices of one rank; never empty."""
        if rank >= self.count:  # the world has grown beyond what is left: it repeats another's, with weight 0
            index = self.start + rank % self.count
            return range(index, index + 1)
        return _part(range(self.start, self.start + self.count), rank, self.world)

    def micro_batches(self, rank: int) -> tuple[range, ...]:
        """The share of one rank, cut into `accumulate` parts; none is empty."""
        share = self.share(rank)
        return tuple(_part(share, index, self.accumulate) for index in range(self.accumulate))

    def weights(self, rank: int) -> tuple[float, ...]:
        """Per micro-batch, its records x world / the records of the step.

        The mean over the ranks of the weighted sums of the micro-batches' mean losses is the mean over all records.
        """
        if rank >= self.count:
            return (0.0,) * self.accumulate
        return tuple(len(part) * self.world / self.count for part in self.micro_batches(rank))

    def weight(self, rank: int) -> float:
        """The rank's records x world / the records of the step; 1.0 where all ranks have as many."""
        return 0.0 if rank >= self.count else len(self.share(rank)) * self.world / self.count


@dataclass(frozen=True, slots=True)
class Plan:
    """What a script has asked for. Raises BadSampler where that makes no sense, TypeError where a number is none.

    Attributes:
        size: records in the dataset.
        batch: records per rank and micro-batch; a joined tail can make it larger, at most twice as large.
        epochs: how often each record is trained on.
        tail: what becomes of a last step that is not whole.
        accumulate: micro-batches per rank and step.
        fixed_global_batch: records per step at any world size; None: world x batch x accumulate.
        shuffle: an order of its own for each epoch; False: as the dataset has them.
        seed: of the orders.
        largest_world: how many ranks the job may come to have; 0: unknown.
        cuts: positions that no step may cross, each an epoch and a record of its order, sorted.
    """

    size: int
    batch: int
    epochs: int = 1
    tail: Tail = "uneven"
    accumulate: int = 1
    fixed_global_batch: int | None = None
    shuffle: bool = True
    seed: int = 0
    largest_world: int = 0
    cuts: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        _whole("size", self.size, 1, "records; an empty dataset cannot be trained on")
        _whole("batch_size", self.batch, 1, "records per rank")
        _whole("epochs", self.epochs, 1, "epochs")
        _whole("accumulate", self.accumulate, 1, "micro-batches per step")
        _whole("seed", self.seed, -(2**63), "as seeds go", most=2**63 - 1)
        _whole("the largest world", self.largest_world, 0, "ranks")
        if self.tail not in TAILS:
            raise BadSampler(f"tail={self.tail!r} is unknown: use one of {', '.join(map(repr, TAILS))}")
        if not isinstance(self.shuffle, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise TypeError(f"shuffle={self.shuffle!r} must be True or False; give a generator as `seed`")
        if self.fixed_global_batch is not None:
            _whole("fixed_global_batch", self.fixed_global_batch, 1, "records per step of all ranks, or None")
            if self.accumulate != 1:
                raise BadSampler(
                    f"accumulate={self.accumulate} and fixed_global_batch={self.fixed_global_batch} contradict each "
                    "other: with a fixed global batch the accumulation follows from the world size; leave accumulate "
                    "out, and read the sampler's `accumulate`"
                )

    def check(self, world: int) -> None:
        """Raises WorldSizeRefused where `world` ranks cannot train like this."""
        if world < 1:
            raise WorldSizeRefused(f"{world} ranks cannot train")
        if self.size < world:
            raise WorldSizeRefused(
                f"the dataset has {self.size} records and the world {world} ranks: some would have no record; start "
                "fewer workers"
            )
        if self.fixed_global_batch is not None and self.fixed_global_batch < world:
            raise WorldSizeRefused(
                f"fixed_global_batch={self.fixed_global_batch} records cannot be divided among {world} ranks: start "
                f"at most {self.fixed_global_batch} workers (--nnodes, --nproc-per-node), or choose a larger global "
                "batch"
            )
        if self.tail == "drop" and self.size < self.full(world):
            raise WorldSizeRefused(
                f"tail='drop' would drop everything: the dataset has {self.size} records, and one step of {world} "
                f"ranks takes {self.full(world)}; choose smaller batches, or tail='uneven'"
            )

    def full(self, world: int) -> int:
        """Records in a whole step of all ranks."""
        return self.fixed_global_batch or world * self.batch * self.accumulate

    def settled(self, position: Position, world: int) -> Position:
        """The same position, or the beginning of the next epoch where `world` ranks have no step left in this one."""
        left = self.size - position.consumed
        if position.epoch < self.epochs and (left == 0 or (self.tail == "drop" and left < self.full(world))):
            return Position(position.epoch + 1, 0, position.step)
        return position

    def done(self, position: Position) -> bool:
        """Whether every epoch is done; `position` is settled."""
        return position.epoch >= self.epochs

    def steps_left(self, position: Position, world: int) -> int:
        """Steps from `position` to the end of its epoch."""
        if self.done(position):
            return 0
        if cut := self._cut_after(position):
            return self._until(cut).steps_left(position, world) + self.steps_left(cut, world)
        left, full = self.size - position.consumed, self.full(world)
        if self.tail == "drop":
            return left // full
        if self.tail == "pad":
            return -(-left // full)
        return max(0, (left - self._shortest(world)) // full) + (left > 0)

    def step(self, position: Position, world: int, ahead: int = 0) -> Step:
        """The step that lies `ahead` steps after `position`, in the same epoch.

        Raises SamplerMisused where there is none.
        """
        steps = self.steps_left(position, world)
        if not 0 <= ahead < steps:
            raise SamplerMisused(
                f"epoch {position.epoch} has {steps} steps left, and step {ahead + 1} of them is asked for"
            )
        if cut := self._cut_after(position):
            before = self._until(cut)
            if ahead >= (steps := before.steps_left(position, world)):
                return self.step(cut, world, ahead - steps)
            return replace(before.step(position, world, ahead), size=self.size)
        full = self.full(world)
        start = position.consumed + ahead * full
        count = self.size - start if ahead == steps - 1 and self.tail == "uneven" else full
        wanted = self.accumulate if self.fixed_global_batch is None else -(-count // (world * self.batch))
        accumulate = max(1, min(wanted, count // world))
        return Step(position.epoch, start, count, self.size, world, accumulate)

    def micro_batches_left(self, position: Position, world: int) -> int:
        """Micro-batches of each rank from `position` to the end of its epoch."""
        steps = self.steps_left(position, world)
        if not steps:
            return 0
        if cut := self._cut_after(position):
            return self._until(cut).micro_batches_left(position, world) + self.micro_batches_left(cut, world)
        last = self.step(position, world, steps - 1).accumulate
        return (steps - 1) * self.step(position, world).accumulate + last

    def after(self, position: Position, world: int) -> Position:
        """Where the model is once the step at `position` has been committed."""
        step = self.step(position, world)
        consumed = min(self.size, step.start + step.count)
        return self.settled(Position(position.epoch, consumed, position.step + 1), world)

    def dropped(self, position: Position, world: int) -> int:
        """Records of the epoch at `position` that nobody will train on if the world stays as it is."""
        if self.tail != "drop" or self.done(position):
            return 0
        if cut := self._cut_after(position):
            return self.dropped(cut, world)
        return (self.size - position.consumed) % self.full(world)

    def repeated(self, position: Position, world: int) -> int:
        """Records of the epoch at `position` that will be used more than once if the world stays as it is."""
        steps = self.steps_left(position, world)
        return self.step(position, world, steps - 1).repeated if steps else 0

    def order(self, epoch: int) -> "Order":
        """Which record stands at which index in an epoch."""
        return Order(self.size, Permutation(self.size, key(self.seed, epoch)) if self.shuffle else None)

    def state(self, position: Position) -> dict[str, int | bool]:
        """Plain values for a checkpoint: the position, and what it is a position in."""
        return {
            "version": STATE_VERSION,
            "size": self.size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "epoch": position.epoch,
            "consumed": position.consumed,
            "step": position.step,
        }

    def restored(self, state: Mapping[str, object]) -> Position:
        """The position that `state` says. Raises BadSamplerState where it is no index in this plan's orders."""
        if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise BadSamplerState(f"the checkpoint's sampler state is {state!r}, and not a result of `state_dict()`")
        version = state.get("version")
        if version != STATE_VERSION:
            raise BadSamplerState(
                f"the checkpoint's sampler state has version {version!r}, and this elastic-run reads {STATE_VERSION}: "
                "load a result of `state_dict()`, with the same or a newer version of elastic-run"
            )
        values: dict[str, int] = {}
        for name in ("size", "shuffle", "seed", "epoch", "consumed", "step"):
            value = state.get(name)
            if not isinstance(value, int):
                raise BadSamplerState(f"the checkpoint's sampler state is damaged: {name} is {value!r}")
            values[name] = value
        here = {"size": self.size, "shuffle": self.shuffle, "seed": self.seed}
        for name, value in here.items():
            if values[name] != value and (name != "seed" or self.shuffle):
                raise BadSamplerState(
                    f"the checkpoint is of another dataset or order: its sampler has {name}={state[name]!r}, and this "
                    f"one {name}={value!r}; give the sampler the same arguments, or start without that checkpoint"
                )
        epoch, consumed, step = values["epoch"], values["consumed"], values["step"]
        if not (0 <= epoch <= LARGEST and 0 <= consumed <= self.size and 0 <= step <= LARGEST):
            raise BadSamplerState(
                f"the checkpoint's sampler state is damaged: record {consumed} of {self.size} in epoch {epoch}, "
                f"after {step} steps"
            )
        return Position(epoch, consumed, step)

    def claim(self, position: Position) -> tuple[int, ...]:
        """What every rank must agree on, as the numbers that `disagreement` compares."""
        return (
            STATE_VERSION,
            self.size,
            self.batch,
            self.epochs,
            TAILS.index(self.tail),
            self.accumulate,
            self.fixed_global_batch or 0,
            int(self.shuffle),
            self.seed,
            position.epoch,
            position.consumed,
            position.step,
        )

    def _cut_after(self, position: Position) -> Position | None:
        """The next in its epoch."""
        for epoch, record in self.cuts:
            if epoch == position.epoch and position.consumed < record < self.size:
                return Position(epoch, record, position.step)
        return None

    def _until(self, cut: Position) -> "Plan":
        """As if the epoch ended there."""
        return replace(self, size=cut.consumed, tail="uneven", cuts=())

    def _shortest(self, world: int) -> int:
        """The fewest records that a step of its own may have at the end of an epoch ("uneven")."""
        if self.fixed_global_batch is not None:
            return self.fixed_global_batch
        return max(world * self.accumulate, min(self.largest_world, self.full(world)))


@dataclass(frozen=True, slots=True)
class Order:
    """The records of one epoch, by index.

    Attributes:
        size: how many there are.
        permutation: None: as the dataset has them.
    """

    size: int
    permutation: Permutation | None

    def records(self, indices: range) -> list[int]:
        """What stands at `indices`; beyond the end it begins again."""
        found: list[int] = []
        index, left = indices.start, len(indices)
        while left:
            start = index % self.size
            stop = min(self.size, start + left)
            found += self.permutation.slice(start, stop) if self.permutation else range(start, stop)
            index, left = index + stop - start, left - (stop - start)
        return found


CLAIM = (
    "the version of the order",
    "size",
    "batch_size",
    "epochs",
    "tail",
    "accumulate",
    "fixed_global_batch",
    "shuffle",
    "seed",
    "the epoch",
    "the record of the epoch",
    "the step",
)
"""The names of what is in a claim."""

_POSITION = CLAIM[-3:]


def disagreement(claims: Sequence[Sequence[int]]) -> str:
    """In which fields the claims of the ranks differ, with the values of whom; empty where they are the same."""
    found: list[str] = []
    positions = settings = False
    for name, *values in zip(CLAIM, *claims, strict=True):
        if len(set(values)) == 1:
            continue
        who: dict[int, list[int]] = {}
        for rank, value in enumerate(values):
            who.setdefault(value, []).append(rank)
        found.append(f"{name} is " + " and ".join(f"{_shown(name, value)} on {ranks(who[value])}" for value in who))
        positions |= name in _POSITION
        settings |= name not in _POSITION
    if not found:
        return ""
    advice = [
        *(["give the sampler the same arguments on every rank"] if settings else []),
        *(["load the same checkpoint on every rank, or no checkpoint on any rank"] if positions else []),
    ]
    return f"the ranks would not train on the same data: {'; '.join(found)}. What to do: {'; '.join(advice)}"


def _shown(name: str, value: int) -> str:
    if name == "tail":
        return repr(TAILS[value])
    if name == "shuffle":
        return str(bool(value))
    return "None" if name == "fixed_global_batch" and not value else str(value)


def _part(indices: range, index: int, parts: int) -> range:
    """One of `parts` pieces of `indices`, in order; the first ones have one more where they cannot be equal."""
    each, more = divmod(len(indices), parts)
    start = index * each + min(index, more)
    return indices[start : start + each + (index < more)]


def _whole(name: str, value: object, least: int, what: str, most: int = LARGEST) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be a whole number: {what}")
    if not least <= value <= most:
        raise BadSampler(f"{name}={value} must be a whole number from {least} to {most}: {what}")
