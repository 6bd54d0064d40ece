"""What a PyTorch script keeps when the membership changes: its process, and its model in it.

    state = elastic.State(model=model, optimizer=optimizer, data=sampler, epoch=0)

    @elastic.run
    def train(state):
        model = state.ddp(state.model)
        for batch in loader:
            ...                         # forward, backward
            optimizer.step()
            state.commit()

    train(state)

`commit` says that a step is whole. Where a peer is lost, the function is left by an error, what was begun since the
last commit is undone, a new process group is formed, who has no state gets it from who has, and the function is called
again. It is modelled on Horovod's elastic state; `docs/in-place.md` lists the differences. What is left to decide is
decided in `client/commits.py`, without torch.
"""

import contextlib
import datetime
import functools
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar, cast, overload

import torch
from torch import distributed, nn

from ..client.channel import AgentGone, say_line
from ..client.commits import NOTHING, Claim, StateLost, astray, beginning, lost, newest, transfers
from ..client.context import Context
from ..client.rounds import Rounds
from ..client.steps import Steps
from .attempt import Attempt, HostsUpdated
from .lockstep_batches import ElasticBatchSampler
from .process_group import ElasticProcessGroup
from .state_values import StateValues
from .tensor_pieces import receive_state, send_state
from .undo import Copies, Undo, fingerprint, random_states

dist: Any = distributed  # half of it has no types in torch

P = ParamSpec("P")
R = TypeVar("R")

FADES = 0.99
"""How much of the slowest step is remembered at the next: an evaluation now and then is to be expected again."""

LONGEST_STEP = 60.0
"""Seconds; what takes longer between two commits is an evaluation, a checkpoint or a compiler."""


