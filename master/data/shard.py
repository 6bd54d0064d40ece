"""How a dataset is cut into shards, and in which order their records are used, by arithmetic alone (pure).

The shards of an epoch are numbered in the order of the data: `ceil(records / shard_size)` of each file, or of the whole
where there are no files; the last one of a file may be shorter, and none spans two files. A *shard index* counts shards
along all epochs: shard index p is in epoch p // shards. Which shard stands there, and in which order its records are
used, must stay what it is in every version of this package, because checkpoints hold shard indices and offsets. With
`shuffle`:

  - shard index p is shard number `Permutation(shards, key(seed, epoch, name))[p % shards]` (`permutation.py` says
    both);
  - in a shard of n records, record r, counted from the shard's beginning, draws the number that stands in the eight
    bytes from 8 * r on of SHAKE128 of the text `elastic-run shard 1 <seed> <epoch> <number> <name>` (`inner_key`; in
    UTF-8, the numbers in decimal), read as unsigned and little-endian; the records are used in the order of what they
    have drawn, and where two have drawn the same, in their own. (A sort is far quicker than a permutation by
    arithmetic, and the indices of one shard are kept anyway.)

Without, shard index p is shard p % shards, and the records are used as they stand. Nothing is stored for a shard: what
is kept follows from the number of files.

    ShardsError
    ├── BadDataset      (ValueError)    the script declares what cannot be
    └── BadShardsState  (ValueError)    a checkpoint that is not this dataset's, or is damaged
"""

import os
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b, shake_128
from itertools import accumulate
from typing import cast, get_args

from ...rendezvous.base.errors import ElasticRunError
from ...rendezvous.base.frozen import dataclass
from .ledger import POSITION_VERSION, Dataset, Piece, Position, Tracking
from .permutation import Permutation, key

Files = Iterable[tuple["str | os.PathLike[str]", int]]
"""Names, and how many records each has."""

TRACKING_MODES: tuple[Tracking, ...] = get_args(Tracking)

LARGEST = 2**62
"""No number of records or shards in all epochs is larger."""

MAX_NAME = 200
"""Characters of a dataset's name, which becomes a key in the store."""

_ORDERS = 4
"""Epochs whose order of shards is kept at hand: leases seldom span more."""


class ShardsError(ElasticRunError, public=True):
    """Base of what leased data refuses."""


class BadDataset(ShardsError, ValueError, public=True):
    """The script declares what cannot be."""


class BadShardsState(ShardsError, ValueError, public=True):
    """The checkpoint is of another dataset or order, or is none of ours."""


@dataclass(frozen=True, slots=True)
class Span:
    """The records of one shard.

    Attributes:
        shard_index: which.
        epoch: from 0.
        number: of the shard in its epoch's data, from 0.
        file: its name; empty where the dataset has no files.
        start, stop: the records, within the file or the whole.
    """

    shard_index: int
    epoch: int
    number: int
    file: str
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def key(self) -> str:
        """A text that no other shard of any epoch has, the same whenever this one is done."""
        return f"e{self.epoch:05d}-s{self.number:09d}"


