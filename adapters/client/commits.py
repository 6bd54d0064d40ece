"""Who has the job's state after a change, and who gets it from whom (pure).

A peer can be lost inside a collective that some survivors completed, so their claims may differ by a step; the highest
is the job's state. Who was left out of process groups that the others went on in may have the same number of steps, and
another state: the newer process group's is the job's. Where the others have lost theirs meanwhile, and begun again with
what the script had saved, their steps count from 0 again: so the later beginning comes before the higher step.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ...rendezvous.base.errors import ElasticRunError

NOTHING = -1
"""The claim of a worker that has just been started, or whose state is not whole."""


class Claim(NamedTuple):
    """What one rank says of itself when a new process group stands.

    Attributes:
        step: the last that it has committed and whose state it still has whole; NOTHING where it has none.
        round: in which it last had the same state as all others; 0: in none.
        begun: the round in which nobody had a state, and that with which its own began.
        mark: a fingerprint of its state, which is the same for the same state.
    """

    step: int
    round: int = 0
    begun: int = 0
    mark: int = 0


class StateLost(ElasticRunError, RuntimeError, public=True):
    """Workers remember a committed step, and none of those that live has it whole."""


def newest(claims: Sequence[Claim]) -> Claim:
    """That of the job's state, of the lowest rank; its step is NOTHING where nobody has any."""
    return max(claims, key=lambda claim: (claim.step != NOTHING, claim.begun, claim.step, claim.round))


def beginning(claims: Sequence[Claim], round: int) -> int:
    """`Claim.begun` of all, when they go on in `round`."""
    best = newest(claims)
    return best.begun if best.step != NOTHING else round


def astray(claims: Sequence[Claim]) -> list[int]:
    """Ranks that have the same step of the same process group as the job's state, and not the same state."""
    best = newest(claims)
    return [rank for rank, claim in enumerate(claims) if claim != best and claim[:-1] == best[:-1]]


def lost(claims: Sequence[Claim]) -> bool:
    """Some remember a committed step, and nobody has it whole."""
    return newest(claims).step == NOTHING and any(claim.round for claim in claims)


def transfers(claims: Sequence[Claim]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The step to continue from, and (source, target) ranks, so that each rank has its state afterwards.

    The ranks that have it share the work, and who has got it takes part from then on: in the order of the pairs, each
    source has the state. Where nobody has any (the job's beginning), it is rank 0's own, step 0.

    Args:
        claims: of all ranks, in their order.
    """
    best = newest(claims)
    sources = [rank for rank, claim in enumerate(claims) if claim == best] if best.step != NOTHING else [0]
    targets = [rank for rank in range(len(claims)) if rank not in set(sources)]
    pairs: list[tuple[int, int]] = []
    while len(pairs) < len(targets):
        at_once = zip(tuple(sources), targets[len(pairs) :], strict=False)
        for source, target in tuple(at_once):
            pairs.append((source, target))
            sources.append(target)
    return max(best.step, 0), tuple(pairs)
