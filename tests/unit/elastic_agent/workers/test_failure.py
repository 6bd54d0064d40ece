"""Why a worker failed, read from what it left behind."""

import json
from itertools import pairwise

import pytest

from elastic_run.adapters.registry import adapter
from elastic_run.elastic_agent.workers.failure import (
    STOOD_STILL,
    bounded,
    describe,
    hint,
    last_line,
    last_words,
    read_failure,
    shortened,
)
from elastic_run.rendezvous.member import MAX_TRACEBACK_BYTES, Exit

PLAIN = """\
step 1 loss 0.5
Traceback (most recent call last):
  File "/job/train.py", line 3, in <module>
    main()
  File "/job/train.py", line 2, in main
    raise ValueError("no data")
ValueError: no data
"""


def read(text: str) -> tuple[str, str]:
    return read_failure(text.encode(), None)


def exited(**values: object) -> Exit:
    return Exit(round=1, rank=3, local_rank=1, pid=123, **values)  # type: ignore[arg-type]  # a shorthand of this test


def test_an_uncaught_exception_gives_its_message_and_its_traceback_without_what_came_before():
    message, trace = read(PLAIN)
    assert message == "ValueError: no data"
    assert trace == PLAIN.split("\n", 1)[1].rstrip()


GLOG = """\
E1123 15:11:04.099697   11776 agent.cc:289] Polled an error from the service.
F1123 15:11:04.099972   11776 client.h:80] Terminating process because another task died. Status: INTERNAL: barrier
failed: task 0 heartbeat timeout
*** Check failure stack trace: ***
    @     0x7fc58c040634  absl::lts_20260107::log_internal::LogMessage::SendToLog()
    @     0x7fc5934a71f5  (unknown)
"""


def test_a_fatal_line_of_glog_explains_an_end_unless_an_exception_does():
    assert read(GLOG) == (
        "Terminating process because another task died. Status: INTERNAL: barrier",
        "F1123 15:11:04.099972   11776 client.h:80] Terminating process because another task died. Status: INTERNAL: "
        "barrier\nfailed: task 0 heartbeat timeout",
    )
    assert read(PLAIN + GLOG)[0] == "ValueError: no data"


def test_silence_gives_nothing():
    assert read("") == ("", "")
    assert read("loss 0.1\nloss 0.2\n") == ("", "")


def test_of_several_tracebacks_the_last_counts():
    handled = PLAIN.replace("no data", "was handled and logged")
    assert read(handled + "trying again\n" + PLAIN)[0] == "ValueError: no data"


@pytest.mark.parametrize(
    "sentence",
    [
        "During handling of the above exception, another exception occurred:",
        "The above exception was the direct cause of the following exception:",
    ],
)
def test_a_chain_is_kept_whole_and_its_last_exception_is_the_message(sentence: str):
    second = 'Traceback (most recent call last):\n  File "b.py", line 9, in g\n    f()\nRuntimeError: gave up\n'
    message, trace = read(f"noise\n{PLAIN}\n{sentence}\n\n{second}")
    assert message == "RuntimeError: gave up"
    assert trace.startswith("Traceback")
    assert "ValueError: no data" in trace
    assert sentence in trace
    assert trace.endswith("RuntimeError: gave up")
    assert "noise" not in trace


def test_the_prefix_that_torch_puts_before_each_line_is_taken_off():
    text = "".join(f"[rank0]: {line}\n" for line in PLAIN.splitlines()[1:])
    message, trace = read(text + "[rank0]:[W1017 10:00:00.1 ProcessGroup.cpp:1] Warning: not destroyed\n")
    assert message == "ValueError: no data"
    assert trace == PLAIN.split("\n", 1)[1].rstrip()


def test_a_chain_under_a_prefix_is_kept_whole():
    sentence = "During handling of the above exception, another exception occurred:"
    body = PLAIN.split("\n", 1)[1]
    second = 'Traceback (most recent call last):\n  File "b.py", line 9, in g\nRuntimeError: gave up\n'
    text = "".join(f"[rank1]: {line}\n" for line in f"{body}\n{sentence}\n\n{second}".splitlines())
    message, trace = read(text)
    assert message == "RuntimeError: gave up"
    assert "ValueError: no data" in trace


def test_a_prefix_on_the_first_line_only_is_taken_off():
    message, trace = read("2026-01-01 10:00:00 ERROR trainer: " + PLAIN.split("\n", 1)[1])
    assert message == "ValueError: no data"
    assert trace.startswith("Traceback")


