"""Whose fault it was, what it is charged to, and when that ends the job."""

import dataclasses
import re
import signal
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elastic_run.adapters.registry import adapter
from elastic_run.master.machine.incident import (
    MAX_PROBLEMS_IN_ROW,
    QUICK_SECONDS,
    Evidence,
    FailedWorker,
    Gathering,
    charge,
    consequence,
    describe,
    fatal,
    hopeless,
    joins,
    judge,
    prospect,
)
from elastic_run.rendezvous.header import Incident, Tally
from elastic_run.rendezvous.member import MAX_EXITS, Exit
from elastic_run.rendezvous.node_reasons import (
    LeaseExpired,
    PreemptionNotice,
    ProcessGone,
    ReturnWanted,
    ServersLost,
    StartFailed,
    Unfit,
)
from elastic_run.rendezvous.reasons import NodeFailed, OutOfMemory, RestartsSpent, WorkerFailed
from elastic_run.rendezvous.round import Cause

from ....sampling import examples

LOST_PEER = "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:12345"

REASON = NodeFailed("b", "could not start its workers")
INCIDENT = Incident(1, "problem", REASON)


def failed(
    node: str = "a",
    message: str = "",
    *,
    code: int | None = 1,
    by: int | None = None,
    trace: str = "",
    seconds: float = 5,
) -> FailedWorker:
    lost_peer = re.search("|".join(adapter("torch").consequences), message, re.IGNORECASE) is not None
    exit_ = Exit(1, 0, 0, 1, None if by else code, by, message, trace, seconds=seconds, lost_peer=lost_peer)
    return FailedWorker(node, f"{node}.host", exit_)


COLLECTIVE = ("elastic_run/adapters/torch/lockstep_batches.py", "torch/distributed/distributed_c10d.py")
MULTIPROCESSING = "multiprocessing/connection.py"


def trace(*files: str) -> str:
    """A traceback through a script and then these files."""
    frames = (f'  File "/p/{name}", line 1, in f\n    f()\n' for name in ("train.py", *files))
    return "Traceback (most recent call last):\n" + "".join(frames)


def root(*exits: FailedWorker) -> str:
    """The node of the root cause where `exits` arrived in this order."""
    return judge(Evidence(1, exits)).node


def failure(message: str = "ValueError: no", seconds: float = 5, *, code: int = 1, by: int | None = None) -> Incident:
    return judge(Evidence(1, (failed("a", message, code=code, by=by, seconds=seconds),)))


class TestTheVerdict:
    def test_names_a_long_message_briefly_because_the_worker_has_printed_it_and_the_last_lines_have_it(self) -> None:
        incident = judge(Evidence(1, (failed("a", "ValueError: " + "very " * 90),)))
        assert len(str(incident.reason)) < 200 and "exited with code 1: ValueError: very very" in str(incident.reason)
        assert incident.exit and len(incident.exit.message) > 400

    def test_on_a_worker_that_the_kernel_killed_for_lack_of_memory_says_so(self) -> None:
        worker = failed("a", code=None, by=9)
        killed = dataclasses.replace(worker, exit=dataclasses.replace(worker.exit, oom_kills=2))
        assert judge(Evidence(1, (killed,))).reason == OutOfMemory("a", 0, 2)
        assert judge(Evidence(1, (worker,))).reason == WorkerFailed("a", 0, None, 9, "")

    def test_on_a_lost_node_is_free_and_names_it_and_how_it_was_noticed(self) -> None:
        incident = judge(Evidence(3, lost=(("b", LeaseExpired()),)))
        assert (incident.cause, incident.node, incident.round, incident.exit) == ("lost", "b", 3, None)
        assert "b" in str(incident.reason) and "its lease expired" in str(incident.reason)

    def test_on_failures_beside_a_loss_is_the_loss(self) -> None:
        assert judge(Evidence(1, (failed("a", "ValueError: no"),), lost=(("b", LeaseExpired()),))).cause == "lost"

    def test_on_failures_beside_a_departure_is_the_departure(self) -> None:
        incident = judge(Evidence(1, (failed("a", LOST_PEER),), left=(("b", PreemptionNotice(15)),)))
        assert incident.cause == "left" and "SIGTERM" in str(incident.reason)

    def test_on_a_loss_beside_a_departure_is_the_loss(self) -> None:
        assert judge(Evidence(1, lost=(("a", LeaseExpired()),), left=(("b", PreemptionNotice(15)),))).cause == "lost"

    def test_on_a_failed_worker_holds_its_node_host_and_exit(self) -> None:
        worker = failed("b", "ValueError: no")
        incident = judge(Evidence(1, (worker,)))
        assert (incident.cause, incident.node, incident.host, incident.exit) == ("failure", "b", "b.host", worker.exit)

    def test_on_workers_that_could_not_be_started_is_a_problem(self) -> None:
        incident = judge(Evidence(1, problems=(("a", StartFailed("port 5 is taken")),)))
        assert (incident.cause, incident.node) == ("problem", "a")
        assert str(incident.reason) == "node a could not start its workers: port 5 is taken"

    def test_on_peers_of_a_node_that_could_not_start_is_its_problem(self) -> None:
        evidence = Evidence(1, (failed("b", LOST_PEER),), problems=(("a", StartFailed("no more processes")),))
        assert judge(evidence).cause == "problem"

    def test_on_an_own_error_beside_a_problem_is_a_failure(self) -> None:
        evidence = Evidence(1, (failed("b", "ValueError: no"),), problems=(("a", StartFailed("no more processes")),))
        assert judge(evidence).cause == "failure"


