"""Workers' output in front of real pipes and terminals: those that stand still, are slow, or go away."""

import asyncio
import os
import re
import termios
import tty
from pathlib import Path

import pytest

from elastic_run.elastic_agent.logs.writer import HIGH_BYTES

from ....doubles.screen import Make, Screen, print_all


@pytest.fixture
def screen() -> Screen:
    return Screen()


@pytest.fixture
def make(screen: Screen, tmp_path: Path) -> Make:
    return Make(screen, tmp_path / "logs")


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


async def test_movements_of_the_cursor_are_not_shown_on_a_terminal_but_colours_are(make: Make):
    master, slave = os.openpty()
    tty.setraw(slave)
    with os.fdopen(slave, "wb") as terminal:
        await print_all(make(stream_out=terminal), b"\x1b[A\x1b[2K\x1b[31mred\x1b[0m\n")
    assert os.read(master, 1000) == b"[node1 rank 0] \x1b[31mred\x1b[0m\n"
    os.close(master)


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
        written = asyncio.Event()
        output.when_written(written.set)
        async with asyncio.timeout(30):
            await written.wait()
        assert not output.full
        for rank in range(2):
            assert (output.root / "attempt_1" / str(rank) / "stdout.log").read_bytes() == text[rank]
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


def _read_exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


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
        assert shown == b"\r\x1b[K[node1 rank 0] a worker's line\n[elastic-run] round 1", "it is drawn again"
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
    assert (await screenful(master, b"the end")) == b"\r\x1b[K[elastic-run] the end\n"
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
