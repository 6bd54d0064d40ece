"""A job that counts how often each record was used: its scripts, and what must be true of the counts at its end.

`LOCKSTEP` and `LEASED` train, and their model is the count; `OUTPUTS` writes a file for each shard; the kinds of
`test_tables.py` count in a table on parameter servers. All must have used each record once in each epoch, exactly.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .failpoint import arm, is_armed
from .job import SOME, Job

HERE = Path(__file__).parent

_STEP = re.compile(r"\] step (\d+)$")
_TIMES = re.compile(r"each record was trained on (\[.*\]) times")


@dataclass(frozen=True, slots=True)
class Kind:
    """What a job does.

    Attributes:
        script: what its workers run.
        size: records.
        epochs: how often each of them is used; the test lets the last one begin.
        options: more of the script's.
    """

    script: str
    size: int = 101
    epochs: int = 80
    options: Sequence[str] = ()

    @property
    def args(self) -> list[str]:
        """The script's arguments."""
        return [f"--size={self.size}", f"--epochs={self.epochs}", *self.options]


LOCKSTEP = Kind("count_lockstep.py")
LEASED = Kind("count_leased.py")
OUTPUTS = Kind("count_outputs.py", epochs=200)


class Counted(Job):
    """A `Job` of one of these kinds; `kind` is set before its first node is started.

    Its steps are those of which a checkpoint was written, or the outputs that are there: nothing undoes them.
    """

    kind = LOCKSTEP

    def train(self, *names: str, **more: object) -> None:
        """As `Job.train`, with this kind's script."""
        first: dict[str, object] = {}
        if not self.nodes:
            most = str(more.get("nnodes", 1)).rpartition(":")[2]
            first = {"script": HERE / self.kind.script, "args": self.kind.args, "max_restarts": 100}
            self.largest_world = {"ELASTIC_RUN_MAX_WORLD_SIZE": most}
        super().train(*names, **{**first, "env": self.largest_world, **more})

    @property
    def step(self) -> int:
        found = (_STEP.search(line) for node in self.nodes.values() for line in tuple(node.lines))
        return max((int(step[1]) for step in found if step), default=0)

    def may_end(self, steps: int = SOME) -> None:
        """The last epoch may begin."""
        (self.directory / "finish").touch()

    def happens(self, point: str) -> None:
        """Lets what is to happen there happen to whoever gets there next, and waits until somebody has got there."""
        self.fault(point)
        arm(self.directory, point)
        self.wait_until(lambda: None if is_armed(self.directory, point) else True, f"somebody gets there: {point}")

    def agent_dies_at(self, point: str) -> str:
        """The same with an agent: which node has gone with it."""
        self.fault(f"an agent dies {point}")
        arm(self.directory, point)

        def lost() -> str | None:
            return next((name for name, node in self.nodes.items() if node.ended and not node.killed), None)

        name = self.wait_until(lost, f"an agent dies {point}")
        self.nodes[name].killed = True
        if is_armed(self.directory, point):
            raise self.failed(f"node {name} has ended, and not {point}")
        return name

    def _assert_result(self) -> None:
        if not any(node.process.returncode == 0 and not node.killed for node in self.nodes.values()):
            return
        if self.kind.script == OUTPUTS.script:
            self._assert_outputs()
            return
        ends = {end[1] for node in self.nodes.values() for line in node.lines if (end := _TIMES.search(line))}
        if ends != {f"[{self.kind.epochs}]"}:
            raise self.failed(f"each record was to be trained on {self.kind.epochs} times, and was {ends}")

    def _assert_outputs(self) -> None:
        """Each record of each epoch is in exactly one file, and no file is missing or too many."""
        epochs: dict[str, Counter[int]] = {}
        for path in (self.directory / "outputs").iterdir():
            if path.suffix != ".part":  # what a worker left that was killed
                records = map(int, path.read_text().split())
                epochs.setdefault(path.name.partition("-")[0], Counter()).update(records)
        once = Counter(range(self.kind.size))
        wrong = sorted(epoch for epoch, records in epochs.items() if records != once)
        if wrong or len(epochs) != self.kind.epochs:
            raise self.failed(f"{len(epochs)} of {self.kind.epochs} epochs have outputs, and wrong ones: {wrong}")
