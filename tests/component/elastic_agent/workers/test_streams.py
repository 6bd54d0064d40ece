"""What one worker prints, read from its pipe."""

import asyncio
import os
import random
from typing import cast

import pytest

from elastic_run.elastic_agent.logs.output import Lines
from elastic_run.elastic_agent.workers.streams import TAIL_BYTES, Printed

SPAN_SECONDS, READS_IN_A_SPAN = 0.05, 50 + 10 + 1


class Taken:
    """Stands in for the way of a stream: keeps what it is given."""

    def __init__(self) -> None:
        self.data = b""
        self.ended = asyncio.Event()

    def feed(self, data: bytes) -> None:
        self.data += data

    def close(self) -> None:
        self.ended.set()


@pytest.mark.parametrize("pause", [False, True])
async def test_a_flood_of_short_lines_is_read_a_bounded_number_of_times_and_whole(pause: bool) -> None:
    reading, writing = os.pipe()
    taken, reads = Taken(), 0
    pipe = Printed(reading, cast(Lines, taken))

    def count() -> None:
        nonlocal reads
        reads += 1

    loop = asyncio.get_running_loop()
    pipe.listen(count)
    begun, written = loop.time(), b""
    for number in range(1500):
        line = b"a line of a worker, number %d\n" % number
        os.write(writing, line)
        written += line
        if pause and number % 100 == 50:  # while it may rest already
            pipe.rest()
            pipe.listen(count)
        await asyncio.sleep(0)
    os.close(writing)
    async with asyncio.timeout(60):
        await taken.ended.wait()
    assert taken.data == written
    assert pipe.tail == written[-TAIL_BYTES:]
    spans = (loop.time() - begun) // SPAN_SECONDS + 1
    assert reads <= spans * READS_IN_A_SPAN + (15 if pause else 0)


async def test_after_a_rest_nothing_is_read_until_somebody_listens() -> None:
    reading, writing = os.pipe()
    taken = Taken()
    pipe = Printed(reading, cast(Lines, taken))
    pipe.listen(lambda: None)
    for _ in range(200):  # it pauses by itself
        os.write(writing, b".")
        await asyncio.sleep(0)
    pipe.rest()
    before = len(taken.data)
    os.write(writing, b"!")
    await asyncio.sleep(0.05)
    assert len(taken.data) == before
    pipe.drain()
    assert taken.data == b"." * 200 + b"!"
    os.close(writing)
    pipe.close()
    pipe.listen(lambda: None)  # there is nothing to listen to
    assert taken.ended.is_set()


def test_the_tail_is_the_end_of_all_portions_whatever_their_sizes() -> None:
    reading, writing = os.pipe()
    pipe = Printed(reading, cast(Lines, Taken()))
    draw, whole = random.Random(1), b""
    for _ in range(300):
        portion = draw.randbytes(draw.choice((1, 30, 4096, 60_000)))
        os.write(writing, portion)
        whole += portion
        assert pipe.read() == len(portion)
        assert (pipe.tail, pipe.size, pipe.cut) == (whole[-TAIL_BYTES:], len(whole), max(0, len(whole) - TAIL_BYTES))
    os.close(reading)
    os.close(writing)
