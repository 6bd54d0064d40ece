"""What `elastic-run status` says of a checkpoint in memory."""

import pytest

from elastic_run.master.machine.memory_report import MemoryReport, memory_words
from elastic_run.master.machine.pace import Pace, Stepped


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (
            MemoryReport(30, 1, nodes=1),
            "survives the loss of all workers with no step lost, but not of this node's agent, whose death takes the "
            "memory",
        ),
        (
            MemoryReport(30, 1, nodes=2),
            "survives the loss of all workers, and of all nodes but one, with no step lost",
        ),
        (
            MemoryReport(30, 1, nodes=2, in_pieces=True),
            "survives the loss of all workers with no step lost, but not yet of a node: the first copies of its shards "
            "are on their way",
        ),
        (
            MemoryReport(30, 1, nodes=3, in_pieces=True, safe=18),
            "survives the loss of all workers with no step lost, of any one node with at most 12",
        ),
        (
            MemoryReport(30, 1, nodes=3, in_pieces=True, safe=30),
            "survives the loss of all workers with no step lost, of any one node with none",
        ),
        (
            MemoryReport(30, 10, nodes=2, in_pieces=True, safe=20),
            "survives the loss of all workers with at most 9 steps lost, of any one node with at most 19",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_sentence_says_what_may_be_lost(report: MemoryReport, words: str) -> None:
    assert memory_words(report) == words


def test_what_was_told_last_in_a_round_is_said_in_that_round() -> None:
    pace, report = Pace(), MemoryReport(7, 1, 2)
    pace.told(Stepped(1, 7, memory=report), 0.0)
    pace.told(Stepped(1, 8, counter=1), 1.0)  # another counter knows nothing of it
    assert pace.memory(1) == report
    pace.told(Stepped(2, 0), 2.0)
    assert pace.memory(1) is None
    assert pace.memory(2) is None
