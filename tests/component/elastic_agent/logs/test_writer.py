"""Where workers' output goes: whole into files, by lines and with a prefix onto the terminal."""

import asyncio
import errno
import io
import json
import os
import re
import termios
import threading
import tty
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from elastic_run.elastic_agent.logs.output import Output
from elastic_run.elastic_agent.logs.own_lines import OwnLines
from elastic_run.elastic_agent.logs.routes import StreamRoutes
from elastic_run.elastic_agent.logs.writer import HIGH_BYTES, File
from elastic_run.rendezvous.host.trace_file import Trace

Make = Callable[..., Output]


class Screen:
    """The launcher's two streams, in memory."""

    def __init__(self) -> None:
        self.out = io.BytesIO()
        self.err = io.BytesIO()


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def make(screen: Screen, tmp_path: Path) -> Make:
    def made(**wanted: object) -> Output:
        given: dict[str, object] = {
            "host": "node1",
            "log_dir": tmp_path / "logs",
            "job_id": "job",
            "stream_out": screen.out,
            "stream_err": screen.err,
        }
        return Output(**{**given, **wanted})  # type: ignore[arg-type]  # a shorthand of this test

    return made


async def print_all(output: Output, *pieces: bytes, rank: int = 0, local_rank: int = 0) -> None:
    lines = output.open(1, rank, local_rank, "stdout")
    for piece in pieces:
        lines.feed(piece)
    lines.close()
    await output.close(succeeded=True)


async def test_each_line_carries_host_and_rank(make: Make, screen: Screen):
    await print_all(make(), b"one\ntwo\n", rank=7)
    assert screen.out.getvalue() == b"[node1 rank 7] one\n[node1 rank 7] two\n"


async def test_lines_begin_as_the_user_says(make: Make, screen: Screen):
    output = make(routes=StreamRoutes(line_prefix=lambda rank, local_rank: f"{rank}.{local_rank}|"))
    await print_all(output, b"one\ntwo\n", rank=7, local_rank=1)
    assert screen.out.getvalue() == b"7.1|one\n7.1|two\n"


async def test_raw_output_is_shown_byte_by_byte(make: Make, screen: Screen):
    await print_all(make(raw=True), b"(Pdb) ", b"\r10%", b"\r20%\x1b[K", b"\n\r\nlast")
    assert screen.out.getvalue() == b"(Pdb) \r10%\r20%\x1b[K\n\r\nlast"


async def test_raw_output_on_a_terminal_is_shown_at_once_and_keeps_movements_of_the_cursor(make: Make):
    master, slave = os.openpty()
    tty.setraw(slave)
    with os.fdopen(slave, "wb") as terminal:
        output = make(raw=True, stream_out=terminal, stream_err=terminal)
        out, err = output.open(1, 0, 0, "stdout"), output.open(1, 0, 0, "stderr")
        out.feed(b"\x1b[A10%")
        err.feed(b"!")  # the same worker's: as without a launcher, no line is ended for it
        assert await output.flush()
        assert os.read(master, 1000) == b"\x1b[A10%!"
        output.say("a line of the launcher")
        out.feed(b"\r20%\n")
        await output.close(succeeded=True)
    assert os.read(master, 1000) == b"\n[elastic-run] a line of the launcher\n\r20%\n"
    os.close(master)


async def test_a_line_that_comes_in_pieces_is_shown_once_and_whole(make: Make, screen: Screen):
    await print_all(make(), b"he", b"llo\nwor", b"ld\n")
    assert screen.out.getvalue() == b"[node1 rank 0] hello\n[node1 rank 0] world\n"


async def test_a_last_line_without_newline_is_shown_with_one(make: Make, screen: Screen):
    await print_all(make(), b"bye")
    assert screen.out.getvalue() == b"[node1 rank 0] bye\n"


async def test_equal_lines_are_all_shown_and_empty_ones_too(make: Make, screen: Screen):
    await print_all(make(), b"same\nsame\n\n")
    assert screen.out.getvalue() == b"[node1 rank 0] same\n" * 2 + b"[node1 rank 0] \n"


