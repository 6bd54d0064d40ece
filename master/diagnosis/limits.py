"""What is found of nodes: one that does not answer, a wrong clock, and limits that are almost reached (pure)."""

import statistics
from collections.abc import Sequence

from .evidence import Answer, NodeEvidence
from .findings import Finding

SKEW = 2.0
"""Seconds by which a machine's clock may differ from the others'."""

NEAR = 0.95
"""Of a limit: who has more is near it."""

NEAR_DISK = 1 << 20
"""Bytes: a disk with less has no room."""


def of_nodes(answers: Sequence[Answer], round: int) -> list[Finding]:
    """Of all that were asked."""
    found = list[Finding]()
    skews = [answer.skew for answer in answers if answer.evidence]
    # The master's own clock may be the wrong one. Of two clocks nobody can tell.
    usual, whose = (statistics.median(skews), "most others'") if len(skews) > 2 else (0.0, "the master's")
    for answer in answers:
        if answer.trouble:
            found.append(Finding("silent-node", None, answer.node, "weak", answer.trouble, round=round))
        if answer.evidence and abs(skew := answer.skew - usual) > SKEW:
            ahead = f"{abs(skew):.1f} s {'ahead of' if skew > 0 else 'behind'} {whose}"
            found.append(Finding("clock-skew", None, answer.node, "certain", ahead, round=round))
        if evidence := answer.evidence:
            found += _limits(evidence, round)
    return found


def _limits(evidence: NodeEvidence, round: int) -> list[Finding]:
    found = list[Finding]()
    node = evidence.node
    if evidence.memory_limit and evidence.memory > NEAR * evidence.memory_limit:
        largest = max(evidence.workers, key=lambda worker: worker.resident, default=None)
        used = f"{_gib(evidence.memory)} of {_gib(evidence.memory_limit)} GiB"
        rank = largest.rank if largest and largest.resident > evidence.memory / 4 else None
        found.append(Finding("memory-near", rank, node, "certain", used, round=round))
    for worker in evidence.workers:
        if worker.descriptor_limit and worker.descriptors > NEAR * worker.descriptor_limit:
            used = f"{worker.descriptors} of {worker.descriptor_limit}"
            found.append(Finding("descriptors-near", worker.rank, node, "certain", used, round=round))
    if evidence.process_limit and evidence.processes > NEAR * evidence.process_limit:
        used = f"{evidence.processes} of {evidence.process_limit}"
        found.append(Finding("processes-near", None, node, "certain", used, round=round))
    found += [
        Finding("disk-full", None, node, "certain", f"{disk.path} has {disk.free} bytes left", round=round)
        for disk in evidence.disks
        if disk.size > 0 and disk.free < min(NEAR_DISK, disk.size // 100)
    ]
    return found


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"