class TestTheRootCause:
    def test_is_the_first_to_arrive_among_equals(self) -> None:
        assert root(failed("b", "ValueError: x"), failed("a", "ValueError: y")) == "b"

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE])
    def test_is_a_crash_rather_than_a_lost_connection_that_was_told_first(self, number: int) -> None:
        assert root(failed("a", LOST_PEER), failed("b", by=number)) == "b"

    def test_is_an_error_rather_than_a_lost_connection_that_was_told_first(self) -> None:
        assert root(failed("a", LOST_PEER), failed("b", "ValueError: no")) == "b"

    def test_is_a_tensor_that_the_library_does_not_take_rather_than_a_lost_connection(self) -> None:
        wrong = "RuntimeError: ProcessGroupGloo::allgather: invalid tensor size at index 0 (expected (8), got (4))"
        assert root(failed("a", LOST_PEER), failed("b", wrong)) == "b"

    def test_is_a_connection_to_a_process_of_its_own_rather_than_one_to_a_peer(self) -> None:
        loader = failed("b", "ConnectionResetError: [Errno 104]", trace=trace("torch/utils/data/dataloader.py"))
        assert root(failed("a", LOST_PEER), loader) == "b"
        handle = trace("torch/utils/data/dataloader.py", "multiprocessing/resource_sharer.py", MULTIPROCESSING)
        assert root(failed("a", LOST_PEER), failed("b", "ConnectionRefusedError: [Errno 111]", trace=handle)) == "b"

    @pytest.mark.parametrize("inside", [COLLECTIVE, ("home/me/train.py",)])
    @pytest.mark.parametrize("message", [LOST_PEER, "RuntimeError: Connection reset by peer"])
    def test_is_no_rank_that_lost_a_peer_inside_a_data_loader(self, message: str, inside: Sequence[str]) -> None:
        victim = failed("a", message, trace=trace("torch/utils/data/dataloader.py", *inside))
        assert root(victim, failed("b", "ValueError: no")) == "b"
        assert root(victim, failed("b", by=signal.SIGABRT)) == "b"
        ended = FailedWorker("b", "b.host", Exit(1, 1, 0, 2, 0))
        assert judge(Evidence(1, (victim,), finished=(ended,))).node == "b"
        assert consequence(judge(Evidence(1, (victim,))))

    def test_is_an_exit_without_words_rather_than_a_lost_connection(self) -> None:
        assert root(failed("a", LOST_PEER), failed("b")) == "b"

    def test_is_an_error_rather_than_an_abort_that_was_told_first(self) -> None:
        assert root(failed("a", by=signal.SIGABRT), failed("b", "ValueError: no")) == "b"

    def test_is_an_abort_rather_than_a_lost_connection(self) -> None:
        assert root(failed("a", LOST_PEER), failed("b", by=signal.SIGABRT)) == "b"

    def test_is_a_crash_rather_than_an_exception_that_was_told_first(self) -> None:
        assert root(failed("a", "ValueError: no"), failed("b", by=signal.SIGSEGV)) == "b"

    def test_is_a_lost_connection_where_there_is_nothing_else(self) -> None:
        assert root(failed("a", LOST_PEER), failed("b", LOST_PEER)) == "a"

    @pytest.mark.parametrize(
        "message",
        [
            LOST_PEER,
            "RuntimeError: Connection reset by peer",
            "ConnectionRefusedError: [Errno 111] Connection refused",
            "BrokenPipeError: [Errno 32] Broken pipe",
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970",
            "torch.distributed.DistNetworkError: The client socket has timed out after 600s",
            "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients",
            "horovod.common.exceptions.HorovodInternalError: Horovod has been shut down",
            "elastic_run.exceptions.RoundOver: round 1 is over: the job is in round 2",
            "RuntimeError: Socket Timeout",
        ],
    )
    def test_is_none_of_the_errors_that_frameworks_raise_when_a_peer_is_gone(self, message: str) -> None:
        assert root(failed("a", message), failed("b", "ValueError: no")) == "b"

    @pytest.mark.parametrize(
        "message",
        [
            "ValueError: the learning rate must be positive",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'",
            "AssertionError",
            "KeyError: 'restored'",
        ],
    )
    def test_is_an_error_of_the_script_itself(self, message: str) -> None:
        assert root(failed("a", LOST_PEER), failed("b", message)) == "b"

    def test_is_an_error_of_the_script_itself_also_in_a_folder_that_is_called_nccl(self) -> None:
        trace = '  File "/home/me/nccl-tests/train.py", line 3, in main\n    check(x)\nValueError: no\n'
        assert root(failed("a", LOST_PEER), failed("b", "ValueError: no", trace=trace)) == "b"

    def test_is_told_in_words_with_rank_node_and_end(self) -> None:
        assert str(describe(failed("b", "ValueError: no"))) == "rank 0 on node b exited with code 1: ValueError: no"
        assert "SIGKILL (9)" in str(describe(failed("b", by=9)))
        assert "signal 42" in str(describe(failed("b", by=42)))