def test_an_indented_traceback_is_found():
    text = "".join(f"    {line}\n" for line in PLAIN.splitlines()[1:])
    assert read(text)[0] == "ValueError: no data"


def test_a_message_of_several_lines_is_kept_in_the_traceback():
    text = (
        'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n'
        "RuntimeError: Error(s) in loading state_dict for Net:\n"
        "\tMissing key(s) in state_dict: 'fc.weight'.\n"
        "\n"
        "Try another file.\n"
        "2026-01-01 10:00:00 INFO bye\n"
    )
    message, trace = read(text)
    assert message == (
        "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: 'fc.weight'."
    )
    assert trace.endswith("Try another file.")


def test_carets_and_repeated_frames_belong_to_the_traceback():
    text = (
        'Traceback (most recent call last):\n  File "t.py", line 2, in f\n    return f()\n           ^^^\n'
        "  [Previous line repeated 996 more times]\nRecursionError: maximum recursion depth exceeded\n"
    )
    message, trace = read(text)
    assert message == "RecursionError: maximum recursion depth exceeded"
    assert "Previous line repeated" in trace


def test_colours_of_the_interpreter_are_taken_off():
    text = (
        'Traceback (most recent call last):\n  File \x1b[35m"t.py"\x1b[0m, line \x1b[35m1\x1b[0m, in <module>\n'
        "\x1b[1;35mValueError\x1b[0m: \x1b[35mno data\x1b[0m\n"
    )
    assert read(text)[0] == "ValueError: no data"


def test_an_exception_without_a_message_is_named():
    assert read('Traceback (most recent call last):\n  File "t.py", line 1, in f\nKeyboardInterrupt\n')[0] == (
        "KeyboardInterrupt"
    )


def test_a_syntax_error_has_no_header_and_is_found():
    text = '  File "/job/train.py", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n'
    message, trace = read(text)
    assert message == "SyntaxError: invalid syntax"
    assert trace == text.rstrip()


def test_a_group_of_exceptions_is_kept_with_its_members():
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "t.py", line 1, in <module>\n'
        "  |     raise ExceptionGroup('two', [a, b])\n"
        "  | ExceptionGroup: two (2 sub-exceptions)\n"
        "  +-+---------------- 1 ----------------\n"
        "    | Traceback (most recent call last):\n"
        '    |   File "t.py", line 5, in f\n'
        "    | ValueError: first\n"
        "    +---------------- 2 ----------------\n"
        "    | TypeError: second\n"
        "    +------------------------------------\n"
    )
    message, trace = read(text)
    assert message == "ExceptionGroup: two (2 sub-exceptions)"
    assert "ValueError: first" in trace
    assert "TypeError: second" in trace


def test_a_traceback_in_a_box_is_found():
    text = (
        "╭───── Traceback (most recent call last) ─────╮\n"
        "│ /job/train.py:3 in <module>                 │\n"
        "╰─────────────────────────────────────────────╯\n"
        "ValueError: no data\n"
    )
    assert read(text)[0] == "ValueError: no data"


def test_errors_that_python_ignores_at_the_end_do_not_hide_the_cause():
    ignored = (
        "Exception ignored in: <function Pool.__del__ at 0x7f>\n"
        'Traceback (most recent call last):\n  File "pool.py", line 1, in __del__\nOSError: gone\n'
    )
    assert read(PLAIN + ignored)[0] == "ValueError: no data"


def test_an_error_in_another_thread_counts_where_there_is_nothing_else():
    aside = (
        "Exception in thread Thread-1:\n"
        'Traceback (most recent call last):\n  File "t.py", line 1, in run\nOSError: gone\n'
    )
    assert read(aside)[0] == "OSError: gone"


def test_a_fatal_error_of_the_interpreter_explains_the_end():
    text = (
        PLAIN + "Fatal Python error: Segmentation fault\n\nCurrent thread 0x00007f (most recent call first):\n"
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at\n  File "t.py", line 4 in <module>\n'
        "\nExtension modules: numpy._core (total: 1)\n"
    )
    message, trace = read(text)
    assert message == "Fatal Python error: Segmentation fault"
    assert "line 4 in <module>" in trace
    assert "Extension modules" not in trace


