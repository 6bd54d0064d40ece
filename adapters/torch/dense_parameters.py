"""All parameters of a model on the job's servers: workers train it asynchronously, each with a copy of its own."""

import hashlib
import os
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer

from ...rendezvous.base.frozen import dataclass
from ..servers import specs
from ..servers.errors import TableMisused
from ..servers.row_table import declare_table, servers_client
from .embedding import check_optimizers
from .server_steps import SCHEDULED, ServerStep, check_fresh, read_step

if TYPE_CHECKING:
    from ..servers.server_events import Array

SEED = "the seed is a hash of the parameters' names, shapes and groups in the optimizer; a checkpoint has it, too"

LOADED = "would change this worker alone, for the next pull undoes it: load before on_servers, with a new optimizer"


@dataclass(frozen=True, slots=True)
class ServedGroup:
    """Parameters that are in one group of the optimizer, and in one table.

    Attributes:
        members: which of the model's parameters.
        begun: what the optimizer was when the table was declared.
    """

    table: specs.TableSpec
    members: tuple[int, ...]
    begun: ServerStep


class DenseParameters:
    """The parameters of a model that are on servers; `elastic_run.torch.on_servers` makes it.

    A row of the group's table is the difference from the values that the model began with.

    Args:
        model, optimizer, name, pull_every, max_staleness: see `on_servers`.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, name: str, pull_every: int, max_staleness: int | None
    ) -> None:
        named = list_parameters(model, optimizer, name)
        self._client = servers_client()
        self._pid = os.getpid()
        if any(each.name == f"{name} begins" for each in self._client.specs):
            raise TableMisused(
                f"on_servers: this process has put a model {name!r} on servers before: give this one another name="
            )
        self._parameters = [each for _, each in named]
        self._pull_every = pull_every
        self._without: list[tuple[Tensor, Tensor]] = []
        """Parameters, and their gradients, while a step of the optimizer changes nothing."""
        self._begin(optimizer, name, _seed_of(named, optimizer), max_staleness)
        self.pull()
        self._follow(model, optimizer)

    def _follow(self, model: nn.Module, optimizer: Optimizer) -> None:
        """From now on."""

        def pull_before(module: nn.Module, _: Any) -> None:  # a function: whoever copies a model would copy an object
            if self._pid == os.getpid():  # a process that was forked has the parameters as they were then
                self._pull_due(trains=module.training and torch.is_grad_enabled())

        def check_loaded(module: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
            if module in own and any(f"{prefix}{path}" in state for path in own[module]):
                raise TableMisused(f"on_servers: load_state_dict {LOADED}")

        def refuse_state(*_: Any) -> None:
            raise TableMisused(f"on_servers: load_state_dict of the optimizer {LOADED}")

        served = {id(each) for each in self._parameters}
        own = weakref.WeakKeyDictionary(  # a copy of the model has the same hooks
            {
                module: [path for path, each in module.named_parameters(recurse=False) if id(each) in served]
                for module in model.modules()
            }
        )
        compiler: Any = torch.compiler  # torch has no type for what follows
        for module in model.modules():
            module.register_forward_pre_hook(compiler.disable(pull_before))
            untyped: Any = module  # as above
            untyped.register_load_state_dict_pre_hook(check_loaded)
        check_optimizers()
        optimizer.register_load_state_dict_pre_hook(refuse_state)
        optimizer.register_step_pre_hook(self._take_gradients)
        optimizer.register_step_post_hook(self._end_step)

    def _begin(self, optimizer: Optimizer, name: str, seed: int, max_staleness: int | None) -> None:
        from ..servers.first_values import agree_on_first_values, spec_of_first_values
        from ..servers.parameter_rows import COLUMNS, ParameterRows

        steps = [read_step(optimizer, each) for each in optimizer.param_groups]
        places = {id(each): place for place, each in enumerate(self._parameters)}
        self._rows = ParameterRows([each.numel() for each in self._parameters])
        self._groups: list[ServedGroup] = []
        every = range(len(self._parameters))
        mine = self._rows.cut_values(every, [_as_numbers(each) for each in self._parameters])
        try:
            for number, (step, group) in enumerate(zip(steps, optimizer.param_groups, strict=True)):
                spec = specs.TableSpec(
                    f"{name} {number}", COLUMNS, step.optimizer, specs.Zeros(), seed, max_staleness=max_staleness
                )
                members = tuple(sorted(places[id(each)] for each in group["params"]))
                self._groups.append(ServedGroup(declare_table(spec), members, step))
            first = spec_of_first_values(f"{name} begins", COLUMNS, seed)
            agreed = agree_on_first_values(self._client, first, mine)
        except TableMisused as error:
            hint = f" ({SEED})" if " seed " in str(error) else ""
            raise TableMisused(f"on_servers: model {name!r} cannot be on servers: {error}{hint}") from None
        self._first = [agreed[self._rows.list_ids(each.members)] for each in self._groups]

    def pull(self) -> None:
        """Gives the model the newest parameters that the servers have.

        A call of the model, or of a module in it, does so where that is due. For a script that uses parameters without
        one, and before the model is saved or evaluated when others have trained it.

        Raises:
            elastic_run.exceptions.ServerGone: a server does not answer.
            elastic_run.exceptions.TableMisused: this process was forked from the one that called `on_servers`.
        """
        self._check_process()
        self._pull(trains=False)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise TableMisused(
                "on_servers: this process was forked from the one that trains the model, and has the parameters of "
                "that time: pull and train in that one"
            )

    def _pull_due(self, *, trains: bool) -> None:
        """As `pull`, at each `pull_every`th step, and before the first; waits for slower workers where it `trains`."""
        behind = self._client.pushes - self._pulled_at
        if behind >= self._pull_every or (trains and not self._pulled_to_train):
            self._pull(trains=trains)

    def _pull(self, *, trains: bool) -> None:
        pushes = self._client.pushes
        for group, first in zip(self._groups, self._first, strict=True):
            ids = self._rows.list_ids(group.members)
            _, rows, inverse = self._client.pull_for_step(group.table, ids, trains=trains)
            values = rows[inverse]
            values += first
            with torch.no_grad():
                for member, numbers in zip(group.members, self._rows.join_values(group.members, values), strict=True):
                    parameter = self._parameters[member]
                    parameter.copy_(torch.as_tensor(numbers).view(parameter.shape))
        self._pulled_at, self._pulled_to_train = pushes, trains

    def _take_gradients(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Before a step: its gradients go with the records that are named next. Raises TableMisused.

        Args:
            args, kwargs: of `step`: the optimizer, perhaps a closure.
        """
        from ..servers.session import UNPUSHED

        self._check_process()
        if len(args) > 1 or kwargs:
            raise TableMisused("on_servers: step(closure) computes gradients too late: call backward() before step()")
        steps = [read_step(optimizer, each) for each in optimizer.param_groups]
        if len(steps) != len(self._groups):
            raise TableMisused("on_servers: the optimizer got another group of parameters: give it all of them before")
        if any(step.optimizer != group.begun.optimizer for group, step in zip(self._groups, steps, strict=True)):
            raise TableMisused(f"on_servers: {SCHEDULED}")
        if any(self._client.has_waiting(each.table.name) for each in self._groups):
            raise TableMisused(f"on_servers: {UNPUSHED}")
        for group, step in zip(self._groups, steps, strict=True):
            self._add_gradients(group, step)
        if self._pull_every == 1:
            self._without = [(each, each.grad) for each in self._parameters if each.grad is not None]
            for parameter, _ in self._without:
                parameter.grad = None

    def _end_step(self, *_: Any) -> None:
        """After it."""
        for parameter, gradient in self._without:
            parameter.grad = gradient
        self._without = []

    def _add_gradients(self, group: ServedGroup, step: ServerStep) -> None:
        chosen = tuple(each for each in group.members if self._parameters[each].grad is not None)
        gradients = [_as_pushed(self._parameters[each], step) for each in chosen]
        if not chosen:
            return
        rows = self._rows.cut_values(chosen, gradients)
        self._client.await_gradient(group.table.name, self._rows.list_ids(chosen), lambda: rows)


