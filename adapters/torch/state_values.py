"""The parts that a script gives its State: which may be given, what is in them, and how they travel as one."""

import copy
from collections.abc import Collection, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import nn

from ..client.shards import Shards
from .leased_batches import ElasticIterableDataset, ElasticLoader
from .lockstep_batches import ElasticBatchSampler
from .state_parts import load_module, load_optimizer, module_state, parameters_of
from .tree import SHARDED, UnsupportedState, flatten, leaves, unflatten
from .undo import state_of

R = TypeVar("R")

_SHARDED_KINDS = (
    "FullyShardedDataParallel",
    "FSDPModule",
    "ZeroRedundancyOptimizer",
    "DeepSpeedEngine",
    "PipelineStage",
)


class StateValues:
    """The parts of one State. Raises UnsupportedState where one cannot be sent to another worker.

    Args:
        parts: by their names.
        taken: names that no part may have.
    """

    def __init__(self, parts: dict[str, Any], taken: Collection[str]) -> None:
        self.parts = parts
        for name, value in parts.items():
            _refuse_sharded(name, value)
            if isinstance(value, Shards | ElasticIterableDataset | ElasticLoader):
                raise UnsupportedState(
                    f"State({name}=...) is leased from the job's master, which returns to the script's checkpoint in "
                    "each new round, and a script that is not restarted loads none: use an ElasticBatchSampler"
                )
            if isinstance(value, list | tuple | dict) and any(hasattr(part, "state_dict") for part in leaves(value)):
                raise UnsupportedState(
                    f"State({name}=...) holds objects with a state of their own: give each its own name, as in "
                    f"State({name}_a=..., {name}_b=...)"
                )
            if name in taken or name.startswith("_"):
                raise UnsupportedState(f"State({name}=...) would hide a part of State itself: choose another name")
        self._refuse_strangers()

    def list_kind(self, kind: type[R]) -> list[R]:
        """Those of its parts that are of this kind."""
        return [value for value in self.parts.values() if isinstance(value, kind)]

    def optimizers(self) -> list[torch.optim.Optimizer]:
        """Its optimizers."""
        return self.list_kind(torch.optim.Optimizer)

    def parameters(self) -> list[nn.Parameter]:
        """Those of its modules."""
        return [each for module in self.list_kind(nn.Module) for each in module.parameters()]

    def trained(self) -> list[torch.Tensor]:
        """What the optimizers change, but for what they keep themselves."""
        return [each for optimizer in self.optimizers() for each in parameters_of(optimizer)]

    def large(self) -> list[torch.Tensor]:
        """What only an optimizer's step changes."""
        found: list[torch.Tensor] = [*self.parameters()]
        for optimizer in self.optimizers():
            found += state_of(optimizer)
        return found

    def flattened(self, *, large: bool) -> tuple[str, list[torch.Tensor]]:
        """All as text and tensors; without what only an optimizer's step changes, unless `large`."""
        whole: dict[str, object] = {}
        for name, value in self.parts.items():
            if isinstance(value, nn.Module):
                whole[name] = module_state(value, large=large)
            elif isinstance(value, torch.optim.Optimizer):
                whole[name] = value.state_dict() if large else {"param_groups": value.state_dict()["param_groups"]}
            elif hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
                sampler = isinstance(value, ElasticBatchSampler)
                whole[name] = value._committed_state() if sampler else value.state_dict()  # pyright: ignore[reportPrivateUsage]
            else:
                whole[name] = value
        return flatten(whole, "state")

    def load(self, text: str, tensors: Sequence[torch.Tensor], *, large: bool) -> None:
        """What `flattened` gave, of either kind."""
        whole: dict[str, Any] = unflatten(text, tensors)
        for name, value in self.parts.items():
            held = whole[name]
            if isinstance(value, nn.Module):
                load_module(value, held)
            elif isinstance(value, torch.optim.Optimizer):
                if large:
                    load_optimizer(value, held)
                else:
                    for group, kept in zip(value.param_groups, held["param_groups"], strict=True):
                        group.update({key: each for key, each in kept.items() if key != "params"})
            elif hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
                value.load_state_dict(held)
            elif isinstance(value, torch.Tensor) and isinstance(held, torch.Tensor) and value.shape == held.shape:
                with torch.no_grad():
                    value.copy_(held)
            else:
                self.parts[name] = copy.deepcopy(held)

    def drop_begun(self) -> None:
        """The gradients, and what a GradScaler notes of the step under way."""
        for parameter in [*self.parameters(), *self.trained()]:
            parameter.grad = None
        for value in self.parts.values():
            if isinstance(noted := getattr(value, "_per_optimizer_states", None), dict):
                cast("dict[Any, Any]", noted).clear()  # it is in no state_dict, and refuses to begin the step again

    def _refuse_strangers(self) -> None:
        """Parameters that an optimizer changes, and that would neither be undone nor come to a new worker."""
        known = {id(each) for each in [*self.parameters(), *self.list_kind(torch.Tensor)]}
        if strangers := [each for each in self.trained() if id(each) not in known]:
            raise UnsupportedState(
                f"State(optimizer=...) changes {len(strangers)} parameters that no module of this State has (the first "
                f"has the shape {tuple(strangers[0].shape)}): give their module to it, too, as in State(head=head)"
            )


def _refuse_sharded(name: str, value: object) -> None:
    parts = value.modules() if isinstance(value, nn.Module) else [value]
    for part in parts:
        kinds = {kind.__name__ for kind in type(part).__mro__}
        if found := kinds.intersection(_SHARDED_KINDS):
            raise UnsupportedState(f"State({name}=...) is sharded over the ranks ({sorted(found)[0]}): {SHARDED}")
        if isinstance(part, nn.parallel.DistributedDataParallel):
            raise UnsupportedState(
                f"State({name}=...) is wrapped already: give the plain module, and wrap it with state.ddp()"
            )