def test_an_uncaught_cpp_exception_explains_the_end():
    text = (
        "terminate called after throwing an instance of 'c10::Error'\n"
        "  what():  CUDA error: an illegal memory access was encountered\n"
        "Exception raised from query at Event.h:95 (most recent call first):\nframe #0: c10::Error::Error\n"
    )
    message, trace = read(text)
    assert message == "c10::Error: CUDA error: an illegal memory access was encountered"
    assert "frame #0" in trace


def test_a_traceback_that_was_cut_off_before_its_exception_does_not_count():
    assert read('Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n') == ("", "")


def test_bytes_that_are_not_text_do_no_harm():
    message, _ = read_failure(b"\xff\xfe\x00" + PLAIN.encode() + b"\xff", None)
    assert message == "ValueError: no data"


def test_the_error_file_comes_before_stderr():
    told = {"message": {"message": "KeyError: 'x'", "extraInfo": {"py_callstack": "the stack", "timestamp": "1"}}}
    assert read_failure(PLAIN.encode(), json.dumps(told).encode()) == ("KeyError: 'x'", "the stack")


def test_an_error_file_may_hold_a_plain_message():
    assert read_failure(b"", b'{"message": "told plainly"}') == ("told plainly", "")


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"[]", b'{"message": 3}', b'{"message": {"message": null}}', b'{"message": ""}', b"\xff"]
)
def test_a_damaged_error_file_gives_way_to_stderr(damaged: bytes):
    assert read_failure(PLAIN.encode(), damaged)[0] == "ValueError: no data"


def test_a_long_traceback_is_cut_in_the_middle_and_keeps_both_ends():
    frames = "".join(f'  File "t.py", line {n}, in f{n}\n    call(ä)\n' for n in range(1000))
    _, trace = read(f"Traceback (most recent call last):\n{frames}ValueError: deep\n")
    assert len(trace.encode()) <= MAX_TRACEBACK_BYTES
    assert trace.startswith('Traceback (most recent call last):\n  File "t.py", line 0, in f0')
    assert trace.endswith("ValueError: deep")
    assert "bytes cut" in trace


@pytest.mark.parametrize("text", ["ä" * 5000, "x" * 10_000, "a\n" * 5000, "\n" + "y" * 9000])
def test_whatever_is_cut_fits(text: str):
    assert len(bounded(text).encode()) <= MAX_TRACEBACK_BYTES


def test_a_long_message_becomes_one_short_line():
    message, _ = read(f'Traceback (most recent call last):\n  File "t.py", line 1, in f\nValueError: {"very " * 500}\n')
    assert "\n" not in message
    assert len(message) <= 500


def test_the_last_line_is_the_last_that_says_something():
    assert last_line(b"usage: x\nx: error: no such option\n\n  \n") == "x: error: no such option"
    assert last_line(b"") == ""


def test_an_end_is_described_by_name_and_number():
    assert describe(exited(signal=9)) == "rank 3 (local 1, pid 123) died by SIGKILL (9)"
    assert describe(exited(signal=42)) == "rank 3 (local 1, pid 123) died by signal 42 (42)"
    assert describe(exited(code=3)) == "rank 3 (local 1, pid 123) exited with code 3"


def test_out_of_memory_is_named_only_with_evidence():
    assert "memory limit was exhausted" in hint(exited(signal=9, oom_kills=1))
    assert "counted no out-of-memory kill" in hint(exited(signal=9))
    assert "elastic-run sent it (--on-hang=restart)" in hint(exited(signal=9, message=f"{STOOD_STILL}rank 3 sleeps"))


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"code": 1, "message": "ModuleNotFoundError: No module named 'x'"}, "lacks that module"),
        ({"code": 1, "message": "OSError: [Errno 98] Address already in use"}, "MASTER_PORT"),
        ({"code": 1, "message": "torch.OutOfMemoryError: CUDA out of memory."}, "accelerator"),
        ({"code": 1, "message": "RuntimeError: [/p/gloo/pair.cc:1] Connection closed by peer"}, "another rank"),
        ({"code": 1, "message": "RuntimeError: gloo: Timed out waiting 4000ms", "lost_peer": True}, "were late"),
        ({"signal": 11}, "PYTHONFAULTHANDLER"),
        ({"signal": 15}, "SIGTERM"),
        ({"code": 127}, "not found"),
    ],
)
def test_a_known_end_gets_a_hint(end: dict[str, object], words: str):
    assert words in hint(exited(**end), hints=adapter("torch").hints)


