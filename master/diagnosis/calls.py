"""For whom a rank waits in a call, and which calls do not fit together, where all ranks wait for each other (pure).

A stack says in which operation a rank is, and with which `src`, `dst`, `tag` and `ranks`. One that was given a process
group of its own is not looked at: which ranks are in it is not seen.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from .evidence import Frame

FROM = frozenset(("recv", "broadcast", "broadcast_object_list", "scatter", "scatter_object_list"))
"""Operations in which a rank waits for `src`, unless it is that one."""

TO = frozenset(("send", "gather", "gather_object", "reduce"))
"""The same for `dst`."""

ROOTED = FROM | TO | {"isend", "irecv", "batch_isend_irecv", "new_group"}
"""Operations in which a rank waits for one other, and that one for nobody, or not all ranks take part."""

_WITH_ONE_ROOT = (FROM | TO) - {"send", "recv"}


_WRAPS = re.compile(r"<locals>|wrapper|decorate|^_fn$|^__(call|enter)__$")


def called(frames: Sequence[Frame], own: Frame) -> Frame | None:
    """The function of a library that the script's own call is in; what wraps it says nothing."""
    inner = frames[: frames.index(own)][::-1]
    return next((each for each in inner if not _WRAPS.search(each.function)), inner[0] if inner else None)


def arguments_of(call: Frame) -> Mapping[str, str]:
    """Those that are known, by name."""
    return dict(re.findall(r"(\w+)=(\[.*?\]|[^,]*)", call.arguments))


def awaited(rank: int, call: Frame | None) -> int | None:
    """The one rank for which `rank` waits there; None: it is not known, or it waits for all in the operation."""
    if call is None or not _is_known(call):
        return None
    other = arguments_of(call).get("src" if call.function in FROM else "dst" if call.function in TO else "", "")
    return int(other) if other.isdecimal() and int(other) != rank else None


def from_any(call: Frame | None) -> bool:
    """Whether a rank receives there what any other one sends."""
    return call is not None and call.function == "recv" and arguments_of(call).get("src") == "None"


def root(call: Frame | None) -> str:
    """The rank that is given as that of the operation; empty where it has none, or where it is not known."""
    if call is None or call.function not in _WITH_ONE_ROOT:
        return ""
    return arguments_of(call).get("src" if call.function in FROM else "dst", "")


def wait_for(waiting: Mapping[int, Frame | None], others: Mapping[int, Frame | None]) -> bool:
    """Whether each of those that are waiting surely waits for all of the others, which are in calls that are known."""
    if any(
        call and ("group=" in call.arguments or (call.function in ROOTED and not _is_known(call)))
        for call in (*waiting.values(), *others.values())
    ):
        return False
    alone = [awaited(rank, call) for rank, call in waiting.items()]
    return all(one is None or {one} == set(others) for one in alone)


def _is_known(call: Frame) -> bool:
    given = arguments_of(call)
    return "group" not in given and bool({"src", "dst"} & set(given))


def _chain(
    start: int, calls: Mapping[int, Frame | None], holders: Mapping[int, int]
) -> tuple[Sequence[int], int | None]:
    """Ranks from that one on, each of which waits for the next one alone, and for whom the last one does."""
    path = list[int]()
    rank: int | None = start
    while rank is not None and rank not in path and rank in calls:
        path.append(rank)
        rank = holders.get(rank, awaited(rank, calls[rank]))
    return path, rank


def circle(calls: Mapping[int, Frame | None], holders: Mapping[int, int]) -> Sequence[int]:
    """Ranks each of which waits for the next one alone, and the last for the first; or that one waits for all.

    Two that exchange a message are none: it is on its way.

    Args:
        calls: by rank.
        holders: of the lock on a file, for the ranks that wait for one.
    """
    for start in sorted(calls):
        path, rank = _chain(start, calls, holders)
        if rank == start and not _exchange([call for each in path if (call := calls[each])]):
            return path
        if start in holders and rank is None and wait_for({path[-1]: calls[path[-1]]}, dict.fromkeys(path[:-1])):
            return [path[-1], *path[:-1]]
    return ()


def awaited_by_all(calls: Mapping[int, Frame | None]) -> int | None:
    """The one rank that waits for all, where each other one waits for it alone, or for one that does; None: nobody."""
    ends = {path[-1] if rank is None else None for path, rank in (_chain(start, calls, {}) for start in calls)}
    one = ends.pop() if len(ends) == 1 else None
    call = calls[one] if one is not None else None
    return one if call and call.function not in ROOTED and "group=" not in call.arguments else None


def _exchange(calls: Sequence[Frame]) -> bool:
    """One sends what the other receives."""
    tags = {arguments_of(each).get("tag") for each in calls}
    return sorted(each.function for each in calls) == ["recv", "send"] and len(tags) == 1


def odd(calls: Mapping[int, Frame | None]) -> Sequence[int]:
    """Ranks that give an operation another root than most do, where all are in the same one."""
    given = {rank: call.arguments for rank, call in calls.items() if call and call.function in _WITH_ONE_ROOT}
    counted = Counter(given.values()).most_common()
    alone = any("group=" in each for each in given.values())
    if len(given) < len(calls) or alone or len(counted) < 2 or counted[0][1] == counted[1][1]:
        return ()
    most = [rank for rank, each in given.items() if each == counted[0][0]]
    if any((call := calls[rank]) and call.function in FROM and root(call) == str(rank) for rank in most):
        return ()  # who waits for a root that is there, too, is in a later operation: either may be wrong
    return [rank for rank in given if rank not in most]
