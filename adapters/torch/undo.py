"""How a rank goes back to its last commit: parameters and optimizer state, and its random states."""

import functools
import random
import sys
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, cast

import torch

from .state_parts import parameters_of
from .tree import leaves

Copies = Literal["always", "never"]

SAMPLED_COMMITS = 10
"""In so many commits every tensor that no optimizer owns is looked at for a silent change, and then one in each."""

_SAMPLE = 64

_Versions = list[tuple[torch.Tensor, int]]
_Pairs = list[tuple[torch.Tensor, torch.Tensor]]


class _Copy(NamedTuple):
    live: torch.Tensor
    version: int
    kept: torch.Tensor


class Undo:
    """What the parameters and the optimizers' state were at the last commit, and how they become so again.

    A peer's loss is noticed in a collective. Where one comes between the optimizer's step and the commit (a loss that
    is averaged for a log, the backward pass for a second optimizer, LBFGS), only a copy brings the commit back. Whether
    one will come cannot be known before the step, so what an optimizer owns is copied in each commit.

    What no optimizer owns is copied once, into the host's memory, because most of it never changes (a frozen part).
    What has been seen to change (an average of the model) is copied in each commit from then on, where it lies.

    torch counts the changes of a tensor, but not those through its `.data`. So of what no optimizer owns a few numbers
    are compared as well.
    """

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer], copies: Copies) -> None:
        self._optimizers = optimizers
        self._copies = copies
        self._stepped = False
        self._owned: _Versions = []  # at the last commit
        self._loose: _Versions = []  # what no optimizer owns, at the last commit
        self._restless: set[int] = set()  # ids of what is loose, and changes
        self._samples: _Pairs = []  # of what is loose, and has not changed so far
        self._commits = 0
        self._owned_copies: _Pairs = []
        self._restless_copies: _Pairs = []
        self._still_copies: dict[int, _Copy] = {}  # by id
        self._optimizer_state: list[dict[Any, Any]] = []
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._before)

    def _before(self, *_: object) -> None:
        self._stepped = True

    def touched(self, large: Sequence[torch.Tensor]) -> bool:
        """Whether they have changed since the last commit."""
        return self._stepped or self._grown(large) or _changed(self._owned) or _changed(self._loose)

    def _grown(self, large: Sequence[torch.Tensor]) -> bool:
        return len(large) != len(self._owned) + len(self._loose)

    def committed(self) -> None:
        """What has changed is to stay."""
        changed = {id(live) for live, version in self._loose if live._version != version}
        silently = {id(live) for live, sample in self._samples if not _same(sample, _sample(live))} - changed
        self._restless |= changed | silently
        if silently:
            self._commits = 0  # a closer look at all others

    def forget(self) -> None:
        """There is no commit any more: what they are now is somebody else's."""
        self._owned, self._loose, self._samples = [], [], []
        self._still_copies = {}

    def begin(self, large: Sequence[torch.Tensor]) -> None:
        """From now on, this is what is gone back to."""
        self._stepped = False
        own = {id(each) for one in self._optimizers for each in parameters_of(one) + state_of(one)}
        self._owned = [(each, each._version) for each in large if id(each) in own]
        self._loose = [(each, each._version) for each in large if id(each) not in own]
        if self._copies == "never":
            return
        self._owned_copies = _copied([live for live, _ in self._owned], self._owned_copies)
        self._optimizer_state = [_containers(dict(optimizer.state)) for optimizer in self._optimizers]
        # Without any optimizer, all that there is changes by other means.
        restless = [live for live, _ in self._loose if not self._optimizers or id(live) in self._restless]
        self._restless_copies = _copied(restless, self._restless_copies)
        still = [live for live, _ in self._loose if self._optimizers and id(live) not in self._restless]
        self._keep(still)
        if still and self._commits >= SAMPLED_COMMITS:  # one after the other, which costs next to nothing
            still = [still[self._commits % len(still)]]
        self._samples = [(live, _sample(live)) for live in still]
        self._commits += 1

    def _keep(self, still: Sequence[torch.Tensor]) -> None:
        """Has copies of them, and of nothing else, in the host's memory."""
        before, self._still_copies = self._still_copies, {}
        for live in still:
            known = before.get(id(live))
            if known is None or known.live is not live or known.version != live._version:
                known = _Copy(live, live._version, live.detach().to("cpu", copy=True))
            self._still_copies[id(live)] = known

    def possible(self, large: Sequence[torch.Tensor]) -> bool:
        """Whether it is known what they were."""
        if self._copies == "never":
            return not self.touched(large)
        # An optimizer's first step makes its state; what has grown otherwise is not in the commit, if there is one.
        return self._stepped or not self._grown(large)

    def restore(self, large: Sequence[torch.Tensor]) -> bool:
        """Makes them what they were; False where that is not known any more."""
        if not self.possible(large):
            return False
        if self._copies == "always":
            # Also what does not look changed: it may be, through `.data`.
            _copy([(kept, live) for live, kept in self._restless_copies + self._owned_copies])
            still = self._still_copies
            moved = [live for live, version in self._loose if live._version != version and id(live) in still]
            _copy([(still[id(live)].kept, live) for live in moved])
            for optimizer, held in zip(self._optimizers, self._optimizer_state, strict=True):
                optimizer.state.clear()
                optimizer.state.update(_containers(held))
        self._stepped = False
        self._owned = [(live, live._version) for live, _ in self._owned]
        self._loose = [(live, live._version) for live, _ in self._loose]
        return True


def state_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    """The tensors that it keeps beside the parameters."""
    return [each for each in leaves(list(optimizer.state.values())) if isinstance(each, torch.Tensor)]


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


def _copied(wanted: Sequence[torch.Tensor], used: _Pairs) -> _Pairs:
    """Each with a copy of it, in the tensor that was used for it before, where there is one."""
    known = {id(live): kept for live, kept in used if kept.shape == live.shape}
    pairs = [(live, known[id(live)] if id(live) in known else torch.empty_like(live)) for live in wanted]
    _copy(pairs)
    return pairs


def _copy(pairs: _Pairs) -> None:
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
