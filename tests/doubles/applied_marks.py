"""Stands for the job's servers, as a worker that names records sees them: marks that pushes move."""


class Applied:
    """Two servers with a mark of their own for each shard (by its index); a push is refused where a mark lies in it."""

    in_doubt = False

    def __init__(self, **marks: list[int]) -> None:
        self.marks = marks
        self.pushed: list[tuple[int, int]] = []
        self.rests = 0

    def rest(self) -> None:
        self.rests += 1

    def cuts(self, dataset: str, shard_index: int, lease: int, offset: int) -> list[int]:
        marks = self.marks.setdefault(str(shard_index), [0, 0])
        return sorted({max(offset, mark) for mark in marks})

    def push(self, dataset: str, shard_index: int, lease: int, begin: int, end: int, *, last: bool) -> None:
        marks = self.marks[str(shard_index)]
        assert begin in marks and not any(begin < mark < end for mark in marks)
        marks[:] = [end if mark == begin else mark for mark in marks]
        self.pushed.append((begin, end))


def in_parts() -> Applied:
    """Of five shards of ten records, in all of which but one the two are at different records, or have begun."""
    return Applied(**{"0": [3, 7], "1": [10, 4], "2": [10, 10], "3": [5, 5]})