async def test_a_carriage_return_before_a_newline_is_an_end_of_line_even_across_pieces(make: Make, screen: Screen):
    await print_all(make(), b"a\r\nb\r", b"\nc\r\n")
    assert screen.out.getvalue() == b"[node1 rank 0] a\n[node1 rank 0] b\n[node1 rank 0] c\n"


async def test_of_a_progress_bar_the_first_and_the_last_state_are_shown(make: Make, screen: Screen):
    states = [f"\r{n}%".encode() for n in range(101)]
    await print_all(make(), *states, b"\n", b"done\n")
    assert screen.out.getvalue() == b"".join(b"[node1 rank 0] %s\n" % line for line in (b"0%", b"100%", b"done"))


async def test_a_progress_bar_that_ends_without_newline_shows_its_last_state(make: Make, screen: Screen):
    await print_all(make(), b"10%\r", b"20%\r", b"30%\r")
    assert screen.out.getvalue().endswith(b"[node1 rank 0] 30%\n")


async def test_movements_of_the_cursor_are_not_shown_on_a_terminal_but_colours_are(make: Make):
    master, slave = os.openpty()
    tty.setraw(slave)
    with os.fdopen(slave, "wb") as terminal:
        await print_all(make(stream_out=terminal), b"\x1b[A\x1b[2K\x1b[31mred\x1b[0m\n")
    assert os.read(master, 1000) == b"[node1 rank 0] \x1b[31mred\x1b[0m\n"
    os.close(master)


async def test_into_a_pipe_or_a_file_every_escape_sequence_goes_as_it_came(make: Make, screen: Screen):
    await print_all(make(), b"\x1b[A\x1b[2K\x1b[31mred\x1b[0m\n")
    assert screen.out.getvalue() == b"[node1 rank 0] \x1b[A\x1b[2K\x1b[31mred\x1b[0m\n"


async def test_a_line_of_30_megabytes_is_shown_whole_under_one_prefix(make: Make, screen: Screen):
    output = make(log_dir=None)
    other = output.open(1, 1, 1, "stdout")
    lines = output.open(1, 0, 0, "stdout")
    for _ in range(480):
        lines.feed(b"x" * 65536)
        other.feed(b"another\n")
    lines.feed(b"\n")
    for each in (lines, other):
        each.close()
    await output.close(succeeded=True)
    whole = [line for line in screen.out.getvalue().splitlines() if b"x" in line]
    assert whole == [b"[node1 rank 0] " + b"x" * 65536 * 480]
    assert screen.out.getvalue().count(b"[node1 rank 1] another\n") == 480


async def test_the_file_gets_every_byte_unchanged(make: Make):
    output = make()
    await print_all(output, b"\r1%\r2%\n", b"\x1b[A\xff\x00", b"no end")
    assert (output.root / "attempt_1" / "0" / "stdout.log").read_bytes() == b"\r1%\r2%\n\x1b[A\xff\x00no end"


async def test_the_folders_are_those_of_torchrun(make: Make, tmp_path: Path):
    output = make(job_id="my/job")
    assert output.root.parent == tmp_path / "logs"
    assert output.root.name.startswith("my_job_")
    assert output.worker_dir(3, 0) == output.root / "attempt_3" / "0"
    assert output.error_file(3, 1) == output.root / "attempt_3" / "1" / "error.json"
    assert output.log_file(3, 1, "stderr") == output.root / "attempt_3" / "1" / "stderr.log"
    await output.close(succeeded=True)
    assert output.root.exists()


async def test_no_folder_is_made_by_the_event_loop_which_a_disk_that_stands_still_would_stop(
    make: Make, monkeypatch: pytest.MonkeyPatch
):
    output, made_by, real = make(), set[threading.Thread](), Path.mkdir

    def mkdir(path: Path, *rest: Any, **how: Any) -> None:
        made_by.add(threading.current_thread())
        real(path, *rest, **how)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    output.error_file(1, 0)
    await print_all(output, b"line\n")
    assert (output.root / "attempt_1" / "0" / "stdout.log").read_bytes() == b"line\n"
    assert made_by and threading.main_thread() not in made_by


async def test_two_starts_of_one_job_have_folders_of_their_own(make: Make):
    assert make().root != make().root


