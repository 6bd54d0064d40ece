"""Which parts of a checkpoint have parameters, and whether ranks have pieces of these."""

from collections.abc import Mapping
from typing import Any

import torch


def has_parameters(part: object) -> bool:
    """Whether its state has names of parameters."""
    return isinstance(part, torch.nn.Module | torch.optim.Optimizer)


def parameters_of(part: Any) -> list[torch.Tensor]:  # Any: a model or an optimizer
    """Those of a model, or those that an optimizer has been given."""
    if isinstance(part, torch.nn.Module):
        return list(part.parameters())
    return [each for group in part.param_groups for each in group["params"]]


def is_in_pieces(parts: Mapping[str, Any]) -> bool:
    """Whether ranks have pieces of a part's parameters. By the name of the class: importing that takes a while."""
    return any(
        type(each).__name__ == "DTensor"
        for part in parts.values()
        if has_parameters(part)
        for each in parameters_of(part)
    )
