"""Jobs of real TensorFlow processes: what is killed is made good, and the result is that of a run without faults."""

import numpy as np

from ..sampling import SEED, SOAK
from .cluster import SCRIPTS, Cluster
from .regression import STEPS, undisturbed

SECONDS = 150.0
"""For a round of fresh interpreters that all import TensorFlow, on a busy machine."""


def start(
    job: Cluster, *nodes: str, hold: tuple[int, ...] = (), script: str = "tensorflow_steps.py", **flags: str
) -> None:
    checkpoint = f"--checkpoint={job.directory / 'checkpoint.npz'}"
    args = (checkpoint, f"--steps={STEPS}", "--hold", *map(str, hold))
    env = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "1"}
    job.start(*nodes, script=SCRIPTS / script, args=args, env=env, framework="tensorflow", **flags)


def assert_trained(job: Cluster) -> None:
    with np.load(job.directory / "checkpoint.npz") as saved:
        assert int(saved["step"]) == STEPS
        np.testing.assert_allclose(saved["weights"], undisturbed(STEPS), rtol=1e-3, atol=1e-4)


VICTIMS = [1, 0] if SOAK else [SEED % 2]
"""The ranks of the workers that are killed, one after the other."""


def test_killed_workers_and_a_lost_first_node_are_replaced_and_the_result_is_the_same(job: Cluster) -> None:
    hold = (*range(2, 2 + 2 * len(VICTIMS), 2), 6, 8)
    start(job, "A", "B", hold=hold, nnodes="2:3", max_restarts="2")
    for round, (step, victim) in enumerate(zip((2, 4), VICTIMS, strict=False), start=1):
        job.workers(2, SECONDS).wait_for(f"step {step}")
        job.kill_worker(victim)
        for node in "AB":
            job.wait_for_line(node, rf"round {round + 1}: 2 -> 2 nodes, .* rank {victim} on node . died by SIGKILL")
    workers = job.workers(2, SECONDS)
    workers.wait_for("step 6")
    first, other = workers.nodes
    start(job, "C", hold=hold, nnodes="2:3")
    job.workers(3, SECONDS).wait_for("step 8")
    job.kill_machine(first)
    assert job.workers(2, SECONDS).nodes == [other, "C"]
    assert job.finish(SECONDS) == {other: 0, "C": 0}
    assert_trained(job)


ENDED = [2, 0] if SOAK else [SEED % 2 * 2]
"""The ranks, of a chief, a server and a worker, that are killed once a server was lost."""


def test_a_lost_server_worker_and_chief_cost_what_came_after_the_checkpoint(job: Cluster) -> None:
    held = (2, *range(4, 4 + 2 * len(ENDED), 2))
    servers = {"script": "tensorflow_servers.py", "roles": "chief:1,ps:1,worker:1:2", "max_restarts": "2"}
    start(job, "A", "B", "C", "D", hold=held, **servers)
    workers = job.workers(4, SECONDS)
    assert [puppet.env["ROLE_NAME"] for puppet in workers] == ["chief", "ps", "worker", "worker"]
    workers.wait_for("step 2")
    chief, server, first, second = workers.nodes
    job.kill_machine(server)
    workers = job.workers(3, SECONDS)  # the place of the server is taken by a worker's node
    assert [puppet.env["ROLE_NAME"] for puppet in workers] == ["chief", "ps", "worker"]
    assert workers.nodes == [chief, second, first]
    for step, ended in zip(held[1:], ENDED, strict=True):
        workers.wait_for(f"step {step}")
        job.kill_worker(ended)
        workers = job.workers(3, SECONDS)
    # Server and worker wait for ever. The job is done when the chief is.
    assert job.finish(SECONDS) == {chief: 0, first: 0, second: 0}
    job.wait_for_line(chief, f"the chief begins at step {held[-1]}")
    assert_trained(job)


def test_a_wrong_argument_ends_the_job_with_its_own_words(job: Cluster) -> None:
    script, env = SCRIPTS / "tensorflow_steps.py", {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "1"}
    args = ["--checkpoint=none.npz", "--stepz"]
    job.start("A", script=script, args=args, env=env, nnodes=1, framework="tensorflow", same_failure_limit=3)
    assert job.finish(SECONDS) == {"A": 1}
    assert "unrecognized arguments: --stepz" in job.log("A").partition("root cause")[2]


def test_roles_that_tensorflow_does_not_have_are_refused_at_once(job: Cluster) -> None:
    start(job, "A", roles="chief:1,worker:1,server:1")
    assert job.finish() == {"A": 2}
    assert ": TensorFlow has no role server: it has chief, worker, ps, evaluator" in job.log("A")