class State:
    """What all ranks have alike, and what is brought to those that have it not.

    Args:
        model: a module, not wrapped; see `ddp`.
        optimizer: that of the model.
        scheduler: a learning-rate scheduler.
        data: an `ElasticBatchSampler`, or whatever has `commit`, `state_dict` and `load_state_dict`; `commit()` calls
            its.
        copies: "always": each commit copies the parameters and what the optimizer keeps, so that any step can be
            undone. It needs their memory once more. "never": no copies. A rank that loses a peer between the
            optimizer's step and the commit then has no state any more: choose it only where the script has no
            collective there. See the page on in-place training.
        values: anything else that belongs to the state, and is an attribute of it from then on: tensors, numbers,
            strings, lists and dicts of these, modules, and objects with state_dict() and load_state_dict().

    Raises:
        elastic_run.exceptions.UnsupportedState: a part cannot be sent to another worker (a TypeError).
        ValueError: `copies` is neither of the two.
    """

    def __init__(
        self,
        *,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        scheduler: object = None,
        data: object = None,
        copies: Copies = "always",
        **values: object,
    ) -> None:
        parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "data": data}
        given = {name: part for name, part in parts.items() if part is not None} | values
        self.__dict__["_values"] = StateValues(given, vars(type(self)).keys())
        if copies not in ("always", "never"):
            raise ValueError(f'copies={copies!r}: choose "always" or "never"')
        self._step: int = NOTHING  # committed
        self._counted = Steps()
        self._committed_at = time.monotonic()
        self._slowest = 0.0
        self._since = 0  # the round in which it last had the same state as all others
        self._begun = 0  # the round in which nobody had a state, and this one began
        self._members: Rounds | None = None
        self._process_group: ElasticProcessGroup | None = None
        self._callbacks: list[Callable[[], object]] = []
        self._wrapped: list[weakref.ref[nn.parallel.DistributedDataParallel]] = []
        self._undo = Undo(self._values.optimizers(), copies)
        self._small: str = ""
        self._small_tensors: list[torch.Tensor] = []
        self._random: list[Callable[[], None]] = []
        self._flag: tuple[Any, torch.Tensor] | None = None
        self._values.flattened(large=True)  # refuses what cannot travel, before anything starts

    # What it has.

    def __getattr__(self, name: str) -> Any:  # Any: whatever was given
        try:
            return self.__dict__["_values"].parts[name]
        except KeyError:
            raise AttributeError(f"this State has no {name!r}: give it to State({name}=...)") from None

    def __setattr__(self, name: str, value: object) -> None:
        if name in self._values.parts:
            self._values.parts[name] = value
        else:
            object.__setattr__(self, name, value)

    @property
    def step(self) -> int:
        """Commits so far, in this job."""
        return max(self._step, 0)

    @property
    def context(self) -> Context:
        """Rank and world size in the current round; `elastic_run.context()` says the same."""
        return self._rounds().context

    # What the script calls.

    def commit(self) -> None:
        """Commits this step: once after every optimizer step, on every rank.

        Copies the state, so that it can be restored, and calls `check_host_updates`. It commits `data` as well.

        Raises:
            elastic_run.torch.HostsUpdated: nodes come or go; `run` catches it.
            elastic_run.exceptions.SamplerMisused: no batch was drawn from `data` since the last commit.
            elastic_run.exceptions.AgentGone: the launcher has ended.
        """
        data = self._values.parts.get("data")
        if isinstance(data, ElasticBatchSampler):
            data._commit_step()  # pyright: ignore[reportPrivateUsage]
        elif data is not None and hasattr(data, "commit"):
            data.commit()  # type: ignore[attr-defined]
        self._undo.committed()
        self._step = max(self._step, 0) + 1
        self._counted.committed()
        self._snapshot()
        if isinstance(data, ElasticBatchSampler):
            data._apply_rows(together=True)  # pyright: ignore[reportPrivateUsage]
        self._tell()
        if self._process_group is not None:
            self._process_group.tidy()
        self._look_up()

    def restore(self) -> None:
        """Restores the state of the last commit.

        Raises:
            elastic_run.exceptions.StateLost: the optimizer has stepped since, and there is no copy of the last commit
                (`copies="never"`); nothing is changed.
        """
        if not self._undo.possible(self._values.large()):
            raise StateLost(
                "the parameters have changed since the last commit, of which there is no copy: to go back at any time, "
                'make the State without copies="never"'
            )
        self._restore()

    def _restore(self) -> None:
        """The same where a peer was lost: without a copy, this rank has no committed step any more."""
        self._values.drop_begun()
        if not self._undo.restore(self._values.large()):
            self._has_none()
            return
        self._values.load(self._small, [each.clone() for each in self._small_tensors], large=False)
        for again in self._random:
            again()

    def sync(self) -> None:
        """Broadcasts the newest committed state. Collective; `run` calls it itself.

        Raises:
            elastic_run.exceptions.StateLost: workers remember a committed step, and none of those that live has it.
            elastic_run.exceptions.UnsupportedState: ranks made their State of different parts or shapes.
        """
        here = self._rounds().context
        claims = [Claim(self._step, self._since, self._begun)]
        group = self._process_group.control if self._process_group is not None else None
        if group is not None and here.world_size > 1:
            if self._step != NOTHING:
                claims = [claims[0]._replace(mark=fingerprint(self._values.large()))]
            own = torch.tensor(claims[0], dtype=torch.int64)
            found = [torch.empty_like(own) for _ in range(here.world_size)]
            dist.all_gather(found, own, group=group)
            claims = [Claim(*map(int, each)) for each in found]
        if lost(claims):
            raise StateLost(
                "no living worker has a complete committed step: the job continues from the script's own checkpoint"
            )
        best = newest(claims)
        if here.rank == 0 and best.step == NOTHING and here.round > 1:
            say_line("no living worker has a committed step: the job continues from what the script has loaded")
        elif here.rank == 0 and best.step != NOTHING and best.round < here.round - 1:
            # Who was left out of the rounds between: others may have come further in them, and are lost.
            say_line(
                f"the job continues after step {best.step}, the newest commit of a living worker (round {best.round})"
            )
        if here.rank == 0 and best.step != NOTHING and (others := astray(claims)):
            say_line(
                f"the ranks {', '.join(map(str, others))} have a different state after step {best.step} than rank "
                f"{claims.index(best)}, and receive that rank's state. Does the script catch errors of a broken "
                "process group, and continue?"
            )
        step, pairs = transfers(claims)
        current = max(here.round, 1)
        begun = beginning(claims, current)
        for source, target in pairs:
            if here.rank == source:
                send_state(self._values, target, group)
            elif here.rank == target:
                self._has_none()  # while it is neither the one nor the other
                receive_state(self._values, source, group)
                self._step, self._begun = step, begun  # and passes it on, also in another process group
                self._rounds().report_state(True, self._slowest)
        self._step, self._since, self._begun = step, current, begun
        self._committed_at = time.monotonic()
        self._rounds().report_state(True, self._slowest)
        self._regroup()
        self._snapshot()

    def check_host_updates(self) -> None:
        """Ends the process group where nodes come or go. Collective; `commit` calls it itself.

        What one call notices, the next one raises, on all ranks alike. Does nothing while a step is not committed.

        Raises:
            elastic_run.torch.HostsUpdated: nodes come or go; `run` catches it.
        """
        if not self._undo.touched(self._values.large()):
            self._look_up()

    def _look_up(self) -> None:
        members = self._members
        if members is None or members.alone or self._process_group is None:
            return
        if members.context.world_size == 1:
            if members.planned or members.over:
                raise HostsUpdated
            return
        if self._flagged():
            raise HostsUpdated
        told = torch.tensor(int(members.planned), dtype=torch.int32)
        work = dist.all_reduce(told, dist.ReduceOp.MAX, group=self._process_group.control, async_op=True)
        self._flag = work, told

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], object]]) -> None:
        """Registers functions that are called in each new round, before `sync`, on each rank of the one before.

        Args:
            callbacks: without arguments; called in this order.
        """
        self._callbacks += callbacks

    def ddp(self, module: nn.Module | None = None, **options: Any) -> nn.parallel.DistributedDataParallel:
        """DistributedDataParallel around `module` for this round's process group; with `options` as torch has them.

        In the function under `run`, at its beginning. Communication hooks are registered anew on what it returns.

        Args:
            module: None: the State's `model`.
            options: arguments of DistributedDataParallel; Any: as they are there.

        Returns:
            the wrapped module, for this round only.
        """
        inner: nn.Module = self.model if module is None else module
        self._unwrap(inner)
        options.setdefault("init_sync", False)  # all ranks have the same state already
        wrapped = nn.parallel.DistributedDataParallel(inner, **options)
        self._wrapped.append(weakref.ref(wrapped))
        return wrapped

    def attempts(self, *, backend: str | None = None, timeout: datetime.timedelta | None = None) -> Iterator[Attempt]:
        """For a loop of one's own, instead of `run`; each attempt is one process group.

            for attempt in state.attempts():
                with attempt:
                    train(state)

        The loop ends after the first attempt that is not cut short by a change of the membership.

        Args:
            backend, timeout: see `run`.

        Raises:
            elastic_run.exceptions.ProcessGroupExists: the script has made process groups itself.
            elastic_run.exceptions.StateLost: no living worker has a committed step.
            elastic_run.exceptions.AgentGone: the launcher has ended.
            RuntimeError: this process has had a training already.
        """
        members = self._rounds()
        _refuse_a_second_training(members)
        self._process_group = ElasticProcessGroup(members, backend, timeout)
        attempt = Attempt(self, self._process_group, members)
        yield attempt
        while not attempt.finished:
            attempt = Attempt(self, self._process_group, members, after=attempt)
            yield attempt

    # The inside.

    def _has_none(self) -> None:
        """Its state is not that of a commit."""
        self._step = NOTHING
        self._undo.forget()
        with contextlib.suppress(AgentGone):  # which is noticed where it is asked for a rank
            self._rounds().report_state(False)

    def _tell(self) -> None:
        """How long a step takes, to the agent: so long this rank may be busy when the process group breaks."""
        now = time.monotonic()
        self._slowest = min(max(now - self._committed_at, FADES * self._slowest), LONGEST_STEP)
        self._committed_at = now
        if self._process_group is not None:
            self._rounds().report_state(True, self._slowest)

    def _rounds(self) -> Rounds:
        if self._members is None:
            self._members = Rounds()
        return self._members

    def _snapshot(self) -> None:
        """Copies what changes by other means than an optimizer's step, which is little."""
        self._small, tensors = self._values.flattened(large=False)
        self._small_tensors = [each.clone() for each in tensors]
        self._random = random_states()
        self._undo.begin(self._values.large())

    def _finish(self) -> None:
        """Ends the training: all ranks together, unless nodes come or go (HostsUpdated); then it is called again."""
        members, process_group = self._rounds(), self._process_group
        if process_group is None or members.alone:
            return
        if process_group.control is not None and not dist.is_initialized():
            self._flag = None  # the script has ended the groups itself: there is nobody to agree with
        elif process_group.control is not None:
            told = torch.tensor(int(self._flagged() or members.planned), dtype=torch.int32)
            dist.all_reduce(told, dist.ReduceOp.MAX, group=process_group.control)
            if int(told):
                raise HostsUpdated
        elif members.planned:
            raise HostsUpdated
        if isinstance(data := self._values.parts.get("data"), ElasticBatchSampler):
            data._settle_rows(members.context.rank)  # pyright: ignore[reportPrivateUsage]  # the last step, if it is left
        members.done()

    def _flagged(self) -> bool:
        """Whether some rank knew of nodes that come or go, at the commit before; waits until all have said so."""
        flag, self._flag = self._flag, None
        if flag is None:
            return False
        flag[0].wait()
        return bool(flag[1])

    def _regroup(self) -> None:
        data = self._values.parts.get("data")
        if isinstance(data, ElasticBatchSampler):
            data._regroup()  # pyright: ignore[reportPrivateUsage]

    def _unwrap(self, module: nn.Module | None = None) -> None:
        """What is around `module`; None: around all. Hooks hang on the parameters: two would answer a backward pass."""
        kept: list[weakref.ref[nn.parallel.DistributedDataParallel]] = []
        for each in self._wrapped:
            wrapped = each()
            if wrapped is not None and module is not None and cast("Any", wrapped).module is not module:
                kept.append(each)
            elif wrapped is not None:
                cast("Any", wrapped)._remove_autograd_hooks()
        self._wrapped = kept

    def _leave(self, *, broken: bool) -> None:
        self._flag = None
        self._unwrap()
        # Where the script has changed something after its last commit, and returned, that stays: on all ranks alike,
        # whatever each of them could undo.
        if broken or not self._undo.touched(self._values.large()):
            self._restore()
        else:
            self._values.drop_begun()


