"""How a rank goes back to its last commit: parameters and optimizer state, and its random states."""

import functools
import random
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, cast

import torch
from torch import distributed
from torch.distributed import distributed_c10d

from .pytorch_parts import parameters_of

dist: Any = distributed  # half of it has no types in torch
c10d: Any = distributed_c10d

CLEAN_COMMITS = 10
"""So many commits in a row without a collective between the optimizer's step and the commit, and `copies="auto"` takes
no copies any more."""


_SAMPLE = 64

_Versions = list[tuple[torch.Tensor, int]]
_Copies = list[tuple[torch.Tensor, torch.Tensor]]


class Undo:
    """Whether the parameters are still those of the last commit, and how they become so again.

    Only an optimizer's step changes what it owns, and a peer's loss is noticed in a collective. So where no collective
    comes between the beginning of the first step (LBFGS has some in it) and the commit, nothing has to be copied at
    all. Where one does, it is copied after each commit, by a thread beside the next step's forward and backward pass,
    and the optimizer waits for it; or at once, when it has been seen to change by other means (SAM). What no optimizer
    owns is copied at once, when it has been seen to change (an average of the model), and else not (a frozen part).

    torch counts the changes of a tensor, but not those through its `.data`. So of what no optimizer owns a few numbers
    are compared as well.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], copies: str) -> None:
        self._optimizers = optimizers
        self._copies = copies
        self._stepped = False
        self._torn = False  # what is owned may have changed while it was copied
        self._outside = self._was_outside = False  # it was changed by other means than a step, in this one, in the last
        self._collectives: int | None = None  # before the first step since the commit
        self._clean = 0
        self._beside = True  # whether a thread copies what is owned
        self._pool: ThreadPoolExecutor | None = None
        self._copying: Future[None] | None = None
        self._owned: _Versions = []  # at the last commit
        self._loose: _Versions = []
        self._restless: set[int] = set()  # ids of what is loose, and changes
        self._samples: list[tuple[torch.Tensor, torch.Tensor]] = []  # of what is loose, and has not changed so far
        self._commits = 0
        self._owned_copies: _Copies = []
        self._loose_copies: _Copies = []
        self._optimizer_state: list[dict[Any, Any]] = []
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._before)

    def _before(self, *_: object) -> None:
        self._wait()
        if self._stepped:
            return
        self._stepped, self._collectives = True, _collectives()
        if _changed(self._owned):
            self._torn, self._outside = self._beside, True

    def touched(self, large: Sequence[torch.Tensor]) -> bool:
        """Whether they have changed since the last commit."""
        return self._stepped or self._grown(large) or _changed(self._owned) or _changed(self._loose)

    def _grown(self, large: Sequence[torch.Tensor]) -> bool:
        return len(large) != len(self._owned) + len(self._loose)

    def committed(self) -> None:
        """What has changed is to stay."""
        self._wait()
        changed = {id(live) for live, version in self._loose if live._version != version}
        silently = {id(live) for live, sample in self._samples if not _same(sample, _sample(live))} - changed
        self._restless |= changed | silently
        if silently:
            self._commits = 0  # a closer look at all others
        # Once, as by who wraps the model, is no habit.
        outside = self._outside or (not self._stepped and _changed(self._owned))
        self._beside = not (outside and self._was_outside)
        self._outside, self._was_outside = False, outside
        if self._stepped:
            now = _collectives()
            self._clean = self._clean + 1 if now is not None and now == self._collectives and not outside else 0

    def begin(self, large: Sequence[torch.Tensor]) -> None:
        """From now on, this is what is gone back to."""
        self._wait()
        self._stepped = self._torn = False
        own = {id(each) for optimizer in self._optimizers for each in _of(optimizer)}
        self._owned = [(each, each._version) for each in large if id(each) in own]
        self._loose = [(each, each._version) for each in large if id(each) not in own]
        all_loose = self._copies == "always" or not self._optimizers
        wanted = [live for live, _ in self._loose if all_loose or id(live) in self._restless]
        still = [live for live, _ in self._loose if not all_loose and id(live) not in self._restless]
        if still and self._commits >= CLEAN_COMMITS:  # one after the other, which costs next to nothing
            still = [still[self._commits % len(still)]]
        self._samples = [(live, _sample(live)) for live in still]
        self._commits += 1
        self._loose_copies = _buffers(wanted if self._copies != "never" else [], self._loose_copies)
        _copy(self._loose_copies)
        if self._copies == "never" or (self._copies == "auto" and self._beside and self._clean >= CLEAN_COMMITS):
            self._owned_copies, self._optimizer_state = [], []
            return
        self._owned_copies = _buffers([live for live, _ in self._owned], self._owned_copies)
        self._optimizer_state = [_containers(dict(optimizer.state)) for optimizer in self._optimizers]
        if not self._beside:
            _copy(self._owned_copies)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "elastic-run commit")
        self._copying = self._pool.submit(_copy, self._owned_copies)

    def possible(self, large: Sequence[torch.Tensor]) -> bool:
        """Whether it is known what they were."""
        if not self.touched(large):
            return True
        if self._grown(large) and not self._stepped:
            return False  # there is no commit yet, or the script has added parts
        kept = {id(live) for live, _ in self._loose_copies}
        if any(live._version != version and id(live) not in kept for live, version in self._loose):
            return False
        # What was changed outside of a step may have been so while it was copied.
        whole = bool(self._owned_copies) and not self._torn and (self._stepped or not self._beside)
        return whole or not (self._stepped or _changed(self._owned))

    def restore(self, large: Sequence[torch.Tensor]) -> bool:
        """Makes them what they were; False where that is not known any more."""
        self._wait()
        if not self.possible(large):
            return False
        # Also what does not look changed: it may be, through `.data`.
        _copy([(kept, live) for live, kept in self._loose_copies])
        if self._owned_copies and (self._stepped or _changed(self._owned) or self._copies == "always"):
            _copy([(kept, live) for live, kept in self._owned_copies])
            for optimizer, held in zip(self._optimizers, self._optimizer_state, strict=True):
                optimizer.state.clear()
                optimizer.state.update(_containers(held))
        self._stepped = self._torn = self._outside = False
        self._owned = [(live, live._version) for live, _ in self._owned]
        self._loose = [(live, live._version) for live, _ in self._loose]
        return True

    def _wait(self) -> None:
        copying, self._copying = self._copying, None
        if copying is not None:
            copying.result()


def _of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """What its steps change."""
    return parameters_of(optimizer) + state_of(optimizer)


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors that it keeps beside the parameters."""
    return list(_tensors(list(optimizer.state.values())))


