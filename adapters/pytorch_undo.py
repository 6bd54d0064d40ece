"""How a rank goes back to its last commit: parameters and optimizer state, and its random states."""

import functools
import random
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import distributed
from torch.distributed import distributed_c10d

dist: Any = distributed  # half of it has no types in torch
c10d: Any = distributed_c10d

CLEAN_COMMITS = 10
"""So many commits in a row without a collective between the optimizer's step and the commit, and `copies="auto"` takes
no copies any more."""


class Undo:
    """Whether the parameters are still those of the last commit, and how they become so again.

    Only an optimizer's step changes them, and a peer's loss is noticed in a collective. So where no collective comes
    between the beginning of the first step (LBFGS has some in it) and the commit, nothing has to be copied at all.
    Where one does, they are copied after each commit, by a thread beside the next step's forward and backward pass, and
    the optimizer waits for it.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], copies: str) -> None:
        self._optimizers = optimizers
        self._copies = copies
        self._stepped = False
        self._versions = 0
        self._collectives: int | None = None  # before the first step since the commit
        self._clean = 0
        self._beside = bool(optimizers)  # whether a copy may be made by a thread: the optimizer's step waits for it
        self._pool: ThreadPoolExecutor | None = None
        self._copying: Future[None] | None = None
        self._copied: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._optimizer_state: list[dict[Any, dict[str, Any]]] = []
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._before)

    def _before(self, *_: object) -> None:
        self._wait()
        if not self._stepped:
            self._stepped, self._collectives = True, _collectives()

    def touched(self, large: Sequence[torch.Tensor]) -> bool:
        """Whether they have changed since the last commit."""
        return self._stepped or sum(each._version for each in large) != self._versions

    def committed(self) -> None:
        """What has changed is to stay."""
        self._wait()
        if self._stepped:
            now = _collectives()
            self._clean = self._clean + 1 if now is not None and now == self._collectives else 0

    def begin(self, large: Sequence[torch.Tensor]) -> None:
        """From now on, this is what is gone back to."""
        self._wait()
        self._stepped = False
        self._versions = sum(each._version for each in large)
        if self._copies == "never" or (self._copies == "auto" and self._beside and self._clean >= CLEAN_COMMITS):
            self._copied, self._optimizer_state = [], []
            return
        known = {id(live): kept for live, kept in self._copied}
        pairs = [(live, known.get(id(live))) for live in large]
        self._copied = [
            (live, torch.empty_like(live) if kept is None or kept.shape != live.shape else kept) for live, kept in pairs
        ]
        self._optimizer_state = [
            {key: dict(held) for key, held in optimizer.state.items()} for optimizer in self._optimizers
        ]
        if not self._beside:
            self._copy()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "elastic-run commit")
        self._copying = self._pool.submit(self._copy)

    def possible(self, large: Sequence[torch.Tensor]) -> bool:
        """Whether it is known what they were."""
        # What was changed outside of a step may have been so while it was copied.
        return not self.touched(large) or (bool(self._copied) and (self._stepped or not self._beside))

    def restore(self, large: Sequence[torch.Tensor]) -> bool:
        """Makes them what they were; False where that is not known any more."""
        if not self.touched(large):
            return True
        self._wait()
        if not self.possible(large):
            return False
        with torch.no_grad():
            for live, kept in self._copied:
                live.copy_(kept)
        for optimizer, held in zip(self._optimizers, self._optimizer_state, strict=True):
            optimizer.state.clear()
            for key, each in held.items():
                optimizer.state[key] = each
        return True

    def _copy(self) -> None:
        with torch.no_grad():
            for live, kept in self._copied:
                kept.copy_(live)

    def _wait(self) -> None:
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.result()


def _collectives() -> int | None:
    """How many this process has begun so far, in all groups; None where that cannot be told."""
    if not dist.is_initialized():
        return 0
    try:
        return sum(group._get_sequence_number_for_group() for group in c10d._world.pg_map)
    except (RuntimeError, AttributeError):
        return None


def random_states() -> list[Callable[[], None]]:
    """What makes each source of random numbers again what it is now."""
    again: list[Callable[[], None]] = [
        functools.partial(torch.set_rng_state, torch.get_rng_state()),
        functools.partial(random.setstate, random.getstate()),
    ]
    if (numpy := sys.modules.get("numpy")) is not None:
        again.append(functools.partial(numpy.random.set_state, numpy.random.get_state()))
    if torch.cuda.is_initialized():
        again.append(functools.partial(torch.cuda.set_rng_state, torch.cuda.get_rng_state()))
    return again
