"""States of models and optimizers by their parameters' names, which are the same at any world size and any sharding.

`torch.distributed.checkpoint.state_dict` gives the names. What an earlier worker kept as `state_dict()` has it, of a
model in DistributedDataParallel and of its optimizer, is renamed when it is read.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.tensor import DTensor

from ..client.checkpoints import BadCheckpoint
from ..client.shard_plan import Box
from .part_kinds import parameters_of

WRAPPED = "module."
"""Before the name of each parameter in DistributedDataParallel."""


def named_state(part: Any, parts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of a model or an optimizer, whose tensors are those of the part itself. Raises BadCheckpoint."""
    if isinstance(part, torch.nn.Module):
        return states.get_model_state_dict(part)
    return cast("dict[str, Any]", states.get_optimizer_state_dict(_model_of(part, parts), part))


def load_named(part: Any, parts: Mapping[str, Any], state: dict[str, Any]) -> None:
    """Gives it a state whose tensors are its own already. Raises BadCheckpoint."""
    if isinstance(part, torch.nn.Module):
        if not all(isinstance(each, torch.Tensor) for each in state.values()):  # else all is there
            states.set_model_state_dict(part, state)
    else:
        states.set_optimizer_state_dict(_model_of(part, parts), part, cast("Any", state))


def rename(part: Any, parts: Mapping[str, Any], state: Mapping[Any, Any]) -> dict[str, Any]:
    """What `state_dict()` of another worker's part has given, by names. Raises BadCheckpoint."""
    if isinstance(part, torch.nn.Module):
        return dict(zip(plain_names(map(str, state)), state.values(), strict=True))
    own = dict(_model_of(part, parts).named_parameters())
    plain: dict[int, str] = dict(zip(map(id, own.values()), plain_names(own), strict=True))
    names = [plain[id(each)] for each in parameters_of(part)]
    try:
        held: Mapping[int, Any] = state["state"]
        groups: list[dict[str, Any]] = [
            {**group, "params": [names[index] for index in group["params"]]} for group in state["param_groups"]
        ]
        return {"state": {names[index]: each for index, each in held.items()}, "param_groups": groups}
    except (IndexError, KeyError, TypeError) as error:
        raise BadCheckpoint(
            f"the optimizer in memory has other parameters than the {len(names)} of this one: give both the same"
        ) from error


def plain_names(names: Iterable[str]) -> list[str]:
    """Names of all parameters without what DistributedDataParallel and torch.compile put into them (pure)."""
    plain = [name.replace("_orig_mod.", "") for name in names]
    wrapped = all(name.startswith(WRAPPED) for name in plain)
    return [name.removeprefix(WRAPPED) if wrapped else name for name in plain]


def local_box(tensor: torch.Tensor) -> tuple[torch.Tensor, Box]:
    """What this rank has of a tensor, and where that is in it. Raises BadCheckpoint."""
    if not isinstance(tensor, DTensor):
        return tensor, Box((0,) * tensor.dim(), tuple(tensor.shape))
    try:
        chunks = cast(
            "list[ChunkStorageMetadata]", tensor.__create_chunk_list__()
        )  # as torch.distributed.checkpoint asks
        [chunk] = chunks
    except (RuntimeError, ValueError) as error:
        raise BadCheckpoint(
            f"a tensor with the placements {tensor.placements} is no box of the whole ({error}): memory=... keeps "
            "tensors that are sharded or replicated"
        ) from error
    return tensor.to_local(), Box(tuple(chunk.offsets), tuple(chunk.sizes))


def _model_of(optimizer: torch.optim.Optimizer, parts: Mapping[str, Any]) -> torch.nn.Module:
    wanted = {id(each) for each in parameters_of(optimizer)}
    for part in parts.values():
        if isinstance(part, torch.nn.Module) and wanted <= {id(each) for each in part.parameters()}:
            return part
    raise BadCheckpoint(
        f"no part has the parameters of {type(optimizer).__name__}, and so they have no names: give its model to the "
        "same Checkpoint"
    )