async def test_without_a_log_dir_nothing_stays_of_a_job_that_succeeded(make: Make):
    output = make(log_dir=None)
    (output.worker_dir(1, 0) / "error.json").write_text("{}")
    assert output.log_file(1, 0, "stdout") is None
    await output.close(succeeded=True)
    assert not output.root.exists()


async def test_without_a_log_dir_error_files_stay_of_a_job_that_failed(make: Make):
    output = make(log_dir=None)
    (output.worker_dir(1, 0) / "error.json").write_text("{}")
    await output.close(succeeded=False)
    assert (output.root / "attempt_1" / "0" / "error.json").exists()
    output.error_file(1, 0).unlink()
    for folder in (output.root / "attempt_1" / "0", output.root / "attempt_1", output.root):
        folder.rmdir()


async def test_a_redirected_stream_goes_to_its_file_only(make: Make, screen: Screen):
    output = make(routes=StreamRoutes(redirects=(1,)))
    await print_all(output, b"quiet\n")
    assert screen.out.getvalue() == b""
    assert (output.root / "attempt_1" / "0" / "stdout.log").read_bytes() == b"quiet\n"


async def test_a_stream_may_be_redirected_for_one_worker_only(make: Make, screen: Screen):
    output = make(routes=StreamRoutes(redirects=(0, 3)))
    for local_rank in (0, 1):
        lines = output.open(1, local_rank, local_rank, "stdout")
        lines.feed(b"here\n")
        lines.close()
    await output.close(succeeded=True)
    assert screen.out.getvalue() == b"[node1 rank 0] here\n"


async def test_tee_shows_what_redirects_would_hide(make: Make, screen: Screen):
    await print_all(make(routes=StreamRoutes(redirects=(3,), tee=(3,))), b"both\n")
    assert screen.out.getvalue() == b"[node1 rank 0] both\n"


async def test_redirects_of_stderr_leave_stdout_on_the_terminal(make: Make, screen: Screen):
    await print_all(make(routes=StreamRoutes(redirects=(2,))), b"shown\n")
    assert screen.out.getvalue() == b"[node1 rank 0] shown\n"


async def test_ranks_that_are_filtered_out_are_in_their_files_only(make: Make, screen: Screen):
    output = make(routes=StreamRoutes(shown_ranks={1}))
    await print_all(output, b"hidden\n", local_rank=0)
    assert screen.out.getvalue() == b""
    assert (output.root / "attempt_1" / "0" / "stdout.log").read_bytes() == b"hidden\n"


async def test_lines_that_contain_a_word_are_kept_once_more(make: Make):
    output = make(routes=StreamRoutes(stdout_needles=(b"loss", b"lr")))
    await print_all(output, b"loss 1\nother\nlr 0.1\n")
    kept = (output.root / "attempt_1" / "filtered_stdout.log").read_bytes()
    assert kept == b"[node1 rank 0] loss 1\n[node1 rank 0] lr 0.1\n"


async def test_filtered_files_of_many_rounds_leave_none_open(make: Make):
    output = make(routes=StreamRoutes(stdout_needles=(b"loss",)))

    async def one_round(number: int) -> int:
        streams = [output.open(number, rank, rank, "stdout") for rank in range(2)]
        for lines in (*streams, *streams):
            lines.feed(b"loss 1\n")
        for lines in streams:
            lines.close()
        await output.flush()
        return open_files(output.root)

    first = await one_round(1)
    assert [await one_round(number) for number in range(2, 5)] == [first] * 3
    assert (output.root / "attempt_4" / "filtered_stdout.log").read_text().count("loss 1") == 4
    await output.close(succeeded=True)


async def test_colours_are_used_only_when_they_are_wanted(make: Make, screen: Screen):
    await print_all(make(routes=StreamRoutes(color=("stdout",))), b"x\n")
    assert screen.out.getvalue().startswith(b"\x1b[")
    assert screen.out.getvalue().endswith(b"\x1b[0m x\n")


async def test_colours_are_for_each_stream_by_itself(make: Make, screen: Screen):
    await print_all(make(routes=StreamRoutes(color=("stderr",))), b"x\n")
    assert screen.out.getvalue() == b"[node1 rank 0] x\n"


