"""The example that builds its own ring on `elastic_run.rounds()`: no framework, and no restart either."""

import re
import signal

from .cluster import EXAMPLES, Cluster

END = r"ends after step (\d+): the weights are right to 0\.0\d\d; (\S+)"


def begin(job: Cluster, *nodes: str, nproc: int = 1, nnodes: str = "1", steps: int, pause: float = 0.01) -> None:
    args = [f"--steps={steps}", f"--step-seconds={pause}"]
    job.start(*nodes, script=EXAMPLES / "ring_numpy.py", args=args, nproc_per_node=nproc, nnodes=nnodes, max_restarts=9)


def rings(job: Cluster, node: str) -> list[tuple[int, ...]]:
    """Of each ring of a node's workers: round, rank, world, the step after which it went on."""
    found = re.findall(r"ring (\d+): rank (\d+) of (\d+) goes on after step (\d+)", job.log(node))
    return [tuple(map(int, each)) for each in found]


def results(job: Cluster, nodes: str) -> set[tuple[str, str]]:
    return {found for node in nodes for found in re.findall(END, job.log(node))}


def test_killed_workers_change_nothing_in_what_is_learnt(alone: Cluster) -> None:
    begin(alone, "U", nproc=3, steps=150, pause=0)
    assert alone.finish() == {"U": 0}
    undisturbed = results(alone, "U")
    begin(alone, "A", nproc=3, steps=150, pause=0.05)  # there is time to kill two
    for round, victim in ((1, 1), (2, 0)):
        alone.wait_for_line("A", f"ring {round}: rank {victim} of 3")
        alone.kill_worker(victim)
    assert alone.finish() == {"U": 0, "A": 0}
    assert results(alone, "A") == undisturbed
    assert len(undisturbed) == 1
    assert alone.log("A").count("the ring is broken") == 4, "two survivors of each"
    assert len(rings(alone, "A")) == 9


def test_nodes_are_lost_come_and_leave(job: Cluster) -> None:
    begin(job, "A", "B", "C", nnodes="1:3", steps=1500, pause=0.02)
    job.wait_for_line("A", r"ring 1: rank \d of 3")
    lost = next(node for node in "BC" if node != job.master())
    job.kill_machine(lost)
    job.wait_for_line("A", r"ring 2: rank \d of 2")
    begin(job, "D", nnodes="1:3", steps=1500, pause=0.02)
    job.wait_for_line("A", r"ring 3: rank \d of 3")
    job.send("D", signal.SIGTERM)
    job.wait_for_line("A", r"ring 4: rank \d of 2")
    assert job.log("A").count("the ring is broken") == 1, "a planned change breaks nothing"
    ended = job.finish()
    assert (ended["A"], ended["D"]) == (0, 128 + signal.SIGTERM)
    assert {steps for steps, _ in results(job, "A")} == {"1500"}
    steps = [step for *_, step in rings(job, "A")]
    assert steps == sorted(steps)
    assert steps[1] > 0, "nothing that was learnt is lost"