def test_the_scripts_own_error_gets_a_hint_too():
    assert "script's own error" in hint(exited(code=1, message="ValueError: no data", traceback="Traceback ..."))


def test_a_code_that_says_nothing_sends_the_reader_to_the_workers_last_words():
    assert "see its last lines" in hint(exited(code=9))


def test_the_hint_about_a_missing_module_names_the_workers_interpreter() -> None:
    missing = exited(code=1, message="ModuleNotFoundError: No module named 'torch'")
    assert hint(missing, python="/opt/env/bin/python").endswith("(workers here run /opt/env/bin/python)")
    assert "workers here run" not in hint(exited(code=1, message="ValueError: no"), python="/opt/env/bin/python")


def frame(number: int) -> str:
    return f'  File "t.py", line {number}, in f{number}\n    call({number})\n    ~~~~^^^\n'


def deep(frames: int, message: str = "ValueError: deep") -> str:
    started = (
        '  File "<frozen runpy>", line 198, in _run_module_as_main\n  File "<frozen runpy>", line 88, in _run_code\n'
    )
    return f"Traceback (most recent call last):\n{started}{''.join(map(frame, range(frames)))}{message}"


@pytest.mark.parametrize("room", range(8, 16))
def test_a_shortened_traceback_keeps_the_scripts_outermost_frame_and_whole_frames(room: int):
    lines = shortened(deep(60), room)
    assert len(lines) <= room
    assert lines[0] == "Traceback (most recent call last):"
    assert '  File "t.py", line 0, in f0' in lines or room < 10
    assert '  File "t.py", line 59, in f59' in lines
    assert lines[-1] == "ValueError: deep"
    for above, below in pairwise(lines):
        assert below.strip("~^ ") or above.startswith("    call(")


def test_a_short_traceback_is_not_cut():
    assert shortened(deep(2), 20) == deep(2).splitlines()


def test_of_a_chain_that_is_too_long_the_last_traceback_stays():
    sentence = "During handling of the above exception, another exception occurred:"
    lines = shortened(f"{deep(9, 'KeyError: 1')}\n\n{sentence}\n\n{deep(9)}", 12)
    assert len(lines) <= 12
    assert lines[:2] == ["  ...", "Traceback (most recent call last):"]
    assert lines[-1] == "ValueError: deep"
    assert "KeyError: 1" not in lines


def test_of_a_message_of_many_lines_the_first_stay():
    lines = shortened(deep(9, "\n".join(["RuntimeError: Error(s):", *(f"\tkey {n}" for n in range(40))])), 12)
    assert len(lines) <= 12
    assert "RuntimeError: Error(s):" in lines
    assert lines[-1] == "  ..."


def test_what_has_no_frames_is_cut_in_the_middle():
    text = "terminate called\n" + "\n".join(f"frame #{n}" for n in range(30))
    assert shortened(text, 6) == ["terminate called", "  ...", "frame #26", "frame #27", "frame #28", "frame #29"]


def test_a_long_traceback_is_cut_between_frames():
    _, trace = read(deep(400) + "\n")
    before, _, after = trace.partition("bytes cut ...\n")
    assert before.splitlines()[-2] == "    ~~~~^^^"
    assert after.startswith('  File "t.py", line ')


@pytest.mark.parametrize(
    "stderr",
    [
        b"",
        b"\n",
        b"[W1122 10:00:00.1 ProcessGroup.cpp:1] Warning: not destroyed\n",
        b"/lib/x.py:3: UserWarning: old\n  warnings.warn('old')\n",
        b"2026-01-01 10:00:00,123 INFO loading\n[WARNING] slow\n",
    ],
)
def test_an_error_on_stdout_is_told_where_stderr_has_only_warnings(stderr: bytes):
    assert last_words(stderr, b"step 1\nERROR: no such data set\n") == ("stdout", "ERROR: no such data set")


def test_a_last_line_on_stderr_comes_before_stdout():
    assert last_words(b"no data\nx.py:3: UserWarning: old\n", b"step 1\n") == ("stderr", "no data")
    assert last_words(b"x.py:3: UserWarning: old\n", b"") == ("stderr", "x.py:3: UserWarning: old")
    assert last_words(b"", b"") == ("stderr", "")


def test_a_long_message_is_brief_in_a_line_that_says_more():
    assert exited(message="no data").brief == "no data"
    brief = exited(message="very " * 100).brief
    assert len(brief) <= 120 and brief.startswith("very very") and brief.endswith(" ...")
