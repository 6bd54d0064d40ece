"""A server's part of a checkpoint is written by a copy of the process."""

import asyncio
import errno
import os
from pathlib import Path

from elastic_run.adapters.servers.part_saver import PartSaver


async def test_what_kept_a_part_from_being_written_is_said() -> None:
    def fail() -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "part-0")

    said, saved = asyncio.Queue[str](), list[int]()
    saver = PartSaver(saved.append, lambda: None, said.put_nowait)
    saver.save_part(3, Path("part-0"), fail)
    words = await asyncio.wait_for(said.get(), 10)
    assert words == "part-0 could not be written: [Errno 28] No space left on device: 'part-0'"

    def break_off() -> None:
        raise ValueError("no such slot")

    saver.save_part(4, Path("part-0"), break_off)
    words = await asyncio.wait_for(said.get(), 10)
    assert (words, saved) == ("part-0 could not be written: ValueError('no such slot')", [])


async def test_one_that_is_given_up_says_why(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    said = asyncio.Queue[str]()
    saver = PartSaver(lambda _: None, lambda: None, said.put_nowait)
    saver.save_part(3, Path("part-0"), lambda: print((tmp_path / "never").read_text()))
    saver.give_up("there is no room for it")
    assert await asyncio.wait_for(said.get(), 10) == "part-0 could not be written: there is no room for it"


async def test_one_that_is_ordered_while_another_is_written_is_asked_for_when_that_is_there() -> None:
    left_out, saved = asyncio.Event(), list[int]()
    saver = PartSaver(saved.append, left_out.set, print)
    saver.save_part(3, Path("part-0"), lambda: None)
    saver.save_part(4, Path("part-0"), lambda: None)
    await asyncio.wait_for(left_out.wait(), 10)
    assert saved == [3]
