"""States as text and tensors: what a `state_dict()` holds, so that it can travel without pickle (pure but for torch).

Numbers, strings, None, lists, tuples and dicts of these become JSON; tensors are kept apart and named by their place.
A Counter stays one: torch's MultiStepLR counts its milestones.
"""

import json
import numbers
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import torch

from ...rendezvous.base.frozen import dataclass
from .errors import UnsupportedState

SHARDED = (
    "after a loss no rank would have that part. Keep the process only with replicated state (DDP), or let the launcher "
    "restart the script from its checkpoints, as it does without State"
)

_DTYPES = {str(found): found for found in vars(torch).values() if isinstance(found, torch.dtype)}


@dataclass(frozen=True, slots=True)
class InPieces:
    """Stands for a tensor of which each rank has a piece.

    Attributes:
        where: its place, as `flatten` has told it.
        shape: of all pieces together.
    """

    where: str
    dtype: torch.dtype
    shape: tuple[int, ...]


def flatten(
    value: object, where: str, pieces: "list[tuple[str, torch.Tensor]] | None" = None
) -> tuple[str, list[torch.Tensor]]:
    """`value` as text, and its tensors in the order in which the text names them. Raises UnsupportedState.

    Args:
        pieces: takes each tensor of which this rank has a piece, with its place; None: there may be none.
    """
    tensors: list[torch.Tensor] = []
    return json.dumps(_plain(value, where, tensors, pieces), separators=(",", ":")), tensors


def places(text: str) -> list[tuple[str, torch.dtype, tuple[int, ...]]]:
    """Of each tensor that such a text names: where it is in the value, its data type, its shape."""
    found: list[tuple[str, torch.dtype, tuple[int, ...]]] = []

    def look(plain: Any, where: str) -> None:  # Any: raw JSON
        if isinstance(plain, list):
            for index, item in enumerate(cast("list[Any]", plain)):
                look(item, f"{where}[{index}]")
        elif isinstance(plain, dict):
            raw = cast("dict[str, Any]", plain)
            if "T" in raw:
                _, kind, shape = raw["T"]
                found.append((where, _DTYPES[kind], tuple(shape)))
            elif "t" in raw:
                look(raw["t"], where)
            elif "d" in raw:
                for key, item in raw["d"]:
                    look(item, f"{where}[{key!r}]")

    look(json.loads(text), "")
    return found


def unflatten(text: str, tensors: Sequence[torch.Tensor]) -> Any:  # Any: whatever was flattened
    """The value again, with these tensors in it."""

    def build(raw: dict[str, Any]) -> Any:
        if "T" in raw:
            index: int = raw["T"][0]
            return tensors[index]
        if "S" in raw:
            where, kind, shape = raw["S"]
            return InPieces(where, _DTYPES[kind], tuple(shape))
        if "t" in raw:
            items: list[Any] = raw["t"]
            return tuple(items)
        if "c" in raw:
            return Counter(dict(cast("list[tuple[Any, int]]", raw["c"])))
        return dict(cast("list[tuple[Any, Any]]", raw["d"]))

    found: object = json.loads(text, object_hook=build)
    return found


def leaves(state: Any) -> Iterator[Any]:  # Any: states of any kind
    """Whatever is in it, through dicts, lists and tuples."""
    if isinstance(state, Mapping):
        for each in cast("Mapping[Any, Any]", state).values():
            yield from leaves(each)
    elif isinstance(state, list | tuple):
        for each in cast("list[Any]", state):
            yield from leaves(each)
    else:
        yield state


def _plain(
    value: object,
    where: str,
    tensors: list[torch.Tensor],
    pieces: "list[tuple[str, torch.Tensor]] | None",
) -> object:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, numbers.Number) and hasattr(value, "item"):  # numpy's, as a schedule may have
        return _plain(cast("Any", value).item(), where, tensors, pieces)
    if isinstance(value, torch.Tensor):
        if type(value).__name__ in ("DTensor", "ShardedTensor"):
            if pieces is not None and type(value).__name__ == "DTensor":
                pieces.append((where, value))
                return {"S": [where, str(value.dtype), list(value.shape)]}
            raise UnsupportedState(f"{where} is sharded over the ranks ({type(value).__name__}): {SHARDED}")
        if torch.nn.parameter.is_lazy(value):  # pyright: ignore[reportUnknownMemberType]
            raise UnsupportedState(f"{where} has no shape yet: run one forward pass before the State is made")
        if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
            kind = "quantized" if value.is_quantized else "meta" if value.device.type == "meta" else str(value.layout)
            raise UnsupportedState(
                f"{where} is a tensor of another kind ({kind}): a state carries dense tensors with data"
            )
        tensors.append(value.detach())
        return {"T": [len(tensors) - 1, str(value.dtype), list(value.shape)]}
    if isinstance(value, Mapping):
        kind = type(cast("object", value))
        if kind not in (dict, OrderedDict, Counter):
            raise UnsupportedState(f"{where} is a {kind.__name__}, which would arrive as a dict: give it as a dict")
        pairs: list[list[object]] = []
        for key, item in cast("Mapping[object, object]", value).items():
            if type(key) not in (str, int):
                raise UnsupportedState(f"{where} has the key {key!r}: a state's keys must be strings or whole numbers")
            pairs.append([key, _plain(item, f"{where}[{key!r}]", tensors, pieces)])
        return {"c" if kind is Counter else "d": pairs}
    if isinstance(value, tuple):
        found = cast("tuple[object, ...]", value)
        return {"t": [_plain(item, f"{where}[{index}]", tensors, pieces) for index, item in enumerate(found)]}
    if isinstance(value, list):
        return [
            _plain(item, f"{where}[{index}]", tensors, pieces) for index, item in enumerate(cast("list[object]", value))
        ]
    raise UnsupportedState(
        f"{where} is a {type(value).__module__}.{type(value).__qualname__}: a state carries tensors, numbers, strings, "
        "None, lists, tuples and dicts of these, and objects with state_dict() and load_state_dict() that are made of "
        "these; nothing is pickled"
    )
