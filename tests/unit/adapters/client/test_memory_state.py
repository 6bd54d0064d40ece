"""How a state lies in memory: what is taken for whole, whenever its writer died."""

import zlib
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from elastic_run.adapters.client.memory_state import (
    ALIGNED,
    HEADER_BYTES,
    clear_generation,
    complete_generation,
    is_undamaged,
    place_tensors,
    read_generation,
    write_text,
)

SIZE = 1 << 11


class Killed(BaseException):
    """The writer is no more."""


class Memory(bytearray):
    """Memory whose writer dies after so many bytes."""

    left = 1 << 30

    def __setitem__(self, where: Any, data: Any) -> None:
        begin, _, _ = where.indices(len(self))
        part = bytes(data)[: self.left]
        super().__setitem__(slice(begin, begin + len(part)), part)
        self.left -= len(part)
        if len(part) < len(data):
            raise Killed


def write(memory: Memory, step: int, tensors: list[bytes]) -> None:
    """As a framework does: one tensor after the other, into its place."""
    offsets, end = place_tensors([len(each) for each in tensors])
    clear_generation(memory)
    for offset, each in zip(offsets, tensors, strict=True):
        memory[offset : offset + len(each)] = each
    complete_generation(memory, 1, step, write_text("run", {"model": f"text {step}"}), end, zlib.crc32)


def tensors_in(memory: Memory, sizes: list[int]) -> list[bytes]:
    offsets, _ = place_tensors(sizes)
    return [bytes(memory[offset : offset + size]) for offset, size in zip(offsets, sizes, strict=True)]


TENSORS = st.lists(st.binary(max_size=150), max_size=4)


@given(old=TENSORS, new=TENSORS, cut=st.floats(0, 1))
@example(old=[b"a"], new=[b"b"], cut=0.0)
@example(old=[b"a" * 90], new=[b"b" * 90], cut=1.0)
def test_a_copy_that_was_torn_at_any_byte_is_never_taken_for_whole(
    old: list[bytes], new: list[bytes], cut: float
) -> None:
    memory = Memory(SIZE)
    write(memory, 1, old)
    before = bytes(memory)
    write(memory, 2, new)
    memory[:] = before
    total = 2 * HEADER_BYTES + sum(map(len, new)) + len(write_text("run", {"model": "text 2"}))
    memory.left = round(cut * total)
    died = False
    try:
        write(memory, 2, new)
    except Killed:
        died = True
    found = read_generation(memory)
    if found is None:
        assert died
        return
    assert is_undamaged(memory, found, zlib.crc32)
    wanted = old if found.step == 1 else new
    assert tensors_in(memory, [len(each) for each in wanted]) == wanted
    assert found.parts == {"model": f"text {found.step}"}
    assert found.step == 2 or memory == before, "nothing of the new one is beside the old one's header"


def test_every_byte_that_is_another_one_is_found() -> None:
    memory = Memory(SIZE)
    write(memory, 3, [bytes(range(64)), bytes(range(7))])
    whole = read_generation(memory)
    assert whole is not None
    assert is_undamaged(memory, whole, zlib.crc32)
    used = [*range(_HEADER_USED), *range(HEADER_BYTES, whole.size)]
    for index in used:
        memory[index : index + 1] = bytes([memory[index] ^ 1])
        found = read_generation(memory)
        assert found is None or not is_undamaged(memory, found, zlib.crc32), index
        memory[index : index + 1] = bytes([memory[index] ^ 1])
    assert read_generation(memory) == whole


_HEADER_USED = 56


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"\xff" * 64, b"ERunMem1" + b"\0" * 56])
def test_memory_in_which_nothing_was_written_holds_nothing(data: bytes) -> None:
    assert read_generation(bytearray(data)) is None


def test_tensors_begin_where_any_data_type_can_and_do_not_overlap() -> None:
    offsets, end = place_tensors([1, 64, 0, 65])
    assert offsets == [64, 128, 192, 192]
    assert end == 320
    assert all(each % ALIGNED == 0 for each in offsets)


def test_the_same_state_has_the_same_mark_on_every_node() -> None:
    one, other, third = Memory(SIZE), Memory(SIZE), Memory(SIZE)
    for memory, data in ((one, b"a"), (other, b"a"), (third, b"b")):
        write(memory, 1, [data])
    marks = [found.mark for memory in (one, other, third) if (found := read_generation(memory))]
    assert marks[0] == marks[1] != marks[2]