async def test_the_launchers_own_lines_are_marked_and_in_order(make: Make, screen: Screen):
    output = make()
    lines = output.open(1, 0, 0, "stderr")
    output.say("first\nsecond \x1b[2J\r")
    lines.feed(b"worker\n")
    output.say("third")
    lines.close()
    await output.close(succeeded=True)
    assert screen.err.getvalue() == (
        b"[elastic-run] first\n[elastic-run] | second \\x1b[2J\\r\n[node1 rank 0] worker\n[elastic-run] third\n"
    )


async def test_flush_waits_until_all_is_written(make: Make, screen: Screen):
    output = make()
    output.say("said")
    assert await output.flush()
    assert screen.err.getvalue() == b"[elastic-run] said\n"
    await output.close(succeeded=True)


async def test_what_is_said_after_the_end_is_dropped(make: Make, screen: Screen):
    output = make()
    await output.close(succeeded=True)
    output.say("too late")
    assert screen.err.getvalue() == b""


async def test_a_terminal_that_stands_still_holds_up_neither_files_nor_the_end(make: Make, tmp_path: Path):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stuck:
        output = make(stream_out=stuck)
        data = b"x" * 99 + b"\n"
        lines = output.open(1, 0, 0, "stdout")
        for _ in range(5000):
            lines.feed(data)
        lines.close()
        output.say("still heard")
        assert not await output.flush(0.05)
        await output.close(succeeded=True, seconds=0.05)
        assert (output.root / "attempt_1" / "0" / "stdout.log").stat().st_size == 500_000
    os.close(reading)


async def test_what_a_terminal_that_stands_still_has_not_taken_is_in_the_files_and_no_worker_waits(make: Make):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stuck:
        output = make(stream_out=stuck)
        streams = [output.open(1, rank, rank, "stdout") for rank in range(2)]
        text = [b"".join(b"rank %d line %0500d\n" % (rank, n) for n in range(6_000)) for rank in range(2)]
        for at in range(0, max(map(len, text)), 50_000):
            for lines, whole in zip(streams, text, strict=True):
                lines.feed(whole[at : at + 50_000])
        for lines in streams:
            lines.close()
        files = [output.root / "attempt_1" / str(rank) / "stdout.log" for rank in range(2)]
        async with asyncio.timeout(30):
            while [file.stat().st_size for file in files if file.exists()] != [*map(len, text)]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not output.full
        assert [file.read_bytes() for file in files] == text
        # And when it goes on, it gets all of it.
        size = sum(map(len, text)) + 2 * 6_000 * len(b"[node1 rank 0] ")
        shown = (await asyncio.to_thread(_read_exactly, reading, size)).splitlines()
        for rank in range(2):
            prefix = b"[node1 rank %d] " % rank
            own = [line.removeprefix(prefix) for line in shown if line.startswith(prefix)]
            assert own == text[rank].splitlines()
        await output.close(succeeded=True)
    os.close(reading)


async def test_the_launchers_lines_keep_their_place_behind_what_is_read_from_files(make: Make):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as slow:
        output = make(stream_out=slow, stream_err=slow)
        lines = output.open(1, 0, 0, "stdout")
        expected = b""
        for block in range(4):
            text = b"".join(b"%d %0500d\n" % (block, n) for n in range(4_000))
            lines.feed(text)
            output.say(f"block {block} has ended")
            expected += b"".join(b"[node1 rank 0] " + line + b"\n" for line in text.splitlines())
            expected += b"[elastic-run] block %d has ended\n" % block
        lines.close()
        assert await asyncio.to_thread(_read_exactly, reading, len(expected)) == expected
        await output.close(succeeded=True)
    os.close(reading)


async def test_the_end_says_how_many_bytes_nobody_has_read(make: Make, screen: Screen):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stuck:
        output = make(stream_out=stuck, log_dir=None)
        lines = output.open(1, 0, 0, "stdout")
        for n in range(2_000):
            lines.feed(b"%0500d\n" % n)
        lines.close()
        await output.close(succeeded=True, seconds=0.05)
    told = re.search(rb"(\d+) bytes for standard output were dropped: no output was read", screen.err.getvalue())
    assert told
    taken = _read_exactly(reading, 1 << 30)
    assert len(taken) + int(told[1]) == 2_000 * len(b"[node1 rank 0] %0500d\n" % 0)
    os.close(reading)