def on_servers(
    model: nn.Module,
    optimizer: Optimizer,
    *,
    name: str = "model",
    pull_every: int = 1,
    max_staleness: int | None = None,
) -> DenseParameters:
    """Puts all parameters of a model on the job's servers: workers train it together, and nobody waits for another.

        served = elastic.on_servers(model, optimizer)
        for shard in data.shards("train", 1_000_000, shard_size=256, commit="ack"):
            optimizer.zero_grad()
            loss_of(model(...)).backward()  # a call of the model pulls its parameters, if they are not new
            optimizer.step()  # keeps the gradients
            shard.done()  # pushes them, and says of which records they are

    Servers make the optimizer's steps, and have its state. All workers begin with the values of the one that comes
    first, or with what a checkpoint of the job's servers has. Buffers, such as a batch norm's averages, and frozen
    parameters stay each worker's own.

    Args:
        model: its parameters are float32, and those that are trained are all in `optimizer`.
        optimizer: torch.optim.SGD (also with momentum), Adagrad or Adam, before its first step. A group of parameters
            may have rates of its own. weight_decay and maximize are done here; where nesterov, dampening, amsgrad or
            lr_decay are set it is refused. Its lr may change, by a scheduler for example, for SGD without momentum.
        name: of the model: one for each, in a job.
        pull_every: pull the parameters after so many calls that name records. Between them, `optimizer` changes the
            copy here, too, with a state of its own. With 1, its steps change nothing here before the pull.
        max_staleness: as for `Embedding`, where parameters are pulled. None: nobody waits.

    Returns:
        what has `pull`, for the newest parameters at any time.

    Raises:
        elastic_run.exceptions.TableMisused: the job has no servers, the optimizer or a parameter is not as above, or
            other ranks have another model.
        elastic_run.exceptions.ServerGone: a server does not answer.
        elastic_run.exceptions.ServerFull: the parameters do not fit into the servers' memory.
    """
    if type(pull_every) is not int or pull_every < 1:
        raise TableMisused(f"on_servers: pull_every={pull_every!r} must be a number of steps from 1")
    return DenseParameters(model, optimizer, name, pull_every, max_staleness)