RECEIVE = "RuntimeError: [/p/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation"


def ranked(rank: int, message: str, node: str = "a") -> FailedWorker:
    worker = failed(node, message)
    return dataclasses.replace(worker, exit=dataclasses.replace(worker.exit, rank=rank))


class TestAWaitInVain:
    """Ranks that waited for a late one until their time-out."""

    @pytest.mark.parametrize(
        "message",
        [
            RECEIVE,
            "RuntimeError: [/p/gloo/gloo/transport/tcp/pair.cc:553] Application timeout caused pair closure",
            "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 4000 ms",
            "torch.distributed.DistStoreError: wait timeout after 4000ms, keys: /default_pg/0//cpu//0/0",
            "torch.distributed.DistStoreError: Timed out after 5 seconds waiting for clients. 2/3 clients joined.",
            "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE)",
        ],
    )
    def test_accuses_none_of_them_and_says_who_had_not_failed(self, message: str) -> None:
        lost = ranked(3, LOST_PEER)  # those that gave up closed their connections
        incident = judge(Evidence(1, (lost, ranked(0, message), ranked(2, message)), world=4))
        words = str(incident.reason)
        assert words.startswith("ranks 0, 2 gave up waiting for another rank (")
        assert words.endswith("); rank 1 had not failed by then")
        assert consequence(incident) and root(ranked(0, message), ranked(1, "ValueError: no", "b")) == "b"

    def test_of_which_not_all_is_known_names_nobody_who_had_not_failed(self) -> None:
        told = [ranked(rank, RECEIVE) for rank in range(MAX_EXITS)]
        assert "by then" not in str(judge(Evidence(1, tuple(told), world=20)).reason)
        assert "by then" not in str(judge(Evidence(1, (ranked(0, RECEIVE),))).reason)

    def test_of_thousands_names_how_many_and_the_few_that_had_not_failed(self) -> None:
        told = tuple(ranked(rank, RECEIVE, f"n{rank}") for rank in range(2000) if rank != 17)
        words = str(judge(Evidence(1, told, world=2000)).reason)
        assert words.startswith("1999 ranks gave up") and words.endswith("; rank 17 had not failed by then")


SOCKET = "lib/python3.11/socket.py"
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"
RAISES = trace().replace("f()", "raise RuntimeError('connection lost')")