class Layout:
    """One dataset in shards.

    Args:
        name: of 1 to MAX_NAME characters; part of the order.
        size: records, or the files with the records of each. A file may be empty, the whole may not.
        shard_size: records in a shard.
        epochs: how often each record is used.
        shuffle: an order of its own for each epoch; False: as the data stand.
        seed: of the orders, from -2**63 to 2**63 - 1.

    Attributes:
        size: records in an epoch.
        shards: in an epoch.
        files: a digest of the files' names and lengths; empty where there are none.

    Raises BadDataset where that makes no sense, TypeError where a value is of the wrong kind.
    """

    def __init__(
        self, name: str, size: int | Files, shard_size: int, *, epochs: int = 1, shuffle: bool = True, seed: int = 0
    ) -> None:
        check_name(name)
        check_whole("shard_size", shard_size, 1, "records in a shard")
        check_whole("epochs", epochs, 1, "how often each record is used")
        check_whole("seed", seed, -(2**63), "as seeds go", most=2**63 - 1)
        if not isinstance(shuffle, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
            raise TypeError(f"shuffle={shuffle!r} must be True or False; give a generator as `seed`")
        self.name = name
        self.shard_size = shard_size
        self.epochs = epochs
        self.shuffle = shuffle
        self.seed = seed
        self._names: tuple[str, ...] = ("",)
        if isinstance(size, int):
            check_whole("size", size, 1, "records; an empty dataset has nothing to lease")
            self._counts: tuple[int, ...] = (size,)
            self.files = ""
        else:
            self._names, self._counts = _files(size)
            self.files = _digest(self._names, self._counts)
        self.size = sum(self._counts)
        self._ends = list(accumulate(-(-count // shard_size) for count in self._counts))  # shards up to each file's end
        self.shards = self._ends[-1]
        if not self.size:
            raise BadDataset(f"dataset {name!r} has {len(self._counts)} files and no record in any of them")
        if max(self.size, self.shards * epochs) > LARGEST:
            raise BadDataset(f"dataset {name!r} has {self.size} records in {epochs} epochs: at most {LARGEST} can be")
        self._orders: dict[int, Permutation] = {}

    @property
    def order(self) -> str:
        """What names the shards and their order: another size, seed or list of files has another."""
        what = repr((self.size, self.shard_size, self.shuffle, self.seed, self.files)).encode()
        return f"{self.name}:{zlib.crc32(what):08x}"

    def dataset(self, tracking: Tracking) -> Dataset:
        """As it is declared to the ledger. Raises BadDataset where there is no such tracking mode."""
        if tracking not in TRACKING_MODES:
            raise BadDataset(f"commit={tracking!r} is unknown: use one of {', '.join(map(repr, TRACKING_MODES))}")
        return Dataset(
            self.name,
            self.size,
            self.shard_size,
            self.shards,
            self.epochs,
            self.shuffle,
            self.seed,
            tracking,
            self.files,
        )

    def span_of(self, piece: Piece) -> Span:
        """The records of a shard of which a piece is leased."""
        return self.span(piece.shard_index)

    def span(self, shard_index: int) -> Span:
        """The records of the shard with that index, of any epoch."""
        epoch, number = divmod(shard_index, self.shards)
        if self.shuffle:
            number = self._order(epoch)[number]
        file = bisect_right(self._ends, number)
        start = (number - (self._ends[file - 1] if file else 0)) * self.shard_size
        return Span(
            shard_index, epoch, number, self._names[file], start, min(start + self.shard_size, self._counts[file])
        )

    def indices(self, span: Span, offset: int = 0) -> Sequence[int]:
        """The records of a shard in the order in which they are used, from the `offset`-th on."""
        if not self.shuffle:
            return range(span.start + offset, span.stop)
        drawn = array("Q", shake_128(inner_key(self.seed, span.epoch, span.number, self.name)).digest(8 * len(span)))
        if sys.byteorder == "big":
            drawn.byteswap()
        order = sorted(range(len(span)), key=drawn.__getitem__)
        return [span.start + index for index in order[offset:]]

    def state(self, position: Position) -> dict[str, object]:
        """Plain values for a checkpoint: the position, and what it is a position in."""
        return {
            "version": POSITION_VERSION,
            "name": self.name,
            "size": self.size,
            "shard_size": self.shard_size,
            "shuffle": self.shuffle,
            "seed": self.seed,
            "files": self.files,
            "frontier": position.frontier,
            "todo": [[piece.shard_index, piece.offset] for piece in position.todo],
        }

    def restored(self, state: Mapping[str, object]) -> Position:
        """The position that `state` says; its number of epochs does not matter. Raises BadShardsState."""
        here: dict[str, object] = {
            "name": self.name,
            "size": self.size,
            "shard_size": self.shard_size,
            "files": self.files,
            "shuffle": self.shuffle,
            **({"seed": self.seed} if self.shuffle else {}),
        }
        check_saved(self.name, state, here)
        return self._position(state.get("frontier"), state.get("todo"))

    def _position(self, frontier: object, todo: object) -> Position:
        def damaged(what: str) -> BadShardsState:
            return BadShardsState(f"the checkpoint's state of dataset {self.name!r} is damaged: {what}")

        if type(frontier) is not int or not 0 <= frontier <= LARGEST:
            raise damaged(f"frontier is {frontier!r}")
        if not isinstance(todo, list | tuple):
            raise damaged(f"todo is {todo!r}")
        pieces: list[Piece] = []
        for item in cast(Sequence[object], todo):
            pair = tuple(cast(Sequence[object], item)) if isinstance(item, list | tuple) else ()
            if len(pair) != 2 or type(pair[0]) is not int or type(pair[1]) is not int:
                raise damaged(f"{item!r} is in todo, and is not a shard index with an offset")
            shard_index, offset = pair[0], pair[1]
            if not (pieces[-1].shard_index if pieces else -1) < shard_index < frontier:
                raise damaged(f"shard {shard_index} in todo is out of order or not below the frontier {frontier}")
            if not 0 <= offset < len(self.span(shard_index)):
                raise damaged(
                    f"{offset} records of shard {shard_index} are done, but it has {len(self.span(shard_index))}"
                )
            pieces.append(Piece(shard_index, offset))
        return Position(frontier, tuple(pieces))

    def _order(self, epoch: int) -> Permutation:
        order = self._orders.get(epoch)
        if order is None:
            if len(self._orders) >= _ORDERS:
                del self._orders[next(iter(self._orders))]
            order = self._orders[epoch] = Permutation(self.shards, key(self.seed, epoch, self.name))
        return order


def check_saved(name: str, state: Mapping[str, object], here: Mapping[str, object]) -> None:
    """Raises BadShardsState where `state` is no result of `state_dict()`, or of other data than `here` says."""
    what = f"the checkpoint's state of dataset {name!r}"
    if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
        raise BadShardsState(f"{what} is {state!r}, and not a result of `state_dict()`")
    version = state.get("version")
    if version != POSITION_VERSION:
        raise BadShardsState(
            f"{what} has version {version!r}, and this elastic-run reads {POSITION_VERSION}: load a result of "
            "`state_dict()`, with the same or a newer version of elastic-run"
        )
    for field, value in here.items():
        found = state.get(field)
        if type(found) is not type(value):
            raise BadShardsState(f"{what} is damaged: {field} is {found!r}")
        if found != value:
            other = "has other files" if field == "files" else f"has {field}={found!r}, and this one {field}={value!r}"
            raise BadShardsState(
                f"the checkpoint is of another dataset or order: its dataset {state.get('name')!r} {other}; give "
                "shards() the same arguments, or start without that checkpoint"
            )


def inner_key(seed: int, epoch: int, number: int, name: str) -> bytes:
    """What makes the order of the records of one shard in one epoch its own."""
    return f"elastic-run shard 1 {seed} {epoch} {number} {name}".encode()


def _files(given: Files) -> tuple[tuple[str, ...], tuple[int, ...]]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]  # scripts are not typed
        raise TypeError(f"size={given!r} must be a number of records, or a list of pairs: a file and its records")
    names: list[str] = []
    counts: list[int] = []
    for pair in given:
        if not isinstance(pair, list | tuple) or len(pair) != 2:  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryComparison]
            raise TypeError(
                f"size has {pair!r} among its files, where a pair of a file and its number of records is expected"
            )
        name = os.fspath(pair[0])
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the file {name!r} must be a string or a path")
        if not name:
            raise BadDataset("size lists a file without a name: give each its path")
        check_whole(f"the records of file {name!r}", pair[1], 0, "records")
        names.append(name)
        counts.append(pair[1])
    if not names:
        raise BadDataset("size is an empty list of files: there is nothing to lease")
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))
        raise BadDataset(f"the file {twice!r} is listed twice: its records would be used twice in each epoch")
    return tuple(names), tuple(counts)


def _digest(names: Sequence[str], counts: Sequence[int]) -> str:
    """Of the files in their order: of each its records, the bytes of its name, and the name."""
    digest = blake2b(digest_size=16)
    for name, count in zip(names, counts, strict=True):
        written = name.encode(errors="surrogatepass")  # names of files may be no text
        digest.update(b"%d %d " % (count, len(written)) + written)
    return digest.hexdigest()


def unfit_name(name: str) -> str:
    """Why this cannot be a dataset's name, in words; empty where it can."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"the dataset's name {name!r} is not a valid string"
    if not 0 < len(name) <= MAX_NAME:
        return f"the dataset's name has {len(name)} characters: give it one of 1 to {MAX_NAME}"
    return ""


def check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"the dataset's name {name!r} must be a text")
    if wrong := unfit_name(name):
        raise BadDataset(wrong)


def check_whole(name: str, value: object, least: int, what: str, most: int = LARGEST) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} must be a whole number: {what}")
    if not least <= value <= most:
        raise BadDataset(f"{name}={value} must be a whole number from {least} to {most}: {what}")
