"""What modules and optimizers have as their state, and how they take it: more than their `state_dict()` says."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch
from torch import nn


def module_state(module: nn.Module, *, large: bool) -> dict[str, Any]:
    """What it has; without what only an optimizer's step changes, unless `large`."""
    buffers = dict(module.named_buffers())
    trains = [each.requires_grad for each in module.parameters()]
    if not large:
        return {"trains": trains, "buffers": buffers, "extra": _extra(module)}
    held = module.state_dict()
    # Buffers that are not persistent are in no checkpoint, but DDP sends them from rank 0 to all.
    return {"trains": trains, "held": held, "buffers": {key: each for key, each in buffers.items() if key not in held}}


def load_module(module: nn.Module, state: Mapping[str, Any]) -> None:
    """What `module_state` gave, of either kind. Raises as `load_state_dict` does."""
    for each, trains in zip(module.parameters(), state["trains"], strict=True):
        each.requires_grad_(trains)
    if "held" in state:
        module.load_state_dict(_in_place(state["held"], module.state_dict(keep_vars=True)))
    for name, extra in state.get("extra", {}).items():
        module.get_submodule(name).set_extra_state(extra)
    live = dict(module.named_buffers())
    for name, kept in state["buffers"].items():
        own = live.get(name)
        if own is not None and own.shape == kept.shape:
            with torch.no_grad():
                own.copy_(kept)
        else:  # it has been made anew, larger perhaps
            path, _, leaf = name.rpartition(".")
            owner: Any = module.get_submodule(path)
            owner._buffers[leaf] = kept.to(kept.device if own is None else own.device, copy=True)


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What its steps change, but for what it keeps itself; in the order in which its `state_dict()` counts them."""
    return [each for group in optimizer.param_groups for each in group["params"]]


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """As `load_state_dict`, which makes all tensors the parameters' data type: here each keeps its own."""
    optimizer.load_state_dict(state)
    owners = parameters_of(optimizer)
    for index, held in state["state"].items():
        kept: dict[Any, Any] = optimizer.state[owners[index]] if isinstance(index, int) else {}
        for key, each in held.items():
            own = kept.get(key)
            if isinstance(own, torch.Tensor) and isinstance(each, torch.Tensor) and own.dtype != each.dtype:
                kept[key] = each.to(own.device)


def _extra(module: nn.Module) -> dict[str, Any]:
    plain = vars(nn.Module)["get_extra_state"]
    parts = cast("Iterable[tuple[str, Any]]", module.named_modules())
    own = ((name, each) for name, each in parts if type(each).get_extra_state is not plain)  # pyright: ignore[reportUnknownMemberType]
    return {name: each.get_extra_state() for name, each in own}


def _in_place(held: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """A state_dict in which what lies where it belongs already is the module's own: loading it copies nothing."""
    same = {
        key
        for key, each in held.items()
        if isinstance(each, torch.Tensor)
        and isinstance(own := live.get(key), torch.Tensor)
        and each.data_ptr() == own.data_ptr()
        and each.shape == own.shape
    }
    found: Any = OrderedDict((key, live[key] if key in same else each) for key, each in held.items())
    found._metadata = getattr(live, "_metadata", None)  # the versions of the modules' states
    return found