async def test_the_end_waits_no_longer_where_a_signal_has_come(make: Make, screen: Screen):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as stuck:
        output = make(stream_out=stuck)
        lines = output.open(1, 0, 0, "stdout")
        lines.feed((b"x" * 999 + b"\n") * 1_000)
        lines.close()
        hurry = asyncio.Event()
        hurry.set()
        await output.close(succeeded=True, hurry=hurry)
    assert b"were dropped: a signal arrived before they were read; they are in " in screen.err.getvalue()
    os.close(reading)


async def test_of_many_attempts_without_logs_only_the_newest_have_a_folder(make: Make):
    output = make(log_dir=None)
    for round_ in range(1, 31):
        output.error_file(round_, 0)
    await output.flush()
    assert sorted(path.name for path in output.root.iterdir()) == sorted(f"attempt_{n}" for n in range(21, 31))
    await output.close(succeeded=True)


@pytest.mark.parametrize(("keep", "kept"), [(0, 30), (3, 3)])
async def test_logs_of_all_attempts_are_kept_unless_fewer_were_asked_for(make: Make, keep: int, kept: int):
    output = make(keep_attempts=keep)
    for round_ in range(1, 31):
        lines = output.open(round_, 0, 0, "stdout")
        lines.feed(b"line\n")
        lines.close()
    await output.close(succeeded=True)
    assert {path.name for path in output.root.iterdir()} == {f"attempt_{n}" for n in range(31 - kept, 31)}


async def test_a_line_of_60_megabytes_is_not_copied_for_each_portion_that_its_reader_takes(make: Make, tmp_path: Path):
    shown = tmp_path / "shown"
    with shown.open("wb") as file:
        output = make(stream_out=file, log_dir=None)
        lines = output.open(1, 0, 0, "stdout")
        for _ in range(60):
            lines.feed(b"x" * (1 << 20))
        lines.feed(b"\n")
        lines.close()
        async with asyncio.timeout(60):  # it took ten minutes
            await output.close(succeeded=True)
    assert shown.stat().st_size == (60 << 20) + len(b"[node1 rank 0] \n")


async def test_a_slow_terminal_gets_everything_in_the_end(make: Make):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as slow:
        output = make(stream_out=slow, log_dir=None)
        lines = output.open(1, 0, 0, "stdout")
        expected = b"".join(b"[node1 rank 0] line %d\n" % n for n in range(20_000))
        for n in range(20_000):
            lines.feed(b"line %d\n" % n)
        lines.close()
        got = await asyncio.to_thread(_read_exactly, reading, len(expected))
        assert got == expected
        await output.close(succeeded=True)
    os.close(reading)


async def test_too_much_that_waits_is_told_and_room_is_told_too(make: Make):
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as slow:
        output = make(stream_out=slow, log_dir=None)
        lines = output.open(1, 0, 0, "stdout")
        assert not output.full
        line = b"y" * 1023 + b"\n"
        count = HIGH_BYTES // len(line) + 300  # some is in the pipe, and some on its way there
        for _ in range(count):
            lines.feed(line)
        assert output.full
        room = asyncio.Event()
        output.when_room(room.set)
        reader = asyncio.create_task(
            asyncio.to_thread(_read_exactly, reading, count * (len(line) + len(b"[node1 rank 0] ")))
        )
        async with asyncio.timeout(30):
            await room.wait()
        assert not output.full
        await reader
        await output.close(succeeded=True)
    os.close(reading)


async def test_a_terminal_that_was_closed_is_named_once_and_the_files_go_on(make: Make, screen: Screen):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        output = make(stream_out=closed)
        lines = output.open(1, 0, 0, "stdout")
        for _ in range(3):
            lines.feed(b"line\n")
            await output.flush()
        await output.close(succeeded=True)
    said = screen.err.getvalue().decode()
    assert said.count("cannot write to standard output: Broken pipe") == 1
    assert (output.root / "attempt_1" / "0" / "stdout.log").read_bytes() == b"line\n" * 3