class TestAConnectionOfTheScriptsOwn:
    """To its database, say: Python raised it, and no library of collective operations."""

    OWN = (
        failed("a", REFUSED, trace=trace(SOCKET)),
        failed("a", REFUSED, trace=trace()),  # on the script's line: sock.connect(...)
        failed("a", "BrokenPipeError: [Errno 32] Broken pipe", trace=trace("torch/hub.py", SOCKET)),
        failed(
            "a",
            "redis.exceptions.ConnectionError: Error 111 connecting to localhost:6379. Connection refused.",
            trace=trace("lib/python3.11/site-packages/redis/connection.py", SOCKET)
            + f"{REFUSED}\n\nDuring handling of the above exception, another exception occurred:\n\n"
            + trace("lib/python3.11/site-packages/redis/connection.py"),
        ),
        failed(
            "a",
            "psycopg2.OperationalError: connection to server at localhost failed: Connection refused",
            trace=trace("lib/python3.11/site-packages/psycopg2/__init__.py"),
        ),
        failed(
            "a",
            "http.client.RemoteDisconnected: Remote end closed: connection reset",
            trace=trace("lib/python3.11/http/client.py"),
        ),
        failed("a", "RuntimeError: connection lost to the store of gloo's logs", trace=RAISES),
    )

    PEERS = (
        failed("a", "RuntimeError: Connection reset by peer", trace=trace()),  # work.wait() on the script's line
        failed("a", "RuntimeError: Connection reset by peer", trace=trace("torch/autograd/graph.py")),
        failed(
            "a", "BrokenPipeError: [Errno 32] Broken pipe", trace=trace("elastic_run/adapters/client/call.py", SOCKET)
        ),
        failed(
            "a",
            REFUSED,  # of whoever wants to tell of the first
            trace=trace("torch/distributed/distributed_c10d.py")
            + f"{LOST_PEER}\n\nDuring handling of the above exception, another exception occurred:\n\n"
            + trace(SOCKET),
        ),
        failed("a", REFUSED),
        failed(  # only its adapter knows
            "a",
            "RuntimeError: gloo closed",
            trace=trace("lib/python3.11/site-packages/x/core.py").replace("f()", "raise E"),
        ),
    )

    @pytest.mark.parametrize("worker", OWN)
    def test_is_the_cause_where_the_others_only_lost_a_peer(self, worker: FailedWorker) -> None:
        incident = judge(Evidence(1, (failed("b", LOST_PEER), worker), finished=(failed("c", code=0),)))
        assert incident.node == "a" and isinstance(incident.reason, WorkerFailed) and not consequence(incident)

    @pytest.mark.parametrize("worker", OWN)
    def test_may_be_one_to_a_rank_so_any_other_failure_is_rather_the_cause(self, worker: FailedWorker) -> None:
        for other in (failed("b", "ValueError: no"), failed("b"), failed("b", by=signal.SIGABRT)):
            assert root(worker, other) == "b"
        assert consequence(judge(Evidence(1, (worker,))), maybe=True)
        assert judge(Evidence(1, (worker,), problems=(("b", StartFailed("no port")),))).cause == "problem"

    @pytest.mark.parametrize("worker", PEERS)
    def test_is_none_of_a_collective(self, worker: FailedWorker) -> None:
        assert consequence(judge(Evidence(1, (worker,))))


class TestAnEarlyEnd:
    """A worker that ended with exit code 0 while others still needed it."""

    FIRST = failed("a", code=0)

    def test_is_the_root_cause_where_the_others_only_lost_it(self) -> None:
        incident = judge(Evidence(1, (failed("b", LOST_PEER), failed("c", LOST_PEER)), finished=(self.FIRST,)))
        assert (incident.cause, incident.node) == ("failure", "a")
        assert incident.exit is not None and incident.exit.code == 0
        assert str(incident.reason).startswith(
            "rank 0 on node a ended with exit code 0 while other ranks still needed it; "
        )
        assert "Connection closed by peer" in str(incident.reason)

    def test_is_known_at_once(self) -> None:
        assert not consequence(judge(Evidence(1, (failed("b", LOST_PEER),), finished=(self.FIRST,))))

    def test_is_no_cause_beside_an_error_of_the_script(self) -> None:
        assert judge(Evidence(1, (failed("b", "ValueError: no"),), finished=(self.FIRST,))).node == "b"

    def test_is_that_of_the_first_worker_that_ended_so(self) -> None:
        gathering = Gathering(1)
        for ended in (self.FIRST, failed("c", code=0)):
            gathering.add(Evidence(1, (failed("b", LOST_PEER),), finished=(ended,)))
        incident = gathering.judge()
        assert incident and incident.node == "a"

    def test_is_no_fault_by_itself(self) -> None:
        gathering = Gathering(1)
        gathering.add(Evidence(1, finished=(self.FIRST,)))
        assert gathering.judge() is None

    def test_is_the_same_failure_whatever_its_peers_died_of(self) -> None:
        first = judge(Evidence(1, (failed("b", LOST_PEER),), finished=(self.FIRST,)))
        second = judge(Evidence(2, (failed("b", "RuntimeError: Broken pipe"),), finished=(self.FIRST,)))
        assert charge(charge(Tally(), first), second).repeats == 2


