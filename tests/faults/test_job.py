"""What a log must explain is asked for: these logs leave questions open."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping

import pytest

from ..integration.cluster import MARK
from .job import is_left_over, listeners, question, stat, ticks

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


LISTENS = (
    "import signal, socket; listens = socket.create_server(('127.0.0.1', 0)); "
    "print(listens.getsockname()[1], flush=True); signal.pause()"
)


@pytest.mark.parametrize(
    ("environment", "orphaned", "before", "blamed"),
    [
        ({MARK: "ours"}, False, False, True),
        ({MARK: "another"}, True, False, False),
        ({}, True, False, True),
        ({}, True, True, False),
        ({}, False, False, False),
    ],
    ids=["of the job", "of another job", "an orphan", "an orphan from before", "of another test"],
)
def test_only_what_comes_from_a_job_is_blamed_for_a_port_on_which_it_listens(
    environment: Mapping[str, str], orphaned: bool, before: bool, blamed: bool
) -> None:
    begun = ticks()
    script = f"import os; {'os.fork() and os._exit(0); ' if orphaned else ''}{LISTENS}"
    with subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        port = int(started.stdout.readline())
        (pid,) = listeners()[port]
        try:
            if orphaned:
                started.wait()
                if not environment and stat(pid)[1] != "1":
                    pytest.skip("orphans are adopted by another process than the first here")
            assert is_left_over(pid, "ours", ticks() + 100 if before else begun) == blamed
        finally:
            os.kill(pid, signal.SIGKILL)