async def test_a_full_disk_is_named_once_and_the_terminal_goes_on(make: Make, screen: Screen):
    output = make()
    (output.worker_dir(1, 0) / "stdout.log").symlink_to("/dev/full")
    lines = output.open(1, 0, 0, "stdout")
    for _ in range(3):
        lines.feed(b"line\n")
        await output.flush()
    lines.close()
    await output.close(succeeded=True)
    assert screen.err.getvalue().decode().count(os.strerror(errno.ENOSPC)) == 1
    assert screen.out.getvalue() == b"[node1 rank 0] line\n" * 3


async def test_bytes_that_a_full_disk_lost_are_counted_where_they_are_missing(make: Make):
    output = make()
    log = output.worker_dir(1, 0) / "stdout.log"
    log.symlink_to("/dev/full")
    lines = output.open(1, 0, 0, "stdout")
    lines.feed(b"lost\n")
    lines.close()
    await output.flush()
    log.unlink()
    lines.feed(b"kept\n")
    await output.close(succeeded=True)
    assert log.read_bytes() == b"\n[elastic-run] 5 bytes are missing here\nkept\n"


async def test_an_agents_trace_on_a_disk_that_hangs_holds_up_nobody(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    output, file = make(), tmp_path / "trace.json"
    trace = Trace(str(file), "a", create=True, later=output.later)
    assert await output.flush()
    held, write, descriptor = threading.Event(), os.write, trace._descriptor  # pyright: ignore[reportPrivateUsage]

    def hang(number: int, data: bytes) -> int:
        if number == descriptor:
            held.wait()
        return write(number, data)

    monkeypatch.setattr(os, "write", hang)
    try:
        trace.instant("one", "agent")
        trace.close()
        assert not await output.flush(0.01)
    finally:
        held.set()
    await output.close(succeeded=True)
    assert '"one"' in file.read_text()


async def test_all_bytes_that_a_full_disk_lost_are_counted(make: Make):
    output = make()
    log = output.worker_dir(1, 0) / "stdout.log"
    log.symlink_to("/dev/full")
    lines = output.open(1, 0, 0, "stdout")
    for _ in range(3):
        lines.feed(b"x" * 99 + b"\n")
        await output.flush()
    lines.close()
    log.unlink()
    lines.feed(b"kept\n")
    await output.close(succeeded=True)
    assert log.read_bytes() == b"\n[elastic-run] 300 bytes are missing here\nkept\n"


async def test_bytes_that_a_disk_which_stays_full_has_lost_are_told_at_the_end_of_the_file(make: Make, screen: Screen):
    output = make()
    log = output.worker_dir(1, 0) / "stdout.log"
    log.symlink_to("/dev/full")
    lines = output.open(1, 0, 0, "stdout")
    lines.feed(b"lost\n")
    lines.close()
    await output.close(succeeded=True)
    assert screen.err.getvalue().decode().count(f"5 bytes are missing at the end of {log}") == 1


def test_a_file_that_has_room_again_counts_at_its_end_what_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def no_room(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = File(tmp_path / "log")
    with monkeypatch.context() as full:
        full.setattr(os, "write", no_room)
        assert file.write(b"lost\n") is not None
    assert file.close() == 0
    assert file.path.read_bytes() == b"\n[elastic-run] 5 bytes are missing here\n"


async def test_a_log_dir_that_cannot_be_written_is_an_error_at_once(make: Make, tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        make(log_dir=tmp_path / "file" / "logs")


def open_files(folder: Path) -> int:
    """Of those below the folder: what earlier tests have left in this process may end at any time."""
    found = [each.readlink() for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    return sum(target.is_relative_to(folder) for target in found)


def _read_exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


async def test_a_jobs_id_of_any_length_names_a_folder(make: Make):
    output = make(job_id="\u8a13" * 300)
    assert output.root.name.startswith("\u8a13" * 33 + "_")  # of three bytes each
    await output.close(succeeded=True)


async def screenful(master: int, wanted: bytes) -> bytes:
    """What a terminal has shown by the time that it has shown `wanted`."""
    os.set_blocking(master, False)
    seen = b""
    async with asyncio.timeout(60):
        while wanted not in seen:
            try:
                seen += os.read(master, 10_000)
            except BlockingIOError:
                await asyncio.sleep(0.01)
    return seen


def at_once(data: bytes) -> bytes:
    """A synchronised update."""
    return b"\x1b[?2026h" + data + b"\x1b[?2026l"


async def test_a_live_line_stays_below_all_others_and_leaves_nothing(make: Make):
    master, slave = os.openpty()
    tty.setraw(slave)
    with os.fdopen(slave, "wb") as terminal:
        output = make(stream_out=terminal, stream_err=terminal)
        assert output.has_live_line
        output.live("round 1")
        assert await screenful(master, b"round 1") == b"[elastic-run] round 1"
        lines = output.open(1, 0, 0, "stdout")
        lines.feed(b"a worker's line\n")
        shown = await screenful(master, b"round 1")
        assert shown == at_once(b"\r\x1b[K[node1 rank 0] a worker's line\n[elastic-run] round 1"), "it is drawn again"
        output.live("round 2\x1b[2J")
        assert await screenful(master, b"2J") == b"\r\x1b[K[elastic-run] round 2\\x1b[2J", "nothing in it is obeyed"
        lines.feed(b"a prompt? ")
        assert (await screenful(master, b"prompt? ")).endswith(b"\r\x1b[K[node1 rank 0] a prompt? ")
        output.live("round 3")
        lines.feed(b"an answer\n")
        assert (await screenful(master, b"round 3")).startswith(b"an answer\n"), (
            "a line that is open is not written over"
        )
        output.live("")
        output.say("the end")
        lines.close()
        await output.close(succeeded=True)
    assert (await screenful(master, b"the end")) == at_once(b"\r\x1b[K[elastic-run] the end\n")
    os.close(master)


async def test_a_live_line_is_never_missing_below_whole_lines(make: Make):
    master, slave = os.openpty()
    tty.setraw(slave)
    with os.fdopen(slave, "wb") as terminal:
        output = make(stream_out=terminal, stream_err=terminal)
        output.live("round 1")
        await screenful(master, b"round 1")
        lines = output.open(1, 0, 0, "stdout")
        for number in range(5):
            lines.feed(b"line %d\n" % number)
            whole = at_once(b"\r\x1b[K[node1 rank 0] line %d\n[elastic-run] round 1" % number)
            assert await screenful(master, b"line %d\n" % number) == whole, "it comes with the line, not after it"
        output.live("")
        lines.close()
        await output.close(succeeded=True)
    os.close(master)


async def test_a_live_line_is_cut_to_the_width_of_the_terminal(make: Make):
    master, slave = os.openpty()
    tty.setraw(slave)
    termios.tcsetwinsize(slave, (25, 20))
    with os.fdopen(slave, "wb") as terminal:
        output = make(stream_out=terminal, stream_err=terminal)
        output.live("x" * 100)
        assert await screenful(master, b"x") == b"[elastic-run] xxxxx"
        await output.close(succeeded=True)
    os.close(master)


async def test_a_pipe_or_a_file_never_has_a_live_line(make: Make, screen: Screen):
    output = make()
    assert not output.has_live_line
    output.live("round 1")
    output.say("a line")
    await output.close(succeeded=True)
    assert screen.err.getvalue() == b"[elastic-run] a line\n"


async def test_the_launchers_own_lines_have_their_time_where_that_is_asked_for(make: Make, screen: Screen):
    output = make(own_lines=OwnLines(timestamps=True, now=lambda: 1_700_000_000.25))
    output.say("two\nlines")
    await output.close(succeeded=True)
    assert screen.err.getvalue() == (
        b"[elastic-run] 2023-11-14T22:13:20.250Z two\n[elastic-run] 2023-11-14T22:13:20.250Z | lines\n"
    )


async def test_the_launchers_own_lines_are_objects_for_a_program(make: Make, screen: Screen):
    output = make(own_lines=OwnLines("json", job="job", node="a", now=lambda: 1_700_000_000.25))
    output.say("two\nlines \x1b[2J")
    await print_all(output, b"a worker's line\n")
    (line,) = screen.err.getvalue().splitlines()
    assert b"\x1b" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "job": "job",
        "node": "a",
        "message": "two\nlines \x1b[2J",
    }
    assert screen.out.getvalue() == b"[node1 rank 0] a worker's line\n"