def _tensors(value: Any) -> Iterator[torch.Tensor]:  # Any: what an optimizer keeps
    """All in it; some optimizers keep lists of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in cast("Mapping[Any, Any]", value).values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple):
        for each in cast("Sequence[Any]", value):
            yield from _tensors(each)


def _sample(tensor: torch.Tensor) -> torch.Tensor:
    """Some of its numbers, from all over it."""
    flat = tensor.detach()
    flat = flat.view(-1) if flat.is_contiguous() else flat.flatten()
    return flat[:: max(1, len(flat) // _SAMPLE)].clone()


def fingerprint(tensors: Sequence[torch.Tensor]) -> int:
    """Of some numbers of each, 32 bits."""
    found = 0
    for each in tensors:
        found = zlib.crc32(_sample(each).view(torch.uint8).cpu().numpy().tobytes(), found)
    return found


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.device == other.device and torch.equal(one, other)


def _changed(versions: _Versions) -> bool:
    return any(live._version != version for live, version in versions)


def _buffers(wanted: Sequence[torch.Tensor], used: _Copies) -> _Copies:
    """Each with a tensor that it can be copied to."""
    known = {id(live): kept for live, kept in used if kept.shape == live.shape}
    return [(live, known[id(live)] if id(live) in known else torch.empty_like(live)) for live in wanted]


def _copy(pairs: _Copies) -> None:
    """The first of each into the second."""
    with torch.no_grad():
        for source, target in pairs:
            target.copy_(source)


def _containers(value: Any) -> Any:  # Any: what an optimizer keeps
    """The same tensors in dicts and lists of their own: LBFGS changes its lists in place."""
    if isinstance(value, dict):
        return {key: _containers(each) for key, each in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_containers(each) for each in cast("list[Any]", value)]
    return value


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
