"""Functions that one rank has another one run, as torch's RPC does: who waits for one, and which a rank runs (pure).

The one that runs it is elsewhere meanwhile, in a collective operation, say: a thread of a library runs the function. So
what that thread does is what others wait for.
"""

from collections.abc import Sequence

from .evidence import Frame
from .frames import deciding, is_in
from .tracks import Track

_CALLER = "/torch/distributed/rpc/api"
_RUNNER = ("/torch/distributed/rpc/internal",)


def waits_for_remote(frames: Sequence[Frame]) -> bool:
    """It waits for a function that another rank runs."""
    inner = deciding(frames)
    return inner is not None and _CALLER in inner.file and inner.function == "rpc_sync"


def runs_for_others(others: Sequence[Track]) -> bool:
    """One of the threads runs such a function."""
    return any(not each.child and is_in(each.frames, _RUNNER) for each in others)


def serving(others: Sequence[Track]) -> list[Track]:
    """The threads that run a function for another rank, those that wait for a third one's function left out."""
    runs = [each for each in others if not each.child and is_in(each.frames, _RUNNER)]
    return [each for each in runs if not waits_for_remote(each.frames)]