class TestTheCharge:
    @pytest.mark.parametrize(
        ("cause", "tally"),
        [
            ("lost", Tally(lost=1)),
            ("left", Tally(left=1)),
            ("joined", Tally(joined=1)),
            ("problem", Tally(problems=1, problems_in_row=1)),
            ("failure", Tally(failures=1)),
            ("start", Tally()),
        ],
    )
    def test_goes_to_the_cause_and_only_a_failure_costs(self, cause: Cause, tally: Tally) -> None:
        assert charge(Tally(), Incident(1, cause, REASON)) == tally

    def test_of_joining_nodes_costs_nothing_and_names_them(self) -> None:
        incident = joins(4, ["c", "d"])
        assert str(incident.reason) == "c, d joined" and incident.round == 4
        assert charge(Tally(), incident) == Tally(joined=2)

    def test_counts_each_node_that_was_lost_or_left_and_apart_those_that_were_unfit(self) -> None:
        lost = judge(Evidence(1, lost=(("a", ProcessGone("a:1")), ("b", ProcessGone("b:1")))))
        assert charge(Tally(lost=1), lost) == Tally(lost=3)
        left = judge(Evidence(1, left=(("a", Unfit("the service x died")), ("b", PreemptionNotice(15)))))
        assert charge(Tally(), left) == Tally(left=1, unfit=1)

    def test_of_any_other_cause_ends_a_row_of_problems(self) -> None:
        tally = Tally(problems=3, problems_in_row=3)
        for cause in ("lost", "left", "joined", "failure"):
            assert charge(tally, Incident(1, cause, REASON)).problems_in_row == 0

    def test_of_a_problem_after_a_round_that_ran_begins_a_row(self) -> None:
        tally = charge(Tally(problems=3, problems_in_row=3), Incident(1, "problem", REASON, ran=QUICK_SECONDS))
        assert (tally.problems, tally.problems_in_row) == (4, 1)

    def test_of_the_same_failure_is_counted_in_a_row(self) -> None:
        tally = charge(charge(Tally(), failure()), failure())
        assert (tally.failures, tally.repeats) == (2, 2)

    def test_of_failures_that_differ_in_numbers_and_addresses_only_is_the_same(self) -> None:
        first, second = failure("RuntimeError: tensor 7 at 0x7f00aa"), failure("RuntimeError: tensor 12 at 0x7f01bb")
        assert charge(charge(Tally(), first), second).repeats == 2

    @pytest.mark.parametrize("other", [failure("KeyError: 'x'"), failure(code=3)])
    def test_of_another_failure_begins_a_row_of_its_own(self, other: Incident) -> None:
        assert charge(charge(Tally(), failure()), other).repeats == 1

    def test_of_a_failure_after_long_work_ends_the_row(self) -> None:
        assert charge(charge(Tally(), failure()), failure(seconds=QUICK_SECONDS + 1)).repeats == 0

    def test_of_a_kill_from_outside_repeats_nothing(self) -> None:
        assert charge(charge(Tally(), failure(by=9)), failure(by=9)).repeats == 0

    def test_of_a_loss_in_between_does_not_end_the_row(self) -> None:
        tally = charge(charge(charge(Tally(), failure()), Incident(1, "lost", REASON)), failure())
        assert tally.repeats == 2