def list_parameters(model: nn.Module, optimizer: Optimizer, name: str) -> list[tuple[str, nn.Parameter]]:
    """Those of the optimizer, with their names in the model, in its order. Raises TableMisused."""
    what = f"on_servers: model {name!r}"
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise TableMisused(f"{what} is in DDP, which sums gradients over workers: give the module in it")
    check_fresh(optimizer)
    trained = {id(each) for group in optimizer.param_groups for each in group["params"]}
    named = [(path, each) for path, each in model.named_parameters() if id(each) in trained]
    if len(named) < len(trained) or not named:
        raise TableMisused(f"{what} lacks parameters that the optimizer has: give the model that has all of them")
    for path, parameter in model.named_parameters():
        if id(parameter) not in trained and parameter.requires_grad:
            raise TableMisused(
                f"{what}: {path} is not in the optimizer: give it to it, or freeze it with requires_grad_(False)"
            )
    for path, parameter in named:
        if nn.parameter.is_lazy(parameter):
            raise TableMisused(f"{what}: {path} has no shape yet: call the model once before")
        if parameter.dtype != torch.float32:
            raise TableMisused(f"{what}: {path} is {parameter.dtype}, and must be torch.float32: see torch.autocast")
    return named


def _seed_of(named: Sequence[tuple[str, nn.Parameter]], optimizer: Optimizer) -> int:
    """By which servers find out that ranks, or a checkpoint, have another model, or other groups of its parameters."""
    groups = {id(each): number for number, group in enumerate(optimizer.param_groups) for each in group["params"]}
    words = repr([(path, tuple(each.shape), groups[id(each)]) for path, each in named])
    return int.from_bytes(hashlib.sha256(words.encode()).digest()[:7])


def _as_numbers(tensor: Tensor) -> "Array":
    """(n,) float32."""
    return tensor.detach().reshape(-1).cpu().numpy()


def _as_pushed(parameter: nn.Parameter, step: ServerStep) -> "Array":
    gradient = parameter.grad
    assert gradient is not None
    if gradient.is_sparse:
        raise TableMisused("on_servers: a gradient is sparse: make that layer an elastic_run.torch.Embedding")
    pushed = gradient.detach() * (step.rate * step.sign)
    if step.weight_decay:
        pushed.add_(parameter.detach(), alpha=step.rate * step.weight_decay)
    return _as_numbers(pushed)
