"""What is printed of a log that breaks off and is taken up again: each line once."""

import random

import pytest

from elastic_run.launcher.cluster.pod_logs import PrintedLog


def stamped(at: float, text: str) -> bytes:
    return f"2026-11-27T23:59:{at:012.9f}+02:00 {text}".encode()


def test_a_line_without_a_time_is_the_kubelets_own_word() -> None:
    printed = PrintedLog()
    for line in (b"failed to create a watcher", b"2026-11-27 is a date", b"", b"\xff\xfe"):
        assert printed.text_of(line) == line
    assert printed.take_up() == []


@pytest.mark.parametrize("seed", range(20))
def test_whenever_it_breaks_off_no_line_is_lost_and_none_is_printed_twice(seed: int) -> None:
    """Many lines of one time, of equal text, and of two streams whose times are a little apart."""
    chance = random.Random(seed)
    times = sorted(chance.choice([40 + 0.25 * number for number in range(60)]) for _ in range(200))
    log = [stamped(at - chance.choice([0.0, 0.0, 0.4]), chance.choice("ab")) for at in times]
    printed, found, there = PrintedLog(), list[bytes](), 0
    while there < len(log):
        there = min(len(log), there + chance.randrange(1, 40))
        # The server knows seconds alone, of another zone.
        since = dict(printed.take_up()).get("sinceTime", "2026-11-27T21:59:00Z")
        assert isinstance(since, str)
        again = [line for line in log[:there] if line[17:19] >= since[17:19].encode()]
        found += [text for line in again if (text := printed.text_of(line)) is not None]
    assert found == [line.partition(b" ")[2] for line in log]
