"""What an incident says of its cause."""

import pytest

from elastic_run.master.diagnosis.ends import of_incident
from elastic_run.rendezvous.header import Incident
from elastic_run.rendezvous.member import Exit
from elastic_run.rendezvous.reasons import EndedEarly, PeerLost, WorkerFailed


def incident(message: str = "", *, signal: int | None = None, oom: int = 0, trace: str = "") -> Incident:
    exit_ = Exit(1, 2, 0, 4711, 1 if signal is None else None, signal, message, trace, oom_kills=oom)
    return Incident(1, "failure", WorkerFailed("A", 2, exit_.code, signal, message), node="A", host="a", exit=exit_)


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("disk-full", incident("OSError: [Errno 28] No space left on device: '/scratch/x'")),
        ("descriptor-limit", incident("OSError: [Errno 24] Too many open files: '/dev/null'")),
        ("thread-limit", incident("RuntimeError: can't start new thread")),
        ("out-of-memory", incident("MemoryError")),
        ("out-of-memory", incident("killed by the kernel", signal=9, oom=1)),
        ("loader-died", incident("RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed.")),
        ("mismatched-sizes", incident("8 vs 4. Received data size doesn't match expected size. Is there a", signal=6)),
        (
            "loader-died",
            incident("ConnectionResetError: [Errno 104]", trace='File "/p/torch/utils/data/dataloader.py"'),
        ),
        ("abort", incident("last line on stderr: terminate called", signal=6)),
        ("crash", incident(signal=11)),
    ],
)
def test_the_cause_of_a_failure_is_told_by_how_it_ended(kind: str, found: Incident) -> None:
    finding = of_incident(found)
    assert finding is not None
    assert (finding.kind, finding.rank, finding.node, finding.strength) == (kind, 2, "A", "certain")


def test_a_kill_for_memory_somewhere_on_the_machine_is_weak_evidence() -> None:
    finding = of_incident(incident("it may have been killed by the kernel: out of memory", signal=9))
    assert finding is not None
    assert (finding.kind, finding.strength) == ("out-of-memory", "weak")


def test_a_worker_that_ended_while_others_needed_it_had_fewer_steps() -> None:
    exit_ = Exit(1, 2, 0, 4711, 0)
    reason = EndedEarly("A", 2, PeerLost("B", 1, 1, "connection closed"))
    finding = of_incident(Incident(1, "failure", reason, node="A", host="a", exit=exit_))
    assert finding is not None
    assert finding.kind == "uneven-steps"


def test_a_peer_that_was_lost_inside_a_data_loader_is_no_data_loader_that_died() -> None:
    frames = 'File "/p/torch/utils/data/dataloader.py", line 1\n  File "/p/lib/python3.11/socket.py", line 2'
    assert of_incident(incident("ConnectionResetError: [Errno 104]", trace=frames)) is None


def test_an_exception_of_the_script_needs_no_diagnosis() -> None:
    assert of_incident(incident("ValueError: too many values to unpack")) is None
    assert of_incident(incident("", signal=9)) is None