class TestTheEnd:
    def test_comes_with_one_failure_more_than_the_budget(self) -> None:
        assert fatal(Tally(failures=3), INCIDENT, 3, 0) is None
        end = fatal(Tally(failures=4), INCIDENT, 3, 0)
        assert end and end[0] == "failed" and "failure 4" in str(end[1]) and "--max-restarts=3" in str(end[1])

    def test_comes_with_the_first_failure_where_there_is_no_budget(self) -> None:
        assert fatal(Tally(), INCIDENT, 0, 0) is None
        assert fatal(Tally(failures=1), INCIDENT, 0, 0) is not None

    def test_comes_early_where_a_failure_only_repeats_itself(self) -> None:
        assert fatal(Tally(failures=2, repeats=2), INCIDENT, 10, 3) is None
        end = fatal(Tally(failures=3, repeats=3), INCIDENT, 10, 3)
        assert end and end[0] == "repeated" and "3 times" in str(end[1])

    def test_never_comes_by_repetition_where_the_user_switched_that_off(self) -> None:
        assert fatal(Tally(failures=3, repeats=3), INCIDENT, 10, 0) is None

    def test_comes_when_workers_cannot_be_started_again_and_again(self) -> None:
        assert fatal(Tally(problems_in_row=MAX_PROBLEMS_IN_ROW - 1), INCIDENT, 0, 0) is None
        end = fatal(Tally(problems_in_row=MAX_PROBLEMS_IN_ROW), INCIDENT, 0, 0)
        assert end and end[0] == "failed"

    def test_comes_at_once_where_what_the_servers_held_is_lost(self) -> None:
        rows = (("b", StartFailed("port 5 is taken")), ("a", ServersLost("rows are gone")))
        lost = judge(Evidence(1, (failed("b", "ServerGone: rows are gone"),), (("c", LeaseExpired()),), problems=rows))
        assert fatal(charge(Tally(), lost), lost, 9, 0) == ("failed", NodeFailed("a", ServersLost("rows are gone")))

    def test_comes_after_the_last_restart_where_the_job_goes_back_to_a_checkpoint(self) -> None:
        wanted = ReturnWanted("rows are gone: the job goes back")
        rows = (("b", StartFailed("port 5 is taken")), ("a", wanted))
        found = judge(Evidence(1, (failed("b", LOST_PEER),), (("c", LeaseExpired()),), problems=rows))
        assert (found.cause, found.reason, found.node) == ("failure", wanted, "a")
        assert fatal(tally := charge(Tally(), found), found, 1, 1) is None
        assert fatal(tally, found, 0, 0) == ("failed", RestartsSpent(wanted, 1, 0))

    def test_never_comes_by_losses_departures_and_joins(self) -> None:
        assert fatal(Tally(lost=999, left=999, joined=999, problems=999), INCIDENT, 0, 1) is None


TRACE = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n'
LAST = "last line on stderr: "


