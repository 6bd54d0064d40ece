"""Frames between an agent and its warm interpreter: words of bytes, however the bytes arrive."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elastic_run.elastic_agent.warm.frames import pack, unpack

WORD = st.binary(max_size=20).map(lambda word: word.replace(b"\0", b""))
FRAMES = st.lists(st.lists(WORD, min_size=1, max_size=5), max_size=5)


def test_a_frame_comes_back_as_it_was() -> None:
    assert unpack(pack([b"forked", b"12", b"", b"\xff"])) == ([[b"forked", b"12", b"", b"\xff"]], b"")


def test_nothing_is_no_frame() -> None:
    assert unpack(b"") == ([], b"")


def test_half_a_frame_is_kept_for_later() -> None:
    data = pack([b"ready", b"900"])
    assert unpack(data[:-1]) == ([], data[:-1])


def test_half_a_length_is_kept_for_later() -> None:
    assert unpack(b"\0\0") == ([], b"\0\0")


def test_a_word_with_a_nul_is_refused() -> None:
    with pytest.raises(ValueError, match="NUL"):
        pack([b"import", b"a\0b"])


@given(FRAMES)
def test_all_frames_come_back_in_order(frames: list[list[bytes]]) -> None:
    assert unpack(b"".join(map(pack, frames))) == (frames, b"")


@given(FRAMES, st.data())
def test_frames_may_be_cut_anywhere_on_their_way(frames: list[list[bytes]], data: st.DataObject) -> None:
    whole = b"".join(map(pack, frames))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    found: list[list[bytes]] = []
    rest = b""
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        some, rest = unpack(rest + whole[start:end])
        found += some
    assert (found, rest) == (frames, b"")


@given(FRAMES, st.binary(max_size=3))
def test_what_follows_the_last_whole_frame_is_left(frames: list[list[bytes]], rest: bytes) -> None:
    assert unpack(b"".join(map(pack, frames)) + rest) == (frames, rest)