@overload
def run(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def run(
    *, backend: str | None = None, timeout: datetime.timedelta | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def run(
    function: Callable[..., Any] | None = None,
    /,
    *,
    backend: str | None = None,
    timeout: datetime.timedelta | None = None,
) -> Any:  # Any: a decorator, or a decorated function
    """Decorates the training function, whose first argument is the `State`: it is called once for each process group.

    Args:
        function: takes the state first.
        backend: of torch.distributed; None: gloo. NCCL has not been tried; see the page on in-place training.
        timeout: of collectives; None: torch's. A lost peer is noticed without it.

    Returns:
        the decorated function, which returns what the last call returned.

    Raises:
        elastic_run.exceptions.ProcessGroupExists: from the decorated function: the script has made process groups.
        elastic_run.exceptions.StateLost: from the decorated function: no living worker has a committed step.
        elastic_run.exceptions.AgentGone: from the decorated function: the launcher has ended.
    """
    if function is None:
        return functools.partial(run, backend=backend, timeout=timeout)

    @functools.wraps(function)
    def wrapper(state: State, *args: Any, **kwargs: Any) -> Any:
        for attempt in state.attempts(backend=backend, timeout=timeout):
            found = None
            with attempt:
                found = function(state, *args, **kwargs)
            if attempt.finished:
                return found
        raise AssertionError("an attempt that is over has neither returned nor raised")

    return wrapper


_trains = False  # or has: in this process


def _refuse_a_second_training(members: Rounds) -> None:
    global _trains
    if _trains and not members.alone:
        raise RuntimeError(
            "this process has already run a training function. A worker that replaces a lost one starts the script "
            "from the beginning, and would join the others in a different training function: put what runs one after "
            "another (the folds of "
            "a cross-validation, say) into one training function, with a number in the State that says where it is, or "
            "make each a job of its own"
        )
    _trains = True
