"""What a log must explain is asked for: these logs leave questions open."""

import pytest

from .job import question

STORY = (
    "[elastic-run] job j: 2 nodes, 1 worker here",
    "[elastic-run] round 1: 2 nodes, 2 workers, rank 0 here: all 2 nodes have joined",
    "[A rank 0] step 10",
    "[elastic-run] round 2: 2 -> 2 nodes, 2 workers, rank 0 here: rank 1 on node B died by SIGKILL (9); downtime "
    "0.02 s",
    "[elastic-run] job j succeeded: every worker of round 2 ended with exit code 0",
    "[elastic-run] summary: 2 rounds on this node",
)


def test_a_whole_story_leaves_no_question() -> None:
    assert question(STORY) == ""


@pytest.mark.parametrize(
    ("lines", "asked"),
    [
        ((*STORY[:3], "Task exception was never retrieved", *STORY[3:]), "whose line is"),
        ((*STORY[:3], "Traceback (most recent call last):", *STORY[3:]), "whose line is"),
        (STORY[:4], "why did the workers of round 2 end"),
        (STORY[:1], "how did the node's part in the job end"),
        ((*STORY[:2], *STORY[3:4], *STORY[1:2]), "why does round 1 come after round 2"),
        (
            (
                STORY[0],
                "[elastic-run] round 2: 2 -> 1 node, 1 worker, rank 0 here: rank 0 on node A exited with code 1: "
                "RuntimeError: Connection closed by peer; downtime 0.02 s",
                *STORY[4:],
            ),
            "who is to blame for round 2",
        ),
    ],
)
def test_a_log_leaves_a_question(lines: tuple[str, ...], asked: str) -> None:
    assert asked in question(lines)


def test_a_node_that_was_killed_need_not_say_how_it_ended() -> None:
    assert question(STORY[:3], killed=True) == ""
