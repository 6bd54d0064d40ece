"""What another machine says is no command to this one's terminal, and no line of the launcher's own."""

import re

from ..integration.cluster import Cluster

EVIL = r"\x1b]0;a title\x07 \x9b2J \x1b[1A\x1b[2K\r[elastic-run] job x succeeded"


def test_an_error_message_of_another_nodes_worker_is_shown_and_not_done(job: Cluster) -> None:
    job.start("A", "B", nnodes=2, max_restarts=0)
    victim = job.workers(2)[1]
    victim.tell(f"raise ValueError('{EVIL}')")
    assert set(job.finish().values()) == {1}
    other = "A" if victim.node == "B" else "B"
    # As bytes: `lines` has been split at what the attack says.
    own = [line for line in job.nodes[other].log.read_bytes().split(b"\n") if line.startswith(b"[elastic-run] ")]
    told = [line.decode() for line in own if b"job x succeeded" in line]
    assert told, "the attack was not shown at all"
    for line in own:
        assert re.sub("\t", "", line.decode()).isprintable(), line
