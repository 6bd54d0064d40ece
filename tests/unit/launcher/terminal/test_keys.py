"""What keys do to a watched status, and what a person reads of one rank."""

from elastic_run.launcher.terminal.keys import HELP, OBSERVER_HELP, View, fit, press, split, wrap
from elastic_run.launcher.terminal.rank_lines import log_lines, stack_lines
from elastic_run.master.diagnosis.evidence import Blocked, Child, Frame, NodeEvidence, Snapshot, Worker


def after(view: View, data: str, world: int = 8) -> View:
    for key in split(data):
        pressed = press(view, key, world)
        assert pressed is not None
        view = pressed
    return view


def test_what_a_terminal_sends_at_once_is_several_keys_and_unknown_ones_are_none() -> None:
    assert split("l\x1b[A2\r\x1b[5~\x1b[3~\x1b[1;5Cq\x7f\x1b") == [
        "l",
        "up",
        "2",
        "enter",
        "page up",
        "q",
        "back",
        "escape",
    ]


def test_a_number_and_enter_choose_a_rank_that_there_is() -> None:
    assert (after(View(), "5\r").what, after(View(), "5\r").rank) == ("log", 5)
    assert (after(View(), "5s").what, after(View(), "5s").rank) == ("stacks", 5)
    assert after(View(), "51\r").rank == 7
    assert after(View(), "51\x7f\r").rank == 5
    assert after(View(), "5\x1b").typed == ""


def test_ranks_follow_each_other_and_end_at_both_ends() -> None:
    assert after(View(), "lnn").rank == 2
    assert after(View(), "lnnppp").rank == 0
    assert after(View(), "snnn", world=2).rank == 1
    assert after(View(), "n").rank == 0  # no rank is seen


def test_each_look_is_wanted_once_and_again_by_its_key() -> None:
    first = after(View(), "s")
    assert after(first, "r").asked == first.asked + 1
    assert after(first, "x\x1b[B") == View("stacks", 0, "", 1, first.asked)


def test_escape_shows_the_job_again_and_q_is_the_end() -> None:
    assert after(View(), "3s\x1b").what == "job"
    assert press(View(), "q", 2) is None


def test_a_log_is_shown_from_its_end_and_all_else_from_its_beginning() -> None:
    text = [str(number) for number in range(10)]
    assert fit(text, 3, 0, from_end=True) == (["7", "8", "9"], 0)
    assert fit(text, 3, 99, from_end=True) == (["0", "1", "2"], 7)
    assert fit(text, 3, 2, from_end=False) == (["2", "3", "4"], 2)
    assert fit(text, 20, 5, from_end=False) == (text, 0)


def test_a_line_that_is_too_long_goes_on_below_itself() -> None:
    assert wrap(["  rank 3 waits", "short", ""], 8) == ["  rank 3", "     wai", "    ts", "short", ""]


def evidence(*workers: Worker) -> NodeEvidence:
    return NodeEvidence("b", 2, workers)


def test_a_rank_without_a_python_stack_is_seen_as_the_kernel_sees_it() -> None:
    looks = (
        Snapshot(0.0, "S", "do_wait", 1.0),
        Snapshot(1.0, "S", "pipe_read", 1.5, blocked=Blocked("read", "pipe", "/tmp/pipe")),
    )
    worker = Worker(
        3,
        1,
        77,
        None,
        61.0,
        60.0,
        0,
        snapshots=looks,
        children=(Child(78, "loader", "Z", 0.0),),
        stacks="py-spy is not installed",
    )
    text = "\n".join(stack_lines(evidence(worker), 3))
    assert "process 77" in text
    assert "waits: system call read for a pipe (/tmp/pipe), kernel function pipe_read" in text
    assert "50 % of a processor" in text and "no progress that can be seen for 61.0 s; 60.0 s are allowed" in text
    assert "no Python stack: py-spy is not installed" in text
    assert "78 loader: has ended" in text


def test_a_rank_with_a_stack_shows_its_calls_and_never_a_control_character() -> None:
    looks = (Snapshot(0.0, "R", frames=(Frame("train.py", 7, "st\x1b[2Jep"),), holds_gil=True),)
    text = "\n".join(stack_lines(evidence(Worker(0, 0, 9, snapshots=looks)), 0))
    assert "which has the interpreter's lock" in text and "train.py:7" in text and "\x1b" not in text


def test_a_rank_that_has_gone_or_printed_nothing_says_so() -> None:
    assert "has no worker of rank 4" in next(iter(stack_lines(evidence(), 4)))
    assert "has no worker of rank 4" in next(iter(log_lines(evidence(), 4)))
    assert list(stack_lines(evidence(Worker(0, 0, 9, ended=-9)), 0)) == ["process 9 has ended with signal 9"]
    assert list(log_lines(evidence(Worker(0, 0, 9)), 0)) == ["it has printed nothing yet"]
    assert list(log_lines(evidence(Worker(0, 0, 9, last_lines=("a\x1b", "b"))), 0)) == ["a\\x1b", "b"]


def test_the_keys_are_all_named_on_a_terminal_of_80_columns() -> None:
    assert len(HELP) < 80 and len(OBSERVER_HELP) < 80
