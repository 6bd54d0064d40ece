"""A ledger's state as bytes in the store, and back (pure); see docs/ledger.md."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import cast

from ...rendezvous.store.seal import unreadable
from ...rendezvous.wire.values import Malformed, decode, encode
from .ledger import VERSION, Piece, State


class BadState(ValueError):
    """The store holds what this version cannot read."""


def read(value: bytes) -> State:
    """The state that the store holds. Raises BadState."""
    if unreadable(value):
        raise BadState("it was written by nodes with another secret, or with --insecure")
    try:
        state = decode(State, value, unpack=_unpacked)
    except Malformed as error:
        raise BadState(str(error)) from None
    if state.version != VERSION:
        raise BadState(f"its version is {state.version}, and this elastic-run reads {VERSION}")
    return state


def written(state: State) -> bytes:
    """What `read` reads.

    All of it is written with every change, and a store keeps what it replaces for a while. So fields that have their
    default are left out, and pieces are lists of numbers.
    """
    return encode(state, pack=_packed)


def _packed(value: object) -> object:
    """Pieces as numbers: each shard index as its distance from the one before; what is not 0 after its position."""
    pieces = cast(tuple[Piece, ...], value)  # or anything else
    if not (isinstance(value, tuple) and value and isinstance(pieces[0], Piece)):  # pyright: ignore[reportUnnecessaryIsInstance]  # see there
        return cast(object, value)
    shard_indices = [
        pieces[0].shard_index,
        *(piece.shard_index - before.shard_index for before, piece in pairwise(pieces)),
    ]
    packed: dict[str, object] = {"indices": shard_indices}
    if offsets := [number for i, piece in enumerate(pieces) if piece.offset for number in (i, piece.offset)]:
        packed["offsets"] = offsets
    if returned := [number for i, piece in enumerate(pieces) if piece.returned for number in (i, piece.returned)]:
        packed["returned"] = returned
    if names := sorted({piece.offsets.partition for piece in pieces if piece.offsets}):
        packed["partitions"] = names
        packed["ranges"] = [
            number
            for i, piece in enumerate(pieces)
            if (known := piece.offsets)
            for number in (i, names.index(known.partition), known.first, known.stop - known.first)
        ]
    return packed


def _unpacked(raw: object) -> object:
    """The pieces of an object that `_packed` has made, as objects of their own; all else as it is. Raises Malformed."""
    packed = cast(dict[str, object], raw)  # it is asked about JSON objects only
    if "indices" not in packed:
        return packed
    shard_indices = list(accumulate(_numbers(packed["indices"])))
    offsets, returned = ([0] * len(shard_indices) for _ in range(2))
    for name, into in (("offsets", offsets), ("returned", returned)):
        for index, number in _pairs(_numbers(packed.get(name, []))):
            if not 0 <= index < len(into):
                raise Malformed(f"{name}: there is no piece {index}")
            into[index] = number
    rows: list[dict[str, object]] = [
        {"shard_index": shard_index, "offset": offset, "returned": times}
        for shard_index, offset, times in zip(shard_indices, offsets, returned, strict=True)
    ]
    if "ranges" in packed:
        _unpack_ranges(rows, packed["ranges"], packed.get("partitions"))
    return rows


def _unpack_ranges(rows: Sequence[dict[str, object]], ranges: object, partitions: object) -> None:
    """Says in each row which offsets the piece is. Raises Malformed."""
    numbers = _numbers(ranges)
    names = cast(list[object], partitions) if isinstance(partitions, list) else []
    if len(numbers) % 4:
        raise Malformed("ranges: expected four numbers for each")
    for i, name, first, length in zip(*(numbers[place::4] for place in range(4)), strict=True):
        if not (0 <= i < len(rows) and 0 <= name < len(names)):
            raise Malformed(f"ranges: there is no piece {i}, or no partition {name}")
        rows[i]["offsets"] = {"partition": names[name], "first": first, "stop": first + length}


def _numbers(raw: object) -> list[int]:
    numbers = cast(list[object], raw) if isinstance(raw, list) else [None]
    if any(type(number) is not int for number in numbers):
        raise Malformed("pieces: expected a list of numbers")
    return cast(list[int], numbers)


def _pairs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Pairs of an index and what stands there. Raises Malformed where the last has no partner."""
    if len(numbers) % 2:
        raise Malformed("pieces: expected pairs of numbers")
    return zip(numbers[::2], numbers[1::2], strict=True)