class TestWhatARestartCanDo:
    @pytest.mark.parametrize(
        ("code", "message"),
        [
            (1, "SyntaxError: invalid syntax"),
            (1, "IndentationError: unexpected indent"),
            (1, "ModuleNotFoundError: No module named 'wandb'"),
            (1, "ImportError: cannot import name 'Trainer' from 'transformers' (/usr/lib/transformers/__init__.py)"),
            (1, f"{LAST}/usr/bin/python3: No module named train"),
            (1, f"{LAST}/usr/bin/python3: Error while finding module specification for 'a.b' (ModuleNotFoundError: a)"),
            (2, f"{LAST}/usr/bin/python3: can't open file '/home/me/train.py': [Errno 2] No such file or directory"),
            (2, f"{LAST}train.py: error: unrecognized arguments: --learning-rate=1"),
            (2, f"{LAST}train.py fit: error: the following arguments are required: --data"),
            (2, f"{LAST}Error: No such option: --lr"),
            (127, "cannot run ./train.sh: no such file or command"),
        ],
    )
    def test_is_nothing_where_the_failure_lies_in_what_was_started(self, code: int, message: str) -> None:
        assert prospect(failed("a", message, code=code).exit) == "none"

    @pytest.mark.parametrize(
        "message",
        [
            "TypeError: Net.__init__() got an unexpected keyword argument 'width'",
            "ValueError: the learning rate must be positive",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x7 and 8x16)",
            "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'",
            "AssertionError",
            "yaml.scanner.ScannerError: mapping values are not allowed here",
        ],
    )
    def test_is_little_where_the_script_raised(self, message: str) -> None:
        assert prospect(failed("a", message, trace=TRACE + message).exit) == "poor"

    @pytest.mark.parametrize(
        "message",
        [
            "OSError: [Errno 98] Address already in use",
            "TimeoutError: timed out",
            "requests.exceptions.HTTPError: 503 Server Error",
            "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "OSError: [Errno 116] Stale file handle: '/data/train.bin'",
            "ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory",
            "sqlite3.OperationalError: database is locked",
            LOST_PEER,
        ],
    )
    def test_is_unknown_where_what_the_script_needs_may_come_back(self, message: str) -> None:
        assert prospect(failed("a", message, trace=TRACE + message).exit) == "open"

    def test_is_unknown_after_a_signal_a_slow_failure_and_an_exit_without_words(self) -> None:
        missing = "ModuleNotFoundError: No module named 'wandb'"
        assert prospect(failed("a", by=9).exit) == "open"
        assert prospect(failed("a", missing, seconds=QUICK_SECONDS + 1).exit) == "open"
        assert prospect(failed("a", code=2).exit) == "open"
        assert prospect(failed("a", f"{LAST}Error: server http://store unreachable", code=2).exit) == "open"
        assert prospect(failed("a", f"{LAST}srun: error: nodes are busy", code=2).exit) == "open"
        assert prospect(failed("a", f"{LAST}train.py: error: no", code=1).exit) == "open"

    def test_is_little_and_not_nothing_where_the_script_compiled_some_text_itself(self) -> None:
        trace = f'{TRACE}  File "<unknown>", line 1\n    a b\nSyntaxError: invalid syntax'
        assert prospect(failed("a", "SyntaxError: invalid syntax", trace=trace).exit) == "poor"

    def test_ends_the_job_at_once_where_it_is_nothing(self) -> None:
        incident = failure("ModuleNotFoundError: No module named 'wandb'")
        end = hopeless(charge(Tally(), incident), incident)
        assert (
            end
            and end[0] == "failed"
            and "every rank failed in the same way" in str(end[1])
            and "--same-failure-limit=0" in str(end[1])
        )

    def test_ends_the_job_after_one_repetition_where_it_is_little(self) -> None:
        incident = judge(Evidence(1, (failed("a", "ValueError: no", trace=TRACE + "ValueError: no"),)))
        once = charge(Tally(), incident)
        assert hopeless(once, incident) is None
        end = hopeless(charge(once, incident), incident)
        assert end and end[0] == "repeated" and "2 times in a row" in str(end[1])

    def test_ends_no_job_for_what_is_no_failure_of_the_script(self) -> None:
        assert hopeless(Tally(repeats=9), Incident(1, "problem", REASON)) is None


workers = st.builds(
    failed,
    st.sampled_from("abc"),
    st.sampled_from(["", LOST_PEER, "ValueError: no"]),
    by=st.sampled_from([None, 6, 9, 11, 15, 42]),
)
places = st.lists(st.tuples(st.sampled_from("abc"), st.just("gone")), max_size=2).map(tuple)
evidences = st.builds(Evidence, st.just(1), st.lists(workers, max_size=4).map(tuple), places, places, places).filter(
    lambda evidence: evidence.exits or evidence.lost or evidence.left or evidence.problems
)


@settings(deadline=None, max_examples=examples(150, 60))
@given(evidences)
def test_any_evidence_has_one_cause_with_words_and_costs_at_most_one_failure(evidence: Evidence) -> None:
    incident = judge(evidence)
    assert str(incident.reason) and incident.node
    free = bool(evidence.lost or evidence.left)
    assert (incident.cause in ("lost", "left")) == free
    tally = charge(Tally(), incident)
    assert tally.failures == (incident.cause == "failure")
    nodes = len({*evidence.lost} or {*evidence.left})
    assert tally.failures + tally.lost + tally.left + tally.problems == (nodes if free else 1)


@settings(deadline=None, max_examples=examples(150, 60))
@given(evidences, workers)
def test_more_failed_workers_never_turn_a_free_verdict_into_a_charged_one(
    evidence: Evidence, more: FailedWorker
) -> None:
    later = Evidence(1, (*evidence.exits, more), evidence.lost, evidence.left, evidence.problems)
    if judge(evidence).cause in ("lost", "left"):
        assert judge(later) == judge(evidence)
