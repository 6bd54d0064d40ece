"""Faults that happen to whole jobs: real agents, real etcd, real workers. What each ends with, and what it says."""

import contextlib
import re
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .cluster import DEADLINE, SCRIPTS, Cluster, Workers, embedded_ports, failure, held

if TYPE_CHECKING:
    from .conftest import Cluster as Etcd


@pytest.fixture
def free_endpoints() -> str:
    """Three addresses of this machine where nobody listens, with the ports that an embedded member needs besides."""
    return ",".join(f"127.0.0.1:{port}" for port in embedded_ports(3))


# -- workers ----------------------------------------------------------------------------------------------------------


def test_each_failure_of_workers_restarts_all_and_the_job_succeeds_when_the_last_has_ended(job: Cluster) -> None:
    job.start("A", "B", nnodes=2, nproc_per_node=2, max_restarts=4)
    first = job.workers(4)
    first.do(0, "import subprocess")
    for own_session in (False, True):
        first.do(0, f"child = subprocess.Popen(['sleep', '1000'], start_new_session={own_session})")
        first.do(0, "strings.say(str(child.pid))")
    children = [int(pid) for pid in first[0].said]
    job.kill_worker(1)
    second = job.workers(4)
    assert second.nodes == first.nodes
    for child in children:
        job.gone(child)
    for node in "AB":
        job.wait_for_line(node, rf"round 2: 2 -> 2 nodes, .*rank 1 on node {first[1].node} died by SIGKILL \(9\)")

    second[1].tell("raise ValueError('the loss is not a number')")
    third = job.workers(4)
    for node in "AB":
        job.wait_for_line(node, "rank 1 .* exited with code 1.*: ValueError: the loss is not a number")
        job.wait_for_line(node, "round 3: .*rank 1 .* exited with code 1")
    assert [worker.env["TORCHELASTIC_RESTART_COUNT"] for worker in third] == ["2"] * 4

    third.tell("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    fourth = job.workers(4)

    def first_rank_ends(workers: Workers) -> None:
        workers[0].tell("go")
        job.wait_until(lambda: not workers[0].alive or None, "rank 0 ends")

    first_rank_ends(fourth)
    fourth[1].tell("raise RuntimeError('at the very end')")
    last = job.workers(4)
    first_rank_ends(last)
    for worker in last[1:]:
        worker.tell("go")
    assert job.finish() == {"A": 0, "B": 0}
    for node in "AB":
        assert "succeeded: every worker of round 5 ended with exit code 0" in job.log(node)
    assert "job total: 4 worker failures;" in job.log("A"), "all killed at once are one failure"


def test_a_node_whose_worker_cannot_be_killed_leaves_and_the_others_go_on(job: Cluster) -> None:
    job.start("A", "B", nnodes="1:2")
    mine, stuck = sorted(job.workers(2), key=lambda worker: worker.node)
    with held("exit", stuck.pid):
        job.kill_worker(mine.rank)
        words = f"process {stuck.pid} of its workers does not exit after SIGKILL"
        job.wait_for_line("A", f"round 3: 2 -> 1 node, .*node B left: {words}")
        job.workers(1).release()
        assert job.finish() == {"A": 0, "B": 1}
    job.wait_for_line("B", f"process {stuck.pid} does not die: SIGKILL was sent 10 s ago and its state is t")


def test_without_restarts_every_node_ends_with_1_and_prints_the_same_root_cause(job: Cluster) -> None:
    job.start("A", "B", "C", nnodes=3, max_restarts=0)
    victim = job.workers(3)[1]
    victim.tell("raise ValueError('no such column')")
    assert job.finish() == {"A": 1, "B": 1, "C": 1}
    for node in "ABC":
        end = job.last_lines(node)
        assert f"root cause: rank 1 (local 0, pid {victim.pid}) exited with code 1 on node {victim.node}" in end
        assert "ValueError: no such column" in end
        assert "--max-restarts=0 allows 0" in end


def test_when_the_budget_is_spent_the_job_fails(job: Cluster) -> None:
    job.start("A", "B", nnodes=2, max_restarts=2)
    for _ in range(3):
        job.workers(2)[0].tell("import sys; sys.exit(7)")
    assert job.finish() == {"A": 1, "B": 1}
    assert "exited with code 7" in job.last_lines("B")
    assert "this is failure 3, and --max-restarts=2 allows 2" in job.last_lines("B")


def test_the_same_failure_again_and_again_ends_the_job_early_with_5(job: Cluster) -> None:
    job.start("A", "B", nnodes=2, max_restarts=50, same_failure_limit=3)
    for _ in range(3):
        job.workers(2)[0].tell("raise KeyError('learning_rate')")
    assert job.finish() == {"A": 5, "B": 5}
    for node in "AB":
        assert "the same failure 3 times in a row" in job.last_lines(node)
        assert "KeyError: 'learning_rate'" in job.last_lines(node)


# -- nodes ------------------------------------------------------------------------------------------------------------


def test_every_node_but_one_is_killed_one_after_the_other(job: Cluster) -> None:
    job.start("A", "B", "C", "D", nnodes="1:4")
    first = job.workers(4)
    lost = next(node for node in first.nodes if node != job.master())
    orphan = next(worker for worker in first if worker.node == lost)
    job.kill_agent(lost)
    second = job.workers(3)
    assert second.nodes == [node for node in first.nodes if node != lost], "survivors keep their rank order"
    job.gone(orphan.pid)
    for node in second.nodes:
        job.wait_for_line(node, rf"round 2: 4 -> 3 nodes, .*node {lost} was lost: its agent's process is gone")

    lost = job.master()
    job.kill_agent(lost)
    third = job.workers(2)
    assert third.nodes == [node for node in second.nodes if node != lost]
    assert job.master() in third.nodes
    job.wait_anywhere(rf"the master's node {lost} is lost: its agent's process is gone .*; electing a new master")
    for node in third.nodes:
        job.wait_for_line(node, rf"round 3: 3 -> 2 nodes, .*{lost} was lost")

    job.kill_machine(job.master())
    workers = job.workers(1)
    (last,) = workers.nodes
    workers.release()
    assert job.finish() == {last: 0}
    assert "job total: 3 lost nodes;" in job.log(last)


def test_a_node_that_is_silent_is_lost_and_comes_back_as_a_new_member(job: Cluster) -> None:
    job.start("A", "B", nnodes="1:2")
    first = job.workers(2)
    silent = next(node for node in "AB" if node != job.master())
    other = next(node for node in "AB" if node != silent)
    job.freeze_machine(silent)
    assert job.workers(1).nodes == [other]
    job.wait_for_line(other, rf"round 2: 2 -> 1 node, .*node {silent} was lost: .*lease")
    job.thaw_machine(silent)
    job.wait_for_line(silent, "this node is no longer a member of the job: .*; it registers again")
    third = job.workers(2)
    assert third.nodes == [other, silent]
    assert not {worker.pid for worker in first} & {worker.pid for worker in third}

    silent, other = other, silent
    assert job.master() == silent
    job.freeze_machine(silent)
    assert job.workers(1).nodes == [other]
    assert job.master() == other, "a silent master is replaced when its lease ends"
    job.thaw_machine(silent)
    fifth = job.workers(2)

    stopped = fifth[1]
    job.send(stopped.node, signal.SIGSTOP)
    job.gone(stopped.pid)  # by its guardian: a stopped agent does not let its workers run on
    assert job.workers(1).nodes == [fifth[0].node]
    job.send(stopped.node, signal.SIGCONT)
    job.workers(2).release()
    assert job.finish() == {"A": 0, "B": 0}


def test_a_node_that_is_added_is_admitted_and_scripts_have_time_to_save(job: Cluster) -> None:
    job.start("A", nnodes="1:2")
    first = job.workers(1)
    assert first.nodes == ["A"]
    save = "import signal; signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))"
    first.do(0, save)
    job.start("B")
    second = job.workers(2)
    assert second.nodes == ["A", "B"]
    for node in "AB":
        job.wait_for_line(node, "round 2: 1 -> 2 nodes, 2 workers, .*B joined")
    second.release()
    assert job.finish() == {"A": 0, "B": 0}
    assert "job total: 1 arrival;" in job.log("A")
    assert "rank 0] saved" in job.log("A")


def test_with_scale_up_never_a_joining_node_is_a_standby_until_the_next_change(job: Cluster) -> None:
    job.start("A", nnodes="1:2", scale_up="never")
    first = job.workers(1)
    job.start("B")
    job.wait_for_line("A", r"B waits as a standby \(--scale-up=never\)")
    job.wait_for_line("B", "waiting to join")
    first[0].tell("raise RuntimeError('a change')")
    second = job.workers(2)
    assert second.nodes == ["A", "B"]
    second.release()
    assert job.finish() == {"A": 0, "B": 0}


def test_a_standby_beyond_the_maximum_enters_at_the_next_loss_or_ends_with_the_job(job: Cluster) -> None:
    job.start("A", "B", nnodes=2)
    first = job.workers(2)
    job.start("C")
    job.wait_for_line("C", "waiting to join")
    job.wait_for_line(job.master(), r"C waits as a standby \(the job has its maximum of nodes\) until a node is lost")
    lost = next(node for node in "AB" if node != job.master())
    job.kill_machine(lost)
    second = job.workers(2)
    survivor = next(node for node in first.nodes if node != lost)
    assert second.nodes == [survivor, "C"]
    job.start("D")
    job.wait_for_line("D", "waiting to join")
    second.release()
    assert job.finish() == {survivor: 0, "C": 0, "D": 0}


def test_below_the_minimum_the_job_waits_and_goes_on_when_a_node_comes(job: Cluster) -> None:
    job.start("A", "B", nnodes=2)
    first = job.workers(2)
    lost = next(node for node in "AB" if node != job.master())
    survivor = next(worker for worker in first if worker.node != lost)
    job.kill_agent(lost)
    job.wait_for_line(survivor.node, "1 of 2 required nodes remain: waiting for 1 more, for at most 600 s")
    job.gone(survivor.pid)
    job.start("C")
    second = job.workers(2)
    assert second.nodes == [survivor.node, "C"]
    job.wait_for_line("C", "2 of 2 nodes have joined again")
    second.release()
    assert job.finish() == {survivor.node: 0, "C": 0}


# -- notices ----------------------------------------------------------------------------------------------------------


def test_a_node_that_is_told_to_go_leaves_in_order(job: Cluster) -> None:
    job.start("A", "B", "C", nnodes="2:3")
    first = job.workers(3)
    leaver = next(worker for worker in first if worker.node != job.master())
    job.send(leaver.node, signal.SIGTERM)
    second = job.workers(2)
    stay = [node for node in first.nodes if node != leaver.node]
    assert second.nodes == stay
    for node in stay:
        job.wait_for_line(node, rf"round 2: 3 -> 2 nodes, .*node {leaver.node} left: it received SIGTERM")
    job.gone(leaver.pid)
    second.release()
    assert job.finish() == {**dict.fromkeys(stay, 0), leaver.node: 128 + signal.SIGTERM}
    assert "job total: 1 departure;" in job.log(stay[0])


def test_the_master_that_is_told_to_go_hands_over(job: Cluster) -> None:
    job.start("A", "B", "C", nnodes="2:3")
    first = job.workers(3)
    leaver = job.master()
    job.send(leaver, signal.SIGTERM)
    second = job.workers(2)
    stay = [node for node in first.nodes if node != leaver]
    assert second.nodes == stay
    second.release()
    assert job.finish() == {**dict.fromkeys(stay, 0), leaver: 128 + signal.SIGTERM}
    assert "job total: 1 departure;" in job.log(stay[0])


def test_workers_get_the_notice_and_their_time_to_save(job: Cluster) -> None:
    job.start("A", "B", nnodes="1:2")
    first = job.workers(2)
    leaver = first[1].node
    save = "import signal; signal.signal(signal.SIGTERM, lambda *_: (print('saved', flush=True), sys.exit(0)))"
    first.do(1, save)
    job.send(leaver, signal.SIGTERM)
    job.workers(1).release()
    assert job.finish()[leaver] == 128 + signal.SIGTERM
    assert "saved" in job.log(leaver)


def test_a_worker_that_ignores_the_notice_is_killed_after_the_shutdown_timeout(job: Cluster) -> None:
    job.start("A", "B", nnodes="1:2", shutdown_timeout=1)
    first = job.workers(2)
    stubborn = first[1]
    first.do(1, "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)")
    job.send(stubborn.node, signal.SIGTERM)
    job.gone(stubborn.pid)
    job.workers(1).release()
    assert job.finish()[stubborn.node] == 128 + signal.SIGTERM


@pytest.mark.parametrize("grace", [0, 30])
def test_survivors_of_a_failure_may_save_where_the_user_gives_them_time(alone: Cluster, grace: int) -> None:
    alone.start("A", standalone="", nproc_per_node=2, grace_after_failure=grace)
    first = alone.workers(2)
    saved = alone.directory / "saved"
    first.do(0, f"import signal; signal.signal(signal.SIGTERM, lambda *_: (open({str(saved)!r}, 'x'), sys.exit(1)))")
    alone.kill_worker(1)
    alone.workers(2).release()
    assert alone.finish() == {"A": 0}
    assert saved.exists() == bool(grace)


def test_when_every_node_is_told_to_go_the_job_is_preempted_and_starts_again_at_once(job: Cluster) -> None:
    job.start("A", "B", nnodes=2)
    job.workers(2)
    for node in "AB":
        job.send(node, signal.SIGTERM)
    assert job.finish() == {"A": 143, "B": 143}
    job.start("A", "B")
    job.workers(2).release()
    assert job.finish() == {"A": 0, "B": 0}


def test_a_node_that_is_told_to_go_while_it_waits_for_others_goes_at_once(job: Cluster) -> None:
    job.start("A", nnodes=2)
    job.wait_for_line("A", "1 of 2 nodes have joined: waiting for 1 more, for at most 600 s")
    job.send("A", signal.SIGTERM)
    assert job.finish() == {"A": 143}


def test_agents_with_the_same_name_print_the_names_under_which_they_registered(job: Cluster) -> None:
    job.start("A", "B", nnodes=2, node_name="host")
    job.workers(2).release()
    assert job.finish() == {"A": 0, "B": 0}
    names = {job.wait_for_line(node, r"this node is registered as (\S+)$")[1] for node in "AB"}
    assert names == {"host", "host-2"}


def test_ctrl_c_ends_a_standalone_job_in_order(alone: Cluster) -> None:
    alone.start("A", standalone="")
    save = "import signal; signal.signal(signal.SIGINT, lambda *_: (print('saved', flush=True), sys.exit(0)))"
    alone.workers(1).do(0, save)
    alone.send("A", signal.SIGINT)
    assert alone.finish() == {"A": 130}
    assert "saved" in alone.log("A")
    ours = [line for line in alone.log("A").splitlines() if line.startswith("[elastic-run] ")]
    begun = next(number for number, line in enumerate(ours) if "SIGINT" in line)
    assert len(ours) - begun == 3, "what it does, how it ended, and the summary"


def test_ctrl_c_twice_kills(alone: Cluster) -> None:
    alone.start("A", standalone="", nproc_per_node=2)
    workers = alone.workers(2)
    for rank in (0, 1):
        workers.do(rank, "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)")
    for _ in range(100):
        # A person presses again and again; what comes within an instant of the first counts as the first.
        alone.send("A", signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            alone.nodes["A"].process.wait(0.2)
            break
    assert alone.finish() == {"A": 130}
    alone.wait_for_line("A", "SIGINT: this node leaves the job; its workers have 30 s to exit")
    alone.wait_for_line("A", "SIGINT again: killing the workers")
    for worker in workers:
        alone.gone(worker.pid)


# -- who may be in a job ----------------------------------------------------------------------------------------------


def test_what_nodes_of_a_given_id_may_differ_in_is_told_and_what_they_may_not_is_refused(job: Cluster) -> None:
    elsewhere = job.directory / "elsewhere.py"
    elsewhere.symlink_to(job.script)
    job.start("A", nnodes="2:3", nproc_per_node=2, args=["--data=/nvme0"], conf={"last_call_timeout": 0})
    job.start("B", script=elsewhere, nproc_per_node=1, args=["--data=/scratch"])
    workers = job.workers(3)
    told = r"node (A|B) has the job's --rdzv-id and may differ: the script is .*; --nproc-per-node is '(1|2)' there"
    _, line = job.wait_anywhere(told + r".*; the script's arguments are not the same: number 1 of 1")
    assert sum(job.log(node).count("may differ") for node in "AB") == 1, line
    job.start("C", nnodes="1:3")
    job.wait_for_line("C", "the job refused this node: .* than this node: --nnodes is '2:3' there and '1:3' here. Give")
    job.wait_for_line("C", "Give this one its own --rdzv-id, or start both with the same command and source")
    job.nodes["C"].process.wait(DEADLINE)
    assert workers[0].alive, "the job that runs is not touched"
    workers.release()
    assert job.finish() == {"A": 0, "B": 0, "C": 2}


def test_where_the_id_is_derived_other_workers_are_refused_and_the_id_to_give_is_named(job: Cluster) -> None:
    job.start("A", nnodes=2, nproc_per_node=2, rdzv_id=None)
    job.wait_for_line("A", "1 of 2 nodes have joined")
    job.start("B", nproc_per_node=1)
    job.wait_for_line("B", "--nproc-per-node is '2' there and '1' here; nodes that are to differ in this need the same")
    job.wait_for_line("B", "--rdzv-id, given to each of them")
    job.nodes["B"].process.wait(DEADLINE)
    job.send("A", signal.SIGTERM)
    assert job.finish() == {"A": 143, "B": 2}


def test_two_projects_with_the_same_command_are_not_taken_for_one_job(job: Cluster, tmp_path: Path) -> None:
    for project in ("one", "two"):
        folder = tmp_path / project
        folder.mkdir()
        (folder / "train.py").write_text("import part_of_the_project\n")
        (folder / "part_of_the_project.py").write_text(f"print({project!r})\n")
        job.start(project, script=Path("train.py"), args=(), prefix=["env", "-C", str(folder)], nnodes=2, rdzv_id=None)
    words = "the job refused this node: .*the source of part_of_the_project.py is not the same there and here"
    refused, _ = job.wait_anywhere(words)
    assert job.nodes[refused].process.wait(DEADLINE) == 2
    (other,) = {"one", "two"} - {refused}
    assert job.nodes[other].process.poll() is None, "it waits for its own nodes"
    job.nodes[other].process.terminate()
    assert job.finish() == {refused: 2, other: 143}


def test_a_late_node_of_a_job_that_has_just_succeeded_is_told_what_to_type(job: Cluster) -> None:
    job.start("A", nnodes=1)
    job.workers(1).release()
    assert job.finish() == {"A": 0}
    job.start("B")  # which has not seen the job succeed
    assert job.finish() == {"A": 0, "B": 2}
    assert re.search(rf"job '{job.job}' has just succeeded", job.log("B"))
    seconds = re.search(r"refused for (?:another |)(\d+) s", job.log("B"))
    assert seconds and int(seconds[1]) <= 60
    assert f"--rdzv-id={job.job}-2" in job.log("B")
    job.start("B", rdzv_id=f"{job.job}-2")
    job.workers(1).release()
    assert job.finish() == {"A": 0, "B": 0}


def test_the_same_command_typed_again_after_a_success_runs_at_once(job: Cluster) -> None:
    for first, second in ("AB", "AB", "BA"):  # each with a folder for temporary files that is new at each start
        job.start(first, nnodes=2)
        job.wait_for_line(first, "waiting for 1 more")
        job.start(second)
        job.workers(2).release()
        assert job.finish() == {"A": 0, "B": 0}
    # A stranger is welcome, too, as soon as one of those that have seen the end is there.
    job.start("A")
    job.wait_for_line("A", "waiting for 1 more")
    job.start("C")
    job.workers(2).release()
    assert job.finish() == {"A": 0, "B": 0, "C": 0}


def test_a_failed_id_starts_again_at_once(job: Cluster) -> None:
    job.start("A", "B", nnodes=2, max_restarts=0)
    job.workers(2)[0].tell("raise RuntimeError('first try')")
    assert job.finish() == {"A": 1, "B": 1}
    job.start("A", "B")
    job.workers(2).release()
    assert job.finish() == {"A": 0, "B": 0}


def test_nodes_that_do_not_come_end_the_wait_with_3_and_words(job: Cluster) -> None:
    job.start("A", nnodes=2, conf={"join_timeout": 1})
    assert job.finish() == {"A": 3}
    assert "only 1 of 2 nodes joined within 1 s" in job.last_lines("A")


def test_two_jobs_share_a_store_and_leave_each_other_alone(
    job: Cluster, tmp_path: Path, shared_etcd: "Etcd", request: pytest.FixtureRequest
) -> None:
    with Cluster(tmp_path / "other", shared_etcd.endpoint, failure(request)) as other:
        job.start("A", nnodes=1)
        other.start("A", nnodes=1)
        mine, theirs = job.workers(1), other.workers(1)
        mine[0].tell("raise RuntimeError('only here')")
        job.workers(1).release()
        assert job.finish() == {"A": 0}
        assert theirs[0].alive
        theirs.release()
        assert other.finish() == {"A": 0}


# -- the store that the nodes start themselves ------------------------------------------------------------------------


def test_the_nodes_start_their_store_and_lose_a_machine_with_its_member(
    tmp_path: Path, free_endpoints: str, request: pytest.FixtureRequest
) -> None:
    with Cluster(tmp_path / "job", free_endpoints, failure(request), embedded=True) as job:
        job.start("A", "B", "C", nnodes="2:3")
        first = job.workers(3)
        lost = job.master()
        job.kill_machine(lost)
        second = job.workers(2)
        assert second.nodes == [node for node in first.nodes if node != lost]
        # A new machine takes the dead member's member slot.
        job.start("D")
        job.wait_for_line("D", "starting etcd")
        job.workers(3).release()
        assert set(job.finish().values()) == {0}


# -- torch ------------------------------------------------------------------------------------------------------------
# The result is exact: one step adds 1 to the only weight, so nothing was lost and nothing was counted twice.

STEPS = "ends after 30 steps with weight 30"


@pytest.mark.torch
def test_ddp_goes_on_from_its_checkpoint_when_nodes_come_and_a_worker_and_two_machines_are_killed(
    job: Cluster,
) -> None:
    holds = ["5", "10", "15", "20", "25"]  # where the script stops for as long as the test lets it
    args = ["--steps=30", f"--checkpoint={job.directory / 'checkpoint.pt'}", "--hold", *holds]
    job.start("A", script=SCRIPTS / "ddp_steps.py", args=args, nnodes="1:3")
    job.workers(1).wait_for("step 5")
    job.start("B")
    workers = job.workers(2)
    assert workers.nodes == ["A", "B"]
    workers.wait_for("step 10")
    # A node that is lost within a second of it would be its cause: more than that passes until C has come.
    job.kill_worker(1)
    job.workers(2).wait_for("step 15")
    job.start("C")
    job.workers(3).wait_for("step 20")
    first = next(node for node in "CBA" if node != job.master())
    job.kill_machine(first)
    job.workers(2).wait_for("step 25")
    second = job.master()
    job.kill_machine(second)
    (last,) = {"A", "B", "C"} - {first, second}
    assert job.finish() == {last: 0}
    job.wait_for_line("A", "round 2: 1 -> 2 nodes, 2 workers, .*B joined")
    job.wait_for_line("A", r"round 3: .*rank 1 on node \w died by SIGKILL \(9\)")
    job.wait_for_line(last, "round 4: 2 -> 3 nodes, 3 workers, .*C joined")
    job.wait_for_line(last, rf"round 5: 3 -> 2 nodes, .*{first}")
    job.wait_for_line(last, rf"round 6: 2 -> 1 node, .*{second}")
    for step in ("20", "25"):
        assert f"begins at step {step}" in job.log(last)
    assert STEPS in job.log(last)
    assert "job total: 1 worker failure, 2 lost nodes" in job.log(last)
