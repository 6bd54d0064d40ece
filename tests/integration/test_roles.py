"""Jobs with roles, with real agents and a real etcd: whose place is taken by whom, and whose process goes on."""

from pathlib import Path

from .cluster import Cluster, Puppet

ROLES = {"framework": "none", "roles": "ps:1,worker:2:3", "role_options": "ps:counts=no"}


def other(cluster: Cluster, rank: int, than: int) -> Puppet:
    """Waits for a worker of that rank with another pid."""

    def found() -> Puppet | None:
        return next((each for each in cluster.puppets if each.alive and each.rank == rank and each.pid != than), None)

    return cluster.wait_until(found, f"another worker of rank {rank}")


def living(cluster: Cluster) -> dict[int, Puppet]:
    """By rank."""
    return {puppet.rank: puppet for puppet in cluster.puppets if puppet.alive}


def test_a_workers_node_takes_the_place_of_a_lost_ps(job: Cluster) -> None:
    job.start("A", node_role="ps", **ROLES)
    job.wait_for_line("A", "1 of 3:4 nodes have joined: waiting for 2 more")
    job.start("B", "C", "D", conf={"last_call_timeout": 60}, node_role=None)
    first = job.workers(4)
    assert [puppet.env["ROLE_NAME"] for puppet in first] == ["ps", "worker", "worker", "worker"]
    assert first.nodes[0] == "A"
    job.kill_machine("A")
    took = job.workers(3)
    assert [puppet.env["ROLE_NAME"] for puppet in took] == ["ps", "worker", "worker"]
    assert took.nodes == [first.nodes[3], *first.nodes[1:3]]
    # The job is done when its workers are, though its ps would run for ever.
    for puppet in took[1:]:
        puppet.tell("go")
    assert job.finish() == {"B": 0, "C": 0, "D": 0}


def test_a_failed_worker_is_started_again_alone(job: Cluster) -> None:
    options = {**ROLES, "role_options": "worker:on-loss=one"}
    job.start("A", "B", "C", conf={"last_call_timeout": 0}, max_restarts=3, **options)
    first = job.workers(3)
    pids = [puppet.pid for puppet in first]
    job.kill_worker(1)
    other(job, 1, pids[1])
    now = living(job)
    assert [now[0].pid, now[2].pid] == [pids[0], pids[2]]
    assert now[1].pid != pids[1]
    assert {now[rank].env["ROLE_NAME"] for rank in (1, 2)} == {"worker"}
    node = first[0].node
    job.wait_for_line(
        node, r"round 2: .* rank 0 here: rank 1 on node \w died by SIGKILL .*all workers here keep running"
    )
    for puppet in now.values():
        puppet.tell("go")
    assert job.finish() == {"A": 0, "B": 0, "C": 0}


def test_workers_that_have_succeeded_stay_so_while_another_is_started_again(job: Cluster) -> None:
    options = {**ROLES, "role_options": "worker:on-loss=one"}
    job.start("A", "B", "C", conf={"last_call_timeout": 0}, max_restarts=3, **options)
    first = job.workers(3)
    first[2].tell("go")
    job.wait_until(lambda: not first[2].alive or None, "rank 2 has ended")
    job.kill_worker(1)
    again = other(job, 1, first[1].pid)
    for puppet in (first[0], again):
        puppet.tell("go")
    assert job.finish() == {"A": 0, "B": 0, "C": 0}


def test_a_role_has_its_own_command_and_number_of_workers(job: Cluster, tmp_path: Path) -> None:
    script = tmp_path / "evaluate.py"
    script.write_text(
        "import os\nprint('evaluates as', os.environ['ROLE_NAME'], os.environ['LOCAL_RANK'], flush=True)\n"
    )
    job.start(
        "A",
        "B",
        conf={"last_call_timeout": 60},
        framework="none",
        roles="worker:1,evaluator:0:1",
        role_options="evaluator:nproc=2,counts=no",
        role_command=f"evaluator:{script}",
    )
    _, line = job.wait_anywhere("evaluates as evaluator 1")
    assert line
    worker = job.wait_until(lambda: living(job).get(0), "the worker")
    assert (worker.env["ROLE_NAME"], worker.env["WORLD_SIZE"]) == ("worker", "3")
    worker.tell("go")
    assert job.finish() == {"A": 0, "B": 0}


def test_nodes_that_declare_other_roles_are_refused(job: Cluster) -> None:
    job.start("A", conf={"last_call_timeout": 0}, roles="worker:1:2", framework="none")
    job.workers(1)
    job.start("B", roles="worker:1:3")
    job.wait_for_line("B", r"--roles.* is 'worker:1:2' there and 'worker:1:3' here|--nnodes is")
    job.wait_until(lambda: living(job).get(0), "the worker").tell("go")
    assert job.finish() == {"A": 0, "B": 2}


RAISES = """
import elastic_run, time
here = elastic_run.context()
with elastic_run.data.shards("records", 60, shard_size=1, commit="ack") as shards:
    for number, shard in enumerate(shards):
        time.sleep(0.05)
        shard.done()
        if here.restart_count == 0 and number == 10 + 10 * here.rank:
            raise ValueError("a bad record")
"""


def test_a_worker_that_continues_has_advanced_in_the_round_for_which_it_was_started(
    job: Cluster, tmp_path: Path
) -> None:
    """Two workers fail alike one after the other, and both have made steps: that is no failure that repeats itself."""
    script = tmp_path / "raises.py"
    script.write_text(RAISES)
    roles, options = "worker:2", "worker:on-loss=one"
    job.start("A", "B", script=script, same_failure_limit=None, roles=roles, role_options=options, framework="none")
    assert job.finish() == {"A": 0, "B": 0}
