"""What a person is told where ranks do not agree on a dataset (pure)."""

from collections.abc import Mapping, Sequence

from .ledger import Dataset, Position, Request, named


def describe_declarations(here: Dataset, there: Dataset) -> str:
    """What differs, as `size is 10 and not 12`; empty where nothing does."""
    names = ("size", "shard_size", "epochs", "shuffle", "seed", "tracking")
    found = [
        f"{name} is {getattr(here, name)!r} and not {getattr(there, name)!r}"
        for name in names
        if getattr(here, name) != getattr(there, name)
    ]
    if here.files != there.files:
        found.append("the source is another one" if here.stream else "the list of files is another one")
    if here.stream != there.stream:
        found.append("follow= or start= is another one" if here.stream and there.stream else "one is a stream")
    if here.alone != there.alone:
        found.append("a table on servers is declared before it on some ranks only, or was in an earlier run only")
    elif not found and here.shards != there.shards:
        found.append(f"it has {here.shards} shards and not {there.shards}")
    return ", ".join(found)


def describe_positions(opened: Mapping[int, Request]) -> str:
    """How the ranks' restored positions differ, in words; empty where they do not."""
    groups: dict[Position | None, list[int]] = {}
    for rank, request in sorted(opened.items()):
        groups.setdefault(request.restored, []).append(rank)
    if len(groups) == 1:
        return ""
    words: list[str] = []
    for position, ranks in groups.items():
        who = f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:8]))}"
        what = "nothing"
        if position is not None:
            what = f"a position with {position.frontier} shards started and {len(position.todo)} of them not done"
        words.append(f"{who} restored {what}")
    return f"{'; '.join(words)}. Load the same checkpoint on every rank, or no checkpoint on any rank"


def describe_wait(request: Request, missing: Sequence[int]) -> str:
    """What a request waits for, and for which ranks."""
    name = request.name
    if request.kind == "open":
        return f"dataset {name!r} starts when every rank has opened it; still missing: {named(missing)}"
    if request.kind == "cut":
        return (
            f"state_dict() of {name!r} is one position for all ranks, so every rank must call it; "
            f"still missing: {named(missing)}"
        )
    return f"every shard of {name!r} is done or leased to another worker: waiting until those are done or returned"
