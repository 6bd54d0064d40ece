"""A job whose workers keep their process, and whose model is nowhere but in their memory (`train_in_place.py`).

At its end the parameters, and how often each record was trained on, are those of a job of one worker to which nothing
has happened; and no process group went on from before a step that one of its ranks had committed.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..integration.cluster import Cluster
from .job import Job

TRAIN_IN_PLACE = Path(__file__).with_name("train_in_place.py")

_STEP = re.compile(r"\] step (\d+)$")
_GROUP = re.compile(r"\] group (\d+): rank (\d+) of (\d+) at (\d+) had step (-?\d+) and goes on after step (\d+)$")
_END = re.compile(r"\] ends after (\d+) steps: trained on records (\(.*\)), parameters (\S+)$")


class JobInPlace(Job):
    """See the module."""

    def steps(self) -> list[int]:
        """Those that were told by nodes that run, in order: each tenth."""
        lines = (line for name in self.running() for line in self.nodes[name].lines)
        return sorted(int(found[1]) for line in lines if (found := _STEP.search(line)))

    def _assert_result(self) -> None:
        if wrong := lost_steps(line for node in self.nodes.values() for line in node.lines):
            raise self.failed(wrong)
        ends = {found.groups() for node in self.nodes.values() for line in node.lines if (found := _END.search(line))}
        if len(ends) != 1:
            raise self.failed(f"the ranks do not end alike: {ends}")
        ((steps, records, mark),) = ends
        known = self._undisturbed(steps)
        if known[:2] != (steps, records) or not math.isclose(float(mark), float(known[2]), rel_tol=1e-9):
            raise self.failed(f"it ends with {records} and {mark} after {steps} steps; undisturbed it is {known}")

    def _undisturbed(self, steps: str) -> Sequence[str]:
        """What a job to which nothing happens says at its end, after so many steps."""
        with Cluster(self.directory / "undisturbed", None, self.has_failed) as other:
            (other.directory / "limit").write_text(steps)
            other.start("U", script=TRAIN_IN_PLACE, args=["0"], nnodes=1)
            codes = other.finish()
            found = [found.groups() for line in other.nodes["U"].lines if (found := _END.search(line))]
            if codes != {"U": 0} or len(found) != 1:
                raise other.failed("the undisturbed job has no result")
        return found[0]


def lost_steps(lines: Iterable[str]) -> str:
    """The first process group that goes on from before what one of its ranks had; empty where there is none (pure)."""
    groups: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for line in lines:
        if found := _GROUP.search(line):
            number, _, _, port, had, begins = found.groups()
            groups[number, port].append((int(had), int(begins)))
    for (number, _), ranks in groups.items():
        begun = {begins for _, begins in ranks}
        if len(begun) > 1:
            return f"the ranks of group {number} go on from different steps: {sorted(begun)}"
        if min(begun) < max(had for had, _ in ranks):
            return f"group {number} goes on after step {min(begun)}, and one of its ranks had {max(ranks)[0]}"
    return ""
