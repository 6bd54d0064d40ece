"""What an optimizer of torch is on a server: exactly the same steps, or a reason why there are none (pure)."""

from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from ...rendezvous.base.frozen import dataclass
from ..servers import specs
from ..servers.errors import TableMisused

SCHEDULED = (
    "the settings of the optimizer have changed since on_servers: servers take another lr, as a scheduler sets it, for "
    "torch.optim.SGD without momentum alone"
)


@dataclass(frozen=True, slots=True)
class ServerStep:
    """Of a group of parameters: what is pushed is `rate * (sign * gradient + weight_decay * parameter)`.

    Attributes:
        optimizer: of the rows.
        rate: that which the optimizer on the server leaves out.
        sign: -1.0 where the loss is maximized.
    """

    optimizer: specs.Optimizer
    rate: float = 1.0
    sign: float = 1.0
    weight_decay: float = 0.0


def read_step(optimizer: Optimizer, group: dict[str, Any]) -> ServerStep:
    """Of one of its groups of parameters. Raises TableMisused."""
    what = f"on_servers: torch.optim.{type(optimizer).__name__}"
    for name in ("nesterov", "dampening", "amsgrad", "lr_decay", "decoupled_weight_decay"):
        if group.get(name):
            raise TableMisused(f"{what}({name}={group[name]!r}): servers make no such steps. Leave it out")
    rate, sign, decay = float(group["lr"]), -1.0 if group.get("maximize") else 1.0, float(group["weight_decay"])
    if type(optimizer) is torch.optim.SGD and not group["momentum"]:
        return ServerStep(specs.SGD(1.0), rate, sign, decay)
    return ServerStep(_read_rows(optimizer, group, rate, what), 1.0, sign, decay)


def _read_rows(optimizer: Optimizer, group: dict[str, Any], rate: float, what: str) -> specs.Optimizer:
    if type(optimizer) is torch.optim.SGD:
        return specs.Momentum(rate, float(group["momentum"]))
    if type(optimizer) is torch.optim.Adagrad:
        return specs.Adagrad(rate, float(group["eps"]), float(group["initial_accumulator_value"]))
    if type(optimizer) is torch.optim.Adam:
        beta1, beta2 = group["betas"]
        return specs.Adam(rate, float(beta1), float(beta2), float(group["eps"]))
    raise TableMisused(f"{what}: servers know torch.optim.SGD, Adagrad and Adam. Use one of these")


def check_fresh(optimizer: Optimizer) -> None:
    """Raises TableMisused where it has made steps: what it keeps of them is not on the servers."""
    kept = list(optimizer.state.values())
    if any(float(each.get("step", 0)) or each.get("momentum_buffer") is not None for each in kept):
        raise TableMisused(
            "on_servers: the optimizer has made steps already, or was loaded, and servers begin without its state. "
            "Call on_servers before the first step, with a new optimizer"
        )
